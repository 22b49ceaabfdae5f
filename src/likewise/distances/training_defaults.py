"""TrainingDefaults: the settings with which a distance or an encoder trains well."""

from collections.abc import Callable
from dataclasses import dataclass, fields

from torch import Tensor


@dataclass(frozen=True)
class TrainingDefaults:
    """The default arguments of ``fit``.

    lr, weight_decay: settings of Adam. clip: the largest norm of the gradient; None does not clip.
    batch_size: items in a batch. per_class: items of each class in a batch; None draws items regardless of class.
    steps: total training steps; ``fit`` converts them to whole epochs.
    average: the decay of a moving average of the weights per step; None for no average.
    decay: the share of the steps at the end over which the learning rate falls linearly to zero.
    loss: a function without arguments that returns the loss; None leaves the choice to ``fit``.

    A distance or an encoder has them as the attribute or property ``training_defaults``.

    Example:
        >>> TrainingDefaults(lr=1e-2).combined(TrainingDefaults(batch_size=16)).batch_size
        16
    """

    lr: float = 1e-3
    batch_size: int = 32
    steps: int = 1000
    clip: float | None = 1.0
    weight_decay: float = 1e-4
    per_class: int | None = None
    average: float | None = None
    decay: float = 0.0
    loss: Callable[[], Callable[..., Tensor]] | None = None

    def combined(self, other: "TrainingDefaults") -> "TrainingDefaults":
        """Combine the defaults of a distance with those of its encoder, choosing the more cautious ones.

        These are the smaller rate, batch and clip, and the larger number of steps. If one is None, and for all other
        settings, the other's value is used; the loss is that of self if it has one.
        """
        choose = {"lr": min, "batch_size": min, "clip": min, "steps": max, "decay": max, "weight_decay": min}
        found = {}
        for item in fields(self):
            own, others = getattr(self, item.name), getattr(other, item.name)
            if own is not None and others is not None and item.name in choose:
                own = choose[item.name](own, others)
            found[item.name] = others if own is None else own
        return TrainingDefaults(**found)
