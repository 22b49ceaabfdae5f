import pytest
import torch

from likewise.models._sequences import unit


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_unit_vectors_of_any_scale(scale):
    torch.testing.assert_close(unit(torch.tensor([3.0, 4.0]) * scale), torch.tensor([0.6, 0.8]))


def test_unit_gradient_and_nan():
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(unit, x)
    assert unit(torch.tensor([torch.nan, 1.0])).isnan().any(), "NaN must not turn into zeros"
