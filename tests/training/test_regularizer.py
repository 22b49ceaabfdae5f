import pytest
import torch

import likewise as lw
from likewise._check import full_precision
from likewise.losses import AMSoftmax, Triplet, am_softmax
from likewise.models.attended_features import AttendedFeatures
from likewise.models.embedder import Embedder
from likewise.models.gru_encoder import GRUEncoder
from likewise.models.layers import FeatureMap
from likewise.models.metric import Metric
from likewise.regularizers import EnergyConfusion, JointRepresentationSimilarity
from likewise.training.adversary import AdaptiveAdversary
from likewise.training.fit import fit
from likewise.training.regularizer import Regularizer
from likewise.training.step import Step
from tests.training.problems import problem

QUIET = {"verbose": False, "accelerator": "cpu", "batch_size": 8, "epochs": 2, "lr": 0.01}


def embedder():
    torch.manual_seed(0)
    return Metric(Embedder(GRUEncoder(2, 6), 4), lw.Euclidean())


def test_the_layers_of_the_paper():
    m, loss, (x, y) = embedder(), AMSoftmax(3, 4), problem()
    jrs = JointRepresentationSimilarity()
    term = Regularizer(jrs, 0.5, of=["backbone", None, loss.cosines])
    assert term.layers == ("backbone",)
    step = Step(m, x, y, layers=term.layers)
    expected = 0.5 * jrs([m.encoder.backbone(x), m.encode(x), loss.cosines(m.encode(x))], y)
    value = term(step)
    torch.testing.assert_close(value, expected)
    value.backward()
    assert loss.centers.grad.abs().sum() > 0, "centres learn from it too"
    assert not list(term.parameters()), "and belong to the loss"


def test_one_source_is_one_tensor():
    m, (x, y) = embedder(), problem()
    term = Regularizer(EnergyConfusion(), 0.1)
    torch.testing.assert_close(term(Step(m, x, y)), 0.1 * EnergyConfusion()(m.encode(x), y))
    other = Regularizer(EnergyConfusion(), 0.1, of="backbone")
    found = other(Step(m, x, y, layers=other.layers))
    torch.testing.assert_close(found, 0.1 * EnergyConfusion()(m.encoder.backbone(x), y))


def test_pooling():
    m, (x, y) = Metric(lw.TCN(2, 4, layers=1), lw.SoftDTW()), problem()
    for pool, reduce in ((FeatureMap.mean, lambda s: s.mean(0)), (FeatureMap.max, lambda s: s.amax(0))):
        expected = EnergyConfusion()(torch.stack([reduce(item) for item in m.encode(x)]), y)
        torch.testing.assert_close(Regularizer(EnergyConfusion(), pool=pool)(Step(m, x, y)), expected)


def test_pooling_of_vectors_is_refused():
    """JRD-Pooling of a layer without positions would silently be JRD."""
    m, (x, y) = embedder(), problem()
    term = Regularizer(EnergyConfusion(), of="outward", pool=FeatureMap.max)
    with pytest.raises(
        ValueError, match="layer 'outward' returns vectors, for which max makes no difference; name a layer of"
    ):
        term(Step(m, x, y, layers=term.layers))


def test_everything_together():
    x, y = problem()
    torch.manual_seed(0)
    backbone = AttendedFeatures(lw.TCN(2, 6, layers=2), ["convolutions.0", "convolutions.1"])
    m, loss = Metric(Embedder(backbone, 4), lw.Euclidean()), AMSoftmax(3, 4)
    jrd = Regularizer(JointRepresentationSimilarity(), 1.0, of=["backbone", None, loss.cosines])
    rates = {"encoder.backbone.backbone": 0.005, "loss": 0.05, "rest": 0.01}
    history = fit(
        m,
        (x, y),
        loss,
        terms=[jrd, AdaptiveAdversary(0.5)],
        val=problem(12, seed=1),
        **QUIET | {"lr": rates, "epochs": 8},
    )
    assert history.losses[-1] < history.losses[0]


def test_refusals():
    with pytest.raises(TypeError, match="expected a function of features and labels, got str"):
        Regularizer("energy")
    with pytest.raises(TypeError, match="expected of to be names, functions or None, got 3"):
        Regularizer(EnergyConfusion(), of=[3])
    with pytest.raises(ValueError, match=r"Embedder has no layer 'backbon'; similar names are backbone"):
        fit(embedder(), problem(), Triplet(), terms=[Regularizer(EnergyConfusion(), of="backbon")], **QUIET)
    assert "weight=0.5" in repr(Regularizer(EnergyConfusion(), 0.5))


def test_the_loss_and_its_regulariser_share_cosines(monkeypatch):
    metric, loss = Metric(Embedder(GRUEncoder(2, 8), 4), lw.Euclidean()), AMSoftmax(3, 4)
    jrd = Regularizer(JointRepresentationSimilarity(), 0.5, of=["backbone", None, loss.cosines])
    calls = []
    monkeypatch.setattr(am_softmax, "full_precision", lambda x: calls.append(1) or full_precision(x))
    x, y = torch.randn(12, 5, 2), torch.arange(12) % 3
    fit(metric, (x, y), loss, terms=[jrd], epochs=3, batch_size=12, verbose=False)
    assert len(calls) == 3, "once a step"
