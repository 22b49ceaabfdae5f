"""Classes that training has not seen: the experiments of two papers, on images and on sequences.

    python -m likewise.recipes.unseen_classes --data flowers102 --loss proxy_nca --add gdfl+soft_adv --seeds 3
    python -m likewise.recipes.unseen_classes --data sad --loss am_softmax --add jrd --sweep alpha --plot alpha.png
    python -m likewise.recipes.unseen_classes --data flowers102 --report --out results/unseen_classes.jsonl

A metric learns from some classes; items of the others then find each other, none finding itself. Each seed prints a
JSON line, the end a table with NMI, Recall@1, 2, 4 and 8, and the share of items of which 3 of the 5 nearest have their
label: Tables 3 to 6 of Al-Kaabi, Monsefi & Zabihzadeh (A Framework to Enhance Generalization of Deep Metric Learning
methods) and the tables of Chu et al. (2020, Joint Representation Diversification), for our data.

--add: none, or some of these, joined by +: gdfl (attended features), soft_adv, adapt_adv (class adversaries), energy
(energy confusion), jrd, mrd, jmmd (similarity of classes in three layers, in one, mean discrepancy); all is
gdfl+soft_adv+jrd. --table runs losses x additions, with --loss one loss x additions. --sweep lambda (Figure 14) or
--sweep alpha varies one weight.

How long to train is chosen, for each row, on training classes that are held out, half of them and then the other half,
with the first seed, by Recall@1 and, among equals, MAP@R; all seeds then learn from all training classes for that many
epochs. --tune chooses the weights of additions there as well, 0.2, 1 or 5 times those of the papers. Test classes
choose nothing. --no-choose trains for --epochs. --validate stops after the held-out classes, for all seeds: to choose
settings by. --held-out 0.25 holds out one quarter, as the first lines of Flowers-102 did: its 12 classes happen to be
easy (untrained features find 93.2 % of their 877 images, 83.2 to 93.5 % in other quarters, 87.5 and 82.3 % in halves),
rows ended between 93 and 97 %, and the noise of one epoch there, 0.6 points, was nearly all that rows differed by (0.7
to 0.9). In halves all 3,493 images count, in tasks as hard as those of the test.

On a GPU with 16 cores; lines that are in --out are not run again, and a call that is stopped goes on. With ten workers
that share the GPU by NVIDIA's MPS, and other work beside them, Flowers-102 with both sweeps took 12 minutes:

    D="--data-dir $LIKEWISE_DATA --out $OUT/unseen_classes.jsonl"; R="python -m likewise.recipes.unseen_classes $D"
    nvidia-cuda-mps-control -d
    $R --data flowers102 --table --tune --untrained --workers 10
    $R --data flowers102 --loss triplet --add gdfl+soft_adv --sweep lambda --validate --seeds 1 --workers 7
    $R --data flowers102 --loss am_softmax --add jrd --sweep alpha --validate --seeds 1 --workers 7
    $R --data sad --table --tune --untrained --workers 14
    $R --data utd_mhad --table --tune --untrained --workers 1      # half an hour of one CPU core will do

The backbone's learning rate was chosen with the losses alone: 1e-4 is better than 3e-5 and 1e-5 for each of the three.
"""

import os
import statistics
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

import likewise as lw
from likewise.recipes import unseen_classes_report as report
from likewise.recipes.common import emit, rounded
from likewise.recipes.unseen_classes_data import LAYOUTS, READERS, SEQUENCES, SKELETONS, Part, held_out, read
from likewise.recipes.unseen_classes_parts import (
    BY_ALPHA,
    BY_STRENGTH,
    ENCODERS,
    FOR_SEQUENCES,
    LOSSES,
    PRETRAINED,
    Settings,
    make_additions,
    make_encoder,
    make_loss,
    make_rates,
    make_sampler,
    scores,
    untrained,
)  # fmt: skip

SWEEPS = {"lambda": (0.0, 0.1, 0.3, 0.5, 0.7, 1.0, 2.0), "alpha": (0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)}
FIELDS = {"lambda": "strength", "alpha": "alpha"}
TABLE_LOSSES = ("triplet", "proxy_nca", "am_softmax")
TABLE_ADDITIONS = (
    "none", "gdfl", "soft_adv", "adapt_adv", "jrd", "gdfl+soft_adv+jrd", "gdfl+soft_adv", "gdfl+adapt_adv", "energy",
    "mrd", "jmmd",
)  # fmt: skip
LEARNT = {"lr_backbone": 1e-3, "lr": 1e-3, "epochs": 20}  # of encoders that start at random
PAIRS = {"lr_backbone": 3e-4, "lr": 3e-4}  # the same, with losses that look at pairs, which fit them sooner
BY_DATA: dict[str, dict[str, Any]] = {
    "flowers102": {},
    "omniglot": {"encoder": "small", "crop": 32, "area": 0.6, "flip": False, **LEARNT},
    **{data: {"encoder": "tcn", "batch_size": 64, **LEARNT, "epochs": 40, "decay": 0.97} for data in SKELETONS},
    "sad": {"encoder": "tcn", **LEARNT},
}
IN_FOLDERS = {"crop": 224}
TRIED = (0.2, 1.0, 5.0)  # of the weights of additions, with --tune
STORED = 256 / 224  # sides of images in memory, to what the encoder sees of them


@dataclass(frozen=True)
class Job:
    """A row of a table, and how it is to be run."""

    settings: Settings
    seeds: tuple[int, ...]
    source: Path
    items: int | None = None
    skip_broken: bool = False
    validate: bool = False
    choose: bool = True
    tune: bool = False
    curves: bool = False
    out: Path | None = None
    folder: Path | None = None


def main(
    data: Annotated[str, typer.Option(help=", ".join([*READERS, *(f"{k}:PATH" for k in LAYOUTS)]))] = "flowers102",
    loss: Annotated[str | None, typer.Option(help=f"{', '.join(LOSSES)}; triplet, or with --table three")] = None,
    add: Annotated[str, typer.Option(help="none, or additions joined by +: see above")] = "none",
    table: Annotated[bool, typer.Option(help="Run losses x additions.")] = False,
    sweep: Annotated[str | None, typer.Option(help="lambda or alpha: run --add with several weights.")] = None,
    validate: Annotated[bool, typer.Option(help="Score on training classes, held out, and stop there.")] = False,
    choose: Annotated[bool, typer.Option(help="Choose the number of epochs on held-out training classes.")] = True,
    tune: Annotated[bool, typer.Option(help="Choose the weights of additions there, too: 0.2, 1 or 5 times.")] = False,
    with_untrained: Annotated[
        bool, typer.Option("--untrained", help="Add the backbone's features as they are.")
    ] = False,
    held_out_share: Annotated[
        float | None, typer.Option("--held-out", help="Share of the training classes for that: half, then the rest.")
    ] = None,
    encoder: Annotated[str | None, typer.Option(help=", ".join(ENCODERS))] = None,
    seeds: Annotated[int, typer.Option(help="How many runs of each row.")] = 3,
    first_seed: Annotated[int, typer.Option(help="Where the seeds begin.")] = 0,
    epochs: int | None = None,
    batch_size: int | None = None,
    embedding: int | None = None,
    crop: int | None = None,
    lr_backbone: float | None = None,
    lr: float | None = None,
    lr_loss: float | None = None,
    lr_adversary: float | None = None,
    strength: Annotated[float | None, typer.Option(help="lambda of the adversaries, weight of the energy")] = None,
    alpha: Annotated[float | None, typer.Option(help="weight of jrd, mrd or jmmd")] = None,
    ceiling: Annotated[float | None, typer.Option(help="largest lambda of adapt_adv")] = None,
    precision: Annotated[
        str | None, typer.Option(help='"32-true", or "bf16-mixed", the default for images on a GPU')
    ] = None,
    items: Annotated[int | None, typer.Option(help="Use every n-th item only, about so many of each part.")] = None,
    skip_broken: Annotated[bool, typer.Option(help="Leave out broken files, and classes with one image.")] = False,
    workers: Annotated[int, typer.Option(help="Rows that run at once, as processes.")] = 1,
    data_dir: Annotated[Path | None, typer.Option(help="Where the .npz files are; else $LIKEWISE_DATA.")] = None,
    out: Annotated[Path | None, typer.Option(help="Append the JSON lines here; those there are not run again.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Keep checkpoints and metrics here, and go on from them.")] = None,
    report_only: Annotated[
        bool, typer.Option("--report", help="Run nothing: print the tables of the lines in --out.")
    ] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw NMI and Recall@1 by epoch, or by what was swept.")] = None,
) -> None:
    """Learn from some classes, and score on others."""
    if report_only:
        report.print_tables(data, [line for line in report.done(out) if line["data"] == data])
        return
    given = {
        "encoder": encoder, "epochs": epochs, "batch_size": batch_size, "embedding": embedding, "crop": crop,
        "lr_backbone": lr_backbone, "lr": lr, "lr_loss": lr_loss, "lr_adversary": lr_adversary, "strength": strength,
        "alpha": alpha, "ceiling": ceiling, "precision": precision, "held_out": held_out_share,
    }  # fmt: skip
    given = {name: value for name, value in given.items() if value is not None}
    losses = (loss,) if loss else TABLE_LOSSES if table else TABLE_LOSSES[:1]
    additions = TABLE_ADDITIONS if table else (add,)
    rows = [settings_for(data, each, words, given) for words in additions for each in losses]
    if sweep is not None:
        rows = [changed for row in rows for changed in swept(row, sweep)]
    job = Job(
        rows[0], tuple(range(first_seed, first_seed + seeds)), data_dir or Path(os.environ.get("LIKEWISE_DATA", ".")),
        items, skip_broken, validate, choose, tune, plot is not None, out, folder,
    )  # fmt: skip
    lines = []
    if with_untrained:
        lines.append(report.shortened(untrained_line(job)))
        emit(lines[-1], out)
    for found in run_all([replace(job, settings=row) for row in rows], workers):
        lines += found
    report.print_tables(data, lines)
    if plot is not None:
        report.plot(plot, lines, None if sweep is None else FIELDS[sweep])


def settings_for(data: str, loss: str, add: str, given: dict[str, Any]) -> Settings:
    """The settings of a set of data, with what was given instead; names that are unknown are refused."""
    kind = data.partition(":")[0]
    for word, known in ((kind, [*READERS, *LAYOUTS]), (loss, LOSSES), (given.get("encoder", "lite0"), ENCODERS)):
        if word not in known:
            raise SystemExit(f"error: unknown {word!r}; expected one of {', '.join(known)}")
    values: dict[str, Any] = {"embedding": 512 if loss == "am_softmax" else 64, **BY_DATA.get(data, IN_FOLDERS)}
    if "lr" in values and loss in ("triplet", "angular"):
        values |= PAIRS
    values |= given
    settings = Settings(data, loss, add, **values)
    if {"soft_adv", "adapt_adv"} <= settings.added:
        raise SystemExit("error: choose one of soft_adv and adapt_adv")
    if (settings.encoder in FOR_SEQUENCES) != (data in SEQUENCES):
        raise SystemExit(f"error: {settings.encoder} does not take {data}")
    if "precision" not in given and torch.cuda.is_available() and settings.encoder in PRETRAINED:
        settings = replace(settings, precision="bf16-mixed")
    return settings


def swept(base: Settings, sweep: str) -> list[Settings]:
    """The settings with one weight at several values."""
    if sweep not in SWEEPS:
        raise SystemExit(f"error: unknown sweep {sweep!r}; expected lambda or alpha")
    wanted = BY_STRENGTH if sweep == "lambda" else BY_ALPHA
    if not base.added & wanted:
        raise SystemExit(f"error: --sweep {sweep} needs one of {', '.join(sorted(wanted))} in --add")
    return [replace(base, **{FIELDS[sweep]: value}) for value in SWEEPS[sweep]]  # type: ignore[arg-type]


def run_all(jobs: list[Job], workers: int) -> Iterator[list[dict]]:
    """The lines of every job, in this process or in several."""
    if workers == 1:
        yield from map(work, jobs)
        return
    threads = max(1, (os.cpu_count() or 1) // workers)
    with ProcessPoolExecutor(workers, get_context("spawn"), torch.set_num_threads, (threads,)) as pool:
        yield from pool.map(work, jobs)


def work(job: Job) -> list[dict]:
    """Run a row: choose its number of epochs, then train and score each seed. Lines are printed as they come."""
    train, test = parts_of(job)
    lines: list[dict] = []
    settings = job.settings
    if job.validate or job.choose:
        factors = TRIED if job.tune and settings.added - {"gdfl"} else (settings.factor,)
        chosen: list[tuple[report.Best, Settings]] = []
        for factor in factors:
            tried = replace(settings, factor=factor)
            found = [
                run_once(job, tried, seed, rest, kept, fold=fold, curve=True)
                for seed in (job.seeds if job.validate else job.seeds[:1])
                for fold, (rest, kept) in enumerate(held_out(train, settings.held_out))
            ]
            lines += found
            chosen.append((report.best(found), tried))
        if job.validate:
            return lines
        best, tried = max(chosen, key=lambda pair: (pair[0].recall, pair[0].map_at_r))
        settings = replace(tried, epochs=best.epoch)
    return lines + [run_once(job, settings, seed, train, test, fold=None, curve=job.curves) for seed in job.seeds]


def run_once(
    job: Job, settings: Settings, seed: int, train: Part, scored: Part, *, fold: int | None, curve: bool
) -> dict:
    """A line that is there already, or a run. fold: which of the pairs of ``held_out`` this is; None for the test."""
    wanted = {**asdict(settings), "seed": seed, "validate": fold is not None, "fold": fold, "train": len(train)}
    written = rounded(wanted, report.DIGITS)
    for line in report.done(job.out):
        if all(line.get(name) == value for name, value in written.items()) and ("curve" in line or not curve):
            return line
    name = f"{report.line_name(wanted)}, seed {seed}" + (f", held out {fold}" if fold is not None else "")
    kept = None if job.folder is None else job.folder / settings.data.replace("/", "_") / name
    line = report.shortened(wanted | run(settings, seed, train, scored, curve=curve, folder=kept))
    emit(line, job.out)
    return line


def run(
    settings: Settings, seed: int, train: Part, scored: Part, *, curve: bool = False, folder: Path | None = None
) -> dict[str, Any]:
    """Train and score one metric; a mapping that goes to JSON."""
    from lightning.pytorch.callbacks import LambdaCallback

    torch.manual_seed(seed)
    metric = lw.Metric(make_encoder(settings, train.channels), lw.Euclidean()).to(train.items.device)
    loss = make_loss(settings, train.classes)
    terms, adversary = make_additions(settings, loss)
    points: list[dict[str, Any]] = []

    def note(trainer: object, learner: Any) -> None:
        points.append({"epoch": learner.done.epoch + 1, **scores(metric, scored, starts=1)})

    history = lw.fit(
        metric,
        train.items,
        train.labels,
        loss,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        lr=make_rates(settings, loss, adversary),
        weight_decay=settings.weight_decay,
        sampler=make_sampler(settings, train.labels, seed),
        terms=terms,
        adversary=adversary,
        scheduler=partial(torch.optim.lr_scheduler.ExponentialLR, gamma=settings.decay),
        precision=settings.precision,
        folder=folder,
        resume=folder is not None,
        seed=seed,
        verbose=False,
        trainer={"callbacks": [LambdaCallback(on_train_epoch_end=note)]} if curve else None,
    )
    return {
        "recipe": "unseen_classes",
        "test": len(scored),
        "classes": train.classes,
        "test_classes": scored.classes,
        **scores(metric, scored),
        **({"curve": points} if curve else {}),
        "loss_first_epoch": history.losses[0],
        "loss_last_epoch": history.losses[-1],
        "seconds_an_epoch": statistics.median(history.seconds),
        "wall_time": history.wall_time,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
    }


def untrained_line(job: Job) -> dict:
    """Scores of the features before any training."""
    _, test = parts_of(job)
    settings = job.settings
    line = {"recipe": "unseen_classes", "data": settings.data, "loss": "untrained", "encoder": settings.encoder}
    return line | {"validate": False, "test": len(test)} | untrained(settings, test)


def parts_of(job: Job) -> tuple[Part, Part]:
    """Training and test items on the device, read once by each process."""
    settings = job.settings
    return _parts(settings.data, job.source, round(settings.crop * STORED), job.items, job.skip_broken)


@lru_cache(maxsize=1)
def _parts(data: str, source: Path, size: int, items: int | None, skip_broken: bool) -> tuple[Part, Part]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.set_float32_matmul_precision("high")
    train, test = read(data, source, size=size, items=items, skip_broken=skip_broken)
    return train.to(device), test.to(device)


if __name__ == "__main__":
    typer.run(main)
