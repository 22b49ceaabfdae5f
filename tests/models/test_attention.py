import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from likewise.models.attention import Additive, Attention
from likewise.models.layers import FeatureMap
from tests.models.problems import by_loops, each_attention


class Operations(TorchDispatchMode):
    """The names of the operations that run."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


@each_attention
def test_attention_against_loops(attention):
    torch.manual_seed(0)
    attention = attention.sized(3, 4).double()
    values, u = torch.randn(2, 3, 5, dtype=torch.float64), torch.randn(2, 4, dtype=torch.float64)
    mask = torch.tensor([[True] * 5, [True, True, False, False, False]])
    found = FeatureMap(values.masked_fill(~mask[:, None], 0), mask, (5,))
    summary, weights = attention(found, u)
    for b, length in enumerate((5, 2)):
        expected, vector = by_loops(attention, values[b, :, :length].T, u[b])
        torch.testing.assert_close(weights[b, :, :length].expand(3, -1), expected.T)
        torch.testing.assert_close(summary[b], vector)
        assert (weights[b, :, length:] == 0).all()


@each_attention
def test_weights_sum_to_one_and_depend_on_u(attention):
    torch.manual_seed(0)
    over_features = getattr(attention, "over_features", False)
    attention = attention.sized(3, 4)
    found = FeatureMap(torch.randn(2, 3, 6), None, (2, 3))
    _, weights = attention(found, torch.randn(2, 4))
    total = weights.sum(1 if over_features else -1)
    torch.testing.assert_close(total, torch.ones_like(total))
    assert not torch.allclose(attention(found, torch.randn(2, 4))[1], weights)
    constant = FeatureMap(torch.ones(2, 3, 6), None, (6,))
    flat = attention(constant, torch.randn(2, 4))[1]
    torch.testing.assert_close(flat, flat[..., :1].expand_as(flat))


@pytest.mark.parametrize("hidden", [None, 3, 9])  # fewer and more features than positions
@pytest.mark.parametrize("masked", [False, True])
def test_additive_attention_in_one_operation_is_that_in_parts(hidden, masked):
    torch.manual_seed(0)
    attention = Additive(hidden).sized(3, 4).double()
    values = torch.randn(2, 5, 3, dtype=torch.float64).mT.requires_grad_()
    u = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True] * 5, [True, True, False, False, False]]) if masked else None
    inputs = [values, u, *attention.parameters()]

    def run(forward, given):
        summary, weights = forward(attention, FeatureMap(given, mask, (5,)), u)
        return summary, weights, torch.autograd.grad(summary.sin().sum() + (weights**3).sum(), inputs)

    fast, parts = run(Additive.forward, values), run(Attention.forward, values)
    torch.testing.assert_close(fast, parts)
    assert "_Attend" in str(attention(FeatureMap(values, mask, (5,)), u)[1].grad_fn)
    if mask is not None:
        for spoil in (torch.nan, torch.inf, -1e300, 1e6):
            for forward in (Additive.forward, Attention.forward):
                torch.testing.assert_close(run(forward, torch.where(mask[:, None], values, spoil)), parts)
        assert (fast[2][0][1, :, 2:] == 0).all()
    assert torch.autograd.gradcheck(lambda q, w: attention(FeatureMap(q, mask, (5,)), w), (values, u))
    frozen = attention(FeatureMap(values.detach(), mask, (5,)), u)[0]
    assert torch.autograd.grad(frozen.sin().sum(), u)[0].isfinite().all()
    by_weights = torch.autograd.grad((attention(FeatureMap(values, mask, (5,)), u)[1] ** 3).sum(), inputs)
    expected = torch.autograd.grad(
        (Attention.forward(attention, FeatureMap(values, mask, (5,)), u)[1] ** 3).sum(), inputs
    )
    torch.testing.assert_close(by_weights, expected)
    assert torch.autograd.gradgradcheck(lambda q, w: attention(FeatureMap(q, mask, (5,)), w)[0], (values, u))


def test_ordinary_padding_is_not_copied():
    mask = torch.tensor([[True] * 5, [True, True, False, False, False]])
    for spoil, copied in ((7.0, False), (torch.nan, True), (torch.inf, True), (1e30, True)):
        values = torch.where(mask[:, None], torch.randn(2, 3, 5), spoil)
        with Operations() as found:
            Additive(2).sized(3, 4)(FeatureMap(values, mask, (5,)), torch.randn(2, 4))
        masked = sum("where" in name for name in found.names)
        assert masked == 1 + copied  # scores always are


def test_additive_attention_launches_few_operations():
    # A GPU's step of small batches lasts as long as its launches.
    attention = Additive(2).sized(3, 4)
    mask = torch.tensor([[True] * 5, [True, True, False, False, False]])
    values, u = torch.randn(2, 3, 5, requires_grad=True), torch.randn(2, 4, requires_grad=True)
    with Operations() as found:
        attention(FeatureMap(values, mask, (5,)), u)[0].sum().backward()
    assert len(found.names) <= 60


def test_additive_attention_goes_by_parts_where_it_must():
    found, u = FeatureMap(torch.randn(2, 3, 5), None, (5,)), torch.randn(2, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        weights = Additive().sized(3, 4)(found, u)[1]
    assert "_Attend" not in str(weights.grad_fn)
    assert "_Attend" not in str(Additive(tanh=False).sized(3, 4)(found, u)[1].grad_fn)


def test_additive_attention_without_tanh_does_not_see_u():
    torch.manual_seed(0)
    attention = Additive(tanh=False).sized(3, 4)
    found = FeatureMap(torch.randn(2, 3, 6), None, (6,))
    torch.testing.assert_close(attention(found, torch.randn(2, 4))[1], attention(found, torch.randn(2, 4))[1])


def test_attention_without_weights_is_refused():
    with pytest.raises(ValueError, match=r"Additive: has no weights yet; call sized\(channels, width\)"):
        Additive()(FeatureMap(torch.randn(2, 3, 6), None, (6,)), torch.randn(2, 4))
    with pytest.raises(ValueError, match="give both channels and width, or neither"):
        Additive(channels=3)
    with pytest.raises(NotImplementedError, match=r"Attention\.sized"):
        Attention().sized(1, 2)
    with pytest.raises(NotImplementedError, match=r"Attention\.scores"):
        Attention(1, 2).scores(torch.zeros(1, 1, 1), torch.zeros(1, 2))
