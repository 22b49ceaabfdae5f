"""Open-ended matches, sample by sample."""

import numpy as np
import torch
from torch import Tensor

from likewise.ops import cpu
from likewise.ops.rules import NONE
from likewise.ops.search.prepared import readable


def stretches(
    query: Tensor, items: Tensor, lengths: Tensor | None = None, *, root: bool = False, threads: int | None = None
) -> tuple[Tensor, Tensor]:
    """For each step of each item, the best stretch that ends there: its value (N, T) and its start (N, T).

    query (1, n, C), items (N, T, C). The entire query is matched with the stretch, whose ends are free.

    Example:
        >>> value, start = stretches(torch.tensor([[[1.0], [2.0]]]), torch.tensor([[[1.0], [2.0], [0.0]]]))
        >>> value[0], start[0]
        (tensor([1., 0., 4.]), tensor([0, 0, 0]))
    """
    items = readable("search", "items", items)
    count, steps, _ = items.shape
    lengths = cpu.checked_lengths("search", "lengths", lengths, count, steps)
    cpu.check_finite("search", "items", items, lengths)
    values, starts = items.new_full((count, steps), np.inf), torch.full((count, steps), -1)

    def work(begin: int, end: int) -> None:
        for item in range(begin, end):
            stream = Stream(query, root=root)
            stream.push(items[item, : int(lengths[item])], values[item], starts[item])

    cpu.share_out(count, query.shape[1] * steps, work, threads=threads)
    return values, starts


class Stream:
    """The best stretches of a series that arrives piece by piece. Memory: 16 bytes for each step of the query."""

    def __init__(self, query: Tensor, *, root: bool = False) -> None:
        self.query = readable("search", "query", query)
        self.position = 0
        _, steps, channels = query.shape
        self._lengths = cpu.checked_lengths("search", "lengths", None, 1, steps)
        cpu.check_finite("search", "query", self.query, self._lengths)
        self.column, self.starts = self.query.new_full((steps,), np.inf), torch.zeros(steps, dtype=torch.int64)
        self._problem = cpu.native.Problem(
            x=self.query.data_ptr(),
            y=0,
            cost=0,
            x_lengths=self._lengths.data_ptr(),
            y_lengths=0,
            rows=1,
            columns=1,
            x_steps=steps,
            y_steps=0,
            channels=channels,
            all_pairs=True,
            float64=query.dtype == torch.float64,
            ground=cpu.EUCLIDEAN if root else cpu.SQUARED,
            window=NONE,
            window_size=0.0,
            open_begin=True,
            open_end=True,
            gamma=0.0,
        )

    def push(self, samples: Tensor, values: Tensor, starts: Tensor) -> None:
        """Write the value and the start of the stretch that ends at each of the samples (T, C)."""
        samples = samples.contiguous()
        cpu.native.search_stretches(
            cpu.INSTRUCTION_SET,
            self._problem,
            0,
            samples.data_ptr(),
            len(samples),
            self.position,
            self.column.data_ptr(),
            self.starts.data_ptr(),
            values.data_ptr(),
            starts.data_ptr(),
        )
        self.position += len(samples)
