import copy

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import likewise as lw
from likewise.data.batch import Batch
from likewise.models.attended_features import AttendedFeatures
from likewise.models.attention import Additive, Attention, MultiDimensional, Multiplicative
from likewise.models.embedder import Embedder
from likewise.models.layers import FeatureMap, as_map, captured
from likewise.models.metric import Metric
from tests.training.problems import problem

ATTENTIONS = [
    Additive(),
    Additive(hidden=3),
    Multiplicative(),
    Multiplicative(hidden=3),
    MultiDimensional(),
    MultiDimensional(over_features=True),
]


def name(attention):
    flags = [key for key in ("hidden", "over_features") if getattr(attention, key, False)]
    return "-".join([type(attention).__name__, *flags])


class Operations(TorchDispatchMode):
    """The names of the operations that run."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


each_attention = pytest.mark.parametrize("attention", ATTENTIONS, ids=name)


def by_loops(attention, positions, u):
    """Weights (P, C) and summary (C,) of one item's positions (P, C), from the paper's formulas."""
    scores = []
    for q in positions:
        projected = attention.inward @ q
        wanted = u if attention.across is None else attention.across @ u
        if isinstance(attention, Additive):
            score = attention.outward @ torch.tanh(projected + wanted)
        else:
            score = (projected * wanted).sum()[None]
        scores.append(score.expand(len(q)))
    scores = torch.stack(scores)  # (P, C)
    weights = torch.softmax(scores, 1 if getattr(attention, "over_features", False) else 0)
    return weights, (weights * positions).sum(0)


# ---- Attention


@each_attention
def test_attention_against_loops(attention):
    torch.manual_seed(0)
    attention = attention.sized(3, 4).double()
    values, u = torch.randn(2, 3, 5, dtype=torch.float64), torch.randn(2, 4, dtype=torch.float64)
    mask = torch.tensor([[True] * 5, [True, True, False, False, False]])
    found = FeatureMap(values.masked_fill(~mask[:, None], 0), mask, (5,))
    summary, weights = attention(found, u)
    for b, length in enumerate((5, 2)):
        expected, vector = by_loops(attention, values[b, :, :length].T, u[b])
        torch.testing.assert_close(weights[b, :, :length].expand(3, -1), expected.T)
        torch.testing.assert_close(summary[b], vector)
        assert (weights[b, :, length:] == 0).all()


@each_attention
def test_weights_sum_to_one_and_depend_on_u(attention):
    torch.manual_seed(0)
    over_features = getattr(attention, "over_features", False)
    attention = attention.sized(3, 4)
    found = FeatureMap(torch.randn(2, 3, 6), None, (2, 3))
    _, weights = attention(found, torch.randn(2, 4))
    total = weights.sum(1 if over_features else -1)
    torch.testing.assert_close(total, torch.ones_like(total))
    assert not torch.allclose(attention(found, torch.randn(2, 4))[1], weights)
    constant = FeatureMap(torch.ones(2, 3, 6), None, (6,))
    flat = attention(constant, torch.randn(2, 4))[1]
    torch.testing.assert_close(flat, flat[..., :1].expand_as(flat))


@pytest.mark.parametrize("hidden", [None, 3, 9])  # fewer and more features than positions
@pytest.mark.parametrize("masked", [False, True])
def test_additive_attention_in_one_operation_is_that_in_parts(hidden, masked):
    torch.manual_seed(0)
    attention = Additive(hidden).sized(3, 4).double()
    values = torch.randn(2, 5, 3, dtype=torch.float64).mT.requires_grad_()
    u = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True] * 5, [True, True, False, False, False]]) if masked else None
    inputs = [values, u, *attention.parameters()]

    def run(forward, given):
        summary, weights = forward(attention, FeatureMap(given, mask, (5,)), u)
        return summary, weights, torch.autograd.grad(summary.sin().sum() + (weights**3).sum(), inputs)

    fast, parts = run(Additive.forward, values), run(Attention.forward, values)
    torch.testing.assert_close(fast, parts)
    assert "_Attend" in str(attention(FeatureMap(values, mask, (5,)), u)[1].grad_fn)
    if mask is not None:
        for spoil in (torch.nan, torch.inf, -1e300, 1e6):
            for forward in (Additive.forward, Attention.forward):
                torch.testing.assert_close(run(forward, torch.where(mask[:, None], values, spoil)), parts)
        assert (fast[2][0][1, :, 2:] == 0).all()
    assert torch.autograd.gradcheck(lambda q, w: attention(FeatureMap(q, mask, (5,)), w), (values, u))
    frozen = attention(FeatureMap(values.detach(), mask, (5,)), u)[0]
    assert torch.autograd.grad(frozen.sin().sum(), u)[0].isfinite().all()
    by_weights = torch.autograd.grad((attention(FeatureMap(values, mask, (5,)), u)[1] ** 3).sum(), inputs)
    expected = torch.autograd.grad(
        (Attention.forward(attention, FeatureMap(values, mask, (5,)), u)[1] ** 3).sum(), inputs
    )
    torch.testing.assert_close(by_weights, expected)
    assert torch.autograd.gradgradcheck(lambda q, w: attention(FeatureMap(q, mask, (5,)), w)[0], (values, u))


def test_ordinary_padding_is_not_copied():
    mask = torch.tensor([[True] * 5, [True, True, False, False, False]])
    for spoil, copied in ((7.0, False), (torch.nan, True), (torch.inf, True), (1e30, True)):
        values = torch.where(mask[:, None], torch.randn(2, 3, 5), spoil)
        with Operations() as found:
            Additive(2).sized(3, 4)(FeatureMap(values, mask, (5,)), torch.randn(2, 4))
        masked = sum("where" in name for name in found.names)
        assert masked == 1 + copied  # scores always are


def test_additive_attention_launches_few_operations():
    # A GPU's step of small batches lasts as long as its launches.
    attention = Additive(2).sized(3, 4)
    mask = torch.tensor([[True] * 5, [True, True, False, False, False]])
    values, u = torch.randn(2, 3, 5, requires_grad=True), torch.randn(2, 4, requires_grad=True)
    with Operations() as found:
        attention(FeatureMap(values, mask, (5,)), u)[0].sum().backward()
    assert len(found.names) <= 60


def test_additive_attention_goes_by_parts_where_it_must():
    found, u = FeatureMap(torch.randn(2, 3, 5), None, (5,)), torch.randn(2, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        weights = Additive().sized(3, 4)(found, u)[1]
    assert "_Attend" not in str(weights.grad_fn)
    assert "_Attend" not in str(Additive(tanh=False).sized(3, 4)(found, u)[1].grad_fn)


def test_additive_attention_without_tanh_does_not_see_u():
    torch.manual_seed(0)
    attention = Additive(tanh=False).sized(3, 4)
    found = FeatureMap(torch.randn(2, 3, 6), None, (6,))
    torch.testing.assert_close(attention(found, torch.randn(2, 4))[1], attention(found, torch.randn(2, 4))[1])


def test_attention_without_weights_is_refused():
    with pytest.raises(ValueError, match=r"Additive: has no weights yet; call sized\(channels, width\)"):
        Additive()(FeatureMap(torch.randn(2, 3, 6), None, (6,)), torch.randn(2, 4))
    with pytest.raises(ValueError, match="give both channels and width, or neither"):
        Additive(channels=3)
    with pytest.raises(NotImplementedError, match=r"Attention\.sized"):
        Attention().sized(1, 2)
    with pytest.raises(NotImplementedError, match=r"Attention\.scores"):
        Attention(1, 2).scores(torch.zeros(1, 1, 1), torch.zeros(1, 2))


# ---- Images


class Residual(nn.Module):
    """A backbone that shows nothing of itself, and gives a map."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
        self.block = nn.Conv2d(4, 6, 3, stride=2)
        self.spare = nn.Linear(2, 2)

    def forward(self, x):
        return self.block(self.stem(x))


@each_attention
def test_images(attention):
    torch.manual_seed(0)
    backbone = Residual()
    features = AttendedFeatures(backbone, ["stem", "block"], attention).eval()
    assert (features.channels, features.width, features.out) == ((4, 6), 6, 10)
    images = torch.randn(3, 3, 17, 14)
    attended = features.attend(images)
    stem = backbone.stem(images)
    last = backbone.block(stem)
    u = last.mean((2, 3))
    parts = []
    for b in range(3):
        found = [by_loops(a, m[b].flatten(1).T, u[b]) for a, m in zip(features.attentions, (stem, last), strict=True)]
        parts.append(torch.cat([vector for _, vector in found]))
        for layer, m, (weights, _) in zip(features.layers, (stem, last), found, strict=True):
            torch.testing.assert_close(attended.maps[layer][b], weights.mean(1).reshape(m.shape[2:]))
    torch.testing.assert_close(attended.features, torch.stack(parts))
    assert torch.equal(features(images), attended.features)
    assert features(images[:0]).shape == (0, 10)


def test_batch_statistics_are_left_alone_by_the_probe():
    backbone = Residual().train()
    backbone.stem[2].eval()
    AttendedFeatures(backbone, ["stem"])
    assert backbone.stem[1].num_batches_tracked == 0
    assert backbone.stem[0].training
    assert not backbone.stem[2].training


def test_the_last_vector_may_stand_beside_the_others():
    backbone, images = Residual(), torch.randn(2, 3, 9, 9)
    features = AttendedFeatures(backbone, ["stem"], with_last=True).eval()
    assert features.out == 10
    torch.testing.assert_close(features(images)[:, 4:], backbone(images).mean((2, 3)))


def test_gradients_reach_the_backbone_and_every_attention():
    features = AttendedFeatures(Residual(), ["stem", "block"])
    features(torch.randn(2, 3, 9, 9)).square().sum().backward()
    assert all(p.grad is not None for n, p in features.named_parameters() if "spare" not in n)


def test_copies_do_not_share_what_they_see():
    features = AttendedFeatures(Residual(), ["stem"]).eval()
    images = torch.randn(2, 3, 9, 9)
    expected = features(images)
    other = copy.deepcopy(features)
    other.backbone.stem[0].weight.data.zero_()
    other(images)
    assert torch.equal(features(images), expected)
    assert not features.backbone.stem._forward_hooks


# ---- Sequences

SEQUENCES = [
    (lw.GRUEncoder(2, 5), ["gru"]),
    (lw.GRUEncoder(2, 5, bidirectional=True, steps=True), ["gru"]),
    (lw.TCN(2, 5, layers=2), ["inward", "convolutions.0", "outward"]),
    (lw.TCN(2, 5, layers=2, steps=False), ["convolutions.1"]),
    (lw.FrameMLP(2, 6, 5), ["layers.0", "layers.3"]),
]
each_sequence = pytest.mark.parametrize(
    ("backbone", "layers"), SEQUENCES, ids=[repr(b)[:9] + names[0] for b, names in SEQUENCES]
)


@each_sequence
@each_attention
def test_sequences_are_what_they_are_alone(backbone, layers, attention):
    torch.manual_seed(0)
    features = AttendedFeatures(backbone, layers, attention).eval()
    batch, _ = problem(7)
    batch = Batch(batch.values.masked_fill(~batch.mask[..., None], torch.nan), batch.lengths).to(torch.float32)
    attended = features.attend(batch)
    assert attended.features.shape == (7, features.out)
    for b, item in enumerate(batch):
        alone = features.attend(item[None])
        torch.testing.assert_close(attended.features[b], alone.features[0])
        for layer in layers:
            weights = attended.maps[layer][b]
            torch.testing.assert_close(weights[: len(item)], alone.maps[layer][0])
            assert (weights[len(item) :] == 0).all()
            if not getattr(attention, "over_features", False):
                assert weights.sum().item() == pytest.approx(1, abs=1e-5)
    torch.testing.assert_close(features(batch.to_list()), attended.features)
    assert features(batch[:0]).shape == (0, features.out)


@each_sequence
def test_no_gradient_depends_on_padding(backbone, layers):
    features = AttendedFeatures(backbone, layers).eval()
    batch, _ = problem(5)
    values = batch.values.masked_fill(~batch.mask[..., None], torch.nan).requires_grad_()
    features(Batch(values, batch.lengths)).square().sum().backward()
    assert values.grad.isfinite().all()
    assert (values.grad[~batch.mask] == 0).all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in features.parameters())
    features.zero_grad()


def test_masks_are_made_once_and_for_their_own_lengths():
    backbone = lw.TCN(2, 5, layers=3)
    features = AttendedFeatures(backbone, ["inward", "convolutions.0", "convolutions.1", "convolutions.2"])
    batch = Batch(torch.randn(3, 6, 2), [6, 2, 4])
    maps, _ = features._maps(batch)
    first = maps["inward"].mask
    assert first.tolist() == batch.mask.tolist()
    assert all(found.mask is first for found in maps.values())
    masks = {}
    values = torch.randn(3, 6, 2)
    for lengths in ([6, 2, 4], [1, 6, 6]):  # a layer that gives a Batch has lengths of its own
        found = as_map("op", "x", Batch(values, lengths), batch.lengths, masks=masks)
        assert found.mask.tolist() == Batch(values, lengths).mask.tolist()
    assert as_map("op", "x", values, batch.lengths, masks=masks).mask.tolist() == batch.mask.tolist()
    assert as_map("op", "x", values[:, :6], torch.tensor([6, 6, 6])).mask is None


def test_a_step_of_length_one():
    features = AttendedFeatures(lw.FrameMLP(2, 6, 5), ["layers.0"]).eval()
    batch = Batch(torch.randn(3, 4, 2), [1, 1, 1])
    torch.testing.assert_close(features(batch), torch.cat([features(item[None]) for item in batch]))


# ---- As an encoder


def test_an_embedding_is_saved_and_loaded(tmp_path):
    torch.manual_seed(0)
    backbone = AttendedFeatures(lw.SmallCNN(1, out=6, widths=(4, 8)), ["norms.0", "norms.1"], MultiDimensional())
    metric = Metric(Embedder(backbone, 5), lw.Euclidean()).eval()
    metric.save(tmp_path)
    loaded = Metric.load(tmp_path)
    images = torch.randn(3, 1, 12, 12)
    assert torch.equal(loaded.matrix(images), metric.matrix(images))
    assert isinstance(loaded.encoder.backbone.attention, MultiDimensional)


@pytest.mark.parametrize("backbone", [b for b, _ in SEQUENCES], ids=lambda b: repr(b)[:9])
def test_an_embedder_averages_real_positions(backbone):
    torch.manual_seed(0)
    encoder = Embedder(backbone, 3, normalize=False).eval()
    batch, _ = problem(4)
    given = backbone(batch)
    means = torch.stack([item.mean(0) for item in given]) if isinstance(given, Batch) else given
    torch.testing.assert_close(encoder(batch), encoder.outward(means))
    unit = Embedder(backbone, 3)(batch)
    torch.testing.assert_close(unit.norm(dim=1), torch.ones(4))
    assert encoder(batch[:0]).shape == (0, 3)


def test_training_with_everything():
    x, y = problem()
    backbone = AttendedFeatures(lw.TCN(2, 6, layers=2), ["convolutions.0", "convolutions.1"])
    metric = Metric(Embedder(backbone, 4), lw.Euclidean())
    before = [p.clone() for p in backbone.attentions.parameters()]
    history = lw.fit(
        metric, x, y, lw.losses.ProxyNCA(3, 4), lr=0.01, epochs=5, batch_size=8, verbose=False, accelerator="cpu"
    )
    assert history.losses[-1] < history.losses[0]
    assert all(not torch.equal(a, b) for a, b in zip(before, backbone.attentions.parameters(), strict=True))


# ---- Refusals


def test_an_unknown_layer_is_refused_with_those_near_it():
    with pytest.raises(ValueError, match=r"SmallCNN has no layer 'norm.1'; near it are norms.1, .*norms"):
        AttendedFeatures(lw.SmallCNN(1), ["norm.1"])
    with pytest.raises(ValueError, match=r"has no layer 'zzz'; near it are stem"):
        AttendedFeatures(Residual(), ["zzz"])
    with pytest.raises(TypeError, match="expected the name of a layer, got 3"):
        AttendedFeatures(Residual(), [3])


def test_refusals():
    with pytest.raises(ValueError, match="the layer 'spare' was not used when the backbone ran"):
        AttendedFeatures(Residual(), ["spare"])
    with pytest.raises(ValueError, match="expected layers to be a list of names, not empty, got 'stem'"):
        AttendedFeatures(Residual(), "stem")
    with pytest.raises(ValueError, match="cannot tell what a Sequential takes; give example="):
        AttendedFeatures(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), ["0"])
    with pytest.raises(ValueError, match="expected channels of 2 layers, got 1"):
        AttendedFeatures(Residual(), ["stem", "block"], channels=[4], width=6)
    with pytest.raises(TypeError, match=r"expected attention to be an Attention, Additive\(\) say"):
        AttendedFeatures(Residual(), ["stem"], "additive")
    with pytest.raises(ValueError, match="give the attention without sizes"):
        AttendedFeatures(Residual(), ["stem"], Additive().sized(4, 6))
    with pytest.raises(TypeError, match="expected backbone to be an nn"):
        AttendedFeatures(None, ["stem"])
    with pytest.raises(TypeError, match="expected backbone to be an nn"):
        Embedder(None, 3)
    with pytest.raises(ValueError, match="cannot tell how many features a Residual gives; say so with channels="):
        Embedder(Residual(), 3)
    with pytest.raises(ValueError, match="the backbone gives 6 features, not 5"):
        Embedder(Residual(), 3, channels=5)(torch.randn(1, 3, 9, 9))


def test_an_example_tells_the_sizes():
    features = AttendedFeatures(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), ["0"], example=torch.randn(4, 2))
    assert (features.channels, features.width) == ((3,), 3)


# ---- Maps


def test_a_map_that_does_not_go_with_the_lengths():
    with pytest.raises(ValueError, match="x gives 3 steps, which does not go with lengths up to 5"):
        as_map("op", "x", torch.zeros(2, 3, 4), torch.tensor([5, 1]))
    with pytest.raises(ValueError, match=r"x gives \(2,\); expected \(B, C, H, W\), \(B, T, C\) or \(B, C\)"):
        as_map("op", "x", torch.zeros(2))
    with pytest.raises(ValueError, match="x gives str"):
        as_map("op", "x", "nothing")


def test_pooling():
    found = as_map("op", "x", Batch(torch.tensor([[[1.0], [3.0]], [[-5.0], [torch.nan]]]), [2, 1]))
    assert found.mean().tolist() == [[2], [-5]]
    assert found.max().tolist() == [[3], [-5]]
    images = torch.randn(2, 3, 4, 5)
    torch.testing.assert_close(as_map("op", "x", images).max(), images.amax((2, 3)))


def test_hooks_are_gone_after_an_error():
    network = nn.Sequential(nn.Linear(2, 2))
    with pytest.raises(RuntimeError), captured("op", network, ["0"]):
        raise RuntimeError
    assert not network[0]._forward_hooks
