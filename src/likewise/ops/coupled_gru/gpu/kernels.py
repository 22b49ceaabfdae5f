"""The kernels of the coupled GRU: one program takes both sides of a few pairs through all steps of a layer.

Weights and states are stored as two half-precision numbers each, the rounded number and the remainder, with 22 bits
together. Three products of such halves are as exact as float32 (relative error about 1e-6), take half the time of three
TensorFloat-32 products, and only the states must be split at every step. Numbers are scaled by powers of two to the
upper end of the range of half precision, so that the remainder does not underflow.

A narrow layer keeps its weights in registers. Those of a wide one do not fit into a multiprocessor, and are read again
at every step, some states at a time.
"""

import triton
import triton.language as tl

TOP = tl.constexpr(2.0**14)  # numbers are scaled to this: |h + h'| <= 2, and half precision ends at 2^16
LEAST = tl.constexpr(2.0**-100)  # the smallest divisor; below it numbers lose bits


@triton.jit
def sigmoid(a):
    """1 / (1 + e^-a)."""
    return 1.0 / (1.0 + tl.exp(-a))


@triton.jit
def sum_of_sides(a, PAIRS: tl.constexpr, WIDTH: tl.constexpr):
    """The sum of both sides of every pair, in the rows of both; the rows of x precede those of y."""
    both = tl.sum(tl.reshape(a, (2, PAIRS, WIDTH)), 0)
    return tl.reshape(tl.broadcast_to(both[None, :, :], (2, PAIRS, WIDTH)), (2 * PAIRS, WIDTH))


@triton.jit
def sides_of_block(rows, columns, x_lengths, y_lengths, pairs, LISTED: tl.constexpr, PAIRS: tl.constexpr):
    """For every row: its side, its pair, whether the pair exists, its sequence and the sequence's length."""
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
def power_below(largest):
    """The power of two at or below a number."""
    return tl.maximum((largest.to(tl.int32, bitcast=True) & 0x7F800000).to(tl.float32, bitcast=True), LEAST)


@triton.jit
def halves(a):
    """The number in half precision, and the remainder."""
    high = a.to(tl.float16)
    return high, (a - high.to(tl.float32)).to(tl.float16)


@triton.jit
def add_product(total, a, w_high, w_low):
    """total + a W."""
    high, low = halves(a)
    total = tl.dot(high, w_low, total)
    total = tl.dot(low, w_high, total)
    return tl.dot(high, w_high, total)


@triton.jit
def load_halves(weight, WIDTH: tl.constexpr):
    """Both halves of weights; the second halves are stored after all first ones."""
    return tl.load(weight), tl.load(weight + 4 * WIDTH * WIDTH)


@triton.jit
def pack_kernel(weights, biases, weight, back, scale, bias, hidden, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    """The weights (4, hidden, hidden) as halves (2, 4, WIDTH, WIDTH), divided by scale (1,), and the biases.

    weight: from state to gate; back: from gate to state, in their order; bias: (4, WIDTH). Zero beyond ``hidden``.
    """
    gate = tl.program_id(0)
    k = tl.arange(0, WIDTH)
    most = tl.zeros((ROWS, WIDTH), tl.float32)
    for first in range(0, 4 * hidden, ROWS):
        o = (first + tl.arange(0, ROWS))[:, None]
        mask = (o < 4 * hidden) & (k < hidden)[None, :]
        most = tl.maximum(most, tl.abs(tl.load(weights + o * hidden + k[None, :], mask=mask, other=0.0)))
    power = power_below(tl.max(tl.max(most, 1), 0))
    for first in range(0, WIDTH, ROWS):
        o = (first + tl.arange(0, ROWS))[:, None]
        mask = (o < hidden) & (k < hidden)[None, :]
        w = tl.load(weights + (gate * hidden + o) * hidden + k[None, :], mask=mask, other=0.0)
        high, low = halves(w * (1.0 / power * TOP))
        to = back + (gate * WIDTH + o) * WIDTH + k[None, :]
        tl.store(to, high)
        tl.store(to + 4 * WIDTH * WIDTH, low)
        to = weight + (gate * WIDTH + k[None, :]) * WIDTH + o
        tl.store(to, high)
        tl.store(to + 4 * WIDTH * WIDTH, low)
    tl.store(bias + gate * WIDTH + k, tl.load(biases + gate * hidden + k, mask=k < hidden, other=0.0))
    if gate == 0:
        tl.store(scale, power / TOP)


@triton.jit
def products(source, at, other, real, limit, weight, scale, WIDTH: tl.constexpr, CHUNK: tl.constexpr,
             ROWS: tl.constexpr):  # fmt: skip
    """W_hr h, W_hz h, W_hn h and W_hc (h + h'), (ROWS, WIDTH) each; in memory, h is at ``at`` and h' at ``other``."""
    o = tl.arange(0, WIDTH)
    r = tl.zeros((ROWS, WIDTH), tl.float32)
    z = tl.zeros((ROWS, WIDTH), tl.float32)
    n = tl.zeros((ROWS, WIDTH), tl.float32)
    c = tl.zeros((ROWS, WIDTH), tl.float32)
    for first in range(0, WIDTH, CHUNK):
        k = first + tl.arange(0, CHUNK)
        mask = real[:, None] & (k < limit)[None, :]
        h = tl.load(source + at[:, None] + k[None, :], mask=mask, other=0.0) * TOP
        both = h + tl.load(source + other[:, None] + k[None, :], mask=mask, other=0.0) * TOP
        w = weight + k[:, None] * WIDTH + o[None, :]
        w_high, w_low = load_halves(w, WIDTH)
        r = add_product(r, h, w_high, w_low)
        w_high, w_low = load_halves(w + WIDTH * WIDTH, WIDTH)
        z = add_product(z, h, w_high, w_low)
        w_high, w_low = load_halves(w + 2 * WIDTH * WIDTH, WIDTH)
        n = add_product(n, h, w_high, w_low)
        w_high, w_low = load_halves(w + 3 * WIDTH * WIDTH, WIDTH)
        c = add_product(c, both, w_high, w_low)
    scale = scale / TOP
    return r * scale, z * scale, n * scale, c * scale


@triton.jit
def products_back(d, step, inside, hidden, most, back, scale, WIDTH: tl.constexpr, CHUNK: tl.constexpr,
                  ROWS: tl.constexpr):  # fmt: skip
    """Add the contribution of the gates' derivatives, (ROWS, 5 hidden) at ``step``, to the states' derivatives d.

    most: the largest absolute value of each row, which decides its scale.
    """
    k = tl.arange(0, WIDTH)
    power = power_below(most)
    factor = (1.0 / power * TOP)[:, None]
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(0, WIDTH, CHUNK):
        j = start + tl.arange(0, CHUNK)
        mask = inside[:, None] & (j < hidden)[None, :]
        w = back + j[:, None] * WIDTH + k[None, :]
        from_r = tl.load(step + j[None, :], mask=mask, other=0.0) * factor
        from_z = tl.load(step + hidden + j[None, :], mask=mask, other=0.0) * factor
        from_n = tl.load(step + 3 * hidden + j[None, :], mask=mask, other=0.0) * factor
        from_c = tl.load(step + 4 * hidden + j[None, :], mask=mask, other=0.0) * factor
        w_high, w_low = load_halves(w, WIDTH)
        total = add_product(total, from_r, w_high, w_low)
        w_high, w_low = load_halves(w + WIDTH * WIDTH, WIDTH)
        total = add_product(total, from_z, w_high, w_low)
        w_high, w_low = load_halves(w + 2 * WIDTH * WIDTH, WIDTH)
        total = add_product(total, from_n, w_high, w_low)
        w_high, w_low = load_halves(w + 3 * WIDTH * WIDTH, WIDTH)
        total = add_product(total, from_c, w_high, w_low)
    return d + total * (power * (scale / TOP))[:, None]


@triton.jit
def load_biases(bias, WIDTH: tl.constexpr):
    """The biases of r, z, n and c, (1, WIDTH) each."""
    k = tl.arange(0, WIDTH)
    r = tl.load(bias + k)[None, :]
    z = tl.load(bias + WIDTH + k)[None, :]
    n = tl.load(bias + 2 * WIDTH + k)[None, :]
    c = tl.load(bias + 3 * WIDTH + k)[None, :]
    return r, z, n, c


@triton.jit
def load_weight(weight, part, WIDTH: tl.constexpr):
    """The weights of one gate, (WIDTH, WIDTH), both halves."""
    k = tl.arange(0, WIDTH)
    return load_halves(weight + part * WIDTH * WIDTH + k[:, None] * WIDTH + k[None, :], WIDTH)


@triton.jit
def states_kernel(gx, gy, rows, columns, x_lengths, y_lengths, weight, scale, bias, scratch, out, last_out, pairs,
                  x_steps, y_steps, steps, hidden, LISTED: tl.constexpr, EVERY: tl.constexpr, LAST: tl.constexpr,
                  WIDE: tl.constexpr, WIDTH: tl.constexpr, CHUNK: tl.constexpr, PAIRS: tl.constexpr):  # fmt: skip
    """States of one layer: with EVERY out (pairs, 2, steps, hidden), with LAST last_out (pairs, 2, hidden).

    weight, scale, bias: of ``pack_kernel``, in the order r, z, n, c. A WIDE layer keeps its states in ``scratch``
    (programs, 2 PAIRS, WIDTH).
    """
    side, pair, inside, item, length = sides_of_block(rows, columns, x_lengths, y_lengths, pairs, LISTED, PAIRS)
    k = tl.arange(0, WIDTH)
    real = inside[:, None] & (k < hidden)[None, :]
    first = item * tl.where(side == 0, x_steps, y_steps)
    number = pair * 2 + side
    to = (number * steps * hidden)[:, None] + k[None, :]
    b_r, b_z, b_n, b_c = load_biases(bias, WIDTH)
    row = tl.arange(0, 2 * PAIRS)
    block = tl.program_id(0).to(tl.int64) * 2 * PAIRS
    here = (block + row) * WIDTH
    there = (block + (row + PAIRS) % (2 * PAIRS)) * WIDTH
    weight_scale = tl.load(scale)
    if not WIDE:
        r_high, r_low = load_weight(weight, 0, WIDTH)
        z_high, z_low = load_weight(weight, 1, WIDTH)
        n_high, n_low = load_weight(weight, 2, WIDTH)
        c_high, c_low = load_weight(weight, 3, WIDTH)
        zeros = tl.zeros((2 * PAIRS, WIDTH), tl.float32)
    h = tl.zeros((2 * PAIRS, WIDTH), tl.float32)
    last = tl.max(length)
    for t in range(last):
        running = t < length
        mask = real & running[:, None]
        at = ((first + t) * 3 * hidden)[:, None] + k[None, :]
        if WIDE:
            tl.debug_barrier()  # wait until all threads have read the old values
            tl.store(scratch + here[:, None] + k[None, :], h)
            tl.debug_barrier()
            r, z, from_h, c = products(
                scratch, here, there, row >= 0, WIDTH, weight, weight_scale, WIDTH, CHUNK, 2 * PAIRS
            )
        else:
            own = h * TOP
            factor = weight_scale / TOP
            r = add_product(zeros, own, r_high, r_low) * factor
            z = add_product(zeros, own, z_high, z_low) * factor
            from_h = add_product(zeros, own, n_high, n_low) * factor
            c = add_product(zeros, sum_of_sides(own, PAIRS, WIDTH), c_high, c_low) * factor
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
    if LAST:
        tl.store(last_out + (number * hidden)[:, None] + k[None, :], h, mask=real)


@triton.jit
def gradient_kernel(grad, states, gx, gy, rows, columns, x_lengths, y_lengths, weight, back, scale, bias, out, pairs,
                    x_steps, y_steps, steps, hidden, LISTED: tl.constexpr, EVERY: tl.constexpr, WIDTH: tl.constexpr,
                    CHUNK: tl.constexpr, PAIRS: tl.constexpr):  # fmt: skip
    """Derivatives with respect to the gates' inputs, out (pairs, 2, steps, 5 hidden): r, z, n, W_hn h + b_hn, c.

    weight, back, scale, bias: of ``pack_kernel``. Zero after the end of both sides.
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
    weight_scale = tl.load(scale)
    last = tl.max(length)
    d = tl.zeros((2 * PAIRS, WIDTH), tl.float32)
    for t in range(last, steps):
        past = out + (to + t * 5 * hidden)[:, None] + k[None, :]
        for part in range(5):
            tl.store(past + part * hidden, tl.zeros((2 * PAIRS, WIDTH), tl.float32), mask=real)
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
            states, here + before, there + before, begun, hidden, weight, weight_scale, WIDTH, CHUNK, 2 * PAIRS
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
        d_r = d_inner * from_h * r * (1.0 - r)
        d_z = tl.where(running, d * (h - m) * z * (1.0 - z), 0.0)
        d_c = -d_apart * apart * c * (1.0 - c)
        step = out + (to + t * 5 * hidden)[:, None]
        tl.store(step + k[None, :], d_r, mask=real)
        tl.store(step + hidden + k[None, :], d_z, mask=real)
        tl.store(step + 2 * hidden + k[None, :], d_inner, mask=real)
        tl.store(step + 3 * hidden + k[None, :], d_inner * r, mask=real)
        tl.store(step + 4 * hidden + k[None, :], d_c, mask=real)
        # |r| <= 1, so the derivative of n with respect to W_hn h is at most d_inner.
        most = tl.maximum(tl.maximum(tl.abs(d_r), tl.abs(d_z)), tl.maximum(tl.abs(d_inner), tl.abs(d_c)))
        d = tl.where(running, d * z, d + d_n)
        tl.debug_barrier()  # other threads read the stored values, some states at a time
        d = products_back(
            d, step, inside, hidden, tl.max(tl.where(real, most, 0.0), 1), back, weight_scale, WIDTH, CHUNK, 2 * PAIRS
        )
