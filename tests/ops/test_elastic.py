import itertools

import pytest
import torch

from likewise import _native
from likewise.ops import cpu
from likewise.ops.elastic import (
    Border,
    Moves,
    Recurrence,
    Side,
    elastic,
    elastic_matrix,
    elastic_pairs,
    elastic_path,
    reference,
)
from likewise.ops.rules import Rules
from likewise.testing import TOLERANCE, assert_close, check_op
from tests.ops.elastic_problems import random_problem


@pytest.fixture(params=_native.instruction_sets())
def instruction_set(request, monkeypatch):
    monkeypatch.setattr(cpu, "INSTRUCTION_SET", request.param)
    return request.param


def truth(problem, i, j):
    return reference.value(*problem.items(i, j), problem.moves, **problem.options())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", range(20))
def test_values_equal_the_reference(seed, dtype, instruction_set):
    p = random_problem(seed, batch=6, dtype=dtype)
    expected = torch.stack([truth(p, b, b) for b in range(6)])
    assert_close(elastic(p.x, p.y, p.moves, **p.options()), expected, TOLERANCE[dtype].value, "pairs")


@pytest.mark.parametrize("seed", range(20))
def test_matrices_equal_pairs(seed, instruction_set):
    p = random_problem(seed, batch=9, longest=14)
    i, j = torch.arange(81) // 9, torch.arange(81) % 9
    listed = elastic_pairs(p.x, p.y, torch.stack([i, j], 1), p.moves, **p.options())
    found = elastic_matrix(p.x, p.y, p.moves, **p.options())
    assert torch.equal(found.flatten(), listed)
    assert_close(listed[10], truth(p, 1, 1), TOLERANCE[torch.float64].value, "a pair")
    own = elastic_matrix(p.x, None, p.moves, **p.options())
    assert_close(own, elastic_matrix(p.x, p.x, p.moves, **p.options()), TOLERANCE[torch.float64].value, "mirrored")


@pytest.mark.parametrize("seed", range(20))
def test_paths_are_optimal(seed, instruction_set):
    p = random_problem(seed, batch=4)
    paths, steps = elastic_path(p.x, p.y, p.moves, **p.options())
    for b in range(4):
        found, expected = paths[b, : steps[b]].tolist(), reference.path(*p.items(b, b), p.moves, **p.options())
        assert (paths[b, steps[b] :] == -1).all()
        if p.moves.recurrence in (Recurrence.WARP, Recurrence.FOLLOW):
            assert found == [list(cell) for cell in expected]
        else:  # gaps of x and y in another order cost the same: what is compared is the table along the path
            D = reference.table(*p.items(b, b), p.moves, **p.options())
            assert found[-1] == list(expected[-1])
            for before, cell in itertools.pairwise(found):
                step = reference.step(*p.items(b, b), p.moves, tuple(before), tuple(cell))
                rise = D[tuple(cell)] - D[tuple(before)]
                assert min(cell) == 0 or rise.item() == pytest.approx(step.item(), abs=1e-9)


def leaves(side):
    return [t.nan_to_num().requires_grad_() for t in (side.frames, side.gaps) if t is not None]


def with_leaves(side, tensors):
    return Side(tensors[0], side.lengths, tensors[1] if side.gaps is not None else None, side.reach)


@pytest.mark.parametrize("seed", [s for s in range(20) if s % 10 not in (6, 7)])  # counts have no derivative
def test_gradients_are_those_of_the_reference(seed):
    p = random_problem(seed, batch=4)
    x, y = leaves(p.x), leaves(p.y)
    a, b = with_leaves(p.x, x), with_leaves(p.y, y)
    weight = torch.rand(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    weight[1, 2] = 0
    found = torch.autograd.grad((elastic_matrix(a, b, p.moves, **p.options()) * weight).sum(), [*x, *y])
    q = type(p)(a, b, p.moves, p.rules, p.weights)
    total = sum(weight[i, j] * truth(q, i, j) for i in range(4) for j in range(4))
    expected = torch.autograd.grad(total, [*x, *y])
    for mine, theirs in zip(found, expected, strict=True):
        assert_close(mine, theirs, TOLERANCE[torch.float64].gradient, "gradient", scale=1.0)
    values = elastic(a, b, p.moves, **p.options())
    assert torch.equal(values.detach(), elastic(p.x, p.y, p.moves, **p.options())), "with derivatives and without"
    (paired,) = torch.autograd.grad((values * weight.diagonal()).sum(), x[:1])
    total = sum(weight[i, i] * truth(q, i, i) for i in range(4))
    assert_close(paired, torch.autograd.grad(total, x[:1])[0], TOLERANCE[torch.float64].gradient, "pairs", scale=1.0)


def test_a_count_has_no_derivative():
    p = random_problem(6)
    x = p.x.frames.nan_to_num().requires_grad_()
    value = elastic(Side(x, p.x.lengths, p.x.gaps, p.x.reach), p.y, p.moves)
    with pytest.raises(NotImplementedError, match="zero almost everywhere"):
        value.sum().backward()


@pytest.mark.parametrize("seed", range(10))
def test_a_limit_gives_up_only_what_is_above_it(seed):
    p = random_problem(seed, batch=40, longest=60)
    pairs = torch.cartesian_prod(torch.arange(40), torch.arange(40))
    exact = elastic_pairs(p.x, p.y, pairs, p.moves, **p.options())
    limits = exact.quantile(0.1).expand(len(pairs))
    found = elastic_pairs(p.x, p.y, pairs, p.moves, limits=limits, **p.options())
    kept = found == exact
    assert (exact[~kept] > limits[~kept]).all()
    assert (found[~kept] == torch.inf).all()


def test_a_low_limit_ends_early():
    x = torch.arange(200.0).repeat(16, 1)[..., None]
    y = x + 1000
    side = Side(x), Side(y)
    pairs = torch.arange(16)[:, None].expand(16, 2)
    moves = Moves(Recurrence.WARP)
    assert (elastic_pairs(*side, pairs, moves, limits=torch.ones(16)) == torch.inf).all()
    exact = elastic_pairs(*side, pairs, moves)
    assert torch.equal(elastic_pairs(*side, pairs, moves, limits=exact), exact)


def test_a_long_path_is_traced_in_pieces():
    # 8 lanes of 1700 x 3000 moves are more than are kept at once.
    generator = torch.Generator().manual_seed(0)
    walks = (torch.randn(3, n, 1, generator=generator, dtype=torch.float64).cumsum(1) for n in (1700, 3000))
    x, y = map(Side, walks)
    moves = Moves(Recurrence.WARP, penalty=0.2)
    paths, steps = elastic_path(x, y, moves)
    for b in range(3):
        i, j = paths[b, : steps[b]].T
        straight = ((i.diff() > 0) & (j.diff() > 0)).sum()
        cost = (x.frames[b, i] - y.frames[b, j]).square().sum() + 0.2 * (len(i) - 1 - straight)
        assert_close(cost, elastic(x, y, moves)[b], 1e-10, "cost of the path")


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5, 9, 17])
def test_short_lengths(steps, instruction_set):
    x, y = (Side(torch.randn(3, n, 1, dtype=torch.float64), gaps=torch.rand(3, n).double()) for n in (steps, 1))
    moves = Moves(Recurrence.EDIT, root=True, border=Border.GAPS)
    for a, b in ((x, y), (y, x), (x, x)):
        expected = reference.value(a, b, moves)
        assert_close(elastic(a, b, moves)[0], expected, 1e-10, "value", scale=1.0)
        path, count = elastic_path(a, b, moves)
        assert path[0, 0].tolist() == [0, 0]
        assert path[0, count[0] - 1].tolist() == [a.frames.shape[1] - 1, b.frames.shape[1] - 1]


def test_nothing_to_compare():
    empty = Side(torch.empty(0, 4, 1))
    some = Side(torch.randn(3, 4, 1))
    moves = Moves(Recurrence.WARP)
    assert elastic(empty, empty, moves).shape == (0,)
    assert elastic_matrix(empty, some, moves).shape == (0, 3)
    assert elastic_matrix(some, empty, moves).shape == (3, 0)
    assert elastic_pairs(some, some, torch.empty(0, 2, dtype=torch.int64), moves).shape == (0,)
    assert elastic_path(empty, empty, moves)[1].shape == (0,)


def test_refusals():
    x = Side(torch.randn(3, 4, 1))
    with pytest.raises(ValueError, match=r"pairs name items 0..3 of 3"):
        elastic_pairs(x, x, torch.tensor([[0, 3], [1, 0]]), Moves(Recurrence.WARP))
    with pytest.raises(ValueError, match="weights are given for up to 2 steps"):
        elastic(x, x, Moves(Recurrence.WARP), weights=torch.ones(5))
    huge = Side(torch.tensor([[[3e38], [-3e38]]]))
    with pytest.raises(ValueError, match="overflow"):
        elastic(huge, Side(-huge.frames), Moves(Recurrence.WARP))
    with pytest.raises(ValueError, match="no path"):
        elastic_path(huge, Side(-huge.frames), Moves(Recurrence.WARP))


def test_gradients_do_not_depend_on_threads():
    x = torch.randn(20, 30, 1, requires_grad=True)
    side = Side(x, gaps=torch.ones(20, 30))
    moves = Moves(Recurrence.EDIT, root=True, border=Border.GAPS)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(torch.autograd.grad(elastic_matrix(side, None, moves).sum(), x)[0])
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)


@pytest.mark.parametrize("moves", [Moves(Recurrence.WARP, penalty=0.5), Moves(Recurrence.CARRY, root=True)], ids=str)
def test_operators(moves):
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randn(2, n, 1, generator=generator, dtype=torch.float64, requires_grad=True) for n in (4, 5))
    gaps = [torch.rand(2, n, generator=generator, dtype=torch.float64, requires_grad=True) for n in (4, 5)]
    tensors = (x, y, *(gaps if moves.has_gaps else (None, None)), None, None, None, None, None)
    numbers = (*moves.plain(), *Rules().plain())
    check_op(torch.ops.likewise.elastic.default, (*tensors, *numbers))
    check_op(torch.ops.likewise.elastic_matrix.default, (*tensors, *numbers, False))
    plain = tuple(t if t is None else t.detach() for t in tensors)
    check_op(torch.ops.likewise.elastic_path.default, (*plain, *numbers), gradient=False)
    check_op(torch.ops.likewise.elastic_slopes.default, (*plain, *numbers), gradient=False)
    pairs = torch.tensor([[0, 1]])
    check_op(torch.ops.likewise.elastic_pairs.default, (pairs, None, *plain, *numbers), gradient=False)


def test_no_second_derivative():
    x = torch.randn(1, 4, 1, dtype=torch.float64, requires_grad=True)
    value = elastic(Side(x), Side(x.detach() + 1), Moves(Recurrence.WARP))
    (slope,) = torch.autograd.grad(value.sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivative"):
        slope.sum().backward()
