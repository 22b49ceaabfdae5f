from itertools import pairwise

import torch

import likewise as lw
from likewise.search.normalization import normalized, window_lengths, znormalize


def test_normalization():
    items = lw.Batch(
        torch.tensor([[[1.0, 7.0], [3.0, 7.0], [torch.nan, 0.0]], [[0.0, 1.0], [2.0, 0.0], [4.0, 5.0]]]), [2, 3]
    )
    found = normalized(items)
    assert found[0].tolist() == [[-1.0, 0.0], [1.0, 0.0]]
    torch.testing.assert_close(found[1].mean(0), torch.zeros(2), atol=1e-6, rtol=0)
    torch.testing.assert_close(found[1].std(0, correction=0), torch.ones(2))
    assert (znormalize(torch.full((50, 1), 1e8) + torch.randn(50, 1)) == 0).all()  # what float32 leaves of a constant


def test_lengths_of_windows():
    assert window_lengths(100, None) == [100]
    assert window_lengths(100, (1.0, 1.0)) == [100]
    lengths = window_lengths(200, (0.8, 1.25))
    assert (lengths[0], lengths[-1]) == (160, 250)
    assert 200 in lengths
    assert all(1.0 < b / a <= 1.06 for a, b in pairwise(lengths)), "steps of 5 %"
