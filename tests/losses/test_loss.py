"""What all losses share: labels, pairs, and the graph."""

import numpy as np
import pytest
import torch

from likewise import losses
from likewise.losses.pairs import Pairs, log_sum_exp, mean_of

EVERY = [
    losses.BinomialDeviance(),
    losses.Contrastive(),
    losses.HardMining(),
    losses.HardMiningMeans(),
    losses.LiftedStructure(),
    losses.Margin(beta=0.6),
    losses.MultiSimilarity(),
    losses.NPair(),
    losses.SoftNearestNeighbor(),
    losses.Structural(),
    losses.Triplet(),
    losses.Triplet(mining=losses.hard_triplets),
    losses.Triplet(mining=losses.semi_hard_triplets),
]
each = pytest.mark.parametrize("loss", EVERY, ids=str)


def distances(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def test_every_exported_loss_of_a_matrix_is_tried_here():
    exported = [getattr(losses, name) for name in losses.__all__]
    kinds = {kind.__name__ for kind in exported if isinstance(kind, type) and issubclass(kind, losses.Loss)}
    wrapper = "Relative"  # needs another loss, and has a separate test
    assert kinds - {"Loss", wrapper} == {type(loss).__name__ for loss in EVERY}


@each
def test_it_compiles_as_one_graph(loss):
    D, labels = distances(6, 6).requires_grad_(), torch.tensor([0, 0, 1, 1, 2, 2])
    compiled = torch.compile(loss, fullgraph=True, backend="eager")
    assert torch.allclose(compiled(D, labels), loss(D, labels))
    assert torch.allclose(compiled(D, labels, labels), loss(D, labels, labels))
    torch.compiler.reset()


@each
def test_on_another_device_nothing_waits_for_numbers(loss, monkeypatch):
    # Tensors on "meta" have no values: reading one, or mixing devices, raises an error.
    monkeypatch.setattr("likewise.losses.pairs._check_finite", lambda op, distances: None)
    D = torch.empty(6, 6, device="meta", requires_grad=True)
    for labels in (([0, 0, 1, 1, 2, 2],), (torch.arange(6), torch.arange(6))):
        value = loss(D, *labels)
        assert value.device.type == "meta"
        value.backward()


@each
def test_rows_are_anchors(loss):
    # One row, one anchor: the transpose is another problem, but for losses that read the matrix as a whole.
    D, labels = distances(5, 5), torch.tensor([0, 0, 1, 1, 1])
    same = torch.allclose(loss(D, labels), loss(D.T, labels))
    whole = isinstance(loss, losses.Structural | losses.Contrastive | losses.Margin)
    assert same is False or whole


@each
def test_training_moves_classes_apart(loss):
    labels = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2])
    points = torch.randn(9, 2, generator=torch.Generator().manual_seed(1)).requires_grad_()
    optimizer = torch.optim.Adam([points], 0.05)

    def own_among_nearest():
        with torch.no_grad():
            nearest = torch.cdist(points, points).fill_diagonal_(torch.inf).topk(2, largest=False).indices
        return (labels[nearest] == labels[:, None]).float().mean().item()

    before = own_among_nearest()
    for _ in range(150):
        optimizer.zero_grad()
        gap = points[:, None] - points
        loss((gap.square().sum(-1) + 1e-6).sqrt(), labels).backward()
        optimizer.step()
    assert own_among_nearest() > max(before, 0.7)


def test_a_sum_is_the_mean_times_the_rows():
    D, labels = distances(6, 6), [0, 0, 1, 1, 2, 2]
    for loss in EVERY:
        total = type(loss)(reduction="sum")(D, labels)
        assert total.item() == pytest.approx(6 * type(loss)()(D, labels).item(), rel=1e-5)


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        ([0, 1], ValueError, r"NPair: expected row_labels of shape \(3,\), got \(2,\)"),
        ([[0], [1], [2]], ValueError, r"expected row_labels of shape \(3,\), got \(3, 1\)"),
        (1, ValueError, r"expected row_labels of shape \(3,\), got \(\)"),
        ([0.0, 1.0, 2.0], TypeError, "expected row_labels to be whole numbers or names, got torch.float64"),
        (
            torch.tensor([True, False, True]),
            TypeError,
            "expected row_labels to be whole numbers or names, got torch.bool",
        ),
        (["a", "b", None], ValueError, r"NPair: row_labels\[2\] is missing"),
        (None, TypeError, "NPair: expected row_labels to be numbers or names, got None"),
    ],
)
def test_bad_labels_are_refused(labels, error, message):
    with pytest.raises(error, match=message):
        losses.NPair()(torch.zeros(3, 3), labels)


def test_labels_of_many_forms():
    D, expected = distances(3, 3), losses.NPair()(distances(3, 3), [5, 5, -9])
    frozen = np.array([5, 5, -9])
    frozen.flags.writeable = False
    for labels in (frozen, np.array([5, 5, 7], dtype=np.uint16), (5, 5, -9), torch.tensor([1, 1, 0], dtype=torch.int8)):
        assert torch.equal(losses.NPair()(D, labels), expected)


@pytest.mark.parametrize(
    ("D", "error", "message"),
    [
        ([[0.0]], TypeError, "Contrastive: expected D to be a torch.Tensor, got list"),
        (torch.zeros(1, 1, dtype=torch.int64), TypeError, "Contrastive: expected D to be floating point"),
        (torch.zeros(2, 1, 1), ValueError, r"Contrastive: expected D of shape \(N, M\), got \(2, 1, 1\)"),
        (
            torch.zeros(1, 2),
            ValueError,
            r"Contrastive: without col_labels, D must be square, got \(1, 2\); pass col_labels",
        ),
    ],
)
def test_bad_matrices_are_refused(D, error, message):
    with pytest.raises(error, match=message):
        losses.Contrastive()(D, [0])


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_distances_that_are_not_finite_are_refused(value):
    D = torch.zeros(3, 3)
    D[1, 2] = value
    with pytest.raises(ValueError, match=rf"NPair: D\[1, 2\] is {value}; distances must be finite"):
        losses.NPair()(D, [0, 0, 1])
    D = torch.zeros(3, 3).fill_diagonal_(value)
    assert losses.NPair()(D, [0, 0, 1]).isfinite()
    with pytest.raises(ValueError, match=rf"NPair: D\[0, 0\] is {value}"):
        losses.NPair()(D, [0, 0, 1], [0, 0, 1])


def test_mined_pairs_are_of_both_kinds_or_none():
    # 0.8 - 0.7 > 0.1 in float64, but 0.7 + 0.1 <= 0.8 - and the like: rounding must not keep one kind alone.
    values = torch.arange(30, dtype=torch.float64) / 10
    for p in values:
        hard = Pairs.of("loss", torch.stack([p.expand(30), values], 1), [0] * 30, [0, 1]).mined(0.1)
        assert torch.equal(hard.positives.any(1), hard.negatives.any(1))


def test_sums_over_no_cells():
    values, keep = torch.zeros(2, 3, requires_grad=True), torch.tensor([[True, False, True], [False] * 3])
    assert mean_of(values + 1, keep).tolist() == [1, 0]
    found = log_sum_exp(values, keep)
    assert found[0].exp().item() == pytest.approx(2)
    assert found[1].exp() == 0
    (slope,) = torch.autograd.grad(found.sum(), values)
    assert torch.allclose(slope, torch.tensor([[0.5, 0, 0.5], [0, 0, 0]]))


def test_a_loss_of_ones_own_needs_one_method():
    with pytest.raises(NotImplementedError, match=r"Loss.per_anchor"):
        losses.Loss()(torch.zeros(2, 2), [0, 1])


def test_names_are_as_good_as_numbers():
    D = distances(4, 3)
    expected = losses.NPair()(D, [0, 1, 2, 0], [2, 0, 1])
    assert losses.NPair()(D, ["a", "b", "c", "a"], ["c", "a", "b"]) == expected
    assert losses.NPair()(D, [7, 8, 9, 7], np.array(["9", "7", "8"])) == expected
    assert losses.NPair()(distances(3, 3), ["a", "b", "a"]) == losses.NPair()(distances(3, 3), torch.tensor([0, 1, 0]))
