"""Numbers of cells, stored by column: a lane reads and writes the numbers of its neighbouring rows together."""

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

ALIGNED = 16  # numbers: columns begin at multiples of this, which Triton uses


@triton.jit
def four_of(tile, LANES: tl.constexpr):
    """The columns of a tile (LANES, 4)."""
    even, odd = tl.split(tl.reshape(tile, (LANES, 2, 2)))
    a, c = tl.split(even)
    b, d = tl.split(odd)
    return a, b, c, d


@triton.jit
def of_four(a, b, c, d, LANES: tl.constexpr):
    """A tile (LANES, 4) of its columns."""
    return tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), (LANES, 4))


@triton.jit
def load_rows(base, at, mask, other, ROWS: tl.constexpr, LANES: tl.constexpr):
    """ROWS numbers of each lane, from base[at] on, as a tuple."""
    if ROWS == 1:
        found = (tl.load(base + at, mask=mask, other=other),)
    elif ROWS == 2:
        place = base + at[:, None] + tl.arange(0, 2)[None, :]
        a, b = tl.split(tl.load(place, mask=mask[:, None], other=other))
        found = (a, b)
    else:
        place = base + at[:, None] + tl.arange(0, 4)[None, :]
        found = four_of(tl.load(place, mask=mask[:, None], other=other), LANES)
        if ROWS == 8:
            found = found + four_of(tl.load(place + 4, mask=mask[:, None], other=other), LANES)
    return found


@triton.jit
def store_rows(base, at, values, mask, ROWS: tl.constexpr, LANES: tl.constexpr):
    """The reverse of ``load_rows``."""
    if ROWS == 1:
        tl.store(base + at, values[0], mask=mask)
    elif ROWS == 2:
        place = base + at[:, None] + tl.arange(0, 2)[None, :]
        tl.store(place, tl.join(values[0], values[1]), mask=mask[:, None])
    else:
        place = base + at[:, None] + tl.arange(0, 4)[None, :]
        tl.store(place, of_four(values[0], values[1], values[2], values[3], LANES), mask=mask[:, None])
        if ROWS == 8:
            tl.store(place + 4, of_four(values[4], values[5], values[6], values[7], LANES), mask=mask[:, None])


def column_size(x_steps: int) -> int:
    """Numbers that a column of x_steps cells takes."""
    return -(-x_steps // ALIGNED) * ALIGNED


def by_column(like: Tensor, count: int, x_steps: int, y_steps: int, *, zero: bool = False) -> Tensor:
    """Memory for a number of each cell: (count, Ty, column), to be read through ``cells``."""
    new: Any = like.new_zeros if zero else like.new_empty
    return new((count, y_steps, column_size(x_steps)))


def cells(columns: Tensor, x_steps: int) -> Tensor:
    """Numbers stored by column as (count, Tx, Ty)."""
    return columns[..., :x_steps].mT
