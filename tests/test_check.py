"""Argument checks: what passes, and the errors that name the operation, the argument and the fix."""

import numpy as np
import pytest
import torch

from likewise import _check


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ([1.0], TypeError, r"op: expected x to be a torch.Tensor, got list"),
        (torch.ones(1, 2, 1, dtype=torch.int64), TypeError, r"op: expected x to be floating point.*with x.float\(\)"),
        (torch.ones(3), ValueError, r"op: expected x of shape \(B, T, C\), got \(3,\).*with x\[None, :, None\]"),
        (torch.ones(3, 4), ValueError, r"op: expected x of shape \(B, T, C\), got \(3, 4\).*with x\[..., None\]"),
        (torch.ones(1, 2, 3, 4), ValueError, r"op: expected x of shape \(B, T, C\), got \(1, 2, 3, 4\)$"),
        (torch.ones(2, 0, 1), ValueError, "op: expected x with at least one step and one channel"),
    ],
)
def test_sequences(value, error, message):
    with pytest.raises(error, match=message):
        _check.sequences("op", "x", value)
    empty = torch.ones(0, 0, 1)
    assert _check.sequences("op", "x", empty) is empty


def test_costs():
    _check.costs("op", torch.ones(2, 3, 4), torch.tensor([1, 3]), None)
    with pytest.raises(ValueError, match=r"shape \(B, Tx, Ty\), got \(3, 4\); add a batch with cost\[None\]"):
        _check.costs("op", torch.ones(3, 4), None, None)
    with pytest.raises(ValueError, match="at least one row and one column"):
        _check.costs("op", torch.ones(2, 3, 0), None, None)
    with pytest.raises(ValueError, match=r"expected y_lengths of shape \(2,\), got \(3,\)"):
        _check.costs("op", torch.ones(2, 3, 4), None, torch.tensor([1, 2, 3]))


def test_pairs_agree():
    x = torch.ones(2, 3, 1)
    _check.pair("op", x, torch.ones(2, 5, 1), None, None, paired=True)
    _check.pair("op", x, torch.ones(4, 5, 1), None, None, paired=False)
    with pytest.raises(ValueError, match=r"x has 2 sequences and y has 4; for all pairs, use .matrix"):
        _check.pair("op", x, torch.ones(4, 5, 1), None, None, paired=True)
    with pytest.raises(ValueError, match="x has 1 channels and y has 2"):
        _check.pair("op", x, torch.ones(2, 5, 2), None, None, paired=True)
    with pytest.raises(TypeError, match=r"x is torch.float32 and y is torch.float64; convert one with .to"):
        _check.pair("op", x, x.double(), None, None, paired=True)
    with pytest.raises(ValueError, match=r"x is on cpu and y is on meta; move one with .to"):
        _check.pair("op", x, torch.ones(2, 5, 1, device="meta"), None, None, paired=True)


def test_lengths():
    _check.lengths_shape("op", "x_lengths", None, 2)
    _check.lengths_range("op", "x_lengths", torch.tensor([1, 5]), 5)
    for lengths, kind in ((torch.tensor([1.0, 2.0]), "torch.float32"), ([1, 2], "list")):
        with pytest.raises(TypeError, match=f"expected x_lengths to be an int64 tensor, got {kind}"):
            _check.lengths_shape("op", "x_lengths", lengths, 2)
    for wrong in (0, 6):
        with pytest.raises(ValueError, match=rf"op: x_lengths\[1\] is {wrong}; lengths must be between 1 and 5"):
            _check.lengths_range("op", "x_lengths", torch.tensor([1, wrong]), 5)


def test_finite_frames():
    x = torch.zeros(2, 3, 2)
    x[1, 2, 1] = torch.nan
    with pytest.raises(ValueError, match=r"op: x\[1\] holds nan at step 2, channel 1"):
        _check.finite("op", "x", x, None)
    _check.finite("op", "x", x, torch.tensor([3, 2]))  # it is padding


def test_finite_values():
    large = torch.tensor([3e38, 3e38])
    assert _check.finite_values("op", large) is large, "only the sum overflows"
    with pytest.raises(ValueError, match=r"the value of pair \[1\] is not finite.*overflow torch.float32.*use float64"):
        _check.finite_values("op", torch.tensor([1.0, torch.inf]))
    with pytest.raises(ValueError, match=r"scale the sequences down$"):
        _check.finite_values("op", torch.tensor([torch.nan], dtype=torch.float64))
    assert _check.fits("op", torch.tensor([2.0]), torch.float16).dtype == torch.float16
    with pytest.raises(ValueError, match=r"overflow torch.float16.*use float32"):
        _check.fits("op", torch.tensor([1e5]), torch.float16)


def test_numbers():
    assert _check.number("op", "k", np.int64(3)) == 3
    assert type(_check.number("op", "k", np.float32(0.5))) is float
    for value in (True, "3", None, np.bool_(True), torch.tensor(3)):
        with pytest.raises(TypeError, match=f"op: expected k to be a number, got {type(value).__name__}"):
            _check.number("op", "k", value)
    assert type(_check.whole("op", "k", np.int64(3))) is int
    for value in (0, 2.0, np.float64(2)):
        with pytest.raises(ValueError, match="op: k must be a whole number of 1 or more, got"):
            _check.whole("op", "k", value)
    with pytest.raises(ValueError, match="k must be a whole number from 0 to 4, got 5"):
        _check.whole("op", "k", 5, 0, 4)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -1.0])
def test_ranges(value):
    for check in (_check.positive, _check.not_negative, _check.fraction):
        with pytest.raises(ValueError, match="op: reg must be "):
            check("op", "reg", value)
        assert check("op", "reg", np.float32(0.5)) == 0.5
    assert _check.not_negative("op", "reg", 0) == _check.fraction("op", "reg", 0) == 0.0
    for check in (_check.positive, _check.fraction):
        with pytest.raises(ValueError, match="op: reg must be "):
            check("op", "reg", 0 if check is _check.positive else 1)
