"""GDTW on a GPU: search the grid (grid.py, losses.py, bellman.py), polish the best path (polish.py), and compute
derivatives (gradient.py).

search.py launches the kernels of the first two. The search uses y's precision, the rest float64. All passes are
launched without waiting; a solution waits once, for a number per pair that says whether it has converged. Pairs that
have not, that must raise an error, or that have Huber's loss go to the host, where the C++ kernel polishes the GPU's
solution on the grid. Derivatives do not wait for the GPU.
"""

import math
from typing import Any

import torch
from torch import Tensor

from likewise import _check
from likewise.ops import cpu
from likewise.ops.gdtw import _LIMITS, Inputs, _Problem, _run
from likewise.ops.gdtw.gpu.gradient import bends_kernel, response_kernel, x_gradient_kernel, y_gradient_kernel
from likewise.ops.gdtw.gpu.search import Found, Search, channels_at_once, rounded, warps_of
from likewise.ops.launch.arguments import float64_bits, power_of_2
from likewise.ops.launch.launcher import launch

KNOTS = 16  # that y_gradient_kernel takes at once; where y is passed quickly, many share a segment


def solve(*given: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Values, warps and holds, as from the C++ kernel. Waits for the GPU."""
    pairs = Search.of(Inputs(*given))
    found, first, polished_on_host = [], 0, False
    for part in pairs.parts():
        if part.huber < math.inf:
            written, best, left = part.found(), part.search(), list(range(part.y.shape[0]))
        else:
            written, best, left = part.solve()
        if left:
            _polish_on_host(part, best, left, first, written)
            polished_on_host = True
        found.append((written.values, written.warps, written.holds))
        first += part.y.shape[0]
    if not found:
        none = pairs.found()
        found = [(none.values, none.warps, none.holds)]
    values, warps, holds = found[0] if len(found) == 1 else (torch.cat(each) for each in zip(*found, strict=True))
    if polished_on_host:  # the others fit
        _check.fits("gdtw", values, pairs.x.dtype)
    return values, warps, holds


def _polish_on_host(part: Search, best: Tensor, left: list[int], first: int, written: Found) -> None:
    """Polish some pairs' best warps on the grid with the C++ kernel, which reports pairs that cannot be solved.

    first: the number of pairs of the batch before this part.
    """
    rows = torch.tensor(left, device=part.x.device)
    everything = len(left) == part.x.shape[0]
    problem = _Problem.of((part if everything else part.part(rows)).on_host())
    warps = (best if everything else best[rows]).cpu()
    values, holds = warps.new_empty(len(left)), torch.empty(*warps.shape, 2, dtype=torch.int32)
    _run(cpu.native.gdtw_polish, problem, values, warps, holds, numbers=[first + b for b in left])
    for there, here in ((written.values, values), (written.warps, warps), (written.holds, holds)):
        there[rows] = here.to(there.device)


def gradient(value_grad: Tensor, warp_grad: Tensor, warp: Tensor, holds: Tensor, *given: Any) -> tuple[Tensor, ...]:
    """Gradients of x, y, reg, lower, upper, slope_min and slope_max; None for absent ones."""
    pairs = Search.of(Inputs(*given))
    value_grad, warp_grad, warp, holds = (each.contiguous() for each in (value_grad, warp_grad, warp, holds))
    (count, y_steps, channels), x_steps = pairs.y.shape, pairs.x.shape[1]
    grads = {"x": torch.empty_like(pairs.x), "y": torch.empty_like(pairs.y), "reg": torch.empty_like(pairs.reg)}
    for name, limit, flag in zip(_LIMITS, pairs.limits, ("BAND", "BAND", "SLOPES", "SLOPES"), strict=True):
        grads[name] = torch.empty_like(limit) if pairs.flags[flag] else limit.new_empty(0)
    if not count:
        return tuple(grads.values())
    written = {name: grad if grad.numel() else pairs.reg for name, grad in grads.items()}  # absent ones are not
    frames = pairs.y, pairs.x, warp, holds
    places = *pairs.lengths, *pairs.times
    numbers = y_steps, x_steps, channels, float64_bits(pairs.huber)
    lanes = power_of_2(x_steps)
    loss = {"HUBER": pairs.huber < math.inf, "LENGTHS": pairs.flags["LENGTHS"], "CHANNELS": channels_at_once(channels)}
    sizes = rounded(*(count * x_steps,) * 4)
    limits = [written[name] for name in ("reg", *_LIMITS)]

    def work(whole: Tensor) -> None:
        slopes, curvatures, room, response = whole.split(sizes)
        launch(bends_kernel, (count, x_steps), (*frames, *places, slopes, curvatures), numbers, 1, **loss)
        launch(
            response_kernel,
            (count,),
            (value_grad, warp_grad, warp, holds, slopes, curvatures, *places, pairs.reg, room, response, *limits),
            (y_steps, x_steps),
            warps_of(lanes),
            SUBSEQUENCE=pairs.subsequence,
            **pairs.flags,
            LANES=lanes,
        )
        moved = *frames, value_grad, response, *places
        launch(x_gradient_kernel, (count, x_steps), (*moved, written["x"]), numbers, 1, **loss)
        launch(
            y_gradient_kernel, (count, y_steps), (*moved, written["y"]), numbers, KNOTS // 4, **loss, KNOTS=KNOTS,
            LANES=lanes,
        )  # fmt: skip

    pairs.launch("gradient", (value_grad, warp_grad, warp, holds, *written.values()), sizes, work)
    return tuple(grads.values())
