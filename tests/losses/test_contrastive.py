import pytest
import torch

from likewise import losses
from likewise.testing import check_loss
from tests.losses.problems import check_against_loops, mean


@pytest.mark.parametrize("options", [{}, {"margin": 0.3}, {"reduction": "sum"}], ids=str)
def test_contract(options):
    check_loss(losses.Contrastive(**options))


@pytest.mark.parametrize("margin", [0.4, 1.0])
def test_in_loops(margin):
    def contrast(positives, negatives):
        return mean([p**2 / 2 for p in positives]) + mean([max(0.0, margin - n) ** 2 / 2 for n in negatives])

    check_against_loops(losses.Contrastive, contrast, margin=margin)


def test_by_hand():
    D = torch.tensor([[1.0, 3.0, 0.5, 2.0]])
    found = losses.Contrastive()(D, [0], [0, 0, 1, 1]).item()
    assert found == pytest.approx((0.5 + 4.5) / 2 + (0.125 + 0.0) / 2)


def test_either_kind_counts_alone():
    D = torch.full((2, 2), 0.5)
    assert losses.Contrastive()(D, [0, 0]).item() == pytest.approx(0.125)
    assert losses.Contrastive()(D, [0, 1]).item() == pytest.approx(0.125)


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="Contrastive: margin must be positive and finite, got 0"):
        losses.Contrastive(0)
