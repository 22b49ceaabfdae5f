"""Few-shot classification of sequences: Table 5 of "Temporal alignment prediction" (Su & Wen, ICLR 2022).

    python -m likewise.recipes.few_shot --data utd_mhad --method tap --ways 5 --shots 1 --seeds 3
    python -m likewise.recipes.few_shot --data msr_action3d --table
    python -m likewise.recipes.few_shot --features DIR --splits DIR --method satap

A network and a distance are trained on episodes of some classes, the weights kept that do best on episodes of other
classes, and judged on 10,000 episodes of yet others, the same for every method. Skeletons' queries are of other
subjects than their support. All distances between the test items are computed once, in both directions. Each seed
prints a JSON line for every number of ways, the end a table in the layout of the paper's Table 5.

A metric is trained with --train-shots, 1 by default, and tested with 1 and 5 shots, and 5 and 10 ways, unless --shots
or --ways say otherwise; the paper trains one for each. --table runs all methods, and DTW and mean frames untrained too.

Data come from --data-dir or $LIKEWISE_DATA, features from --features; see ``likewise.recipes.few_shot_data``. The paper
trains a ResNet-50 on video by SGD, one episode a step, with 64 channels in TAP; here small encoders are trained by
AdamW, several episodes at once, with TAP's 30 channels unless --width says otherwise.
"""

import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import likewise as lw
from likewise.data.episodes import Episodes
from likewise.distances.mean_frames import MeanFrames
from likewise.distances.otam import OTAM
from likewise.evaluation.few_shot import few_shot_accuracy_matrix
from likewise.models.self_attention import SelfAttention
from likewise.recipes.common import emit
from likewise.recipes.few_shot_data import READERS, Part, Split, read, read_features
from likewise.training.few_shot import EpisodeLoss, EpisodeValidation

# From the channels of a frame, and the width of TAP.
DISTANCES: dict[str, Callable[[int, int], lw.Distance]] = {
    "tap": lambda channels, width: lw.TAP(width),
    "satap": lambda channels, width: lw.TAP(width),
    "otam": lambda channels, width: OTAM(gamma=0.1),
    "softdtw": lambda channels, width: lw.SoftDTW(gamma=0.1),
    "dtw": lambda channels, width: lw.DTW(),
    "opw": lambda channels, width: named("OPW")(),
    "cgru": lambda channels, width: named("CoupledGRU")(channels, hidden=(64,)),
    "mean": lambda channels, width: MeanFrames(),
}
NAMES = {
    "tap": "TAP", "satap": "SA-TAP", "otam": "OTAM", "softdtw": "SoftDTW", "dtw": "DTW", "opw": "OPW",
    "cgru": "coupled GRU", "mean": "mean frames, prototypes",
}  # fmt: skip
TABLE = (("dtw", False), ("mean", False), *((m, True) for m in ("mean", "softdtw", "otam", "tap", "satap")))
WAYS, SHOTS = (5, 10), (1, 5)
OFFSET = 2.0  # of the frames before SA-TAP's layer normalisation


@dataclass(frozen=True)
class Settings:
    """One line of the table, and how it is trained."""

    data: str = "utd_mhad"
    method: str = "tap"
    trained: bool = True
    train_shots: int = 1
    encoder: str = "linear"
    steps: int = 1000
    episodes_a_step: int = 4
    queries: int = 5  # of each class, in training; 1 in test, as in the paper
    lr: float = 1e-3
    attention_lr: float = 5e-5  # of SA-TAP's three maps, which overfit a few training classes at once
    weight_decay: float = 1e-4
    augment: bool = True
    frames: int = 16
    width: int = 30
    tests: int = 10_000
    validations: int = 1_000

    @property
    def name(self) -> str:
        """What the table calls it."""
        return NAMES[self.method] if self.trained else f"{NAMES[self.method]}, untrained"


def main(
    data: Annotated[str, typer.Option(help=", ".join(READERS))] = "utd_mhad",
    method: Annotated[str, typer.Option(help=", ".join(DISTANCES))] = "tap",
    ways: Annotated[
        int | None, typer.Option(help="Classes of a test episode; by default 5, and 10 if there are.")
    ] = None,
    shots: Annotated[int | None, typer.Option(help="Examples of each class; by default 1, and 5.")] = None,
    train_shots: Annotated[int, typer.Option(help="Examples of each class in training.")] = 1,
    trained: Annotated[bool, typer.Option(help="Train it; otherwise the distance as it is.")] = True,
    table: Annotated[bool, typer.Option(help="Run all methods.")] = False,
    features: Annotated[Path | None, typer.Option(help="A folder of per-frame features, one .npy a clip.")] = None,
    splits: Annotated[Path | None, typer.Option(help="The folder of trainlist*.txt ..., if not features.")] = None,
    seeds: Annotated[int, typer.Option(help="How many runs, from seed 0.")] = 3,
    first_seed: Annotated[int, typer.Option(help="Where the seeds begin.")] = 0,
    encoder: Annotated[str, typer.Option(help="linear, which starts as the identity, mlp, or tcn")] = "linear",
    steps: Annotated[int, typer.Option(help="Steps of training.")] = 1000,
    episodes_a_step: int = 4,
    queries: int = 5,
    lr: float = 1e-3,
    attention_lr: Annotated[float, typer.Option(help="Of SA-TAP's self-attention.")] = 5e-5,
    weight_decay: float = 1e-4,
    augment: Annotated[bool, typer.Option(help="Change skeletons at random in training.")] = True,
    frames: Annotated[int, typer.Option(help="Frames of a skeleton sequence; the paper has 8 of a video.")] = 16,
    width: Annotated[int, typer.Option(help="Channels of TAP; the paper has 64.")] = 30,
    tests: Annotated[int, typer.Option(help="Test episodes.")] = 10_000,
    validations: Annotated[int, typer.Option(help="Validation episodes.")] = 1_000,
    items: Annotated[int | None, typer.Option(help="Use at most so many items of a class.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where the .npz files are; else $LIKEWISE_DATA.")] = None,
    out: Annotated[Path | None, typer.Option(help="Append the JSON lines to this file.")] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Keep checkpoints, logs and metrics here, and go on from them.")
    ] = None,
    verbose: bool = False,
) -> None:
    """Train on episodes, and classify sequences of new classes from a few examples of each."""
    for given, known in ((data, READERS), (method, DISTANCES), (encoder, ENCODERS)):
        if given not in known:
            raise SystemExit(f"error: unknown {given!r}; expected one of {', '.join(known)}")
    data = "features" if features is not None else data
    base = Settings(
        data,
        method,
        trained,
        train_shots,
        encoder,
        steps,
        episodes_a_step,
        queries,
        lr,
        attention_lr,
        weight_decay,
        augment,
        frames,
        width,
        tests,
        validations,
    )
    if features is not None:
        split = read_features(features, splits or features, frames)
    else:
        split = read(data, data_dir or Path(os.environ.get("LIKEWISE_DATA", ".")), frames)
    split = thinned(split, items).to("cuda" if torch.cuda.is_available() else "cpu")
    rows = [base] if not table else [replace(base, method=m, trained=t) for m, t in TABLE]
    most = len(split.test.labels.unique())
    several = WAYS if ways is None else (ways,)
    asked = [(w, k) for w in several if ways or w <= most for k in (SHOTS if shots is None else (shots,))]
    lines, drawn = [], {}
    for settings in rows:
        for seed in range(first_seed, first_seed + (seeds if settings.trained else 1)):
            name = f"{data}, {settings.name}, {settings.train_shots}-shot, seed {seed}"
            kept = None if folder is None else folder / name
            for line in run(settings, seed, split, asked, drawn, folder=kept, verbose=verbose):
                lines.append(line)
                emit(line, out)
    print_table(data, lines)


def run(
    settings: Settings,
    seed: int,
    split: Split,
    asked: list[tuple[int, int]],
    drawn: dict[tuple[int, int], tuple[Tensor, Tensor]],
    *,
    folder: Path | None = None,
    verbose: bool = False,
) -> list[dict]:
    """Train one metric, and test it: a mapping for each of the ways and shots. ``drawn`` keeps the test episodes."""
    start = time.perf_counter()
    device = split.train.sequences.device
    torch.manual_seed(seed)
    metric = build(settings, split.train.sequences.channels).to(device)
    validation = validate_by(settings, split.val)
    learned: dict[str, Any] = {}
    if settings.trained:
        learned = train(metric, settings, seed, split, validation, folder, verbose)
    metric.to(device)
    trained_in = time.perf_counter() - start
    with torch.no_grad():
        D = metric.distance.matrix(metric.embed(split.test.sequences)).cpu()
    seconds = time.perf_counter() - start - trained_in
    lines = []
    judged = validation.few_shot(metric).accuracy
    for ways, shots in asked:
        if (ways, shots) not in drawn:
            part = split.test
            drawn[ways, shots] = Episodes(part.labels, ways, shots, 1, groups=part.groups, seed=1).take(settings.tests)
        score = few_shot_accuracy_matrix(D, *drawn[ways, shots], prototypes=settings.method == "mean")
        lines.append({
            "recipe": "few_shot", **asdict(settings), "ways": ways, "shots": shots, "seed": seed,
            "accuracy": score.accuracy, "interval": score.interval, "validation_accuracy": judged, **learned,
            "test_items": len(split.test), "wall_time": trained_in, "matrix_seconds": seconds,
            "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        })  # fmt: skip
    return lines


def train(
    metric: lw.Metric,
    settings: Settings,
    seed: int,
    split: Split,
    validation: EpisodeValidation,
    folder: Path | None,
    verbose: bool,
) -> dict[str, Any]:
    """Train a metric in place; what is worth keeping of its history."""
    part = split.train
    steps = min(50, settings.steps)  # an epoch
    ways = min(5, len(part.labels.unique()))
    episodes = Episodes(
        part.labels, ways, settings.train_shots, settings.queries, per_batch=settings.episodes_a_step, batches=steps,
        groups=part.groups, seed=seed,
    )  # fmt: skip
    epochs = max(1, settings.steps // steps)
    loss = EpisodeLoss(
        episodes, scale=scale_for(metric, part, seed), learn_scale=True, prototypes=settings.method == "mean"
    )
    rates = {"rest": settings.lr}
    if isinstance(metric.encoder, SelfAttention):
        rates |= {f"encoder.{part}": settings.attention_lr for part in ("queries", "keys", "values")}
    history = lw.fit(
        metric,
        part.sequences,
        part.labels,
        None,
        sampler=episodes,
        terms=[loss],
        val=validation,
        val_every=max(1, epochs // 8),
        epochs=epochs,
        lr=rates,
        optimizer=lambda groups: torch.optim.AdamW(groups, weight_decay=settings.weight_decay),
        scheduler=lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs),
        clip=5.0,
        augment=split.augment if settings.augment else None,
        folder=folder,
        resume=folder is not None,
        seed=seed,
        verbose=verbose,
    )
    return {
        "best_epoch": history.best_epoch,
        "epochs": len(history.losses),
        "loss_first_epoch": history.losses[0],
        "loss_last_epoch": history.losses[-1],
        "seconds_an_epoch": statistics.median(history.seconds),
    }


def build(settings: Settings, channels: int) -> lw.Metric:
    """The encoder and the distance; untrained, the distance alone."""
    distance = DISTANCES[settings.method](channels, settings.width)
    if not settings.trained or settings.method == "cgru":  # which has a network of its own
        return lw.Metric(None, distance)
    if settings.method == "satap":
        return lw.Metric(attentive(channels, settings.encoder), distance)
    return lw.Metric(ENCODERS[settings.encoder](channels), distance)


def linear(channels: int, offset: float = 0.0) -> nn.Module:
    """A linear map of each frame, the identity at first: with few training classes, more overfits them.

    Its bias begins at offset, -offset, offset, ...
    """
    encoder = lw.FrameMLP(channels, depth=0, normalize=False)
    (layer,) = encoder.layers
    assert isinstance(layer, nn.Linear)
    nn.init.eye_(layer.weight)
    with torch.no_grad():
        layer.bias.copy_(offset * (-1.0) ** torch.arange(channels))
    return encoder


def attentive(channels: int, encoder: str) -> nn.Module:
    """SA-TAP's encoder.

    A linear map gets an offset: the layer normalisation divides a frame by its deviation, and with an offset that is
    larger than the frames it leaves how large they were. TAP's distance does not see the offset itself.
    """
    before = linear(channels, OFFSET) if encoder == "linear" else ENCODERS[encoder](channels)
    return SelfAttention(channels, encoder=before)


ENCODERS: dict[str, Callable[[int], nn.Module]] = {
    "linear": linear,
    "mlp": lambda channels: lw.FrameMLP(channels, hidden=256, normalize=False),
    "tcn": lambda channels: lw.TCN(channels, hidden=128, layers=2, out=channels, dropout=0.3),
}


def named(name: str) -> Callable[..., lw.Distance]:
    """A distance of likewise, which may not have it yet."""
    if not hasattr(lw, name):
        raise SystemExit(f"error: this version of likewise has no {name}")
    return getattr(lw, name)


def validate_by(settings: Settings, part: Part) -> EpisodeValidation:
    """Episodes of the validation classes, with as many ways as there are, 5 at most."""
    ways = min(5, len(part.labels.unique()))
    episodes = Episodes(part.labels, ways, settings.train_shots, 1, groups=part.groups, seed=2)
    return EpisodeValidation(
        part.sequences, part.labels, episodes, count=settings.validations, prototypes=settings.method == "mean"
    )


@torch.no_grad()
def scale_for(metric: lw.Metric, part: Part, seed: int) -> float:
    """A scale with which logits begin at about 8, whatever the unit of the distance is; it is learned from there."""
    some = torch.randperm(len(part), generator=torch.Generator().manual_seed(seed))[:40]
    D = metric.distance.matrix(metric.embed(part.sequences[some]))
    typical = float((D if metric.distance.symmetric else D + D.T).abs().mean())
    return 8 / typical if typical > 0 else 1.0


def thinned(split: Split, items: int | None) -> Split:
    """The first items of each class and subject in turn, so that at most ``items`` of a class are left."""

    def thin(part: Part) -> Part:
        if items is None:
            return part
        kept = []
        for label in part.labels.unique():
            own = (part.labels == label).nonzero()[:, 0]
            kept.append(own[torch.linspace(0, len(own) - 1, min(items, len(own))).long()])
        index = torch.cat(kept)
        return Part(part.sequences[index], part.labels[index], None if part.groups is None else part.groups[index])

    return replace(split, train=thin(split.train), val=thin(split.val), test=thin(split.test))


def print_table(data: str, lines: list[dict]) -> None:
    """Print the layout of the paper's Table 5: methods down, ways and shots across; means over seeds."""
    columns = sorted({(line["ways"], line["shots"]) for line in lines})
    table = Table(caption=f"{data}: accuracy in %, with the 95 % interval of {lines[0]['tests']:,} episodes")
    table.add_column("method")
    for ways, shots in columns:
        table.add_column(f"{ways}-way {shots}-shot", justify="right")
    for method, trained in dict.fromkeys((line["method"], line["trained"]) for line in lines):
        cells = []
        for key in columns:
            own = [
                ln for ln in lines if (ln["method"], ln["trained"], ln["ways"], ln["shots"]) == (method, trained, *key)
            ]
            cells.append(cell(own))
        table.add_row(NAMES[method] if trained else f"{NAMES[method]}, untrained", *cells)
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def cell(lines: list[dict]) -> str:
    """Mean accuracy over seeds and, as in the paper, the interval of one run; how far seeds differ, if several."""
    if not lines:
        return "-"
    accuracies = [100 * line["accuracy"] for line in lines]
    interval = 100 * statistics.mean(line["interval"] for line in lines)
    seeds = f" (seeds {statistics.stdev(accuracies):.1f})" if len(lines) > 1 else ""
    return f"{statistics.mean(accuracies):.1f}±{interval:.1f}{seeds}"


if __name__ == "__main__":
    typer.run(main)
