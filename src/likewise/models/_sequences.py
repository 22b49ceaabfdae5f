"""Helpers of the sequence encoders: check the input, scale the output to unit length, encode no items."""

import torch
from torch import Tensor

from likewise import _check
from likewise.data.batch import Batch, as_sequences


def as_batch(op: str, x: object, channels: int) -> Batch:
    """Return x as a Batch with the given number of channels."""
    batch = x if isinstance(x, Batch) else Batch(*as_sequences(op, "x", x))
    if batch.channels != channels and len(batch):
        _check.refuse(op, f"expected x with {channels} channels, got {batch.channels}")
    return batch


def no_items(batch: Batch, out: int, *, steps: bool) -> Batch | Tensor:
    """The output of an encoder for no items: a Batch if it keeps the steps, or vectors (0, out)."""
    shape = (0, batch.values.shape[1], out) if steps else (0, out)
    empty = batch.values.new_empty(shape)
    return Batch(empty) if steps else empty


def unit(x: Tensor) -> Tensor:
    """Return x / ||x|| along the last dimension; zero vectors stay zero, with zero gradient.

    Example:
        >>> unit(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
        tensor([[0.6000, 0.8000],
                [0.0000, 0.0000]])
    """
    largest = torch.linalg.vector_norm(x.detach(), torch.inf, -1, keepdim=True)
    scaled = x / (largest + (largest == 0))  # scale first: tiny or huge squares are lost
    norm = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
    return scaled / norm.masked_fill(norm == 0, torch.inf)
