"""Print the tables of unseen classes from their lines, and draw their figures.

python -m papers.unseen_classes.report
python -m papers.unseen_classes.report --full          # also NMI, Recall@2, 4, 8, k-NN and MAP@R of every row
python -m papers.unseen_classes.report --figures FOLDER
"""

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from papers.common import bold, from_command_line, read_lines, spread, table
from papers.unseen_classes.beside import RUNS, chosen_gains, chosen_lines, tables_of
from papers.unseen_classes.lines import (
    ADDITIONS,
    DATA,
    HERE,
    LOSSES,
    UNTRAINED,
    Best,
    best_epoch,
    by_epoch,
    lines_of,
    nmi_of,
    recall_of,
    test_lines,
)

__all__ = ["Best", "best_epoch", "main", "sentences", "tables"]


@dataclass(frozen=True)
class Options:
    """What to print and draw."""

    full: bool = False  # all scores of every row
    figures: Path | None = None  # where the figures go


def tables() -> Iterator[str]:
    """The tables of README.md."""
    for data in DATA:
        yield recall_table(data)
        if data in ("flowers102", "utd_mhad"):
            yield gains_table(data)
        if data == "flowers102":
            yield rates_table()
            for runs in RUNS:
                yield from tables_of(runs)
        if any("transfer" in line for line in lines_of(data)):
            yield transfer_table(data)
        if any(line["data"] == data for line in read_lines(HERE / "variants.jsonl")):
            yield variants_table(data)


def sentences() -> Iterator[str]:
    """The sentences of README.md that quote results, from the lines."""
    plain = next(100 * line["nmi"] for line in lines_of("sad") if line["loss"] == "untrained")
    trained = statistics.mean(100 * line["nmi"] for line in test_lines("sad", "am_softmax", "none"))
    yield f"What learning gains on digits is NMI: {plain:.1f} untrained, {trained:.1f} with AM-softmax"
    swept = [line for line in lines_of("flowers102") if line["validate"] and line.get("alpha") is not None]
    best = {
        alpha: 100 * best_epoch([line for line in swept if line["alpha"] == alpha]).recall for alpha in (0, 0.3, 1, 10)
    }
    *first, last = (f"{recall:.1f} at {alpha:g}" for alpha, recall in best.items())
    yield f"by alpha, at the best epoch, Recall@1 is {', '.join(first)} and {last}"
    for loss, name in LOSSES.items():
        if all(chosen_lines("frozen", loss, add) for add in ("none", "pooled", "gdfl")):
            pairs = ("pooled", "none"), ("gdfl", "pooled")
            layers, attention = (f"{statistics.mean(chosen_gains('frozen', loss, *pair)):.1f}" for pair in pairs)
            with_loss = f"with {'triplets' if loss == 'triplet' else name}"
            more = f"{layers} points over the loss alone, and the attention {attention} over them"
            yield f"{with_loss} the layers' means gain {more}"


def losses_of(data: str) -> dict[str, str]:
    """The losses that have lines of the unseen classes, with their names."""
    return {loss: name for loss, name in LOSSES.items() if test_lines(data, loss, "none")}


def recall_table(data: str) -> str:
    """Recall@1 in percent of every addition to every loss, and of untrained features."""
    losses = losses_of(data)
    found = {add: [test_lines(data, loss, add) for loss in losses] for add in ADDITIONS}
    counts = {len(same) for groups in found.values() for same in groups if same}
    rows = []
    for add, groups in found.items():
        if any(groups):
            fewer = [len(same) for same in groups if same and len(same) < max(counts)]
            name = ADDITIONS[add] + (f", {min(fewer)} seeds" if fewer else "")
            rows.append([name, *(spread([100 * recall_of(line) for line in same], "{:.1f}") for same in groups)])
    plain = {line.get("add"): line for line in lines_of(data) if line["loss"] == "untrained"}
    for add, name in reversed(UNTRAINED.items()):
        if add in plain:
            rows.insert(0, [name, *[f"{100 * recall_of(plain[add]):.1f}"] * len(losses)])
    return table([f"{DATA[data]}, Recall@1 in %, {max(counts)} seeds", *losses.values()], bold(rows))


def gains_table(data: str) -> str:
    """By how many points Recall@1 is above that of the loss alone, seed by seed."""
    losses = losses_of(data)
    rows = []
    for add, name in ADDITIONS.items():
        if add != "none" and any(test_lines(data, loss, add) for loss in losses):
            rows.append([name, *(spread(gains(data, loss, add), "{:+.1f}") for loss in losses)])
    return table([f"{DATA[data]}, more Recall@1", *losses.values()], rows)


def gains(data: str, loss: str, add: str) -> list[float]:
    """Points of Recall@1 above the same seed of the loss alone."""
    alone = {line["seed"]: recall_of(line) for line in test_lines(data, loss, "none")}
    return [100 * (recall_of(ln) - alone[ln["seed"]]) for ln in test_lines(data, loss, add) if ln["seed"] in alone]


def transfer_table(data: str) -> str:
    """``parts.transfer_terms`` of every row that has them: lambda^NN in percent, and d^_H, means over the seeds."""
    losses = losses_of(data)
    plain = [line for line in lines_of(data) if line["loss"] == "untrained" and line.get("add") is None]
    rows = [("untrained features", [plain] * len(losses))]
    rows += [(name, [test_lines(data, loss, add) for loss in losses]) for add, name in ADDITIONS.items()]
    cells = []
    for name, groups in rows:
        found = [[line["transfer"] for line in same if "transfer" in line] for same in groups]
        if any(found):
            cells.append([name, *map(both_terms, found)])
    return table([f"{DATA[data]}, lambda^NN in % and d^_H", *losses.values()], cells)


def both_terms(found: list[dict]) -> str:
    """A cell of ``transfer_table``."""
    if not found:
        return ""
    combined, divergence = (statistics.mean(one[term] for one in found) for term in ("lambda_nn", "divergence_nn"))
    return f"{100 * combined:.1f}, {divergence:.2f}"


def rates_table() -> str:
    """Recall@1 on the held-out classes by the backbone's learning rate, which was chosen by it."""
    lines = [*read_lines(HERE / "rates.jsonl"), *lines_of("flowers102")]
    rates = sorted({line["lr_backbone"] for line in lines if line.get("lr_backbone")}, reverse=True)
    rows = []
    for rate in rates:
        row = [f"{rate:g}"]
        for loss in losses_of("flowers102"):
            wanted = {"loss": loss, "add": "none", "validate": True, "lr_backbone": rate}
            same = [line for line in lines if all(line.get(name) == value for name, value in wanted.items())]
            row.append(f"{100 * best_epoch(same).recall:.1f}")
        rows.append(row)
    return table(["learning rate of the backbone, held-out classes", *losses_of("flowers102").values()], bold(rows))


def variants_table(data: str) -> str:
    """Other settings, each with its own choice of epochs and weight on held-out classes, beside the tables' row."""
    tests: dict[tuple, list[dict]] = {}
    tried: dict[tuple, list[dict]] = {}
    for line in read_lines(HERE / "variants.jsonl"):
        if line["data"] == data:
            key = line["loss"], line["add"], changes_of(line)
            (tried if line["validate"] else tests).setdefault(key, []).append(line)
    rows = []
    for key, same in sorted(tests.items(), key=lambda item: (item[0][1], item[0][2], list(LOSSES).index(item[0][0]))):
        loss, add, changes = key
        held_out = best_epoch([line for line in tried[key] if line["factor"] == same[0]["factor"]]).recall
        most = max(line["epochs"] for line in tried[key])
        weights = [value for line in same for value in line.get("lambdas", ())]
        reached = f"{min(weights):.2g} to {max(weights):.2g}" if weights else ""
        cells = [
            spread([100 * recall_of(line) for line in lines], "{:.1f}") for lines in (same, test_lines(data, loss, add))
        ]
        rows.append([f"{LOSSES[loss]}, {ADDITIONS[add]}", changes, f"{same[0]['epochs']} of {most}", reached,
                     f"{100 * held_out:.1f}", len(same), *cells])  # fmt: skip
    headings = ["changed", "epochs", "lambda", "held-out classes", "seeds", "so", "as above"]
    return table([f"{DATA[data]}, Recall@1 in %", *headings], rows)


def changes_of(line: dict) -> str:
    """The settings of a variant that differ from the tables'; weights were chosen."""
    usual = {"margin": 0.1, "eps": 1e-8, "drop_every": None, "ceiling": 0.1, "threshold": None, "strength": None,
             "kernel": "gaussian"}  # fmt: skip
    words = [
        f"{name} {value:g}" if isinstance(value, float | int) else f"{name} {value}"
        for name in usual
        if (value := line.get(name)) not in (usual[name], None)
    ]
    return ", ".join(words).replace("_", " ")


def full_table(data: str) -> str:
    """All scores of every row on the unseen classes, in percent."""
    rows = []
    for loss, short in losses_of(data).items():
        for add, name in ADDITIONS.items():
            same = test_lines(data, loss, add)
            if not same:
                continue
            found = [
                [line["nmi"] for line in same],
                *([line["recall"][k] for line in same if k in line["recall"]] for k in ("1", "2", "4", "8")),
                [line["knn"] for line in same if line["knn"] is not None],
                [line["map_at_r"] for line in same],
            ]
            cells = [spread([100 * value for value in values], "{:.1f}") for values in found]
            rows.append([f"{short}, {name}", *cells, f"{statistics.mean(line['epochs'] for line in same):.0f}"])
    headings = ["NMI", "R@1", "R@2", "R@4", "R@8", "k-NN", "MAP@R", "epochs"]
    return table([DATA[data], *headings], rows)


def draw(folder: Path) -> None:
    """Draw NMI and Recall@1 on held-out classes of Flowers-102: by epoch, and by the weights that were swept."""
    folder.mkdir(parents=True, exist_ok=True)
    held_out = [line for line in lines_of("flowers102") if line["validate"] and "curve" in line]
    plain = [line for line in held_out if line["strength"] is None and line["alpha"] is None and line["factor"] == 1]
    _draw(folder / "epochs.png", lambda ax, score: _draw_epochs(ax, plain, score))
    for name, field in (("lambda", "strength"), ("alpha", "alpha")):
        swept = [line for line in held_out if line[field] is not None]
        _draw(folder / f"{name}.png", lambda ax, score, swept=swept, field=field: _draw_sweep(ax, swept, field, score))


def _draw(path: Path, panel: Callable) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.subplots(1, 2)
    for ax, heading, score in zip(axes, ("NMI", "Recall@1"), (nmi_of, recall_of), strict=True):
        panel(ax, score)
        ax.set_ylabel(f"{heading}, %")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize="small")
    figure.savefig(path)


def _draw_epochs(ax, lines: list[dict], score: Callable[[dict], float]) -> None:
    for loss, add in dict.fromkeys((line["loss"], line["add"]) for line in lines):
        points = by_epoch([line for line in lines if (line["loss"], line["add"]) == (loss, add)])
        epochs = sorted(points)
        ax.plot(epochs, [100 * statistics.mean(map(score, points[e])) for e in epochs], label=f"{loss} + {add}")
    ax.set_xlabel("epoch")


def _draw_sweep(ax, lines: list[dict], field: str, score: Callable[[dict], float]) -> None:
    values: dict[float, list[float]] = {}
    for line in lines:
        values.setdefault(line[field], []).append(100 * score(line))
    places = sorted(values)
    spreads = [statistics.stdev(values[v]) if len(values[v]) > 1 else 0.0 for v in places]
    label = f"{lines[0]['loss']} + {lines[0]['add']}" if lines else ""
    ax.errorbar(places, [statistics.mean(values[v]) for v in places], spreads, marker="o", capsize=3, label=label)
    if field == "alpha":  # over three powers of ten, and 0
        ax.set_xscale("symlog", linthresh=0.03)
    ax.set_xlabel({"strength": "lambda"}.get(field, field))


def main(options: Options) -> None:
    """Print every table, and draw the figures if asked to."""
    print(*tables(), *(full_table(data) for data in DATA if options.full), sep="\n\n")
    if options.figures is not None:
        draw(options.figures)


if __name__ == "__main__":
    main(*from_command_line(Options()))
