import math

import pytest
import torch

from likewise import losses
from likewise.testing import check_loss
from tests.losses.problems import matrices


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"margin": 0.2, "temperature": 0.2, "global_weight": 1},
        {"temperature": None},
        {"per_anchor_negatives": True},
        {"per_anchor_negatives": True, "temperature": None, "reduction": "sum"},
    ],
    ids=str,
)
def test_contract(options):
    # The weights of the positives are detached, so that their gradient is not that of the value.
    check_loss(losses.Structural(**options), gradient=options.get("temperature", 1.0) is None)


def loops(D, row_labels, col_labels, margin, temperature, per_anchor, weights):
    """The formula, pair by pair; weights are (global, mean, gap)."""
    own, columns = col_labels is None, row_labels if col_labels is None else col_labels
    cells = [(i, j) for i in range(D.shape[0]) for j in range(D.shape[1]) if not (own and i == j)]
    positives = [(i, j) for i, j in cells if row_labels[i] == columns[j]]
    negatives = [(i, j) for i, j in cells if row_labels[i] != columns[j]]
    hardness = [1.0 if temperature is None else math.exp(D[cell].item() / temperature) for cell in positives]
    local = 0.0
    for (i, j), hard in zip(positives, hardness, strict=True):
        others = [(k, m) for k, m in negatives if not per_anchor or k == i or m == j]
        total = sum(math.exp(margin + D[i, j].item() - D[other].item()) for other in others)
        local += hard / sum(hardness) * math.log1p(total)

    def moments(cells):
        values = [D[cell].item() for cell in cells]
        center = sum(values) / len(values) if values else 0.0
        return center, sum((value - center) ** 2 for value in values) / max(len(values), 1)

    (near, spread), (far, spread_far) = moments(positives), moments(negatives)
    gap = max(0.0, near - far + weights[2]) if positives and negatives else 0.0
    return local + weights[0] * (spread + spread_far + weights[1] * gap)


@pytest.mark.parametrize("temperature", [1.0, 0.2, None])
@pytest.mark.parametrize("per_anchor", [False, True])
def test_in_loops(temperature, per_anchor):
    for seed in range(3):
        for D, row_labels, col_labels in matrices(seed):
            for margin, weights in ((1.0, (0.1, 1.0, 1.0)), (0.2, (1.0, 0.5, 0.3)), (0.5, (0.0, 1.0, 1.0))):
                expected = loops(D, row_labels, col_labels, margin, temperature, per_anchor, weights)
                options = dict(zip(("global_weight", "mean_weight", "mean_gap"), weights, strict=True))
                loss = losses.Structural(margin, temperature, per_anchor_negatives=per_anchor, **options)
                assert loss(D, row_labels, col_labels).item() == pytest.approx(expected, rel=1e-9)


def test_the_sum_is_the_mean_times_the_rows():
    for D, row_labels, col_labels in matrices(0):
        mean = losses.Structural()(D, row_labels, col_labels).item()
        total = losses.Structural(reduction="sum")(D, row_labels, col_labels).item()
        assert total == pytest.approx(len(D) * mean)


def test_by_hand():
    # One positive at 1, two negatives at 2 and 4: local log(1 + e^0 + e^-2), global 0 + 1 + max(0, 1 - 3 + 1).
    D = torch.tensor([[1.0, 2.0, 4.0]], dtype=torch.float64)
    found = losses.Structural(global_weight=0.5)(D, [0], [0, 1, 1]).item()
    assert found == pytest.approx(math.log(2 + math.exp(-2)) + 0.5 * 1)


def test_hard_positives_weigh_more_and_the_weights_are_detached():
    D = torch.tensor([[0.0, 1.0, 5.0]], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(losses.Structural(global_weight=0)(D, [0], [0, 0, 1]), D)
    weights = torch.tensor([1.0, math.e]) / (1 + math.e)
    steps = torch.tensor([1 + 0.0 - 5, 1 + 1.0 - 5], dtype=torch.float64).sigmoid()
    assert slope[0, :2].tolist() == pytest.approx((weights * steps).tolist())


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="Structural: temperature must be positive and finite, got 0"):
        losses.Structural(temperature=0)
    with pytest.raises(TypeError, match="Structural: expected global_weight to be a number, got NoneType"):
        losses.Structural(global_weight=None)
