import pytest
import torch

import likewise as lw
from likewise.testing import TOLERANCE, assert_close, check_distance


def noise(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def test_contract():
    check_distance(lw.Cosine())


def test_vectors_by_hand():
    x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    y = torch.tensor([[5.0, 0.0], [0.0, 2.0], [-1.0, 0.0], [3.0, 4.0]])
    assert lw.Cosine()(x, y).tolist() == pytest.approx([0, 1, 2, 0.4], abs=1e-6)
    assert lw.Cosine().matrix(x[:1], y)[0].tolist() == pytest.approx([0, 1, 2, 0.4], abs=1e-6)


def test_sequences_are_one_long_vector_over_the_steps_that_both_have():
    x, y = [[1.0, 0.0, 100.0]], [[0.0, 2.0]]
    assert lw.Cosine()(x, y).item() == pytest.approx(1)
    assert lw.Cosine()([[3.0, 4.0]], [[6.0, 8.0, -9.0]]).item() == pytest.approx(0, abs=1e-6)
    assert lw.Cosine().align(x, y).path(0).tolist() == [[0, 0], [1, 1]]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_values_equal_pytorchs_and_scikit_learns(dtype):
    pairwise = pytest.importorskip("sklearn.metrics.pairwise")
    x, y = noise(6, 5, dtype=dtype), noise(6, 5, dtype=dtype, seed=1)
    expected = 1 - torch.nn.functional.cosine_similarity(x.double(), y.double())
    assert_close(lw.Cosine()(x, y), expected, TOLERANCE[dtype].value, "PyTorch")
    expected = torch.from_numpy(pairwise.cosine_distances(x.double(), y.double()))
    assert_close(lw.Cosine().matrix(x, y), expected, TOLERANCE[dtype].value, "scikit-learn")


def test_a_vector_of_zeros_is_at_distance_one_from_every_vector():
    zero, other = torch.zeros(1, 3), torch.tensor([[1.0, 2.0, 3.0]])
    assert lw.Cosine()(zero, other).item() == pytest.approx(1)
    assert lw.Cosine()(other, zero).item() == pytest.approx(1)
    assert lw.Cosine()(zero, zero.clone()).item() == pytest.approx(1)
    assert lw.Cosine().matrix(torch.cat([zero, other]))[0].tolist() == pytest.approx([1, 1])
    zero.requires_grad_()
    (gradient,) = torch.autograd.grad(lw.Cosine()(zero, other).sum(), zero)
    assert gradient.isfinite().all()


def test_near_vectors_are_told_apart():
    x = torch.tensor([[1.0, 1e-4]])
    assert lw.Cosine()(x, torch.tensor([[1.0, 0.0]])).item() == pytest.approx(0.5e-8, rel=1e-3)


def test_the_size_does_not_matter():
    x, y = noise(3, 4), noise(3, 4, seed=1)
    for scale in (1e-200, 1e200):
        assert_close(lw.Cosine()(x * scale, y / scale), lw.Cosine()(x, y), 1e-10, "scaled")


def test_vectors_do_not_align():
    with pytest.raises(ValueError, match="Cosine: vectors have no steps to align"):
        lw.Cosine().align(torch.zeros(2, 3), torch.zeros(2, 3))
