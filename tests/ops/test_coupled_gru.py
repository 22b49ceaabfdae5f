"""The operators of the coupled GRU against the plain recurrence of reference.py, values and gradients."""

from itertools import pairwise

import pytest
import torch

from likewise.ops import coupled_gru as op
from likewise.ops import cpu
from likewise.ops.coupled_gru import reference
from likewise.testing import TOLERANCE, assert_close, check_op


def cells(hidden, channels=3, dtype=torch.float64, seed=0):
    torch.manual_seed(seed)
    sizes, found = (channels, *hidden), []
    for below, width in pairwise(sizes):
        shapes = (3 * width, below), (3 * width, width), (3 * width,), (3 * width,), (width, width), (width,)
        found.append(op.Cell(*(torch.randn(shape, dtype=dtype) / max(2, width) ** 0.5 for shape in shapes)))
    return found


def problem(hidden=(4,), n=(5, 1, 7, 3), m=(4, 2, 6), pairs=(None, None), dtype=torch.float64):
    """Arguments of the operators; projections are given, weights in one vector."""
    torch.manual_seed(1)
    gx, gy = (torch.randn(len(k), max(k), 3 * hidden[0], dtype=dtype) for k in (n, m))
    rows, columns = (None if k is None else torch.tensor(k) for k in pairs)
    weights = op._flat(cells(hidden, dtype=dtype), dtype)
    return gx, gy, rows, columns, torch.tensor(n), torch.tensor(m), weights, list(hidden)


LISTED = (0, 3, 3, 1, 2, 2, 0, 1, 2), (2, 0, 1, 1, 2, 0, 0, 2, 2)
PROBLEMS = {
    "pairs": {"m": (4, 2, 6, 7)},
    "one state": {"hidden": (1,), "m": (4, 2, 6, 7)},
    "odd": {"hidden": (7,), "pairs": LISTED},
    "many states": {"hidden": (21,), "pairs": LISTED},
    "layers": {"hidden": (5, 9, 2), "pairs": LISTED},
    "deep pairs": {"hidden": (8, 8), "m": (4, 2, 6, 7)},
    "equal lengths": {"hidden": (6,), "n": (5, 5, 5), "m": (5, 5), "pairs": ((0, 1, 2, 2), (0, 1, 0, 1))},
    "long": {"hidden": (3,), "n": (37,), "m": (50,)},
}
each_problem = pytest.mark.parametrize("name", PROBLEMS)


def truth(arguments):
    """The states in float64, and their derivative with respect to what can have one, for a given loss."""
    given = [a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in arguments]
    return reference.states(*given)


def gradients(result, arguments, seed=2):
    torch.manual_seed(seed)
    weights = torch.randn(result.shape, dtype=torch.float64).to(result.dtype)
    inputs = [arguments[k] for k in (0, 1, 6) if arguments[k] is not None]
    return torch.autograd.grad((result * weights).sum(), inputs, retain_graph=True)


def with_gradients(arguments):
    return tuple(
        a.detach().requires_grad_() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in arguments
    )


@each_problem
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_states_and_gradients(name, dtype):
    arguments = with_gradients(problem(**PROBLEMS[name], dtype=dtype))
    expected, found = truth(arguments), op._states(*arguments)
    assert found.dtype == dtype
    assert_close(found, expected, 1e-12 if dtype == torch.float64 else 2e-6, "states")
    for a, b in zip(gradients(found, arguments), gradients(expected, arguments), strict=True):
        assert_close(a, b, TOLERANCE[dtype].gradient, "gradient")
    last = op._last(*arguments)
    assert torch.equal(last, found[:, :, -1])
    for a, b in zip(gradients(last, arguments), gradients(expected[:, :, -1], arguments), strict=True):
        assert_close(a, b, TOLERANCE[dtype].gradient, "gradient of the last")


@pytest.mark.parametrize("hidden", [(4,), (3, 5)])
def test_one_set_of_sequences(hidden):
    gx, _, rows, columns, n, _, weights, sizes = problem(hidden, pairs=((0, 3, 1, 1), (1, 1, 2, 1)))
    own = with_gradients((gx, None, rows, columns, n, None, weights, sizes))
    both = with_gradients((gx, gx, rows, columns, n, n, weights, sizes))
    found, expected = op._states(*own), op._states(*both)
    assert torch.equal(found, expected)
    to_g, to_weights = gradients(found, own)
    to_x, to_y, other = gradients(expected, both)
    assert_close(to_g, to_x + to_y, 1e-12, "gradient")
    assert_close(to_weights, other, 1e-12, "gradient of the weights")


@pytest.mark.parametrize("isa", cpu.native.instruction_sets())
def test_every_instruction_set(isa, monkeypatch):
    monkeypatch.setattr(cpu, "INSTRUCTION_SET", isa)
    for name in ("odd", "layers"):
        for dtype in (torch.float64, torch.float32):
            arguments = with_gradients(problem(**PROBLEMS[name], dtype=dtype))
            found, expected = op._last(*arguments), truth(arguments)[:, :, -1]
            assert_close(found, expected, TOLERANCE[dtype].value, f"{isa}, {dtype}")
            for a, b in zip(gradients(found, arguments), gradients(expected, arguments), strict=True):
                assert_close(a, b, TOLERANCE[dtype].gradient, f"{isa}, gradient in {dtype}")


def test_many_pairs_on_threads():
    torch.manual_seed(0)
    rows, columns = torch.triu_indices(30, 30, 1)
    gx = torch.randn(30, 40, 36, dtype=torch.float64)
    lengths = torch.randint(1, 41, (30,))
    arguments = with_gradients((gx, None, rows, columns, lengths, None, op._flat(cells((12,)), gx.dtype), [12]))
    found, expected = op._last(*arguments), truth(arguments)[:, :, -1]
    assert_close(found, expected, 1e-12, "values")
    slopes = gradients(found, arguments)
    for a, b in zip(slopes, gradients(expected, arguments), strict=True):
        assert_close(a, b, 1e-10, "gradient")
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        for a, b in zip(gradients(op._last(*arguments), arguments), slopes, strict=True):
            assert torch.equal(a, b), "the gradient depends on the number of threads"
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("name", ["pairs", "layers"])
@pytest.mark.parametrize("operator", ["coupled_gru_last", "coupled_gru_states", "coupled_gru_trained"])
def test_operator(name, operator):
    settings = {**PROBLEMS[name], "n": (3, 1, 2, 3), "m": (2, 2, 3, 1)}
    check_op(getattr(torch.ops.likewise, operator).default, with_gradients(problem(**settings)))


def test_activations_are_accurate():
    # With h = 0 and no weights, the first state is (1 - sigmoid(z)) tanh(n).
    values = torch.linspace(-30, 30, 1201, dtype=torch.float64)
    for dtype, tolerance in ((torch.float32, 2e-7), (torch.float64, 5e-16)):
        for part in (1, 2):
            g = torch.zeros(1201, 1, 3, dtype=dtype)
            g[:, 0, part] = values.to(dtype)
            g[:, 0, 3 - part] = 100.0 if part == 1 else -100.0
            length = torch.ones(1201, dtype=torch.int64)
            weights = torch.zeros(8, dtype=dtype)
            weights[7] = -torch.inf  # no coupling
            found = op._last(g, g, None, None, length, length, weights, [1])[:, 0, 0].double()
            rounded = values.to(dtype).double()
            expected = 1 - rounded.sigmoid() if part == 1 else rounded.tanh()
            assert (found - expected).abs().max() < tolerance


def test_nan_is_not_hidden():
    gx, gy, *rest = problem(m=(4, 2, 6, 7))
    rest[4] = rest[4].clone()
    rest[4][0] = torch.nan
    assert op._last(gx, gy, *rest).isnan().any()


def test_empty():
    gx, gy, _, _, n, m, weights, hidden = problem()
    none = torch.empty(0, dtype=torch.int64)
    arguments = with_gradients((gx, gy, none, none, n, m, weights, hidden))
    found = op._last(*arguments)
    assert found.shape == (0, 2, 4)
    for slope, given in zip(gradients(found, arguments), (gx, gy, weights), strict=True):
        assert torch.equal(slope, torch.zeros_like(given))


def test_refusals():
    gx, gy, _, _, n, m, _, _ = problem()
    cell, pair = cells((4,)), torch.tensor([0])
    for arguments, message in (
        ((gx, gy, [], n, m), "expected at least one cell"),
        ((gx[..., :9], gy, cell, n, m), r"expected gx of shape \(N, T, 12\), got \(4, 7, 9\)"),
        ((gx, gy, cell, n, m), "gx has 4 sequences, but gy has 3; select pairs with rows and columns"),
        ((gx, None, cell, n, m), "pass gy with y_lengths and rows with columns"),
        ((gx, gy, cell, n, m, pair), "pass gy with y_lengths and rows with columns"),
        ((gx, gy, cell, n, m, pair + 4, pair), "expected rows between 0 and 3"),
        ((gx, gy, cell, n - 1, m, pair, pair), r"x_lengths\[1\] is 0; lengths must be between 1 and 7"),
        ((gx, gy.float(), cell, n, m, pair, pair), "convert one with .to"),
        ((gx, gy, cell, n, m, pair, pair.repeat(2)), r"expected rows and columns \(P,\)"),
    ):
        with pytest.raises(ValueError, match=f"coupled_gru: .*{message}"):
            op.coupled_gru(*arguments)
