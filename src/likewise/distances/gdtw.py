"""GDTW: warping in continuous time, with a differentiable warp."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from likewise import _check
from likewise.distances.distance import Distance, Sequences, describe, full_lengths
from likewise.distances.ranges import Range
from likewise.distances.warp import Warp, WarpAlignment, even_times, fill_padding, interpolate
from likewise.distances.warp_problem import (
    Frames,
    absolute_problem,
    absolute_value,
    check_times,
    read_times,
    size_of,
    solver_passes,
)
from likewise.ops.gdtw import gdtw
from likewise.ops.gdtw.reference import Pass

# A number (an int counts steps, a float is a fraction), or a tensor of fractions: (K,) values spread evenly over x's
# time, or (B, K), separately for each pair.
Profile = float | Tensor
Times = Tensor | np.ndarray | Sequence[object] | None

# Ranges of the learned settings: the straight warp always satisfies such a band and such slopes.
RANGES = {
    "reg": Range(1e-9),
    "band": Range(0.0, 1.0),
    "lower": Range(0.0, 1.0),
    "upper": Range(0.0, 1.0),
    "slope_min": Range(0.0, 1.0),
    "slope_max": Range(1.0),
}
FAINT = 1e-9  # used for reg=0, relative to the signals' size


class GDTW(Distance):
    """Dynamic time warping in continuous time: the minimum of f(phi) over warps phi with x(t) ~ y(phi(t)).

        f(phi) = integral |x(t) - y(phi(t))|^2 dt + reg integral (phi'(t) - stretch)^2 dt

    As in ``DTW``, the warp goes from x's time to y's. y is linear between its frames; phi is linear between knots, by
    default x's times, and the integrals are the trapezoid rule's. No square root is taken. Both durations are 1 unless
    times are given; for a subsequence, x's duration is 1 and y's frames are as far apart as x's, so that no position or
    speed is favoured. Not symmetric. Sequences have at least two frames.

    reg: lambda, the penalty for slopes that differ from stretch (y's duration divided by x's; 1 for a subsequence); a
        number of 0 or more, or a positive tensor () or (B,), one for each pair. 0 is the limit as reg goes to 0: the
        smoothest of the best warps.
    band: how far phi may be from the diagonal. An int counts steps: the corridor of ``DTW(band=...)``. A float is a
        fraction of y's duration, measured from the straight line; so is a tensor (K,), with the widths at times spread
        evenly over x's, or (B, K) for each pair.
    lower, upper: separate bands for how far phi may be below and above. A side without a band is unbounded.
    slope: least and greatest slope, in units of stretch; each a float or a tensor as above. The least is not negative:
        phi is monotone.
    subsequence: all of x is matched to a stretch of y; the warp's ends are free.
    ground: "sqeuclidean", or "absolute" for the sum of |x(t) - y(phi(t))| over channels, which is less sensitive to
        outliers.
    knots: the number of knots, spread evenly over x's time; by default, the knots are the times of x.
    grid: the number of nodes of the solver's grid for each knot; by default as many as y has frames, or more if y has
        fewer than 64.
    refinements: how many times the grid is refined around its solution.
    huber: a residual u of a channel beyond it counts linearly, 2 huber |u| - huber^2 instead of u^2.

    Tensors have derivatives. An ``nn.Parameter`` is the initial value of a learned setting. The distance stores it as a
    free parameter, such as raw_reg for reg, and maps it into its range: reg is positive, bands and the least slope are
    between 0 and 1, the greatest slope is above 1. ``distance.reg`` and the like return the values. They are saved with
    a ``Metric``.
    The cost's derivatives are those of the objective at the solution; the warp's are those of the optimality
    conditions. They are also correct where a knot coincides with a frame of y, which is common; ``likewise.ops.gdtw``
    explains how this differs from the paper. The absolute cost is solved in a smoothed form and evaluated exactly.
    Warps are at least float32. Memory: O(knots grid) bytes for each pair in progress. CUDA tensors are solved on the
    GPU. With Huber's loss or the absolute cost, and for pairs that do not converge there, the CPU polishes the GPU's
    solution on the grid.
    Reference: Deriso & Boyd (2019), arXiv:1905.12893; Xu et al. (2023), arXiv:2303.10778 (DecDTW).

    Example:
        >>> distance = GDTW(reg=1e-4)
        >>> time = torch.linspace(0, 1, 50)
        >>> x, y = torch.sin(6 * time**2)[None, :, None], torch.sin(6 * time)[None, :, None]
        >>> warp = distance.warp(x, y)  # x ~ y(warp), so it is time**2
        >>> (warp.values - time**2).abs().max() < 0.02
        tensor(True)
        >>> distance(x, y) < 1e-3
        tensor([True])
    """

    def __init__(
        self,
        reg: float | Tensor = 0.1,
        *,
        band: Profile | None = None,
        lower: Profile | None = None,
        upper: Profile | None = None,
        slope: tuple[Profile, Profile] = (0.0, math.inf),
        subsequence: bool = False,
        ground: str = "sqeuclidean",
        knots: int | None = None,
        grid: int | None = None,
        refinements: int = 2,
        huber: float | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(slope, (tuple, list)) or len(slope) != 2:
            _check.refuse("GDTW", f"expected slope to be a pair (least, greatest), got {slope!r}")
        if band is not None and (lower is not None or upper is not None):
            _check.refuse("GDTW", "give band, or lower and upper, not both")
        if ground not in ("sqeuclidean", "absolute"):
            _check.refuse("GDTW", f'ground must be "sqeuclidean" or "absolute", got {ground!r}')
        if ground == "absolute" and huber is not None:
            _check.refuse("GDTW", 'give huber or ground="absolute", not both')
        self._keep("reg", reg if isinstance(reg, Tensor) else _check.not_negative("GDTW", "reg", reg), dimensions=1)
        for name, width in (("band", band), ("lower", lower), ("upper", upper)):
            self._keep(name, width if width is None or isinstance(width, Tensor) else _width(name, width))
        for name, limit in (("slope_min", slope[0]), ("slope_max", slope[1])):
            self._keep(name, limit if isinstance(limit, Tensor) else _slope(name, limit))
        self.subsequence = subsequence
        self.ground = ground
        self.knots = None if knots is None else _check.whole("GDTW", "knots", knots, least=2)
        self.grid = None if grid is None else _check.whole("GDTW", "grid", grid, least=3)
        self.refinements = _check.whole("GDTW", "refinements", refinements, least=0)
        self.huber = None if huber is None else _check.positive("GDTW", "huber", huber)

    def __getattr__(self, name: str) -> Any:
        """Return a learned setting as the value of its free parameter; other attributes as in any module."""
        raw = self.__dict__.get("_parameters", {}).get(f"raw_{name}") if name in RANGES else None
        return super().__getattr__(name) if raw is None else RANGES[name].inside(raw)

    def config(self) -> dict[str, object]:
        """The constructor's arguments; for learned settings, their parameters."""
        kept = {name: self._parameters.get(f"raw_{name}", getattr(self, name)) for name in RANGES}
        slope = [kept.pop("slope_min"), kept.pop("slope_max")]
        rest = ("subsequence", "ground", "knots", "grid", "refinements", "huber")
        return {**kept, "slope": slope, **{name: getattr(self, name) for name in rest}}

    def forward(self, x: Sequences, y: Sequences, times_x: Times = None, times_y: Times = None) -> Tensor:
        """Costs (B,) between x[b] and y[b]; times as in ``warp``."""
        return self._solve(*self._timed(x, y, times_x, times_y))[0]

    def warp(self, x: Sequences, y: Sequences, times_x: Times = None, times_y: Times = None) -> Warp:
        """The warps from x's time to y's, differentiable: x(warp.times) ~ y(warp.values).

        times_x, times_y: (B, T), (T,) for all, or a list of (T_i,); increasing. By default they are spread evenly from
        0 to 1; for a subsequence, frames of x and y are equally far apart.
        """
        return self._solve(*self._timed(x, y, times_x, times_y))[1]

    def paired(self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Costs (B,) of padded pairs."""
        return self._solve(x, y, x_lengths, y_lengths, *self._even(x, y, x_lengths, y_lengths))[0]

    def align(self, x: Sequences, y: Sequences, times_x: Times = None, times_y: Times = None) -> WarpAlignment:
        """Align every pair; times as in ``warp``."""
        pair = self._timed(x, y, times_x, times_y)
        x_values, y_values, x_lengths, y_lengths, x_at, y_at = pair
        return WarpAlignment(
            lambda: self._solve(*pair),
            x_at,
            y_at,
            full_lengths(x_values, x_lengths),
            full_lengths(y_values, y_lengths),
            x_values.dtype,
        )

    def passes(
        self, x: Sequences, y: Sequences, times_x: Times = None, times_y: Times = None, *, item: int = 0
    ) -> list[Pass]:
        """The passes of the solver over its grids for pair ``item``, before the polish, as ``viz.plot_solver`` draws.

        They are recomputed in plain torch, slowly. Each ``Pass`` has times (m,), the knots; grid and costs (m, M), the
        nodes and their costs; warp (m,), the best path; and value, its objective.

        Example:
            >>> passes = GDTW(grid=5, refinements=1).passes([[0.0, 1.0, 2.0]], [[0.0, 2.0]])
            >>> passes[0].grid.shape
            torch.Size([3, 5])
        """
        x, y, x_lengths, y_lengths, times_x, times_y = self._timed(x, y, times_x, times_y)
        if not -len(x) <= item < len(x):
            _check.refuse("GDTW", f"item {item} is out of range for {len(x)} pairs")
        with torch.no_grad():
            given = self._problem(x, y, x_lengths, y_lengths, times_x, times_y)
        return list(solver_passes(item % len(x), given))

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        shown = {
            name: "learned"
            if f"raw_{name}" in self._parameters
            else "given"
            if isinstance(getattr(self, name), Tensor)
            else getattr(self, name)
            for name in RANGES
        }
        rest = {name: getattr(self, name) for name in ("subsequence", "knots", "grid", "huber")}
        if shown["slope_min"] == 0:
            shown["slope_min"] = None
        ground = None if self.ground == "sqeuclidean" else self.ground
        return describe(**shown, ground=ground, **rest)

    def _keep(self, name: str, value: Profile | None, dimensions: int = 2) -> None:
        """Store a setting: a free parameter, a buffer, or a number."""
        if not isinstance(value, Tensor):
            setattr(self, name, value)
            return
        tensor = _check.is_tensor("GDTW", name, value)
        if tensor.ndim > dimensions or 0 in tensor.shape:
            kinds = "() or (B,)" if dimensions == 1 else "(), (K,) or (B, K)"
            _check.refuse("GDTW", f"expected {name} of shape {kinds}, got {tuple(tensor.shape)}")
        if not isinstance(tensor, nn.Parameter):
            self.register_buffer(name, tensor)
            return
        allowed = RANGES[name]
        if not tensor.is_meta and not allowed.holds(tensor.detach()):
            ends = (
                f"from {allowed.least:g} to {allowed.most:g}" if allowed.most < math.inf else f"above {allowed.least:g}"
            )
            _check.refuse("GDTW", f"{name} is learned {ends}, but its initial value is {tensor.detach().tolist()}")
        raw = allowed.outside(tensor.detach())
        self.register_parameter(f"raw_{name}", nn.Parameter(raw, requires_grad=tensor.requires_grad))

    def _even(self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        """Even times of x and y; the same tensor if they are equal."""
        times = even_times(x, x_lengths)
        if x_lengths is None and y_lengths is None and x.shape[1] == y.shape[1]:
            times = times.contiguous()
            return times, times
        return times, self._like(times, x, y, x_lengths, y_lengths)

    def _like(self, others: Tensor, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Even times of y: from 0 to 1, or for a subsequence with the mean step of x's times, ``others``."""
        times = even_times(y, y_lengths)
        if not self.subsequence:
            return times
        others = fill_padding(others, x_lengths)
        duration = others[:, -1:] - others[:, :1]  # (B, 1)
        steps = full_lengths(x, x_lengths)[:, None] - 1, full_lengths(y, y_lengths)[:, None] - 1
        return times * duration * steps[1] / steps[0].clamp(min=1)

    def _timed(
        self, x: Sequences, y: Sequences, times_x: Times, times_y: Times
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor, Tensor]:
        x, y, x_lengths, y_lengths = self._pair(x, y, paired=True)
        if times_x is None and times_y is None:
            return x, y, x_lengths, y_lengths, *self._even(x, y, x_lengths, y_lengths)
        at_x = None if times_x is None else read_times("GDTW", "times_x", times_x, x, x_lengths)
        at_y = None if times_y is None else read_times("GDTW", "times_y", times_y, y, y_lengths)
        if at_x is None:
            at_x = self._like(at_y, y, x, y_lengths, x_lengths)  # type: ignore[arg-type]
        elif at_y is None:
            at_y = self._like(at_x, x, y, x_lengths, y_lengths)
        return x, y, x_lengths, y_lengths, at_x, at_y  # type: ignore[return-value]

    def _solve(self, *pairs: Any) -> tuple[Tensor, Warp]:
        given = self._problem(*pairs)
        value, values = gdtw(**{name: value for name, value in given.items() if name != "size"})
        x, lengths, times = given["x"], given["x_lengths"], given["times_x"]
        if self.ground == "absolute":
            value = absolute_value(value, values, given)
        dtype = torch.promote_types(x.dtype, torch.float32)  # half precision is too coarse for times
        lengths = None if lengths is None else lengths.to(x.device)
        return value, Warp(times.to(dtype), values.to(dtype), lengths)

    def _problem(
        self,
        x: Tensor,
        y: Tensor,
        x_lengths: Tensor | None,
        y_lengths: Tensor | None,
        times_x: Tensor,
        times_y: Tensor,
    ) -> dict[str, Any]:
        """Arguments of the operator, by name."""
        times_x, times_y = fill_padding(times_x, x_lengths), fill_padding(times_y, y_lengths)
        frames = Frames(times_x, times_y, x_lengths, y_lengths)
        knots = times_x
        if self.knots is not None and len(x):
            check_times("x", x, x_lengths, times_x)
            share = torch.linspace(0, 1, self.knots, dtype=times_x.dtype, device=x.device)
            knots = times_x[:, :1] + share * (times_x[:, -1:] - times_x[:, :1])
            knots = torch.cat([knots[:, :-1], times_x[:, -1:]], 1)  # the last one exactly
            x, x_lengths = interpolate(times_x, x, knots, x_lengths).to(x.dtype), None
        given = {"x": x, "y": y, "x_lengths": x_lengths, "y_lengths": y_lengths, "times_x": knots, "times_y": times_y}
        given |= {"reg": self._strength(given), **self._limits(frames, knots)}
        given |= {"subsequence": self.subsequence, "grid": self.grid, "refinements": self.refinements}
        given["huber"] = math.inf if self.huber is None else self.huber
        return absolute_problem(given) if self.ground == "absolute" else given

    def _strength(self, given: dict[str, Any]) -> Tensor:
        """reg (B,), one for each pair."""
        reg, x = self.reg, given["x"]
        if isinstance(reg, Tensor):
            if reg.ndim == 1 and len(reg) not in (1, len(x)):
                self._refuse_number("reg", len(reg), len(x))
            return reg.to(x.device, torch.float64).expand(len(x))
        if reg > 0 or not len(x):
            return torch.full((len(x),), reg or 1.0, dtype=torch.float64, device=x.device)
        # The limit as reg goes to 0: too small to change the value, but above rounding errors.
        durations = [times[:, -1] - times[:, 0] for times in (given["times_x"], given["times_y"])]
        pace = durations[0] / durations[1]
        return FAINT * size_of(given).square() * pace.square() / full_lengths(x, given["x_lengths"])

    def _limits(self, frames: Frames, knots: Tensor) -> dict[str, Tensor | None]:
        """Bounds (B, M) and slope limits (B, M - 1) of the warps, in the units of time."""
        found: dict[str, Tensor | None] = {"lower": None, "upper": None, "slope_min": None, "slope_max": None}
        if knots.shape[1] == 0:
            return found
        slopes = self.slope_min, self.slope_max
        sloped = isinstance(slopes[0], Tensor) or isinstance(slopes[1], Tensor) or slopes != (0, math.inf)
        sides = {"lower": self.band if self.lower is None else self.lower}
        sides["upper"] = self.band if self.upper is None else self.upper
        if not sloped and sides["lower"] is None and sides["upper"] is None:
            return found
        duration_x, duration_y = knots[:, -1:] - knots[:, :1], frames.y[:, -1:] - frames.y[:, :1]  # (B, 1)
        stretch = torch.ones_like(duration_x) if self.subsequence else duration_y / duration_x
        gone = knots - knots[:, :1]
        for (name, width), side in zip(sides.items(), (-1, 1), strict=True):
            if isinstance(width, int):
                found[name] = frames.corridor(knots, width, side)
            elif width is not None:
                share = self._profile(name, width, gone / duration_x) * duration_y
                found[name] = frames.y[:, :1] + stretch * gone + side * share
        if sloped:
            halfway = (gone[:, 1:] + gone[:, :-1]) / (2 * duration_x)
            for name, slope in zip(("slope_min", "slope_max"), slopes, strict=True):
                found[name] = self._profile(name, slope, halfway) * stretch
        return found

    def _profile(self, name: str, value: Profile, share: Tensor) -> Tensor:
        """A setting at shares (B, M) of x's duration, each between 0 and 1."""
        if not isinstance(value, Tensor):
            return torch.full_like(share, value)
        value = value.to(share)
        if value.ndim == 2 and len(value) not in (1, len(share)):
            self._refuse_number(name if self.band is None else "band", len(value), len(share))
        value = value.reshape(1, -1) if value.ndim < 2 else value
        value = value.expand(len(share), -1)
        if value.shape[1] == 1:
            return value.expand_as(share)
        spread = torch.linspace(0, 1, value.shape[1], dtype=share.dtype, device=share.device)
        return interpolate(spread.expand(len(share), -1), value, share)

    def _refuse_number(self, name: str, given: int, pairs: int) -> None:
        _check.refuse("GDTW", f"{name} is given for {given} pairs, but there are {pairs}; pass one value for all")


def _width(name: str, value: object) -> float:
    """A band: an int of steps, or a fraction."""
    width = _check.number("GDTW", name, value)
    if isinstance(width, int) and width >= 0:
        return width
    if isinstance(width, float) and 0 <= width <= 1:
        return width
    kinds = "a whole number of steps, 0 or more, or a fraction from 0.0 to 1.0"
    _check.refuse("GDTW", f"{name} must be {kinds}, got {width}")


def _slope(name: str, value: object) -> float:
    number = float(_check.number("GDTW", name, value))
    if math.isnan(number) or number < 0:
        _check.refuse("GDTW", f"{name} must not be negative, got {number}")
    return number
