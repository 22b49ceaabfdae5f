"""Regularizer: a function of features and labels as a term of ``fit``."""

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from likewise import _check
from likewise.models.layers import FeatureMap, as_map
from likewise.training.step import Step

# The source of features: the name of a layer inside the encoder, None for the encoder's output, or a function of that.
Source = str | Callable[[Tensor], Tensor] | None


class Regularizer(nn.Module):
    """A term of ``fit``: weight * function(features, labels).

    function: ``EnergyConfusion()``, ``JointRepresentationSimilarity()`` or another function of features (B, C), or a
        list of them, and labels (B,).
    of: the source of the features: the name of a layer inside the encoder, None for the encoder's output, or a function
        of this output, such as ``loss.cosines`` of an AMSoftmax. With a list of these, the function gets a list of
        features.
    pool: how maps and sequences become vectors: ``FeatureMap.mean`` over positions, or ``FeatureMap.max``, which we
        take to be the paper's JRD-Pooling, for a layer that returns a map.

    Joint representation diversification, with an Embedder, is
    ``Regularizer(JointRepresentationSimilarity(), 1.0, of=["backbone", None, loss.cosines])``.

    Example:
        >>> import torch
        >>> from likewise import Euclidean, GRUEncoder, Metric, fit, losses
        >>> from likewise.models.embedder import Embedder
        >>> from likewise.regularizers import JointRepresentationSimilarity
        >>> metric, loss = Metric(Embedder(GRUEncoder(2, 8), 4), Euclidean()), losses.AMSoftmax(3, 4)
        >>> jrd = Regularizer(JointRepresentationSimilarity(), 1.0, of=["backbone", None, loss.cosines])
        >>> x, y = torch.randn(12, 5, 2), torch.arange(12) % 3
        >>> history = fit(metric, (x, y), loss, terms=[jrd], epochs=1, verbose=False)
        >>> len(history.losses)
        1
    """

    def __init__(
        self,
        function: Callable[..., Tensor],
        weight: float = 1.0,
        *,
        of: Source | Sequence[Source] = None,
        pool: Callable[[FeatureMap], Tensor] = FeatureMap.mean,
    ) -> None:
        super().__init__()
        if not callable(function):
            raise TypeError(f"Regularizer: expected a function of features and labels, got {type(function).__name__}")
        self.function = function
        self.weight = float(_check.number("Regularizer", "weight", weight))
        self.of = of if of is None or isinstance(of, str) or callable(of) else list(of)
        self.pool = pool
        for source in self._sources():
            if source is not None and not isinstance(source, str) and not callable(source):
                raise TypeError(f"Regularizer: expected of to be names, functions or None, got {source!r}")
        self.layers = tuple(source for source in self._sources() if isinstance(source, str))

    def forward(self, step: Step) -> Tensor:
        """The term, a scalar."""
        found = [self._features(step, source) for source in self._sources()]
        value = self.function(found if isinstance(self.of, list) else found[0], step.labels)
        return value if self.weight == 1 else self.weight * value

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return f"weight={self.weight}"

    def _sources(self) -> list[Source]:
        return self.of if isinstance(self.of, list) else [self.of]

    def _features(self, step: Step, source: Source) -> Tensor:
        if isinstance(source, str):
            return step.layer(source, self.pool)
        features = self.pool(as_map("Regularizer", "the encoder", step.features))
        return features if source is None else source(features)
