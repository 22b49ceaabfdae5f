"""The siamese GRU: the coupled GRU without coupling, in which every sequence has an embedding."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Self

import torch
from torch import Tensor, nn

from likewise import _check
from likewise._labels import is_map_style
from likewise.data.batch import as_sequences
from likewise.data.loading import Loader
from likewise.data.standardization import Standardization
from likewise.distances.coupled_gru import GRU_WEIGHTS, CoupledGRU, copy_gru, layer_sizes
from likewise.distances.distance import Distance, Sequences, describe, full_lengths
from likewise.distances.euclidean import Euclidean
from likewise.distances.training_defaults import TrainingDefaults
from likewise.ops.ground import at_least_float32, zero_padding

CHUNK = 1024  # sequences embedded at once, without gradients


class SiameseGRU(Distance):
    """The Euclidean distance between the last states of a ``torch.nn.GRU``: the uncoupled twin of ``CoupledGRU``.

    channels: the number of channels of the sequences. hidden: the number of states of each layer.
    standardize: scale channels by their mean and deviation, which ``fit`` computes; see ``Standardization``.

    Each sequence is embedded once: ``matrix`` needs N + M passes rather than N M, and ``evaluate`` embeds queries and
    references once and compares vectors. A ``CoupledGRU`` with the same weights and a coupling of zero gives the same
    distances.

    Reference: the SGRU of Compagnon et al. (2020).

    Example:
        >>> network = SiameseGRU(9, hidden=(20,))
        >>> x = torch.randn(4, 128, 9)
        >>> network.embed(x).shape, network.matrix(x).shape
        (torch.Size([4, 20]), torch.Size([4, 4]))
    """

    symmetric = True
    training_defaults = TrainingDefaults(lr=1e-2, steps=1000, average=0.99)

    def __init__(self, channels: int, hidden: Iterable[int] = (20,), *, standardize: bool = True) -> None:
        super().__init__()
        self.channels = _check.whole(self.name, "channels", channels)
        self.hidden = layer_sizes(self.name, hidden)
        self.standardize = standardize
        self.scaling = Standardization(self.channels) if standardize else None
        sizes = (self.channels, *self.hidden)
        self.layers = nn.ModuleList(nn.GRU(a, b, batch_first=True) for a, b in pairwise(sizes))
        self.distance = Euclidean()

    @classmethod
    def of(cls, coupled: CoupledGRU) -> Self:
        """A siamese GRU with a copy of a coupled network's weights, without the coupling."""
        first = next(coupled.parameters())
        twin = cls(coupled.channels, coupled.hidden, standardize=coupled.standardize).to(first.device, first.dtype)
        if twin.scaling is not None and coupled.scaling is not None:
            twin.scaling.load_state_dict(coupled.scaling.state_dict())
        with torch.no_grad():
            for layer, cell in zip(twin.layers, coupled.cells, strict=True):
                for name in GRU_WEIGHTS:
                    getattr(layer, f"{name}_l0").copy_(getattr(cell, name))
        return twin

    def load_gru(self, gru: nn.GRU) -> Self:
        """Copy the weights of a ``torch.nn.GRU`` of the same sizes. Returns self."""
        copy_gru(self.name, gru, self.channels, self.hidden, self.layers, "_l0")
        return self

    def embed(self, x: Sequences, *, workers: int = 0) -> Tensor:
        """Embed sequences without gradients, in chunks, as vectors (N, H), which the distance compares.

        workers: the number of processes that read a map-style dataset; its items are never all in memory.
        """
        if is_map_style(x):
            found, done = None, 0
            for piece in Loader(x, workers).pieces():  # small results between large pieces fragment the heap
                vectors = self.embed(piece)
                found = vectors.new_empty(len(x), vectors.shape[1]) if found is None else found  # type: ignore[arg-type]
                found[done : done + len(vectors)] = vectors
                done += len(vectors)
            if found is None:
                _check.refuse(f"{self.name}.embed", "there are no items")
            return found
        values, lengths = as_sequences(f"{self.name}.embed", "x", x)
        with torch.no_grad():
            return self._embedded("x", values, lengths)

    def paired(self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (B,) of padded pairs."""
        a = self._embedded("x", x, x_lengths)
        b = a if y is x and y_lengths is x_lengths else self._embedded("y", y, y_lengths)
        return _check.finite_values(self.name, torch.linalg.vector_norm(a - b, dim=-1).to(x.dtype))

    def all_pairs(self, x: Tensor, y: Tensor | None, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (N, M), from N + M embeddings."""
        a = self._embedded("x", x, x_lengths)
        if y is None:
            return _check.fits(self.name, self.distance.matrix(a), x.dtype)
        return _check.fits(self.name, self.distance.matrix(a, self._embedded("y", y, y_lengths)), x.dtype)

    def _embedded(self, name: str, x: Tensor, lengths: Tensor | None) -> Tensor:
        """The last states (N, H), at least float32."""
        if x.shape[2] != self.channels and len(x):
            _check.refuse(self.name, f"expected {name} with {self.channels} channels, got {x.shape[2]}")
        _check.finite(self.name, name, x, lengths)
        if not len(x):
            return at_least_float32(x.new_empty(0, self.hidden[-1]))
        n = full_lengths(x, lengths)
        chunk = len(x) if torch.is_grad_enabled() else CHUNK
        return torch.cat([self._states(x[k : k + chunk], n[k : k + chunk]) for k in range(0, len(x), chunk)])

    def _states(self, x: Tensor, lengths: Tensor) -> Tensor:
        x = x if self.scaling is None else self.scaling(x, lengths)
        h = at_least_float32(zero_padding(x, lengths))
        with torch.autocast(h.device.type, enabled=False):
            for layer in self.layers:
                h = _run(layer, h)  # (N, T, H)
        return h[torch.arange(len(h), device=h.device), lengths - 1]

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return describe(channels=self.channels, hidden=self.hidden)


def _run(layer: nn.Module, x: Tensor) -> Tensor:
    """The states of one layer, in the precision of x, which may differ from that of the weights."""
    if isinstance(layer, nn.GRU) and layer.weight_ih_l0.dtype == x.dtype:
        return layer(x)[0]
    weights = [getattr(layer, f"{name}_l0").to(x.dtype) for name in GRU_WEIGHTS]
    start = x.new_zeros(1, len(x), weights[1].shape[1])
    return torch.gru(x, start, weights, True, 1, 0.0, False, False, True)[0]
