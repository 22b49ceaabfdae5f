"""The engine: run one function over many jobs, in this process or on Ray, until all are done.

A job must be idempotent: one whose worker or machine is lost runs again. What all jobs share (the items and the
distance) is sent once to each machine, through Ray's object store; a job itself is a few numbers.
"""

import os
import queue
import resource
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch

from likewise import _check

LOSSES = 5  # times that the worker of one job may be lost before the computation ends with an error
AHEAD = 2  # jobs given to Ray for each worker: one runs, and one waits
A_GPU = 3  # jobs that share a GPU: one computes while two are written, which may take as long as computing
Function = Callable[[Any, Any, str], Any]  # of the shared data, a job, and a device


@dataclass(frozen=True)
class Done:
    """A finished job: what its function returned, on which worker, and how many workers have been lost so far."""

    job: Any
    result: Any
    worker: str
    memory: int  # the peak memory of its process, in bytes
    losses: int


@dataclass(frozen=True)
class Plan:
    """Where jobs run.

    engine: None for this process, "ray" for Ray. devices: "cpu" or "cuda", or a list of devices of this process.
    cores: CPU cores of a worker on Ray.

    Example:
        >>> Plan.read("matrix", None, None, None).slots
        1
    """

    op: str
    engine: str | None
    devices: tuple[str, ...]
    cores: int

    @classmethod
    def read(cls, op: str, engine: object, devices: object, cores: object) -> "Plan":
        """Check the arguments engine, devices and cores of a function."""
        if engine not in (None, "ray"):
            _check.refuse(op, f'engine must be None, for this process, or "ray", got {engine!r}')
        given = ["cpu"] if devices is None else [devices] if isinstance(devices, (str, torch.device)) else devices
        if not isinstance(given, Sequence) or not given:
            raise TypeError(f'{op}: expected devices to be "cpu", "cuda" or a list of them, got {devices!r}')
        names = []
        for device in given:
            try:
                kind = torch.device(device)
            except (RuntimeError, TypeError) as error:
                raise ValueError(f"{op}: devices: {device!r} is not a device of PyTorch") from error
            if engine is None and kind.type == "cuda" and not torch.cuda.is_available():
                _check.refuse(op, f"devices={devices!r}, but PyTorch finds no GPU here")
            names.append(str(kind))
        if engine == "ray" and names not in (["cpu"], ["cuda"]):
            _check.refuse(op, f'on Ray, devices must be "cpu" or "cuda", and Ray finds them; got {devices!r}')
        if engine is None and names == ["cuda"]:
            names = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
        plan = cls(op, engine, tuple(names), 1 if cores is None else _check.whole(op, "cores", cores))
        if cores is not None and engine is None:
            _check.refuse(op, "cores is for workers on Ray; in this process, use torch.set_num_threads")
        return plan

    @property
    def on_gpu(self) -> bool:
        """Whether jobs run on GPUs."""
        return self.devices[0].startswith("cuda")

    @property
    def threads(self) -> int:
        """The threads of a worker."""
        return torch.get_num_threads() if self.engine is None else self.cores

    @property
    def slots(self) -> int:
        """The number of jobs that run at once."""
        if self.engine is None:
            return len(self.devices) * (A_GPU if self.on_gpu else 1)
        ray = import_ray(self.op)
        found = ray.cluster_resources()
        return max(1, int(found.get("GPU", 0) * A_GPU if self.on_gpu else found.get("CPU", 1) // self.cores))

    def run(self, function: Function, shared: Any, jobs: Iterable[Any]) -> Iterator[Done]:
        """Run ``function(shared, job, device)`` for all jobs, and yield them as they finish, in any order.

        An exception of the function ends everything. A lost worker does not, unless it happens ``LOSSES`` times to one
        job.
        """
        if self.engine == "ray":
            return _on_ray(self, function, shared, jobs)
        return _in_threads(self, function, shared, jobs) if self.slots > 1 else _in_turn(self, function, shared, jobs)

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Connect to Ray if that is where jobs run: to the cluster that the caller has joined, or to a local one."""
        ray = import_ray(self.op) if self.engine == "ray" else None
        if ray is None or ray.is_initialized():
            yield
            return
        os.environ.setdefault("RAY_worker_niceness", "0")  # on one's own machine, workers are as important as the rest
        # "local": without an address, Ray joins a cluster of somebody else that it finds on this machine.
        ray.init(address="local", include_dashboard=False, log_to_driver=False)
        try:
            yield
        finally:
            ray.shutdown()


def import_ray(op: str) -> Any:
    """The module ray, or an error that says how to install it."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # the coming default, which Ray warns about
    try:
        import ray
    except ImportError as error:
        raise ImportError(f'{op}: engine="ray" needs Ray: pip install "likewise[scale]"') from error
    return ray


def peak_memory() -> int:
    """The peak memory of this process, in bytes."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most << 10


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Use this many threads, in PyTorch and in likewise's own kernels, inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _in_turn(plan: Plan, function: Function, shared: Any, jobs: Iterable[Any]) -> Iterator[Done]:
    worker = f"process {os.getpid()}"
    for job in jobs:
        yield Done(job, function(shared, job, plan.devices[0]), worker, peak_memory(), 0)


def _in_threads(plan: Plan, function: Function, shared: Any, jobs: Iterable[Any]) -> Iterator[Done]:
    """One thread for each slot: GPUs work while this process writes."""
    free: queue.SimpleQueue[str] = queue.SimpleQueue()
    for device in plan.devices * (plan.slots // len(plan.devices)):
        free.put(device)
    stop = threading.Event()

    def work(job: Any) -> Done | None:
        if stop.is_set():
            return None
        device = free.get()
        try:
            return Done(job, function(shared, job, device), device, peak_memory(), 0)
        finally:
            free.put(device)

    waiting = iter(jobs)
    with ThreadPoolExecutor(plan.slots) as pool:
        try:
            running = {pool.submit(work, job) for job in islice(waiting, AHEAD * plan.slots)}
            while running:
                finished, running = wait(running, return_when=FIRST_COMPLETED)
                for job in islice(waiting, len(finished)):
                    running.add(pool.submit(work, job))
                for future in finished:
                    done = future.result()
                    assert done is not None
                    yield done
        finally:
            stop.set()


def _task(function: Function, shared: Any, job: Any, device: str, cores: int) -> tuple[Any, str, int]:
    """A job on a worker of Ray, which uses as many threads as Ray counts cores for it."""
    torch.set_num_threads(cores)
    ray = import_ray("scale")
    context = ray.get_runtime_context()
    worker = f"{context.get_node_id()[:8]}, process {os.getpid()}"
    return function(shared, job, device), worker, peak_memory()


def _on_ray(plan: Plan, function: Function, shared: Any, jobs: Iterable[Any]) -> Iterator[Done]:
    ray = import_ray(plan.op)
    from ray.exceptions import GetTimeoutError, RayError, RayTaskError

    held = ray.put(shared)  # once; every machine copies it when its first job asks for it
    gpus = 1 / A_GPU if plan.on_gpu else 0
    task = ray.remote(num_cpus=plan.cores, num_gpus=gpus, max_retries=0)(_task)
    waiting, again, running = iter(jobs), deque[Any](), {}
    lost: dict[Any, int] = {}
    device, losses = ("cuda:0" if plan.on_gpu else "cpu"), 0
    try:
        while True:
            room = AHEAD * plan.slots - len(running)
            while room > 0 and (job := again.popleft() if again else next(waiting, None)) is not None:
                running[task.remote(function, held, job, device, plan.cores)] = job
                room -= 1
            if not running:
                return
            finished, _ = ray.wait(list(running), num_returns=1)
            for reference in finished:
                job = running.pop(reference)
                try:
                    result, worker, memory = ray.get(reference)
                except (RayTaskError, GetTimeoutError) as error:
                    raise getattr(error, "cause", None) or error from None
                except RayError as error:  # a worker or a machine is gone
                    losses, lost[job] = losses + 1, lost.get(job, 0) + 1
                    if lost[job] >= LOSSES:
                        why = " ".join(str(error).split())[:300]
                        text = f"{plan.op}: {job} lost its worker {LOSSES} times, perhaps for lack of memory: {why}"
                        raise RuntimeError(text) from error
                    again.append(job)
                else:
                    yield Done(job, result, worker, memory, losses)
    finally:
        for reference in running:
            ray.cancel(reference)
