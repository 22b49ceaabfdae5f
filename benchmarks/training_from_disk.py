"""Train on 20,000 files that are read one by one, and measure the memory that it takes.

    python benchmarks/training_from_disk.py --files 20000 --workers 2

Sequences of 256 frames with 64 channels, 64 KiB each, 1.3 GB in all, are generated into a temporary folder and trained
on, with a validation on a share of them. Prints a JSON line: files and bytes on disk, seconds, items in a second, and
the largest resident memory of this process and of its workers together, sampled every second.
"""

import argparse
import json
import os
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch

import likewise as lw
from likewise.training import Validation

STEPS, CHANNELS, CLASSES = 256, 64, 10


class Files(torch.utils.data.Dataset):
    """Sequences in a folder, one file each."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.labels = np.arange(count) % CLASSES

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int) -> tuple[np.ndarray, int]:
        return np.load(self.folder / f"{i}.npy"), int(self.labels[i])


class Summary(torch.nn.Module):
    """A vector for each sequence: the mean of its frames, each through a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(CHANNELS, 16)

    def forward(self, batch: lw.Batch) -> torch.Tensor:
        """Vectors (B, 16); all frames are real."""
        return self.layer(batch.values).relu().mean(1)


def write_files(folder: Path, count: int) -> None:
    """Noise around a wave for each class."""
    random = np.random.default_rng(0)
    waves = random.normal(size=(CLASSES, STEPS, CHANNELS)).cumsum(1).astype(np.float32) / 8
    for i in range(count):
        np.save(folder / f"{i}.npy", waves[i % CLASSES] + random.normal(size=(STEPS, CHANNELS)).astype(np.float32))


def resident() -> int:
    """Bytes of this process and its children that are in memory, each shared page counted by its share."""
    own = os.getpid()
    children = (Path(f"/proc/{own}/task/{own}/children")).read_text().split()
    total = 0
    for process in (own, *children):
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except OSError:  # it has ended
            continue
        total += sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total


def main() -> None:
    """Measure, and print a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    given = parser.parse_args()
    peak, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(1.0):
            peak[0] = max(peak[0], resident())

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder, given.files)
        size = sum(path.stat().st_size for path in folder.iterdir())
        metric = lw.Metric(Summary(), lw.Euclidean())
        watcher = threading.Thread(target=watch)
        watcher.start()
        begin = time.perf_counter()
        history = lw.fit(
            metric,
            Files(folder, given.files),
            lw.losses.Triplet(),
            val=Validation(0.02),
            epochs=1,
            batch_size=given.batch_size,
            workers=given.workers,
            verbose=False,
            accelerator="cpu",
        )
        seconds = time.perf_counter() - begin
        done.set()
        watcher.join()
    assert history.best is not None
    line = {"files": given.files, "bytes": size, "workers": given.workers, "seconds": round(seconds, 1)}
    line |= {"items_a_second": round(given.files / seconds), "peak_bytes": peak[0], "accuracy": history.best.accuracy}
    print(json.dumps(line))


if __name__ == "__main__":
    main()
