"""Powers and logarithms of 2 for soft minima, in the special function units."""

import triton
import triton.language as tl


@triton.jit
def _unit_power(x):
    return tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1)


@triton.jit
def _unit_power_of_gap(x):  # the unit reads a number without its sign, or with the other one, at no cost
    return tl.inline_asm_elementwise(
        "{ .reg .f32 t; abs.f32 t, $1; neg.f32 t, t; ex2.approx.ftz.f32 $0, t; }", "=f,f", [x], tl.float32,
        is_pure=True, pack=1,
    )  # fmt: skip


@triton.jit
def _unit_logarithm(x):
    return tl.inline_asm_elementwise("lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1)


@triton.jit
def _unit_inverse(x):
    return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1)


# Triton's own functions also handle numbers that do not occur here, and take many times as long.
COMPILED = tl.constexpr(isinstance(_unit_power, triton.runtime.JITFunction))


@triton.jit
def power(x):
    """2 to the x."""
    if COMPILED and x.dtype == tl.float32:
        return _unit_power(x)
    return tl.exp2(x)


@triton.jit
def power_of_gap(x):
    """2 to the -|x|."""
    if COMPILED and x.dtype == tl.float32:
        return _unit_power_of_gap(x)
    return tl.exp2(-tl.abs(x))


@triton.jit
def logarithm(x):
    """log2 x, x positive."""
    if COMPILED and x.dtype == tl.float32:
        return _unit_logarithm(x)
    return tl.log2(x)


@triton.jit
def inverse(x):
    """1 / x, x positive."""
    if COMPILED and x.dtype == tl.float32:
        return _unit_inverse(x)
    return 1.0 / x
