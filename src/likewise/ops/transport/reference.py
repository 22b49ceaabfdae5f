"""Entropic transport in plain PyTorch, in float64 and in the log domain: the reference for the kernels.

A plan is T_ij = exp(L_ij + f_i + g_j), where L is the log-kernel and f, g are potentials that give it its marginals.
"""

import torch
from torch import Tensor

from likewise.ops.transport.settings import Settings

NOTHING = -1e30  # the log-kernel in the padding; finite, to avoid NaN in derivatives
STAGE = 4.0  # the kernel sharpens by this factor from stage to stage
FIRST_SPREAD = 64.0  # the log-kernel's spread in the first stage
CLOSE = 0.02  # the marginal error at which a stage ends
SHORT = 0.5  # the range of a step that is taken whole
ENOUGH, BACK = 1e-4, 0.25  # the gain of other steps, as a share of what their slope promises, or they are shortened


def positions(lengths: Tensor, steps: int) -> Tensor:
    """Positions (B, T), i / length with i from 1."""
    return torch.arange(1, steps + 1, dtype=torch.float64, device=lengths.device) / lengths[:, None]


def slopes(n: Tensor, m: Tensor, rows: int, columns: int, settings: Settings) -> Tensor:
    """d L / d cost, (B, N, M): -(1 + time_weight |t|) / reg."""
    t = positions(n, rows)[:, :, None] - positions(m, columns)[:, None]
    return -(1 + settings.time_weight * t.abs()) / settings.reg


def log_kernel(cost: Tensor, n: Tensor, m: Tensor, settings: Settings) -> Tensor:
    """L (B, N, M) of costs (B, N, M) whose first n rows and m columns are real, in float64."""
    rows, columns = cost.shape[1:]
    t = positions(n, rows)[:, :, None] - positions(m, columns)[:, None]
    inside = real(n, rows)[:, :, None] & real(m, columns)[:, None]
    widths = (1 / n.double() ** 2 + 1 / m.double() ** 2)[:, None, None]
    log_prior = settings.inverse_difference / settings.reg / (t.square() + 1)
    log_prior = log_prior - t.square() / widths / (2 * settings.delta**2)
    slope = slopes(n, m, rows, columns, settings)
    return torch.where(inside, torch.where(inside, cost.double(), 0) * slope + log_prior, NOTHING)


def real(lengths: Tensor, steps: int) -> Tensor:
    """A mask (B, T) of the steps inside their sequences."""
    return torch.arange(steps, device=lengths.device) < lengths[:, None]


def uniform(lengths: Tensor, steps: int) -> Tensor:
    """Masses (B, T), 1 / length for each real step."""
    return real(lengths, steps) / lengths[:, None].double()


def row_potential(L: Tensor, a: Tensor, g: Tensor) -> Tensor:
    """f (B, N) that gives the rows their masses a."""
    return _balance(a, (L + g[:, None]).logsumexp(2))


def column_potential(L: Tensor, b: Tensor, f: Tensor) -> Tensor:
    """g (B, M) that gives the columns their masses b."""
    return _balance(b, (L + f[:, :, None]).logsumexp(1))


def _balance(mass: Tensor, total: Tensor) -> Tensor:
    return torch.where(mass > 0, torch.where(mass > 0, mass, 1).log() - total, 0)


def plan(L: Tensor, f: Tensor, g: Tensor) -> Tensor:
    """T (B, N, M)."""
    return (L + f[:, :, None] + g[:, None]).exp()


def marginal_error(T: Tensor, b: Tensor) -> Tensor:
    """(B,), the missing and excess mass of columns."""
    return (T.sum(1) - b).abs().sum(1)


def iterate(L: Tensor, a: Tensor, b: Tensor, n_iter: int) -> tuple[Tensor, Tensor]:
    """Potentials after n_iter Sinkhorn iterations: columns, then rows, from f = 0."""
    f, g = torch.zeros_like(a), torch.zeros_like(b)
    for _ in range(n_iter):
        g = column_potential(L, b, f)
        f = row_potential(L, a, g)
    return f, g


def converge(L: Tensor, a: Tensor, b: Tensor, tolerance: float, max_iter: int) -> tuple[Tensor, Tensor]:
    """Potentials at which the marginal error is at most tolerance, up to rounding.

    Sinkhorn's iteration and a Newton step on the semi-dual <b, g> - <a, logsumexp_j(L + g)> alternate. A step d that
    gains too little is shortened, at most to log(1 + r) / r of it, where r is its range: with that, the semi-dual
    cannot fall (Sun & Tran-Dinh, 2019, arXiv:1703.04599). A sharp kernel is solved in stages: the problem with L / 4
    has nearly the same potentials, divided by 4.
    """
    known = L > NOTHING / 2
    sizes = torch.where(known, L, 0)
    most, least = (torch.where(known, L, c).flatten(1) for c in (-torch.inf, torch.inf))
    spread = most.amax(1) - least.amin(1)
    share = (FIRST_SPREAD / spread.clamp(min=FIRST_SPREAD))[:, None, None]  # of L, in this stage
    rounding = 2 * torch.finfo(L.dtype).eps * sizes.abs().flatten(1).amax(1)
    f, g = torch.zeros_like(a), torch.zeros_like(b)
    for _ in range(max_iter):
        kernel = L * share
        g = column_potential(kernel, b, f)
        f = row_potential(kernel, a, g)
        T = plan(kernel, f, g)
        error, last = marginal_error(T, b), share.flatten() >= 1
        done = last & (error <= tolerance + rounding)
        if done.all():
            break
        d = newton_step(T, a, b)
        g = g + torch.where(done, 0, step_size(kernel, a, b, f, g, d, b - T.sum(1)))[:, None] * d
        sharper = torch.where((error <= CLOSE)[:, None, None], (STAGE * share).clamp(max=1), share)
        g = g * (sharper / share)[:, 0]
        share = sharper
        f = row_potential(L * share, a, g)
    return f, g


def step_size(L: Tensor, a: Tensor, b: Tensor, f: Tensor, g: Tensor, d: Tensor, slope: Tensor) -> Tensor:
    """The share (B,) of each pair's step d from g to take, where ``slope`` is the gradient of the semi-dual at g."""
    reach = (d.amax(1) - d.amin(1)).clamp(min=1e-12)
    safe, size = reach.log1p() / reach, torch.ones_like(reach)
    while True:
        ahead = g + size[:, None] * d
        gain = size * (b * d).sum(1) + (a * (row_potential(L, a, ahead) - f)).sum(1)
        enough = ~((reach > SHORT) & (size > safe)) | (gain >= ENOUGH * size * (slope * d).sum(1))
        if enough.all():
            return size
        size = torch.where(enough, size, torch.maximum(BACK * size, safe))


def solve(
    cost: Tensor, n: Tensor, m: Tensor, a: Tensor, b: Tensor, settings: Settings
) -> tuple[Tensor, Tensor, Tensor]:
    """Values (B,), plans (B, N, M) and marginal errors (B,) of costs and masses; padding of costs must be finite."""
    L = log_kernel(cost, n, m, settings)
    if settings.n_iter is not None:
        f, g = iterate(L, a, b, settings.n_iter)
    else:
        assert settings.tolerance is not None
        f, g = converge(L, a, b, settings.tolerance, settings.max_iter)
    T = plan(L, f, g)
    return (T * cost).sum((1, 2)), T, marginal_error(T, b)


def newton_step(T: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Solve (diag(T'1) - T' diag(1/a) T) d = b - T'1 for d (B, M), which sums to zero under b."""
    return _solve(T, a, b, T.sum(1), b - T.sum(1))


def adjoint(T: Tensor, a: Tensor, b: Tensor, T_grad: Tensor) -> Tensor:
    """The gradient with respect to L (B, N, M), from that with respect to the converged plan, by implicit derivatives.

    dT = T (dL + df + dg), and the marginals stay: with H = T T_grad and the symmetric system
    [diag(a) T; T' diag(b)] [p; q] = [H 1; H' 1], the gradient is H - T (p + q'). (p, q) = (1, -1) solves the system
    with zero on the right: after p is eliminated, adding b b' to the system for q selects one of the solutions.
    """
    H = T * T_grad
    rows, columns = H.sum(2), H.sum(1)
    share = T / torch.where(a > 0, a, 1)[:, :, None]
    q = _solve(T, a, b, b, columns - (share.mT @ rows[:, :, None])[:, :, 0])
    p = torch.where(a > 0, rows / torch.where(a > 0, a, 1), 0) - (share @ q[:, :, None])[:, :, 0]
    return H - T * (p[:, :, None] + q[:, None])


def iterate_adjoint(L: Tensor, a: Tensor, b: Tensor, n_iter: int, T_grad: Tensor) -> Tensor:
    """The gradient with respect to L from that with respect to the plan after n_iter iterations, by backpropagation."""
    fs, gs = [torch.zeros_like(a)], []
    for _ in range(n_iter):
        gs.append(column_potential(L, b, fs[-1]))
        fs.append(row_potential(L, a, gs[-1]))
    L_grad = plan(L, fs[-1], gs[-1]) * T_grad
    f_grad, g_grad = L_grad.sum(2), L_grad.sum(1)
    for k in reversed(range(n_iter)):
        rows = torch.where(a > 0, f_grad, 0)[:, :, None] * (L + gs[k][:, None]).softmax(2)
        g_grad = torch.where(b > 0, g_grad - rows.sum(1), 0)
        columns = g_grad[:, None] * (L + fs[k][:, :, None]).softmax(1)
        L_grad = L_grad - rows - columns
        f_grad, g_grad = -columns.sum(2), torch.zeros_like(b)
    return L_grad


def _solve(T: Tensor, a: Tensor, b: Tensor, diagonal: Tensor, right: Tensor) -> Tensor:
    """Solve (diag(diagonal) - T' diag(1/a) T + b b') d = right; steps without mass get 0."""
    share = T / torch.where(a > 0, a, 1)[:, :, None]
    # For a nearly hard plan, the diagonal is dominated by rounding errors.
    diagonal = torch.where(b > 0, diagonal + 1e-13 * b, 1)
    system = torch.diag_embed(diagonal) - T.mT @ share + b[:, :, None] * b[:, None]
    factor, failed = torch.linalg.cholesky_ex(system)
    ridge = 1e-11
    while failed.any():
        system = system + torch.diag_embed(torch.where((failed > 0)[:, None], ridge * b, 0))
        factor, failed = torch.linalg.cholesky_ex(system)
        ridge *= 100
    return torch.cholesky_solve(right[:, :, None], factor)[:, :, 0]
