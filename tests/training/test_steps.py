"""The five systems, each trained through fit on data that take milliseconds."""

import pytest
import torch
from torch import nn

import likewise as lw
from likewise import losses
from likewise.data.augment import RandomBlurOrMerge
from likewise.data.episodes import Episodes
from likewise.models.attended_features import AttendedFeatures
from likewise.models.embedder import Embedder
from likewise.regularizers import JointRepresentationSimilarity, coupling_norm
from likewise.training.adversary import SoftAdversary
from likewise.training.fit import _choose_step, fit
from likewise.training.options import Optimization
from likewise.training.pairs import AlignedPairs
from likewise.training.path_step import path_step
from likewise.training.regularizer import Regularizer
from likewise.training.self_supervised import SelfSupervised
from likewise.training.step import Step, matrix_step, vector_step
from likewise.training.validation import Validation
from tests.training.problems import metric, problem, spread, weights

QUIET = {"verbose": False, "accelerator": "cpu", "batch_size": 8, "epochs": 4, "lr": 0.01}


def test_a_coupled_gru():
    torch.manual_seed(0)
    gru = lw.CoupledGRU(2, hidden=(4,))
    loss = losses.Structural(1.0, 1.0, global_weight=0.1)
    terms = [lambda step: 0.01 * coupling_norm(step.metric)]
    history = fit(gru, problem(), loss, terms=terms, val=0.25, average=0.9, **QUIET)
    assert history.losses[-1] < history.losses[0]
    assert history.best.accuracy > 0.3


def test_tap():
    torch.manual_seed(0)
    m = lw.Metric(lw.FrameMLP(2, 8), lw.TAP(3))
    history = fit(
        m, problem(), losses.BinomialDeviance(), terms=[SelfSupervised(0.1)], augment=RandomBlurOrMerge(), **QUIET
    )
    assert history.losses[-1] < history.losses[0]
    episodes = Episodes(problem()[1], ways=3, shots=1, queries=2, batches=3)
    found = fit(m, problem(), sampler=episodes, **QUIET)
    assert len(found.losses) == 4


def test_adversarial_learning_with_attended_features():
    torch.manual_seed(0)
    backbone = AttendedFeatures(lw.TCN(2, 6, layers=2), ["convolutions.0", "convolutions.1"])
    m = lw.Metric(Embedder(backbone, 4), lw.Euclidean())
    history = fit(m, problem(), losses.Triplet(), terms=[SoftAdversary(0.5)], val=0.25, **QUIET)
    assert history.losses[-1] < history.losses[0]


def test_joint_representation_diversification():
    torch.manual_seed(0)
    m, loss = lw.Metric(Embedder(lw.GRUEncoder(2, 8), 4), lw.Euclidean()), losses.AMSoftmax(3, 4)
    jrd = Regularizer(JointRepresentationSimilarity(), 1.0, of=["backbone", None, loss.cosines])
    history = fit(m, problem(), loss, terms=[jrd], **QUIET | {"lr": {"encoder": 0.01, "loss": 0.1}})
    assert history.losses[-1] < history.losses[0]


def pairs(count=12, steps=14, seed=0):
    """y is x at another speed, with noise; the third channel carries no information."""
    generator = torch.Generator().manual_seed(seed)
    times = torch.linspace(0, 1, steps)
    truth = times ** (0.6 + torch.rand(count, 1, generator=generator))  # (N, T): where x's frames are in y

    def at(where):
        signal = torch.stack([(6 * where).sin(), (6 * where).cos()], 2)
        return torch.cat([signal, torch.randn(count, steps, 1, generator=generator)], 2)

    return AlignedPairs(at(truth), at(times.expand(count, -1)), truth)


PATH_LOSSES = [
    (losses.WarpError(power=1), lw.GDTW(reg=0.1)),
    (losses.TimeError(), lw.GDTW(reg=0.1)),
    (losses.MaxPositionError(), lw.GDTW(reg=0.1)),
    (losses.Dilate(0.5), lw.SoftDTW(0.1)),
    (losses.AlongPath(), lw.DTW()),
    (losses.AlongWarp(), lw.DTW()),
    (losses.SoftSubsequenceDTW(0.1), lw.SoftDTW(0.1, subsequence=True)),
]


@pytest.mark.parametrize(("loss", "distance"), PATH_LOSSES, ids=lambda part: type(part).__name__)
def test_pairs_with_a_known_alignment(loss, distance):
    torch.manual_seed(0)
    m = lw.Metric(lw.FrameMLP(3, 8, normalize=False), distance)
    before = weights(m)
    history = fit(m, pairs(), loss, val=Validation(0.25, every=0.5, before=True), **QUIET | {"batch_size": 3})
    assert not torch.equal(weights(m), before) or history.best_epoch == 0
    assert history.best["loss"] == min(score["loss"] for score in history.scores) <= history.scores[0]["loss"]
    assert len(history.scores) == 1 + 2 * 4


def test_learning_lowers_the_warps_error():
    torch.manual_seed(0)
    encoder = nn.Linear(3, 3, bias=False)
    nn.init.eye_(encoder.weight)
    m = lw.Metric(Framewise(encoder), lw.GDTW(reg=0.1))
    history = fit(
        m, pairs(24), losses.WarpError(power=1), val=Validation(pairs(12, seed=1), before=True),
        **QUIET | {"epochs": 10, "lr": 0.05},
    )  # fmt: skip
    assert history.best["loss"] < 0.8 * history.scores[0]["loss"]


class Framewise(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, batch):
        return lw.Batch(self.layer(batch.values), batch.lengths)


def test_padding_and_points_of_their_own():
    torch.manual_seed(0)
    whole = pairs(4)
    x = lw.Batch(torch.cat([whole.x.values, torch.full((4, 3, 3), torch.nan)], 1), torch.full((4,), 14))
    truth = torch.cat([whole.truth, torch.full((4, 3), torch.nan)], 1)
    m = lw.Metric(lw.FrameMLP(3, 8), lw.GDTW(reg=0.1))
    labels = torch.arange(4)
    for loss, distance in PATH_LOSSES:
        m.distance = distance
        found = path_step(Step(m, AlignedPairs(x, whole.y, truth)[[0, 1, 2, 3]], labels, loss))
        expected = path_step(Step(m, whole, labels, loss))
        torch.testing.assert_close(found, expected)
        points = AlignedPairs(whole.x, whole.y, whole.truth[:, ::2], points=torch.linspace(0, 1, 14)[::2])
        assert path_step(Step(m, points, labels, loss)).isfinite()


def test_a_step_of_ones_own():
    class Pull(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(()))

        def forward(self, step):
            assert step.loss is None
            assert step.generator.initial_seed() != 0
            return (self.weight * step.D).mean() + (self.weight - 2) ** 2

    pull = Pull()
    fit(metric(), problem(), step=pull, **QUIET)
    assert pull.weight > 1


def test_the_step_is_chosen_by_the_loss_and_the_data():
    x = problem()[0]
    assert _choose_step(x, spread) is matrix_step
    assert _choose_step(x, losses.ProxyNCA(3, 4)) is vector_step
    assert _choose_step(pairs(), losses.WarpError()) is path_step
    with pytest.raises(ValueError, match="AlignedPairs need a PathLoss, or your own step; got loss Triplet"):
        _choose_step(pairs(), losses.Triplet())
    with pytest.raises(ValueError, match=r"WarpError learns from AlignedPairs\(x, y, truth\)"):
        _choose_step(x, losses.WarpError())
    with pytest.raises(ValueError, match="this loss needs the warp of a GDTW; the distance is DTW"):
        fit(lw.Metric(lw.FrameMLP(3, 4), lw.DTW()), pairs(), losses.WarpError(), **QUIET)


def test_bare_fit_chooses_a_loss():
    torch.manual_seed(0)
    x, y = problem()
    names = [f"class {label}" for label in y.tolist()]
    quick = {"epochs": 1, "verbose": False, "accelerator": "cpu"}
    for m in (metric(), lw.CoupledGRU(2, hidden=(4,)), lw.Metric(lw.GRUEncoder(2, 4), lw.Cosine()), lw.TAP(3)):
        assert len(fit(m, (x, names), **quick).losses) == 1
    assert len(fit(lw.Metric(lw.FrameMLP(3, 4), lw.GDTW()), pairs(), **quick).losses) == 1
    assert len(fit(lw.TAP(3), x, augment=RandomBlurOrMerge(), **quick).losses) == 1


def test_schedules_and_plain_optimizers():
    history = fit(
        metric(), problem(), spread, **QUIET,
        optimizer=Optimization(torch.optim.SGD, weight_decay=0.0, clip=0.1, schedule=lambda o: torch.optim.lr_scheduler.StepLR(o, 1)),
    )  # fmt: skip
    assert len(history.losses) == 4
