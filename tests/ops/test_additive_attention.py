"""Additive attention's CPU kernels against the reference in plain torch."""

import pytest
import torch

from likewise import _native
from likewise.ops import additive_attention as op
from likewise.ops import cpu
from likewise.ops.additive_attention import Layer, additive_attention
from likewise.testing import TOLERANCE, assert_close

SIZES = {  # items, channels, positions, width, rows, masked
    "one position": (2, 3, 1, 4, 1, False),
    "u as it is": (3, 5, 9, 7, None, True),
    "odd": (3, 17, 33, 5, 3, True),
    "tiles": (11, 70, 130, 20, 18, True),
    "whole vectors": (9, 64, 128, 64, 16, False),
}


def problem(items, channels, positions, width, rows, masked, dtype):
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()

    mask, values = None, draw(items, channels, positions)
    if masked:
        mask = torch.arange(positions) < torch.randint(1, positions + 1, (items, 1), generator=generator)
        values = torch.where(mask[:, None], values.detach(), torch.nan).requires_grad_()  # padding may hold anything
    across = None if rows is None else draw(rows, width)
    layer = Layer(values, mask, draw(rows or width, channels), across, draw(1, rows or width))
    return draw(items, width), [layer, layer._replace(mask=mask, inward=draw(rows or width, channels))]


def results(u, layers):
    """Features, weights and every gradient; the loss sees the weights too."""
    features, weights = additive_attention(u, layers)
    loss = features.sin().sum() + sum(w.square().sum() for w in weights)
    leaves = [u, *{id(t): t for layer in layers for t in layer if t is not None and t.requires_grad}.values()]
    return [features, *weights, *torch.autograd.grad(loss, leaves)]


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("instruction_set", _native.instruction_sets())
def test_kernels_equal_the_reference(name, dtype, instruction_set, monkeypatch):
    monkeypatch.setattr(cpu, "INSTRUCTION_SET", instruction_set)
    ran = []
    kernel = _native.attention_backward
    monkeypatch.setattr(_native, "attention_backward", lambda *given: ran.append(1) or kernel(*given))
    found = results(*problem(*SIZES[name], dtype))
    assert ran
    monkeypatch.setattr(op, "_has_cpu_kernel", lambda *_: False)
    expected = results(*problem(*SIZES[name], torch.float64))
    count = 3  # features and two weights
    for k, (f, e) in enumerate(zip(found, expected, strict=True)):
        tolerance = TOLERANCE[dtype].value if k < count else TOLERANCE[dtype].gradient
        assert_close(f, e, tolerance, f"result {k}", scale=1e-2)


def test_the_second_derivative_and_an_expanded_gradient():
    u, layers = problem(*SIZES["odd"], torch.float64)
    (first,) = torch.autograd.grad(additive_attention(u, layers)[0].sum(), u, create_graph=True)
    (plain,) = torch.autograd.grad(additive_attention(u, layers)[0].sum(), u)
    assert_close(plain, first.detach(), 1e-10, "gradient of a sum")
    assert torch.autograd.grad(first.square().sum(), u)[0].isfinite().all()


def test_results_do_not_depend_on_the_number_of_threads():
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = results(*problem(*SIZES["whole vectors"], torch.float32))
        torch.set_num_threads(3)
        together = results(*problem(*SIZES["whole vectors"], torch.float32))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(a, t) for a, t in zip(alone, together, strict=True))
