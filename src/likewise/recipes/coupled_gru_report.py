"""Tables and figures of ``recipes.coupled_gru``, from its JSON lines and those of ``recipes.rvsml``."""

import statistics
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from likewise.evaluation.significance import paired_test
from likewise.recipes.common import spread

SCORES = ("accuracy", "f1", "map")


def print_tables(lines: list[dict]) -> None:
    """Means and spreads of every model, and how sure its difference from sgru is."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    table = Table(title="retrieval: validation on left-out subjects, and the test set")
    for heading in ("run", "model", "runs", *SCORES, "best epoch", "s an epoch", "pairs/s"):
        table.add_column(heading, justify="left" if heading in ("run", "model") else "right")
    mine = [line for line in lines if line.get("recipe") == "coupled_gru"]
    for kind, name in dict.fromkeys((line["kind"], line["model"]) for line in mine):
        same = [line for line in mine if (line["kind"], line["model"]) == (kind, name)]
        table.add_row(
            kind, name, str(len(same)), *(spread([line[score] for line in same], "{:.3f}") for score in SCORES),
            spread([line["best_epoch"] for line in same], "{:.0f}"),
            spread([line["seconds_an_epoch"] for line in same], "{:.2f}"),
            spread([line["pairs"] / line["test_seconds"] for line in same], "{:,.0f}"),
        )  # fmt: skip
    for line in lines:
        if line.get("recipe") == "rvsml" and all(score in line for score in SCORES):
            name = f"RVSML ({line.get('aligner', '')})"
            table.add_row("test", name, "1", *(f"{line[score]:.3f}" for score in SCORES), "", "", "")
    console.print(table)
    if any(line.get("candidates") for line in mine):
        console.print(candidates_table([line for line in mine if line.get("candidates")]))
    for name in dict.fromkeys(line["model"] for line in mine if line["model"] != "sgru"):
        for score in SCORES:
            a, b = paired(mine, name, score)
            if len(a) > 1:
                test = paired_test(a, b)
                console.print(
                    f"{name} - sgru, {score}: {test.difference:+.3f} over {test.pairs} folds and seeds; "
                    f"p = {test.permutation:.4f} (sign flips), {test.wilcoxon:.4f} (Wilcoxon)"
                )


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


def paired(lines: list[dict], name: str, score: str) -> tuple[list[float], list[float]]:
    """Scores of a model and of sgru on the folds and seeds that both have."""
    found = {model: {(line["kind"], line["number"]): line[score] for line in lines if line["model"] == model}
             for model in (name, "sgru")}  # fmt: skip
    both = sorted(found[name].keys() & found["sgru"].keys())
    return [found[name][key] for key in both], [found["sgru"][key] for key in both]


def draw(lines: list[dict], folder: Path) -> None:
    """Draw Figure 3 of every run that has a coupling, and Figure 4 with the means over the runs of each model."""
    from matplotlib.figure import Figure

    from likewise.viz import dynamics

    folder.mkdir(parents=True, exist_ok=True)
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
            labels = [f"{kind} pairs" for kind in kinds]
            dynamics.synchronization([found[kind] for kind in kinds], labels=labels, ax=figure.subplots())
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
