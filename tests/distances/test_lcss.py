import pytest
import torch

import likewise as lw


def published(x, y, epsilon):
    L = [[0] * (len(y) + 1) for _ in range(len(x) + 1)]
    for i, a in enumerate(x):
        for j, b in enumerate(y):
            L[i + 1][j + 1] = L[i][j] + 1 if abs(a - b) <= epsilon else max(L[i][j + 1], L[i + 1][j])
    return 1 - L[-1][-1] / min(len(x), len(y))


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (6, 1), (9, 7), (16, 17)])
def test_it_is_the_published_recurrence(epsilon, shape):
    generator = torch.Generator().manual_seed(sum(shape))
    x, y = (torch.randn(n, generator=generator, dtype=torch.float64) for n in shape)
    found = lw.LCSS(epsilon)(x[None, :, None], y[None, :, None])
    assert found.item() == pytest.approx(published(x.tolist(), y.tolist(), epsilon), abs=1e-12)


def test_epsilon_itself_is_near_enough():
    assert lw.LCSS(0.5)([[0.0, 1.0]], [[0.5, 1.5]]).item() == 0
    assert lw.LCSS(0.49)([[0.0, 1.0]], [[0.5, 1.5]]).item() == 1


def test_a_band_of_zero_counts_frames_in_step():
    assert lw.LCSS(0.1, band=0)([[1.0, 2.0, 3.0, 4.0]], [[1.0, 9.0, 3.0, 4.0]]).item() == 0.25


def test_refusals():
    with pytest.raises(ValueError, match="LCSS: epsilon must be 0 or more"):
        lw.LCSS(-0.1)
    x = torch.randn(1, 4, 1, requires_grad=True)
    with pytest.raises(NotImplementedError, match="no useful derivative"):
        lw.LCSS()(x, x.detach() + 1).sum().backward()
