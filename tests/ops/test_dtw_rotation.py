import pytest
import torch

from likewise.ops import cpu
from likewise.ops.dtw import dtw, dtw_path
from likewise.ops.dtw_rotation import dtw_rotation, gpu, reference
from likewise.ops.dtw_rotation.gpu import turns
from likewise.ops.dtw_rotation.gpu.polar import orthonormal
from likewise.ops.rules import Rules
from likewise.testing import check_op

RULES = [
    Rules(),
    Rules.of("test", band=0.3),
    Rules.of("test", itakura=2.0),
    Rules.of("test", subsequence=True),
    Rules.of("test", band=3, open_end=True),
]


def problem(steps=(14, 18), channels=(3, 2), pairs=37, dtype=torch.float64, uneven=True):
    """Walks, NaN behind them, and their lengths."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for count, width in zip(steps, channels, strict=True):
        x = torch.randn(pairs, count, width, generator=generator, dtype=torch.float64).cumsum(1).to(dtype)
        lengths = torch.randint(max(1, count // 2), count + 1, (pairs,), generator=generator) if uneven else None
        if lengths is not None:
            x[torch.arange(count) >= lengths[:, None]] = torch.nan
        found.append((x.nan_to_num(7.0), lengths))
    (x, n), (y, m) = found
    return x, y, n, m


def by_loops(x, y, n, m, **options):
    found = [
        reference.rotation(
            a[: None if n is None else n[k]].double(), b[: None if m is None else m[k]].double(), **options
        )
        for k, (a, b) in enumerate(zip(x, y, strict=True))
    ]
    rotations, offsets, converged = zip(*found, strict=True)
    return torch.stack(rotations), torch.stack(offsets), torch.tensor(converged)


def compare(found, expected, tolerance):
    for name, one, other in zip(("rotation", "offset", "converged"), found, expected, strict=True):
        torch.testing.assert_close(one.double(), other.double(), rtol=tolerance, atol=tolerance, msg=name)


@pytest.mark.parametrize("rules", RULES, ids=str)
@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_equal_to_the_reference(rules, uneven, bias):
    # All of x may go to one frame of y, which leaves P open unless y has one channel. About its mean, x is then nothing.
    given = problem(uneven=uneven, pairs=21, channels=(3, 1) if rules.open_begin else (3, 2))
    found, expected = dtw_rotation(*given, bias=bias, rules=rules), by_loops(*given, bias=bias, rules=rules)
    if not (rules.open_begin and bias):
        compare((found.rotation, found.offset, found.converged), expected, 1e-9)
    x, y, n, m = given
    torch.testing.assert_close(found.values, dtw(x, found.turn(y), n, m, rules=rules))


@pytest.mark.parametrize("channels", [(1, 1), (1, 4), (3, 3), (2, 5), (12, 9)], ids=str)
@pytest.mark.parametrize("max_iter", [1, 2, 20])
def test_channels_and_iterations(channels, max_iter):
    given = problem(channels=channels, pairs=5)
    found, expected = dtw_rotation(*given, max_iter=max_iter), by_loops(*given, max_iter=max_iter)
    compare((found.rotation, found.offset, found.converged), expected, 1e-9)
    least = found.rotation if channels[0] <= channels[1] else found.rotation.mT
    torch.testing.assert_close(least @ least.mT, torch.eye(min(channels), dtype=torch.float64).expand(5, -1, -1))


@pytest.mark.parametrize("steps", [(1, 1), (1, 9), (9, 1), (2, 2), (17, 33)])
@pytest.mark.parametrize("pairs", [0, 1, 2, 16, 17])
def test_odd_sizes(steps, pairs):
    given = problem(steps, (2, 2), pairs)
    found = dtw_rotation(*given)
    assert found.rotation.shape == (pairs, 2, 2)
    torch.testing.assert_close(found.rotation @ found.rotation.mT, torch.eye(2).double().expand(pairs, 2, 2))
    assert (found.values <= dtw(*given) * (1 + 1e-12)).all()  # the identity is where it begins


def test_long_pairs_are_traced_one_at_a_time():
    x, y, _, _ = problem((900, 850), (3, 3), 3, torch.float32, uneven=False)
    found = dtw_rotation(x, y)
    torch.testing.assert_close(found.values, dtw(x, found.turn(y)), rtol=1e-4, atol=0)
    # On convergence, the rotation is that of its own path.
    assert found.converged.all()
    path, steps = dtw_path(x, found.turn(y))
    for pair in range(3):
        i, j = path[pair, : steps[pair]].T
        u, _, vt = torch.linalg.svd(x[pair, i].double().mT @ y[pair, j].double())
        torch.testing.assert_close(found.rotation[pair].double(), u @ vt, rtol=1e-5, atol=1e-5)


def test_long_sums_are_exact():
    x, y, _, _ = problem((3, 6000), (2, 2), 4, torch.float32, uneven=False)
    found, exact = dtw_rotation(x, y, max_iter=3), dtw_rotation(x.double(), y.double(), max_iter=3)
    assert found.values.dtype == found.rotation.dtype == torch.float32
    torch.testing.assert_close(found.values.double(), exact.values, rtol=1e-6, atol=0)


@pytest.mark.parametrize("scale", [1e-150, 1e-20, 1.0, 1e100])
def test_what_has_no_singular_vectors_of_its_own(scale):
    x = scale * torch.randn(4, 10, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64).cumsum(1)
    x[1], x[2, :, 1:], x[3] = 0.0, 0.0, x[3, :1]  # rank 0, 1, 1
    for found in (dtw_rotation(x, x), dtw_rotation(x, -x)):
        square = found.rotation @ found.rotation.mT
        torch.testing.assert_close(square, torch.eye(3).double().expand(4, 3, 3))
    assert (dtw_rotation(x, -x).values <= 1e-20 * scale**2).all()


def test_the_first_rotation():
    given = problem(uneven=True, pairs=9)
    start = torch.randn(3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    found, expected = dtw_rotation(*given, start=start), by_loops(*given, start=start)
    compare((found.rotation, found.offset, found.converged), expected, 1e-9)
    with pytest.raises(ValueError, match=r"start has shape \(2, 3\), but the channels are \(3, 2\)"):
        dtw_rotation(*given, start=start.T)


def test_costs_that_overflow_are_refused():
    x = torch.full((2, 4, 1), 1e30)
    with pytest.raises(ValueError, match="dtw_rotation"):
        dtw_rotation(x, torch.cat([x[:1], -x[:1]]) * torch.linspace(-1, 1, 4)[:, None])


@pytest.mark.parametrize("all_pairs", [False, True])
def test_the_operator(all_pairs):
    x, y, n, m = problem(pairs=3)
    start = torch.eye(3, 2, dtype=x.dtype)
    operator = torch.ops.likewise.dtw_rotation.default
    check_op(operator, (x, y, n, m, start, 20, True, all_pairs, *Rules().plain()), gradient=False)


def test_every_instruction_set(monkeypatch):
    given = problem()
    expected = dtw_rotation(*given)
    for name in cpu.native.instruction_sets():
        monkeypatch.setattr(cpu, "INSTRUCTION_SET", name)
        found = dtw_rotation(*given)
        torch.testing.assert_close(found.values, expected.values)
        torch.testing.assert_close(found.rotation, expected.rotation)


def test_neither_threads_nor_neighbours_matter():
    x, y, n, m = problem(steps=(40, 30), pairs=300, dtype=torch.float32)
    threads, found = torch.get_num_threads(), []
    for count in (1, 2):
        torch.set_num_threads(count)
        found.append(dtw_rotation(x, y, n, m))
    torch.set_num_threads(threads)
    for some in (slice(0, 300), slice(7, 8), slice(11, 40)):
        part = dtw_rotation(x[some], y[some], n[some], m[some])
        for one in found:
            assert torch.equal(one.values[some], part.values)
            assert torch.equal(one.rotation[some], part.rotation)


def test_all_pairs(monkeypatch):
    x, y, n, m = problem(pairs=6)
    i, j = torch.cartesian_prod(torch.arange(6), torch.arange(2)).T
    found, expected = dtw_rotation(x, y[:2], n, m[:2], all_pairs=True), dtw_rotation(x[i], y[j], n[i], m[j])
    assert torch.equal(found.values, expected.values)
    assert torch.equal(found.rotation, expected.rotation)
    monkeypatch.setattr(gpu, "FRAME_NUMBERS", 400)  # a few rows at a time
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x, y, start = (t.to(device) for t in (x, y[:2], torch.eye(3, 2, dtype=x.dtype)))
    for few in (0, 4):  # channels of the pairs that warps align
        monkeypatch.setattr(turns, "FEW", few)
        values, rotation, *_ = gpu.rotation(x, y, n, m[:2], start, 20, False, True, *Rules().plain())
        torch.testing.assert_close(values.cpu(), expected.values)
        torch.testing.assert_close(rotation.cpu(), expected.rotation)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # inf - inf in padding, in the interpreter
@pytest.mark.parametrize("few", [0, 4])  # channels of the pairs that warps align
@pytest.mark.parametrize("bias", [False, True])
def test_the_gpu_version(bias, few, monkeypatch):
    monkeypatch.setattr(gpu, "PATH_NUMBERS", 200)  # in several chunks
    monkeypatch.setattr(turns, "FEW", few)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x, y, n, m = problem((6, 7), (2, 3), 7)
    start = torch.eye(2, 3, dtype=x.dtype).flip(0)
    values, *found = gpu.rotation(x.to(device), y.to(device), n, m, start.to(device), 20, bias, False, *Rules().plain())
    compare([one.cpu() for one in found], by_loops(x, y, n, m, start=start, bias=bias), 1e-9)
    torch.testing.assert_close(values.cpu(), dtw_rotation(x, y, n, m, start=start, bias=bias).values)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # inf - inf in padding, in the interpreter
@pytest.mark.parametrize(("lanes", "rows"), [(2, 8), (4, 2)])
@pytest.mark.parametrize("rules", [*RULES, Rules.of("test", band=0)], ids=str)
def test_a_warp_aligns_a_pair_and_traces_its_path(rules, lanes, rows, monkeypatch):
    device, channels = "cuda" if torch.cuda.is_available() else "cpu", (2, 1) if rules.open_begin else (2, 3)
    if device == "cpu":  # small strips: the interpreter is slow
        monkeypatch.setattr(turns, "LANES", lanes)
    monkeypatch.setattr(turns, "ROWS", rows)
    x, y, n, m = problem((17, 8) if device == "cpu" else (600, 130), channels, 3, uneven=rows == 2)
    given = x.to(device), y.to(device), n, m, torch.eye(*channels, dtype=x.dtype, device=device)
    values, *found = gpu.rotation(*given, 3, False, False, *rules.plain())
    monkeypatch.setattr(turns, "FEW", 0)
    expected, *others = gpu.rotation(*given, 3, False, False, *rules.plain())
    torch.testing.assert_close(values, expected)
    compare(found, others, 1e-9)


@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (2, 2), (3, 2), (2, 3), (4, 4)], ids=str)
def test_orthonormal_factors(shape):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    matrices = torch.randn(7, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    matrices[1], matrices[2], matrices[3] = 0.0, 1e-200 * matrices[2], 1e200 * matrices[3]
    matrices[4], matrices[5, 1:] = matrices[4, :1], 0.0  # of rank 1
    found = orthonormal(matrices.to(device)).cpu()
    least = found if shape[0] <= shape[1] else found.mT
    torch.testing.assert_close(least @ least.mT, torch.eye(min(shape), dtype=torch.float64).expand(7, -1, -1))
    size = torch.linalg.svdvals(matrices).sum(1)
    torch.testing.assert_close((matrices * found).sum((1, 2)), size, rtol=1e-12, atol=0)
