"""TrainingDefaults: the settings that a distance or an encoder trains well with."""

from collections.abc import Callable
from dataclasses import dataclass, fields

from torch import Tensor


@dataclass(frozen=True)
class TrainingDefaults:
    """What ``fit`` uses for the arguments that it is not given.

    lr, weight_decay, clip: of Adam, and the largest norm of the gradient; a clip of None leaves gradients alone.
    batch_size: items in a batch. per_class: items of each class in it; None draws items whatever their class.
    steps: steps of training in all; ``fit`` turns them into whole epochs.
    average: the share that a moving average of the weights keeps at each step; None takes the weights themselves.
    decay: the share of the steps, the last ones, over which the learning rate falls to zero in a line.
    loss: a function without arguments that makes the loss; None leaves it to ``fit``.

    A distance or an encoder states its own as an attribute or a property, ``training_defaults``.

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
        """The more careful of two: of a distance, and of the encoder before it.

        The smaller rate, batch and clip, and the larger number of steps. Where one of them says None, and in what else
        there is, the other's word counts; the loss is this one's if it has one.
        """
        choose = {"lr": min, "batch_size": min, "clip": min, "steps": max, "decay": max, "weight_decay": min}
        found = {}
        for item in fields(self):
            own, others = getattr(self, item.name), getattr(other, item.name)
            if own is not None and others is not None and item.name in choose:
                own = choose[item.name](own, others)
            found[item.name] = others if own is None else own
        return TrainingDefaults(**found)
