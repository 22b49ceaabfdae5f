"""TCN: dilated convolutions over time."""

from torch import Tensor, nn

from likewise import _check
from likewise.data.batch import Batch
from likewise.data.standardization import Standardization
from likewise.distances.training_defaults import TrainingDefaults
from likewise.models._sequences import as_batch, no_items, unit

MOST_LAYERS = 24  # dilations double from layer to layer


class TCN(nn.Module):
    """A temporal convolutional network: (B, T, channels) -> (B, T, out), or their mean over time (B, out).

    Layer l convolves with dilation 2^l, adds its input, and applies ReLU: the last layer sees
    1 + (kernel - 1) (2^layers - 1) frames. A linear layer maps to ``out`` channels (by default ``hidden``).

    causal: each step sees only itself and the past; otherwise its window is centred on it, and kernel must be odd.
    steps: return all steps as a Batch; otherwise return the mean of the real ones.
    normalize: scale each output vector to unit length. dropout: share of the activations that is dropped in each layer.
    standardize: scale channels by their mean and deviation, which ``fit`` computes; see ``Standardization``.

    Padding is zeroed before every convolution, so padding does not change the result of a sequence. Reference: Bai,
    Kolter & Koltun (2018), arXiv:1803.01271; here each block has one convolution instead of two, and no weight norm.

    Example:
        >>> import torch
        >>> TCN(3, hidden=8)(Batch(torch.randn(2, 9, 3), [9, 4]))
        Batch(2 sequences, 4..9 steps, 8 channels, torch.float32, cpu)
        >>> TCN(3, hidden=8, steps=False)(torch.randn(2, 9, 3)).shape
        torch.Size([2, 8])
    """

    training_defaults = TrainingDefaults(lr=3e-3, steps=400)

    def __init__(
        self,
        channels: int,
        hidden: int = 64,
        *,
        layers: int = 4,
        kernel: int = 3,
        out: int | None = None,
        causal: bool = False,
        steps: bool = True,
        normalize: bool = False,
        dropout: float = 0.0,
        standardize: bool = True,
    ) -> None:
        super().__init__()
        self.channels = _check.whole("TCN", "channels", channels)
        self.hidden = _check.whole("TCN", "hidden", hidden)
        self.layers = _check.whole("TCN", "layers", layers, most=MOST_LAYERS)
        self.kernel = _check.whole("TCN", "kernel", kernel, most=1024)
        self.out = self.hidden if out is None else _check.whole("TCN", "out", out)
        self.causal = causal
        self.steps = steps
        self.normalize = normalize
        self.dropout = _check.fraction("TCN", "dropout", dropout)
        if not causal and self.kernel % 2 == 0:
            _check.refuse("TCN", f"kernel must be odd unless causal, got {kernel}")
        self.standardize = standardize
        self.scaling = Standardization(self.channels) if standardize else None
        self.inward = nn.Linear(self.channels, self.hidden)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(self.hidden, self.hidden, self.kernel, dilation=2**layer) for layer in range(self.layers)
        )
        self.outward = nn.Linear(self.hidden, self.out)

    def forward(self, x: object) -> Batch | Tensor:
        """Encode a Batch to a Batch of the same lengths or, without ``steps``, to vectors."""
        batch = as_batch("TCN", x, self.channels)
        if len(batch) == 0:
            return no_items(batch, self.out, steps=self.steps)
        padding = ~batch.mask  # (B, T)
        values = batch.values if self.scaling is None else self.scaling(batch.values, batch.lengths)
        frames = self.inward(values.masked_fill(padding[..., None], 0)).mT  # (B, hidden, T)
        for layer, convolution in enumerate(self.convolutions):
            frames = frames.masked_fill(padding[:, None], 0)
            seen = (self.kernel - 1) * 2**layer
            past = seen if self.causal else seen // 2
            change = convolution(nn.functional.pad(frames, (past, seen - past)))
            frames = nn.functional.relu(frames + nn.functional.dropout(change, self.dropout, self.training))
        values = self.outward(frames.mT)  # (B, T, out)
        if not self.steps:
            total = values.masked_fill(padding[..., None], 0).sum(1)
            mean = total / batch.lengths.to(total.device)[:, None]
            return unit(mean) if self.normalize else mean
        return Batch(unit(values) if self.normalize else values, batch.lengths)
