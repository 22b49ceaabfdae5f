"""The coupled GRU: the distance between the last states of two coupled recurrent networks."""

import math
from collections.abc import Iterable
from functools import cached_property
from itertools import pairwise
from typing import Self

import torch
from torch import Tensor, nn

from likewise import _check
from likewise.data.standardization import Standardization
from likewise.distances.alignment import PathAlignment
from likewise.distances.distance import Distance, Sequences, describe, full_lengths
from likewise.distances.training_defaults import TrainingDefaults
from likewise.ops.coupled_gru import Cell, coupled_gru, coupled_gru_states, coupling, projections
from likewise.ops.ground import at_least_float32

# Size limit for a chunk of pairs without gradients: states, and projections between layers.
NUMBERS_AT_ONCE = {"cpu": 1 << 24, "cuda": 1 << 28}

GRU_WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class CoupledAlignment(PathAlignment):
    """The trajectories of two coupled networks: step t of x is matched with step t of y.

    The shorter sequence stays at its last step.

    x_states, y_states: (B, T, H), where T is the longest length; the shorter sequence keeps its last state.
    coupling: (B, T, H), the gate that mixes the two at each step, between 0 (no coupling) and 1; 0.5 mixes most.
    error: (B, T), the synchronisation error ||h_t - h'_t||; after the end of both sequences it is the distance.

    Example:
        >>> alignment = CoupledGRU(1, hidden=(4,)).align([[0.0, 1.0, 2.0]], [[1.0, 2.0]])
        >>> alignment.coupling.shape, alignment.path(0).tolist()
        (torch.Size([1, 3, 4]), [[0, 0], [1, 1], [2, 1]])
        >>> bool((alignment.error[:, -1] == alignment.value).all())
        True
    """

    def __init__(self, distance: "CoupledGRU", x: Tensor, y: Tensor, n: Tensor, m: Tensor) -> None:
        super().__init__(lambda: self.error[:, -1], self._steps, x, y, n, m)
        self._distance, self._x, self._y = distance, x, y

    @cached_property
    def _moves(self) -> tuple[Tensor, Tensor]:
        return self._distance.trajectories(self._x, self._y, self.x_lengths, self.y_lengths)

    @property
    def x_states(self) -> Tensor:
        """(B, T, H), the states of x's side."""
        return self._moves[0][:, 0].to(self._x.dtype)

    @property
    def y_states(self) -> Tensor:
        """(B, T, H), the states of y's side."""
        return self._moves[0][:, 1].to(self._x.dtype)

    @property
    def coupling(self) -> Tensor:
        """(B, T, H), the coupling gate at each step."""
        return self._moves[1].to(self._x.dtype)

    @cached_property
    def error(self) -> Tensor:
        """(B, T), the synchronisation error."""
        states = self._moves[0]
        return torch.linalg.vector_norm(states[:, 0] - states[:, 1], dim=-1).to(self._x.dtype)

    def _steps(self) -> tuple[Tensor, Tensor]:
        steps = torch.maximum(self.x_lengths, self.y_lengths)
        t = torch.arange(self.error.shape[1], device=steps.device)[None, :, None]
        ends = torch.stack([self.x_lengths, self.y_lengths], 1)[:, None]  # (B, 1, 2)
        return torch.where(t < steps[:, None, None], torch.minimum(t, ends - 1), -1), steps


class CoupledCell(nn.Module):
    """The weights of one layer of a ``CoupledGRU``: those of ``torch.nn.GRU``, and those of the coupling."""

    def __init__(self, channels: int, hidden: int, coupling_bias: float) -> None:
        super().__init__()
        self.weight_ih = nn.Parameter(torch.empty(3 * hidden, channels))
        self.weight_hh = nn.Parameter(torch.empty(3 * hidden, hidden))
        self.bias_ih = nn.Parameter(torch.empty(3 * hidden))
        self.bias_hh = nn.Parameter(torch.empty(3 * hidden))
        self.weight_hc = nn.Parameter(torch.empty(hidden, hidden))
        self.bias_hc = nn.Parameter(torch.empty(hidden))
        limit = 1 / math.sqrt(hidden)
        for parameter in (self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh):
            nn.init.uniform_(parameter, -limit, limit)
        nn.init.normal_(self.weight_hc, std=0.1)
        nn.init.constant_(self.bias_hc, coupling_bias)

    @property
    def weights(self) -> Cell:
        """The weights, as the operator takes them."""
        return Cell(self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh, self.weight_hc, self.bias_hc)


class CoupledGRU(Distance):
    """The distance ||h_T - h'_T|| between the last states of two recurrent networks with shared weights and a coupling.

    A gate c = sigmoid(W_hc (h + h') + b_hc) mixes their new states at every step, n with n': (1 - c) n + c n'. The
    rest is ``torch.nn.GRU``; the formulas are in ``likewise.ops.coupled_gru``.

    channels: the number of channels of the sequences. hidden: the number of states of each layer.
    coupling_bias: initial b_hc. -4 is the weak start that the paper intends (c near 0.02); 0, as in the paper's text,
        couples strongly from the start (c near 0.5); minus infinity switches the coupling off.
    standardize: scale channels by their mean and deviation, which ``fit`` computes; see ``Standardization``.

    Symmetric, and d(x, x) = 0 exactly; the triangle inequality may fail. With unequal lengths, the shorter side keeps
    its last state, which stays coupled to the other side. Weights are converted to the precision of the sequences, at
    least float32. Without gradients, the memory of ``matrix`` is bounded, apart from 3 H numbers per step of each
    sequence; with gradients, each further layer takes 4 T H numbers for each side of every pair.

    Reference: Compagnon, Lefebvre, Duffner & Garcia, Sequence metric learning as synchronization of recurrent neural
    networks (IJCNN 2020). Unequal lengths and a coupling for every layer are our additions.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> network = CoupledGRU(9, hidden=(20,), coupling_bias=-4.0)
        >>> x, y = torch.randn(2, 4, 128, 9)
        >>> network(x, y).shape, network.matrix(x).shape
        (torch.Size([4]), torch.Size([4, 4]))
        >>> network.align(x, y).coupling.shape
        torch.Size([4, 128, 20])
    """

    symmetric = True
    training_defaults = TrainingDefaults(lr=1e-2, steps=1000, average=0.99)

    def __init__(
        self,
        channels: int,
        hidden: Iterable[int] = (20,),
        coupling_bias: float = -4.0,
        *,
        standardize: bool = True,
    ) -> None:
        super().__init__()
        self.channels = _check.whole(self.name, "channels", channels)
        self.hidden = layer_sizes(self.name, hidden)
        self.coupling_bias = float(_check.number(self.name, "coupling_bias", coupling_bias))
        if math.isnan(self.coupling_bias) or self.coupling_bias == math.inf:
            _check.refuse(self.name, f"coupling_bias must be finite or minus infinity, got {coupling_bias}")
        self.standardize = standardize
        self.scaling = Standardization(self.channels) if standardize else None
        sizes = (self.channels, *self.hidden)
        self.cells = nn.ModuleList(CoupledCell(a, b, self.coupling_bias) for a, b in pairwise(sizes))

    def paired(self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (B,) of padded pairs."""
        gx, gy, n, m = self._prepare(x, y, x_lengths, y_lengths)
        return _check.finite_values(self.name, self._distances(gx, gy, n, m, None, None).to(x.dtype))

    def all_pairs(self, x: Tensor, y: Tensor | None, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (N, M); for x against itself, each pair is computed once."""
        gx, gy, n, m = self._prepare(x, y, x_lengths, y_lengths)
        if y is not None:
            pairs = torch.arange(len(gx) * len(gy), device=x.device)
            found = self._in_chunks(gx, gy, n, m, pairs // len(gy), pairs % len(gy)).reshape(len(gx), len(gy))
            return _check.finite_values(self.name, found.to(x.dtype))
        rows, columns = torch.triu_indices(len(gx), len(gx), 1, device=x.device)
        half = _check.finite_values(self.name, self._in_chunks(gx, None, n, None, rows, columns))
        whole = half.new_zeros(len(gx), len(gx)).index_put((rows, columns), half)
        return (whole + whole.T).to(x.dtype)

    def between(self, x: Sequences, y: Sequences, rows: Tensor, columns: Tensor) -> Tensor:
        """Distances (P,) of x[rows[p]] and y[columns[p]]; each sequence is projected once, not once per pair.

        Example:
            >>> x, pairs = torch.randn(3, 8, 1), torch.tensor([[0, 0], [1, 2]])
            >>> CoupledGRU(1, hidden=(4,)).between(x, x, *pairs).shape
            torch.Size([2])
        """
        x, y, x_lengths, y_lengths = self._pair(x, y, paired=False)
        gx, gy, n, m = self._prepare(x, y, x_lengths, y_lengths)
        found = self._in_chunks(gx, gy, n, m, rows.to(x.device), columns.to(x.device))
        return _check.finite_values(self.name, found.to(x.dtype))

    def align(self, x: Sequences, y: Sequences) -> CoupledAlignment:
        """The trajectories of both networks, and the coupling between them at every step."""
        x, y, x_lengths, y_lengths = self._pair(x, y, paired=True)
        return CoupledAlignment(self, x, y, full_lengths(x, x_lengths), full_lengths(y, y_lengths))

    def trajectories(self, x: Tensor, y: Tensor, x_lengths: Tensor, y_lengths: Tensor) -> tuple[Tensor, Tensor]:
        """States (B, 2, T, H) of both sides, and the coupling (B, T, H), of the last layer."""
        gx, gy, n, m = self._prepare(x, y, x_lengths, y_lengths)
        cells = self._cells()
        states = coupled_gru_states(gx, gy, cells, n, m)
        return states, coupling(states, cells[-1])

    def load_gru(self, gru: nn.GRU) -> Self:
        """Copy the weights of a ``torch.nn.GRU`` of the same sizes; the coupling is unchanged. Returns self."""
        copy_gru(self.name, gru, self.channels, self.hidden, self.cells)
        return self

    def _prepare(
        self, x: Tensor, y: Tensor | None, x_lengths: Tensor | None, y_lengths: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Projections and lengths of both sides; those of x twice if y is x or None."""
        gx, n = self._project("x", x, x_lengths)
        if y is None or (y is x and y_lengths is x_lengths):
            return gx, gx, n, n
        gy, m = self._project("y", y, y_lengths)
        return gx, gy, n, m

    def _project(self, name: str, x: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        """Projections (N, T, 3H) of sequences for the first layer, and their lengths (N,)."""
        n = full_lengths(x, lengths)
        if not len(x):
            return at_least_float32(x.new_empty(0, x.shape[1], 3 * self.hidden[0])), n
        if x.shape[2] != self.channels:
            _check.refuse(self.name, f"expected {name} with {self.channels} channels, got {x.shape[2]}")
        _check.finite(self.name, name, x, lengths)
        if lengths is not None:
            x = x[:, : lengths.max()]  # cut padding, which only costs time
        x = x if self.scaling is None else self.scaling(x, lengths)
        return projections(x, self._cells()[0], lengths), n

    def _in_chunks(
        self, gx: Tensor, gy: Tensor | None, n: Tensor, m: Tensor | None, rows: Tensor, columns: Tensor
    ) -> Tensor:
        """Distances (P,) of the pairs, in chunks or, with gradients, all at once."""
        chunk = max(1, len(rows))
        if not torch.is_grad_enabled():
            each = 2 * self.hidden[-1]
            if gx.is_cuda and len(self.hidden) > 1:
                steps = gx.shape[1] if gy is None else max(gx.shape[1], gy.shape[1])
                each = 8 * steps * max(self.hidden)
            chunk = max(1, NUMBERS_AT_ONCE["cuda" if gx.is_cuda else "cpu"] // each)
        parts = [slice(first, first + chunk) for first in range(0, len(rows), chunk)] or [slice(0, 0)]
        return torch.cat([self._distances(gx, gy, n, m, rows[part], columns[part]) for part in parts])

    def _distances(
        self,
        gx: Tensor,
        gy: Tensor | None,
        n: Tensor,
        m: Tensor | None,
        rows: Tensor | None,
        columns: Tensor | None,
    ) -> Tensor:
        last = coupled_gru(gx, gy, self._cells(), n, m, rows, columns)
        return torch.linalg.vector_norm(last[:, 0] - last[:, 1], dim=-1)

    def _cells(self) -> list[Cell]:
        return [cell.weights for cell in self.cells if isinstance(cell, CoupledCell)]

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return describe(channels=self.channels, hidden=self.hidden, coupling_bias=self.coupling_bias)


def layer_sizes(op: str, hidden: Iterable[int]) -> tuple[int, ...]:
    """The states of each layer, checked."""
    if isinstance(hidden, int):
        raise TypeError(f"{op}: expected hidden to have a number for each layer, got {hidden}; write ({hidden},)")
    sizes = tuple(_check.whole(op, "each of hidden", size) for size in hidden)
    if not sizes:
        _check.refuse(op, "hidden is empty: pass the number of states of each layer, such as (20,)")
    return sizes


def copy_gru(
    op: str, gru: nn.GRU, channels: int, hidden: tuple[int, ...], layers: Iterable[nn.Module], suffix: str = ""
) -> None:
    """Copy the weights of each layer of a ``torch.nn.GRU`` to parameters of the same names, with a suffix."""
    if not isinstance(gru, nn.GRU):
        raise TypeError(f"{op}: expected a torch.nn.GRU, got {type(gru).__name__}")
    if gru.bidirectional:
        _check.refuse(op, "expected a GRU with one direction, got a bidirectional one")
    theirs = gru.input_size, (gru.hidden_size,) * gru.num_layers
    if theirs != (channels, hidden):
        _check.refuse(
            op, f"expected a GRU with {channels} channels and hidden {hidden}, got {theirs[0]} and {theirs[1]}"
        )
    with torch.no_grad():
        for layer, mine in enumerate(layers):
            for name in GRU_WEIGHTS:
                given = getattr(gru, f"{name}_l{layer}") if gru.bias or name.startswith("weight") else torch.zeros(1)
                getattr(mine, name + suffix).copy_(given)
