"""Other libraries on the shapes of map.py. Each takes batches x and y, where y is None if x meets itself."""

import importlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from likewise.ops.gdtw import reference

Peer = Callable[[Any, Any], Any]


def peers_of(shape: Any, gamma: float, reg: float, iterations: int) -> dict[str, Peer]:
    """The peers that can compute this shape."""
    if shape.op == "dtw":
        return _dtw(shape)
    if shape.op == "soft_dtw":
        return _soft_dtw(shape, gamma)
    if shape.op == "soft_dtw gradient":
        return _soft_dtw_gradient(shape, gamma)
    if shape.op == "gdtw":
        return _gdtw(shape)
    if shape.op == "sinkhorn":
        return {"POT": lambda x, y: _pot(x, y, reg, iterations)}
    return {}  # no other library has TAP or the coupled GRU


def _arrays(batch: Any) -> list[np.ndarray]:
    """float64 (steps, channels), without padding."""
    return [v[:n].double().numpy() for v, n in zip(batch.values, batch.lengths.tolist(), strict=True)]


def _dtw(shape: Any) -> dict[str, Peer]:
    import aeon.distances
    import dtaidistance.dtw
    import dtaidistance.dtw_ndim
    import tsdistances
    import tslearn.metrics

    radius = None if shape.band is None else int(shape.band * shape.steps)
    window = None if radius is None else radius + 1
    one, threads = shape.channels == 1, torch.get_num_threads()

    def aeon_all(x: Any, y: Any) -> Any:
        a, b = ([s.T.copy() for s in _arrays(batch)] if batch is not None else None for batch in (x, y))
        return aeon.distances.dtw_pairwise_distance(a, b, window=shape.band, n_jobs=threads)

    def aeon_pairs(x: Any, y: Any) -> Any:
        pairs = zip(_arrays(x), _arrays(y), strict=True)
        return [aeon.distances.dtw_distance(a.T, b.T, window=shape.band) for a, b in pairs]

    def dtai_all(x: Any, y: Any) -> Any:
        both = _arrays(x) + ([] if y is None else _arrays(y))
        series = [s[:, 0] for s in both] if one else both
        block = None if y is None else ((0, len(x)), (len(x), len(both)))
        module = dtaidistance.dtw if one else dtaidistance.dtw_ndim
        found = module.distance_matrix_fast(series, window=window, block=block, parallel=True)
        return (found if y is None else found[: len(x), len(x) :]) ** 2

    def dtai_pairs(x: Any, y: Any) -> Any:
        pairs = list(zip(_arrays(x), _arrays(y), strict=True))
        if one:
            return [
                dtaidistance.dtw.distance_fast(a[:, 0].copy(), b[:, 0].copy(), window=window) ** 2 for a, b in pairs
            ]
        return [dtaidistance.dtw_ndim.distance_fast(a, b, window=window) ** 2 for a, b in pairs]

    def tslearn_all(x: Any, y: Any) -> Any:
        a, b = _arrays(x), None if y is None else _arrays(y)
        return tslearn.metrics.cdist_dtw(a, b, sakoe_chiba_radius=radius, n_jobs=threads) ** 2

    def tslearn_pairs(x: Any, y: Any) -> Any:
        pairs = zip(_arrays(x), _arrays(y), strict=True)
        return [tslearn.metrics.dtw(a, b, sakoe_chiba_radius=radius) ** 2 for a, b in pairs]

    if shape.pairing == "paired":
        return {"aeon": aeon_pairs, "dtaidistance": dtai_pairs, "tslearn": tslearn_pairs}
    found: dict[str, Peer] = {"aeon": aeon_all, "dtaidistance": dtai_all, "tslearn": tslearn_all}
    if one and shape.lengths == "equal":
        band = 1.0 if shape.band is None else shape.band
        found["tsdistances"] = lambda x, y: tsdistances.dtw_distance(
            x.values[..., 0].double().numpy(), band=band, par=True
        )
    return found


def _soft_dtw(shape: Any, gamma: float) -> dict[str, Peer]:
    import aeon.distances
    import pysdtw
    import tslearn.metrics

    loss = pysdtw.SoftDTW(gamma=gamma, use_cuda=False)

    def aeon_all(x: Any, y: Any) -> Any:
        a, b = ([s.T.copy() for s in _arrays(batch)] if batch is not None else None for batch in (x, y))
        window, threads = shape.band, torch.get_num_threads()
        return aeon.distances.soft_dtw_pairwise_distance(a, b, gamma=gamma, window=window, n_jobs=threads)

    def aeon_pairs(x: Any, y: Any) -> Any:
        pairs = zip(_arrays(x), _arrays(y), strict=True)
        return [aeon.distances.soft_dtw_distance(a.T, b.T, gamma=gamma, window=shape.band) for a, b in pairs]

    def tslearn_all(x: Any, y: Any) -> Any:
        return tslearn.metrics.cdist_soft_dtw(_arrays(x), None if y is None else _arrays(y), gamma=gamma)

    def tslearn_pairs(x: Any, y: Any) -> Any:
        return [tslearn.metrics.soft_dtw(a, b, gamma=gamma) for a, b in zip(_arrays(x), _arrays(y), strict=True)]

    def pysdtw_all(x: Any, y: Any) -> Any:
        a, b = _each_pair(x.values, x.values if y is None else y.values)
        return loss(a, b).reshape(len(x), -1)

    every = shape.pairing == "all"
    found: dict[str, Peer] = {"aeon": aeon_all if every else aeon_pairs}
    if shape.band is None:
        found["tslearn"] = tslearn_all if every else tslearn_pairs
        if shape.lengths == "equal":
            found["pysdtw"] = pysdtw_all if every else lambda x, y: loss(x.values, y.values)
    return found


def _each_pair(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x.repeat_interleave(len(y), 0), y.repeat(len(x), 1, 1)


def _soft_dtw_gradient(shape: Any, gamma: float) -> dict[str, Peer]:
    import pysdtw
    import tslearn.metrics

    def gradient(loss: torch.nn.Module) -> Peer:
        def run(x: Any, y: Any) -> Tensor:
            leaf = x.values.detach().requires_grad_()
            pairs = (leaf, y.values) if shape.pairing == "paired" else _each_pair(leaf, leaf if y is None else y.values)
            return torch.autograd.grad(loss(*pairs).sum(), leaf)[0]

        return run

    if shape.band is not None or shape.lengths == "half short":
        return {}
    return {
        "pysdtw": gradient(pysdtw.SoftDTW(gamma=gamma, use_cuda=False)),
        "tslearn": gradient(tslearn.metrics.SoftDTWLossPyTorch(gamma=gamma)),
    }


def _gdtw(shape: Any) -> dict[str, Peer]:
    """Our objective at the package's warp: it must not be lower than at ours."""
    if shape.channels > 1:
        return {}
    # benchmarks/gdtw.py hides the package of that name: Python looks first in the folder of the script.
    here = sys.path.pop(0)
    try:
        package = importlib.import_module("gdtw")
    finally:
        sys.path.insert(0, here)

    def value(a: Tensor, b: Tensor) -> float:
        tau = package.GDTW().set_params({"x": b[:, 0].numpy(), "y": a[:, 0].numpy(), "lambda_cum": 0.0}).run().tau
        times, limit = torch.linspace(0, 1, len(a), dtype=torch.float64), torch.full((len(a),), torch.inf).double()
        reg = torch.tensor(0.1).double()
        pair = reference.Pair(a, b, times, times, reg, -limit, limit, 0 * times[1:], limit[1:])
        return reference.objective(pair, torch.as_tensor(tau, dtype=torch.float64)).item()

    return {"gdtw": lambda x, y: [value(a, b) for a, b in zip(x.values.double(), y.values.double(), strict=True)]}


def _pot(x: Any, y: Any, reg: float, iterations: int) -> Tensor:
    import ot

    cost = torch.cdist(x.values, y.values).square()
    plan = ot.solve_batch(cost, reg, method="sinkhorn", tol=0, max_iter=iterations, grad="detach").plan
    return (plan * cost).sum((1, 2))
