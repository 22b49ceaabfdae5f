"""What many machines would take: a discrete-event simulation of tiles and of search, from rates measured here.

    python benchmarks/simulate.py check     1, 2 and 3 workers of Ray on this machine: predicted, then measured
    python benchmarks/simulate.py tiles     all pairs of 10^6 series of length 64 on 1 to 1,000 machines
    python benchmarks/simulate.py search    queries among 10^9 vectors, divided among 10 to 1,000 machines

The simulation (simpy) has a driver that hands out one tile after another, workers that share the cores of a machine,
tiles of varying cost, slow machines, machines that fail and return, the network that brings the items, and the disk
that all machines write to. Rates are the rows in results/scale.jsonl; assumptions are the defaults of ``Cluster`` and
``Fan``. ``check`` measures its own rates: tiles alone and side by side without Ray, and Ray's time for empty jobs.
"""

import argparse
import json
import math
import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import simpy
import torch

from likewise import DTW, scale
from likewise.scale.engine import AHEAD, Plan
from likewise.scale.matrix import Shared, compute_tile
from likewise.scale.operands import read_operands
from likewise.scale.pace import SECONDS
from likewise.scale.tiles import Layout
from scale import ROWS, keep, walks

SLICE = 0.25  # seconds for which a worker's speed is taken as constant


@dataclass(frozen=True)
class Cluster:
    """The machines; seconds, and bytes per second. The defaults are assumptions."""

    machines: int = 1
    workers: int = 2  # of each machine, one thread each
    cores: int = 2  # of each machine
    shared: float = 1.0  # speed of a core while another is busy, relative to its speed alone
    dispatch: float = 1e-3  # of the driver, for each tile
    network: float = 1.25e9  # into each machine: 10 Gbit/s
    disk: float = 5e9  # of the disk that all machines share
    slow: float = 0.02  # share of machines that have half the speed
    spread: float = 0.1  # of a tile's time: standard deviation of its logarithm
    between_failures: float = 30 * 86400.0  # of one machine
    notice: float = 30.0  # until the driver knows of a failure
    repair: float = 600.0  # until the machine is back


@dataclass(frozen=True)
class Outcome:
    """Seconds until the last tile is written, the share of the cores' time that they needed, and tiles done again."""

    seconds: float
    efficiency: float
    again: int


class Machine:
    """Cores that its active workers share."""

    def __init__(self, cluster: Cluster, speed: float) -> None:
        self.cluster, self.speed, self.active, self.up = cluster, speed, 0, True

    def rate(self) -> float:
        """The speed of each active worker."""
        share = min(1.0, self.cluster.cores / self.active)
        return self.speed * share * (self.cluster.shared if self.active > 1 else 1.0)


def simulate_tiles(cluster: Cluster, costs: Sequence[float], items: float, size: float, seed: int = 0) -> Outcome:
    """All tiles, from start to end.

    costs: the seconds of each tile on one core. items: bytes that each machine copies first. size: bytes of a tile.
    """
    env, draw = simpy.Environment(), random.Random(seed)
    pending, sent, disk = simpy.Store(env), simpy.Store(env), simpy.Resource(env)
    room = simpy.Container(env, init=AHEAD * cluster.workers * cluster.machines)
    pending.items.extend(costs)
    left, again, finished = len(costs), 0, env.event()

    def driver() -> Iterator[simpy.Event]:
        while True:
            cost = yield pending.get()
            yield room.get(1)
            yield env.timeout(cluster.dispatch)
            yield sent.put(cost)

    def worker(machine: Machine) -> Iterator[simpy.Event]:
        nonlocal left
        yield env.timeout(items / cluster.network)
        while True:
            cost = yield sent.get()
            rest = cost * draw.lognormvariate(-(cluster.spread**2) / 2, cluster.spread)
            machine.active += 1
            yield env.timeout(0)  # workers that begin together see one another
            while rest > 0 and machine.up:
                rate = machine.rate()
                step = min(SLICE, rest / rate)
                yield env.timeout(step)
                rest = 0 if step == rest / rate else rest - step * rate
            machine.active -= 1
            if not machine.up:
                env.process(lose(cost))
                while not machine.up:
                    yield env.timeout(cluster.repair / 10)
                continue
            with disk.request() as turn:
                yield turn
                yield env.timeout(size / cluster.disk)
            yield room.put(1)
            left -= 1
            if not left:
                finished.succeed()

    def lose(cost: float) -> Iterator[simpy.Event]:
        nonlocal again
        again += 1
        yield env.timeout(cluster.notice)
        yield room.put(1)
        yield pending.put(cost)

    def failures(machine: Machine) -> Iterator[simpy.Event]:
        while True:
            yield env.timeout(draw.expovariate(1 / cluster.between_failures))
            machine.up = False
            yield env.timeout(cluster.repair)
            machine.up = True

    env.process(driver())
    for _ in range(cluster.machines):
        machine = Machine(cluster, 0.5 if draw.random() < cluster.slow else 1.0)
        env.process(failures(machine))
        for _ in range(cluster.workers):
            env.process(worker(machine))
    env.run(finished)
    return Outcome(env.now, sum(costs) / (env.now * cluster.machines * cluster.cores), again)


@dataclass(frozen=True)
class Fan:
    """Search: a query goes to all machines, and the last answer completes it. The defaults are assumptions."""

    machines: int
    seconds: float  # of a query on one machine
    spread: float = 0.2  # standard deviation of its logarithm
    slow: float = 0.001  # share of answers that take five times as long
    trip: float = 5e-4  # there and back
    merge: float = 1e-6  # of the driver, for each machine's answer


def simulate_search(fan: Fan, queries: int, per_second: float, seed: int = 0) -> list[float]:
    """The seconds that each of many queries takes, shortest first; they come at random times."""
    env, draw, found = simpy.Environment(), random.Random(seed), []
    machines, driver = [simpy.Resource(env) for _ in range(fan.machines)], simpy.Resource(env)

    def answer(machine: simpy.Resource) -> Iterator[simpy.Event]:
        with machine.request() as turn:
            yield turn
            time = fan.seconds * draw.lognormvariate(-(fan.spread**2) / 2, fan.spread)
            yield env.timeout(5 * time if draw.random() < fan.slow else time)

    def query() -> Iterator[simpy.Event]:
        begin = env.now
        yield env.all_of([env.process(answer(machine)) for machine in machines])
        with driver.request() as turn:
            yield turn
            yield env.timeout(fan.merge * fan.machines)
        found.append(env.now - begin + fan.trip)

    def arrivals() -> Iterator[simpy.Event]:
        for _ in range(queries):
            yield env.timeout(draw.expovariate(per_second))
            env.process(query())

    env.process(arrivals())
    env.run()
    return sorted(found)


def rates(case: str) -> dict:
    """The last row of a case in results/scale.jsonl."""
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()]
    return [row for row in rows if row["case"] == case][-1]


def tiles() -> None:
    """All pairs of a million series, by the rate of ``scale.py pairs``; tiles grow with the number of machines."""
    row = rates("200,000 series of length 64, DTW band 10 %")
    each = row["threads"] / row["pairs_per_s"]  # seconds of a core
    count, whole = 1_000_000, 1_000_000**2 / 2 * each
    for machines in (1, 10, 100, 1000):
        for seconds in (SECONDS, 5 * SECONDS):
            side = min(8192, round(math.sqrt(seconds / each)))
            number = round(whole / (side**2 * each))
            found = simulate_tiles(Cluster(machines), [side**2 * each] * number, count * 64 * 4, side**2 * 4)
            print(
                f"{machines:5} machines, {number:6,} tiles of {side**2 * each:4.1f} s: {found.seconds / 3600:6.3f} "
                f"hours, efficiency {found.efficiency:.2f}, {found.again} tiles computed again"
            )


def search(per_second: float, queries: int) -> None:
    """A billion vectors of 64 numbers, by the bytes that a machine reads in a second when it compares all of them."""
    x, q = torch.randn(500_000, 64), torch.randn(8, 64)
    times = []
    for _ in range(7):
        begin = time.perf_counter()
        (q @ x.T).topk(10)
        times.append((time.perf_counter() - begin) / len(q))
    each = statistics.median(times) / len(x)
    print(f"{1e-9 / each:.2f} billion vectors per second, exhaustive, {torch.get_num_threads()} threads, batches of 8")
    for machines in (10, 100, 1000):
        fan = Fan(machines, 1e9 / machines * each)
        rate = min(per_second, 0.5 / fan.seconds)  # machines are half busy
        found = simulate_search(fan, queries, rate)
        p50, p99 = (1e3 * found[int(share * len(found))] for share in (0.5, 0.99))
        print(f"{machines:5} machines, {rate:7.1f} queries/s: p50 {p50:8.1f} ms, p99 {p99:8.1f} ms")


def _alone(given: tuple[Shared, tuple[int, int]]) -> float:
    torch.set_num_threads(1)
    begin = time.perf_counter()
    compute_tile(*given, "cpu")
    return time.perf_counter() - begin


def _nothing(shared: object, job: int, device: str) -> int:
    return job


def check(repeats: int) -> None:
    """Predict the time of the same matrix with 1, 2 and 3 workers, then measure it; medians."""
    import ray

    os.environ.setdefault("RAY_worker_niceness", "0")  # as the processes whose times it predicts from

    x, side = walks(12_000, 64), 3000
    operands = read_operands("scale", DTW(band=0.1), x)
    layout = Layout(operands.shape, (side, side), "float32", True, operands.name, operands.inputs)
    jobs = [(tile.row, tile.column) for tile in layout.tiles()]
    with tempfile.TemporaryDirectory() as folder:
        number = iter(range(1_000_000))

        def fresh() -> tuple[Path, Shared]:
            out = Path(folder, str(next(number)))
            layout.write(out)
            return out, Shared(operands, layout, str(out))

        def tiles_by(processes: int) -> list[float]:
            with ProcessPoolExecutor(processes) as pool:
                _, shared = fresh()
                return list(pool.map(_alone, [(shared, job) for job in jobs]))

        tiles_by(2)
        alone = [statistics.median(times) for times in zip(*(tiles_by(1) for _ in range(3)), strict=True)]
        beside = [statistics.median(times) for times in zip(*(tiles_by(2) for _ in range(3)), strict=True)]
        shared_speed = sum(alone) / sum(beside)
        for workers in (1, 2, 3):
            ray.init(address="local", num_cpus=workers, include_dashboard=False, log_to_driver=False)
            plan = Plan.read("scale", "ray", None, None)
            list(plan.run(_nothing, None, range(20)))  # the workers start
            begin = time.perf_counter()
            list(plan.run(_nothing, None, range(200)))
            dispatch = (time.perf_counter() - begin) / 200
            cluster = Cluster(
                workers=workers, shared=shared_speed, dispatch=dispatch, slow=0, spread=0.02, between_failures=1e12
            )
            predicted = simulate_tiles(cluster, alone, 0, 0).seconds
            measured = []
            for _ in range(repeats):
                out, shared = fresh()
                begin = time.perf_counter()
                list(plan.run(compute_tile, shared, jobs))
                measured.append(time.perf_counter() - begin)
                assert (scale.TiledMatrix(out)[:3, :3] == DTW(band=0.1).matrix(x[:3]).numpy()).all()
            ray.shutdown()
            ours = statistics.median(measured)
            keep(
                "simulated workers",
                workers=workers,
                predicted=round(predicted, 3),
                measured=[round(s, 3) for s in measured],
                error=round(predicted / ours - 1, 4),
                tile_seconds=round(statistics.mean(alone), 3),
                shared_speed=round(shared_speed, 3),
                dispatch_ms=round(1e3 * dispatch, 3),
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["check", "tiles", "search"])
    parser.add_argument("--repeats", type=int, default=5, help="measurements of check")
    parser.add_argument("--queries", type=int, default=2000, help="of search")
    parser.add_argument("--per-second", type=float, default=100.0, help="queries of search, at most")
    options = parser.parse_args()
    if options.what == "check":
        check(options.repeats)
    elif options.what == "tiles":
        tiles()
    else:
        search(options.per_second, options.queries)
