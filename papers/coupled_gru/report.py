"""Tables and figures of ``recipes.coupled_gru``, from its JSON lines and those of ``recipes.rvsml``."""

import statistics
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from likewise.evaluation.significance import paired_test
from likewise.recipes.common import spread

SCORES = ("accuracy", "f1", "map")
SETTINGS = ("data", "batch_size", "lr", "decay", "average", "steps", "margin", "temperature", "global_weight")


def print_tables(lines: list[dict]) -> None:
    """Means and spreads of every model, and how sure its difference from sgru is."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    table = Table(title="retrieval: validation on left-out subjects, and the test set")
    for heading in ("run", "model", "runs", *SCORES, "best step", "ms a step", "pairs/s"):
        table.add_column(heading, justify="left" if heading in ("run", "model") else "right")
    own = [line for line in lines if line.get("recipe") == "coupled_gru"]
    mine: list[dict] = [line | {"model": label} for line, label in zip(own, labels(own), strict=True)]
    for kind, name in dict.fromkeys((line["kind"], line["model"]) for line in mine):
        same = [line for line in mine if (line["kind"], line["model"]) == (kind, name)]
        table.add_row(
            kind, name, str(len(same)), *(spread([line[score] for line in same], "{:.3f}") for score in SCORES),
            spread([line["best_step"] for line in same], "{:.0f}"),
            spread([step_time(line) for line in same], "{:.2f}"),
            spread([line["pairs"] / line["test_seconds"] for line in same], "{:,.0f}"),
        )  # fmt: skip
    for line in lines:
        if line.get("recipe") == "rvsml" and all(score in line for score in SCORES):
            name = f"RVSML ({line.get('aligner', '')})"
            table.add_row("test", name, "1", *(f"{line[score]:.3f}" for score in SCORES), "", "", "")
    console.print(table)
    if any(line.get("candidates") for line in mine):
        console.print(candidates_table([line for line in mine if line.get("candidates")]))
    for name in dict.fromkeys(line["model"] for line in mine if line["model"].split()[0] != "sgru"):
        for score in SCORES:
            a, b = paired(mine, name, score)
            if len(a) > 1:
                test = paired_test(a, b)
                console.print(
                    f"{name} - {twin(name)}, {score}: {test.difference:+.3f} over {test.pairs} folds and seeds; "
                    f"p = {test.permutation:.4f} (sign flips), {test.wilcoxon:.4f} (Wilcoxon)"
                )


def step_time(line: dict) -> float:
    """Milliseconds of the device for each step, validations included: of so many trainings at once, its share."""
    return 1000 * line["seconds"] / line["validation_steps"][-1] / line["together"]


def candidates_table(lines: list[dict]) -> Table:
    """Scores and times against the share of pairs that pass the coupled network."""
    table = Table(title="a siamese GRU chooses candidates, the coupled one re-ranks them")
    for heading in ("model", "chosen by", "share of pairs", *SCORES, "seconds"):
        table.add_column(heading, justify="left" if heading in ("model", "chosen by") else "right")
    cells: dict[tuple, list[dict]] = {}
    for line in lines:
        every = {"by": "nobody", "share": 1.0, "seconds": line["test_seconds"]} | {name: line[name] for name in SCORES}
        for found in (*line["candidates"], every):
            cells.setdefault((line["model"], found["by"], found["share"]), []).append(found)
    for (model, chooser, share), found in sorted(cells.items()):
        scores = (spread([one[name] for one in found], "{:.3f}") for name in SCORES)
        table.add_row(model, chooser, f"{share:.1%}", *scores, spread([one["seconds"] for one in found], "{:.2f}"))
    return table


def labels(lines: list[dict]) -> list[str]:
    """The model of each line and, where lines differ in a setting, that setting: "cgru lr 0.01"."""
    differ = [name for name in SETTINGS if len({line.get(name) for line in lines}) > 1]
    return [" ".join([line["model"], *(f"{name} {line.get(name)}" for name in differ)]) for line in lines]


def twin(label: str) -> str:
    """The label of the siamese GRU of the same settings."""
    return " ".join(["sgru", *label.split()[1:]])


def paired(lines: list[dict], name: str, score: str) -> tuple[list[float], list[float]]:
    """Scores of a model and of its twin on the folds and seeds that both have."""
    found = {model: {(line["kind"], line["number"]): line[score] for line in lines if line["model"] == model}
             for model in (name, twin(name))}  # fmt: skip
    both = sorted(found[name].keys() & found[twin(name)].keys())
    return [found[name][key] for key in both], [found[twin(name)][key] for key in both]


def draw(lines: list[dict], folder: Path) -> None:
    """Draw Figure 3 of every run that has a coupling, and Figure 4 with the means over the runs of each model."""
    from matplotlib.figure import Figure

    from likewise.viz import dynamics

    folder.mkdir(parents=True, exist_ok=True)
    own = [line for line in lines if line.get("recipe") == "coupled_gru"]
    lines = [line | {"model": label} for line, label in zip(own, labels(own), strict=True)]
    for line in lines:
        if line.get("norms"):
            figure = Figure(figsize=(9, 3.4), layout="constrained")
            left, right = figure.subplots(1, 2)
            dynamics.coupling_norm(line["norms"], line["accuracies"], ax=left)
            dynamics.loss_by_coupling(line["norms"], line["losses"], ax=right)
            figure.savefig(folder / f"{line['model']} {line['kind']} {line['number']} coupling.png", dpi=150)
    for line in lines:
        found = line.get("synchronization", {})
        kinds = [kind for kind in ("positive", "negative") if kind in found]
        if kinds:
            figure = Figure(figsize=(6, 4), layout="constrained")
            names = [f"{kind} pairs" for kind in kinds]
            dynamics.synchronization([found[kind] for kind in kinds], labels=names, ax=figure.subplots())
            figure.savefig(folder / f"{line['model']} {line['kind']} {line['number']} synchronisation.png", dpi=150)
    noisy = [line for line in lines if "noise" in line]
    if noisy:
        curves = {}
        for name in dict.fromkeys(line["model"] for line in noisy):
            same = [line["noise"] for line in noisy if line["model"] == name]
            curves[name] = tuple(
                [statistics.mean(values) for values in zip(*(found[side] for found in same), strict=True)]
                for side in ("positive", "negative")
            )
        figure = Figure(figsize=(6, 4), layout="constrained")
        dynamics.noise(noisy[0]["noise"]["levels"], curves, ax=figure.subplots())
        figure.savefig(folder / "noise.png", dpi=150)
