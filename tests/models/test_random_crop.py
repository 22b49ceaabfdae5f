import pytest
import torch
from torch import nn

import likewise as lw
from likewise.models.embedder import Embedder
from likewise.models.random_crop import RandomCrop


class Seen(nn.Module):
    """Returns its input, flattened."""

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
        Embedder(RandomCrop(lw.models.SmallCNN(3, out=8, widths=(4, 4)), 12, mean=(1, 2, 3)), 4), lw.Euclidean()
    )
    torch.testing.assert_close(metric.embed(x), metric.embed(x.float()))
    history = lw.fit(metric, (x, torch.arange(6) % 2), lw.losses.Triplet(), epochs=1, batch_size=6, verbose=False)
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
    with pytest.raises(ValueError, match="does not match the channels"):
        RandomCrop(Seen(), 8, mean=(1, 2))(torch.zeros(1, 3, 4, 4))
