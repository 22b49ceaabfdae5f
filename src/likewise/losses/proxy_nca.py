"""Proxy-NCA: a learned proxy for each class."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from likewise import _check
from likewise._check import full_precision
from likewise.losses.vector_loss import VectorLoss

START = 1 / 8  # initial standard deviation of the proxies, as in the published code


class ProxyNCA(VectorLoss):
    """Pull each item closer to the proxy of its class than to the others.

    Items and proxies are scaled to length ``scale`` and ``proxy_scale``; D (N, classes) holds their squared
    Euclidean distances, and the loss is the cross entropy of softmax(-D) over all classes.

    classes, channels: the number of proxies, for labels 0 to classes - 1, and the number of features.
    smoothing: label smoothing, the share of an item's label that is spread over the other classes.

    ``distances`` returns D, whose columns are the proxies; any loss of a matrix takes it, with column labels 0 to
    classes - 1. Without smoothing this is pytorch-metric-learning's ProxyNCALoss with softmax_scale = scale *
    proxy_scale.
    Reference: Movshovitz-Attias et al. (2017), arXiv:1703.07464. It departs from the paper, as common implementations
    do, in the sum over all proxies, the scales and the smoothing.

    Example:
        >>> loss = ProxyNCA(3, 8)
        >>> loss(torch.randn(5, 8), [0, 2, 1, 1, 0]).ndim, loss.distances(torch.randn(5, 8)).shape
        (0, torch.Size([5, 3]))
    """

    def __init__(
        self,
        classes: int,
        channels: int,
        *,
        smoothing: float = 0.1,
        scale: float = 3.0,
        proxy_scale: float = 3.0,
    ) -> None:
        super().__init__()
        self.classes = _check.whole(self.name, "classes", classes, least=2)
        self.channels = _check.whole(self.name, "channels", channels)
        self.smoothing = _check.fraction(self.name, "smoothing", smoothing)
        self.scale = _check.positive(self.name, "scale", scale)
        self.proxy_scale = _check.positive(self.name, "proxy_scale", proxy_scale)
        self.proxies = nn.Parameter(START * torch.randn(self.classes, self.channels))

    def distances(self, x: Tensor) -> Tensor:
        """Squared distances (N, classes) between scaled items x (N, C) and scaled proxies."""
        x = self.vectors(x)
        if x.shape[1] != self.channels:
            _check.refuse(self.name, f"expected x with {self.channels} features, got {x.shape[1]}")
        with full_precision(x):
            cosines = normalize(x, dim=1) @ normalize(self.proxies.to(x), dim=1).T
        far = self.scale * self.proxy_scale * cosines
        return self.scale**2 + self.proxy_scale**2 - 2 * far

    def value(self, x: Tensor, labels: Tensor) -> Tensor:
        """The mean cross entropy."""
        self.check_classes(labels, self.classes)
        log_share = (-self.distances(x)).log_softmax(1)  # (N, classes)
        own = log_share.gather(1, labels[:, None])[:, 0]
        others = (log_share.sum(1) - own) / (self.classes - 1)
        return -((1 - self.smoothing) * own + self.smoothing * others).mean()

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return (
            f"{self.classes}, {self.channels}, smoothing={self.smoothing}, scale={self.scale}, "
            f"proxy_scale={self.proxy_scale}"
        )
