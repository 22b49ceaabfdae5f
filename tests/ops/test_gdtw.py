import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from likewise import _native
from likewise.ops import cpu
from likewise.ops.gdtw import _gdtw, gdtw, reference
from likewise.ops.gdtw.reference import Pair
from likewise.testing import assert_close, check_op

NAMES = ("x", "y", "reg", "lower", "upper", "slope_min", "slope_max")


@pytest.fixture(params=_native.instruction_sets())
def instruction_set(request, monkeypatch):
    monkeypatch.setattr(cpu, "INSTRUCTION_SET", request.param)
    return request.param


def spread(first, last, count):
    return torch.linspace(first, last, count, dtype=torch.float64)


OPTIONS = [
    {},
    {"reg": 1e-3},
    {"reg": 3.0},
    {"slope": (0.4, 2.5)},
    {"band": 0.1},
    {"subsequence": True},
    {"subsequence": True, "slope": (0.5, 1.5), "band": 0.3},
    {"huber": 0.4},
    {"even": False, "slope": (0.2, 4.0)},
    {"channels": 1, "n": 20, "m": 15},
]


def random_pair(
    seed,
    *,
    n=12,
    m=9,
    channels=3,
    reg=0.1,
    slope=(0.0, math.inf),
    band=None,
    subsequence=False,
    huber=math.inf,
    even=True,
):
    """y is a random walk, x is y at other times and noise. Uneven times start and end anywhere."""
    rng = np.random.default_rng(seed)
    y = torch.from_numpy(rng.standard_normal((n, channels)).cumsum(0))
    times_x, times_y = spread(0, 1, m), spread(0, 1, n)
    if not even:
        times_y, times_x = (torch.from_numpy(rng.uniform(0.3, 1, k).cumsum()) - 2 for k in (n, m))
    share = spread(0, 1, m) ** rng.uniform(0.5, 2)
    if subsequence:
        share = 0.1 + 0.7 * share
    place = share * (n - 1)
    k = place.long().clamp(max=n - 2)
    x = torch.lerp(y[k], y[k + 1], (place - k)[:, None]) + 0.3 * torch.from_numpy(rng.standard_normal((m, channels)))
    return pair_of(x, y, times_x, times_y, reg, slope, band, subsequence, huber)


def pair_of(x, y, times_x, times_y, reg=0.1, slope=(0.0, math.inf), band=None, subsequence=False, huber=math.inf):
    m = len(x)
    duration = times_y[-1] - times_y[0]
    stretch = 1.0 if subsequence else duration / (times_x[-1] - times_x[0])
    middle = times_y[0] + stretch * (times_x - times_x[0])
    width = math.inf if band is None else band * duration
    limits = [torch.full((m - 1,), limit, dtype=torch.float64) * stretch for limit in slope]
    return Pair(
        x, y, times_x, times_y, torch.tensor(reg).double(), middle - width, middle + width, *limits, subsequence, huber
    )


def arguments(pair, *, nodes=0, refinements=3, **changed):
    """Arguments of the operator, for a batch of one."""
    given = [(changed.get(name, getattr(pair, name)))[None] for name in NAMES]
    times = pair.x_times[None], pair.y_times[None]
    return *given[:2], None, None, *times, *given[2:], pair.subsequence, pair.huber, nodes, refinements


def solve(pair, **options):
    value, warp, holds = _gdtw(*arguments(pair, **options))
    return value[0], warp[0], holds[0]


def assert_feasible(pair, warp, tolerance=1e-9):
    lower, upper = pair.bounds()
    slopes, slack = warp.diff() / pair.x_times.diff(), tolerance * len(warp)
    assert (warp >= lower - tolerance).all()
    assert (warp <= upper + tolerance).all()
    assert (slopes >= pair.slope_min - slack).all()
    assert (slopes <= pair.slope_max + slack).all()


@pytest.mark.parametrize("options", [{}, {"subsequence": True, "slope": (0.5, 1.5)}, {"huber": 0.4}], ids=str)
def test_operator(options):
    given = arguments(random_pair(3, n=7, m=5, **options))
    learned = (0, 1, 6)
    given = tuple(a.clone().requires_grad_() if i in learned else a for i, a in enumerate(given))

    def differentiable(*changed):  # the third output holds integers
        return _gdtw(*changed)[:2]

    check_op(torch.ops.likewise.gdtw.default, given, gradient=False)
    assert torch.autograd.gradcheck(differentiable, given)
    value, warp, holds = (each.detach() for each in _gdtw(*given))
    plain = tuple(a.detach() if isinstance(a, torch.Tensor) else a for a in given)
    solution = (torch.ones_like(value), torch.ones_like(warp), warp, holds)
    check_op(torch.ops.likewise.gdtw_grad.default, (*solution, *plain), gradient=False)


def test_there_is_no_second_derivative():
    pair = random_pair(0)
    y = pair.y.clone().requires_grad_()
    value, warp, _ = _gdtw(*arguments(pair, y=y))
    (grad,) = torch.autograd.grad(value.sum() + warp.sum(), y, create_graph=True)
    with pytest.raises(NotImplementedError, match="gdtw: the second derivative is not implemented"):
        grad.sum().backward()


def batch_of(pairs):
    """Arguments of ``gdtw`` for pairs of unequal lengths; the padding holds NaN."""
    lengths = [torch.tensor([len(getattr(pair, name)) for pair in pairs]) for name in ("x", "y")]

    def padded(name):
        rows = [getattr(pair, name) for pair in pairs]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=math.nan)

    given = {name: padded(name) for name in NAMES[3:]} | {"reg": torch.stack([pair.reg for pair in pairs])}
    return (padded("x"), padded("y"), *lengths), given | {"times_x": padded("x_times"), "times_y": padded("y_times")}


def test_a_batch_is_its_pairs(instruction_set):
    pairs = [random_pair(seed, n=5 + 3 * seed, m=20 - 2 * seed, band=0.3, reg=0.1 * seed + 0.01) for seed in range(7)]
    given, named = batch_of(pairs)
    value, warp = gdtw(*given, **named)
    for b, pair in enumerate(pairs):
        single, phi, _ = solve(pair, refinements=2)
        assert torch.equal(value[b], single)
        assert torch.equal(warp[b, : len(phi)], phi)
        assert warp[b, len(phi) :].isnan().all()


def test_gradients_of_a_batch_are_those_of_its_pairs():
    pairs = [random_pair(seed, n=5 + 3 * seed, m=20 - 2 * seed, slope=(0.3, 3.0), band=0.3) for seed in range(7)]
    (x, y, *lengths), named = batch_of(pairs)
    leaves = {"x": x, "y": y} | {name: named[name] for name in NAMES[2:]}
    leaves = {name: leaf.requires_grad_() for name, leaf in leaves.items()}
    value, warp = gdtw(leaves["x"], leaves["y"], *lengths, **(named | {name: leaves[name] for name in NAMES[2:]}))
    loss = value.sum() + warp.nan_to_num(0).square().sum()
    grads = dict(zip(NAMES, torch.autograd.grad(loss, list(leaves.values())), strict=True))
    for b, pair in enumerate(pairs):
        single = {name: getattr(pair, name).clone().requires_grad_() for name in NAMES}
        v, phi, _ = solve(pair, refinements=2, **single)
        for name, grad in zip(NAMES, torch.autograd.grad(v + phi.square().sum(), list(single.values())), strict=True):
            found = grads[name][b]
            assert torch.equal(found[: len(grad)] if grad.ndim else found, grad), name
            assert grad.ndim == 0 or (found[len(grad) :] == 0).all(), "the padding"


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_solutions_equal_the_reference(options):
    for seed in range(4):
        pair = random_pair(seed, **options)
        expected = reference.grid_search(pair, reference.default_nodes(len(pair.y)))
        expected, segments, active = reference.polish(pair, expected)
        value, warp, _ = solve(pair)
        assert_close(value, reference.objective(pair, warp), 1e-12, "the value is the objective")
        assert_close(value, reference.objective(pair, expected), 1e-9, "value")
        assert_close(warp, expected, 1e-8, "warp")
        # The derivative, from a dense null space.
        weights = torch.from_numpy(np.random.default_rng(seed).standard_normal(len(warp)))
        leaves = {name: getattr(pair, name).clone().requires_grad_() for name in NAMES}
        _, phi, _ = solve(pair, **leaves)
        grads = torch.autograd.grad(phi @ weights, list(leaves.values()))
        truth = reference.vector_jacobian(pair, expected, segments, active, weights)
        for name, grad in zip(NAMES, grads, strict=True):
            assert_close(grad, truth[name], 1e-6, f"gradient of {name}", scale=1e-3)


def test_instruction_sets_agree(instruction_set, monkeypatch):
    for seed, options in enumerate(OPTIONS):
        pair = random_pair(seed, **{"n": 40, "m": 30, **options})
        value, warp, holds = solve(pair)
        monkeypatch.setattr(cpu, "INSTRUCTION_SET", "baseline")
        expected = solve(pair)
        monkeypatch.setattr(cpu, "INSTRUCTION_SET", instruction_set)
        assert_close(value, expected[0], 1e-12, "value")
        assert_close(warp, expected[1], 1e-9, "warp")
        assert torch.equal(holds, expected[2])


@pytest.mark.parametrize("options", [{}, {"slope": (0.3, 2.2)}, {"band": 0.3}, {"subsequence": True}], ids=str)
def test_the_grid_search_of_the_reference_is_exhaustive(options):
    pair = random_pair(1, n=4, m=4, **options)
    low, high = reference.envelope(pair, *pair.bounds())
    grid = low[:, None] + (high - low)[:, None] * torch.linspace(0, 1, 7, dtype=torch.float64)
    best = math.inf
    for nodes in itertools.product(range(7), repeat=4):
        warp = grid[torch.arange(4), torch.tensor(nodes)]
        slopes = warp.diff() / pair.x_times.diff()
        if (slopes >= pair.slope_min - 1e-9).all() and (slopes <= pair.slope_max + 1e-9).all():
            best = min(best, reference.objective(pair, warp).item())
    assert reference.objective(pair, reference.grid_search(pair, 7, 0)).item() == pytest.approx(best, rel=1e-12)
    passes = [reference.objective(pair, reference.grid_search(pair, 7, k)).item() for k in range(4)]
    assert passes == sorted(passes, reverse=True)


@pytest.mark.parametrize("slope", [(0.0, math.inf), (0.5, 1.7), (0.95, 1.05), (1.0, 1.0)], ids=str)
@pytest.mark.parametrize("subsequence", [False, True])
def test_the_solver_on_the_grid_misses_nothing(slope, subsequence):
    # Fine grids of both solvers find the same basin, also through windows that hold hardly a node.
    for seed in range(3):
        pair = random_pair(seed, n=9, m=8, slope=slope, subsequence=subsequence, reg=0.02)
        expected, _, _ = reference.polish(pair, reference.grid_search(pair, 101, 2))
        value, warp, _ = solve(pair, nodes=101, refinements=2)
        assert_feasible(pair, warp)
        assert_close(value, reference.objective(pair, expected), 1e-8, "value")


def minimise_further(pair, warp):
    """The objective that SLSQP reaches from a warp."""
    optimize = pytest.importorskip("scipy.optimize")
    lower, upper = pair.bounds()
    steps = pair.x_times.diff()
    moves = torch.diff(torch.eye(len(warp)).double(), dim=0).numpy()
    finite = pair.slope_max.isfinite().numpy()
    constraints = [
        {"type": "ineq", "fun": lambda z: moves @ z - (pair.slope_min * steps).numpy(), "jac": lambda z: moves},
        {
            "type": "ineq",
            "fun": lambda z: ((pair.slope_max * steps).numpy() - moves @ z)[finite],
            "jac": lambda z: -moves[finite],
        },
    ]

    def value(z):
        return reference.objective(pair, torch.from_numpy(z)).item()

    def gradient(z):
        return torch.func.grad(lambda w: reference.objective(pair, w))(torch.from_numpy(z)).numpy()

    found = optimize.minimize(
        value,
        warp.numpy(),
        jac=gradient,
        method="SLSQP",
        bounds=list(zip(lower.tolist(), upper.tolist(), strict=True)),
        constraints=constraints if finite.any() else constraints[:1],
        options={"maxiter": 100, "ftol": 1e-12},
    )
    feasible = torch.from_numpy(found.x).clamp(lower, upper)
    assert_feasible(pair, feasible, 1e-6)
    return value(feasible.numpy())


@pytest.mark.filterwarnings("ignore:Values in x were outside bounds")
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_slsqp_finds_nothing_better_nearby(options):
    for seed in range(3):
        pair = random_pair(seed + 10, **{"n": 25, "m": 20, **options})
        value, warp, _ = solve(pair)
        assert_feasible(pair, warp)
        assert value.item() <= minimise_further(pair, warp) * (1 + 1e-4)


@pytest.mark.parametrize("kind", ["related", "walks"])
def test_never_worse_than_the_gdtw_package(kind):
    peer = pytest.importorskip("gdtw")
    rng = np.random.default_rng(0)
    for n in (30, 101):
        for _ in range(4):
            x, y = rng.standard_normal((2, n)).cumsum(1)
            if kind == "related":
                x = np.interp(np.linspace(0, 1, n) ** 1.6, np.linspace(0, 1, n), y) + 0.2 * rng.standard_normal(n)
            # It scales signals to [-1, 1]: these are already.
            x, y = (2 * (z - z.min()) / (z.max() - z.min()) - 1 for z in (x, y))
            for settings in ({}, {"lambda_cum": 0.0}):
                theirs = peer.GDTW().set_params({"x": y, "y": x, **settings}).run()
                times = torch.from_numpy(theirs.t)
                pair = pair_of(*(torch.from_numpy(z)[:, None] for z in (x, y)), times, times, theirs.lambda_inst)
                value, _, _ = solve(pair)
                assert value <= reference.objective(pair, torch.from_numpy(theirs.tau)) * (1 + 1e-12)


def test_long_signals_are_stationary():
    # Too long for the reference: what is left of the gradient must be what active constraints hold.
    for options in ({}, {"slope": (0.5, 2.0)}, {"band": 0.05}, {"subsequence": True}, {"reg": 30.0}, {"reg": 1e-5}):
        pair = random_pair(0, n=300, m=250, channels=2, **options)
        _, warp, holds = solve(pair)
        assert_feasible(pair, warp)
        gradient = torch.func.grad(reference.objective, 1)(pair, warp, holds[:, 0].long())
        held, tied = holds[:, 1] & 3, holds[:, 1] & 12
        begin = 0
        for i in range(1, 251):
            if i == 250 or not tied[i - 1]:  # knots begin..i-1 move as one
                if not held[begin:i].any():
                    assert abs(gradient[begin:i].sum()) < 1e-10 * max(1, gradient.abs().max())
                begin = i


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_shifted_times_shift_the_warp(options):
    pair = random_pair(5, **options)
    value, warp, holds = solve(pair)
    shift = 1e5
    times = {"x_times": pair.x_times - shift, "y_times": pair.y_times + shift}
    found = solve(replace(pair, **times, lower=pair.lower + shift, upper=pair.upper + shift))
    assert_close(found[0], value, 1e-8, "value")
    assert_close(found[1] - shift, warp, 1e-8, "warp")
    assert torch.equal(found[2][:, 1], holds[:, 1])


def test_a_coarse_grid_is_refined_until_it_is_as_fine_as_y():
    for options in ({"reg": 1.0}, {"reg": 1.0, "huber": 0.5}, {"subsequence": True}):
        pair = random_pair(0, n=600, m=500, channels=2, **options)
        fine, coarse = solve(pair)[0], solve(pair, nodes=21, refinements=0)[0]
        assert coarse <= 1.2 * fine


def test_the_number_of_threads_changes_nothing():
    given, named = batch_of([random_pair(seed, n=60, m=50) for seed in range(9)])
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        single = gdtw(*given, **named)
    finally:
        torch.set_num_threads(before)
    for a, b in zip(single, gdtw(*given, **named), strict=True):
        assert torch.equal(a, b)


def smooth_pair(seed):
    """A finely sampled curve with many channels, whose kinks are too weak to hold a knot; noise keeps losses up."""
    rng = np.random.default_rng(seed)
    time = spread(0, 1, 101)
    y = torch.stack(
        [torch.sin(f * time + p) for f, p in zip(rng.uniform(2, 9, 4), rng.uniform(0, 6, 4), strict=True)], 1
    )
    knots = spread(0, 1, 9)
    x = y[(100 * knots**1.4).round().long()] + 0.2 * torch.from_numpy(rng.standard_normal((9, 4)))
    return pair_of(x, y, knots, time, 0.5, (0.05, 3.0), 0.4)


def kinked_pair(seed):
    return random_pair(seed, n=20, m=15, channels=1, slope=(0.05, 6.0), band=0.5, reg=0.05)


def flat_pair(seed):
    """Stretches in which x, y or both are constant."""
    rng = np.random.default_rng(seed)
    y = torch.from_numpy(rng.standard_normal((8, 2)).cumsum(0)).repeat_interleave(
        torch.tensor([1, 3, 1, 2, 1, 3, 1, 1]), 0
    )
    x = y[[0, 1, 1, 4, 5, 5, 9, 12]] + 0.3 * torch.from_numpy(rng.standard_normal((8, 1)))
    times = spread(0, 1, 8), spread(0, 1, 13)
    return pair_of(x, y, *times, 0.05, (0.1, 4.0), 0.5)


def bounded_pair(seed):
    """Bounds and slopes that bind next to the ends, in a subsequence for every other seed."""
    return random_pair(seed, channels=2, slope=(0.6, 1.4), band=0.06, reg=0.01, subsequence=seed % 2 == 1)


FAMILIES = {"smooth": smooth_pair, "kinked": kinked_pair, "flat": flat_pair, "bounded": bounded_pair}


def kinks(pair, warp):
    inside = warp[1:-1]
    return int((inside[:, None] == pair.y_times[None]).any(1).sum())


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_equal_central_differences(family):
    step, compared, skipped, kinked, active = 1e-6, 0, 0, 0, dict.fromkeys(NAMES, 0)
    for seed in range(12):
        pair, rng = FAMILIES[family](seed), np.random.default_rng(seed)
        leaves = {name: getattr(pair, name).clone().requires_grad_() for name in NAMES}
        value, warp, holds = solve(pair, **leaves)
        kinked += kinks(pair, warp.detach())
        weights = torch.from_numpy(rng.standard_normal(len(warp)))
        grads = [torch.autograd.grad(z, list(leaves.values()), retain_graph=True) for z in (warp @ weights, value)]
        for k, name in enumerate(NAMES):
            way = torch.from_numpy(np.asarray(rng.standard_normal(getattr(pair, name).shape)))
            ahead, behind = (solve(pair, **{name: getattr(pair, name) + sign * step * way}) for sign in (1, -1))
            if not (torch.equal(ahead[2], holds) and torch.equal(behind[2], holds)):
                skipped += 1  # the derivative jumps nearby
                continue
            compared += 1
            slopes = (ahead[1] - behind[1]) @ weights / (2 * step), (ahead[0] - behind[0]) / (2 * step)
            for grad, slope in zip(grads, slopes, strict=True):
                found = (grad[k] * way).sum()
                assert abs(found - slope) <= 1e-4 * max(abs(slope), 1e-3), (seed, name, found.item(), slope.item())
            active[name] += int(slopes[0].abs() > 1e-6)
    assert skipped <= 0.05 * compared
    assert all(active[name] >= 8 for name in ("x", "y", "reg"))
    if family == "smooth":
        assert kinked <= 2
    if family == "kinked":
        assert kinked >= 12
    if family == "bounded":
        assert all(count >= 3 for count in active.values()), active


@pytest.mark.parametrize("family", FAMILIES)
def test_the_value_has_the_envelopes_derivative(family):
    for seed in range(6):
        pair = FAMILIES[family](seed)
        leaves = {name: getattr(pair, name).clone().requires_grad_() for name in NAMES[:3]}
        value, warp, _ = solve(pair, **leaves)
        found = torch.autograd.grad(value, list(leaves.values()))
        fixed = reference.objective(Pair(**{**pair.__dict__, **leaves}), warp.detach())
        for a, b in zip(found, torch.autograd.grad(fixed, list(leaves.values())), strict=True):
            assert_close(a, b, 1e-6, "gradient at the solution, held fixed")
        # ... which is the whole derivative: what the warp adds is zero where nothing holds it.
        slope = torch.func.grad(lambda w, pair=pair: reference.objective(pair, w))(warp.detach())
        through = torch.autograd.grad(solve(pair, **leaves)[1] @ slope, list(leaves.values()))
        for a, b in zip(through, found, strict=True):
            assert a.abs().max() <= 1e-6 * max(1, b.abs().max())


def test_knots_on_kinks_and_merged_knots_do_not_move():
    # SPEC 2.4: phi = (0, 0, 0, ...) has dependent active constraints; the exact derivative of what they hold is 0.
    y = torch.tensor([0.0, 1.0, 2.0, 3.0, 5.0]).double()[:, None]
    x = torch.tensor([0.0, -1.0, -1.0, 2.0, 5.0]).double()[:, None]
    times = spread(0, 1, 5)
    pair = pair_of(x, y, times, times, 0.01)
    leaf = x.clone().requires_grad_()
    _, warp, _ = solve(pair, x=leaf)
    assert (warp[:3] == 0).all()
    (grad,) = torch.autograd.grad(warp[3], leaf)
    assert (grad[:3] == 0).all()
    assert grad[3] > 0


def test_a_flat_reference_has_a_finite_derivative():
    # The position of the subsequence in y is arbitrary: all shifts have the same cost, and the derivative omits them.
    y, times = torch.full((6, 1), 2.0).double(), spread(0, 1, 6)
    pair = pair_of(torch.zeros(4, 1).double(), y, spread(0.0, 0.4, 4), times, subsequence=True)
    leaves = {name: getattr(pair, name).clone().requires_grad_() for name in NAMES}
    value, warp, _ = solve(pair, **leaves)
    assert value.item() == pytest.approx(4 * 0.4)
    assert_close(warp.diff(), torch.tensor([0.4 / 3] * 3, dtype=torch.float64), 1e-9, "slope 1")
    for loss in (warp.sum(), warp @ torch.arange(4.0).double(), value):
        grads = torch.autograd.grad(loss, list(leaves.values()), retain_graph=True)
        assert all(grad.isfinite().all() for grad in grads)
    assert torch.autograd.grad(warp.sum(), leaves["y"], retain_graph=True)[0].abs().max() < 1e-12


def test_a_broken_pair_is_named():
    pairs = [random_pair(seed) for seed in range(3)]
    (x, y, x_lengths, y_lengths), named = batch_of(pairs)
    y[1, 4, 2] = math.inf
    with pytest.raises(ValueError, match=r"gdtw: y\[1\] holds inf at step 4, channel 2"):
        gdtw(x, y, x_lengths, y_lengths, **named)
    with pytest.raises(ValueError, match=r"gdtw: expected reg of shape \(3,\), got \(2,\)"):
        gdtw(x, y, x_lengths, y_lengths, **(named | {"reg": named["reg"][:2]}))
    with pytest.raises(TypeError, match="gdtw: expected lower to be floating point"):
        gdtw(x, y, x_lengths, y_lengths, **(named | {"lower": torch.zeros(3, 9, dtype=torch.int64)}))
    with pytest.raises(ValueError, match=r"gdtw: y_lengths\[0\] is 99; lengths must be between 1 and 12"):
        gdtw(x, y, x_lengths, torch.tensor([99, 1, 1]), **named)


def test_values_that_overflow_are_refused():
    pair = random_pair(0)
    with pytest.raises(ValueError, match="gdtw: the value of pair 0 is not finite: its losses overflow"):
        solve(pair, y=pair.y * 1e200)
