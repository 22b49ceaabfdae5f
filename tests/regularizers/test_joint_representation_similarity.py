import itertools

import pytest
import torch

from likewise.regularizers import (
    ConcatenatedSimilarity,
    EnergyConfusion,
    GaussianMixture,
    IntraClassPenalty,
    JointMeanDiscrepancy,
    JointRepresentationSimilarity,
    Laplace,
    MarginalSimilarity,
    MomentGenerating,
    Polynomial,
)

LABELS = torch.tensor([0, 1, 1, 2, 0, 2, 1, 3])


def layers(count=8, channels=(5, 3, 4), seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(count, c, generator=generator, dtype=dtype) for c in channels]


def bandwidth(x):
    n = len(x)
    return sum((a - b).square().sum().item() for a in x for b in x) / (n * n - n)


def gaussian(count):
    def kernel(x, i, j):
        widths = {1: [1], 3: [0.5, 1, 2]}[count]
        apart = (x[i] - x[j]).square().sum()
        return sum(torch.exp(-apart / (w * bandwidth(x))) for w in widths) / count

    return kernel


def laplace(x, i, j):
    n = len(x)
    width = sum((a - b).abs().sum() for a in x for b in x) / (n * n - n)
    return torch.exp(-(x[i] - x[j]).abs().sum() / width)


def unit(x):
    return x / x.norm()


def polynomial(x, i, j):
    return (unit(x[i]) @ unit(x[j]) + 1) ** 5


def moment(x, i, j):
    return torch.exp(unit(x[i]) @ unit(x[j]))


KERNELS = [
    (GaussianMixture(1), gaussian(1)),
    (GaussianMixture(3), gaussian(3)),
    (Laplace(), laplace),
    (Polynomial(5), polynomial),
    (MomentGenerating(), moment),
]
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


# ---- Values


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


def test_energy_confusion_against_loops():
    x = layers()[0]
    pairs = [(i, j) for i in range(8) for j in range(8) if LABELS[i] != LABELS[j]]
    expected = sum((x[i] - x[j]).square().sum() for i, j in pairs) / len(pairs)
    torch.testing.assert_close(EnergyConfusion()(x, LABELS), expected)


# ---- What it promises


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
    assert JointRepresentationSimilarity(kernel)([0 * x, 0 * x], labels) == 1


@pytest.mark.parametrize(("kernel", "naive"), KERNELS, ids=lambda k: getattr(k, "__name__", type(k).__name__))
def test_kernels_are_symmetric_and_positive(kernel, naive):
    x = layers()[0]
    K = kernel(x)
    torch.testing.assert_close(K, K.T)
    assert torch.linalg.eigvalsh(K).min() > -1e-9
    product = JointRepresentationSimilarity(kernel).joint(layers())
    assert torch.linalg.eigvalsh(product).min() > -1e-9


def test_large_features_keep_their_digits():
    x = layers(dtype=torch.float32)[0] + 1000
    expected = triple_loop([x.double()], LABELS, [gaussian(3)])
    torch.testing.assert_close(MarginalSimilarity()(x, LABELS).double(), expected, rtol=1e-4, atol=0)


@pytest.mark.parametrize("kernel", [GaussianMixture(), GaussianMixture(1), Laplace()], ids=repr)
@pytest.mark.parametrize("scale", [1.0, 1e-5, 1e-12])
def test_rounding_is_no_difference(kernel, scale):
    # Cosines of a network that tells nothing apart, rounded by products in TensorFloat-32: a GPU gave NaN here.
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


# ---- Refusals


def test_refusals():
    features = layers()
    jrs = JointRepresentationSimilarity()
    with pytest.raises(ValueError, match=r"features\[1\] has 3 rows, features\[0\] has 8"):
        jrs([features[0], features[1][:3]], LABELS)
    with pytest.raises(ValueError, match=r"expected features\[0\] of shape \(B, C\), got \(8, 5, 1\); average"):
        jrs([features[0][..., None]], LABELS)
    with pytest.raises(ValueError, match=r"expected labels of shape \(8,\), as features have it, got \(3,\)"):
        jrs(features, LABELS[:3])
    with pytest.raises(TypeError, match="expected labels to be integers"):
        jrs(features, LABELS.double())
    with pytest.raises(TypeError, match="or a list of them, got list"):
        jrs([], LABELS)
    with pytest.raises(ValueError, match="there are 2 kernels for 3 layers"):
        JointRepresentationSimilarity([Laplace(), Laplace()])(features, LABELS)
    with pytest.raises(TypeError, match=r"expected kernels\[0\] to be a function, got str"):
        JointRepresentationSimilarity(["gaussian"])
    with pytest.raises(ValueError, match=r"expected a kernel to give \(8, 8\), got \(8,\)"):
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
