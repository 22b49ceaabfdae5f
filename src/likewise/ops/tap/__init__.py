"""Distances of sequences whose alignment is predicted from their frames' distances: TAP and similar ones.

With D(i, j) = ||x_i - y_j|| and time(i, j) = |i / Lx - j / Ly|, ``scores(x, y, D, time, inside)``, given by the caller,
returns (B, Tx, Ty); A is its softmax over j, and the distance is the mean over i of sum_j A(i, j) D(i, j). TAP's scores
are -(D + g(D, time)), with the network g of ``correction``. Given TAP's ``convolutions`` (weights, biases), Triton
kernels compute the distances and their gradients on a GPU, and C++ kernels on a CPU: gradients of the pairs that a loss
uses.

``reference.py`` has TAP's equations for one pair.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from likewise import _check
from likewise.ops.ground import at_least_float32, no_pairs, zero_padding
from likewise.ops.tap import cpu
from likewise.ops.tap.convolutions import correction
from likewise.ops.tap.fused import fused_distances, fused_gradients, fused_pairs, fused_work, is_fast
from likewise.ops.tap.kept import Work, distances

__all__ = ["attend", "correction", "frame_distances", "tap", "tap_matrix"]

Scores = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor | None], Tensor]
Convolutions = tuple[Sequence[Tensor], Sequence[Tensor]]  # weights (out, in, K, K), and biases (out,)

# The most sequences on each side of a tile of pairs. Neighbours have similar lengths, so there is little padding.
TILE = {"cpu": 32, "cuda": 64}
CELLS_AT_ONCE = {"cpu": 1 << 18, "cuda": 1 << 25}  # cells of a tile; a cell takes some hundred bytes
# With more cells, intermediate results are recomputed in the backward pass: they take 500 or 200 bytes per cell.
KEPT_CELLS = {"cpu": 1 << 22, "cuda": 1 << 25}
PAIRS_AT_ONCE = 1 << 20  # by the kernels for a CPU, without gradients: which pairs there are takes memory, too
MANY = 0.75  # above this share of pairs with a slope, no pair is left out: that would take longer


def tap(
    x: Tensor,
    y: Tensor,
    x_lengths: Tensor | None,
    y_lengths: Tensor | None,
    scores: Scores,
    convolutions: Convolutions | None = None,
) -> Tensor:
    """Distances (B,), at least float32, from x (B, Tx, C) to y (B, Ty, C); lengths are None if all steps are real.

    Example:
        >>> x, y = torch.tensor([[[0.0], [1.0]]]), torch.tensor([[[0.0], [3.0]]])
        >>> tap(x, y, None, None, lambda x, y, D, time, inside: -D)
        tensor([0.7056])
    """
    n = _whole(x, x_lengths)
    if convolutions is not None and x.is_cuda and not torch.is_grad_enabled():
        found = fused_pairs(x, y, n, _whole(y, y_lengths), *convolutions)
        if found is not None and _check.all_finite(found):
            return found
    if convolutions is not None and cpu.fits(x, y, convolutions[0]):
        each = torch.arange(len(x))

        def dense(x: Tensor, y: Tensor, *parameters: Tensor) -> Tensor:
            return tap(x, y, x_lengths, y_lengths, scores_of(*halves(parameters)))

        return _by_kernels(x, y, n, _whole(y, y_lengths), each, each, [*convolutions[0], *convolutions[1]], dense)
    x = x if x_lengths is None or not len(x) else x[:, : x_lengths.max()]  # more padding would only cost time
    y = y if y_lengths is None or not len(y) else y[:, : y_lengths.max()]
    A, D = attend(x, y, x_lengths, y_lengths, scores)
    return (A * D).sum((1, 2)) / n


def tap_matrix(
    x: Tensor, y: Tensor, n: Tensor, m: Tensor, scores: Scores, convolutions: Convolutions | None = None
) -> Tensor:
    """Distances (N, M), from x (N, Tx, C) to y (M, Ty, C), of lengths n (N,) and m (M,), both on the CPU.

    Computed in tiles of sequences of similar length. With ``convolutions``, the scores are TAP's.
    """
    if not len(x) or not len(y):
        return no_pairs(x, y)
    if convolutions is not None:
        parameters = [*convolutions[0], *convolutions[1]]
        if torch.is_grad_enabled() and any(t.requires_grad for t in (x, y, *parameters)):
            return _with_gradients(x, y, n, m, parameters)
        found = fused_distances(x, y, n, m, *convolutions)
        if found is not None and _check.all_finite(found):
            return found
        if cpu.fits(x, y, convolutions[0]):
            rows = max(1, PAIRS_AT_ONCE // len(y))
            parts = zip(x.split(rows), n.split(rows), strict=True)
            return torch.cat([_all_by_kernels(a, y, k, m, parameters) for a, k in parts])
    return _dense(x, y, n, m, scores)


def _with_gradients(x: Tensor, y: Tensor, n: Tensor, m: Tensor, parameters: list[Tensor]) -> Tensor:
    """Distances (N, M) with gradients.

    The kernels recompute the data for the backward pass, for the pairs whose distance has a slope; PyTorch recomputes
    them if they would take more than a few gigabytes, and otherwise keeps them.
    """
    layers = len(parameters) // 2

    def dense(x: Tensor, y: Tensor, *parameters: Tensor) -> Tensor:
        return _dense(x, y, n, m, scores_of(*halves(parameters)))

    fast = is_fast(x, n, m, parameters[:layers])
    if not fast and cpu.fits(x, y, parameters[:layers]):
        return _all_by_kernels(x, y, n, m, parameters)
    if not fast and int(n.sum()) * int(m.sum()) <= KEPT_CELLS["cuda" if x.is_cuda else "cpu"]:
        return dense(x, y, *parameters)

    def values(x: Tensor, y: Tensor, *parameters: Tensor) -> tuple[Tensor, Any]:
        if fast:
            work = fused_work(x, y, n, m, parameters[:layers], parameters[layers:])
            found = work.values().view(len(x), len(y))
            if _check.all_finite(found):
                return found, work if work.is_whole else None
        with torch.enable_grad():  # in the precision of the gradients; without any, it would be lower
            return dense(*(t.detach() for t in (x, y, *parameters))), None

    def gradients(x: Tensor, y: Tensor, *rest: Any) -> list[Tensor | None]:
        *parameters, grad, kept = rest
        if fast:
            if kept is not None and int(grad.count_nonzero()) > MANY * grad.numel():
                found = kept.gradients(grad.flatten()).tensors
            else:
                if kept is not None:
                    kept.free()
                given = x, y, n, m, parameters[:layers], parameters[layers:]
                items, others = grad.nonzero().T
                found = fused_gradients(*given, items, others, grad[items, others])
            if _check.all_finite(torch.cat([t.flatten() for t in found])):
                return [*found]
        return _gradients(x, y, n, m, parameters, grad)

    return distances(Work(values, dense, gradients), x, y, parameters)


def _all_by_kernels(x: Tensor, y: Tensor, n: Tensor, m: Tensor, parameters: list[Tensor]) -> Tensor:
    """Distances (N, M) by the kernels for a CPU."""
    items, others = torch.arange(len(x)).repeat_interleave(len(y)), torch.arange(len(y)).repeat(len(x))

    def dense(x: Tensor, y: Tensor, *parameters: Tensor) -> Tensor:
        return _dense(x, y, n, m, scores_of(*halves(parameters))).flatten()

    return _by_kernels(x, y, n, m, items, others, parameters, dense).view(len(x), len(y))


def _by_kernels(
    x: Tensor, y: Tensor, n: Tensor, m: Tensor, items: Tensor, others: Tensor, parameters: list[Tensor],
    dense: Callable[..., Tensor],
) -> Tensor:  # fmt: skip
    """Distances (B,) of pairs of items by the kernels for a CPU; by ``dense`` where these overflow."""
    wanted = torch.is_grad_enabled() and any(t.requires_grad for t in (x, y, *parameters))

    def values(x: Tensor, y: Tensor, *parameters: Tensor) -> tuple[Tensor, Any]:
        work = cpu.Work(x, y, n, m, *halves(parameters))
        memory = work.memory(items, others) if wanted else None
        found = work.values(items, others, memory)
        return (found, memory) if found.isfinite().all() else (dense(x, y, *parameters), None)

    def gradients(x: Tensor, y: Tensor, *rest: Any) -> list[Tensor | None]:
        *parameters, grad, memory = rest
        used = grad.nonzero()[:, 0]
        some = memory and cpu.Memory(memory.numbers, memory.first[used])
        work = cpu.Work(x, y, n, m, *halves(parameters))
        found = work.gradients(items[used], others[used], grad[used], some)
        if torch.cat([t.flatten() for t in found]).isfinite().all():
            return [*found]
        leaves = [t.detach().requires_grad_() for t in (x, y, *parameters)]
        with torch.enable_grad():
            return [*torch.autograd.grad(dense(*leaves), leaves, grad, allow_unused=True)]

    return distances(Work(values, dense, gradients), x, y, parameters)


def halves(parameters: Sequence[Tensor]) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    """Weights and biases, from one after the other."""
    return parameters[: len(parameters) // 2], parameters[len(parameters) // 2 :]


def scores_of(weights: Sequence[Tensor], biases: Sequence[Tensor]) -> Scores:
    """TAP's scores with these convolutions."""
    return lambda x, y, D, time, inside: -(D + correction(D, time, inside, weights, biases))


def _gradients(
    x: Tensor, y: Tensor, n: Tensor, m: Tensor, parameters: list[Tensor], grad: Tensor
) -> list[Tensor | None]:
    """Gradients of the sum of grad times the distances, by tiles, without pairs whose distance has no slope."""
    leaves = [t.detach().requires_grad_() for t in (x, y, *parameters)]
    x, y, *rest = leaves
    scores = scores_of(*halves(rest))
    totals: list[Tensor | None] = [None] * len(leaves)
    kind = "cuda" if x.is_cuda else "cpu"
    for i, j in itertools.product(_tiles(n, int(m.max()), kind), list(_tiles(m, int(n.max()), kind))):
        slopes = grad[i.to(x.device)][:, j.to(x.device)]
        used = (slopes != 0).cpu()
        if not used.any():
            continue
        with torch.enable_grad():
            own, other = x[i.to(x.device), : n[i].max()], y[j.to(y.device), : m[j].max()]
            if used.double().mean() > MANY:
                d = _tile(own, other, n[i].repeat_interleave(len(j)), m[j].repeat(len(i)), scores)
            else:
                row, column = used.nonzero().T
                slopes = slopes[row.to(x.device), column.to(x.device)]
                d = tap(own[row.to(x.device)], other[column.to(x.device)], n[i][row], m[j][column], scores)
        found = torch.autograd.grad(d, leaves, slopes.to(d), allow_unused=True)
        totals = [a if b is None else b if a is None else a + b for a, b in zip(totals, found, strict=True)]
    return totals


def _dense(x: Tensor, y: Tensor, n: Tensor, m: Tensor, scores: Scores) -> Tensor:
    """Distances (N, M), of every pair."""
    kind = "cuda" if x.is_cuda else "cpu"
    again = torch.is_grad_enabled() and int(n.sum()) * int(m.sum()) > KEPT_CELLS[kind]
    rows, columns = list(_tiles(n, int(m.max()), kind)), list(_tiles(m, int(n.max()), kind))
    strips = []
    for i in rows:
        own = x[i.to(x.device), : n[i].max()]
        tiles = []
        for j in columns:
            other, count = y[j.to(y.device), : m[j].max()], len(j)
            given = own, other, n[i].repeat_interleave(count), m[j].repeat(len(i)), scores
            tiles.append(checkpoint(_tile, *given, use_reentrant=False) if again else _tile(*given))
        strips.append(torch.cat(tiles, 1))
    back_i, back_j = torch.cat(rows).argsort().to(x.device), torch.cat(columns).argsort().to(x.device)
    return torch.cat(strips)[back_i][:, back_j]


def _tile(x: Tensor, y: Tensor, n: Tensor, m: Tensor, scores: Scores) -> Tensor:
    """Distances (len(x), len(y)); n and m are the lengths of every pair."""
    rows, columns = len(x), len(y)
    each_x = x[:, None].expand(-1, columns, -1, -1).reshape(rows * columns, *x.shape[1:])
    each_y = y[None].expand(rows, -1, -1, -1).reshape(rows * columns, *y.shape[1:])
    return tap(each_x, each_y, n, m, scores).reshape(rows, columns)


def attend(
    x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None, scores: Scores
) -> tuple[Tensor, Tensor]:
    """A and D, (B, Tx, Ty) each, at least float32, zero in the padding."""
    x, y = at_least_float32(zero_padding(x, x_lengths)), at_least_float32(zero_padding(y, y_lengths))
    n, m = _whole(x, x_lengths), _whole(y, y_lengths)
    i = torch.arange(x.shape[1], device=x.device, dtype=x.dtype)
    j = torch.arange(y.shape[1], device=y.device, dtype=y.dtype)
    D = frame_distances(x, y)
    time = (((i + 1) / n[:, None])[:, :, None] - ((j + 1) / m[:, None])[:, None]).abs()  # (B, Tx, Ty)
    if x_lengths is None and y_lengths is None:
        return scores(x, y, D, time, None).to(D.dtype).softmax(2), D
    columns = (j < m[:, None])[:, None]  # (B, 1, Ty)
    inside = (i < n[:, None])[:, :, None] & columns
    D, time = D * inside, time * inside
    found = scores(x, y, D, time, inside).to(D.dtype)
    # Rows in the padding have real columns, so nothing is divided by zero.
    return found.masked_fill(~columns, -torch.inf).softmax(2) * inside, D


def frame_distances(x: Tensor, y: Tensor) -> Tensor:
    """||x_i - y_j||, (B, Tx, Ty), by one matrix product; where it is zero, so is its derivative.

    Example:
        >>> frame_distances(torch.tensor([[[0.0, 0.0]]]), torch.tensor([[[3.0, 4.0]]]))
        tensor([[[5.]]])
    """
    return _FrameDistances.apply(x, y)  # type: ignore[return-value]


def _whole(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Lengths (B,) on x's device; if they are None, every step is real."""
    return torch.full((x.shape[0],), x.shape[1], device=x.device) if lengths is None else lengths.to(x.device)


def _tiles(lengths: Tensor, others: int, kind: str) -> Iterator[Tensor]:
    """Indices in the order of lengths, in parts of at most TILE, or fewer for long sequences."""
    order = lengths.argsort()
    first = 0
    while first < len(order):
        size = TILE[kind]
        while size > 1 and size * size * int(lengths[order[first : first + size][-1]]) * others > CELLS_AT_ONCE[kind]:
            size //= 2
        yield order[first : first + size]
        first += size


class _FrameDistances(torch.autograd.Function):
    """In float64, since the squares nearly cancel for frames that are close. float64 frames are subtracted instead."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        if x.dtype == torch.float64:
            distances = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
        else:
            x64, y64 = x.double(), y.double()
            squares = x64.square().sum(2)[:, :, None] + y64.square().sum(2)[:, None]
            apart = torch.baddbmm(squares, x64, y64.mT, alpha=-2)
            distances = torch.where(apart > 1e-14 * squares, apart, 0).sqrt().to(x.dtype)
        ctx.save_for_backward(x, y, distances)
        return distances

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        x, y, distances = ctx.saved_tensors
        # d/dx_i = sum_j w_ij (x_i - y_j), w = grad / D, in float64 for the same reason.
        w = torch.where(distances > 0, grad.double() / torch.where(distances > 0, distances, 1), 0)
        x64, y64 = x.double(), y.double()
        to_x = w.sum(2)[..., None] * x64 - w @ y64
        to_y = w.sum(1)[..., None] * y64 - w.mT @ x64
        return to_x.to(x.dtype), to_y.to(y.dtype)
