"""The coupled GRU on a GPU: one program takes a few pairs, both sides of them, through all steps of a layer.

Products are three TensorFloat-32 products each, which together are as exact as float32 (relative error about 1e-6).
float64 takes the plain recurrence of reference.py: right, but slow.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from likewise import _check
from likewise.ops.coupled_gru import reference

PAIRS = 8  # of a program: 16 rows with both sides, the least that the matrix units take
PRECISION = "tf32x3"
NARROW = 32  # states up to which the weights stay in registers, and four warps do
CHUNK = 32  # states of a wide layer that are multiplied at a time
NUMBERS_AT_ONCE = 1 << 28  # of states and derivatives, for which the gradient takes some pairs at a time
ONE_HOT = 1 << 26  # numbers of a matrix that adds up the gradients of pairs; beyond, they are added atomically


@triton.jit
def sigmoid(a):
    return 1.0 / (1.0 + tl.exp(-a))


@triton.jit
def sum_of_sides(a, PAIRS: tl.constexpr, WIDTH: tl.constexpr):
    """The sum of both sides of every pair, in the rows of both; rows of x come before those of y."""
    both = tl.sum(tl.reshape(a, (2, PAIRS, WIDTH)), 0)
    return tl.reshape(tl.broadcast_to(both[None, :, :], (2, PAIRS, WIDTH)), (2 * PAIRS, WIDTH))


@triton.jit
def sides_of_block(rows, columns, x_lengths, y_lengths, pairs, LISTED: tl.constexpr, PAIRS: tl.constexpr):
    """Of every row: its side, its pair, whether there is one, its sequence and that one's length."""
    row = tl.arange(0, 2 * PAIRS)
    side = row // PAIRS
    pair = tl.program_id(0).to(tl.int64) * PAIRS + row % PAIRS
    inside = pair < pairs
    on_x = inside & (side == 0)
    on_y = inside & (side == 1)
    item = pair
    if LISTED:
        item = tl.load(rows + pair, mask=on_x, other=0) + tl.load(columns + pair, mask=on_y, other=0)
    length = tl.load(x_lengths + item, mask=on_x, other=0) + tl.load(y_lengths + item, mask=on_y, other=0)
    return side, pair, inside, item, length


@triton.jit
def load_projection(gx, gy, at, side, mask, part, hidden):
    """The projections of one gate, (rows, WIDTH)."""
    on_x = mask & (side == 0)[:, None]
    on_y = mask & (side == 1)[:, None]
    return tl.load(gx + at + part * hidden, mask=on_x, other=0.0) + tl.load(
        gy + at + part * hidden, mask=on_y, other=0.0
    )


@triton.jit
def products(source, at, other, real, limit, weight, WIDTH: tl.constexpr, CHUNK: tl.constexpr, ROWS: tl.constexpr,
             PRECISION: tl.constexpr):  # fmt: skip
    """W_hr h, W_hz h, W_hn h and W_hc (h + h'), (ROWS, WIDTH) each, of states in memory: h at ``at``, h' at ``other``.

    Some states at a time: all the weights of a wide layer have no room in a multiprocessor.
    """
    o = tl.arange(0, WIDTH)
    r = tl.zeros((ROWS, WIDTH), tl.float32)
    z = tl.zeros((ROWS, WIDTH), tl.float32)
    n = tl.zeros((ROWS, WIDTH), tl.float32)
    c = tl.zeros((ROWS, WIDTH), tl.float32)
    for first in range(0, WIDTH, CHUNK):
        k = first + tl.arange(0, CHUNK)
        mask = real[:, None] & (k < limit)[None, :]
        h = tl.load(source + at[:, None] + k[None, :], mask=mask, other=0.0)
        both = h + tl.load(source + other[:, None] + k[None, :], mask=mask, other=0.0)
        w = weight + k[:, None] * WIDTH + o[None, :]
        r = tl.dot(h, tl.load(w), r, input_precision=PRECISION)
        z = tl.dot(h, tl.load(w + WIDTH * WIDTH), z, input_precision=PRECISION)
        n = tl.dot(h, tl.load(w + 2 * WIDTH * WIDTH), n, input_precision=PRECISION)
        c = tl.dot(both, tl.load(w + 3 * WIDTH * WIDTH), c, input_precision=PRECISION)
    return r, z, n, c


@triton.jit
def load_biases(bias, WIDTH: tl.constexpr):
    k = tl.arange(0, WIDTH)
    r = tl.load(bias + k)[None, :]
    z = tl.load(bias + WIDTH + k)[None, :]
    n = tl.load(bias + 2 * WIDTH + k)[None, :]
    c = tl.load(bias + 3 * WIDTH + k)[None, :]
    return r, z, n, c


@triton.jit
def load_weight(weight, part, WIDTH: tl.constexpr):
    k = tl.arange(0, WIDTH)
    return tl.load(weight + part * WIDTH * WIDTH + k[:, None] * WIDTH + k[None, :])


@triton.jit
def states_kernel(gx, gy, rows, columns, x_lengths, y_lengths, weight, bias, scratch, out, pairs, x_steps, y_steps,
                  steps, hidden, LISTED: tl.constexpr, EVERY: tl.constexpr, WIDE: tl.constexpr, WIDTH: tl.constexpr,
                  CHUNK: tl.constexpr, PAIRS: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """States of one layer: out (pairs, 2, steps, hidden), or without EVERY the last ones, (pairs, 2, hidden).

    weight (4, WIDTH, WIDTH): from state to gate, r, z, n, c; bias (4, WIDTH). Zero past ``hidden``. A WIDE layer keeps
    its states in ``scratch`` (programs, 2 PAIRS, WIDTH), another its weights in registers.
    """
    side, pair, inside, item, length = sides_of_block(rows, columns, x_lengths, y_lengths, pairs, LISTED, PAIRS)
    k = tl.arange(0, WIDTH)
    real = inside[:, None] & (k < hidden)[None, :]
    first = item * tl.where(side == 0, x_steps, y_steps)
    to = (pair * 2 + side)[:, None] * hidden * (steps if EVERY else 1) + k[None, :]
    b_r, b_z, b_n, b_c = load_biases(bias, WIDTH)
    row = tl.arange(0, 2 * PAIRS)
    block = tl.program_id(0).to(tl.int64) * 2 * PAIRS
    here = (block + row) * WIDTH
    there = (block + (row + PAIRS) % (2 * PAIRS)) * WIDTH
    if not WIDE:
        w_r = load_weight(weight, 0, WIDTH)
        w_z = load_weight(weight, 1, WIDTH)
        w_n = load_weight(weight, 2, WIDTH)
        w_c = load_weight(weight, 3, WIDTH)
    h = tl.zeros((2 * PAIRS, WIDTH), tl.float32)
    last = tl.max(length)
    for t in range(last):
        running = t < length
        mask = real & running[:, None]
        at = ((first + t) * 3 * hidden)[:, None] + k[None, :]
        if WIDE:
            tl.debug_barrier()  # everybody has read what is there
            tl.store(scratch + here[:, None] + k[None, :], h)
            tl.debug_barrier()
            r, z, from_h, c = products(
                scratch, here, there, row >= 0, WIDTH, weight, WIDTH, CHUNK, 2 * PAIRS, PRECISION
            )
        else:
            r = tl.dot(h, w_r, input_precision=PRECISION)
            z = tl.dot(h, w_z, input_precision=PRECISION)
            from_h = tl.dot(h, w_n, input_precision=PRECISION)
            c = tl.dot(sum_of_sides(h, PAIRS, WIDTH), w_c, input_precision=PRECISION)
        r = sigmoid(r + b_r + load_projection(gx, gy, at, side, mask, 0, hidden))
        z = sigmoid(z + b_z + load_projection(gx, gy, at, side, mask, 1, hidden))
        n = load_projection(gx, gy, at, side, mask, 2, hidden) + r * (from_h + b_n)
        n = tl.where(running[:, None], 2.0 * sigmoid(2.0 * n) - 1.0, h)
        m = n + sigmoid(c + b_c) * (sum_of_sides(n, PAIRS, WIDTH) - 2.0 * n)
        h = tl.where(running[:, None], m + z * (h - m), h)
        if EVERY:
            tl.store(out + to + t * hidden, h, mask=real)
    if EVERY:
        for t in range(last, steps):
            tl.store(out + to + t * hidden, h, mask=real)
    else:
        tl.store(out + to, h, mask=real)


@triton.jit
def gradient_kernel(grad, states, gx, gy, rows, columns, x_lengths, y_lengths, weight, back, bias, out, pairs, x_steps,
                    y_steps, steps, hidden, LISTED: tl.constexpr, EVERY: tl.constexpr, WIDTH: tl.constexpr,
                    CHUNK: tl.constexpr, PAIRS: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """Derivatives of what goes into the gates, out (pairs, 2, steps, 5 hidden): r, z, n, W_hn h + b_hn, c.

    back (4, WIDTH, WIDTH): from gate to state. Steps past the end of both sides are not written.
    """
    side, pair, inside, item, length = sides_of_block(rows, columns, x_lengths, y_lengths, pairs, LISTED, PAIRS)
    k = tl.arange(0, WIDTH)
    real = inside[:, None] & (k < hidden)[None, :]
    first = item * tl.where(side == 0, x_steps, y_steps)
    number = pair * 2 + side
    here = number * steps * hidden
    there = (pair * 2 + 1 - side) * steps * hidden
    to = number * steps * 5 * hidden
    b_r, b_z, b_n, b_c = load_biases(bias, WIDTH)
    last = tl.max(length)
    d = tl.zeros((2 * PAIRS, WIDTH), tl.float32)
    given = grad + here[:, None] + k[None, :]
    if EVERY:
        for t in range(last, steps):  # all of them are the last state
            d += tl.load(given + t * hidden, mask=real, other=0.0)
    else:
        d += tl.load(grad + (number * hidden)[:, None] + k[None, :], mask=real, other=0.0)
    for back_t in range(last):
        t = last - 1 - back_t
        if EVERY:
            d += tl.load(given + t * hidden, mask=real, other=0.0)
        running = (t < length)[:, None]
        mask = real & running
        begun = inside & (t + length > length)  # before the first step, h is zero
        before = (t - 1) * hidden
        r, z, from_h, c = products(
            states, here + before, there + before, begun, hidden, weight, WIDTH, CHUNK, 2 * PAIRS, PRECISION
        )
        h = tl.load(states + (here + before)[:, None] + k[None, :], mask=real & begun[:, None], other=0.0)
        at = ((first + t) * 3 * hidden)[:, None] + k[None, :]
        r = sigmoid(r + b_r + load_projection(gx, gy, at, side, mask, 0, hidden))
        z = sigmoid(z + b_z + load_projection(gx, gy, at, side, mask, 1, hidden))
        from_h += b_n
        c = sigmoid(c + b_c)
        n = 2.0 * sigmoid(2.0 * (load_projection(gx, gy, at, side, mask, 2, hidden) + r * from_h)) - 1.0
        n = tl.where(running, n, h)
        apart = sum_of_sides(n, PAIRS, WIDTH) - 2.0 * n  # n' - n
        m = n + c * apart
        d_m = tl.where(running, d * (1.0 - z), 0.0)
        d_apart = sum_of_sides(d_m, PAIRS, WIDTH) - 2.0 * d_m
        d_n = d_m + c * d_apart
        d_inner = tl.where(running, d_n * (1.0 - n * n), 0.0)
        step = out + (to + t * 5 * hidden)[:, None]
        tl.store(step + k[None, :], d_inner * from_h * r * (1.0 - r), mask=real)
        tl.store(step + hidden + k[None, :], tl.where(running, d * (h - m) * z * (1.0 - z), 0.0), mask=real)
        tl.store(step + 2 * hidden + k[None, :], d_inner, mask=real)
        tl.store(step + 3 * hidden + k[None, :], d_inner * r, mask=real)
        tl.store(step + 4 * hidden + k[None, :], -d_apart * apart * c * (1.0 - c), mask=real)
        d = tl.where(running, d * z, d + d_n)
        tl.debug_barrier()  # what was stored is read, some states at a time, by others
        for start in range(0, WIDTH, CHUNK):
            j = start + tl.arange(0, CHUNK)
            some = inside[:, None] & (j < hidden)[None, :]
            w = back + j[:, None] * WIDTH + k[None, :]
            from_r = tl.load(step + j[None, :], mask=some, other=0.0)
            from_z = tl.load(step + hidden + j[None, :], mask=some, other=0.0)
            from_n = tl.load(step + 3 * hidden + j[None, :], mask=some, other=0.0)
            from_c = tl.load(step + 4 * hidden + j[None, :], mask=some, other=0.0)
            d = tl.dot(from_r, tl.load(w), d, input_precision=PRECISION)
            d = tl.dot(from_z, tl.load(w + WIDTH * WIDTH), d, input_precision=PRECISION)
            d = tl.dot(from_n, tl.load(w + 2 * WIDTH * WIDTH), d, input_precision=PRECISION)
            d = tl.dot(from_c, tl.load(w + 3 * WIDTH * WIDTH), d, input_precision=PRECISION)


@dataclass(frozen=True)
class _Sides:
    """The projections of both sides of some pairs, for one layer."""

    gx: Tensor
    gy: Tensor
    rows: Tensor | None
    columns: Tensor | None
    n: Tensor
    m: Tensor

    @property
    def pairs(self) -> int:
        return len(self.gx) if self.rows is None else len(self.rows)

    @property
    def steps(self) -> int:
        return max(self.gx.shape[1], self.gy.shape[1])

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What the kernels take; without rows and columns, something in their place."""
        rows, columns = (self.n if k is None else k for k in (self.rows, self.columns))
        return self.gx, self.gy, rows, columns, self.n, self.m

    @property
    def lengths(self) -> tuple[Tensor, Tensor]:
        """Of both sides of every pair."""
        if self.rows is None or self.columns is None:
            return self.n, self.m
        return self.n[self.rows], self.m[self.columns]

    def part(self, chosen: slice) -> "_Sides":
        """Some of the pairs."""
        if self.rows is None or self.columns is None:
            return _Sides(self.gx[chosen], self.gy[chosen], None, None, self.n[chosen], self.m[chosen])
        return _Sides(self.gx, self.gy, self.rows[chosen], self.columns[chosen], self.n, self.m)

    def above(self, states: Tensor, layer: reference.Weights) -> "_Sides":
        """What the next layer gets from the states (P, 2, T, H) of this one."""
        # One side, then the other: in one product, equal sides could be rounded differently.
        weights = layer.weight_in, layer.bias_in
        gx, gy = (functional.linear(h.contiguous(), *weights) for h in states.unbind(1))  # type: ignore[arg-type]
        return _Sides(gx, gy, None, None, *self.lengths)


@dataclass(frozen=True)
class _Packed:
    """The weights of a layer's states as the kernels take them, padded to a power of two."""

    weight: Tensor  # (4, W, W), from state to gate
    back: Tensor  # (4, W, W), from gate to state
    bias: Tensor  # (4, W)
    hidden: int

    @classmethod
    def of(cls, layer: reference.Weights) -> "_Packed":
        hidden = layer.weight.shape[1]
        width = max(16, triton.next_power_of_2(hidden))
        more = width - hidden
        back = functional.pad(layer.weight.reshape(4, hidden, hidden), (0, more, 0, more))
        return cls(
            back.mT.contiguous(), back.contiguous(), functional.pad(layer.bias.reshape(4, hidden), (0, more)), hidden
        )

    @property
    def width(self) -> int:
        return self.weight.shape[1]

    @property
    def warps(self) -> int:
        return 4 if self.width <= NARROW else 8


def last(gx: Tensor, *rest: object) -> Tensor:
    """The last states (P, 2, H), of the last layer."""
    return _forward(False, gx, *rest)


def states(gx: Tensor, *rest: object) -> Tensor:
    """The states (P, 2, T, H) at every step, of the last layer."""
    return _forward(True, gx, *rest)


def gradients(
    grad: Tensor,
    gx: Tensor,
    gy: Tensor | None,
    rows: Tensor | None,
    columns: Tensor | None,
    x_lengths: Tensor,
    y_lengths: Tensor | None,
    weights: Tensor,
    hidden: Sequence[int],
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients with respect to gx, gy (empty where there is none) and the weights; ``grad`` is that of the states.

    States are computed again. Some pairs at a time, about a gigabyte.
    """
    if gx.dtype == torch.float64:
        return _plain_gradients(grad, gx, gy, rows, columns, x_lengths, y_lengths, weights, hidden)
    sides = _sides(gx, gy, rows, columns, x_lengths, y_lengths)
    to_x, to_weights = torch.zeros_like(sides.gx), torch.zeros_like(weights)
    to_y = to_x if gy is None else torch.zeros_like(sides.gy)
    chunk = max(1, NUMBERS_AT_ONCE // (20 * sides.steps * max(hidden)))
    for start in range(0, sides.pairs, chunk):
        chosen = slice(start, start + chunk)
        part = sides.part(chosen)
        derivatives, slopes = _backward(grad[chosen].contiguous(), part, list(reference.layers(weights, hidden)))
        to_weights += slopes
        for side, total, index in ((0, to_x, part.rows), (1, to_y, part.columns)):
            found = derivatives[:, side, : total.shape[1], : total.shape[2]]  # (P, T, 3H)
            if index is None:
                total[chosen] += found
            else:
                _add(total, index, found)
    return to_x, gx.new_zeros(0) if gy is None else to_y, to_weights


def _forward(every: bool, gx: Tensor, *rest: object) -> Tensor:
    gy, rows, columns, x_lengths, y_lengths, weights, hidden = rest
    if gx.dtype == torch.float64:
        found = reference.states(gx, *rest)  # type: ignore[arg-type]
        return found if every else found[:, :, -1].contiguous()
    sides = _sides(gx, gy, rows, columns, x_lengths, y_lengths)  # type: ignore[arg-type]
    layers = list(reference.layers(weights, hidden))  # type: ignore[arg-type]
    for layer, following in pairwise(layers):
        sides = sides.above(_run(sides, _Packed.of(layer), True), following)
    return _run(sides, _Packed.of(layers[-1]), every)


def _sides(
    gx: Tensor,
    gy: Tensor | None,
    rows: Tensor | None,
    columns: Tensor | None,
    x_lengths: Tensor,
    y_lengths: Tensor | None,
) -> _Sides:
    gx = gx.contiguous()
    other = gx if gy is None else gy.contiguous()
    n = x_lengths.to(gx.device).contiguous()
    m = n if y_lengths is None else y_lengths.to(gx.device).contiguous()
    for name, lengths, g in (("x_lengths", n, gx), ("y_lengths", m, other)):
        _check.lengths_range("coupled_gru", name, lengths, g.shape[1])
    pairs = [None if k is None else k.to(gx.device, torch.int64).contiguous() for k in (rows, columns)]
    return _Sides(gx, other, pairs[0], pairs[1], n, m)


def _run(sides: _Sides, packed: _Packed, every: bool) -> Tensor:
    shape = (sides.pairs, 2, *((sides.steps,) if every else ()), packed.hidden)
    out = sides.gx.new_empty(shape)
    if out.numel():
        programs, wide = triton.cdiv(sides.pairs, PAIRS), packed.width > NARROW
        scratch = out.new_empty(programs * 2 * PAIRS * packed.width if wide else 1)
        states_kernel[(programs,)](
            *sides.tensors, packed.weight, packed.bias, scratch, out, sides.pairs, sides.gx.shape[1], sides.gy.shape[1],
            sides.steps, packed.hidden, LISTED=sides.rows is not None, EVERY=every, WIDE=wide, WIDTH=packed.width,
            CHUNK=min(CHUNK, packed.width), PAIRS=PAIRS, PRECISION=PRECISION, num_warps=packed.warps, num_stages=1,
        )  # fmt: skip
    return out


def _backward(grad: Tensor, sides: _Sides, layers: list[reference.Weights]) -> tuple[Tensor, Tensor]:
    """Derivatives (P, 2, T, 5H) of the first layer's gates, and with respect to all weights in one vector."""
    kept, inputs = [], [sides]
    for layer, following in pairwise([*layers, None]):
        kept.append(_run(inputs[-1], _Packed.of(layer), True))
        if following is not None:
            inputs.append(inputs[-1].above(kept[-1], following))
    slopes: list[Tensor] = []
    derivatives = grad
    for number in reversed(range(len(layers))):
        layer = layers[number]
        hidden = layer.weight.shape[1]
        derivatives = _derivatives(grad, kept[number], inputs[number], _Packed.of(layer))
        rows = derivatives.flatten(0, 2)  # (2PT, 5H)
        before = functional.pad(kept[number], (0, 0, 1, -1)).flatten(0, 2)
        sums = rows.sum(0)
        found = [
            (rows[:, : 2 * hidden].T @ before).flatten(),
            (rows[:, 3 * hidden :].T @ before).flatten(),
            sums[: 2 * hidden],
            sums[3 * hidden : 4 * hidden],
            sums[4 * hidden :] / 2,  # the sides share it
        ]
        if layer.weight_in is not None:
            to_input = rows[:, : 3 * hidden]
            below = kept[number - 1]
            found = [(to_input.T @ below.flatten(0, 2)).flatten(), sums[: 3 * hidden], *found]
            grad = (to_input @ layer.weight_in).reshape(below.shape)
        slopes = found + slopes
    return derivatives, torch.cat(slopes)


def _derivatives(grad: Tensor, states: Tensor, sides: _Sides, packed: _Packed) -> Tensor:
    out = grad.new_zeros(sides.pairs, 2, sides.steps, 5 * packed.hidden)
    gradient_kernel[(triton.cdiv(sides.pairs, PAIRS),)](
        grad, states, *sides.tensors, packed.weight, packed.back, packed.bias, out, sides.pairs, sides.gx.shape[1],
        sides.gy.shape[1], sides.steps, packed.hidden, LISTED=sides.rows is not None, EVERY=grad.ndim == 4,
        WIDTH=packed.width, CHUNK=min(CHUNK, packed.width), PAIRS=PAIRS, PRECISION=PRECISION, num_warps=packed.warps,
        num_stages=1,
    )  # fmt: skip
    return out


def _add(total: Tensor, index: Tensor, found: Tensor) -> None:
    """total[index[p]] += found[p], always in the same order where that is quick: total (N, T, C), found (P, T, C)."""
    if len(total) * len(index) <= ONE_HOT:
        chosen = functional.one_hot(index, len(total)).to(found.dtype)  # (P, N)
        total += (chosen.T @ found.reshape(len(index), -1)).reshape(total.shape)
    else:
        total.index_add_(0, index, found)


def _plain_gradients(grad: Tensor, *arguments: object) -> tuple[Tensor, Tensor, Tensor]:
    gx, gy, rows, columns, x_lengths, y_lengths, weights, hidden = arguments
    given = [None if g is None else g.detach().requires_grad_() for g in (gx, gy, weights)]  # type: ignore[attr-defined]
    with torch.enable_grad():
        found = reference.states(given[0], given[1], rows, columns, x_lengths, y_lengths, given[2], hidden)  # type: ignore[arg-type]
        found = found if grad.ndim == 4 else found[:, :, -1]
        slopes = iter(torch.autograd.grad(found, [g for g in given if g is not None], grad))
    to_x = next(slopes)
    return to_x, to_x.new_zeros(0) if gy is None else next(slopes), next(slopes)
