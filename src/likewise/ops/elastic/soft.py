"""Soft elastic distances: the softmin over all paths instead of the least, in plain torch.

D(i, j) = softmin(D(i-1, j-1) + match, D(i-1, j) + up, D(i, j-1) + left) with the costs of the moves that ``moves.py``
states, and softmin(a) = -gamma log sum_k exp(-a_k / gamma). The value is this softmin of the costs of all paths.

It works on any device, one anti-diagonal of all pairs at a time; autograd gives derivatives of every order. Memory:
O(T^2) for each pair.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import pad

from likewise import _check
from likewise.ops.elastic.moves import Border, Moves, Recurrence, Side
from likewise.ops.ground import zero_padding
from likewise.ops.rules import Rules


def soft_elastic(
    x: Side, y: Side, moves: Moves, gamma: float, *, rules: Rules = Rules(), weights: Tensor | None = None
) -> Tensor:
    """Values (B,) of x[b] and y[b].

    Example:
        >>> x, y = (Side(torch.tensor([[[0.0], [1.0], [v]]])) for v in (2.0, 4.0))
        >>> soft_elastic(x, y, Moves(Recurrence.WARP, penalty=0.5), gamma=1.0)
        tensor([3.5993])
    """
    return _Problem(_clean(x), _clean(y), moves, gamma, rules, weights).value(None)


def soft_elastic_plan(
    x: Side, y: Side, moves: Moves, gamma: float, *, rules: Rules = Rules(), weights: Tensor | None = None
) -> Tensor:
    """The probability (B, Tx, Ty) that a path visits each cell: the derivative with respect to a cost per visit.

    Example:
        >>> x = Side(torch.tensor([[[0.0], [1.0]]]))
        >>> soft_elastic_plan(x, x, Moves(Recurrence.WARP), gamma=0.2).round(decimals=2)
        tensor([[[1.0000, 0.0100],
                 [0.0100, 1.0000]]])
    """
    sides = (x.frames, y.frames, x.gaps, y.gaps)
    again = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in sides)
    problem = _Problem(_clean(x), _clean(y), moves, gamma, rules, weights)
    with torch.enable_grad():
        visit = torch.zeros_like(problem.cost).requires_grad_()
        (plan,) = torch.autograd.grad(problem.value(visit).sum(), visit, create_graph=again)
    return plan


@dataclass(frozen=True)
class _Problem:
    x: Side
    y: Side
    moves: Moves
    gamma: float
    rules: Rules
    weights: Tensor | None

    @cached_property
    def lengths(self) -> tuple[Tensor, Tensor]:
        """The steps (B,) of x and of y."""
        n, m = (torch.full((len(s),), s.frames.shape[1]) if s.lengths is None else s.lengths for s in (self.x, self.y))
        return n.to(self.x.frames.device), m.to(self.x.frames.device)

    @cached_property
    def cost(self) -> Tensor:
        """c(i, j), (B, Tx, Ty)."""
        squared = (self.x.frames[:, :, None] - self.y.frames[:, None]).square().sum(-1)
        return torch.where(squared > 0, squared, 1).sqrt() * (squared > 0) if self.moves.root else squared

    @property
    def far(self) -> float:
        """The cost of cells that paths may not visit: more than any path, without overflow when two are added."""
        return torch.finfo(self.x.frames.dtype).max / 1024

    def value(self, visit: Tensor | None) -> Tensor:
        """The softmin (B,) over all paths; ``visit`` (B, Tx, Ty) is added for every cell of a path."""
        steps = [pad(step if visit is None else step + visit, (1, 0, 1, 0), value=self.far) for step in self.steps()]
        match, up, left = (_skewed(step, self.far) for step in self._with_borders(*steps))  # (D, B, Tx + 1)
        nowhere = torch.full_like(match[0], self.far)
        before, last = nowhere, torch.cat([torch.zeros_like(nowhere[:, :1]), nowhere[:, 1:]], 1)  # from cell (0, 0)
        diagonals = [last]
        for d in range(1, len(match)):  # the cells (i, d - i); that above (i, d - i) is the one before it, a step ago
            ways = torch.stack([self._above(before) + match[d], self._above(last) + up[d], last + left[d]])
            before, last = last, self._softmin(ways, 0).clamp(max=self.far)
            diagonals.append(last)
        return self._ends(torch.stack(diagonals, 1))

    def steps(self) -> tuple[Tensor, Tensor, Tensor]:
        """The costs of the moves to each cell along the diagonal, from above and from the left, (B, Tx, Ty) each."""
        moves, cost = self.moves, self.cost
        if moves.recurrence == Recurrence.WARP:
            cost = cost if self.weights is None else cost * self._weights_of_cells(self.weights)
            return cost, cost + moves.penalty, cost + moves.penalty
        assert self.x.gaps is not None
        assert self.y.gaps is not None
        up, left = self.x.gaps[:, :, None].expand_as(cost), self.y.gaps[:, None].expand_as(cost)
        if moves.recurrence == Recurrence.CARRY:
            return _shifted(cost, 1, 1) + cost + moves.slope * self._apart().to(cost.dtype), up, left
        if moves.recurrence == Recurrence.BALL:
            up = _split(up, cost, _shifted(cost, 1, 0), moves.penalty)
            left = _split(left, cost, _shifted(cost, 0, 1), moves.penalty)
        return cost, up, left

    def _with_borders(self, match: Tensor, up: Tensor, left: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Moves (B, Tx + 1, Ty + 1), with those into the borders in row and column 0; forbidden ones cost ``far``."""
        moves, far = self.moves, self.far
        forbidden = pad(~self._allowed(), (1, 0, 1, 0), value=True)
        match, up, left = (step.masked_fill(forbidden, far) for step in (match, up, left))
        if moves.recurrence in (Recurrence.WARP, Recurrence.CARRY, Recurrence.BALL):  # a path begins with a match
            first = torch.zeros_like(forbidden)
            first[:, 1] = True
            up = up.masked_fill(first, far)
            first = torch.zeros_like(forbidden)
            first[:, :, 1] = True
            left = left.masked_fill(first, far)
        free, gaps = moves.border == Border.FREE, moves.border == Border.GAPS
        if free or gaps:
            edge = torch.zeros_like(match[:, 1:, 0]) if free else self.x.gaps
            up = torch.cat([torch.cat([up[:, :1, :1], edge[:, :, None]], 1), up[:, :, 1:]], 2)  # type: ignore[index]
        if free or gaps or self.rules.open_begin:
            edge = self.y.gaps if gaps and not self.rules.open_begin else torch.zeros_like(match[:, 0, 1:])
            left = torch.cat([torch.cat([left[:, :1, :1], edge[:, None]], 2), left[:, 1:]], 1)  # type: ignore[index]
        return match, up, left

    def _ends(self, diagonals: Tensor) -> Tensor:
        """The values, from D(i, j) at (B, i + j, i)."""
        n, m = self.lengths
        item, row = torch.arange(len(n), device=n.device)[:, None], n[:, None]
        column = torch.arange(1, self.cost.shape[2] + 1, device=n.device) if self.rules.open_end else m[:, None]
        found = diagonals[item, row + column, row]  # (B, columns)
        if self.moves.last_cost:
            found = found + self.cost[item, row - 1, column - 1]
        value = self._softmin(found.masked_fill(column > m[:, None], self.far), 1)
        return _check.finite_values("soft_elastic", torch.where(value < self.far / 2, value, torch.inf))

    def _softmin(self, values: Tensor, dim: int) -> Tensor:
        least = values.detach().amin(dim, keepdim=True)
        return least.squeeze(dim) - self.gamma * ((least - values) / self.gamma).exp().sum(dim).log()

    def _above(self, diagonal: Tensor) -> Tensor:
        return pad(diagonal[:, :-1], (1, 0), value=self.far)

    def _apart(self) -> Tensor:
        """|i - j|, (Tx, Ty)."""
        i, j = (torch.arange(size, device=self.cost.device) for size in self.cost.shape[1:])
        return (i[:, None] - j).abs()

    def _weights_of_cells(self, weights: Tensor) -> Tensor:
        """(B, Tx, Ty) from weights (2 L + 1,) of 2 |i - j| - max(n, m) = -L, ..., L."""
        longest = torch.maximum(*self.lengths)[:, None, None]
        at = 2 * self._apart() - longest + len(weights) // 2
        return weights[at.clamp(0, len(weights) - 1)]

    def _allowed(self) -> Tensor:
        """The cells (B, Tx, Ty) that paths may visit."""
        (n, m), (height, width) = self.lengths, self.cost.shape[1:]
        i, j = torch.arange(height, device=n.device)[:, None], torch.arange(width, device=n.device)
        real = (i < n[:, None, None]) & (j < m[:, None, None])
        if not self.rules.window.kind:
            return real
        sizes, place = torch.stack(self.lengths, 1).unique(dim=0, return_inverse=True)
        windows = torch.zeros(len(sizes), height, 2, dtype=torch.int64)
        for k, (rows, columns) in enumerate(sizes.tolist()):
            windows[k, :rows] = torch.tensor([self.rules.window.row(rows, columns, row) for row in range(rows)])
        first, last = windows.to(n.device)[place].unbind(2)  # (B, Tx) each
        return real & (j >= first[..., None]) & (j <= last[..., None])


def _clean(side: Side) -> Side:
    """The side with zeros as padding."""
    gaps = None if side.gaps is None else zero_padding(side.gaps[..., None], side.lengths)[..., 0]
    return replace(side, frames=zero_padding(side.frames, side.lengths), gaps=gaps)


def _skewed(steps: Tensor, far: float) -> Tensor:
    """(B, H, W) by anti-diagonals, (H + W - 1, B, H): the cell (i, d - i) is at (d, :, i)."""
    height, width = steps.shape[1:]
    flat = pad(steps, (0, height), value=far).flatten(1)[:, : height * (width + height - 1)]
    return flat.unflatten(1, (height, width + height - 1)).permute(2, 0, 1).contiguous()


def _split(gap: Tensor, cost: Tensor, diameter: Tensor, penalty: float) -> Tensor:
    return penalty + torch.where(gap + cost <= diameter, 0.0, torch.minimum(gap, cost))


def _shifted(cost: Tensor, rows: int, columns: int) -> Tensor:
    """The cost at (i - rows, j - columns), 0 before the first."""
    height, width = cost.shape[1:]
    return pad(cost, (columns, 0, rows, 0))[:, :height, :width]
