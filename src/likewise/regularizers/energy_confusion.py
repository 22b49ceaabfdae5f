"""Energy confusion: pull the training classes together, to avoid overfitting to them."""

from collections.abc import Sequence

from torch import Tensor, nn

from likewise import _check
from likewise._labels import read_codes
from likewise.regularizers._inputs import mean_of_pairs, read_features, squared_distances


class EnergyConfusion(nn.Module):
    """The mean over pairs of items of different classes of ||x - x'||^2.

    Minimised together with a loss that increases it, it keeps the metric from overfitting to the training classes. For
    a batch of one class it is 0. Memory is O(B^2).

    Reference: Chen & Deng (2019), Energy Confused Adversarial Metric Learning, arXiv:1901.07169, in the form of
    equation 7 of Al-Kaabi, Monsefi & Zabihzadeh. The authors' code takes the logarithm, and lets the gradient reach the
    embedding layer only; here the caller decides what x is.

    Example:
        >>> import torch
        >>> EnergyConfusion()(torch.tensor([[0.0], [1.0], [3.0]]), [0, 0, 1])
        tensor(6.5000)
    """

    def forward(self, features: Tensor | Sequence[Tensor], labels: object) -> Tensor:
        """The energy, a scalar, of features (B, C) of items with labels (B,)."""
        layers = read_features("EnergyConfusion", features)
        if len(layers) != 1:
            _check.refuse("EnergyConfusion", f"expected features of one layer, got {len(layers)}")
        classes = read_codes("EnergyConfusion", layers[0].device, ("labels", labels, len(layers[0])))[0]
        with _check.full_precision(layers[0]):
            return mean_of_pairs(squared_distances(layers[0]), classes[:, None] != classes)
