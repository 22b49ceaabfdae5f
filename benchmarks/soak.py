"""An hour of mixed calls in one process: memory, threads and file handles stay flat.

Every round computes every distance of likewise with gradients, trains, saves and loads a metric, averages sequences,
builds, saves, loads and searches an index, sends requests to a running service, and reads files, some of them damaged.

After a warm-up, the first fifth of the rounds, a line is fitted to each of three series: resident memory, what malloc
has handed out ("in use"), and the number of Python's objects, whose memory malloc does not see. Memory is flat if the
upper end of the slope's 95 % interval is below 5 kB a round, and objects if it is below 50. As a control, a leak of
10 kB (100 objects) a round is added to the series that were measured: the rule must then say that they grow.

The libraries below PyTorch's convolutions cache what they prepare for each shape: ideep 1,024 shapes
(LRU_CACHE_CAPACITY), oneDNN's compiled code as many (ONEDNN_PRIMITIVE_CACHE_CAPACITY). With lengths that vary, these
caches take hundreds of rounds to fill, some 30 MB, and look like a leak meanwhile: here each holds 64.

Run: python benchmarks/soak.py [--minutes 60]
"""

import argparse
import contextlib
import ctypes
import datetime
import gc
import inspect
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import warnings
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("LRU_CACHE_CAPACITY", "64")  # read once, when torch is imported
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")

import numpy as np
import torch
from scipy import stats

import likewise as lw
from likewise import distances, losses
from likewise.web import Collection, Server, create_service

RESULTS = Path(__file__).parent / "results" / "soak.jsonl"
WARM_UP = 0.2  # of the rounds
FEWEST = 60  # rounds from which anything can be said
BLOCKS = 12  # whose means are fitted: rounds beside each other are not independent
MOST = {"memory": 5e3, "in use": 5e3, "objects": 50.0}  # growth in a round: bytes, bytes, objects
CONTROL = {name: 2 * most for name, most in MOST.items()}  # a leak that must be found


class State(NamedTuple):
    """Bytes in memory, bytes that malloc has handed out, Python's objects, threads, and open files of this process."""

    resident: int
    in_use: int
    objects: int
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
        objects = sys.getallocatedblocks()
        return cls(pages * resource.getpagesize(), in_use(), objects, threads, handles)


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
    needed = {"channels": 2, "distance": distances.ADTW()}
    wanted = [[needed[name] for name in inspect.signature(kind).parameters if name in needed] for kind in kinds]
    return [kind(*arguments) for kind, arguments in zip(kinds, wanted, strict=True)]


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


class Slope(NamedTuple):
    """Growth in a round, and the upper end of its 95 % interval."""

    growth: float
    most: float

    @classmethod
    def of(cls, series: np.ndarray) -> "Slope":
        blocks = np.array_split(np.arange(len(series)), BLOCKS)
        fit = stats.linregress([block.mean() for block in blocks], [series[block].mean() for block in blocks])
        return cls(fit.slope, fit.slope + stats.t.ppf(0.975, BLOCKS - 2) * fit.stderr)


def report(states: list[State], minutes: float) -> tuple[str, dict]:
    """The closing line, and what it says as a row: each slope, and whether everything is flat."""
    if len(states) < FEWEST:
        return f"soak: {len(states)} rounds in {minutes:.1f} minutes are too few to say anything", {"flat": False}
    after = np.array(states[int(WARM_UP * len(states)) :], dtype=float)
    series = dict(zip(MOST, after.T, strict=False))
    slopes = {name: Slope.of(values) for name, values in series.items()}
    leaking = {name: Slope.of(v + CONTROL[name] * np.arange(len(v))) for name, v in series.items()}
    awake = all(slope.most >= MOST[name] for name, slope in leaking.items())
    early, late = (part[:, -2:].max(axis=0) for part in np.array_split(after, 2))
    flat = bool(all(slope.most < MOST[name] for name, slope in slopes.items()) and (late <= early).all() and awake)
    facts = [f"{n} {s.growth / 1e3:+.2f} kB a round (at most {s.most / 1e3:.2f})" for n, s in slopes.items()][:2]
    facts.append(f"objects {slopes['objects'].growth:+.1f} (at most {slopes['objects'].most:.1f})")
    facts += [f"{what} {a:.0f} to {b:.0f}" for what, a, b in zip(("threads", "handles"), early, late, strict=True)]
    facts.append(f"a leak of {CONTROL['memory'] / 1e3:.0f} kB a round would be {'seen' if awake else 'MISSED'}")
    size = f"{np.median(series['memory']) / 2**20:.0f} MB, in use {np.median(series['in use']) / 2**20:.0f} MB"
    verdict = "flat" if flat else "GROWING"
    text = f"soak: {minutes:.1f} minutes, {len(states)} rounds, {size}: {', '.join(facts)}: {verdict}"
    row = {"minutes": round(minutes, 1), "rounds": len(states), "flat": flat, "control_seen": awake}
    row |= {f"{name}_growth": [round(value, 2) for value in slope] for name, slope in slopes.items()}
    row |= {what: [int(a), int(b)] for what, a, b in zip(("threads", "handles"), early, late, strict=True)}
    return text, row


def keep(row: dict, states: list[State]) -> None:
    """Add a row, with every tenth state."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    row = row | {"date": datetime.date.today().isoformat(), "commit": commit, "torch": torch.__version__}
    row |= {"states": [list(state) for state in states[::10]]}
    with RESULTS.open("a") as file:
        file.write(json.dumps(row) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--leak", type=float, default=0, help="lose so many bytes a round, to see that it is found")
    parser.add_argument("--no-rows", action="store_true", help="print only; keep no row")
    options = parser.parse_args()
    minutes, lost = options.minutes, []
    warnings.simplefilter("ignore")
    generator, states, start = torch.Generator().manual_seed(0), [], time.monotonic()
    torch.manual_seed(0)
    kinds = every_distance()
    metrics = {"dtw": lw.DTW(band=0.2), "learned": lw.Metric(lw.FrameMLP(2, 4), lw.SoftDTW(0.1))}
    items = Collection((sequences(generator, 60), torch.arange(60) % 3), metrics)
    with Server(create_service(items)) as server:
        while time.monotonic() - start < 60 * minutes:
            once(kinds, server, generator)
            lost.append(bytearray(int(options.leak)))
            states.append(State.now())
            now = states[-1]
            if len(states) % 10 == 0:
                facts = f"{now.resident / 2**20:.1f} MB, in use {now.in_use / 2**20:.1f}, {now.threads} threads"
                print(f"{(time.monotonic() - start) / 60:.1f} min, round {len(states)}: {facts}", flush=True)
    text, row = report(states, (time.monotonic() - start) / 60)
    print(text)
    if len(states) >= FEWEST and not options.leak and not options.no_rows:
        keep(row, states)
    raise SystemExit(not row["flat"])


if __name__ == "__main__":
    main()
