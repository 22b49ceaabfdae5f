"""Beyond one machine, measured on this one: what Ray costs, how long 20 billion pairs take, and a k-NN graph of 20,000.

python benchmarks/scale.py overhead    Ray against the same tiles without it, two workers of one thread each
python benchmarks/scale.py pairs       200,000 series of length 64, DTW with a band of 10 %, from a sample of tiles
python benchmarks/scale.py graph       the 10 nearest of 20,000 series, whole
python benchmarks/scale.py gpu         all pairs of 20,000 series of length 256 on a GPU, against the kernel alone
"""

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from pathlib import Path

import torch

from likewise import DTW, scale
from likewise.scale.engine import Plan, peak_memory
from likewise.scale.matrix import Shared, compute_tile, values_of
from likewise.scale.operands import read_operands
from likewise.scale.tiles import Layout

ROWS = Path(__file__).parent / "results" / "scale.jsonl"


def walks(count: int, steps: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, steps, 1, generator=torch.Generator().manual_seed(seed)).cumsum(1)


def keep(case: str, **found: object) -> None:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    commit = os.environ.get("COMMIT", commit)  # where there is no repository
    row = {"case": case, **found, "date": str(date.today()), "commit": commit, "machine": platform.machine()}
    row |= {"cores": os.cpu_count(), "torch": torch.__version__}
    with ROWS.open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(json.dumps(row), flush=True)


def _alone(given: tuple[Shared, tuple[int, int]]) -> int:
    torch.set_num_threads(1)
    return compute_tile(*given, "cpu")


def overhead(repeats: int) -> None:
    """The same tiles of about a second, by two processes that share nothing, and by two workers of Ray."""
    import ray

    os.environ.setdefault("RAY_worker_niceness", "0")  # as the processes that it is compared with
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    side = 4000
    operands = read_operands("scale", DTW(band=0.1), walks(4 * side, 64))
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(2) as pool:
        layout = Layout(operands.shape, (side, side), "float32", True, operands.name, operands.inputs)
        times: dict[str, list[float]] = {"ray": [], "without": []}
        memory = 0
        for turn in range(-1, repeats):  # the first starts the workers, and does not count
            for who in ("ray", "without"):
                out = Path(folder, f"{who}{turn}")
                layout.write(out)
                shared, jobs = Shared(operands, layout, str(out)), [(t.row, t.column) for t in layout.tiles()]
                begin = time.perf_counter()
                if who == "ray":
                    done = list(Plan.read("scale", "ray", None, None).run(compute_tile, shared, jobs))
                    memory = max(memory, *(one.memory for one in done))
                else:
                    list(pool.map(_alone, [(shared, job) for job in jobs]))
                if turn >= 0:
                    times[who].append(time.perf_counter() - begin)
        ours, alone = statistics.median(times["ray"]), statistics.median(times["without"])
        keep(
            "overhead of Ray",
            tiles=layout.count,
            seconds_a_tile=round(2 * alone / layout.count, 3),
            ray=[round(s, 3) for s in times["ray"]],
            without=[round(s, 3) for s in times["without"]],
            overhead=round(ours / alone - 1, 4),
            worker_mb=memory >> 20,
        )


def pairs(seconds: float) -> None:
    """Random tiles of the whole, until the time is over; the mean time of a tile gives the whole, and its interval."""
    count, side = 200_000, 4000
    operands = read_operands("scale", DTW(band=0.1), walks(count, 64))
    layout = Layout((count, count), (side, side), "float32", True, operands.name, operands.inputs)
    places = torch.randperm(layout.count, generator=torch.Generator().manual_seed(0)).tolist()
    tiles, times = list(layout.tiles()), []
    begin = time.perf_counter()
    for place in places:
        start = time.perf_counter()
        values_of(operands, tiles[place], layout, "cpu")
        times.append(time.perf_counter() - start)
        if time.perf_counter() - begin > seconds:
            break
    mean, half = statistics.mean(times), 1.96 * statistics.stdev(times) / math.sqrt(len(times))
    keep(
        "200,000 series of length 64, DTW band 10 %",
        share=round(len(times) / layout.count, 5),
        tiles=len(times),
        threads=torch.get_num_threads(),
        pairs_per_s=round(side * side / mean),
        hours=round(mean * layout.count / 3600, 4),
        interval=[round((mean - half) * layout.count / 3600, 4), round((mean + half) * layout.count / 3600, 4)],
        worker_mb=peak_memory() >> 20,
        terabytes=round(layout.count * layout.tile_bytes / 1e12, 4),
    )


def graph() -> None:
    x = walks(20_000, 64)
    found = scale.knn_graph(DTW(band=0.1), x, k=10)
    some = torch.arange(0, 20_000, 997)
    D = DTW(band=0.1).matrix(x[some], x)
    D[torch.arange(len(some)), some] = torch.inf
    expected = D.sort(dim=1, stable=True).values[:, :10]
    right = bool(torch.equal(found.distances[some], expected))
    keep("10-NN graph of 20,000", correct=right, checked=len(some), seconds=round(found.report.seconds, 2),
         pairs=20_000**2, threads=torch.get_num_threads(), worker_mb=peak_memory() >> 20)  # fmt: skip


def gpu(repeats: int) -> None:
    """``scale.matrix`` on a GPU, written to disk, in turn with the kernel on the same tiles, which keeps nothing."""
    count, steps, dtw = 20_000, 256, DTW()
    x = walks(count, steps)
    on_gpu = x.cuda()
    times: dict[str, list[float]] = {"whole": [], "kernel": []}
    for turn in range(-1, repeats):  # the first compiles, and does not count
        with tempfile.TemporaryDirectory() as folder:
            begin = time.perf_counter()
            D = scale.matrix(dtw, x, out=Path(folder, "D.zarr"), tile=4000, devices="cuda")
            whole = time.perf_counter() - begin
            torch.testing.assert_close(torch.tensor(D[:3, :3]), dtw.matrix(x[:3]))
            begin = time.perf_counter()
            for tile in D.layout.tiles():
                rows, columns = on_gpu[tile.rows], on_gpu[tile.columns]
                dtw.matrix(rows, None if tile.row == tile.column else columns)
            torch.cuda.synchronize()
            kernel = time.perf_counter() - begin
        if turn >= 0:
            times["whole"].append(whole)
            times["kernel"].append(kernel)
    cells = count * (count + 1) / 2 * steps**2
    ours, alone = (statistics.median(times[name]) for name in ("whole", "kernel"))
    keep(
        "20,000 series of length 256, one GPU",
        gpu=torch.cuda.get_device_name(),
        whole=[round(s, 3) for s in times["whole"]],
        kernel=[round(s, 3) for s in times["kernel"]],
        cells_per_s=round(cells / ours),
        kernel_cells_per_s=round(cells / alone),
        lost=round(1 - alone / ours, 4),
        worker_mb=peak_memory() >> 20,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["overhead", "pairs", "graph", "gpu"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20.0, help="of the sample")
    options = parser.parse_args()
    if options.what == "overhead":
        overhead(options.repeats)
    elif options.what == "pairs":
        pairs(options.seconds)
    elif options.what == "graph":
        graph()
    else:
        gpu(options.repeats)
