"""``likewise train`` on sets that it was not tuned for: the chosen metric against tuned DTW, on the test items.

    python benchmarks/train.py [--sets ArrowHead BasicMotions ItalyPowerDemand] [--minutes 5] [--seeds 0 1 2]
    LIKEWISE_DATA=../shared/data python benchmarks/train.py --sets flowers [--minutes 4]

For each set in aeon's wheel, the command runs on the training items; then the mean average precision of the test items
among the training items is measured, of the metric that it chose and of DTW, its band tuned by leave-one-out on all
training items. "flowers" are folders of images: twelve classes of Oxford Flowers-102 at 96 x 96, twenty images of each
for training and twenty for testing; they are compared with EfficientNet-Lite as it comes. Prints a JSON line for each
set, and adds it to results/train.jsonl.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

import numpy as np
import torch
from defaults import aeon_folder

import likewise as lw
from likewise.selection import candidates_for, tuned_dtw

OUT = Path(__file__).parent / "results" / "train.jsonl"
SETS = ("ArrowHead", "BasicMotions", "ItalyPowerDemand")
FLOWERS, PER_CLASS = range(60, 72), 20


def flower_folders(folder: Path) -> tuple[Path, Path]:
    """Write the training and the test images, one folder for each class."""
    held = np.load(Path(os.environ["LIKEWISE_DATA"]) / "flowers102_webp96.npz")
    labels, offsets, content = held["labels"], held["offsets"], held["images"]
    for code in FLOWERS:
        for place, i in enumerate(np.flatnonzero(labels == code)[: 2 * PER_CLASS]):
            part = folder / ("train", "test")[place // PER_CLASS] / f"class {code}"
            part.mkdir(parents=True, exist_ok=True)
            (part / f"{i}.webp").write_bytes(content[offsets[i] : offsets[i + 1]].tobytes())
    return folder / "train", folder / "test"


def run(name: str, minutes: float, seed: int) -> dict:
    """Choose a metric by the command, and score it on the test items."""
    with tempfile.TemporaryDirectory() as folder:
        if name == "flowers":
            train, test = flower_folders(Path(folder))
            references, queries = lw.read_image_folder(train, size=96), lw.read_image_folder(test, size=96)
            base = candidates_for(references)[0].make(references)
        else:
            train, test = (aeon_folder() / name / f"{name}_{part}.ts" for part in ("TRAIN", "TEST"))
            references, queries = lw.read_ts(train), lw.read_ts(test)
            base = tuned_dtw(references)
        out = Path(folder) / "run"
        command = ["-m", "likewise", "train", train, "-o", out, "--minutes", minutes, "--seed", seed, "--json"]
        start = time.perf_counter()
        done = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, check=True)
        seconds = time.perf_counter() - start
        found = json.loads(done.stdout)
        best = found["results"][0]["name"].replace(", ", "__")
        metrics = {"": lw.Metric.load(out), "before_refit_": lw.Metric.load(out / "search" / best / "best")}
    row = {
        "set": name, "seed": seed, "minutes": minutes, "seconds": round(seconds, 1), "chosen": found["best"],
        "refit_steps": found["refit_steps"], "validation_map": round(found["results"][0]["map"], 4),
        "base": "EfficientNet-Lite" if name == "flowers" else repr(base.distance),
    }  # fmt: skip
    for prefix, metric in (metrics | {"base_": base}).items():
        scores = lw.evaluate(metric, queries, references)
        row |= {f"{prefix}map": round(scores.map, 4), f"{prefix}accuracy": round(scores.accuracy, 4)}
    row |= {"train": len(references), "test": len(queries), "threads": torch.get_num_threads()}
    return row | {"load": round(os.getloadavg()[0], 1), "version": lw.__version__}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    given = parser.parse_args()
    for name, seed in product(given.sets, given.seeds):
        line = json.dumps(run(name, given.minutes, seed))
        print(line, flush=True)
        with OUT.open("a") as file:
            file.write(line + "\n")


if __name__ == "__main__":
    main()
