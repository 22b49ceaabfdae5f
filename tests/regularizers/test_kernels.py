import pytest
import torch

from likewise.regularizers import (
    GaussianMixture,
    JointRepresentationSimilarity,
    Laplace,
)
from tests.regularizers.problems import KERNELS, layers


@pytest.mark.parametrize(("kernel", "naive"), KERNELS, ids=lambda k: getattr(k, "__name__", type(k).__name__))
def test_kernels_are_symmetric_and_positive(kernel, naive):
    x = layers()[0]
    K = kernel(x)
    torch.testing.assert_close(K, K.T)
    assert torch.linalg.eigvalsh(K).min() > -1e-9
    product = JointRepresentationSimilarity(kernel).joint(layers())
    assert torch.linalg.eigvalsh(product).min() > -1e-9


@pytest.mark.parametrize("kernel", [GaussianMixture(), GaussianMixture(1), Laplace()], ids=repr)
@pytest.mark.parametrize("scale", [1.0, 1e-5, 1e-12])
def test_rounding_does_not_count_as_a_difference(kernel, scale):
    # Cosines of a network with equal outputs, rounded by TensorFloat-32 products: they gave NaN on a GPU.
    centres = torch.randn(1, 16, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(30) % 5
    for ulps in (0, 1, 4):
        offsets = torch.randint(-ulps, ulps + 1, (30, 16), generator=torch.Generator().manual_seed(1))
        x = (scale * centres * (1 + offsets * torch.finfo(torch.float32).eps)).requires_grad_()
        value = JointRepresentationSimilarity(kernel)([x, x, x], labels)
        assert value > 0.5, "alike"
        (slope,) = torch.autograd.grad(value, x)
        assert slope.abs().max() * scale < 1e5

    x = scale * (centres + 1e-3 * torch.randn(30, 16, generator=torch.Generator().manual_seed(2)))
    assert JointRepresentationSimilarity(kernel)([x, x, x], labels) < 0.2, "a thousandth is a difference"
