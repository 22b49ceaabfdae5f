import math

import pytest
import torch

from likewise import losses
from likewise.testing import check_loss
from tests.losses.problems import check_against_loops


@pytest.mark.parametrize("options", [{}, {"positive_scale": 1, "negative_scale": 2}, {"reduction": "sum"}], ids=str)
def test_contract(options):
    check_loss(losses.LiftedStructure(**options))


@pytest.mark.parametrize(("a", "b"), [(2.0, 40.0), (1.0, 2.0)])
def test_in_loops(a, b):
    def lifted(positives, negatives):
        if not positives or not negatives:
            return 0.0
        pulled = 2 / a * math.log(sum(math.exp(a * p) for p in positives))
        return pulled + 2 / b * math.log(sum(math.exp(-b * n) for n in negatives))

    check_against_loops(losses.LiftedStructure, lifted, positive_scale=a, negative_scale=b)


def test_by_hand():
    # One of each: the logarithms undo the exponentials.
    D = torch.tensor([[0.3, 1.1]])
    assert losses.LiftedStructure()(D, [0], [0, 1]).item() == pytest.approx(2 * 0.3 - 2 * 1.1)
    # Ties: three equal positives add (2 / positive_scale) log 3.
    D = torch.tensor([[0.3, 0.3, 0.3, 1.1]])
    found = losses.LiftedStructure()(D, [0], [0, 0, 0, 1]).item()
    assert found == pytest.approx(2 * 0.3 + math.log(3) - 2 * 1.1)


def test_huge_distances_keep_their_digits():
    D = torch.tensor([[3e4, 1e4]])
    assert losses.LiftedStructure()(D, [0], [0, 1]).item() == pytest.approx(4e4)


@pytest.mark.parametrize("name", ["positive_scale", "negative_scale"])
def test_bad_settings_are_refused(name):
    with pytest.raises(ValueError, match=f"LiftedStructure: {name} must be positive and finite, got 0"):
        losses.LiftedStructure(**{name: 0})
