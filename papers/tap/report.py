"""Print the tables of TAP from their lines: python -m papers.tap.report."""

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from scipy import stats

from papers.common import bold, read_lines, spread, table

HERE = Path(__file__).parent
DATA = {"sad": "Spoken Arabic Digits, 6,600 / 2,200", "msr_action3d": "MSR Action3D, 60-d skeletons, 290 / 270"}
LOSSES = {"hm": "HM", "hm_hinge": "HM, hinge", "binomial": "binomial", "lifted": "lifted"}
DISTANCES = {
    "dtw": "DTW", "ldtw": "DTW, by both lengths", "ndtw": "DTW, by its steps", "softdtw": "soft-DTW", "opw": "OPW",
    "sinkhorn": "Sinkhorn", "tcot": "TCOT", "ot": "EMD", "rvsml_dtw": "RVSML with DTW, centred",
    "rvsml_opw": "RVSML with OPW, centred", "tap": "TAP", "otam": "OTAM", "tap_ordered": "ordered TAP",
    "tap_symmetric": "TAP, both directions", "tap_ordered_symmetric": "ordered TAP, both directions",
}  # fmt: skip
METHODS = {
    ("tap", True): "TAP", ("satap", True): "SA-TAP", ("mean", True): "mean frames, trained",
    ("mean", False): "mean frames, untrained", ("dtw", False): "DTW, untrained",
}  # fmt: skip
EPISODES = [("utd_mhad", 5, 1), ("utd_mhad", 5, 5), ("utd_mhad", 10, 1), ("msr_action3d", 5, 1), ("msr_action3d", 5, 5),
            ("msr_action3d", 10, 1)]  # fmt: skip
SPLITS = 10
SplitKey = tuple[str, str, bool]  # data, method, and whether it was trained
WAYS_SHOTS = ((5, 1), (10, 1), (5, 5), (10, 5))
SKELETONS = {"utd_mhad": "UTD-MHAD", "msr_action3d": "MSR Action3D"}
SPLIT_METHODS = {**DISTANCES, "mean": "mean frames", "satap": "SA-TAP", "otam_sharp": "OTAM with gamma 0.01"}
LINEAR = {"ldmlt": "LDMLT, standardised", "swmd": "SWMD, standardised"}
FRAMEWISE = {"hm": "HM", "lifted": "lifted", "binomial": "binomial", "multi_similarity": "multi-similarity"}
OF_THE_PAPER = {"TAP": ("98.8 %", "0.961"), "soft-DTW": ("99.6 %", "0.959")}  # on digits
# MAP, and the accuracies of 1, 5 and 30 neighbours in Tables 6 and 7; of other features of the same actions.
PUBLISHED = {
    "dtw": (0.590, 81.32, 80.95, 72.53), "ldtw": (0.567, 82.78, 79.12, 64.84), "ndtw": (0.565, 79.85, 76.92, 67.40),
    "ot": (0.544, 78.02, 75.09, 59.34), "sinkhorn": (0.546, 78.02, 74.73, 60.44), "tcot": (0.578, 80.59, 79.49, 67.03),
    "opw": (0.587, 84.25, 80.22, 67.03), "softdtw": (0.589, 81.32, 80.95, 72.89),
}  # fmt: skip


def tables() -> Iterator[str]:
    """The tables of README.md."""
    yield retrieval_table(read_lines(HERE / "retrieval.jsonl"))
    yield precision_table(read_lines(HERE / "precision.jsonl"))
    yield epochs_table(read_lines(HERE / "retrieval_choice.jsonl"))
    yield actions_choice_table(read_lines(HERE / "actions.jsonl"))
    yield actions_table(read_lines(HERE / "actions.jsonl"))
    yield few_shot_table(read_lines(HERE / "few_shot.jsonl"))
    yield splits_table(read_lines(HERE / "few_shot_splits.jsonl"))
    yield gains_table(read_lines(HERE / "few_shot_splits.jsonl"))
    yield learned_frames_table(read_lines(HERE / "linear.jsonl"), read_lines(HERE / "framewise.jsonl"))
    for data in ("msr_action3d", "sad"):
        found = read_lines(HERE / "distances.jsonl"), read_lines(HERE / "self_supervised.jsonl")
        yield distances_table(*([line for line in lines if line["data"] == data] for lines in found))
    yield without_labels_table(read_lines(HERE / "self_supervised.jsonl"))


def sentences() -> Iterator[str]:
    """The sentences of README.md that quote results, from the lines."""
    lines = [line for line in read_lines(HERE / "actions.jsonl") if line["epochs"] == 60]
    gains, chances = {}, []
    for validate in (True, False):
        own, theirs = (
            {line["seed"] if line["fold"] is None else line["fold"]: 100 * line["accuracy"]
             for line in lines if (line["validate"], line["distance"]) == (validate, distance)}
            for distance in ("softdtw", "tap")
        )  # fmt: skip
        gains[validate] = [own[key] - theirs[key] for key in own]
        chances.append(stats.ttest_1samp(gains[validate], 0).pvalue)
    ahead = ("none", "one", "two", "three", "four", "five")[sum(gain > 0 for gain in gains[True])]
    yield (
        f"on {ahead} of five held-out subjects, by {statistics.mean(gains[True]):.0f} points in the mean, and by "
        f"{statistics.mean(gains[False]):.1f} points in the test"
    )
    yield f"(p = {max(chances):.2f} by paired t-tests)".replace("0.", ".")
    shots = read_lines(HERE / "few_shot_splits.jsonl")
    own, theirs = ("msr_action3d", "tap", True), ("msr_action3d", "softdtw", True)
    less = []
    for ways_shots in WAYS_SHOTS:
        a, b = (by_split(shots, key, *ways_shots) for key in (own, theirs))
        less.append(100 * statistics.mean(b[split]["accuracy"] - a[split]["accuracy"] for split in a))
    yield f"TAP is {min(less):.1f} to {max(less):.1f} points below trained soft-DTW"
    swmd = [line for line in read_lines(HERE / "linear.jsonl") if line["method"] == "swmd" and not line["validate"]]
    aligned = {line["seed"]: 100 * line["accuracy"] for line in swmd if line["aligner"] == "dtw"}
    yield (
        f"the first seed of SWMD with DTW, {aligned[0]:.1f} %, is the best of {len(aligned)}"
        if (aligned[0] == max(aligned.values()))
        else f"SWMD with DTW has {min(aligned.values()):.1f} to {max(aligned.values()):.1f} %"
    )


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
    paper = [[DATA["sad"], f"HM + {name} in the paper", "", *scores] for name, scores in OF_THE_PAPER.items()]
    return table(["data", "method", "seeds", "1-NN", "MAP"], [*paper, *rows])


def row_name(line: dict) -> str:
    """The name of a run in the table."""
    distance = DISTANCES[line["distance"]]
    if line["loss"] == "untrained":
        return f"untrained {distance}"
    how = "" if line.get("cosine") else " as the paper trains it, without its augmentation"
    superseded = ", superseded below" if (line["data"], line["distance"]) == ("msr_action3d", "softdtw") else ""
    return f"{LOSSES[line['loss']]} + {distance}{how}, {line['epochs']} epochs{superseded}"


def precision_table(lines: list[dict]) -> str:
    """Digits in fit's default precision on a GPU, and in float32."""
    rows = []
    for items in sorted({line["train"] for line in lines}):
        for precision, name in (("default", "the default: half precision with float32 sums"), ("32-true", "32-true")):
            own = [line for line in lines if (line["train"], line["precision"]) == (items, precision)]
            knn = spread([100 * line["knn"]["30"] for line in own], "{:.1f}")
            about = [items, own[0]["epochs"], name, len(own), *accuracy_and_map(own), knn]
            rows.append(about)
    return table(["utterances to train", "epochs", "precision", "seeds", "1-NN", "MAP", "30-NN, %"], rows)


def actions_choice_table(lines: list[dict]) -> str:
    """Each held-out subject of MSR Action3D once: by this, each distance and way of training gets its epochs."""
    rows = []
    for key, same in by_training(line for line in lines if line["validate"]).items():
        for epochs in sorted({line["epochs"] for line in same}):
            own = [line for line in same if line["epochs"] == epochs]
            both = statistics.mean((line["accuracy"] + line["map"]) / 2 for line in own)
            rows.append([training_name(key), epochs, len(own), *accuracy_and_map(own), f"{both:.3f}"])
    return table(["five held-out subjects", "epochs", "subjects", "1-NN", "MAP", "mean of both"], rows)


def actions_table(lines: list[dict]) -> str:
    """The test of what ``actions_choice_table`` chooses: Table 6's neighbours, and Table 4's alignment error."""
    rows = []
    for key, same in by_training(line for line in lines if not line["validate"]).items():
        for epochs in sorted({line["epochs"] for line in same}):
            own = [line for line in same if line["epochs"] == epochs]
            knn = (spread([100 * line["knn"][k] for line in own], "{:.1f}") for k in ("5", "30"))
            errors = spread([1000 * line["alignment_mse"] for line in own if "alignment_mse" in line], "{:.1f}")
            rows.append([training_name(key), epochs, len(own), *accuracy_and_map(own), *knn, errors])
    headings = ["epochs", "seeds", "1-NN", "MAP", "5-NN, %", "30-NN, %", "alignment MSE, thousandths"]
    return table(["MSR Action3D, test", *headings], rows)


def by_training(lines: Iterable[dict]) -> dict[tuple, list[dict]]:
    """Lines by distance, loss, precision, and whether they were trained as in the paper."""
    groups: dict[tuple, list[dict]] = {}
    for line in lines:
        groups.setdefault((line["distance"], line["loss"], line["precision"], line["cosine"]), []).append(line)
    return groups


def training_name(key: tuple) -> str:
    """The name of a row: a distance and a way of training."""
    distance, loss, precision, cosine = key
    half = ", bfloat16" if precision == "bf16-mixed" else ""
    return f"{LOSSES[loss]} + {DISTANCES[distance]}, {'changed skeletons' if cosine else 'as in the paper'}{half}"


def accuracy_and_map(lines: list[dict]) -> tuple[str, str]:
    """The two cells."""
    accuracy = spread([100 * line["accuracy"] for line in lines], "{:.1f}")
    return f"{accuracy} %", spread([line["map"] for line in lines], "{:.3f}")


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
    """Accuracy over splits of the classes, the 95 % interval of its mean, and what the mean over shots would give.

    Where a method has some of the splits only, untrained DTW and trained soft-DTW follow on the same ones.
    """
    keys = list(dict.fromkeys(split_key(line) for line in lines))
    rows, partial = [], {}
    for key in keys:
        some = splits_of(lines, key)
        if len(some) == SPLITS:
            rows.append(split_row(lines, key))
        else:
            partial.setdefault((key[0], tuple(some)), []).append(key)
    for (data, some), methods in partial.items():
        beside = [other for other in references_of(data) if other in keys]
        rows += [split_row(lines, one, list(some)) for one in methods + beside]
    return table(["ten splits", *(f"{ways}-way {shots}-shot" for ways, shots in WAYS_SHOTS)], rows)


def split_row(lines: list[dict], key: SplitKey, some: list[int] | None = None) -> list[str]:
    """A row of ``splits_table``, of some splits or of all."""
    splits = splits_of(lines, key) if some is None else some
    row = [split_name(key) + ("" if some is None else f", splits {splits[0]} to {splits[-1]}")]
    for ways, shots in WAYS_SHOTS:
        by = by_split(lines, key, ways, shots)
        same = [by[split] for split in splits]
        plain = statistics.mean(100 * line["every"]["mean"] for line in same) if shots > 1 else None
        found = interval([100 * line["accuracy"] for line in same], "{:.1f}")
        row.append(found + ("" if plain is None else f" ({plain:.1f})"))
    return row


def gains_table(lines: list[dict]) -> str:
    """What each trained method gains over another, split by split, and on how many splits it is ahead."""
    rows = []
    keys = list(dict.fromkeys(split_key(line) for line in lines))
    for key in (key for key in keys if key[2]):
        for other in (other for other in references_of(key[0]) if other in keys and other != key):
            row = [f"{split_name(key)}, less {SPLIT_METHODS[other[1]]}, {'trained' if other[2] else 'untrained'}"]
            for ways, shots in WAYS_SHOTS:
                mine, theirs = (by_split(lines, one, ways, shots) for one in (key, other))
                gains = [100 * (mine[k]["accuracy"] - theirs[k]["accuracy"]) for k in mine if k in theirs]
                row.append(f"{interval(gains, '{:+.1f}')}, {sum(gain > 0 for gain in gains)} of {len(gains)}")
            rows.append(row)
    return table(["points more, split by split", *(f"{ways}-way {shots}-shot" for ways, shots in WAYS_SHOTS)], rows)


def references_of(data: str) -> tuple[SplitKey, SplitKey]:
    """The baselines of trained methods: untrained DTW and trained soft-DTW."""
    return (data, "dtw", False), (data, "softdtw", True)


def splits_of(lines: list[dict], key: SplitKey) -> list[int]:
    """The splits that a method was run on."""
    return sorted(by_split(lines, key, *WAYS_SHOTS[0]))


def split_name(key: SplitKey) -> str:
    """The name of a method in a row."""
    return f"{SKELETONS[key[0]]}, {SPLIT_METHODS[key[1]]}, {'trained' if key[2] else 'untrained'}"


def split_key(line: dict) -> SplitKey:
    """Data, method, and whether it was trained."""
    return line["data"], line["method"], line.get("trained", False)


def by_split(lines: list[dict], key: SplitKey, ways: int, shots: int) -> dict[int, dict]:
    """The line of each split."""
    return {ln["split"]: ln for ln in lines if split_key(ln) == key and (ln["ways"], ln["shots"]) == (ways, shots)}


def interval(values: list[float], form: str) -> str:
    """The mean and its 95 % interval by Student's t: splits are few, and share classes."""
    half = stats.t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    return f"{form.format(statistics.mean(values))} ± {half:.1f}"


def epochs_table(lines: list[dict]) -> str:
    """How many epochs held-out subjects choose, for each method."""
    rows = []
    for distance, epochs in sorted({(line["distance"], line["epochs"]) for line in lines}):
        same = [line for line in lines if (line["distance"], line["epochs"]) == (distance, epochs)]
        accuracy, precision = [line["accuracy"] for line in same], [line["map"] for line in same]
        both = (statistics.mean(accuracy) + statistics.mean(precision)) / 2
        rows.append([f"HM + {DISTANCES[distance]}", epochs, len(same),
                     spread([100 * value for value in accuracy], "{:.1f}") + " %",
                     spread(precision, "{:.3f}"), f"{both:.3f}"])  # fmt: skip
    return table(["held-out subjects", "epochs", "seeds", "1-NN", "MAP", "mean of both"], rows)


def learned_frames_table(linear: list[dict], framewise: list[dict]) -> str:
    """Features that are learned without TAP, under DTW and OPW: what was chosen on held-out subjects, and the test."""
    rows = []
    tested = [line for line in linear if not line["validate"]]
    for method, name in LINEAR.items():
        for aligner in ("dtw", "opw"):
            same = [line for line in tested if (line["method"], line["aligner"]) == (method, aligner)]
            if same:
                rows.append(learned_row(name, aligner, options_of([line["options"] for line in same]), same))
    tested = [line for line in framewise if not line["validate"]]
    for loss, name in FRAMEWISE.items():
        for aligner in ("dtw", "opw"):
            chosen = best_epochs(framewise, loss, aligner)
            same = [ln for ln in tested if (ln["loss"], ln["aligner"], ln["epochs"]) == (loss, aligner, chosen)]
            if same:
                rows.append(learned_row(f"frames by {name}", aligner, f"{chosen} epochs", same))
    return table(["MSR Action3D, features", "aligner", "chosen", "seeds", "1-NN", "MAP"], rows)


def learned_row(name: str, aligner: str, chosen: str, lines: list[dict]) -> list[object]:
    """One row of ``learned_frames_table``."""
    scores = (
        spread([100 * ln["accuracy"] for ln in lines], "{:.1f}") + " %",
        spread([ln["map"] for ln in lines], "{:.3f}"),
    )
    return [name, DISTANCES[aligner], chosen, len(lines), *scores]


def options_of(chosen: list[dict]) -> str:
    """The settings of a learner in words: those that its seeds chose, and how many chose each where they differ."""
    words = {"rate": "rate", "max_iter": "sweeps", "lr": "lr", "epochs": "epochs"}
    counts = Counter(", ".join(f"{words[name]} {value:g}" for name, value in one.items()) for one in chosen)
    return "; ".join(f"{text} ({n} of {len(chosen)})" if len(counts) > 1 else text for text, n in counts.most_common())


def best_epochs(lines: list[dict], loss: str, aligner: str) -> int | None:
    """The number of epochs with the best mean of accuracy and MAP on held-out subjects."""
    found: dict[int, list[float]] = {}
    for line in lines:
        if line["validate"] and (line["loss"], line["aligner"]) == (loss, aligner):
            found.setdefault(line["epoch"], []).append(line["accuracy"] + line["map"])
    return max(found, key=lambda epoch: statistics.mean(found[epoch])) if found else None


def without_labels(lines: list[dict]) -> dict[tuple[float, int], list[dict]]:
    """The lines of held-out subjects of TAP without labels, by learning rate and epochs."""
    found: dict[tuple[float, int], list[dict]] = {}
    for line in lines:
        if line["validate"]:
            found.setdefault((line["lr"], line["epochs"]), []).append(line)
    return dict(sorted(found.items(), key=lambda item: (-item[0][0], item[0][1])))


def tested_without_labels(lines: list[dict]) -> list[dict]:
    """The test's lines with what held-out subjects choose, by the mean of accuracy and MAP."""
    found = without_labels(lines)
    if not found:
        return []
    best = max(found, key=lambda key: statistics.mean(line["accuracy"] + line["map"] for line in found[key]))
    return [ln for ln in lines if not (ln["validate"] or ln["cosine"]) and (ln["lr"], ln["epochs"]) == best]


def without_labels_table(lines: list[dict]) -> str:
    """How TAP without labels does on held-out subjects, by learning rate and epochs."""
    rows = []
    for (rate, epochs), same in without_labels(lines).items():
        both = statistics.mean((line["accuracy"] + line["map"]) / 2 for line in same)
        rows.append([f"{rate:g}", epochs, len(same), *accuracy_and_map(same), f"{both:.3f}"])
    headings = ["epochs", "subjects", "1-NN", "MAP", "mean of both"]
    return table(["without labels, held-out subjects: learning rate", *headings], rows)


def distances_table(lines: list[dict], self_supervised: list[dict]) -> str:
    """Distances that learn nothing, RVSML, and TAP that learns without labels; the paper's figures in brackets."""
    rows = []
    for line in lines:
        theirs = PUBLISHED.get(line["distance"]) if line["data"] == "msr_action3d" else None
        ours = [line["map"], *(100 * line["knn"][k] for k in ("1", "5", "30"))]
        forms = ["{:.3f}", "{:.2f}", "{:.2f}", "{:.2f}"]
        cells = [form.format(value) for form, value in zip(forms, ours, strict=True)]
        if theirs is not None:
            cells = [f"{cell} ({form.format(t)})" for cell, form, t in zip(cells, forms, theirs, strict=True)]
        rows.append([DISTANCES[line["distance"]], line["test"], *cells, f"{line['seconds_a_query']:.3g}"])
    tested = tested_without_labels(self_supervised)
    if tested:
        seconds = statistics.mean(line["test_seconds"] / line["test"] for line in tested)
        scores = [[line["map"] for line in tested]]
        scores += [[100 * line["knn"][k] for line in tested] for k in ("1", "5", "30")]
        cells = [
            spread(found, form) for found, form in zip(scores, ("{:.3f}", "{:.2f}", "{:.2f}", "{:.2f}"), strict=True)
        ]
        theirs = zip(cells, (" (0.557)", " (79.85)", "", ""), strict=True)
        count = len(tested)
        name = f"TAP, trained without labels, {count} seed{'s' if count > 1 else ''}"
        rows.append([name, tested[0]["test"], *(a + b for a, b in theirs), f"{seconds:.3g}"])
    name = DATA[lines[0]["data"]].partition(",")[0]
    return table([name, "queries", "MAP", "1-NN", "5-NN", "30-NN", "s a query"], rows)


if __name__ == "__main__":
    print(*tables(), sep="\n\n")
