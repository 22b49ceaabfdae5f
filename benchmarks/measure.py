"""Measurements: check correctness, time all libraries alternately, take medians, and write one row per case."""

import argparse
import json
import math
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

RESULTS = Path(__file__).parent / "results"
PEER_TOLERANCE = 1e-3  # some peers compute in float32, with less accurate gradients than we accept from ours
PEERS = ("aeon", "tslearn", "dtaidistance", "tsdistances", "pysdtw")


class WrongResult(Exception):  # noqa: N818
    """A wrong result, which is not timed."""


def check(what: str, found: Any, expected: Any, tolerance: float) -> None:
    """Refuse a result that differs by more than the tolerance, relative to the largest expected number."""
    found, expected = np.asarray(found, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    if found.shape != expected.shape:
        raise WrongResult(f"{what}: shape {found.shape} instead of {expected.shape}")
    error = np.abs(found - expected).max() / np.abs(expected).max()
    if not error <= tolerance:
        raise WrongResult(f"{what}: relative error {error:.1e}, allowed {tolerance:.0e}")


def interleave(
    runs: dict[str, Callable[[], Any]],
    repeats: int,
    turn: float = 0.05,
    fewer: dict[str, int] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Median seconds of each. They run alternately, so that a busy machine affects all of them.

    With ``time.process_time`` as the clock, of one thread, others on the machine hardly matter.

    ``fewer`` are the repeats of runs that take long: they take part in the first turns only.

    A turn lasts at least so many seconds: what is quick runs several times, like ``timeit``, and once before, to find
    its code and data in the caches as it would if it ran alone.
    """
    calls = {name: max(1, math.ceil(turn / _seconds(run, 1, clock))) for name, run in runs.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    order = list(runs)
    for done in range(repeats):
        for name in order:
            if done >= (fewer or {}).get(name, repeats):
                continue
            if calls[name] > 1:
                runs[name]()
            times[name].append(_seconds(runs[name], calls[name], clock))
        order = [*order[1:], order[0]]  # vary the order
    return {name: statistics.median(found) for name, found in times.items()}


def _seconds(run: Callable[[], Any], calls: int, clock: Callable[[], float]) -> float:
    begin = clock()
    for _ in range(calls):
        run()
    return (clock() - begin) / calls


class Benchmark:
    """Cases against peers: prints a table as it goes, and keeps the rows in results/<name>.jsonl."""

    def __init__(self, name: str, description: str, flags: dict[str, str] | None = None) -> None:
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("--repeats", type=int, default=7, help="repeats, of which the median counts")
        parser.add_argument("--only", default="", help="run the cases whose name contains this text")
        parser.add_argument("--no-rows", action="store_true", help="print only; write no rows")
        for flag, text in (flags or {}).items():
            parser.add_argument(f"--{flag}", action="store_true", help=text)
        self.options = parser.parse_args()
        from rich.console import Console  # a machine with a GPU may have none, and `machine` needs none

        self.name, self.console, self.rows = name, Console(width=120), []

    def case(
        self,
        name: str,
        ours: Callable[[], Any],
        peers: dict[str, Callable[[], Any]],
        expected: Any,
        *,
        tolerance: float,
        bar: float,
        read: Callable[[Any], Any] = np.asarray,
        part: tuple[float, Any] = (1.0, None),
        peer_repeats: int | None = None,
    ) -> None:
        """Time ours against every peer with a correct result; ``bar`` is the wanted ratio to the fastest.

        A result is right if what ``read`` makes of it, outside of the time, is as expected. Slow peers may do a part of
        the work: ``part`` is its share, by which their times are divided, and what is expected of it. Or they are run
        only ``peer_repeats`` times; the row says so.
        """
        if self.options.only not in name:
            return
        check(f"{name}: likewise", read(ours()), expected, tolerance)
        right, refused = {}, {}
        for peer, run in peers.items():
            try:
                check(peer, read(run()), expected if part[1] is None else part[1], PEER_TOLERANCE)
                right[peer] = run
            except WrongResult as error:
                refused[peer] = str(error)
        fewer = {} if peer_repeats is None else dict.fromkeys(right, peer_repeats)
        times = interleave({"likewise": ours, **right}, self.options.repeats, fewer=fewer)
        mine = times.pop("likewise")
        times = {peer: seconds / part[0] for peer, seconds in times.items()}
        if not times:
            raise WrongResult(f"{name}: no peer has a correct result: {refused}")
        best = min(times, key=lambda peer: times[peer])
        row = {
            "case": name,
            "ms": 1e3 * mine,
            "best_peer": best,
            "times_faster": times[best] / mine,
            "bar": bar,
            "peers_ms": {peer: 1e3 * seconds for peer, seconds in times.items()},
            "refused": refused,
            "peers_share": part[0],
            "peer_repeats": peer_repeats or self.options.repeats,
            **machine(),
        }
        self.rows.append(row)
        self.console.print(f"{name}: {1e3 * mine:.2f} ms, {best} {1e3 * times[best]:.1f} ms", highlight=False)

    def close(self) -> None:
        """Print the table and keep the rows."""
        from rich.table import Table

        table = Table("case", "likewise", "fastest peer", "times faster", "bar", title=f"benchmarks/{self.name}.py")
        for row in self.rows:
            peer = row["best_peer"]
            table.add_row(
                row["case"],
                f"{row['ms']:.2f} ms",
                f"{peer} {row['peers_ms'][peer]:.1f} ms",
                f"{row['times_faster']:.1f}",
                f"{row['bar']:g}",
            )
        self.console.print(table)
        if not self.options.no_rows:
            RESULTS.mkdir(exist_ok=True)
            with open(RESULTS / f"{self.name}.jsonl", "a") as file:
                file.writelines(json.dumps(row) + "\n" for row in self.rows)


def machine() -> dict[str, Any]:
    """Where and with what this was measured."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    model = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit.stdout.strip(),
        "cpu": model[0].split(": ")[1] if model else platform.processor(),
        "threads": torch.get_num_threads(),
        "versions": {name: _version(name) for name in ("torch", *PEERS)},
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
