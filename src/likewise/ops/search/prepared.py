"""Items and queries with their envelopes, in the layout of the kernels.

Large arrays are made by NumPy: PyTorch would wake its threads, which then occupy the cores that the kernels need.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from likewise import _check
from likewise.ops import cpu
from likewise.ops.rules import FRACTION, NONE, Window

SEGMENT = 8  # steps that share a mean; kSegment in bounds.h
LONG = 64  # items of at least this many steps are first compared by means
CHANNELS = 6  # items of at least this many channels are turned, if the first LEADS then hold most of what varies
LEADS = 4  # kLeads in leading.h
FINEST = 16383  # the largest number of a rounded frame; kFinest in leading.h
BESIDE = 16  # items whose numbers lie side by side; kBeside in leading.h
TURNED_ERROR = 1.1 * 2.0**-24  # of turned float32 copies, relative to the largest: rounding, and some of float64
LARGEST = 1e15  # beyond this, squares of float32 copies may overflow: there are no bounds


@dataclass(frozen=True)
class Turn:
    """Principal axes of what changes within items, and copies of the turned items for the kernel that needs them.

    axes: an orthogonal matrix (C, C), by which frames less ``centre`` (C,) are multiplied: distances between frames do
    not change. Numbers of 16 items lie side by side, as (N / 16, ..., 16): means, upper, lower (C, coarse) as in
    ``Prepared``; highest, lowest (LEADS, coarse), the greatest and the least value of each segment of the envelopes of
    the first LEADS channels. leads: these channels as whole numbers of ``unit``, (N, padded, LEADS).
    """

    axes: np.ndarray
    centre: np.ndarray
    unit: float
    means: Tensor
    upper: Tensor
    lower: Tensor
    highest: Tensor
    lowest: Tensor
    leads: Tensor


@dataclass(frozen=True)
class Prepared:
    """Items (N, T, C) with their lengths (N,), float32 copies and envelopes, each (N, C, padded).

    length: the length of the windows; None for whole items. error: the largest error of the float32 copies. largest:
    the largest absolute value of the copies. means: those of the copies and the envelopes of whole items, over
    ``segment`` steps, each (N, C, coarse); the same tensors if that is one step. turn: the items with turned frames, in
    place of all copies, envelopes and means, which are empty then; None if they were not turned.
    """

    values: Tensor
    lengths: Tensor
    window: Window
    length: int | None
    plane: Tensor
    upper: Tensor
    lower: Tensor
    error: float
    largest: float
    means: tuple[Tensor, Tensor, Tensor]
    segment: int
    turn: Turn | None

    @cached_property
    def plain(self) -> "Prepared":
        """The same items, not turned, for queries of other lengths; made when the first of them comes."""
        return prepare(self.values, self.lengths, self.window, turns=False)


def prepare(
    values: Tensor, lengths: Tensor | None, window: Window, length: int | None = None, *, turns: bool = True
) -> Prepared:
    """Items (N, T, C) float32 or float64 with their envelopes, for whole items or for windows of some length.

    turns: whether their frames may be turned.

    Example:
        >>> prepare(torch.tensor([[[0.0], [2.0], [1.0]]]), None, Window(1, 1.0), length=3).upper[0, 0, :3]
        tensor([2., 2., 2.])
    """
    values = readable("search", "items", values)
    count, steps, channels = values.shape
    lengths = cpu.checked_lengths("search", "lengths", lengths, count, steps)
    cpu.check_finite("search", "items", values, lengths)
    padded = -(-(steps + (0 if length is None else 64)) // 16) * 16
    largest = largest_value(values, lengths)
    may_turn = turns and length is None and window.kind != NONE and steps >= LONG and _is_full(lengths, steps)
    axes = axes_of(values) if may_turn and largest <= LARGEST else None
    if axes is None:
        plane, error = _plane(values, lengths, padded, largest)
    else:
        plane = np.zeros((count, channels, padded), np.float32)
        turned(values, *axes, plane)
        plane = torch.from_numpy(plane)
        largest = largest_value(plane, None)
        error = largest * TURNED_ERROR
    each = lengths if length is None else torch.full_like(lengths, length)
    radius = _radii(window, each)
    upper, lower = (torch.empty_like(plane) for _ in range(2))
    _envelopes(plane, lengths, radius, radius, lengths, upper, lower)
    _fill_padding(lengths, upper, lower)
    if length is None and steps:  # a path joins first with first, and last with last
        own, items, ends = plane.numpy(), np.arange(count), lengths.numpy() - 1
        for envelope in (upper.numpy(), lower.numpy()):
            envelope[:, :, 0] = own[:, :, 0]
            envelope[items, :, ends] = own[items, :, ends]
    segment = SEGMENT if length is None and steps >= LONG and _is_full(lengths, steps) else 1
    means = (plane, upper, lower)
    if segment > 1:
        means = (_means(plane, steps), _means(upper, steps), _means(lower, steps))
    turn = None
    if axes is not None:
        unit = _unit(plane[:, :LEADS], largest)
        turn = Turn(
            axes[0],
            axes[1],
            unit,
            means=_beside(means[0], channels),
            upper=_beside(means[1], channels),
            lower=_beside(means[2], channels),
            highest=_beside(_extremes(np.maximum, upper, steps), LEADS),
            lowest=_beside(_extremes(np.minimum, lower, steps), LEADS),
            leads=_rounded(plane, unit),
        )
        plane = upper = lower = plane.new_empty(0, channels, padded)
        means = (empty := means[0].new_empty(0, *means[0].shape[1:]), empty, empty)
    return Prepared(values, lengths, window, length, plane, upper, lower, error, largest, means, segment, turn)


def without_envelopes(items: Prepared, length: int) -> Prepared:
    """The same items for windows of another length than the queries', which are not compared with envelopes."""
    return replace(items, length=length, upper=items.plane, lower=items.plane)


def readable(op: str, name: str, x: Tensor) -> Tensor:
    """Return sequences (B, T, C) in a form that the kernels can read."""
    _check.sequences(op, name, x)
    if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64):
        _check.refuse(op, f"expected {name} in float32 or float64 on the CPU, got {x.dtype} on {x.device}")
    return x.detach().contiguous()


def _means(plane: Tensor, steps: int) -> Tensor:
    """Means (N, C, coarse) over every 8 steps of (N, C, padded), for complete segments; zeros after them."""
    count, channels, padded = plane.shape
    means = torch.from_numpy(np.empty((count, channels, -(-(steps // SEGMENT) // 16) * 16), np.float32))
    cpu.share_out(
        count * channels,
        padded,
        lambda begin, end: cpu.native.search_means(
            cpu.INSTRUCTION_SET, plane.data_ptr(), padded, means.shape[2], means.data_ptr(), begin, end
        ),
    )
    return means


def _plane(values: Tensor, lengths: Tensor, padded: int, largest: float) -> tuple[Tensor, float]:
    """Float32 copies (N, C, padded), zero after the end, and their largest error: infinite if there are no bounds."""
    count, steps, channels = values.shape
    error = 0.0 if values.dtype == torch.float32 else largest * 2.0**-24
    full = _is_full(lengths, steps)
    if channels == 1 and full and padded == steps and values.dtype == torch.float32 and largest <= LARGEST:
        return values.view(count, 1, steps), error
    plane = np.zeros((count, channels, padded), np.float32)
    if largest > LARGEST:
        return torch.from_numpy(plane), np.inf
    source = values.numpy()
    if full:
        plane[:, :, :steps] = source.swapaxes(1, 2)
    else:
        for i, length in enumerate(lengths.tolist()):
            plane[i, :, :length] = source[i, :length].T
    return torch.from_numpy(plane), error


def axes_of(values: Tensor) -> tuple[np.ndarray, np.ndarray] | None:
    """The principal axes of what changes within items (N, T, C), largest first, and the mean frame.

    None if LEADS of the axes do not hold most. Only for float32, and taken from at most 256 of the items.
    """
    count, _steps, channels = values.shape
    if channels < CHANNELS or count == 0 or values.dtype != torch.float32:
        return None
    x = values.numpy()[:: -(-count // 256)].astype(np.float64)
    means = x.mean(1, keepdims=True)
    x = (x - means).reshape(-1, channels)
    varying, axes = np.linalg.eigh(x.T @ x)
    if not varying[-LEADS:].sum() > 0.8 * varying.sum():
        return None
    return np.ascontiguousarray(axes[:, ::-1]), means.mean((0, 1))


def turned(values: Tensor, axes: np.ndarray, centre: np.ndarray, to: np.ndarray) -> None:
    """Write frames (N, T, C) less a centre, multiplied by a matrix in float64, to the first T of (N, C, T...)."""
    x, at_once = values.numpy(), max(1, (1 << 18) // max(1, values.shape[1] * values.shape[2]))
    for first in range(0, len(x), at_once):
        part = slice(first, first + at_once)
        to[part, :, : x.shape[1]] = ((x[part].astype(np.float64) - centre) @ axes).swapaxes(1, 2)


def _extremes(better: np.ufunc, envelopes: Tensor, steps: int) -> Tensor:
    """The best of every 8 steps of the leading channels of (N, C, padded), for complete segments; zeros after them."""
    segments = steps // SEGMENT
    best = np.zeros((len(envelopes), LEADS, -(-segments // 16) * 16), np.float32)
    x = envelopes.numpy()[:, :LEADS, : segments * SEGMENT]
    while x.shape[2] > segments:
        x = better(x[..., ::2], x[..., 1::2])
    best[..., :segments] = x
    return torch.from_numpy(best)


def _beside(x: Tensor, channels: int) -> Tensor:
    """The first channels of (N, C, T) as (N / 16, channels, T, 16)."""
    count, _channels, steps = x.shape
    blocks = -(-count // BESIDE)
    laid = torch.from_numpy(np.empty((blocks, channels, steps, BESIDE), np.float32))
    cpu.share_out(
        blocks,
        channels * steps * BESIDE,
        lambda begin, end: cpu.native.search_lay(
            cpu.INSTRUCTION_SET, x.data_ptr(), count, x.stride(0), channels * steps, laid.data_ptr(), begin, end
        ),
    )
    return laid


def _unit(leads: Tensor, largest: float) -> float:
    """The unit of rounded frames. What few of them exceed is cut: rare spikes take no digits from all others."""
    some = leads.numpy()[:: -(-len(leads) // 256)]
    spread = float(np.square(some, dtype=np.float64).mean()) ** 0.5
    return max(min(largest, 8 * spread) / FINEST, 1e-30)


def _rounded(plane: Tensor, unit: float) -> Tensor:
    """The leading channels of (N, C, padded) as whole numbers, (N, padded, LEADS)."""
    count, channels, padded = plane.shape
    leads = torch.from_numpy(np.empty((count, padded, LEADS), np.int16))
    cpu.share_out(
        count,
        padded * LEADS,
        lambda begin, end: cpu.native.search_round(
            cpu.INSTRUCTION_SET, plane.data_ptr(), channels, padded, unit, leads.data_ptr(), begin, end
        ),
    )
    return leads


def largest_value(values: Tensor, lengths: Tensor | None) -> float:
    """The largest absolute value of sequences, except in their padding."""
    x = values.numpy()
    if x.size == 0:
        return 0.0
    if lengths is not None and not _is_full(lengths, x.shape[1]):
        x = np.where((np.arange(x.shape[1]) < lengths.numpy()[:, None])[..., None], x, 0)
    return max(abs(float(x.max())), abs(float(x.min())))


def _is_full(lengths: Tensor, steps: int) -> bool:
    return bool((lengths.numpy() == steps).all())


def radius_of(window: Window, n: int, m: int) -> int:
    """The number of steps that a path of n rows and m columns may be away from its diagonals."""
    if window.kind == NONE:
        return n + m
    return min(n + m, int(window.size * min(n, m) if window.kind == FRACTION else window.size))


def _radii(window: Window, lengths: Tensor) -> Tensor:
    """``radius_of`` for n = m = lengths (N,)."""
    if window.kind == NONE:
        return 2 * lengths
    steps = window.size * lengths.double() if window.kind == FRACTION else torch.full(lengths.shape, window.size)
    return torch.minimum(2 * lengths, steps.floor().long())


def _envelopes(
    x: Tensor, lengths: Tensor, left: Tensor, right: Tensor, counts: Tensor, upper: Tensor, lower: Tensor
) -> None:
    """Write the greatest and the least of x[j - left..j + right], for j = 0..counts - 1: x (N, C, T), all else (N,)."""
    channels = x.shape[1]
    lengths, left, right, counts = (
        part.repeat_interleave(channels).contiguous() for part in (lengths, left, right, counts)
    )
    stride, to_stride = x.shape[2], upper.shape[2]
    cpu.share_out(
        len(counts),
        64 * int(counts.max()) if len(counts) else 1,
        lambda begin, end: cpu.native.search_envelopes(
            cpu.INSTRUCTION_SET,
            x.data_ptr(),
            lengths.data_ptr(),
            left.data_ptr(),
            right.data_ptr(),
            counts.data_ptr(),
            stride,
            to_stride,
            upper.data_ptr(),
            lower.data_ptr(),
            begin,
            end,
        ),
    )


def _fill_padding(counts: Tensor, upper: Tensor, lower: Tensor) -> None:
    """Write an envelope that contains everything, after the end."""
    above, below = upper.numpy(), lower.numpy()
    if _is_full(counts, upper.shape[2]):
        return
    if len(counts) and _is_full(counts, int(counts[0])):
        above[:, :, int(counts[0]) :], below[:, :, int(counts[0]) :] = np.inf, -np.inf
        return
    for i, count in enumerate(counts.tolist()):
        above[i, :, count:], below[i, :, count:] = np.inf, -np.inf


def query_envelopes(queries: Tensor, window: Window, m: int) -> tuple[Tensor, Tensor, Tensor]:
    """Float32 copies (Q, C, n) of queries (Q, n, C), and their envelopes (Q, C, m) for windows of m steps.

    The first and the last step of an envelope are the query's own: a path joins first with first, last with last.
    """
    count, n, channels = queries.shape
    radius = radius_of(window, n, m)
    plane = queries.mT.to(torch.float32).contiguous()  # (Q, C, n)
    upper, lower = torch.empty(count, channels, m), torch.empty(count, channels, m)
    left, right = radius + max(0, m - n), radius + max(0, n - m)
    given = [torch.full((count,), size) for size in (n, left, right, m)]
    _envelopes(plane, given[0], given[1], given[2], given[3], upper, lower)
    if m > 1:
        for envelope in (upper, lower):
            envelope[:, :, 0], envelope[:, :, -1] = plane[:, :, 0], plane[:, :, -1]
    return plane, upper, lower


def ordered(queries: Tensor, items: Prepared, root: bool) -> dict[str, Tensor]:
    """The queries' envelopes for windows, and their points, the most informative first, after the ends."""
    count, n, channels = queries.shape
    m = items.length or 0
    plane, upper, lower = query_envelopes(queries, items.window, m)
    middle = (upper / 2 + lower / 2).numpy()
    weight = np.abs(middle - middle.mean(2, keepdims=True))
    if root:  # channels of a step stay together
        weight = np.broadcast_to(weight.sum(1, keepdims=True), weight.shape).copy()
    weight[:, :, 0] = np.inf
    weight[:, :, -1] = np.inf
    by_step = weight.swapaxes(1, 2).reshape(count, m * channels)
    order = torch.from_numpy(np.argsort(-by_step, axis=1, kind="stable"))  # (Q, m * C), channel = order % C
    steps, channel = order // channels, order % channels
    flat = channel * m + steps
    inside = channel * n + steps.clamp(max=n - 1)

    def taken(x: Tensor, at: Tensor) -> Tensor:
        return x.reshape(count, -1).gather(1, at).contiguous()

    return {
        "steps": steps.to(torch.int32).contiguous(),
        "channels": channel.to(torch.int32).contiguous(),
        "ordered_upper": taken(upper, flat),
        "ordered_lower": taken(lower, flat),
        "ordered_query": taken(plane, inside),
        "query_upper": upper,
        "query_lower": lower,
    }
