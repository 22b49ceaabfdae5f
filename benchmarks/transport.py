"""Sinkhorn's problem for many pairs at once, against POT's batched solvers in the same run.

    python benchmarks/transport.py [--repeats 7] [--device cuda] [--no-rows]

All solve to the marginal error at which POT stops, 64 pairs of 128 x 128 costs on the CPU and 4,096 on a GPU. OPW with
its default settings is timed too, without peers.
POT's fastest solver scales in float32 without a log domain, and gives NaN where reg is small; ours may not. The plans
are checked against the reference, in float64, before anything is timed. Memory is the peak that a fresh process adds.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from measure import RESULTS, WrongResult, check, interleave, machine
from rich.console import Console
from rich.table import Table
from torch import Tensor

from likewise.ops.transport import Settings, Transported, reference, transport_cost

STEPS, CHANNELS, REG, POT_TOLERANCE = 128, 9, 1.0, 1e-5  # POT stops at its own default
BARS = {"log_sinkhorn": 10, "sinkhorn": 4}


def problem(batch: int, device: str) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, batch, STEPS, CHANNELS, generator=generator)
    return torch.cdist(x, y).square().to(device)


def pot(cost: Tensor, method: str) -> Tensor:
    """The plans (B, N, M) of POT's batched solver."""
    import ot

    options = {"method": method, "tol": POT_TOLERANCE, "max_iter": 1000, "grad": "detach"}
    return ot.solve_batch(cost, REG, **options).plan


def ours(cost: Tensor, tolerance: float) -> Transported:
    return transport_cost(cost, settings=Settings(REG, tolerance=tolerance))


def error(plan: Tensor) -> float:
    """The worst pair's marginal error, rows and columns, as Settings.tolerance measures it."""
    plan = plan.double()
    rows, columns = plan.sum(2) - 1 / plan.shape[1], plan.sum(1) - 1 / plan.shape[2]
    return max(rows.abs().sum(1).max().item(), columns.abs().sum(1).max().item())


def exact(cost: Tensor, settings: Settings) -> Tensor:
    """Plans by the reference."""
    cost = cost.double()
    n, m = (torch.full((len(cost),), STEPS, device=cost.device) for _ in range(2))
    a, b = reference.uniform(n, STEPS), reference.uniform(m, STEPS)
    return reference.solve(cost, n, m, a, b, settings)[1]


def peak_memory(name: str) -> float:
    """MiB that a solver adds to a fresh process."""
    command = [sys.executable, __file__, "--child", name]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])


def child(name: str) -> None:
    cost = problem(64, "cpu")
    pot(cost[:1], "sinkhorn")  # what is loaded once does not count
    ours(cost[:1], 1e-3)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew: imports have a higher one
    before = resident("VmRSS")
    ours(cost, 1e-5) if name == "likewise" else pot(cost, name)
    print(resident("VmHWM") - before)


def resident(name: str) -> float:
    """MiB of this process, now (VmRSS) or at most so far (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def on_the_cpu(repeats: int) -> list[dict]:
    cost = problem(64, "cpu")
    truth = exact(cost[:4], Settings(REG, tolerance=1e-12)).numpy()
    errors = {method: error(pot(cost, method)) for method in BARS}
    tolerance = min(errors.values())
    found = ours(cost, tolerance)
    errors["likewise"] = error(found.plan)
    if errors["likewise"] > 1.1 * tolerance:
        raise WrongResult(f"likewise stops at {errors['likewise']:.1e}, POT at {tolerance:.1e}")
    check("likewise", found.plan[:4], truth, 1e-3)
    for method in BARS:
        check(method, pot(cost[:4], method), truth, 1e-3)
    runs: dict[str, Callable[[], object]] = {"likewise": lambda: ours(cost, tolerance)}
    runs |= {method: lambda method=method: pot(cost, method) for method in BARS}
    times = interleave(runs, repeats)
    memory = {name: peak_memory(name) for name in runs}
    rows = []
    for method, bar in BARS.items():
        rows.append(
            {
                "case": f"64 pairs of {STEPS} x {STEPS}, reg {REG:g}, float32",
                "ms": 1e3 * times["likewise"],
                "peer": f"POT {method}",
                "peer_ms": 1e3 * times[method],
                "times_faster": times[method] / times["likewise"],
                "bar": bar,
                "marginal_error": errors["likewise"],
                "peer_marginal_error": errors[method],
                "mib": memory["likewise"],
                "peer_mib": memory[method],
                **machine(),
            }
        )
    return [*rows, opw_on_the_cpu(cost, repeats)]


def opw_on_the_cpu(cost: Tensor, repeats: int) -> dict:
    """OPW with its default settings, whose kernels are too sharp for Sinkhorn's iterations. There is no peer."""
    settings = Settings(0.1, 50.0, 1.0)
    truth = exact(cost[:4], Settings(0.1, 50.0, 1.0, tolerance=1e-12)).numpy()
    found = transport_cost(cost, settings=settings)
    check("OPW", found.plan[:4], truth, 1e-3)
    times = interleave({"likewise": lambda: transport_cost(cost, settings=settings)}, repeats)
    case = f"{len(cost)} pairs of {STEPS} x {STEPS}, float32: OPW, converged"
    return {"case": case, "ms": 1e3 * times["likewise"], "marginal_error": error(found.plan), **machine()}


def on_a_gpu(repeats: int) -> list[dict]:
    cost, rows = problem(4096, "cuda"), []
    for settings, case in (
        (Settings(REG, tolerance=1e-5), "Sinkhorn, reg 1, error 1e-5"),
        (Settings(0.1, 50.0, 1.0, n_iter=20), "OPW, 20 iterations"),
        (Settings(0.1, 50.0, 1.0), "OPW, converged"),
    ):
        few, n = cost[:4].double().cpu(), torch.full((4,), STEPS)
        a = reference.uniform(n, STEPS)
        tight = Settings(
            settings.reg, settings.inverse_difference, settings.delta, n_iter=settings.n_iter, tolerance=1e-12
        )
        truth = reference.solve(few, n, n, a, a, tight)[1]
        check(case, transport_cost(cost[:4], settings=settings).plan.cpu(), truth, 1e-3)
        times = []
        for _ in range(repeats + 1):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            found = transport_cost(cost, settings=settings)
            torch.cuda.synchronize()
            times.append(time.perf_counter() - begin)
        row = {"case": f"4096 pairs of {STEPS} x {STEPS}, float32: {case}", "ms": 1e3 * sorted(times[1:])[repeats // 2]}
        worst = {"marginal_error": found.error.max().item(), "gpu": torch.cuda.get_device_name()}
        rows.append(row | worst | {"mib": torch.cuda.max_memory_allocated() / 2**20, "torch": torch.__version__})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--no-rows", action="store_true", help="print only; write no rows")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return
    rows = on_the_cpu(options.repeats) if options.device == "cpu" else on_a_gpu(options.repeats)
    columns = [key for key in rows[0] if key not in machine()]
    table = Table(*columns, title="benchmarks/transport.py")
    for row in rows:
        shown = (row.get(key, "") for key in columns)
        table.add_row(*(f"{value:.3g}" if isinstance(value, float) else str(value) for value in shown))
    Console(width=160).print(table)
    if not options.no_rows:
        with open(RESULTS / "transport.jsonl", "a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


if __name__ == "__main__":
    main()
