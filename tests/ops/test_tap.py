"""TAP's op for padded batches against its reference, one pair at a time. The distances are in tests/distances/test_tap.py."""

import pytest
import torch

from likewise.ops import tap as op
from likewise.ops.tap import reference
from likewise.testing import TOLERANCE, assert_close

LENGTHS = torch.tensor([7, 1, 4]), torch.tensor([3, 5, 2])


def network(kernels=(3, 5), width=4):
    torch.manual_seed(0)
    channels = [2, *[width] * (len(kernels) - 1), 1]
    weights = [torch.randn(b, a, k, k).double() for a, b, k in zip(channels, channels[1:], kernels, strict=False)]
    return weights, [torch.randn(len(w)).double() for w in weights]


def problem():
    """Padded sequences with NaN behind their ends."""
    torch.manual_seed(1)
    found = []
    for lengths in LENGTHS:
        x = torch.randn(len(lengths), int(lengths.max()) + 1, 2, dtype=torch.float64)
        x[torch.arange(x.shape[1]) >= lengths[:, None]] = torch.nan
        found.append(x)
    return found


def scores_of(convolutions):
    return lambda x, y, D, time, inside: -(D + op.correction(D, time, inside, *convolutions))


@pytest.mark.parametrize("kernels", [(3, 5), (5, 3, 1), (3,)])
def test_every_distance_is_the_references(kernels):
    (x, y), convolutions, tolerance = problem(), network(kernels), TOLERANCE[torch.float64].value
    expected = reference.matrix(x, y, *LENGTHS, *convolutions)
    scores = scores_of(convolutions)
    assert_close(op.tap_matrix(x, y, *LENGTHS, scores), expected, tolerance, "matrix")
    assert_close(op.tap(x, y, *LENGTHS, scores), expected.diag(), tolerance, "pairs")
    A, D = op.attend(x, y, *LENGTHS, scores)
    for b, (n, m) in enumerate(zip(*(k.tolist() for k in LENGTHS), strict=True)):
        known_A, known_D = reference.attention(x[b, :n], y[b, :m], *convolutions)
        assert_close(A[b, :n, :m], known_A, tolerance, "attention")
        assert_close(D[b, :n, :m], known_D, tolerance, "frames' distances")
        assert A[b, n:].abs().sum() == A[b, :, m:].abs().sum() == D[b, n:].abs().sum() == 0


def test_whole_sequences_need_no_lengths():
    x, y = torch.randn(2, 3, 6, 2, dtype=torch.float64)
    convolutions, lengths = network(), torch.full((3,), 6)
    expected = reference.matrix(x, y, lengths, lengths, *convolutions)
    assert_close(op.tap(x, y, None, None, scores_of(convolutions)), expected.diag(), 1e-12, "pairs")


def test_gradients_are_the_references():
    (x, y), (weights, biases) = problem(), network()
    given = [t.requires_grad_() for t in (x, y, *weights, *biases)]
    cotangent = torch.randn(len(x), len(y), dtype=torch.float64)
    expected = torch.autograd.grad((reference.matrix(x, y, *LENGTHS, weights, biases) * cotangent).sum(), given)
    found = torch.autograd.grad((op.tap_matrix(x, y, *LENGTHS, scores_of((weights, biases))) * cotangent).sum(), given)
    for f, e in zip(found, expected, strict=True):
        assert_close(f, e, TOLERANCE[torch.float64].gradient, "gradient", scale=1)


def test_an_empty_side_gives_an_empty_matrix():
    x, y = torch.empty(0, 4, 2), torch.randn(3, 5, 2)
    none, some = torch.empty(0, dtype=torch.int64), torch.tensor([5, 2, 3])
    assert op.tap_matrix(x, y, none, some, scores_of(network())).shape == (0, 3)
    assert op.tap_matrix(y, x, some, none, scores_of(network())).shape == (3, 0)
