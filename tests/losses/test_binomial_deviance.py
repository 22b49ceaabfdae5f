import math

import pytest
import torch

from likewise import losses
from likewise.testing import check_loss
from tests.losses.problems import check_against_loops, mean, mined


@pytest.mark.parametrize(
    "options", [{}, {"margin": None}, {"positive_scale": 1, "negative_scale": 2}, {"reduction": "sum"}], ids=str
)
def test_contract(options):
    check_loss(losses.BinomialDeviance(**options))


def deviance(positive_scale, negative_scale, threshold):
    def loss(positives, negatives):
        if not positives or not negatives:
            return 0.0
        a, b = positive_scale, negative_scale
        pulled = 2 / a * mean([math.log1p(math.exp(a * (p - threshold))) for p in positives])
        return pulled + 2 / b * mean([math.log1p(math.exp(-b * (n - threshold))) for n in negatives])

    return loss


@pytest.mark.parametrize(("positive_scale", "negative_scale", "threshold"), [(2.0, 40.0, 0.5), (1.0, 2.0, 0.9)])
def test_in_loops(positive_scale, negative_scale, threshold):
    options = {"positive_scale": positive_scale, "negative_scale": negative_scale, "threshold": threshold}
    loss = deviance(**options)
    check_against_loops(losses.BinomialDeviance, lambda p, n: loss(*mined(p, n, 0.1)), **options)
    check_against_loops(losses.BinomialDeviance, lambda p, n: loss(*mined(p, n, 0.3)), **options, margin=0.3)
    check_against_loops(losses.BinomialDeviance, loss, **options, margin=None)


def test_by_hand():
    # At the threshold both terms are log 2, times 2 / positive_scale and 2 / negative_scale.
    D = torch.tensor([[0.5, 0.5]])
    found = losses.BinomialDeviance(positive_scale=2, negative_scale=4)(D, [0], [0, 1]).item()
    assert found == pytest.approx((1 + 0.5) * math.log(2))
    # Easy positives (0.1) and easy negatives (1.4) are left out.
    D = torch.tensor([[0.5, 0.1, 0.5, 1.4]])
    assert losses.BinomialDeviance(positive_scale=2, negative_scale=4)(D, [0], [0, 0, 1, 1]).item() == pytest.approx(
        found
    )


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="BinomialDeviance: positive_scale must be positive and finite, got -1"):
        losses.BinomialDeviance(-1)
    with pytest.raises(TypeError, match="BinomialDeviance: expected threshold to be a number, got NoneType"):
        losses.BinomialDeviance(threshold=None)
