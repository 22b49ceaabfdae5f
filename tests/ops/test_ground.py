import functools

import pytest
import torch

from likewise.ops import ground
from likewise.ops.dtw import dtw
from likewise.ops.ground import cosine, euclidean, evaluate, frames, is_fused, resolve, sqeuclidean, zero_padding
from likewise.ops.soft_dtw import soft_dtw
from likewise.testing import assert_close
from tests.ops.problems import GROUNDS, exact_cost


def noise(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("name", GROUNDS)
@pytest.mark.parametrize("shape", [(3, 5, 4, 2), (1, 1, 1, 1), (2, 30, 40, 9)], ids=str)
def test_values_equal_plain_loops(name, shape):
    batch, n, m, channels = shape
    x, y = noise(batch, n, channels), noise(batch, m, channels, seed=1)
    expected = torch.stack([exact_cost(name, a, b) for a, b in zip(x, y, strict=True)])
    assert_close(resolve("dtw", name)(x, y), expected, 1e-12, name)


def test_by_hand():
    x, y = torch.tensor([[[0.0, 0.0], [3.0, 0.0]]]), torch.tensor([[[3.0, 4.0]]])
    assert_close(sqeuclidean(x, y), torch.tensor([[[25.0], [16.0]]]), 1e-6, "squared")
    assert euclidean(x, y).tolist() == [[[5], [4]]]
    assert_close(cosine(x, y), torch.tensor([[[1.0], [1 - 3 / 5]]]), 1e-6, "cosine")


def test_equal_frames_cost_nothing_far_from_the_origin():
    x = torch.full((1, 3, 4), 1e6) + noise(1, 3, 4, dtype=torch.float32)
    for cost in (sqeuclidean, euclidean, cosine):
        assert (cost(x, x.clone()).diagonal(dim1=1, dim2=2) == 0).all()
    assert euclidean(x, x + 0.5).diagonal(dim1=1, dim2=2).tolist() == [[1, 1, 1]]


def test_a_frame_of_zeros_has_no_direction():
    x = torch.tensor([[[0.0, 0.0], [1.0, 0.0]]], requires_grad=True)
    y = torch.tensor([[[0.0, 0.0], [0.0, 2.0], [-3.0, 0.0]]], requires_grad=True)
    cost = cosine(x, y)
    assert cost[0, 0].tolist() == pytest.approx([1, 1, 1])
    assert cost[0, :, 0].tolist() == pytest.approx([1, 1])
    assert_close(cost[0, 1], torch.tensor([1.0, 1.0, 2.0]), 1e-6, "the other frame")
    for gradient in torch.autograd.grad(cost.sum(), (x, y)):
        assert gradient.isfinite().all()
    (alone,) = torch.autograd.grad(cosine(x[:, :1], y.detach()).sum(), x)
    assert alone.isfinite().all()


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_the_cosine_of_tiny_and_huge_frames(scale):
    x, y = noise(1, 3, 2, dtype=torch.float32), noise(1, 4, 2, dtype=torch.float32, seed=1)
    assert_close(cosine(x * scale, y), cosine(x, y), 1e-5, "scaled")


def test_close_directions_are_distinguished():
    near = cosine(torch.tensor([[[1.0, 1e-4]]]), torch.tensor([[[1.0, 0.0]]]))
    assert near.item() == pytest.approx(0.5e-8, rel=1e-3)


@pytest.mark.parametrize("name", GROUNDS)
def test_gradients(name):
    x, y = noise(2, 3, 2).requires_grad_(), noise(2, 4, 2, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(resolve("dtw", name), (x, y))
    assert torch.autograd.gradgradcheck(resolve("dtw", name), (x, y))


def test_the_gradient_at_zero_distance_is_zero():
    x = noise(1, 3, 2).requires_grad_()
    y = x.detach().clone().requires_grad_()
    for cost in (sqeuclidean, euclidean, cosine):
        for gradient in torch.autograd.grad(cost(x, y).diagonal(dim1=1, dim2=2).sum(), (x, y)):
            assert_close(gradient, torch.zeros(1, 3, 2), 1e-12, cost.__name__, scale=1.0)


def test_an_offset_costs_the_gradient_no_digits():
    x, y = noise(1, 5, 2, dtype=torch.float32), noise(1, 4, 2, dtype=torch.float32, seed=1)
    gradients = []
    for offset in (0.0, 1024.0):
        a = (x + offset).requires_grad_()
        b = y + offset
        exact = 2 * ((a.detach().double()[0, :, None] - b.double()[0, None]).sum(1))
        (gradient,) = torch.autograd.grad(sqeuclidean(a, b).sum(), a)
        gradients.append((gradient[0], exact))
    for found, exact in gradients:
        assert_close(found, exact, 1e-5, "gradient")


@pytest.mark.parametrize("name", GROUNDS)
def test_frames_give_the_kernels_the_same_cost(name):
    x, y = noise(2, 5, 3), noise(2, 4, 3, seed=1)
    lengths = torch.tensor([5, 2]), torch.tensor([3, 4])
    x[1, 2:], y[0, 3:] = torch.nan, torch.nan
    a, b, root, factor = frames(resolve("dtw", name), x, y, *lengths)
    squared = sqeuclidean(zero_padding(a, lengths[0]), zero_padding(b, lengths[1]))
    cost = (squared.sqrt() if root else squared) * factor
    for i, (n, m) in enumerate(zip(*lengths, strict=True)):
        assert_close(cost[i, :n, :m], exact_cost(name, x[i, :n], y[i, :m]), 1e-10, name)


def test_half_precision_becomes_float32():
    x = noise(1, 2, 1, dtype=torch.float16)
    for name in GROUNDS:
        a, b, *_ = frames(resolve("dtw", name), x, x, None, None)
        assert a.dtype == b.dtype == torch.float32


def test_padding_is_zeroed_without_touching_the_input():
    x = torch.full((2, 3, 1), torch.nan)
    x[0, :2], x[1, :1] = 1, 1
    before = x.clone()
    assert zero_padding(x, torch.tensor([2, 1])).flatten().tolist() == [1, 1, 0, 1, 0, 0]
    assert torch.equal(x.nan_to_num(7), before.nan_to_num(7))
    assert zero_padding(x, None) is x


def test_names_and_callables():
    for name, function in ground.NAMED.items():
        assert resolve("dtw", name) is function
        assert resolve("dtw", function) is function
        assert is_fused(function)
    other = functools.partial(torch.cdist, p=1.0)
    assert resolve("dtw", other) is other
    assert not is_fused(other)


def test_a_callable_sees_zeros_for_padding():
    seen = []

    def spy(x, y):
        seen.append((x, y))
        return (x - y.mT).abs()

    x, y = torch.full((1, 3, 1), torch.nan), torch.ones(1, 2, 1)
    x[0, 0] = 2
    cost = evaluate("dtw", spy, x, y, torch.tensor([1]), None)
    assert cost.shape == (1, 3, 2)
    assert seen[0][0].flatten().tolist() == [2, 0, 0]


def test_a_callable_may_return_half_precision():
    def half(x, y):
        return (x - y.mT).abs().half()

    assert evaluate("dtw", half, torch.ones(1, 3, 1), torch.ones(1, 2, 1), None, None).dtype == torch.float32


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (
            "l1",
            ValueError,
            "dtw: unknown ground cost 'l1'; expected one of sqeuclidean, euclidean, cosine, or a callable",
        ),
        (None, TypeError, "dtw: expected ground to be a name or a callable, got NoneType"),
        (3, TypeError, "dtw: expected ground to be a name or a callable, got int"),
    ],
)
def test_other_grounds_are_refused(given, error, message):
    with pytest.raises(error, match=message):
        resolve("dtw", given)


@pytest.mark.parametrize(
    ("returns", "message"),
    [
        (lambda x, y: x.sum(), r"soft: expected the ground cost to return shape \(2, 3, 4\), got \(\)"),
        (lambda x, y: y - x.mT, r"got \(2, 4, 3\)"),
        (lambda x, y: [[1.0]], "got list"),
    ],
)
def test_costs_of_another_shape_are_refused(returns, message):
    with pytest.raises(ValueError, match=message):
        evaluate("soft", returns, torch.ones(2, 3, 1), torch.ones(2, 4, 1), None, None)


def test_bad_frames_are_refused_before_the_callable_sees_them():
    x = torch.ones(2, 3, 1)
    x[1, 2, 0] = torch.inf
    with pytest.raises(ValueError, match=r"soft: y\[1\] holds inf at step 2, channel 0"):
        evaluate("soft", pytest.fail, torch.ones(2, 4, 1), x, None, None)
    with pytest.raises(ValueError, match=r"dtw: cost\[0\] holds nan at \(0, 0\)"):
        dtw(torch.ones(2, 3, 1), torch.ones(2, 4, 1), ground=lambda x, y: (x - y.mT) / 0)


def test_a_ground_cost_of_whole_numbers_is_refused():
    x = torch.randn(2, 3, 1)
    for run in (dtw, soft_dtw):
        with pytest.raises(TypeError, match=r"expected the ground cost to be floating point, got torch.int64"):
            run(x, x, ground=lambda a, b: torch.zeros(2, 3, 3, dtype=torch.int64))
