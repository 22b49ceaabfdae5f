"""The Triton kernels against the C++ ones: in Triton's interpreter, or on a GPU with TRITON_INTERPRET=0."""

import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

import likewise.ops.dtw as cpu_dtw
import likewise.ops.soft_dtw as cpu_soft_dtw
from likewise.ops.rules import Rules
from likewise.testing import TOLERANCE, assert_close, check_op
from tests.ops.problems import random_problem

pytest.importorskip("triton")
from likewise.ops import engine
from likewise.ops.dtw import gpu as dtw
from likewise.ops.engine import columns, diagonals, lanes, products, warps
from likewise.ops.engine.inputs import look
from likewise.ops.soft_dtw import gpu as soft_dtw
from likewise.ops.soft_dtw.gpu import backwards

DEVICE = "cuda" if torch.cuda.is_available() and os.environ["TRITON_INTERPRET"] == "0" else "cpu"
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # inf - inf in padding, in the interpreter
SEEDS = range(16)  # every window with every end; the interpreter is slow, so the rest is spread over them


def problem(seed, monkeypatch, batch=2, longest=7):
    """x, y, lengths and rules as the operators take them, NaN in the padding, and the tolerance.

    Rows of a pair come in one block, or in several that wait for each other; on a GPU as they are.
    """
    dtype = [torch.float32, torch.float64][(seed + seed // 4) % 2]
    p = random_problem(seed, batch=batch, longest=longest, dtype=dtype)
    if seed % 5 == 4:  # many channels
        p.x, p.y = p.x.repeat(1, 1, 18), p.y.repeat(1, 1, 18)
    if DEVICE == "cpu":
        rows = [16, 4][(seed // 2 + seed // 8) % 2]
        monkeypatch.setattr(diagonals, "block_shape", lambda count, steps, processors: (rows, -(-steps // rows)))
        small_warps(monkeypatch, rows=[None, 1, 2, 4][seed // 4 % 4], waits=seed // 2 % 2 == 1)
    lengths = (None, None) if seed % 3 == 0 else p.lengths
    return p.x, p.y, *lengths, p.rules, TOLERANCE[dtype]


def small_warps(monkeypatch, rows=None, waits=True):
    """Warps of two or four lanes, so that short pairs take several strips; of so many rows."""
    for module in (warps, backwards):
        monkeypatch.setattr(module, "LANES", 4 if rows == 1 else 2)
    monkeypatch.setattr(backwards, "STEPS", 2)
    monkeypatch.setattr(products, "TILE", 16)
    chosen = warps.shape

    def shape(pairs, count, *, given, record):
        best = chosen(pairs, count, given=given, record=record)
        cut = warps.Shape(rows + 1 if rows == 3 and given else rows or best.rows, False, steps=2)
        return replace(cut, waits=(waits or record) and cut.strips(pairs.steps[0]) > 1)

    monkeypatch.setattr(engine, "shape", shape)
    monkeypatch.setattr(soft_dtw, "shape", shape)


def there(*arguments):
    return [a.to(DEVICE) if isinstance(a, torch.Tensor) else a for a in arguments]


def close(found, expected, tolerance, what, scale=1e-3):
    found, expected = (t if isinstance(t, tuple) else (t,) for t in (found, expected))
    for k, (f, e) in enumerate(zip(found, expected, strict=True)):
        assert_close(f, e, tolerance, f"{what} {k}", scale)


@pytest.mark.parametrize("seed", SEEDS)
def test_dtw_of_sequences(seed, monkeypatch):
    x, y, n, m, rules, tolerance = problem(seed, monkeypatch)
    arguments = (x, y, n, m, seed % 2 == 1 and x.shape[2] > 1, *rules.plain())
    close(dtw.value(*there(*arguments)), cpu_dtw._dtw(*arguments), tolerance.value, "value")
    paths, steps = dtw.path(*there(*arguments))
    expected_paths, expected_steps = cpu_dtw._dtw_path(*arguments)
    assert torch.equal(steps.cpu(), expected_steps)
    assert torch.equal(paths.cpu(), expected_paths)
    weights = torch.randn(len(x), dtype=x.dtype)
    found, expected = dtw.gradient(*there(weights, *arguments)), cpu_dtw._dtw_grad(weights, *arguments)
    close(found, expected, tolerance.gradient, "gradient")


@pytest.mark.parametrize("seed", SEEDS)
def test_soft_dtw_of_sequences(seed, monkeypatch):
    x, y, n, m, rules, tolerance = problem(seed, monkeypatch)
    gamma = [1e-2, 1.0, 1e2][seed % 3]
    arguments = (x, y, n, m, gamma, seed % 2 == 1, *rules.plain())
    close(soft_dtw.value(*there(*arguments)), cpu_soft_dtw._soft_dtw(*arguments), tolerance.value, "value", gamma)
    found, expected = soft_dtw.value_with_grad(*there(*arguments)), cpu_soft_dtw._soft_dtw_with_grad(*arguments)
    close(found[0], expected[0], tolerance.value, "value with gradient", gamma)
    close(found[1:], expected[1:], tolerance.gradient, "gradient")


@pytest.mark.parametrize("seed", [1, 6, 11])
def test_all_pairs(seed, monkeypatch):
    x, y, n, m, rules, tolerance = problem(seed, monkeypatch)
    plain, weights = rules.plain(), torch.randn(len(x), len(y), dtype=x.dtype)
    hard, soft = (x, y, n, m, False, *plain), (x, y, n, m, 0.5, False, *plain)
    assert torch.equal(dtw.steps(*there(*hard)).cpu(), cpu_dtw._dtw_steps(*hard))
    found, expected = dtw.gradient(*there(weights, *hard)), cpu_dtw._dtw_grad(weights, *hard)
    close(found, expected, tolerance.gradient, "dtw gradient")
    found, expected = (
        soft_dtw.matrix_gradient(*there(weights, *soft)),
        cpu_soft_dtw._soft_dtw_matrix_grad(weights, *soft),
    )
    close(found, expected, tolerance.gradient, "soft_dtw gradient")
    for run, on_cpu, options in (
        (dtw.matrix, cpu_dtw._dtw_matrix, (False,)),
        (soft_dtw.matrix, cpu_soft_dtw._soft_dtw_matrix, (0.5, False)),
    ):
        arguments = (x, y, n, m, False, *options, *plain)
        close(run(*there(*arguments)), on_cpu(*arguments), tolerance.value, "matrix", scale=1.0)


@pytest.mark.parametrize("seed", SEEDS)
def test_lanes(seed, monkeypatch):
    x, y, n, m, rules, tolerance = problem(seed, monkeypatch, longest=10)  # more than the eight rows at once
    root, all_pairs, gamma = seed % 2 == 1, seed // 4 % 2 == 1, [1e-2, 1.0, 1e2][seed % 3]
    symmetric = (False,) if all_pairs else ()
    hard, soft = (
        (cpu_dtw._dtw_matrix, cpu_soft_dtw._soft_dtw_matrix) if all_pairs else (cpu_dtw._dtw, cpu_soft_dtw._soft_dtw)
    )
    given = engine.Pairs("test", *there(x, y, n, m), rules, soft=False, scale=1.0, root=root, all_pairs=all_pairs)
    expected = hard(x, y, n, m, *symmetric, root, *rules.plain()).flatten()
    close(lanes.run_lanes(given), expected, tolerance.value, "dtw")
    given = replace(given, soft=True, scale=1 / (gamma * math.log(2)))
    expected = soft(x, y, n, m, *symmetric, gamma, root, *rules.plain()).flatten()
    close(lanes.run_lanes(given), expected, tolerance.value, "soft_dtw", scale=gamma)


@pytest.mark.parametrize("seed", [0, 1, 2, 4, 6, 9, 13])
@pytest.mark.parametrize("soft", [False, True])
def test_symmetric_matrices(seed, soft, monkeypatch):
    """Each pair once, by warps and by lanes, equal on both sides of the diagonal; an odd and an even number of items."""
    x, _, n, _, rules, tolerance = problem(seed, monkeypatch, batch=3 + seed % 2, longest=9)
    rules = replace(rules, open_begin=False, open_end=False)
    if not rules.symmetric:
        rules = Rules()
    gamma, root = 0.5, seed % 3 == 1
    options = (gamma, root, *rules.plain()) if soft else (root, *rules.plain())
    run, on_cpu = (soft_dtw.matrix, cpu_soft_dtw._soft_dtw_matrix) if soft else (dtw.matrix, cpu_dtw._dtw_matrix)
    expected = on_cpu(x, x, n, n, True, *options)
    found = run(*there(x, x, n, n, True, *options))
    close(found, expected, tolerance.value, "warps", scale=1.0)
    assert torch.equal(found, found.T)
    scale = 1 / (gamma * math.log(2)) if soft else 1.0
    pairs = engine.Pairs("test", *there(x, x, n, n), rules, soft, scale, root, all_pairs=True, symmetric=True)
    found = lanes.run_lanes(pairs).view(len(x), len(x))
    close(found, expected, tolerance.value, "lanes", scale=1.0)
    assert torch.equal(found, found.T)
    if not soft:
        assert (found.diag() == 0).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_warps_of_any_shape(seed, monkeypatch):
    """Strips one after the other or side by side, one to eight rows a lane, values near zero or as they are."""
    x, y, n, m, rules, tolerance = problem(seed, monkeypatch, longest=10)
    small_warps(monkeypatch, rows=[8, 3, 2, 1][seed % 4], waits=seed // 4 % 2 == 1)
    monkeypatch.setattr(warps, "BASED_STEPS", 4096 if seed % 2 else 0)
    root, gamma = seed % 3 == 1, [1e-2, 1.0, 1e2][seed % 3]
    hard, soft = (x, y, n, m, root, *rules.plain()), (x, y, n, m, gamma, root, *rules.plain())
    close(dtw.value(*there(*hard)), cpu_dtw._dtw(*hard), tolerance.value, "dtw")
    close(soft_dtw.value(*there(*soft)), cpu_soft_dtw._soft_dtw(*soft), tolerance.value, "soft-DTW", scale=gamma)


@pytest.mark.parametrize("root", [False, True])
def test_costs_of_frames_that_are_near(root, monkeypatch):
    """Frames that differ in their last digits only, far from zero: products alone would find noise."""
    torch.manual_seed(0)
    walk = 1000 + torch.randn(1, 21, 40).cumsum(1)
    x = walk + 1e-3 * torch.randn(3, 21, 40)
    x[2] = x[1]
    y, n, m = x[:, :17].clone(), torch.tensor([21, 5, 18]), torch.tensor([17, 3, 9])
    x[torch.arange(21) >= n[:, None]] = torch.nan
    y[torch.arange(17) >= m[:, None]] = torch.nan
    small_warps(monkeypatch)
    pairs = engine.Pairs("test", *there(x, y, n, m), Rules(), soft=False, scale=1.0, root=root, all_pairs=True)
    costs = columns.cells(products.product_costs(look(pairs, turn_x=True, turn_y=True), 0, 9), 21).cpu()
    for k in range(9):
        a, b = x[k // 3, : n[k // 3]].double(), y[k % 3, : m[k % 3]].double()
        expected = (a[:, None] - b[None]).square().sum(-1)
        expected = expected.sqrt() if root else expected
        found = costs[k, : len(a), : len(b)].double()
        assert ((found - expected).abs() <= 1e-5 * expected).all()  # of each cost by itself
    arguments = (x, x[:2], n, n[:2], False, root, *Rules().plain())
    close(dtw.matrix(*there(*arguments)), cpu_dtw._dtw_matrix(*arguments), 1e-5, "matrix")
    assert dtw.matrix(*there(x[1:2], x[1:2], n[1:2], n[1:2], False, root, *Rules().plain())).item() == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_given_costs(seed, monkeypatch):
    x, y, n, m, rules, tolerance = problem(seed, monkeypatch)
    gamma = [1e-2, 1.0, 1e2][seed % 3]
    cost, tangent = torch.rand(2, len(x), x.shape[1], y.shape[1], dtype=x.dtype)
    if seed % 4 == seed // 4:  # paths over given costs differ from the above only in how a cost is read
        weights, arguments = torch.randn(len(x), dtype=x.dtype), (cost, None, n, m, False, *rules.plain())
        close(dtw.value(*there(*arguments)), cpu_dtw._dtw(*arguments), tolerance.value, "dtw")
        found, expected = dtw.gradient(*there(weights, *arguments)), cpu_dtw._dtw_grad(weights, *arguments)
        close(found[0], expected[0], tolerance.gradient, "dtw gradient")
    arguments = (n, m, gamma, *rules.plain())
    found, expected = soft_dtw.plan(*there(cost, *arguments)), cpu_soft_dtw._soft_dtw_plan(cost, *arguments)
    close(found[0], expected[0], tolerance.value, "soft_dtw", gamma)
    close(found[1], expected[1], tolerance.gradient, "plan")
    found = soft_dtw.hessian(*there(cost, tangent, *arguments))
    expected = cpu_soft_dtw._soft_dtw_hessian(cost, tangent, *arguments)
    close(found, expected, tolerance.gradient, "Hessian product", scale=1 / gamma)


def test_work_in_several_chunks(monkeypatch):
    torch.manual_seed(0)
    x, y = torch.randn(3, 6, 2, dtype=torch.float64), torch.randn(4, 5, 2, dtype=torch.float64)
    rules = Rules().plain()
    wide = torch.randn(3, 6, 20, dtype=torch.float64), torch.randn(3, 5, 20, dtype=torch.float64)
    monkeypatch.setattr(dtw, "CELLS_AT_ONCE", 70)
    monkeypatch.setattr(soft_dtw, "CELLS_AT_ONCE", 70)
    monkeypatch.setattr(engine, "COST_BYTES", 11 * 6 * 8 * 2)
    pairs = (x, y, None, None)
    assert torch.equal(dtw.steps(*there(*pairs, False, *rules)).cpu(), cpu_dtw._dtw_steps(*pairs, False, *rules))
    weights = torch.randn(3, 4, dtype=torch.float64)
    arguments = (weights, *pairs, 1.0, False, *rules)
    close(
        soft_dtw.matrix_gradient(*there(*arguments)), cpu_soft_dtw._soft_dtw_matrix_grad(*arguments), 1e-9, "gradient"
    )
    arguments = (*wide, None, None, 1.0, False, *rules)
    close(soft_dtw.value(*there(*arguments)), cpu_soft_dtw._soft_dtw(*arguments), 1e-10, "value")
    close(soft_dtw.value_with_grad(*there(*arguments)), cpu_soft_dtw._soft_dtw_with_grad(*arguments), 1e-9, "gradient")


@pytest.mark.skipif(DEVICE == "cpu", reason="the interpreter does not compile")
@pytest.mark.parametrize("channels", [1, 20])
def test_lengths_that_triton_tells_apart_and_those_it_does_not(channels):
    """Kernels are kept by the class of their numbers: what was compiled for one length must be right for another."""
    torch.manual_seed(0)
    lengths, plain = [1, 15, 16, 17, 31, 32, 33], Rules().plain()
    for steps in (lengths, lengths[::-1], lengths):  # the last time launches are repeated from tapes
        for n, m in [(n, m) for n in steps for m in steps]:
            x, y = torch.randn(2, n, channels), torch.randn(2, m, channels)
            soft, hard = (x, y, None, None, 1.0, False, *plain), (x, y, None, None, False, *plain)
            found = soft_dtw.value_with_grad(*there(*soft))
            close(found, cpu_soft_dtw._soft_dtw_with_grad(*soft), 1e-4, f"soft-DTW of {n} and {m} steps", scale=1e-2)
            close(
                soft_dtw.value(*there(*soft)), cpu_soft_dtw._soft_dtw(*soft), 1e-4, f"value of {n} and {m}", scale=1.0
            )
            close(dtw.value(*there(*hard)), cpu_dtw._dtw(*hard), 1e-4, f"DTW of {n} and {m} steps")
            weights = torch.randn(2)
            a, b = (t.to(DEVICE).requires_grad_() for t in (x, y))
            (cpu_soft_dtw.soft_dtw(a, b) * weights.to(DEVICE)).sum().backward()
            close((a.grad, b.grad), tuple(weights[:, None, None] * g for g in cpu_soft_dtw._soft_dtw_with_grad(*soft)[1:]),
                  1e-4, f"gradient of {n} and {m} steps", scale=1e-2)  # fmt: skip


@pytest.mark.skipif(DEVICE == "cpu", reason="the answer comes from a GPU")
def test_a_repeated_call_still_checks_for_finite_values():
    x, y = torch.randn(2, 5, 3, device=DEVICE), torch.randn(2, 4, 3, device=DEVICE)
    arguments = (None, None, 1.0, False, *Rules().plain())
    for _ in range(3):
        fine = soft_dtw.value_with_grad(x, y, *arguments)[0]
    y[1, 2, 0] = torch.nan
    for _ in range(2):
        with pytest.raises(ValueError, match=r"y\[1\] holds nan at step 2, channel 0"):
            soft_dtw.value_with_grad(x, y, *arguments)
    lengths = torch.tensor([4, 2], device=DEVICE)
    assert_close(
        soft_dtw.value_with_grad(x, y, None, lengths, *arguments[2:])[0][:1], fine[:1], 1e-5, "without the NaN"
    )
    for wrong in (0, 5):
        with pytest.raises(ValueError, match=rf"y_lengths\[1\] is {wrong}; lengths must be between 1 and 4"):
            soft_dtw.value_with_grad(x, y, None, torch.tensor([4, wrong], device=DEVICE), *arguments[2:])


@pytest.mark.skipif(DEVICE == "cpu", reason="tests/ops/test_soft_dtw.py does the same on the CPU")
def test_the_contract_and_second_derivatives_on_a_gpu():
    torch.manual_seed(0)
    x, y = (torch.randn(2, t, 2, dtype=torch.float64, device=DEVICE, requires_grad=True) for t in (5, 4))
    lengths = torch.tensor([5, 3], device=DEVICE), torch.tensor([2, 4], device=DEVICE)
    for given in ((None, None), lengths):
        check_op(torch.ops.likewise.soft_dtw_with_grad.default, (x, y, *given, 0.7, False, *Rules().plain()))
        assert torch.autograd.gradgradcheck(
            lambda a, b, given=given: cpu_soft_dtw.soft_dtw(a, b, *given, gamma=0.6), (x, y)
        )
    found = []
    for run in (cpu_soft_dtw.soft_dtw, torch.compile(cpu_soft_dtw.soft_dtw, fullgraph=True, backend="aot_eager")):
        value = run(x, y)
        found.append((value.detach(), *torch.autograd.grad(value.sum(), (x, y))))
    close(found[1], tuple(t.cpu() for t in found[0]), 1e-12, "compiled")


@pytest.mark.skipif(DEVICE == "cpu", reason="the interpreter repeats nothing")
def test_repeated_launches_on_another_stream_in_another_thread_and_in_a_graph():
    torch.manual_seed(0)
    x, y = torch.randn(3, 9, 3), torch.randn(3, 7, 3)
    a, b = (t.to(DEVICE).requires_grad_() for t in (x, y))

    def both():
        value = cpu_soft_dtw.soft_dtw(a, b)
        found = (value.detach(), *torch.autograd.grad(value.sum(), (a, b)))
        if not torch.cuda.is_current_stream_capturing():
            torch.cuda.current_stream().synchronize()
        return found

    expected = cpu_soft_dtw._soft_dtw_with_grad(x, y, None, None, 1.0, False, *Rules().plain())
    for call in range(3):
        close(both(), expected, 1e-4, f"call {call}", scale=1e-2)
    with torch.cuda.stream(torch.cuda.Stream()):
        close(both(), expected, 1e-4, "another stream", scale=1e-2)
    with ThreadPoolExecutor(1) as pool:
        close(pool.submit(both).result(), expected, 1e-4, "another thread", scale=1e-2)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = both()
    with torch.no_grad():
        b.copy_(a[:, :7])
    graph.replay()
    expected = cpu_soft_dtw._soft_dtw_with_grad(x, x[:, :7], None, None, 1.0, False, *Rules().plain())
    close(captured, expected, 1e-4, "graph", scale=1e-2)


def test_many_short_pairs_go_to_lanes_and_others_to_warps(monkeypatch):
    used = []
    monkeypatch.setattr(engine, "run_lanes", lambda pairs: used.append("lanes") or lanes.run_lanes(pairs))
    monkeypatch.setattr(engine, "run_warps", lambda *a, **k: used.append("warps") or warps.run_warps(*a, **k))
    few, many = 3, 4096 if DEVICE == "cuda" else 2 * lanes.LANES
    for count, short in ((few, 64), (many, 64), (many, 2)):
        monkeypatch.setattr(engine, "SHORT", short)
        x, y = torch.randn(count, 3, 1), torch.randn(count, 4, 1)
        arguments = (x, y, None, None, False, *Rules().plain())
        close(dtw.value(*there(*arguments)), cpu_dtw._dtw(*arguments), 1e-5, "value")
    assert used == ["warps", "lanes", "warps"]


def test_costs_that_do_not_fit_are_computed_on_the_way(monkeypatch):
    monkeypatch.setattr(engine, "COST_BYTES", 100)
    x, y = torch.randn(2, 5, 20), torch.randn(2, 6, 20)
    arguments = (x, y, None, None, False, *Rules().plain())
    close(dtw.value(*there(*arguments)), cpu_dtw._dtw(*arguments), 1e-5, "value")


@pytest.mark.parametrize("count", [2, 2 * lanes.LANES])
def test_values_that_are_not_finite_are_named(count):
    x, y = torch.randn(count, 5, 1), torch.randn(count, 4, 1)
    y[1, 2] = torch.inf
    for run, options in ((dtw.value, ()), (soft_dtw.value, (1.0,)), (soft_dtw.value_with_grad, (1.0,))):
        if count > 2 and run is soft_dtw.value_with_grad:
            continue  # has no lanes
        with pytest.raises(ValueError, match=r"y\[1\] holds inf at step 2, channel 0"):
            run(*there(x, y, None, None, *options, False, *Rules().plain()))
    cost = torch.zeros(2, 3, 4)
    cost[1, 2, 3] = torch.nan
    with pytest.raises(ValueError, match=r"cost\[1\] holds nan at \(2, 3\)"):
        dtw.value(*there(cost, None, None, None, False, *Rules().plain()))
    with pytest.raises(ValueError, match="costs overflow"):
        dtw.value(*there(torch.full((1, 2, 2), 3e38), None, None, None, False, *Rules().plain()))


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("kind", ["warps", "lanes", "given"])
def test_values_beyond_what_cannot_be_reached_are_refused(kind, soft):
    def run(size):
        x, y = (torch.rand(2 * lanes.LANES if kind == "lanes" else 2, 6, 1, dtype=torch.float64) for _ in range(2))
        x, y = (size * x).to(DEVICE), (-size * y).to(DEVICE)
        if kind == "given":
            x, y = (x - y.mT).square(), None
        made = engine.Pairs("dtw", x, y, None, None, Rules(), soft=soft, scale=3.0 if soft else 1.0)
        return engine.values(made) / size**2

    assert run(1e9).median().item() > 0
    with pytest.raises(ValueError, match="dtw: the value of a pair is beyond"):
        run(1e20)


def test_an_empty_batch_gives_an_empty_result():
    x, rules = torch.empty(0, 4, 2), Rules().plain()
    assert dtw.value(*there(x, x, None, None, False, *rules)).shape == (0,)
    assert dtw.path(*there(x, x, None, None, False, *rules))[0].shape == (0, 7, 2)
    assert soft_dtw.value_with_grad(*there(x, x, None, None, 1.0, False, *rules))[0].shape == (0,)
    assert soft_dtw.matrix(*there(x, x, None, None, True, 1.0, False, *rules)).shape == (0, 0)
