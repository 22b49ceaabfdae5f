import pytest
import torch

from likewise.losses import HardMiningMeans, Relative, Triplet
from likewise.testing import check_loss


def test_it_is_the_loss_of_distances_over_their_mean():
    torch.manual_seed(0)
    D, labels = torch.rand(6, 6), [0, 0, 1, 1, 2, 2]
    torch.testing.assert_close(
        Relative(Triplet())(D, labels), Triplet()(D / D[~torch.eye(6, dtype=bool)].mean(), labels)
    )
    torch.testing.assert_close(Relative(Triplet())(1e4 * D, labels), Relative(Triplet())(D, labels))
    assert Relative(Triplet())(torch.zeros(4, 4), [0, 0, 1, 1]).isfinite()
    assert Relative(Triplet())(D.half(), labels).dtype == torch.float32


def test_it_is_a_loss():
    check_loss(Relative(HardMiningMeans()))


def test_objects_that_are_not_losses_are_refused():
    with pytest.raises(TypeError, match="Relative: expected loss to be a loss of distances, got int"):
        Relative(3)
