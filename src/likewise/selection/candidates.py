"""The metrics that ``select`` tries by default."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from likewise import _check, losses
from likewise.data.dataset import Dataset
from likewise.data.images import ImageSet
from likewise.data.split import split_items
from likewise.distances import DTW, TAP, Cosine, CoupledGRU, Distance, Euclidean, SoftDTWDivergence
from likewise.evaluation.evaluate import evaluate
from likewise.losses.multi_similarity import MultiSimilarity
from likewise.models import (
    TCN,
    AttendedFeatures,
    EfficientNetLite,
    Embedder,
    FrameMLP,
    GRUEncoder,
    Metric,
    RandomCrop,
)

BANDS = (0.0, 0.02, 0.05, 0.1, 0.2, None)  # of DTW
MOST_COMPARED = 300  # items that choose the band of DTW
RATE = 1e-4  # of learning, for pretrained weights
LAYERS = ("blocks.10", "blocks.15")  # of EfficientNet-Lite, whose features are attended to


@dataclass(frozen=True)
class Candidate:
    """A metric that may suit the data.

    name: its name in rankings and folders. about: one line.
    make: a function of the training data that returns the untrained metric; it raises ValueError or ImportError, with
        the reason, where the metric does not suit the data.
    learns: whether to train it. loss: a function without arguments that makes its loss; None leaves it to ``fit``.
    settings: further arguments of ``fit``.

    Example:
        >>> Candidate("euclidean", "frame by frame", lambda data: Metric(None, Euclidean()), learns=False).name
        'euclidean'
    """

    name: str
    about: str
    make: Callable[[Dataset], Metric]
    learns: bool = True
    loss: Callable[[], Any] | None = None
    settings: tuple[tuple[str, Any], ...] = ()


def candidates_for(data: Dataset) -> tuple[Candidate, ...]:
    """The candidates for sequences or for images: one that learns nothing, to compare with, and several that learn.

    Example:
        >>> import torch
        >>> [candidate.name for candidate in candidates_for(Dataset(torch.zeros(4, 3, 2), [0, 0, 1, 1]))]
        ['dtw', 'soft-dtw', 'tap', 'coupled-gru', 'vectors']
    """
    return IMAGES if isinstance(data, ImageSet) else SEQUENCES


def tuned_dtw(data: Dataset) -> Metric:
    """DTW with the band whose mean average precision among the training items is the highest, each left out of its own.

    At most 300 items are compared, drawn by class; of equal bands, the narrowest counts.

    Example:
        >>> import torch
        >>> early, late = torch.zeros(4, 20, 1), torch.zeros(4, 20, 1)
        >>> early[range(4), range(4)] = late[range(4), range(16, 20)] = 1.0
        >>> tuned_dtw(Dataset(torch.cat([early, late]), [0] * 4 + [1] * 4)).distance
        DTW(ground='sqeuclidean', band=0.1)
    """
    if len(data) > MOST_COMPARED:
        data = data[split_items("tuned_dtw", data.labels, len(data), MOST_COMPARED / len(data))[1]]
    scores = [evaluate(DTW(band=band), data).map for band in BANDS]
    return Metric(None, DTW(band=BANDS[scores.index(max(scores))]))


def named_candidate(metric: str, encoder: str | None = None, loss: str | None = None) -> Candidate:
    """A candidate from names: of a distance, an encoder and a loss; each has its usual encoder and loss.

    Example:
        >>> named_candidate("soft-dtw", loss="triplet").name
        'soft-dtw, tcn, triplet'
    """
    for what, name, known in (("metric", metric, DISTANCES), ("encoder", encoder, ENCODERS), ("loss", loss, LOSSES)):
        if name is not None and name not in known:
            _check.refuse("named_candidate", f"there is no {what} {name!r}; expected one of {', '.join(known)}")
    distance, usual = DISTANCES[metric]
    chosen = usual if encoder is None else encoder
    name = ", ".join(part for part in (metric, chosen, loss) if part and part != "none")
    if metric == "dtw" and chosen == "none":
        return Candidate(name, "DTW, its band tuned by leave-one-out", tuned_dtw, learns=False)
    return Candidate(
        name,
        f"{metric} between items encoded by {chosen}" if chosen != "none" else metric,
        lambda data: Metric(ENCODERS[chosen](data), distance(data)),
        learns=chosen != "none" or metric in ("tap", "coupled-gru"),
        loss=None if loss is None else LOSSES[loss],
        settings=(("lr", RATE),) if chosen in ("efficientnet", "attended") else (),
    )


def _channels(data: Dataset) -> int:
    if isinstance(data, ImageSet):
        _check.refuse("encoder", "this one is for sequences; for images, use efficientnet or attended")
    return data.items.channels


def _cropped(make: Callable[[EfficientNetLite], Any]) -> Callable[[Dataset], RandomCrop]:
    """An image encoder from a pretrained backbone, with random crops while it is trained."""

    def made(data: Dataset) -> RandomCrop:
        if not isinstance(data, ImageSet) or data.items.shape[1] != 3:
            _check.refuse("encoder", "the pretrained ones are for images of three channels")
        return RandomCrop(make(EfficientNetLite(0)), max(32, min(data.items.shape[2:]) * 7 // 8))

    return made


_plain = _cropped(lambda backbone: backbone)
_embedded = _cropped(lambda backbone: Embedder(backbone, 64))
_attended = _cropped(lambda backbone: Embedder(AttendedFeatures(backbone, LAYERS), 64))

SEQUENCES = (
    Candidate("dtw", "DTW, its band tuned by leave-one-out", tuned_dtw, learns=False),
    Candidate(
        "soft-dtw",
        "soft-DTW divergence between frames encoded by a TCN",
        lambda data: Metric(TCN(_channels(data)), SoftDTWDivergence()),
    ),
    Candidate("tap", "TAP between frames encoded by an MLP", lambda data: Metric(FrameMLP(_channels(data)), TAP())),
    Candidate("coupled-gru", "coupled GRU", lambda data: Metric(None, CoupledGRU(_channels(data)))),
    Candidate(
        "vectors",
        "one vector per sequence from a TCN, with the multi-similarity loss",
        lambda data: Metric(TCN(_channels(data), steps=False), Euclidean()),
        loss=lambda: losses.Relative(MultiSimilarity(threshold=1.0)),
    ),
)
IMAGES = (
    Candidate(
        "pretrained",
        "EfficientNet-Lite with its ImageNet weights",
        lambda data: Metric(_plain(data), Cosine()),
        learns=False,
    ),
    Candidate(
        "embedding",
        "EfficientNet-Lite and a linear layer, with the multi-similarity loss",
        lambda data: Metric(_embedded(data), Cosine()),
        loss=MultiSimilarity,
        settings=(("lr", RATE),),
    ),
    Candidate(
        "attended",
        "attended features of EfficientNet-Lite, with the multi-similarity loss",
        lambda data: Metric(_attended(data), Cosine()),
        loss=MultiSimilarity,
        settings=(("lr", RATE),),
    ),
)

ENCODERS: dict[str, Callable[[Dataset], Any]] = {
    "none": lambda data: None,
    "frame-mlp": lambda data: FrameMLP(_channels(data)),
    "tcn": lambda data: TCN(_channels(data)),
    "tcn-vector": lambda data: TCN(_channels(data), steps=False),
    "gru-vector": lambda data: GRUEncoder(_channels(data)),
    "efficientnet": _embedded,
    "attended": _attended,
}
DISTANCES: dict[str, tuple[Callable[[Dataset], Distance], str]] = {  # and the usual encoder
    "dtw": (lambda data: DTW(), "none"),
    "soft-dtw": (lambda data: SoftDTWDivergence(), "tcn"),
    "tap": (lambda data: TAP(), "frame-mlp"),
    "coupled-gru": (lambda data: CoupledGRU(_channels(data)), "none"),
    "euclidean": (lambda data: Euclidean(), "tcn-vector"),
    "cosine": (lambda data: Cosine(), "tcn-vector"),
}
LOSSES: dict[str, Callable[[], Any]] = {
    "binomial-deviance": losses.BinomialDeviance,
    "contrastive": losses.Contrastive,
    "hard-mining": lambda: losses.Relative(losses.HardMiningMeans()),
    "multi-similarity": MultiSimilarity,
    "soft-nearest-neighbor": losses.SoftNearestNeighbor,
    "triplet": losses.Triplet,
}
