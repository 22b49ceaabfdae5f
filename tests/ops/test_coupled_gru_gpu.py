"""The Triton kernels of the coupled GRU against reference.py: in Triton's interpreter, or on a GPU with TRITON_INTERPRET=0."""

import os

import pytest
import torch

from likewise.ops.coupled_gru import reference
from likewise.testing import assert_close
from tests.ops.test_coupled_gru import PROBLEMS, gradients, problem, truth, with_gradients

pytest.importorskip("triton")
from likewise.ops.coupled_gru import gpu

DEVICE = "cuda" if torch.cuda.is_available() and os.environ["TRITON_INTERPRET"] == "0" else "cpu"


def moved(arguments):
    return tuple(a.to(DEVICE) if isinstance(a, torch.Tensor) else a for a in arguments)


def check(arguments, tolerance=2e-6, gradient=1e-5):
    given = with_gradients(arguments)
    expected = truth(given)
    on_device = moved(arguments)
    states, last = gpu.states(*on_device), gpu.last(*on_device)
    assert_close(states, expected, tolerance, "states")
    assert_close(last, expected[:, :, -1], tolerance, "last states")
    for result in (expected, expected[:, :, -1]):
        torch.manual_seed(2)
        weights = torch.randn(result.shape, dtype=torch.float64)
        slopes = gradients(result, given)
        found = gpu.gradients(weights.to(DEVICE, arguments[0].dtype), None, *on_device)
        found = [f for f, a in zip(found, (arguments[0], arguments[1], arguments[6]), strict=True) if a is not None]
        for a, b in zip(found, slopes, strict=True):
            assert_close(a, b, gradient, "gradient")


@pytest.mark.parametrize("name", ["one state", "layers", "deep pairs"])
def test_states_and_gradients(name):
    check(problem(**PROBLEMS[name], dtype=torch.float32))


def test_a_wide_layer():
    check(problem((33, 40), n=(4, 2), m=(3, 4), dtype=torch.float32))


def test_one_set_of_sequences():
    gx, _, rows, columns, n, _, weights, hidden = problem(
        (4, 3), pairs=((0, 3, 1, 1), (1, 1, 2, 1)), dtype=torch.float32
    )
    check((gx, None, rows, columns, n, None, weights, hidden))


@pytest.mark.parametrize("name", ["odd", "layers"])
def test_kept_states_give_the_same_gradient(name, monkeypatch):
    arguments = moved(problem(**PROBLEMS[name], dtype=torch.float32))
    numbers = 2 * len(arguments[2]) * 7 * sum(arguments[-1])
    monkeypatch.setattr(gpu, "kept_numbers", lambda *_: numbers)
    last, kept = gpu.trained(*arguments)
    assert torch.equal(last, gpu.last(*arguments))
    assert kept.shape == (numbers,)
    top = 2 * len(last) * 7 * last.shape[-1]
    assert torch.equal(kept[-top:].view(len(last), 2, 7, -1), gpu.states(*arguments))
    grad = torch.randn_like(last)
    for a, b in zip(gpu.gradients(grad, kept, *arguments), gpu.gradients(grad, None, *arguments), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_gradients_of_any_size(scale):
    arguments = moved(problem(**PROBLEMS["odd"], dtype=torch.float32))
    grad = torch.randn(9, 2, 7, device=DEVICE)
    expected = gpu.gradients(grad, None, *arguments)
    for a, b in zip(gpu.gradients(grad * scale, None, *arguments), expected, strict=True):
        assert_close(a / scale, b, 1e-5, "gradient")


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])  # half precision ends at 65,504
def test_weights_as_two_halves(scale):
    weights = torch.randn(4 * 5 * 6, device=DEVICE) * scale
    (layer,) = reference.layers(weights, [5])
    packed = gpu._Packed.of(layer)
    back = packed.back.double().sum(0) * packed.scale.double()  # (4, W, W)
    assert_close(back[:, :5, :5], layer.weight.view(4, 5, 5), 2**-22, "weights")
    assert (back[:, 5:] == 0).all()
    assert (back[:, :, 5:] == 0).all()
    assert torch.equal(packed.weight.mT, packed.back)
    assert torch.equal(packed.bias.view(4, -1)[:, :5], layer.bias.view(4, 5))


def test_float64_is_exact():
    check(problem(pairs=((0, 3, 1), (1, 0, 2))), 1e-14, 1e-12)


def test_equal_sides_stay_equal():
    gx, _, _, _, n, _, weights, hidden = problem((7, 5), dtype=torch.float32)
    states = gpu.states(*moved((gx, gx.clone(), None, None, n, n, weights, hidden)))
    # The interpreter's product of matrices rounds by the place of a row; a GPU's does not.
    tolerance = 0.0 if DEVICE == "cuda" else 1e-6
    assert_close(states[:, 0], states[:, 1], tolerance, "sides")


def test_some_pairs_at_a_time(monkeypatch):
    monkeypatch.setattr(gpu, "NUMBERS_AT_ONCE", 2500)
    monkeypatch.setattr(gpu, "ONE_HOT", 10)
    check(problem(**PROBLEMS["odd"], dtype=torch.float32))


def test_refusals():
    gx, gy, rows, columns, n, m, weights, hidden = problem(pairs=((0,), (1,)), dtype=torch.float32)
    with pytest.raises(ValueError, match=r"coupled_gru: x_lengths\[1\] is 0"):
        gpu.last(*moved((gx, gy, rows, columns, n - 1, m, weights, hidden)))


def test_empty():
    gx, gy, _, _, n, m, weights, hidden = problem(dtype=torch.float32)
    none = torch.empty(0, dtype=torch.int64)
    given = moved((gx, gy, none, none, n, m, weights, hidden))
    assert gpu.last(*given).shape == (0, 2, 4)
    assert all((slope == 0).all() for slope in gpu.gradients(torch.empty(0, 2, 4, device=DEVICE), None, *given))


def test_layers_are_read_in_order():
    _, _, _, _, _, _, weights, hidden = problem((3, 2))
    first, second = reference.layers(weights, hidden)
    assert first.weight_in is None
    assert first.weight.shape == (12, 3)
    assert second.weight_in is not None
    assert second.weight_in.shape == (6, 3)
    assert torch.equal(second.bias, weights[-8:])
