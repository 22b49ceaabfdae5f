"""An hour of mixed calls in one process: memory, threads and file handles stay flat.

Every round computes every distance of likewise with gradients, trains, saves and loads a metric, averages sequences,
builds, saves, loads and searches an index, sends requests to a running service, and reads files, some of them damaged.
The last fifth of the rounds is compared with the second; during the first, caches fill up.

"In use" is what malloc has handed out. If it grows, something leaks; if only resident memory grows, the
allocator's free memory is fragmented. oneDNN, which computes PyTorch's convolutions, keeps compiled code for the last
1,024 shapes. With lengths that vary, filling that cache takes over a hundred rounds and looks like a leak meanwhile, so
it is limited to 64 shapes here.

Run: python benchmarks/soak.py [--minutes 60]
"""

import argparse
import contextlib
import ctypes
import gc
import inspect
import json
import os
import resource
import statistics
import tempfile
import time
import urllib.error
import urllib.request
import warnings
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")  # read once, when torch is imported

import torch

import likewise as lw
from likewise import distances, losses
from likewise.web import Collection, Server, create_service

GROWTH = 0.02  # of memory, from the second fifth to the last: what the allocator's rounding may be
FEWEST = 30  # rounds from which anything can be said


class State(NamedTuple):
    """Bytes in memory, bytes that malloc has handed out, threads, and open files of this process."""

    resident: int
    in_use: int
    threads: int
    handles: int

    @classmethod
    def now(cls) -> "State":
        gc.collect()
        with contextlib.suppress(AttributeError):  # pages that are free go back to the system
            ctypes.CDLL(None).malloc_trim(0)
        with open("/proc/self/statm") as file:
            pages = int(file.read().split()[1])
        threads, handles = len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
        return cls(pages * resource.getpagesize(), in_use(), threads, handles)


class MallInfo(ctypes.Structure):
    """glibc's struct mallinfo2."""

    _names = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    _fields_ = list(zip(_names, [ctypes.c_size_t] * len(_names), strict=True))


def in_use() -> int:
    """Bytes that malloc has handed out, large blocks included; 0 where there is no glibc of 2.33 or later."""
    try:
        ask = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return 0
    ask.restype = MallInfo
    found = ask()
    return found.uordblks + found.hblkhd


def sequences(generator, count=6, channels=2):
    lengths = torch.randint(4, 40, (count,), generator=generator).tolist()
    return lw.Batch.from_list([torch.randn(n, channels, generator=generator) for n in lengths])


def every_distance() -> list[lw.Distance]:
    """One of each distance that likewise exports."""
    found = [getattr(distances, name) for name in distances.__all__ if name not in ("Distance", "Elastic")]
    kinds = [kind for kind in found if isinstance(kind, type) and issubclass(kind, lw.Distance)]
    return [kind(2) if "channels" in inspect.signature(kind).parameters else kind() for kind in kinds]


def compute(distance, generator) -> None:
    x, y = sequences(generator), sequences(generator)
    x.values.requires_grad_(not isinstance(distance, lw.EDR | lw.LCSS))  # these two count, and have no derivative
    found = distance(x, y)
    if found.requires_grad:
        found.sum().backward()
    with torch.no_grad():
        distance.matrix(x, y)
        with contextlib.suppress(NotImplementedError, ValueError):  # not all have one path for all channels
            distance.align(x, y).path(0)


def train(generator, folder: Path) -> None:
    data = (sequences(generator), torch.arange(6) % 3)
    frames = lw.Metric(lw.TCN(2, 4, layers=2), lw.SoftDTW(0.5))
    vectors = lw.Metric(lw.Embedder(lw.GRUEncoder(2, 4), 4), lw.Euclidean())
    for name, metric, loss in (("frames", frames, None), ("vectors", vectors, losses.AMSoftmax(3, 4))):
        checkpoints = lw.training.Checkpoints(folder / name, resume=True)
        options = {"epochs": 1, "batch_size": 3, "verbose": False, "accelerator": "cpu", "loggers": []}
        lw.fit(metric, data, loss, checkpoints=checkpoints, **options)
        lw.evaluate(lw.Metric.load(folder / name), data, data)


def search(generator, folder: Path) -> None:
    for metric in (lw.DTW(band=0.2), lw.MSM()):
        index = lw.Index(metric)
        index.add(sequences(generator, 30))
        index.save(folder / "index")
        lw.Index.load(folder / "index").search(sequences(generator, 3), k=2)
        index.remove([0, 5])
        index.search(sequences(generator, 3), k=2)
    lw.barycenter(lw.DTW(), sequences(generator, 5))


def ask(server, generator) -> None:
    """Every endpoint, and a request that is refused."""
    x, y = ([item.tolist() for item in sequences(generator, 2).to_list()] for _ in range(2))
    bodies = {
        "search": {"queries": x, "k": 3},
        "align": {"x": x, "y": y},
        "explain": {"x": x, "y": y},
        "embed": {"items": x, "metric": "learned"},
    }
    for name, body in bodies.items():
        post(server.url + name, json.dumps(body).encode())
        with contextlib.suppress(urllib.error.HTTPError):
            post(server.url + name, b'{"queries": [[1e999]]}')


def post(url: str, data: bytes) -> None:
    with urllib.request.urlopen(urllib.request.Request(url, data, {"Content-Type": "application/json"})) as answer:
        answer.read()


def files(generator, folder: Path) -> None:
    data = lw.Dataset(sequences(generator), ["a", "b", "c"] * 2)
    lw.data.write_npz(data, folder / "a.npz")
    lw.data.write_ts(data, folder / "a.ts")
    for path, read in ((folder / "a.npz", lw.read_npz), (folder / "a.ts", lw.read_ts)):
        read(path)
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        with contextlib.suppress(ValueError):  # text that is cut at the end of a line is whole, only shorter
            read(path)


def once(kinds, server, generator) -> None:
    for distance in kinds:
        compute(distance, generator)
    with tempfile.TemporaryDirectory() as name:
        train(generator, Path(name))
        search(generator, Path(name))
        files(generator, Path(name))
    ask(server, generator)


def report(states: list[State], minutes: float) -> tuple[str, bool]:
    """The closing line, and whether everything is flat."""
    fifth = len(states) // 5
    if len(states) < FEWEST:
        return f"soak: {len(states)} rounds in {minutes:.1f} minutes are too few to say anything", False
    parts = states[fifth : 2 * fifth], states[-fifth:]
    before, after = ([statistics.median(values) for values in zip(*part, strict=True)] for part in parts)
    memory = all(new <= old * (1 + GROWTH) for old, new in zip(before[:2], after[:2], strict=True))
    most = [[max(values) for values in zip(*part, strict=True)][2:] for part in parts]
    flat = memory and all(new <= old for old, new in zip(*most, strict=True))
    megabytes = [[size / 2**20 for size in part[:2]] for part in (before, after)]
    facts = [f"{what} {a:.0f} to {b:.0f} MB" for what, a, b in zip(("memory", "in use"), *megabytes, strict=True)]
    facts += [f"{what} {a} to {b}" for what, a, b in zip(("threads", "handles"), *most, strict=True)]
    verdict = "flat" if flat else "GROWING"
    return f"soak: {minutes:.1f} minutes, {len(states)} rounds: {', '.join(facts)}: {verdict}", flat


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    minutes = parser.parse_args().minutes
    warnings.simplefilter("ignore")
    generator, states, start = torch.Generator().manual_seed(0), [], time.monotonic()
    torch.manual_seed(0)
    kinds = every_distance()
    metrics = {"dtw": lw.DTW(band=0.2), "learned": lw.Metric(lw.FrameMLP(2, 4), lw.SoftDTW(0.1))}
    items = Collection((sequences(generator, 60), torch.arange(60) % 3), metrics)
    with Server(create_service(items)) as server:
        while time.monotonic() - start < 60 * minutes:
            once(kinds, server, generator)
            states.append(State.now())
            now = states[-1]
            if len(states) % 10 == 0:
                facts = f"{now.resident / 2**20:.1f} MB, in use {now.in_use / 2**20:.1f}, {now.threads} threads"
                print(f"{(time.monotonic() - start) / 60:.1f} min, round {len(states)}: {facts}", flush=True)
    text, flat = report(states, (time.monotonic() - start) / 60)
    print(text)
    raise SystemExit(not flat)


if __name__ == "__main__":
    main()
