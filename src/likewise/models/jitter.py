"""Jitter: random perturbation of an encoder's input in training."""

import torch
from torch import nn

from likewise import _check
from likewise.data.batch import Batch, as_sequences


class Jitter(nn.Module):
    """An encoder that sees x_t (1 + scale a) + offset b + noise c_t in place of x_t in training.

    a and b are drawn once per sequence and c_t once per frame, a normal number for each channel. They simulate a sensor
    worn elsewhere, or a voice that is not in the training set. In eval mode the encoder sees x, as with dropout.

    encoder: any module that takes a Batch.
    offset, scale, noise: standard deviations, in units of the input (scale: as a share of it). Standardise first.

    Example:
        >>> from likewise.models.frame_mlp import FrameMLP
        >>> encoder = Jitter(FrameMLP(13, hidden=32), offset=0.3, scale=0.1, noise=0.2)
        >>> x = Batch(torch.randn(2, 5, 13), [5, 3])
        >>> bool(encoder.eval()(x) == encoder.encoder(x)), bool(encoder.train()(x) == encoder.encoder(x))
        (True, False)
    """

    def __init__(self, encoder: nn.Module, *, offset: float = 0.0, scale: float = 0.0, noise: float = 0.0) -> None:
        super().__init__()
        if not isinstance(encoder, nn.Module):
            raise TypeError(f"Jitter: expected encoder to be a module, got {type(encoder).__name__}")
        self.encoder = encoder
        self.offset = _check.not_negative("Jitter", "offset", offset)
        self.scale = _check.not_negative("Jitter", "scale", scale)
        self.noise = _check.not_negative("Jitter", "noise", noise)

    def forward(self, x: object) -> object:
        """Perturb the sequences in training, then encode them."""
        if not self.training:
            return self.encoder(x)
        batch = x if isinstance(x, Batch) else Batch(*as_sequences("Jitter", "x", x))
        values = batch.values
        once = values[:, :1]  # one draw per sequence and channel
        values = values * (1 + self.scale * torch.randn_like(once)) + self.offset * torch.randn_like(once)
        return self.encoder(Batch(values + self.noise * torch.randn_like(values), batch.lengths))

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return f"offset={self.offset:g}, scale={self.scale:g}, noise={self.noise:g}"
