import numpy as np
import pytest
import torch
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

import likewise as lw
from likewise import DTW, Index, evaluate, evaluate_matrix, scale
from likewise.sklearn import Hierarchical, KMedoids
from tests.scale.conftest import walks


@pytest.fixture(scope="module")
def x():
    return walks(23)


@pytest.fixture(scope="module", name="D")
def square(x, tmp_path_factory):
    return scale.matrix(DTW(), x, out=tmp_path_factory.mktemp("square") / "D.zarr", tile=5)


@pytest.fixture(scope="module")
def wide(x, tmp_path_factory):
    return scale.matrix(DTW(), x[:7], x, out=tmp_path_factory.mktemp("wide") / "D.zarr", tile=4)


@pytest.fixture(scope="module")
def truth(x):
    return DTW().matrix(x).numpy()


LABELS = [("walk", "run", "sit")[i % 3] for i in range(23)]


@pytest.mark.parametrize(
    "index",
    [
        0,
        -1,
        np.int64(7),
        slice(3, 12),
        slice(None, None, -2),
        slice(5, 5),
        [2, 0, 22],
        np.array([], int),
        np.arange(23) % 2 == 0,
        (3, 4),
        (slice(2, 9), 4),
        (4, slice(2, 9)),
        (slice(0, 20, 3), [7, 7, -1]),
        ([9, 1], slice(None)),
    ],
    ids=str,
)
def test_is_indexed_like_an_array(D, truth, index):
    found = D[index]
    assert np.array_equal(found, truth[index])
    assert np.shape(found) == np.shape(truth[index])


def test_a_block_is_rows_by_columns(D, truth, wide):
    assert np.array_equal(D.block([5, 1], [20, 3, 3]), truth[np.ix_([5, 1], [20, 3, 3])])
    assert np.array_equal(wide.block([5, 1], [20, 3]), truth[np.ix_([5, 1], [20, 3])])


@pytest.mark.parametrize("index", [23, -24, (0, 23), [0, 99], 1.5, "a", (1, 2, 3), ([0], [1]), [[0]], [True]], ids=str)
def test_bad_indices_are_refused(D, index):
    with pytest.raises(IndexError, match="TiledMatrix"):
        D[index]


def test_reads_only_the_tiles_that_it_needs(D):
    fresh = scale.TiledMatrix(D.path)
    fresh[0, 1]
    assert fresh._checked == {"c/0/0"}
    fresh[22, 0:5]  # below the diagonal: the tile above it is read
    assert fresh._checked == {"c/0/0", "c/0/4"}


def test_as_an_array(D, truth, wide):
    assert np.array_equal(np.asarray(D), truth)
    assert np.asarray(D, dtype=np.float64).dtype == np.float64
    assert (len(D), D.shape, wide.shape, D.ndim) == (23, (23, 23), (7, 23), 2)
    assert repr(wide) == "TiledMatrix(7 x 23, float32, 12 tiles of 4 x 4)"
    with pytest.raises(ValueError, match="always a copy"):
        np.asarray(D, copy=False)


def test_evaluate_matrix_takes_it(D, wide, truth):
    for given, matrix in ((D, truth), (wide, truth[:7])):
        columns = None if given is D else LABELS
        found = evaluate_matrix(given, LABELS[: len(matrix)], columns, ks=(1, 3))
        assert str(found) == str(evaluate_matrix(torch.from_numpy(matrix), LABELS[: len(matrix)], columns, ks=(1, 3)))
    with pytest.raises(ValueError, match="must be square"):
        evaluate_matrix(wide, LABELS[:7])


def test_evaluate_takes_its_distance(D, x):
    assert str(evaluate(D.distance, (D.rows, LABELS))) == str(evaluate(DTW(), (x, LABELS)))


def test_scipy_takes_it(D, truth, wide):
    np.testing.assert_array_equal(D.condensed(), squareform(truth))
    assert np.array_equal(linkage(D.condensed(), "average"), linkage(squareform(truth), "average"))
    with pytest.raises(ValueError, match="not symmetric"):
        wide.condensed()


def test_clusterers_take_its_distance(D, x):
    pytest.importorskip("kmedoids")
    expected = KMedoids(DTW(), 3).fit(x)
    found = KMedoids(D.distance, 3).fit(D.rows)
    assert found.medoid_indices_.tolist() == expected.medoid_indices_.tolist()
    assert found.labels_.tolist() == expected.labels_.tolist()
    assert Hierarchical(D.distance, 4).fit(D.rows).labels_.tolist() == Hierarchical(DTW(), 4).fit(x).labels_.tolist()


def test_an_index_takes_its_distance(D, wide, x):
    found = Index(D.distance, D.rows, labels=LABELS).search(D.rows[3:6], k=4)
    expected = Index(DTW(), x, labels=LABELS).search(x[3:6], k=4)
    assert found.items.tolist() == expected.items.tolist()
    assert torch.equal(found.distances, expected.distances)
    assert found.labels.tolist() == expected.labels.tolist()
    across = Index(wide.distance, wide.columns).search(wide.rows, k=2)
    assert across.items.tolist() == Index(DTW(), x).search(x[:7], k=2).items.tolist()


def test_a_dataset_of_rows(D):
    data = lw.Dataset(D.rows, LABELS)
    assert evaluate(D.distance, data).queries == 23
