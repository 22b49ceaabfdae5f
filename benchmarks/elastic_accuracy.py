"""1-NN accuracy of elastic distances, with parameters chosen by leave-one-out on the training set.

    python benchmarks/elastic_accuracy.py --data ../shared/data [--sets GunPoint UCI-HAR] [--methods MSM TWE]
    python benchmarks/elastic_accuracy.py --report

Twelve real sets: eight in aeon's wheel with their own split, four of --data. At most 120 training and 200 test series a
set, drawn once by a fixed seed with every class alike; series longer than 128 steps are averaged over neighbouring
steps; every channel is standardised by the training series. Ties between settings go to the first. Each line of
results/elastic_accuracy.jsonl is one set and one distance; sets and distances that are there are not run again.
"""

import argparse
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from defaults import REAL, read, thinned
from measure import machine

import likewise as lw

OUT = Path(__file__).parent / "results" / "elastic_accuracy.jsonl"
MOST_STEPS, MOST_TRAIN, MOST_TEST = 128, 120, 200
Part = tuple[list[np.ndarray], list[str]]

COSTS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
REACHES = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # a frame of 60 standardised channels has a norm of about 8
GRIDS: dict[str, list[lw.Distance]] = {
    "Euclidean": [lw.DTW(band=0)],  # squared; with lengths that differ, between the diagonals of both corners
    "DTW": [lw.DTW()],
    "DTW, tuned band": [lw.DTW(band=b) for b in (0.0, 0.02, 0.05, 0.1, 0.2, 1.0)],
    "ADTW": [lw.ADTW(p) for p in COSTS],
    "WDTW": [lw.WDTW(g) for g in (0.01, 0.03, 0.1, 0.2, 0.4, 1.0)],
    "DDTW": [lw.DDTW(band=b) for b in (0.05, 0.1, 0.2, 1.0)],
    "WDDTW": [lw.WDDTW(g) for g in (0.01, 0.03, 0.1, 0.2, 0.4, 1.0)],
    "ShapeDTW": [lw.ShapeDTW(r) for r in (2, 5, 15)],
    "DTWGlobalInvariance": [lw.DTWGlobalInvariance(band=b) for b in (0.1, 1.0)],
    "MSM": [lw.MSM(c) for c in COSTS],
    "MSM, dependent": [lw.MSM(c, independent=False) for c in COSTS],
    "TWE": [lw.TWE(s, p) for s in (0.0001, 0.01, 0.1, 1.0) for p in (0.0, 0.1, 1.0, 10.0)],
    "ERP": [lw.ERP(band=b) for b in (0.05, 0.1, 0.2, 1.0)],
    "EDR": [lw.EDR(e) for e in REACHES],
    "LCSS": [lw.LCSS(e, band=b) for e in REACHES for b in (0.1, 1.0)],
    "SBD": [lw.SBD()],
}


def uci_har(data: Path) -> tuple[Part, Part]:
    file = np.load(data / "uci_har.npz")
    train, test = ((list(file[f"X_{p}"]), [str(y) for y in file[f"y_{p}"]]) for p in ("train", "test"))
    return train, test


def arabic_digits(data: Path) -> tuple[Part, Part]:
    file, parts = np.load(data / "spoken_arabic_digits.npz"), []
    for part in ("train", "test"):
        items = np.split(file[f"values_{part}"], np.cumsum(file[f"lengths_{part}"])[:-1])
        parts.append((items, [str(y) for y in file[f"y_{part}"]]))
    return parts[0], parts[1]


def action3d(data: Path) -> tuple[Part, Part]:
    file = np.load(data / "msr_action3d.npz")
    items = np.split(file["values"].reshape(len(file["values"]), -1), np.cumsum(file["lengths"])[:-1])
    kept = [k for k, x in enumerate(items) if (x != 0).any(1).sum() >= max(3, len(x) // 2)]
    items = {k: items[k][(items[k] != 0).any(1)] for k in kept}
    parts = [[k for k in kept if bool(file["is_train"][k]) == wanted] for wanted in (True, False)]
    train, test = (([items[k] for k in part], [str(file["y"][k]) for k in part]) for part in parts)
    return train, test


def mhad(data: Path) -> tuple[Part, Part]:
    file = np.load(data / "utd_mhad_skeleton.npz")
    frames, offsets = file["frames"], file["offsets"]
    frames = (frames - frames[:, :1]).reshape(len(frames), -1)
    bounds = offsets if len(offsets) > len(file["labels"]) else np.append(offsets, len(frames))
    items = [frames[a:b] for a, b in itertools.pairwise(bounds)]
    parts = [[k for k in range(len(items)) if (file["subject"][k] % 2 == 1) == wanted] for wanted in (True, False)]
    train, test = (([items[k] for k in part], [str(file["labels"][k]) for k in part]) for part in parts)
    return train, test


OWN: dict[str, Callable[[Path], tuple[Part, Part]]] = {
    "UCI-HAR": uci_har,
    "ArabicDigits": arabic_digits,
    "MSRAction3D": action3d,
    "UTD-MHAD": mhad,
}


def drawn(part: Part, most: int) -> Part:
    """At most so many items, of every class alike."""
    items, labels = part
    random, queues = np.random.default_rng(0), {}
    for k in random.permutation(len(items)):
        queues.setdefault(labels[k], []).append(k)
    order = sorted((place, label, k) for label, queue in queues.items() for place, k in enumerate(queue))
    kept = [k for *_, k in order[:most]]
    return [items[k] for k in kept], [labels[k] for k in kept]


def load(name: str, data: Path) -> tuple[Part, Part]:
    """The training and the test part of a set, standardised."""
    train, test = OWN[name](data) if name in OWN else read(name, None, MOST_STEPS)
    train, test = drawn(train, MOST_TRAIN), drawn(test, MOST_TEST)
    frames = np.concatenate(train[0])
    mean, deviation = frames.mean(0), frames.std(0) + 1e-8

    def prepared(part: Part) -> Part:
        return [((thinned(x, MOST_STEPS) - mean) / deviation).astype(np.float32) for x in part[0]], part[1]

    return prepared(train), prepared(test)


def nearest(D: torch.Tensor, labels: list[str]) -> list[str]:
    """The class of each row's nearest column."""
    return [labels[k] for k in D.argmin(1).tolist()]


def accuracy(found: list[str], labels: list[str]) -> float:
    """The share of classes that are right."""
    return float(np.mean([a == b for a, b in zip(found, labels, strict=True)]))


def run(name: str, method: str, data: Path) -> dict[str, object]:
    """Choose the setting on the training set, and use it on the test set."""
    (train, train_labels), (test, test_labels) = load(name, data)
    x, y = lw.Batch.from_list(train), lw.Batch.from_list(test)
    begin, scores = time.perf_counter(), []
    for distance in GRIDS[method]:
        D = distance.matrix(x).fill_diagonal_(torch.inf)
        scores.append(accuracy(nearest(D, train_labels), train_labels))
    chosen = GRIDS[method][int(np.argmax(scores))]
    score = accuracy(nearest(chosen.matrix(y, x), train_labels), test_labels)
    return {
        "set": name,
        "method": method,
        "accuracy": score,
        "leave_one_out": max(scores),
        "setting": repr(chosen),
        "train": len(train),
        "test": len(test),
        "seconds": time.perf_counter() - begin,
        **machine(),
    }


def report(lines: list[dict]) -> None:
    """Accuracies, mean ranks, and the critical-difference picture."""
    from scipy.stats import rankdata, studentized_range

    sets = list(dict.fromkeys(line["set"] for line in lines))
    table = {(line["set"], line["method"]): line["accuracy"] for line in lines}
    methods = [m for m in GRIDS if all((s, m) in table for s in sets)]
    grid = np.array([[table[s, m] for m in methods] for s in sets])
    ranks = np.array([rankdata(-row) for row in grid]).mean(0)
    print("| set | " + " | ".join(methods) + " |\n|---" * 1 + "|---" * len(methods) + "|")
    for name, row in zip(sets, grid, strict=True):
        print(f"| {name} | " + " | ".join(f"{100 * a:.1f}" for a in row) + " |")
    print("| mean | " + " | ".join(f"{100 * a:.1f}" for a in grid.mean(0)) + " |")
    print("| mean rank | " + " | ".join(f"{r:.2f}" for r in ranks) + " |")
    k = len(methods)
    critical = studentized_range.ppf(0.95, k, np.inf) / np.sqrt(2) * np.sqrt(k * (k + 1) / (6 * len(sets)))
    print(f"\ncritical difference of mean ranks (Nemenyi, 5 %): {critical:.2f}, {len(sets)} sets")
    draw(methods, ranks, critical)


def draw(methods: list[str], ranks: np.ndarray, critical: float) -> None:
    """Mean ranks on a line, and bars over those that do not differ."""
    import matplotlib.pyplot as plt

    order = np.argsort(ranks)
    _, axis = plt.subplots(figsize=(9, 3.2))
    axis.hlines(0, 1, len(methods), color="black")
    for place, k in enumerate(order):
        side = 1 if place < len(order) / 2 else -1
        height = -0.35 - 0.3 * (place if side == 1 else len(order) - 1 - place)
        end = 0.6 if side == 1 else len(methods) + 0.4
        axis.plot([ranks[k], ranks[k], end], [0, height, height], color="0.3", linewidth=0.8)
        where = "right" if side == 1 else "left"
        axis.text(end, height, f" {methods[k]} ({ranks[k]:.2f}) ", ha=where, va="center", fontsize=8)
    level, reach = 0.15, -1.0
    for k in order:
        group = [r for r in ranks if ranks[k] <= r <= ranks[k] + critical]
        if max(group) > reach and len(group) > 1:
            reach = max(group)
            axis.hlines(level, ranks[k], reach, linewidth=3, color="tab:blue")
            level += 0.15
    axis.set(xlim=(-1.5, len(methods) + 2.5), title=f"mean rank; bars join what differs by less than {critical:.2f}")
    axis.axis("off")
    plt.savefig(OUT.with_suffix(".png"), dpi=120, bbox_inches="tight")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--sets", nargs="+", default=[*REAL, *OWN])
    parser.add_argument("--methods", nargs="+", default=list(GRIDS))
    parser.add_argument("--report", action="store_true", help="print the table of the lines, and draw the ranks")
    options = parser.parse_args()
    lines = [json.loads(line) for line in OUT.read_text().splitlines()] if OUT.exists() else []
    if options.report:
        return report(lines)
    done = {(line["set"], line["method"]) for line in lines}
    for name in options.sets:
        for method in options.methods:
            if (name, method) in done:
                continue
            line = run(name, method, options.data)
            print(
                json.dumps({key: line[key] for key in ("set", "method", "accuracy", "setting", "seconds")}), flush=True
            )
            with open(OUT, "a") as file:
                file.write(json.dumps(line) + "\n")
    return None


if __name__ == "__main__":
    main()
