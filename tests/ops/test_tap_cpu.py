"""TAP's C++ kernels against the reference in float64, and a training step with them against plain torch."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import likewise as lw
from likewise.distances.tap import TAP
from likewise.ops import cpu as native
from likewise.ops import tap as op
from likewise.ops.tap import cpu, reference, winograd
from likewise.testing import TOLERANCE, assert_close
from tests.ops.tap_problems import network, sequences

EXACT = TOLERANCE[torch.float32]


def every(x, y):
    return torch.arange(len(x)).repeat_interleave(len(y)), torch.arange(len(y)).repeat(len(x))


def check(tap, lengths, channels=3):
    """Values and gradients of all pairs, with and without memory for the backward pass."""
    weights, biases = tap._weights()
    (x, n), (y, m) = sequences(lengths[0], channels), sequences(lengths[1], channels, seed=1)
    leaves = [t.detach().double().requires_grad_() for t in (x, y, *weights, *biases)]
    expected = reference.matrix(*leaves[:2], n, m, *op.halves(leaves[2:])).flatten()
    slopes = torch.randn(len(expected))
    expected_gradients = torch.autograd.grad((expected * slopes).sum(), leaves)
    largest = max(float(e.abs().max()) for e in expected_gradients[2:])  # the last bias has none, but for rounding
    work, pairs = cpu.Work(x, y, n, m, weights, biases), every(x, y)
    memory = work.memory(*pairs)
    assert memory is not None
    assert_close(work.values(*pairs, memory), expected, EXACT.value, "values")
    for given in (memory, None):
        found = work.gradients(*pairs, slopes, given)
        for k, (f, e) in enumerate(zip(found, expected_gradients, strict=True)):
            assert_close(f, e, EXACT.gradient, f"gradient of {tuple(e.shape)}", scale=largest if k > 1 else 0)


@pytest.mark.parametrize(
    ("width", "kernels"),
    [(30, (5, 5, 3)), (4, (7, 7, 5)), (20, (5, 5, 5, 3)), (33, (1, 1, 3)), (4, (3, 5)), (3, (9, 1)), (3, (15, 3, 3, 13))],
)  # fmt: skip
def test_every_pair_is_as_in_float64(width, kernels):
    check(network(width, kernels), ([7, 1, 18], [3, 12, 1]))


@pytest.mark.parametrize("isa", native.native.instruction_sets())
def test_every_instruction_set(monkeypatch, isa):
    monkeypatch.setattr(native, "INSTRUCTION_SET", isa)
    check(network(20, (3, 5, 3)), ([9, 4], [5, 17]))


@pytest.mark.parametrize("lengths", [([50], [2, 33]), ([3, 41], [40]), ([200], [3])])
def test_rows_that_replace_others(lengths):
    check(network(4, (3, 5, 3, 3)), lengths)


def test_frames_of_many_channels():
    check(network(4, (3, 3, 3)), ([6], [9, 2]), channels=70)


def test_kernels_at_winograds_points():
    """A row of eight numbers and a kernel of three: six sums, from eight products."""
    row, kernel = torch.randn(2, 8, dtype=torch.float64)
    points = torch.tensor(winograd.POINTS, dtype=torch.float64)
    there = torch.linalg.solve(torch.cat([points[:, None] ** torch.arange(8), torch.eye(8)[-1:]]).double().T, row)
    of_kernel = winograd.at_points(3) @ kernel[:3]
    of_kernel[0] *= -1  # its sign is in the transform of the row
    apart = (points[:, None] - points).fill_diagonal_(1).prod(1)
    products = there * torch.cat([apart, torch.ones(1).double()]) * of_kernel
    found = torch.stack([(products[:-1] * points**k).sum() + (k == 5) * products[-1] for k in range(6)])
    expected = torch.nn.functional.conv1d(row[None, None], kernel[None, None, :3])[0, 0]
    assert_close(found, expected, 1e-10, "sums")


def mined():
    torch.manual_seed(0)
    metric = lw.Metric(lw.FrameMLP(4, hidden=8, out=4, standardize=False), TAP(4, (3, 3, 3)))
    return metric, lw.Batch(torch.randn(6, 9, 4), [9, 3, 7, 9, 1, 5]), torch.tensor([0, 0, 0, 1, 1, 1])


def step(metric, x, y):
    """The distances, the gradients of a loss with hard mining, and its slopes."""
    metric.zero_grad()
    D = metric.matrix(x)
    D.retain_grad()
    lw.losses.HardMiningMeans(margin=0.01)(D, y).backward()
    return D.detach(), [parameter.grad.clone() for parameter in metric.parameters()], D.grad


def test_a_training_step_equals_plain_torch(monkeypatch):
    """And computes gradients of the pairs with a slope only."""
    metric, *given = mined()
    count, whole = [], cpu.Work.gradients
    monkeypatch.setattr(
        cpu.Work, "gradients", lambda work, items, *rest: count.append(len(items)) or whole(work, items, *rest)
    )
    D, found, slopes = step(metric, *given)
    with monkeypatch.context() as patch:
        patch.setattr(cpu, "fits", lambda *given: False)
        known, expected, _ = step(metric, *given)
    assert count == [int((slopes != 0).sum())]
    assert 0 < count[0] < slopes.numel()
    assert_close(D, known, EXACT.value, "distances")
    for f, e in zip(found, expected, strict=True):
        assert_close(f, e, EXACT.gradient, "gradient", scale=float(max(e.abs().max() for e in expected)))
    monkeypatch.setattr(cpu, "KEPT_BYTES", 0)
    again = step(metric, *given)
    assert all(torch.equal(a, b) for a, b in zip(again[1], found, strict=True))


def test_pairs_by_the_kernels(monkeypatch):
    tap = network(4, (3, 5, 3))
    (x, n), (y, m) = sequences([7, 1, 4]), sequences([3, 12, 9], seed=1)
    runs = []
    for kernels in (True, False):
        with monkeypatch.context() as patch:
            if not kernels:
                patch.setattr(cpu, "fits", lambda *given: False)
            leaf = x.clone().requires_grad_()
            d = tap(lw.Batch(leaf, n), lw.Batch(y, m))
            runs.append([d.detach(), torch.autograd.grad((d * torch.tensor([1.0, 2, 3])).sum(), leaf)[0]])
    assert_close(runs[0][0], runs[1][0], EXACT.value, "distances")
    assert_close(runs[0][1], runs[1][1], EXACT.gradient, "gradient")
    with torch.no_grad():
        assert torch.equal(tap(lw.Batch(x, n), lw.Batch(y, m)), runs[0][0])


def test_rows_of_the_matrix_in_parts(monkeypatch):
    tap, (x, n), (y, m) = network(4, (3, 3, 3)), sequences([7, 1, 4, 9, 2]), sequences([3, 12], seed=1)
    with torch.no_grad():
        whole = tap.matrix(lw.Batch(x, n), lw.Batch(y, m))
        monkeypatch.setattr(op, "PAIRS_AT_ONCE", 5)
        assert torch.equal(tap.matrix(lw.Batch(x, n), lw.Batch(y, m)), whole)


def test_what_does_not_change_with_threads_checkpoint_or_precision():
    metric, x, _ = mined()
    runs, before = [], torch.get_num_threads()
    for threads, through, mixed in ((1, False, False), (2, True, False), (3, False, True)):
        torch.set_num_threads(threads)
        try:
            metric.zero_grad()
            values = x.values.clone().requires_grad_()

            def work(values, mixed=mixed):
                with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
                    return metric.distance.matrix(lw.Batch(values, x.lengths))

            D = checkpoint(work, values, use_reentrant=False) if through else work(values)
            D.square().sum().backward()
            runs.append([D.detach(), values.grad, *(p.grad.clone() for p in metric.distance.parameters())])
        finally:
            torch.set_num_threads(before)
    for run in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0], run, strict=True))


def test_a_second_derivative_is_plain_torchs(monkeypatch):
    tap, x = network(3, (3, 3, 3)), torch.randn(2, 5, 2)

    def second():
        leaf = x.clone().requires_grad_()
        (grad,) = torch.autograd.grad(tap.matrix(leaf).square().sum(), leaf, create_graph=True)
        return torch.autograd.grad(grad.square().sum(), leaf)[0]

    found = second()
    monkeypatch.setattr(cpu, "fits", lambda *given: False)
    assert_close(found, second(), 1e-3, "second derivative")


def test_what_the_kernels_do_not_know_is_refused():
    tap, x = network(3, (3, 3)), torch.randn(2, 5, 2)
    for transform in (torch.func.grad, torch.func.vmap):
        with pytest.raises(RuntimeError, match=r"functorch|torch\.func|vmap"):
            transform(lambda t: tap.matrix(t).sum())(x if transform is torch.func.grad else x[None])
    with torch.no_grad(), torch.autograd.forward_ad.dual_level(), pytest.raises(RuntimeError, match="jvp"):
        tap.matrix(torch.autograd.forward_ad.make_dual(x, x))


@pytest.mark.parametrize("size", [1e-30, 1e25])
def test_frames_of_any_size(size):
    """Whose squares are not numbers in float32."""
    tap, x = network(3, (3, 3, 3)), size * torch.randn(2, 5, 2)
    leaf, exact = x.clone().requires_grad_(), x.double().requires_grad_()
    D, expected = tap.matrix(leaf), network(3, (3, 3, 3)).double().matrix(exact)
    assert_close(D, expected, EXACT.value, "distances")
    D.sum().backward()
    expected.sum().backward()
    assert_close(leaf.grad, exact.grad, EXACT.gradient, "gradient")


def test_overflow_is_left_to_torch(monkeypatch):
    """Which finds a number where Winograd's sums do not, or raises an error."""
    tap, x = network(3, (3, 3, 3)), torch.randn(2, 5, 2)
    expected = tap.matrix(x).detach()
    monkeypatch.setattr(cpu.Work, "values", lambda work, items, others, memory: torch.full((len(items),), torch.nan))
    assert_close(tap.matrix(x), expected, EXACT.value, "distances")
    monkeypatch.undo()
    with pytest.raises(ValueError, match="not finite"):
        tap.matrix(1e38 * x)


def test_networks_without_kernels():
    x, wide = torch.randn(2, 5, 2), torch.randn(2, 5, 2, dtype=torch.float64)
    assert cpu.fits(x, x, TAP()._weights()[0])
    assert not cpu.fits(wide, wide, TAP().double()._weights()[0])
    assert not cpu.fits(x, x, TAP(3, (3,))._weights()[0])
    assert not cpu.fits(x, x, TAP(3, (3, 9, 3))._weights()[0])
