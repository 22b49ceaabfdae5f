"""VectorLoss: the base class of losses of vectors, such as those with proxies or class centres."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from likewise import _check
from likewise._check import full_precision
from likewise._labels import read_codes


class VectorLoss(nn.Module):
    """A loss of vectors: ``loss(x, labels)`` is a scalar, for x (N, C) and labels (N,).

    Other losses take a matrix D. These may have proxies or class centres as parameters, which ``fit`` trains and saves
    with the metric (``lr={"encoder": 1e-4, "loss": 1e-2}``). ``fit(metric, train, loss)`` passes them the encoder's
    output. Subclasses define ``value``.

    Half precision is computed in float32, under autocast too. An empty batch has loss 0.

    Example:
        >>> class Size(VectorLoss):
        ...     def value(self, x, labels):
        ...         return x.square().mean()
        >>> Size()(torch.tensor([[1.0, 3.0]]), [0])
        tensor(5.)
    """

    @property
    def name(self) -> str:
        """The name of this loss in errors."""
        return type(self).__name__

    def value(self, x: Tensor, labels: Tensor) -> Tensor:
        """The loss, a scalar, of vectors (N, C), N > 0, with labels (N,) int64 on their device."""
        raise NotImplementedError(f"{self.name}.value")

    def forward(self, x: Tensor, labels: object) -> Tensor:
        """The loss, a scalar, of vectors x (N, C) with labels (N,), whole numbers."""
        x = self.vectors(x)
        codes = read_codes(self.name, x.device, ("labels", labels, len(x)))[0]
        with full_precision(x):
            return self.value(x, codes) if len(x) else x.sum()

    def sharing(self) -> AbstractContextManager[None]:
        """A block in which the loss and other terms share computations on the same vectors.

        ``fit`` opens one for each step; weights must not change inside. By default nothing is shared.
        """
        return nullcontext()

    def vectors(self, x: object, *, finite: bool = True) -> Tensor:
        """Vectors (N, C) in float32 or better, checked; on a GPU, the check for finite numbers synchronises."""
        if not isinstance(x, Tensor):
            kind = type(x).__name__
            raise TypeError(
                f"{self.name}: expected vectors (N, C), got a {kind}; an encoder must reduce sequences to vectors, as "
                "GRUEncoder and TCN(steps=False) do"
            )
        _check.is_tensor(self.name, "x", x)
        if x.ndim != 2:
            _check.refuse(self.name, f"expected x of shape (N, C), got {tuple(x.shape)}")
        if finite and not torch.compiler.is_compiling() and not x.isfinite().all():
            row, column = (~x.isfinite()).nonzero()[0].tolist()
            _check.refuse(self.name, f"x[{row}, {column}] is {x[row, column].item()}; features must be finite")
        return x.to(torch.promote_types(x.dtype, torch.float32))

    def check_classes(self, labels: Tensor, classes: int) -> None:
        """Raise an error for labels outside of 0..classes - 1."""
        if torch.compiler.is_compiling():
            return
        wrong = labels[(labels < 0) | (labels >= classes)]
        if len(wrong):
            hint = "number them from 0, with torch.unique(labels, return_inverse=True)"
            _check.refuse(
                self.name, f"labels hold {int(wrong[0])}, but there are {classes} classes, counted from 0; {hint}"
            )
