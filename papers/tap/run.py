"""TAP on speech and skeletons: a frame-wise network and a distance are trained together, and scored by retrieval.

    python -m papers.tap.run --data sad --loss hm --precision bf16-mixed --out lines.jsonl
    python -m papers.tap.run --data sad --distance softdtw --loss binomial --epochs 16 --seeds 0
    python -m papers.tap.run --data msr_action3d --epochs 100 --lr 1e-4 --no-cosine --dropout 0 --jitter 0 0 0

The defaults are ours: the encoder sees each sequence with another offset, gain and noise, a fifth of the hidden numbers
is dropped, and a larger learning rate falls to zero. Each was chosen on held-out speakers, as --validate does. The last
command trains as the paper does, but for its augmentation (--augment). The weights are those after the last epoch.

tap_ordered is our own variant, OrderedTAP, tap_symmetric the mean of both directions, and tap_ordered_symmetric both.
--turned shows the encoder each skeleton turned, stretched and in another tempo. --checks 30 60 scores after these
epochs too, as if training had ended there. --validate --fold 2 holds out the third training subject instead of every
fourth.

--self-supervised learns TAP's alignment without labels, from augmentations, on the frames as they are (Tables 6 and 7).

Every line has the k-NN accuracies of the paper's Table 6 and, for TAP, the norm ratio of Table 3; for TAP and soft-DTW
also the alignment error of Table 4. --distance tap_large, tap_deep and tap_transformer are the networks of Tables 9
and 10.
"""

import itertools
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

import torch

import likewise as lw
from likewise.training.self_supervised import mean_squares
from papers.common import (
    Run,
    accelerator,
    check_choice,
    device_name,
    emit,
    find_line,
    from_command_line,
    moved,
    thinned,
)
from papers.tap.data import READERS, held_out
from papers.tap.data_few_shot import TurnedSkeletons
from papers.tap.ordered_tap import OrderedTAP

NEIGHBORS = (1, 3, 5, 7, 15, 30)
LOSSES: dict[str, Callable[[], lw.losses.Loss]] = {
    "hm": lambda: lw.losses.HardMiningMeans(reduction="sum"),  # as in the paper's code
    "hm_hinge": lambda: lw.losses.HardMining(reduction="sum"),  # as in its text
    "lifted": lambda: lw.losses.LiftedStructure(reduction="sum"),
    "binomial": lambda: lw.losses.BinomialDeviance(reduction="sum"),
}
# Distances of soft-DTW, OTAM and DTW are sums, not means: the paper lowers both scales for them, 40 and 2 otherwise.
LOSSES_OF_SUMS = LOSSES | {
    "lifted": lambda: lw.losses.LiftedStructure(positive_scale=1, negative_scale=2, reduction="sum"),
    "binomial": lambda: lw.losses.BinomialDeviance(positive_scale=1, negative_scale=2, reduction="sum"),
}
DISTANCES: dict[str, Callable[[int], lw.Distance]] = {
    "tap": lambda channels: lw.TAP(),
    "tap_symmetric": lambda channels: lw.TAP(symmetric=True),
    "tap_ordered": lambda channels: OrderedTAP(),
    "tap_ordered_symmetric": lambda channels: OrderedTAP(symmetric=True),
    "tap_large": lambda channels: lw.TAP(kernels=(7, 7, 5)),
    "tap_deep": lambda channels: lw.TAP(kernels=(5, 5, 5, 3)),
    "tap_transformer": lambda channels: lw.TransformerTAP(channels),
    "softdtw": lambda channels: lw.SoftDTW(gamma=1.0),
    "otam": lambda channels: lw.OTAM(gamma=0.1),
    "dtw": lambda channels: lw.DTW(),
    "opw": lambda channels: lw.OPW(),
}
SUMS = ("softdtw", "otam", "dtw")


@dataclass(frozen=True)
class Settings:
    """One row of a table."""

    data: str = "sad"
    loss: str = "hm"
    distance: str = "tap"
    augment: bool = False  # learn from augmented sequences too, as the paper does
    self_supervised: bool = False  # train TAP on augmentations alone, without labels, on the frames as they are
    epochs: int = 32
    batch_size: int = 64
    lr: float = 2e-3
    cosine: bool = True  # lower the learning rate to zero along a half cosine
    dropout: float = 0.2
    jitter: tuple[float, ...] = (0.3, 0.1, 0.2)  # offset, scale and noise of the input
    weight_decay: float = 1e-4
    precision: str = "32-true"  # or another of Lightning's, or "default": that of fit without one
    turned: bool = False  # show the encoder changed skeletons
    checks: tuple[int, ...] = ()  # epochs, before the last one, after which there is a line too
    validate: bool = False  # score on training speakers or subjects that are held out
    fold: int | None = None  # which one; every fourth for None


def main(run: Run, settings: Settings) -> None:
    """Train a metric for each seed, and score it: test sequences find training sequences."""
    for name, choices in (("data", READERS), ("loss", LOSSES), ("distance", DISTANCES)):
        check_choice(f"--{name}", getattr(settings, name), choices)
    train, test = READERS[settings.data](run.data_dir)
    if settings.checks and settings.cosine:
        raise SystemExit("error: --checks needs --no-cosine: the learning rate would not have ended there")
    if settings.validate:
        train, test = held_out(train, settings.fold)
    train, test = thinned(train, run.items), thinned(test, run.items)
    for seed in run.seeds:
        about = {"recipe": "tap", **asdict(settings), "seed": seed, "train": len(train), "test": len(test)}
        if find_line(about, run.out) is None:
            for line in experiment(run, settings, seed, train, test):
                emit(about | line, run.out)


def experiment(run: Run, settings: Settings, seed: int, train: lw.Dataset, test: lw.Dataset) -> list[dict]:
    """Train and score one metric; returns the contents of its line, and of those of the checks before it."""
    train, test = moved(train, run.device), moved(test, run.device)
    torch.manual_seed(seed)
    metric = build(settings, train.items.channels)
    predicts = isinstance(metric.distance, (lw.TAP, lw.TransformerTAP))
    augment = settings.augment or settings.self_supervised
    # As in the paper's code: the loss is a sum over the batch, the self-supervised part a mean, by the batch once more.
    term = lw.training.SelfSupervised(1 if settings.self_supervised else 1 / settings.batch_size)
    losses = LOSSES_OF_SUMS if settings.distance in SUMS else LOSSES
    kept = run.kept(settings.data, settings.loss, settings.distance, f"seed {seed}")
    checks, epoch = [], itertools.count(1)

    def check(trained: lw.Metric) -> dict[str, float]:
        now = next(epoch)
        if now in settings.checks and now < settings.epochs:
            checks.append({"epochs": now, **scored(trained, train, test)})
        return {"epoch": now}  # the last one is kept

    history = lw.fit(
        metric,
        train.items if settings.self_supervised else train,
        None if settings.self_supervised else losses[settings.loss](),
        step=term if settings.self_supervised else None,
        val=lw.training.Validation(check) if settings.checks else None,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        lr=settings.lr,
        optimizer=lw.training.Optimization(
            weight_decay=settings.weight_decay,
            schedule=partial(half_cosine, epochs=settings.epochs) if settings.cosine else None,
        ),
        sampler=lw.data.Shuffled(len(train), min(settings.batch_size, len(train)), drop_last=True, seed=seed),
        augment=lw.data.RandomBlurOrMerge() if augment else None,
        terms=[term] if settings.augment and predicts and not settings.self_supervised else [],
        average=0,
        checkpoints=None if kept is None else lw.training.Checkpoints(kept, resume=True),
        seed=seed,
        verbose=False,
        accelerator=accelerator(run.device),
        precision=None if settings.precision == "default" else settings.precision,
    )
    metric.to(run.device)
    line = {
        **scored(metric, train, test),
        "loss_first_epoch": history.losses[0],
        "loss_last_epoch": history.losses[-1],
        "seconds_an_epoch": statistics.median(history.seconds),
        "wall_time": history.wall_time,
    }
    if isinstance(metric.distance, lw.TAP):
        line["norm_ratio"] = norm_ratio(metric, test.items)
    if isinstance(metric.distance, OrderedTAP):
        line |= {"temperature": metric.distance.temperature, "order": metric.distance.order}
    if predicts or settings.distance == "softdtw":
        line["alignment_mse"] = alignment_error(metric, test.items)
    return [*checks, line]


def scored(metric: lw.Metric, train: lw.Dataset, test: lw.Dataset) -> dict:
    """The retrieval scores of a line: how well the test sequences find training sequences."""
    start = time.perf_counter()
    scores = lw.evaluate(metric, test, train, ks=[k for k in NEIGHBORS if k <= len(train)])
    seconds = time.perf_counter() - start
    return {
        "accuracy": scores.accuracy,
        "map": scores.map,
        "f1": scores.f1,
        "knn": {str(k): v for k, v in scores.knn.items()},
        "test_seconds": seconds,
        "pairs_a_second": len(train) * len(test) / seconds,
        "device": device_name(train.items.device),
    }


def build(settings: Settings, channels: int) -> lw.Metric:
    """An untrained network and distance; without labels there is no network, as the paper's D is fixed then."""
    if settings.self_supervised:
        return lw.Metric(None, DISTANCES[settings.distance](channels))
    encoder: torch.nn.Module = lw.FrameMLP(channels, out=channels, dropout=settings.dropout, standardize=False)
    if settings.turned:
        encoder = TurnedSkeletons(encoder)
    if any(settings.jitter):
        offset, scale, noise = settings.jitter
        encoder = lw.models.Jitter(encoder, offset=offset, scale=scale, noise=noise)
    return lw.Metric(encoder, DISTANCES[settings.distance](channels))


def half_cosine(optimizer: torch.optim.Optimizer, epochs: int) -> torch.optim.lr_scheduler.LRScheduler:
    """The learning rate falls to zero; the first epoch has half of it."""
    return torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda epoch: (0.5 if epoch == 0 else 1.0) * (1 + math.cos(math.pi * epoch / epochs)) / 2
    )


@torch.no_grad()
def norm_ratio(metric: lw.Metric, x: lw.Batch, pairs: int = 500) -> float:
    """Mean of ||g|| / ||D|| over neighbouring pairs: how much the network adds to the distances (Table 3)."""
    tap, encoded = metric.distance, metric.embed(x)
    ratios = []
    for a, b in itertools.islice(itertools.pairwise(encoded), pairs):
        D = torch.cdist(a, b)[None]
        i, j = (torch.arange(1, len(t) + 1, device=t.device) / len(t) for t in (a, b))
        correction = tap.correction(D, (i[:, None] - j).abs()[None])
        ratios.append(float(correction.norm() / D.norm()))
    return statistics.mean(ratios)


@torch.no_grad()
def alignment_error(metric: lw.Metric, x: lw.Batch, *, rounds: int = 5) -> float:
    """Mean squared difference of the attention and the plan of an augmentation, five for each sequence (Table 4).

    For soft-DTW, of its expected alignment, with columns scaled to sum to one as those of the plans do.
    """
    augment, generator = lw.data.RandomBlurOrMerge(), torch.Generator().manual_seed(0)
    errors = []
    for start in range(0, len(x), 100):
        part = x[start : start + 100]
        encoded = metric.embed(part)
        for _ in range(rounds):
            augmented = augment(part, generator)
            changed = metric.embed(augmented.batch)
            if isinstance(metric.distance, lw.SoftDTW):
                plan = metric.distance.align(encoded, changed).plan
                attention = plan / plan.sum(1, keepdim=True).clamp(min=1e-12)
            else:
                attention, _ = metric.distance.attention(encoded, changed)
            errors.append(mean_squares(attention, augmented.plans, part.lengths, augmented.batch.lengths))
    return float(torch.cat(errors).mean())


if __name__ == "__main__":
    main(*from_command_line(Run(), Settings()))
