"""Adversaries: classifiers of the training classes that keep features general, for use with unseen classes."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from likewise import _check
from likewise._modes import evaluating
from likewise.data.batch import Batch
from likewise.models.class_head import ClassHead
from likewise.models.embedder import Embedder
from likewise.models.gradient_reversal import reverse_gradient
from likewise.models.layers import as_map
from likewise.models.metric import Metric, take
from likewise.training.step import Step


class ClassAdversary(nn.Module):
    """A term of ``fit``: a classifier predicts the training classes from features that learn to hide them.

    The term is l_c(R(f)), where l_c is the cross entropy of a ClassHead, and R leaves the features f unchanged but
    multiplies their gradient by -strength. So f minimises the metric's loss - strength * l_c, and the classifier
    minimises l_c.

    strength: lambda; 0 does not affect the features.
    smoothing: the share of a label that is spread evenly over all classes, alpha / C each.
    hidden, dropout: arguments of the ClassHead.
    layer: the name of the module inside the encoder whose output, averaged over its positions, is f. By default f is
        the input of the embedding layer, "backbone" of an Embedder; without an Embedder, the encoder's output.

    Its head is made when ``fit`` begins and is trained with the rest: ``fit(..., terms=[ClassAdversary()])``. Set its
    learning rate with ``lr={"terms.0": ..., "rest": ...}``.
    Reference: Al-Kaabi, Monsefi & Zabihzadeh, A Framework to Enhance Generalization of Deep Metric Learning methods,
    equations 22 to 24. This departs from (24) as printed, where a negative lambda would harm the classifier.

    Example:
        >>> from likewise import Euclidean, GRUEncoder, fit, losses
        >>> metric = Metric(Embedder(GRUEncoder(2, 8), 4), Euclidean())
        >>> adversary = ClassAdversary(0.1)
        >>> train = torch.randn(12, 5, 2), torch.arange(12) % 3
        >>> history = fit(metric, train, losses.Triplet(), terms=[adversary], epochs=1, verbose=False)
        >>> adversary.head.channels, adversary.head.classes
        (8, 3)
    """

    head: ClassHead | None
    classes: Tensor | None

    def __init__(
        self,
        strength: float = 0.5,
        *,
        smoothing: float = 0.0,
        hidden: int | None = None,
        dropout: float = 0.1,
        layer: str | None = None,
    ) -> None:
        super().__init__()
        self.strength = float(_check.number(self.name, "strength", strength))
        if not math.isfinite(self.strength):
            _check.refuse(self.name, f"strength must be finite, got {strength}")
        self.smoothing = _check.fraction(self.name, "smoothing", smoothing)
        self.hidden = hidden
        self.dropout = _check.fraction(self.name, "dropout", dropout)
        self.layer = layer
        self.layers: Sequence[str] = () if layer is None else (layer,)
        self.head = None
        self.register_buffer("classes", None)

    @property
    def name(self) -> str:
        """The name of this adversary in errors."""
        return type(self).__name__

    def prepare(self, metric: Metric, items: Batch | Tensor, labels: Tensor) -> None:
        """Make the classifier for the metric's features and the labels; an existing one of the right size is kept."""
        if self.layer is None:
            self.layers = ("backbone",) if isinstance(metric.encoder, Embedder) else ()
        with torch.no_grad(), evaluating(metric):
            step = Step(metric, take(items, slice(0, 1)), labels[:1], layers=tuple(self.layers))
            features = self.features(step)
        classes = labels.unique()
        if len(classes) < 2:
            _check.refuse(self.name, "there is only one class")
        size = features.shape[1], len(classes)
        if self.head is None or size != (self.head.channels, self.head.classes):
            self.head = ClassHead(*size, hidden=self.hidden, dropout=self.dropout).to(features)
            self.start(new=True)
        else:
            self.start(new=False)
        self.classes = classes
        self.to(features.device)  # also moves the statistics of the adaptive adversary

    def start(self, *, new: bool) -> None:
        """Called when a run begins, with a new classifier or one from an earlier run."""

    def features(self, step: Step) -> Tensor:
        """The features (B, C) for the classifier."""
        if self.layers:
            return step.layer(self.layers[0])
        return as_map(self.name, "the encoder", step.features).mean()

    def classification_loss(self, features: Tensor, labels: Tensor) -> Tensor:
        """The classifier's mean cross entropy on features (B, C) with labels (B,)."""
        if self.head is None or self.classes is None:
            _check.refuse(self.name, "has no classifier yet; fit makes it, or call prepare(metric, items, labels)")
        return cross_entropy(
            self.head(features),
            torch.searchsorted(self.classes, labels.to(self.classes.device)),
            label_smoothing=self.smoothing,
        )

    def forward(self, step: Step) -> Tensor:
        """The term, a scalar."""
        return self.classification_loss(reverse_gradient(self.features(step), self.strength), step.labels)

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return f"{self.strength}, smoothing={self.smoothing}"


class SoftAdversary(ClassAdversary):
    """A term of ``fit``: strength * l_c on smoothed labels, minimised by the features and the classifier alike.

    Smoothing keeps the features from fitting the training classes too closely; there is no reversal. See
    ``ClassAdversary`` for the other settings. Reference: equations 19 to 21 of the paper named there.

    Example:
        >>> SoftAdversary(0.5).smoothing
        0.15
    """

    def __init__(
        self,
        strength: float = 0.5,
        *,
        smoothing: float = 0.15,
        hidden: int | None = None,
        dropout: float = 0.1,
        layer: str | None = None,
    ) -> None:
        super().__init__(strength, smoothing=smoothing, hidden=hidden, dropout=dropout, layer=layer)

    def forward(self, step: Step) -> Tensor:
        """The term, a scalar."""
        return self.strength * self.classification_loss(self.features(step), step.labels)


class AdaptiveAdversary(ClassAdversary):
    """A ClassAdversary that helps the classifier while its loss is high, and works against it once it is low.

    lambda = -tanh(l_c - threshold) * strength is set once per epoch, from the epoch's mean l_c. If negative, it makes
    features better for the classifier. The first epoch uses l_c = log C, that of an untrained classifier, or the last
    l_c if an earlier run trained the classifier. Epochs are those of the run.

    threshold: the threshold of l_c, regardless of the number of classes C. threshold_share: the threshold as a share of
        log C instead, the l_c of a classifier that guesses.
    ceiling: the largest lambda; training can break down if lambda turns from negative to a large value. A lower
        learning rate of the classifier also helps.

    ``trace`` has the lambda of each epoch of the last run.

    See ``ClassAdversary`` for the other settings. Reference: equation 25 of the paper named there. The paper does not
    say whether labels are smoothed; here they are not, by default.

    Example:
        >>> adversary = AdaptiveAdversary(0.5)
        >>> [round(adversary.schedule(loss), 3) for loss in (0.0, 1.5, 100.0)]
        [0.453, 0.0, -0.5]
    """

    scale: Tensor
    total: Tensor
    steps: Tensor
    epoch: Tensor

    def __init__(
        self,
        strength: float = 0.5,
        *,
        threshold: float = 1.5,
        threshold_share: float | None = None,
        ceiling: float = math.inf,
        smoothing: float = 0.0,
        hidden: int | None = None,
        dropout: float = 0.1,
        layer: str | None = None,
    ) -> None:
        super().__init__(strength, smoothing=smoothing, hidden=hidden, dropout=dropout, layer=layer)
        self.threshold = float(_check.number(self.name, "threshold", threshold))
        self.threshold_share = None
        if threshold_share is not None:
            self.threshold_share = _check.positive(self.name, "threshold_share", threshold_share)
        self.trace: list[float] = []
        self.ceiling = float(_check.number(self.name, "ceiling", ceiling))
        # Buffers are saved in checkpoints, so a resumed run continues with the same lambda.
        self.register_buffer("scale", torch.zeros(()))
        self.register_buffer("total", torch.zeros(()))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("epoch", torch.zeros((), dtype=torch.int64))
        self._known_epoch: int | None = None  # the buffer's value, once it was read
        self.register_load_state_dict_post_hook(_forget_epoch)

    def schedule(self, loss: float) -> float:
        """Lambda after an epoch with this mean l_c: equation 25, at most the ceiling."""
        return min(math.tanh(self.threshold - loss) * self.strength, self.ceiling)

    def start(self, *, new: bool) -> None:
        """Start with the lambda of an untrained classifier, or with that of an earlier run."""
        assert self.head is not None
        self.trace = []
        if self.threshold_share is not None:
            self.threshold = self.threshold_share * math.log(self.head.classes)
        if new:
            self.scale.fill_(self.schedule(math.log(self.head.classes)))
        else:
            self._set_scale()
        self._begin(0)

    def forward(self, step: Step) -> Tensor:
        """The term, a scalar; the first step of an epoch sets lambda."""
        if self.training and step.epoch != self._current_epoch():
            self._set_scale()
            self._begin(step.epoch)
        value = self.classification_loss(reverse_gradient(self.features(step), self.scale), step.labels)
        if self.training:
            self.total += value.detach()
            self.steps += 1
        return value

    def _current_epoch(self) -> int:
        if self._known_epoch is None:
            self._known_epoch = int(self.epoch)  # waits for the GPU, so not in every step
        return self._known_epoch

    def _set_scale(self) -> None:
        if int(self.steps):
            # A new tensor: a backward pass to come may still need the old one.
            self.scale = torch.full_like(self.scale, self.schedule((self.total / self.steps).item()))

    def _begin(self, epoch: int) -> None:
        self.total.zero_()
        self.steps.zero_()
        self.epoch.fill_(epoch)
        self._known_epoch = epoch
        self.trace.append(self.scale.item())

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return f"{super().extra_repr()}, threshold={self.threshold}, lambda={self.scale.item():.3f}"


def _forget_epoch(adversary: nn.Module, _: object) -> None:
    """Another epoch was loaded."""
    adversary._known_epoch = None  # type: ignore[assignment]
