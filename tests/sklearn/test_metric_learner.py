import numpy as np
import pytest
import torch
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks
from torch import nn

import likewise as lw
from likewise.models.gru_encoder import GRUEncoder
from likewise.models.metric import Metric
from likewise.sklearn import MetricLearner
from tests.training.problems import metric, problem, spread, weights

NAMES = np.array(["low", "middle", "high"])


def learner(**options):
    torch.manual_seed(0)
    m = Metric(GRUEncoder(2, 4), lw.Euclidean())
    return MetricLearner(m, spread, **{"epochs": 3, "lr": 0.02, "batch_size": 8} | options)


def data(count=24, seed=0):
    x, y = problem(count, seed)
    return x.to_list(), NAMES[y]


def test_it_learns_and_classifies_names():
    (x, y), (q, p) = data(), data(12, seed=1)
    start = learner(epochs=10)
    before = weights(start.metric)
    fitted = start.fit(x, y)
    assert fitted is start
    assert torch.equal(weights(start.metric), before), "what was passed is not trained"
    assert not torch.equal(weights(fitted.metric_), before)
    assert fitted.classes_.tolist() == sorted(NAMES)
    assert fitted.score(q, p) >= 0.9
    assert len(fitted.history_.losses) == 10
    assert is_classifier(fitted)


def test_neighbours_are_those_of_the_matrix():
    (x, y), (q, _) = data(), data(7, seed=1)
    fitted = learner(k=3).fit(x, y)
    with torch.no_grad():
        D = fitted.metric_.matrix(q, x)
    distances, indices = fitted.kneighbors(q)
    assert indices.tolist() == D.argsort(dim=1, stable=True)[:, :3].tolist()
    np.testing.assert_allclose(distances, D.sort(1).values[:, :3], rtol=1e-5, atol=1e-6)
    for found, row in zip(fitted.predict(q), indices, strict=True):
        names, counts = np.unique(y[row], return_counts=True)
        assert found == names[counts.argmax()]
    assert fitted.kneighbors(q, k=1)[1].shape == (7, 1)


def test_transform_gives_vectors_where_the_encoder_does():
    x, y = data()
    fitted = learner().fit(x, y)
    assert fitted.transform(x).shape == (24, 4)
    np.testing.assert_allclose(fitted.transform(x), fitted.references_.numpy(), rtol=1e-5, atol=1e-6)
    sequences = MetricLearner(metric(), spread, epochs=1).fit(x, y)
    assert sequences.predict(x).shape == (24,)
    with pytest.raises(ValueError, match=r"MetricLearner: its encoder returns sequences.*steps=False"):
        sequences.transform(x)


def test_any_distance_that_learns():
    (x, y), (q, p) = data(), data(12, seed=1)
    torch.manual_seed(0)
    fitted = MetricLearner(lw.CoupledGRU(2, hidden=(6,)), spread, epochs=10, lr=0.02, batch_size=8).fit(x, y)
    assert isinstance(fitted.metric_, lw.CoupledGRU)
    assert not fitted.metric_.training
    assert fitted.score(q, p) > 0.5
    with torch.no_grad():
        D = fitted.metric_.matrix(q, x)
    np.testing.assert_array_equal(fitted.kneighbors(q, k=2)[1], D.argsort(dim=1, stable=True)[:, :2])
    twin = MetricLearner(lw.SiameseGRU(2, hidden=(6,)), spread, epochs=1).fit(x, y)
    assert twin.transform(q).shape == (12, 6)
    with pytest.raises(ValueError, match="transform needs one that returns vectors"):
        fitted.transform(q)


def test_pairs_and_own_neighbours():
    x, y = data()
    fitted = learner().fit((x, y))
    assert fitted.predict(x).tolist() == learner().fit(x, y).predict(x).tolist()
    assert fitted.score((x, y)) == fitted.score(x, y)
    assert (fitted.kneighbors()[1][:, 0] != np.arange(24)).all(), "no item finds itself"


def test_forms_of_items():
    y = NAMES[np.arange(12) % 3]
    array = np.random.default_rng(0).normal(size=(12, 5, 2))
    expected = learner().fit(array, y).predict(array)
    assert learner().fit(lw.Batch(torch.from_numpy(array)), y).predict(list(array)).tolist() == expected.tolist()
    objects = np.empty(12, dtype=object)
    objects[:] = list(array)
    assert learner().fit(objects, y).predict(array).tolist() == expected.tolist()
    table = np.arange(36).reshape(12, 3)
    vectors = MetricLearner(Metric(nn.Linear(3, 2), lw.Euclidean()), spread, epochs=1).fit(table, y)
    assert vectors.predict(table).shape == (12,)


def test_parameters_and_clones():
    original = learner(k=2, options={"average": 0.9})
    assert original.get_params()["k"] == 2
    copy = clone(original)
    assert copy is not original
    assert copy.get_params()["options"] == {"average": 0.9}
    assert torch.equal(weights(copy.metric), weights(original.metric))
    assert copy.metric is not original.metric
    assert copy.set_params(k=5, lr=0.1).k == 5
    with pytest.raises(NotFittedError):
        copy.predict(data()[0])
    # Checks of scikit-learn that do not need tables: the encoder has its own number of channels.
    for check in (
        estimator_checks.check_no_attributes_set_in_init,
        estimator_checks.check_get_params_invariance,
        estimator_checks.check_set_params,
        estimator_checks.check_estimator_cloneable,
        estimator_checks.check_estimator_repr,
    ):
        check("MetricLearner", learner())


def test_pipelines_and_searches():
    x, y = data()
    halve = FunctionTransformer(lambda items: [item / 2 for item in items])
    pipeline = make_pipeline(halve, learner())
    assert pipeline.fit(x, y).score(x, y) > 0.5
    search = GridSearchCV(learner(epochs=1), {"k": [1, 3], "lr": [1e-3, 1e-2]}, cv=2).fit(x, y)
    assert set(search.best_params_) == {"k", "lr"}
    assert search.predict(x[:3]).shape == (3,)
    assert cross_val_score(learner(epochs=1), lw.Batch.from_list(x), y, cv=2).shape == (2,)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x, y: learner(k=0).fit(x, y), ValueError, "MetricLearner: k must be a whole number of 1 or more"),
        (lambda x, y: learner(k=99).fit(x, y), ValueError, "MetricLearner: k is 99, but X holds 24 samples"),
        (lambda x, y: learner().fit(x, y[:3]), ValueError, r"MetricLearner: expected y of shape \(24,\), got \(3,\)"),
        (lambda x, y: learner().fit(x, np.linspace(0, 1, 24)), ValueError, "Unknown label type: continuous"),
        (
            lambda x, y: MetricLearner("dtw", spread).fit(x, y),
            TypeError,
            "MetricLearner: expected metric to be a Distance, got str",
        ),
        (
            lambda x, y: MetricLearner(lw.DTW(), spread).fit(x, y),
            ValueError,
            "DTW has no parameters to learn; use Nearest",
        ),
        (lambda x, y: learner().fit(x), ValueError, "MetricLearner: requires y to be passed"),
        (lambda x, y: learner().fit(x, y).kneighbors(x, k=25), ValueError, "MetricLearner: k"),
    ],
)
def test_bad_use_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call(*data())
