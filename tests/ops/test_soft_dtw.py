import itertools
import math

import pytest
import torch

from likewise import _native
from likewise.ops import cpu
from likewise.ops.dtw import dtw, dtw_cost
from likewise.ops.rules import Rules
from likewise.ops.soft_dtw import cpu as module
from likewise.ops.soft_dtw import reference, soft_dtw, soft_dtw_cost, soft_dtw_matrix, soft_dtw_plan
from likewise.testing import TOLERANCE, assert_close, check_op
from tests.ops.problems import exact_cost, random_problem

GAMMAS = [1e-3, 1e-2, 0.1, 1.0, 10.0, 1e3]


@pytest.fixture(params=_native.instruction_sets())
def instruction_set(request, monkeypatch):
    monkeypatch.setattr(cpu, "INSTRUCTION_SET", request.param)
    return request.param


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", range(16))
def test_values_equal_the_reference(seed, dtype, instruction_set):
    p = random_problem(seed, batch=4, longest=14, dtype=dtype)
    gamma, tolerance = GAMMAS[seed % len(GAMMAS)], TOLERANCE[dtype].value
    options = {"gamma": gamma, "rules": p.rules}
    expected = torch.stack([reference.value(p.cost(b), gamma, p.rules) for b in range(4)])
    x = p.x.clone().requires_grad_()
    for what, found in (
        ("values", soft_dtw(p.x, p.y, *p.lengths, ground=p.ground, **options)),
        ("values with a gradient", soft_dtw(x, p.y, *p.lengths, ground=p.ground, **options)),
        ("matrix", soft_dtw_matrix(p.x, p.y, *p.lengths, ground=p.ground, **options).diagonal()),
        ("given costs", soft_dtw_cost(p.costs(), *p.lengths, **options)),
        ("given costs with a gradient", soft_dtw_cost(p.costs().requires_grad_(), *p.lengths, **options)),
    ):
        assert_close(found, expected, tolerance, what, scale=gamma)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", range(16))
def test_plans_and_gradients_equal_the_reference(seed, dtype, instruction_set):
    p = random_problem(seed, batch=3, longest=12, dtype=dtype)
    gamma, tolerance = GAMMAS[seed % len(GAMMAS)], TOLERANCE[dtype].gradient
    options = {"gamma": gamma, "rules": p.rules}
    plan = soft_dtw_plan(p.costs(), *p.lengths, **options)
    x, y = p.x.clone().requires_grad_(), p.y.clone().requires_grad_()
    weights = torch.tensor([1.0, -0.5, 2.0], dtype=dtype)
    found = torch.autograd.grad((soft_dtw(x, y, *p.lengths, ground=p.ground, **options) * weights).sum(), (x, y))
    for b, (n, m) in enumerate(zip(*p.lengths, strict=True)):
        assert_close(plan[b, :n, :m], reference.plan(p.cost(b), gamma, p.rules), tolerance, "plan")
        assert plan[b, n:].sum() == plan[b, :, m:].sum() == 0
        frames = [t.requires_grad_() for t in p.frames(b)]
        value = reference.value(exact_cost(p.ground, *frames), gamma, p.rules)
        for f, e, k in zip(found, torch.autograd.grad(value, frames), (n, m), strict=True):
            assert_close(f[b, :k], e * weights[b], tolerance, "gradient", scale=1e-2)
            assert (f[b, k:] == 0).all(), "gradient of the padding"


@pytest.mark.parametrize("seed", range(16))
def test_second_derivatives_equal_the_reference(seed, instruction_set):
    p = random_problem(seed, batch=2, longest=7)
    gamma = [0.1, 1.0, 10.0][seed % 3]
    direction = torch.randn(2, p.x.shape[1], p.y.shape[1], dtype=torch.float64)
    cost = p.costs().requires_grad_()
    plan = soft_dtw_plan(cost, *p.lengths, gamma=gamma, rules=p.rules)
    (found,) = torch.autograd.grad((plan * direction).sum(), cost)
    for b, (n, m) in enumerate(zip(*p.lengths, strict=True)):
        one = p.cost(b).requires_grad_()
        (first,) = torch.autograd.grad(reference.value(one, gamma, p.rules), one, create_graph=True)
        expected = torch.zeros_like(one)
        if first.requires_grad:  # a single path has no second derivative
            (expected,) = torch.autograd.grad((first * direction[b, :n, :m]).sum(), one)
        assert_close(found[b, :n, :m], expected, 1e-8, "Hessian product", scale=1 / gamma)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", range(24))
def test_lanes_equal_single_pairs(seed, dtype, instruction_set, monkeypatch):
    p = random_problem(seed, batch=[1, 5, 11, 19][seed % 4], longest=[3, 9, 40][seed % 3], dtype=dtype)
    gamma, tolerance = [1e-1, 1.0, 30.0][seed % 3], TOLERANCE[dtype]
    options = {"gamma": gamma, "ground": p.ground, "rules": p.rules}
    weights = torch.randn(len(p.x), len(p.y), dtype=dtype, generator=torch.Generator().manual_seed(seed))
    found = []
    for lanes in (True, False):
        monkeypatch.setattr(cpu.Problem, "fills_lanes", lanes)
        x, y = p.x.clone().requires_grad_(), p.y.clone().requires_grad_()
        paired, matrix = soft_dtw(x, y, *p.lengths, **options), soft_dtw_matrix(x, y, *p.lengths, **options)
        assert_close(soft_dtw(p.x, p.y, *p.lengths, **options), paired, tolerance.value, "values", scale=gamma)
        found.append(
            (paired, torch.autograd.grad(paired.sum(), (x, y)), torch.autograd.grad((matrix * weights).sum(), (x, y)))
        )
        assert_close(matrix.diagonal(), paired, tolerance.value, "matrix", scale=gamma)
    (values, *gradients), (expected, *expected_gradients) = found
    assert_close(values, expected, tolerance.value, "values", scale=gamma)
    for pair, expected_pair in zip(gradients, expected_gradients, strict=True):
        for f, e in zip(pair, expected_pair, strict=True):
            assert_close(f, e, 2 * tolerance.gradient, "gradient", scale=1e-2)


def test_long_pairs_do_not_take_a_lane_each(monkeypatch):
    x, y = torch.randn(2, 16, 12, 2, dtype=torch.float64)
    expected = [
        soft_dtw(x, y.requires_grad_(), gamma=0.5).detach(),
        *torch.autograd.grad(soft_dtw(x, y, gamma=0.5).sum(), y),
    ]
    monkeypatch.setattr(module, "SHARES_AT_ONCE", 0)
    monkeypatch.setattr(_native, "soft_dtw_gradient_blocks", None)
    found = [soft_dtw(x, y, gamma=0.5).detach(), *torch.autograd.grad(soft_dtw(x, y, gamma=0.5).sum(), y)]
    for f, e in zip(found, expected, strict=True):
        assert_close(f, e, 1e-10, "one pair at a time")


def test_brute_force_over_all_paths():
    n, m, gamma = 4, 5, 0.7
    cost = torch.rand(1, n, m, dtype=torch.float64)
    paths = [[(0, 0)]]
    whole = []
    while paths:
        path = paths.pop()
        i, j = path[-1]
        if (i, j) == (n - 1, m - 1):
            whole.append(path)
            continue
        paths.extend([*path, (i + a, j + b)] for a, b in ((1, 0), (0, 1), (1, 1)) if i + a < n and j + b < m)
    assert len(whole) == 129  # the Delannoy number D(3, 4)
    totals = torch.stack([sum(cost[0, i, j] for i, j in path) for path in whole])
    assert_close(soft_dtw_cost(cost, gamma=gamma)[0], -gamma * torch.logsumexp(-totals / gamma, 0), 1e-12, "value")
    expected = torch.zeros(n, m, dtype=torch.float64)
    for path, weight in zip(whole, torch.softmax(-totals / gamma, 0), strict=True):
        for i, j in path:
            expected[i, j] += weight
    assert_close(soft_dtw_plan(cost, gamma=gamma)[0], expected, 1e-12, "expected alignment")


@pytest.mark.parametrize("gamma", [1e-6, 1e-3, 1.0, 1e3, 1e6])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_neither_overflows_nor_underflows(gamma, scale, instruction_set):
    torch.manual_seed(0)
    for dtype in (torch.float32, torch.float64):
        x, y = ((torch.randn(2, 60, 3) * scale).to(dtype).requires_grad_() for _ in range(2))
        values = soft_dtw(x, y, gamma=gamma)
        gradients = torch.autograd.grad(values.sum(), (x, y))
        assert values.isfinite().all()
        assert all(g.isfinite().all() for g in gradients)
        exact = soft_dtw(x.double().detach(), y.double().detach(), gamma=gamma)
        assert_close(values, exact, TOLERANCE[dtype].value, "values", scale=gamma)


def test_towards_zero_gamma_it_is_dtw():
    x, y = torch.randn(3, 40, 2, dtype=torch.float64), torch.randn(3, 30, 2, dtype=torch.float64)
    assert_close(soft_dtw(x, y, gamma=1e-9), dtw(x, y), 1e-8, "value")
    cost = torch.rand(1, 20, 15, dtype=torch.float64, requires_grad=True)
    (path,) = torch.autograd.grad(dtw_cost(cost).sum(), cost)
    assert_close(soft_dtw_plan(cost.detach(), gamma=1e-6), path, 1e-6, "plan")


def test_costs_that_overflow_are_refused():
    x = torch.full((1, 3, 1), 1e20)
    with pytest.raises(
        ValueError, match=r"soft_dtw: the value of pair \[0\] is not finite: the costs overflow torch.float32"
    ):
        soft_dtw(x, -x)


@pytest.mark.parametrize("shape", [(200, 20_000), (3000, 700)])
def test_gradients_of_long_pairs_go_strip_by_strip(shape):
    # Cut into strips of rows; with x and y exchanged the cuts lie elsewhere, and the gradients must be equal.
    n, m = shape
    torch.manual_seed(0)
    x, y = torch.randn(1, n, 2, dtype=torch.float64), torch.randn(1, m, 2, dtype=torch.float64)
    band = Rules.of("soft_dtw", band=0.2)
    for rules in (Rules(), band):
        found = []
        for a, b in ((x, y), (y, x)):
            a, b = a.clone().requires_grad_(), b.clone().requires_grad_()
            value = soft_dtw(a, b, rules=rules)
            found.append((value.detach(), torch.autograd.grad(value.sum(), (a, b))))
        assert_close(found[0][0], found[1][0], 1e-12, "value")
        assert_close(found[0][1][0], found[1][1][1], 1e-10, "gradient of x")
        assert_close(found[0][1][1], found[1][1][0], 1e-10, "gradient of y")


@pytest.mark.parametrize(
    "ground", ["sqeuclidean", "euclidean", "cosine", lambda x, y: (x[:, :, None] - y[:, None]).pow(4).sum(-1)]
)
def test_first_and_second_gradients(ground):
    torch.manual_seed(0)
    x = torch.randn(2, 5, 2, dtype=torch.float64, requires_grad=True)
    y = torch.randn(2, 4, 2, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([5, 3]), torch.tensor([2, 4])
    for rules in (Rules(), Rules.of("soft_dtw", band=1), Rules.of("soft_dtw", subsequence=True)):

        def value(a, b, rules=rules):
            return soft_dtw(a, b, *lengths, gamma=0.6, ground=ground, rules=rules)

        assert torch.autograd.gradcheck(value, (x, y))
        assert torch.autograd.gradgradcheck(value, (x, y))


def test_the_plan_is_differentiable_as_dilate_needs():
    cost = torch.rand(2, 5, 6, dtype=torch.float64, requires_grad=True)
    penalty = (torch.arange(5)[:, None] - torch.arange(6)).square().double()
    lengths = torch.tensor([5, 4]), torch.tensor([3, 6])
    assert torch.autograd.gradcheck(lambda c: (soft_dtw_plan(c, *lengths, gamma=0.1) * penalty).sum(), (cost,))
    assert torch.autograd.gradgradcheck(lambda c: soft_dtw_cost(c, *lengths, gamma=0.5), (cost,))


def test_higher_derivatives_are_refused():
    cost = torch.rand(1, 4, 4, requires_grad=True)
    (second,) = torch.autograd.grad(soft_dtw_plan(cost)[0, 1, 1], cost, create_graph=True)
    with pytest.raises(NotImplementedError, match="soft_dtw: the third derivative is not implemented"):
        torch.autograd.grad(second.sum(), cost)
    x = torch.randn(3, 5, 2, requires_grad=True)
    (first,) = torch.autograd.grad(soft_dtw_matrix(x).sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivative of all pairs at once; use paired soft_dtw"):
        torch.autograd.grad(first.sum(), x)


def test_a_matrix_has_the_gradient_of_its_pairs():
    torch.manual_seed(0)
    x = torch.randn(5, 6, 2, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(5, 5, dtype=torch.float64)
    i, j = (k.flatten() for k in torch.meshgrid(torch.arange(5), torch.arange(5), indexing="ij"))
    (expected,) = torch.autograd.grad((soft_dtw(x[i], x[j]) * weights.flatten()).sum(), x)
    for own in (soft_dtw_matrix(x), soft_dtw_matrix(x, x)):
        (found,) = torch.autograd.grad((own * weights).sum(), x)
        assert_close(found, expected, 1e-12, "gradient")


def test_operators_keep_the_contract():
    p = random_problem(2, batch=2, longest=6)
    x, y, cost = (t.clone().requires_grad_() for t in (p.x, p.y, p.costs()))
    rules = p.rules.plain()
    ops = torch.ops.likewise
    check_op(ops.soft_dtw.default, (x, y, *p.lengths, 0.7, False, *rules), second_gradient=True)
    check_op(ops.soft_dtw.default, (cost, None, *p.lengths, 0.7, False, *rules), second_gradient=True)
    check_op(ops.soft_dtw_with_grad.default, (x, y, *p.lengths, 0.7, True, *rules))
    check_op(ops.soft_dtw_matrix.default, (x, y, *p.lengths, False, 0.7, False, *rules))
    check_op(ops.soft_dtw_plan.default, (cost, *p.lengths, 0.7, *rules))
    fixed = p.costs()
    check_op(ops.soft_dtw_hessian.default, (fixed, torch.randn_like(fixed), *p.lengths, 0.7, *rules), gradient=False)
    weights = torch.rand(2, 2, dtype=torch.float64)
    check_op(ops.soft_dtw_matrix_grad.default, (weights, p.x, p.y, *p.lengths, 0.7, False, *rules), gradient=False)


def test_compiles_without_a_graph_break():
    x, y = torch.randn(4, 12, 2), torch.randn(4, 9, 2)

    def loss(a, b):
        return soft_dtw(a, b, gamma=0.5).sum() + soft_dtw_matrix(a, b, ground="cosine").mean()

    found = []
    for run in (loss, torch.compile(loss, fullgraph=True)):
        a = x.clone().requires_grad_()
        value = run(a, y)
        found.append((value.detach(), torch.autograd.grad(value, a)[0]))
    for eager, compiled in zip(*found, strict=True):
        assert_close(compiled, eager, 1e-5, "compiled")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_accumulated_in_float32(dtype):
    x, y = (torch.randn(3, 20, 3).to(dtype) for _ in range(2))
    found = soft_dtw(x, y)
    assert found.dtype == dtype
    assert torch.equal(found, soft_dtw(x.float(), y.float()).to(dtype))
    assert soft_dtw(x.requires_grad_(), y).sum().backward() is None
    assert x.grad.dtype == dtype


def test_equals_pysdtw_and_tslearn():
    pysdtw = pytest.importorskip("pysdtw")
    tslearn = pytest.importorskip("tslearn.metrics")
    x, y = torch.randn(3, 30, 2), torch.randn(3, 25, 2)
    peer = pysdtw.SoftDTW(gamma=0.5, use_cuda=False, dist_func=pysdtw.distance.pairwise_l2_squared_exact)
    assert_close(soft_dtw(x, y, gamma=0.5), peer(x, y), 1e-5, "pysdtw")
    expected = torch.tensor([tslearn.soft_dtw(a.numpy(), b.numpy(), gamma=0.5) for a, b in zip(x, y, strict=True)])
    assert_close(soft_dtw(x.double(), y.double(), gamma=0.5), expected, 1e-6, "tslearn")


def test_empty_batches_give_empty_results():
    x, y = torch.empty(0, 5, 2), torch.randn(3, 4, 2)
    assert soft_dtw(x, x).shape == (0,)
    assert soft_dtw_matrix(x, y).shape == (0, 3)
    assert soft_dtw_plan(torch.empty(0, 3, 4)).shape == (0, 3, 4)
    x.requires_grad_()
    soft_dtw(x, x).sum().backward()
    assert x.grad.shape == x.shape


x3 = torch.zeros(2, 5, 3)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: soft_dtw(torch.zeros(32, 128), x3), ValueError, r"soft_dtw: expected x of shape \(B, T, C\), got \(32, 128\); add a channel with x\[..., None\]"),
        (lambda: soft_dtw(x3, x3, gamma=0), ValueError, "soft_dtw: gamma must be positive and finite, got 0"),
        (lambda: soft_dtw(x3, x3, gamma=-1.0), ValueError, "soft_dtw: gamma must be positive and finite, got -1.0"),
        (lambda: soft_dtw(x3, x3, gamma=math.inf), ValueError, "gamma must be positive and finite, got inf"),
        (lambda: soft_dtw(x3, x3, gamma=math.nan), ValueError, "gamma must be positive and finite, got nan"),
        (lambda: soft_dtw(x3, x3, gamma="1"), TypeError, "soft_dtw: expected gamma to be a number, got str"),
        (lambda: soft_dtw(x3, x3 * torch.nan), ValueError, r"soft_dtw: y\[0\] holds nan at step 0, channel 0"),
        (lambda: soft_dtw_plan(x3 / 0), ValueError, r"soft_dtw: cost\[0\] holds nan at \(0, 0\)"),
        (lambda: soft_dtw_matrix(x3, ground=torch.cdist), ValueError, "soft_dtw: soft_dtw_matrix takes the named ground costs"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_every_pair_of_lengths():
    x, y = torch.randn(1, 9, 1, dtype=torch.float64), torch.randn(1, 9, 1, dtype=torch.float64)
    for n, m in itertools.product((1, 2, 3, 5, 9), repeat=2):
        expected = reference.value(exact_cost("sqeuclidean", x[0, :n], y[0, :m]), 1.0)
        assert_close(soft_dtw(x[:, :n], y[:, :m])[0], expected, 1e-12, f"{n} x {m}")
