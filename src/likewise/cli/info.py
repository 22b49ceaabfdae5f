"""``likewise info``."""

import json
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
import typer
from rich.console import Console
from rich.table import Table

import likewise as lw
from likewise import ops
from likewise.cli import arguments
from likewise.cli.printing import print_facts
from likewise.ops.cpu import INSTRUCTION_SET, native


def info(as_json: arguments.Json = False) -> None:
    """Versions, kernels and hardware that likewise runs with.

    GPU kernels are written in Triton, and are found only where it is installed.
    """
    facts = environment()
    if as_json:
        typer.echo(json.dumps(facts))
        return
    kernels = facts.pop("kernels")
    print_facts(facts | {"triton": facts["triton"] or "absent", "gpus": ", ".join(facts["gpus"]) or "none"})
    table = Table("op", "CPU kernel", "GPU kernel", box=None, header_style="dim")
    for op, found in kernels.items():
        table.add_row(op, *("yes" if found[device] else "no" for device in ("cpu", "gpu")))
    Console().print(table)


def environment() -> dict[str, Any]:
    """Versions, kernels and hardware, as ``likewise info --json`` prints them."""
    try:
        triton = metadata.version("triton")
    except metadata.PackageNotFoundError:
        triton = None
    # By their places: importing the GPU modules needs Triton.
    found = sorted(
        {path.parent for part in ("reference.py", "gpu*") for path in Path(ops.__path__[0]).glob(f"*/{part}")}
    )
    kernels = {
        folder.name: {
            "cpu": any(function.startswith(f"{folder.name}_") for function in dir(native)),
            "gpu": triton is not None and any(folder.glob("gpu*")),
        }
        for folder in found
    }
    return {
        "likewise": lw.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "torch": torch.__version__,
        "triton": triton,
        "simd": INSTRUCTION_SET,
        "threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "kernels": kernels,
    }
