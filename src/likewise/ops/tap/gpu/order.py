"""The order of the pairs in their lines: that of y's lengths."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from likewise.ops.launch.launcher import launch
from likewise.ops.tap.gpu import slopes as kernels
from likewise.ops.tap.lines import cuts, one_line

BLOCK, WARPS = 128, 4  # pairs of a program


@dataclass(frozen=True)
class Order:
    """Pairs (P,) of x (N) and y (M), in the order of y's lengths, and their lines: see ``lines.py``."""

    cuts: list[tuple[int, int, int, int]]
    places: Tensor  # (P,) of each among the pairs that were given, or, of all pairs, in the matrix (N, M)
    items: Tensor  # (P,) numbers of x
    others: Tensor  # (P,) numbers of y
    before: Tensor  # (P,) rows before each
    frames: Tensor  # (P,) of x, float32: a distance is a mean over them
    n: Tensor  # (N,) lengths
    m: Tensor  # (M,)
    ascending: Tensor | None  # (M,) numbers of y in the order of their lengths, if these are all pairs

    @classmethod
    def of(
        cls, n: Tensor, m: Tensor, items: Tensor, others: Tensor, halo: int, limits: tuple[int, int],
        device: torch.device,
    ) -> "Order":  # fmt: skip
        """Of some pairs. All tensors are on the CPU. limits: the most cells and the most pairs of a line."""
        places = m[others].argsort(stable=True)
        items, others = items[places], others[places]
        rows = n[items] + halo
        before = rows.cumsum(0) - rows
        # One transfer. Its parts begin at multiples of 16 bytes if the numbers of pairs and of sequences are even.
        there = torch.cat([places, items, others, before, n, m]).to(device)
        *parts, n_there, m_there = there.split([*[len(places)] * 4, len(n), len(m)])
        frames = n_there[parts[1]].float()
        found = list(cuts(n[items], m[others], halo, *limits))
        return cls(found, *parts, frames, n_there, m_there, None)

    @classmethod
    def of_all(cls, n: Tensor, m: Tensor, halo: int, limits: tuple[int, int], device: torch.device) -> "Order":
        """Of all pairs. Few numbers are computed on the CPU, since the GPU waits for them."""
        pairs, rows, ascending = len(n) * len(m), n.numpy() + halo, m.numpy().argsort(kind="stable")
        before, total = rows.cumsum() - rows, int(rows.sum())
        narrowest, widest = int(m[ascending[0]]) + halo, int(m[ascending[-1]]) + halo
        whole = one_line(pairs, total * len(m), narrowest, widest, *limits)
        found = [whole] if whole else list(
            cuts(n.repeat(len(m)), m[ascending].repeat_interleave(len(n)), halo, *limits)
        )  # fmt: skip
        # One transfer, of which each part begins at a multiple of 16 bytes.
        small = [n.numpy(), m.numpy(), ascending, before]
        even = [np.pad(part, (0, 1)) if len(part) % 2 else part for part in small]
        there = torch.from_numpy(np.concatenate(even)).to(device).split([len(part) for part in even])
        n_there, m_there, ascending_there, before_there = (t[: len(p)] for t, p in zip(there, small, strict=True))
        numbers = torch.empty(4, pairs + pairs % 2, dtype=torch.int64, device=device)
        places, items, others, before_pair = (part[:pairs] for part in numbers)
        frames = torch.empty(pairs, device=device)
        launch(
            kernels.pairs_kernel, (-(-pairs // BLOCK),),
            (n_there, ascending_there, before_there, places, items, others, before_pair, frames),
            (len(n), len(m), total, pairs), WARPS, BLOCK=BLOCK,
        )  # fmt: skip
        return cls(found, places, items, others, before_pair, frames, n_there, m_there, ascending_there)
