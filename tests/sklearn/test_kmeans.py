import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.cluster import KMeans as Theirs
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import likewise as lw
from likewise.clusters import kmeans as kmeans_function
from likewise.clusters.barycenter import read_members
from likewise.clusters.kmeans import kmeans, seeds
from likewise.clusters.pruning import Nearest, envelope_bounds
from likewise.sklearn import KMeans


def waves(count=30, steps=24, kinds=3, seed=0, uneven=False):
    generator = torch.Generator().manual_seed(seed)
    labels = np.arange(count) % kinds
    speed = torch.rand(count, 1, generator=generator) + 0.6
    x = torch.sin((4 + 4 * torch.from_numpy(labels)[:, None]) * torch.linspace(0, 1, steps) ** speed)
    x = (x + 0.1 * torch.randn(count, steps, generator=generator))[..., None]
    if not uneven:
        return x, labels
    batch = lw.Batch(x, torch.arange(count) % 6 + steps - 5)
    batch.values[~batch.mask] = torch.nan
    return batch, labels


@pytest.mark.filterwarnings("ignore:.*SCIPY_ARRAY_API")
@parametrize_with_checks([KMeans(), KMeans(lw.DTW(), n_clusters=3)])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def by_loops(distance, items, z, rounds, steps):
    """Lloyd's algorithm with DBA, in plain loops."""
    for _ in range(rounds):
        D = torch.stack([distance.matrix(item[None], torch.stack(z))[0] for item in items])
        labels = D.argmin(1)
        inertia = float(D.min(1).values.sum())
        z = [
            lw.barycenter(
                distance, torch.stack([x for x, label in zip(items, labels, strict=True) if label == k]), init=z[k],
                solver=lw.clusters.MajorizeMinimize(steps, tol=0),
            ).sequence
            for k in range(len(z))
        ]  # fmt: skip
    return labels, inertia


@pytest.mark.parametrize("band", [None, 3])
def test_equal_to_plain_loops(band):
    x, distance = waves()[0].double(), lw.DTW(band=band)
    for rounds in (1, 2, 4):
        found = kmeans(distance, x, 3, init=x[[0, 1, 5]], max_iter=rounds, tol=0, steps=2)
        labels, inertia = by_loops(distance, x, list(x[[0, 1, 5]]), rounds, 2)
        np.testing.assert_array_equal(found.labels, labels)
        assert found.inertia == pytest.approx(inertia)


def test_euclidean_is_scikit_learns():
    x = np.random.default_rng(0).standard_normal((80, 4))
    x[:40] += 3
    ours = KMeans(n_clusters=4, init=x[:4, :, None], tol=0).fit(x)
    theirs = Theirs(4, init=x[:4], n_init=1, tol=0).fit(x)
    assert ours.inertia_ == pytest.approx(theirs.inertia_)
    np.testing.assert_array_equal(ours.labels_, theirs.labels_)
    np.testing.assert_allclose(ours.transform(x), theirs.transform(x) ** 2)
    np.testing.assert_allclose(ours.cluster_centers_.values[..., 0], theirs.cluster_centers_)
    assert ours.score(x) == pytest.approx(theirs.score(x))


METRICS = [
    lw.DTW(),
    lw.DTW(band=0.2),
    lw.DTW(ground="euclidean"),
    lw.SoftDTW(0.1),
    lw.SoftDTWDivergence(0.1),
    lw.GDTW(),
    lw.Euclidean(),
    *(getattr(lw, name)() for name in ("MSM", "TWE", "ADTW", "WDTW") if hasattr(lw, name)),
]


@pytest.mark.parametrize("metric", METRICS, ids=repr)
@pytest.mark.parametrize("uneven", [False, True])
def test_it_finds_the_classes_and_what_it_says_is_true(metric, uneven):
    x, labels = waves(18, 16, uneven=uneven)
    model = KMeans(metric, 3, seed=1, max_iter=6, n_init=2).fit(x)
    if not isinstance(metric, lw.Euclidean):
        assert adjusted_rand_score(labels, model.labels_) > 0.5
    assert (np.diff(model.history_) <= 1e-5 * np.abs(model.history_[:-1])).all(), "the inertia never rises"
    D = metric.matrix(model.cluster_centers_, x).T.numpy()
    assert model.inertia_ == pytest.approx(float(D.min(1).sum()), rel=1e-4)
    np.testing.assert_array_equal(model.predict(x), D.argmin(1))
    np.testing.assert_allclose(model.transform(x), D, rtol=1e-5)
    again = KMeans(metric, 3, seed=1, max_iter=6, n_init=2).fit(x)
    np.testing.assert_array_equal(again.labels_, model.labels_)
    assert again.inertia_ == model.inertia_


def test_more_starts_are_not_worse():
    x, _ = waves(40, kinds=5)
    assert KMeans(lw.DTW(), 5, n_init=4).fit(x).inertia_ <= KMeans(lw.DTW(), 5, n_init=1).fit(x).inertia_


def test_not_worse_than_tslearn():
    with warnings.catch_warnings(action="ignore"):  # it could read more kinds of files
        from tslearn.clustering import TimeSeriesKMeans
    x, _ = waves()
    theirs = TimeSeriesKMeans(3, metric="dtw", random_state=0, max_iter=10).fit(x.double().numpy())
    ours = KMeans(lw.DTW(), 3, n_init=3).fit(x)
    assert ours.inertia_ <= theirs.inertia_ * len(x) * (1 + 1e-6)


def test_plus_plus():
    members, _ = read_members("test", lw.DTW(), [[0.0], [0.0], [10.0], [10.0], [20.0]])
    for seed in range(5):
        chosen = seeds(members, 3, torch.Generator().manual_seed(seed)).tolist()
        assert {item // 2 for item in chosen} == {0, 1, 2}, "one of each"
    equal, _ = read_members("test", lw.DTW(), [[1.0]] * 4)
    assert sorted(seeds(equal, 4, torch.Generator().manual_seed(0)).tolist()) == [0, 1, 2, 3]


def test_a_cluster_that_empties_takes_the_farthest_item():
    x = [[0.0], [1.0], [2.0], [30.0]]
    model = KMeans(lw.DTW(), 3, init=[[0.0], [100.0], [100.0]], max_iter=10).fit(x)
    assert len(set(model.labels_)) == 3
    assert model.labels_.tolist().count(model.labels_[3]) == 1
    copies = KMeans(lw.DTW(), 3).fit([[1.0], [1.0], [1.0]])
    assert sorted(copies.labels_) == [0, 1, 2], "even if all are equal"
    assert copies.inertia_ == 0


def test_bounds_spare_distances_and_change_nothing():
    x, _ = waves(60, 80)
    distance = lw.DTW(band=2)
    z = x[[0, 1, 2]]
    low = envelope_bounds(distance, z, x, None, None)
    D = distance.matrix(x, z).numpy()
    assert (low <= D).all()
    assert low.mean() > 0.1 * D.mean()
    nearest = Nearest(distance, x, None)
    for shift in (0.0, 0.1, 0.2, 0.0):
        nearest.update(z + shift, None)
        D = distance.matrix(x, z + shift).numpy()
        np.testing.assert_array_equal(nearest.labels, D.argmin(1))
        np.testing.assert_allclose(nearest.distances, D.min(1), rtol=1e-5)
    assert nearest.computed < 4 * 180
    assert envelope_bounds(lw.SoftDTW(), z, x, None, None) is None
    assert envelope_bounds(lw.DTW(band=2, open_end=True), z, x, None, None) is None


@pytest.mark.skipif(not hasattr(lw, "MSM"), reason="elastic distances")
@pytest.mark.parametrize("name", ["MSM", "ERP", "TWE"])
def test_the_triangle_inequality_spares_distances(name):
    x, _ = waves(60, 20)
    distance = getattr(lw, name)()
    assert distance.metric
    nearest, z = Nearest(distance, x, None), x[[0, 1, 2]]
    for step in range(6):
        nearest.update(z, None)
        D = distance.matrix(x, z).numpy()
        np.testing.assert_array_equal(nearest.labels, D.argmin(1))
        z = z + 0.002 * step
    assert nearest.computed < 0.8 * 6 * 180


def test_centers_that_stay_are_not_compared_again():
    x, _ = waves(20)
    nearest, z = Nearest(lw.DTW(), x, None), x[[0, 1, 2]].clone()
    nearest.update(z, None)
    moved = z.clone()
    moved[1] += 0.1
    nearest.update(moved, None)
    assert nearest.computed < 60 + 41
    np.testing.assert_array_equal(nearest.labels, lw.DTW().matrix(x, moved).argmin(1))


def test_forms_of_items():
    x, _ = waves(12, uneven=True)
    expected = KMeans(lw.DTW(), 3).fit(x).labels_
    ragged = np.empty(12, dtype=object)
    ragged[:] = [item.numpy() for item in x]
    for given in (x.to_list(), [item.tolist() for item in x], ragged, lw.Dataset(x, np.arange(12))):
        np.testing.assert_array_equal(KMeans(lw.DTW(), 3).fit_predict(given), expected)
    metric = lw.Metric(lw.FrameMLP(1, hidden=4, out=2), lw.DTW())
    model = KMeans(metric, 2).fit(x)
    assert model.cluster_centers_.channels == 2
    np.testing.assert_array_equal(model.predict(x), model.labels_)
    vectors = KMeans(lw.Metric(lw.GRUEncoder(1, 4), lw.Euclidean(squared=True)), 2).fit(x)
    assert vectors.cluster_centers_.values.shape == (2, 1, 4)
    assert KMeans(lw.DTW(), 2, length=7).fit(x).cluster_centers_.values.shape[1] == 7


def test_pipelines_and_searches(capsys):
    x = np.random.default_rng(0).standard_normal((40, 5))
    pipeline = make_pipeline(StandardScaler(), KMeans(n_clusters=2))
    assert pipeline.fit(x).predict(x).shape == (40,)
    assert GridSearchCV(KMeans(), {"n_clusters": [2, 4]}, cv=3).fit(x).best_params_["n_clusters"] == 4
    assert KMeans(n_clusters=3).fit(x).get_feature_names_out().tolist() == ["kmeans0", "kmeans1", "kmeans2"]
    KMeans(n_clusters=2, n_init=2, verbose=True).fit(x)
    assert "KMeans: start 2 of 2: inertia" in capsys.readouterr().err
    with pytest.raises(NotFittedError):
        clone(pipeline[-1]).predict(x)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"n_clusters": 5}, ValueError, "n_clusters is 5, but X holds n_samples=4"),
        ({"n_clusters": 0}, ValueError, "n_clusters must be a whole number of 1 or more"),
        ({"n_clusters": 2, "init": "mean"}, ValueError, 'init must be "k-means\\+\\+", "random" or sequences'),
        ({"n_clusters": 2, "init": [[0.0]]}, ValueError, "init has 1 sequences, but n_clusters is 2"),
        ({"n_clusters": 1, "init": np.zeros((1, 2, 3))}, ValueError, "init has 3 channels, X has 1"),
        ({"n_clusters": 2, "n_init": 0}, ValueError, "n_init must be a whole number of 1 or more"),
        ({"n_clusters": 2, "max_iter": 0}, ValueError, "max_iter must be a whole number of 1 or more"),
        ({"n_clusters": 2, "tol": -1.0}, ValueError, "tol must be 0 or more"),
        ({"n_clusters": 2, "metric": "dtw"}, TypeError, "expected metric to be a Distance, got str"),
    ],
)
def test_bad_input_is_refused(settings, error, message):
    with pytest.raises(error, match=f"KMeans: .*{message}"):
        KMeans(**{"metric": lw.DTW(), **settings}).fit([[0.0], [1.0], [2.0, 3.0], [4.0]])


def test_other_bad_input():
    with pytest.raises(ValueError, match="expected X to be sequences or a table, got None"):
        KMeans().fit(None)
    with pytest.raises(ValueError, match=r"KMeans: x\[0\] holds nan at step 1"):
        KMeans(lw.DTW(), 1).fit([[1.0, np.nan], [2.0]])
    assert kmeans_function is kmeans
