"""AM-softmax: a classifier of directions with a margin, by pytorch-metric-learning's CosFaceLoss."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from likewise import _check
from likewise.losses.pml import cos_face
from likewise.losses.vector_loss import VectorLoss, full_precision


class AMSoftmax(VectorLoss):
    """Cross entropy of softmax(scale (cos - margin [own class])), cos being the cosine to each class centre.

    classes, channels: how many centres, labels 0 to classes - 1, and how many features each.
    margin: how much closer than the others, in cosine, the own centre must be; 0 is the normalised softmax.

    ``cosines`` gives the scores before margin and scale: the last layer of JointRepresentationSimilarity.
    Reference: Wang et al. (2018), arXiv:1801.05599 and arXiv:1801.09414; constants and start of Chu et al. (2020),
    Distance Metric Learning with Joint Representation Diversification.

    Example:
        >>> import torch
        >>> loss = AMSoftmax(3, 8)
        >>> loss(torch.randn(5, 8), [0, 2, 1, 1, 0]).ndim, loss.cosines(torch.randn(5, 8)).shape
        (0, torch.Size([5, 3]))
    """

    def __init__(self, classes: int, channels: int, *, margin: float = 0.1, scale: float = 20.0) -> None:
        super().__init__()
        self.classes = _check.whole(self.name, "classes", classes, least=2)
        self.channels = _check.whole(self.name, "channels", channels)
        self.margin = _check.number(self.name, "margin", margin)
        self.scale = _check.positive(self.name, "scale", scale)
        self.loss = cos_face(self.classes, self.channels, self.margin, self.scale)
        self._shared: list[tuple[Tensor, Tensor]] | None = None
        # Short centres turn faster at the same learning rate: this start is part of the recipe.
        nn.init.kaiming_uniform_(self.centers, a=math.sqrt(5))

    @property
    def centers(self) -> nn.Parameter:
        """The class centres (channels, classes), of any length."""
        return self.loss.W  # type: ignore[return-value]

    def cosines(self, x: Tensor) -> Tensor:
        """Cosines (N, classes) of vectors x (N, channels) to the centres, with gradients to both."""
        for known, found in self._shared or ():
            if known is x:
                return found
        vectors = self.vectors(x, finite=False)
        self._check_width(vectors)
        with full_precision(vectors):
            found = self.loss.distance(vectors, self.centers.T.to(vectors))  # type: ignore[operator]
        if self._shared is not None:
            self._shared.append((x, found))
        return found

    @contextmanager
    def sharing(self) -> Iterator[None]:
        """A block in which cosines of the same vectors are computed once, for the loss and a regulariser of them."""
        self._shared = []
        try:
            yield
        finally:
            self._shared = None

    def value(self, x: Tensor, labels: Tensor) -> Tensor:
        """The mean cross entropy."""
        self.check_classes(labels, self.classes)
        self._check_width(x)
        cosines = self.cosines(x)
        # They may be shared: CosFaceLoss is not to compute its own.
        self.loss.get_cosine = lambda _: cosines  # type: ignore[assignment]
        try:
            return self.loss(x, labels)
        finally:
            del self.loss.get_cosine

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return f"{self.classes}, {self.channels}, margin={self.margin}, scale={self.scale}"

    def _check_width(self, x: Tensor) -> None:
        if x.shape[1] != self.channels:
            _check.refuse(self.name, f"expected x with {self.channels} features, got {x.shape[1]}")
