"""The coupled GRU on UCI HAR: the experiments of "Sequence metric learning as synchronization" (Compagnon et al. 2020).

    python -m likewise.recipes.coupled_gru --candidates --out lines.jsonl --figures figures/     # everything
    python -m likewise.recipes.coupled_gru --part folds --fold 0 --lr 1e-3 --lr 3e-3 --out sweep.jsonl    # to choose
    python -m likewise.recipes.coupled_gru --report folds.jsonl --report test.jsonl --figures figures/
    python -m likewise.recipes.coupled_gru --data shl_synthetic --part test --seeds 1    # [100, 100] at the size of SHL

Models: sgru, the siamese GRU; cgru, the coupled GRU with coupling_bias 0, as the paper's text has it; cgru-4, with
coupling_bias -4, the weak start that the text means. All have the same settings.

folds: the 21 training subjects make seven folds. Three subjects are left out, the others train, and the best weights by
1-NN accuracy of the three are scored, as in the paper: its scores are a little too good, alike for all models.
test: the best weights on the subjects of fold (seed mod 7); the test set then finds all 7,352 training sequences, 21.7
million pairs. Settings are those chosen on the folds, and nothing is chosen on test data.

Trainings run side by side, 18 at a time (--together), and a run whose line --out has already is not run again.
Each run prints a JSON line, the end a table, and a paired test of every model against sgru over the folds and seeds
that both have (exact sign-flip permutation test, and Wilcoxon's). --figures draws Figure 3 (norm of the coupling and
loss), Figure 4 (noise), and the synchronisation error over time. --report does all that from lines of earlier runs;
those of recipes.rvsml have their rows.

The paper names neither its optimiser (Adam here) nor the constants of its structural loss, whose formula is a
reconstruction. Its learning rate is 1e-3; ours is 1e-2, falling to zero over the last half of the steps: in trials on
one fold all networks did better with it, the siamese GRU most of all. Over all folds and test seeds the coupled one is
ahead with it too (results/README.md). --lr 1e-3 --lr 1e-2 shows both. At that rate weights jump from one validation to
the next, so a moving average of them (--average) is validated and kept; that and the weight of the loss's global term
were chosen on the folds, by the mean of accuracy and MAP.

Three statements of the paper do not hold as they are written:
- Small coupling weights do not start close to a siamese GRU: with coupling_bias 0 the gate starts at one half, where
  both sides get the same new state. Hence cgru-4.
- A coupling of one half does not make the distance zero: the new states agree, the update gates do not.
- The system that a GRU induces without input need not be chaotic: at PyTorch's initial weights the largest exponent of
  20 units is about -0.45, and near 0 with weights five times as large. Test lines have that of the trained network.
"""

import json
import math
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor

import likewise as lw
from likewise.distances.coupled_gru import CoupledGRU
from likewise.distances.siamese_gru import SiameseGRU
from likewise.recipes.common import emit, known
from likewise.recipes.coupled_gru_data import FOLDS, READERS, left_out, thinned
from likewise.recipes.coupled_gru_measures import measure
from likewise.recipes.coupled_gru_report import SCORES, draw, print_tables
from likewise.recipes.coupled_gru_training import Settings, Training, train_together

MODELS = {"sgru": None, "cgru": 0.0, "cgru-4": -4.0}  # the coupling_bias of each


SHL = {"hidden": (100, 100), "batch_size": 40, "steps": 400, "val_every": 200, "most_pairs": 400_000}


@dataclass(frozen=True)
class Run:
    """One training and what it is scored on: "fold" or "test", and which of them."""

    settings: Settings
    kind: str
    number: int
    seed: int

    @property
    def described(self) -> dict:
        """The beginning of its line of JSON, which tells it from all others."""
        settings = asdict(self.settings) | {"hidden": list(self.settings.hidden)}
        return {"recipe": "coupled_gru", **settings, "kind": self.kind, "number": self.number, "seed": self.seed}

    @property
    def name(self) -> str:
        """Of the folder that it is kept in."""
        return f"{self.settings.data}, {self.settings.model}, {self.kind} {self.number}"


def main(
    part: Annotated[str, typer.Option(help="folds, test or both")] = "both",
    data: Annotated[str, typer.Option(help="har, shl or shl_synthetic")] = "har",
    model: Annotated[list[str], typer.Option(help=", ".join(MODELS) + "; may be given again")] = list(MODELS),  # noqa: B006
    fold: Annotated[list[int] | None, typer.Option(help="Only this fold, 0 to 6; may be given again.")] = None,
    seeds: Annotated[int, typer.Option(help="How many test runs.")] = 5,
    first_seed: Annotated[int, typer.Option(help="Where the seeds begin; also the seed of the folds.")] = 0,
    steps: Annotated[int | None, typer.Option(help="Of each training.")] = None,
    val_every: Annotated[int | None, typer.Option(help="Steps between validations.")] = None,
    patience: Annotated[int | None, typer.Option(help="Validations without a better one that end a training.")] = None,
    batch_size: int | None = None,
    lr: Annotated[list[float], typer.Option(help="May be given again, as the next five: all are run.")] = [Settings.lr],  # noqa: B006
    decay: list[float] = [Settings.decay],  # noqa: B006
    average: list[float] = [Settings.average],  # noqa: B006
    margin: list[float] = [Settings.margin],  # noqa: B006
    temperature: list[float] = [Settings.temperature],  # noqa: B006
    global_weight: list[float] = [Settings.global_weight],  # noqa: B006
    together: Annotated[int, typer.Option(help="Trainings that share the device.")] = 18,
    graphs: Annotated[bool, typer.Option(help="On a GPU, record a step and replay it.")] = True,
    candidates: Annotated[bool, typer.Option(help="Score the coupled models by candidates too.")] = False,
    noise: Annotated[bool, typer.Option(help="Measure distances under noise, after test runs.")] = True,
    items: Annotated[int | None, typer.Option(help="Use every n-th item only, so that about so many train.")] = None,
    report: Annotated[list[Path] | None, typer.Option(help="Train nothing: read these lines.")] = None,
    figures: Annotated[Path | None, typer.Option(help="Draw Figures 3 and 4 to this folder.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where the data are; else $LIKEWISE_DATA.")] = None,
    out: Annotated[Path | None, typer.Option(help="Append the JSON lines; runs that it has are not run again.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Keep the trained networks here.")] = None,
    verbose: bool = False,
) -> None:
    """Train siamese and coupled GRUs, and score them by retrieval."""
    for given, allowed in ((part, ("folds", "test", "both")), (data, READERS), *((name, MODELS) for name in model)):
        if given not in allowed:
            raise SystemExit(f"error: unknown {given!r}; expected one of {', '.join(allowed)}")
    for number in fold or ():
        if number not in range(FOLDS):
            raise SystemExit(f"error: fold must be 0 to {FOLDS - 1}, got {number}")
    lines = [json.loads(line) for path in report or () for line in path.read_text().splitlines()]
    if not report:
        given = {"steps": steps, "val_every": val_every, "patience": patience, "batch_size": batch_size}
        base = replace(Settings(data), **(SHL if data != "har" else {}))
        base = replace(base, **{name: value for name, value in given.items() if value is not None})
        settings = [
            replace(base, lr=a, decay=b, average=c, margin=d, temperature=e, global_weight=f, model=name)
            for a, b, c, d, e, f, name in product(lr, decay, average, margin, temperature, global_weight, model)
        ]
        plan = list(planned(settings, part, fold, range(first_seed, first_seed + seeds)))
        if folder is not None and len({run.name for run in plan}) < len(plan):
            raise SystemExit("error: --folder has room for one network a run; give one value of each setting")
        parts = READERS[data](data_dir or Path(os.environ.get("LIKEWISE_DATA", ".")), items)
        train, test = (thinned(given, items) for given in parts)
        lines = [] if out is None or not out.exists() else [json.loads(line) for line in out.read_text().splitlines()]
        left = [run for run in plan if not any(run.described.items() <= line.items() for line in lines)]
        trained: dict[Run, lw.Distance] = {}
        for first in range(0, len(left), together):
            some = left[first : first + together]
            for run, line in carried_out(some, train, test, trained, folder=folder, graphs=graphs, verbose=verbose):
                if run.kind == "test":
                    siamese = trained_siamese(run, trained, folder)
                    line |= measure(trained[run], train, test, noise=noise, candidates=candidates, siamese=siamese)
                emit(line, out)
                lines.append(line)
    print_tables(lines)
    if figures is not None:
        draw(lines, figures)


def planned(settings: list[Settings], part: str, fold: list[int] | None, seeds: range) -> Iterator[Run]:
    """The runs, those of the same fold or seed side by side."""
    if part in ("folds", "both"):
        for number in fold or range(FOLDS):
            yield from (Run(one, "fold", number, seeds.start) for one in settings)
    if part in ("test", "both"):
        for seed in seeds:
            yield from (Run(one, "test", seed, seed) for one in settings)


def carried_out(
    runs: list[Run],
    train: lw.Dataset,
    test: lw.Dataset,
    trained: dict[Run, lw.Distance],
    *,
    folder: Path | None = None,
    graphs: bool = True,
    verbose: bool = False,
) -> Iterator[tuple[Run, dict]]:
    """Train the networks of some runs side by side, score them one by one, and give the line of each."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    x, y = train.sequences.to(device), known(train.labels)
    trainings = [begun(run, train, x.values, y.to(device), graphs=graphs) for run in runs]
    train_together(trainings, verbose=verbose)
    queries = test.sequences.to(device), known(test.labels)
    for run, training in zip(runs, trainings, strict=True):
        trained[run], record = training.distance, training.record
        if folder is not None:
            lw.Metric(None, training.distance).save(folder / run.name)
        start, out_of = time.perf_counter(), left_out(train, run.number % FOLDS)
        if run.kind == "fold":
            asked, among = (x[out_of], y[out_of]), (x[~out_of], y[~out_of])
        else:
            asked, among = queries, (x, y)
        a, b = thinning(len(asked[0]), len(among[0]), run.settings.most_pairs)
        scores = lw.evaluate(training.distance, (asked[0][::a], asked[1][::a]), (among[0][::b], among[1][::b]))
        yield (
            run,
            {
                **run.described,
                **{name: getattr(scores, name) for name in SCORES},
                "best_step": record.best_step,
                "validation_accuracy": record.best[0],
                "validation_steps": record.steps,
                "losses": record.losses,
                "accuracies": record.accuracies,
                "norms": record.norms,
                "together": len(runs),
                "graphs": training.graphs,
                "seconds": record.seconds,
                "pairs": scores.queries * scores.references,
                "test_seconds": time.perf_counter() - start,
                "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
            },
        )


def begun(run: Run, train: lw.Dataset, x: Tensor, y: Tensor, *, graphs: bool) -> Training:
    """The training of a run, with an untrained network. x (N, T, C), y (N,): all training sequences, on the device."""
    settings, out_of = run.settings, left_out(train, run.number % FOLDS)  # (N,) bool
    torch.manual_seed(run.seed)
    distance = build(settings, x.shape[2]).to(x.device)
    own, theirs = (~out_of).nonzero()[:, 0].to(x.device), out_of.nonzero()[:, 0].to(x.device)
    a, b = thinning(len(theirs), len(own), settings.most_pairs)
    asked, among = theirs[::a], own[:: max(b, len(own) // settings.val_references)]
    validation = x[asked], y[asked].cpu(), x[among], y[among].cpu()
    return Training(settings, distance, x[own], y[own], validation, run.seed, graphs=graphs)


def thinning(queries: int, references: int, most_pairs: int | None) -> tuple[int, int]:
    """Every how many queries and references to take, so that there are not many more pairs than ``most_pairs``."""
    if most_pairs is None or queries * references <= most_pairs:
        return 1, 1
    step = math.ceil(math.sqrt(queries * references / most_pairs))
    return step, step


def trained_siamese(run: Run, trained: dict[Run, lw.Distance], folder: Path | None) -> lw.Distance | None:
    """The sgru of the same seed and settings: of this command, or kept by an earlier one."""
    twin = replace(run, settings=replace(run.settings, model="sgru"))
    if twin in trained:
        return trained[twin]
    if folder is None or not (folder / twin.name).exists():
        return None
    return lw.Metric.load(folder / twin.name).distance.to(next(trained[run].parameters()).device)


def build(settings: Settings, channels: int) -> lw.Distance:
    """An untrained model. Both kinds start from the same GRU: the coupling's weights are drawn after it."""
    bias = MODELS[settings.model]
    state = torch.get_rng_state()
    siamese = SiameseGRU(channels, settings.hidden)
    if bias is None:
        return siamese
    torch.set_rng_state(state)
    coupled = CoupledGRU(channels, settings.hidden, coupling_bias=bias)
    with torch.no_grad():
        for layer, cell in zip(siamese.layers, coupled.cells, strict=True):
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                getattr(cell, name).copy_(getattr(layer, f"{name}_l0"))
    return coupled


if __name__ == "__main__":
    typer.run(main)
