import pytest
import torch

import likewise as lw
from likewise.losses import AMSoftmax, ProxyNCA, Triplet
from likewise.models.embedder import Embedder
from likewise.models.gru_encoder import GRUEncoder
from likewise.models.metric import Metric
from likewise.training.adversary import SoftAdversary
from likewise.training.fit import fit
from likewise.training.options import Checkpoints, Optimization
from tests.training.problems import problem

QUIET = {"verbose": False, "accelerator": "cpu", "batch_size": 8, "epochs": 2}


def embedder(seed=0):
    torch.manual_seed(seed)
    return Metric(Embedder(GRUEncoder(2, 6), 4), lw.Euclidean())


class Seen:
    """An optimiser that records its groups."""

    def __call__(self, groups):
        self.groups = list(groups)
        return torch.optim.Adam(self.groups, lr=0.5)


def test_each_part_has_its_rate():
    m, loss, adversary, seen = embedder(), ProxyNCA(3, 4), SoftAdversary(), Seen()
    rates = {"loss": 0.1, "encoder": 0.01, "encoder.backbone": 0.001, "rest": 0.02}
    fit(m, problem(), loss, terms=[adversary], lr=rates, optimizer=seen, **QUIET)
    expected = {
        0.1: [loss.proxies],
        0.01: list(m.encoder.outward.parameters()),
        0.001: list(m.encoder.backbone.parameters()),
        0.02: list(adversary.head.parameters()),
    }
    assert len(seen.groups) == 4
    for group in seen.groups:
        assert {id(p) for p in group["params"]} == {id(p) for p in expected[group["lr"]]}


def test_it_is_adam_with_groups():
    ours, theirs = embedder(), embedder()
    x, y = problem()
    fit(ours, (x, y), Triplet(), lr={"encoder": 0.01}, **QUIET)
    fit(theirs, (x, y), Triplet(), lr=0.01, **QUIET)
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value)
    still = embedder()
    rates = {"encoder": 0.01, "encoder.outward": 1e-12}
    fit(still, (x, y), Triplet(), lr=rates, optimizer=Optimization(weight_decay=0.0), **QUIET)
    torch.testing.assert_close(still.encoder.outward.weight, embedder().encoder.outward.weight)
    assert not torch.allclose(still.encoder.backbone.gru.weight_hh_l0, embedder().encoder.backbone.gru.weight_hh_l0)


@pytest.mark.parametrize("kind", [ProxyNCA, AMSoftmax])
def test_proxies_are_trained_and_kept(kind, tmp_path):
    x, y = problem()
    torch.manual_seed(0)
    loss = kind(3, 4)
    before = {name: value.clone() for name, value in loss.state_dict().items()}
    options = QUIET | {"lr": {"encoder": 0.01, "loss": 0.1}, "epochs": 8}
    m = embedder()
    history = fit(m, (x, y), loss, checkpoints=tmp_path / "run", **options)
    assert history.losses[-1] < history.losses[0]
    assert all(not torch.equal(value, before[name]) for name, value in loss.state_dict().items())
    torch.manual_seed(5)
    again = kind(3, 4)
    fit(embedder(7), (x, y), again, checkpoints=Checkpoints(tmp_path / "run", resume=True), **options)
    for name, value in loss.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name


def test_a_loss_of_vectors_builds_no_matrix():
    class Counting(lw.Euclidean):
        calls = 0

        def matrix(self, *args, **options):
            type(self).calls += 1
            return super().matrix(*args, **options)

    m = Metric(GRUEncoder(2, 4), Counting())
    fit(m, problem(), ProxyNCA(3, 4), lr=0.01, **QUIET)
    assert Counting.calls == 0


def test_a_loss_of_vectors_refuses_sequences():
    with pytest.raises(TypeError, match="an encoder must reduce sequences to vectors"):
        fit(Metric(lw.FrameMLP(2, 4), lw.SoftDTW()), problem(), ProxyNCA(3, 2), **QUIET)


@pytest.mark.parametrize(
    ("rates", "words"),
    [
        ({"loss": 0.1}, r'lr has no rate for encoder\.backbone\.gru\.weight_ih_l0; .* or give lr\["rest"\]'),
        (
            {"encoder.bakbone": 0.1, "rest": 0.1},
            r"which has no trained parameters; similar names are encoder\.backbone",
        ),
        ({"encoder": -1.0, "rest": 0.1}, r"lr\['encoder'\] must be positive and finite"),
    ],
)
def test_refusals(rates, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        fit(embedder(), problem(), ProxyNCA(3, 4), lr=rates, checkpoints=tmp_path / "run", **QUIET)
    assert not (tmp_path / "run").exists()


def test_frozen_parameters_need_no_rate():
    m = embedder()
    m.encoder.backbone.requires_grad_(False)
    fit(m, problem(), Triplet(), lr={"encoder.outward": 0.01}, **QUIET)
