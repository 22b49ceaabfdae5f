"""Setup of every test run."""

import contextlib
import os
import random
import signal
from pathlib import Path

# `make test` runs two processes of two threads each. OpenMP threads must sleep while they wait for one another: if they
# spin, they take the cores from the other process. OpenMP reads this when it is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import pytest
import torch

# Without a GPU the Triton kernels run in Triton's interpreter, which must be asked for before they are defined.
os.environ.setdefault("TRITON_INTERPRET", "1")

# torch.compile imports setuptools, which replaces distutils. In the middle of a run it can meet a distutils that others
# imported, whose warning is an error here: let it happen first.
with contextlib.suppress(ImportError):
    import setuptools  # noqa: F401

# Some virtual machines announce AMX but do not support it: PyTorch's bfloat16 products then end the process.
os.environ.setdefault("DNNL_MAX_CPU_ISA", "AVX512_CORE_BF16")  # read when first needed

# A shell starts background jobs with SIGINT ignored; tests of Ctrl-C need Python's own handler.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

torch.set_num_threads(2)  # the choice of kernels depends on it: use the same on every machine

# Hypothesis draws the same examples in each run, however slow the machine is. Others: --hypothesis-profile=default
with contextlib.suppress(ImportError):
    from hypothesis import HealthCheck, settings

    settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("same")


@pytest.fixture(autouse=True)
def same_numbers():
    """Every test draws the same random numbers, whatever ran before it in its process."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    torch.manual_seed(0)


@pytest.fixture
def shared_data() -> Path:
    """The folder of real data named by LIKEWISE_DATA; tests that need it are skipped without it."""
    folder = os.environ.get("LIKEWISE_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("LIKEWISE_DATA does not name a folder of real data")
    return Path(folder)
