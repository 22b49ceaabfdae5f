import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.utils import estimator_checks

import likewise as lw
from likewise.models.frame_mlp import FrameMLP
from likewise.sklearn.deep_rvsml import DeepRVSML, Frames, virtual_loss
from likewise.sklearn.rvsml import align_with, uniform_plan, virtual_sequences
from tests.training.problems import problem

SMALL = {"hidden": 16, "rounds": 2, "epochs": 10, "batch_size": 24, "lr": 0.01, "device": "cpu"}


def data(count=24, fill=0.0):
    x, y = problem(count)
    return lw.Batch(x.values.masked_fill(~x.mask[..., None], fill), x.lengths), y.numpy()


def test_the_loss_equals_plain_loops():
    generator = torch.Generator().manual_seed(0)
    encoded, plan = (torch.rand(7, size, generator=generator, dtype=torch.float64) for size in (12, 4))
    codes, virtual = torch.arange(7) % 3, virtual_sequences(3, 4).double()
    expected = sum(plan[i, j] * (encoded[i] - virtual[codes[i], j]).square().sum() for i in range(7) for j in range(4))
    torch.testing.assert_close(virtual_loss(encoded, codes, plan), expected / 7)


def test_the_network_of_the_paper():
    learner = DeepRVSML(rounds=1, epochs=1, device="cpu").fit(*data(6))
    encoder = learner.metric_.encoder
    assert isinstance(encoder, FrameMLP)
    kinds = [type(layer).__name__ for layer in encoder.layers]
    assert kinds == ["BatchNorm1d", "Linear", "ReLU"] * 3 + ["BatchNorm1d", "Linear"]
    widths = [tuple(p.shape) for p in encoder.parameters() if p.ndim == 2]
    assert widths == [(1024, 2), (1024, 1024), (1024, 1024), (12, 1024)]
    norms = torch.cat(learner.references_.to_list()).norm(dim=1)
    torch.testing.assert_close(norms, torch.ones_like(norms))


def test_batches_are_balanced_and_repeatable():
    codes = torch.tensor([2] * 50 + [0] * 5 + [1] * 20)
    batches = Frames(torch.zeros(75, 1), codes, 24, seed=3).draw()
    assert batches.shape == (4, 24)
    assert all(codes[batch].bincount().tolist() == [8, 8, 8] for batch in batches)
    assert torch.equal(Frames(torch.zeros(75, 1), codes, 24, seed=3).draw(), batches)
    assert not torch.equal(Frames(torch.zeros(75, 1), codes, 24, seed=4).draw(), batches)
    # Room for two classes of three; over many batches, all of them come, and so does every frame.
    few = torch.cat([Frames(torch.zeros(75, 1), codes, 16, seed=seed).draw() for seed in range(60)])
    assert all(sorted(codes[batch].bincount(minlength=3).tolist()) == [0, 8, 8] for batch in few)
    assert len(few.unique()) == 75


@pytest.mark.parametrize("aligner", [None, lw.SoftDTW(0.1)], ids=repr)
def test_it_learns(aligner):
    x, y = data(36)
    learner = DeepRVSML(aligner, **SMALL).fit(x[:24], y[:24])
    assert learner.losses_.shape == (20,)
    assert learner.losses_[9] < 0.9 * learner.losses_[0]  # the losses of different rounds belong to different plans
    assert learner.losses_[19] < learner.losses_[10]
    assert learner.score(x[24:], y[24:]) > 0.9
    encoded = learner.transform(x[:24])
    assert encoded.channels == 12
    _, values = align_with(learner.metric_.distance, encoded, learner.virtual_, torch.from_numpy(y[:24]))
    assert values.mean().item() == pytest.approx(learner.costs_[-1], rel=1e-5)


def test_it_stops():
    assert DeepRVSML(**SMALL | {"rounds": 9, "tol": 1e9}).fit(*data()).n_iter_ == 2
    learner = DeepRVSML(**SMALL | {"rounds": 3, "tol": 1e-9, "epochs": 2}).fit(*data())
    assert (learner.n_iter_, learner.converged_, len(learner.losses_)) == (3, False, 6)


def test_the_seed_decides_and_nothing_else_is_touched():
    x, y = data(fill=torch.nan)
    before, state = x.values.clone(), torch.random.get_rng_state()
    first, same = (DeepRVSML(**SMALL).fit(x, y) for _ in range(2))
    other = DeepRVSML(**SMALL, seed=1).fit(x, y)
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.testing.assert_close(x.values, before, equal_nan=True, rtol=0, atol=0)
    np.testing.assert_array_equal(first.losses_, same.losses_)
    assert not np.array_equal(first.losses_, other.losses_)
    np.testing.assert_array_equal(DeepRVSML(**SMALL).fit(*data(fill=7.0)).losses_, first.losses_)
    assert not first.metric_.training


def test_the_first_plan_sums_to_one():
    x, _ = data(5)
    torch.testing.assert_close(uniform_plan(x, 4).sum((1, 2)), torch.ones(5))
    assert (uniform_plan(x, 4)[~x.mask] == 0).all()


def test_the_metric_can_be_saved(tmp_path):
    x, y = data(12)
    learner = DeepRVSML(**SMALL | {"rounds": 1, "epochs": 2}).fit(x, y)
    learner.metric_.save(tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(lw.Metric.load(tmp_path).matrix(x), learner.metric_.matrix(x))


def test_scikit_learn_and_progress(capsys):
    copy = clone(DeepRVSML(lw.DTW(band=2), lr=0.5))
    assert copy.get_params()["lr"] == 0.5
    for check in (
        estimator_checks.check_no_attributes_set_in_init,
        estimator_checks.check_get_params_invariance,
        estimator_checks.check_set_params,
        estimator_checks.check_estimator_cloneable,
        estimator_checks.check_estimator_repr,
        estimator_checks.check_parameters_default_constructible,
    ):
        check("DeepRVSML", DeepRVSML())
    DeepRVSML(**SMALL | {"epochs": 1}, verbose=True).fit(*data())
    assert "DeepRVSML" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"steps": 0}, ValueError, "DeepRVSML: steps must be a whole number of 1 or more, got 0"),
        ({"epochs": 0}, ValueError, "DeepRVSML: epochs must be"),
        ({"rounds": 1.5}, ValueError, "DeepRVSML: rounds must be"),
        ({"batch_size": 1}, ValueError, "DeepRVSML: batch_size must be a whole number of 2 or more, got 1"),
        ({"lr": 0}, ValueError, "DeepRVSML: lr must be positive"),
        ({"tol": -1}, ValueError, "DeepRVSML: tol must be positive"),
        ({"k": 0}, ValueError, "DeepRVSML: k must be"),
        ({"aligner": "dtw"}, TypeError, "DeepRVSML: expected aligner to be a Distance, got str"),
    ],
)
def test_bad_settings_are_refused(settings, error, message):
    with pytest.raises(error, match=message):
        DeepRVSML(**settings).fit(*data())


def test_bad_data_are_refused():
    x, y = data()
    with pytest.raises(ValueError, match="DeepRVSML: expected at least two classes, got one"):
        DeepRVSML().fit(x, y * 0)
    with pytest.raises(ValueError, match=r"DeepRVSML: expected y of shape \(24,\), got \(5,\)"):
        DeepRVSML().fit(x, y[:5])
