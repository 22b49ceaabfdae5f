"""SelfAttention: frames that attend to the other frames of their sequence."""

import math

import torch
from torch import Tensor, nn

from likewise import _check
from likewise.data.batch import Batch
from likewise.models._sequences import as_batch, unit


class SelfAttention(nn.Module):
    """One head of self-attention over time: (B, T, channels) -> (B, T, channels). Followed by TAP, this is SA-TAP.

    Xp = X + P; Xa = softmax(Xp Wq (Xp Wk)^T / sqrt(C)) Xp Wv; the output is LN(Xa + Xp), where LN is a layer
    normalisation and P holds sines and cosines of the frame's index, with amplitude ``position``.

    encoder: a module that turns items into frames first; None if items are frames.
    normalize: scale each output frame to unit length as well.

    Frames attend only to the real frames of their sequence. Reference: Su & Wen (ICLR 2022), appendix A.3. The paper
    does not define P; 0.1 is the value in its code, which also adds X twice, Xp = 2 X + P, and has biases in the three
    linear maps. Here Wv starts at zero, so training begins with the plain frames.

    Example:
        >>> from likewise.models.frame_mlp import FrameMLP
        >>> attention = SelfAttention(8, encoder=FrameMLP(3, hidden=16, out=8))
        >>> attention(Batch(torch.randn(2, 9, 3), [9, 4]))
        Batch(2 sequences, 4..9 steps, 8 channels, torch.float32, cpu)
    """

    def __init__(
        self,
        channels: int,
        *,
        encoder: nn.Module | None = None,
        position: float = 0.1,
        normalize: bool = False,
    ) -> None:
        super().__init__()
        self.channels = _check.whole("SelfAttention", "channels", channels)
        self.encoder = encoder
        self.position = float(_check.number("SelfAttention", "position", position))
        self.normalize = normalize
        self.queries, self.keys, self.values = (nn.Linear(self.channels, self.channels, bias=False) for _ in range(3))
        nn.init.zeros_(self.values.weight)
        self.norm = nn.LayerNorm(self.channels)

    def forward(self, x: object) -> Batch:
        """Encode a Batch to a Batch of the same lengths."""
        batch = as_batch("SelfAttention", x if self.encoder is None else self.encoder(x), self.channels)
        if len(batch) == 0:
            return Batch(batch.values.new_empty(0, batch.values.shape[1], self.channels))
        mask = batch.mask
        frames = batch.values.masked_fill(~mask[..., None], 0)
        frames = frames + self.position * positions(frames)
        scores = self.queries(frames) @ self.keys(frames).mT / math.sqrt(self.channels)  # (B, T, T)
        attention = scores.masked_fill(~mask[:, None], -math.inf).softmax(2)
        values = self.norm(attention @ self.values(frames) + frames)
        return Batch(unit(values) if self.normalize else values, batch.lengths)


def positions(frames: Tensor) -> Tensor:
    """Alternating sines and cosines (T, C) of the frame index, at C / 2 wavelengths from 2 pi to 20,000 pi.

    Reference: Vaswani et al. (2017), arXiv:1706.03762.

    Example:
        >>> positions(torch.zeros(1, 2, 4))
        tensor([[0.0000, 1.0000, 0.0000, 1.0000],
                [0.8415, 0.5403, 0.0100, 0.9999]])
    """
    _, steps, channels = frames.shape
    rates = torch.exp(torch.arange(0, channels, 2, device=frames.device) * (-math.log(10_000.0) / channels))
    angles = torch.arange(steps, device=frames.device)[:, None] * rates  # (T, C / 2, rounded up)
    return torch.stack([angles.sin(), angles.cos()], 2).flatten(1)[:, :channels].to(frames.dtype)
