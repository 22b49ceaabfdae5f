"""Very large and very small numbers: results are finite or raise an error; the tables of the documentation."""

import pytest
import torch

import likewise as lw
from likewise.testing import TOLERANCE, assert_close
from tests.distances import extremes

HALF = torch.full((1, 3, 1), 200.0).half()


@pytest.mark.parametrize("dtype", extremes.MAGNITUDES, ids=str)
def test_the_table_of_the_documentation_is_true(dtype):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # for tiny problems
    try:
        found = extremes.table(dtype)
    finally:
        torch.set_num_threads(threads)
    page = extremes.PAGE.read_text(encoding="utf-8")
    wrong = [row for row in found.splitlines() if row not in page]
    assert not wrong, "\n".join(["run python -m tests.distances.extremes", *wrong])


@pytest.mark.parametrize(
    "distance", [lw.DTW(), lw.SoftDTW(), lw.SoftDTWDivergence(), lw.Sinkhorn(), lw.GDTW(), lw.EMD()]
)
def test_what_half_precision_cannot_hold_is_refused(distance):
    # 200^2 fits float16, three times that does not; transport takes the mean.
    x = HALF if isinstance(distance, (lw.DTW, lw.SoftDTW)) else 2 * HALF
    for attempt in (
        lambda: distance(x, 0 * x),
        lambda: distance.matrix(x, 0 * x),
        lambda: distance.align(x, 0 * x).value,
        lambda: distance(x.clone().requires_grad_(), 0 * x),
    ):
        with pytest.raises(ValueError, match=r"not finite: the costs overflow torch.float16; .* or use float32"):
            attempt()
    assert distance(x.float(), 0 * x.float()).isfinite().all()


@pytest.mark.parametrize(
    "distance",
    [lw.DTW(), lw.SoftDTW(), lw.SoftDTWDivergence(), lw.GDTW(), lw.ADTW(1.0), lw.MeanFrames(squared=True)],
    ids=lambda distance: type(distance).__name__,
)
def test_overflow_is_not_silent_in_compiled_code(distance):
    torch.compiler.reset()
    compiled = torch.compile(distance, backend="aot_eager", fullgraph=True)
    x = torch.full((1, 3, 1), 400.0).half()
    torch.testing.assert_close(compiled(x / 400, 0 * x), distance(x / 400, 0 * x))
    for leaf in (x, x.clone().requires_grad_()):
        with pytest.raises(
            ValueError, match=r"the value of pair \[0\] is not finite: the costs overflow torch.float16"
        ):
            compiled(leaf, 0 * x)


def test_a_divergence_is_rounded_once():
    x = torch.zeros(1, 2, 1, dtype=torch.float16)
    y = torch.full((1, 2, 1), 180.0, dtype=torch.float16)  # soft-DTW is 64,800, near the end of float16
    expected = lw.SoftDTWDivergence()(x.double(), y.double())
    torch.testing.assert_close(lw.SoftDTWDivergence()(x, y).double(), expected, rtol=1e-3, atol=0)


def test_euclidean_beyond_where_squares_overflow():
    for dtype, size in ((torch.float32, 1e30), (torch.float32, 1e-40), (torch.float64, 1e300), (torch.float64, 1e-300)):
        x, y = torch.zeros(1, 2, dtype=dtype), size * torch.tensor([[3.0, 4.0]], dtype=dtype)
        expected = torch.full((1,), 5 * size, dtype=dtype)
        torch.testing.assert_close(lw.Euclidean()(x, y), expected, rtol=1e-4, atol=0)
        torch.testing.assert_close(lw.Euclidean().matrix(x, y)[0], expected, rtol=1e-4, atol=0)
        torch.testing.assert_close(lw.MeanFrames()(x[:, None], y[:, None]), expected, rtol=1e-4, atol=0)
    with pytest.raises(ValueError, match=r"Euclidean: the value of pair .* overflow torch.float32; .* or use float64"):
        lw.Euclidean(squared=True)(torch.zeros(1, 1), torch.full((1, 1), 1e30))


EXTREME = {
    torch.float32: (1e-28, 1e-20, 1e19, 1e20, 1e30, 1e38),
    torch.float64: (1e-280, 1e-160, 1e155, 1e200, 1e300),
    torch.bfloat16: (1e-28, 1e19, 1e38),
}


@pytest.mark.parametrize(
    "distance",
    [
        lw.SBD(),
        lw.SBD(independent=False),
        lw.SBD(standardize=False),
        lw.SBD(standardize=False, independent=False),
        lw.EDR(),
        lw.EDR(free_start=True),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", EXTREME, ids=str)
def test_distances_without_a_unit_do_not_depend_on_magnitude(distance, dtype):
    expected = [f(*extremes.sequences(1.0, torch.float64)) for f in (distance, distance.matrix)]
    assert expected[0].min() > 0.1
    for magnitude in EXTREME[dtype]:
        x, y = extremes.sequences(magnitude, dtype)
        for found, wanted in zip((distance(x, y), distance.matrix(x, y)), expected, strict=True):
            assert_close(found, wanted, TOLERANCE[dtype].value, f"{magnitude:g}")


def test_matches_of_huge_and_tiny_frames():
    x, y = torch.tensor([[[1.0], [3.0], [5.0]]]), torch.tensor([[[1.5], [9.0], [5.0]]])
    cases = ((torch.float32, (1e-40, 1e-30, 1e19, 1e37)), (torch.float64, (1e-310, 1e-200, 1e160, 1e307)))
    for distance in (lw.LCSS, lw.EDR):
        expected = distance(1.0)(x, y)
        for dtype, sizes in cases:
            for size in sizes:
                found = distance(size)(x.to(dtype) * size, y.to(dtype) * size)
                torch.testing.assert_close(found, expected.to(dtype))
                found = distance(size).some_pairs(x.to(dtype) * size, y.to(dtype) * size, torch.tensor([[0, 0]]))
                torch.testing.assert_close(found, expected.to(dtype))
    # A frame of 1 beside a reach whose square is zero; frames whose squares are infinite beside a small reach.
    near = torch.tensor([[[1.0], [3e-23]]]), torch.tensor([[[1.0], [4e-23]]])
    assert lw.EDR(1e-24)(*near).item() == 0.5
    far = torch.tensor([[[1e300], [2e-10]]], dtype=torch.float64), torch.tensor([[[1e300], [0.0]]], dtype=torch.float64)
    assert [lw.EDR(reach)(*far).item() for reach in (1e-10, 3e-10)] == [0.5, 0.0]
    # Of several pairs, each has its own magnitude, and so its own reach.
    scales = torch.tensor([1e-150, 1.0, 1e150], dtype=torch.float64)[:, None, None]
    pairs = [side.double() * scales for side in (x, y)]
    torch.testing.assert_close(lw.EDR()(*pairs), lw.EDR()(x.double(), y.double()).expand(3))


def test_compiled_code_counts_huge_frames():
    torch.compiler.reset()
    for distance in (lw.EDR(), lw.SBD()):
        compiled = torch.compile(distance, backend="aot_eager", fullgraph=True)
        x, y = extremes.sequences(1e30, torch.float32)
        torch.testing.assert_close(compiled(x, y), distance(x, y))


@pytest.mark.parametrize("distance", [lw.Sinkhorn(), lw.OPW(), lw.TCOT()])
@pytest.mark.parametrize("size", [1.0, 100.0, 1e4])
def test_gradients_of_sharp_plans_in_float32(distance, size):
    # The plan is rounded to float32: that error, times cost / reg, must not reach the gradient.
    generator = torch.Generator().manual_seed(0)
    x, y = (size * torch.randn(2, 5, 2, generator=generator) for _ in range(2))

    def gradient(dtype):
        leaf = x.to(dtype).requires_grad_()
        return torch.autograd.grad(distance(leaf, y.to(dtype)).sum(), leaf)[0].double()

    expected = gradient(torch.float64)
    assert (gradient(torch.float32) - expected).abs().max() <= 1e-4 * expected.abs().max()


@pytest.mark.parametrize("distance", [lw.Cosine(), lw.DTW(ground="cosine"), lw.OTAM()])
def test_a_direction_that_is_too_small_is_none(distance):
    x = torch.full((1, 3, 2), 1e-42).requires_grad_()
    y = torch.ones(1, 3, 2).requires_grad_()
    value = distance(x, y)
    torch.testing.assert_close(value, distance(torch.zeros(1, 3, 2), y))
    gradients = torch.autograd.grad(value.sum(), (x, y))
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("name", extremes.names())
@pytest.mark.parametrize("counts", [(2, 0), (0, 2), (0, 0)], ids=str)
def test_no_columns_keep_the_graph(name, counts):
    distance = extremes.build(name)
    x, y = (torch.randn(count, 4, 2, requires_grad=True) for count in counts)
    for options in ({}, {"progress": True}):
        D = distance.matrix(x, y, **options)
        assert D.shape == counts
        assert D.grad_fn is not None
        D.sum().backward()
        assert x.grad is not None
        assert not x.grad.any()
