"""FrameMLP: a small network applied to each frame."""

import itertools

import torch
from torch import Tensor, nn

from likewise import _check
from likewise.data.batch import Batch
from likewise.data.standardization import Standardization
from likewise.distances.training_defaults import TrainingDefaults
from likewise.models._sequences import as_batch, unit

MOST_LAYERS = 64


class FrameMLP(nn.Module):
    """Linear - ReLU - Linear - ReLU - Linear, frame by frame: (B, T, channels) -> (B, T, out).

    hidden: the width of the hidden layers.
    out: the number of channels of the output.
    normalize: scale each output frame to unit length, as TAP's published code does (its paper does not say so). Zero
        frames stay zero.
    depth: the number of hidden layers; 0 makes a linear map.
    batch_norm: use batch normalisation, over real frames, before each linear layer.
    dropout: the share of the hidden activations that is dropped in training.
    standardize: scale channels by their mean and deviation, which ``fit`` computes; see ``Standardization``.

    Only real frames are computed. Reference: Su & Wen (2022), temporal alignment prediction.

    Example:
        >>> encoder = FrameMLP(13, hidden=32)
        >>> encoder(Batch(torch.randn(2, 5, 13), [5, 3]))
        Batch(2 sequences, 3..5 steps, 64 channels, torch.float32, cpu)
    """

    training_defaults = TrainingDefaults(lr=3e-3, steps=400)

    def __init__(
        self,
        channels: int,
        hidden: int = 1024,
        out: int = 64,
        normalize: bool = True,
        *,
        depth: int = 2,
        batch_norm: bool = False,
        dropout: float = 0.0,
        standardize: bool = True,
    ) -> None:
        super().__init__()
        self.channels = _check.whole("FrameMLP", "channels", channels)
        self.hidden = _check.whole("FrameMLP", "hidden", hidden)
        self.out = _check.whole("FrameMLP", "out", out)
        self.normalize = normalize
        self.depth = _check.whole("FrameMLP", "depth", depth, least=0, most=MOST_LAYERS)
        self.batch_norm = batch_norm
        self.dropout = _check.fraction("FrameMLP", "dropout", dropout)
        self.standardize = standardize
        self.scaling = Standardization(self.channels) if standardize else None
        widths = [self.channels, *[self.hidden] * self.depth, self.out]
        layers: list[nn.Module] = []
        for k, (before, after) in enumerate(itertools.pairwise(widths)):
            if k > 0:
                layers += [nn.ReLU(), nn.Dropout(self.dropout)] if self.dropout else [nn.ReLU()]
            layers += [nn.BatchNorm1d(before)] if batch_norm else []
            layers += [nn.Linear(before, after)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: object) -> Batch:
        """Encode a Batch to a Batch of the same lengths."""
        batch = as_batch("FrameMLP", x, self.channels)
        count, steps, _ = batch.values.shape
        if count == 0:
            return Batch(batch.values.new_empty(0, steps, self.out))
        # Computed from the lengths on the CPU: a mask on the GPU would need a synchronisation.
        real = torch.arange(steps) < batch.lengths[:, None]
        if real.all():
            frames = self._frames(batch.values.flatten(0, 1))
            return Batch(frames.reshape(count, steps, self.out), batch.lengths)
        index = real.flatten().nonzero()[:, 0].to(batch.device)
        frames = self._frames(batch.values.flatten(0, 1)[index])  # (sum of lengths, out)
        values = frames.new_zeros(count * steps, self.out).index_copy(0, index, frames)
        return Batch(values.reshape(count, steps, self.out), batch.lengths)

    def _frames(self, frames: Tensor) -> Tensor:
        frames = self.layers(frames if self.scaling is None else self.scaling(frames))
        return unit(frames) if self.normalize else frames
