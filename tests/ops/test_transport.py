import math
import warnings

import pytest
import torch

from likewise.ops.transport import Settings, reference, transport, transport_cost, transport_matrix, transport_plan
from likewise.ops.transport.exact import assignment, exact_plan, linear_programme
from likewise.testing import TOLERANCE, assert_close, check_op

ops = torch.ops.likewise
OPW = {"reg": 0.1, "inverse_difference": 50.0, "delta": 1.0}
PROBLEMS = [{"reg": 0.5}, OPW, {"reg": 1.0, "time_weight": 1.0}]


def frames(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def costs(x, y):
    return (x[:, :, None] - y[:, None]).square().sum(-1)


def naive_log_kernel(cost, reg, inverse_difference=0.0, delta=math.inf, time_weight=0.0):
    """Loops over the cells of one pair, i and j from 1."""
    n, m = cost.shape
    L = torch.zeros(n, m, dtype=torch.float64)
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            t = i / n - j / m
            away = abs(t) / math.sqrt(1 / n**2 + 1 / m**2)
            similar = inverse_difference / (t**2 + 1)
            cost_ij = cost[i - 1, j - 1].item() * (1 + time_weight * abs(t))
            L[i - 1, j - 1] = -(away**2) / (2 * delta**2) + (similar - cost_ij) / reg
    return L


def naive_iterations(L, count):
    """The authors' program, u = 1 / (K (b / (K' u)) / a), without a log domain: float64 and a mild kernel only."""
    K = L.exp()
    n, m = K.shape
    u = torch.full((n,), 1 / n, dtype=torch.float64)
    for _ in range(count):
        v = (1 / m) / (K.T @ u)
        u = (1 / n) / (K @ v)
    return u[:, None] * K * v


def lengths(n, m, count=3):
    return torch.tensor([n, max(1, n - 2), max(1, n // 2)][:count]), torch.tensor([max(1, m - 1), m, m][:count])


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
@pytest.mark.parametrize(("n", "m"), [(1, 4), (4, 1), (5, 3), (17, 16), (37, 20)])
def test_the_converged_plan_is_the_scaling_of_the_kernel(problem, n, m):
    x, y = frames(3, n, 2), frames(3, m, 2, seed=1)
    rows, columns = lengths(n, m)
    found = transport_plan(x, y, rows, columns, settings=Settings(**problem))
    for k, (r, c) in enumerate(zip(rows.tolist(), columns.tolist(), strict=True)):
        T, cost = found.plan[k, :r, :c], costs(x, y)[k, :r, :c]
        # Optimality: the masses are met, and log T - L is a sum f_i + g_j.
        assert (T.sum(1) - 1 / r).abs().sum() < 1e-11
        assert (T.sum(0) - 1 / c).abs().sum() < 1e-11
        seen = T > 1e-250
        rest = torch.where(seen, T.log() - naive_log_kernel(cost, **problem), torch.nan)
        rest = rest - rest.nanmean(1, keepdim=True) if seen.all() else rest[:0]
        assert len(rest) == 0 or (rest - rest.mean(0)).abs().max() < 1e-7
        assert found.value[k].item() == pytest.approx((T * cost).sum().item(), rel=1e-12)
    assert (found.plan[1, int(rows[1]) :] == 0).all()
    assert found.error.max() < 1e-11


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_the_kernel_is_the_reference(problem):
    x, y = frames(3, 17, 3), frames(3, 14, 3, seed=1)
    rows, columns = lengths(17, 14)
    a, b = reference.uniform(rows, 17), reference.uniform(columns, 14)
    for n_iter in (None, 1, 2, 20):
        settings = Settings(**problem, n_iter=n_iter, tolerance=1e-12)
        value, plan, error = reference.solve(costs(x, y), rows, columns, a, b, settings)
        for dtype in (torch.float64, torch.float32):
            found = transport_plan(x.to(dtype), y.to(dtype), rows, columns, settings=Settings(**problem, n_iter=n_iter))
            tolerance = TOLERANCE[dtype].value
            assert_close(found.value, value, tolerance, "value")
            assert_close(found.plan, plan, tolerance, "plan")
            assert_close(found.error, error, tolerance, "error", scale=1.0)


@pytest.mark.parametrize("problem", [OPW, {"reg": 0.01}, {"reg": 1e-3, "time_weight": 1.0}], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_sharp_kernels_take_few_newton_steps(problem, dtype):
    x, y = frames(4, 60, 3), frames(4, 45, 3, seed=1)
    columns = torch.tensor([45, 45, 44, 30])
    found = transport_plan(x.to(dtype), y.to(dtype), None, columns, settings=Settings(**problem, max_iter=80))
    tolerance = {torch.float32: 2e-6, torch.float64: 1e-10}[dtype]
    assert found.error.max() < tolerance
    rows, a = torch.full((4,), 60), torch.full((4, 60), 1 / 60, dtype=torch.float64)
    given = costs(x.to(dtype).double(), y.to(dtype).double()), rows, columns, a, reference.uniform(columns, 45)
    value, plan, error = reference.solve(*given, Settings(**problem, tolerance=1e-12, max_iter=80))
    assert error.max() < 1e-10
    assert_close(found.value, value, 1e-5 if dtype == torch.float32 else 1e-9, "value")
    assert_close(found.plan.sum(1), plan.sum(1), tolerance, "columns", scale=1.0)


def test_early_stops_are_the_authors():
    x, y = frames(2, 9, 2), frames(2, 7, 2, seed=1)
    for problem in ({"reg": 0.5}, {"reg": 2.0, "inverse_difference": 50.0, "delta": 1.0}):
        found = transport_plan(x, y, settings=Settings(**problem, n_iter=20))
        for k in range(2):
            T = naive_iterations(naive_log_kernel(costs(x, y)[k], **problem), 20)
            assert_close(found.plan[k], T, 1e-12, "plan")
            assert found.value[k].item() == pytest.approx((T * costs(x, y)[k]).sum().item(), rel=1e-12)
            assert found.plan[k].sum(1) == pytest.approx(torch.full((9,), 1 / 9, dtype=torch.float64), rel=1e-12)
    early = transport_plan(x, y, settings=Settings(**OPW, n_iter=20))
    assert (early.error > 1e-3).all()  # the authors' OPW is far from converged


def test_given_masses():
    cost = costs(frames(2, 6, 2), frames(2, 5, 2, seed=1))
    x_mass, y_mass = frames(2, 6, seed=2).exp(), frames(2, 5, seed=3).exp()
    y_mass = y_mass * (x_mass.sum(1) / y_mass.sum(1))[:, None]
    found = transport_cost(cost, settings=Settings(0.1), x_mass=x_mass, y_mass=y_mass)
    assert_close(found.plan.sum(2), x_mass, 1e-11, "rows")
    assert_close(found.plan.sum(1), y_mass, 1e-11, "columns")
    assert torch.autograd.gradcheck(
        lambda c: transport_cost(c, settings=Settings(0.3), x_mass=x_mass, y_mass=y_mass).value,
        (cost.requires_grad_(),),
    )


def test_nothing_overflows():
    x, y = frames(2, 40, 1000, dtype=torch.float32) * 10, frames(2, 31, 1000, seed=1, dtype=torch.float32) * 10
    for n_iter in (None, 20):
        found = transport_plan(x, y, settings=Settings(**OPW, n_iter=n_iter))
        assert found.value.isfinite().all()
        assert found.plan.isfinite().all()
        exact = transport_plan(x.double(), y.double(), settings=Settings(**OPW, n_iter=n_iter))
        assert_close(found.value, exact.value, 1e-5, "value")
        assert_close(found.plan.sum(2), torch.full((2, 40), 1 / 40), 1e-5, "rows")
    gradient = torch.autograd.grad(transport(x.requires_grad_(), y, settings=Settings(**OPW)).sum(), x)[0]
    assert gradient.isfinite().all()


def test_all_pairs():
    x, y = frames(3, 6, 2), frames(4, 5, 2, seed=1)
    settings = Settings(**OPW)
    D = transport_matrix(x, y, settings=settings)
    for i in range(3):
        for j in range(4):
            assert D[i, j] == transport(x[i : i + 1], y[j : j + 1], settings=settings)[0]
    own = transport_matrix(x, settings=settings)
    assert torch.equal(own, own.T)
    assert_close(own, transport_matrix(x, x.clone(), settings=settings), 1e-10, "own pairs")
    early = Settings(**OPW, n_iter=3)
    assert torch.equal(transport_matrix(x, settings=early), transport_matrix(x, x.clone(), settings=early))


@pytest.mark.parametrize("problem", [*PROBLEMS, {"reg": 0.5, "n_iter": 4, "time_weight": 0.5}], ids=str)
def test_derivatives_match_the_computed_values(problem):
    x, y = frames(2, 5, 2).requires_grad_(), frames(2, 4, 2, seed=1).requires_grad_()
    given = torch.tensor([5, 3]), torch.tensor([2, 4])
    settings = Settings(**problem)
    assert torch.autograd.gradcheck(lambda a, b: transport(a, b, *given, settings=settings), (x, y), atol=1e-4)
    assert torch.autograd.gradcheck(
        lambda a, b: transport_plan(a, b, *given, settings=settings).plan, (x, y), atol=1e-4
    )


def test_the_second_derivative_is_refused():
    x, y = frames(1, 4, 2).requires_grad_(), frames(1, 3, 2, seed=1)
    (slope,) = torch.autograd.grad(transport(x, y, settings=Settings(0.5)).sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivative"):
        torch.autograd.grad(slope.sum(), x)


@pytest.mark.parametrize("n_iter", [0, 3])
def test_operators(n_iter):
    numbers = (0.5, 1.0, 1.0, 0.5, n_iter, 1e-12, 100)
    given = torch.tensor([4, 3]), torch.tensor([2, 3])
    x, y = frames(2, 4, 2), frames(2, 3, 2, seed=1)
    check_op(ops.transport.default, (x, y, *given, False, *numbers), gradient=False)
    check_op(ops.transport_matrix.default, (x, y, *given, False, False, *numbers), gradient=False)
    leaf = costs(x, y).requires_grad_()
    check_op(ops.transport_plan.default, (leaf, None, *given, None, None, False, *numbers))
    check_op(ops.transport_exact.default, (costs(x, y), *given), gradient=False)


def test_refusals():
    cost = torch.ones(2, 3, 4)
    ones = torch.ones(2, 3)
    with pytest.raises(ValueError, match=r"x_mass\[0\] sums to 3 and y_mass\[0\] to 4; divide each by its sum"):
        transport_cost(cost, settings=Settings(1.0), x_mass=ones, y_mass=torch.ones(2, 4))
    with pytest.raises(ValueError, match=r"x_mass\[1\] holds 0 at 2; masses must be positive"):
        transport_cost(cost, settings=Settings(1.0), x_mass=ones * torch.tensor([[1, 1, 1], [1, 1, 0]]))
    with pytest.raises(ValueError, match=r"x_mass of shape \(2, 3\), got \(2, 4\)"):
        transport_cost(cost, settings=Settings(1.0), x_mass=torch.ones(2, 4))
    with pytest.raises(ValueError, match=r"x_mass\.detach"):
        transport_cost(cost, settings=Settings(1.0), x_mass=ones.requires_grad_())
    with pytest.raises(ValueError, match=r"cost\[0\] holds nan at \(0, 0\)"):
        transport_cost(cost * torch.nan, settings=Settings(1.0))
    with pytest.raises(ValueError, match="named ground costs"):
        transport_matrix(ones[..., None], settings=Settings(1.0), ground=lambda a, b: a)
    for options, words in (
        ({"reg": 0.0}, "reg must be positive"),
        ({"reg": -1.0, "reg_name": "kl"}, "kl must be positive"),
        ({"reg": 1.0, "inverse_difference": -1.0}, "inverse_difference must be 0 or more"),
        ({"reg": 1.0, "delta": 0.0}, "delta must be positive"),
        ({"reg": 1.0, "n_iter": 0}, "n_iter must be a whole number of 1 or more"),
        ({"reg": 1.0, "tolerance": 0.0}, "tolerance must be positive"),
        ({"reg": 1.0, "max_iter": 1.5}, "max_iter must be a whole number"),
    ):
        with pytest.raises(ValueError, match=words):
            Settings.of("OPW", **options)


def test_masses_that_are_not_met_are_said():
    x, y = frames(1, 20, 2), frames(1, 17, 2, seed=1)
    with pytest.warns(UserWarning, match="the masses of 1 of 1 pairs are off by up to .* raise max_iter"):
        transport(x, y, settings=Settings(**OPW, max_iter=1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        transport(x, y, settings=Settings(**OPW, n_iter=1))


@pytest.mark.parametrize(("n", "m"), [(1, 3), (4, 4), (4, 8), (6, 4), (7, 5)])
def test_exact_plans_agree(n, m):
    cost = costs(frames(1, n, 2), frames(1, m, 2, seed=1))
    plan = exact_plan(cost)[0]
    assert_close(plan.sum(1), torch.full((n,), 1 / n, dtype=torch.float64), 1e-12, "rows")
    assert_close(plan.sum(0), torch.full((m,), 1 / m, dtype=torch.float64), 1e-12, "columns")
    best = (plan * cost[0]).sum().item()
    for other in (assignment(cost[0].numpy(), math.lcm(n, m)), linear_programme(cost[0].numpy())):
        assert (torch.from_numpy(other) * cost[0]).sum().item() == pytest.approx(best, rel=1e-9)
    padded = torch.nn.functional.pad(cost, (0, 2, 0, 1), value=torch.nan)
    found = exact_plan(padded, torch.tensor([n]), torch.tensor([m]))
    assert torch.equal(found[0, :n, :m], plan)
    assert found.sum().item() == pytest.approx(1)
