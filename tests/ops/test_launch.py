"""How the Triton kernels are compiled and launched: with addresses, as on a GPU, and without one."""

import ctypes
import functools
import os
import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

import likewise.ops.soft_dtw as cpu_soft_dtw
from likewise import _native
from likewise.ops.launch import is_quick, quick, switch
from likewise.ops.rules import Rules
from likewise.testing import assert_close

pytest.importorskip("triton")
import triton

from likewise.ops.engine import inputs, products, warps
from likewise.ops.launch import driver, launcher, tape
from likewise.ops.soft_dtw import gpu as soft_dtw
from likewise.ops.soft_dtw.gpu import backwards, gradients

ON_GPU = torch.cuda.is_available() and os.environ["TRITON_INTERPRET"] == "0"
pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # inf - inf in padding, in the interpreter
    pytest.mark.skipif(ON_GPU, reason="stands in for a GPU"),
]


MADE = []  # compiled kernels, by their handle less one
STREAM, REFUSED = 7, 8


class FakeKernel(triton.runtime.JITFunction):
    """Compiles like Triton's kernels, and runs in the interpreter on the memory at the given addresses."""

    def __init__(self, interpreted, arg_names, do_not_specialize=()):
        self.interpreted, self.arg_names, self.do_not_specialize = interpreted, arg_names, do_not_specialize
        self.compiled_for, self.calls = [], []

    def warmup(self, *arguments, grid, num_warps, num_stages, **constants):
        self.compiled_for.append([a for a in arguments if not isinstance(a, torch.Tensor)])
        return FakeCompiled(self, arguments, num_warps, constants)


class FakeCompiled:
    """A compiled kernel, with its handle for the driver and Triton's metadata."""

    def __init__(self, kernel, arguments, num_warps, constants):
        self.kernel, self.count, self.compiled_with = kernel, len(arguments), arguments
        self.constants = [constants[name] for name in kernel.arg_names[len(arguments) :]]
        self.tensors = [
            (t.dtype, t.untyped_storage().nbytes() + t.untyped_storage().data_ptr() - t.data_ptr())
            for t in arguments
            if isinstance(t, torch.Tensor)
        ]
        kinds = dict.fromkeys(kernel.arg_names, "constexpr")
        for name, a in zip(kernel.arg_names, arguments, strict=False):
            if isinstance(a, torch.Tensor):
                kinds[name] = "*"
            elif a != 1 or name in kernel.do_not_specialize:
                kinds[name] = "i32" if -(2**31) <= a < 2**31 else "i64"
        self.src = SimpleNamespace(signature=kinds)
        self.metadata = SimpleNamespace(num_ctas=1, num_warps=num_warps, shared=48)
        MADE.append(self)
        self.function = len(MADE)

    def __getitem__(self, grid):
        def run(*arguments):
            kernel, tensors = self.kernel, len(self.tensors)
            numbers, constants = arguments[tensors : self.count], arguments[self.count :]
            kernel.calls.append((grid, numbers, constants))
            if kernel.interpreted is not None:
                there = [at(a, *kind) for a, kind in zip(arguments[:tensors], self.tensors, strict=True)]
                names = kernel.arg_names[self.count :]
                kernel.interpreted[grid](*there, *numbers, **dict(zip(names, constants, strict=True)))

        return run

    def launched(self, grid, parameters):
        """Behaves like the driver: parameters are addresses, from which it reads the width of their types."""
        kinds, found, parameters = self.src.signature.values(), [], iter(parameters)
        for kind, given in zip(kinds, self.compiled_with, strict=False):
            if kind == "constexpr":
                found.append(given)
            else:
                read = {"*": ctypes.c_uint64, "i32": ctypes.c_int32, "i64": ctypes.c_int64}[kind]
                found.append(read.from_address(next(parameters)).value)
        self[grid](*found, *self.constants)


@ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_size_t,
    *[ctypes.c_uint] * 7,
    ctypes.c_size_t,
    ctypes.POINTER(ctypes.c_size_t),
    ctypes.c_size_t,
)
def launch_kernel(function, x, y, z, threads, _threads_y, _threads_z, shared, stream, parameters, _extra):
    """Replaces cuLaunchKernel."""
    compiled = MADE[function - 1]
    if stream == REFUSED:
        return 201
    assert (threads, shared, stream) == (32 * compiled.metadata.num_warps, 48, STREAM)
    compiled.launched((x, y, z), parameters)
    return 0


def at(address, dtype, size):
    return torch.frombuffer((ctypes.c_char * size).from_address(address), dtype=dtype)


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    for module, name in ((launcher, "_ready"), (launcher, "_compiled"), (tape, "_tapes")):
        monkeypatch.setattr(module, name, {})
    address = ctypes.cast(launch_kernel, ctypes.c_void_p).value
    monkeypatch.setattr(driver, "functions", lambda: (address, 0))
    monkeypatch.setattr(driver, "current_stream", lambda device: STREAM)
    with quick(True):  # whatever is installed
        yield


def test_lengths_that_change_do_not_compile_anew():
    kernel = FakeKernel(None, ["x", "steps", "columns", "BLOCK"], do_not_specialize=["columns"])
    x, lengths = torch.zeros(4), [*range(1, 200), 16, 1, 17]
    for steps in lengths:
        launcher.launch(kernel, (3, 2), (x,), (steps, steps), 4, BLOCK=32)
    assert [numbers for numbers, *_ in kernel.compiled_for] == [1, 2, 16]  # one, any, a multiple of 16
    assert [numbers for _, numbers, _ in kernel.calls] == [(steps, steps) for steps in lengths]
    assert {(grid, constants) for grid, _, constants in kernel.calls} == {((3, 2, 1), (32,))}


def test_a_call_like_one_before_goes_to_the_driver(monkeypatch):
    kernel = FakeKernel(None, ["x", "y", "steps", "BLOCK"])
    by_driver = []
    launched = FakeCompiled.launched
    monkeypatch.setattr(FakeCompiled, "launched", lambda self, *a: by_driver.append(1) or launched(self, *a))
    same = torch.zeros(4)
    for x, y in ((same, same), (torch.zeros(4), torch.zeros(4)), (torch.zeros(4), same)):  # one tensor twice at first
        launcher.launch(kernel, (3,), (x, y), (5,), 4, BLOCK=32)
    assert (len(kernel.calls), len(by_driver)) == (3, 2)
    assert set(kernel.calls) == {((3, 1, 1), (5,), (32,))}
    monkeypatch.setattr(driver, "current_stream", lambda device: REFUSED)  # no context in this thread: Triton launches
    launcher.launch(kernel, (3,), (same, same), (5,), 4, BLOCK=32)
    assert (len(kernel.calls), len(by_driver)) == (4, 2)
    monkeypatch.setattr(driver, "functions", lambda: None)  # another maker's GPU
    for _ in range(2):
        launcher.launch(kernel, (4,), (same, same), (5,), 4, BLOCK=32)
    assert (len(kernel.calls), len(by_driver)) == (6, 2)


@pytest.mark.parametrize(
    "other",
    [
        {"numbers": (1 << 40,)},
        {"num_warps": 8},
        {"tensors": (torch.zeros(4, dtype=torch.float64),)},
        {"constants": {"BLOCK": 64}},
    ],
)
def test_kernels_are_compiled_once_per_specialisation(other):
    kernel = FakeKernel(None, ["x", "steps", "BLOCK"])
    for change in ({}, other, {}, other):
        call = {"tensors": (torch.zeros(4),), "numbers": (5,), "num_warps": 4, "constants": {"BLOCK": 32}} | change
        launcher.launch(kernel, (1,), call["tensors"], call["numbers"], call["num_warps"], **call["constants"])
    assert len(kernel.compiled_for) == 2
    assert len(kernel.calls) == 4


def test_kinds_are_those_of_the_installed_triton():
    try:
        from triton._C.libtriton import native_specialize_impl
        from triton.backends.nvidia.compiler import CUDABackend
    except ImportError:
        pytest.skip("this Triton specialises elsewhere")
    edges = [0, 1, 2, 15, 16, -16, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63 - 1, 2**63, 2**64 - 1]
    for specialized in (True, False):
        known = [native_specialize_impl(CUDABackend, number, False, specialized, True) for number in edges]
        kinds = [launcher._kind(number, specialized) for number in edges]
        for a, first in zip(kinds, known, strict=True):
            for b, second in zip(kinds, known, strict=True):
                assert a != b or first == second, "one kernel for what Triton compiles twice"


def test_tensors_off_16_bytes_go_through_triton():
    kernel, ran = FakeKernel(None, ["x", "steps"]), []
    FakeKernel.__getitem__ = lambda self, grid: lambda *a, **options: ran.append((grid, a[1:], options))
    launcher.launch(kernel, (1,), (torch.zeros(8)[1:],), (5,), 4)
    del FakeKernel.__getitem__
    assert ran == [((1,), (5,), {"num_warps": 4, "num_stages": 1})]
    assert not kernel.compiled_for


class PlainKernel(FakeKernel):
    """Also replaces Triton's own launcher, kernel[grid](...)."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.by_triton = []

    def __getitem__(self, grid):
        return lambda *given, **options: self.by_triton.append((grid, given[1:], options))


def test_switched_off_triton_launches_everything():
    kernel, x = PlainKernel(None, ["x", "steps", "BLOCK"]), torch.zeros(4)
    expected = ((3,), (5,), {"num_warps": 4, "num_stages": 1, "BLOCK": 32})
    launcher.launch(kernel, (3,), (x,), (5,), 4, BLOCK=32)
    assert (len(kernel.calls), kernel.by_triton) == (1, [])
    with quick(False):
        assert not is_quick()
        for _ in range(2):
            launcher.launch(kernel, (3,), (x,), (5,), 4, BLOCK=32)
    assert (len(kernel.calls), kernel.by_triton) == (1, [expected] * 2)
    assert is_quick()
    launcher.launch(kernel, (3,), (x,), (5,), 4, BLOCK=32)
    assert (len(kernel.calls), len(kernel.by_triton)) == (2, 2)


def test_switched_off_nothing_is_recorded_or_repeated(monkeypatch):
    x, y, rest = torch.randn(2, 5, 2), torch.randn(2, 5, 2), (1.0, False, *Rules().plain())
    expected = cpu_soft_dtw._soft_dtw_with_grad(x, y, None, None, *rest)
    monkeypatch.setattr(tape.Tape, "run", lambda *given: pytest.fail("a tape was repeated"))
    with quick(False):
        for _ in range(2):
            found = soft_dtw.value_with_grad(x, y, None, None, *rest)
            for f, e in zip(found, expected, strict=True):
                assert_close(f, e, 1e-4, "switched off", scale=1e-2)
    assert not tape._tapes
    key = soft_dtw._key(x, y, rest)
    tape._tapes[key] = object()
    assert tape.find(key) is not None
    with quick(False):
        assert tape.find(key) is None


def test_unknown_versions_are_left_to_triton_and_said_once(monkeypatch, caplog):
    monkeypatch.setattr(switch, "_by_versions", functools.cache(switch._by_versions.__wrapped__))
    monkeypatch.setattr(switch.private, "untried", lambda: ["torch 9.1.0"])
    kernel, x = PlainKernel(None, ["x"]), torch.zeros(4)
    with quick(None), caplog.at_level("DEBUG", "likewise.ops.launch"):
        for _ in range(3):
            launcher.launch(kernel, (1,), (x,), (), 4)
        assert not is_quick()
    assert (len(kernel.by_triton), kernel.calls) == (3, [])
    assert [record.message for record in caplog.records] == [
        "Triton launches its kernels itself: the quick launcher has not been tried with torch 9.1.0"
    ]


def test_tried_versions_are_quick(monkeypatch):
    monkeypatch.setattr(switch, "_by_versions", functools.cache(switch._by_versions.__wrapped__))
    monkeypatch.setattr(switch.private, "untried", list)
    with quick(None):
        assert is_quick()


@pytest.mark.parametrize(("value", "expected"), [("0", "False"), ("1", "True"), ("", "None")])
def test_the_environment_switches_it(value, expected):
    code = "from likewise.ops.launch import switch; print(switch._switch.on)"
    environment = os.environ | {"LIKEWISE_QUICK_LAUNCH": value}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == expected


@pytest.fixture
def by_address(monkeypatch):
    """Every kernel of soft-DTW runs on addresses."""
    for module, name in (
        (inputs, "look_kernel"),
        (products, "product_kernel"),
        (warps, "warps_kernel"),
        (backwards, "backwards_kernel"),
        (gradients, "gradient_kernel"),
        (gradients, "weighted_kernel"),
    ):
        kernel = getattr(module, name)
        monkeypatch.setattr(module, name, FakeKernel(kernel, kernel.arg_names))


@pytest.mark.parametrize(("channels", "lanes", "root", "dtype"), [(2, 16, False, 4), (18, 4, True, 8)])
def test_a_call_like_one_before_only_repeats_its_launches(channels, lanes, root, dtype, by_address, monkeypatch):
    for module in (warps, backwards):
        monkeypatch.setattr(module, "LANES", lanes)  # one strip, or two
    monkeypatch.setattr(products, "TILE", 16)
    torch.manual_seed(0)
    dtype = {4: torch.float32, 8: torch.float64}[dtype]
    launches = []

    def launch(*arguments, **constants):
        launches.append(arguments[0])
        launcher.launch(*arguments, **constants)

    for module in (inputs, products, warps, backwards, gradients):
        monkeypatch.setattr(module, "launch", launch)
    for repeat in range(3):
        x, y = torch.randn(2, 7, channels, dtype=dtype), torch.randn(2, 6, channels, dtype=dtype)
        arguments = (x, y, None, None, 0.7, root, *Rules().plain())
        found, expected = soft_dtw.value_with_grad(*arguments), cpu_soft_dtw._soft_dtw_with_grad(*arguments)
        for f, e in zip(found, expected, strict=True):
            assert_close(f, e, 2e-4 if dtype == torch.float32 else 1e-9, f"call {repeat}", scale=1e-2)
    assert len(launches) == 4 + (channels > 16), "the first call launches, the next two repeat it"
    assert len(tape._tapes) == 1
    y[1, 2, 0] = torch.nan
    with pytest.raises(ValueError, match=r"soft_dtw: y\[1\] holds nan at step 2, channel 0"):
        soft_dtw.value_with_grad(x, y, None, None, 0.7, root, *Rules().plain())


def test_lengths_that_are_all_steps_are_none_and_others_are_not_repeated(by_address):
    x, y = torch.randn(2, 5, 2), torch.randn(2, 5, 2)
    rest = (1.0, False, *Rules().plain())
    whole, some = torch.tensor([5, 5]), torch.tensor([5, 3])
    for lengths in ((None, None), (whole, whole), (whole, None)):
        soft_dtw.value_with_grad(x, y, *lengths, *rest)
    assert len(tape._tapes) == 1
    arguments = (x, y, some, whole, *rest)
    launcher._compiled.clear()  # the stand-in knows the sizes of one call
    launcher._ready.clear()
    found, expected = soft_dtw.value_with_grad(*arguments), cpu_soft_dtw._soft_dtw_with_grad(*arguments)
    assert_close(found[0], expected[0], 1e-5, "value")
    assert len(tape._tapes) == 1
    same = soft_dtw.value_with_grad(x, x, None, None, *rest)[0]
    assert_close(same, cpu_soft_dtw._soft_dtw(x, x, None, None, *rest), 1e-5, "x with itself")
    assert len(tape._tapes) == 2, "x with itself has a tape of its own"


def test_the_lengths_that_a_kernel_checks(monkeypatch):
    monkeypatch.setattr(inputs, "_given", lambda pairs, name, lengths, steps: lengths)  # as if on the GPU
    monkeypatch.setattr(soft_dtw, "unless_full", lambda lengths, steps: lengths)
    x, y, rest = torch.randn(2, 5, 2), torch.randn(2, 4, 2), (1.0, False, *Rules().plain())
    x[0, 3:], y[1, 2:] = torch.nan, torch.inf
    lengths = torch.tensor([3, 5]), torch.tensor([4, 2])
    found, expected = (
        soft_dtw.value_with_grad(x, y, *lengths, *rest),
        cpu_soft_dtw._soft_dtw_with_grad(x, y, *lengths, *rest),
    )
    for f, e in zip(found, expected, strict=True):
        assert_close(f, e, 1e-4, "with lengths", scale=1e-2)
    for wrong in (0, 6):
        with pytest.raises(ValueError, match=rf"soft_dtw: x_lengths\[1\] is {wrong}; lengths must be between 1 and 5"):
            soft_dtw.value_with_grad(x, y, torch.tensor([3, wrong]), lengths[1], *rest)


def test_weights_reach_both_gradients(by_address):
    for _ in range(3):  # the first launches, the others repeat it
        x, y, weights = torch.randn(3, 5, 2), torch.randn(3, 4, 2), torch.randn(6)[::2]
        for w in (weights, torch.tensor(2.0).expand(3), torch.randn(3)):
            launcher._compiled.clear()  # the stand-in knows the sizes of one call
            launcher._ready.clear()
            found = gradients.weighted(x, y, w)
            assert torch.equal(found[0], w[:, None, None] * x)
            assert torch.equal(found[1], w[:, None, None] * y)
    assert len(tape._tapes) == 3


def test_a_driver_that_refuses_leaves_it_to_triton(by_address, monkeypatch):
    x, y, rest = torch.randn(2, 5, 2), torch.randn(2, 5, 2), (1.0, False, *Rules().plain())
    first = soft_dtw.value_with_grad(x, y, None, None, *rest)
    monkeypatch.setattr(driver, "current_stream", lambda device: REFUSED)  # no context in this thread
    for found, expected in zip(soft_dtw.value_with_grad(x, y, None, None, *rest), first, strict=True):
        assert torch.equal(found, expected)
    monkeypatch.setattr(tape, "_tapes", {})
    monkeypatch.setattr(driver, "functions", lambda: None)  # another maker's GPU
    soft_dtw.value_with_grad(x, y, None, None, *rest)
    assert not tape._tapes


def test_launches_are_repeated_on_tensors_like_those_before(monkeypatch):
    kernel, ran = FakeKernel(None, ["x", "y", "size", "BLOCK"]), []

    def run(x, y, settings=(), change=lambda x: x):
        def work():
            ran.append(x)
            launcher.launch(kernel, (1,), (change(x), y), (len(x),), 4, BLOCK=2)

        tape.repeat("test", work, (x, y), settings)

    x, y, z = torch.zeros(3, 8)
    for given in ((x, y), (y, z), (z, x)):
        run(*given)
    assert len(ran) == 1
    assert len(kernel.calls) == 3
    others = ((x, x), (torch.zeros(6), y), (torch.zeros(16)[::2], y), (x.double(), y))
    for given in others:  # the same tensor twice, another size, other strides, another type
        run(*given)
    run(x, y, ("other settings",))
    assert len(ran) == len(tape._tapes) == 6
    for _ in range(2):
        run(x, y, ("a copy",), torch.clone)
    assert len(ran) == 8, "the copy has another address each time"
    assert len(kernel.calls) == 10
    monkeypatch.setattr(driver, "current_stream", lambda device: REFUSED)
    run(x, y)
    assert len(ran) == 9, "Triton launches it"


def test_a_tape_wants_an_address_for_every_slot():
    launches = _native.Tape(ctypes.cast(launch_kernel, ctypes.c_void_p).value, 0)
    with pytest.raises(ValueError, match="three sizes and at most 56 parameters"):
        launches.add(1, (1, 1), 32, 0, [0], [0])
    launches.add(1, (1, 1, 1), 32, 0, [1, -1], [0, 5])
    with pytest.raises(ValueError, match="an address for every slot"):
        launches.run(STREAM, 0, (64,))


def test_the_derivative_of_plain_tensors(by_address, monkeypatch):
    """Differentiable, which replaces the operator on a GPU, has its first and second derivative."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: -1)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(soft_dtw, "are_plain", lambda tensors: True)
    rest, weights = (0.7, False, *Rules().plain()), torch.randn(2, dtype=torch.float64)
    x, y = (torch.randn(2, t, 2, dtype=torch.float64, requires_grad=True) for t in (5, 4))
    assert soft_dtw.again(x, y, *rest) is None
    value = soft_dtw.differentiable(x, y, None, None, *rest)
    expected = cpu_soft_dtw.soft_dtw(x, y, gamma=0.7)
    known = torch.autograd.grad(expected, (x, y), weights, create_graph=True)
    for found in (value, soft_dtw.again(x, y, *rest)):
        assert_close(found, expected, 1e-9, "value")
        for f, e in zip(torch.autograd.grad(found, (x, y), weights, retain_graph=True), known, strict=True):
            assert_close(f, e, 1e-9, "gradient")
        second = torch.autograd.grad(found, (x, y), weights, create_graph=True)
        total, known_total = (sum(g.square().sum() for g in each) for each in (second, known))
        for f, e in zip(
            *(torch.autograd.grad(t, (x, y), retain_graph=True) for t in (total, known_total)), strict=True
        ):
            assert_close(f, e, 1e-8, "second derivative")
    assert soft_dtw.again(x, y.float(), *rest) is None
    assert soft_dtw.again(x, y[:, :3], *rest) is None
