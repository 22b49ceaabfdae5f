import functools
import math

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from likewise.ops.elastic import Border, Moves, Recurrence, Side, elastic, reference
from likewise.ops.elastic.soft import soft_elastic, soft_elastic_plan
from likewise.ops.rules import Rules
from likewise.ops.soft_dtw import soft_dtw, soft_dtw_cost, soft_dtw_plan
from tests.ops.elastic_problems import MOVES, RULES, item, random_problem

SOFT = [moves for moves in MOVES if moves.recurrence not in (Recurrence.COUNT, Recurrence.FOLLOW)]


def all_paths(x, y, moves, rules):
    """The cost and the cells of every path of the first pair, in plain recursion."""
    n, m = (int(s.frames.shape[1] if s.lengths is None else s.lengths[0]) for s in (x, y))
    begins = moves.recurrence in (Recurrence.WARP, Recurrence.CARRY, Recurrence.BALL)

    @functools.cache
    def to(i, j):
        if (i, j) == (-1, -1):
            return [(0.0, ())]
        if i == -1 and (rules.open_begin or moves.border == Border.FREE):
            return [(0.0, ())]
        if i == -1 or j == -1:
            if moves.border == Border.NONE:
                return []
            if moves.border == Border.FREE:
                return [(0.0, ())]
            gap, before = (y.gaps[0, j], (i, j - 1)) if i == -1 else (x.gaps[0, i], (i - 1, j))
            return [(cost + gap.item(), cells) for cost, cells in to(*before)]
        first, last = rules.window.row(n, m, i)
        if not first <= j <= last:
            return []
        found = []
        for before in ((i - 1, j - 1), (i - 1, j), (i, j - 1)):
            if begins and before != (i - 1, j - 1) and -1 in before:
                continue
            step = reference.step(x, y, moves, before, (i, j)).item()
            found += [(cost + step, (*cells, (i, j))) for cost, cells in to(*before)]
        return found

    ends = range(m) if rules.open_end else (m - 1,)
    cost = (x.frames[0, n - 1] - y.frames[0, :m]).square().sum(-1)
    cost = cost.sqrt() if moves.root else cost
    return [(c + moves.last_cost * cost[j].item(), cells) for j in ends for c, cells in to(n - 1, j)]


@pytest.mark.parametrize("moves", SOFT, ids=str)
@pytest.mark.parametrize("rules", RULES, ids=str)
def test_the_softmin_over_all_paths(moves, rules):
    generator, rules, gamma = torch.Generator().manual_seed(0), Rules.of("test", **rules), 0.3

    def side(steps):
        gaps = torch.rand(1, steps, generator=generator, dtype=torch.float64) if moves.has_gaps else None
        return Side(torch.randn(1, steps, 2, generator=generator, dtype=torch.float64), gaps=gaps)

    for n, m in ((3, 4), (4, 3), (1, 3), (3, 1)):
        x, y = side(n), side(m)
        paths = all_paths(x, y, moves, rules)
        weights = torch.softmax(torch.tensor([cost for cost, _ in paths], dtype=torch.float64) / -gamma, 0)
        expected = -gamma * math.log(sum(math.exp(-cost / gamma) for cost, _ in paths))
        assert soft_elastic(x, y, moves, gamma, rules=rules).item() == pytest.approx(expected, abs=1e-10)
        plan = torch.zeros(n, m, dtype=torch.float64)
        for weight, (_, cells) in zip(weights, paths, strict=True):
            for cell in cells:
                plan[cell] += weight
        torch.testing.assert_close(soft_elastic_plan(x, y, moves, gamma, rules=rules)[0], plan)


@pytest.mark.parametrize("seed", [s for s in range(20) if s % 10 not in (6, 7, 9)])
def test_items_by_themselves_and_no_softness(seed):
    problem = random_problem(seed, longest=12)
    options = problem.options()
    found = soft_elastic(problem.x, problem.y, problem.moves, 0.5, **options)
    plan = soft_elastic_plan(problem.x, problem.y, problem.moves, 0.5, **options)
    hard = elastic(problem.x, problem.y, problem.moves, **options)
    assert (found <= hard + 1e-9).all()
    for b in range(len(found)):
        n, m = int(problem.x.lengths[b]), int(problem.y.lengths[b])
        x, y = (
            Side(s.frames[:, :k], None, None if s.gaps is None else s.gaps[:, :k])
            for s, k in ((item(problem.x, b), n), (item(problem.y, b), m))
        )
        torch.testing.assert_close(found[b : b + 1], soft_elastic(x, y, problem.moves, 0.5, **options))
        torch.testing.assert_close(plan[b, :n, :m], soft_elastic_plan(x, y, problem.moves, 0.5, **options)[0])
        assert plan[b, n:].eq(0).all()
        assert plan[b, :, m:].eq(0).all()
    for gamma in (1e-4, 1e-12):
        cold = soft_elastic(problem.x, problem.y, problem.moves, gamma, **options)
        torch.testing.assert_close(cold, hard, atol=40 * gamma + 1e-9, rtol=0)


def test_dtw_is_soft_dtw():
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randn(3, t, 2, generator=generator, dtype=torch.float64) for t in (7, 9))
    for rules in (Rules.of("t", band=2), Rules.of("t", subsequence=True), Rules()):
        found = soft_elastic(Side(x), Side(y), Moves(Recurrence.WARP), 0.7, rules=rules)
        torch.testing.assert_close(found, soft_dtw(x, y, gamma=0.7, rules=rules))
    weights = torch.rand(19, generator=generator, dtype=torch.float64)
    cost = (x[:, :, None] - y[:, None]).square().sum(-1)
    i, j = torch.arange(7)[:, None], torch.arange(9)
    cost = cost * weights[2 * (i - j).abs() - 9 + 9]
    moves = Moves(Recurrence.WARP)
    torch.testing.assert_close(
        soft_elastic(Side(x), Side(y), moves, 0.7, weights=weights), soft_dtw_cost(cost, gamma=0.7)
    )
    torch.testing.assert_close(
        soft_elastic_plan(Side(x), Side(y), moves, 0.7, weights=weights), soft_dtw_plan(cost, gamma=0.7)
    )


@pytest.mark.parametrize("moves", SOFT, ids=str)
def test_derivatives(moves):
    generator = torch.Generator().manual_seed(2)
    x, y = (torch.randn(2, t, 2, generator=generator, dtype=torch.float64, requires_grad=True) for t in (3, 4))
    gaps = [torch.rand(2, t, generator=generator, dtype=torch.float64, requires_grad=True) for t in (3, 4)]
    lengths = torch.tensor([3, 2]), torch.tensor([2, 4])

    def value(x, y, u, v):
        used = (u, v) if moves.has_gaps else (None, None)
        return soft_elastic(Side(x, lengths[0], used[0]), Side(y, lengths[1], used[1]), moves, 0.4)

    assert gradcheck(value, (x, y, *gaps))
    assert gradgradcheck(value, (x, y, *gaps))


def test_overflow_is_refused():
    x = Side(torch.full((1, 3, 1), 1e19))
    y = Side(torch.full((1, 3, 1), -1e19))
    with pytest.raises(ValueError, match="soft_elastic"):
        soft_elastic(x, y, Moves(Recurrence.WARP), 1.0)
