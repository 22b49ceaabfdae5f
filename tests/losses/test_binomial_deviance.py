import math

import pytest
import torch

from likewise import losses
from likewise.testing import check_loss
from tests.losses.problems import check_against_loops, mean, mined


@pytest.mark.parametrize("options", [{}, {"margin": None}, {"alpha": 2, "beta": 1}, {"reduction": "sum"}], ids=str)
def test_contract(options):
    check_loss(losses.BinomialDeviance(**options))


def deviance(alpha, beta, threshold):
    def loss(positives, negatives):
        if not positives or not negatives:
            return 0.0
        pulled = 2 / beta * mean([math.log1p(math.exp(beta * (p - threshold))) for p in positives])
        return pulled + 2 / alpha * mean([math.log1p(math.exp(-alpha * (n - threshold))) for n in negatives])

    return loss


@pytest.mark.parametrize(("alpha", "beta", "threshold"), [(40.0, 2.0, 0.5), (2.0, 1.0, 0.9)])
def test_in_loops(alpha, beta, threshold):
    options, loss = {"alpha": alpha, "beta": beta, "threshold": threshold}, deviance(alpha, beta, threshold)
    check_against_loops(losses.BinomialDeviance, lambda p, n: loss(*mined(p, n, 0.1)), **options)
    check_against_loops(losses.BinomialDeviance, lambda p, n: loss(*mined(p, n, 0.3)), **options, margin=0.3)
    check_against_loops(losses.BinomialDeviance, loss, **options, margin=None)


def test_by_hand():
    # At the threshold both terms are log 2, times 2 / beta and 2 / alpha.
    D = torch.tensor([[0.5, 0.5]])
    found = losses.BinomialDeviance(alpha=4, beta=2)(D, [0], [0, 1]).item()
    assert found == pytest.approx((1 + 0.5) * math.log(2))
    # Easy positives (0.1) and easy negatives (1.4) are left out.
    D = torch.tensor([[0.5, 0.1, 0.5, 1.4]])
    assert losses.BinomialDeviance(alpha=4, beta=2)(D, [0], [0, 0, 1, 1]).item() == pytest.approx(found)


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="BinomialDeviance: alpha must be positive and finite, got -1"):
        losses.BinomialDeviance(-1)
    with pytest.raises(TypeError, match="BinomialDeviance: expected threshold to be a number, got NoneType"):
        losses.BinomialDeviance(threshold=None)
