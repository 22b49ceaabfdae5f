import math

import pytest
import torch
from pytorch_metric_learning.losses import MultiSimilarityLoss

from likewise import losses
from likewise.testing import check_loss
from tests.losses.problems import check_against_loops, matrices, mined


@pytest.mark.parametrize("options", [{}, {"margin": None}, {"threshold": 1.0}, {"reduction": "sum"}], ids=str)
def test_contract(options):
    check_loss(losses.MultiSimilarity(**options))


@pytest.mark.parametrize(("positive_scale", "negative_scale", "threshold"), [(2.0, 50.0, 0.5), (1.0, 3.0, 0.9)])
def test_in_loops(positive_scale, negative_scale, threshold):
    a, b = positive_scale, negative_scale

    def similarity(positives, negatives):
        pulled = math.log1p(sum(math.exp(a * (p - threshold)) for p in positives)) / a
        return pulled + math.log1p(sum(math.exp(-b * (n - threshold)) for n in negatives)) / b

    options = {"positive_scale": a, "negative_scale": b, "threshold": threshold}
    check_against_loops(losses.MultiSimilarity, similarity, **options, margin=None)
    check_against_loops(losses.MultiSimilarity, lambda p, n: similarity(*mined(p, n, 0.1)), **options)
    check_against_loops(losses.MultiSimilarity, lambda p, n: similarity(*mined(p, n, 0.3)), **options, margin=0.3)


def test_without_mining_it_equals_pytorch_metric_learning():
    peer = losses.from_pml(MultiSimilarityLoss())
    for D, row_labels, col_labels in matrices(0):
        if min(D.shape) > 1:
            found = losses.MultiSimilarity(margin=None)(D, row_labels, col_labels)
            assert found.item() == pytest.approx(peer(D, row_labels, col_labels).item())


def test_by_hand():
    D = torch.tensor([[0.5, 0.5]])
    found = losses.MultiSimilarity(positive_scale=1, negative_scale=2)(D, [0], [0, 1]).item()
    assert found == pytest.approx(1.5 * math.log(2))


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="MultiSimilarity: negative_scale must be positive and finite, got 0"):
        losses.MultiSimilarity(negative_scale=0)
