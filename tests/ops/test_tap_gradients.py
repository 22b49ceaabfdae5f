"""TAP's gradients: for the pairs that a loss uses, and by Triton kernels, against the reference in float64.

The kernels run in Triton's interpreter, or on a GPU with TRITON_INTERPRET=0.
"""

import os

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import likewise as lw
from likewise.distances.tap import TAP
from likewise.ops import tap as op
from likewise.ops.tap import convolutions, lines, reference
from likewise.testing import assert_close

pytest.importorskip("triton")
from likewise.ops.tap import network as networks
from likewise.ops.tap.gpu import gradients as gpu

DEVICE = "cuda" if torch.cuda.is_available() and os.environ["TRITON_INTERPRET"] == "0" else "cpu"
TOLERANCE = 4e-3  # of a gradient's norm: products in float16
LENGTHS = torch.tensor([7, 1, 4, 9]), torch.tensor([3, 12, 1])


@pytest.fixture(autouse=True)
def few_programs(monkeypatch):
    if DEVICE == "cpu":  # the interpreter runs one program after another
        monkeypatch.setattr(gpu, "PROGRAMS", 3)
        monkeypatch.setattr(gpu, "WEIGHT_PROGRAMS", 10)


def network(*arguments, open_=False):
    """A TAP in float64; open_: nothing is cut off by its ReLUs, where float16 rounds some sums to the other side."""
    torch.manual_seed(0)
    tap = TAP(*arguments).double()
    with torch.no_grad():
        for parameter in tap.parameters():
            parameter.mul_(1 if open_ else 2)
        for convolution in tap.convolutions:
            convolution.bias.add_(8.0 * open_)
    return tap


def problem(channels=3, lengths=LENGTHS):
    """Padded sequences with NaN behind their ends, and slopes of two thirds of the pairs."""
    torch.manual_seed(1)
    found = []
    for n in lengths:
        x = torch.randn(len(n), int(n.max()) + 1, channels, dtype=torch.float64)
        x[torch.arange(x.shape[1]) >= n[:, None]] = torch.nan
        found.append(x)
    slopes = torch.randn(len(lengths[0]), len(lengths[1]))
    slopes.view(-1)[::3] = 0
    return *found, *lengths, slopes.double()


def truth(tap, x, y, n, m, slopes):
    """Gradients of the frames, the weights and the biases, one pair at a time."""
    weights, biases = tap._weights()
    leaves = [x.clone().requires_grad_(), y.clone().requires_grad_(), *weights, *biases]
    return torch.autograd.grad((reference.matrix(*leaves[:2], n, m, weights, biases) * slopes).sum(), leaves)


def there(x, y, n, m, weights, biases, *more):
    x, y, *more = (t.to(DEVICE) for t in (x, y, *more))
    return x, y, n, m, *([t.to(DEVICE) for t in some] for some in (weights, biases)), *more


def fused(*given):
    return gpu.tap_gradients(*there(*given)).tensors


def check(tap, x, y, n, m, slopes, tolerance=TOLERANCE):
    items, others = slopes.nonzero().T
    weights, biases = ([t.float() for t in some] for some in tap._weights())
    given = items, others, slopes[items, others].float()
    found = fused(x.float(), y.float(), n, m, weights, biases, *given)
    expected = truth(tap, x, y, n, m, slopes)
    same([t.cpu() for t in found], expected, tolerance)
    work = gpu.Work(*there(x.float(), y.float(), n, m, weights, biases, items, others))
    known = reference.matrix(x, y, n, m, *tap._weights())[items, others].detach()
    assert_close(work.values(), known, 2e-3, "values")
    assert (work.forward is not None) == work.is_whole
    same([t.cpu() for t in work.gradients(given[2].to(DEVICE)).tensors], expected, tolerance)
    assert work.forward is None


def check_all(tap, x, y, n, m, slopes, tolerance=TOLERANCE):
    """All pairs, of which a third has no slope."""
    weights, biases = ([t.float() for t in some] for some in tap._weights())
    work = gpu.Work(*there(x.float(), y.float(), n, m, weights, biases))
    assert_close(work.values().view_as(slopes), reference.matrix(x, y, n, m, *tap._weights()).detach(), 2e-3, "values")
    found = work.gradients(slopes.float().flatten().to(DEVICE)).tensors
    same([t.cpu() for t in found], truth(tap, x, y, n, m, slopes), tolerance)


def same(found, expected, tolerance):
    """Of frames, and of parameters: these are sums that nearly cancel, and so are compared with the largest of them."""
    assert len(found) == len(expected)
    largest = max(e.norm() for e in expected[2:])
    for k, (f, e) in enumerate(zip(found, expected, strict=True)):
        assert (f - e).norm() <= tolerance * (e.norm() if k < 2 else largest), f"gradient of {tuple(e.shape)}"


@pytest.mark.parametrize(
    ("width", "kernels"),
    [
        (30, (5, 5, 3)),
        (4, (7, 7, 5)),
        (4, (5, 5, 5, 3)),
        (4, (3,)),
        (20, (3, 5)),
        (4, (1, 3, 3, 3, 1)),
        (40, (3, 3, 3)),
    ],
)
def test_gradients_of_some_pairs_are_those_in_float64(width, kernels):
    check(network(width, kernels, open_=True), *problem())


def test_relus_of_a_network():
    check(network(30, (5, 5, 3)), *problem(2, (torch.tensor([19, 23]), torch.tensor([17, 22]))), tolerance=2e-2)


@pytest.mark.parametrize("whole", [16, 64, 128])
def test_several_cells_at_once(monkeypatch, whole):
    monkeypatch.setattr(networks, "WHOLE", whole)
    check(network(10, (3, 5, 3), open_=True), *problem())


def test_frames_of_many_channels(monkeypatch):
    monkeypatch.setattr(gpu, "FEW_CHANNELS", 2)
    check(network(4, (3, 3), open_=True), *problem(19))


def test_several_lines(monkeypatch):
    monkeypatch.setattr(gpu, "SCRATCH_BYTES", 120 * 100)
    count = []
    whole = gpu.Work._add
    monkeypatch.setattr(gpu.Work, "_add", lambda work, *given: count.append(1) or whole(work, *given))
    check(network(4, (3, 3), open_=True), *problem())
    assert len(count) > 3
    check_all(network(4, (3, 3), open_=True), *problem())


@pytest.mark.parametrize(("items", "others"), [((7, 1, 4, 9), (3, 12, 1)), ((8,), (5, 5, 5)), ((6, 5, 4), (9, 9))])
def test_all_pairs_need_no_numbers(items, others):
    check_all(network(4, (3, 3), open_=True), *problem(lengths=(torch.tensor(items), torch.tensor(others))))


def test_rows_longer_than_a_block(monkeypatch):
    monkeypatch.setattr(gpu, "ATTEND_COLUMNS", 16)
    monkeypatch.setattr(gpu, "ATTEND_CELLS", 64)
    check(network(3, (3, 1), open_=True), *problem(lengths=(torch.tensor([6, 3]), torch.tensor([37, 17]))))


def test_equal_frames_have_no_slope():
    x, y, n, m, slopes = problem()
    x[0, :3] = y[0, :3]
    check(network(4, (3, 3), open_=True), x, y, n, m, slopes)


@pytest.mark.parametrize("size", [1e-12, 1e12])
def test_slopes_of_any_size(size):
    *given, slopes = problem()
    check(network(4, (3, 3, 3), open_=True), *given, size * slopes)


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning", "ignore:invalid value:RuntimeWarning")
def test_overflow_in_float16_is_not_finite():
    tap, (x, y, n, m, slopes) = network(4, (3, 3, 3)), problem()
    with torch.no_grad():
        for parameter in tap.convolutions[0].parameters():
            parameter.mul_(1e-5)  # what goes forward is small, and what comes back is not
        tap.convolutions[1].weight.mul_(1e5)
    weights, biases = ([t.detach().float() for t in some] for some in tap._weights())
    items, others = slopes.nonzero().T
    found = fused(x.float(), y.float(), n, m, weights, biases, items, others, slopes[items, others].float())
    assert not all(t.isfinite().all() for t in found)
    assert all(t.isfinite().all() for t in truth(tap, x, y, n, m, slopes)[2:])


def test_lines_hold_every_pair_once():
    n, m = torch.tensor([3, 9, 1, 4, 4, 40]), torch.tensor([1, 2, 2, 8, 8, 30])
    for cells, most in ((1, 9), (200, 2), (200, 9), (1 << 20, 9)):
        pairs = []
        for first, last, stride, rows in lines.cuts(n, m, 2, cells, most):
            assert stride == m[first:last].max() + 2
            assert rows == (n[first:last] + 2).sum()
            assert last - first == 1 or (rows * stride <= cells and last - first <= most)
            pairs += range(first, last)
        assert pairs == list(range(6))
    some = (n[:3], m[-1:]), (n[3:5], m[3:5]), (torch.full((40,), 90), torch.full((40,), 80))
    for x, y in some:
        rows, columns = x.repeat(len(y)), y.sort().values.repeat_interleave(len(x))
        for cells in (1 << 9, 1 << 30):
            cuts = list(lines.cuts(rows, columns, 2, cells, 1 << 20))
            total = int((rows + 2).sum())
            found = lines.one_line(len(rows), total, int(y.min()) + 2, int(y.max()) + 2, cells, 1 << 20)
            assert [found] == cuts if len(cuts) == 1 else found is None
    many = torch.arange(200).sort().values // 2 + 20
    for first, _, stride, rows in lines.cuts(many, many, 2, 1 << 30, 1 << 30):
        assert rows * stride <= lines.SHORT or stride <= lines.WASTE * (many[first] + 2)


@pytest.fixture
def kernels(monkeypatch):
    """Let TAP believe that it is on a GPU, whose kernels the interpreter runs."""
    ran = []

    def gradients(x, y, n, m, weights, biases, items, others, slopes):
        ran.append((items.tolist(), others.tolist()))
        return fused(x, y, n, m, weights, biases, items, others, slopes)

    def work(x, y, *given):
        return gpu.Work(x, y, *given)

    monkeypatch.setattr(op, "is_fast", lambda *given: True)
    monkeypatch.setattr(op, "fused_gradients", gradients)
    monkeypatch.setattr(op, "fused_work", work)
    return ran


def step(metric, x, y):
    """The gradients of a loss with hard mining, and its slopes."""
    metric.zero_grad()
    D = metric.matrix(x)
    D.retain_grad()
    lw.losses.HardMiningMeans(margin=0.01)(D, y).backward()
    return [parameter.grad.clone() for parameter in metric.parameters()], D.grad


def mined(device="cpu"):
    torch.manual_seed(0)
    metric = lw.Metric(lw.FrameMLP(4, hidden=8, out=4, standardize=False), TAP(4, (3, 3)))
    with torch.no_grad():
        for convolution in metric.distance.convolutions:
            convolution.bias.add_(8)
    x = lw.Batch(torch.randn(6, 9, 4), [9, 3, 7, 9, 1, 5])
    return metric.to(device), x.to(device), torch.tensor([0, 0, 0, 1, 1, 1], device=device)


def test_a_training_step_by_the_kernels(kernels):
    metric, *given = mined(DEVICE)
    found, slopes = step(metric, *given)
    assert 0 < (slopes != 0).sum() < slopes.numel()
    assert kernels == [tuple(k.tolist() for k in slopes.nonzero().T)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(op, "is_fast", lambda *given: False)
        expected, others = step(metric, *given)
        patch.setattr(op, "is_fast", lambda *given: True)
        patch.setattr(op, "MANY", 0.0)
        whole, _ = step(metric, *given)
    assert len(kernels) == 1  # all pairs: from what the values left
    assert_close(slopes, others, 1e-6, "slopes")
    same(found, expected, TOLERANCE)
    same(whole, expected, TOLERANCE)


def test_gradients_that_are_not_finite_are_computed_again(kernels, monkeypatch):
    metric, *given = mined(DEVICE)
    expected, _ = step(metric, *given)
    monkeypatch.setattr(op, "fused_gradients", lambda *given: [torch.tensor(torch.inf)])
    found, _ = step(metric, *given)
    same(found, expected, TOLERANCE)


@pytest.fixture
def plain(monkeypatch):
    """Plain torch, as without kernels for a CPU."""
    monkeypatch.setattr(op.cpu, "fits", lambda *given: False)


@pytest.mark.parametrize("many", [0.0, 1.0])
def test_pairs_without_a_slope_are_left_out(monkeypatch, plain, many):
    """Plain torch: what is kept for the backward pass gives the gradients that computing some pairs again does."""
    metric, *given = mined()
    expected, slopes = step(metric, *given)
    count = []
    monkeypatch.setattr(op, "tap", lambda x, *rest, whole=op.tap: count.append(len(x)) or whole(x, *rest))
    monkeypatch.setitem(op.KEPT_CELLS, "cpu", 0)
    monkeypatch.setattr(op, "MANY", many)
    found, _ = step(metric, *given)
    same(found, expected, 1e-5)
    assert count[-1] == (36 if many == 0 else (slopes != 0).sum())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_pairs_without_a_slope_are_left_out_of_the_convolutions(monkeypatch, plain, dtype):
    metric, *given = mined()
    count, runs, whole = [], [], convolutions._backward
    monkeypatch.setattr(
        convolutions, "_backward", lambda dtype, grad, *more: count.append(len(grad)) or whole(dtype, grad, *more)
    )
    for many in (0.0, 1.0):
        monkeypatch.setattr(convolutions, "MANY", many)
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            found, slopes = step(metric, *given)
        runs.append(found)
    # A row of one column has a share of one, whatever the network says.
    assert count == [36, (slopes[:, given[0].lengths > 1] != 0).sum()]
    same(*runs, 1e-6)


def test_derivatives_of_distances_that_are_computed_again(monkeypatch):
    monkeypatch.setitem(op.KEPT_CELLS, "cpu", 0)
    tap = network(2, (3, 3))
    x, y = (torch.randn(2, t, 2, dtype=torch.float64, requires_grad=True) for t in (3, 4))
    some = torch.tensor([[1.0, 0.0], [0.0, 2.0]], dtype=torch.float64)
    for work in (lambda x: tap.matrix(x) * some, lambda x: tap.matrix(x, y) * some):
        assert torch.autograd.gradcheck(work, (x,))
        assert torch.autograd.gradgradcheck(work, (x,))
    assert torch.autograd.gradcheck(lambda w: op.tap_matrix(x, y, *_whole(x, y), None, ([w], [w.new_zeros(1)])), (
        torch.randn(1, 2, 3, 3, dtype=torch.float64, requires_grad=True),
    ))  # fmt: skip


def _whole(x, y):
    return tuple(torch.full((len(t),), t.shape[1]) for t in (x, y))


def test_distances_that_are_computed_again_under_checkpoint(monkeypatch, plain):
    monkeypatch.setitem(op.KEPT_CELLS, "cpu", 0)
    metric, x, _ = mined()
    runs = []
    for through in (lambda work, t: work(t), lambda work, t: checkpoint(work, t, use_reentrant=False)):
        metric.zero_grad()
        through(lambda values: metric.matrix(lw.Batch(values, x.lengths)), x.values).square().sum().backward()
        runs.append([parameter.grad.clone() for parameter in metric.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
def test_a_training_step_on_a_gpu(monkeypatch):
    """In half precision where TensorFloat-32 is allowed, and exactly where it is not."""
    metric, x, y = mined()
    exact, _ = step(metric.double(), lw.Batch(x.values.double(), x.lengths), y)
    metric, x, y = mined(DEVICE)
    for allowed, tolerance in ((True, TOLERANCE), (False, 1e-4)):
        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", allowed)
        found, _ = step(metric, x, y)
        same([t.double().cpu() for t in found], exact, tolerance)


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
def test_a_second_derivative_on_a_gpu_is_refused():
    metric, x, _ = mined(DEVICE)
    loss = metric.matrix(x).square().sum()
    (grad,) = torch.autograd.grad(loss, [metric.distance.convolutions[0].weight], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()
