"""``python -m tests.scale.drill``: workers killed at random times and a machine lost, 20 times; then the driver killed.

Each time a matrix is computed on three simulated machines while one worker is killed by SIGKILL or one machine is
removed. The matrix must equal the undisturbed one in every bit, with one file for each tile. The last line counts.
"""

import argparse
import random
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from likewise import DTW, scale
from tests.scale.conftest import MACHINE, kill_one, slow_distance, start_cluster, walks


def disturbed(cluster, folder: Path, number: int, expected: np.ndarray, draw: random.Random) -> tuple[bool, int, str]:
    """Compute the matrix once, with a fault on the way."""
    pids = folder / f"pids-{number}"
    pids.mkdir()
    kind = "machine" if number % 4 == 3 else "worker"
    done = threading.Event()
    hit = []

    def disturb() -> None:
        while not any(pids.iterdir()) and not done.is_set():
            time.sleep(0.02)
        time.sleep(draw.uniform(0, 0.5))
        if kind == "machine":
            cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
            hit.append(kind)
            return
        while not hit and not done.is_set():
            if kill_one(pids):
                hit.append(kind)
            time.sleep(0.02)

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        D = scale.matrix(slow_distance(pids), walks(40), out=folder / f"D-{number}", tile=5, engine="ray")
    finally:
        done.set()
        thread.join()
    if kind == "machine":
        cluster.add_node(**MACHINE)
    files = [path for path in (folder / f"D-{number}" / "c").rglob("*") if path.is_file()]
    right = np.array_equal(D[:], expected) and len(files) == D.layout.count and bool(hit)
    return right, D.report.losses, kind


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    times = parser.parse_args().times
    draw = random.Random(0)
    cluster = start_cluster()
    right = losses = 0
    with tempfile.TemporaryDirectory() as folder:
        expected = scale.matrix(DTW(), walks(40), out=Path(folder, "undisturbed"), tile=5)[:]
        for number in range(times):
            good, lost, kind = disturbed(cluster, Path(folder), number, expected, draw)
            right, losses = right + good, losses + lost
            print(
                f"{number + 1}: a {kind} lost, {lost} tiles computed again, {'equal' if good else 'WRONG'}", flush=True
            )
    print(
        f"{right} of {times}: every bit equal, one file for each tile; {losses} tiles lost their worker and ran again",
        flush=True,
    )
    import ray

    ray.shutdown()  # first: a cluster does not remove the machine that its driver is connected to
    cluster.shutdown()


if __name__ == "__main__":
    main()
