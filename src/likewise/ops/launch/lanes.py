"""Conditions that all lanes of a program share."""

import triton
import triton.language as tl


@triton.jit
def agreed(memory, condition):
    """A condition that is the same in all lanes, read from memory, where the compiler sees that it is the same.

    A loop that its lanes might leave one by one makes the shuffles of a sum wait for one another. ``memory`` must be
    the program's own.
    """
    tl.store(memory, condition.to(memory.dtype.element_ty))
    tl.debug_barrier()
    condition = tl.load(memory) != 0
    tl.debug_barrier()
    return condition
