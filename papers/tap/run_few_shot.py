"""Few-shot classification of skeletons: the layout of the paper's Table 5.

    python -m papers.tap.run_few_shot --data utd_mhad --method tap --steps 600
    python -m papers.tap.run_few_shot --data msr_action3d --method satap --steps 600
    python -m papers.tap.run_few_shot --data utd_mhad --method dtw --no-trained --frames 64 --seeds 0

A network and a distance are trained on episodes of some classes, the weights kept that do best on episodes of other
classes, and tested on 10,000 episodes of yet others, the same for every method: 5 and 10 ways, 1 and 5 shots. A query
is of another subject than its support. All distances between the test items are computed once, in both directions.

The paper trains a ResNet-50 on video by SGD, one episode a step, with 64 channels in TAP and one network for each
number of shots; here a linear map is trained by AdamW, several episodes at once, with TAP's 30 channels.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

import likewise as lw
from likewise.evaluation.few_shot import few_shot_accuracy_matrix
from papers.common import Run, accelerator, check_choice, device_name, emit, from_command_line, moved
from papers.tap.data_few_shot import READERS, SkeletonChange, Split, read
from papers.tap.ordered_tap import OrderedTAP

DISTANCES: dict[str, Callable[[int, int], lw.Distance]] = {  # of the channels of a frame, and the width of TAP
    "tap": lambda channels, width: lw.TAP(width),
    "tap_ordered": lambda channels, width: OrderedTAP(width, temperature=0.3),  # frames are longer than one here
    "satap": lambda channels, width: lw.TAP(width),
    "otam": lambda channels, width: lw.OTAM(gamma=0.1),
    "softdtw": lambda channels, width: lw.SoftDTW(gamma=0.1),
    "dtw": lambda channels, width: lw.DTW(),
    "mean": lambda channels, width: lw.MeanFrames(),  # with prototypes
}
OFFSET = 2.0  # of the frames before SA-TAP's layer normalisation


@dataclass(frozen=True)
class Settings:
    """One row of the table, and how it is trained."""

    data: str = "utd_mhad"
    method: str = "tap"
    trained: bool = True
    ways: tuple[int, ...] = (5, 10)  # of test episodes
    shots: tuple[int, ...] = (1, 5)
    train_shots: int = 1
    steps: int = 1000
    episodes_a_step: int = 4
    queries: int = 5  # of each class, in training; 1 in test, as in the paper
    lr: float = 1e-3
    attention_lr: float = 5e-5  # of SA-TAP's three maps, which overfit a few training classes at once
    weight_decay: float = 1e-4
    augment: bool = True  # change skeletons at random in training
    frames: int = 16  # the paper has 8 of a video
    width: int = 30  # channels of TAP; the paper has 64
    tests: int = 10_000  # episodes
    validations: int = 1_000


def main(run: Run, settings: Settings) -> None:
    """Train a metric for each seed, and test it on every number of ways and shots."""
    check_choice("--data", settings.data, READERS)
    check_choice("--method", settings.method, DISTANCES)
    split = read(settings.data, run.data_dir, settings.frames)
    test = split.test
    episodes = {
        (ways, shots): lw.Episodes(test.codes, ways, shots, 1, groups=test.groups, seed=1).take(settings.tests)
        for ways in settings.ways
        for shots in settings.shots
    }
    for seed in run.seeds:
        start = time.perf_counter()
        torch.manual_seed(seed)
        metric = build(settings, test.items.channels).to(run.device)
        validation = validate_by(settings, split.val, run.device)
        learned = learn(run, settings, seed, metric, split, validation) if settings.trained else {}
        metric.to(run.device)
        trained = time.perf_counter()
        with torch.no_grad():
            D = metric.distance.matrix(metric.embed(test.items.to(run.device))).cpu()
        seconds, judged = time.perf_counter() - trained, validation.few_shot(metric).accuracy
        for (ways, shots), drawn in episodes.items():
            score = few_shot_accuracy_matrix(D, *drawn, prototypes=settings.method == "mean")
            line = {
                "recipe": "few_shot", **asdict(settings), "ways": ways, "shots": shots, "seed": seed,
                "accuracy": score.accuracy, "interval": score.interval, "validation_accuracy": judged, **learned,
                "test_items": len(test), "wall_time": trained - start, "matrix_seconds": seconds,
                "device": device_name(run.device),
            }  # fmt: skip
            emit(line, run.out)


def learn(
    run: Run, settings: Settings, seed: int, metric: lw.Metric, split: Split, validation: lw.training.EpisodeValidation
) -> dict[str, Any]:
    """Train a metric in place; returns a summary of its history."""
    data = split.train
    steps = min(50, settings.steps)  # an epoch
    epochs = max(1, settings.steps // steps)
    episodes = lw.Episodes(
        data.codes, min(5, len(data.classes)), settings.train_shots, settings.queries,
        per_batch=settings.episodes_a_step, batches=steps, groups=data.groups, seed=seed,
    )  # fmt: skip
    data = moved(data, run.device)
    scale = starting_scale(metric, data.items, seed)
    loss = lw.training.EpisodeLoss(episodes, scale=scale, learn_scale=True, prototypes=settings.method == "mean")
    rates = {"rest": settings.lr}
    if isinstance(metric.encoder, lw.models.SelfAttention):
        rates |= {f"encoder.{part}": settings.attention_lr for part in ("queries", "keys", "values")}
    kept = run.kept(settings.data, settings.method, f"{settings.train_shots}-shot", f"seed {seed}")
    history = lw.fit(
        metric,
        data,
        sampler=episodes,
        step=loss,
        val=lw.training.Validation(validation, every=max(1, epochs // 8)),
        epochs=epochs,
        lr=rates,
        optimizer=lw.training.Optimization(
            torch.optim.AdamW,
            weight_decay=settings.weight_decay,
            clip=5.0,
            schedule=lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs),
        ),
        augment=SkeletonChange() if settings.augment else None,
        average=0,
        checkpoints=None if kept is None else lw.training.Checkpoints(kept, resume=True),
        seed=seed,
        verbose=False,
        accelerator=accelerator(run.device),
    )
    return {
        "best_epoch": history.best.epoch,
        "epochs": len(history.losses),
        "loss_first_epoch": history.losses[0],
        "loss_last_epoch": history.losses[-1],
        "seconds_an_epoch": statistics.median(history.seconds),
    }


def validate_by(settings: Settings, data: lw.Dataset, device: str) -> lw.training.EpisodeValidation:
    """Episodes of the validation classes, with as many ways as there are, 5 at most."""
    ways = min(5, len(data.classes))
    episodes = lw.Episodes(data.codes, ways, settings.train_shots, 1, groups=data.groups, seed=2)
    prototypes = settings.method == "mean"
    return lw.training.EpisodeValidation(
        moved(data, device), episodes, count=settings.validations, prototypes=prototypes
    )


@torch.no_grad()
def starting_scale(metric: lw.Metric, x: lw.Batch, seed: int) -> float:
    """A scale with which logits begin at about 8, whatever the unit of the distance is; it is learned from there."""
    some = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:40]
    D = metric.distance.matrix(metric.embed(x[some]))
    typical = float((D if metric.distance.symmetric else D + D.T).abs().mean())
    return 8 / typical if typical > 0 else 1.0


def build(settings: Settings, channels: int) -> lw.Metric:
    """The encoder and the distance; untrained, the distance alone.

    SA-TAP's linear map gets an offset: the layer normalisation divides a frame by its deviation, and with an offset
    that is larger than the frames it leaves how large they were. TAP's distance does not see the offset itself.
    """
    distance = DISTANCES[settings.method](channels, settings.width)
    if not settings.trained:
        return lw.Metric(None, distance)
    if settings.method == "satap":
        return lw.Metric(lw.models.SelfAttention(channels, encoder=linear(channels, OFFSET)), distance)
    return lw.Metric(linear(channels), distance)


def linear(channels: int, offset: float = 0.0) -> nn.Module:
    """A linear map of each frame, the identity at first: with few training classes, more overfits them.

    Its bias begins at offset, -offset, offset, ...
    """
    encoder = lw.FrameMLP(channels, out=channels, depth=0, normalize=False, standardize=False)
    (layer,) = encoder.layers
    nn.init.eye_(layer.weight)
    with torch.no_grad():
        layer.bias.copy_(offset * (-1.0) ** torch.arange(channels))
    return encoder


if __name__ == "__main__":
    main(*from_command_line(Run(), Settings()))
