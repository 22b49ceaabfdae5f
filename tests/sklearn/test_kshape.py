import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import likewise as lw
from likewise.clusters.barycenter import read_members
from likewise.clusters.kshape import extract_shapes, shifted, standardized
from likewise.sklearn import KShape

SBD = lw.SBD(independent=False)


@pytest.mark.filterwarnings("ignore:.*SCIPY_ARRAY_API")
@parametrize_with_checks(
    [KShape(3)],
    # Its blobs differ in their levels, of two features: as series they have two shapes, up and down.
    expected_failed_checks=lambda _: {"check_clustering": "k-shape ignores levels"},
)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def shapes(count=24, steps=40, channels=1, seed=0, uneven=False):
    """Peaks, steps and waves at other times, levels and scales."""
    generator = torch.Generator().manual_seed(seed)
    labels, t = np.arange(count) % 3, torch.arange(steps)
    at = torch.randint(8, steps - 12, (count,), generator=generator)[:, None]
    kinds = [((t - at) / 2.0).square().neg().exp(), (t > at).float(), torch.sin((t - at) / 1.5)]
    x = torch.stack(kinds)[torch.from_numpy(labels), torch.arange(count)]
    scale = 1 + torch.rand(count, 1, generator=generator)
    x = (scale * x + scale + 0.05 * torch.randn(count, steps, generator=generator))[..., None]
    x = torch.cat([x * (1 - 3 * c) + 0.1 * c * x.square() for c in range(channels)], 2)
    if not uneven:
        return x, labels
    batch = lw.Batch(x, torch.arange(count) % 4 + steps - 3)
    batch.values[~batch.mask] = torch.nan
    return batch, labels


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("uneven", [False, True])
def test_it_finds_the_shapes_and_what_it_says_is_true(channels, uneven):
    x, labels = shapes(channels=channels, uneven=uneven)
    model = KShape(3, n_init=4, seed=1).fit(x)
    assert adjusted_rand_score(labels, model.labels_) == 1
    D = SBD.matrix(x, model.cluster_centers_).numpy()
    assert model.inertia_ == pytest.approx(float(D.min(1).sum()), rel=1e-4)
    assert model.inertia_ == pytest.approx(-model.score(x), rel=1e-4)
    assert model.inertia_ == pytest.approx(model.history_.min())
    np.testing.assert_array_equal(model.predict(x), model.labels_)
    np.testing.assert_allclose(model.transform(x), D, atol=1e-5)
    assert model.converged_
    again = KShape(3, n_init=4, seed=1).fit(x)
    np.testing.assert_array_equal(again.labels_, model.labels_)
    assert again.inertia_ == model.inertia_


def test_levels_and_scales_do_not_count():
    x, _ = shapes()
    first = KShape(3).fit(x)
    for other in (x * 7, x - 100.0):
        np.testing.assert_array_equal(KShape(3).fit(other).labels_, first.labels_)
    centers = first.cluster_centers_.values
    torch.testing.assert_close(centers.mean(1), torch.zeros(3, 1), atol=1e-5, rtol=0)
    torch.testing.assert_close(centers.var(1, correction=0), torch.ones(3, 1))


def test_a_shape_is_the_papers_eigenvector():
    x = standardized(shapes(9, channels=2)[0].double(), None)
    members, _ = read_members("test", SBD, x)
    center = x[4]
    y = shifted(members, center)
    for n in range(len(x)):  # the best of all shifts
        found = []
        for s in range(-39, 40):
            moved = torch.zeros_like(x[n])
            moved[max(s, 0) : 40 + min(s, 0)] = x[n][max(-s, 0) : 40 - max(s, 0)]
            found.append((float((moved * center).sum()), moved))
        torch.testing.assert_close(y[n], max(found, key=lambda pair: pair[0])[1])
    z = extract_shapes(members, center[None], None)[0]
    Q = torch.eye(40, dtype=torch.float64) - 1 / 40
    for c in range(2):
        S = sum(torch.outer(row, row) for row in y[:, :, c])
        vector = torch.linalg.eigh(Q @ S @ Q).eigenvectors[:, -1]
        vector = vector * torch.sign((y[:, :, c] @ vector).sum())
        torch.testing.assert_close(z[:, c], (vector - vector.mean()) / vector.std(correction=0))


def test_a_cluster_that_empties_takes_the_farthest_item():
    x, _ = shapes(9)
    far = torch.zeros(1, 40, 1)  # nothing is near a constant
    model = KShape(3, init=torch.cat([x[:1], far, far])).fit(x)
    assert len(set(model.labels_)) == 3
    copies = KShape(3).fit([[1.0, 2.0, 0.0]] * 3)
    assert sorted(copies.labels_) == [0, 1, 2], "even if all are equal"
    constant = KShape(2).fit([[1.0, 1.0], [2.0, 2.0], [0.0, 1.0]])
    assert constant.labels_[0] == constant.labels_[1] != constant.labels_[2]


def test_verbose_and_names(capsys):
    x, _ = shapes(9)
    model = KShape(2, n_init=2, verbose=True, length=30).fit(x)
    assert "KShape: start 2 of 2: inertia" in capsys.readouterr().err
    assert model.cluster_centers_.values.shape == (2, 30, 1)
    assert model.get_feature_names_out().tolist() == ["kshape0", "kshape1"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_clusters": 4}, "n_clusters is 4, but X holds n_samples=3"),
        ({"n_clusters": 0}, "n_clusters must be a whole number of 1 or more"),
        ({"n_clusters": 2, "init": "mean"}, 'init must be "k-means\\+\\+", "random" or sequences'),
        ({"n_clusters": 2, "n_init": 0}, "n_init must be a whole number of 1 or more"),
        ({"n_clusters": 2, "max_iter": 0}, "max_iter must be a whole number of 1 or more"),
        ({"n_clusters": 2, "tol": -1.0}, "tol must be 0 or more"),
    ],
)
def test_bad_input_is_refused(settings, message):
    with pytest.raises(ValueError, match=f"KShape: .*{message}"):
        KShape(**settings).fit([[0.0, 1.0], [1.0, 0.0], [2.0, 3.0, 1.0]])


def test_nan_is_refused():
    with pytest.raises(ValueError, match=r"KShape: X\[0\] holds nan at step 1"):
        KShape(1).fit([[1.0, np.nan], [2.0]])
