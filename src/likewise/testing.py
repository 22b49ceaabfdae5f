"""Contract checks for operators, distances and losses, and the table of tolerances.

A new distance passes ``check_distance``, a new loss ``check_loss``, a new operator ``check_op``; each raises an
AssertionError with the reason otherwise.
"""

import copy
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from likewise.data.batch import Batch
from likewise.distances.distance import Distance


@dataclass(frozen=True)
class Tolerance:
    """The largest allowed error of values and of gradients, relative to the largest expected number."""

    value: float
    gradient: float


# Against the float64 reference. Half precision is rounded on input and output, and accumulated in float32.
TOLERANCE = {
    torch.float64: Tolerance(value=1e-10, gradient=1e-8),
    torch.float32: Tolerance(value=1e-5, gradient=1e-4),
    torch.float16: Tolerance(value=2e-3, gradient=1e-2),
    torch.bfloat16: Tolerance(value=2e-2, gradient=5e-2),
}


def assert_close(found: Tensor, expected: Tensor, tolerance: float, what: str, scale: float = 0.0) -> None:
    """Compare relative to the largest expected number (at least ``scale``).

    Example:
        >>> assert_close(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1e-7]), 1e-5, "values")
    """
    found, expected = found.detach().double().cpu(), expected.detach().double().cpu()
    assert found.shape == expected.shape, f"{what}: shape {tuple(found.shape)} instead of {tuple(expected.shape)}"
    if expected.numel() == 0:
        return
    assert not found.isnan().any(), f"{what}: holds NaN"
    largest = max(expected.abs().max().item(), scale, torch.finfo(torch.float64).tiny)
    error = (found - expected).abs().max().item() / largest
    assert error <= tolerance, f"{what}: relative error {error:.2e}, allowed {tolerance:.0e}"


def check_op(
    operator: Any, arguments: tuple[Any, ...], *, gradient: bool = True, second_gradient: bool = False
) -> None:
    """Check a custom operator on example arguments.

    The checks are: its schema, fake kernel and autograd registration (``torch.library.opcheck``); that every output is
    written; that it compiles without a graph break; and, for float64 arguments that require a gradient, its first and
    second derivatives.

    Example:
        >>> import likewise
        >>> x, y = (torch.randn(2, 4, 1, dtype=torch.float64, requires_grad=True) for _ in range(2))
        >>> check_op(torch.ops.likewise.soft_dtw.default, (x, y, None, None, 1.0, False, 0, 0.0, False, False))
    """
    with _as_assertion(f"{operator}: opcheck"):
        torch.library.opcheck(operator, arguments)
    found = _tensors(operator(*arguments))
    with _poisoned_memory():
        for a, b in zip(found, _tensors(operator(*arguments)), strict=True):
            assert torch.equal(a, b), f"{operator}: an output is not written, or differs from run to run"
    compiled = torch.compile(lambda *given: operator(*given), fullgraph=True, dynamic=False)
    for a, b in zip(found, _tensors(compiled(*arguments)), strict=True):
        assert torch.equal(a, b), f"{operator}: torch.compile changes the result"
    torch.compiler.reset()
    if gradient:

        def first(*given: Any) -> tuple[Tensor, ...]:
            return _tensors(operator(*given))

        with _as_assertion(f"{operator}: wrong gradient"):
            torch.autograd.gradcheck(first, arguments)
        if second_gradient:
            with _as_assertion(f"{operator}: wrong second gradient"):
                torch.autograd.gradgradcheck(first, arguments)


def check_distance(
    distance: Distance,
    *,
    channels: int = 3,
    aligns: bool = True,
    differentiable: bool = True,
    shortest: int = 1,
    any_width: bool = False,
    seed: int = 0,
) -> None:
    """Check that a distance meets the contract of ``Distance``.

    Pairs equal single calls and entries of the matrix; it is symmetric if ``symmetric`` is True; neither padding nor
    the form of the input matters; lengths of 1, unequal lengths and empty batches work; dtypes are preserved; errors
    about bad input name the argument; gradients are correct, and zero in the padding; the alignment is monotone; no
    input is changed.

    shortest: the least number of steps of a sequence; shorter ones must raise an error. any_width: x and y may differ
        in their channels.

    Example:
        >>> import likewise as lw
        >>> check_distance(lw.DTW(band=2))
    """
    generator = torch.Generator().manual_seed(seed)
    x = _sequences([n + shortest - 1 for n in (5, 1, 2, 9, 4)], channels, generator)
    y = _sequences([n + shortest - 1 for n in (3, 6, 2, 1, 8)], channels, generator)
    _check_arguments_kept(distance, x, y, aligns)
    _check_values(distance, x, y)
    _check_padding(distance, x, y, differentiable)
    _check_dtypes(distance, x, y)
    _check_refusals(distance, x, y, any_width)
    if shortest > 1:
        short = Batch(x.values[:, : shortest - 1])
        _refused(lambda: distance(short, y), f"at least {shortest}", "a sequence that is too short")
    if differentiable:
        _check_gradient(distance, x[:2], y[:2])
    if aligns:
        _check_alignment(distance, x, y)
    empty = Batch(torch.empty(0, 4, channels, dtype=torch.float64))
    assert distance(empty, empty).shape == (0,), "an empty batch must return an empty result"
    assert distance.matrix(empty, y).shape == (0, len(y)), "an empty batch must return an empty matrix"


def check_loss(
    loss: torch.nn.Module, *, rectangular: bool = True, gradient: bool = True, distances: float = 1.0, seed: int = 0
) -> None:
    """Check that a loss meets the contract of ``Loss``: ``loss(D, row_labels, col_labels=None)`` is a scalar.

    Neither the order of items, nor the names of classes, nor the layout of D or the form of the labels matters; without
    col_labels the diagonal is not a pair, with them every cell is; dtypes agree; one class, singletons, ties, single
    items, empty matrices and huge distances have finite values and gradients; errors about bad input name the argument;
    no input is changed.

    rectangular: whether it takes col_labels. gradient: whether its gradient is that of its value, away from ties; False
        for a loss with detached weights. distances: the size of the distances to try.

    Example:
        >>> import likewise.losses
        >>> check_loss(likewise.losses.Contrastive())
    """
    generator = torch.Generator().manual_seed(seed)
    D = distances * (0.1 + torch.rand(9, 9, generator=generator, dtype=torch.float64))
    labels = torch.tensor([0, 1, 1, 2, 0, 2, 1, 0, 3])
    loss = copy.deepcopy(loss).double()
    _check_loss_values(loss, D, labels, generator)
    _check_loss_dtypes(loss, D, labels)
    _check_loss_extremes(loss, D, labels)
    _check_loss_refusals(loss, D, labels)
    if rectangular:
        _check_loss_columns(loss, D, labels, generator)
    if gradient:
        with _as_assertion("wrong gradient"):
            torch.autograd.gradcheck(lambda given: loss(given, labels), (D.clone().requires_grad_(),))


def _check_loss_values(loss: torch.nn.Module, D: Tensor, labels: Tensor, generator: torch.Generator) -> None:
    tolerance = TOLERANCE[torch.float64].value
    given, given_labels, state = D.clone(), labels.clone(), copy.deepcopy(loss.state_dict())
    value = loss(given, given_labels)
    assert value.shape == (), f"expected a scalar, got the shape {tuple(value.shape)}"
    assert torch.equal(given, D), "the loss changed D"
    assert torch.equal(given_labels, labels), "the loss changed the labels"
    for name, parameter in loss.state_dict().items():
        assert torch.equal(parameter, state[name]), f"the loss changed its {name}"
    order = torch.randperm(len(D), generator=generator)
    assert_close(loss(D[order][:, order], labels[order]), value, tolerance, "items in another order")
    assert_close(loss(D, 3 - labels), value, tolerance, "classes with other names")
    assert torch.equal(loss(D.T.contiguous().T, labels), value), "D that is not contiguous"
    for form in (labels.tolist(), labels.numpy(), labels.int()):
        assert torch.equal(loss(D, form), value), f"labels as {type(form).__name__}"
    blank = D.clone().fill_diagonal_(torch.nan).requires_grad_()
    with _as_assertion("without col_labels, the diagonal is not a pair"):
        found = loss(blank, labels)
        assert torch.equal(found, value), f"{found.item()} instead of {value.item()}"
    with _as_assertion("the loss cannot be differentiated"):
        (slope,) = torch.autograd.grad(found, blank)
    assert (slope.diagonal() == 0).all(), "without col_labels, the diagonal has no gradient"


def _check_loss_columns(loss: torch.nn.Module, D: Tensor, labels: Tensor, generator: torch.Generator) -> None:
    tolerance = TOLERANCE[torch.float64].value
    rows, columns = slice(0, 4), labels[:7]
    value = loss(D[rows, :7], labels[rows], columns)
    order = torch.randperm(4, generator=generator)
    assert_close(loss(D[rows, :7][order], labels[rows][order], columns), value, tolerance, "rows in another order")
    order = torch.randperm(7, generator=generator)
    assert_close(
        loss(D[rows, :7][:, order], labels[rows], columns[order]), value, tolerance, "columns in another order"
    )
    # If items are alone in their class, only the diagonal has positives.
    alone, spread, values = torch.arange(4), D.mean() * torch.linspace(0.5, 1.5, 4, dtype=D.dtype), set()
    for size in (0.0, 0.25, 0.5, 0.75, 1.0, 9.0):
        given = D[:4, :4] + torch.diag(size * spread - D.diagonal()[:4])
        values.add(loss(given, alone, alone).item())
    assert len(values) > 1, "with col_labels, the diagonal counts"
    for shape in ((0, 3), (3, 0)):
        _finite(loss, D[: shape[0], : shape[1]], torch.arange(shape[0]), torch.arange(shape[1]), f"a matrix {shape}")


def _check_loss_extremes(loss: torch.nn.Module, D: Tensor, labels: Tensor) -> None:
    count = len(D)
    for dtype in TOLERANCE:
        module = copy.deepcopy(loss).to(dtype)
        for matrix, classes, what in (
            (D, labels, "random distances"),
            (D, torch.zeros(count, dtype=torch.int64), "one class"),
            (D[:4, :4], torch.arange(4), "singletons"),
            (torch.ones_like(D), labels, "ties"),
            (torch.zeros_like(D), labels, "zeros"),
            (1e4 * D / D.max(), labels, "huge distances"),
            (D[:1, :1], labels[:1], "one item"),
            (D[:2, :2], labels[:2], "two items of two classes"),
            (D[:0, :0], labels[:0], "an empty matrix"),
        ):
            _finite(module, matrix.to(dtype), classes, None, f"{what} in {dtype}")


def _finite(loss: torch.nn.Module, D: Tensor, labels: Tensor, col_labels: Tensor | None, what: str) -> None:
    D = D.clone().requires_grad_()
    value = loss(D, labels, col_labels)
    assert value.isfinite(), f"{what}: the loss is {value.item()}"
    assert value.grad_fn is not None, f"{what}: the loss cannot be differentiated"
    (gradient,) = torch.autograd.grad(value, D)
    assert gradient.isfinite().all(), f"{what}: the gradient is not finite"


def _check_loss_dtypes(loss: torch.nn.Module, D: Tensor, labels: Tensor) -> None:
    for dtype, tolerance in TOLERANCE.items():
        rounded = D.to(dtype)
        found = copy.deepcopy(loss).to(dtype)(rounded, labels)
        wanted = torch.promote_types(dtype, torch.float32)
        assert found.dtype == wanted, f"{dtype} in, {found.dtype} out instead of {wanted}"
        assert_close(found, loss(rounded.double(), labels), tolerance.value, f"values in {dtype}", scale=1.0)


def _check_loss_refusals(loss: torch.nn.Module, D: Tensor, labels: Tensor) -> None:
    broken = D.clone()
    broken[3, 2] = torch.nan
    _refused(lambda: loss(broken, labels), "D[3, 2]", "NaN in D")
    _refused(lambda: loss(D[0], labels), "(N, M)", "D that is not a matrix")
    _refused(lambda: loss(D.long(), labels), "floating point", "D of integers")
    _refused(lambda: loss(D[:4], labels[:4]), "square", "a rectangular D without col_labels")
    _refused(lambda: loss(D, labels[:5]), "row_labels", "too few labels")
    _refused(lambda: loss(D, labels[:, None]), "row_labels", "labels of two dimensions")
    _refused(lambda: loss(D, labels.double()), "whole numbers", "labels that are not whole numbers")
    _refused(lambda: loss(D[:4], labels[:4], labels[:5]), "col_labels", "too few labels of columns")


def _check_arguments_kept(distance: Distance, x: Batch, y: Batch, aligns: bool) -> None:
    def read(a: Batch, b: Batch) -> object:
        alignment = distance.align(a, b)
        return alignment.value, alignment.plan, alignment.warp, alignment.path(0)

    calls = {"()": distance, ".matrix": distance.matrix} | ({".align": read} if aligns else {})
    for name, call in calls.items():
        a, b = copy.deepcopy((x, y))
        call(a, b)
        for now, then in ((a.values, x.values), (a.lengths, x.lengths), (b.values, y.values), (b.lengths, y.lengths)):
            assert torch.equal(now, then), f"{name} changed an argument"


def _check_values(distance: Distance, x: Batch, y: Batch) -> None:
    tolerance = TOLERANCE[torch.float64].value
    values = distance(x, y)
    assert values.shape == (len(x),), f"pairs: shape {tuple(values.shape)} instead of {(len(x),)}"
    single = torch.stack([distance(a[None], b[None])[0] for a, b in zip(x, y, strict=True)])
    assert_close(values, single, tolerance, "pairs in a batch against single pairs")
    matrix = distance.matrix(x, y)
    assert_close(matrix.diagonal(), values, tolerance, "diagonal of the matrix against pairs")
    assert_close(matrix[1], distance(Batch.cat([x[1:2]] * len(y)), y), tolerance, "row of the matrix against pairs")
    own = distance.matrix(x)
    assert_close(own, distance.matrix(x, copy.deepcopy(x)), tolerance, "matrix of x with itself")
    with redirect_stderr(io.StringIO()):
        assert_close(distance.matrix(x, y, progress=True), matrix, tolerance, "matrix with a progress bar")
        assert_close(distance.matrix(x, progress=True), own, tolerance, "matrix of x with itself, with a progress bar")
    if distance.symmetric:
        assert_close(matrix.T, distance.matrix(y, x), tolerance, "symmetry")
    assert_close(distance(x.to_list(), y.to_list()), values, tolerance, "lists against batches")


def _check_padding(distance: Distance, x: Batch, y: Batch, differentiable: bool) -> None:
    longer = torch.nn.functional.pad(x.values, (0, 0, 0, 3), value=torch.nan)
    beyond = torch.arange(longer.shape[1]) >= x.lengths[:, None]
    padded = Batch(longer.masked_fill(beyond[..., None], torch.nan).requires_grad_(), x.lengths)
    assert torch.equal(distance(padded, y), distance(x, y)), "the result depends on the padding"
    assert torch.equal(distance.matrix(padded, y), distance.matrix(x, y)), "the matrix depends on the padding"
    expanded = x.values[:1].expand(3, -1, -1)
    assert torch.equal(distance(expanded, expanded), distance(expanded.clone(), expanded.clone())), "expanded input"
    strided = x.values.repeat_interleave(2, dim=2)[:, :, ::2]
    assert torch.equal(distance(Batch(strided, x.lengths), y), distance(x, y)), "input that is not contiguous"
    if differentiable:
        (gradient,) = torch.autograd.grad(distance(padded, y).sum(), padded.values)
        assert gradient.isfinite().all(), "the gradient depends on the padding"
        assert (gradient[beyond] == 0).all(), "the gradient is not zero in the padding"


def _check_dtypes(distance: Distance, x: Batch, y: Batch) -> None:
    for dtype, tolerance in TOLERANCE.items():
        a, b = x.to(dtype), y.to(dtype)
        expected = copy.deepcopy(distance).double()(a.to(torch.float64), b.to(torch.float64))
        found = copy.deepcopy(distance).to(dtype)(a, b)
        assert found.dtype == dtype, f"{dtype} in, {found.dtype} out"
        assert_close(found, expected, tolerance.value, f"values in {dtype}", scale=1.0)


def _check_refusals(distance: Distance, x: Batch, y: Batch, any_width: bool) -> None:
    broken = x.values.clone()
    broken[3, 2, 0] = torch.nan
    _refused(lambda: distance(Batch(broken, x.lengths), y), "x[3]", "NaN inside a sequence")
    _refused(lambda: distance.matrix(y, Batch(broken, x.lengths)), "y[3]", "NaN inside a sequence")
    _refused(lambda: distance(x.values[0, :, 0], y), "x[None, :, None]", "a tensor without batch and channel")
    _refused(lambda: distance(x[:2], y), "2 sequences", "batches of different size")
    wider = Batch(x.values.repeat(1, 1, 2), x.lengths)
    if any_width:
        assert distance(wider, y).shape == (len(x),), "different channels"
        return
    _refused(lambda: distance(wider, y), "channels", "different channels")


def _check_gradient(distance: Distance, x: Batch, y: Batch) -> None:
    def values(a: Tensor, b: Tensor) -> Tensor:
        return distance(Batch(a, x.lengths), Batch(b, y.lengths))

    def matrix(a: Tensor, b: Tensor) -> Tensor:
        return distance.matrix(Batch(a, x.lengths), Batch(b, y.lengths))

    inputs = (x.values.clone().requires_grad_(), y.values.clone().requires_grad_())
    with _as_assertion("wrong gradient of pairs"):
        torch.autograd.gradcheck(values, inputs)
    with _as_assertion("wrong gradient of the matrix"):
        torch.autograd.gradcheck(matrix, inputs)


def _check_alignment(distance: Distance, x: Batch, y: Batch) -> None:
    alignment = distance.align(x, y)
    assert_close(alignment.value, distance(x, y), TOLERANCE[torch.float64].value, "value of the alignment")
    plan = alignment.plan
    assert plan.shape == (len(x), x.values.shape[1], y.values.shape[1]), "shape of the plan"
    assert (plan >= 0).all(), "the plan is negative"
    for dtype in TOLERANCE:
        found = copy.deepcopy(distance).to(dtype).align(x.to(dtype), y.to(dtype)).plan.dtype
        assert found == dtype, f"{dtype} in, a plan of {found} out"
    for b, (n, m) in enumerate(zip(x.lengths.tolist(), y.lengths.tolist(), strict=True)):
        assert plan[b, n:].abs().sum() == 0, "the plan is not zero in the padding of x"
        assert plan[b, :, m:].abs().sum() == 0, "the plan is not zero in the padding of y"
        path = alignment.path(b)
        assert len(path) > 0, "the path is empty"
        steps = path.diff(dim=0)
        assert ((steps >= 0) & (steps <= 1)).all(), "the path is not monotone"
        assert (steps.sum(1) > 0).all(), "the path stands still"
        assert ((path >= 0) & (path < torch.tensor([n, m]))).all(), "the path leaves the sequences"
        assert alignment.warp[b, :n].shape == (n,), "shape of the warp"


def _sequences(lengths: list[int], channels: int, generator: torch.Generator) -> Batch:
    items = [torch.randn(n, channels, generator=generator, dtype=torch.float64) for n in lengths]
    return Batch.from_list(items)


def _refused(call: Callable[[], object], words: str, what: str) -> None:
    message = None
    try:
        call()
    except (TypeError, ValueError) as error:
        message = str(error)
    assert message is not None, f"{what} is not refused"
    assert words in message, f"{what}: the message {message!r} does not say {words!r}"


def _tensors(result: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


@contextmanager
def _as_assertion(what: str) -> Iterator[None]:
    """Turn failures of PyTorch's checks into an AssertionError."""
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{what}: {error}") from error


@contextmanager
def _poisoned_memory() -> Iterator[None]:
    """Make torch.empty return NaN, which reveals unwritten outputs."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
