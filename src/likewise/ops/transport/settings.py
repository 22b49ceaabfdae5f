"""Settings: the transport problem to solve, and the stopping rule of its solver."""

import math
from dataclasses import dataclass
from typing import Any, Self

import torch

from likewise import _check

# Marginal error at which the solver stops by default: close to the precision of each type.
TOLERANCE = {torch.float64: 1e-12}
COARSE = 1e-6


@dataclass(frozen=True)
class Settings:
    """The plan T minimises <T, D'> - reg H(T) - inverse_difference I(T) + reg KL(T || P), given its marginals.

    D' = D (1 + time_weight |t|), t = i/N - j/M with i and j from 1, I(T) = sum T_ij / (t^2 + 1), and P_ij is normal in
    t / sqrt(1/N^2 + 1/M^2) with standard deviation delta. Terms with weight 0, and the prior with delta infinity,
    vanish.

    n_iter: the exact number of iterations, a column update and a row update each; None iterates until the marginal
        error, the sum of |column sum - mass| (row sums are exact), is at most tolerance.
    tolerance: None is 1e-12 in float64, 1e-6 otherwise. max_iter: the maximum number of Newton steps.
    """

    reg: float
    inverse_difference: float = 0.0
    delta: float = math.inf
    time_weight: float = 0.0
    n_iter: int | None = None
    tolerance: float | None = None
    max_iter: int = 1000

    @classmethod
    def of(
        cls,
        op: str,
        reg: float,
        *,
        reg_name: str = "reg",
        inverse_difference: float = 0.0,
        delta: float = math.inf,
        time_weight: float = 0.0,
        n_iter: int | None = None,
        tolerance: float | None = None,
        max_iter: int = 1000,
    ) -> Self:
        """Settings from checked arguments; ``reg_name`` is the caller's name for reg."""
        reg = _check.positive(op, reg_name, reg)
        for name, value in (("inverse_difference", inverse_difference), ("time_weight", time_weight)):
            if not 0 <= _check.number(op, name, value) < math.inf:
                _check.refuse(op, f"{name} must be 0 or more, and finite, got {value}")
        if not _check.number(op, "delta", delta) > 0:
            _check.refuse(op, f"delta must be positive, got {delta}")
        if n_iter is not None:
            n_iter = _check.whole(op, "n_iter", n_iter)
        if tolerance is not None:
            tolerance = _check.positive(op, "tolerance", tolerance)
        whole = _check.whole(op, "max_iter", max_iter)
        return cls(reg, float(inverse_difference), float(delta), float(time_weight), n_iter, tolerance, whole)

    def plain(self, dtype: torch.dtype, factor: float = 1.0) -> tuple[float, float, float, float, int, float, int]:
        """Plain numbers for an operator whose costs must be multiplied by ``factor``; n_iter is 0 for None."""
        tolerance = TOLERANCE.get(dtype, COARSE) if self.tolerance is None else self.tolerance
        scales = self.reg / factor, self.inverse_difference / factor, self.delta, self.time_weight
        return *scales, self.n_iter or 0, tolerance, self.max_iter

    @classmethod
    def from_plain(cls, *numbers: Any) -> Self:
        """The settings from the result of ``plain``."""
        reg, inverse_difference, delta, time_weight, n_iter, tolerance, max_iter = numbers
        return cls(reg, inverse_difference, delta, time_weight, n_iter or None, tolerance, max_iter)
