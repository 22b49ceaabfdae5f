"""The problems of ``make sanitize``, with the kernels as they are: each can be solved, and together they call every kernel."""

from contextlib import suppress

import pytest
import torch

from likewise.ops import cpu
from tests.sanitize.problems import OPS, Problems

LAUNCHES = {"Tape"}  # of GPU kernels
SMALL = {"instruction_sets", "watch", "window_row"}  # helpers of one line


@pytest.mark.filterwarnings("ignore")
def test_every_kernel_is_called(monkeypatch):
    native, called = cpu.native, set()

    class Watched:
        def __getattr__(self, name):
            called.add(name)
            return getattr(native, name)

    monkeypatch.setattr(cpu, "native", Watched())
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # as there
    try:
        for op in OPS:
            problems = Problems(0, 40)
            for problems.done in range(1 if op == "long" else 6):
                with suppress(ValueError):  # a band that leaves no warp, for example
                    getattr(problems, op)()
    finally:
        torch.set_num_threads(before)
    kernels = {name for name in dir(native) if not name.startswith("_")}
    assert kernels - called == LAUNCHES | SMALL
