"""Random problems of every recurrence, for the tests of the C++ and the Triton kernels."""

from dataclasses import dataclass

import torch
from torch import Tensor

from likewise.ops.elastic import Border, Moves, Recurrence, Side
from likewise.ops.rules import Rules

RULES = [
    {},
    {"band": 2},
    {"band": 0.3},
    {"itakura": 1.5},
    {"open_begin": True},
    {"open_end": True, "band": 3},
    {"subsequence": True},
    {"band": 0},
]
MOVES = [
    Moves(Recurrence.WARP, penalty=0.3),
    Moves(Recurrence.WARP, root=True),
    Moves(Recurrence.EDIT, root=True, border=Border.GAPS),
    Moves(Recurrence.EDIT, border=Border.NONE),
    Moves(Recurrence.CARRY, root=True, slope=0.1),
    Moves(Recurrence.CARRY, root=True, last_cost=True),
    Moves(Recurrence.COUNT, root=True, border=Border.GAPS, miss=1.0),
    Moves(Recurrence.COUNT, root=True, border=Border.FREE, hit=-1.0),
    Moves(Recurrence.BALL, penalty=0.4),
    Moves(Recurrence.FOLLOW, parts=3),
]


@dataclass(frozen=True)
class Problem:
    """Two sides of unequal lengths, with NaN as padding, and what to do with them."""

    x: Side
    y: Side
    moves: Moves
    rules: Rules
    weights: Tensor | None

    def items(self, i: int, j: int) -> tuple[Side, Side]:
        return item(self.x, i), item(self.y, j)

    def options(self) -> dict:
        return {"rules": self.rules, "weights": self.weights}


def item(side: Side, b: int) -> Side:
    part = slice(b, b + 1)
    reach = None if side.reach is None else side.reach[part]
    gaps = None if side.gaps is None else side.gaps[part]
    return Side(side.frames[part], None if side.lengths is None else side.lengths[part], gaps, reach)


def random_problem(seed: int, *, batch: int = 5, longest: int = 20, dtype=torch.float64) -> Problem:
    """Every recurrence, rule and number of channels comes up among the seeds 0..19."""
    generator = torch.Generator().manual_seed(seed)
    moves, rules = MOVES[seed % len(MOVES)], Rules.of("test", **RULES[(seed // 2) % len(RULES)])
    channels = 3 if moves.parts > 1 else (1, 3)[seed // len(MOVES) % 2]

    def side(steps: int) -> Side:
        lengths = torch.randint(1, steps + 1, (batch,), generator=generator)
        lengths[0] = steps
        longer = steps + moves.parts - 1
        x = torch.randn(batch, longer, channels // moves.parts, generator=generator, dtype=torch.float64).to(dtype)
        x = x.unfold(1, moves.parts, 1).transpose(2, 3).flatten(2)  # windows, as FOLLOW has them
        gaps = torch.rand(batch, steps, generator=generator, dtype=torch.float64).to(dtype)
        padding = torch.arange(steps) >= lengths[:, None]
        reach = torch.rand(batch, generator=generator, dtype=torch.float64).to(dtype)
        return Side(
            x.masked_fill(padding[..., None], torch.nan),
            lengths,
            gaps.masked_fill(padding, torch.nan) if moves.has_gaps else None,
            reach if moves.recurrence == Recurrence.COUNT else None,
        )

    x, y = side(longest), side(longest - 3)
    weighted = moves.recurrence == Recurrence.WARP and seed // len(MOVES) % 2 == 0
    weights = torch.rand(2 * longest + 1, generator=generator, dtype=torch.float64).to(dtype) if weighted else None
    return Problem(x, y, moves, rules, weights)
