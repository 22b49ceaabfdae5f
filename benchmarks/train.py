"""``likewise train`` on sets that nobody tuned it for: the metric that it chooses against tuned DTW, on the test items.

    python benchmarks/train.py [--sets ArrowHead BasicMotions ItalyPowerDemand] [--minutes 5] [--seeds 0 1 2]

For each set in aeon's wheel, the command runs on the training items; then the mean average precision of the test items
among the training items is measured, of the metric that it chose and of DTW, its band tuned by leave-one-out on all
training items. Prints a JSON line for each set, and adds it to results/train.jsonl.
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

from defaults import aeon_folder

import likewise as lw
from likewise.selection import tuned_dtw

OUT = Path(__file__).parent / "results" / "train.jsonl"
SETS = ("ArrowHead", "BasicMotions", "ItalyPowerDemand")


def run(name: str, minutes: float, seed: int) -> dict:
    """Choose a metric by the command, and score it on the test items."""
    train, test = (aeon_folder() / name / f"{name}_{part}.ts" for part in ("TRAIN", "TEST"))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = ["-m", "likewise", "train", train, "-o", out, "--minutes", minutes, "--seed", seed, "--json"]
        start = time.perf_counter()
        done = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, check=True)
        seconds = time.perf_counter() - start
        found = json.loads(done.stdout)
        metric = lw.Metric.load(out)
    references, queries = lw.read_ts(train), lw.read_ts(test)
    tuned = tuned_dtw(references)
    chosen, base = (lw.evaluate(m, queries, references) for m in (metric, tuned))
    return {
        "set": name, "seed": seed, "minutes": minutes, "seconds": round(seconds, 1), "chosen": found["best"],
        "validation_map": round(found["results"][0]["map"], 4), "map": round(chosen.map, 4),
        "accuracy": round(chosen.accuracy, 4), "dtw": repr(tuned.distance), "dtw_map": round(base.map, 4),
        "dtw_accuracy": round(base.accuracy, 4), "train": len(references), "test": len(queries),
        "load": round(os.getloadavg()[0], 1), "version": lw.__version__,
    }  # fmt: skip


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
