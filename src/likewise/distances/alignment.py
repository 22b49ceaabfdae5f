"""Alignment: how the sequences of two batches match."""

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from likewise.ops.dtw import dtw_cost_path
from likewise.ops.rules import Rules

Lengths = Tensor | Callable[[], Tensor]  # (B,), or a function that computes them on first use


class Alignment:
    """The match of x[b] and y[b], for every b. Each attribute is computed on first use.

    value: (B,), the distances.
    plan: (B, Tx, Ty), the weight of the match between frame i of x and frame j of y; zero in the padding.
    path(b): (K, 2) int64, the matched pairs of frames (i, j) of item b, from the first to the last.
    warp: (B, Tx), where in y each frame of x is matched; NaN in the padding.

    Example:
        >>> from likewise import DTW
        >>> alignment = DTW().align([[0.0, 1.0, 2.0]], [[0.0, 2.0]])
        >>> alignment
        PathAlignment(1 pair)
        >>> alignment.value
        tensor([1.])
    """

    def __init__(self, value: Callable[[], Tensor], x_lengths: Lengths, y_lengths: Lengths) -> None:
        self._value = value
        self._x_lengths = x_lengths
        self._y_lengths = y_lengths

    @cached_property
    def x_lengths(self) -> Tensor:
        """(B,) int64, the steps of each x."""
        return self._x_lengths if isinstance(self._x_lengths, Tensor) else self._x_lengths()

    @cached_property
    def y_lengths(self) -> Tensor:
        """(B,) int64, the steps of each y."""
        return self._y_lengths if isinstance(self._y_lengths, Tensor) else self._y_lengths()

    @cached_property
    def value(self) -> Tensor:
        """(B,), the distances."""
        return self._value()

    @cached_property
    def plan(self) -> Tensor:
        """(B, Tx, Ty), the weight of the match between frame i of x and frame j of y."""
        raise NotImplementedError

    @cached_property
    def warp(self) -> Tensor:
        """(B, Tx), where in y each frame of x is matched."""
        raise NotImplementedError

    def path(self, b: int) -> Tensor:
        """(K, 2) int64, the matched pairs of frames of item b."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.x_lengths)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} pair{'s' * (len(self) != 1)})"

    def _item(self, b: int) -> int:
        count = len(self)
        if not -count <= b < count:
            raise IndexError(f"Alignment: item {b} is out of range for {count} pairs")
        return b % count


class PathAlignment(Alignment):
    """A hard alignment: each item has one path, and its plan is 1 on the path's cells.

    ``warp`` is the last frame of y that frame i of x is matched with.

    Example:
        >>> from likewise import DTW
        >>> alignment = DTW().align([[0.0, 1.0, 2.0]], [[0.0, 2.0]])
        >>> alignment.path(0).tolist()
        [[0, 0], [1, 0], [2, 1]]
        >>> alignment.warp
        tensor([[0., 0., 1.]])
        >>> alignment.plan
        tensor([[[1., 0.],
                 [1., 0.],
                 [0., 1.]]])
    """

    def __init__(
        self,
        value: Callable[[], Tensor],
        paths: Callable[[], tuple[Tensor, Tensor]],
        x: Tensor,
        y: Tensor,
        x_lengths: Lengths,
        y_lengths: Lengths,
    ) -> None:
        super().__init__(value, x_lengths, y_lengths)
        self._find_paths = paths
        self._shape = (x.shape[0], x.shape[1], y.shape[1])
        self._like = x.detach()

    def __len__(self) -> int:
        return self._shape[0]

    @cached_property
    def _paths(self) -> tuple[Tensor, Tensor]:
        return self._find_paths()

    @property
    def steps(self) -> Tensor:
        """(B,) int64, the number of cells of each path."""
        return self._paths[1]

    def path(self, b: int) -> Tensor:
        """(K, 2) int64, the matched pairs of frames of item b."""
        paths, steps = self._paths
        b = self._item(b)
        return paths[b, : int(steps[b])]

    @cached_property
    def plan(self) -> Tensor:
        """(B, Tx, Ty), 1 on the path's cells."""
        cells, item = self.cells()
        plan = self._like.new_zeros(self._shape)
        plan[item, cells[:, 0], cells[:, 1]] = 1
        return plan

    @cached_property
    def warp(self) -> Tensor:
        """(B, Tx), the last frame of y that each frame of x is matched with."""
        cells, item = self.cells()
        warp = self._like.new_full(self._shape[:2], torch.nan)
        # Cells are in path order, so the last one of each row wins.
        last = torch.ones(len(cells), dtype=torch.bool, device=cells.device)
        last[:-1] = (cells[1:, 0] != cells[:-1, 0]) | (item[1:] != item[:-1])
        warp[item[last], cells[last, 0]] = cells[last, 1].to(warp.dtype)
        return warp

    def cells(self) -> tuple[Tensor, Tensor]:
        """The cells (S, 2) of all paths, one path after the other, and the item (S,) that each belongs to."""
        paths, steps = self._paths
        real = torch.arange(paths.shape[1], device=paths.device) < steps[:, None]
        return paths[real], real.nonzero()[:, 0]


class PlanAlignment(Alignment):
    """A soft alignment: its plan gives the probability that a path visits each cell.

    ``path`` prefers cells with a probability above one half; ``warp`` is the expected frame of y for each frame of x.

    Example:
        >>> from likewise import SoftDTW
        >>> alignment = SoftDTW(gamma=0.1).align([[0.0, 0.5, 2.0]], [[0.0, 2.0]])
        >>> alignment.plan.round(decimals=3)
        tensor([[[1., 0.],
                 [1., 0.],
                 [0., 1.]]])
        >>> alignment.path(0).tolist()
        [[0, 0], [1, 0], [2, 1]]
    """

    def __init__(
        self,
        value: Callable[[], Tensor],
        plan: Callable[[], Tensor],
        x_lengths: Tensor,
        y_lengths: Tensor,
        rules: Rules = Rules(),
    ) -> None:
        super().__init__(value, x_lengths, y_lengths)
        self._find_plan = plan
        self._rules = rules

    @cached_property
    def plan(self) -> Tensor:
        """(B, Tx, Ty), the probability that a path visits each cell."""
        return self._find_plan()

    @cached_property
    def warp(self) -> Tensor:
        """(B, Tx), the expected frame of y for each frame of x."""
        mass = self.plan.sum(2)
        position = self.plan @ torch.arange(self.plan.shape[2], device=mass.device, dtype=mass.dtype)
        steps = torch.arange(mass.shape[1], device=mass.device)
        real = steps < self.x_lengths.to(mass.device)[:, None]
        return torch.where(real, position / torch.where(mass > 0, mass, 1), torch.nan)

    def path(self, b: int) -> Tensor:
        """(K, 2) int64, the path of item b with the largest sum of (probability - 1/2) over its cells."""
        b = self._item(b)
        plan = self.plan[b].detach()[None, : int(self.x_lengths[b]), : int(self.y_lengths[b])]
        path, steps = dtw_cost_path(0.5 - plan, rules=self._rules)
        return path[0, : int(steps[0])]
