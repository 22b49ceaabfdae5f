import numpy as np
import pytest
import torch

import likewise as lw
from likewise.testing import TOLERANCE, assert_close, check_distance


def noise(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("squared", [False, True])
def test_contract(squared):
    check_distance(lw.Euclidean(squared=squared))


def test_vectors_by_hand():
    x, y = torch.tensor([[0.0, 0.0], [1.0, 1.0]]), torch.tensor([[3.0, 4.0], [1.0, 1.0]])
    assert lw.Euclidean()(x, y).tolist() == [5, 0]
    assert lw.Euclidean(squared=True)(x, y).tolist() == [25, 0]
    assert_close(lw.Euclidean().matrix(x), torch.tensor([[0, 2**0.5], [2**0.5, 0]]), 1e-6, "matrix")
    assert_close(lw.Euclidean(squared=True).matrix(x, y), torch.tensor([[25, 2], [13, 0]]), 1e-6, "squared")
    assert torch.equal(lw.Euclidean()(x.numpy(), y.numpy()), lw.Euclidean()(x, y))
    assert torch.equal(lw.Euclidean().matrix(x.numpy()), lw.Euclidean().matrix(x))


def test_sequences_are_compared_over_the_steps_that_both_have():
    x, y = [[0.0, 0.0, 100.0]], [[3.0, 4.0]]
    assert lw.Euclidean()(x, y).item() == 5
    assert lw.Euclidean().matrix(x, y).item() == 5
    alignment = lw.Euclidean().align(x, y)
    assert alignment.value.item() == 5
    assert alignment.path(0).tolist() == [[0, 0], [1, 1]]
    assert alignment.plan.tolist() == [[[1, 0], [0, 1], [0, 0]]]
    assert alignment.warp[0, :2].tolist() == [0, 1]
    assert alignment.warp[0, 2].isnan()


def test_a_vector_is_a_sequence_of_one_step():
    x, y = noise(4, 3), noise(5, 3, seed=1)
    assert torch.equal(lw.Euclidean().matrix(x, y), lw.Euclidean().matrix(x[:, None], y[:, None]))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_values_equal_aeons(dtype):
    aeon = pytest.importorskip("aeon.distances")
    x = [noise(n, 2, dtype=dtype, seed=n) for n in (9, 5, 7, 5, 1)]
    arrays = [np.ascontiguousarray(item.double().numpy().T) for item in x]
    for squared, pairwise in ((False, aeon.euclidean_pairwise_distance), (True, aeon.squared_pairwise_distance)):
        expected = torch.from_numpy(pairwise(arrays))
        assert_close(lw.Euclidean(squared=squared).matrix(x), expected, TOLERANCE[dtype].value, "aeon's pairwise")


def test_near_neighbours_are_exact_far_from_the_origin():
    x = torch.tensor([[1e6, 1e6]])
    y = x + torch.tensor([[0.5, 0.0]])
    assert lw.Euclidean()(x, y).item() == 0.5
    assert lw.Euclidean().matrix(x, y).item() == 0.5
    assert lw.Euclidean().matrix(x, x.clone()).item() == 0


def test_the_gradient_at_zero_distance_is_zero():
    x = noise(2, 3, 2).requires_grad_()
    for squared in (False, True):
        (gradient,) = torch.autograd.grad(lw.Euclidean(squared=squared)(x, x.detach().clone()).sum(), x)
        assert torch.equal(gradient, torch.zeros_like(x))


def test_vectors_do_not_align():
    for x in (torch.zeros(2, 3), np.zeros((2, 3))):
        with pytest.raises(ValueError, match="Euclidean: vectors have no steps to align"):
            lw.Euclidean().align(x, x)


def test_bad_vectors_are_refused():
    x, broken = torch.zeros(2, 3), torch.tensor([[0.0, 0.0, 0.0], [0.0, torch.inf, 0.0]])
    with pytest.raises(ValueError, match=r"Euclidean: y\[1\] holds inf at step 0, channel 1"):
        lw.Euclidean()(x, broken)
    with pytest.raises(ValueError, match="Euclidean: x has 3 channels and y has 2"):
        lw.Euclidean().matrix(x, x[:, :2])
    with pytest.raises(ValueError, match=r"Euclidean: expected x of shape \(B, T, C\), got \(2, 3\); add a channel"):
        lw.Euclidean()(x, x[:, None])


def test_repr():
    assert repr(lw.Euclidean()) == "Euclidean()"
    assert repr(lw.Euclidean(squared=True)) == "Euclidean(squared=True)"


def test_a_matrix_takes_as_many_calls_as_there_are_lengths(monkeypatch):
    x, y = (lw.Batch.from_list([torch.randn(n, 2) for n in lengths]) for lengths in ([3, 5, 3, 9], [4, 9, 1, 5, 4]))
    distance, shapes = lw.Euclidean(), []
    plain = torch.stack([torch.cat([distance(x[i : i + 1], y[j : j + 1]) for j in range(5)]) for i in range(4)])
    vectors = distance.vectors
    monkeypatch.setattr(distance, "vectors", lambda a, b: (shapes.append((len(a), len(b))), vectors(a, b))[1])
    torch.testing.assert_close(distance.matrix(x, y), plain)
    assert shapes == [(4, 1), (2, 2), (1, 1), (2, 4), (1, 2), (1, 1)]
