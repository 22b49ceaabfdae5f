"""Crops of batches of images."""

import pytest
import torch

from likewise.data.image_transforms import center_crops, random_crops


def ramp(count=1, height=12, width=16):
    """Images whose channels are the columns and the rows of their pixels."""
    columns = torch.arange(width, dtype=torch.float32).expand(height, width)
    rows = torch.arange(height, dtype=torch.float32)[:, None].expand(height, width)
    return torch.stack([columns, rows]).expand(count, 2, height, width)


def test_the_whole_image_is_itself_or_mirrored():
    x = ramp(40, 8, 8)
    found = random_crops(x, 8, area=(1, 1), ratio=1)
    mirrored = (found[:, 0, 0, 0] > found[:, 0, 0, -1]).nonzero()[:, 0]
    assert 0 < len(mirrored) < 40
    found[mirrored] = found[mirrored].flip(3)
    torch.testing.assert_close(found, x.clone(), atol=1e-4, rtol=0)


def test_crops_are_boxes_of_the_stated_area_and_ratio_inside_the_image():
    x = ramp(500, 40, 50)
    found = random_crops(x, 10, area=(0.2, 0.6), flip=False, generator=torch.Generator().manual_seed(0))
    step_x = (found[:, 0, :, -1] - found[:, 0, :, 0])[:, 0] / 9  # input pixels for each output pixel
    step_y = (found[:, 1, -1] - found[:, 1, 0])[:, 0] / 9
    width, height = 10 * step_x, 10 * step_y
    share = width * height / (40 * 50)
    assert share.min() > 0.19
    assert share.max() < 0.61
    ratio = width / height
    assert ratio.min() > 0.74
    assert ratio.max() < 1.35
    assert share.std() > 0.08
    assert found[:, 0].min() >= 0
    assert found[:, 0].max() <= 49
    left = found[:, 0, 0, 0]
    assert left.max() - left.min() > 10  # they lie anywhere


def test_a_generator_decides():
    x = ramp(5)
    first, second, third = (random_crops(x, 6, generator=torch.Generator().manual_seed(s)) for s in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


def test_the_middle_against_slices():
    x = torch.rand(2, 3, 8, 12)
    torch.testing.assert_close(center_crops(x, 8), x[:, :, :, 2:10])
    torch.testing.assert_close(center_crops(x, 4, share=0.5), x[:, :, 2:6, 4:8])
    assert center_crops(x[:, :, :, :8], 8) is not None
    assert center_crops(x[:0], 5).shape == (0, 3, 5, 5)
    assert random_crops(x[:0], 5).shape == (0, 3, 5, 5)


def test_other_shapes_and_types_are_refused():
    with pytest.raises(ValueError, match=r"expected images of shape \(B, C, H, W\), got \(3, 4, 4\)"):
        random_crops(torch.rand(3, 4, 4), 2)
    with pytest.raises(TypeError, match="expected images to be floating point"):
        center_crops(torch.zeros(1, 3, 4, 4, dtype=torch.uint8), 2)
