import math

import pytest
import torch
from torch import nn

import likewise as lw
from likewise.losses import Triplet
from likewise.models.embedder import Embedder
from likewise.models.gru_encoder import GRUEncoder
from likewise.models.metric import Metric
from likewise.training.adversary import AdaptiveAdversary, ClassAdversary, SoftAdversary
from likewise.training.fit import fit
from likewise.training.options import Checkpoints
from likewise.training.step import Step
from tests.training.problems import problem

QUIET = {"verbose": False, "accelerator": "cpu", "batch_size": 8, "epochs": 3, "lr": 0.01}


def embedder(seed=0):
    torch.manual_seed(seed)
    return Metric(Embedder(GRUEncoder(2, 6), 4), lw.Euclidean())


def prepared(kind, strength, **options):
    m, (x, y) = embedder(), problem()
    torch.manual_seed(1)
    adversary = kind(strength, dropout=0.0, **options)
    adversary.prepare(m, x, y)
    return m, adversary, x, y


def gradients(module, value):
    """Of all parameters, in one vector."""
    found = torch.autograd.grad(value, list(module.parameters()), retain_graph=True, allow_unused=True)
    return torch.cat(
        [(torch.zeros_like(p) if g is None else g).flatten() for p, g in zip(module.parameters(), found, strict=True)]
    )


@pytest.mark.parametrize("strength", [0.0, 0.5, -0.3])
def test_features_are_reversed_and_the_classifier_is_not(strength):
    m, adversary, x, y = prepared(ClassAdversary, strength)
    step = Step(m, x, y, layers=adversary.layers)
    plain = adversary.classification_loss(step.layer("backbone"), y)
    value = adversary(step)
    assert value.item() == plain.item()
    torch.testing.assert_close(gradients(m, value), -strength * gradients(m, plain))
    assert torch.equal(gradients(adversary.head, value), gradients(adversary.head, plain))
    assert gradients(adversary.head, value).abs().sum() > 0


def test_the_soft_one_is_lowered_by_both():
    m, adversary, x, y = prepared(SoftAdversary, 0.4)
    step = Step(m, x, y, layers=adversary.layers)
    scores = adversary.head(step.layer("backbone")).log_softmax(1)
    target = 0.85 * nn.functional.one_hot(y) + 0.15 / 3
    assert torch.allclose(target.sum(1), torch.ones(len(y)))
    torch.testing.assert_close(adversary(step), -0.4 * (target * scores).sum(1).mean())
    plain = adversary.classification_loss(step.layer("backbone"), y)
    torch.testing.assert_close(gradients(m, adversary(step)), 0.4 * gradients(m, plain))


def test_the_classifier_gets_the_input_of_the_embedding_layer():
    m, adversary, _, _ = prepared(ClassAdversary, 1.0)
    assert adversary.layers == ("backbone",)
    assert (adversary.head.channels, adversary.head.classes) == (6, 3)
    assert not any(p.grad is not None for p in m.parameters())
    named = ClassAdversary(layer="outward", hidden=5)
    named.prepare(m, *problem())
    assert (named.head.channels, named.head.hidden) == (4, 5)


@pytest.mark.parametrize("encoder", [GRUEncoder(2, 6), lw.TCN(2, 6, layers=1), lw.FrameMLP(2, 8, 6), None], ids=repr)
def test_any_encoder(encoder):
    m = Metric(encoder, lw.SoftDTW() if encoder is None or not isinstance(encoder, GRUEncoder) else lw.Euclidean())
    x, y = problem()
    adversary = ClassAdversary()
    adversary.prepare(m, x, y)
    step = Step(m, x, y, layers=adversary.layers)
    assert adversary.features(step).shape == (len(x), 2 if encoder is None else 6)
    if encoder is None:
        expected = torch.stack([item.mean(0) for item in x])
        torch.testing.assert_close(adversary.features(step), expected)


def test_labels_need_not_be_counted_from_zero():
    m, adversary, x, y = prepared(ClassAdversary, 0.5)
    other = ClassAdversary(0.5, dropout=0.0)
    torch.manual_seed(1)
    other.prepare(m, x, 10 * y - 7)
    step = Step(m, x, 10 * y - 7, layers=other.layers)
    assert other(step).item() == pytest.approx(adversary(Step(m, x, y, layers=adversary.layers)).item())


def test_a_head_that_fits_is_kept():
    m, adversary, x, y = prepared(ClassAdversary, 0.5)
    head = adversary.head
    adversary.prepare(m, x, y + 5)
    assert adversary.head is head
    adversary.prepare(m, x, torch.arange(len(x)) % 4)
    assert adversary.head is not head


@pytest.mark.parametrize(("loss", "expected"), [(1.5, 0.0), (0.0, math.tanh(1.5)), (math.inf, -1.0)])
def test_equation_25_at_its_three_values(loss, expected):
    assert AdaptiveAdversary(0.8).schedule(loss) == pytest.approx(0.8 * expected)
    assert math.tanh(1.5) == pytest.approx(0.905, abs=1e-3)


def test_lambda_is_set_once_an_epoch():
    m, adversary, x, y = prepared(AdaptiveAdversary, 0.5)
    assert adversary.scale.item() == pytest.approx(-0.5 * math.tanh(math.log(3) - 1.5))
    first = adversary.scale.item()
    values = []
    for part in (slice(0, 8), slice(8, 24)):
        values.append(adversary(Step(m, x[part], y[part], layers=adversary.layers, epoch=0)).item())
        assert adversary.scale.item() == first
    step = Step(m, x, y, layers=adversary.layers, epoch=1)
    value = adversary(step)
    expected = -0.5 * math.tanh(sum(values) / 2 - 1.5)
    assert adversary.scale.item() == pytest.approx(expected)
    plain = adversary.classification_loss(step.layer("backbone"), y)
    torch.testing.assert_close(gradients(m, value), -adversary.scale * gradients(m, plain))
    adversary.eval()
    adversary(Step(m, x, y, layers=adversary.layers, epoch=2))
    assert adversary.scale.item() == pytest.approx(expected), "no training, no schedule"


def test_a_loaded_epoch_goes_on():
    m, adversary, x, y = prepared(AdaptiveAdversary, 0.5)
    adversary(Step(m, x, y, layers=adversary.layers, epoch=2))
    _, other, _, _ = prepared(AdaptiveAdversary, 0.5)
    nn.ModuleList([other]).load_state_dict(nn.ModuleList([adversary]).state_dict())
    scale = other.scale.item()
    other(Step(m, x, y, layers=other.layers, epoch=2))
    assert other.scale.item() == scale
    assert other.steps.item() == 2


def test_a_ceiling():
    assert AdaptiveAdversary(0.5, ceiling=0.1).schedule(0.0) == 0.1
    assert AdaptiveAdversary(0.5, ceiling=0.1).schedule(100.0) == -0.5


@pytest.mark.parametrize("kind", [ClassAdversary, SoftAdversary, AdaptiveAdversary])
def test_fit_trains_the_classifier(kind):
    m, (x, y) = embedder(), problem()
    adversary = kind(0.5)
    before = m.encoder.outward.weight.clone()
    fit(m, (x, y), Triplet(), terms=[adversary], **QUIET | {"epochs": 12})
    assert not torch.equal(m.encoder.outward.weight, before)
    adversary.eval()
    step = Step(m, x, y, layers=adversary.layers)
    assert adversary.classification_loss(step.layer("backbone"), y) < math.log(3)


def test_the_seed_decides_the_classifier():
    weights = []
    for seed in (0, 0, 1):
        adversary = ClassAdversary(0.5)
        torch.manual_seed(len(weights))
        fit(embedder(), problem(), Triplet(), terms=[adversary], **QUIET | {"seed": seed})
        weights.append(adversary.head.layers[0].weight)
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_a_resumed_run_keeps_lambda(tmp_path):
    class CrashError(Exception):
        pass

    def crash(step):
        if step.total == 7:
            raise CrashError
        return step.features.sum() * 0

    x, y = problem()
    options = QUIET | {"lr": {"encoder": 0.01, "terms.0": 0.05}}
    ours, ours_adversary = embedder(), AdaptiveAdversary(0.5)
    with pytest.raises(CrashError):
        fit(
            ours,
            (x, y),
            Triplet(),
            terms=[ours_adversary, crash],
            checkpoints=Checkpoints(tmp_path, every=2),
            **options,
        )
    ours, ours_adversary = embedder(7), AdaptiveAdversary(0.5)
    fit(ours, (x, y), Triplet(), terms=[ours_adversary], checkpoints=Checkpoints(tmp_path, resume=True), **options)
    whole, adversary = embedder(), AdaptiveAdversary(0.5)
    fit(whole, (x, y), Triplet(), terms=[adversary], **options)
    for name, value in adversary.state_dict().items():
        assert torch.equal(ours_adversary.state_dict()[name], value), name
    for name, value in whole.state_dict().items():
        assert torch.equal(ours.state_dict()[name], value), name


def test_each_fit_starts_its_own_schedule():
    """Runs of one epoch each: epochs are the run's, however often fit was called before."""
    m, adversary, scales = embedder(), AdaptiveAdversary(0.5, dropout=0.0), []

    def note(step):
        scales.append(adversary.scale.item())
        return step.features.sum() * 0

    means = []
    for _ in range(3):
        fit(m, problem(), Triplet(), terms=[adversary, note], **QUIET | {"epochs": 1})
        means.append((adversary.total / adversary.steps).item())
    expected = [adversary.schedule(loss) for loss in (math.log(3), *means[:2])]
    assert scales == pytest.approx([scale for scale in expected for _ in range(3)])
    assert len(set(scales)) == 3


def test_refusals():
    m, (x, y) = embedder(), problem()
    with pytest.raises(ValueError, match="there is only one class"):
        ClassAdversary().prepare(m, x, torch.zeros_like(y))
    with pytest.raises(ValueError, match=r"has no layer 'backbon'; similar names are backbone"):
        fit(m, (x, y), Triplet(), terms=[ClassAdversary(layer="backbon")], **QUIET)
    with pytest.raises(ValueError, match="has no classifier yet; fit makes it"):
        ClassAdversary().classification_loss(torch.zeros(1, 2), y[:1])
    with pytest.raises(ValueError, match="strength must be finite"):
        ClassAdversary(math.nan)
    with pytest.raises(ValueError, match="smoothing must be at least 0 and less than 1"):
        SoftAdversary(smoothing=1.0)
    with pytest.raises(
        ValueError, match=r"layer 'x' was not requested .requested: none.; name it in the term's layers"
    ):
        Step(m, x, y).layer("x")


def test_repr():
    assert repr(ClassAdversary(0.5)) == "ClassAdversary(0.5, smoothing=0.0)"
    assert "threshold=1.5, lambda=0.000" in repr(AdaptiveAdversary(0.5))


def test_a_threshold_may_follow_the_number_of_classes():
    metric, (x, y) = Metric(Embedder(GRUEncoder(2, 6), 4), lw.Euclidean()), problem()
    adversary = AdaptiveAdversary(0.5, threshold_share=0.4)
    fit(metric, (x, y), lw.losses.Triplet(), terms=[adversary], epochs=3, batch_size=8, verbose=False)
    assert adversary.threshold == pytest.approx(0.4 * math.log(len(y.unique())))
    assert adversary.trace[0] == pytest.approx(-0.5 * math.tanh(0.6 * math.log(len(y.unique()))))
    assert len(adversary.trace) == 3
