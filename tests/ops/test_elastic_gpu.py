"""The Triton kernels of elastic distances, in Triton's interpreter or on a GPU."""

import os

import pytest
import torch

pytest.importorskip("triton")

from likewise.ops.elastic import (
    Moves,
    Recurrence,
    Side,
    _tensors,
    elastic,
    elastic_matrix,
    elastic_pairs,
    elastic_path,
    gpu,
)
from likewise.ops.elastic.gpu import follow
from likewise.ops.rules import Rules
from likewise.testing import TOLERANCE, assert_close
from tests.ops.elastic_problems import MOVES, RULES, random_problem

DEVICE = "cuda" if torch.cuda.is_available() and os.environ["TRITON_INTERPRET"] == "0" else "cpu"
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # inf - inf in padding, in the interpreter


def arguments(p, x=None, y=None):
    tensors = _tensors(x or p.x, y or p.y, p.weights)
    moved = (None if t is None else t.to(DEVICE) for t in tensors)
    return (*moved, *p.moves.plain(), *p.rules.plain())


@pytest.mark.parametrize("seed", range(0, 20, 2))
def test_values_and_paths_equal_the_cpu(seed):
    p = random_problem(seed, batch=3, longest=11)  # two strips of rows
    tolerance = TOLERANCE[torch.float64].value
    assert_close(gpu.value(*arguments(p)), elastic(p.x, p.y, p.moves, **p.options()), tolerance, "values", scale=1.0)
    paths, steps = gpu.path(*arguments(p))
    expected, counts = elastic_path(p.x, p.y, p.moves, **p.options())
    if p.moves.recurrence in (Recurrence.WARP, Recurrence.FOLLOW):  # elsewhere gaps may come in another order
        assert torch.equal(paths.cpu(), expected)
        assert torch.equal(steps.cpu(), counts)
    for b in range(3):
        assert paths[b, steps[b] - 1].tolist() == expected[b, counts[b] - 1].tolist()


@pytest.mark.parametrize("seed", [s for s in range(1, 20, 2) if s % 10 not in (6, 7)])
def test_gradients_equal_the_cpu(seed):
    p = random_problem(seed, batch=3, longest=6)
    clean = [
        Side(s.frames.nan_to_num(), s.lengths, None if s.gaps is None else s.gaps.nan_to_num()) for s in (p.x, p.y)
    ]
    leaves = [[t.requires_grad_() for t in (s.frames, s.gaps) if t is not None] for s in clean]
    weight = torch.rand(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    total = (elastic_matrix(*clean, p.moves, **p.options()) * weight).sum()
    expected = torch.autograd.grad(total, [*leaves[0], *leaves[1]])
    found = gpu.gradient(weight.to(DEVICE), *arguments(p, *clean))
    values, *slopes = gpu.slopes(*arguments(p, *clean))
    assert_close(values, elastic(*clean, p.moves, **p.options()).detach(), TOLERANCE[torch.float64].value, "values")
    alone = gpu.gradient(torch.ones(3, dtype=torch.float64, device=DEVICE), *arguments(p, *clean))
    assert all(torch.equal(one, other) for one, other in zip(slopes, alone, strict=True))
    order = (0, 2, 1, 3) if clean[0].gaps is not None else (0, 1)
    for k, theirs in zip(order, expected, strict=True):
        assert_close(found[k], theirs, TOLERANCE[torch.float64].gradient, "gradient", scale=1.0)


@pytest.mark.parametrize("seed", range(1, 20, 2))
def test_all_pairs(seed, monkeypatch):
    monkeypatch.setattr(gpu, "NARROW", 0)
    p = random_problem(seed, batch=3, longest=11)
    tolerance = TOLERANCE[torch.float64].value
    expected = elastic_matrix(p.x, p.y, p.moves, **p.options())
    assert_close(gpu.matrix(*arguments(p), False), expected, tolerance, "all pairs", scale=1.0)
    own = elastic_matrix(p.x, None, p.moves, **p.options())
    found = gpu.matrix(*arguments(p, p.x, p.x), p.rules.symmetric)
    assert_close(found, own, tolerance, "x with itself", scale=1.0)


def windows(steps: int, parts: int, channels: int, seed: int, batch: int = 2) -> Side:
    """Random windows that slide by one step, of unequal lengths; padding is NaN."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, steps + 1, (batch,), generator=generator)
    lengths[0] = steps
    longer = torch.randn(batch, steps + parts - 1, channels, generator=generator, dtype=torch.float64)
    frames = longer.unfold(1, parts, 1).transpose(2, 3).flatten(2)
    return Side(frames.masked_fill((torch.arange(steps) >= lengths[:, None])[..., None], torch.nan), lengths)


@pytest.mark.parametrize(("lanes", "rows"), [(2, 8), (4, 2)])
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_warp_aligns_windows(rule, lanes, rows, monkeypatch):
    which = RULES.index(rule)
    parts, channels = [(1, 1), (3, 1), (4, 1), (3, 2)][which % 4]
    n, m = [(17, 9), (8, 17), (5, 5)][(which + rows) % 3]
    if DEVICE == "cpu":  # small strips: the interpreter is slow
        monkeypatch.setattr(follow, "LANES", lanes)
    else:
        n, m = 30 * n, 30 * m
    monkeypatch.setattr(follow, "ROWS", rows)
    x, y = (windows(steps, parts, channels, seed) for seed, steps in enumerate((n, m)))
    moves, rules = Moves(Recurrence.FOLLOW, parts=parts), Rules.of("test", **rule)
    for left, right in ((x, y), (x, x)):
        given = [None if t is None else t.to(DEVICE) for t in _tensors(left, right, None)]
        plain = (*moves.plain(), *rules.plain())
        expected = elastic_matrix(left, None if right is left else right, moves, rules=rules)
        found = gpu.matrix(*given, *plain, right is left and rules.symmetric)
        assert_close(found, expected, TOLERANCE[torch.float64].value, "all pairs", scale=1.0)
        assert_close(gpu.value(*given, *plain), expected.diagonal(), TOLERANCE[torch.float64].value, "pairs", scale=1.0)


def test_windows_of_many_channels_are_swept(monkeypatch):
    monkeypatch.setattr(gpu, "FEW", 0)
    x, y = (windows(steps, 3, 1, seed) for seed, steps in enumerate((11, 8)))
    moves = Moves(Recurrence.FOLLOW, parts=3)
    given = [None if t is None else t.to(DEVICE) for t in _tensors(x, y, None)]
    found = gpu.matrix(*given, *moves.plain(), *Rules().plain(), False)
    assert_close(found, elastic_matrix(x, y, moves), TOLERANCE[torch.float64].value, "all pairs", scale=1.0)


def test_blocks_below_the_diagonal_are_mirrored(monkeypatch):
    monkeypatch.setattr(gpu, "LANES", 32)
    generator = torch.Generator().manual_seed(0)
    frames, gaps = torch.randn(34, 3, 1, generator=generator), torch.rand(34, 3, generator=generator)
    x, moves = Side(frames, torch.randint(1, 4, (34,), generator=generator), gaps), MOVES[4]
    given = [None if t is None else t.to(DEVICE) for t in _tensors(x, x, None)]
    found = gpu.matrix(*given, *moves.plain(), *Rules().plain(), True)
    assert_close(found, elastic_matrix(x, None, moves), TOLERANCE[torch.float32].value, "x with itself", scale=1.0)


def test_matrices_and_listed_pairs():
    p = random_problem(4, batch=4, longest=6)
    given = arguments(p)
    expected = elastic_matrix(p.x, p.y, p.moves, **p.options())
    found = gpu.matrix(*given, False)
    assert_close(found, expected, TOLERANCE[torch.float64].value, "few columns")
    pairs = torch.tensor([[3, 1], [0, 2]])
    listed = gpu.pairs(pairs, None, *given)
    assert_close(listed, elastic_pairs(p.x, p.y, pairs, p.moves, **p.options()), 1e-10, "listed pairs")


@pytest.mark.parametrize("moves", [Moves(Recurrence.WARP), Moves(Recurrence.EDIT), Moves(Recurrence.COUNT)], ids=str)
def test_nan_is_refused_even_where_a_path_goes_round_it(moves):
    x = torch.randn(2, 4, 1)
    x[1, 2] = torch.nan
    ones = None if moves.recurrence == Recurrence.WARP else torch.ones(2, 4)
    side = Side(x, None, ones, None if ones is None else ones[:, 0])
    given = [None if t is None else t.to(DEVICE) for t in _tensors(side, side, None)]
    with pytest.raises(ValueError, match=r"x\[1\] holds nan at step 2"):
        gpu.value(*given, *moves.plain(), 0, 0.0, False, False)


@pytest.mark.parametrize("seed", [4, 15])
def test_long_pairs_are_computed_in_float64_and_rounded_once(seed, monkeypatch):
    monkeypatch.setattr(gpu, "LONGEST_IN_FLOAT32", dict.fromkeys(Recurrence, 12))
    p = random_problem(seed, batch=3, longest=9, dtype=torch.float32)
    sides = [
        Side(s.frames.nan_to_num(), s.lengths, None if s.gaps is None else s.gaps.nan_to_num()) for s in (p.x, p.y)
    ]
    given = arguments(p, *sides)
    wide = [t.double() if isinstance(t, torch.Tensor) and t.dtype == torch.float32 else t for t in given]
    listed = torch.tensor([[2, 0], [1, 1]])
    for work in (gpu.value, lambda *g: gpu.matrix(*g, False), lambda *g: gpu.pairs(listed, None, *g)):
        assert torch.equal(work(*given), work(*wide).float())
    for found, expected in zip(gpu.slopes(*given), gpu.slopes(*wide), strict=True):
        assert torch.equal(found, expected.float())
