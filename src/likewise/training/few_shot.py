"""Learning from episodes: the loss of an episode as a step of ``fit``, and validation by episodes."""

import math

import torch
from torch import Tensor, nn

from likewise import _check
from likewise._modes import evaluating
from likewise.data.episodes import Episodes
from likewise.evaluation.few_shot import FewShotScore, few_shot_accuracy_matrix
from likewise.evaluation.retrieval import mean_average_precision
from likewise.evaluation.shots import Combine, mean_shot
from likewise.models.metric import Encoded, Metric, take
from likewise.training.source import Source
from likewise.training.step import Step
from likewise.training.validation import embed


class EpisodeLoss(nn.Module):
    """A step of ``fit``: the cross entropy of the queries of episodes, with logits that are distances to the classes.

    The logit of query q and class n is -scale times the mean over the class's shots s of d(q, s) + d(s, q), or of d(q,
    s) alone if d is symmetric. Only these distances are computed, in one call for a batch.

    episodes: the sampler that ``fit`` draws from: ``fit(metric, train, sampler=episodes, step=EpisodeLoss(episodes))``.
        With fit(augment=...), the augmented items replace the original ones.
    scale: the factor of the logits; with learn_scale, it is learned.
    combine: how the shots of a class are combined, as in ``few_shot_accuracy``; the mean by default.
    prototypes: subtract half the mean of d(s, s') over all pairs of shots of the class; see ``class_distances``.

    Reference: Su & Wen, Temporal alignment prediction (ICLR 2022), equations 8 and 9. As in its code, distances are
    averaged over the shots, where equation 8 has the sum, and losses over the queries.

    Example:
        >>> from likewise.distances.tap import TAP
        >>> from likewise.training.fit import fit
        >>> x, y = torch.randn(12, 5, 2), torch.arange(12) % 3
        >>> episodes = Episodes(y, ways=3, shots=1, queries=2, batches=2)
        >>> step = EpisodeLoss(episodes)
        >>> history = fit(TAP(4), (x, y), sampler=episodes, step=step, epochs=1, verbose=False)
        >>> len(history.losses)
        1
    """

    def __init__(
        self,
        episodes: Episodes,
        *,
        scale: float = 1.0,
        learn_scale: bool = False,
        combine: Combine = mean_shot,
        prototypes: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(episodes, Episodes):
            raise TypeError(f"EpisodeLoss: expected episodes to be an Episodes, got {type(episodes).__name__}")
        if prototypes and combine is not mean_shot:
            _check.refuse("EpisodeLoss", "prototypes need combine=mean_shot")
        self.episodes = episodes
        self.combine, self.prototypes = combine, prototypes
        start = torch.tensor(math.log(_check.positive("EpisodeLoss", "scale", scale)))
        self.log_scale = nn.Parameter(start, requires_grad=learn_scale)

    def forward(self, step: Step) -> Tensor:
        """The loss, a scalar."""
        features = step.features if step.augmented_features is None else step.augmented_features
        if len(features) != self.episodes.batch_size:
            sizes = f"{len(features)} items, but episodes have {self.episodes.batch_size}"
            _check.refuse("EpisodeLoss", f"the batch has {sizes}; pass the same Episodes to fit as sampler")
        apart = self.class_distances(step.metric, features)  # (E, ways, queries, ways)
        ways = apart.shape[-1]
        truth = torch.arange(ways, device=apart.device).repeat_interleave(apart.shape[2]).repeat(len(apart))
        logits = -self.log_scale.exp().to(apart.device) * apart.reshape(-1, ways)
        return nn.functional.cross_entropy(logits, truth)

    def class_distances(self, metric: Metric, features: Encoded) -> Tensor:
        """Distances between each query and each class, (E, ways, queries, ways), from the encoded items of a batch."""
        support, query = self.episodes.support, self.episodes.query
        q, s = torch.broadcast_tensors(query[:, :, :, None, None], support[:, None, None])
        directions = [(q, s)] if metric.distance.symmetric else [(q, s), (s, q)]
        apart = self.combine(_distances(metric, features, directions).sum(0))
        if self.prototypes:
            pair = torch.broadcast_tensors(support[..., None], support[..., None, :])
            own = _distances(metric, features, [pair])[0].mean((2, 3))  # (E, ways), both directions of every pair
            apart = apart - own[:, None, None] * len(directions) / 2
        return apart


class EpisodeValidation:
    """Validation for ``fit(val=...)`` by the mean accuracy on episodes of held-out classes.

    data: a Dataset, or a pair (items, labels), of classes that are not trained on. episodes: an Episodes of their
    labels; the same ``count`` episodes are drawn each time, from one matrix of all distances between the items, whose
    mean average precision is measured too. combine, prototypes: as in ``EpisodeLoss``.

    Example:
        >>> from likewise.distances.dtw import DTW
        >>> x, y = torch.arange(8.0)[:, None, None].expand(-1, 3, 1), torch.arange(8) // 4
        >>> validation = EpisodeValidation((x, y), Episodes(y, ways=2, queries=1), count=100)
        >>> validation.few_shot(Metric(None, DTW()))
        FewShotScore(8... % ± ... %, 100 episodes)
    """

    def __init__(
        self,
        data: object,
        episodes: Episodes,
        *,
        count: int = 1000,
        combine: Combine = mean_shot,
        prototypes: bool = False,
    ) -> None:
        self.source = Source.of("the data of EpisodeValidation", data, need_labels=True)
        self.episodes = episodes
        self.count = _check.whole("EpisodeValidation", "count", count, least=2)
        self.combine, self.prototypes = combine, prototypes

    def __call__(self, metric: Metric) -> dict[str, float]:
        """Mean accuracy of the episodes, and mean average precision."""
        D = self._matrix(metric)
        return {"accuracy": self._score(D).accuracy, "map": mean_average_precision(D, self.source.codes)}

    def few_shot(self, metric: Metric) -> FewShotScore:
        """The accuracy of the episodes, with its interval."""
        return self._score(self._matrix(metric))

    def _score(self, D: Tensor) -> FewShotScore:
        drawn = self.episodes.take(self.count)
        return few_shot_accuracy_matrix(D, *drawn, combine=self.combine, prototypes=self.prototypes)

    def _matrix(self, metric: Metric) -> Tensor:
        with torch.no_grad(), evaluating(metric):
            return metric.distance.matrix(embed(metric, self.source))


def _distances(metric: Metric, features: Encoded, pairs: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Distances (len(pairs), ...) between items of a batch, whose indices are in ``pairs``; in one call."""
    left, right = (torch.stack(side) for side in zip(*pairs, strict=True))
    found = metric.distance(take(features, left.flatten()), take(features, right.flatten()))
    return found.reshape(left.shape)
