"""Mixture: the bandwidths of a mixture of Gaussians."""

from typing import NamedTuple


class Mixture(NamedTuple):
    """Bandwidths b f for each factor f, smallest first. Without b, ``reference.rates`` estimates it from the data.

    Example:
        >>> Mixture((0.5, 1.0, 2.0)).bandwidth is None
        True
    """

    factors: tuple[float, ...]
    bandwidth: float | None = None

    def repeated(self, count: int) -> tuple[float, ...]:
        """Return ``count`` factors; one Gaussian is the mean of several equal ones."""
        return self.factors * (count // len(self.factors))
