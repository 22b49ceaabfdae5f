"""Print the tables of TAP from their lines: python -m papers.tap.report."""

import statistics
from collections.abc import Iterator
from pathlib import Path

from papers.common import bold, read_lines, spread, table

HERE = Path(__file__).parent
DATA = {"sad": "Spoken Arabic Digits, 6,600 / 2,200", "msr_action3d": "MSR Action3D, 60-d skeletons, 290 / 270"}
LOSSES = {"hm": "HM", "binomial": "binomial", "lifted": "lifted"}
DISTANCES = {
    "dtw": "DTW", "ldtw": "DTW, by both lengths", "ndtw": "DTW, by its steps", "softdtw": "soft-DTW", "opw": "OPW",
    "sinkhorn": "Sinkhorn", "tcot": "TCOT", "ot": "EMD", "rvsml_dtw": "RVSML with DTW, centred",
    "rvsml_opw": "RVSML with OPW, centred", "tap": "TAP",
}  # fmt: skip
METHODS = {
    ("tap", True): "TAP", ("satap", True): "SA-TAP", ("mean", True): "mean frames, trained",
    ("mean", False): "mean frames, untrained", ("dtw", False): "DTW, untrained",
}  # fmt: skip
EPISODES = [("utd_mhad", 5, 1), ("utd_mhad", 5, 5), ("utd_mhad", 10, 1), ("msr_action3d", 5, 1), ("msr_action3d", 5, 5),
            ("msr_action3d", 10, 1)]  # fmt: skip
T_95 = {10: 2.262}  # of Student's t, two-sided, by the number of splits
# MAP, and the accuracies of 1, 5 and 30 neighbours in Tables 6 and 7; of other features of the same actions.
PUBLISHED = {
    "dtw": (0.590, 81.32, 80.95, 72.53), "ldtw": (0.567, 82.78, 79.12, 64.84), "ndtw": (0.565, 79.85, 76.92, 67.40),
    "ot": (0.544, 78.02, 75.09, 59.34), "sinkhorn": (0.546, 78.02, 74.73, 60.44), "tcot": (0.578, 80.59, 79.49, 67.03),
    "opw": (0.587, 84.25, 80.22, 67.03), "softdtw": (0.589, 81.32, 80.95, 72.89),
}  # fmt: skip


def tables() -> Iterator[str]:
    """The tables of README.md."""
    yield retrieval_table(read_lines(HERE / "retrieval.jsonl"))
    yield few_shot_table(read_lines(HERE / "few_shot.jsonl"))
    yield splits_table(read_lines(HERE / "few_shot_splits.jsonl"))
    for data in ("msr_action3d", "sad"):
        yield distances_table([line for line in read_lines(HERE / "distances.jsonl") if line["data"] == data])


def retrieval_table(lines: list[dict]) -> str:
    """1-NN accuracy and mean average precision of trained metrics."""
    groups: dict[tuple[str, str], list[dict]] = {}
    for line in lines:
        groups.setdefault((line["data"], row_name(line)), []).append(line)
    rows = [
        [
            DATA[data],
            name,
            len(same),
            spread([100 * line["accuracy"] for line in same], "{:.1f}") + " %",
            spread([line["map"] for line in same], "{:.3f}"),
        ]
        for (data, name), same in sorted(groups.items(), key=lambda group: list(DATA).index(group[0][0]))
    ]
    paper = [DATA["sad"], "HM + TAP in the paper", "", "98.8 %", "0.961"]
    return table(["data", "method", "seeds", "1-NN", "MAP"], [paper, *rows])


def row_name(line: dict) -> str:
    """What the table calls a run."""
    distance = DISTANCES[line["distance"]]
    if line["loss"] == "untrained":
        return f"untrained {distance}"
    how = "" if line.get("cosine") else " as the paper trains it, without its augmentation"
    return f"{LOSSES[line['loss']]} + {distance}{how}, {line['epochs']} epochs"


def few_shot_table(lines: list[dict]) -> str:
    """Accuracy of episodes, means over seeds; of DTW, the row of more frames."""
    rows = []
    for (method, trained), name in METHODS.items():
        own = [line for line in lines if (line["method"], line["trained"]) == (method, trained)]
        for frames in sorted({line["frames"] for line in own}):
            cells = [
                [100 * line["accuracy"] for line in own
                 if (line["data"], line["ways"], line["shots"], line["frames"]) == (*key, frames)]
                for key in EPISODES
            ]  # fmt: skip
            seeds = "" if trained else f", {frames} frames"
            rows.append([name + seeds, *(f"{statistics.mean(cell):.1f}" for cell in cells)])
    headings = [f"{'UTD-MHAD' if data == 'utd_mhad' else 'MSR Action3D'} {ways}-way {shots}-shot"
                for data, ways, shots in EPISODES]  # fmt: skip
    return table(["", *headings], bold(rows))


def splits_table(lines: list[dict]) -> str:
    """Accuracy over splits of the classes, the 95 % interval of its mean, and what the mean over shots would give."""
    names = {**DISTANCES, "mean": "mean frames", "otam": "OTAM"}
    rows = []
    for data, method in dict.fromkeys((line["data"], line["method"]) for line in lines):
        row = [f"{'UTD-MHAD' if data == 'utd_mhad' else 'MSR Action3D'}, {names[method]}"]
        for ways, shots in ((5, 1), (10, 1), (5, 5), (10, 5)):
            wanted = data, method, ways, shots
            same = [ln for ln in lines if (ln["data"], ln["method"], ln["ways"], ln["shots"]) == wanted]
            found = [100 * line["accuracy"] for line in same]
            # Student's t: splits are few, and share classes.
            half = T_95[len(found)] * statistics.stdev(found) / len(found) ** 0.5
            plain = statistics.mean(100 * line["every"]["mean"] for line in same) if shots > 1 else None
            row.append(f"{statistics.mean(found):.1f} ± {half:.1f}" + ("" if plain is None else f" ({plain:.1f})"))
        rows.append(row)
    headings = [f"{ways}-way {shots}-shot" for ways, shots in ((5, 1), (10, 1), (5, 5), (10, 5))]
    return table(["ten splits, untrained", *headings], rows)


def distances_table(lines: list[dict]) -> str:
    """Distances that learn nothing, and RVSML; the paper's figures in brackets."""
    rows = []
    for line in lines:
        theirs = PUBLISHED.get(line["distance"]) if line["data"] == "msr_action3d" else None
        ours = [line["map"], *(100 * line["knn"][k] for k in ("1", "5", "30"))]
        forms = ["{:.3f}", "{:.2f}", "{:.2f}", "{:.2f}"]
        cells = [form.format(value) for form, value in zip(forms, ours, strict=True)]
        if theirs is not None:
            cells = [f"{cell} ({form.format(t)})" for cell, form, t in zip(cells, forms, theirs, strict=True)]
        rows.append([DISTANCES[line["distance"]], line["test"], *cells, f"{line['seconds_a_query']:.3g}"])
    name = DATA[lines[0]["data"]].partition(",")[0]
    return table([name, "queries", "MAP", "1-NN", "5-NN", "30-NN", "s a query"], rows)


if __name__ == "__main__":
    print(*tables(), sep="\n\n")
