"""Mean average precision, against sorting with torch and against pytorch-metric-learning's AccuracyCalculator.

    python benchmarks/evaluate.py [--repeats 7] [--only 3,000]

A ready matrix of 3,000 x 7,000 is ranked in this process. 10,000 vectors against themselves run in a process for each
measurement, in turn, so that each peak of memory is its own: what the process grew by between the data and the result.
There, ``evaluate`` computes all of its scores, and the peer only the mean average precision.
"""

import json
import statistics
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import torch
from measure import Benchmark, check, machine

from likewise import Euclidean
from likewise.evaluation import mean_average_precision
from likewise.evaluation.evaluate import evaluate

ITEMS, CHANNELS, CLASSES = 10_000, 64, 100
PEER = "pytorch-metric-learning"


def ready_matrix(benchmark: Benchmark) -> None:
    """Ten classes, 64-d vectors around their centres."""
    x, labels = vectors(10_000, 10)
    D, rows, columns = torch.cdist(x[:3000], x[3000:]), labels[:3000], labels[3000:]

    def by_sorting() -> float:
        order = D.argsort(1)
        hit = columns[order] == rows[:, None]
        precision = hit.cumsum(1, dtype=torch.int32) / torch.arange(1, D.shape[1] + 1, dtype=torch.float32)
        return ((precision * hit).sum(1) / hit.sum(1)).mean().item()

    def one_row_at_a_time() -> float:
        found = []
        for row, label in zip(D, rows, strict=True):
            hit = columns[row.argsort()] == label
            found.append((hit.cumsum(0)[hit] / (hit.nonzero()[:, 0] + 1)).mean())
        return torch.stack(found).mean().item()

    benchmark.case(
        "MAP of a ready 3,000 x 7,000 matrix, float32",
        lambda: mean_average_precision(D, rows, columns),
        {"torch argsort": by_sorting, "torch argsort, row by row": one_row_at_a_time},
        exact(D, rows, columns),
        tolerance=1e-12,
        bar=5,
    )


def vectors(count: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Vectors (N, 64) scattered around the centres of their classes, and labels (N,)."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(classes, (count,), generator=generator)
    centers = 0.5 * torch.randn(classes, CHANNELS, generator=generator)
    return centers[labels] + torch.randn(count, CHANNELS, generator=generator), labels


def exact(D: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> float:
    """scikit-learn's average precision, row by row."""
    from sklearn.metrics import average_precision_score

    found = [average_precision_score(columns == label, -row) for row, label in zip(D, rows, strict=True)]
    return statistics.fmean(found)


def run_likewise(x: torch.Tensor, labels: torch.Tensor) -> float:
    return evaluate(Euclidean(), (x, labels)).map


def run_pml(x: torch.Tensor, labels: torch.Tensor) -> float:
    from pytorch_metric_learning.distances import LpDistance
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
    from pytorch_metric_learning.utils.inference import CustomKNN

    # By chunks: without them it takes twice the memory. Its faiss search is not installed; k=None is the full ranking.
    search = CustomKNN(LpDistance(normalize_embeddings=False), batch_size=256)
    calculator = AccuracyCalculator(include=("mean_average_precision",), k=None, knn_func=search, kmeans_func=len)
    return calculator.get_accuracy(x, labels)["mean_average_precision"]


RUNS = {"likewise": run_likewise, PEER: run_pml}


def one_measurement(name: str) -> None:
    """In a process of its own: print the result, the seconds, and the growth of the peak in MB."""
    x, labels = vectors(ITEMS, CLASSES)
    RUNS[name](x[:300], labels[:300])  # imports, and a warm start
    before = peak_mb()
    start = time.perf_counter()
    found = RUNS[name](x, labels)
    seconds = time.perf_counter() - start
    peak = peak_mb()
    print(json.dumps({"map": found, "seconds": seconds, "grown_mb": peak - before, "peak_mb": peak}))


def peak_mb() -> float:
    """The most memory that this process has held. getrusage would count its parent's, before the program began."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) / 1024


def all_pairs(benchmark: Benchmark) -> None:
    case = f"MAP of {ITEMS:,} x {ITEMS:,} vectors of {CHANNELS} channels"
    if benchmark.options.only not in case:
        return
    found: dict[str, list[dict[str, float]]] = {name: [] for name in RUNS}
    for _ in range(min(benchmark.options.repeats, 3)):
        for name in RUNS:
            command = [sys.executable, __file__, "--measure", name]
            line = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            found[name].append(json.loads(line))
    x, labels = vectors(ITEMS, CLASSES)
    check_rows(x, labels)
    for name, measured in found.items():
        check(name, measured[0]["map"], found["likewise"][0]["map"], 1e-5)
    seconds, grown, peak = (
        {name: statistics.median(row[key] for row in rows) for name, rows in found.items()}
        for key in ("seconds", "grown_mb", "peak_mb")
    )
    row = {
        "case": case,
        "ms": 1e3 * seconds["likewise"],
        "best_peer": PEER,
        "times_faster": seconds[PEER] / seconds["likewise"],
        "bar": 1,
        "peers_ms": {PEER: 1e3 * seconds[PEER]},
        "grown_mb": grown,
        "peak_mb": peak,
        "times_less_memory": grown[PEER] / grown["likewise"],
        "memory_bar": 5,
        **machine(),
    }
    row["versions"][PEER] = metadata.version(PEER)
    benchmark.rows.append(row)
    print(f"{case}: grown by {grown['likewise']:.0f} MB, {PEER} {grown[PEER]:.0f} MB,", end=" ")
    print(f"{row['times_less_memory']:.1f} times less (bar 5); peaks {peak['likewise']:.0f} and {peak[PEER]:.0f} MB")


def check_rows(x: torch.Tensor, labels: torch.Tensor) -> None:
    """Some queries of the large case against scikit-learn."""
    D = torch.cdist(x[:50].double(), x[50:].double())
    expected = exact(D, labels[:50], labels[50:])
    found = evaluate(Euclidean(), (x[:50].double(), labels[:50]), (x[50:].double(), labels[50:])).map
    check("likewise", found, expected, 1e-9)


def main() -> None:
    if "--measure" in sys.argv:
        one_measurement(sys.argv[-1])
        return
    benchmark = Benchmark("evaluate", __doc__)
    ready_matrix(benchmark)
    all_pairs(benchmark)
    benchmark.close()


if __name__ == "__main__":
    main()
