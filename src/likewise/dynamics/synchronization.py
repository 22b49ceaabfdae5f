"""Two coupled copies of a system, and whether they synchronise."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from likewise import _check
from likewise.dynamics.recurrence import recurrence

PairStep = Callable[..., tuple[Tensor, Tensor]]

WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def couple(system: object, coupling: float | Tensor) -> PairStep:
    """Couple two copies of a system: a' = (1 - c) F(a) + c F(b), b' = (1 - c) F(b) + c F(a).

    This is diffusive coupling of maps, a' = F(a) + c (F(b) - F(a)): none for c = 0; for c = 1/2 both sides get the same
    state in one step.

    system: as in ``lyapunov``. coupling: c, a number or, for each unit of the state, (S,).

    Example:
        >>> pair = couple(lambda h: 3 * h, 0.25)
        >>> pair(torch.tensor([[1.0]]), torch.tensor([[0.0]]))
        (tensor([[2.2500]]), tensor([[0.7500]]))
    """
    chosen = recurrence(system)
    c = coupling if isinstance(coupling, Tensor) else _check.number("couple", "coupling", coupling)

    def step(a: Tensor, b: Tensor, inputs: Tensor | None = None) -> tuple[Tensor, Tensor]:
        a, b = chosen(a, inputs), chosen(b, inputs)
        return (1 - c) * a + c * b, (1 - c) * b + c * a

    return step


def couple_gru(gru: nn.Module, coupling: float | Tensor | None = None) -> PairStep:
    """Couple two copies of a GRU as the coupled GRU does: by their new states, m = (1 - c) n + c n'.

    Each side keeps its own update gate z, so h' - h shrinks less than with ``couple``: with c = 1/2 both sides have the
    same m, but agree only after z has replaced their previous states.

    gru: a torch.nn.GRUCell, a torch.nn.GRU of one layer, or a CoupledGRU of one layer.
    coupling: c, a number or (H,), for all times; None takes the learned gate of a CoupledGRU.

    Example:
        >>> gru = torch.nn.GRU(2, 3)
        >>> a, b = torch.zeros(1, 3), torch.ones(1, 3)
        >>> alone, _ = couple_gru(gru, 0.0)(a, b)
        >>> torch.allclose(alone, gru(torch.zeros(1, 1, 2), a[None])[0][0], atol=1e-6)
        True
    """
    (weight_ih, weight_hh, bias_ih, bias_hh), gate = _gru_weights(gru, coupling)

    def parts(state: Tensor, inputs: Tensor | None) -> tuple[Tensor, Tensor]:
        given = bias_ih if inputs is None else nn.functional.linear(inputs, weight_ih, bias_ih)
        own = nn.functional.linear(state, weight_hh, bias_hh)
        (ri, zi, ni), (rh, zh, nh) = given.chunk(3, -1), own.chunk(3, -1)
        return (zi + zh).sigmoid(), (ni + (ri + rh).sigmoid() * nh).tanh()

    def step(a: Tensor, b: Tensor, inputs: Tensor | None = None) -> tuple[Tensor, Tensor]:
        (za, na), (zb, nb), c = parts(a, inputs), parts(b, inputs), gate(a + b)
        ma, mb = (1 - c) * na + c * nb, (1 - c) * nb + c * na
        return (1 - za) * ma + za * a, (1 - zb) * mb + zb * b

    return step


def _gru_weights(gru: nn.Module, coupling: float | Tensor | None) -> tuple[list[Tensor], Callable[[Tensor], Any]]:
    """The weights of a GRU of one layer, and its coupling as a function of h + h'."""
    cells: Any = getattr(gru, "cells", None)
    suffix, layers = "_l0" if isinstance(gru, nn.GRU) else "", getattr(gru, "num_layers", 1)
    layer: Any = gru
    if cells is not None:
        layer, layers = cells[0], len(cells)
    found: list[Any] = [getattr(layer, name + suffix, None) for name in WEIGHTS]
    if any(weight is None for weight in found) or len(found[1]) != 3 * found[1].shape[1]:
        raise TypeError(f"couple_gru: expected a GRU with biases, a GRUCell or a CoupledGRU, got {type(gru).__name__}")
    if layers != 1 or getattr(gru, "bidirectional", False):
        _check.refuse("couple_gru", "expected a GRU of one layer and one direction")
    if coupling is None:
        if not hasattr(layer, "weight_hc"):
            _check.refuse("couple_gru", f"a {type(gru).__name__} has no coupling; pass coupling=")
        return found, lambda both: nn.functional.linear(both, layer.weight_hc, layer.bias_hc).sigmoid()
    c = coupling if isinstance(coupling, Tensor) else _check.number("couple_gru", "coupling", coupling)
    return found, lambda both: c


@torch.no_grad()
def follow(
    pair_step: PairStep, a: Tensor, b: Tensor, *, steps: int | None = None, inputs: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Trajectories (N, T, S) of both sides of a pair step from states a and b (N, S), which are not included.

    steps: T; or give inputs (T, C), for both sides.

    Example:
        >>> pair = couple(lambda h: 4 * h * (1 - h), 0.3)
        >>> a, b = follow(pair, torch.tensor([[0.2]]), torch.tensor([[0.7]]), steps=99)
        >>> synchronization_error(a, b)[:, -1] < 1e-5
        tensor([True])
    """
    if (steps is None) == (inputs is None):
        _check.refuse("follow", "give either steps or inputs (T, C)")
    for name, state in (("a", a), ("b", b)):
        if _check.is_tensor("follow", name, state).ndim != 2:
            _check.refuse("follow", f"expected {name} of shape (N, S), got {tuple(state.shape)}")
    total = _check.whole("follow", "steps", steps) if inputs is None else len(inputs)
    first, second = [], []
    for t in range(total):
        a, b = pair_step(a, b) if inputs is None else pair_step(a, b, inputs[t].expand(len(a), -1))
        first.append(a)
        second.append(b)
    return torch.stack(first, 1), torch.stack(second, 1)


def synchronization_error(x: Tensor, y: Tensor, lengths: Tensor | None = None) -> Tensor:
    """The distance between two trajectories at each step: e_t = ||x_t - y_t||, (N, T).

    x, y: states (N, T, S) over time. lengths (N,): real steps of each; the error is 0 beyond them, regardless of the
    padding. At the last step, this is the distance of the coupled-GRU paper (its equation 5).

    Example:
        >>> x, y = torch.zeros(1, 2, 2), torch.tensor([[[3.0, 4.0], [0.0, 1.0]]])
        >>> synchronization_error(x, y)
        tensor([[5., 1.]])
    """
    op = "synchronization_error"
    for name, states in (("x", x), ("y", y)):
        if _check.is_tensor(op, name, states).ndim != 3:
            _check.refuse(op, f"expected {name} of shape (N, T, S), got {tuple(states.shape)}")
    if x.shape != y.shape:
        _check.refuse(op, f"x is {tuple(x.shape)} and y is {tuple(y.shape)}; trajectories must be equally long")
    difference = x - y
    if lengths is not None:
        _check.lengths_shape(op, "lengths", lengths, len(x))
        real = torch.arange(x.shape[1], device=x.device) < lengths.to(x.device)[:, None]
        difference = difference.masked_fill(~real[..., None], 0)
    return torch.linalg.vector_norm(difference, dim=2)
