"""The defaults of ``lw.fit(metric, train)``: each learned distance against untrained DTW.

    python benchmarks/defaults.py [--sets GunPoint CBF] [--methods dtw coupled_gru] [--seeds 3] [--workers 2]
    python benchmarks/defaults.py --report

None of these sets was used to choose a default. Eight are real, in aeon's wheel (--folder says where they lie), with
their own split; four are made here. Sequences longer than --most-steps are averaged over neighbouring steps, for every
method alike: TAP takes time and memory with the square of the length. Every run prints a JSON line, with the mean
average precision and 1-NN accuracy of test queries among training references, and adds it to --out; runs that are
there already are not repeated.
"""

import argparse
import importlib.util
import json
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

import likewise as lw

OUT = Path(__file__).parent / "results" / "defaults.jsonl"
REAL = (
    "BasicMotions",
    "JapaneseVowels",
    "GunPoint",
    "ItalyPowerDemand",
    "OSULeaf",
    "ArrowHead",
    "ACSF1",
    "PickupGestureWiimoteZ",
)
Part = tuple[list[np.ndarray], list[str]]  # sequences (T, C), and their classes

UNTRAINED: dict[str, Callable[[], lw.Distance]] = {"DTW": lw.DTW, "DTW, band 0.1": lambda: lw.DTW(band=0.1)}
LEARNED: dict[str, Callable[[int], lw.Distance]] = {
    "TAP": lambda channels: lw.Metric(lw.FrameMLP(channels), lw.TAP()),
    "TransformerTAP": lambda channels: transformer_tap(lw.FrameMLP(channels)),
    "SoftDTW, FrameMLP": lambda channels: lw.Metric(lw.FrameMLP(channels), lw.SoftDTWDivergence()),
    "SoftDTW, TCN": lambda channels: lw.Metric(lw.TCN(channels), lw.SoftDTWDivergence()),
    "CoupledGRU": lw.CoupledGRU,
    "SiameseGRU": lw.SiameseGRU,
    "GRUEncoder": lambda channels: lw.Metric(lw.GRUEncoder(channels), lw.Euclidean()),
    "TCN": lambda channels: lw.Metric(lw.TCN(channels, steps=False), lw.Euclidean()),
}


def transformer_tap(encoder: lw.FrameMLP) -> lw.Metric:
    """The attention works on what the encoder gives."""
    return lw.Metric(encoder, lw.TransformerTAP(encoder.out))


def warped(random: np.random.Generator, steps: int, strength: float) -> np.ndarray:
    """A random increasing map of 0..1 to itself, at ``steps`` points."""
    speeds = np.exp(strength * np.interp(np.linspace(0, 4, steps), np.arange(5), random.standard_normal(5)))
    times = np.cumsum(speeds)
    return (times - times[0]) / (times[-1] - times[0])


def motifs(random: np.random.Generator, label: int) -> np.ndarray:
    """Five channels of smooth curves, which only the class decides, run through at varying speed; noise is added."""
    of_class = np.random.default_rng(1000 + label).standard_normal((5, 7))
    t = warped(random, int(random.integers(50, 90)), 0.8)
    curves = [np.interp(t, np.linspace(0, 1, 7), knots) for knots in of_class]
    return np.stack(curves, 1) + 0.7 * random.standard_normal((len(t), 5)) + 0.4 * random.standard_normal(5)


def strokes(random: np.random.Generator, label: int) -> np.ndarray:
    """The speed (2 channels) of a pen that draws a letter of its class; slant, size and speed differ each time."""
    of_class = np.random.default_rng(2000 + label).standard_normal((6, 2))
    t = warped(random, int(random.integers(60, 110)), 0.6)
    bends = of_class + 0.35 * random.standard_normal(of_class.shape)
    place = sum(np.sin(np.pi * (k + 1) * t)[:, None] * bends[k] / (k + 1) for k in range(6))
    slant = np.eye(2) + 0.25 * random.standard_normal((2, 2))
    return np.gradient(place @ slant, axis=0) * len(t) / 20 + 0.05 * random.standard_normal((len(t), 2))


def cylinder_bell_funnel(random: np.random.Generator, label: int) -> np.ndarray:
    """Saito (1994): a plateau, a rise or a fall between two random times, in noise."""
    steps = np.arange(128)
    begin = random.integers(16, 32)
    end = begin + random.integers(32, 96)
    shape = (1.0, (steps - begin) / (end - begin), (end - steps) / (end - begin))[label]
    inside = (steps >= begin) & (steps <= end)
    return ((6 + random.standard_normal()) * inside * shape + random.standard_normal(128))[:, None]


def control_chart(random: np.random.Generator, label: int) -> np.ndarray:
    """As Alcock & Manolopoulos (1999): normal, cyclic, two trends and two shifts."""
    t = np.arange(60)
    level = 2 * random.uniform(-3, 3, 60)
    turn, jump = random.integers(20, 40), random.uniform(7.5, 20)
    cycle = random.uniform(10, 15) * np.sin(2 * np.pi * t / random.uniform(10, 15))
    slope = random.uniform(0.2, 0.5) * t
    added = (0 * t, cycle, slope, -slope, jump * (t >= turn), -jump * (t >= turn))[label]
    return (30 + level + added)[:, None]


# Name: how an item is made, classes, training items and test items of each class.
MADE: dict[str, tuple[Callable[[np.random.Generator, int], np.ndarray], int, int, int]] = {
    "Motifs": (motifs, 8, 15, 40),
    "Strokes": (strokes, 12, 12, 25),
    "CBF": (cylinder_bell_funnel, 3, 10, 100),
    "ControlChart": (control_chart, 6, 25, 50),
}


def aeon_folder() -> Path:
    """Where aeon keeps its sets; it is not imported."""
    spec = importlib.util.find_spec("aeon")
    if spec is None or spec.origin is None:
        raise SystemExit("aeon is not installed: give --folder with its sets, NAME/NAME_TRAIN.ts")
    return Path(spec.origin).parent / "datasets" / "data"


def read(name: str, folder: Path | None, most_steps: int) -> tuple[Part, Part]:
    """The training and the test part of a set."""
    if name in MADE:
        make, classes, *counts = MADE[name]
        random = np.random.default_rng(7)
        parts = [
            ([make(random, label) for label in range(classes) for _ in range(count)],
             [str(label) for label in range(classes) for _ in range(count)])
            for count in counts
        ]  # fmt: skip
    else:
        place = (folder or aeon_folder()) / name
        parts = [plain(lw.read_ts(place / f"{name}_{part}.ts")) for part in ("TRAIN", "TEST")]
    train, test = (([thinned(x, most_steps) for x in items], labels) for items, labels in parts)
    return train, test


def plain(data: lw.Dataset) -> Part:
    """Sequences and names of classes."""
    items = [x.numpy() for x in data.items]
    return items, [str(label) for label in data.labels]


def thinned(x: np.ndarray, most: int) -> np.ndarray:
    """Means of k neighbouring steps, with the least k that leaves at most ``most`` of them."""
    k = -(-len(x) // most)
    means = x if k == 1 else np.stack([x[i : i + k].mean(0) for i in range(0, len(x), k)])
    return means.astype(np.float32)


def run(name: str, method: str, seed: int, folder: Path | None, most_steps: int, device: str, threads: int) -> dict:
    """Train once, or not at all, and score the test items."""
    torch.set_num_threads(threads)
    parts = read(name, folder, most_steps)
    train, test = ((lw.Batch.from_list(items).to(device), labels) for items, labels in parts)
    channels = train[0].channels
    start = time.perf_counter()
    if method in UNTRAINED:
        metric = UNTRAINED[method]()
    else:
        torch.manual_seed(seed)
        metric = LEARNED[method](channels).to(device)
        lw.fit(metric, train, seed=seed, verbose=False, accelerator="gpu" if device == "cuda" else "cpu")
    seconds = time.perf_counter() - start
    with torch.no_grad():
        found = lw.evaluate(metric, test, train)
    return {
        "set": name, "method": method, "seed": seed, "map": round(found.map, 4), "accuracy": round(found.accuracy, 4),
        "train": len(train[0]), "test": len(test[0]), "channels": channels, "classes": len(set(train[1])),
        "most_steps": most_steps, "fit_seconds": round(seconds, 1), "device": device, "threads": threads,
    }  # fmt: skip


def runs(sets: list[str], methods: list[str], seeds: int) -> Iterator[tuple[str, str, int]]:
    """The runs to do; methods without training have one seed."""
    for seed in range(seeds):
        for name in sets:
            for method in methods:
                if seed == 0 or method in LEARNED:
                    yield name, method, seed


def report(lines: list[dict]) -> None:
    """A Markdown table of MAP, mean and deviation over seeds; learned distances that beat DTW are bold."""
    sets = [name for name in (*REAL, *MADE) if any(line["set"] == name for line in lines)]
    methods = [method for method in (*UNTRAINED, *LEARNED) if any(line["method"] == method for line in lines)]

    def scores(name: str, method: str) -> list[float]:
        return [line["map"] for line in lines if (line["set"], line["method"]) == (name, method)]

    print(f"| MAP | {' | '.join(methods)} |\n|---|{'---|' * len(methods)}")
    wins, tried, means = (dict.fromkeys(methods, 0) for _ in range(3))
    for name in sets:
        cells, base = [], scores(name, "DTW")
        for method in methods:
            found = scores(name, method)
            if not found:
                cells.append("-")
                continue
            mean, spread = statistics.mean(found), statistics.stdev(found) if len(found) > 1 else None
            better = method in LEARNED and bool(base) and mean > base[0]
            wins[method], tried[method] = wins[method] + better, tried[method] + 1
            means[method] += mean
            cell = f"{mean:.3f}" + ("" if spread is None else f" ± {spread:.3f}")
            cells.append((f"**{cell}**" if better else cell).replace("0.", "."))
        print(f"| {name} | {' | '.join(cells)} |")
    averages = [f"{means[m] / tried[m]:.3f}".replace("0.", ".") for m in methods]
    print(f"| mean of the sets | {' | '.join(averages)} |")
    print(f"| sets above DTW | {' | '.join(f'{wins[m]} of {tried[m]}' if m in LEARNED else '' for m in methods)} |")


def main() -> None:
    """Run what is missing, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="*", default=[*REAL, *MADE], choices=[*REAL, *MADE])
    parser.add_argument("--methods", nargs="*", default=[*UNTRAINED, *LEARNED], choices=[*UNTRAINED, *LEARNED])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--most-steps", type=int, default=128)
    parser.add_argument("--folder", type=Path, help="of NAME/NAME_TRAIN.ts; aeon's by default")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="of each worker")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--report", action="store_true", help="print the table of the lines in --out")
    given = parser.parse_args()
    lines = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    if given.report:
        return report(lines)
    known = {(line["set"], line["method"], line["seed"]) for line in lines}
    todo = [each for each in runs(given.sets, given.methods, given.seeds) if each not in known]
    settings = given.folder, given.most_steps, given.device, given.threads
    with ProcessPoolExecutor(given.workers, mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(run, *each, *settings): each for each in todo}
        for done in as_completed(waiting):
            if done.exception() is not None:
                print(*waiting[done], "failed:", done.exception(), flush=True)
                continue
            line = json.dumps(done.result())
            print(line, flush=True)
            with given.out.open("a") as file:
                file.write(line + "\n")


if __name__ == "__main__":
    main()
