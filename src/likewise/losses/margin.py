"""The margin loss, with a boundary that can be learned."""

import torch
from torch import Tensor, nn

from likewise import _check
from likewise.losses.loss import Loss
from likewise.losses.pairs import Pairs, mean_of


class Margin(Loss):
    """Positives should be closer than beta - margin, negatives farther than beta + margin.

    An anchor's loss is mean over positives of max(0, p - beta + margin) + mean over negatives of max(0, beta - n +
    margin) + nu beta. An anchor with pairs of only one kind has only that term.

    beta: the boundary, in the unit of D.
    learn_beta: make beta a parameter; give ``loss.parameters()`` to the optimizer.
    classes: give each class its own boundary, selected by the anchor's label, 0 to classes - 1; None for one boundary.
    nu: penalty on a large boundary.

    Reference: Wu et al. (2017), arXiv:1706.07567. It departs from the paper in using all pairs, with equal weight for
    positives and negatives, instead of distance-weighted sampling, which needs embeddings on a sphere.

    Example:
        >>> Margin()(torch.tensor([[1.5, 1.1]]), [0], [0, 1])
        tensor(0.8000)
    """

    def __init__(
        self,
        margin: float = 0.2,
        beta: float = 1.2,
        *,
        learn_beta: bool = False,
        classes: int | None = None,
        nu: float = 0.0,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction=reduction)
        self.margin = _check.number(self.name, "margin", margin)
        self.nu = _check.number(self.name, "nu", nu)
        start = torch.tensor(float(_check.number(self.name, "beta", beta)))
        if classes is not None:
            if isinstance(classes, bool) or not isinstance(classes, int) or classes < 1:
                _check.refuse(self.name, f"classes must be a whole number of at least 1, got {classes!r}")
            start = start.repeat(classes)
        self.beta = nn.Parameter(start, requires_grad=learn_beta)

    def per_anchor(self, pairs: Pairs) -> Tensor:
        """The losses (N,) of the anchors."""
        beta = self.beta.to(pairs.distances)
        if beta.ndim:
            self._check_labels(pairs.row_labels)
            beta = beta[pairs.row_labels]
        beyond = pairs.distances - beta.expand(len(pairs.row_labels))[:, None]
        pulled = mean_of((beyond + self.margin).relu(), pairs.positives)
        return pulled + mean_of((self.margin - beyond).relu(), pairs.negatives) + self.nu * beta

    def _check_labels(self, labels: Tensor) -> None:
        classes = len(self.beta)
        if not torch.compiler.is_compiling() and ((labels < 0) | (labels >= classes)).any():
            wrong = labels[(labels < 0) | (labels >= classes)][0].item()
            _check.refuse(self.name, f"row_labels hold {wrong}, but there are {classes} classes, counted from 0")

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        kind = "learned" if self.beta.requires_grad else "fixed"
        classes = f", {len(self.beta)} classes" if self.beta.ndim else ""
        return f"{super().extra_repr()}, beta={self.beta.detach().mean().item():.3g} ({kind}{classes})"
