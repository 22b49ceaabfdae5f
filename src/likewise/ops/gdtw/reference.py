"""GDTW in plain torch, one pair at a time, dense and slow: the reference for the kernels.

``objective`` is the problem, ``grid_search`` its dynamic program with refinement, ``polish`` takes a warp to a point of
first-order optimality, and ``vector_jacobian`` differentiates that point implicitly.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Pair:
    """One problem without padding: y (n, C) at y_times (n,) is warped to meet x (m, C) at the knots x_times (m,).

    lower, upper (m,): bounds of the warp; slope_min, slope_max (m-1,): of its slope between knots. reg is lambda.
    """

    x: Tensor
    y: Tensor
    x_times: Tensor
    y_times: Tensor
    reg: Tensor
    lower: Tensor
    upper: Tensor
    slope_min: Tensor
    slope_max: Tensor
    subsequence: bool = False
    huber: float = torch.inf

    @property
    def stretch(self) -> Tensor:
        """The slope without a penalty: 1 for a subsequence, otherwise y's duration divided by x's."""
        if self.subsequence:
            return self.y_times.new_ones(())
        return (self.y_times[-1] - self.y_times[0]) / (self.x_times[-1] - self.x_times[0])

    @property
    def weights(self) -> Tensor:
        """(m,), the weights of the trapezoid rule."""
        steps = self.x_times.diff() / 2
        return torch.nn.functional.pad(steps, (0, 1)) + torch.nn.functional.pad(steps, (1, 0))

    def bounds(self) -> tuple[Tensor, Tensor]:
        """Bounds (m,) of the warp with y's span, and with the ends tied to it unless a subsequence is sought."""
        first, last = self.y_times[0], self.y_times[-1]
        lower, upper = self.lower.clamp(min=first), self.upper.clamp(max=last)
        if not self.subsequence:
            lower, upper = lower.clone(), upper.clone()
            lower[0] = upper[0] = first
            lower[-1] = upper[-1] = last
        return lower, upper

    def segments(self, warp: Tensor) -> Tensor:
        """(m,), the segment of y that contains each value; in case of ties, the one to the right."""
        return (
            torch.searchsorted(self.y_times, warp.detach().contiguous(), right=True).clamp(1, len(self.y_times) - 1) - 1
        )


def loss(pair: Pair, warp: Tensor, segments: Tensor | None = None) -> Tensor:
    """Losses (..., m) between y(warp) and x, warp (..., m); residuals beyond ``huber`` cost linearly."""
    k = pair.segments(warp) if segments is None else segments
    begin, end = pair.y_times[k], pair.y_times[k + 1]
    share = ((warp - begin) / (end - begin))[..., None]
    residual = (1 - share) * pair.y[k] + share * pair.y[k + 1] - pair.x
    small = residual.abs() <= pair.huber
    beyond = 2 * pair.huber * residual.abs() - pair.huber**2 if pair.huber < torch.inf else residual
    return torch.where(small, residual.square(), beyond).sum(-1)


def objective(pair: Pair, warp: Tensor, segments: Tensor | None = None) -> Tensor:
    """sum w_i L_i + lambda sum (slope_i - stretch)^2 Delta_i, differentiable in everything."""
    steps = pair.x_times.diff()
    slope = warp.diff() / steps
    return pair.weights @ loss(pair, warp, segments) + pair.reg * ((slope - pair.stretch).square() @ steps)


# The grid


def envelope(pair: Pair, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """The least and the greatest value that a warp within bounds and slope limits can take at each knot.

    Both are valid warps, and so is every convex combination: a grid between them always contains a path.
    """
    low, high, steps = lower.clone(), upper.clone(), pair.x_times.diff()
    least, most = pair.slope_min * steps, pair.slope_max * steps
    for i in range(len(steps)):
        low[i + 1] = torch.maximum(low[i + 1], low[i] + least[i])
        high[i + 1] = torch.minimum(high[i + 1], high[i] + most[i])
    for i in reversed(range(len(steps))):
        low[i] = torch.maximum(low[i], low[i + 1] - most[i])
        high[i] = torch.minimum(high[i], high[i + 1] - least[i])
    return low, torch.maximum(low, high)


@dataclass(frozen=True)
class Pass:
    """One pass of the solver over a grid: the values that the warp may take at the knots, and the best path in it.

    times: (m,), the knots. grid, costs: (m, M), the nodes and their costs. warp: (m,), the best path through them.
    value: its objective.
    """

    times: Tensor
    grid: Tensor
    costs: Tensor
    warp: Tensor
    value: Tensor


def default_nodes(steps: int) -> int:
    """Nodes of the grid for y of ``steps`` steps, an odd number: about as many, or more for fewer than 64 steps."""
    return (steps if steps >= 64 else max(50, min(3 * steps, 128))) | 1


def grid_search(pair: Pair, nodes: int, refinements: int = 3) -> Tensor:
    """The best warp (m,) of all passes on a grid of ``nodes`` values for each knot, refined around the solution."""
    return min(grid_passes(pair, nodes, refinements), key=lambda each: float(each.value)).warp


def grid_passes(pair: Pair, nodes: int, refinements: int = 3) -> Iterator[Pass]:
    """The passes of the search in order. Refined grids have half as many nodes, at least 51.

    The second grid is an eighth as wide as the first, but at least 10 steps of y: a narrower one has too few of the
    basins that the first could not distinguish. Each later grid is a quarter as wide as the one before.
    """
    bounds = pair.bounds()
    low, high = envelope(pair, *bounds)
    width, best = high - low, _best_path(pair, low, high, nodes)
    yield best
    nodes = min(nodes, max(nodes // 2, 50) | 1)
    share = min(max(10 / (len(pair.y) - 1), 1 / 8), 1 / 2)
    for level in range(refinements):
        half = share / 4**level * width / 2
        while True:
            lower, upper = torch.maximum(best.warp - half, bounds[0]), torch.minimum(best.warp + half, bounds[1])
            low, high = envelope(pair, lower, upper)
            found = _best_path(pair, low, high, nodes)
            yield found
            if found.value >= best.value:
                break
            best, warp = found, found.warp
            # The solution may be beyond the edge of its grid: the next grid is centred there, with the same width.
            near = 1.5 * (high - low) / (nodes - 1)
            rim = ((warp < low + near) & (low > bounds[0])) | ((warp > high - near) & (high < bounds[1]))
            if not rim.any():
                break


def _best_path(pair: Pair, low: Tensor, high: Tensor, nodes: int) -> Pass:
    """V_i(k) = w_i L_i(k) + min_j V_{i-1}(j) + edge(j, k), Bellman's recursion with all pairs (j, k) written out."""
    m, ramp = len(low), torch.linspace(0, 1, nodes, dtype=low.dtype)
    grid = low[:, None] + (high - low)[:, None] * ramp  # (m, M)
    costs = pair.weights[:, None] * loss(pair, grid.T).T
    steps, slack = pair.x_times.diff(), 1e-9 * (pair.y_times[-1] - pair.y_times[0]) / nodes
    value, came_from = costs[0], []
    for i in range(m - 1):
        move = grid[i + 1][None] - grid[i][:, None]  # (M, M), from j to k
        edge = pair.reg * (move / steps[i] - pair.stretch).square() * steps[i]
        outside = (move < pair.slope_min[i] * steps[i] - slack) | (move > pair.slope_max[i] * steps[i] + slack)
        reached, j = (value[:, None] + edge.masked_fill(outside, torch.inf)).min(0)
        value = reached + costs[i + 1]
        came_from.append(j)
    path = [int(value.argmin())]
    for j in reversed(came_from):
        path.append(int(j[path[-1]]))
    warp = grid[torch.arange(m), torch.tensor(path[::-1])]
    return Pass(pair.x_times, grid, costs, warp, objective(pair, warp))


# First-order optimality


def polish(pair: Pair, warp: Tensor, most: int = 200) -> tuple[Tensor, Tensor, Tensor]:
    """A stationary point (m,) that is not worse than ``warp``, its segments (m,), and its active constraints' rows.

    Between two times of y the objective is a convex quadratic (for Huber's loss: piecewise), so each knot is confined
    to a segment and the quadratic program solved exactly. A knot at the end of its segment moves on if the objective
    falls in the next segment; otherwise it is at a kink, a minimum like that of |y|.
    """
    segments = pair.segments(warp)
    for _ in range(most):
        rows, limits, is_kink = _constraints(pair, segments)
        before = warp
        gradient, hessian = _derivatives(pair, warp, segments)
        warp, active, multipliers = _quadratic_program(hessian, gradient - hessian @ warp, rows, limits, warp)
        if pair.huber < torch.inf:  # the curvature changes with the residuals
            warp = _search_line(pair, before, warp, segments)
        moved = _cross_kinks(pair, warp, segments, rows, active[is_kink[active]], multipliers[is_kink[active]])
        if not moved and (warp - before).abs().max() < 1e-11 * pair.y_times.diff().sum():
            return warp, segments, rows[active]
    raise RuntimeError("the polish did not end")


def _derivatives(pair: Pair, warp: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
    def value(w: Tensor) -> Tensor:
        return objective(pair, w, segments)

    return torch.func.grad(value)(warp), torch.func.hessian(value)(warp)


def _constraints(pair: Pair, segments: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows A and limits b of A warp <= b, and a mask of the rows that are kinks of y rather than bounds."""
    m, steps = len(segments), pair.x_times.diff()
    lower, upper = pair.bounds()
    begin, end = pair.y_times[segments], pair.y_times[segments + 1]
    unit = torch.eye(m, dtype=steps.dtype)
    step = unit[1:] - unit[:-1]
    rows = torch.cat([-unit, unit, -step, step])
    kinks = torch.cat([begin > lower, end < upper, torch.zeros(2 * m - 2, dtype=torch.bool)])
    limits = torch.cat(
        [-torch.maximum(begin, lower), torch.minimum(end, upper), -pair.slope_min * steps, pair.slope_max * steps]
    )
    finite = limits < torch.inf
    return rows[finite], limits[finite], kinks[finite]


def _quadratic_program(
    hessian: Tensor, linear: Tensor, rows: Tensor, limits: Tensor, start: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The least 1/2 z'Hz + c'z with A z <= b from a feasible start: primal active set, one change at a time.

    Of several constraints that could leave or enter, the first is chosen (Bland's rule), which prevents cycles.
    """
    point, active = start, list[int]()
    scale, force = 1 + point.abs().max(), 1 + linear.abs().max()
    for _ in range(50 * len(rows)):
        held = rows[active]
        system = torch.cat(
            [torch.cat([hessian, held.T], 1), torch.cat([held, held.new_zeros(len(held), len(held))], 1)]
        )
        right = torch.cat([-(hessian @ point + linear), held.new_zeros(len(held))])
        solution = torch.linalg.lstsq(system, right[:, None], driver="gelsd").solution[:, 0]
        step, multipliers = solution[: len(point)], solution[len(point) :]
        if step.abs().max() < 1e-11 * scale:
            pulls = (multipliers < -1e-12 * force).nonzero()
            if len(pulls) == 0:
                return point + step, torch.tensor(active, dtype=torch.int64), multipliers
            active.remove(min(active[int(k)] for k in pulls))
            continue
        speed = rows @ step
        room = (limits - rows @ point).clamp(min=0) / speed
        room[speed < 1e-9 * step.abs().max()] = torch.inf
        room[active] = torch.inf
        point = point + min(1.0, room.min().item()) * step
        if room.min() < 1:
            active.append(int((room <= room.min() + 1e-13).nonzero()[0]))
    raise RuntimeError("the active set did not converge")


def _search_line(pair: Pair, start: Tensor, end: Tensor, segments: Tensor) -> Tensor:
    value = objective(pair, start, segments)
    for share in 0.5 ** torch.arange(40, dtype=torch.float64):
        there = start + share * (end - start)
        if objective(pair, there, segments) <= value:
            return there
    return start


def _cross_kinks(pair: Pair, warp: Tensor, segments: Tensor, rows: Tensor, active: Tensor, multipliers: Tensor) -> bool:
    """Move knots into the next segment if the objective falls there (in place); return whether there were any."""
    moved = False
    for row, multiplier in zip(rows[active], multipliers, strict=True):
        knot = int(row.abs().argmax())
        side = int(row[knot])
        beyond = segments.clone()
        beyond[knot] += side
        here, there = (_derivatives(pair, warp, k)[0][knot] for k in (segments, beyond))
        if multiplier - side * (there - here) > 1e-11:
            segments[knot] += side
            moved = True
    return moved


# Implicit differentiation


def vector_jacobian(pair: Pair, warp: Tensor, segments: Tensor, active: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """Derivatives of <weights, warp> at a stationary point, by name; ``active`` (K, m) are its active rows.

    With N a basis of the directions that keep the active constraints and H the Hessian, u = N (N'HN)^-1 N' weights.
    Data enter by -u' d(gradient)/d(data); a limit b_k of active row a_k by the k-th entry of mu, A'mu = weights - H u.
    """
    _, hessian = _derivatives(pair, warp, segments)
    _, singular, directions = torch.linalg.svd(active, full_matrices=True)
    basis = directions[int((singular > 1e-9).sum()) :].T  # (m, free)
    response = basis @ torch.linalg.pinv(basis.T @ hessian @ basis, hermitian=True) @ (basis.T @ weights)
    data = {name: getattr(pair, name).detach().requires_grad_() for name in ("x", "y", "reg")}
    at = warp.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(objective(Pair(**{**pair.__dict__, **data}), at, segments), at, create_graph=True)
    found = torch.autograd.grad(-(gradient @ response), list(data.values()))
    result = dict(zip(data, found, strict=True))
    multipliers = torch.linalg.lstsq(active.T, (weights - hessian @ response)[:, None], driver="gelsd").solution[:, 0]
    result |= _limits(pair, warp, active, multipliers)
    return result


def _limits(pair: Pair, warp: Tensor, active: Tensor, multipliers: Tensor) -> dict[str, Tensor]:
    m, steps = len(warp), pair.x_times.diff()
    result = {name: torch.zeros_like(getattr(pair, name)) for name in ("lower", "upper", "slope_min", "slope_max")}
    lower, upper = pair.bounds()
    given = {-1: (pair.lower, lower, "lower"), 1: (pair.upper, upper, "upper")}
    for row, multiplier in zip(active, multipliers, strict=True):
        last = int(row.nonzero()[-1])
        side = int(row[last])
        if row.abs().sum() == 2:
            name = "slope_max" if side > 0 else "slope_min"
            result[name][last - 1] = side * multiplier * steps[last - 1]
            continue
        mine, used, name = given[side]
        free = pair.subsequence or 0 < last < m - 1
        if free and mine[last] == used[last] and abs(used[last] - warp[last]) < 1e-10:  # no kink, and not y's span
            result[name][last] = side * multiplier
    return result
