import os
import threading
import time

import numpy as np
import pytest
import torch

from likewise import DTW, scale
from likewise.scale import engine
from likewise.scale.engine import Plan
from likewise.scale.operands import Operand
from tests.scale.conftest import MACHINE, kill_one, slow_distance, walks


def by_value(function):
    """Let Ray carry a function of this file to workers that cannot import it."""
    function.__module__ = "__main__"
    return function


def test_results_in_this_process_in_threads_and_on_ray(cluster):
    @by_value
    def power(shared, job, device):
        return shared**job

    for plan in (
        Plan.read("op", None, None, None),
        Plan.read("op", None, ["cpu", "cpu"], None),
        Plan.read("op", "ray", None, None),
    ):
        found = {done.job: done.result for done in plan.run(power, 3, range(20))}
        assert found == {n: 3**n for n in range(20)}


@pytest.mark.parametrize("plan", [(None, None), (None, ["cpu", "cpu"]), ("ray", None)])
def test_an_exception_ends_everything(cluster, plan):
    @by_value
    def fail(shared, job, device):
        raise ValueError(f"job {job} is bad")

    with pytest.raises(ValueError, match="is bad"):
        list(Plan.read("op", *plan, None).run(fail, None, range(50)))


def test_a_job_that_kills_its_workers_ends_with_an_error(cluster, monkeypatch):
    monkeypatch.setattr(engine, "LOSSES", 2)

    @by_value
    def die(shared, job, device):
        os._exit(1)

    with pytest.raises(RuntimeError, match="op: 7 lost its worker 2 times"):
        list(Plan.read("op", "ray", None, None).run(die, None, [7]))


def test_items_travel_once_to_each_machine(cluster, tmp_path):
    """24 jobs on several machines: each machine maps one copy of the array, and no process has its own."""
    import ray
    from ray._private.internal_api import memory_summary

    @by_value
    def look(shared, job, device):
        values = shared.values
        machine = ray.get_runtime_context().get_node_id()
        (tmp_path / machine).touch()
        end = time.monotonic() + 300
        while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < end:
            time.sleep(0.02)  # some are slow to start, and the others must leave them work
        return machine, values.flags.owndata, values.flags.writeable, float(values[job])

    pickled = []

    class Counted(Operand):
        def __reduce__(self):
            pickled.append(1)
            return Operand, (self.values, self.lengths)

    shared = Counted(np.arange(1 << 18, dtype=np.float64), None)  # 2 MB
    copies = set()
    for number, done in enumerate(Plan.read("op", "ray", None, None).run(look, shared, range(24))):
        machine, owns, writable, value = done.result
        copies.add(machine)
        assert not owns
        assert not writable
        assert value == done.job
        if number == 23:
            stored = memory_summary(address=cluster.address, stats_only=True)
    assert len(pickled) == 1
    assert len(copies) >= 2
    used = int(stored.partition("Plasma memory usage ")[2].split()[0])
    machines = sum(node["Alive"] for node in ray.nodes())  # one may have its copy, but be too late for a job
    assert 2 * len(copies) <= used <= 2 * machines, stored


@pytest.mark.parametrize("cores", [1, 2])
def test_a_worker_uses_its_share_of_the_cores(cluster, cores):
    @by_value
    def count(shared, job, device):
        from likewise.ops import cpu  # noqa: F401, likewise's own threads are as many as PyTorch's

        return torch.get_num_threads(), os.environ.get("OMP_NUM_THREADS")

    found = [done.result for done in Plan.read("op", "ray", None, cores).run(count, None, range(3))]
    assert found == [(cores, str(cores))] * 3


def test_workers_and_a_machine_are_lost(cluster, tmp_path):
    x, pids, go = walks(40), tmp_path / "pids", tmp_path / "go"
    pids.mkdir()
    killed = []

    def disturb():
        """Every worker waits in the middle of a tile meanwhile."""
        deadline = time.monotonic() + 250
        while len(killed) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
            if kill_one(pids):
                killed.append("worker")
        cluster.remove_node(cluster.worker_nodes.copy().pop(), allow_graceful=False)
        go.touch()

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        D = scale.matrix(slow_distance(pids, until=go), x, out=tmp_path / "D.zarr", tile=5, engine="ray")
    finally:
        thread.join()
        cluster.add_node(**MACHINE)
    assert len(killed) == 2
    assert D.report.losses >= 2
    assert D.report.computed <= D.report.jobs == 36
    undisturbed = scale.matrix(DTW(), x, out=tmp_path / "undisturbed", tile=5)
    assert np.array_equal(D[:], undisturbed[:])
    files = [path.name for path in (tmp_path / "D.zarr" / "c").rglob("*") if path.is_file()]
    assert len(files) == 36
    assert not any(name.endswith(".part") for name in files)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("spark", None, None), "engine must be None"),
        ((None, "tpu3", None), "not a device of PyTorch"),
        ((None, [], None), "expected devices"),
        ((None, 3, None), "expected devices"),
        ((None, None, 2), "cores is for workers on Ray"),
        (("ray", ["cpu", "cpu"], None), 'devices must be "cpu" or "cuda"'),
        (("ray", None, 0), "cores"),
    ],
)
def test_bad_plans_are_refused(arguments, problem):
    with pytest.raises((ValueError, TypeError), match=problem):
        Plan.read("op", *arguments)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="PyTorch finds no GPU"):
        Plan.read("op", None, "cuda", None)
