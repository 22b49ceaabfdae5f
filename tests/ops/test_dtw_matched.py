import pytest
import torch

from likewise.ops.dtw import dtw, dtw_matched, dtw_path, gpu
from likewise.ops.rules import Rules
from likewise.testing import TOLERANCE

RULES = [
    Rules(),
    Rules.of("test", band=0.2),
    Rules.of("test", itakura=2.0),
    Rules.of("test", subsequence=True),
    Rules.of("test", band=3, open_end=True),
]


def problem(dtype=torch.float64, channels=2, uneven=True, steps=(20, 25), members=37, fill=torch.nan):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, steps[0], channels, generator=generator, dtype=dtype)
    y = torch.randn(members, steps[1], channels, generator=generator, dtype=dtype)
    rows = torch.randint(0, 3, (members,), generator=generator)
    weights = torch.rand(members, generator=generator)
    if not uneven:
        return x, y, rows, weights, None, None
    x_lengths = torch.tensor([steps[0], max(1, steps[0] - 7), max(1, steps[0] // 3)])
    y_lengths = torch.randint(1, steps[1] + 1, (members,), generator=generator)
    for batch, lengths in ((x, x_lengths), (y, y_lengths)):
        batch[torch.arange(batch.shape[1]) >= lengths[:, None]] = fill
    return x, y, rows, weights, x_lengths, y_lengths


def by_loops(x, y, rows, weights, x_lengths, y_lengths, root, rules):
    ground = "euclidean" if root else "sqeuclidean"
    values, sums = [], torch.zeros(x.shape, dtype=torch.float64)
    counts = torch.zeros(x.shape[:2], dtype=torch.float64)
    for j, row in enumerate(rows.tolist()):
        a = x[row, : None if x_lengths is None else x_lengths[row]][None]
        b = y[j, : None if y_lengths is None else y_lengths[j]][None]
        values.append(dtw(a, b, ground=ground, rules=rules)[0])
        path, steps = dtw_path(a, b, ground=ground, rules=rules)
        for i, k in path[0, : steps[0]].tolist():
            weight = weights[j].double()
            if root:
                weight = weight / (a[0, i].double() - b[0, k].double()).norm()
            counts[row, i] += weight
            sums[row, i] += weight * b[0, k].double()
    return torch.stack(values), sums, counts


def compare(found, expected, dtype):
    for one, other in zip(found, expected, strict=True):
        tolerance = TOLERANCE[dtype].value
        torch.testing.assert_close(one.double(), other.double(), rtol=10 * tolerance, atol=10 * tolerance)


@pytest.mark.parametrize("rules", RULES, ids=str)
@pytest.mark.parametrize("root", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("uneven", [False, True])
def test_equal_to_plain_loops(rules, root, dtype, uneven):
    given = problem(dtype, channels=1 if uneven else 2, uneven=uneven)
    compare(dtw_matched(*given, root=root, rules=rules), by_loops(*given, root, rules), dtype)


@pytest.mark.parametrize("steps", [(1, 1), (1, 9), (9, 1), (2, 2), (17, 33)])
@pytest.mark.parametrize("members", [1, 2, 16, 17])
def test_odd_sizes(steps, members):
    given = problem(steps=steps, members=members)
    compare(dtw_matched(*given), by_loops(*given, False, Rules()), torch.float64)


def test_long_pairs_are_traced_one_at_a_time():
    given = problem(torch.float32, 1, uneven=False, steps=(700, 650), members=5)
    compare(dtw_matched(*given), by_loops(*given, False, Rules()), torch.float32)


def test_every_instruction_set(monkeypatch):
    from likewise.ops import cpu

    given = problem()
    expected = dtw_matched(*given)
    for name in cpu.native.instruction_sets():
        monkeypatch.setattr(cpu, "INSTRUCTION_SET", name)
        compare(dtw_matched(*given), expected, torch.float64)


def test_the_number_of_threads_does_not_matter():
    given, threads = problem(torch.float32, members=300), torch.get_num_threads()
    found = []
    for count in (1, 2):
        torch.set_num_threads(count)
        found.append(dtw_matched(*given))
    torch.set_num_threads(threads)
    assert all(map(torch.equal, *found))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # inf - inf in padding, in the interpreter
@pytest.mark.parametrize("root", [False, True])
def test_the_gpu_version(root, monkeypatch):
    monkeypatch.setattr(gpu, "PATH_NUMBERS", 200)  # in several chunks
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x, y, rows, weights, x_lengths, y_lengths = problem(torch.float32, steps=(5, 6), members=7, fill=0.0)
    found = gpu.matched(
        x.to(device), y.to(device), x_lengths, y_lengths, rows, weights.double(), root, *Rules().plain()
    )
    expected = by_loops(x, y, rows, weights, x_lengths, y_lengths, root, Rules())
    compare([one.cpu() for one in found], expected, torch.float32)


def test_bad_input_is_refused():
    x, y, rows, weights, _, _ = problem(uneven=False)
    with pytest.raises(ValueError, match=r"expected rows and weights of shape \(37,\)"):
        dtw_matched(x, y, rows[:3], weights)
    with pytest.raises(ValueError, match="rows must be between 0 and 2"):
        dtw_matched(x, y, rows + 1, weights)
    y[2, 3] = torch.inf
    with pytest.raises(ValueError, match=r"y\[2\] holds inf"):
        dtw_matched(x, y, rows, weights)
