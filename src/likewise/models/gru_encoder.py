"""GRUEncoder: a gated recurrent network over the frames."""

import torch
from torch import Tensor, nn

from likewise import _check
from likewise.data.batch import Batch
from likewise.data.standardization import Standardization
from likewise.distances.training_defaults import TrainingDefaults
from likewise.models._sequences import as_batch, no_items, unit

MOST_LAYERS = 64


class GRUEncoder(nn.Module):
    """A gated recurrent network: (B, T, channels) -> the last state (B, D), or all states (B, T, D).

    D is hidden, or twice that with ``bidirectional``, which concatenates both directions. The last state is that of the
    last real step or, backwards, of the first.

    layers, dropout: as in ``torch.nn.GRU``; dropout acts between layers.
    steps: return the states of all steps, as a Batch.
    normalize: scale each output vector to unit length.
    standardize: scale channels by their mean and deviation, which ``fit`` computes; see ``Standardization``.

    Example:
        >>> GRUEncoder(3, hidden=8)(torch.randn(4, 10, 3)).shape
        torch.Size([4, 8])
        >>> GRUEncoder(3, hidden=8, bidirectional=True, steps=True)(torch.randn(4, 10, 3))
        Batch(4 sequences, 10 steps, 16 channels, torch.float32, cpu)
    """

    training_defaults = TrainingDefaults(lr=1e-2, steps=1000, average=0.99)

    def __init__(
        self,
        channels: int,
        hidden: int = 64,
        *,
        layers: int = 1,
        bidirectional: bool = False,
        steps: bool = False,
        normalize: bool = False,
        dropout: float = 0.0,
        standardize: bool = True,
    ) -> None:
        super().__init__()
        self.channels = _check.whole("GRUEncoder", "channels", channels)
        self.hidden = _check.whole("GRUEncoder", "hidden", hidden)
        self.layers = _check.whole("GRUEncoder", "layers", layers, most=MOST_LAYERS)
        self.bidirectional = bidirectional
        self.out = self.hidden * (1 + bool(bidirectional))
        self.steps = steps
        self.normalize = normalize
        self.dropout = _check.fraction("GRUEncoder", "dropout", dropout)
        if self.dropout and self.layers == 1:
            _check.refuse("GRUEncoder", "dropout acts between layers, but there is only one; use layers=2 or more")
        self.standardize = standardize
        self.scaling = Standardization(self.channels) if standardize else None
        self.gru = nn.GRU(
            self.channels,
            self.hidden,
            self.layers,
            batch_first=True,
            bidirectional=bidirectional,
            dropout=self.dropout,
        )

    def forward(self, x: object) -> Batch | Tensor:
        """Encode a Batch to vectors or, with ``steps``, to a Batch."""
        batch = as_batch("GRUEncoder", x, self.channels)
        if len(batch) == 0:
            return no_items(batch, self.out, steps=self.steps)
        if self.scaling is not None:
            batch = Batch(self.scaling(batch.values, batch.lengths), batch.lengths)
        states, last = self.gru(batch.to_packed())  # (layers * directions, B, hidden)
        if not self.steps:
            last = torch.cat(list(last[-2:]), -1) if self.bidirectional else last[-1]
            return unit(last) if self.normalize else last
        states = Batch.from_packed(states)
        return Batch(unit(states.values), states.lengths) if self.normalize else states
