import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from likewise import DTW, Batch, Cosine, Euclidean
from likewise.models.frame_mlp import FrameMLP
from likewise.models.metric import Metric
from likewise.sklearn import NearestNeighbors

generator = torch.Generator().manual_seed(0)
LABELS = np.array(["walk", "run", "sit"])[np.arange(30) % 3]
SERIES = [
    torch.randn(3 + i % 5, 2, generator=generator) * 0.3 + torch.tensor([i % 3, -i % 3], dtype=torch.float32)
    for i in range(30)
]


@pytest.mark.filterwarnings("ignore:.*SCIPY_ARRAY_API")
@parametrize_with_checks([NearestNeighbors(), NearestNeighbors(DTW()), NearestNeighbors(Cosine(), k=2)])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("metric", [None, DTW(), DTW(band=0.2), Metric(FrameMLP(2, hidden=8), DTW())])
@pytest.mark.parametrize("k", [1, 4])
def test_equal_to_the_whole_matrix_and_plain_loops(metric, k):
    torch.manual_seed(0)
    references, queries, y = SERIES[:20], SERIES[20:], LABELS[:20]
    classifier = NearestNeighbors(metric, k=k).fit(references, y)
    with torch.no_grad():
        D = (metric or Euclidean()).eval().matrix(queries, references).numpy()
    order = D.argsort(1, kind="stable")[:, :k]
    distances, indices = classifier.kneighbors(queries)
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_allclose(distances, np.take_along_axis(D, order, 1), rtol=1e-5)
    expected = []
    for near in order:
        votes = y[near].tolist()
        expected.append(min(set(votes), key=lambda label: (-votes.count(label), label)))
    predicted = classifier.predict(queries)
    assert predicted.tolist() == expected
    proba = classifier.predict_proba(queries)
    np.testing.assert_array_equal(classifier.classes_[proba.argmax(1)], predicted)
    np.testing.assert_allclose(proba.sum(1), 1)
    assert classifier.score(queries, LABELS[20:]) == np.mean(predicted == LABELS[20:])


def test_a_map_style_dataset_is_not_a_table():
    class Series(torch.utils.data.Dataset):
        labels = tuple(LABELS)

        def __len__(self):
            return len(SERIES)

        def __getitem__(self, i):
            return SERIES[i], self.labels[i]

    for metric in (DTW(), Metric(FrameMLP(2, hidden=8), DTW())):
        classifier = NearestNeighbors(metric).fit(SERIES, LABELS)
        own = NearestNeighbors(metric).fit(Series())
        assert own.predict(Series()).tolist() == classifier.predict(SERIES).tolist()
        assert own.score(Series()) == 1


def test_tables_equal_scikit_learns():
    x = np.random.default_rng(0).standard_normal((60, 4))
    y = np.arange(60) % 4
    ours, theirs = NearestNeighbors(k=5).fit(x[:40], y[:40]), KNeighborsClassifier(5).fit(x[:40], y[:40])
    np.testing.assert_array_equal(ours.predict(x[40:]), theirs.predict(x[40:]))
    np.testing.assert_allclose(ours.predict_proba(x[40:]), theirs.predict_proba(x[40:]))
    for own in (x[40:], None):
        for found, expected in zip(ours.kneighbors(own, k=3), theirs.kneighbors(own, 3), strict=True):
            np.testing.assert_allclose(found, expected)


def test_a_table_is_series_of_one_channel():
    x, y = np.random.default_rng(0).standard_normal((12, 6)), np.arange(12) % 2
    table, series = NearestNeighbors(DTW()).fit(x, y), NearestNeighbors(DTW()).fit(x[..., None], y)
    np.testing.assert_array_equal(table.kneighbors(x, k=4)[0], series.kneighbors(list(x), k=4)[0])
    assert table.n_features_in_ == 6
    assert not hasattr(series, "n_features_in_")
    series.predict(x)
    assert not hasattr(series, "n_features_in_"), "a query changes nothing"
    with pytest.raises(ValueError, match="X has 5 features, but NearestNeighbors is expecting 6 features"):
        table.predict(x[:, :5])
    frame = pd.DataFrame(x, columns=list("abcdef"))
    named = NearestNeighbors().fit(frame, y)
    assert named.feature_names_in_.tolist() == list("abcdef")


def test_whatever_holds_sequences():
    expected = NearestNeighbors(DTW()).fit(SERIES, LABELS).kneighbors(k=3)[1]
    ragged = np.empty(30, dtype=object)
    ragged[:] = [s.numpy() for s in SERIES]
    for given in (Batch.from_list(SERIES), tuple(SERIES), [s.tolist() for s in SERIES], ragged):
        classifier = NearestNeighbors(DTW()).fit(given, LABELS)
        np.testing.assert_array_equal(classifier.kneighbors(k=3)[1], expected)
        assert (classifier.predict(given) == LABELS).all(), "each finds itself"
    doubles = NearestNeighbors(DTW()).fit([s.double() for s in SERIES], LABELS)
    assert (doubles.predict(SERIES) == LABELS).all(), "queries take the references' type"


def test_a_metric_of_vectors_gets_the_table():
    metric = Metric(nn.Linear(4, 2), Euclidean())
    x, y = torch.randn(12, 4, generator=generator), np.arange(12) % 3
    expected = metric.matrix(x).detach().fill_diagonal_(torch.inf).argmin(1)
    for given in (x, x.numpy(), x.double().numpy(), x.clone().requires_grad_()):
        found = NearestNeighbors(metric).fit(given, y).kneighbors()[1][:, 0]
        np.testing.assert_array_equal(found, expected)


def test_a_metric_encodes_references_once():
    class Counting(nn.Module):
        seen = 0

        def forward(self, batch):
            assert not self.training
            self.seen += len(batch)
            return batch

    encoder = Counting()
    metric = Metric(encoder, DTW()).train()
    classifier = NearestNeighbors(metric).fit(SERIES[:20], LABELS[:20])
    assert encoder.seen == 20
    classifier.predict(SERIES[20:])
    assert encoder.seen == 30
    classifier.kneighbors()
    assert encoder.seen == 30
    assert metric.training


def test_clone_and_parameters():
    metric = Metric(FrameMLP(2, hidden=8), DTW())
    original = NearestNeighbors(metric, k=3)
    copy = clone(original)
    assert copy.metric is not metric
    assert all(map(torch.equal, copy.metric.parameters(), metric.parameters()))  # type: ignore[union-attr]
    assert copy.get_params() == {"metric": copy.metric, "k": 3, "candidates": None}
    assert copy.set_params(k=1).k == 1
    assert original.k == 3
    with pytest.raises(NotFittedError):
        clone(original.fit(SERIES, LABELS)).predict(SERIES)


def test_pipelines_and_searches():
    x, y = np.random.default_rng(0).standard_normal((40, 5)), np.arange(40) % 2
    x += 2 * y[:, None]
    pipeline = make_pipeline(StandardScaler(), NearestNeighbors(k=3))
    assert cross_val_score(pipeline, x, y, cv=4).mean() > 0.9
    search = GridSearchCV(
        NearestNeighbors(), {"k": [1, 3], "metric": [Euclidean(), DTW(), DTW(band=0.5)]}, cv=3, error_score="raise"
    )
    for given in (SERIES, Batch.from_list(SERIES)):
        found = search.fit(given, LABELS)
        assert found.best_score_ > 0.9
        assert (found.predict(given) == LABELS).mean() > 0.9
    halves = make_pipeline(FunctionTransformer(lambda items: [item[::2] for item in items]), NearestNeighbors(DTW()))
    assert halves.fit(SERIES, LABELS).score(SERIES, LABELS) == 1


def test_never_all_pairs(monkeypatch):
    from likewise.evaluation import labels

    rows = []

    class Watched(Euclidean):
        def matrix(self, x, y=None, *, progress=False):
            rows.append(len(x))
            return super().matrix(x, y, progress=progress)

    expected = NearestNeighbors().fit(SERIES, LABELS).kneighbors(k=2)
    monkeypatch.setattr(labels, "NUMBERS_A_STRIP", 120)
    found = NearestNeighbors(Watched()).fit(SERIES, LABELS).kneighbors(k=2)
    assert rows == [4] * 7 + [2]
    np.testing.assert_array_equal(found[1], expected[1])


def test_names_and_numbers_of_classes():
    x = np.arange(4.0)[:, None]
    assert NearestNeighbors().fit(x, [7, 7, -2, -2]).predict([[3.1], [0.2]]).tolist() == [-2, 7]
    assert NearestNeighbors(k=2).fit(x, ["b", "a", "a", "b"]).predict(x[:1]).tolist() == ["a"], "the smaller of a tie"


@pytest.mark.parametrize(
    ("metric", "k", "X", "y", "error", "message"),
    [
        ("dtw", 1, SERIES, LABELS, TypeError, "expected metric to be a Distance, got str"),
        (DTW(), 31, SERIES, LABELS, ValueError, "k is 31, but X holds 30 samples"),
        (DTW(), 0, SERIES, LABELS, ValueError, "k must be a whole number of 1 or more, got 0"),
        (DTW(), 1, SERIES, LABELS[:5], ValueError, r"expected y of shape \(30,\), got \(5,\)"),
        (DTW(), 1, SERIES, None, ValueError, "requires y to be passed, but the target y is None"),
        (DTW(), 1, SERIES, np.linspace(0, 1, 30), ValueError, "Unknown label type"),
        (DTW(), 1, [SERIES[0], SERIES[0][:, :1]], [0, 1], ValueError, r"X\[1\] has 1 channels"),
        (DTW(), 1, np.array([[1.0, np.nan]]), [0], ValueError, "contains NaN"),
    ],
)
def test_bad_input_is_refused(metric, k, X, y, error, message):
    with pytest.raises(error, match=message):
        NearestNeighbors(metric, k=k).fit(X, y)


def test_bad_queries_are_refused():
    classifier = NearestNeighbors(DTW()).fit(SERIES, LABELS)
    with pytest.raises(ValueError, match="k is 30, but each row has 29 references"):
        classifier.kneighbors(k=30)
    with pytest.raises(ValueError, match="expected X to be sequences or a table, got None"):
        classifier.predict(None)
    with pytest.raises(ValueError, match="x has 1 channels and y has 2"):
        classifier.predict([[0.0, 1.0]])


def test_likewise_itself_does_not_import_it():
    program = "import likewise, sys; print('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout.strip() == "False"


@pytest.mark.parametrize("metric", [DTW(band=2), DTW(band=0.1, ground="euclidean")], ids=["steps", "fraction"])
def test_bounds_find_the_same_neighbours(metric, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    x = (torch.randn(40, 20, 2, generator=generator).cumsum(1) * 2).round() / 2  # with ties
    x = Batch(torch.cat([x, x[:5]]), [20] * 30 + [11] * 15)
    classifier = NearestNeighbors(metric, k=3).fit(x, [0, 1, 2] * 15)
    quick = classifier.kneighbors(x[:9]), classifier.kneighbors(), classifier.predict(x)
    monkeypatch.setattr("likewise.sklearn.neighbor_classifier.quick", lambda *args: None)
    slow = classifier.kneighbors(x[:9]), classifier.kneighbors(), classifier.predict(x)
    for one, two in zip(quick[:2], slow[:2], strict=True):
        np.testing.assert_array_equal(one[1], two[1])
        np.testing.assert_allclose(one[0], two[0], rtol=1e-5)
    np.testing.assert_array_equal(quick[2], slow[2])
