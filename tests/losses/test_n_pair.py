import math

import pytest
import torch

from likewise import losses
from likewise.testing import check_loss
from tests.losses.problems import check_against_loops, mean


@pytest.mark.parametrize("options", [{}, {"temperature": 0.05}, {"reduction": "sum"}], ids=str)
def test_contract(options):
    check_loss(losses.NPair(**options))


@pytest.mark.parametrize("temperature", [1.0, 0.2])
def test_in_loops(temperature):
    def n_pair(positives, negatives):
        return mean([math.log1p(sum(math.exp((p - n) / temperature) for n in negatives)) for p in positives])

    check_against_loops(losses.NPair, n_pair, temperature=temperature)


def test_by_hand():
    D = torch.tensor([[1.0, 1.0, 1.0, 1.0]])
    assert losses.NPair()(D, [0], [0, 1, 2, 3]).item() == pytest.approx(math.log(4))
    D = torch.tensor([[math.log(6), math.log(2), math.log(3)]])
    assert losses.NPair()(D, [0], [0, 1, 2]).item() == pytest.approx(math.log(1 + 3 + 2))


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="NPair: temperature must be positive and finite, got 0"):
        losses.NPair(0)
