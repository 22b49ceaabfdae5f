"""Layer: a map and the weights of its attention."""

from typing import NamedTuple

from torch import Tensor


class Layer(NamedTuple):
    """A map and the weights of its attention.

    values: the positions q (B, C, P). mask: (B, P), True where they are real; padding may hold anything.
    inward, across, outward: W1 (R, C), W2 (R, W), or None if W = R and u is used unchanged, and w (1, R).

    Example:
        >>> import torch
        >>> Layer(torch.zeros(2, 3, 5), None, torch.zeros(4, 3), None, torch.zeros(1, 4)).mask is None
        True
    """

    values: Tensor
    mask: Tensor | None
    inward: Tensor
    across: Tensor | None
    outward: Tensor
