import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from likewise.evaluation.retrieval import mean_average_precision, nearest_neighbor_accuracy


def plain_accuracy(D, row_labels, col_labels=None):
    """One row and one column at a time."""
    hits = 0
    for i, row in enumerate(D.tolist()):
        others = [j for j in range(len(row)) if col_labels is not None or j != i]
        nearest = min(others, key=lambda j: row[j])
        hits += bool((row_labels if col_labels is None else col_labels)[nearest] == row_labels[i])
    return hits / len(D)


def plain_map(D, row_labels, col_labels=None):
    """Average precision from its definition, with ties counted together."""
    own, precisions = col_labels is None, []
    col_labels = row_labels if col_labels is None else col_labels
    for i, row in enumerate(D.tolist()):
        others = [j for j in range(len(row)) if not own or j != i]
        relevant = [j for j in others if col_labels[j] == row_labels[i]]
        if relevant:
            shares = []
            for j in relevant:
                not_further = [k for k in others if row[k] <= row[j]]
                shares.append(sum(bool(col_labels[k] == row_labels[i]) for k in not_further) / len(not_further))
            precisions.append(sum(shares) / len(shares))
    return sum(precisions) / len(precisions) if precisions else 0.0


@st.composite
def problems(draw, square=False):
    """Distances with ties and infinities, and labels of few classes."""
    rows = draw(st.integers(2, 7))
    columns = rows if square else draw(st.integers(1, 7))
    values = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0, float("inf")])
    D = torch.tensor(draw(st.lists(st.lists(values, min_size=columns, max_size=columns), min_size=rows, max_size=rows)))
    labels = [draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)) for n in (rows, columns)]
    return D, torch.tensor(labels[0]), torch.tensor(labels[1])


@given(problems())
@settings(max_examples=100, deadline=None)
def test_queries_against_references_equal_plain_loops(problem):
    assert nearest_neighbor_accuracy(*problem) == pytest.approx(plain_accuracy(*problem))
    assert mean_average_precision(*problem) == pytest.approx(plain_map(*problem))


@given(problems(square=True))
@settings(max_examples=100, deadline=None)
def test_leaving_one_out_equals_plain_loops(problem):
    D, labels, _ = problem
    assert nearest_neighbor_accuracy(D, labels) == pytest.approx(plain_accuracy(D, labels))
    assert mean_average_precision(D, labels) == pytest.approx(plain_map(D, labels))


def test_average_precision_equals_scikit_learns():
    metrics = pytest.importorskip("sklearn.metrics")
    generator = np.random.default_rng(0)
    for tied in (False, True):
        D = generator.standard_normal((12, 30))
        D = np.round(D, 1) if tied else D
        rows, columns = generator.integers(0, 4, 12), generator.integers(0, 4, 30)
        expected = [metrics.average_precision_score(columns == label, -row) for row, label in zip(D, rows, strict=True)]
        found = mean_average_precision(torch.from_numpy(D), torch.from_numpy(rows), torch.from_numpy(columns))
        assert found == pytest.approx(np.mean(expected), abs=1e-12)


# ---- By hand


def test_a_ranking_by_hand():
    D, rows, columns = torch.tensor([[0.1, 0.2, 0.3, 0.4]]), torch.tensor([1]), torch.tensor([1, 0, 1, 0])
    assert mean_average_precision(D, rows, columns) == pytest.approx((1 + 2 / 3) / 2)
    assert nearest_neighbor_accuracy(D, rows, columns) == 1
    assert nearest_neighbor_accuracy(-D, rows, columns) == 0


def test_ties_count_together():
    D = torch.zeros(1, 4)
    assert mean_average_precision(D, torch.tensor([1]), torch.tensor([1, 0, 0, 0])) == 0.25
    assert nearest_neighbor_accuracy(D, torch.tensor([1]), torch.tensor([1, 0, 0, 0])) == 1
    assert nearest_neighbor_accuracy(D, torch.tensor([1]), torch.tensor([0, 1, 1, 1])) == 0, "the first counts"


def test_duplicates_do_not_hide_an_item_from_itself():
    # Items 0 and 1 are equal but of two classes; each must not find itself at distance 0.
    D = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 2.0], [1.0, 2.0, 0.0]])
    labels = torch.tensor([0, 1, 0])
    assert nearest_neighbor_accuracy(D, labels) == pytest.approx(1 / 3)
    assert mean_average_precision(D, labels) == pytest.approx((1 / 2 + 1) / 2)


def test_rows_whose_label_no_column_has():
    D = torch.tensor([[0.0, 1.0, 2.0], [1.0, 0.0, 2.0], [1.0, 2.0, 0.0]])
    labels = torch.tensor([0, 0, 5])  # 5 is alone
    assert mean_average_precision(D, labels) == 1
    assert nearest_neighbor_accuracy(D, labels) == pytest.approx(2 / 3)
    assert mean_average_precision(D, torch.tensor([0, 1, 2])) == 0


def test_infinite_distances_come_last():
    inf = torch.inf
    D, rows = torch.tensor([[1.0, inf, 2.0, inf]]), torch.tensor([1])
    columns = torch.tensor([1, 1, 0, 0])
    assert mean_average_precision(D, rows, columns) == pytest.approx((1 + 2 / 4) / 2)
    everything = torch.full((3, 3), inf)
    assert nearest_neighbor_accuracy(everything, torch.tensor([0, 1, 2])) == 0, "nobody is its own neighbour"
    assert nearest_neighbor_accuracy(everything, torch.tensor([0, 0, 1])) == pytest.approx(2 / 3)


def test_arguments_and_types():
    D = torch.tensor([[9.0, 1.0], [1.0, 9.0]], requires_grad=True)
    labels = [3, 3]
    assert nearest_neighbor_accuracy(D, labels) == mean_average_precision(D, labels) == 1  # type: ignore[arg-type]
    assert D.tolist() == [[9, 1], [1, 9]]
    assert isinstance(mean_average_precision(D.half(), np.array(labels)), float)  # type: ignore[arg-type]
    assert nearest_neighbor_accuracy(D.T.expand(2, 2), torch.tensor([0.5, 0.5])) == 1


# ---- Bad input


@pytest.mark.parametrize("function", [nearest_neighbor_accuracy, mean_average_precision])
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((np.zeros((2, 2)), [0, 1]), TypeError, "expected D to be a torch.Tensor, got ndarray"),
        (
            (torch.zeros(2, 2).long(), [0, 1]),
            TypeError,
            r"expected D to be floating point, got torch.int64; convert it with",
        ),
        ((torch.zeros(4), [0, 1]), ValueError, r"expected D of shape \(N, M\), not empty, got \(4,\)"),
        ((torch.zeros(0, 3), [], [0, 1, 2]), ValueError, r"not empty, got \(0, 3\)"),
        ((torch.zeros(3, 0), [0, 1, 2], []), ValueError, r"not empty, got \(3, 0\)"),
        ((torch.zeros(2, 3), [0, 1]), ValueError, r"without col_labels, D must be square, got \(2, 3\)"),
        ((torch.zeros(1, 1), [0]), ValueError, "without col_labels, D must hold at least two items"),
        ((torch.zeros(2, 2), [0]), ValueError, r"expected row_labels of shape \(2,\), got \(1,\)"),
        ((torch.zeros(2, 3), [0, 1], [0, 1]), ValueError, r"expected col_labels of shape \(3,\), got \(2,\)"),
        ((torch.zeros(2, 3), [[0, 1]], [0, 1, 2]), ValueError, r"expected row_labels of shape \(2,\), got \(1, 2\)"),
        ((torch.tensor([[0.0, 1.0], [torch.nan, 0.0]]), [0, 1]), ValueError, "D holds NaN in row 1"),
    ],
)
def test_bad_input_is_refused(function, arguments, error, message):
    with pytest.raises(error, match=f"{function.__name__}: .*{message}"):
        function(*arguments)
