"""Convolutions of packed pairs: the Triton kernels against PyTorch's convolution, one pair at a time.

Without a GPU they run in Triton's interpreter.
"""

import itertools
import os

import pytest
import torch

from likewise.ops.pair_convolution import Cells, convolve, reference
from likewise.testing import TOLERANCE, assert_close

pytest.importorskip("triton")
from likewise.ops.pair_convolution import gpu

DEVICE = "cuda" if torch.cuda.is_available() and os.environ["TRITON_INTERPRET"] == "0" else "cpu"
SIZES = [(3, 5), (1, 1), (12, 13), (1, 7), (9, 2)]


@pytest.fixture(autouse=True)
def exact_products(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    if DEVICE == "cpu":
        monkeypatch.setattr(gpu, "PARTS", 3)  # the interpreter runs one program after another


def problem(channels, k, dtype=torch.float32, sizes=SIZES):
    """h, weights, biases and cells of convolutions with these channels before, between and after them."""
    torch.manual_seed(0)
    n, m = torch.tensor(sizes, dtype=torch.int64, device=DEVICE).reshape(-1, 2).T
    cells = Cells.of(n, m)
    h = torch.randn(cells.count, channels[0], device=DEVICE, dtype=dtype)
    weights = [
        torch.randn(b, a, k, k, device=DEVICE, dtype=dtype) / (k * a**0.5) for a, b in itertools.pairwise(channels)
    ]
    return h, weights, [torch.randn(b, device=DEVICE, dtype=dtype) for b in channels[1:]], cells


def exactly(h, weights, biases, cells):
    h, *given = (t.double().cpu() for t in (h, *weights, *biases))
    return reference.convolve(h, given[: len(weights)], given[len(weights) :], *where(cells))


def where(cells):
    return cells.n.cpu(), cells.m.cpu(), cells.first.cpu()


@pytest.mark.parametrize(
    ("channels", "k"), [((2, 30, 30, 1), 5), ((30, 30), 5), ((3, 5), 7), ((1, 1, 1), 1), ((17, 40, 2), 3)]
)
def test_they_are_convolutions_of_each_pair(channels, k):
    arguments = problem(channels, k)
    found = gpu.convolve(*arguments)
    assert found.shape == (arguments[3].count, channels[-1])
    assert_close(found, exactly(*arguments), TOLERANCE[torch.float32].value, "values")


# Triton's interpreter cannot store bfloat16.
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16] if DEVICE == "cuda" else [torch.float16])
def test_half_precision_is_summed_in_float32(dtype):
    arguments = problem((30, 30), 5, dtype)
    found = gpu.convolve(*arguments)
    assert found.dtype == dtype
    assert_close(found, exactly(*arguments), TOLERANCE[dtype].value, "values")


@pytest.mark.parametrize(("channels", "k"), [((2, 6, 6, 1), 5), ((30, 30), 3), ((6, 3, 1), 3)])
def test_gradients(channels, k):
    h, weights, biases, cells = problem(channels, k)
    given = [t.requires_grad_() for t in (h, *weights, *biases)]
    toward = torch.randn(cells.count, channels[-1], device=DEVICE)
    found = torch.autograd.grad((gpu.convolve(h, weights, biases, cells) * toward).sum(), given)
    exact = [t.detach().double().cpu().requires_grad_() for t in given]
    value = reference.convolve(exact[0], exact[1 : 1 + len(weights)], exact[1 + len(weights) :], *where(cells))
    expected = torch.autograd.grad((value * toward.double().cpu()).sum(), exact)
    for f, e in zip(found, expected, strict=True):
        assert_close(f, e, TOLERANCE[torch.float32].gradient, f"gradient of {tuple(e.shape)}")


def test_a_second_derivative_is_refused():
    h, weights, biases, cells = problem((2, 3), 3)
    out = gpu.convolve(h, [weights[0].requires_grad_()], biases, cells)
    (grad,) = torch.autograd.grad(out.square().sum(), weights, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


def test_no_pairs():
    arguments = problem((2, 3), 3, sizes=[])
    assert gpu.convolve(*arguments).shape == (0, 3)
    assert convolve(*arguments).shape == (0, 3)


def test_the_reference_is_pytorchs_convolution():
    h, weights, biases, cells = problem((2, 3), 5, sizes=[(4, 6)])
    image = h.T.reshape(1, 2, 4, 6)
    expected = torch.nn.functional.conv2d(image, weights[0], biases[0], padding=2)[0].flatten(1).T
    assert_close(convolve(h, weights, biases, cells), expected, 1e-5, "one pair")
