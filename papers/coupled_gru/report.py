"""Print the coupled GRU's tables from its lines, and draw its figures.

python -m papers.coupled_gru.report
python -m papers.coupled_gru.report --figures FOLDER
"""

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from likewise.evaluation.significance import paired_test
from papers.common import bold, decimals, from_command_line, read_lines, table
from papers.coupled_gru.data import FOLDS

HERE = Path(__file__).parent
HAR_TRAIN = 7352  # training sequences
SCORES = ("accuracy", "f1", "map")
SEEDS = 10  # of the test rows, where their names do not say otherwise
NAMES = {"sgru": "siamese GRU", "cgru": "coupled GRU", "cgru-4": "coupled GRU, weak start (bias -4)"}
PAPER = ["coupled GRU in the paper", ".913", ".916", ".900", ".885", ".887", ".899"]
RVSML = {
    ("dtw", 2947, False): "RVSML with DTW", ("dtw", 2947, True): "RVSML with DTW, standardised",
    ("opw", 156, False): "RVSML with OPW, 156 of 2,947 queries",
}  # fmt: skip
UNTRAINED = {
    ("euclidean", None, False): "Euclidean, untrained", ("dtw", None, False): "DTW, untrained",
    ("dtw", 0.1, False): "DTW, untrained, band 0.1", ("dtw", 0.1, True): "DTW, untrained, band 0.1, standardised",
}  # fmt: skip


@dataclass(frozen=True)
class Options:
    """What to draw."""

    figures: Path | None = None  # where Figures 3 and 4 and the synchronisation go


def tables() -> Iterator[str]:
    """The tables of README.md."""
    lines, seeds = read_lines(HERE / "har.jsonl"), read_lines(HERE / "har_seeds.jsonl")
    folds = [line for line in lines + read_lines(HERE / "har_choice.jsonl") if line["kind"] == "fold"]
    others = read_lines(HERE.parent / "rvsml" / "har.jsonl"), read_lines(HERE / "har_untrained.jsonl")
    yield scores_table(folds, seeds + [line for line in lines if line["model"] == "cgru-4"], *others)
    yield differences_table(seeds)
    yield noise_table(seeds + [line for line in lines if line["model"] == "cgru-4"])
    yield choice_table(folds)
    yield candidates_table(lines)


def sentences() -> Iterator[str]:
    """The sentences of README.md that quote results, from the lines."""
    seeds = read_lines(HERE / "har_seeds.jsonl")
    own, siamese = (
        {line["number"]: line for line in seeds if line["model"] == model and line["hidden"] == [20]}
        for model in ("cgru", "sgru")
    )
    own, theirs = ({seed: line["accuracy"] for seed, line in each.items()} for each in (own, siamese))
    yield f"({decimals([max(own.values())])} in the best seed)"
    points = sorted(100 * (own[seed] - theirs[seed]) for seed in own)
    least, fourth, third = points[0], points[-4], points[-3]
    yield f"by {third:.1f} points or more in three of them and by {least:.1f} to {fourth:.1f} in the others"
    later = [seed for seed, line in siamese.items() if line["best_epoch"] > 2]
    gain = statistics.mean(100 * (own[seed] - theirs[seed]) for seed in later)
    yield f"subjects kept the siamese GRU's weights of epoch 2; without them the mean gain is {gain:.1f} points"
    tests = [line for line in read_lines(HERE / "har.jsonl") if line["kind"] == "test"]
    weak = {line["number"]: line["accuracy"] for line in tests if line["model"] == "cgru-4"}
    ahead = statistics.mean(100 * (weak[seed] - theirs[seed]) for seed in weak)
    if all(theirs[seed] < weak[seed] < own[seed] for seed in weak):
        yield f"in each of the five seeds that both have, by {ahead:.1f} points in the mean, and behind the coupled GRU"
    wide = {line["number"]: line for line in seeds if line["model"] == "sgru" and line["hidden"] == [64]}
    same = [line for line in seeds if line["model"] == "cgru" and line["number"] in wide]
    scores = (
        decimals([line[score] for line in each]) for each in (wide.values(), same) for score in ("accuracy", "map")
    )
    yield "it has {} and {}, and the coupled GRU {} and {}".format(*scores)
    more = 100 * (statistics.mean(line["accuracy"] for line in wide.values()) - statistics.mean(theirs.values()))
    yield f"{more:.1f} points more than the siamese GRU of 20 units"
    earlier = [line for line in tests if line["model"] == "sgru"]
    accuracy, precision = (decimals([line[score] for line in earlier]) for score in ("accuracy", "map"))
    yield f"With its earlier weight of 0.1 the siamese GRU had {accuracy} and {precision} in five seeds"


def scores_table(folds: list[dict], tests: list[dict], rvsml: list[dict], untrained: list[dict]) -> str:
    """Folds and test set, means and deviations, with the paper's coupled GRU, RVSML, and what learns nothing."""
    rows = []
    for setting in dict.fromkeys(setting_of(line) for line in tests if line["kind"] == "test"):
        same = [line for line in folds + tests if setting_of(line) == setting]
        cells = [
            [line[score] for line in same if line["kind"] == kind] for kind in ("fold", "test") for score in SCORES
        ]
        count = len(cells[-1])
        seeds = "" if count == SEEDS else f", {count} seed{'s' if count > 1 else ''}"
        rows.append([name_of(setting) + seeds, *map(decimals, cells)])
    for key, name in UNTRAINED.items():
        same = [line for line in untrained if (line["distance"], line["band"], line["standardize"]) == key]
        rows.append([name, *(decimals([line[score] for line in same if line["part"] == part])
                             for part in ("folds", "test") for score in SCORES)])  # fmt: skip
    for key, name in RVSML.items():
        same = [line for line in rvsml if (line["aligner"], line["test"], line["standardize"]) == key]
        rows.append([name, "", "", "", *(decimals([line[score] for line in same]) for score in SCORES)])
    headings = ["", "folds: accuracy", "macro-F1", "MAP", "test: accuracy", "macro-F1", "MAP"]
    return table(headings, [*bold(rows), PAPER])


Setting = tuple[str, float, tuple[int, ...], bool, bool]


def setting_of(line: dict) -> Setting:
    """Model, weight of the global term, units, and whether the input is standardised, and jittered in training."""
    how = line.get("standardize", False), any(line.get("jitter", ()))
    return line["model"], line["global_weight"], tuple(line["hidden"]), *how


def name_of(setting: Setting) -> str:
    """The name of a row; the weight is in ``choice_table``."""
    model, _, hidden, standardized, jitter = setting
    units = "" if hidden == (20,) else f", {' and '.join(map(str, hidden))} units"
    return NAMES[model] + units + (", standardised" if standardized else "") + (", jittered" if jitter else "")


def differences_table(lines: list[dict]) -> str:
    """How far each coupled network is from each siamese one of the same seed on the test set, and p of sign flips."""
    found: dict[Setting, dict[int, dict]] = {}
    for line in lines:
        found.setdefault(setting_of(line), {})[line["number"]] = line
    rows = []
    for coupled, siamese, seeds in matched(found):
        if len(seeds) < 2:  # of one seed p says nothing
            continue
        cells = []
        for score in SCORES:
            test = paired_test(*([found[each][seed][score] for seed in seeds] for each in (coupled, siamese)))
            cells.append(f"{test.difference:+.3f}, p = {test.permutation:.4f}".replace("0.", "."))
        rows.append([f"{name_of(coupled)} less {name_of(siamese)}, {len(seeds)} seeds", *cells])
    return table(["test", "accuracy", "macro-F1", "MAP"], rows)


def matched(found: dict[Setting, dict[int, Any]]) -> Iterator[tuple[Setting, Setting, list[int]]]:
    """Every coupled network with every siamese one, and the seeds that both have."""
    for coupled in (setting for setting in found if setting[0] == "cgru"):
        for siamese in (setting for setting in found if setting[0] == "sgru"):
            seeds = sorted(found[coupled].keys() & found[siamese].keys())
            if seeds:
                yield coupled, siamese, seeds


def noise_table(lines: list[dict]) -> str:
    """Figure 4 in numbers: the mean distance of negative pairs less that of positive ones, under noise.

    Then, in how many seeds each coupled network has a larger margin than each siamese one.
    """
    found: dict[Setting, dict[int, list[float]]] = {}
    for line in lines:
        if "noise" in line:
            sides = line["noise"]["positive"], line["noise"]["negative"]
            found.setdefault(setting_of(line), {})[line["number"]] = [b - a for a, b in zip(*sides, strict=True)]
    levels = next(line["noise"]["levels"] for line in lines if "noise" in line)
    rows = [
        [f"{name_of(setting)}, {len(margins)} seed{'s' if len(margins) > 1 else ''}",
         *(f"{statistics.mean(each):.2f}" for each in zip(*margins.values(), strict=True))]
        for setting, margins in found.items()
    ]  # fmt: skip
    counts = []
    for coupled, siamese, seeds in matched(found):
        ahead = [sum(found[coupled][seed][k] > found[siamese][seed][k] for seed in seeds) for k in range(len(levels))]
        counts.append(
            [f"{name_of(coupled)} ahead of {name_of(siamese)}, seeds", *(f"{n} of {len(seeds)}" for n in ahead)]
        )
    return table(["margin at noise of", *(f"{level:g}" for level in levels)], bold(rows) + counts)


def choice_table(lines: list[dict]) -> str:
    """The scores by which each network's settings are chosen: those of the folds that every setting has run."""
    rows = []
    for model in ("cgru", "sgru"):
        found: dict[Setting, dict[int, dict]] = {}
        for line in lines:
            if line["model"] == model:
                found.setdefault(setting_of(line), {})[line["number"]] = line
        found = {setting: folds for setting, folds in found.items() if len(folds) > FOLDS // 2}
        common = set.intersection(*(set(folds) for folds in found.values()))
        for setting, folds in sorted(found.items(), key=lambda item: (item[0][2:], item[0][1])):
            means = [statistics.mean(folds[number][score] for number in common) for score in ("accuracy", "map")]
            device = ", ".join(sorted({"CPU" if line["device"] == "cpu" else "H200" for line in folds.values()}))
            rows.append([name_of(setting), f"{setting[1]:g}", len(common), device,
                         *(decimals([value]) for value in (*means, statistics.mean(means)))])  # fmt: skip
    return table(["by folds", "global_weight", "folds", "device", "accuracy", "MAP", "mean of both"], rows)


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
    count = len(cells[1.0])
    return table([f"share of pairs passed, {count} earlier seeds", *(f"{100 * share:g} %" for share in shares)], rows)


def epochs_of(line: dict, lines: list[dict]) -> list[float]:
    """After how many epochs the validations of a line came; earlier lines count steps."""
    if "validation_epochs" in line:
        return line["validation_epochs"]
    # The subjects of fold n are held out: of N = own + theirs training sequences, a fold's pairs are own * theirs.
    fold = next(one for one in lines if (one["kind"], one["number"]) == ("fold", line["number"] % FOLDS))
    own = (HAR_TRAIN + math.isqrt(HAR_TRAIN**2 - 4 * fold["pairs"])) // 2
    return [step / (own // line["batch_size"]) for step in line["validation_steps"]]


def draw(lines: list[dict], folder: Path, *, seeds: list[dict] | None = None) -> None:
    """Draw Figure 3 and the synchronisation error of every coupled run, and Figure 4 with means over the runs.

    seeds: the lines of Figure 4, where they are not the same.
    """
    from matplotlib.figure import Figure

    from likewise import viz

    folder.mkdir(parents=True, exist_ok=True)
    for line in lines:
        name = f"{line['model']} {line['kind']} {line['number']}"
        if line.get("norms"):
            figure = Figure(figsize=(9, 3.4), layout="constrained")
            left, right = figure.subplots(1, 2)
            epochs = epochs_of(line, lines)
            viz.plot_coupling_norm(line["norms"], line["accuracies"], epochs=epochs, ax=left)
            viz.plot_loss_by_coupling(line["norms"], line["losses"], epochs=epochs, ax=right)
            figure.savefig(folder / f"{name} coupling.png", dpi=150)
        errors = {kind: values for kind, values in line.get("synchronization", {}).items() if isinstance(values, list)}
        if errors:
            figure = Figure(figsize=(6, 4), layout="constrained")
            names = [f"{kind} pairs" for kind in errors]
            viz.plot_synchronization(list(errors.values()), labels=names, ax=figure.subplots())
            figure.savefig(folder / f"{name} synchronisation.png", dpi=150)
    noisy = [line for line in (seeds or lines) if "noise" in line]
    if noisy:
        curves = {}
        for setting in dict.fromkeys(map(setting_of, noisy)):
            same = [line["noise"] for line in noisy if setting_of(line) == setting]
            curves[name_of(setting)] = tuple(
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
        draw(read_lines(HERE / "har.jsonl"), options.figures, seeds=read_lines(HERE / "har_seeds.jsonl"))


if __name__ == "__main__":
    main(*from_command_line(Options()))
