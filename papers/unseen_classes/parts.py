"""The components of the tables' rows: encoders, losses and additions to them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import likewise as lw
from likewise.models.layers import FeatureMap
from likewise.regularizers import (
    ConcatenatedSimilarity,
    EnergyConfusion,
    IntraClassPenalty,
    JointMeanDiscrepancy,
    JointRepresentationSimilarity,
    MarginalSimilarity,
    kernels,
)
from papers.tap.data_few_shot import TurnedSkeletons
from papers.unseen_classes.data import SKELETONS
from papers.unseen_classes.encoders import InParts, Motion, Pooled
from papers.unseen_classes.frozen import KeptMaps

LOSSES = ("triplet", "angular", "proxy_nca", "am_softmax")
# The weight of each addition, where --strength and --alpha are not given: those of the papers where they have one.
WEIGHTS = {
    "gdfl": 0.0, "pooled": 0.0, "soft_adv": 0.5, "adapt_adv": 0.5, "energy": 0.1, "jrd": 1.0, "mrd": 1.0, "jmmd": 0.1,
    "jrd_c": 1.0, "jrd_pooling": 1.0, "intra": 0.1,
}  # fmt: skip
BY_STRENGTH = {"soft_adv", "adapt_adv", "energy"}
BY_ALPHA = {"jrd", "mrd", "jmmd", "jrd_c", "jrd_pooling", "intra"}
KERNELS: dict[str, Callable[[], Any]] = {
    "gaussian": lambda: None,  # the paper's mixtures
    "laplace": kernels.Laplace,
    "polynomial": lambda: kernels.Polynomial(2),
    "polynomial5": lambda: kernels.Polynomial(5),
    "mgf": kernels.MomentGenerating,
}
ENCODERS: dict[str, Callable[[int], Any]] = {
    "lite0": lambda channels: lw.EfficientNetLite(0),
    "small": lambda channels: lw.models.SmallCNN(channels, out=128, normalize=False),
    "tcn": lambda channels: InParts(lw.TCN(channels, hidden=64, layers=3, standardize=False)),
    "frozen": lambda channels: KeptMaps(),
}
# Three layers near the end, as the paper takes them of BN-Inception. For sequences the last vector is put beside them:
# it has the order, which no weighted mean over time has.
ATTENDED = {
    "lite0": ("blocks.10", "blocks.15", "head"),
    "small": ("norms.1", "norms.2"),
    "tcn": ("encoder.convolutions.0", "encoder.convolutions.1", "encoder.convolutions.2"),
    "frozen": ("maps.0", "maps.1", "maps.2"),
}
# The map that the encoder's last vector is the mean of, as the Embedder names it: JRD-Pooling takes its maximum.
LAST_MAPS = {"lite0": "backbone.encoder.head", "small": "backbone.encoder.norms.2",
             "tcn": "backbone.encoder.encoder.convolutions.2", "frozen": "backbone.maps.2"}  # fmt: skip
HIDDEN = 16  # of attention over time: the last vector's width would cost as much as a layer of so small an encoder
PRETRAINED = {"lite0"}
FOR_SEQUENCES = {"tcn"}
JITTER = {"offset": 0.3, "scale": 0.1, "noise": 0.2}  # of spoken digits, as chosen for TAP


@dataclass(frozen=True)
class Settings:
    """One row of a table. Numbers are of the papers, or were chosen on held-out training classes.

    None stands for what suits the data and the loss: see ``completed`` in run.py.
    """

    data: str = "flowers102"
    loss: str = "triplet"
    add: str = "none"
    encoder: str | None = None
    embedding: int | None = None
    crop: int | None = None  # side of what the encoder sees
    area: float = 0.2  # least share of an image in a crop
    flip: bool = True
    epochs: int | None = None  # at most: their number is chosen
    batch_size: int | None = None
    lr_backbone: float | None = None
    lr: float | None = None  # of the embedding, and of attention
    lr_loss: float = 1e-2  # of proxies and centres
    lr_adversary: float = 1e-3
    decay: float | None = None  # of the learning rates, each epoch
    drop_every: int | None = None  # lower them to a tenth every so many epochs instead, as JRD's code does
    eps: float = 1e-8  # of Adam; JRD's code has 0.01
    margin: float = 0.1  # of triplets; the paper has 0.01
    weight_decay: float = 1e-4
    strength: float | None = None  # lambda of the adversaries, weight of the energy
    alpha: float | None = None  # weight of the similarity of classes
    factor: float = 1.0  # times both, and the ceiling: chosen for each row
    ceiling: float = 0.1  # of the adaptive adversary's lambda; inf for the paper's, which has none
    threshold: float | None = None  # of the adaptive adversary, as a share of ln C; 1.5 whatever C is, without
    kernel: str = "gaussian"  # of JRD
    precision: str | None = None
    validate: bool = False  # stop after the held-out classes

    @property
    def added(self) -> set[str]:
        """The additions to the loss."""
        words = set(self.add.split("+")) - {"none", "untrained"}
        unknown = words - WEIGHTS.keys()
        if unknown:
            known = ", ".join(["none", *WEIGHTS])
            raise SystemExit(f"error: unknown addition {min(unknown)!r}; expected some of {known}, joined by +")
        return words

    def weight(self, addition: str) -> float:
        """How much an addition counts."""
        given = self.strength if addition in BY_STRENGTH else self.alpha
        return self.factor * (WEIGHTS[addition] if given is None else given)


def make_encoder(settings: Settings, train: lw.Dataset) -> lw.Embedder:
    """The embedding of a backbone's features, or of those that are attended."""
    name, layers = settings.encoder, ATTENDED[settings.encoder]
    channels = train.items.shape[1] if isinstance(train.items, Tensor) else train.items.channels
    if settings.data in SKELETONS:
        features, layers = Motion(ENCODERS[name](2 * channels), channels), [f"encoder.{layer}" for layer in layers]
    else:
        features = ENCODERS[name](channels)
    if name in PRETRAINED:
        lw.models.freeze_batch_norm(features)
        features.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # half the GPU's time a step
    example = train.items[:1] if name == "frozen" else None
    if "gdfl" in settings.added:
        attention = lw.models.Additive(HIDDEN if name in FOR_SEQUENCES else None)
        features = lw.AttendedFeatures(features, layers, attention, with_last=name in FOR_SEQUENCES, example=example)
    elif "pooled" in settings.added:
        features = Pooled(features, layers, with_last=name in FOR_SEQUENCES, example=example)
    seen: nn.Module
    if settings.data in SKELETONS:
        seen = TurnedSkeletons(features)
    elif name == "frozen":
        seen = features
    elif name in FOR_SEQUENCES:
        seen = lw.models.Jitter(features, **JITTER)
    else:
        seen = lw.models.RandomCrop(features, settings.crop, area=(settings.area, 1.0), flip=settings.flip)
    return lw.Embedder(seen, settings.embedding, channels=features.out)


def make_loss(settings: Settings, classes: int) -> Any:
    """The base loss."""
    match settings.loss:
        case "triplet":
            return lw.losses.Triplet(settings.margin, mining=lw.losses.semi_hard_triplets)
        case "angular":
            return lw.losses.Angular(45.0)
        case "proxy_nca":
            return lw.losses.ProxyNCA(classes, settings.embedding)
        case _:
            return lw.losses.AMSoftmax(classes, settings.embedding)


def make_sampler(settings: Settings, codes: Tensor, seed: int) -> lw.data.BatchSampler:
    """Shuffled batches; for losses of pairs, with 4 items of a class for triplets, 2 for angular."""
    wanted = {"triplet": 4, "angular": 2}.get(settings.loss)
    if wanted is None:
        return lw.data.Shuffled(len(codes), min(settings.batch_size, len(codes)), drop_last=True, seed=seed)
    count = codes.bincount()
    each = min(wanted, int(count.min()))
    together = max(2, min(settings.batch_size // each, len(count)))
    return lw.data.MPerClass(codes, each * together, each, batches=max(1, len(codes) // (each * together)), seed=seed)


def make_terms(settings: Settings, loss: Any) -> tuple[list[Any], lw.training.ClassAdversary | None]:
    """Terms of ``fit``, and which of them is the adversary."""
    added = settings.added
    layers: Sequence[Any] = ["backbone", None, *_class_scores(loss)]
    kernel = KERNELS[settings.kernel]()
    functions = {
        "energy": (EnergyConfusion(), None),
        "jrd": (JointRepresentationSimilarity(kernel), layers),
        "mrd": (MarginalSimilarity(kernel), None),
        "jmmd": (JointMeanDiscrepancy(kernel), layers),
        "jrd_c": (ConcatenatedSimilarity(kernel), layers),
        "jrd_pooling": (JointRepresentationSimilarity(kernel), [LAST_MAPS[settings.encoder], *layers[1:]]),
        "intra": (IntraClassPenalty(), None),
    }
    terms: list[Any] = [
        lw.training.Regularizer(
            function, settings.weight(name), of=of, pool=FeatureMap.max if name == "jrd_pooling" else FeatureMap.mean
        )
        for name, (function, of) in functions.items()
        if name in added
    ]
    adversary: lw.training.ClassAdversary | None = None
    if "soft_adv" in added:
        adversary = lw.training.SoftAdversary(settings.weight("soft_adv"))
    elif "adapt_adv" in added:
        ceiling, share = settings.factor * settings.ceiling, settings.threshold
        adversary = lw.training.AdaptiveAdversary(settings.weight("adapt_adv"), ceiling=ceiling, threshold_share=share)
    return terms if adversary is None else [*terms, adversary], adversary


def _class_scores(loss: Any) -> list[Callable[[Tensor], Tensor]]:
    """The scores of items for the classes, where the loss has them: the last layer of JRD."""
    if isinstance(loss, lw.losses.AMSoftmax):
        return [loss.cosines]
    return [loss.distances] if isinstance(loss, lw.losses.ProxyNCA) else []


def make_rates(settings: Settings, loss: Any, terms: list[Any], adversary: object) -> dict[str, float]:
    """Learning rates of the backbone, of proxies, of the adversary, and of the rest."""
    rates = {"rest": settings.lr}
    if settings.encoder != "frozen":
        rates["encoder.backbone"] = settings.lr_backbone
        if "gdfl" in settings.added:
            rates["encoder.backbone.encoder.attentions"] = settings.lr
    if isinstance(loss, nn.Module) and any(True for _ in loss.parameters()):
        rates["loss"] = settings.lr_loss
    if adversary is not None:
        rates[f"terms.{terms.index(adversary)}"] = settings.lr_adversary
    return rates


def scores(metric: lw.Metric, data: lw.Dataset, *, starts: int = 10) -> dict[str, Any]:
    """The scores of a line, from what the metric's encoder gives."""
    return scores_of(metric.embed(data.items), data, starts=starts)  # type: ignore[arg-type]


def scores_of(vectors: Tensor, data: lw.Dataset, *, starts: int = 10) -> dict[str, Any]:
    """NMI, Recall@1, 2, 4 and 8, and the share of items of which 3 of the 5 nearest have their label.

    Where items have groups, those of one's own group come last, and recall_any is Recall@k among all others.
    """
    ks = [k for k in (1, 2, 4, 8) if k < len(data)]
    D = lw.Euclidean().matrix(vectors)
    found = lw.evaluation.evaluate_matrix(D, data.codes, ks=ks)
    among_all = {}
    if data.groups is not None:
        among_all = {"recall_any": {str(k): found.recall[k] for k in ks}}
        groups = torch.from_numpy(data.groups)
        own = (groups[:, None] == groups).to(D.device)
        found = lw.evaluation.evaluate_matrix(torch.where(own, D + D.max() + 1, D), data.codes, ks=ks)
    return {
        "nmi": lw.evaluation.clustering_agreement(vectors, data.codes, starts=starts),
        "recall": {str(k): found.recall[k] for k in ks},
        "knn": found.vote,
        "map_at_r": found.map_at_r,
        **among_all,
    }


def untrained(settings: Settings, train: lw.Dataset, test: lw.Dataset) -> dict[str, Any]:
    """Scores of the backbone's features as they come, at unit length."""
    torch.manual_seed(0)
    metric = lw.Metric(make_encoder(settings, test).backbone, lw.Euclidean()).to(test.items.device)
    seen, unseen = (nn.functional.normalize(metric.embed(part.items), dim=1) for part in (train, test))  # type: ignore[arg-type]
    return scores_of(unseen, test) | {"transfer": transfer_terms(seen, train.codes, unseen, test.codes)}


def transfer_terms(seen: Tensor, seen_labels: Tensor, unseen: Tensor, unseen_labels: Tensor) -> dict[str, float]:
    """Ben-David's terms by nearest neighbours, which JRD's slides report without a definition; this is our reading.

    lambda_nn: the error of the best single classifier on both, taken to be the nearest neighbour among all items, seen
    and unseen, that has all their labels. divergence_nn: 2 (1 - 2 e), with e the error of the nearest neighbour that
    tells seen items from unseen ones; 0 where they cannot be told apart. Each item is left out of its own neighbours.
    """
    x = torch.cat([seen, unseen])
    domain = torch.cat([torch.zeros(len(seen)), torch.ones(len(unseen))]).long()
    labels = torch.cat([seen_labels, unseen_labels + int(seen_labels.max()) + 1]).cpu()
    D = lw.Euclidean().matrix(x).fill_diagonal_(torch.inf).cpu()
    nearest = D.argmin(1)
    wrong = (labels[nearest] != labels).double()
    combined = float(wrong[domain == 0].mean() + wrong[domain == 1].mean()) / 2
    confused = (domain[nearest] != domain).double()
    error = float(confused[domain == 0].mean() + confused[domain == 1].mean()) / 2
    return {"lambda_nn": combined, "divergence_nn": max(0.0, 2 * (1 - 2 * error))}
