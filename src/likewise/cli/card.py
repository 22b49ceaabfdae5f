"""The folder that ``likewise train`` writes: the metric, the ranking, the log, pictures and a card."""

import shutil
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import likewise as lw
from likewise._modes import evaluating
from likewise._output import writing
from likewise.cli.files import save_figure
from likewise.cli.info import environment
from likewise.cli.printing import described
from likewise.evaluation import Scores, evaluate_matrix
from likewise.models.metric import CONFIG, WEIGHTS
from likewise.models.storage import write_json
from likewise.selection import Selection
from likewise.selection.division import Parts
from likewise.selection.result import SCORES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FILES = (CONFIG, WEIGHTS, "README.md", "ranking.json", "log.csv", "ranking.png", "confusion.png", "hardest.png")
HARDEST = 8  # pairs in the card
MOST_PAIRS = 1 << 24  # distances that are kept to find them
MOST_CLASSES = 40  # in the table of classes
LONGEST, DEEPEST = 60, 7  # lines of a metric's description, and the spaces before those that a longer one leaves out


@dataclass(frozen=True)
class Pair:
    """A validation item, its nearest item of another class, and by how much its own class is farther away."""

    query: int
    reference: int
    distance: float
    excess: float


def write_run(folder: Path, selection: Selection, parts: Parts, *, data: Path, command: str, seed: int) -> list[str]:
    """Write all files, the metric last, and return their names."""
    folder.mkdir(parents=True, exist_ok=True)
    pairs: list[Pair] = []
    if parts.pairs <= MOST_PAIRS:
        D = distances(selection.scored, parts)
        pairs = hardest_pairs(D, parts)
        columns = None if parts.references is None else parts.references.labels
        scores = evaluate_matrix(D, parts.held.labels, columns)
    else:
        scores = lw.evaluate(selection.scored, parts.held, parts.references)
    pictures = draw(folder, selection, scores, parts, pairs)
    ranking = {"summary": str(selection), "complete": selection.complete, "seconds": selection.seconds}
    write_json(folder / "ranking.json", ranking | {"results": [result.as_dict() for result in selection.results]})
    if selection.log is not None:
        with writing(folder / "log.csv") as part:
            shutil.copyfile(selection.log, part)
    text = card(selection, scores, parts, pairs, pictures, data=data, command=command, seed=seed)
    with writing(folder / "README.md") as part:
        part.write_text(text, encoding="utf-8")
    selection.metric.save(folder)
    names = ["config.json", "model.safetensors", "README.md", "ranking.json"]
    return names + ["log.csv"] * (selection.log is not None) + pictures


def distances(metric: lw.Metric, parts: Parts) -> Tensor:
    """Distances from each validation item to the items among which it is searched."""
    with torch.no_grad(), evaluating(metric):
        return metric.matrix(parts.held, parts.references).cpu().double()


def hardest_pairs(D: Tensor, parts: Parts) -> list[Pair]:
    """Validation items whose nearest item of another class is nearer than any of their own, the worst first."""
    others = parts.held if parts.references is None else parts.references
    if parts.references is None:
        D = D.clone().fill_diagonal_(torch.inf)
    same = torch.from_numpy(parts.held.labels[:, None] == others.labels[None])
    own, (foreign, place) = D.masked_fill(~same, torch.inf).amin(1), D.masked_fill(same, torch.inf).min(1)
    excess = torch.nan_to_num(own - foreign, nan=-torch.inf, posinf=-torch.inf)
    worst = excess.argsort(descending=True, stable=True)[:HARDEST].tolist()
    return [Pair(i, int(place[i]), float(foreign[i]), float(excess[i])) for i in worst if excess[i] > 0]


def draw(folder: Path, selection: Selection, scores: Scores, parts: Parts, pairs: list[Pair]) -> list[str]:
    """Draw the ranking, the confusion matrix and the hardest pair."""
    from matplotlib.figure import Figure

    from likewise import viz

    made: dict[str, Figure] = {"ranking.png": Figure((7.0, 0.6 + 0.4 * len(selection.tried)), layout="constrained")}
    ax = made["ranking.png"].subplots()
    for place, result in enumerate(reversed(selection.tried)):
        low, high = result.interval
        ax.errorbar(result.map, place, xerr=[[result.map - low], [high - result.map]], fmt="o", capsize=3, color="C0")
    ax.set_yticks(range(len(selection.tried)), [result.name for result in reversed(selection.tried)])
    ax.set_xlabel("mean average precision on validation items, with 95 % intervals")
    ax.margins(y=0.3)
    if len(scores.classes) <= MOST_CLASSES:
        side = 3.0 + 0.25 * len(scores.classes)
        made["confusion.png"] = Figure((side + 0.9, side), layout="constrained")
        viz.plot_confusion(scores.confusion, scores.classes, ax=made["confusion.png"].subplots())
    if pairs:
        figure = _draw_pair(selection.scored, parts, pairs[0])
        if figure is not None:
            made["hardest.png"] = figure
    for name, figure in made.items():
        save_figure(folder / name, figure, force=True)
    return list(made)


def _draw_pair(metric: lw.Metric, parts: Parts, pair: Pair) -> "Figure | None":
    from matplotlib.figure import Figure

    from likewise import viz

    others = parts.held if parts.references is None else parts.references
    x, y = parts.held.items[pair.query], others.items[pair.reference]
    shown = (parts.held, pair.query), (others, pair.reference)
    titles = [f"{_name(part.ids[i])}, class {part.labels[i]}" for part, i in shown]
    figure = Figure(figsize=(7.0, 3.4), layout="constrained")
    if isinstance(parts.held, lw.ImageSet):
        for ax, image, title in zip(figure.subplots(1, 2), (x, y), titles, strict=True):
            ax.imshow(image.permute(1, 2, 0).numpy())
            ax.set_title(title, fontsize="small", wrap=True)
            ax.set_axis_off()
        return figure
    with torch.no_grad():
        try:
            alignment = metric.align([x], [y])
            viz.plot_two_way(x, y, alignment, ax=figure.subplots())
        except (NotImplementedError, TypeError, ValueError):  # it compares vectors
            alignment = lw.DTW(band=0.1).align([x], [y])
            figure = Figure(figsize=(7.0, 3.4), layout="constrained")
            viz.plot_two_way(x, y, alignment, ax=figure.subplots())
    figure.suptitle(f"x: {titles[0]};  y: {titles[1]}", fontsize="medium", wrap=True)
    return figure


def card(
    selection: Selection,
    scores: Scores,
    parts: Parts,
    pairs: list[Pair],
    pictures: list[str],
    *,
    data: Path,
    command: str,
    seed: int,
) -> str:
    """The text of README.md."""
    sections = [
        f"# {selection.best.name}: a metric for {data.name}\n\n{selection}",
        f'```\n{command}\n```\n\n```python\nimport likewise as lw\n\nmetric = lw.Metric.load(".")  # this folder\n```',
        f"## Data\n\n{_data(parts, data, seed)}",
        f"## Scores\n\n{_scores(scores, parts, selection)}\n\n{_ranking(selection)}",
    ]
    if "ranking.png" in pictures:
        sections.append("![The ranking](ranking.png)")
    sections.append(f"## Confusion\n\n{_confusions(scores)}")
    if "confusion.png" in pictures:
        sections.append("![Confusion of the nearest neighbour](confusion.png)")
    sections.append(f"## Hardest pairs\n\n{_pairs(pairs, parts)}")
    if "hardest.png" in pictures:
        sections.append("![The hardest pair](hardest.png)")
    sections.append(f"## Settings\n\n{_settings(selection, seed)}")
    return "\n\n".join(sections) + "\n"


def _settings(selection: Selection, seed: int) -> str:
    best, found = selection.best, environment()
    lines = [f"```\n{_outline(str(selection.metric))}\n```", ""]
    if best.learns:
        defaults = {name: value for name, value in vars(selection.metric.training_defaults).items() if name != "loss"}
        shown = ", ".join(f"{name} {value}" for name, value in defaults.items() if value is not None)
        more = f", and {selection.refit:,} steps with all items" if selection.refit else ""
        lines.append(f"Trained: {best.about}. Best after {best.best_steps:,} of {best.steps:,} steps{more}; {shown}.")
    else:
        lines.append("It has no weights to train.")
    versions = ", ".join(f"{name} {found[name]}" for name in ("likewise", "python", "torch"))
    lines.append(
        f"\nChosen by {SCORES[selection.by]}, seed {seed}. Made on {time.strftime('%Y-%m-%d')} with {versions}, on "
        f"{found['platform']}, in {selection.seconds:.0f} s."
    )
    return "\n".join(lines)


def _data(parts: Parts, data: Path, seed: int) -> str:
    counts = Counter(parts.train.labels.tolist()), Counter(parts.held.labels.tolist())
    names = sorted(set(counts[0]) | set(counts[1]))
    lines = [f"`{data}`, divided with seed {seed}:", ""]
    lines += [f"- to train with: {described(parts.train)}", f"- to validate with: {described(parts.held)}", ""]
    if parts.groups is not None:
        lines.append(f"No group is in both parts: {len(set(parts.groups))} groups validate.")
    elif parts.references is not None:
        lines.append("Validation items were drawn from each class.")
    if parts.references is None:
        lines.append("The validation classes are not among the training classes.")
    lines += ["", "| class | training | validation |", "|---|---|---|"]
    lines += [f"| {_cell(name)} | {counts[0][name]} | {counts[1][name]} |" for name in names[:MOST_CLASSES]]
    if len(names) > MOST_CLASSES:
        lines.append(f"| and {len(names) - MOST_CLASSES} more | | |")
    return "\n".join(lines)


def _scores(scores: Scores, parts: Parts, selection: Selection) -> str:
    rows = ["| score | value | 95 % interval |", "|---|---|---|"]
    for name, score in (("MAP", "map"), ("1-NN accuracy", "accuracy"), ("macro-F1", "f1")):
        low, high = scores.interval(score, groups=parts.groups)
        rows.append(f"| {name} | {getattr(scores, score):.4f} | {low:.4f} to {high:.4f} |")
    what = "one another, each left out of its own references" if parts.references is None else "the training items"
    text = f"{scores.queries} validation items among {what}."
    if selection.refit:
        text += " All scores, pairs and pictures are of the metric before it was trained with all items."
    text += (
        " MAP, the mean average precision, is 1 if the items nearest to every query are all those of its class; 1-NN "
        "accuracy asks for the nearest one only."
    )
    return f"{text}\n\n" + "\n".join(rows)


def _ranking(selection: Selection) -> str:
    rows = ["| | metric | MAP | 95 % interval | 1-NN accuracy | steps | seconds |", "|---|---|---|---|---|---|---|"]
    for place, result in enumerate(selection.results, 1):
        if result.left_out is not None:
            rows.append(f"| | {result.name} | left out: {_cell(result.left_out)} | | | | |")
            continue
        low, high = result.interval
        rows.append(
            f"| {place} | {result.name}: {result.about} | {result.map:.4f} | {low:.4f} to {high:.4f} | "
            f"{result.accuracy:.4f} | {result.steps} | {result.seconds:.1f} |"
        )
    return "\n".join(rows)


def _confusions(scores: Scores) -> str:
    counts = scores.confusion.clone().fill_diagonal_(0)
    worst = counts.flatten().argsort(descending=True, stable=True)[:HARDEST].tolist()
    size = len(scores.classes)
    rows = [
        f"| {_cell(scores.classes[i // size])} | {_cell(scores.classes[i % size])} | {int(counts.flatten()[i])} |"
        for i in worst
        if counts.flatten()[i] > 0
    ]
    if not rows:
        return "The nearest neighbour of every validation item is of its class."
    return "\n".join(["| class | nearest neighbour of class | items |", "|---|---|---|", *rows])


def _pairs(pairs: list[Pair], parts: Parts) -> str:
    if not pairs:
        return (
            "No validation item has a nearer neighbour of another class than of its own, or there are too many to list."
        )
    others = parts.held if parts.references is None else parts.references
    rows = ["| item | class | nearest of another class | class | distance | nearer than its own class by |"]
    rows.append("|---|---|---|---|---|---|")
    for pair in pairs:
        names: list[Any] = []
        for part, i in ((parts.held, pair.query), (others, pair.reference)):
            names += [_cell(_name(part.ids[i])), _cell(part.labels[i])]
        rows.append(f"| {' | '.join(names)} | {pair.distance:.4g} | {pair.excess:.4g} |")
    return "\n".join(rows)


def _outline(text: str) -> str:
    """The description of a metric; of a long one, the outer modules only."""
    lines = text.splitlines()
    return text if len(lines) <= LONGEST else "\n".join(line for line in lines if not line.startswith(" " * DEEPEST))


def _name(identity: str) -> str:
    """The id of an item; of a file, its name and that of its folder."""
    return "/".join(Path(identity).parts[-2:])


def _cell(text: object) -> str:
    """Text for a cell of a Markdown table."""
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;").replace("`", "'")
