"""A Ray cluster of three simulated machines, for all tests of this folder."""

import os
import signal
import time
from pathlib import Path

import pytest
import torch

from likewise.distances import DTW, Distance

MACHINE = {"num_cpus": 1, "object_store_memory": 100 << 20}


def start_cluster():
    """A head, which holds the items, and two machines that may be lost; the caller is connected to it."""
    os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112, 15 by default: on a busy machine, workers would starve
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.pop("OMP_NUM_THREADS", None)  # Ray's workers would keep it, rather than take their share of the cores
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install likewise[scale]")
    from ray.cluster_utils import Cluster

    threads = os.environ.pop("OMP_NUM_THREADS", None)  # which Ray would leave to its workers
    try:
        found = Cluster(initialize_head=True, head_node_args={**MACHINE, "num_cpus": 2, "include_dashboard": False})
        for _ in range(2):
            found.add_node(**MACHINE)
        ray.init(address=found.address, log_to_driver=False)
    finally:
        if threads is not None:
            os.environ["OMP_NUM_THREADS"] = threads
    return found


@pytest.fixture(scope="session")
def cluster():
    import ray

    found = start_cluster()
    yield found
    ray.shutdown()
    found.shutdown()


def slow_distance(folder: Path, seconds: float = 0.1, until: Path | None = None) -> Distance:
    """DTW that takes its time, or waits for a file, and leaves the number of the process that computes it in a folder.

    The class is made here, so that it travels to the workers by value: they cannot import tests.
    """
    driver = os.getpid()

    class Slow(Distance):
        symmetric = True

        def all_pairs(self, x, y, x_lengths, y_lengths):
            (folder / f"{os.getpid()}").touch()
            if until is None:
                time.sleep(seconds)
            elif os.getpid() != driver:  # which tries it first
                while not until.exists():
                    time.sleep(0.02)
            return DTW().all_pairs(x, y, x_lengths, y_lengths)

    return Slow()


def kill_one(folder: Path) -> bool:
    """Kill one of the processes that ``slow_distance`` has named, by SIGKILL; False if there is none yet."""
    for path in sorted(folder.iterdir(), key=lambda path: -path.stat().st_mtime):
        path.unlink()
        title = Path(f"/proc/{path.name}/cmdline")
        if title.exists() and title.read_bytes().startswith(b"ray::"):
            os.kill(int(path.name), signal.SIGKILL)
            return True
    return False


def walks(count: int, steps: int = 20, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, steps, 1, generator=torch.Generator().manual_seed(seed)).cumsum(1)
