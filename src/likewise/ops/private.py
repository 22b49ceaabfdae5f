"""The private and undocumented parts of PyTorch and Triton that likewise uses, and the versions tested with them.

PyTorch, behind ``torch_is_tried``; with another version, operators go through PyTorch's dispatcher, which is slower:

=======================================  ==============================================  ==================
name                                     used by                                         tried with torch
=======================================  ==============================================  ==================
torch._C._len_torch_dispatch_stack       ops/dispatch.py: is a mode active?              2.11, 2.13
torch._C._get_tracing_state              ops/dispatch.py: is torch.jit tracing?          2.11, 2.13
torch._C._functorch.                     ops/dispatch.py: is a transform active?         2.11, 2.13
  peek_interpreter_stack
torch._C._AutoDispatchBelowAutograd,     ops/dispatch.py: an operator's derivative,      2.11, 2.13
  _after_autograd_keyset,                  as torch.library.register_autograd makes it
  OpOverload.redispatch
=======================================  ==============================================  ==================

PyTorch, with every version that has them:

=======================================  ==============================================  ==================
torch._C._cuda_getCurrentRawStream       ops/launch/driver.py: the driver's handle       2.11
torch.ops.aten._softmax_backward_data    ops/additive_attention/reference.py             2.11, 2.13
Function.apply past its own search       ops/soft_dtw/gpu: a call without transforms     2.11
  for transforms
Module._forward_pre_hooks, _BatchNorm    models/frozen_batch_norm.py                     2.11, 2.13
_BatchNorm, its _check_input_dim         training/batch_norm.py                          2.13
=======================================  ==============================================  ==================

Triton, unless ``untried``; with another version, Triton launches its kernels itself:

=======================================  ==============================================  ==================
name                                     used by                                         tried with triton
=======================================  ==============================================  ==================
runtime.JITFunction, its warmup,         ops/launch/launcher.py: kernels are compiled    3.6
  arg_names and do_not_specialize          once for each kind of arguments
the compiled kernel's [grid],            ops/launch/launcher.py, driver.py: kernels      3.6
  metadata, function, src.signature        are launched by the CUDA driver
how integers are specialised             ops/launch/launcher.py, ``_kind``               3.6, 3.9
=======================================  ==============================================  ==================

To try another version: run the tests on a GPU with ``LIKEWISE_QUICK_LAUNCH=1``, then add it to the lists below.
tests/ops/test_private.py finds private names that are used elsewhere.
"""

from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

TORCH_VERSIONS = ("2.11", "2.13")
LAUNCH_VERSIONS = {"torch": ("2.11", "2.13"), "triton": ("3.6",)}  # of the launcher, tried on a GPU


def is_among(found: str, tried: tuple[str, ...]) -> bool:
    """Whether a version, such as 2.13.0+cpu, is one of those tried, such as 2.13.

    Example:
        >>> is_among("2.13.0+cpu", ("2.11", "2.13")), is_among("2.1.3", ("2.13",))
        (True, False)
    """
    return ".".join(found.split(".")[:2]) in tried


def untried() -> list[str]:
    """The installed versions with which the quick launcher was not tested.

    Example:
        >>> all(name.split()[0] in ("torch", "triton") for name in untried())
        True
    """
    found = {"torch": torch.__version__, "triton": _triton_version()}
    return [f"{name} {found[name]}" for name, tried in LAUNCH_VERSIONS.items() if not is_among(found[name], tried)]


def _triton_version() -> str:
    for name in ("triton", "pytorch-triton"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "of unknown version"


torch_is_tried = is_among(torch.__version__, TORCH_VERSIONS)

interpreters: Any = None
dispatch_modes: Any = None
tracing_state: Any = None
below_autograd: Any = None
keys_below_autograd: Any = None
if torch_is_tried:  # otherwise never used
    from torch._C import _functorch  # type: ignore[attr-defined]

    interpreters = _functorch.peek_interpreter_stack
    dispatch_modes = torch._C._len_torch_dispatch_stack
    tracing_state = torch._C._get_tracing_state
    below_autograd = torch._C._AutoDispatchBelowAutograd
    keys_below_autograd = torch._C._after_autograd_keyset

softmax_backward = torch.ops.aten._softmax_backward_data


def current_stream(device: int) -> int:
    """The driver's handle of the stream that PyTorch launches on."""
    return torch._C._cuda_getCurrentRawStream(device)
