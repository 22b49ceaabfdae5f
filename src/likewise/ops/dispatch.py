"""Registration of operators: C++ for CPU tensors, Triton for CUDA tensors, a clear error for anything else.

Operators take tensors and plain numbers, so that ``torch.compile`` can carry them through a graph. They are registered
with ``torch.library.define`` rather than ``custom_op``, which does the same but takes 20 microseconds more per call.
Calls skip the dispatcher if it has nothing to do and this was tested with the installed PyTorch (``private.py``).
"""

import functools
import importlib
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from likewise.ops import private

HAS_TRITON = find_spec("triton") is not None

_library = torch.library.Library("likewise", "FRAGMENT")


def operator(
    schema: str,
    *,
    cpu: Callable[..., Any],
    triton: str,
    fake: Callable[..., Any],
    save: Callable[..., None] | None = None,
    backward: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """Register likewise::<schema> and return a function that calls it.

    ``triton`` names the CUDA kernel, "op.function" for likewise.ops.op.gpu.function. It is imported when it is first
    called, since it needs Triton. ``fake`` gives the shapes. Without ``backward``, differentiating raises an error.
    """
    name, op = schema[: schema.index("(")], triton.split(".")[0]

    def on_gpu(*arguments: Any) -> Any:
        return _run_triton(op, triton, arguments)

    def kernel(*arguments: Any) -> Any:
        return cpu(*arguments) if arguments[0].is_cpu else on_gpu(*arguments)

    _library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    _library.impl(name, cpu, "CPU")
    _library.impl(name, on_gpu, "CUDA")
    _library.impl(name, lambda *arguments: _no_kernel(op, arguments), "CompositeExplicitAutograd")
    torch.library.register_fake(f"likewise::{name}", fake, lib=_library)
    run = getattr(torch.ops.likewise, name).default
    if not private.torch_is_tried:
        if backward is not None:
            torch.library.register_autograd(f"likewise::{name}", backward, setup_context=save, lib=_library)
        return run
    derivative = _derivative(run, kernel, save, backward)
    if derivative is not None:
        _library.impl(name, _with_derivative(run, derivative), "Autograd", with_keyset=True)

    def call(*arguments: Any) -> Any:
        x = arguments[0]
        if not (x.is_cpu or x.is_cuda) or not nobody_watches(arguments):
            return run(*arguments)
        if derivative is not None and _wants_gradient(arguments):
            return derivative.apply(None, *arguments)
        return cpu(*arguments) if x.is_cpu else on_gpu(*arguments)

    return call


def are_plain(arguments: tuple[Any, ...]) -> bool:
    """Whether these are plain CUDA tensors, without tracing, transforms or overrides."""
    return arguments[0].is_cuda and nobody_watches(arguments)


def nobody_watches(arguments: tuple[Any, ...]) -> bool:
    """Whether these are plain tensors, without tracing, transforms or overrides.

    The operator would then only call our kernel, through four layers between C++ and Python that take longer than a
    short kernel. So the kernel is called directly.
    """
    if not private.torch_is_tried or torch.compiler.is_compiling() or private.dispatch_modes():
        return False
    if private.tracing_state() is not None or private.interpreters() is not None:
        return False
    for a in arguments:  # a loop: a generator takes twice as long
        # A tensor may be stored negated, like the imaginary part of a conjugate: the dispatcher would resolve that.
        if isinstance(a, Tensor) and (type(a) not in _PLAIN or a.layout is not torch.strided or a.is_neg()):
            return False
    return True


_PLAIN = (Tensor, nn.Parameter)


def _wants_gradient(arguments: tuple[Any, ...]) -> bool:
    if torch.is_grad_enabled():
        for a in arguments:  # written out, as above
            if isinstance(a, Tensor) and a.requires_grad:
                return True
    return False


def _derivative(
    run: Any,
    kernel: Callable[..., Any],
    save: Callable[..., None] | None,
    backward: Callable[..., Any] | None,
) -> type[torch.autograd.Function] | None:
    """The result of ``torch.library.register_autograd``, without its search for default arguments, which we do not use.

    On a GPU that search took longer than a short kernel. Without dispatch keys, the kernel is called directly.
    """
    if backward is None:
        return None

    class Derivative(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, keys: Any, *arguments: Any) -> Any:
            if keys is None:
                output = kernel(*arguments)
            else:
                with private.below_autograd():
                    output = run.redispatch(keys & private.keys_below_autograd, *arguments)
            if save is not None:
                save(ctx, arguments, output)
            return output

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:  # type: ignore[override]
            return None, *backward(ctx, *grads)

    return Derivative


def _with_derivative(run: Any, derivative: type[torch.autograd.Function]) -> Callable[..., Any]:
    def implementation(keys: Any, *arguments: Any) -> Any:
        if _wants_gradient(arguments):
            return derivative.apply(keys, *arguments)
        with private.below_autograd():
            return run.redispatch(keys & private.keys_below_autograd, *arguments)

    return implementation


def _run_triton(op: str, kernel: str, arguments: tuple[Any, ...]) -> Any:
    try:
        triton_function(kernel)
    except ImportError as error:
        _no_kernel(op, arguments, f"could not be imported ({error})")
    return run_triton(kernel, _device(arguments), *arguments)


def run_triton(kernel: str, device: torch.device, *arguments: Any) -> Any:
    """Call likewise.ops.op.gpu.function, given "op.function", with ``device`` as the current device."""
    run = triton_function(kernel)
    if device.index == torch.cuda.current_device():
        return run(*arguments)
    with torch.cuda.device(device):
        return run(*arguments)


@functools.cache
def triton_function(kernel: str) -> Callable[..., Any]:
    """Return likewise.ops.op.gpu.function, given "op.function"; it is imported on first use."""
    folder, function = kernel.split(".")
    return getattr(importlib.import_module(f"likewise.ops.{folder}.gpu"), function)


def _device(arguments: tuple[Any, ...]) -> torch.device:
    return next(argument.device for argument in arguments if isinstance(argument, Tensor))


def _no_kernel(op: str, arguments: tuple[Any, ...], why_no_triton: str = "needs CUDA tensors") -> NoReturn:
    device = _device(arguments)
    raise NotImplementedError(
        f"{op}: no kernel for tensors on {device}: the C++ kernel needs CPU tensors; the Triton kernel {why_no_triton}"
    )
