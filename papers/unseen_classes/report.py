"""Lines, tables and plots of the recipe of unseen classes."""

import json
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from likewise.recipes.common import rounded, spread

RECALLS = ("1", "2", "4", "8")
DIGITS = 5  # of numbers in a file: a hundredth of a percent, and one more


def done(out: Path | None) -> list[dict]:
    """The lines of an earlier run; a last one that was cut off is left out."""
    if out is None or not out.is_file():
        return []
    lines = []
    for text in out.read_text().splitlines():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    return lines


def shortened(line: dict) -> dict:
    """What a line keeps in a file: five digits, and of each epoch what is drawn and chosen by."""
    kept = dict(line)
    if "curve" in line:
        kept["curve"] = [
            {**{name: point[name] for name in ("epoch", "nmi", "map_at_r")}, "recall": {"1": recall_of(point)}}
            for point in line["curve"]
        ]
    if kept.get("recall_any") == kept["recall"]:
        del kept["recall_any"]
    return rounded(kept, DIGITS)


def line_name(line: dict) -> str:
    """What tables and plots call a run."""
    if line["loss"] == "untrained":
        return "untrained"
    values = [f"{name} {line[name]:g}" for name in ("strength", "alpha") if line.get(name) is not None]
    values += [f"x {line['factor']:g}"] if line.get("factor", 1) != 1 else []
    values += [f"held out {line['held_out']:g}"] if line.get("held_out", 0.5) != 0.5 else []
    return ", ".join([line["loss"] if line["add"] == "none" else f"{line['loss']} + {line['add']}", *values])


def print_tables(data: str, lines: list[dict]) -> None:
    """Print means and spreads over seeds: on the unseen classes, and on training classes that were held out."""
    for held_out, title in ((False, "unseen classes"), (True, "training classes, held out")):
        rows = [line for line in lines if line["validate"] is held_out]
        if rows:
            print_table(f"{data}: {title}", rows)


def print_table(title: str, lines: list[dict]) -> None:
    """Print NMI, Recall@k, k-NN accuracy and MAP@R in percent, and what R@1 has over the loss alone, seed by seed."""
    table = Table(title=title)
    numbers = ("NMI", *(f"R@{k}" for k in RECALLS), "k-NN", "MAP@R")
    for heading in ("method", "runs", "more R@1", *numbers, "epochs", "s an epoch"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for name, same in grouped(lines).items():
        table.add_row(
            name,
            str(len(same)),
            spread(more_recall(same, lines), "{:+.1f}").replace("± +", "± "),
            spread([100 * line["nmi"] for line in same], "{:.1f}"),
            *(spread([100 * line["recall"][k] for line in same if k in line["recall"]], "{:.1f}") for k in RECALLS),
            spread([100 * line["knn"] for line in same if line["knn"] is not None], "{:.1f}"),
            spread([100 * line["map_at_r"] for line in same], "{:.1f}"),
            mean([line["epochs"] for line in same if "epochs" in line]),
            spread([line["seconds_an_epoch"] for line in same if "seconds_an_epoch" in line], "{:.2f}"),
        )
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def grouped(lines: list[dict]) -> dict[str, list[dict]]:
    """Lines that differ in their seed only, by name."""
    groups: dict[str, list[dict]] = {}
    for line in lines:
        groups.setdefault(line_name(line), []).append(line)
    return groups


def more_recall(same: list[dict], lines: list[dict]) -> list[float]:
    """By how many points Recall@1 is above that of the loss alone, for each run that has such a twin."""
    if same[0].get("add", "none") == "none":
        return []
    alone = {run_of(line): recall_of(line) for line in lines if line.get("add") == "none"}
    return [100 * (recall_of(line) - alone[run_of(line)]) for line in same if run_of(line) in alone]


def run_of(line: dict) -> tuple:
    """What a run and that of the loss alone have in common."""
    return line["loss"], line["seed"], line["fold"], line.get("held_out")


@dataclass(frozen=True, order=True)
class Best:
    """An epoch, and how well it did: by Recall@1 and, among equals, MAP@R, in the mean of some lines' curves."""

    recall: float
    map_at_r: float
    epoch: int


def best(lines: list[dict]) -> Best:
    """The best epoch of some lines, the first of equals."""
    by_epoch: dict[int, list[dict]] = {}
    for point in (point for line in lines for point in line["curve"]):
        by_epoch.setdefault(point["epoch"], []).append(point)
    found = [
        Best(statistics.mean(map(recall_of, same)), statistics.mean(point["map_at_r"] for point in same), epoch)
        for epoch, same in by_epoch.items()
    ]
    return max(found, key=lambda one: (one.recall, one.map_at_r, -one.epoch))


def mean(epochs: list[int]) -> str:
    """Of the epochs of seeds, rounded; nothing of nothing."""
    return f"{statistics.mean(epochs):.0f}" if epochs else ""


def plot(path: Path, lines: list[dict], sweep: str | None) -> None:
    """Draw NMI and Recall@1 by epoch, or by the value that was swept; means over seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.subplots(1, 2)
    scored = [line for line in lines if "curve" in line and not line["validate"]] or [
        line for line in lines if "curve" in line
    ]
    for ax, heading, score in zip(axes, ("NMI", "Recall@1"), (nmi_of, recall_of), strict=True):
        if sweep is None:
            for name, same in grouped(scored).items():
                by_epoch: dict[int, list[float]] = {}
                for point in (point for line in same for point in line["curve"]):
                    by_epoch.setdefault(point["epoch"], []).append(100 * score(point))
                epochs = sorted(by_epoch)
                ax.plot(epochs, [statistics.mean(by_epoch[e]) for e in epochs], label=name)
            ax.set_xlabel("epoch")
        else:
            draw_sweep(ax, scored, sweep, score)
        ax.set_ylabel(f"{heading}, %")
    drawn = axes[0].get_legend_handles_labels()
    if drawn[0]:
        figure.legend(*drawn, loc="outside lower center", ncols=3, fontsize="small")
    figure.savefig(path)


def draw_sweep(ax: object, lines: list[dict], sweep: str, score: object) -> None:
    """Draw a score by the value that was swept, one line for each loss and addition."""
    kinds: dict[str, dict[float, list[float]]] = {}
    for line in lines:
        values = kinds.setdefault(f"{line['loss']} + {line['add']}", {})
        values.setdefault(line[sweep], []).append(100 * score(line))  # type: ignore[operator]
    for kind, values in kinds.items():
        places = sorted(values)
        spreads = [statistics.stdev(values[v]) if len(values[v]) > 1 else 0.0 for v in places]
        means = [statistics.mean(values[v]) for v in places]
        ax.errorbar(places, means, spreads, marker="o", capsize=3, label=kind)  # type: ignore[attr-defined]
    if sweep == "alpha":  # over three powers of ten, and 0
        ax.set_xscale("symlog", linthresh=0.03)  # type: ignore[attr-defined]
    ax.set_xlabel({"strength": "lambda"}.get(sweep, sweep))  # type: ignore[attr-defined]


def nmi_of(scores: dict) -> float:
    """The agreement of clusters with classes."""
    return scores["nmi"]


def recall_of(scores: dict) -> float:
    """Recall@1."""
    return scores["recall"]["1"]
