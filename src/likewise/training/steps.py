"""The steps of ``fit``: functions of a Step that return its loss, a scalar.

``matrix_step`` and ``vector_step`` are here, ``path_step`` is in its own file; an ``EpisodeLoss`` and a
``SelfSupervised`` are steps with settings. ``choose_step`` is the default of ``fit``.
"""

from typing import Any

from torch import Tensor

from likewise import _check
from likewise.losses.path_loss import PathLoss
from likewise.losses.vector_loss import VectorLoss
from likewise.training.pairs import AlignedPairs
from likewise.training.path_step import path_step
from likewise.training.step import Step, StepFunction


def matrix_step(step: Step) -> Tensor:
    """The loss of the batch's matrix of distances: loss(D, labels), or loss(D, labels, labels) with an augmentation.

    Example:
        >>> import torch
        >>> from likewise import Batch, Euclidean, Metric, losses
        >>> items, labels = Batch(torch.tensor([[[0.0]], [[1.0]], [[5.0]]])), torch.tensor([0, 0, 1])
        >>> matrix_step(Step(Metric(None, Euclidean()), items, labels, losses.Contrastive(margin=2.0)))
        tensor(0.3333)
    """
    assert step.loss is not None
    more = () if step.augment is None else (step.labels,)  # then every cell of D is a pair, including the diagonal
    return step.loss(step.D, step.labels, *more)


def vector_step(step: Step) -> Tensor:
    """The loss of the encoded vectors: loss(features, labels). No matrix is made.

    Example:
        >>> import torch
        >>> from likewise import Euclidean, Metric, losses
        >>> items, labels = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, -1.0]]), torch.tensor([0, 0, 1])
        >>> vector_step(Step(Metric(None, Euclidean()), items, labels, losses.Angular()))
        tensor(0.0037)
    """
    assert step.loss is not None
    return step.loss(step.features, step.labels)


def choose_step(items: Any, loss: Any) -> StepFunction | None:
    """The step for this loss and these items; None without a loss."""
    aligned = isinstance(items, AlignedPairs)
    if loss is None:
        return None
    if aligned != isinstance(loss, PathLoss):
        kind = type(loss).__name__
        need = "AlignedPairs need a PathLoss" if aligned else f"{kind} learns from AlignedPairs(x, y, truth)"
        _check.refuse("fit", f"{need}, or your own step; got {'loss ' + kind if aligned else type(items).__name__}")
    if aligned:
        return path_step
    return vector_step if isinstance(loss, VectorLoss) else matrix_step
