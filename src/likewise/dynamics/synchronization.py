"""Two coupled copies of a system, and whether they synchronise."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from likewise import _check
from likewise.dynamics.recurrence import recurrence

PairStep = Callable[..., tuple[Tensor, Tensor]]

WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def couple(system: object, coupling: float | Tensor, *, one_way: bool = False) -> PairStep:
    """Couple two copies of a system: a' = (1 - c) F(a) + c F(b), b' = (1 - c) F(b) + c F(a).

    This is diffusive coupling of maps, a' = F(a) + c (F(b) - F(a)): none for c = 0; for c = 1/2 both sides get the same
    state in one step. For systems in continuous time, see ``couple_flow``.

    system: as in ``lyapunov``; a stack of layers is one system. coupling: c, a number or, for each unit of the state,
    (S,). one_way: only a acts on b, a' = F(a).

    Example:
        >>> pair = couple(lambda h: 3 * h, 0.25)
        >>> pair(torch.tensor([[1.0]]), torch.tensor([[0.0]]))
        (tensor([[2.2500]]), tensor([[0.7500]]))
    """
    chosen = recurrence(system)
    c = coupling if isinstance(coupling, Tensor) else _check.number("couple", "coupling", coupling)

    def step(a: Tensor, b: Tensor, inputs: Tensor | None = None) -> tuple[Tensor, Tensor]:
        a, b = chosen(a, inputs), chosen(b, inputs)
        return a if one_way else (1 - c) * a + c * b, (1 - c) * b + c * a

    return step


def couple_gru(gru: nn.Module, coupling: float | Tensor | None = None) -> PairStep:
    """Couple two copies of a GRU as the coupled GRU does: by their new states, m = (1 - c) n + c n'.

    Each side keeps its own update gate z, so h' - h shrinks less than with ``couple``: with c = 1/2 both sides have the
    same m, but agree only after z has replaced their previous states.

    gru: a torch.nn.GRUCell, a torch.nn.GRU, a SiameseGRU or a CoupledGRU, of any number of layers. Each layer is
        coupled, and gets what its side's layer below gives; states (N, S) are those of all layers, concatenated.
    coupling: c, a number or one for each unit of the state (S,), for all times; None takes the learned gates of a
        CoupledGRU.

    Example:
        >>> gru = torch.nn.GRU(2, 3)
        >>> a, b = torch.zeros(1, 3), torch.ones(1, 3)
        >>> alone, _ = couple_gru(gru, 0.0)(a, b)
        >>> torch.allclose(alone, gru(torch.zeros(1, 1, 2), a[None])[0][0], atol=1e-6)
        True
    """
    layers = _layers(gru)
    sizes = [layer[1].shape[1] for layer in layers]
    gates = _gates(gru, coupling, sizes)

    def parts(weights: list[Tensor], state: Tensor, inputs: Tensor | None) -> tuple[Tensor, Tensor]:
        weight_ih, weight_hh, bias_ih, bias_hh = weights
        given = bias_ih if inputs is None else nn.functional.linear(inputs, weight_ih, bias_ih)
        own = nn.functional.linear(state, weight_hh, bias_hh)
        (ri, zi, ni), (rh, zh, nh) = given.chunk(3, -1), own.chunk(3, -1)
        return (zi + zh).sigmoid(), (ni + (ri + rh).sigmoid() * nh).tanh()

    def step(a: Tensor, b: Tensor, inputs: Tensor | None = None) -> tuple[Tensor, Tensor]:
        first, second = [], []
        x, y = inputs, inputs  # of the layer, on either side
        for weights, gate, h, other in zip(layers, gates, a.split(sizes, 1), b.split(sizes, 1), strict=True):
            (za, na), (zb, nb), c = parts(weights, h, x), parts(weights, other, y), gate(h + other)
            x = (1 - za) * ((1 - c) * na + c * nb) + za * h
            y = (1 - zb) * ((1 - c) * nb + c * na) + zb * other
            first.append(x)
            second.append(y)
        return torch.cat(first, 1), torch.cat(second, 1)

    return step


def _layers(gru: Any) -> list[list[Tensor]]:
    """The four weights of each layer of a GRU: of PyTorch, or a distance with ``cells`` or ``layers``."""
    if isinstance(gru, nn.GRU):
        if gru.bidirectional:
            _check.refuse("couple_gru", "expected a GRU of one direction: states of the other depend on the future")
        named = [(gru, f"_l{number}") for number in range(gru.num_layers)]
    else:
        stack = getattr(gru, "cells", None) or getattr(gru, "layers", None) or [gru]
        named = [(layer, "_l0" if isinstance(layer, nn.GRU) else "") for layer in stack]
    found: list[list[Any]] = [[getattr(layer, name + suffix, None) for name in WEIGHTS] for layer, suffix in named]
    if any(weight is None for layer in found for weight in layer) or any(
        len(layer[1]) != 3 * layer[1].shape[1] for layer in found
    ):
        raise TypeError(
            f"couple_gru: expected a GRU with biases, a GRUCell, a SiameseGRU or a CoupledGRU, got {type(gru).__name__}"
        )
    return found


def _gates(gru: Any, coupling: float | Tensor | None, sizes: list[int]) -> list[Callable[[Tensor], Any]]:
    """The coupling of each layer, as a function of h + h'."""
    if coupling is None:
        cells = getattr(gru, "cells", None)
        if cells is None:
            _check.refuse("couple_gru", f"a {type(gru).__name__} has no coupling; pass coupling=")
        return [
            lambda both, cell=cell: nn.functional.linear(both, cell.weight_hc, cell.bias_hc).sigmoid() for cell in cells
        ]
    if isinstance(coupling, Tensor) and coupling.ndim:
        if coupling.shape != (sum(sizes),):
            _check.refuse("couple_gru", f"expected coupling of {sum(sizes)} units, got {tuple(coupling.shape)}")
        return [lambda both, part=part: part for part in coupling.split(sizes)]
    c = coupling if isinstance(coupling, Tensor) else _check.number("couple_gru", "coupling", coupling)
    return [lambda both: c for _ in sizes]


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
