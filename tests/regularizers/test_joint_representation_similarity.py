import itertools

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from likewise.regularizers import (
    ConcatenatedSimilarity,
    EnergyConfusion,
    GaussianMixture,
    IntraClassPenalty,
    JointMeanDiscrepancy,
    JointRepresentationSimilarity,
    Laplace,
    MarginalSimilarity,
)
from tests.regularizers.problems import KERNELS, LABELS, bandwidth, gaussian, layers

VARIANTS = [JointRepresentationSimilarity, ConcatenatedSimilarity, JointMeanDiscrepancy]
EVERY = [*(kind() for kind in (*VARIANTS, MarginalSimilarity, IntraClassPenalty)), EnergyConfusion()]


def triple_loop(features, labels, kernels):
    """Over classes, their items, and the items of other classes, as in the paper."""
    total, count = 0.0, 0
    for one in set(labels.tolist()):
        for i in (labels == one).nonzero()[:, 0].tolist():
            for j in (labels != one).nonzero()[:, 0].tolist():
                product = 1.0
                for x, kernel in zip(features, kernels, strict=True):
                    product = product * kernel(x, i, j)
                total, count = total + product, count + 1
    return total / count


@pytest.mark.parametrize(("kernel", "naive"), KERNELS, ids=lambda k: getattr(k, "__name__", type(k).__name__))
def test_it_equals_the_triple_loop(kernel, naive):
    features = layers()
    expected = triple_loop(features, LABELS, [naive] * 3)
    torch.testing.assert_close(JointRepresentationSimilarity(kernel)(features, LABELS), expected)
    torch.testing.assert_close(JointRepresentationSimilarity([kernel] * 3)(features, LABELS), expected)


def test_by_default_it_is_the_papers():
    features = layers()
    expected = triple_loop(features, LABELS, [gaussian(3), gaussian(3), gaussian(1)])
    torch.testing.assert_close(JointRepresentationSimilarity()(features, LABELS), expected)
    two = triple_loop(features[:2], LABELS, [gaussian(3)] * 2)
    torch.testing.assert_close(JointRepresentationSimilarity()(features[:2], LABELS), two)


def test_one_layer_is_the_marginal_similarity():
    x = layers()[1]
    expected = triple_loop([x], LABELS, [gaussian(3)])
    for found in (
        MarginalSimilarity()(x, LABELS),
        MarginalSimilarity()([x], LABELS),
        JointRepresentationSimilarity()(x, LABELS),
        ConcatenatedSimilarity()([x], LABELS),
    ):
        torch.testing.assert_close(found, expected)


def test_concatenated():
    features = layers()
    expected = triple_loop([torch.cat(features, 1)], LABELS, [gaussian(3)])
    torch.testing.assert_close(ConcatenatedSimilarity()(features, LABELS), expected)


def test_discrepancy_against_loops():
    features = layers()
    jrs = JointRepresentationSimilarity()
    K = jrs.joint(features)
    values = []
    for one, other in itertools.combinations(range(4), 2):
        p, q = (one == LABELS).nonzero()[:, 0].tolist(), (other == LABELS).nonzero()[:, 0].tolist()

        def mean(a, b):
            return sum(K[i, j] for i in a for j in b) / (len(a) * len(b))

        values.append(mean(p, p) + mean(q, q) - 2 * mean(p, q))
    assert all(value > 0 for value in values)
    torch.testing.assert_close(JointMeanDiscrepancy()(features, LABELS), -sum(values) / len(values))


def test_intra_class_penalty_against_loops():
    x = layers()[0]
    total = 0.0
    for one in range(4):
        members = (one == LABELS).nonzero()[:, 0].tolist()
        pairs = list(itertools.permutations(members, 2))
        if pairs:
            total -= sum(torch.exp(-(x[i] - x[j]).square().sum() / 2) for i, j in pairs) / len(pairs)
    torch.testing.assert_close(IntraClassPenalty()(x, LABELS), total)


def test_no_gradient_flows_through_the_bandwidth():
    features = [x.requires_grad_() for x in layers()]
    free = JointRepresentationSimilarity()(features, LABELS)
    counts = (3, 3, 1)
    fixed = [GaussianMixture(c, bandwidth=bandwidth(x.detach())) for c, x in zip(counts, features, strict=True)]
    held = JointRepresentationSimilarity(fixed)(features, LABELS)
    for ours, theirs in zip(torch.autograd.grad(free, features), torch.autograd.grad(held, features), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert torch.autograd.gradcheck(lambda *xs: JointRepresentationSimilarity(fixed)(xs, LABELS), features)


def features_for(kind):
    return layers() if type(kind) in VARIANTS else layers()[1]


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: type(kind).__name__)
def test_contract(kind):
    features = features_for(kind)
    value = kind(features, LABELS)
    assert value.shape == ()
    order = torch.randperm(8, generator=torch.Generator().manual_seed(0))
    shuffled = [x[order] for x in features] if isinstance(features, list) else features[order]
    torch.testing.assert_close(kind(shuffled, LABELS[order]), value)
    torch.testing.assert_close(kind(features, 7 - LABELS), value)
    for form in (LABELS.tolist(), LABELS.numpy(), LABELS.int()):
        assert torch.equal(kind(features, form), value)
    half = [x.half() for x in features] if isinstance(features, list) else features.half()
    found = kind(half, LABELS)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), value, rtol=2e-3, atol=2e-3)
    single = [x.float() for x in features] if isinstance(features, list) else features.float()
    expected = kind(single, LABELS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(kind(single, LABELS), expected), "mixed precision"


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: type(kind).__name__)
@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_one_class_singletons_and_equal_items(kind, count):
    for labels, scale in (
        (torch.zeros(count, dtype=torch.int64), 1.0),
        (torch.arange(count), 1.0),
        (torch.arange(count), 0.0),
    ):
        features = [(scale * x).requires_grad_() for x in layers(count)]
        value = kind(features if type(kind) in VARIANTS else features[1], labels)
        assert value.isfinite()
        assert value.requires_grad
        for slope in torch.autograd.grad(value, features, allow_unused=True):
            assert slope is None or slope.isfinite().all()
        if not labels.any() and not isinstance(kind, IntraClassPenalty):
            assert value == 0, "one class"


def test_separated_classes_are_not_alike():
    x, labels = torch.randn(6, 2) + 100 * torch.arange(6)[:, None] // 3 * 1.0, torch.arange(6) // 3
    kernel = GaussianMixture(3, bandwidth=1.0)
    assert JointRepresentationSimilarity(kernel)([x, x], labels) < 1e-6
    assert JointRepresentationSimilarity(kernel)([0 * x, 0 * x], labels).item() == pytest.approx(1)


def test_large_features_keep_their_digits():
    x = layers(dtype=torch.float32)[0] + 1000
    expected = triple_loop([x.double()], LABELS, [gaussian(3)])
    torch.testing.assert_close(MarginalSimilarity()(x, LABELS).double(), expected, rtol=1e-4, atol=0)


MIXTURES = [
    None,
    GaussianMixture(1),
    GaussianMixture(4),
    [GaussianMixture(3), GaussianMixture(1, bandwidth=2.0), GaussianMixture(3, bandwidth=0.5)],
]
each_mixture = pytest.mark.parametrize("kernels", MIXTURES, ids=["default", "1", "4", "given"])


class Count(TorchDispatchMode):
    """How many operations run."""

    def __init__(self):
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.total += 1
        return function(*args, **(kwargs or {}))


def by_parts(kind, features, labels):
    """The same value from the joint kernel, whose derivative autograd finds."""
    found = kind.read(features)
    return (kind.joint(found) * kind.weights(labels, found[0].dtype)).sum()


@each_mixture
@pytest.mark.parametrize("kind", [*VARIANTS, MarginalSimilarity], ids=lambda kind: kind.__name__)
def test_gaussians_in_one_operation_are_those_in_parts(kind, kernels):
    given = [x.requires_grad_() for x in layers()][: 1 if kind is MarginalSimilarity else 3]
    if isinstance(kernels, list):
        kernels = kernels[: 1 if kind in (MarginalSimilarity, ConcatenatedSimilarity) else 3]
    similarity = kind(kernels)
    value, expected = similarity(given, LABELS), by_parts(similarity, given, LABELS)
    assert "_JointGaussians" in str(value.grad_fn)
    assert "_JointGaussians" not in str(expected.grad_fn)
    torch.testing.assert_close(value, expected)
    ours, theirs = torch.autograd.grad(3 * value, given), torch.autograd.grad(3 * expected, given)
    torch.testing.assert_close(ours, theirs)
    assert all(slope.abs().max() > 1e-3 for slope in ours)


def test_the_intra_class_penalty_has_the_slope_of_loops():
    x = layers()[0].requires_grad_()
    pairs = [(i, j) for i in range(8) for j in range(8) if i != j and LABELS[i] == LABELS[j]]
    count = LABELS.bincount()[LABELS]
    expected = -sum(torch.exp(-(x[i] - x[j]).square().sum() / 2) / (count[i] * (count[i] - 1)) for i, j in pairs)
    value = IntraClassPenalty()(x, LABELS)
    assert "_JointGaussians" in str(value.grad_fn)
    torch.testing.assert_close(torch.autograd.grad(value, x), torch.autograd.grad(expected, x))


def test_gaussians_beside_other_kernels_and_of_unlike_counts_go_by_parts():
    features = [x.requires_grad_() for x in layers()[:2]]
    for kernels in ([GaussianMixture(), Laplace()], [GaussianMixture(2), GaussianMixture(3)]):
        assert "_JointGaussians" not in str(JointRepresentationSimilarity(kernels)(features, LABELS).grad_fn)

    class Twice(GaussianMixture):
        def forward(self, x):
            return 2 * super().forward(x)

    one, two = (MarginalSimilarity(kernel)(features[0], LABELS) for kernel in (GaussianMixture(), Twice()))
    torch.testing.assert_close(two, 2 * one)


def test_gaussians_launch_few_operations():
    # A GPU's step of small batches lasts as long as its launches: by parts there were 260.
    features = [torch.randn(100, c, requires_grad=True) for c in (64, 32, 51)]
    labels = torch.arange(100) % 51
    with Count() as found:
        JointRepresentationSimilarity()(features, labels).backward()
    assert found.total <= 64


def test_gradients_in_half_and_mixed_precision_and_of_some_layers():
    single = [x.float() for x in layers()]
    expected = torch.autograd.grad(
        JointRepresentationSimilarity()([x.requires_grad_() for x in single], LABELS), single
    )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = torch.autograd.grad(JointRepresentationSimilarity()(single, LABELS), single)
    for found, slope in zip(mixed, expected, strict=True):
        assert torch.equal(found, slope)
    half = [x.detach().half().requires_grad_() for x in single]
    for found, slope in zip(
        torch.autograd.grad(JointRepresentationSimilarity()(half, LABELS), half), expected, strict=True
    ):
        assert found.dtype == torch.float16
        torch.testing.assert_close(found.float(), slope, rtol=1e-2, atol=2e-4)
    frozen = [single[0].detach(), single[1], single[2].detach()]
    torch.testing.assert_close(
        torch.autograd.grad(JointRepresentationSimilarity()(frozen, LABELS), single[1])[0], expected[1]
    )
    double = [single[0].detach().double(), single[1], single[2].double()]
    value = JointRepresentationSimilarity()(double, LABELS)
    assert value.dtype == torch.float64
    assert torch.autograd.grad(value, single[1])[0].dtype == torch.float32
    assert not JointRepresentationSimilarity()([x.detach() for x in single], LABELS).requires_grad


def test_gradients_keep_the_digits_of_large_features():
    x = layers(dtype=torch.float32)[0] + 1000
    slopes = []
    for given in (x, x.double()):
        given = given.clone().requires_grad_()
        slopes.append(torch.autograd.grad(MarginalSimilarity()(given, LABELS), given)[0].double())
    torch.testing.assert_close(slopes[0], slopes[1], rtol=1e-3, atol=1e-6)


def test_gradients_of_gaussians_far_apart_are_zero():
    x = (1e3 * torch.arange(6.0)[:, None]).requires_grad_()
    for given in ([x], [x, x, x]):
        value = JointRepresentationSimilarity(GaussianMixture(3, bandwidth=1.0))(given, torch.arange(6))
        assert value == 0
        assert (torch.autograd.grad(value, x)[0] == 0).all()


@each_mixture
def test_a_second_derivative(kernels):
    features = [x.requires_grad_() for x in layers()]
    features[2] = features[1]  # one layer twice
    similarity = JointRepresentationSimilarity(kernels)
    slopes = []
    for value in (similarity(features, LABELS), by_parts(similarity, features, LABELS)):
        first = torch.autograd.grad(value.sin(), features[:2], create_graph=True)
        slopes.append(torch.autograd.grad(sum(slope.square().sum() for slope in first), features[:2]))
    torch.testing.assert_close(*slopes)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_on_a_gpu_nothing_waits_and_labels_may_be_on_the_cpu():
    features = layers()
    expected = JointRepresentationSimilarity()(features, LABELS)
    there = [x.cuda().requires_grad_() for x in features]
    JointRepresentationSimilarity()(there, LABELS)  # tables that depend on the number of features are made once
    try:
        torch.cuda.set_sync_debug_mode("error")
        value = JointRepresentationSimilarity()(there, LABELS)
        slopes = torch.autograd.grad(value, there)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.testing.assert_close(value.cpu(), expected)
    assert all(slope.is_cuda for slope in slopes)
    torch.testing.assert_close(JointRepresentationSimilarity()(features, LABELS.cuda()), expected)


def test_refusals():
    features = layers()
    jrs = JointRepresentationSimilarity()
    with pytest.raises(ValueError, match=r"features\[1\] has 3 rows, but features\[0\] has 8"):
        jrs([features[0], features[1][:3]], LABELS)
    with pytest.raises(ValueError, match=r"expected features\[0\] of shape \(B, C\), got \(8, 5, 1\); average"):
        jrs([features[0][..., None]], LABELS)
    with pytest.raises(ValueError, match=r"expected labels of shape \(8,\), got \(3,\)"):
        jrs(features, LABELS[:3])
    with pytest.raises(TypeError, match="expected labels to be whole numbers or names"):
        jrs(features, LABELS.double())
    with pytest.raises(TypeError, match="or a list of them, got list"):
        jrs([], LABELS)
    with pytest.raises(ValueError, match="there are 2 kernels for 3 layers"):
        JointRepresentationSimilarity([Laplace(), Laplace()])(features, LABELS)
    with pytest.raises(TypeError, match=r"expected kernels\[0\] to be a function, got str"):
        JointRepresentationSimilarity(["gaussian"])
    with pytest.raises(ValueError, match=r"expected a kernel of shape \(8, 8\), got \(8,\)"):
        JointRepresentationSimilarity(lambda x: x[:, 0])(features, LABELS)
    for kind in (MarginalSimilarity(), IntraClassPenalty(), EnergyConfusion()):
        with pytest.raises(ValueError, match="expected features of one layer, got 3"):
            kind(features, LABELS)
    with pytest.raises(ValueError, match="bandwidth must be positive"):
        GaussianMixture(bandwidth=0.0)


def test_repr():
    assert repr(JointRepresentationSimilarity()) == "JointRepresentationSimilarity()"
    assert "Laplace" in repr(JointRepresentationSimilarity(Laplace()))
    assert "Laplace" in repr(JointRepresentationSimilarity([Laplace(), Laplace()]))
