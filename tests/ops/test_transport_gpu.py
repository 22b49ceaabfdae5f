"""The Triton kernel against the CPU's. Without a GPU it runs in Triton's interpreter."""

import os

import pytest
import torch

from likewise.ops.transport import Settings, transport_cost, transport_matrix, transport_plan
from likewise.testing import TOLERANCE, assert_close

pytest.importorskip("triton")
from likewise.ops.transport import gpu

DEVICE = "cuda" if torch.cuda.is_available() and os.environ["TRITON_INTERPRET"] == "0" else "cpu"
OPW = {"reg": 0.1, "inverse_difference": 50.0, "delta": 1.0}


def frames(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def there(*given):
    return tuple(each.to(DEVICE) if isinstance(each, torch.Tensor) else each for each in given)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("problem", [{"reg": 0.5}, OPW, {"reg": 1.0, "time_weight": 1.0}, OPW | {"n_iter": 4}], ids=str)
def test_it_is_the_cpus(problem, dtype):
    x, y = frames(3, 5, 2).to(dtype), frames(3, 4, 2, seed=1).to(dtype)
    lengths = torch.tensor([5, 1, 3]), torch.tensor([3, 4, 1])
    settings = Settings(**problem)
    expected = transport_plan(x, y, *lengths, settings=settings)
    x[1, 1:], y[0, 3:] = torch.nan, torch.inf  # padding
    found = gpu.plan(*there(x, y, *lengths), None, None, False, *settings.plain(dtype))
    for name, a, b in zip(("value", "plan"), found, (expected.value, expected.plan), strict=False):
        assert_close(a, b, 10 * TOLERANCE[dtype].value, name, scale=1.0 if name == "value" else 0.0)
    assert (found[1][1, 1:] == 0).all()


@pytest.mark.parametrize("problem", [OPW, {"reg": 0.01}, {"reg": 3e-3, "time_weight": 1.0}], ids=str)
def test_sharp_kernels_are_solved_in_registers(problem, monkeypatch):
    monkeypatch.setattr(gpu, "_finish", None)
    x, y = frames(3, 33, 3).float(), frames(3, 20, 3, seed=1).float()
    lengths = torch.tensor([33, 17, 9]), torch.tensor([9, 20, 17])
    settings = Settings(**problem)
    found = gpu.plan(*there(x, y, *lengths), None, None, False, *settings.plain(torch.float32))
    expected = transport_plan(x.double(), y.double(), *lengths, settings=settings)
    assert_close(found[0], expected.value, TOLERANCE[torch.float32].value, "value", scale=1.0)
    assert_close(found[1], expected.plan, 100 * TOLERANCE[torch.float32].value, "plan")
    assert found[2].max() <= 1e-6


def test_newton_steps_that_do_not_suffice(monkeypatch):
    monkeypatch.setattr(gpu, "NEWTON_STEPS", 3)
    x, y = frames(3, 20, 2).float(), frames(3, 20, 2, seed=1).float()
    settings = Settings(**OPW)
    found = gpu.plan(*there(x, y, None, None), None, None, False, *settings.plain(torch.float32))
    expected = transport_plan(x.double(), y.double(), settings=settings)
    assert_close(found[1], expected.plan, 100 * TOLERANCE[torch.float32].value, "plan")


def test_given_costs_and_masses():
    cost = frames(2, 4, 3).square()
    x_mass, y_mass = torch.full((2, 4), 0.75), torch.tensor([[1.0, 0.5, 1.5], [2.0, 0.5, 0.5]])
    expected = transport_cost(cost, settings=Settings(0.3), x_mass=x_mass, y_mass=y_mass)
    numbers = Settings(0.3).plain(torch.float64)
    values, plans, errors = gpu.plan(*there(cost, None, None, None, x_mass, y_mass), False, *numbers)
    assert_close(values, expected.value, 1e-10, "value")
    assert_close(plans, expected.plan, 1e-10, "plan")
    assert errors.max() < 1e-11


def test_pairs_too_large_for_registers(monkeypatch):
    monkeypatch.setattr(gpu, "MOST_CELLS", 8)
    monkeypatch.setattr(gpu, "NEWTON_CELLS", 40)  # several chunks
    monkeypatch.setattr(gpu, "CELLS_AT_ONCE", 80)
    x, y = frames(5, 5, 2), frames(5, 4, 2, seed=1)
    settings = Settings(**OPW)
    values = gpu.value(*there(x, y, None, None), False, *settings.plain(torch.float64))
    assert_close(values, transport_plan(x, y, settings=settings).value, 1e-10, "value")


@pytest.mark.parametrize("symmetric", [False, True])
def test_all_pairs(symmetric, monkeypatch):
    monkeypatch.setattr(gpu, "CELLS_AT_ONCE", 40)
    x = frames(3, 4, 2)
    settings = Settings(5.0)
    found = gpu.matrix(*there(x, x, None, None), symmetric, False, *settings.plain(torch.float64))
    assert_close(found, transport_matrix(x, settings=settings), 1e-10, "matrix")


def test_refusals():
    cost = torch.ones(1, 2, 2)
    cost[0, 1, 0] = torch.nan
    with pytest.raises(ValueError, match=r"cost\[0\] holds nan at \(1, 0\)"):
        gpu.plan(*there(cost, None, None, None, None, None), False, *Settings(1.0).plain(torch.float32))
    numbers = Settings(1.0).plain(torch.float32)
    inside = gpu.plan(*there(cost, None, torch.tensor([1]), None, None, None), False, *numbers)
    assert inside[1].isfinite().all()
    assert gpu.value(*there(torch.ones(0, 2, 1), torch.ones(0, 2, 1), None, None), False, *numbers).shape == (0,)
