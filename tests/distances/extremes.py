"""What every distance does with very large and very small numbers: the table of docs/numerics.md.

``python -m tests.distances.extremes`` writes it. Sequences of every magnitude, in every type, are compared with the
same sequences in float64; in float64, with the same sequences divided by a power of two, since nearly all distances
only change by another power then, if their settings are divided too. A result is exact if values, matrices and
gradients agree within the tolerance of ``likewise.testing``; refused if it raises a ValueError; and clamped if it is
finite, but off. That is allowed where costs are too small beside others or for the type. Where sequences are large,
values must be exact, and only gradients may be clamped: paths tie beside a setting that is too small to tell them
apart, and a network's states are saturated.
"""

import inspect
import math
import re
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch

from likewise import distances
from likewise.testing import TOLERANCE

PAGE = Path(__file__).parents[2] / "docs" / "numerics.md"
MAGNITUDES = {
    torch.float16: (1e-6, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1e3, 1e4, 4e4),
    torch.bfloat16: (1e-38, 1e-30, 1e-20, 1e-10, 1e-4, 1.0, 1e4, 1e10, 1e15, 1e19, 1e38),
    torch.float32: (1e-42, 1e-38, 1e-35, 1e-30, 1e-20, 1e-15, 1e-8, 1.0, 1e4, 1e8, 1e15, 1e18, 1e19, 1e30, 1e38),
    torch.float64: (1e-310, 1e-300, 1e-160, 1e-100, 1e-30, 1.0, 1e30, 1e100, 1e150, 1e155, 1e200, 1e300),
}
EXACT, FINITE, CLAMPED, REFUSED = "exact", "finite", "clamped", "refused"
WITHOUT_DERIVATIVE = ("EDR", "LCSS")  # they count matches, and say so
# Where the paper's default ground cost has no range to show, the other one is shown, too.
VARIANTS = {
    "DTW, euclidean": lambda: distances.DTW(ground="euclidean"),
    "DTW, cosine": lambda: distances.DTW(ground="cosine"),
    "OTAM, sqeuclidean": lambda: distances.OTAM(ground="sqeuclidean"),
    "Euclidean, squared": lambda: distances.Euclidean(squared=True),
    "MeanFrames, squared": lambda: distances.MeanFrames(squared=True),
    "SBD, as it is": lambda: distances.SBD(standardize=False),
    "SBD, one shift": lambda: distances.SBD(standardize=False, independent=False),
}
# distance(x) is unit ** power * distance'(x / unit), where distance' has its settings divided: (power, distance').
POWERS: dict[str, tuple[int, Callable[[float], distances.Distance]]] = {
    "ADTW": (2, lambda unit: distances.ADTW(1.0 / unit**2)),
    "GDTW": (2, lambda unit: distances.GDTW(0.1 / unit**2)),
    "LCSS": (0, lambda unit: distances.LCSS(1.0 / unit)),
    "MSM": (1, lambda unit: distances.MSM(1.0 / unit)),
    "OPW": (2, lambda unit: distances.OPW(50.0 / unit**2, 0.1 / unit**2)),
    "OTAM, sqeuclidean": (2, lambda unit: distances.OTAM(0.1 / unit**2, ground="sqeuclidean")),
    "Sinkhorn": (2, lambda unit: distances.Sinkhorn(0.1 / unit**2)),
    "SoftDTW": (2, lambda unit: distances.SoftDTW(1.0 / unit**2)),
    "SoftDTWDivergence": (2, lambda unit: distances.SoftDTWDivergence(1.0 / unit**2)),
    "SoftElastic": (2, lambda unit: distances.SoftElastic(distances.ADTW(1.0 / unit**2), 1.0 / unit**2)),
    "TCOT": (2, lambda unit: distances.TCOT(1.0 / unit**2)),
    "TWE": (1, lambda unit: distances.TWE(0.001 / unit, 1.0 / unit)),
}
WITHOUT_SETTINGS = {
    0: ("Cosine", "DTW, cosine", "EDR", "OTAM", "SBD", "SBD, as it is", "SBD, one shift"),
    1: ("DTW, euclidean", "ERP", "Euclidean", "MeanFrames"),
    2: (
        *("DDTW", "DTW", "DTWGlobalInvariance", "EMD", "Euclidean, squared", "MeanFrames, squared", "ShapeDTW"),
        *("WDDTW", "WDTW"),
    ),
}
POWERS |= {name: (p, lambda unit, name=name: build(name)) for p, names in WITHOUT_SETTINGS.items() for name in names}
NETWORKS = ("CoupledGRU", "SiameseGRU", "TAP", "TransformerTAP")  # not of this kind


def _with_defaults(kind):
    if kind is distances.SoftElastic:
        return kind(distances.ADTW())
    parameters = inspect.signature(kind).parameters
    torch.manual_seed(0)
    channels = (2,) if "channels" in parameters else ()
    return kind(*channels, standardize=False) if channels and "standardize" in parameters else kind(*channels)


def _kinds():
    """The distances that likewise.distances exports, without base classes: a new one is put to the test, too."""
    found = {name: getattr(distances, name) for name in distances.__all__}
    kinds = {n: k for n, k in found.items() if isinstance(k, type) and issubclass(k, distances.Distance)}
    return {n: k for n, k in kinds.items() if n not in ("Distance", "Elastic")}


@cache
def names():
    return tuple(sorted([*_kinds(), *VARIANTS], key=str.lower))


def build(name):
    return VARIANTS[name]() if name in VARIANTS else _with_defaults(_kinds()[name])


def sequences(magnitude, dtype):
    """Two pairs, (2, 5, 2) and (2, 4, 2), in that type and magnitude."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.rand(2, steps, 2, generator=generator, dtype=torch.float64) + 0.5 for steps in (5, 4))
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64)
    return (x * signs * magnitude).to(dtype), (y * magnitude).to(dtype)


def compute(name, x, y, distance=None):
    """Values (2,), the matrix (2, 2), and the gradients of x and y."""
    torch.manual_seed(0)
    distance = (distance or build(name)).to(torch.promote_types(x.dtype, torch.float32))
    if name not in WITHOUT_DERIVATIVE:
        x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*the masses of .*")
        values = distance(x, y)
        matrix = distance.matrix(x.detach(), y.detach())
        gradients = torch.autograd.grad(values.sum(), (x, y)) if name not in WITHOUT_DERIVATIVE else ()
    return values.detach(), matrix, *gradients


def reference(name, magnitude, x, y):
    """The expected result of ``compute``; None where it is not known."""
    if x.dtype != torch.float64:
        return compute(name, x.double(), y.double())
    if name in NETWORKS:
        return None
    power, scaled = POWERS[name]
    unit = 2.0 ** round(math.log2(magnitude))
    try:
        found = compute(name, x / unit, y / unit, scaled(unit))
    except (ValueError, OverflowError, ZeroDivisionError):  # a setting that is too large or too small for float64
        return None
    values, gradients = found[:2], found[2:]
    # One factor after the other: the power itself may be too large where the product is not.
    for _ in range(power):
        values = [value * unit for value in values]
    for _ in range(abs(power - 1)):
        gradients = [g * unit if power > 1 else g / unit for g in gradients]
    return *values, *gradients


def outcome(name, magnitude, dtype):
    """The outcome of one extreme; an AssertionError where it is not allowed."""
    given = sequences(magnitude, dtype)
    place = f"{name} at {magnitude:g} in {dtype}"
    try:
        found = compute(name, *given)
    except ValueError as error:
        text = str(error)
        assert re.search(r"overflow|not finite|holds inf", text), f"{place}: {text}"
        return REFUSED
    for what, tensor in zip(("values", "matrix", "gradient of x", "gradient of y"), found, strict=False):
        # Gradients in half precision may overflow: PyTorch's GradScaler looks for that and scales the loss down.
        if dtype.itemsize > 2 or not what.startswith("gradient"):
            assert tensor.isfinite().all(), f"{place}: {what} {tensor.flatten().tolist()}"
    expected = reference(name, magnitude, *given)
    if expected is None:
        return FINITE
    tolerance = TOLERANCE[dtype]
    allowed = (tolerance.value, tolerance.value, tolerance.gradient, tolerance.gradient)
    near = [close(a, b, error) for a, b, error in zip(found, expected, allowed[: len(found)], strict=True)]
    if magnitude >= 1:
        assert all(near[:2]), f"{place}: {found[:2]}, expected {expected[:2]}"
    return EXACT if all(near) else CLAMPED


def close(found, expected, tolerance):
    """Whether they agree, relative to the largest; what is too small for a normal number may be zero."""
    apart = (found.double() - expected).abs().amax()
    return bool(apart <= tolerance * expected.abs().amax() + torch.finfo(found.dtype).smallest_normal)


def table(dtype):
    """The table of one type: where each outcome holds."""
    kinds = (EXACT, CLAMPED, REFUSED, FINITE) if dtype == torch.float64 else (EXACT, CLAMPED, REFUSED)
    lines = [f"| distance | {' | '.join(kinds)} |", "|---" * (1 + len(kinds)) + "|"]
    for name in names():
        found = [outcome(name, magnitude, dtype) for magnitude in MAGNITUDES[dtype]]
        lines.append(f"| {name} | {' | '.join(_spans(found, kind, MAGNITUDES[dtype]) for kind in kinds)} |")
    return "\n".join(lines)


def _spans(found, kind, magnitudes):
    """The magnitudes with that outcome, for example "1e-20 to 1e+15"."""
    spans, first = [], None
    for k, result in enumerate([*found, None]):
        if result == kind and first is None:
            first = k
        elif result != kind and first is not None:
            ends = dict.fromkeys((magnitudes[first], magnitudes[k - 1]))
            spans.append(" to ".join(f"{end:g}" for end in ends))
            first = None
    return ", ".join(spans) or "-"


def page_with_tables(text):
    """The page with its tables computed anew; they stand between two comments."""
    for dtype in MAGNITUDES:
        kind = str(dtype).removeprefix("torch.")
        pattern = rf"(<!-- {kind} -->\n\n).*?(\n\n<!-- end -->)"
        text, count = re.subn(pattern, lambda match, d=dtype: match[1] + table(d) + match[2], text, flags=re.DOTALL)
        assert count == 1, kind
    return text


if __name__ == "__main__":
    PAGE.write_text(page_with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
