"""Ask for memory long before it is read: a few warps do not hide how long it takes."""

import triton
import triton.language as tl

from likewise.ops.engine.powers import COMPILED

LINE = tl.constexpr(32)  # numbers of float32 that memory delivers together
FAR = 4  # turns ahead


@triton.jit
def _prefetch(address):
    return tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.b32 $0, 0;", "=r,l", [address], tl.int32, is_pure=False, pack=1
    )


@triton.jit
def ask_for(pointers):
    """Have memory brought to the cache."""
    if COMPILED:
        _prefetch(pointers.to(tl.int64))
