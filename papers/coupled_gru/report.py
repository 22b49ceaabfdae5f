"""Print the coupled GRU's tables from its lines, and draw its figures.

python -m papers.coupled_gru.report
python -m papers.coupled_gru.report --figures FOLDER
"""

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from likewise.evaluation.significance import paired_test
from papers.common import bold, decimals, from_command_line, read_lines, table
from papers.coupled_gru.data import FOLDS

HERE = Path(__file__).parent
HAR_TRAIN = 7352  # training sequences
SCORES = ("accuracy", "f1", "map")
NAMES = {"sgru": "siamese GRU", "cgru": "coupled GRU", "cgru-4": "coupled GRU, weak start (bias -4)"}
PAPER = ["coupled GRU in the paper", ".913", ".916", ".900", ".885", ".887", ".899"]
RVSML = {("dtw", 2947): "RVSML with DTW", ("opw", 156): "RVSML with OPW, 156 of 2,947 queries"}


@dataclass(frozen=True)
class Options:
    """What is drawn."""

    figures: Path | None = None  # where Figures 3 and 4 and the synchronisation go


def tables() -> Iterator[str]:
    """The tables of README.md."""
    lines = read_lines(HERE / "har.jsonl")
    yield scores_table(lines, read_lines(HERE.parent / "rvsml" / "har.jsonl"))
    yield differences_table(lines)
    yield choice_table(lines, read_lines(HERE / "har_choice.jsonl"))
    yield candidates_table(lines)


def scores_table(lines: list[dict], rvsml: list[dict]) -> str:
    """Folds and test set, means and deviations, with the paper's coupled GRU and RVSML."""
    rows = [
        [name, *(decimals(scores_of(lines, model, kind, score)) for kind in ("fold", "test") for score in SCORES)]
        for model, name in NAMES.items()
    ]
    others = [
        [RVSML[line["aligner"], line["test"]], "", "", "", *(decimals([line[score]]) for score in SCORES)]
        for line in rvsml
        if (line["aligner"], line["test"]) in RVSML and not line["standardize"]
    ]
    others.sort(key=lambda row: list(RVSML.values()).index(row[0]))
    headings = ["", "folds: accuracy", "macro-F1", "MAP", "test: accuracy", "macro-F1", "MAP"]
    return table(headings, [*bold(rows), PAPER, *others])


def scores_of(lines: list[dict], model: str, kind: str, score: str) -> list[float]:
    """One score of every fold, or of every test seed."""
    return [line[score] for line in lines if (line["model"], line["kind"]) == (model, kind)]


def differences_table(lines: list[dict]) -> str:
    """How far each coupled network is from the siamese one over the folds and seeds of both, and p of sign flips."""
    found = {(line["model"], line["kind"], line["number"]): line for line in lines}
    rows = []
    for model in ("cgru", "cgru-4"):
        both = [key[1:] for key in found if key[0] == model and ("sgru", *key[1:]) in found]
        cells = []
        for score in SCORES:
            test = paired_test(*([found[(name, *key)][score] for key in both] for name in (model, "sgru")))
            cells.append(f"{test.difference:+.3f}, p = {test.permutation:.4f}".replace("0.", "."))
        rows.append([f"{NAMES[model]}, {len(both)} folds and seeds", *cells])
    return table(["less the siamese GRU", "accuracy", "macro-F1", "MAP"], rows)


def choice_table(lines: list[dict], others: list[dict]) -> str:
    """What the weight of the loss's global term was chosen by, on the folds."""
    rows = []
    for line in (lines[0], others[0]):
        folds = [
            one
            for one in lines + others
            if (one["model"], one["kind"], one["global_weight"]) == ("cgru", "fold", line["global_weight"])
        ]
        means = [statistics.mean(one[score] for one in folds) for score in ("accuracy", "map")]
        rows.append([f"{line['global_weight']}", *(decimals([value]) for value in (*means, statistics.mean(means)))])
    return table(["global_weight", "accuracy", "MAP", "mean of both"], rows)


def candidates_table(lines: list[dict], model: str = "cgru", chooser: str = "sgru") -> str:
    """Scores and seconds by the share of pairs that pass the coupled network."""
    own = [line for line in lines if line["model"] == model and line.get("candidates")]
    cells: dict[float, list[dict]] = {}
    for line in own:
        for found in line["candidates"]:
            if found["by"] == chooser:
                cells.setdefault(found["share"], []).append(found)
        cells.setdefault(1.0, []).append({**line, "seconds": line["test_seconds"]})
    shares = sorted(cells)
    rows = [
        [name, *(form(statistics.mean(one[score] for one in cells[share])) for share in shares)]
        for name, score, form in (
            ("accuracy", "accuracy", lambda value: decimals([value])),
            ("MAP", "map", lambda value: decimals([value])),
            ("seconds", "seconds", "{:.2f}".format),
        )
    ]
    return table(["share of pairs passed", *(f"{100 * share:g} %" for share in shares)], rows)


def epochs_of(line: dict, lines: list[dict]) -> list[float]:
    """After how many epochs the validations of a line came; earlier lines count steps."""
    if "validation_epochs" in line:
        return line["validation_epochs"]
    # The subjects of fold n are held out: of N = own + theirs training sequences, a fold's pairs are own * theirs.
    fold = next(one for one in lines if (one["kind"], one["number"]) == ("fold", line["number"] % FOLDS))
    own = (HAR_TRAIN + math.isqrt(HAR_TRAIN**2 - 4 * fold["pairs"])) // 2
    return [step / (own // line["batch_size"]) for step in line["validation_steps"]]


def draw(lines: list[dict], folder: Path) -> None:
    """Draw Figure 3 and the synchronisation error of every coupled run, and Figure 4 with means over the runs."""
    from matplotlib.figure import Figure

    from likewise import viz

    folder.mkdir(parents=True, exist_ok=True)
    for line in lines:
        name = f"{line['model']} {line['kind']} {line['number']}"
        if line.get("norms"):
            figure = Figure(figsize=(9, 3.4), layout="constrained")
            left, right = figure.subplots(1, 2)
            viz.plot_coupling_norm(line["norms"], line["accuracies"], epochs=epochs_of(line, lines), ax=left)
            viz.plot_loss_by_coupling(line["norms"], line["losses"], ax=right)
            figure.savefig(folder / f"{name} coupling.png", dpi=150)
        errors = {kind: values for kind, values in line.get("synchronization", {}).items() if isinstance(values, list)}
        if errors:
            figure = Figure(figsize=(6, 4), layout="constrained")
            names = [f"{kind} pairs" for kind in errors]
            viz.plot_synchronization(list(errors.values()), labels=names, ax=figure.subplots())
            figure.savefig(folder / f"{name} synchronisation.png", dpi=150)
    noisy = [line for line in lines if "noise" in line]
    if noisy:
        curves = {}
        for model in dict.fromkeys(line["model"] for line in noisy):
            same = [line["noise"] for line in noisy if line["model"] == model]
            curves[model] = tuple(
                [statistics.mean(values) for values in zip(*(found[side] for found in same), strict=True)]
                for side in ("positive", "negative")
            )
        figure = Figure(figsize=(6, 4), layout="constrained")
        viz.plot_noise(noisy[0]["noise"]["levels"], curves, ax=figure.subplots())
        figure.savefig(folder / "noise.png", dpi=150)


def main(options: Options) -> None:
    """Print every table, and draw the figures if asked to."""
    print(*tables(), sep="\n\n")
    if options.figures is not None:
        draw(read_lines(HERE / "har.jsonl"), options.figures)


if __name__ == "__main__":
    main(*from_command_line(Options()))
