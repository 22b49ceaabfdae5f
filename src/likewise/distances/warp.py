"""Warp: a differentiable function of time, and its alignment."""

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from likewise import _check
from likewise.distances.alignment import Alignment


class Warp:
    """Functions of time, linear between knots: phi_b(times[b, i]) = values[b, i], with x(t) ~ y(phi(t)).

    times, values: (B, M), both non-decreasing. lengths: (B,), the number of real knots; the rest is padding, NaN in the
    result of ``GDTW.warp``. Derivatives flow through the values and through the times.

    Example:
        >>> warp = Warp(torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([[0.0, 4.0, 6.0]]))
        >>> warp(torch.tensor([0.5, 1.5]))
        tensor([[2., 5.]])
        >>> warp.inverse()(torch.tensor([5.0]))
        tensor([[1.5000]])
    """

    def __init__(self, times: Tensor, values: Tensor, lengths: Tensor | None = None) -> None:
        _check.is_tensor("Warp", "times", times)
        _check.is_tensor("Warp", "values", values)
        if times.ndim != 2 or times.shape != values.shape:
            _check.refuse(
                "Warp",
                f"expected times and values of one shape (B, M), got {tuple(times.shape)}, {tuple(values.shape)}",
            )
        _check.lengths_shape("Warp", "lengths", lengths, len(times))
        self.times = times
        self.values = values
        self.lengths = torch.full((len(times),), times.shape[1]) if lengths is None else lengths

    def __call__(self, times: Tensor) -> Tensor:
        """Values (B, K) at times (K,) or (B, K); constant before the first knot and after the last."""
        _check.is_tensor("Warp", "times", times)
        if times.ndim != 2:
            times = times.reshape(1, -1).expand(len(self), -1)
        if len(times) != len(self):
            _check.refuse("Warp", f"got times for {len(times)} warps, but there are {len(self)}")
        return interpolate(self.times, self.values, times, self.lengths)

    def inverse(self) -> "Warp":
        """The inverse function, from y's time to x's. Where the warp is flat, it gives the later time."""
        return Warp(self.values, self.times, self.lengths)

    def apply(self, y: Tensor, times: Tensor | None = None, lengths: Tensor | None = None) -> Tensor:
        """y (B, T, C), warped: y(phi) at the knots, (B, M, C). times (B, T) are y's, by default evenly from 0 to 1.

        Example:
            >>> warp = Warp(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.25, 1.0]]))
            >>> warp.apply(torch.tensor([[[0.0], [4.0]]])).flatten()
            tensor([1., 4.])
        """
        _check.sequences("Warp", "y", y)
        if times is None:
            times = even_times(y, lengths).to(self.values.dtype)
        return interpolate(times, y, fill_padding(self.values, self.lengths), lengths)

    def __len__(self) -> int:
        return len(self.times)

    def __repr__(self) -> str:
        return f"Warp({len(self)} function{'s' * (len(self) != 1)}, {self.times.shape[1]} knots)"


def even_times(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Times (B, T) in float64 that run from 0 to 1 over the real steps of each sequence."""
    steps = torch.arange(x.shape[1], dtype=torch.float64, device=x.device)
    if lengths is None:
        return (steps / max(x.shape[1] - 1, 1)).expand(len(x), -1)
    last = lengths.to(x.device)[:, None] - 1  # (B, 1)
    return torch.minimum(steps, last) / last.clamp(min=1)


def fill_padding(values: Tensor, lengths: Tensor | None) -> Tensor:
    """values (B, T) or (B, T, C) in which the padding repeats the last real step."""
    if lengths is None:
        return values
    steps = torch.arange(values.shape[1], device=values.device)
    last = torch.minimum(steps, lengths.to(values.device)[:, None] - 1)  # (B, T)
    if values.ndim == 3:
        return values.gather(1, last[..., None].expand(-1, -1, values.shape[2]))
    return values.gather(1, last)


def interpolate(times: Tensor, values: Tensor, at: Tensor, lengths: Tensor | None = None) -> Tensor:
    """Values (B, K) or (B, K, C) at times ``at`` (B, K), linear between times (B, T); values (B, T) or (B, T, C).

    Values are constant outside of the times. Among equal times, the last one counts.

    Example:
        >>> interpolate(torch.tensor([[0.0, 1.0]]), torch.tensor([[2.0, 4.0]]), torch.tensor([[0.5, 3.0]]))
        tensor([[3., 4.]])
    """
    times, values = fill_padding(times, lengths), fill_padding(values, lengths)
    at = at.to(torch.promote_types(times.dtype, at.dtype))
    right, share = segments(times, at, lengths)
    if values.ndim == 3:
        right, share = right[..., None].expand(-1, -1, values.shape[2]), share[..., None]
    return torch.lerp(values.gather(1, right - 1).to(share.dtype), values.gather(1, right).to(share.dtype), share)


def segments(times: Tensor, at: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    """For each ``at`` (B, K), the next step in times (B, T), and its place on the way to that step, from 0 to 1."""
    count = times.shape[1] if lengths is None else lengths.to(times.device)[:, None]
    right = torch.searchsorted(times.detach().to(at.dtype).contiguous(), at.detach().contiguous(), right=True)
    last = count - 1
    right = right.clamp(max=last) if isinstance(last, int) else torch.minimum(right, last)
    right = right.clamp(min=1)
    begin, end = times.gather(1, right - 1), times.gather(1, right)
    width = end - begin
    flat = width <= 0
    share = torch.where(flat, 1.0, (at - begin) / torch.where(flat, 1.0, width))
    return right, share.clamp(0, 1)


class WarpAlignment(Alignment):
    """The alignment of a warp: frame i of x is matched with y at phi(t_i), between two frames of y.

    curve: the ``Warp``. plan: each row holds the weights of those two frames, which sum to 1. path: the frames of y
    nearest to phi, joined into a monotone path. warp: phi at the frames of x, counted in frames of y.

    Example:
        >>> from likewise.distances.gdtw import GDTW
        >>> alignment = GDTW(reg=1e-6).align([[0.0, 1.75, 2.0]], [[0.0, 1.0, 2.0]])
        >>> alignment.plan
        tensor([[[1.0000, 0.0000, 0.0000],
                 [0.0000, 0.2500, 0.7500],
                 [0.0000, 0.0000, 1.0000]]])
        >>> alignment.warp
        tensor([[0.0000, 1.7500, 2.0000]])
        >>> alignment.path(0).tolist()
        [[0, 0], [0, 1], [1, 2], [2, 2]]
    """

    def __init__(
        self,
        solve: Callable[[], tuple[Tensor, Warp]],
        times_x: Tensor,
        times_y: Tensor,
        x_lengths: Tensor,
        y_lengths: Tensor,
        dtype: torch.dtype,
    ) -> None:
        super().__init__(lambda: self._solution[0], x_lengths, y_lengths)
        self._solve = solve
        self._times_x = fill_padding(times_x, x_lengths)
        self._times_y = fill_padding(times_y, y_lengths)
        self._dtype = dtype

    @cached_property
    def _solution(self) -> tuple[Tensor, Warp]:
        return self._solve()

    @property
    def curve(self) -> Warp:
        """The warp, a function of x's time."""
        return self._solution[1]

    @cached_property
    def _matched(self) -> tuple[Tensor, Tensor]:
        """For each frame of x, (B, Tx): the frame of y after phi, and how far phi is on the way to it, 0 to 1."""
        return segments(self._times_y, self.curve(self._times_x), self.y_lengths)

    @cached_property
    def plan(self) -> Tensor:
        """(B, Tx, Ty), the weights of y's frames in the match of each frame of x."""
        right, share = self._matched
        real = self._real()
        plan = share.new_zeros(len(self), right.shape[1], self._times_y.shape[1])
        plan = plan.scatter(2, right[..., None], (share * real)[..., None])
        plan = plan.scatter(2, right[..., None] - 1, ((1 - share) * real)[..., None])
        return plan.to(self._dtype)

    @cached_property
    def warp(self) -> Tensor:
        """(B, Tx), where in y each frame of x is matched, in frames."""
        right, share = self._matched
        return torch.where(self._real(), right - 1 + share, torch.nan).to(self._dtype)

    def path(self, b: int) -> Tensor:
        """(K, 2) int64, from x's first frame to its last; each step advances by one in x, in y or in both."""
        b = self._item(b)
        right, share = (each[b, : int(self.x_lengths[b])].detach() for each in self._matched)
        frames = (right - 1 + (share > 0.5)).cummax(0).values.tolist()
        cells = [(0, frames[0])]
        for i, frame in enumerate(frames[1:], 1):
            cells += [(i - 1, j) for j in range(cells[-1][1] + 1, frame)]
            cells.append((i, frame))
        return torch.tensor(cells)

    def _real(self) -> Tensor:
        device = self._times_x.device
        return torch.arange(self._times_x.shape[1], device=device) < self.x_lengths.to(device)[:, None]
