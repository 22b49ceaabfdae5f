import builtins

import numpy as np
import pytest
import torch
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from sklearn.cluster import HDBSCAN as THEIR_HDBSCAN
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import likewise as lw
from likewise.sklearn import HDBSCAN, Hierarchical, KMedoids

SERIES = [
    torch.sin((3 + 5 * (i % 3)) * torch.linspace(0, 1, 12 + i % 4))
    + 0.03 * torch.cos(7.0 * torch.arange(12 + i % 4) + i)
    for i in range(24)
]
LABELS = np.arange(24) % 3


@pytest.mark.filterwarnings("ignore:.*SCIPY_ARRAY_API")
@parametrize_with_checks([KMedoids(), KMedoids(lw.DTW(), 3), Hierarchical(n_clusters=3), HDBSCAN()])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def test_medoids_are_the_best_of_all_choices():
    from itertools import combinations

    D = lw.DTW().matrix(SERIES[:12]).double().numpy()
    best = min(combinations(range(12), 3), key=lambda chosen: D[:, chosen].min(1).sum())
    model = KMedoids(lw.DTW(), 3).fit(SERIES[:12])
    assert model.medoid_indices_.tolist() == list(best)
    assert model.inertia_ == pytest.approx(D[:, best].min(1).sum())
    np.testing.assert_array_equal(model.labels_, D[:, best].argmin(1))
    np.testing.assert_array_equal(model.predict(SERIES[:12]), model.labels_)
    np.testing.assert_allclose(model.transform(SERIES[:12]), D[:, best], rtol=1e-5, atol=1e-6)
    for k, item in enumerate(model.medoid_indices_):
        torch.testing.assert_close(model.cluster_centers_[k][:, 0], SERIES[item])


def test_medoids_find_the_classes_under_any_distance():
    for metric in (lw.DTW(band=2), lw.SoftDTWDivergence(), lw.Metric(lw.FrameMLP(1, hidden=4, out=2), lw.DTW())):
        model = KMedoids(metric, 3).fit(SERIES)
        assert len(set(model.labels_)) == 3
    assert adjusted_rand_score(LABELS, KMedoids(lw.DTW(), 3).fit(SERIES).labels_) == 1
    one, same = (KMedoids(lw.DTW(), 4, init="random", n_init=3, seed=2).fit(SERIES) for _ in range(2))
    np.testing.assert_array_equal(one.medoid_indices_, same.medoid_indices_)
    copies = KMedoids(lw.DTW(), 3).fit([[1.0], [1.0], [1.0]])
    assert sorted(copies.labels_) == [0, 1, 2]


def test_without_the_package(monkeypatch):
    real = builtins.__import__

    def without(name, *arguments, **options):
        if name == "kmedoids":
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r'KMedoids needs the package kmedoids: pip install "likewise\[clusters\]"'):
        KMedoids(lw.DTW(), 2).fit(SERIES)


@pytest.mark.parametrize("method", ["single", "complete", "average", "weighted"])
def test_the_tree_is_scipys(method):
    D = lw.DTW().matrix(SERIES).double().numpy()
    tree = linkage(squareform(D, checks=False), method)
    model = Hierarchical(lw.DTW(), 3, linkage=method).fit(SERIES)
    np.testing.assert_allclose(model.linkage_, tree, rtol=1e-6)
    assert adjusted_rand_score(fcluster(tree, 3, "maxclust"), model.labels_) == 1
    assert model.labels_[0] == 0
    cut = Hierarchical(lw.DTW(), None, threshold=float(tree[-3, 2]), linkage=method).fit(SERIES)
    assert cut.n_clusters_ == 3


def test_hdbscan_is_scikit_learns():
    D = lw.DTW().matrix(SERIES).double().numpy()
    theirs = THEIR_HDBSCAN(metric="precomputed", min_cluster_size=3, min_samples=2, copy=True).fit(D)
    ours = HDBSCAN(lw.DTW(), min_cluster_size=3, options={"min_samples": 2}).fit(SERIES)
    np.testing.assert_array_equal(ours.labels_, theirs.labels_)
    np.testing.assert_allclose(ours.probabilities_, theirs.probabilities_, rtol=1e-4)


def test_progress(capsys, monkeypatch):
    from likewise.distances import distance

    monkeypatch.setattr(distance, "CELLS_A_STEP", 1)
    Hierarchical(lw.DTW(), 2, verbose=True).fit(SERIES[:6])
    assert "DTW: 6 x 6" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (KMedoids(lw.DTW(), 25), ValueError, "KMedoids: n_clusters is 25, but X holds n_samples=24"),
        (KMedoids(lw.DTW(), 2, init="k-means++"), ValueError, 'KMedoids: init must be "build" or "random"'),
        (KMedoids(lw.DTW(), 2, max_iter=0), ValueError, "KMedoids: max_iter must be a whole number"),
        (Hierarchical(lw.DTW(), 25), ValueError, "Hierarchical: n_clusters is 25, but X holds n_samples=24"),
        (Hierarchical(lw.DTW(), linkage="ward"), ValueError, "Hierarchical: linkage must be one of single, complete"),
        (Hierarchical(lw.DTW(), None), ValueError, "Hierarchical: give n_clusters or threshold"),
        (Hierarchical(lw.GDTW(), 2), ValueError, "Hierarchical: GDTW is not symmetric"),
        (HDBSCAN(lw.DTW(subsequence=True)), ValueError, "HDBSCAN: DTW is not symmetric"),
        (HDBSCAN(lw.SoftDTW(10.0)), ValueError, "HDBSCAN: SoftDTW gives negative values"),
        (HDBSCAN(lw.DTW(), min_cluster_size=1), ValueError, "min_cluster_size must be a whole number of 2 or more"),
        (HDBSCAN("dtw"), TypeError, "HDBSCAN: expected metric to be a Distance, got str"),
    ],
)
def test_bad_use_is_refused(model, error, message):
    with pytest.raises(error, match=message):
        model.fit(SERIES)
