import pytest
import torch

from likewise.distances.euclidean import Euclidean
from likewise.distances.mean_frames import MeanFrames
from likewise.testing import check_distance


@pytest.mark.parametrize("squared", [True, False])
def test_contract(squared):
    check_distance(MeanFrames(squared=squared), aligns=False)


def test_by_hand_and_in_any_order():
    x, y = torch.randn(3, 7, 2), torch.randn(4, 5, 2)
    expected = (x.mean(1)[:, None] - y.mean(1)).square().sum(2)
    torch.testing.assert_close(MeanFrames(squared=True).matrix(x, y), expected)
    torch.testing.assert_close(MeanFrames().matrix(x.flip(1), y), expected.sqrt())


@pytest.mark.parametrize("squared", [True, False])
def test_it_squares_where_euclidean_does(squared):
    x, y = torch.randn(3, 1, 2), torch.randn(4, 1, 2)
    torch.testing.assert_close(
        MeanFrames(squared=squared).matrix(x, y), Euclidean(squared=squared).matrix(x, y), rtol=1e-5, atol=1e-6
    )


def test_the_root_has_no_slope_at_zero():
    x = torch.randn(2, 4, 3, requires_grad=True)
    MeanFrames().matrix(x).sum().backward()
    assert x.grad.isfinite().all()
