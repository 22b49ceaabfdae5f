"""AM-softmax: a classifier of directions with a margin."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize, one_hot

from likewise import _check
from likewise._check import full_precision
from likewise.losses.vector_loss import VectorLoss


class AMSoftmax(VectorLoss):
    """Cross entropy of softmax(scale (cos - margin [own class])), where cos is the cosine to each class centre.

    classes, channels: the number of centres, for labels 0 to classes - 1, and the number of features.
    margin: how much larger the cosine to the own centre must be; 0 is the normalised softmax.

    ``centers`` (channels, classes) may have any length. ``cosines`` returns the scores before margin and scale, which
    JointRepresentationSimilarity takes as the last layer.
    Reference: Wang et al. (2018), arXiv:1801.05599 and arXiv:1801.09414; constants and initialisation of Chu et al.
    (2020), Distance Metric Learning with Joint Representation Diversification.

    Example:
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
        self._shared: list[tuple[Tensor, Tensor]] | None = None
        # The initial length matters: short centres change direction faster at the same learning rate.
        self.centers = nn.Parameter(nn.init.kaiming_uniform_(torch.empty(self.channels, self.classes), a=math.sqrt(5)))

    def cosines(self, x: Tensor) -> Tensor:
        """Cosines (N, classes) of vectors x (N, channels) to the centres, with gradients to both."""
        for known, found in self._shared or ():
            if known is x:
                return found
        vectors = self.vectors(x, finite=False)
        self._check_width(vectors)
        with full_precision(vectors):
            found = normalize(vectors, dim=1) @ normalize(self.centers.to(vectors), dim=0)
        if self._shared is not None:
            self._shared.append((x, found))
        return found

    @contextmanager
    def sharing(self) -> Iterator[None]:
        """Compute the cosines of the same vectors only once in this block, for the loss and its regularisers."""
        self._shared = []
        try:
            yield
        finally:
            self._shared = None

    def value(self, x: Tensor, labels: Tensor) -> Tensor:
        """The mean cross entropy."""
        self.check_classes(labels, self.classes)
        self._check_width(x)
        own = one_hot(labels, self.classes)
        return cross_entropy(self.scale * (self.cosines(x) - self.margin * own), labels)

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return f"{self.classes}, {self.channels}, margin={self.margin}, scale={self.scale}"

    def _check_width(self, x: Tensor) -> None:
        if x.shape[1] != self.channels:
            _check.refuse(self.name, f"expected x with {self.channels} features, got {x.shape[1]}")
