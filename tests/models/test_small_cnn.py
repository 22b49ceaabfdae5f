import pytest
import torch

from likewise.models.small_cnn import SmallCNN


def test_small_cnn():
    torch.manual_seed(0)
    encoder = SmallCNN(2, 5, widths=(4, 6))
    images = torch.randn(3, 2, 9, 7)
    vectors = encoder(images)
    assert vectors.shape == (3, 5)
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(3))
    torch.testing.assert_close(encoder(images[1:2])[0], vectors[1])
    assert encoder(torch.zeros(1, 2, 1, 1)).isfinite().all()
    assert encoder(images[:0]).shape == (0, 5)
    with pytest.raises(ValueError, match=r"SmallCNN: expected images of shape \(B, 2, H, W\), got \(3, 9, 7, 2\)"):
        encoder(images.permute(0, 2, 3, 1))
