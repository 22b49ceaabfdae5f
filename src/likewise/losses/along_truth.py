"""The cost of features along the true path, without any predicted alignment."""

import torch
from torch import Tensor

from likewise import _check
from likewise.losses.path_loss import PathLoss


class AlongPath(PathLoss):
    """Cost along the true path of frames: the mean, over the path's cells (i, j), of cost[i, j].

    cost: (B, Tx, Ty), between the frames of x and of y, such as their squared distances.
    path: (B, K, 2) int64, the matched frames. lengths: (B,), the number of real cells.

    Constant features cost nothing, so use it with a bounded or normalised encoder, or together with another loss. It is
    the baseline "Along GT" of the paper.
    Reference: Xu et al. (2023), arXiv:2303.10778, section 7.1.

    Example:
        >>> cost = torch.tensor([[[0.0, 5.0], [2.0, 4.0]]])
        >>> AlongPath()(cost, torch.tensor([[[0, 0], [1, 1]]]))
        tensor(2.)
    """

    def forward(self, cost: Tensor, path: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The loss, a scalar."""
        cost = self._numbers("cost", cost, ("B", "Tx", "Ty"))
        count, rows, columns = cost.shape
        if not isinstance(path, Tensor) or path.dtype != torch.int64:
            kind = path.dtype if isinstance(path, Tensor) else type(path).__name__
            raise TypeError(f"{self.name}: expected path to be an int64 tensor, got {kind}")
        if path.ndim != 3 or path.shape[0] != count or path.shape[1] == 0 or path.shape[2] != 2:
            _check.refuse(self.name, f"expected path of shape ({count}, K, 2), K at least 1, got {tuple(path.shape)}")
        real = self._real("lengths", lengths, cost, path.shape[1])
        cells = torch.where(real[..., None], path.to(cost.device), 0)
        wrong = (cells < 0) | (cells >= torch.tensor([rows, columns], device=cost.device))
        if wrong.any():
            b, k, _ = wrong.nonzero()[0].tolist()
            _check.refuse(self.name, f"path[{b}, {k}] is {tuple(cells[b, k].tolist())}, outside {rows} x {columns}")
        found = cost.flatten(1).gather(1, cells[..., 0] * columns + cells[..., 1])  # (B, K)
        return self.reduced(torch.where(real, found, 0).sum(1) / real.sum(1).clamp(min=1))


class AlongWarp(PathLoss):
    """Cost along the true warp: the integral of |x(t) - y(phi(t))|^2 dt by the trapezoid rule.

    warped: (B, K, C), y at the true warp of the times of x: ``warp.apply(y, times_y)``. x: (B, K, C).
    times: (B, K) or (K,), the increasing times of x; by default spread evenly from 0 to 1. lengths: (B,), the number of
        real times, two or more.

    It is GDTW's objective at the true warp, without its regularisation, which does not depend on the features. Like
    ``AlongPath``, it is smallest for constant features.
    Reference: Xu et al. (2023), arXiv:2303.10778, section 7.2.

    Example:
        >>> AlongWarp()(torch.tensor([[[1.0], [1.0], [3.0]]]), torch.tensor([[[1.0], [0.0], [1.0]]]))
        tensor(1.5000)
    """

    def forward(self, warped: Tensor, x: Tensor, times: Tensor | None = None, lengths: Tensor | None = None) -> Tensor:
        """The loss, a scalar."""
        warped = self._numbers("warped", warped, "BKC")
        steps = warped.shape[1]
        if steps < 2:
            _check.refuse(self.name, f"expected warped with two steps or more, got {tuple(warped.shape)}")
        real = self._real("lengths", lengths, warped, steps, least=2)
        residuals = torch.where(real[..., None], warped - self._alike("x", x, "warped", warped), 0)
        losses = residuals.square().sum(2)  # (B, K)
        if times is None:
            spans = 1 / (real.sum(1, keepdim=True) - 1).to(losses)
        else:
            times = _check.is_tensor(self.name, "times", times)
            if times.shape not in (warped.shape[:2], warped.shape[1:2]):
                shapes = f"{tuple(warped.shape[:2])} or ({steps},)"
                _check.refuse(self.name, f"expected times of shape {shapes}, got {tuple(times.shape)}")
            spans = times.to(losses).expand_as(losses).diff(dim=1)
            wrong = (~(spans > 0) & real[:, 1:]).any(1)
            if wrong.any():
                _check.refuse(self.name, f"times[{int(wrong.nonzero()[0])}] do not increase")
        spans = torch.where(real[:, 1:], spans, 0)  # the padding's times may be NaN
        return self.reduced(((losses[:, 1:] + losses[:, :-1]) / 2 * spans).sum(1))
