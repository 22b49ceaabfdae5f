import numpy as np
import pytest
import torch

from likewise import Index
from likewise.scale import Precomputed

D = torch.tensor([[0.0, 2.0, 9.0], [2.0, 0.0, 8.0], [9.0, 8.0, 0.0]])
ITEMS = torch.arange(3.0)[:, None, None]


@pytest.mark.parametrize("matrix", [D, D.numpy()], ids=["tensor", "array"])
def test_looks_distances_up(matrix):
    distance = Precomputed(matrix)
    assert distance.symmetric
    assert torch.equal(distance.matrix(ITEMS), D)
    assert torch.equal(distance.matrix(ITEMS[[2]], ITEMS[[1, 0]]), torch.tensor([[8.0, 9.0]]))
    assert torch.equal(distance(ITEMS[[0, 1]], ITEMS[[1, 2]]), torch.tensor([2.0, 8.0]))
    assert Index(distance, ITEMS).search(ITEMS[:1], k=2).items.tolist() == [[0, 1]]


def test_knows_what_is_not_symmetric():
    assert not Precomputed(D.triu()).symmetric
    assert not Precomputed(D[:2]).symmetric


@pytest.mark.parametrize("items", [ITEMS + 1, ITEMS - 1, ITEMS + 0.5, ITEMS.expand(3, 2, 1), ITEMS.expand(3, 1, 2)])
def test_invalid_positions_are_refused(items):
    with pytest.raises(ValueError, match="Precomputed: expected x"):
        Precomputed(D).matrix(items)


def test_arrays_that_are_not_matrices_are_refused():
    for wrong in (None, [[0.0]], np.zeros(3)):
        with pytest.raises(TypeError, match="expected D to be a matrix"):
            Precomputed(wrong)


def test_an_index_of_it_is_not_saved(tmp_path):
    with pytest.raises(TypeError, match="a file cannot hold its matrix"):
        Index(Precomputed(D), ITEMS).save(tmp_path)
