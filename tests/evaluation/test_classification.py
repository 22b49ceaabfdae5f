import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier

from likewise.evaluation.classification import confusion_matrix, macro_f1
from sklearn import metrics


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("k", [1, 3, 4])
def test_equal_to_scikit_learns(tied, k):
    generator = np.random.default_rng(k)
    D = generator.standard_normal((40, 60)) ** 2
    D = D.round(1) if tied else D
    rows, columns = generator.integers(0, 5, 40) * 3, generator.integers(1, 6, 60) * 3
    order = D.argsort(1, kind="stable")[:, :k]
    predicted = [np.bincount(columns[near]).argmax() for near in order]
    given = torch.from_numpy(D), torch.from_numpy(rows), torch.from_numpy(columns)
    expected = metrics.f1_score(rows, predicted, average="macro", zero_division=0)
    assert macro_f1(*given, k=k) == pytest.approx(expected, abs=1e-12)
    classes = np.union1d(rows, columns)
    np.testing.assert_array_equal(
        confusion_matrix(*given, k=k), metrics.confusion_matrix(rows, predicted, labels=classes)
    )
    if not tied and k == 1:
        peer = KNeighborsClassifier(1, metric="precomputed").fit(np.zeros((60, 60)), columns)
        np.testing.assert_array_equal(peer.predict(D), predicted)


def test_by_hand():
    D = torch.tensor([[0.0, 1.0, 9.0], [9.0, 0.0, 1.0], [1.0, 9.0, 0.0]])
    rows, columns = torch.tensor([2, 2, 5]), torch.tensor([2, 5, 5])
    np.testing.assert_array_equal(confusion_matrix(D, rows, columns), [[1, 1], [0, 1]])
    assert macro_f1(D, rows, columns) == pytest.approx((2 / 3 + 2 / 3) / 2)


def test_a_class_that_no_row_has_and_none_is_taken_for_does_not_count():
    D, rows, columns = torch.tensor([[0.0, 9.0]]), torch.tensor([1]), torch.tensor([1, 8])
    assert macro_f1(D, rows, columns) == 1
    np.testing.assert_array_equal(confusion_matrix(D, rows, columns), [[1, 0], [0, 0]])


def test_items_against_themselves():
    D = torch.zeros(3, 3)  # each one's nearest is the first of the others
    labels = torch.tensor([0, 1, 1])
    np.testing.assert_array_equal(confusion_matrix(D, labels), [[0, 1], [2, 0]])
    assert macro_f1(D, labels) == 0
