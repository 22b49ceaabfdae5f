"""How an operator is registered: C++ for CPU tensors, Triton for CUDA tensors, a clear error for anything else.

Operators take tensors and plain numbers, so that ``torch.compile`` can carry them through a graph. They are registered
with ``torch.library.define`` rather than ``custom_op``, which does the same but costs 20 microseconds more a call.
"""

import importlib
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor

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
    """Register likewise::<schema> and return it.

    ``triton`` names the CUDA kernel, "op.function" for likewise.ops.op.gpu.function: imported when first called, since
    it needs Triton. ``fake`` gives the shapes. Without ``backward``, differentiating raises.
    """
    name, op = schema[: schema.index("(")], triton.split(".")[0]
    _library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    _library.impl(name, cpu, "CPU")
    _library.impl(name, lambda *arguments: _run_triton(op, triton, arguments), "CUDA")
    _library.impl(name, lambda *arguments: _no_kernel(op, arguments), "CompositeExplicitAutograd")
    torch.library.register_fake(f"likewise::{name}", fake, lib=_library)
    run = getattr(torch.ops.likewise, name).default
    if backward is not None:
        _library.impl(name, _with_derivative(run, save, backward), "Autograd", with_keyset=True)
    return run


def _with_derivative(
    run: torch._ops.OpOverload, save: Callable[..., None] | None, backward: Callable[..., Any]
) -> Callable[..., Any]:
    """What ``torch.library.register_autograd`` makes, less its search for default arguments, of which we have none: on
    a GPU that took longer than a short kernel.
    """

    class Derivative(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, keys: Any, *arguments: Any) -> Any:
            with torch._C._AutoDispatchBelowAutograd():
                output = run.redispatch(keys & torch._C._after_autograd_keyset, *arguments)
            if save is not None:
                save(ctx, arguments, output)
            return output

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:  # type: ignore[override]
            return None, *backward(ctx, *grads)

    def implementation(keys: Any, *arguments: Any) -> Any:
        if torch.is_grad_enabled() and any(isinstance(a, Tensor) and a.requires_grad for a in arguments):
            return Derivative.apply(keys, *arguments)
        with torch._C._AutoDispatchBelowAutograd():
            return run.redispatch(keys & torch._C._after_autograd_keyset, *arguments)

    return implementation


def _run_triton(op: str, kernel: str, arguments: tuple[Any, ...]) -> Any:
    folder, function = kernel.split(".")
    try:
        module = importlib.import_module(f"likewise.ops.{folder}.gpu")
    except ImportError as error:
        _no_kernel(op, arguments, f"could not be imported ({error})")
    device = _device(arguments)
    if device.index == torch.cuda.current_device():
        return getattr(module, function)(*arguments)
    with torch.cuda.device(device):
        return getattr(module, function)(*arguments)


def _device(arguments: tuple[Any, ...]) -> torch.device:
    return next(argument.device for argument in arguments if isinstance(argument, Tensor))


def _no_kernel(op: str, arguments: tuple[Any, ...], why_no_triton: str = "needs CUDA tensors") -> NoReturn:
    device = _device(arguments)
    raise NotImplementedError(
        f"{op}: no kernel for tensors on {device}: the C++ kernel needs CPU tensors; the Triton kernel {why_no_triton}"
    )
