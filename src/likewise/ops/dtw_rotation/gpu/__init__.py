"""Rotations on a GPU: a warp aligns each pair of few channels, and finds the moment of its path.

With more channels, paths come from the kernels of DTW, products and singular vectors from PyTorch.
"""

from typing import Any

import torch
from torch import Tensor

from likewise.ops.cpu import finite_values
from likewise.ops.dtw import gpu as dtw
from likewise.ops.dtw.cpu import LONGEST_IN_FLOAT32
from likewise.ops.dtw_rotation.gpu import turns
from likewise.ops.dtw_rotation.gpu.polar import orthonormal
from likewise.ops.ground import zero_padding
from likewise.ops.rules import Rules

Lengths = Tensor | None

PATH_NUMBERS = 1 << 27  # numbers of the paths that are summed at once
FRAME_NUMBERS = 1 << 27  # numbers in the frames of all pairs that are compared at once


def rotation(
    x: Tensor,
    y: Tensor,
    x_lengths: Lengths,
    y_lengths: Lengths,
    start: Tensor,
    max_iter: int,
    bias: bool,
    all_pairs: bool,
    *rules: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Values (B,), P (B, Cx, Cy), b (B, Cx) and whether the path did not change any more (B,), of B pairs."""
    if x.dtype == torch.float32 and x.shape[1] + y.shape[1] > LONGEST_IN_FLOAT32:
        wide = x.double(), y.double(), x_lengths, y_lengths, start.double(), max_iter, bias, all_pairs
        values, rotations, offsets, converged = rotation(*wide, *rules)
        return finite_values("dtw_rotation", values.float()), rotations.float(), offsets.float(), converged
    if max(x.shape[2], y.shape[2]) <= turns.FEW:
        return _by_warps(x, y, x_lengths, y_lengths, start, max_iter, bias, all_pairs, Rules.from_plain(*rules))
    find = _all_pairs if all_pairs else _by_paths
    return find(x, y, x_lengths, y_lengths, start, max_iter, bias, *rules)


def _by_paths(
    x: Tensor,
    y: Tensor,
    x_lengths: Lengths,
    y_lengths: Lengths,
    start: Tensor,
    max_iter: int,
    bias: bool,
    *rules: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same of pairs, whose paths are stored."""
    x, y = zero_padding(x, x_lengths), zero_padding(y, y_lengths)
    found = start.repeat(len(x), 1, 1)
    offset = x.new_zeros(len(x), x.shape[2])
    converged = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    means = [_mean(x, x_lengths), _mean(y, y_lengths)]
    pairs = torch.arange(len(x), device=x.device)  # those that have not converged, of which are:
    frames, lengths, before = [x, y], [x_lengths, y_lengths], None
    for _ in range(max_iter):
        turned = frames[1] @ found[pairs].mT + offset[pairs, None]
        about = [part - mean if bias else part for part, mean in zip(frames, means, strict=True)]
        # Where the moment is the same as before, so is P, and the path.
        moment = moments(frames[0], turned, *about, *lengths, *rules)
        if before is not None and bool((stays := (moment == before).flatten(1).all(1)).any()):
            converged[pairs[stays]] = True
            pairs, moment = pairs[~stays], moment[~stays]
            frames, means = [t[~stays] for t in frames], [t[~stays] for t in means]
            lengths = [None if t is None else t[~stays.to(t.device)] for t in lengths]
        before = moment
        if not len(pairs):
            break
        u, _, vt = torch.linalg.svd(moment, full_matrices=False)
        found[pairs] = (u @ vt).to(x.dtype)
        if bias:
            offset[pairs] = (means[0] - means[1] @ found[pairs].mT)[:, 0]
    turned = y @ found.mT + offset[:, None]
    return dtw.value(x, turned, x_lengths, y_lengths, False, *rules), found, offset, converged


def _by_warps(
    x: Tensor,
    y: Tensor,
    x_lengths: Lengths,
    y_lengths: Lengths,
    start: Tensor,
    max_iter: int,
    bias: bool,
    all_pairs: bool,
    rules: Rules,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same for few channels: a kernel finds the moments, and nothing is stored but these."""
    sides = [zero_padding(t, lengths) for t, lengths in ((x, x_lengths), (y, y_lengths))]
    means = [_mean(t.double(), n)[:, 0] * bias for t, n in zip(sides, (x_lengths, y_lengths), strict=True)]
    turned = [t.mT.contiguous() for t in sides]
    lengths = _whole(x, x_lengths), _whole(y, y_lengths)
    count = len(x) * len(y) if all_pairs else len(x)
    found, offset = start.repeat(count, 1, 1), x.new_zeros(count, x.shape[2])
    values, converged = x.new_empty(count), torch.zeros(count, dtype=torch.bool, device=x.device)
    sums = x.new_empty(count, x.shape[2], y.shape[2], dtype=torch.float64)
    pairs = torch.arange(count, device=x.device)  # those that have not converged
    for iteration in range(max_iter + 1):
        if not len(pairs):
            break
        turns.run_turns(
            *turned, lengths, (means[0], means[1]), found, offset, pairs, rules, values, sums, all_pairs=all_pairs
        )
        if iteration == max_iter:
            break
        best = orthonormal(sums[pairs])
        item, other = (pairs // len(y), pairs % len(y)) if all_pairs else (pairs, pairs)
        aside = (means[0][item] - (best @ means[1][other, :, None])[..., 0]).to(x.dtype)
        best = best.to(x.dtype)
        same = (best == found[pairs]).flatten(1).all(1) & (aside == offset[pairs]).all(1)  # so is the path, then
        converged[pairs[same]] = True
        found[pairs], offset[pairs] = best, aside
        pairs = pairs[~same]
    return finite_values("dtw_rotation", values), found, offset, converged


def _whole(x: Tensor, lengths: Lengths) -> Tensor:
    return torch.full((len(x),), x.shape[1], device=x.device) if lengths is None else lengths.to(x.device)


def _all_pairs(
    x: Tensor, y: Tensor, x_lengths: Lengths, y_lengths: Lengths, *rest: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same of every x[i] with every y[j], some rows at a time: each pair has its own copy of the frames."""
    item, other = (torch.arange(len(t), device=x.device) for t in (x, y))
    rows = max(1, FRAME_NUMBERS // max(1, len(y) * (x.shape[1] * x.shape[2] + y.shape[1] * y.shape[2])))
    found = []
    for first in range(0, max(1, len(x)), rows):
        i, j = torch.cartesian_prod(item[first : first + rows], other).T
        lengths = [None if t is None else t[k.to(t.device)] for t, k in ((x_lengths, i), (y_lengths, j))]
        found.append(_by_paths(x[i], y[j], *lengths, *rest))
    values, rotations, offsets, converged = zip(*found, strict=True)
    return torch.cat(values), torch.cat(rotations), torch.cat(offsets), torch.cat(converged)


def moments(x: Tensor, y: Tensor, a: Tensor, b: Tensor, x_lengths: Lengths, y_lengths: Lengths, *rules: Any) -> Tensor:
    """Sums of a_i b_j' over the optimal path of each pair of x and y, (B, Ca, Cb) in float64."""
    found = [x.new_empty(0, a.shape[2], b.shape[2], dtype=torch.float64)]
    chunk = max(1, PATH_NUMBERS // max(1, (x.shape[1] + y.shape[1]) * (2 + a.shape[2] + b.shape[2])))
    for first in range(0, len(x), chunk):
        part = slice(first, first + chunk)
        lengths = [None if t is None else t[part] for t in (x_lengths, y_lengths)]
        path, _ = dtw.path(x[part].contiguous(), y[part].contiguous(), *lengths, False, *rules)
        at_x, at_y = path.unbind(-1)  # -1 beyond the end
        row = torch.arange(len(path), device=x.device)[:, None]
        matched_a = a[part][row, at_x.clamp(min=0)].double() * (at_x >= 0)[..., None]
        found.append(matched_a.mT @ b[part][row, at_y.clamp(min=0)].double())
    return torch.cat(found)


def _mean(x: Tensor, lengths: Lengths) -> Tensor:
    return x.sum(1, keepdim=True) / _whole(x, lengths).to(x.dtype)[:, None, None]
