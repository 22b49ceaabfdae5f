import math

import pytest
import torch

import likewise as lw
from tests.distances.recurrences import least


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (6, 1), (9, 7), (16, 17)])
def test_it_is_the_published_recurrence(shape):
    generator = torch.Generator().manual_seed(sum(shape))
    x, y = (torch.randn(n, generator=generator, dtype=torch.float64) for n in shape)

    def cost(i, j):
        return (x[i] - y[j]).item() ** 2 / (1 + math.exp(-0.3 * (abs(i - j) - max(shape) / 2)))

    found = lw.WDTW(0.3)(x[None, :, None], y[None, :, None])
    assert found.item() == pytest.approx(least(*shape, cost, cost, cost), rel=1e-12)


def test_lengths_in_one_batch_have_weights_of_their_own():
    items = [torch.randn(n).tolist() for n in (3, 9, 14, 20, 21)]
    D = lw.WDTW(0.5).matrix(items)
    for i, x in enumerate(items):
        for j, y in enumerate(items):
            assert D[i, j].item() == pytest.approx(lw.WDTW(0.5)([x], [y]).item(), rel=1e-5)


def test_no_steepness_is_half_of_dtw():
    x, y = torch.randn(4, 20, 2), torch.randn(4, 18, 2)
    assert torch.allclose(2 * lw.WDTW(0.0)(x, y), lw.DTW()(x, y))
    with pytest.raises(ValueError, match="WDTW: steepness must be 0 or more"):
        lw.WDTW(-0.1)


@pytest.mark.parametrize(("dtype", "steps"), [(torch.float32, 2855), (torch.float64, 26_894), (torch.float16, 2855)])
def test_weights_that_the_type_cannot_hold_are_refused(dtype, steps):
    # The narrow band leaves few cells to compute; the weights are still those of the whole length.
    x = torch.zeros(1, steps + 1, 1, dtype=dtype)
    with pytest.raises(ValueError, match=rf"WDTW: the weights of {steps + 1} steps .* choose a steepness of 0.05 or"):
        lw.WDTW(band=1)(x, x)
    assert lw.WDTW(band=1)(x[:, 1:], x[:, 1:]) == 0
    padded = lw.Batch(x, [20])
    assert lw.WDTW(band=1)(padded, padded) == 0
    assert lw.WDTW(0.01, band=1)(x, x) == 0
