"""Lyapunov exponents by repeated QR decompositions."""

from collections.abc import Callable

import torch
from torch import Tensor

from likewise import _check
from likewise.dynamics.recurrence import recurrence

PairStep = Callable[..., tuple[Tensor, Tensor]]
Linearised = Callable[[Tensor, Tensor | None], tuple[Tensor, Tensor]]


def lyapunov(
    system: object,
    state: Tensor | None = None,
    *,
    inputs: Tensor | None = None,
    steps: int = 2000,
    burn_in: int = 500,
    count: int | None = None,
    seed: int = 0,
) -> Tensor:
    """Lyapunov exponents of a recurrent system, largest first: how fast close states diverge, in nats per step.

    lambda_i = 1/T sum over t of log |R_t,ii| with Q_t R_t = QR(J_t Q_{t-1}) and J_t = d h_t / d h_{t-1}. A positive
    largest exponent means chaos; a negative one means that the initial state is forgotten.

    system: a torch.nn.RNN, GRU or LSTM, one of their cells, or a differentiable function from states (N, S) to states
        (N, S) that treats rows independently. A module without inputs is run with zero input (its induced system).
    state: the initial state, (S,) or, for several trajectories, (N, S); by default random in [-1, 1].
    inputs: (T, C), the same for all, or (N, T, C): gives the exponents of the driven system over these T steps. The
        first ``burn_in`` do not count; ``steps`` is ignored. A function is then called with (states, inputs (N, C)).
    steps, burn_in: the steps that count, and the steps before them in which states and directions converge.
    count: the number of exponents; all S by default. seed: for the initial state and the first directions.

    Returns (count,), or (N, count) for states (N, S). Each step takes one forward and one backward pass over N S
    states, and memory for N S^2 numbers. Exponents are finite-time estimates: repeat with other seeds to see their
    spread.

    Reference: Benettin et al. (1980), Meccanica 15, 9-20; for GRUs, Laurent & von Brecht (2016), arXiv:1612.06212.

    Example:
        >>> logistic = lambda h: 4 * h * (1 - h)
        >>> starts = torch.linspace(0.01, 0.99, 999, dtype=torch.float64)[:, None]  # 999 trajectories
        >>> float(lyapunov(logistic, starts, steps=30, burn_in=5).mean())  # ln 2
        0.69...
    """
    chosen = recurrence(system)

    def linearised(states: Tensor, given: Tensor | None) -> tuple[Tensor, Tensor]:
        """The next states (N, S), and the Jacobians (N, S, S)."""
        copies, repeated = _copies(states, given)
        after = chosen(copies, repeated)
        _check_step("lyapunov", after, copies)
        return _own_rows(after, states), _rows_of_jacobian(after, copies, states)

    return _exponents("lyapunov", linearised, chosen.size, chosen.like, state, inputs, steps, burn_in, count, seed)


def transverse_lyapunov(
    pair_step: PairStep,
    state: Tensor,
    *,
    inputs: Tensor | None = None,
    steps: int = 2000,
    burn_in: int = 500,
    count: int | None = None,
    seed: int = 0,
) -> Tensor:
    """Lyapunov exponents transverse to synchrony of two coupled systems: they synchronise if all are negative.

    For a pair step (a, b) -> (a', b'), a small difference e = b - a near a = b follows e' = (B - A) e with B = d b' / d
    b and A = d a' / d b. Its exponents are computed as in ``lyapunov``, along the trajectory of a. Where a drives b,
    these are the conditional exponents of b.

    pair_step: a differentiable function of two states (N, S) and, if ``inputs`` are given, of inputs (N, C) for both;
        ``couple`` makes one from any system and a constant coupling, ``couple_flow`` and ``drive_response`` from flows.
    Other arguments and the result as in ``lyapunov``.

    For maps coupled as a' = (1 - c) F(a) + c F(b) the results are the exponents of F plus log |1 - 2c|: they
    synchronise if c > (1 - exp(-lambda_L)) / 2. This is the discrete counterpart of the condition c > lambda_L / 2 for
    flows (Fujisaka & Yamada, 1983; equation 7 of the coupled-GRU paper); for small lambda_L they agree.

    Example:
        >>> from likewise.dynamics.synchronization import couple
        >>> logistic = lambda h: 4 * h * (1 - h)
        >>> starts = torch.linspace(0.01, 0.99, 999, dtype=torch.float64)[:, None]
        >>> float(transverse_lyapunov(couple(logistic, 0.3), starts, steps=30, burn_in=5).mean())  # ln 2 + ln 0.4
        -0.22...
    """

    def linearised(states: Tensor, given: Tensor | None) -> tuple[Tensor, Tensor]:
        second, repeated = _copies(states, given)
        first = second.detach()
        after, other = pair_step(first, second) if repeated is None else pair_step(first, second, repeated)
        for side in (after, other):
            _check_shape("transverse_lyapunov", side, first)
        difference = other - after
        _check_step("transverse_lyapunov", difference, first)
        return _own_rows(after, states), _rows_of_jacobian(difference, second, states)

    like = _check.is_tensor("transverse_lyapunov", "state", state)
    return _exponents(
        "transverse_lyapunov", linearised, like.shape[-1] if like.ndim else None, like, state, inputs, steps, burn_in,
        count, seed,
    )  # fmt: skip


def _exponents(
    op: str,
    linearised: Linearised,
    size: int | None,
    like: Tensor,
    state: Tensor | None,
    inputs: Tensor | None,
    steps: int,
    burn_in: int,
    count: int | None,
    seed: int,
) -> Tensor:
    steps, burn_in = _check.whole(op, "steps", steps), _check.whole(op, "burn_in", burn_in, least=0)
    generator = torch.Generator().manual_seed(_check.whole(op, "seed", seed, least=0))
    states = _start(op, state, size, like, generator)
    inputs = _read_inputs(op, inputs, states, burn_in)
    total = burn_in + steps if inputs is None else inputs.shape[1]
    kept = states.shape[1] if count is None else _check.whole(op, "count", count, most=states.shape[1])
    directions = torch.randn(*states.shape, kept, generator=generator, dtype=torch.float64).to(states)  # (N, S, K)
    directions = torch.linalg.qr(directions).Q
    sums = torch.zeros(len(states), kept, dtype=torch.float64, device=states.device)
    for t in range(total):
        states, jacobian = linearised(states, None if inputs is None else inputs[:, t])
        stretched = jacobian @ directions
        if not stretched.isfinite().all():  # LAPACK may hang on these
            _check.refuse(op, "the states diverged; choose another initial state, or fewer steps")
        directions, triangle = torch.linalg.qr(stretched)
        if t >= burn_in:
            sums += triangle.diagonal(dim1=1, dim2=2).abs().double().log()
    exponents = (sums / (total - burn_in)).sort(dim=1, descending=True).values.to(states.dtype)
    return exponents[0] if state is None or state.ndim == 1 else exponents


def _start(op: str, state: Tensor | None, size: int | None, like: Tensor, generator: torch.Generator) -> Tensor:
    if state is None:
        if size is None:
            _check.refuse(op, "the size of a function's states is unknown; pass an initial state (S,)")
        return (2 * torch.rand(1, size, generator=generator, dtype=torch.float64) - 1).to(like)
    state = _check.is_tensor(op, "state", state).detach()
    if state.ndim not in (1, 2) or 0 in state.shape:
        _check.refuse(op, f"expected state of shape (S,) or (N, S), not empty, got {tuple(state.shape)}")
    if size is not None and state.shape[-1] != size:
        _check.refuse(op, f"expected a state of {size} numbers, got {state.shape[-1]}")
    if not state.isfinite().all():
        _check.refuse(op, "state is not finite")
    return state.reshape(-1, state.shape[-1])


def _read_inputs(op: str, inputs: Tensor | None, states: Tensor, burn_in: int) -> Tensor | None:
    """Inputs (N, T, C)."""
    if inputs is None:
        return None
    inputs = _check.is_tensor(op, "inputs", inputs).detach()
    if inputs.ndim == 2:
        inputs = inputs.expand(len(states), -1, -1)
    if inputs.ndim != 3 or len(inputs) != len(states):
        _check.refuse(op, f"expected inputs of shape (T, C) or ({len(states)}, T, C), got {tuple(inputs.shape)}")
    if inputs.shape[1] <= burn_in:
        _check.refuse(op, f"inputs have {inputs.shape[1]} steps, but the first {burn_in} do not count; lower burn_in")
    return inputs


def _copies(states: Tensor, given: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Repeat each state S times, (N S, S), so that one backward pass computes all rows of all Jacobians."""
    size = states.shape[1]
    copies = states.detach().repeat_interleave(size, dim=0).requires_grad_()
    return copies, None if given is None else given.repeat_interleave(size, dim=0)


def _rows_of_jacobian(after: Tensor, copies: Tensor, states: Tensor) -> Tensor:
    """(N, S, S): row i of an item's Jacobian is the gradient of output i of its copy i."""
    count, size = states.shape
    each = torch.eye(size, dtype=after.dtype, device=after.device).repeat(count, 1)
    (rows,) = torch.autograd.grad(after, copies, each)
    return rows.reshape(count, size, size)


def _own_rows(after: Tensor, states: Tensor) -> Tensor:
    """The next states, (N, S), of one copy each."""
    return after.detach()[:: states.shape[1]]


def _check_shape(op: str, after: object, before: Tensor) -> None:
    if not isinstance(after, Tensor) or after.shape != before.shape:
        got = tuple(after.shape) if isinstance(after, Tensor) else type(after).__name__
        _check.refuse(op, f"expected the step to return states of the same shape, {tuple(before.shape)}, got {got}")


def _check_step(op: str, after: Tensor, before: Tensor) -> None:
    _check_shape(op, after, before)
    if not after.requires_grad:
        _check.refuse(op, "the step cannot be differentiated: it detaches its result, or does not use the state")
