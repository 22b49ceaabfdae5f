"""The coupled GRU on a GPU: launches, and the sums that PyTorch computes afterwards. kernels.py has the recurrence.

Only the check of lengths waits for the GPU; it is skipped while a CUDA graph is recorded. float64 uses the plain
recurrence of reference.py, which is slow.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor
from torch.nn import functional

from likewise import _check
from likewise.ops.coupled_gru import kept_numbers, reference
from likewise.ops.coupled_gru.gpu.kernels import gradient_kernel, pack_kernel, states_kernel

PAIRS = 8  # pairs per program: 16 rows with both sides, the smallest size for the matrix units
NARROW = 32  # the largest number of states whose weights stay in registers
NUMBERS_AT_ONCE = 1 << 30  # in derivatives and states; above this, the gradient processes some pairs at a time
ONE_HOT = 1 << 26  # size of a matrix that sums the gradients of pairs; above this, they are added atomically


@dataclass(frozen=True)
class Shape:
    """Launch settings of a kernel: states of a wide layer to multiply at a time, warps, prefetched loads."""

    chunk: int
    warps: int
    stages: int


NARROW_SHAPE, WIDE_SHAPE = Shape(32, 4, 1), Shape(32, 8, 2)


@dataclass(frozen=True)
class _Sides:
    """The projections of both sides of some pairs, for one layer."""

    gx: Tensor
    gy: Tensor
    rows: Tensor | None
    columns: Tensor | None
    n: Tensor
    m: Tensor

    @classmethod
    def of(
        cls,
        gx: Tensor,
        gy: Tensor | None,
        rows: Tensor | None,
        columns: Tensor | None,
        x_lengths: Tensor,
        y_lengths: Tensor | None,
    ) -> "_Sides":
        gx = gx.contiguous()
        other = gx if gy is None else gy.contiguous()
        n = x_lengths.to(gx.device).contiguous()
        m = n if y_lengths is None else y_lengths.to(gx.device).contiguous()
        pairs = [None if k is None else k.to(gx.device, torch.int64).contiguous() for k in (rows, columns)]
        return cls(gx, other, pairs[0], pairs[1], n, m)

    def check(self) -> None:
        """Raise an error for lengths out of range; skipped while a CUDA graph is recorded."""
        for name, lengths, g in (("x_lengths", self.n, self.gx), ("y_lengths", self.m, self.gy)):
            if name == "x_lengths" or lengths is not self.n or g is not self.gx:
                _check.lengths_range("coupled_gru", name, lengths, g.shape[1])

    @property
    def pairs(self) -> int:
        return len(self.gx) if self.rows is None else len(self.rows)

    @property
    def steps(self) -> int:
        return max(self.gx.shape[1], self.gy.shape[1])

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The kernels' arguments; without rows and columns, placeholders."""
        rows, columns = (self.n if k is None else k for k in (self.rows, self.columns))
        return self.gx, self.gy, rows, columns, self.n, self.m

    @property
    def lengths(self) -> tuple[Tensor, Tensor]:
        """The lengths of both sides of every pair."""
        if self.rows is None or self.columns is None:
            return self.n, self.m
        return self.n[self.rows], self.m[self.columns]

    def part(self, chosen: slice) -> "_Sides":
        """Some of the pairs."""
        if self.rows is None or self.columns is None:
            return _Sides(self.gx[chosen], self.gy[chosen], None, None, self.n[chosen], self.m[chosen])
        return _Sides(self.gx, self.gy, self.rows[chosen], self.columns[chosen], self.n, self.m)

    def above(self, states: Tensor, layer: reference.Weights) -> "_Sides":
        """The next layer's input from the states (P, 2, T, H) of this one."""
        # One side, then the other: in one product, equal sides could be rounded differently.
        weights = layer.weight_in, layer.bias_in
        gx, gy = (functional.linear(h.contiguous(), *weights) for h in states.unbind(1))  # type: ignore[arg-type]
        return _Sides(gx, gy, None, None, *self.lengths)


@dataclass(frozen=True)
class _Packed:
    """The weights of a layer's states in the layout of the kernels, padded to a power of two."""

    weight: Tensor  # (2, 4, W, W), halves, from state to gate
    back: Tensor  # (2, 4, W, W), from gate to state
    scale: Tensor  # (1,), by which both were divided
    bias: Tensor  # (4, W)
    hidden: int

    @classmethod
    def of(cls, layer: reference.Weights) -> "_Packed":
        hidden = layer.weight.shape[1]
        width = max(16, triton.next_power_of_2(hidden))
        halves = layer.weight.new_empty(2, 2, 4, width, width, dtype=torch.float16)
        numbers = layer.weight.new_empty(4 * width + 1)
        packed = cls(halves[0], halves[1], numbers[-1:], numbers[:-1], hidden)
        pack_kernel[(4,)](
            layer.weight, layer.bias, packed.weight, packed.back, packed.scale, packed.bias, hidden, WIDTH=width,
            ROWS=16, num_warps=4,
        )  # fmt: skip
        return packed

    @property
    def width(self) -> int:
        return self.weight.shape[2]

    @property
    def options(self) -> dict[str, int]:
        """The settings of a launch."""
        shape = NARROW_SHAPE if self.width <= NARROW else WIDE_SHAPE
        return {
            "WIDTH": self.width,
            "CHUNK": min(shape.chunk, self.width),
            "PAIRS": PAIRS,
            "num_warps": shape.warps,
            "num_stages": shape.stages,
        }


def last(gx: Tensor, *rest: Any) -> Tensor:
    """The last states (P, 2, H), of the last layer."""
    if gx.dtype == torch.float64:
        return reference.states(gx, *rest)[:, :, -1].contiguous()
    found, _ = _forward((gx, *rest), every=False, last=True)
    return found


def states(gx: Tensor, *rest: Any) -> Tensor:
    """The states (P, 2, T, H) at every step, of the last layer."""
    if gx.dtype == torch.float64:
        return reference.states(gx, *rest)
    _, kept = _forward((gx, *rest), every=True, last=False)
    return kept[-1]


def trained(gx: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    """The last states and, for the gradient, those at every step of every layer, unless they take too much memory."""
    kept = gx.new_empty(kept_numbers(gx, *rest))
    if not kept.numel():
        return last(gx, *rest), kept
    return _forward((gx, *rest), every=True, last=True, room=kept)[0], kept


def gradients(
    grad: Tensor,
    kept: Tensor | None,
    gx: Tensor,
    gy: Tensor | None,
    rows: Tensor | None,
    columns: Tensor | None,
    x_lengths: Tensor,
    y_lengths: Tensor | None,
    weights: Tensor,
    hidden: Sequence[int],
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients with respect to gx, gy (empty if it is None) and the weights; ``grad`` is that of the states.

    kept: the states from ``trained``; without them, they are recomputed, for some pairs at a time.
    """
    if gx.dtype == torch.float64:
        return _plain_gradients(grad, gx, gy, rows, columns, x_lengths, y_lengths, weights, hidden)
    sides = _Sides.of(gx, gy, rows, columns, x_lengths, y_lengths)
    layers = list(reference.layers(weights.contiguous(), hidden))
    packed = [_Packed.of(layer) for layer in layers]
    found = _views(kept, sides, hidden) if kept is not None and kept.numel() else None
    to_x, to_weights = torch.zeros_like(sides.gx), torch.zeros_like(weights)
    to_y = to_x if gy is None else torch.zeros_like(sides.gy)
    chunk = max(1, NUMBERS_AT_ONCE // (20 * sides.steps * max(hidden)))
    for start in range(0, sides.pairs, chunk):
        chosen = slice(start, start + chunk)
        part = sides.part(chosen)
        own = None if found is None else [states[chosen] for states in found]
        derivatives, slopes = _backward(grad[chosen].contiguous(), part, layers, packed, own)
        to_weights += slopes
        _add(to_x, 0, part.rows, chosen, derivatives)
        _add(to_y, 1, part.columns, chosen, derivatives)
    return to_x, gx.new_zeros(0) if gy is None else to_y, to_weights


def _forward(
    arguments: tuple[Any, ...], *, every: bool, last: bool, room: Tensor | None = None
) -> tuple[Tensor, list[Tensor]]:
    """The last states, and those at every step of every layer, if requested; in ``room`` if given."""
    *given, weights, hidden = arguments
    sides = _Sides.of(*given)
    sides.check()
    layers = list(reference.layers(weights.contiguous(), hidden))
    rooms: Sequence[Tensor | None] = [None] * len(layers) if room is None else _views(room, sides, hidden)
    kept = []
    for layer, following, to in zip(layers, [*layers[1:], None], rooms, strict=True):
        top = following is None
        final, found = _run(sides, _Packed.of(layer), every=every or not top, last=last and top, out=to)
        kept.append(found)
        if following is not None:
            sides = sides.above(found, following)
    return final, kept


def _views(kept: Tensor, sides: _Sides, hidden: Sequence[int]) -> list[Tensor]:
    """The states (P, 2, T, H) of every layer, which are stored one after the other."""
    parts = kept.split([2 * sides.pairs * sides.steps * width for width in hidden])
    return [part.view(sides.pairs, 2, sides.steps, width) for part, width in zip(parts, hidden, strict=True)]


def _run(
    sides: _Sides, packed: _Packed, *, every: bool, last: bool, out: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The last states (P, 2, H), and those at every step (P, 2, T, H); empty if not requested."""
    final = sides.gx.new_empty(sides.pairs if last else 0, 2, packed.hidden)
    if out is None:
        out = sides.gx.new_empty(sides.pairs if every else 0, 2, sides.steps, packed.hidden)
    if sides.pairs:
        programs, wide = triton.cdiv(sides.pairs, PAIRS), packed.width > NARROW
        scratch = out.new_empty(programs * 2 * PAIRS * packed.width) if wide else packed.bias
        states_kernel[(programs,)](
            *sides.tensors, packed.weight, packed.scale, packed.bias, scratch, out, final, sides.pairs,
            sides.gx.shape[1], sides.gy.shape[1], sides.steps, packed.hidden, LISTED=sides.rows is not None,
            EVERY=every, LAST=last, WIDE=wide, **packed.options,
        )  # fmt: skip
    return final, out


def _backward(
    grad: Tensor,
    sides: _Sides,
    layers: list[reference.Weights],
    packed: list[_Packed],
    kept: list[Tensor] | None,
) -> tuple[Tensor, Tensor]:
    """Derivatives (P, 2, T, 5H) of the first layer's gates, and with respect to all weights in one vector."""
    inputs, states = [sides], []
    for number, following in enumerate([*layers[1:], None]):
        states.append(_run(inputs[-1], packed[number], every=True, last=False)[1] if kept is None else kept[number])
        if following is not None:
            inputs.append(inputs[-1].above(states[-1], following))
    slopes: list[Tensor] = []
    derivatives = grad
    for number in reversed(range(len(layers))):
        layer = layers[number]
        hidden = layer.weight.shape[1]
        derivatives = _derivatives(grad, states[number], inputs[number], packed[number])
        rows = derivatives.flatten(0, 1)  # (2P, T, 5H)
        before = states[number].flatten(0, 1)[:, :-1]  # zero before the first step
        # One product for each side of a pair, then their sum: one over all steps would keep few processors busy.
        to_weight = torch.bmm(rows[:, 1:].mT, before).sum(0)  # (5H, H)
        sums = rows.sum((0, 1))
        found = [
            to_weight[: 2 * hidden].flatten(),
            to_weight[3 * hidden :].flatten(),
            sums[: 2 * hidden],
            sums[3 * hidden : 4 * hidden],
            sums[4 * hidden :] / 2,  # the sides share it
        ]
        if layer.weight_in is not None:
            to_input, below = rows[:, :, : 3 * hidden], states[number - 1]
            found = [torch.bmm(to_input.mT, below.flatten(0, 1)).sum(0).flatten(), sums[: 3 * hidden], *found]
            grad = (to_input @ layer.weight_in).view(below.shape)
        slopes = found + slopes
    return derivatives, torch.cat(slopes)


def _derivatives(grad: Tensor, states: Tensor, sides: _Sides, packed: _Packed) -> Tensor:
    out = grad.new_empty(sides.pairs, 2, sides.steps, 5 * packed.hidden)
    gradient_kernel[(triton.cdiv(sides.pairs, PAIRS),)](
        grad, states, *sides.tensors, packed.weight, packed.back, packed.scale, packed.bias, out, sides.pairs,
        sides.gx.shape[1], sides.gy.shape[1], sides.steps, packed.hidden, LISTED=sides.rows is not None,
        EVERY=grad.ndim == 4, **packed.options,
    )  # fmt: skip
    return out


def _add(total: Tensor, side: int, index: Tensor | None, chosen: slice, derivatives: Tensor) -> None:
    """total[index[p]] += the derivatives of a side of pair p: total (N, T, 3H), derivatives (P, 2, T, 5H).

    In a fixed order, if that is fast.
    """
    steps, width = total.shape[1:]
    found = derivatives[:, side]  # (P, T, 5H)
    if index is None:
        total[chosen] += found[:, :steps, :width]
    elif len(total) * len(index) <= ONE_HOT:
        of_pair = total.new_zeros(len(total), len(index)).scatter_(0, index[None], 1.0)  # (N, P)
        total += (of_pair @ found.flatten(1)).view(-1, *found.shape[1:])[:, :steps, :width]
    else:
        total.index_add_(0, index, found[:, :steps, :width])


def _plain_gradients(grad: Tensor, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    gx, gy, rows, columns, x_lengths, y_lengths, weights, hidden = arguments
    gx, gy, weights = (None if g is None else g.detach().requires_grad_() for g in (gx, gy, weights))
    with torch.enable_grad():
        found = reference.states(gx, gy, rows, columns, x_lengths, y_lengths, weights, hidden)
        found = found if grad.ndim == 4 else found[:, :, -1]
        to_x, *to_y, to_weights = torch.autograd.grad(found, [g for g in (gx, gy, weights) if g is not None], grad)
    return to_x, to_y.pop() if to_y else to_x.new_zeros(0), to_weights
