import copy

import pytest
import torch
from torch import nn

import likewise as lw
from likewise.data.batch import Batch
from likewise.models.attended_features import AttendedFeatures
from likewise.models.attention import Additive, MultiDimensional
from likewise.models.embedder import Embedder
from likewise.models.layers import as_map
from likewise.models.metric import Metric
from tests.models.problems import SEQUENCES, Residual, by_loops, each_attention
from tests.training.problems import problem


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
    for lengths in ([6, 2, 4], [1, 6, 6]):  # a layer that returns a Batch has its own lengths
        found = as_map("op", "x", Batch(values, lengths), batch.lengths, masks=masks)
        assert found.mask.tolist() == Batch(values, lengths).mask.tolist()
    assert as_map("op", "x", values, batch.lengths, masks=masks).mask.tolist() == batch.mask.tolist()
    assert as_map("op", "x", values[:, :6], torch.tensor([6, 6, 6])).mask is None


def test_a_step_of_length_one():
    features = AttendedFeatures(lw.FrameMLP(2, 6, 5), ["layers.0"]).eval()
    batch = Batch(torch.randn(3, 4, 2), [1, 1, 1])
    torch.testing.assert_close(features(batch), torch.cat([features(item[None]) for item in batch]))


def test_an_embedding_is_saved_and_loaded(tmp_path):
    torch.manual_seed(0)
    backbone = AttendedFeatures(lw.models.SmallCNN(1, out=6, widths=(4, 8)), ["norms.0", "norms.1"], MultiDimensional())
    metric = Metric(Embedder(backbone, 5), lw.Euclidean()).eval()
    metric.save(tmp_path)
    loaded = Metric.load(tmp_path)
    images = torch.randn(3, 1, 12, 12)
    assert torch.equal(loaded.matrix(images), metric.matrix(images))
    assert isinstance(loaded.encoder.backbone.attention, MultiDimensional)


def test_training_with_everything():
    x, y = problem()
    backbone = AttendedFeatures(lw.TCN(2, 6, layers=2), ["convolutions.0", "convolutions.1"])
    metric = Metric(Embedder(backbone, 4), lw.Euclidean())
    before = [p.clone() for p in backbone.attentions.parameters()]
    history = lw.fit(
        metric, (x, y), lw.losses.ProxyNCA(3, 4), lr=0.01, epochs=5, batch_size=8, verbose=False, accelerator="cpu"
    )
    assert history.losses[-1] < history.losses[0]
    assert all(not torch.equal(a, b) for a, b in zip(before, backbone.attentions.parameters(), strict=True))


def test_refusals():
    with pytest.raises(ValueError, match="the layer 'spare' was not used when the backbone ran"):
        AttendedFeatures(Residual(), ["spare"])
    with pytest.raises(ValueError, match="expected layers to be a list of names, not empty, got 'stem'"):
        AttendedFeatures(Residual(), "stem")
    with pytest.raises(ValueError, match="cannot infer the input of a Sequential; pass example="):
        AttendedFeatures(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), ["0"])
    with pytest.raises(ValueError, match="expected channels of 2 layers, got 1"):
        AttendedFeatures(Residual(), ["stem", "block"], channels=[4], width=6)
    with pytest.raises(TypeError, match=r"expected attention to be an Attention, such as Additive\(\)"):
        AttendedFeatures(Residual(), ["stem"], "additive")
    with pytest.raises(ValueError, match="pass the attention without sizes"):
        AttendedFeatures(Residual(), ["stem"], Additive().sized(4, 6))
    with pytest.raises(TypeError, match="expected backbone to be an nn"):
        AttendedFeatures(None, ["stem"])
    with pytest.raises(TypeError, match="expected backbone to be an nn"):
        Embedder(None, 3)
    with pytest.raises(ValueError, match="cannot infer the number of features of a Residual; pass channels="):
        Embedder(Residual(), 3)
    with pytest.raises(ValueError, match="the backbone returned 6 features, not 5"):
        Embedder(Residual(), 3, channels=5)(torch.randn(1, 3, 9, 9))


def test_an_example_tells_the_sizes():
    features = AttendedFeatures(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), ["0"], example=torch.randn(4, 2))
    assert (features.channels, features.width) == ((3,), 3)
