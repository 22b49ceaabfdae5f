"""Recurrence: one step of a recurrent system, made from a module or a function."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from likewise import _check

Step = Callable[..., Any]


@dataclass(frozen=True)
class Recurrence:
    """h_t = step(h_{t-1}, x_t) on states (N, S), row by row.

    step: a function of states (N, S) and, if ``channels`` is not None, inputs (N, C), that returns states (N, S).
    size: S, or None if unknown. channels: C; None for a function of states alone.
    like: a tensor with the type and device of the step's computation.

    Example:
        >>> recurrence(torch.nn.LSTM(3, 5, num_layers=2)).size  # hidden and cell states of both layers
        20
    """

    step: Step
    size: int | None
    channels: int | None
    like: Tensor

    def __call__(self, state: Tensor, inputs: Tensor | None = None) -> Tensor:
        """The next states; without inputs, those of the induced system, with zero input."""
        if self.channels is None:
            return self.step(state) if inputs is None else self.step(state, inputs)
        return self.step(state, state.new_zeros(len(state), self.channels) if inputs is None else inputs)


def recurrence(system: Any) -> Recurrence:
    """The step of a torch.nn.RNN, GRU or LSTM of any number of layers, of one of their cells, or of a function.

    A module may also define its step: attributes ``state_size`` and ``channels`` and a method ``step(state, inputs)``.
    The states of several layers, and the cell states of an LSTM, are concatenated in S. A SiameseGRU, a stack of
    one-layer GRUs, is a system too.

    Example:
        >>> gru = torch.nn.GRU(2, 4, batch_first=True)
        >>> x, state = torch.randn(1, 3, 2), torch.zeros(1, 4)
        >>> for t in range(3):
        ...     state = recurrence(gru)(state, x[:, t])
        >>> torch.allclose(state, gru(x)[0][:, -1])
        True
    """
    if isinstance(system, Recurrence):
        return system
    if isinstance(system, nn.RNNBase):
        return _of_layers(system)
    if isinstance(system, nn.RNNCellBase):
        return _of_cell(system)
    stack = getattr(system, "layers", None)
    if isinstance(stack, nn.ModuleList) and len(stack) and all(isinstance(layer, nn.RNNBase) for layer in stack):
        return _of_stack([_of_layers(layer) for layer in stack])  # type: ignore[arg-type]
    size, step = getattr(system, "state_size", None), getattr(system, "step", None)
    if callable(step) and size is not None:
        like = next(system.parameters()).detach() if isinstance(system, nn.Module) else torch.empty(0)
        return Recurrence(step, size, getattr(system, "channels", None), like)
    if not callable(system):
        raise TypeError(
            f"dynamics: expected a function of states (N, S), or an RNN, GRU or LSTM, got {type(system).__name__}"
        )
    parameters = iter(system.parameters()) if isinstance(system, nn.Module) else iter(())
    return Recurrence(system, None, None, next(parameters, torch.empty(0)).detach())


def _of_layers(module: nn.RNNBase) -> Recurrence:
    if module.bidirectional:
        _check.refuse("dynamics", "a bidirectional network is not a dynamical system: its states depend on the future")
    if module.proj_size:
        _check.refuse("dynamics", "an LSTM with proj_size is not supported")
    if module.training and module.dropout:
        _check.refuse("dynamics", "the network has active dropout; call .eval() first")
    parts = 2 if isinstance(module, nn.LSTM) else 1

    def step(state: Tensor, inputs: Tensor) -> Tensor:
        folded = state.reshape(len(state), parts, module.num_layers, module.hidden_size).permute(1, 2, 0, 3)
        before = tuple(part.contiguous() for part in folded)  # each (layers, N, H)
        given = inputs[:, None] if module.batch_first else inputs[None]
        after = module(given, before if parts == 2 else before[0])[1]
        stacked = torch.stack(after if parts == 2 else (after,))  # (parts, layers, N, H)
        return stacked.permute(2, 0, 1, 3).reshape(state.shape)

    size = parts * module.num_layers * module.hidden_size
    return Recurrence(step, size, module.input_size, next(module.parameters()).detach())


def _of_stack(layers: list[Recurrence]) -> Recurrence:
    """One system of several, each of which gets the new state of the one below."""
    sizes = [int(layer.size or 0) for layer in layers]

    def step(state: Tensor, inputs: Tensor) -> Tensor:
        after = []
        for layer, before in zip(layers, state.split(sizes, 1), strict=True):
            inputs = layer.step(before, inputs)
            after.append(inputs)
        return torch.cat(after, 1)

    return Recurrence(step, sum(sizes), layers[0].channels, layers[0].like)


def _of_cell(cell: nn.RNNCellBase) -> Recurrence:
    def step(state: Tensor, inputs: Tensor) -> Tensor:
        if isinstance(cell, nn.LSTMCell):
            return torch.cat(cell(inputs, state.chunk(2, dim=1)), dim=1)
        return cell(inputs, state)

    size = cell.hidden_size * (2 if isinstance(cell, nn.LSTMCell) else 1)
    return Recurrence(step, size, cell.input_size, next(cell.parameters()).detach())
