"""Commands with --device: the same answers from a GPU; without one, a line that says so."""

import pytest
import torch

from tests.cli.commands import answer, run
from tests.cli.test_contract import ON_DEVICES, SERVERS, folder, one_line, small_demo, words

__all__ = ["folder", "small_demo"]  # fixtures


@pytest.mark.parametrize("name", sorted(ON_DEVICES))
def test_a_gpu_is_used_or_said_to_be_missing(name, folder, small_demo):
    if not torch.cuda.is_available():
        assert "--device cuda: PyTorch finds no GPU here" in one_line(run(*words(name), "--device", "cuda"))
        return
    if name in SERVERS:  # they run until they are stopped; tests/search/test_devices.py has what they compute
        return
    on_gpu = answer(*words(name), "--device", "cuda")
    on_cpu = answer(*words(name, "other"), "--device", "cpu")
    assert set(on_gpu) == set(on_cpu)
    for key in {"value", "mean", "costs", "inertia", "accuracy", "map"} & set(on_cpu):
        assert on_gpu[key] == pytest.approx(on_cpu[key], rel=1e-4)
