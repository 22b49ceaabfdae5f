"""An hour of mixed calls in one process: memory, threads and file handles stay flat.

Every round computes all distances with gradients, trains, saves and loads a metric, builds, saves, loads and searches
an index, reads and writes files, and gives damaged ones to the readers. After some rounds to warm up, resident memory
(the median of a window), threads and handles of the last tenth are compared with those of the first.

Run: python benchmarks/soak.py [--minutes 60]
"""

import argparse
import contextlib
import gc
import os
import resource
import statistics
import tempfile
import threading
import time
import warnings
from pathlib import Path

import torch

import likewise as lw
from likewise import distances

WARM_UP = 5  # rounds: imports, pools and caches are filled
GROWTH = 0.05  # of resident memory that may be left: the allocator's


def resident() -> int:
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def handles() -> int:
    return len(os.listdir("/proc/self/fd"))


def sequences(generator, count=12, channels=2):
    lengths = torch.randint(4, 40, (count,), generator=generator).tolist()
    return lw.Batch.from_list([torch.randn(n, channels, generator=generator) for n in lengths])


def all_distances(generator) -> None:
    kinds = [lw.DTW(band=0.2), lw.SoftDTW(), lw.SoftDTWDivergence(), lw.GDTW(), lw.Sinkhorn(), lw.OPW(), lw.TCOT()]
    kinds += [distances.EMD(), lw.OTAM(), lw.TAP(4), lw.CoupledGRU(2), lw.SiameseGRU(2), lw.Euclidean(), lw.Cosine()]
    kinds += [distances.MeanFrames()]
    for distance in kinds:
        x, y = sequences(generator), sequences(generator)
        x.values.requires_grad_()
        distance(x, y).sum().backward()
        with torch.no_grad():
            distance.matrix(x, y)
    alignment = lw.DTW().align(sequences(generator), sequences(generator))
    alignment.path(0)


def train(generator, folder: Path) -> None:
    labels = torch.arange(12) % 3
    metric = lw.Metric(lw.TCN(2, 4, layers=2), lw.SoftDTW(0.5))
    data = (sequences(generator), labels)
    from likewise.training.options import Checkpoints

    checkpoints = Checkpoints(folder / "run", resume=True)
    lw.fit(metric, data, epochs=1, batch_size=6, verbose=False, accelerator="cpu", checkpoints=checkpoints, loggers=[])
    lw.evaluate(lw.Metric.load(folder / "run"), data, data)


def search(generator, folder: Path) -> None:
    index = lw.Index(lw.DTW(band=0.2))
    index.add(sequences(generator, 30))
    index.save(folder / "index")
    lw.Index.load(folder / "index").search(sequences(generator, 3), k=2)


def files(generator, folder: Path) -> None:
    data = lw.Dataset(sequences(generator), ["a", "b", "c"] * 4)
    lw.data.write_npz(data, folder / "a.npz")
    lw.data.write_ts(data, folder / "a.ts")
    for path, read in ((folder / "a.npz", lw.read_npz), (folder / "a.ts", lw.read_ts)):
        read(path)
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        with contextlib.suppress(ValueError):  # text that ends with a line is whole, if shorter
            read(path)


def once(generator) -> None:
    with tempfile.TemporaryDirectory() as name:
        all_distances(generator)
        train(generator, Path(name))
        search(generator, Path(name))
        files(generator, Path(name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    minutes = parser.parse_args().minutes
    warnings.simplefilter("ignore")
    generator, rounds, rows = torch.Generator().manual_seed(0), 0, []
    start = time.monotonic()
    while time.monotonic() - start < 60 * minutes:
        once(generator)
        rounds += 1
        gc.collect()
        if rounds > WARM_UP:
            rows.append((resident(), threading.active_count(), handles()))
        if rounds % 10 == 0:
            print(f"{(time.monotonic() - start) / 60:.1f} min, round {rounds}: {resident() >> 20} MB", flush=True)
    taken = (time.monotonic() - start) / 60
    tenth = max(1, len(rows) // 10)
    if len(rows) < 20:
        raise SystemExit(f"soak: {rounds} rounds in {taken:.1f} minutes are too few to say anything")
    first, last = rows[:tenth], rows[-tenth:]
    memory = [statistics.median(row[0] for row in part) / 2**20 for part in (first, last)]
    threads, open_files = ([max(row[k] for row in part) for part in (first, last)] for k in (1, 2))
    flat = memory[1] <= memory[0] * (1 + GROWTH) and threads[1] <= threads[0] and open_files[1] <= open_files[0]
    facts = f"memory {memory[0]:.0f} to {memory[1]:.0f} MB, threads {threads[0]} to {threads[1]}, "
    facts += f"handles {open_files[0]} to {open_files[1]}: {'flat' if flat else 'GROWING'}"
    print(f"soak: {taken:.1f} minutes, {rounds} rounds: {facts}")
    raise SystemExit(not flat)


if __name__ == "__main__":
    main()
