"""Soft-DTW on the CPU, against pysdtw, tslearn and aeon in the same run.

    python benchmarks/soft_dtw.py [--repeats 7] [--only backward]

Values and gradients are checked against the plain reference, in float64.
"""

import aeon.distances
import numpy as np
import pysdtw
import torch
import tslearn.metrics
from measure import Benchmark, check
from torch import Tensor

import likewise as lw
from likewise.ops.soft_dtw import reference
from likewise.testing import TOLERANCE

BATCH, STEPS, CHANNELS, GAMMA = 64, 128, 9, 1.0


def exact(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Values (B,) and the gradient (B, T, C) with respect to x, in float64."""
    x, y = x.double().requires_grad_(), y.double()
    values = lw.SoftDTW(gamma=GAMMA)(x, y)
    (gradient,) = torch.autograd.grad(values.sum(), x)
    # The plain reference takes seconds a pair: two are compared with it.
    for b in range(2):
        cost = (x[b][:, None] - y[b][None]).square().sum(-1)
        check("value", values[b].item(), reference.value(cost, GAMMA).item(), TOLERANCE[torch.float64].value)
        (expected,) = torch.autograd.grad(cost, x, reference.plan(cost, GAMMA))  # an alignment is a gradient
        check("gradient", gradient[b], expected[b], TOLERANCE[torch.float64].gradient)
    return values.detach(), gradient


def main() -> None:
    benchmark = Benchmark("soft_dtw", __doc__)
    torch.manual_seed(0)
    x, y = torch.randn(2, BATCH, STEPS, CHANNELS)
    values, gradients = exact(x, y)
    ours, pysdtw_loss = lw.SoftDTW(gamma=GAMMA), pysdtw.SoftDTW(gamma=GAMMA, use_cuda=False)
    tslearn_loss = tslearn.metrics.SoftDTWLossPyTorch(gamma=GAMMA)

    def forward_aeon() -> np.ndarray:
        pairs = zip(x.transpose(1, 2).double().numpy(), y.transpose(1, 2).double().numpy(), strict=True)
        return np.array([aeon.distances.soft_dtw_distance(a, b, gamma=GAMMA) for a, b in pairs])

    a, b = x.clone().requires_grad_(), y.clone().requires_grad_()

    def backward(loss: torch.nn.Module) -> Tensor:
        return torch.autograd.grad(loss(a, b).sum(), (a, b))[0]

    case, tolerance = f"B {BATCH}, T {STEPS}, C {CHANNELS}, float32", TOLERANCE[torch.float32]
    benchmark.case(
        f"forward, {case}",
        lambda: ours(x, y),
        {"pysdtw": lambda: pysdtw_loss(x, y), "tslearn": lambda: tslearn_loss(x, y), "aeon": forward_aeon},
        values,
        tolerance=tolerance.value,
        bar=18,
    )
    benchmark.case(
        f"forward and backward, {case}",
        lambda: backward(ours),
        {"pysdtw": lambda: backward(pysdtw_loss), "tslearn": lambda: backward(tslearn_loss)},
        gradients,
        tolerance=tolerance.gradient,
        bar=20,
    )
    benchmark.close()


if __name__ == "__main__":
    main()
