"""Flows: systems in continuous time, alone, coupled, and one driving the other."""

from collections.abc import Callable

import torch
from torch import Tensor

from likewise import _check
from likewise.dynamics.synchronization import PairStep

Field = Callable[[Tensor], Tensor]  # states (N, S) to their velocities (N, S), row by row


def flow(field: Field, dt: float = 0.01) -> Callable[[Tensor], Tensor]:
    """The map of states over a time dt, x(t) -> x(t + dt), of dx/dt = field(x): one Runge-Kutta step of fourth order.

    Its Lyapunov exponents are per step; divided by dt, they are those of the flow, per unit of time.

    Example:
        >>> step = flow(lambda x: -x, 0.1)
        >>> step(torch.ones(1, 1, dtype=torch.float64))  # e^-0.1
        tensor([[0.9048]], dtype=torch.float64)
    """
    length = _check.positive("flow", "dt", dt)

    def step(x: Tensor) -> Tensor:
        a = field(x)
        b = field(x + length / 2 * a)
        c = field(x + length / 2 * b)
        return x + length / 6 * (a + 2 * b + 2 * c + field(x + length * c))

    return step


def couple_flow(field: Field, coupling: float | Tensor, dt: float = 0.01, *, one_way: bool = False) -> PairStep:
    """Couple two copies of a flow: da/dt = f(a) + C (b - a), db/dt = f(b) + C (a - b).

    For C = c I, the exponents transverse to synchrony are those of f less 2 c: the pair synchronises if c > lambda_L /
    2 (Fujisaka & Yamada, 1983; equation 7 of the coupled-GRU paper). One way, only b is pulled, and the threshold is
    lambda_L.

    field: a differentiable function of states (N, S).
    coupling: c, a number or, for each unit of the state, (S,); or the matrix C (S, S).
    dt: the length of a step, see ``flow``. one_way: only a acts on b.

    Example:
        >>> pair = couple_flow(lorenz, 1.0)  # the exponent of lorenz is about 0.9
        >>> a, b = torch.tensor([[1.0, 1, 20]]), torch.tensor([[-5.0, 2, 30]])
        >>> from likewise.dynamics.synchronization import follow, synchronization_error
        >>> synchronization_error(*follow(pair, a, b, steps=3000))[0, -1] < 1e-3
        tensor(True)
    """
    C = coupling if isinstance(coupling, Tensor) else torch.tensor(_check.number("couple_flow", "coupling", coupling))
    if C.ndim > 2 or (C.ndim == 2 and C.shape[0] != C.shape[1]):
        _check.refuse("couple_flow", f"expected coupling to be a number, (S,) or (S, S), got {tuple(C.shape)}")

    def pull(difference: Tensor) -> Tensor:
        c = C.to(difference)
        return difference @ c.T if c.ndim == 2 else c * difference

    def velocities(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        toward = pull(b - a)
        return field(a) if one_way else field(a) + toward, field(b) - toward

    return _pair_step(velocities, dt)


def drive_response(field: Field, driven: int | tuple[int, ...], dt: float = 0.01) -> PairStep:
    """One flow drives the other by complete replacement: the response copies the driven units.

    a follows da/dt = f(a); b has b_i = a_i for every driven unit i at all times, and follows f in the others. They
    synchronise if the conditional exponents, those of ``transverse_lyapunov``, are negative. The driven units have no
    difference, and their exponents are minus infinity, up to rounding.

    Reference: Pecora & Carroll (1990), Synchronization in chaotic systems, Physical Review Letters 64, 821-824.

    Example:
        >>> from likewise.dynamics.lyapunov import transverse_lyapunov
        >>> start = torch.tensor([1.0, 1.0, 20.0], dtype=torch.float64)
        >>> pair = drive_response(lorenz, 1)  # y drives x and z, whose exponents are -10 and -8/3
        >>> transverse_lyapunov(pair, start, steps=50, burn_in=20, count=2).sum() / 0.01
        tensor(-12.6667, dtype=torch.float64)
    """
    units = [driven] if isinstance(driven, int) else list(driven)
    if not units:
        _check.refuse("drive_response", "expected driven to hold the index of at least one unit")

    def replaced(a: Tensor, b: Tensor) -> Tensor:
        mask = torch.zeros(b.shape[1], dtype=torch.bool, device=b.device)
        mask[units] = True
        return torch.where(mask, a, b)

    def velocities(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return field(a), field(replaced(a, b))

    free = _pair_step(velocities, dt)

    def step(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        after, response = free(a, replaced(a, b))
        return after, replaced(after, response)

    return step


def lorenz(x: Tensor, sigma: float = 10.0, rho: float = 28.0, beta: float = 8 / 3) -> Tensor:
    """The velocities of Lorenz's system, (N, 3): sigma (y - x), x (rho - z) - y, x y - beta z.

    With these constants it is chaotic, with exponents of about 0.906, 0 and -14.57.

    Example:
        >>> lorenz(torch.tensor([[1.0, 2.0, 3.0]]))
        tensor([[10., 23., -6.]])
    """
    first, second, third = x.unbind(-1)
    return torch.stack([sigma * (second - first), first * (rho - third) - second, first * second - beta * third], -1)


def _pair_step(velocities: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], dt: float) -> PairStep:
    """Both sides over a time dt as one system."""

    def field(both: Tensor) -> Tensor:
        return torch.cat(velocities(*both.chunk(2, 1)), 1)

    whole = flow(field, dt)

    def step(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        first, second = whole(torch.cat([a, b], 1)).chunk(2, 1)
        return first, second

    return step
