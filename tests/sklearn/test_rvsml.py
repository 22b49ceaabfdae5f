import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks

import likewise as lw
from likewise.distances.opw import OPW
from likewise.sklearn import rvsml
from likewise.sklearn.rvsml import RVSML, virtual_sequences
from tests.training.problems import problem

NAMES = np.array(["walk", "run", "sit"])


def data(count=18, fill=0.0):
    x, y = problem(count)
    return lw.Batch(x.values.double().masked_fill(~x.mask[..., None], fill), x.lengths), y.numpy()


def by_loops(items, y, aligner, ridge, steps, tol, max_iter):
    """The paper's alternation, frame by frame."""
    classes, channels = int(y.max()) + 1, items[0].shape[1]
    size = classes * steps
    plans = [torch.full((len(item), steps), 1 / (len(item) * steps), dtype=torch.float64) for item in items]
    costs, norms = [], []
    for _ in range(max_iter):
        left = ridge * len(items) * torch.eye(channels, dtype=torch.float64)
        right = torch.zeros(channels, size, dtype=torch.float64)
        for item, label, plan in zip(items, y, plans, strict=True):
            for i, frame in enumerate(item):
                for j in range(steps):
                    row = torch.zeros(size, dtype=torch.float64)
                    row[label * steps + j] = 1
                    left += plan[i, j] * frame[:, None] * frame
                    right += plan[i, j] * frame[:, None] * row
        weight = torch.linalg.inv(left) @ right
        distances = []
        for n, (item, label) in enumerate(zip(items, y, strict=True)):
            target = torch.eye(size, dtype=torch.float64)[label * steps : (label + 1) * steps]
            alignment = aligner.align((item @ weight)[None], target[None])
            plans[n] = alignment.plan[0]
            distances.append(float(alignment.value))
        costs.append(sum(distances) / len(items))
        norms.append(float((weight**2).sum()))
        if len(costs) > 1 and abs(costs[-1] + norms[-1] - costs[-2] - norms[-2]) < tol:
            break
    return weight, costs, norms, plans


# The first plan gives all rows of a class the same image, and many paths of DTW the same cost: of several rows,
# rounding then chooses the path. Soft-DTW takes all of them, OPW has one best plan.
@pytest.mark.parametrize(
    ("aligner", "steps"), [(lw.DTW(), 1), (lw.SoftDTW(0.3), 1), (lw.SoftDTW(0.3), 3), (OPW(n_iter=20), 3)]
)
def test_equal_to_plain_loops(aligner, steps):
    x, y = data()
    learner = RVSML(aligner, ridge=0.05, steps=steps, max_iter=6, tol=1e-4).fit(x, y)
    weight, costs, norms, _ = by_loops(x.to_list(), y, aligner, 0.05, steps, 1e-4, 6)
    np.testing.assert_allclose(learner.costs_, costs, rtol=1e-9)
    np.testing.assert_allclose(learner.norms_, norms, rtol=1e-9)
    torch.testing.assert_close(learner.weight_, weight)
    assert learner.n_iter_ == len(costs)
    for found, item in zip(learner.transform(x), x, strict=True):
        torch.testing.assert_close(found, item @ weight)


@pytest.mark.parametrize("aligner", [lw.DTW(), lw.DTW(band=0.5), lw.SoftDTW(0.2)], ids=repr)
def test_each_half_of_a_round_equals_plain_loops(aligner):
    x, y = data()
    generator = torch.Generator().manual_seed(0)
    plan = torch.rand(len(x), x.values.shape[1], 3, generator=generator, dtype=torch.float64) * x.mask[..., None]
    weight = rvsml.regress(x, torch.from_numpy(y), plan, 3, 0.05)
    residual, virtual = 0.05 * len(x) * weight, virtual_sequences(3, 3).double()
    for item, share, label in zip(x, plan, y, strict=True):
        for i, frame in enumerate(item):
            for j in range(3):
                residual += share[i, j] * frame[:, None] * (frame @ weight - virtual[label, j])
    assert residual.abs().max() < 1e-12, "the derivative of the objective is zero"
    encoded = lw.Batch(x.values @ weight, x.lengths)
    plans, values = rvsml.align_with(aligner, encoded, virtual, torch.from_numpy(y))
    for n, item in enumerate(encoded):
        alignment = aligner.align(item[None], virtual[y[n]][None])
        torch.testing.assert_close(plans[n, : len(item)], alignment.plan[0])
        assert (plans[n, len(item) :] == 0).all()
        torch.testing.assert_close(values[n], alignment.value[0])


def test_two_classes_by_hand():
    # Each sequence is one frame, and r = 1: the plan is 1 always, and W = (sum x x' + ridge N)^-1 sum x v'.
    learner = RVSML(ridge=0.5, steps=1, tol=1e-9).fit([[[2.0]], [[-1.0]]], [0, 1])
    # sum of squares 5, ridge 0.5 * 2 = 1: W = [2, -1] / 6.
    torch.testing.assert_close(learner.weight_, torch.tensor([[2.0, -1.0]]) / 6)
    # |2 W - e_0|^2 = (4/6 - 1)^2 + (2/6)^2 = 8/36; |-W - e_1|^2 = (2/6)^2 + (1/6 - 1)^2 = 29/36.
    np.testing.assert_allclose(learner.costs_, (8 + 29) / 36 / 2, rtol=1e-6)
    np.testing.assert_allclose(learner.norms_, 5 / 36, rtol=1e-6)
    assert (learner.n_iter_, learner.converged_) == (2, True)
    assert learner.predict([[[3.0]], [[-2.0]]]).tolist() == [0, 1]


def test_the_first_plan_by_hand():
    # Two frames, r = 2, one round: all shares are 1/4, so frames weigh 1/2 and each row draws on their mean.
    learner = RVSML(ridge=1.0, steps=2, max_iter=1).fit([[[1.0], [3.0]], [[-1.0], [-1.0]]], [0, 1])
    # (1 + 9) / 2 + (1 + 1) / 2 + 1 * 2 = 8; class 0: (1 + 3) / 4 = 1, class 1: -1/2.
    torch.testing.assert_close(learner.weight_, torch.tensor([[1.0, 1.0, -0.5, -0.5]]) / 8)
    assert (learner.n_iter_, learner.converged_) == (1, False)


@pytest.mark.parametrize("aligner", [lw.DTW(), lw.SoftDTW(0.5)], ids=repr)
def test_the_objective_falls_to_a_fixed_point(aligner):
    x, y = data(24)
    learner = RVSML(aligner, ridge=0.02, tol=1e-9).fit(x, y)
    assert learner.converged_
    objective = learner.costs_ + 0.02 * learner.norms_
    assert (np.diff(objective) <= 1e-9).all(), "both steps of the alternation lower the objective"
    codes = torch.from_numpy(y)
    plan, values = rvsml.align_with(aligner, learner.transform(x), learner.virtual_, codes)
    torch.testing.assert_close(rvsml.regress(x, codes, plan, 3, 0.02), learner.weight_, rtol=1e-3, atol=1e-5)
    assert values.mean().item() == pytest.approx(learner.costs_[-1])


def test_virtual_sequences_are_distinct_unit_vectors():
    virtual = virtual_sequences(3, 4)
    assert virtual.shape == (3, 4, 12)
    assert torch.equal(virtual.flatten(0, 1), torch.eye(12))
    assert torch.equal(RVSML(steps=2, max_iter=1).fit(*data()).virtual_, virtual_sequences(3, 2).double())


@pytest.mark.parametrize("fill", [torch.nan, torch.inf, 1e6])
def test_padding_does_not_matter(fill):
    expected, got = (RVSML(max_iter=5).fit(*data(fill=value)) for value in (0.0, fill))
    assert torch.equal(expected.weight_, got.weight_)
    x, y = data(fill=fill)
    assert got.predict(x).tolist() == RVSML(max_iter=5).fit(x.to_list(), y).predict(x.to_list()).tolist()


def test_parts_change_nothing(monkeypatch):
    expected = RVSML(max_iter=4).fit(*data())
    monkeypatch.setattr(rvsml, "NUMBERS_AT_ONCE", 50)
    got = RVSML(max_iter=4).fit(*data())
    torch.testing.assert_close(got.weight_, expected.weight_)
    np.testing.assert_allclose(got.costs_, expected.costs_)


def test_it_beats_the_raw_distance_where_a_channel_is_noise():
    generator = torch.Generator().manual_seed(3)
    y = np.arange(60) % 2
    signal = torch.from_numpy(y)[:, None, None] - 0.5 + 0.1 * torch.randn(60, 12, 1, generator=generator)
    x = torch.cat([signal, 5 * torch.randn(60, 12, 3, generator=generator)], 2)
    learner = RVSML(ridge=0.01).fit(x[:40], y[:40])
    raw = lw.sklearn.NearestNeighbors(lw.DTW()).fit(x[:40], y[:40])
    assert learner.score(x[40:], y[40:]) == 1.0
    assert raw.score(x[40:], y[40:]) < 0.9


def test_forms_of_items_and_labels():
    x, y = data(21)  # no alignments tie here: the order of the classes, hence of sums, decides nothing
    expected = RVSML(k=3).fit(x, y)
    named = RVSML(k=3).fit([item.numpy() for item in x], NAMES[y])
    assert named.classes_.tolist() == sorted(NAMES)
    assert named.predict(x).tolist() == NAMES[expected.predict(x)].tolist()
    objects = np.empty(len(x), dtype=object)
    objects[:] = [item.numpy() for item in x]
    np.testing.assert_array_equal(RVSML(k=3).fit(objects, y).predict(objects), expected.predict(x))
    half = RVSML().fit(lw.Batch(x.values.half(), x.lengths), y)
    assert half.weight_.dtype == torch.float32
    assert RVSML().fit(x, y).fit_transform(x, y).channels == 12
    distances, indices = expected.kneighbors(x[:2])
    assert distances.shape == indices.shape == (2, 3)
    assert expected.kneighbors(x[:0])[1].shape == (0, 3)


def test_the_metric_can_be_saved(tmp_path):
    x, y = data()
    learner = RVSML(lw.SoftDTW(0.2), max_iter=3).fit(x, y)
    learner.metric_.save(tmp_path)
    torch.testing.assert_close(lw.Metric.load(tmp_path).matrix(x), learner.metric_.matrix(x))


def test_nothing_of_the_callers_is_touched():
    x, y = data(fill=torch.nan)
    before, aligner = x.values.clone(), lw.SoftDTW(0.2).train()
    state = torch.random.get_rng_state()
    learner = RVSML(aligner, max_iter=2).fit(x, y)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert learner.metric_.distance is not aligner
    assert aligner.training
    torch.testing.assert_close(x.values, before, equal_nan=True, rtol=0, atol=0)


def test_scikit_learn():
    original = RVSML(lw.DTW(band=2), ridge=0.3, k=2)
    copy = clone(original)
    assert copy.get_params()["ridge"] == 0.3
    assert copy.aligner is not original.aligner
    x, y = data()
    with pytest.raises(NotFittedError):
        copy.predict(x)
    for check in (
        estimator_checks.check_no_attributes_set_in_init,
        estimator_checks.check_get_params_invariance,
        estimator_checks.check_set_params,
        estimator_checks.check_estimator_cloneable,
        estimator_checks.check_estimator_repr,
        estimator_checks.check_parameters_default_constructible,
    ):
        check("RVSML", RVSML())
    items = x.to_list()
    search = GridSearchCV(RVSML(max_iter=2), {"ridge": [0.01, 0.1], "steps": [1, 4]}, cv=2).fit(items, y)
    assert set(search.best_params_) == {"ridge", "steps"}
    pipeline = make_pipeline(RVSML(max_iter=2), lw.sklearn.NearestNeighbors(lw.DTW()))
    assert pipeline.fit(items, y).score(items, y) == 1.0


def test_progress(capsys):
    RVSML(max_iter=2, verbose=True).fit(*data())
    assert "RVSML" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x, y: RVSML().fit(x, y * 0), ValueError, "RVSML: expected at least two classes, got one"),
        (lambda x, y: RVSML().fit(x, y[:3]), ValueError, r"RVSML: expected y of shape \(18,\), got \(3,\)"),
        (lambda x, y: RVSML().fit(x, np.linspace(0, 1, 18)), ValueError, "Unknown label type: continuous"),
        (lambda x, y: RVSML(ridge=0).fit(x, y), ValueError, "RVSML: ridge must be positive and finite, got 0"),
        (lambda x, y: RVSML(ridge=-1.0).fit(x, y), ValueError, "RVSML: ridge must be positive"),
        (lambda x, y: RVSML(steps=0).fit(x, y), ValueError, "RVSML: steps must be a whole number of 1 or more, got 0"),
        (lambda x, y: RVSML(tol=0).fit(x, y), ValueError, "RVSML: tol must be positive"),
        (lambda x, y: RVSML(max_iter=0).fit(x, y), ValueError, "RVSML: max_iter must be a whole number of 1 or more"),
        (lambda x, y: RVSML(k=99).fit(x, y), ValueError, "RVSML: k is 99, but X holds 18 samples"),
        (lambda x, y: RVSML("dtw").fit(x, y), TypeError, "RVSML: expected aligner to be a Distance, got str"),
        (lambda x, y: RVSML().fit(np.zeros((4, 3)), [0, 1, 0, 1]), ValueError, "add a channel with X"),
        (lambda x, y: RVSML().fit([[1.0, np.nan], [2.0]], [0, 1]), ValueError, r"RVSML: X\[0\] holds nan at step 1"),
        (lambda x, y: RVSML().fit(x, y).predict(np.zeros((1, 4, 5))), ValueError, "expected x with 2 channels, got 5"),
    ],
)
def test_bad_use_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call(*data())
