"""The coupled GRU on UCI HAR: the experiments of "Sequence metric learning as synchronization" (Compagnon et al. 2020).

    python -m likewise.recipes.coupled_gru                                    # seven folds, five seeds, three models
    python -m likewise.recipes.coupled_gru --part folds --fold 3 --out folds.jsonl    # one of many processes
    python -m likewise.recipes.coupled_gru --part test --seeds 1 --first-seed 2 --candidates --out test.jsonl
    python -m likewise.recipes.coupled_gru --report folds.jsonl --report test.jsonl --figures figures/
    python -m likewise.recipes.coupled_gru --data shl_synthetic --epochs 1    # [100, 100] at the size of SHL

Models: sgru, the siamese GRU; cgru, the coupled GRU with coupling_bias 0, as the paper's text has it; cgru-4, with
coupling_bias -4, the weak start that the text means. All have the same settings.

folds: the 21 training subjects make seven folds. Three subjects are left out, the others train, and the best epoch by
1-NN accuracy of the three is scored, as in the paper: its scores are a little too good, alike for all models.
test: early stopping on the subjects of fold (seed mod 7); the test set then finds all 7,352 training sequences, 21.7
million pairs. Settings are those chosen on the folds, and nothing is chosen on test data.

Each run prints a JSON line, the end a table, and a paired test of every model against sgru over the folds and seeds
that both have (exact sign-flip permutation test, and Wilcoxon's). --figures draws Figure 3 (norm of the coupling and
loss), Figure 4 (noise), and the synchronisation error over time. --report does all that from lines of earlier runs;
those of recipes.rvsml have their rows.

The paper names neither its optimiser (Adam here) nor the constants of its structural loss, whose formula is a
reconstruction. Three of its statements do not hold as they are written:
- Small coupling weights do not start close to a siamese GRU: with coupling_bias 0 the gate starts at one half, where
  both sides get the same new state. Hence cgru-4.
- A coupling of one half does not make the distance zero: the new states agree, the update gates do not.
- The system that a GRU induces without input need not be chaotic: at PyTorch's initial weights the largest exponent of
  20 units is about -0.45, and near 0 with weights five times as large. Test lines have that of the trained network.
"""

import copy
import json
import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor

import likewise as lw
from likewise.data.shl import CHANNELS, CLASSES, read_shl, standardize
from likewise.distances.coupled_gru import CoupledGRU
from likewise.distances.siamese_gru import SiameseGRU
from likewise.dynamics.lyapunov import lyapunov
from likewise.evaluation.candidates import Candidates
from likewise.recipes.common import emit, known, load
from likewise.recipes.coupled_gru_report import SCORES, draw, print_tables
from likewise.regularizers.coupling_norm import coupling_norm

FOLDS = 7
NOISE = tuple(0.25 * level for level in range(9))  # deviations, of the paper's Figure 4
NOISY_ITEMS = 400
PAIRS_OVER_TIME = 200
EXPONENT_STEPS = 300
SHARES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)  # of the references that pass the coupled network
MODELS = {"sgru": None, "cgru": 0.0, "cgru-4": -4.0}  # the coupling_bias of each


@dataclass(frozen=True)
class Settings:
    """Of one run. Sizes, learning rate, decay, clip and the weight of the coupling norm are the paper's."""

    data: str = "har"
    model: str = "cgru"
    hidden: tuple[int, ...] = (20,)
    batch_size: int = 36
    lr: float = 1e-3
    weight_decay: float = 1e-4
    coupling_weight: float = 0.01  # times the norm of W_hc, added to the loss
    clip: float = 6.0
    epochs: int = 60
    patience: int = 20  # validations without a better one
    margin: float = 1.0
    temperature: float = 1.0
    global_weight: float = 0.1
    val_references: int = 1500  # training sequences that the validation after each epoch looks among


def main(
    part: Annotated[str, typer.Option(help="folds, test or both")] = "both",
    data: Annotated[str, typer.Option(help="har, shl or shl_synthetic")] = "har",
    model: Annotated[list[str], typer.Option(help=", ".join(MODELS) + "; may be given again")] = list(MODELS),  # noqa: B006
    fold: Annotated[int | None, typer.Option(help="Only this fold, 0 to 6.")] = None,
    seeds: Annotated[int, typer.Option(help="How many test runs.")] = 5,
    first_seed: Annotated[int, typer.Option(help="Where the seeds begin; also the seed of the folds.")] = 0,
    epochs: int = Settings.epochs,
    patience: int = Settings.patience,
    batch_size: int = Settings.batch_size,
    lr: float = Settings.lr,
    margin: float = Settings.margin,
    temperature: float = Settings.temperature,
    global_weight: float = Settings.global_weight,
    candidates: Annotated[bool, typer.Option(help="Score the coupled models by candidates too.")] = False,
    noise: Annotated[bool, typer.Option(help="Measure distances under noise, after test runs.")] = True,
    items: Annotated[int | None, typer.Option(help="Use every n-th item only, so that about so many train.")] = None,
    report: Annotated[list[Path] | None, typer.Option(help="Train nothing: read these lines.")] = None,
    figures: Annotated[Path | None, typer.Option(help="Draw Figures 3 and 4 to this folder.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where the data are; else $LIKEWISE_DATA.")] = None,
    out: Annotated[Path | None, typer.Option(help="Append the JSON lines to this file.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Keep checkpoints here, and go on from them.")] = None,
    verbose: bool = False,
) -> None:
    """Train siamese and coupled GRUs, and score them by retrieval."""
    for given, allowed in ((part, ("folds", "test", "both")), (data, READERS), *((name, MODELS) for name in model)):
        if given not in allowed:
            raise SystemExit(f"error: unknown {given!r}; expected one of {', '.join(allowed)}")
    if fold is not None and fold not in range(FOLDS):
        raise SystemExit(f"error: fold must be 0 to {FOLDS - 1}, got {fold}")
    lines = [json.loads(line) for path in report or () for line in path.read_text().splitlines()]
    if not report:
        base = Settings(
            data, epochs=epochs, patience=patience, batch_size=batch_size, lr=lr, margin=margin,
            temperature=temperature, global_weight=global_weight,
        )  # fmt: skip
        if data != "har":
            base = replace(base, hidden=(100, 100), batch_size=40 if batch_size == 36 else batch_size)
        source = data_dir or Path(os.environ.get("LIKEWISE_DATA", "."))
        train, test = (thinned(given, items) for given in READERS[data](source, items))
        plan = runs(part, fold, range(first_seed, first_seed + seeds))
        for kind, number, seed in plan:
            trained: dict[str, lw.Distance] = {}
            for name in model:
                settings = replace(base, model=name)
                kept = None if folder is None else folder / f"{data}, {name}, {kind} {number}"
                line, trained[name] = run(settings, kind, number, seed, train, test, folder=kept, verbose=verbose)
                if kind == "test":
                    line |= after(trained, name, train, test, noise=noise, candidates=candidates)
                emit(line, out)
                lines.append(line)
    print_tables(lines)
    if figures is not None:
        draw(lines, figures)


def runs(part: str, fold: int | None, seeds: range) -> Iterator[tuple[str, int, int]]:
    """The kind of each run, which fold or seed it is, and its seed."""
    if part in ("folds", "both"):
        yield from (("fold", number, seeds.start) for number in (range(FOLDS) if fold is None else [fold]))
    if part in ("test", "both"):
        yield from (("test", seed, seed) for seed in seeds)


def run(
    settings: Settings,
    kind: str,
    number: int,
    seed: int,
    train: lw.Dataset,
    test: lw.Dataset,
    *,
    folder: Path | None = None,
    verbose: bool = False,
) -> tuple[dict, lw.Distance]:
    """Train one model and score it: a line for JSON, and the model."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    out_of = left_out(train, number % FOLDS)  # (N,) bool
    x, y = train.sequences.to(device), known(train.labels)
    queries, labels = x[out_of], y[out_of]
    torch.manual_seed(seed)
    distance = build(settings, x.channels).to(device)
    norms = CouplingNorms(settings.coupling_weight, folder)
    step = max(1, int((~out_of).sum()) // settings.val_references)
    history = lw.fit(
        distance,
        x[~out_of],
        y[~out_of],
        lw.losses.Structural(settings.margin, settings.temperature, global_weight=settings.global_weight),
        val=(queries, labels, x[~out_of][::step], y[~out_of][::step]),
        epochs=settings.epochs,
        patience=settings.patience,
        batch_size=settings.batch_size,
        lr=settings.lr,
        weight_decay=settings.weight_decay,
        clip=settings.clip,
        terms=[norms] if isinstance(distance, CoupledGRU) else [],
        folder=folder,
        resume=folder is not None,
        seed=seed,
        verbose=verbose,
    )
    distance.to(device)
    start = time.perf_counter()
    if kind == "fold":
        scores = lw.evaluate(distance, (queries, labels), (x[~out_of], y[~out_of]))
    else:
        scores = lw.evaluate(distance, (test.sequences.to(device), known(test.labels)), (x, y))
    seconds = time.perf_counter() - start
    line = {
        "recipe": "coupled_gru",
        **asdict(settings),
        "kind": kind,
        "number": number,
        "seed": seed,
        **{name: getattr(scores, name) for name in SCORES},
        "best_epoch": history.best_epoch,
        "validation_accuracy": None if history.best is None else history.best.accuracy,
        "losses": history.losses,
        "accuracies": [score.accuracy for score in history.scores],
        "norms": norms.after(distance, len(history.losses)) if isinstance(distance, CoupledGRU) else [],
        "seconds_an_epoch": statistics.median(history.seconds),
        "wall_time": history.wall_time,
        "pairs": scores.queries * scores.references,
        "test_seconds": seconds,
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
    }
    return line, distance


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


class CouplingNorms:
    """A term of the loss, the norm of the coupling times a weight, which notes the norm at the start of each epoch."""

    def __init__(self, weight: float, folder: Path | None) -> None:
        self.weight = weight
        self.path = None if folder is None else folder / "norms.json"
        self.starts: dict[int, float] = {}
        if self.path is not None and self.path.exists():  # of a run that was stopped
            self.starts = {int(epoch): norm for epoch, norm in json.loads(self.path.read_text()).items()}

    def __call__(self, step: lw.Step) -> Tensor:
        """The term of one step."""
        norm = coupling_norm(step.metric)
        if step.epoch not in self.starts:
            self.starts[step.epoch] = float(norm.detach())  # once an epoch: reading a number waits for the GPU
            if self.path is not None:
                self.path.write_text(json.dumps(self.starts))
        return self.weight * norm

    def after(self, distance: lw.Distance, epochs: int) -> list[float]:
        """The norm after each epoch; after the last, that of the weights that were kept."""
        last = float(coupling_norm(distance).detach())
        return [self.starts.get(epoch, last) for epoch in range(1, epochs + 1)]


def after(
    trained: dict[str, lw.Distance], name: str, train: lw.Dataset, test: lw.Dataset, *, noise: bool, candidates: bool
) -> dict:
    """What test runs measure besides: noise, exponents, errors over time, and retrieval by candidates."""
    found: dict = {}
    if noise:
        found["noise"] = under_noise(trained[name], test)
    found["largest_exponent"] = largest_exponent(trained[name])
    if isinstance(coupled := trained[name], CoupledGRU):
        found["synchronization"] = synchronization(coupled, test)
        if candidates:
            found["candidates"] = list(by_candidates(trained, name, train, test))
    return found


def largest_exponent(distance: lw.Distance) -> float | None:
    """The largest Lyapunov exponent of one side of a network of one layer, without input: chaotic if it is positive."""
    siamese = SiameseGRU.of(distance) if isinstance(distance, CoupledGRU) else distance
    if not isinstance(siamese, SiameseGRU) or len(siamese.layers) > 1:
        return None
    layer, threads = copy.deepcopy(siamese.layers[0]).cpu().double(), torch.get_num_threads()
    torch.set_num_threads(1)  # matrices of 20 x 20: threads of many processes only wait for each other
    try:
        return float(lyapunov(layer, steps=EXPONENT_STEPS, burn_in=EXPONENT_STEPS // 2, count=1))
    finally:
        torch.set_num_threads(threads)


@torch.no_grad()
def synchronization(coupled: CoupledGRU, test: lw.Dataset) -> dict:
    """Mean error ||h_t - h'_t|| at each step, and mean coupling, of positive and negative pairs of test sequences."""
    device = next(coupled.parameters()).device
    labels = known(test.labels)
    order = torch.randperm(len(test), generator=torch.Generator().manual_seed(0))
    first, second = order[: len(order) // 2], order[len(order) // 2 :][: len(order) // 2]
    found: dict = {}
    for name, wanted in (("positive", True), ("negative", False)):
        chosen = ((labels[first] == labels[second]) == wanted).nonzero()[:PAIRS_OVER_TIME, 0]
        if len(chosen):
            x, y = (test.sequences[side[chosen]].to(device) for side in (first, second))
            alignment = coupled.align(x, y)
            found[name] = alignment.error.mean(0).tolist()
            found[f"{name}_coupling"] = float(alignment.coupling.mean())
    return found


@torch.no_grad()
def under_noise(distance: lw.Distance, test: lw.Dataset) -> dict:
    """Mean distances of positive and of negative pairs of test sequences to which noise was added (Figure 4)."""
    device = next(distance.parameters()).device
    step = max(1, len(test) // NOISY_ITEMS)
    x, y = test.sequences[::step].to(device), known(test.labels)[::step].to(device)
    same = y[:, None] == y
    other = torch.eye(len(y), dtype=torch.bool, device=device)
    found: dict[str, list[float]] = {"levels": list(NOISE), "positive": [], "negative": []}
    for level in NOISE:
        draw = torch.randn(x.values.shape, generator=torch.Generator().manual_seed(0)).to(x.values)
        D = distance.matrix(lw.Batch(x.values + level * draw, x.lengths))
        found["positive"].append(float(D[same & ~other].mean()))
        found["negative"].append(float(D[~same].mean()))
    return found


def by_candidates(trained: dict[str, lw.Distance], name: str, train: lw.Dataset, test: lw.Dataset) -> Iterator[dict]:
    """Scores and times when only a share of the references passes the coupled network.

    Candidates come from the sgru that was trained beside it, if there is one, and from the network's own twin: its
    weights without the coupling.
    """
    coupled = trained[name]
    assert isinstance(coupled, CoupledGRU)
    device = next(coupled.parameters()).device
    queries = test.sequences.to(device), known(test.labels)
    references = train.sequences.to(device), known(train.labels)
    choosers = {"twin": SiameseGRU.of(coupled)} | ({"sgru": trained["sgru"]} if "sgru" in trained else {})
    for chooser, cheap in choosers.items():
        for share in SHARES:
            start = time.perf_counter()
            scores = lw.evaluate(coupled, queries, references, candidates=Candidates(cheap, share))
            yield {
                "by": chooser,
                "share": share,
                **{score: getattr(scores, score) for score in SCORES},
                "seconds": time.perf_counter() - start,
            }


def left_out(train: lw.Dataset, fold: int) -> Tensor:
    """Which items (N,) belong to the subjects of a fold: of 21 sorted subjects, three in a row."""
    assert train.groups is not None
    subjects = train.groups.unique()
    size = -(-len(subjects) // FOLDS)
    return torch.isin(train.groups, subjects[fold * size : (fold + 1) * size])


def read_har(folder: Path, items: int | None) -> tuple[lw.Dataset, lw.Dataset]:
    """UCI HAR as it comes: nothing is standardised."""
    data = load(folder / "uci_har.npz")
    train, test = (
        lw.Dataset(
            lw.Batch(torch.from_numpy(data[f"X_{part}"]).float()),
            torch.from_numpy(data[f"y_{part}"]).long(),
            tuple(map(str, data["classes"])),
            torch.from_numpy(data[f"subject_{part}"]).long(),
        )
        for part in ("train", "test")
    )
    return train, test


def read_shl_parts(folder: Path, items: int | None) -> tuple[lw.Dataset, lw.Dataset]:
    """The SHL challenge's folders train and test; blocks of the recording take the place of subjects."""
    train, test = standardize(read_shl(folder / "train"), read_shl(folder / "test"))
    assert train.groups is not None
    blocks = train.groups * FOLDS // (int(train.groups.max()) + 1)
    return replace(train, groups=blocks), test


def synthetic(folder: Path, items: int | None) -> tuple[lw.Dataset, lw.Dataset]:
    """Random recordings of the size of SHL: 15,660 and 5,472 of 300 steps and 36 channels, in eight classes."""
    generator = torch.Generator().manual_seed(0)
    shapes = torch.randn(len(CLASSES), 4, len(CHANNELS), generator=generator)  # of each class, over four waves
    parts = []
    for count in (15660, 5472) if items is None else (items, max(len(CLASSES), items // 3)):
        labels = torch.arange(count) % len(CLASSES)
        time_ = torch.arange(300) / 300
        phases = 6.28 * torch.rand(count, 1, 4, generator=generator)
        speed = (1 + labels)[:, None, None] * torch.tensor([1.0, 2.0, 3.0, 5.0])
        waves = torch.sin(6.28 * speed * time_[None, :, None] + phases)  # (N, T, 4)
        values = waves @ shapes[labels] / 2 + torch.randn(count, 300, len(CHANNELS), generator=generator)
        parts.append(lw.Dataset(lw.Batch(values), labels, CLASSES, torch.arange(count) // len(CLASSES) % 21))
    return parts[0], parts[1]


READERS = {"har": read_har, "shl": read_shl_parts, "shl_synthetic": synthetic}


def thinned(part: lw.Dataset, items: int | None) -> lw.Dataset:
    """Every n-th item, so that about ``items`` are left."""
    step = 1 if items is None else max(1, len(part) // items)
    assert part.groups is not None
    return lw.Dataset(part.sequences[::step], known(part.labels)[::step], part.classes, part.groups[::step])


if __name__ == "__main__":
    typer.run(main)
