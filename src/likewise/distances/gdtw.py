"""GDTW: warping in continuous time, with a warp that can be learned through."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from likewise import _check
from likewise.distances.distance import Distance, Sequences, describe, full_lengths
from likewise.distances.warp import Warp, WarpAlignment, even_times, fill_padding, interpolate
from likewise.ops.gdtw import gdtw

# A number, or a tensor: (K,) values spread evenly over y's time, or (B, K) for each pair apart.
Profile = float | Tensor
Times = Tensor | np.ndarray | Sequence[object] | None


class GDTW(Distance):
    """Dynamic time warping in continuous time: the least f(phi) of a warp phi with x(phi(t)) ~ y(t).

        f(phi) = integral |x(phi(t)) - y(t)|^2 dt + reg integral (phi'(t) - stretch)^2 dt

    x is the reference that is warped, linear between its frames; phi is linear between knots, by default y's times, and
    the integrals are the trapezoid rule's. The square is not rooted. Both durations are 1 unless times are given.
    Not symmetric. Sequences have at least two frames.

    reg: lambda, what a slope costs that differs from stretch (x's duration by y's; 1 for a subsequence); a number, or a
        tensor () or (B,), one for each pair.
    band: how far phi may be from the straight line stretch t, as a fraction of x's duration; a number, or a tensor (K,)
        with the widths at times spread evenly over y's, or (B, K) for each pair.
    slope: least and greatest slope, in units of stretch; each as band. The least is not negative: phi is monotone.
    subsequence: all of y is matched to a stretch of x, which the warp's ends are free to choose. (``DTW`` matches all
        of x to a stretch of y.)
    knots: how many, spread evenly over y's time; by default every time of y is one.
    grid: nodes of the solver's grid for each knot; by default x's frames, at least 50. More find better warps of
        signals with many similar parts, in proportional time.
    refinements: of the grid, around its solution.
    huber: residuals of a channel beyond it count linearly, 2 huber |u| - huber^2 instead of u^2.

    Tensors have derivatives, and become parameters if they are ``nn.Parameter``. The cost's derivatives are those of
    the objective at the solution, the warp's those of the optimality conditions. They are right also where a knot
    sits on a frame of x, as it does in every other warp; ``likewise.ops.gdtw`` says how this departs from the paper.
    Warps are at least float32. Memory: O(knots grid) bytes for each pair at work. CUDA tensors are solved on the GPU;
    but with Huber's loss, and for a pair that does not settle there, the CPU polishes what the GPU found on the grid.
    Reference: Deriso & Boyd (2019), arXiv:1905.12893; Xu et al. (2023), arXiv:2303.10778 (DecDTW).

    Example:
        >>> distance = GDTW(reg=1e-4)
        >>> time = torch.linspace(0, 1, 50)
        >>> x, y = torch.sin(6 * time)[None, :, None], torch.sin(6 * time**2)[None, :, None]
        >>> warp = distance.warp(x, y)  # x(warp) ~ y, so it is time**2
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
        slope: tuple[Profile, Profile] = (0.0, math.inf),
        subsequence: bool = False,
        knots: int | None = None,
        grid: int | None = None,
        refinements: int = 2,
        huber: float | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(slope, (tuple, list)) or len(slope) != 2:
            _check.refuse("GDTW", f"expected slope to be a pair (least, greatest), got {slope!r}")
        if not isinstance(reg, Tensor):
            reg = _check.positive("GDTW", "reg", reg)
        self._keep("reg", reg, most_dimensions=1)
        self._keep("band", band)
        self._keep("slope_min", slope[0])
        self._keep("slope_max", slope[1])
        self.subsequence = subsequence
        self.knots = None if knots is None else _check.whole("GDTW", "knots", knots, least=2)
        self.grid = None if grid is None else _check.whole("GDTW", "grid", grid, least=3)
        self.refinements = _check.whole("GDTW", "refinements", refinements, least=0)
        self.huber = None if huber is None else _check.positive("GDTW", "huber", huber)

    def config(self) -> dict[str, object]:
        """The constructor's arguments."""
        return {
            "reg": self.reg,
            "band": self.band,
            "slope": [self.slope_min, self.slope_max],
            "subsequence": self.subsequence,
            "knots": self.knots,
            "grid": self.grid,
            "refinements": self.refinements,
            "huber": self.huber,
        }

    def forward(self, x: Sequences, y: Sequences, times_x: Times = None, times_y: Times = None) -> Tensor:
        """Costs (B,) between x[b] and y[b]; times as in ``warp``."""
        return self._solve(*self._timed(x, y, times_x, times_y))[0]

    def warp(self, x: Sequences, y: Sequences, times_x: Times = None, times_y: Times = None) -> Warp:
        """The warps that bring x to y, differentiable: x(warp.values) ~ y(warp.times).

        times_x, times_y: (B, T), (T,) for all, or a list of (T_i,); increasing. By default evenly from 0 to 1.
        """
        return self._solve(*self._timed(x, y, times_x, times_y))[1]

    def paired(self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Costs (B,) of padded pairs."""
        return self._solve(x, y, x_lengths, y_lengths, *_even(x, y, x_lengths, y_lengths))[0]

    def align(self, x: Sequences, y: Sequences, times_x: Times = None, times_y: Times = None) -> WarpAlignment:
        """How every pair matches; times as in ``warp``."""
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

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        shown = {
            name: "learned" if isinstance(value, nn.Parameter) else "given" if isinstance(value, Tensor) else value
            for name, value in ((name, getattr(self, name)) for name in ("reg", "band", "slope_min", "slope_max"))
        }
        rest = {name: getattr(self, name) for name in ("subsequence", "knots", "grid", "huber")}
        if shown["slope_min"] == 0:
            shown["slope_min"] = None
        return describe(**shown, **rest)

    def _keep(self, name: str, value: Profile | None, most_dimensions: int = 2) -> None:
        """Hold a setting: a parameter, a tensor that moves with the module, or a number."""
        if value is None:
            setattr(self, name, None)
        elif isinstance(value, Tensor):
            tensor = _check.is_tensor("GDTW", name, value)
            if tensor.ndim > most_dimensions or 0 in tensor.shape:
                kinds = "() or (B,)" if most_dimensions == 1 else "(), (K,) or (B, K)"
                _check.refuse("GDTW", f"expected {name} of shape {kinds}, got {tuple(tensor.shape)}")
            if isinstance(tensor, nn.Parameter):
                self.register_parameter(name, tensor)
            else:
                self.register_buffer(name, tensor)
        else:
            number = float(_check.number("GDTW", name, value))
            if math.isnan(number) or number < 0:
                _check.refuse("GDTW", f"{name} must not be negative, got {number}")
            setattr(self, name, number)

    def _timed(
        self, x: Sequences, y: Sequences, times_x: Times, times_y: Times
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor, Tensor]:
        x, y, x_lengths, y_lengths = self._pair(x, y, paired=True)
        if times_x is None and times_y is None:
            return x, y, x_lengths, y_lengths, *_even(x, y, x_lengths, y_lengths)
        return x, y, x_lengths, y_lengths, _times("x", times_x, x, x_lengths), _times("y", times_y, y, y_lengths)

    def _solve(
        self,
        x: Tensor,
        y: Tensor,
        x_lengths: Tensor | None,
        y_lengths: Tensor | None,
        times_x: Tensor,
        times_y: Tensor,
    ) -> tuple[Tensor, Warp]:
        times_x, times_y = fill_padding(times_x, x_lengths), fill_padding(times_y, y_lengths)
        knots, at_knots, knot_lengths = times_y, y, y_lengths
        if self.knots is not None and len(y):
            _check_before_resampling(y, y_lengths, times_y)
            share = torch.linspace(0, 1, self.knots, dtype=times_y.dtype, device=y.device)
            knots = times_y[:, :1] + share * (times_y[:, -1:] - times_y[:, :1])
            knots = torch.cat([knots[:, :-1], times_y[:, -1:]], 1)  # the last one to the last digit
            at_knots, knot_lengths = interpolate(times_y, y, knots, y_lengths).to(y.dtype), None
        lower, upper, slope_min, slope_max = self._limits(times_x, knots)
        value, values = gdtw(
            x,
            at_knots,
            x_lengths,
            knot_lengths,
            times_x=times_x,
            times_y=knots,
            reg=self._for_each("reg", x),
            lower=lower,
            upper=upper,
            slope_min=slope_min,
            slope_max=slope_max,
            subsequence=self.subsequence,
            huber=math.inf if self.huber is None else self.huber,
            grid=self.grid,
            refinements=self.refinements or 0,
        )
        dtype = torch.promote_types(x.dtype, torch.float32)  # half precision is too coarse for times
        lengths = None if knot_lengths is None else knot_lengths.to(x.device)
        return value, Warp(knots.to(dtype), values.to(dtype), lengths)

    def _limits(
        self, times_x: Tensor, knots: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
        """Bounds (B, M) and slope limits (B, M - 1) of the warps, in the units of time."""
        if knots.shape[1] == 0:
            return None, None, None, None
        given = self.slope_min, self.slope_max
        sloped = any(isinstance(slope, Tensor) for slope in given) or given != (0, math.inf)
        if self.band is None and not sloped:
            return None, None, None, None
        duration_x, duration_y = times_x[:, -1:] - times_x[:, :1], knots[:, -1:] - knots[:, :1]  # (B, 1)
        stretch = torch.ones_like(duration_x) if self.subsequence else duration_x / duration_y
        gone = knots - knots[:, :1]
        lower = upper = None
        if self.band is not None:
            width = self._profile("band", gone / duration_y) * duration_x
            middle = times_x[:, :1] + stretch * gone
            lower, upper = middle - width, middle + width
        if not sloped:
            return lower, upper, None, None
        halfway = (gone[:, 1:] + gone[:, :-1]) / (2 * duration_y)
        slopes = [self._profile(name, halfway) * stretch for name in ("slope_min", "slope_max")]
        return lower, upper, slopes[0], slopes[1]

    def _profile(self, name: str, share: Tensor) -> Tensor:
        """A setting at shares (B, M) of y's duration, each between 0 and 1."""
        value = getattr(self, name)
        if not isinstance(value, Tensor):
            return torch.full_like(share, value)
        value = value.to(share)
        if value.ndim == 2 and len(value) not in (1, len(share)):
            self._refuse_number(name, len(value), len(share))
        value = value.reshape(1, -1) if value.ndim < 2 else value
        value = value.expand(len(share), -1)
        if value.shape[1] == 1:
            return value.expand_as(share)
        spread = torch.linspace(0, 1, value.shape[1], dtype=share.dtype, device=share.device)
        return interpolate(spread.expand(len(share), -1), value, share)

    def _for_each(self, name: str, x: Tensor) -> Tensor:
        """A setting (B,), one for each pair."""
        value = getattr(self, name)
        if not isinstance(value, Tensor):
            return torch.full((len(x),), value, dtype=torch.float64, device=x.device)
        if value.ndim == 1 and len(value) not in (1, len(x)):
            self._refuse_number(name, len(value), len(x))
        return value.to(x.device, torch.float64).expand(len(x))

    def _refuse_number(self, name: str, given: int, pairs: int) -> None:
        _check.refuse("GDTW", f"{name} is given for {given} pairs, but there are {pairs}; give one for all")


def _even(x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    """Even times of both; the same tensor where they are the same."""
    times = even_times(x, x_lengths)
    if x_lengths is None and y_lengths is None and x.shape[1] == y.shape[1]:
        times = times.contiguous()
        return times, times
    return times, even_times(y, y_lengths)


def _times(name: str, times: Times, x: Tensor, lengths: Tensor | None) -> Tensor:
    """Times (B, T) of x in float64, in any form that ``GDTW.warp`` takes."""
    if times is None:
        return even_times(x, lengths)
    name = f"times_{name}"
    if isinstance(times, (list, tuple)) and len(times) and not isinstance(times[0], (int, float)):
        times = _pad_times(name, times, x, lengths)
    found = torch.as_tensor(times).to(x.device, torch.float64)
    if found.ndim == 1:
        found = found.expand(len(x), -1)
    if found.shape != x.shape[:2]:
        _check.refuse("GDTW", f"expected {name} of shape {tuple(x.shape[:2])}, got {tuple(found.shape)}")
    return found


def _pad_times(name: str, times: Sequence[object], x: Tensor, lengths: Tensor | None) -> Tensor:
    """Times (B, T) of sequences that have their own."""
    rows = [torch.as_tensor(row, dtype=torch.float64) for row in times]
    for b, (row, steps) in enumerate(zip(rows, full_lengths(x, lengths).tolist(), strict=False)):
        if row.shape != (steps,):
            _check.refuse("GDTW", f"expected {name}[{b}] of shape ({steps},), got {tuple(row.shape)}")
    padded = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    return nn.functional.pad(padded, (0, max(0, x.shape[1] - padded.shape[1])))


def _check_before_resampling(y: Tensor, lengths: Tensor | None, times: Tensor) -> None:
    """Refuse what the kernel, which sees y at the knots only, could not."""
    if torch.compiler.is_compiling():
        return
    _check.finite("gdtw", "y", y, lengths)
    short = (full_lengths(y, lengths) < 2).nonzero()
    if len(short):
        _check.refuse("gdtw", f"y[{int(short[0])}] has 1 step; a warp needs at least two")
    real = torch.arange(1, times.shape[1], device=y.device) < full_lengths(y, lengths)[:, None]
    wrong = (~(times.diff() > 0) & real).nonzero()
    if len(wrong):
        b, k = wrong[0].tolist()
        found = times[b, k + 1].item()
        _check.refuse("gdtw", f"times_y[{b}] must be finite and increasing, but step {k + 1} is {found:g}")
