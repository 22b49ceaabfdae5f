"""Elastic: the base class of the distances that one engine computes from a table of moves."""

import functools
from abc import abstractmethod
from collections.abc import Iterable

import torch
from torch import Tensor

from likewise import _check
from likewise.distances.alignment import PathAlignment
from likewise.distances.distance import Distance, Sequences, describe, full_lengths
from likewise.ops.elastic import Moves, Side, elastic, elastic_matrix, elastic_pairs, elastic_path
from likewise.ops.ground import at_least_float32, zero_padding
from likewise.ops.rules import Rules


class Elastic(Distance):
    """The least cost of matching two sequences with three moves: match, leave out of x, leave out of y.

    A subclass defines the moves (``moves``) and their costs (``side``); bands, unequal lengths, paths, derivatives and
    all pairs come from the engine. ``likewise.ops.elastic.moves`` lists the recurrences.

    Example:
        >>> import torch
        >>> from likewise.ops.elastic import Border, Moves, Recurrence, Side
        >>> class Levenshtein(Elastic):
        ...     def moves(self):
        ...         return Moves(Recurrence.EDIT, root=True, border=Border.GAPS)
        ...     def side(self, x, lengths):
        ...         return Side(x, lengths, gaps=torch.ones_like(x[..., 0]))
        >>> Levenshtein(Rules())([[0.0, 1.0, 0.0]], [[0.0, 0.0]])
        tensor([1.])
    """

    metric = False  # whether the triangle inequality holds when no rule forbids paths
    shortest = 1  # steps that a sequence must have
    first_frame = 0  # the frame of x that the engine's frame 0 belongs to
    open_ends = False  # the constructor takes open_begin, open_end and subsequence
    symmetric_moves = True  # swapping x and y swaps the moves

    def __init__(self, rules: Rules) -> None:
        super().__init__()
        self.rules = rules
        self.symmetric = self.symmetric_moves and rules.symmetric
        self.metric = type(self).metric and rules == Rules()

    @abstractmethod
    def moves(self) -> Moves:
        """The recurrence and its numbers."""

    def side(self, x: Tensor, lengths: Tensor | None) -> Side:
        """Frames, gaps and reach of a batch (B, T, C), at least float32, whose padding is zero."""
        return Side(x, lengths)

    def weights(self, longest: int, like: Tensor) -> Tensor | None:
        """Weights (2 longest + 1,) of the costs by 2 |i - j| - max(n, m), if the distance has any."""
        return None

    def scale(self, x_lengths: Tensor, y_lengths: Tensor) -> tuple[float, Tensor | float]:
        """Offset and factor of the engine's value, given lengths that broadcast."""
        return 0.0, 1.0

    def settings(self) -> dict[str, object]:
        """The constructor's arguments, except those of the rules."""
        return {}

    def paired(self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (B,) of padded pairs."""

        def of(x: Tensor, y: Tensor) -> Tensor:
            a, b = self.sides(x, y, x_lengths, y_lengths)
            value = elastic(a, b, self.moves(), rules=self.rules, weights=self.weights_of(a, b))
            return self.scaled(value, self.lengths_of(a), self.lengths_of(b))

        return _check.fits(self.name, total(of(a, b) for a, b in self.channels(x, y)), x.dtype)

    def all_pairs(self, x: Tensor, y: Tensor | None, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (N, M) of padded sequences."""
        own = y is None

        def of(x: Tensor, y: Tensor) -> Tensor:
            a, b = self.sides(x, y, x_lengths, x_lengths if own else y_lengths)
            mirrored = own and self.symmetric
            weights = self.weights_of(a, b)
            value = elastic_matrix(a, None if mirrored else b, self.moves(), rules=self.rules, weights=weights)
            return self.scaled(value, self.lengths_of(a)[:, None], self.lengths_of(b))

        found = total(of(a, b) for a, b in self.channels(x, x if y is None else y))
        return _check.fits(self.name, found, x.dtype)

    def some_pairs(self, x: Sequences, y: Sequences, pairs: Tensor, limits: Tensor | None = None) -> Tensor:
        """Distances (K,) between x[pairs[k, 0]] and y[pairs[k, 1]], without derivatives.

        With limits (K,), a pair whose distance is above its limit may get infinity instead, which saves time.

        Example:
            >>> import likewise as lw
            >>> x = torch.randn(3, 50, 1)
            >>> lw.MSM().some_pairs(x, x, torch.tensor([[0, 1], [2, 2]])).shape
            torch.Size([2])
        """
        x_values, y_values, x_lengths, y_lengths = self._pair(x, y, paired=False)
        found = torch.zeros((), dtype=at_least_float32(x_values[:0]).dtype, device=x_values.device)
        for a, b in self.channels(x_values.detach(), y_values.detach()):
            a, b = self.sides(a, b, x_lengths, y_lengths)
            n, m = self.lengths_of(a)[pairs[:, 0]], self.lengths_of(b)[pairs[:, 1]]
            left = None
            if limits is not None:
                offset, factor = self.scale(n, m)
                left = (limits - found - offset) / factor  # the distance so far lowers the limits of the next channel
            weights = self.weights_of(a, b)
            value = elastic_pairs(a, b, pairs, self.moves(), limits=left, rules=self.rules, weights=weights)
            found = found + self.scaled(value, n, m)
        return found.to(x_values.dtype)

    def align(self, x: Sequences, y: Sequences) -> PathAlignment:
        """The optimal path of every pair."""
        x, y, x_lengths, y_lengths = self._pair(x, y, paired=True)
        self.check_one_path(x)

        def find() -> tuple[Tensor, Tensor]:
            a, b = self.sides(x.detach(), y.detach(), x_lengths, y_lengths)
            path, steps = elastic_path(a, b, self.moves(), rules=self.rules, weights=self.weights_of(a, b))
            return path + self.first_frame * (path >= 0), steps

        return PathAlignment(
            lambda: self.paired(x, y, x_lengths, y_lengths),
            find,
            x,
            y,
            lambda: full_lengths(x, x_lengths),
            lambda: full_lengths(y, y_lengths),
        )

    def channels(self, x: Tensor, y: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Split (B, T, C) into parts with one path each: single channels if they are separate, else all together."""
        if not self.separate or x.shape[2] == 1:
            return [(x, y)]
        if y is x:
            return [(a, a) for a in x.split(1, 2)]
        return list(zip(x.split(1, 2), y.split(1, 2), strict=True))

    def check_one_path(self, x: Tensor) -> None:
        """Raise an error if channels have separate paths."""
        if self.separate and x.shape[2] > 1:
            _check.refuse(
                self.name,
                "each channel has its own path; align one channel, or use independent=False for one path",
            )

    def config(self) -> dict[str, object]:
        """The constructor's arguments."""
        return {**self.settings(), **self._rule_settings()}

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return describe(("independent",), **self.config())

    def _rule_settings(self) -> dict[str, object]:
        """The settings of the rules that this distance's constructor takes."""
        rules = self.rules.settings()
        return {name: value for name, value in rules.items() if self.open_ends or name in ("band", "itakura")}

    def sides(self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> tuple[Side, Side]:
        """Both sides of padded sequences, checked."""
        first = self._side("x", x, x_lengths)
        same = y is x and y_lengths is x_lengths
        return first, first if same else self._side("y", y, y_lengths)

    def _side(self, name: str, x: Tensor, lengths: Tensor | None) -> Side:
        _check.finite(self.name, name, x, lengths)
        if self.shortest > 1 and len(x):
            steps = full_lengths(x, lengths)
            item = int(steps.argmin())
            if int(steps[item]) < self.shortest:
                _check.refuse(
                    self.name, f"{name}[{item}] has {int(steps[item])} steps, but needs at least {self.shortest}"
                )
        return self.side(zero_padding(at_least_float32(x), lengths), lengths)

    def weights_of(self, x: Side, y: Side) -> Tensor | None:
        """The weights for these sequences."""
        return self.weights(max(x.frames.shape[1], y.frames.shape[1]), x.frames)

    def lengths_of(self, side: Side) -> Tensor:
        """The steps (B,) of a side's frames."""
        return full_lengths(side.frames, side.lengths)

    def scaled(self, value: Tensor, x_lengths: Tensor, y_lengths: Tensor) -> Tensor:
        """Convert the engine's values to distances."""
        offset, factor = self.scale(x_lengths, y_lengths)
        if isinstance(factor, Tensor):
            value = value * factor.to(value.dtype)
        return value + offset if offset else value


def total(parts: Iterable[Tensor]) -> Tensor:
    """The sum of one or more tensors."""
    return functools.reduce(torch.add, parts)


def jumps(x: Tensor) -> Tensor:
    """||x_i - x_{i-1}|| (B, T) of (B, T, C), 0 for the first frame; where it is zero, so is its derivative.

    Example:
        >>> jumps(torch.tensor([[[0.0], [2.0], [1.0]]]))
        tensor([[0., 2., 1.]])
    """
    step = x.diff(dim=1, prepend=x[:, :1])
    if x.shape[2] == 1:
        return step[..., 0].abs()
    squared = step.square().sum(-1)
    return torch.where(squared > 0, squared, 1).sqrt() * (squared > 0)
