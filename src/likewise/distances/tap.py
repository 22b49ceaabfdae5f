"""TAP: a distance whose alignment is predicted by a small network."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from likewise import _check
from likewise.distances.alignment import PlanAlignment
from likewise.distances.distance import Distance, Sequences, describe, full_lengths
from likewise.distances.training_defaults import TrainingDefaults
from likewise.ops.dtw import dtw_cost_path
from likewise.ops.tap import Convolutions, attend, correction, frame_distances, tap, tap_matrix


class PairNetwork(Distance):
    """<T, D> between x (Lx frames) and y (Ly frames), where D(i, j) = ||x_i - y_j|| and a network predicts T.

    T = A / Lx, and A is the softmax over j of a score (Lx, Ly) of the two: the share of frame i that is matched with
    frame j. Subclasses define ``scores``.
    """

    def __init__(self, *, symmetric: bool = False) -> None:
        super().__init__()
        self.symmetric = symmetric

    def scores(self, x: Tensor, y: Tensor, D: Tensor, time: Tensor, inside: Tensor | None) -> Tensor:
        """Scores (B, Tx, Ty), from frames (B, Tx, C) and (B, Ty, C), their distances, and time differences in 0..1.

        D and time are zero in the padding; ``inside`` is False there, or None if there is no padding.
        """
        raise NotImplementedError

    def _fused_weights(self) -> Convolutions | None:
        """TAP's weights and biases if its kernels can compute the distances; None for other scores."""
        return None

    def paired(self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (B,) of padded pairs."""
        self._require_finite(x, y, x_lengths, y_lengths)
        how = self.scores, self._fused_weights()
        distances = tap(x, y, x_lengths, y_lengths, *how)
        if self.symmetric:
            distances = (distances + tap(y, x, y_lengths, x_lengths, *how)) / 2
        return _check.finite_values(self.name, distances.to(x.dtype))

    def all_pairs(self, x: Tensor, y: Tensor | None, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (N, M), computed in tiles of sequences of similar length.

        For the backward pass, intermediate results are kept, or computed again if they take more than a few gigabytes.
        """
        own = y is None
        if y is None:
            y, y_lengths = x, x_lengths
        self._require_finite(x, y, x_lengths, y_lengths)
        n, m = _lengths(x, x_lengths), _lengths(y, y_lengths)
        how = self.scores, self._fused_weights()
        distances = tap_matrix(x, y, n, m, *how)
        if self.symmetric:
            distances = (distances + (distances if own else tap_matrix(y, x, m, n, *how)).T) / 2
        return _check.finite_values(self.name, distances.to(x.dtype))

    def attention(self, x: Sequences, y: Sequences) -> tuple[Tensor, Tensor]:
        """A (B, Tx, Ty) and the resulting distances (B,) from x to y.

        Rows of A sum to 1: the share of frame i of x[b] that is matched with frame j of y[b]. Zero in the padding.
        """
        x, y, x_lengths, y_lengths = self._pair(x, y, paired=True)
        self._require_finite(x, y, x_lengths, y_lengths)
        A, D = attend(x, y, x_lengths, y_lengths, self.scores)
        return A, (A * D).sum((1, 2)) / full_lengths(x, x_lengths)

    def align(self, x: Sequences, y: Sequences) -> PlanAlignment:
        """The predicted alignment T of every pair, whose rows sum to 1 / Lx; with symmetric=True, that from x to y."""
        x, y, x_lengths, y_lengths = self._pair(x, y, paired=True)
        n = full_lengths(x, x_lengths)

        def plan() -> Tensor:
            self._require_finite(x, y, x_lengths, y_lengths)
            A, _ = attend(x, y, x_lengths, y_lengths, self.scores)
            return (A / n[:, None, None]).to(x.dtype)

        return RowAlignment(lambda: self.paired(x, y, x_lengths, y_lengths), plan, n, full_lengths(y, y_lengths))

    def _require_finite(self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> None:
        _check.finite(self.name, "x", x, x_lengths)
        if y is not x or y_lengths is not x_lengths:
            _check.finite(self.name, "y", y, y_lengths)


class TAP(PairNetwork):
    """Temporal alignment prediction: a small convolutional network predicts how x and y match.

    D(i, j) = ||x_i - y_j||, not squared; time(i, j) = |i / Lx - j / Ly|; A = softmax over j of -(D + g(D, time)), and
    d(x, y) = mean over i of sum_j A(i, j) D(i, j). g is a stack of convolutions with ReLUs between them.

    width: channels between the convolutions.
    kernels: side of each convolution's kernel, odd. The paper's TAP is (5, 5, 3), its large kernels (7, 7, 5), its
        deeper network (5, 5, 5, 3).
    symmetric: (d(x, y) + d(y, x)) / 2. Otherwise d(x, y) measures how well every frame of x is matched in y.

    No result depends on padding, which is set to zero before every convolution. On a GPU, g runs in half precision
    with float32 sums, and again in float32 if that overflows; so do the gradients of ``matrix``, unless TensorFloat-32
    is not allowed (``torch.backends.cudnn.allow_tf32 = False``, or ``fit(..., precision="32-true")``). On a CPU all is
    float32, also in mixed precision, or float64 for such frames. D, the softmax and the sum are float32 or better.
    Weights are used in the precision of the frames. The backward pass leaves out pairs whose distance the loss does not
    use. The losses' constants suit frames of unit length, such as those of ``FrameMLP``.

    Reference: Su & Wen, Temporal alignment prediction for supervised representation learning and few-shot sequence
    classification (ICLR 2022). As in its published code, no ReLU follows the last convolution.

    Example:
        >>> import torch
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
        sizes = zip(channels[:-1], channels[1:], self.kernels, strict=True)
        self.convolutions = nn.ModuleList([nn.Conv2d(a, b, k, padding=k // 2) for a, b, k in sizes])

    def scores(self, x: Tensor, y: Tensor, D: Tensor, time: Tensor, inside: Tensor | None) -> Tensor:
        """-(D + g(D, time)), (B, Tx, Ty)."""
        return -(D + self.correction(D, time, inside))

    def correction(self, D: Tensor, time: Tensor, inside: Tensor | None = None) -> Tensor:
        """g(D, time), (B, Tx, Ty), from distances and time differences that are zero where ``inside`` is False."""
        return correction(D, time, inside, *self._weights())

    def _fused_weights(self) -> Convolutions | None:
        """Weights and biases, unless a subclass has other scores."""
        own = type(self).scores is TAP.scores and type(self).correction is TAP.correction
        return self._weights() if own else None

    def _weights(self) -> Convolutions:
        return [c.weight for c in self.convolutions], [c.bias for c in self.convolutions]  # type: ignore[return-value]

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return describe(width=self.width, kernels=self.kernels, symmetric=self.symmetric)


class TransformerTAP(PairNetwork):
    """TAP with attention in place of its convolutions: the score is -(||q_i - k_j|| / sqrt(d) + weight time(i, j)).

    q = W_q x and k = W_k y are linear maps of the frames to d numbers, without bias.

    channels: the number of channels of the frames.
    projected: d, 30 in the paper.
    weight: the weight of the time differences. The paper has 50; its code divides it by sqrt(30) as well, which is 9.1
        here.
    symmetric: (d(x, y) + d(y, x)) / 2.

    Reference: as for ``TAP``, where it is called TAP-trans.

    Example:
        >>> import torch
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
        apart = frame_distances(q.to(D.dtype), k.to(D.dtype))
        return -(apart / self.projected**0.5 + self.weight * time)

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return describe(channels=self.channels, projected=self.projected, weight=self.weight, symmetric=self.symmetric)


def _lengths(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Lengths (B,) on the CPU, which has them in a Batch; if they are None, every step is real."""
    return torch.full((x.shape[0],), x.shape[1]) if lengths is None else lengths.cpu()


class RowAlignment(PlanAlignment):
    """A soft alignment in which every frame of x distributes the mass 1 / Lx among the frames of y."""

    def path(self, b: int) -> Tensor:
        """(K, 2) int64, the monotone path of item b whose cells are closest to their row's maxima."""
        b = self._item(b)
        n, m = int(self.x_lengths[b]), int(self.y_lengths[b])
        rows = self.plan[b, :n, :m].detach().float() * n
        path, steps = dtw_cost_path((rows.amax(1, keepdim=True) - rows)[None])
        return path[0, : int(steps[0])]
