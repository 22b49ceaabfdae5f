"""Similarity of the classes of a batch in the features of several layers."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from likewise import _check
from likewise._labels import read_codes
from likewise.ops.joint_gaussians import Mixture, joint_gaussians
from likewise.ops.joint_gaussians.reference import between_classes
from likewise.regularizers._inputs import read_features
from likewise.regularizers.kernels import GaussianMixture

Kernel = Callable[[Tensor], Tensor]
THREE, ONE = GaussianMixture(3), GaussianMixture(1)  # the kernels of the paper


class JointRepresentationSimilarity(nn.Module):
    """JRS: the mean over pairs of items of different classes of the product over layers of k_l(x_l, x'_l).

    ``jrs([x_minus, x, x_plus], labels)`` is a scalar: the similarity of the classes' joint distributions over these
    layers, to be minimised together with a loss. The paper's layers are the pooled features of the backbone, the
    embedding at unit length, and its cosines to the class centres (``AMSoftmax.cosines``); any number of layers
    (B, C_l) is supported.

    kernels: one for each layer, or one for all: ``GaussianMixture``, ``Laplace``, ``Polynomial``,
        ``MomentGenerating``, or a function (B, C) -> (B, B). By default mixtures of three Gaussians, and a single one
        for the last of three layers, as in the paper.

    For a batch of one class it is 0. Memory is O(B^2); half precision is computed in float32, under autocast too. With
    one layer it is the marginal similarity, ``MarginalSimilarity``.
    Reference: Chu et al. (2020), Distance Metric Learning with Joint Representation Diversification, equations 3 and 4.

    Example:
        >>> x, labels = torch.tensor([[0.0], [1.0], [1.0]]), torch.tensor([0, 0, 1])
        >>> JointRepresentationSimilarity(GaussianMixture(1, bandwidth=1.0))([x, 2 * x], labels)
        tensor(0.5034)
    """

    def __init__(self, kernels: Kernel | Sequence[Kernel] | None = None) -> None:
        super().__init__()
        self.kernels = kernels
        for i, kernel in enumerate(self._given()):
            if not callable(kernel):
                raise TypeError(f"{self.name}: expected kernels[{i}] to be a function, got {type(kernel).__name__}")

    @property
    def name(self) -> str:
        """The name of this regulariser in errors."""
        return type(self).__name__

    def forward(self, features: Tensor | Sequence[Tensor], labels: object) -> Tensor:
        """The similarity, a scalar, of features (B, C_l) of items with labels (B,)."""
        layers = self.read(features)
        classes = read_codes(self.name, layers[0].device, ("labels", labels, len(layers[0])))[0]
        mixtures = _mixtures(self._for(len(layers)))
        with _check.full_precision(layers[0]):
            if mixtures is None:
                return (self.joint(layers) * self.weights(classes, layers[0].dtype)).sum()
            if type(self).weights is JointRepresentationSimilarity.weights:
                return joint_gaussians(layers, mixtures, classes)
            return joint_gaussians(layers, mixtures, self.weights(classes, layers[0].dtype))

    def read(self, features: Tensor | Sequence[Tensor]) -> list[Tensor]:
        """The layers (B, C_l) whose kernels are multiplied."""
        return read_features(self.name, features)

    def weights(self, labels: Tensor, dtype: torch.dtype) -> Tensor:
        """The weight of each cell (B, B) of the joint kernel: the same for all ordered pairs of different classes."""
        return between_classes(labels, dtype)

    def joint(self, layers: Sequence[Tensor]) -> Tensor:
        """The product (B, B) of the layers' kernels."""
        found = None
        for layer, kernel in zip(layers, self._for(len(layers)), strict=True):
            cells = kernel(layer)
            if cells.shape != (len(layer), len(layer)):
                _check.refuse(self.name, f"expected a kernel of shape {(len(layer),) * 2}, got {tuple(cells.shape)}")
            found = cells if found is None else found * cells
        assert found is not None
        return found

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return f"kernels={self.kernels}" if isinstance(self.kernels, Sequence) else ""

    def _given(self) -> Sequence[Kernel]:
        if self.kernels is None:
            return ()
        return list(self.kernels) if isinstance(self.kernels, Sequence) else [self.kernels]

    def _for(self, layers: int) -> Sequence[Kernel]:
        if self.kernels is None:
            return [ONE if layers == 3 and i == 2 else THREE for i in range(layers)]
        given = self._given()
        if not isinstance(self.kernels, Sequence):
            return [given[0]] * layers
        if len(given) != layers:
            _check.refuse(self.name, f"there are {len(given)} kernels for {layers} layers")
        return given


class MarginalSimilarity(JointRepresentationSimilarity):
    """MRD: the similarity of classes in one layer, the embedding. ``similarity(x, labels)``.

    The paper compares with it but does not define it: this is our reading.

    Example:
        >>> MarginalSimilarity(GaussianMixture(1, bandwidth=1.0))(torch.tensor([[0.0], [1.0]]), [0, 1])
        tensor(0.3679)
    """

    def read(self, features: Tensor | Sequence[Tensor]) -> list[Tensor]:
        """The one layer (B, C)."""
        found = super().read(features)
        if len(found) != 1:
            _check.refuse(self.name, f"expected features of one layer, got {len(found)}")
        return found


class ConcatenatedSimilarity(JointRepresentationSimilarity):
    """JRD-C: the similarity of classes under one kernel of the layers' concatenated features.

    The paper compares with it but does not define it: this is our reading.

    Example:
        >>> x = torch.tensor([[0.0], [1.0]])
        >>> ConcatenatedSimilarity(GaussianMixture(1, bandwidth=2.0))([x, x], [0, 1])
        tensor(0.3679)
    """

    def read(self, features: Tensor | Sequence[Tensor]) -> list[Tensor]:
        """All features, as one layer (B, C_1 + ... + C_L)."""
        return [torch.cat(super().read(features), 1)]


class JointMeanDiscrepancy(JointRepresentationSimilarity):
    """JMMD, negative: minus the mean over pairs of classes of MMD^2, with the joint kernel K of JRS.

    MMD^2(P, Q) = E K(p, p') + E K(q, q') - 2 E K(p, q) over all items of the two classes, an item with itself
    included. Classes should be far apart, so its negative is minimised. JRS has the last term only; the first two pull
    the items of a class together. For a batch of one class it is 0.

    Reference: Chu et al. (2020), equation 7, included there for comparison with a weight of 0.1.

    Example:
        >>> x = torch.tensor([[0.0], [1.0]])
        >>> JointMeanDiscrepancy(GaussianMixture(1, bandwidth=1.0))(x, [0, 1])
        tensor(-1.2642)
    """

    def weights(self, labels: Tensor, dtype: torch.dtype) -> Tensor:
        """The weight of each cell (B, B) of the joint kernel in minus the mean discrepancy, which is linear in it."""
        same = (labels[:, None] == labels).to(dtype)
        count = same.sum(1)  # n_i, items of the class of i
        classes = (1 / count).sum().round()
        pairs = (classes * (classes - 1)).clamp(min=1)
        # Of n classes with means m_IJ of the kernel, it is (sum over I != J of m_IJ - (n - 1) sum over I of m_II) times
        # 2 / (n (n - 1)), and in m_IJ each cell counts 1 / (n_i n_j).
        return 2 * (1 - classes * same) / (pairs * count[:, None] * count)


class IntraClassPenalty(nn.Module):
    """Minus the mean of exp(-||x - x'||^2 / 2) over pairs of one class, summed over classes: equation 5 of the slides.

    Minimising it pulls the items of a class together, which the authors advise against with AM-softmax; it is included
    for comparison. Classes with one item are ignored. Reference: Chu et al. (2020), equation 5.

    Example:
        >>> IntraClassPenalty()(torch.tensor([[0.0], [0.0], [5.0]]), [0, 0, 1])
        tensor(-1.)
    """

    def forward(self, features: Tensor | Sequence[Tensor], labels: object) -> Tensor:
        """The penalty, a scalar, of features (B, C) of items with labels (B,)."""
        layers = read_features("IntraClassPenalty", features)
        if len(layers) != 1:
            _check.refuse("IntraClassPenalty", f"expected features of one layer, got {len(layers)}")
        classes = read_codes("IntraClassPenalty", layers[0].device, ("labels", labels, len(layers[0])))[0]
        pairs = (classes[:, None] == classes).fill_diagonal_(False)
        mates = pairs.sum(1, keepdim=True, dtype=layers[0].dtype)  # n - 1
        weights = pairs / -(mates * (mates + 1)).clamp(min=1)  # n (n - 1) ordered pairs
        with _check.full_precision(layers[0]):
            return joint_gaussians(layers, [Mixture((1.0,), 2.0)], weights)


def _mixtures(kernels: Sequence[Kernel]) -> list[Mixture] | None:
    """The mixtures, if ``joint_gaussians`` supports them: all of the same count, or of one Gaussian."""
    found = [kernel.mixture for kernel in kernels if type(kernel) is GaussianMixture]  # type: ignore[attr-defined]
    counts = {len(mixture.factors) for mixture in found} - {1}
    return found if len(found) == len(kernels) and len(counts) <= 1 else None
