import numpy as np
import pytest
import torch

from likewise import DTW, SoftDTW, scale
from tests.scale.conftest import walks


def brute_force(distance, x, k):
    D = distance.matrix(x).clone()
    D.fill_diagonal_(torch.inf)
    values, places = D.sort(dim=1, stable=True)
    return places[:, :k], values[:, :k]


@pytest.mark.parametrize("distance", [DTW(band=2), DTW(), SoftDTW()], ids=["band", "dtw", "soft"])
def test_equals_brute_force(distance):
    x = walks(150)
    graph = scale.knn_graph(distance, x, k=4)
    places, values = brute_force(distance, x, 4)
    assert torch.equal(graph.neighbors, places)
    assert torch.equal(graph.distances, values)
    sparse = graph.sparse()
    assert sparse.shape == (150, 150)
    assert np.array_equal(sparse.toarray()[0, places[0]], values[0].numpy())


def test_on_ray(cluster):
    x = walks(150)
    found, expected = scale.knn_graph(DTW(band=2), x, k=3, engine="ray"), scale.knn_graph(DTW(band=2), x, k=3)
    assert found.report.jobs > 3
    assert torch.equal(found.neighbors, expected.neighbors)
    assert torch.equal(found.distances, expected.distances)


def test_bad_arguments_are_refused():
    for error, problem, given in [
        (ValueError, "k is 5, but each of 5 items has 4 others", {"k": 5}),
        (ValueError, "k", {"k": 0}),
        (ValueError, "whole items", {"distance": DTW(subsequence=True)}),
        (TypeError, "expected distance", {"distance": None}),
    ]:
        with pytest.raises(error, match=problem):
            scale.knn_graph(**{"distance": DTW(), "X": walks(5), "k": 1, **given})
