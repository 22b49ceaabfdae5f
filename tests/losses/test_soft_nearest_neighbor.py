import math

import pytest
import torch

from likewise import losses
from likewise.testing import check_loss
from tests.losses.problems import check_against_loops


@pytest.mark.parametrize("options", [{}, {"temperature": 0.05}, {"temperature": 50}, {"reduction": "sum"}], ids=str)
def test_contract(options):
    check_loss(losses.SoftNearestNeighbor(**options))


@pytest.mark.parametrize("temperature", [1.0, 0.1, 10.0])
def test_in_loops(temperature):
    def neighbor(positives, negatives):
        if not positives:
            return 0.0
        own = sum(math.exp(-p / temperature) for p in positives)
        return -math.log(own / (own + sum(math.exp(-n / temperature) for n in negatives)))

    check_against_loops(losses.SoftNearestNeighbor, neighbor, temperature=temperature)


def test_by_hand():
    D = torch.tensor([[math.log(2), math.log(2), math.log(4)]])
    assert losses.SoftNearestNeighbor()(D, [0], [0, 1, 1]).item() == pytest.approx(-math.log(0.5 / 1.25))


def test_prototypes_give_the_cross_entropy():
    D = torch.rand(6, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 3, 2, 2, 1, 0])
    expected = torch.nn.functional.cross_entropy(-D / 0.3, labels)
    assert losses.SoftNearestNeighbor(0.3)(D, labels, torch.arange(4)).item() == pytest.approx(expected.item())


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="SoftNearestNeighbor: temperature must be positive and finite, got -1"):
        losses.SoftNearestNeighbor(-1)
