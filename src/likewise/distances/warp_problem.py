"""Convert GDTW's arguments to those of its operator: times, bands in steps, the absolute cost."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from likewise import _check
from likewise.distances.distance import full_lengths
from likewise.distances.warp import fill_padding, interpolate
from likewise.ops.gdtw import reference

Times = Tensor | np.ndarray | Sequence[object]

SHARPNESS = 1e-4  # the absolute cost is smoothed for residuals below this share of the signals' size


@dataclass(frozen=True)
class Frames:
    """The times of the frames of x (B, Tx) and of y (B, Ty); lengths are None if every step is real."""

    x: Tensor
    y: Tensor
    x_lengths: Tensor | None
    y_lengths: Tensor | None

    def corridor(self, knots: Tensor, steps: int, side: int) -> Tensor:
        """Times of y (B, M) some steps above (side 1) or below (-1) the diagonals at knots (B, M) of x's time.

        As in ``likewise.ops.rules.Window``, the diagonals run through both corners, and the further one counts.
        """
        count_x, count_y = (
            full_lengths(times, lengths)[:, None]
            for times, lengths in ((self.x, self.x_lengths), (self.y, self.y_lengths))
        )
        longer = count_y - count_x
        shift = side * steps + (longer.clamp(min=0) if side > 0 else longer.clamp(max=0))
        frame = interpolate(self.x, _numbers(self.x), knots, self.x_lengths) + shift
        return interpolate(_numbers(self.y), self.y, frame, self.y_lengths)


def _numbers(times: Tensor) -> Tensor:
    """Numbers (B, T) of the frames."""
    return torch.arange(times.shape[1], dtype=times.dtype, device=times.device).expand(len(times), -1)


def read_times(op: str, name: str, times: Times, x: Tensor, lengths: Tensor | None) -> Tensor:
    """Times (B, T) of x in float64, from any form that ``GDTW.warp`` takes."""
    if isinstance(times, (list, tuple)) and len(times) and not isinstance(times[0], (int, float)):
        times = _pad_times(op, name, times, x, lengths)
    found = torch.as_tensor(times).to(x.device, torch.float64)
    if found.ndim == 1:
        found = found.expand(len(x), -1)
    if found.shape != x.shape[:2]:
        _check.refuse(op, f"expected {name} of shape {tuple(x.shape[:2])}, got {tuple(found.shape)}")
    return found


def _pad_times(op: str, name: str, times: Sequence[object], x: Tensor, lengths: Tensor | None) -> Tensor:
    """Times (B, T) from a list with one row per sequence."""
    rows = [torch.as_tensor(row, dtype=torch.float64) for row in times]
    for b, (row, steps) in enumerate(zip(rows, full_lengths(x, lengths).tolist(), strict=False)):
        if row.shape != (steps,):
            _check.refuse(op, f"expected {name}[{b}] of shape ({steps},), got {tuple(row.shape)}")
    padded = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    return nn.functional.pad(padded, (0, max(0, x.shape[1] - padded.shape[1])))


def check_times(name: str, x: Tensor, lengths: Tensor | None, times: Tensor) -> None:
    """Check what the kernel, which sees x only at the knots, cannot check."""
    if torch.compiler.is_compiling():
        return
    _check.finite("gdtw", name, x, lengths)
    short = (full_lengths(x, lengths) < 2).nonzero()
    if len(short):
        _check.refuse("gdtw", f"{name}[{int(short[0])}] has 1 step; a warp needs at least two")
    real = torch.arange(1, times.shape[1], device=x.device) < full_lengths(x, lengths)[:, None]
    wrong = (~(times.diff() > 0) & real).nonzero()
    if len(wrong):
        b, k = wrong[0].tolist()
        found = times[b, k + 1].item()
        _check.refuse("gdtw", f"times_{name}[{b}] must be finite and increasing, but step {k + 1} is {found:g}")


def size_of(given: dict[str, Any]) -> Tensor:
    """The size of the signals of each pair, (B,): their distance from y's mean, as a power of two.

    A power of two does not depend on the padding in any digit, and dividing by it is exact.
    """
    x, y = given["x"].detach().double(), given["y"].detach().double()
    center = _mean(y, given["y_lengths"])
    first, second = (
        _mean((z - center[:, None]).square(), given[f"{name}_lengths"]).sum(1) for name, z in (("x", x), ("y", y))
    )
    size = (first + second).sqrt()  # (B,)
    usable = (size > 0) & (size < math.inf)
    return torch.ldexp(torch.ones_like(size), torch.frexp(torch.where(usable, size, 1.0)).exponent)


def _mean(x: Tensor, lengths: Tensor | None) -> Tensor:
    """The mean (B, C) over the real steps of x (B, T, C)."""
    if lengths is None:
        return x.mean(1)
    real = torch.arange(x.shape[1], device=x.device) < lengths.to(x.device)[:, None]
    return torch.where(real[..., None], x, 0).sum(1) / lengths.to(x.device)[:, None]


def absolute_problem(given: dict[str, Any]) -> dict[str, Any]:
    """The problem with the absolute cost as one with Huber's loss, for signals of size 1.

    Huber's loss is 2 huber |u| - huber^2 beyond huber, so a small huber gives 2 huber times the absolute cost.
    """
    size = size_of(given)
    scaled = {name: (given[name] / size[:, None, None]).to(given[name].dtype) for name in ("x", "y")}
    return given | scaled | {"reg": given["reg"] * 2 * SHARPNESS / size, "huber": SHARPNESS, "size": size}


def absolute_value(value: Tensor, warp: Tensor, given: dict[str, Any]) -> Tensor:
    """The cost (B,) at the warps found (B, M); its derivative is that of Huber's ``value``."""
    size = given["size"]
    smooth = value * (size / (2 * SHARPNESS)).to(value.dtype)
    with torch.no_grad():
        times, lengths = given["times_x"], given["x_lengths"]
        real = torch.arange(times.shape[1], device=warp.device) < full_lengths(given["x"], lengths)[:, None]
        warp = fill_padding(warp, lengths)
        warped = interpolate(given["times_y"], given["y"].double(), warp, given["y_lengths"])
        residuals = torch.where(real, (given["x"].double() - warped).abs().sum(2), 0)  # (B, M)
        steps = fill_padding(times, lengths).diff()
        losses = ((residuals[:, 1:] + residuals[:, :-1]) / 2 * steps * real[:, 1:]).sum(1)
        excess = warp.diff() / torch.where(steps > 0, steps, 1) - _stretch(given)
        bends = (excess.square() * steps).sum(1)
        exact = size * losses + given["reg"] * size / (2 * SHARPNESS) * bends
        correction = exact.to(value.dtype) - smooth
    return smooth + correction


def _stretch(given: dict[str, Any]) -> Tensor:
    x, y = (fill_padding(given[f"times_{name}"], given[f"{name}_lengths"]) for name in ("x", "y"))
    duration_x, duration_y = x[:, -1:] - x[:, :1], y[:, -1:] - y[:, :1]
    return torch.ones_like(duration_x) if given["subsequence"] else duration_y / duration_x


def solver_passes(item: int, given: dict[str, Any]) -> Iterator[reference.Pass]:
    """The passes of the plain solver for one pair."""
    m, n = (int(full_lengths(given[name], given[f"{name}_lengths"])[item]) for name in ("x", "y"))
    sizes = {"x": m, "y": n, "times_x": m, "times_y": n, "lower": m, "upper": m, "slope_min": m - 1, "slope_max": m - 1}
    absent = {"lower": -math.inf, "upper": math.inf, "slope_min": 0.0, "slope_max": math.inf}
    found = {}
    for name, steps in sizes.items():
        value = given[name]
        found[name] = (
            torch.full((steps,), absent[name], dtype=torch.float64)
            if value is None
            else value[item, :steps].detach().cpu().double()
        )
    pair = reference.Pair(
        x=found["x"],
        y=found["y"],
        x_times=found["times_x"],
        y_times=found["times_y"],
        reg=given["reg"][item].detach().cpu().double(),
        **{name: found[name] for name in absent},
        subsequence=given["subsequence"],
        huber=given["huber"],
    )
    return reference.grid_passes(pair, (given["grid"] or reference.default_nodes(n)) | 1, given["refinements"])
