"""TAP on speech and skeletons: the experiments of "Temporal alignment prediction" (Su & Wen, ICLR 2022).

    python -m likewise.recipes.tap --data sad --loss hm --distance tap --seeds 3
    python -m likewise.recipes.tap --data msr_action3d --table 10
    python -m likewise.recipes.tap --data sad --self-supervised

A frame-wise network and a distance are trained together; test sequences then find training sequences. Each seed prints
a JSON line, the end a table of means and spreads. --table 1, 8, 9 or 10 runs the rows of that table of the paper:
losses and distances; with and without augmentation; a transformer in place of convolutions; larger and deeper
networks. Every line also has the times of Table 2, the k-NN accuracies of Table 6, and, for TAP, the norm ratio of
Table 3 and the alignment error of Table 4.

--training paper is the paper's: Adam at 1e-4, 100 epochs, sequences compared with their augmentations. It learns the
speakers: on others, 1-NN accuracy falls while MAP still rises. --training ours, the default, shows the encoder each
sequence with another offset, gain and noise, drops a fifth of the hidden numbers, and lowers a larger learning rate to
zero. Each of its numbers was chosen on speakers held out of training, as --validate does, and none on test data; the
weights are those after the last epoch.

Data come from --data-dir or $LIKEWISE_DATA: spoken_arabic_digits.npz (6,600 / 2,200 utterances, standardised by the
training set's means and deviations), msr_action3d.npz (skeletons of 20 joints, relative to the hip; the paper has 192
features instead of these 60, so its figures are not comparable).
"""

import itertools
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor

import likewise as lw
from likewise.models.jitter import Jitter
from likewise.recipes.common import emit, known, load, spread, thinned
from likewise.training.self_supervised import mean_squares

NEIGHBORS = (1, 3, 5, 7, 15, 30)
LONGEST = 128  # frames of a skeleton sequence; of longer ones, every second, third, ... frame is kept
LOSSES: dict[str, Callable[[], lw.losses.Loss]] = {
    "hm": lambda: lw.losses.HardMiningMeans(reduction="sum"),  # as in the paper's code
    "hm_hinge": lambda: lw.losses.HardMining(reduction="sum"),  # as in its text
    "lifted": lambda: lw.losses.LiftedStructure(reduction="sum"),
    "binomial": lambda: lw.losses.BinomialDeviance(reduction="sum"),
}
# Soft-DTW's and DTW's distances are sums, not means: the paper lowers alpha and beta for them.
LOSSES_OF_SUMS = LOSSES | {
    "lifted": lambda: lw.losses.LiftedStructure(alpha=2, beta=1, reduction="sum"),
    "binomial": lambda: lw.losses.BinomialDeviance(alpha=2, beta=1, reduction="sum"),
}
DISTANCES: dict[str, Callable[[int], lw.Distance]] = {
    "tap": lambda channels: lw.TAP(),
    "tap_large": lambda channels: lw.TAP(kernels=(7, 7, 5)),
    "tap_deep": lambda channels: lw.TAP(kernels=(5, 5, 5, 3)),
    "tap_transformer": lambda channels: lw.TransformerTAP(channels),
    "softdtw": lambda channels: lw.SoftDTW(gamma=1.0),
    "dtw": lambda channels: lw.DTW(),
    "opw": lambda channels: lw.OPW(),
}
SUMS = ("softdtw", "dtw")


@dataclass(frozen=True)
class Settings:
    """One row of a table; the numbers are the paper's unless TRAINING has others."""

    data: str = "sad"
    loss: str = "hm"
    distance: str = "tap"
    augment: bool = True
    self_supervised: bool = False
    epochs: int = 100
    batch_size: int = 64
    lr: float = 1e-4
    cosine: bool = False  # lower the learning rate to zero along a half cosine
    dropout: float = 0.0
    jitter: tuple[float, float, float] = (0.0, 0.0, 0.0)  # offset, scale and noise of the input
    weight_decay: float = 1e-4
    precision: str = "32-true"
    probe_epochs: int = 0  # of a linear classifier on the mean of the encoded frames, 3,000 in the paper's Table 11

    @property
    def name(self) -> str:
        """What the table calls it."""
        how = "self-supervised" if self.self_supervised else self.loss
        changed = [word for word, yes in (("augmented", self.augment), ("jittered", any(self.jitter))) if yes]
        return ", ".join([f"{how} + {self.distance}", *changed])


TRAINING: dict[str, dict[str, object]] = {
    "paper": {},
    "ours": {"augment": False, "epochs": 32, "lr": 2e-3, "cosine": True, "dropout": 0.2, "jitter": (0.3, 0.1, 0.2)},
}
TABLES: dict[int, list[dict[str, object]]] = {
    1: [
        {"loss": loss, "distance": d} for d in ("tap", "softdtw", "dtw", "opw") for loss in ("hm", "lifted", "binomial")
    ],
    8: [{"loss": loss, "augment": augment} for loss in ("hm", "lifted", "binomial") for augment in (True, False)],
    9: [{"loss": loss, "distance": d} for loss in ("hm", "binomial") for d in ("tap", "tap_transformer")],
    10: [{"loss": loss, "distance": d} for loss in ("hm", "binomial") for d in ("tap", "tap_large", "tap_deep")],
}


def main(
    data: Annotated[str, typer.Option(help="sad or msr_action3d")] = "sad",
    loss: Annotated[str, typer.Option(help=", ".join(LOSSES))] = "hm",
    distance: Annotated[str, typer.Option(help=", ".join(DISTANCES))] = "tap",
    table: Annotated[int | None, typer.Option(help="Run all rows of the paper's table 1, 8, 9 or 10.")] = None,
    self_supervised: Annotated[bool, typer.Option(help="Train on augmentations alone, without labels.")] = False,
    training: Annotated[str, typer.Option(help="paper or ours: see above")] = "ours",
    augment: Annotated[bool | None, typer.Option(help="Learn from augmented sequences too.")] = None,
    validate: Annotated[bool, typer.Option(help="Score on training speakers or subjects, held out.")] = False,
    untrained: Annotated[bool, typer.Option(help="Add DTW and soft-DTW on the data as they are.")] = False,
    seeds: Annotated[int, typer.Option(help="How many runs, from seed 0.")] = 3,
    first_seed: Annotated[int, typer.Option(help="Where the seeds begin.")] = 0,
    epochs: int | None = None,
    batch_size: int = 64,
    lr: float | None = None,
    probe_epochs: int = 0,
    precision: Annotated[str, typer.Option(help='"32-true", or "bf16-mixed" on a GPU')] = "32-true",
    items: Annotated[int | None, typer.Option(help="Use every n-th item only, so that about so many train.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where the .npz files are; else $LIKEWISE_DATA.")] = None,
    out: Annotated[Path | None, typer.Option(help="Append the JSON lines to this file.")] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Keep checkpoints, logs and metrics here, and go on from them.")
    ] = None,
    verbose: bool = False,
) -> None:
    """Train metrics on sequences, and score them by retrieval."""
    for given, choices in (
        (data, READERS), (loss, LOSSES), (distance, DISTANCES), (table or 1, TABLES), (training, TRAINING)
    ):  # fmt: skip
        if given not in choices:
            raise SystemExit(f"error: unknown {given!r}; expected one of {', '.join(map(str, choices))}")
    base = Settings(
        data, loss, distance, self_supervised=self_supervised, batch_size=batch_size, precision=precision,
        probe_epochs=probe_epochs,
    )  # fmt: skip
    given_too = {"augment": True if self_supervised else augment, "epochs": epochs, "lr": lr}
    changes = TRAINING[training] | {name: value for name, value in given_too.items() if value is not None}
    base = replace(base, **changes)  # type: ignore[arg-type]
    rows = [base] if table is None else [replace(base, **row) for row in TABLES[table]]  # type: ignore[arg-type]
    source = data_dir or Path(os.environ.get("LIKEWISE_DATA", "."))
    train, test = READERS[data](source)
    if validate:
        train, test = held_out(train, GROUPS[data](source))
    train, test = thinned(train, items), thinned(test, items)
    lines = list(baselines(data, train, test)) if untrained else []
    for line in lines:
        emit(line, out)
    for settings in rows:
        for seed in range(first_seed, first_seed + seeds):
            name = f"{data}, {settings.name}, seed {seed}" + (", held out" if validate else "")
            kept = None if folder is None else folder / name
            lines.append(run(settings, seed, train, test, folder=kept, verbose=verbose) | {"validate": validate})
            emit(lines[-1], out)
    print_table(data, lines)


def run(
    settings: Settings,
    seed: int,
    train: lw.Dataset,
    test: lw.Dataset,
    *,
    folder: Path | None = None,
    verbose: bool = False,
) -> dict:
    """Train and score one metric; a mapping that goes to JSON."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x, y = train.sequences.to(device), known(train.labels)
    channels = x.values.shape[2]
    torch.manual_seed(seed)
    encoder: torch.nn.Module = lw.FrameMLP(channels, dropout=settings.dropout)
    if any(settings.jitter):
        offset, scale, noise = settings.jitter
        encoder = Jitter(encoder, offset=offset, scale=scale, noise=noise)
    metric = lw.Metric(encoder, DISTANCES[settings.distance](channels))
    predicts = isinstance(metric.distance, (lw.TAP, lw.TransformerTAP))
    losses = LOSSES_OF_SUMS if settings.distance in SUMS else LOSSES
    # As in the paper's code: the loss is a sum over the batch, the self-supervised part a mean, by the batch once more.
    terms = [lw.SelfSupervised(1 if settings.self_supervised else 1 / settings.batch_size)] if predicts else []
    history = lw.fit(
        metric,
        x,
        None if settings.self_supervised else y,
        None if settings.self_supervised else losses[settings.loss](),
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        lr=settings.lr,
        weight_decay=settings.weight_decay,
        scheduler=partial(half_cosine, epochs=settings.epochs) if settings.cosine else None,
        augment=lw.RandomBlurOrMerge() if settings.augment else None,
        terms=terms if settings.augment else [],
        precision=settings.precision,
        folder=folder,
        resume=folder is not None,
        seed=seed,
        verbose=verbose,
    )
    metric.to(device)
    start = time.perf_counter()
    scores = lw.evaluate(metric, (test.sequences.to(device), known(test.labels)), (x, y), ks=fitting(NEIGHBORS, y))
    seconds = time.perf_counter() - start
    line = {
        "recipe": "tap",
        **asdict(settings),
        "seed": seed,
        "train": len(train),
        "test": len(test),
        "accuracy": scores.accuracy,
        "map": scores.map,
        "f1": scores.f1,
        "knn": {str(k): v for k, v in scores.knn.items()},
        "loss_first_epoch": history.losses[0],
        "loss_last_epoch": history.losses[-1],
        "seconds_an_epoch": statistics.median(history.seconds),
        "wall_time": history.wall_time,
        "test_seconds": seconds,
        "pairs_a_second": len(train) * len(test) / seconds,
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
    }
    if isinstance(metric.distance, lw.TAP):
        line["norm_ratio"] = norm_ratio(metric, test.sequences.to(device))
    if predicts:
        line["alignment_mse"] = alignment_error(metric, test.sequences.to(device))
    if settings.probe_epochs:
        line["probe_accuracy"] = linear_probe(metric, train, test, settings, seed)
    return line


def half_cosine(optimizer: torch.optim.Optimizer, epochs: int) -> torch.optim.lr_scheduler.LRScheduler:
    """The learning rate falls to zero; the first epoch has half of it."""
    return torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda epoch: (0.5 if epoch == 0 else 1.0) * (1 + math.cos(math.pi * epoch / epochs)) / 2
    )


def baselines(data: str, train: lw.Dataset, test: lw.Dataset) -> Iterator[dict]:
    """Distances between the sequences as they are."""
    for name in ("dtw", "softdtw"):
        start, y = time.perf_counter(), known(train.labels)
        distance = DISTANCES[name](0)
        scores = lw.evaluate(
            distance, (test.sequences, known(test.labels)), (train.sequences, y), ks=fitting(NEIGHBORS, y)
        )
        yield {
            "recipe": "tap", "data": data, "loss": "untrained", "distance": name, "train": len(train),
            "test": len(test), "accuracy": scores.accuracy, "map": scores.map, "f1": scores.f1,
            "knn": {str(k): v for k, v in scores.knn.items()}, "test_seconds": time.perf_counter() - start,
        }  # fmt: skip


@torch.no_grad()
def norm_ratio(metric: lw.Metric, x: lw.Batch) -> float:
    """Mean of ||g|| / ||D|| over neighbouring pairs: how much the network adds to the distances (Table 3)."""
    tap, encoded = metric.distance, metric.embed(x)
    assert isinstance(tap, lw.TAP)
    assert isinstance(encoded, lw.Batch)
    ratios = []
    for a, b in itertools.pairwise(encoded):
        D = torch.cdist(a, b)[None]
        i, j = (torch.arange(1, len(t) + 1, device=t.device) / len(t) for t in (a, b))
        correction = tap.correction(D, (i[:, None] - j).abs()[None])
        ratios.append(float(correction.norm() / D.norm()))
        if len(ratios) == 500:
            break
    return statistics.mean(ratios)


@torch.no_grad()
def alignment_error(metric: lw.Metric, x: lw.Batch, *, rounds: int = 5) -> float:
    """Mean squared difference of the attention and the plan of an augmentation, five for each sequence (Table 4)."""
    tap, augment = metric.distance, lw.RandomBlurOrMerge()
    generator = torch.Generator().manual_seed(0)
    errors = []
    for start in range(0, len(x), 100):
        part = x[start : start + 100]
        encoded = metric.embed(part)
        for _ in range(rounds):
            augmented = augment(part, generator)
            attention, _ = tap.attention(encoded, metric.embed(augmented.batch))  # type: ignore[operator]
            errors.append(mean_squares(attention, augmented.plans, part.lengths, augmented.batch.lengths))
    return float(torch.cat(errors).mean())


def linear_probe(metric: lw.Metric, train: lw.Dataset, test: lw.Dataset, settings: Settings, seed: int) -> float:
    """Accuracy of a linear classifier of the mean of the encoded frames (Table 11)."""
    torch.manual_seed(seed)
    (x, y), (queries, labels) = ((mean_frames(metric, part), known(part.labels)) for part in (train, test))
    y = y.to(x.device)
    classifier = torch.nn.Linear(x.shape[1], int(y.max()) + 1, device=x.device)
    optimizer = torch.optim.Adam(classifier.parameters(), settings.lr, weight_decay=settings.weight_decay)
    for _ in range(settings.probe_epochs):
        for index in torch.randperm(len(x), device=x.device).split(max(settings.batch_size, len(x) // 20)):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(classifier(x[index]), y[index]).backward()
            optimizer.step()
    with torch.no_grad():
        return float((classifier(queries).argmax(1).cpu() == labels).double().mean())


def mean_frames(metric: lw.Metric, part: lw.Dataset) -> Tensor:
    """Means (N, C) of the encoded frames of each sequence."""
    device = next(metric.parameters()).device
    encoded = metric.embed(part.sequences.to(device))
    assert isinstance(encoded, lw.Batch)
    sums = encoded.values.masked_fill(~encoded.mask[..., None], 0).sum(1)
    return sums / encoded.lengths.to(device)[:, None]


def read_sad(folder: Path) -> tuple[lw.Dataset, lw.Dataset]:
    """Spoken Arabic Digits, standardised."""
    data = load(folder / "spoken_arabic_digits.npz")
    mean, deviation = data["values_train"].mean(0), data["values_train"].std(0)
    parts = []
    for part in ("train", "test"):
        values = (data[f"values_{part}"] - mean) / deviation
        sequences = lw.Batch.from_list(np.split(values, data[f"lengths_{part}"].cumsum()[:-1]))
        parts.append(
            lw.Dataset(sequences, torch.from_numpy(data[f"y_{part}"].astype(np.int64)), classes_of(data["y_train"]))
        )
    return parts[0], parts[1]


def read_msr(folder: Path) -> tuple[lw.Dataset, lw.Dataset]:
    """MSR Action3D: joints relative to the hip, in units of their deviation; odd subjects train."""
    data = load(folder / "msr_action3d.npz")
    keep = data["n_zero_frames"] <= data["lengths"] / 2
    parts: dict[bool, tuple[list[np.ndarray], list[int]]] = {True: ([], []), False: ([], [])}
    sequences = np.split(data["values"].astype(np.float32), data["lengths"].cumsum()[:-1])
    for sequence, label, is_train, kept in zip(sequences, data["y"], data["is_train"], keep, strict=True):
        if not kept:
            continue
        sequence = sequence[np.abs(sequence).sum(1) > 0]  # frames without a body
        sequence = sequence[:: -(-len(sequence) // LONGEST)]
        joints = sequence.reshape(len(sequence), -1, 3)
        parts[bool(is_train)][0].append((joints - joints[:, 6:7]).reshape(len(sequence), -1))
        parts[bool(is_train)][1].append(int(label))
    deviation = float(np.concatenate(parts[True][0]).std())
    train, test = (
        lw.Dataset(lw.Batch.from_list([s / deviation for s in part[0]]), torch.tensor(part[1]), classes_of(data["y"]))
        for part in (parts[True], parts[False])
    )
    return train, test


def speakers(folder: Path) -> np.ndarray:
    """Who speaks each training utterance."""
    return load(folder / "spoken_arabic_digits.npz")["speaker_train"]


def subjects(folder: Path) -> np.ndarray:
    """Who moves in each training sequence of MSR Action3D."""
    data = load(folder / "msr_action3d.npz")
    return data["subject"][data["is_train"].astype(bool) & (data["n_zero_frames"] <= data["lengths"] / 2)]


def held_out(train: lw.Dataset, groups: np.ndarray) -> tuple[lw.Dataset, lw.Dataset]:
    """Split training data: every fourth speaker or subject is kept for scores, the others train."""
    out = np.unique(groups, return_inverse=True)[1] % 4 == 3
    rest, kept = (
        lw.Dataset(train.sequences[index], known(train.labels)[index], train.classes)
        for index in (torch.from_numpy(np.flatnonzero(part)) for part in (~out, out))
    )
    return rest, kept


GROUPS = {"sad": speakers, "msr_action3d": subjects}
READERS = {"sad": read_sad, "msr_action3d": read_msr}


def classes_of(labels: np.ndarray) -> tuple[str, ...]:
    """Names of the classes 0, 1, 2, ..."""
    return tuple(str(k) for k in range(int(labels.max()) + 1))


def fitting(ks: tuple[int, ...], references: Tensor) -> tuple[int, ...]:
    """Numbers of neighbours that there are references for."""
    return tuple(k for k in ks if k <= len(references))


def print_table(data: str, lines: list[dict]) -> None:
    """Print means and spreads over seeds."""
    table = Table(title=f"{data}: retrieval of training sequences by test sequences")
    for heading in ("method", "seeds", "MAP", "1-NN", "5-NN", "30-NN", "s an epoch", "pairs/s"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    names = {index: line_name(line) for index, line in enumerate(lines)}
    for name in dict.fromkeys(names.values()):
        same = [lines[index] for index in names if names[index] == name]
        table.add_row(
            name,
            str(len(same)),
            spread([line["map"] for line in same], "{:.3f}"),
            spread([100 * line["accuracy"] for line in same], "{:.2f}"),
            spread([100 * line["knn"]["5"] for line in same if "5" in line["knn"]], "{:.2f}"),
            spread([100 * line["knn"]["30"] for line in same if "30" in line["knn"]], "{:.2f}"),
            spread([line["seconds_an_epoch"] for line in same if "seconds_an_epoch" in line], "{:.2f}"),
            spread([line["pairs_a_second"] for line in same if "pairs_a_second" in line], "{:,.0f}"),
        )
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def line_name(line: dict) -> str:
    """What the table calls the run behind a line."""
    if line["loss"] == "untrained":
        return f"untrained {line['distance']}"
    return Settings(**{k: line[k] for k in Settings.__dataclass_fields__ if k in line}).name


if __name__ == "__main__":
    typer.run(main)
