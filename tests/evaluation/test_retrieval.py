import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from likewise.evaluation.classification import confusion_matrix, macro_f1
from likewise.evaluation.retrieval import (
    mean_average_precision,
    mean_average_precision_at_r,
    nearest_neighbor_accuracy,
    nearest_neighbor_vote,
    recall_at_k,
)


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


def plain_map_at_r(D, row_labels, col_labels=None):
    """Over the R nearest, where a column's rank is how many are at most as far."""
    own, precisions = col_labels is None, []
    col_labels = row_labels if col_labels is None else col_labels
    for i, row in enumerate(D.tolist()):
        others = [j for j in range(len(row)) if not own or j != i]
        relevant = [j for j in others if col_labels[j] == row_labels[i]]
        if relevant:
            total = 0.0
            for j in relevant:
                not_further = [k for k in others if row[k] <= row[j]]
                if len(not_further) <= len(relevant):
                    total += sum(bool(col_labels[k] == row_labels[i]) for k in not_further) / len(not_further)
            precisions.append(total / len(relevant))
    return sum(precisions) / len(precisions) if precisions else 0.0


def plain_neighbors(D, row_labels, col_labels, k):
    """The labels of the k nearest columns of each row, the first of equally near ones first."""
    own, found = col_labels is None, []
    col_labels = row_labels if col_labels is None else col_labels
    for i, row in enumerate(D.tolist()):
        others = [j for j in range(len(row)) if not own or j != i]
        found.append([int(col_labels[j]) for j in sorted(others, key=lambda j: (row[j], j))[:k]])
    return found


def plain_mode(labels):
    return min(set(labels), key=lambda label: (-labels.count(label), label))


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


def compare_neighbors(D, row_labels, col_labels=None):
    for k in range(1, D.shape[1] + (col_labels is not None)):
        near, rows = plain_neighbors(D, row_labels, col_labels, k), row_labels.tolist()
        accuracy = np.mean([plain_mode(labels) == row for labels, row in zip(near, rows, strict=True)])
        recall = np.mean([row in labels for labels, row in zip(near, rows, strict=True)])
        assert nearest_neighbor_accuracy(D, row_labels, col_labels, k=k) == pytest.approx(accuracy)
        assert recall_at_k(D, row_labels, col_labels, k=k) == pytest.approx(recall)
        for least in range(1, k + 1):
            vote = np.mean([labels.count(row) >= least for labels, row in zip(near, rows, strict=True)])
            assert nearest_neighbor_vote(D, row_labels, col_labels, k=k, least=least) == pytest.approx(vote)


@given(problems())
@settings(max_examples=60, deadline=None)
def test_neighbors_equal_plain_loops(problem):
    compare_neighbors(*problem)
    assert mean_average_precision_at_r(*problem) == pytest.approx(plain_map_at_r(*problem))


@given(problems(square=True))
@settings(max_examples=60, deadline=None)
def test_neighbors_without_oneself_equal_plain_loops(problem):
    D, labels, _ = problem
    compare_neighbors(D, labels)
    assert mean_average_precision_at_r(D, labels) == pytest.approx(plain_map_at_r(D, labels))


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


def test_over_the_r_nearest_equals_pytorch_metric_learnings():
    calculators = pytest.importorskip("pytorch_metric_learning.utils.accuracy_calculator")
    generator = torch.Generator().manual_seed(0)
    x, labels = torch.randn(40, 3, generator=generator), torch.randint(4, (40,), generator=generator)
    D = torch.cdist(x.double(), x.double())
    order = D.fill_diagonal_(torch.inf).argsort(1)[:, :-1]
    counts = calculators.get_label_match_counts(labels, labels, torch.eq)
    given = (labels[order], labels[:, None], True, counts, False, False, torch.eq)
    expected = calculators.mean_average_precision(*given, at_r=True)
    assert mean_average_precision_at_r(D, labels) == pytest.approx(expected)
    assert mean_average_precision(D, labels) == pytest.approx(calculators.mean_average_precision(*given))


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
    # Items 0 and 1 are equal but of different classes; an item must not match itself at distance 0.
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
    assert nearest_neighbor_accuracy(everything, torch.tensor([0, 1, 2])) == 0, "no item is its own neighbour"
    assert nearest_neighbor_accuracy(everything, torch.tensor([0, 0, 1])) == pytest.approx(2 / 3)


def test_a_vote_by_hand():
    D, seven = torch.arange(6.0)[None], torch.tensor([7])
    columns = torch.tensor([1, 7, 7, 1, 2, 7])
    assert nearest_neighbor_vote(D, seven, columns) == 0, "two of five"
    assert nearest_neighbor_vote(D, seven, columns, least=2) == 1
    assert nearest_neighbor_accuracy(D, seven, columns, k=3) == 1
    assert nearest_neighbor_accuracy(D, seven, columns, k=4) == 0, "1 and 7 are equally frequent: the smaller counts"
    assert [recall_at_k(D, seven, columns, k=k) for k in (1, 2, 3)] == [0, 1, 1]


def test_over_the_r_nearest_by_hand():
    D, rows, columns = torch.tensor([[1.0, 2.0, 3.0, 4.0]]), torch.tensor([1]), torch.tensor([1, 0, 1, 1])
    assert mean_average_precision_at_r(D, rows, columns) == pytest.approx((1 + 2 / 3) / 3)
    tied = torch.tensor([[1.0, 2.0, 2.0, 2.0]])  # these reach from rank 2 to rank 4, beyond R = 3
    assert mean_average_precision_at_r(tied, rows, columns) == pytest.approx(1 / 3)
    assert mean_average_precision_at_r(tied, torch.tensor([5]), columns) == 0, "no column has it"


def test_arguments_and_types():
    D = torch.tensor([[9.0, 1.0], [1.0, 9.0]], requires_grad=True)
    labels = [3, 3]
    assert nearest_neighbor_accuracy(D, labels) == mean_average_precision(D, labels) == 1  # type: ignore[arg-type]
    assert D.tolist() == [[9, 1], [1, 9]]
    assert isinstance(mean_average_precision(D.half(), np.array(labels)), float)  # type: ignore[arg-type]
    assert nearest_neighbor_accuracy(D.T.expand(2, 2), torch.tensor([0.5, 0.5])) == 1


@pytest.mark.parametrize(
    "function", [nearest_neighbor_accuracy, mean_average_precision, mean_average_precision_at_r, macro_f1]
)
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
        ((torch.zeros(2, 2), ["a", None]), ValueError, r"row_labels\[1\] is missing"),
        ((torch.zeros(2, 2), [[0], [1, 2]]), TypeError, "expected row_labels to be numbers or names"),
        ((torch.zeros(2, 2), None), TypeError, "expected row_labels to be numbers"),
        ((torch.zeros(2, 2), [1j, 0]), TypeError, "expected row_labels to be numbers or names, got complex128"),
        ((torch.zeros(1, 2), [0], [0.0, torch.nan]), ValueError, r"col_labels\[1\] is NaN"),
        ((torch.tensor([[0.0, 1.0], [torch.nan, 0.0]]), [0, 1]), ValueError, "D holds NaN in row 1"),
    ],
)
def test_bad_input_is_refused(function, arguments, error, message):
    with pytest.raises(error, match=f"{function.__name__}: .*{message}"):
        function(*arguments)


@pytest.mark.parametrize(
    "function", [nearest_neighbor_accuracy, nearest_neighbor_vote, recall_at_k, macro_f1, confusion_matrix]
)
@pytest.mark.parametrize(
    ("k", "error", "message"),
    [
        (0, ValueError, "k must be a whole number of 1 or more, got 0"),
        (3, ValueError, "k is 3, but each row has 2 references"),
        (1.5, ValueError, "k must be a whole number of 1 or more, got 1.5"),
        (True, TypeError, "expected k to be a number, got bool"),
    ],
)
def test_a_wrong_k_is_refused(function, k, error, message):
    with pytest.raises(error, match=f"{function.__name__}: {message}"):
        function(torch.zeros(3, 3), [0, 0, 1], k=k)
    with pytest.raises(error, match=f"{function.__name__}: {message}"):
        function(torch.zeros(1, 2), [0], [0, 1], k=k)


@pytest.mark.parametrize("least", [0, 3])
def test_a_vote_of_more_than_all_is_refused(least):
    with pytest.raises(ValueError, match=f"least must be a whole number from 1 to 2, got {least}"):
        nearest_neighbor_vote(torch.zeros(3, 3), torch.tensor([0, 0, 1]), k=2, least=least)
