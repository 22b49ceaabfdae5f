import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import likewise as lw
from likewise.sklearn.ldmlt import LDMLT, logdet_step, nearest_triplets
from tests.training.problems import problem


def data(count=18, fill=0.0):
    x, y = problem(count)
    return lw.Batch(x.values.double().masked_fill(~x.mask[..., None], fill), x.lengths), y.numpy()


def scatter_by_loops(aligner, x, y, M):
    root = torch.linalg.cholesky(M)
    plan = aligner.align((x @ root)[None], (y @ root)[None]).plan[0]
    S = torch.zeros_like(M)
    for i in range(len(x)):
        for j in range(len(y)):
            S += plan[i, j] * torch.outer(x[i] - y[j], x[i] - y[j])
    return S


def by_loops(items, y, aligner, margin, rate, sweeps, seed):
    """The paper's steps, triplet by triplet and frame by frame, with the nearest neighbours of each sequence."""
    channels = items[0].shape[1]
    M, generator, unit, failures = (
        torch.eye(channels, dtype=torch.float64),
        torch.Generator().manual_seed(seed),
        None,
        [],
    )
    for _ in range(sweeps):

        def distance(a, b, M=M):
            return float((M * scatter_by_loops(aligner, items[a], items[b], M)).sum())

        triplets, nearest = [], []
        for a in range(len(items)):
            same = [b for b in range(len(items)) if b != a and y[b] == y[a]]
            other = [b for b in range(len(items)) if y[b] != y[a]]
            triplets.append((a, min(same, key=lambda b: distance(a, b)), min(other, key=lambda b: distance(a, b))))
            nearest.append(min(distance(a, b) for b in same))
        unit = unit or sum(nearest) / len(nearest)
        failed = 0
        for n in torch.randperm(len(triplets), generator=generator).tolist():
            a, b, c = triplets[n]
            near, far = (scatter_by_loops(aligner, items[a], items[other], M) for other in (b, c))
            if float((M * far).sum()) < float((M * near).sum()) + margin * unit:
                failed, step = failed + 1, rate / unit
                while True:
                    inverse = torch.linalg.inv(M) + step * (near - far)
                    if torch.linalg.eigvalsh(inverse)[0] > 1e-10 * torch.linalg.eigvalsh(inverse)[-1]:
                        break
                    step /= 2
                M = torch.linalg.inv(inverse)
        M = M * channels / M.trace()
        failures.append(failed / len(triplets))
        if not failed:
            break
    return M, failures


@pytest.mark.parametrize("aligner", [lw.DTW(), lw.OPW(n_iter=20)], ids=repr)
def test_equal_to_plain_loops(aligner):
    x, y = data(9)
    learner = LDMLT(aligner, margin=60.0, rate=0.02, max_iter=2, seed=3).fit(x, y)
    M, failures = by_loops(x.to_list(), y, aligner, 60.0, 0.02, 2, 3)
    assert max(failures) > 0, "something was learned"
    np.testing.assert_allclose(learner.violations_, failures)
    torch.testing.assert_close(learner.mahalanobis_, M, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(learner.weight_ @ learner.weight_.T, M, rtol=1e-8, atol=1e-10)
    for found, item in zip(learner.transform(x), x, strict=True):
        torch.testing.assert_close(found, item @ learner.weight_)


def test_a_step_minimises_the_logdet_divergence_plus_the_hinge():
    generator = torch.Generator().manual_seed(0)
    root, change = (torch.randn(3, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    M, change = root @ root.T + torch.eye(3), 0.05 * (change + change.T)
    stepped = logdet_step(M, change, 0.7).requires_grad_()
    product = stepped @ torch.linalg.inv(M)
    (product.trace() - torch.logdet(product) + 0.7 * (stepped * change).sum()).backward()
    assert stepped.grad.abs().max() < 1e-12


def test_a_step_that_is_too_long_is_cut():
    M, change = torch.eye(2, dtype=torch.float64), -torch.eye(2, dtype=torch.float64)
    # M^-1 + rate change is (1 - rate) I: 4, 2 and 1 are not positive definite, 0.5 is.
    torch.testing.assert_close(logdet_step(M, change, 4.0), 2 * M)


def test_triplets_of_uneven_classes():
    D = torch.tensor([[0.0, 2, 1, 5, 4], [2, 0, 3, 6, 7], [1, 3, 0, 9, 8], [5, 6, 9, 0, 1], [4, 7, 8, 1, 0]])
    found = nearest_triplets(D, torch.tensor([0, 0, 0, 1, 2]), 2)
    assert found.tolist() == [[0, 2, 4], [0, 1, 3], [1, 0, 3], [1, 2, 4], [2, 0, 4], [2, 1, 3]]


def test_finds_the_channel_that_tells_classes_apart():
    generator = torch.Generator().manual_seed(0)
    labels = np.arange(24) % 2
    series = [
        torch.stack([label + 0.3 * torch.randn(6, generator=generator), 3 * torch.randn(6, generator=generator)], 1)
        for label in labels
    ]
    train, test = (series[:16], labels[:16]), (series[16:], labels[16:])
    plain = lw.evaluate(lw.DTW(), test, train).accuracy
    learner = LDMLT(margin=0.5).fit(*train)
    assert learner.score(*test) > plain
    assert learner.mahalanobis_[0, 0] > 10 * learner.mahalanobis_[1, 1]


def test_padding_does_not_matter():
    (x, y), (filled, _) = data(9), data(9, fill=7.0)
    a, b = (LDMLT(margin=1.0, max_iter=2).fit(each, y).mahalanobis_ for each in (x, filled))
    assert (a == b).all()


def test_can_be_cloned_saved_and_asked_only_once_fitted(tmp_path):
    x, y = data(9)
    learner = clone(LDMLT(max_iter=2))
    with pytest.raises(NotFittedError):
        learner.predict(x)
    learner.fit(x, y)
    learner.metric_.save(tmp_path / "metric")
    loaded = lw.Metric.load(tmp_path / "metric")
    torch.testing.assert_close(loaded.matrix(x), learner.metric_.matrix(x))


@pytest.mark.parametrize(
    ("options", "labels", "message"),
    [
        ({"margin": 0}, [0, 0, 1], "margin"),
        ({"rate": -1.0}, [0, 0, 1], "rate"),
        ({}, [0, 0, 0], "two classes"),
        ({}, [0, 1, 2], "two sequences or more"),
    ],
)
def test_refusals(options, labels, message):
    with pytest.raises(ValueError, match=message):
        LDMLT(**options).fit([[[0.0]], [[1.0]], [[2.0]]], labels)
