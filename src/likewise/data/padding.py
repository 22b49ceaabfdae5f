"""Convert stacked rows, as files hold them, to a padded Batch."""

import numpy as np
import torch

from likewise import _check
from likewise.data.batch import Batch


def pad_stacked(where: str, values: np.ndarray, lengths: np.ndarray, limit: int) -> Batch:
    """Cut stacked rows (sum of T_i, C) into sequences of the given lengths (N,), and pad them.

    One long sequence among many short ones makes the batch far larger than the rows, so a batch of more than limit
    bytes raises an error that begins with where.

    Example:
        >>> pad_stacked("x.npz", np.ones((5, 1), np.float32), np.array([3, 2]), limit=1000)
        Batch(2 sequences, 2..3 steps, 1 channel, torch.float32, cpu)
    """
    count, channels = len(lengths), values.shape[1]
    steps = int(lengths.max()) if count else 0
    size = count * steps * channels * values.itemsize
    if size > limit:
        _check.refuse(
            where,
            f"{count} sequences padded to the longest, item {int(lengths.argmax())} with {steps} steps, take "
            f"{size} bytes, more than the limit of {limit}; split the set or shorten that sequence",
        )
    if len(values) == count * steps:
        padded = values.reshape(count, steps, channels)
    else:
        padded = np.zeros((count, steps, channels), values.dtype)
        padded[np.arange(steps) < lengths[:, None]] = values
    return Batch(torch.from_numpy(padded), torch.from_numpy(lengths))
