"""The joint kernel's Triton kernels against loops: in Triton's interpreter, or on a GPU with TRITON_INTERPRET=0.

The reference in plain torch is tested in tests/regularizers.
"""

import os

import pytest
import torch

from likewise.ops.joint_gaussians import Mixture, joint_gaussians, reference
from likewise.testing import TOLERANCE, assert_close

pytest.importorskip("triton")
from likewise.ops.joint_gaussians import gpu

DEVICE = "cuda" if torch.cuda.is_available() and os.environ["TRITON_INTERPRET"] == "0" else "cpu"
VALUE, GRADIENT = TOLERANCE[torch.float32].value, TOLERANCE[torch.float32].gradient
THREE, ONE = Mixture((0.5, 1.0, 2.0)), Mixture((1.0,))
PROBLEMS = {
    "the paper's": (40, (40, 7, 5), (THREE, THREE, ONE)),
    "one item": (1, (3,), (THREE,)),
    "two items": (2, (3, 1), (ONE, ONE)),
    "a block and one": (17, (33, 1), (THREE, THREE)),
    "given bandwidths": (9, (4, 3, 2), (Mixture((0.5, 1.0, 2.0), 0.3), ONE, Mixture((1.0,), 20.0))),
    "many sums": (150, (2,), (Mixture((0.25, 0.5, 1.0, 2.0)),)),
}


def problem(count, channels, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    layers = [torch.randn(count, c, generator=generator, dtype=dtype) for c in channels]
    weights = torch.rand(count, count, generator=generator, dtype=dtype)
    return layers, (weights + weights.T) / count**2


def loops(layers, mixtures, weights):
    """From the definition, bandwidths without a gradient."""
    joint = weights
    count = len(weights)
    for x, (factors, bandwidth) in zip(layers, mixtures, strict=True):
        apart = (x[:, None] - x).square().sum(-1)
        middle = apart.detach().sum() / max(1, count * (count - 1)) if bandwidth is None else bandwidth
        joint = joint * sum(torch.exp(-apart / max(middle * f, 1e-30)) for f in factors) / len(factors)
    return joint.sum()


def on_device(layers, mixtures, weights, by_value=1.0):
    """Value and gradients by the kernels."""
    there = [x.to(DEVICE) for x in layers]
    value, side, by_apart = gpu.value(there, mixtures, weights.to(DEVICE))
    scale = torch.tensor(by_value, dtype=value.dtype, device=DEVICE)
    return value, gpu.gradients(scale, there, side, by_apart)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", PROBLEMS)
def test_values_and_gradients(name, dtype):
    count, channels, mixtures = PROBLEMS[name]
    layers, weights = problem(count, channels)
    given = [x.requires_grad_() for x in layers]
    expected = loops(given, mixtures, weights)
    slopes = torch.autograd.grad(3 * expected, given)
    value, found = on_device([x.detach().to(dtype) for x in layers], mixtures, weights.to(dtype), by_value=3.0)
    assert_close(value, expected, TOLERANCE[dtype].value, "value")
    for a, b in zip(found, slopes, strict=True):
        assert a.dtype == dtype
        assert_close(a, b, TOLERANCE[dtype].gradient, "gradient")


@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_close_items_and_large_features(offset):
    layers, weights = problem(20, (5, 4), torch.float32)
    layers = [offset + x for x in layers]
    mixtures = (THREE, ONE)
    double = [x.double().requires_grad_() for x in layers]
    expected = loops(double, mixtures, weights.double())
    value, found = on_device(layers, mixtures, weights)
    assert_close(value, expected, VALUE, "value")
    for a, b in zip(found, torch.autograd.grad(expected, double), strict=True):
        assert_close(a, b, GRADIENT, "gradient")


@pytest.mark.parametrize("count", [1, 2, 40])
def test_labels_instead_of_weights(count):
    layers, _ = problem(count, (5, 4), torch.float32)
    labels = torch.arange(count) % 3
    weights = reference.between_classes(labels, torch.float32)
    assert weights.sum().item() == pytest.approx(1.0 if count > 1 else 0.0)
    (value, slopes), (expected, others) = (on_device(layers, (THREE, ONE), given) for given in (labels, weights))
    assert_close(value, expected, VALUE, "value")
    for a, b in zip(slopes, others, strict=True):
        assert_close(a, b, GRADIENT, "gradient")
    value, slopes = on_device(layers, (THREE, ONE), 0 * labels)
    assert value == 0, "one class"
    assert all((slope == 0).all() for slope in slopes)


def test_equal_items_and_items_far_apart():
    layers, weights = problem(6, (5, 4), torch.float32)
    value, found = on_device([0 * x for x in layers], (THREE, ONE), weights)
    assert_close(value, weights.sum(), VALUE, "value")
    assert all((slope == 0).all() for slope in found)
    far = [1e3 * torch.arange(6.0)[:, None]]
    value, (slope,) = on_device(far, (Mixture((0.5, 1.0, 2.0), 1.0),), weights.fill_diagonal_(0))
    assert value == 0
    assert (slope == 0).all()


def test_rounding_does_not_count_as_a_difference():
    # What differs in the last digits only has the least bandwidth, as the reference has it.
    offsets = torch.randint(-4, 5, (30, 16), generator=torch.Generator().manual_seed(1))
    x = torch.randn(1, 16, generator=torch.Generator().manual_seed(0)) * (1 + offsets * torch.finfo(torch.float32).eps)
    weights = torch.full((30, 30), 1 / 900)
    value, (slope,) = on_device([x], (THREE,), weights)
    expected, _ = reference.value_and_slopes((THREE,), weights, [x])
    assert_close(value, expected, 1e-2, "value")
    assert value > 0.5
    assert slope.abs().max() < 1e5


def test_padding_of_a_tile_is_never_read(monkeypatch):
    layers, weights = problem(5, (3, 2), torch.float32)
    empty = torch.Tensor.new_empty

    def spoilt(x, *size, **options):
        found = empty(x, *size, **options)
        return found.fill_(torch.nan) if found.is_floating_point() else found

    monkeypatch.setattr(torch.Tensor, "new_empty", spoilt)
    value, found = on_device(layers, (THREE, ONE), weights)
    assert value.isfinite()
    assert all(slope.isfinite().all() for slope in found)


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
def test_on_a_device_the_kernels_run():
    layers, weights = problem(10, (4, 3), torch.float32)
    there = [x.cuda().requires_grad_() for x in layers]
    value = joint_gaussians(there, (THREE, ONE), weights.cuda())
    here = [x.double().requires_grad_() for x in layers]
    expected = joint_gaussians(here, (THREE, ONE), weights.double())
    assert value.grad_fn.fused
    assert not expected.grad_fn.fused
    assert_close(value, expected, VALUE, "value")
    slopes = torch.autograd.grad(expected.sin(), here, create_graph=True)
    for a, b in zip(torch.autograd.grad(value.sin(), there, retain_graph=True), slopes, strict=True):
        assert_close(a, b, GRADIENT, "gradient")
    first = torch.autograd.grad(value.sin(), there, create_graph=True)
    second = torch.autograd.grad(sum(x.square().sum() for x in first), there)
    for a, b in zip(second, torch.autograd.grad(sum(x.square().sum() for x in slopes), here), strict=True):
        assert_close(a, b, 10 * GRADIENT, "second derivative")
