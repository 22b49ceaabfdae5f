"""What the recipe of unseen classes puts together: encoders, losses, and what is added to them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import likewise as lw
from likewise.models.backbones import EfficientNetLite
from likewise.models.random_crop import RandomCrop
from likewise.recipes.unseen_classes_data import SKELETONS, Part
from likewise.recipes.unseen_classes_sequences import InParts, Motion, TurnedSkeletons
from likewise.regularizers import (
    EnergyConfusion,
    JointMeanDiscrepancy,
    JointRepresentationSimilarity,
    MarginalSimilarity,
)

LOSSES = ("triplet", "angular", "proxy_nca", "am_softmax")
# The weight of each addition, where --strength and --alpha say nothing: those of the papers where they have one.
WEIGHTS = {"gdfl": 0.0, "soft_adv": 0.5, "adapt_adv": 0.5, "energy": 0.1, "jrd": 1.0, "mrd": 1.0, "jmmd": 0.1}
BY_STRENGTH, BY_ALPHA = {"soft_adv", "adapt_adv", "energy"}, {"jrd", "mrd", "jmmd"}
ALL = "gdfl+soft_adv+jrd"
ENCODERS: dict[str, Callable[[int], Any]] = {
    "lite0": lambda channels: EfficientNetLite(0),
    "small": lambda channels: lw.SmallCNN(channels, out=128, normalize=False),
    "tcn": lambda channels: InParts(lw.TCN(channels, hidden=64, layers=3)),
    "gru": lambda channels: lw.GRUEncoder(channels, hidden=64, layers=2, bidirectional=True),
}
# Three layers near the end, as the paper takes them of BN-Inception; of a GRU, all states. Of sequences the last vector
# is put beside them: it has the order, which no weighted mean over time has.
ATTENDED = {
    "lite0": ("blocks.10", "blocks.15", "head"),
    "small": ("norms.1", "norms.2"),
    "tcn": ("encoder.convolutions.0", "encoder.convolutions.1", "encoder.convolutions.2"),
    "gru": ("gru",),
}
HIDDEN = 16  # of attention over time: the last vector's width would cost as much as a layer of so small an encoder
PRETRAINED = {"lite0"}
FOR_SEQUENCES = {"tcn", "gru"}
JITTER = {"offset": 0.3, "scale": 0.1, "noise": 0.2}  # of spoken digits, as the recipe of TAP chose them


@dataclass(frozen=True)
class Settings:
    """One row of a table. Numbers are of the papers, or were chosen on held-out training classes."""

    data: str = "flowers102"
    loss: str = "triplet"
    add: str = "none"
    encoder: str = "lite0"
    embedding: int = 64
    crop: int = 112  # side of what the encoder sees
    area: float = 0.2  # least share of an image in a crop
    flip: bool = True
    epochs: int = 12  # at most, where their number is chosen
    batch_size: int = 100
    lr_backbone: float = 1e-4
    lr: float = 1e-3  # of the embedding, and of attention
    lr_loss: float = 1e-2  # of proxies and centres
    lr_adversary: float = 1e-3
    decay: float = 0.94  # of the learning rates, each epoch
    weight_decay: float = 1e-4
    strength: float | None = None  # lambda of the adversaries, weight of the energy
    alpha: float | None = None  # weight of the similarity of classes
    factor: float = 1.0  # of both, and of the ceiling: with --tune chosen for each row
    ceiling: float = 0.1  # of the adaptive adversary's lambda
    precision: str = "32-true"
    held_out: float = 0.5  # share of the training classes that epochs and weights are chosen on

    @property
    def added(self) -> set[str]:
        """What is added to the loss."""
        words = set((ALL if self.add == "all" else self.add).split("+")) - {"none"}
        unknown = words - WEIGHTS.keys()
        if unknown:
            known = ", ".join(["none", *WEIGHTS, "all"])
            raise SystemExit(f"error: unknown addition {min(unknown)!r}; expected some of {known}, joined by +")
        return words

    def weight(self, addition: str) -> float:
        """How much an addition counts."""
        given = self.strength if addition in BY_STRENGTH else self.alpha
        return self.factor * (WEIGHTS[addition] if given is None else given)


def make_encoder(settings: Settings, channels: int) -> lw.Embedder:
    """The embedding of a backbone's features, or of those that are attended."""
    name, layers = settings.encoder, ATTENDED[settings.encoder]
    if settings.data in SKELETONS:
        features, layers = Motion(ENCODERS[name](2 * channels), channels), [f"encoder.{layer}" for layer in layers]
    else:
        features = ENCODERS[name](channels)
    if name in PRETRAINED:
        lw.freeze_batch_norm(features)
        features.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # half the GPU's time a step
    if "gdfl" in settings.added:
        attention = lw.Additive(HIDDEN if name in FOR_SEQUENCES else None)
        features = lw.AttendedFeatures(features, layers, attention, with_last=name in FOR_SEQUENCES)
    seen: nn.Module
    if settings.data in SKELETONS:
        seen = TurnedSkeletons(features)
    elif name in FOR_SEQUENCES:
        seen = lw.Jitter(features, **JITTER)
    else:
        seen = RandomCrop(features, settings.crop, area=(settings.area, 1.0), flip=settings.flip)
    return lw.Embedder(seen, settings.embedding, channels=features.out)


def make_loss(settings: Settings, classes: int) -> Any:
    """The base loss."""
    match settings.loss:
        case "triplet":
            return lw.losses.Triplet(0.1, mining=lw.losses.semi_hard_triplets)
        case "angular":
            return lw.losses.Angular(45.0)
        case "proxy_nca":
            return lw.losses.ProxyNCA(classes, settings.embedding)
        case _:
            return lw.losses.AMSoftmax(classes, settings.embedding)


def make_sampler(settings: Settings, labels: Tensor, seed: int) -> lw.BatchSampler | None:
    """Batches with pairs of a class, for losses that need them: 4 of a class for triplets, 2 for angular."""
    wanted = {"triplet": 4, "angular": 2}.get(settings.loss)
    if wanted is None:
        return None
    count = labels.bincount()
    each = min(wanted, int(count.min()))
    together = max(2, min(settings.batch_size // each, len(count)))
    return lw.MPerClass(labels, each * together, each, batches=max(1, len(labels) // (each * together)), seed=seed)


def make_additions(settings: Settings, loss: Any) -> tuple[list[lw.Regularizer], lw.ClassAdversary | None]:
    """Terms of ``fit``, and its adversary."""
    added = settings.added
    layers: Sequence[Any] = ["backbone", None, *_class_scores(loss)]
    functions = {
        "energy": (EnergyConfusion(), None),
        "jrd": (JointRepresentationSimilarity(), layers),
        "mrd": (MarginalSimilarity(), None),
        "jmmd": (JointMeanDiscrepancy(), layers),
    }
    terms = [
        lw.Regularizer(function, settings.weight(name), of=of)
        for name, (function, of) in functions.items()
        if name in added
    ]
    if "soft_adv" in added:
        return terms, lw.SoftAdversary(settings.weight("soft_adv"))
    if "adapt_adv" in added:
        return terms, lw.AdaptiveAdversary(settings.weight("adapt_adv"), ceiling=settings.factor * settings.ceiling)
    return terms, None


def _class_scores(loss: Any) -> list[Callable[[Tensor], Tensor]]:
    """How items lie to the classes, where the loss knows: the last layer of JRD."""
    if isinstance(loss, lw.losses.AMSoftmax):
        return [loss.cosines]
    return [loss.distances] if isinstance(loss, lw.losses.ProxyNCA) else []


def make_rates(settings: Settings, loss: Any, adversary: object) -> dict[str, float]:
    """Learning rates of the backbone, of proxies, of the adversary, and of the rest."""
    rates = {"encoder.backbone": settings.lr_backbone, "rest": settings.lr}
    if "gdfl" in settings.added:
        rates["encoder.backbone.encoder.attentions"] = settings.lr
    if isinstance(loss, nn.Module) and any(True for _ in loss.parameters()):
        rates["loss"] = settings.lr_loss
    if adversary is not None:
        rates["adversary"] = settings.lr_adversary
    return rates


def scores(metric: lw.Metric, part: Part, *, starts: int = 10) -> dict[str, Any]:
    """NMI, Recall@1, 2, 4 and 8, and the share of items of which 3 of the 5 nearest have their label.

    Where items have groups, those of one's own group come last, and recall_any is Recall@k among all others.
    """
    vectors = metric.embed(part.items)
    ks = [k for k in (1, 2, 4, 8) if k < len(part)]
    found = lw.evaluate(lw.Euclidean(), (vectors, part.labels), ks=ks)  # type: ignore[arg-type]
    among_all = {}
    if part.groups is not None:
        among_all = {"recall_any": {str(k): found.recall[k] for k in ks}}
        D = lw.Euclidean().matrix(vectors)
        groups = part.groups.to(D.device)
        own = groups[:, None] == groups
        found = lw.evaluate_matrix(torch.where(own, D + D.max() + 1, D), part.labels, ks=ks)
    return {
        "nmi": lw.clustering_agreement(vectors, part.labels, starts=starts),  # type: ignore[arg-type]
        "recall": {str(k): found.recall[k] for k in ks},
        "knn": found.vote,
        "map_at_r": found.map_at_r,
        **among_all,
    }


def untrained(settings: Settings, part: Part) -> dict[str, Any]:
    """Scores of the backbone's features as they come, at unit length."""
    torch.manual_seed(0)
    encoder = make_encoder(Settings(data=settings.data, encoder=settings.encoder, crop=settings.crop), part.channels)
    metric = lw.Metric(encoder.backbone, lw.Euclidean()).to(part.items.device)
    vectors = nn.functional.normalize(metric.embed(part.items), dim=1)  # type: ignore[arg-type]
    return scores(lw.Metric(None, lw.Euclidean()), Part(vectors, part.labels, part.groups))
