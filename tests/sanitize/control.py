"""A deliberate error that a sanitiser must report: ``python -m tests.sanitize.control address|thread LIBRARY``."""

import sys
import threading
from pathlib import Path

from tests.sanitize.problems import import_with


def read_too_far() -> None:
    """Look at five sequences where there are four."""
    import numpy as np

    native = sys.modules["likewise._native"]
    values, lengths = np.zeros((4, 8, 2)), np.full(5, 8)
    native.first_nonfinite(native.instruction_sets()[0], values.ctypes.data, lengths.ctypes.data, 5, 8, 2, True)


def write_twice() -> None:
    """Let two threads write the same distances, for seconds: on a busy machine, too, both are at it at some time."""
    import torch

    from likewise.ops import cpu
    from likewise.ops.rules import Rules

    x = torch.randn(64, 1000, 1)
    problem = cpu.problem("control", x, x.flip(0), None, None, Rules(), all_pairs=False)
    values, order, ready = torch.empty(len(x)), torch.arange(len(x)), threading.Barrier(2)

    def work() -> None:
        ready.wait()
        cpu.native.dtw_values(cpu.INSTRUCTION_SET, problem.native, order.data_ptr(), values.data_ptr(), 0, len(x))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    import_with(Path(sys.argv[2]))
    {"address": read_too_far, "thread": write_twice}[sys.argv[1]]()
