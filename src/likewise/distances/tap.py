"""TAP: a distance whose alignment is predicted by a small network."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from likewise import _check
from likewise.distances.alignment import PlanAlignment
from likewise.distances.distance import Distance, Sequences, describe, full_lengths
from likewise.distances.training_defaults import TrainingDefaults
from likewise.ops.dispatch import HAS_TRITON
from likewise.ops.dtw import dtw_cost_path
from likewise.ops.ground import at_least_float32, zero_padding
from likewise.ops.pair_convolution import Cells, convolve
from likewise.ops.tap import fused_distances, fused_pairs

# Sequences on a side of a tile of pairs, at most: neighbours in length, so that little is padding.
TILE = {"cpu": 32, "cuda": 64}
CELLS_AT_ONCE = {"cpu": 1 << 18, "cuda": 1 << 25}  # cells of a tile; a cell takes some hundred bytes
# Beyond so many cells, what the backward pass needs is computed again rather than kept: 500 or 200 bytes a cell.
KEPT_CELLS = {"cpu": 1 << 22, "cuda": 1 << 25}
WIDEST = 128  # channels that the kernels for packed pairs take


class PairNetwork(Distance):
    """A distance <T, D> between x (Lx frames) and y (Ly frames), D(i, j) = ||x_i - y_j||, whose T a network predicts.

    T = A / Lx, and A is the softmax over j of a score (Lx, Ly) of the two: how much of frame i is matched with frame j.
    Subclasses write ``scores``.
    """

    def __init__(self, *, symmetric: bool = False) -> None:
        super().__init__()
        self.symmetric = symmetric

    def scores(self, x: Tensor, y: Tensor, D: Tensor, time: Tensor, inside: Tensor | None) -> Tensor:
        """Scores (B, Tx, Ty), from frames (B, Tx, C) and (B, Ty, C), their distances, and times apart in 0..1.

        D and time are zero in the padding; ``inside`` is False there, or None where nothing is padding.
        """
        raise NotImplementedError

    def paired(self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (B,) of padded pairs."""
        distances = self._directed(x, y, x_lengths, y_lengths)
        if self.symmetric:
            distances = (distances + self._directed(y, x, y_lengths, x_lengths)) / 2
        return distances.to(x.dtype)

    def all_pairs(self, x: Tensor, y: Tensor | None, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (N, M), in tiles of sequences of like length.

        Training keeps what the backward pass needs, or computes it again where that is more than a few gigabytes.
        """
        own = y is None
        if y is None:
            y, y_lengths = x, x_lengths
        _check.finite(self.name, "x", x, x_lengths)
        _check.finite(self.name, "y", y, y_lengths)
        n, m = full_lengths(x, x_lengths).cpu(), full_lengths(y, y_lengths).cpu()
        distances = self._all_directed(x, y, n, m)
        if self.symmetric:
            distances = (distances + (distances if own else self._all_directed(y, x, m, n)).T) / 2
        return distances.to(x.dtype)

    def attention(self, x: Sequences, y: Sequences) -> tuple[Tensor, Tensor]:
        """A (B, Tx, Ty) and the distances (B,) that it gives from x to y.

        Rows of A sum to 1: how much of frame i of x[b] is matched with frame j of y[b]. Zero in the padding.
        """
        x, y, x_lengths, y_lengths = self._pair(x, y, paired=True)
        A, D = self._attended(x, y, x_lengths, y_lengths)
        return A, (A * D).sum((1, 2)) / full_lengths(x, x_lengths)

    def align(self, x: Sequences, y: Sequences) -> PlanAlignment:
        """The predicted alignment T of every pair, whose rows sum to 1 / Lx; of a symmetric one, from x to y."""
        x, y, x_lengths, y_lengths = self._pair(x, y, paired=True)
        n = full_lengths(x, x_lengths)
        return RowAlignment(
            lambda: self.paired(x, y, x_lengths, y_lengths),
            lambda: (self._attended(x, y, x_lengths, y_lengths)[0] / n[:, None, None]).to(x.dtype),
            n,
            full_lengths(y, y_lengths),
        )

    def _all_directed(self, x: Tensor, y: Tensor, n: Tensor, m: Tensor) -> Tensor:
        """Distances (N, M) from x, of lengths n, to y, of lengths m."""
        if not len(x) or not len(y):
            return x.new_empty(len(x), len(y))
        kind = "cuda" if x.is_cuda else "cpu"
        again = torch.is_grad_enabled() and int(n.sum()) * int(m.sum()) > KEPT_CELLS[kind]
        limits = TILE[kind], CELLS_AT_ONCE[kind]
        rows, columns = list(_tiles(n, int(m.max()), *limits)), list(_tiles(m, int(n.max()), *limits))
        strips = [torch.cat([self._tile(x, y, n, m, i, j, again=again) for j in columns], 1) for i in rows]
        back_i, back_j = (torch.cat(parts).argsort().to(x.device) for parts in (rows, columns))
        return torch.cat(strips)[back_i][:, back_j]

    def _tile(self, x: Tensor, y: Tensor, n: Tensor, m: Tensor, i: Tensor, j: Tensor, *, again: bool) -> Tensor:
        """Distances (len(i), len(j)), from x[i] to y[j]."""
        n, m = n[i], m[j]
        x, y = x[i.to(x.device), : n.max()], y[j.to(y.device), : m.max()]

        def run(x: Tensor, y: Tensor) -> Tensor:
            count = len(i) * len(j)
            each_x = x[:, None].expand(-1, len(j), -1, -1).reshape(count, *x.shape[1:])
            each_y = y[None].expand(len(i), -1, -1, -1).reshape(count, *y.shape[1:])
            each_n, each_m = n.repeat_interleave(len(j)), m.repeat(len(i))
            return self._directed(each_x, each_y, each_n, each_m, checked=True).reshape(len(i), len(j))

        return checkpoint(run, x, y, use_reentrant=False) if again else run(x, y)  # type: ignore[return-value]

    def _directed(
        self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None, *, checked: bool = False
    ) -> Tensor:
        """<T, D> of every pair, at least float32, from x to y."""
        x = x if x_lengths is None or not len(x) else x[:, : x_lengths.max()]  # more padding would only cost time
        y = y if y_lengths is None or not len(y) else y[:, : y_lengths.max()]
        A, D = self._attended(x, y, x_lengths, y_lengths, checked=checked)
        return (A * D).sum((1, 2)) / full_lengths(x, x_lengths)

    def _attended(
        self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None, *, checked: bool = False
    ) -> tuple[Tensor, Tensor]:
        """A and D, (B, Tx, Ty) each, zero in the padding."""
        if not checked:
            _check.finite(self.name, "x", x, x_lengths)
            _check.finite(self.name, "y", y, y_lengths)
        x, y = (at_least_float32(zero_padding(*given)) for given in ((x, x_lengths), (y, y_lengths)))
        n, m = full_lengths(x, x_lengths), full_lengths(y, y_lengths)
        steps_x, steps_y = (torch.arange(t.shape[1], device=t.device, dtype=t.dtype) for t in (x, y))
        # i / Lx - j / Ly, counted from 1.
        time = ((steps_x + 1) / n[:, None])[:, :, None] - ((steps_y + 1) / m[:, None])[:, None]  # (B, Tx, Ty)
        D, time, inside, columns = _Distances.apply(x, y), time.abs(), None, None
        if x_lengths is not None or y_lengths is not None:
            columns = (steps_y < m[:, None])[:, None]  # (B, 1, Ty)
            inside = (steps_x < n[:, None])[:, :, None] & columns
            D, time = D * inside, time * inside
        scores = self.scores(x, y, D, time, inside).to(D.dtype)
        if columns is None or inside is None:
            return scores.softmax(2), D
        # Rows of the padding have columns that are real: nothing is divided by zero.
        return scores.masked_fill(~columns, -torch.inf).softmax(2) * inside, D


class TAP(PairNetwork):
    """Temporal alignment prediction: a small convolutional network predicts how x and y match.

    D(i, j) = ||x_i - y_j||, not squared; time(i, j) = |i / Lx - j / Ly|; A = softmax over j of -(D + g(D, time)), and
    d(x, y) = mean over i of sum_j A(i, j) D(i, j). g is a stack of convolutions with ReLUs between them.

    width: channels between the convolutions.
    kernels: side of each convolution's kernel, odd. The paper's TAP is (5, 5, 3), its large kernels (7, 7, 5), its
        deeper network (5, 5, 5, 3).
    symmetric: (d(x, y) + d(y, x)) / 2. Without it, d(x, y) says how well every frame of x is found in y.

    No result depends on padding: what lies outside a pair is zero before every convolution, as at its border. On a GPU,
    without gradients, g runs in half precision, and again in float32 should that overflow; D, the softmax and the sum
    are float32 or better. Weights are used in the precision of the frames. Frames of unit length, as ``FrameMLP``
    gives them, suit the losses' constants.

    Reference: Su & Wen, Temporal alignment prediction for supervised representation learning and few-shot sequence
    classification (ICLR 2022). As in its published code, no ReLU follows the last convolution.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> tap = TAP()
        >>> x, y = torch.rand(2, 4, 10, 3)
        >>> tap(x, y).shape, tap.matrix(x, y[:3]).shape
        (torch.Size([4]), torch.Size([4, 3]))
        >>> tap.align(x, y).plan[0].sum(1)  # every frame of x has its tenth
        tensor([0.1000, 0.1000, 0.1000, 0.1000, 0.1000, 0.1000, 0.1000, 0.1000, 0.1000,
                0.1000], grad_fn=<SumBackward1>)
    """

    training_defaults = TrainingDefaults(lr=3e-3, steps=400, average=0.99)

    def __init__(self, width: int = 30, kernels: tuple[int, ...] = (5, 5, 3), *, symmetric: bool = False) -> None:
        super().__init__(symmetric=symmetric)
        self.width = _check.whole(self.name, "width", width)
        self.kernels = tuple(kernels)
        if not self.kernels or any(k < 1 or k % 2 == 0 for k in self.kernels):
            _check.refuse(self.name, f"kernels must be odd, at least one, got {kernels}")
        channels = [2, *[self.width] * (len(self.kernels) - 1), 1]
        self.convolutions = nn.ModuleList(
            nn.Conv2d(a, b, k, padding=k // 2)
            for a, b, k in zip(channels[:-1], channels[1:], self.kernels, strict=True)
        )

    def scores(self, x: Tensor, y: Tensor, D: Tensor, time: Tensor, inside: Tensor | None) -> Tensor:
        """-(D + g(D, time)), (B, Tx, Ty)."""
        return -(D + self.correction(D, time, inside))

    def correction(self, D: Tensor, time: Tensor, inside: Tensor | None = None) -> Tensor:
        """g(D, time), (B, Tx, Ty), of distances and times apart that are zero where ``inside`` is False."""
        if D.is_cuda and D.dtype == torch.float32 and not torch.is_grad_enabled():
            with torch.autocast("cuda", torch.float16):
                found = self._convolved(D, time, inside).float()
            if found.isfinite().all():
                return found
        return self._convolved(D, time, inside)

    def _all_directed(self, x: Tensor, y: Tensor, n: Tensor, m: Tensor) -> Tensor:
        """Distances (N, M) from x, of lengths n, to y, of lengths m."""
        if self._may_be_fused():
            found = fused_distances(x, y, n, m, *self._weights(torch.float32))
            if found is not None and found.isfinite().all():
                return found
        return super()._all_directed(x, y, n, m)

    def _directed(
        self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None, *, checked: bool = False
    ) -> Tensor:
        """<T, D> of every pair, at least float32, from x to y."""
        if x.is_cuda and not checked and self._may_be_fused():
            _check.finite(self.name, "x", x, x_lengths)
            _check.finite(self.name, "y", y, y_lengths)
            checked = True
            n, m = full_lengths(x, x_lengths), full_lengths(y, y_lengths)
            found = fused_pairs(x, y, n, m, *self._weights(torch.float32))
            if found is not None and found.isfinite().all():
                return found
        return super()._directed(x, y, x_lengths, y_lengths, checked=checked)

    def _may_be_fused(self) -> bool:
        """Whether the kernels compute what this class does: a subclass may have other scores."""
        own = type(self).scores is TAP.scores and type(self).correction is TAP.correction
        return own and not torch.is_grad_enabled()

    def _convolved(self, D: Tensor, time: Tensor, inside: Tensor | None) -> Tensor:
        if D.is_cuda and D.dtype != torch.float64 and self.width <= WIDEST and HAS_TRITON:
            return self._packed(D, time, inside)
        mask = None if inside is None else inside[:, None].to(D.dtype)
        h = torch.stack([D, time], 1).contiguous(memory_format=torch.channels_last)  # (B, 2, Tx, Ty)
        for k, (weight, bias) in enumerate(zip(*self._weights(D.dtype), strict=True)):
            if k > 0:
                h = h.relu()
                h = h if mask is None else h * mask
            h = functional.conv2d(h, weight, bias, padding=weight.shape[2] // 2)
        return h[:, 0]

    def _packed(self, D: Tensor, time: Tensor, inside: Tensor | None) -> Tensor:
        """The same by kernels that see the real cells alone."""
        dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else D.dtype
        weights, biases = self._weights(dtype)
        h = torch.stack([D, time], -1).to(dtype).flatten(0, 2)  # (all cells, 2)
        if inside is None:
            n, m = (torch.full(D.shape[:1], steps, device=D.device) for steps in D.shape[1:])
            return convolve(h, weights, biases, Cells.of(n, m)).reshape(D.shape).to(D.dtype)
        real = inside.flatten().nonzero()[:, 0]
        cells = Cells.of(inside.any(2).sum(1), inside.any(1).sum(1))
        correction = convolve(h.index_select(0, real), weights, biases, cells)[:, 0]
        return D.new_zeros(D.numel()).index_copy(0, real, correction.to(D.dtype)).reshape(D.shape)

    def _weights(self, dtype: torch.dtype) -> tuple[list[Tensor], list[Tensor]]:
        """Weights and biases of the convolutions."""
        layers = [c for c in self.convolutions if isinstance(c, nn.Conv2d)]
        return [c.weight.to(dtype) for c in layers], [c.bias.to(dtype) for c in layers if c.bias is not None]

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return describe(width=self.width, kernels=self.kernels, symmetric=self.symmetric)


class TransformerTAP(PairNetwork):
    """TAP with an attention in place of its convolutions: the score is -(||q_i - k_j|| / sqrt(d) + weight time(i, j)).

    q = W_q x and k = W_k y are linear maps of the frames to d numbers, without bias.

    channels: of the frames.
    projected: d, 30 in the paper.
    weight: of the times apart. The paper has 50; its code divides it by sqrt(30) as well, which is 9.1 here.
    symmetric: (d(x, y) + d(y, x)) / 2.

    Reference: as for ``TAP``, where it is called TAP-trans.

    Example:
        >>> tap = TransformerTAP(3)
        >>> tap(torch.rand(4, 10, 3), torch.rand(4, 8, 3)).shape
        torch.Size([4])
    """

    training_defaults = TrainingDefaults(lr=1e-3, steps=1000, average=0.99)

    def __init__(self, channels: int, projected: int = 30, *, weight: float = 50.0, symmetric: bool = False) -> None:
        super().__init__(symmetric=symmetric)
        self.channels = _check.whole(self.name, "channels", channels)
        self.projected = _check.whole(self.name, "projected", projected)
        self.weight = _check.positive(self.name, "weight", weight)
        self.query = nn.Linear(self.channels, self.projected, bias=False)
        self.key = nn.Linear(self.channels, self.projected, bias=False)
        nn.init.xavier_uniform_(self.query.weight)
        nn.init.xavier_uniform_(self.key.weight)

    def scores(self, x: Tensor, y: Tensor, D: Tensor, time: Tensor, inside: Tensor | None) -> Tensor:
        """-(||q_i - k_j|| / sqrt(d) + weight time(i, j)), (B, Tx, Ty)."""
        if x.shape[2] != self.channels:
            _check.refuse(self.name, f"expected frames of {self.channels} channels, got {x.shape[2]}")
        q, k = (functional.linear(t, w.weight.to(t.dtype)) for t, w in ((x, self.query), (y, self.key)))
        apart: Tensor = _Distances.apply(q.to(D.dtype), k.to(D.dtype))  # type: ignore[assignment]
        return -(apart / self.projected**0.5 + self.weight * time)

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return describe(channels=self.channels, projected=self.projected, weight=self.weight, symmetric=self.symmetric)


class RowAlignment(PlanAlignment):
    """A soft alignment in which every frame of x shares out the same, 1 / Lx, among the frames of y."""

    def path(self, b: int) -> Tensor:
        """(K, 2) int64, the monotone path of item b whose cells fall least short of the largest of their row."""
        b = self._item(b)
        n, m = int(self.x_lengths[b]), int(self.y_lengths[b])
        rows = self.plan[b, :n, :m].detach().float() * n
        path, steps = dtw_cost_path((rows.amax(1, keepdim=True) - rows)[None])
        return path[0, : int(steps[0])]


def _tiles(lengths: Tensor, others: int, side: int, most: int) -> Iterator[Tensor]:
    """Indices in the order of lengths, in parts of at most ``side``, fewer if they are long."""
    order = lengths.argsort()
    first = 0
    while first < len(order):
        size = side
        while size > 1 and size * size * int(lengths[order[first : first + size][-1]]) * others > most:
            size //= 2
        yield order[first : first + size]
        first += size


class _Distances(torch.autograd.Function):
    """||x_i - y_j||, (B, Tx, Ty), by one product of matrices; where it is zero, so is its derivative.

    In float64, since the squares nearly cancel for frames that are close. float64 frames are subtracted instead.
    """

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
        w = torch.where(distances > 0, grad / torch.where(distances > 0, distances, 1), 0).double()
        x64, y64 = x.double(), y.double()
        to_x = w.sum(2)[..., None] * x64 - w @ y64
        to_y = w.sum(1)[..., None] * y64 - w.mT @ x64
        return to_x.to(x.dtype), to_y.to(y.dtype)
