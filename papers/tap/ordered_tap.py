"""OrderedTAP: TAP that starts from the order of time, with a learned temperature."""

import math

import torch
from torch import Tensor, nn

from likewise import _check
from likewise.distances.distance import describe
from likewise.distances.tap import TAP


class OrderedTAP(TAP):
    """TAP whose untrained alignment follows the order of time.

    A = softmax over j of -((D + g(D, time)) / temperature + order time(i, j)^2), with D, time and g as in ``TAP``. The
    last convolution starts at zero, and g with it; temperature and order are learned. TAP itself starts from a
    temperature of one and without an order: its matches are then spread over nearly all frames, and no better than
    mean frames.

    temperature: the softmax's, at first. Frames of unit length are at most 2 apart.
    order: how much times apart count at first, at least 0; 0 leaves it out.

    See ``TAP`` for the other arguments. This is not in TAP's paper.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> x = torch.randn(1, 20, 8)
        >>> walk, back = x / x.norm(dim=2, keepdim=True), x.flip(1) / x.norm(dim=2, keepdim=True).flip(1)
        >>> bool(OrderedTAP()(walk, walk) < OrderedTAP()(walk, back))
        True
    """

    def __init__(
        self,
        width: int = 30,
        kernels: tuple[int, ...] = (5, 5, 3),
        *,
        temperature: float = 0.1,
        order: float = 20.0,
        symmetric: bool = False,
    ) -> None:
        super().__init__(width, kernels, symmetric=symmetric)
        temperature = _check.positive(self.name, "temperature", temperature)
        order = _check.not_negative(self.name, "order", order)
        self.log_temperature = nn.Parameter(torch.tensor(math.log(temperature)))
        self.root_order = nn.Parameter(torch.tensor(math.sqrt(order)))
        with torch.no_grad():
            last = self.convolutions[-1]
            last.weight.zero_()
            last.bias.zero_()

    @property
    def temperature(self) -> float:
        """The softmax's temperature."""
        return float(self.log_temperature.detach().exp())

    @property
    def order(self) -> float:
        """How much times apart count."""
        return float(self.root_order.detach().square())

    def scores(self, x: Tensor, y: Tensor, D: Tensor, time: Tensor, inside: Tensor | None) -> Tensor:
        """-((D + g(D, time)) / temperature + order time^2), (B, Tx, Ty)."""
        found = super().scores(x, y, D, time, inside)
        temperature, order = self.log_temperature.exp().to(D.dtype), self.root_order.square().to(D.dtype)
        return found / temperature - order * time.square()

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        settings = describe(width=self.width, kernels=self.kernels, symmetric=self.symmetric)
        return f"{settings}, temperature={self.temperature:.3g}, order={self.order:.3g}"
