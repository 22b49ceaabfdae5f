"""The GPU search in Triton's interpreter, which is slow: grids are small here."""

import ctypes
import math
import os

import pytest
import torch

from likewise.ops import cpu
from likewise.ops.gdtw import _LIMITS, Inputs, _gdtw, _gdtw_grad, _Problem, _run, _setting, gdtw
from likewise.ops.gdtw.reference import grid_search
from likewise.testing import assert_close
from tests.ops.test_gdtw import FAMILIES, arguments, assert_feasible, batch_of, pair_of, random_pair, spread

gpu = pytest.importorskip("likewise.ops.gdtw.gpu", reason="needs Triton")
searching = pytest.importorskip("likewise.ops.gdtw.gpu.search")
driver, launcher, switch, tape = (
    pytest.importorskip(f"likewise.ops.launch.{name}") for name in ("driver", "launcher", "switch", "tape")
)

SMALL = {"n": 6, "m": 4}


@pytest.fixture(autouse=True)
def _where_it_can_run(request):
    """Real kernels must not get CPU addresses: on a GPU, tests that are not for the device are skipped."""
    if os.environ["TRITON_INTERPRET"] == "0" and "device" not in request.node.name:
        pytest.skip("stands in for a GPU")


NAMES = ("times_x", "times_y", "reg", "lower", "upper", "slope_min", "slope_max")


def operands(given, named, **options):
    """Arguments of the operator for those of ``gdtw``."""
    settings = [_setting(name, named[name], named[name].shape, given[0], None) for name in NAMES]
    options = {"subsequence": False, "huber": math.inf, "nodes": 0, "refinements": 2} | options
    return *given, *settings, *options.values()


def searched(pair, *, nodes, refinements):
    """The kernels' result, before the polish."""
    search = searching.Search.of(Inputs(*arguments(pair, nodes=nodes, refinements=refinements)))
    return search.search()[0]


@pytest.mark.parametrize(
    "options",
    [
        {"slope": (0.4, 2.5)},
        {"band": 0.15, "reg": 1e-3},
        {"subsequence": True, "slope": (0.5, 1.5), "band": 0.3},
        {"huber": 0.4, "even": False},
    ],
    ids=str,
)
def test_equals_the_cpu(options):
    pair = random_pair(5, **SMALL, **options)
    given = arguments(pair, nodes=9, refinements=1)
    value, warp, holds = gpu.solve(*given)
    expected = _gdtw(*given)
    assert_feasible(pair, warp[0])
    assert_close(value, expected[0], 1e-9, "")
    assert_close(warp, expected[1], 1e-9, "")
    assert torch.equal(holds, expected[2])


def test_the_grid_is_the_references():
    pair = random_pair(1, n=9, m=6, slope=(0.3, 3.0))
    # With no refinement and a grid that is not coarser than y, there is one pass.
    assert_close(searched(pair, nodes=21, refinements=0), grid_search(pair, 21, 0), 1e-9, "")


@pytest.mark.parametrize(("nodes", "shared"), [(21, True), (9, False)])
def test_losses_come_from_distances_of_frames_where_nodes_are_many(nodes, shared):
    pair = random_pair(6, n=19, m=5, slope=(0.3, 3.0), even=False, channels=11)
    assert searching.Search.of(Inputs(*arguments(pair, nodes=nodes))).shares_distances() == shared
    assert_close(searched(pair, nodes=nodes, refinements=0), grid_search(pair, nodes, 0), 1e-9, "")


def test_rows_of_all_widths():
    """Groups, lanes and warps differ; the best nodes are far apart where y's valleys are."""
    for nodes in (63, 129, 301, 515):
        pair = random_pair(7, n=30, m=5, channels=1, reg=1e-4)
        expected = grid_search(pair, 127 if nodes == 129 else nodes, 0)
        assert_close(searched(pair, nodes=nodes, refinements=0), expected, 1e-9, "")


def test_several_tiles():
    pair = random_pair(2, n=6, m=4, reg=1e-3, slope=(0.1, 4.0))
    assert_close(searched(pair, nodes=261, refinements=0), grid_search(pair, 261, 0), 1e-9, "")


def test_a_row_that_would_need_one_more_lane_has_two_nodes_fewer():
    pair = random_pair(2, n=6, m=4)
    search = searching.Search.of(Inputs(*arguments(pair, nodes=128)))
    assert search.most_nodes(True) == 127
    assert search.most_nodes(False) == 65
    assert_close(searched(pair, nodes=128, refinements=0), grid_search(pair, 127, 0), 1e-9, "")


def test_float32():
    pair = random_pair(4, **SMALL)
    x, y, *rest = arguments(pair, nodes=9, refinements=0)
    value, warp, _ = gpu.solve(x.float(), y.float(), *rest)
    expected = _gdtw(x.float(), y.float(), *rest)
    assert warp.dtype == value.dtype == torch.float64
    assert_close(value, expected[0], 1e-9, "")
    assert_close(warp, expected[1], 1e-9, "")


def test_the_grid_moves_on_with_a_solution_at_its_rim():
    """A sharp valley far from where the first, coarse grid sees the solution."""
    pair = random_pair(0, n=40, m=4, reg=1e-4, channels=1)
    given = arguments(pair, nodes=5, refinements=0)
    value, warp, _ = gpu.solve(*given)
    expected = _gdtw(*given)
    assert_close(value, expected[0], 1e-9, "")
    assert_close(warp, expected[1], 1e-9, "")


def polished(operator, warps, *, searched=True):
    """What the polish makes of warps (B, Tx), and its outcomes (B,)."""
    search = searching.Search.of(Inputs(*operator))
    scratch, found = search.scratch(), search.found()
    search.lay_out(scratch, 0)
    search.look(scratch)
    scratch.best.copy_(warps)
    scratch.state.fill_(float(searched))
    scratch.state[:, 0] = math.inf
    search.polish(scratch, found)
    return (found.values, found.warps, found.holds), found.outcomes


def polished_on_host(operator, warps):
    values, warps, holds = torch.empty(len(warps)).double(), warps.clone(), torch.empty(*warps.shape, 2).int()
    _run(cpu.native.gdtw_polish, _Problem.of(Inputs(*operator)), values, warps, holds)
    return values, warps, holds


POLISHED = {family: FAMILIES[family](2 if family == "kinked" else 1) for family in FAMILIES}
POLISHED |= {
    str(options): random_pair(2, **options)
    for options in (
        {"subsequence": True, "slope": (0.5, 1.5), "band": 0.3},
        {"even": False, "slope": (0.2, 4.0), "channels": 1, "reg": 1e-2},
    )
}


@pytest.mark.parametrize("name", POLISHED)
def test_the_polish_is_the_cpus(name):
    operator = arguments(POLISHED[name])
    warps = grid_search(POLISHED[name], 51, 2)[None]
    (value, warp, holds), outcomes = polished(operator, warps)
    expected = polished_on_host(operator, warps)
    assert outcomes.tolist() == [searching.SETTLED]
    assert_close(value, expected[0], 1e-12, "")
    assert_close(warp, expected[1], 1e-12, "")
    assert torch.equal(holds, expected[2])
    assert_feasible(POLISHED[name], warp[0], 1e-15)


def test_identical_signals_sit_on_kinks_that_hold_nothing():
    y = torch.randn(9, 2, generator=torch.Generator().manual_seed(0)).double()
    pair = pair_of(y, y, spread(0, 1, 9), spread(0, 1, 9))
    (value, warp, holds), outcomes = polished(arguments(pair), pair.x_times[None])
    assert outcomes.tolist() == [searching.SETTLED]
    assert value.item() < 1e-20
    assert_close(warp[0], pair.x_times, 1e-14, "")
    assert holds[0, :, 1].tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 1]


@pytest.mark.filterwarnings("ignore")  # the interpreter computes with NumPy, which warns of NaN
def test_pairs_that_the_polish_skips():
    pair = random_pair(0, **SMALL)
    operator, warps = arguments(pair), grid_search(pair, 21, 0)[None]
    assert polished(operator, warps, searched=False)[1].tolist() == [searching.NOT_SEARCHED]
    assert polished(operator, warps * math.nan)[1].tolist() == [0]
    far = random_pair(3, n=60, m=9, channels=1, reg=1e-4)
    away = torch.linspace(0, 1, 9).double()[None] ** 4  # the solution is many segments from there
    assert polished(arguments(far), away)[1].tolist() == [0]


def test_where_it_is_polished(monkeypatch):
    """Pairs that do not converge are left to the host, and no others."""
    called, on_host, polish = [], gpu._polish_on_host, searching.Search.polish

    def note(part, best, left, first, written):
        called.append((left, first))
        for b in left:  # no result of the GPU may remain
            written.values[b] = written.warps[b] = math.nan
            written.holds[b] = -1
        on_host(part, best, left, first, written)

    monkeypatch.setattr(gpu, "_polish_on_host", note)
    given, named = batch_of([random_pair(seed, n=4, m=4 - seed, band=0.4, reg=0.1) for seed in range(2)])
    operator = operands(given, named, nodes=9, refinements=0)
    expected = gpu.solve(*operator)
    assert called == []

    def some(self, scratch, found):
        polish(self, scratch, found)
        found.outcomes[-1] = 0

    monkeypatch.setattr(searching.Search, "polish", some)
    for expected_calls in ([([1], 0)], [([0], 0), ([0], 1)]):
        found = gpu.solve(*operator)
        assert_close(found[0], expected[0], 1e-12, "")
        assert_close(found[1].nan_to_num(), expected[1].nan_to_num(), 1e-12, "")
        assert found[1][1, 3].isnan()
        assert torch.equal(found[2], expected[2])
        assert called == expected_calls
        called.clear()
        monkeypatch.setattr(searching, "ROW_BYTES", 1)  # then in parts of one pair each
    gpu.solve(*arguments(random_pair(4, huber=0.4, n=4, m=3), nodes=9, refinements=0))
    assert called == [([0], 0)]


@pytest.mark.filterwarnings("ignore")  # the interpreter computes with NumPy, which warns of NaN
def test_a_refusal_names_the_pair():
    given, named = batch_of([random_pair(seed, n=4, m=3) for seed in range(2)])
    given[1][1, 1, 0] = math.nan
    with pytest.raises(ValueError, match=r"gdtw: y\[1\] holds nan at step 1, channel 0"):
        gpu.solve(*operands(given, named, nodes=5, refinements=0))


def test_knots_that_are_tied_begin_as_one():
    """x rests where y passes quickly: many knots on one of y's times, which only hold together."""
    generator = torch.Generator().manual_seed(5)
    y = torch.randn(5, 4, generator=generator).double().cumsum(0)
    x = torch.randn(24, 4, generator=generator).double().cumsum(0) / 3
    pair = pair_of(x, y, spread(0, 1, 24), spread(0, 1, 5), 0.05)
    operator, warps = arguments(pair), grid_search(pair, 51, 2)[None]
    (value, warp, _), outcomes = polished(operator, warps)
    expected = polished_on_host(operator, warps)
    assert outcomes.tolist() == [searching.SETTLED]
    assert_close(value, expected[0], 1e-12, "")
    assert_close(warp, expected[1], 1e-12, "")


def test_a_batch_is_its_pairs(monkeypatch):
    pairs = [random_pair(seed, n=4 + seed, m=4 - seed, band=0.4, reg=0.1 * seed + 0.01) for seed in range(2)]
    given, named = batch_of(pairs)  # the padding holds NaN
    value, warp, _ = gpu.solve(*operands(given, named, nodes=9, refinements=0))
    for b, pair in enumerate(pairs):
        alone = _gdtw(*arguments(pair, nodes=9, refinements=0))
        assert_close(value[b], alone[0][0], 1e-9, "")
        assert_close(warp[b, : len(pair.x)], alone[1][0], 1e-9, "")
        assert warp[b, len(pair.x) :].isnan().all()
    # Pairs that do not fit in memory are processed one group after another.
    monkeypatch.setattr(searching, "ROW_BYTES", 1)
    again = gpu.solve(*operands(given, named, nodes=9, refinements=0))
    assert torch.equal(again[0], value)
    assert torch.equal(again[1].nan_to_num(), warp.nan_to_num())


def test_default_grid_does_not_depend_on_padding():
    pair = random_pair(0, n=5, m=3)
    alone = _gdtw(*arguments(pair, refinements=0))
    given, named = batch_of([pair])
    given = (given[0], torch.nn.functional.pad(given[1], (0, 0, 0, 60), value=math.nan), *given[2:])
    named["times_y"] = torch.nn.functional.pad(named["times_y"], (0, 60), value=math.nan)
    found = gpu.solve(*operands(given, named, refinements=0))
    assert_close(found[0], alone[0], 1e-9, "")
    assert_close(found[1], alone[1], 1e-9, "")


@pytest.mark.parametrize("absent", [NAMES[3:5], NAMES[5:], NAMES[3:]], ids=str)
def test_limits_and_lengths_that_are_absent(absent):
    """Absent arguments equal arguments that have no effect, in the solution and in its derivative."""
    x, y, x_lengths, y_lengths, *rest = arguments(random_pair(3, n=6, m=4), nodes=5, refinements=0)
    settings = dict(zip(NAMES, rest, strict=False))
    for name, value in _LIMITS.items():
        settings[name] = torch.full_like(settings[name], value)
    full = (x, y, x_lengths, y_lengths, *settings.values(), *rest[7:])
    less = (x, y, None, None, *(None if name in absent else each for name, each in settings.items()), *rest[7:])
    expected = _gdtw(*full)
    for found in (_gdtw(*less), gpu.solve(*less)):
        for mine, theirs in zip(found, expected, strict=True):
            assert_close(mine.double(), theirs.double(), 1e-12, "")
    given = expected[0] + 1, expected[1] + 1, *expected[1:]
    expected = _gdtw_grad(*given, *full)
    for found in (_gdtw_grad(*given, *less), gpu.gradient(*given, *less)):
        for name, mine, theirs in zip(("x", "y", *NAMES[2:]), found, expected, strict=True):
            if name in absent:
                assert mine.shape == (0,)
            else:
                assert_close(mine, theirs, 1e-12, name)


def assert_gradients_are_the_cpus(warp, holds, operator):
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(shape, dtype=torch.float64, generator=generator) for shape in (warp.shape[:1], warp.shape)]
    expected = _gdtw_grad(*weights, warp, holds, *operator)
    found = gpu.gradient(*weights, warp, holds, *operator)
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype == theirs.dtype
        # float32 gradients are float64 ones, rounded once
        assert_close(mine, theirs, 1e-12 if mine.dtype == torch.float64 else 2e-7, "")


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_are_the_cpus(family):
    for seed, dtype in enumerate((torch.float32, torch.float64)):
        x, y, *rest = arguments(FAMILIES[family](seed))
        operator = (x.to(dtype), y.to(dtype), *rest)
        _, warp, holds = _gdtw(*operator)
        assert_gradients_are_the_cpus(warp, holds, operator)


@pytest.mark.parametrize(
    "options", [{"subsequence": True, "slope": (0.5, 1.5)}, {"huber": 0.4, "even": False}], ids=str
)
def test_gradients_with_options(options):
    operator = arguments(random_pair(3, **options, channels=130))
    _, warp, holds = _gdtw(*operator)
    assert_gradients_are_the_cpus(warp, holds, operator)


def test_gradients_of_a_batch():
    """Unequal lengths; the padding holds NaN, and its gradients are 0."""
    pairs = [random_pair(seed, n=6 + seed, m=9 - 2 * seed, slope=(0.3, 3.0), band=0.3) for seed in range(3)]
    operator = operands(*batch_of(pairs))
    _, warp, holds = _gdtw(*operator)
    assert_gradients_are_the_cpus(warp, holds, operator)


def test_gradients_with_all_kinds_of_holds():
    """All sorts of groups: of one knot and of many, tied to one that is held, held twice, or not at all."""
    generator = torch.Generator().manual_seed(0)
    for share in (0.1, 0.5):
        operator = arguments(random_pair(1, n=12, m=16, slope=(0.1, 4.0)))
        _, warp, holds = _gdtw(*operator)
        held, tied, kind = torch.rand(3, 16, generator=generator)
        flags = (1 + (3 * kind).int()) * (held < share) + torch.where(kind < 0.5, 4, 8) * (tied < 0.6)
        holds[0, :, 1] = flags.masked_fill(torch.arange(16) == 15, 0)
        assert_gradients_are_the_cpus(warp, holds, operator)


def test_gradients_of_a_warp_that_slides():
    y, times = torch.full((6, 1), 2.0).double(), spread(0, 1, 6)
    for slope in ((0.0, math.inf), (1.1, 1.2)):  # the second ties all knots
        pair = pair_of(torch.zeros(4, 1).double(), y, spread(0.0, 0.4, 4), times, subsequence=True, slope=slope)
        operator = arguments(pair)
        _, warp, holds = _gdtw(*operator)
        assert_gradients_are_the_cpus(warp, holds, operator)


def test_no_pairs():
    given, named = batch_of([random_pair(0, **SMALL)])
    none = tuple(each[:0] for each in given), {name: each[:0] for name, each in named.items()}
    value, warp, holds = gpu.solve(*operands(*none))
    assert (value.shape, warp.shape, holds.shape) == ((0,), (0, 4), (0, 4, 2))
    grads = gpu.gradient(value, warp, warp, holds, *operands(*none))
    assert grads[1].shape == (0, 6, 3)


def test_not_contiguous_and_nothing_changed():
    pair = random_pair(6, n=6, m=4)
    x, y, *rest = arguments(pair, nodes=9, refinements=0)
    turned = y.transpose(1, 2).contiguous().transpose(1, 2)
    before = turned.clone()
    assert_close(gpu.solve(x, turned, *rest)[1], _gdtw(x, y, *rest)[1], 1e-9, "")
    assert torch.equal(turned, before)


# Launches

KERNELS = [(module, name) for module in (gpu, searching) for name in dir(module) if name.endswith("_kernel")]


@pytest.mark.skipif(torch.cuda.is_available(), reason="stands in for a GPU")
def test_a_call_like_one_before_only_repeats_its_launches(monkeypatch):
    from tests.ops.test_launch import STREAM, FakeKernel, launch_kernel

    launches = []
    for module, name in ((launcher, "_ready"), (launcher, "_compiled"), (tape, "_tapes")):
        monkeypatch.setattr(module, name, {})
    address = ctypes.cast(launch_kernel, ctypes.c_void_p).value
    monkeypatch.setattr(driver, "functions", lambda: (address, 0))
    monkeypatch.setattr(driver, "current_stream", lambda device: STREAM)
    monkeypatch.setattr(switch._switch, "on", True)  # whatever is installed
    for module in (gpu, searching):
        monkeypatch.setattr(
            module, "launch", lambda *of, **named: launches.append(of[0]) or launcher.launch(*of, **named)
        )
    for module, name in KERNELS:
        kernel = getattr(module, name)
        monkeypatch.setattr(module, name, FakeKernel(kernel, kernel.arg_names))
    for seed in range(2):
        x, y, _, _, times_x, times_y, reg, *rest = arguments(random_pair(seed, n=5, m=4), nodes=5, refinements=0)
        operator = (x, y, None, None, times_x, times_y, reg, None, None, None, None, *rest[4:])
        found, expected = gpu.solve(*operator), _gdtw(*operator)
        for mine, theirs in zip(found, expected, strict=True):
            assert_close(mine.double(), theirs.double(), 1e-12, f"call {seed}")
        assert_gradients_are_the_cpus(*expected[1:], operator)
        assert len(launches) == 13 + 4, "the first call launches, the next repeats it"
        assert len(tape._tapes) == 2
    # Of one tensor for both times there is another tape. (The stand-in knows the sizes of one call.)
    launcher._compiled.clear()
    launcher._ready.clear()
    operator = (y, y, None, None, times_y, times_y, *operator[6:])
    assert gpu.solve(*operator)[0].item() < 1e-20
    assert len(tape._tapes) == 3


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"reg": -1.0}, "reg must be positive"),
        ({"y": math.nan}, r"y\[0\] holds nan"),
        ({"slope": (2.0, 2.5)}, "no warp of pair 0"),
        ({"y": 1e200}, "its losses overflow"),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore")  # the interpreter computes with NumPy, which warns
def test_refusals(changed, message):
    y = spread(0, 1, 4)[:, None].clone()
    y[1] = changed.get("y", 0.3)
    pair = pair_of(y[:3], y, spread(0, 1, 3), spread(0, 1, 4), changed.get("reg", 0.1), changed.get("slope", (0, 9)))
    given = list(arguments(pair, nodes=5, refinements=0))
    given[0] = given[0].nan_to_num(0.2)
    with pytest.raises(ValueError, match=message):
        gpu.solve(*given)


@pytest.mark.filterwarnings("ignore")  # the interpreter computes with NumPy, which warns
@pytest.mark.parametrize("solve", [_gdtw, gpu.solve], ids=["C++", "Triton"])
def test_values_too_large_for_float32_are_refused(solve):
    y = spread(0, 1, 4)[:, None] * 1e19
    x, y, *rest = arguments(pair_of(-y[:3], y, spread(0, 9, 3), spread(0, 9, 4)), nodes=5, refinements=0)
    assert solve(x, y, *rest)[0].isfinite().all()
    with pytest.raises(ValueError, match=r"is not finite: (the costs overflow torch.float32|its losses overflow)"):
        solve(x.float(), y.float(), *rest)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_on_the_device(dtype):
    pairs = [random_pair(seed, n=40 + seed, m=30 - seed, slope=(0.3, 4.0)) for seed in range(4)]
    given, named = batch_of(pairs)
    given = (*(each.to(dtype) for each in given[:2]), *given[2:])
    there = tuple(each.cuda() for each in given), {name: each.cuda() for name, each in named.items()}
    x, y = (each.clone().requires_grad_() for each in given[:2])
    a, b = (each.clone().requires_grad_() for each in there[0][:2])
    expected, found = gdtw(x, y, *given[2:], **named), gdtw(a, b, *there[0][2:], **there[1])
    assert_close(found[0].cpu(), expected[0], 1e-9, "")
    assert_close(found[1].cpu().nan_to_num(), expected[1].nan_to_num(), 1e-9, "")
    for mine, theirs in zip(
        torch.autograd.grad(found[1].nansum() + found[0].sum(), (a, b)),
        torch.autograd.grad(expected[1].nansum() + expected[0].sum(), (x, y)),
        strict=True,
    ):
        assert_close(mine.cpu(), theirs, 1e-9, "")
