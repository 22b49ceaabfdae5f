import pytest
import torch

import likewise as lw
from likewise.models import backbones
from likewise.models.attended_features import AttendedFeatures
from likewise.models.embedder import Embedder
from likewise.models.pixels import Pixels, takes_bytes
from likewise.models.random_crop import RandomCrop
from tests.models.test_backbones import pixels


def test_bytes_are_scaled_wherever_they_enter():
    """Without a RandomCrop, the bytes of an ImageSet used to be taken for pixels from 0 to 255, without a warning."""
    pytest.importorskip("efficientnet_lite_pytorch")
    torch.manual_seed(0)
    network, images = backbones.EfficientNetLite(0, pretrained=False).eval(), pixels()
    features = AttendedFeatures(network, ["blocks.15"])
    scaled = (images.float() - 127) / 128
    with torch.no_grad():
        expected, attended = network(scaled), features.attend(scaled)
        torch.testing.assert_close(network(images), expected)
        plain = lw.Metric(network, lw.Euclidean())
        torch.testing.assert_close(plain.embed(lw.data.ImageSet(images, ["a", "b"])), expected)
        cropped = lw.Metric(RandomCrop(network, 32), lw.Euclidean())
        torch.testing.assert_close(cropped.embed(images), expected, rtol=1e-4, atol=1e-5)
        for encoder in (features, Embedder(features, 4), RandomCrop(Embedder(features, 4), 32)):
            found = lw.Metric(encoder, lw.Euclidean()).attend(images)
            torch.testing.assert_close(found.maps["blocks.15"], attended.maps["blocks.15"], rtol=1e-4, atol=1e-5)
    fresh = backbones.EfficientNetLite(0, pretrained=False)
    with pytest.raises(ValueError, match=r"floats up to 2.. are not scaled pixels; pass images as bytes"):
        fresh(images.float())
    with pytest.raises(ValueError, match=r"Metric.attend: the encoder has no AttendedFeatures"):
        plain.attend(images)


def test_scales_by_channel():
    scale = Pixels((10.0, 20.0), (2.0, 4.0))
    images = torch.tensor([[[[12]], [[28]]]], dtype=torch.uint8)
    assert scale(images).flatten().tolist() == [1.0, 2.0]
    assert scale(images, like=torch.zeros(1, dtype=torch.float64)).dtype == torch.float64
    assert scale.state_dict() == {}
    with pytest.raises(ValueError, match="mean or std does not match the channels"):
        scale(torch.zeros(1, 3, 2, 2, dtype=torch.uint8))
    with pytest.raises(ValueError, match="std must be positive"):
        Pixels(0.0, 0.0)
    with pytest.raises(TypeError, match="expected images of bytes"):
        scale(images.int())


def test_the_first_floats_are_checked():
    scale = Pixels()
    small = torch.rand(1, 3, 2, 2)
    assert scale(small) is small
    assert scale(300 * small + 20) is not None, "only the first batch is checked"
    with pytest.raises(ValueError, match="are not scaled pixels"):
        Pixels()(300 * small + 20)


def test_encoders_that_take_bytes():
    encoder = torch.nn.Module()
    assert not takes_bytes(encoder)
    encoder.backbone = torch.nn.Module()
    encoder.backbone.pixels = Pixels()
    assert takes_bytes(encoder)
