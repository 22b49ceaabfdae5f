"""Regularisers: functions of features, class scores or weights that are added to a loss.

As a term of ``fit``, with a weight: ``fit(..., terms=[lambda step: 0.01 * coupling_norm(step.metric)])``.
"""

from likewise.regularizers.coupling_norm import coupling_norm

__all__ = ["coupling_norm"]
