import subprocess
import sys

import pytest
import torch
from pytorch_metric_learning import distances, losses, miners, reducers, regularizers

from likewise.losses import from_pml, from_pml_vectors
from likewise.testing import check_loss
from tests.losses.problems import vectors


def points(count=10, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 3, generator=generator, dtype=torch.float64), torch.randint(
        0, 3, (count,), generator=generator
    )


EUCLIDEAN = distances.LpDistance(normalize_embeddings=False)
LOSSES = [
    losses.ContrastiveLoss(distance=EUCLIDEAN),
    losses.TripletMarginLoss(distance=EUCLIDEAN),
    losses.GeneralizedLiftedStructureLoss(distance=EUCLIDEAN),
    losses.MarginLoss(distance=EUCLIDEAN),
    losses.MarginLoss(distance=EUCLIDEAN, learn_beta=True, num_classes=4, nu=0.1),
    losses.MultiSimilarityLoss(distance=EUCLIDEAN),
    losses.NCALoss(distance=EUCLIDEAN),
    losses.NTXentLoss(distance=EUCLIDEAN),
    losses.SupConLoss(distance=EUCLIDEAN),
    losses.IntraPairVarianceLoss(distance=EUCLIDEAN),
]
# These do not support references, or read them wrongly (LiftedStructureLoss then depends on the order of rows).
SQUARE = [losses.LiftedStructureLoss(distance=EUCLIDEAN), losses.RankedListLoss(margin=0.4, Tn=1, distance=EUCLIDEAN)]
ORDERED = [losses.NPairsLoss(distance=EUCLIDEAN)]  # takes the first pair of each class
MINERS = [
    miners.TripletMarginMiner(margin=0.5, type_of_triplets="semihard", distance=EUCLIDEAN),
    miners.BatchHardMiner(distance=EUCLIDEAN),
    miners.BatchEasyHardMiner(distance=EUCLIDEAN),
    miners.MultiSimilarityMiner(distance=EUCLIDEAN),
    miners.PairMarginMiner(distance=EUCLIDEAN),
    miners.HDCMiner(distance=EUCLIDEAN),
]


def name(module):
    return type(module).__name__


@pytest.mark.parametrize("loss", LOSSES + SQUARE, ids=name)
def test_contract(loss):
    check_loss(from_pml(loss), rectangular=loss not in SQUARE)


@pytest.mark.parametrize("miner", MINERS, ids=name)
def test_contract_with_a_miner(miner):
    check_loss(from_pml(losses.TripletMarginLoss(margin=0.3), miner))


@pytest.mark.parametrize(
    ("loss", "miner"),
    [(loss, None) for loss in LOSSES + SQUARE + ORDERED] + [(LOSSES[i % 4], miner) for i, miner in enumerate(MINERS)],
    ids=name,
)
def test_it_equals_the_loss_on_vectors(loss, miner):
    x, labels = points()
    x.requires_grad_()
    hard = None if miner is None else miner(x, labels)
    expected = loss(x, labels, hard)
    D = torch.cdist(x, x)
    found = from_pml(loss, miner)(D, labels)
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)
    slopes = [torch.autograd.grad(value, x, retain_graph=True)[0] for value in (found, expected)]
    assert torch.allclose(*slopes, atol=1e-6)


@pytest.mark.parametrize("loss", LOSSES, ids=name)
def test_columns_are_references(loss):
    x, labels = points()
    y, references = points(7, seed=1)
    expected = loss(x, labels, None, y, references)
    assert from_pml(loss)(torch.cdist(x, y), labels, references).item() == pytest.approx(expected.item(), rel=1e-6)


def test_random_mining_works():
    x, labels = points()
    loss = from_pml(losses.ContrastiveLoss(), miners.UniformHistogramMiner(num_bins=4))
    assert loss(torch.cdist(x, x), labels).isfinite()


def test_nothing_passed_in_is_changed_and_nothing_is_kept():
    loss, miner = losses.MarginLoss(learn_beta=True), miners.BatchHardMiner()
    bridge = from_pml(loss, miner)
    x, labels = points()
    bridge(torch.cdist(x, x), labels).backward()
    assert isinstance(loss.distance, distances.LpDistance)
    assert isinstance(miner.distance, distances.LpDistance)
    assert loss.beta.grad is None
    assert [parameter.grad is not None for parameter in bridge.parameters()] == [True]
    assert bridge.distance.matrix is None
    assert set(bridge.state_dict()) == {"loss.beta"}


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (losses.CircleLoss, "CircleLoss needs cosine similarities of vectors"),
        (losses.TupletMarginLoss, "TupletMarginLoss needs cosine"),
        (losses.FastAPLoss, "FastAPLoss needs Euclidean distances of vectors of length 1"),
        (losses.AngularLoss, "AngularLoss needs the vectors themselves"),
        (losses.SmoothAPLoss, "SmoothAPLoss needs cosine"),
        (losses.PNPLoss, "PNPLoss needs cosine"),
        (losses.SignalToNoiseRatioContrastiveLoss, "SignalToNoiseRatioContrastiveLoss needs the vectors"),
        (losses.ThresholdConsistentMarginLoss, "ThresholdConsistentMarginLoss needs cosine"),
        (losses.DynamicSoftMarginLoss, "DynamicSoftMarginLoss needs Euclidean"),
        (losses.InstanceLoss, "InstanceLoss needs cosine"),
        (losses.HistogramLoss, "HistogramLoss needs similarities between -1 and 1"),
        (losses.VICRegLoss, "VICRegLoss needs the vectors"),
        (lambda: losses.ManifoldLoss(l=3), "ManifoldLoss needs the vectors"),
        (lambda: losses.P2SGradLoss(3, 3), "P2SGradLoss needs the vectors"),
        (lambda: losses.ProxyNCALoss(3, 3), "ProxyNCALoss compares vectors with its class weights"),
        (lambda: losses.ProxyAnchorLoss(3, 3), "ProxyAnchorLoss compares vectors"),
        (lambda: losses.ArcFaceLoss(3, 3), "ArcFaceLoss compares vectors"),
        (lambda: losses.CosFaceLoss(3, 3), "CosFaceLoss compares vectors"),
        (lambda: losses.SoftTripleLoss(3, 3), "SoftTripleLoss compares vectors"),
        (lambda: losses.NormalizedSoftmaxLoss(3, 3), "NormalizedSoftmaxLoss compares vectors"),
        (lambda: losses.CrossBatchMemory(losses.ContrastiveLoss(), 3), "CrossBatchMemory wraps a loss of vectors"),
        (lambda: losses.SelfSupervisedLoss(losses.ContrastiveLoss()), "SelfSupervisedLoss wraps a loss"),
        (
            lambda: losses.MultipleLosses([losses.ContrastiveLoss()]),
            "MultipleLosses combines several losses; convert each",
        ),
        (
            lambda: losses.ContrastiveLoss(embedding_regularizer=regularizers.LpRegularizer()),
            "the embedding_regularizer of ContrastiveLoss needs the vectors themselves",
        ),
    ],
)
def test_losses_that_need_vectors_are_refused(make, why):
    with pytest.raises(ValueError, match=f"^from_pml: {why}"):
        from_pml(make())


def test_every_loss_is_either_tried_or_refused():
    tried = {name(loss) for loss in LOSSES + SQUARE + ORDERED}
    abstract = {
        "BaseLossWrapper",
        "BaseMetricLossFunction",
        "GenericPairLoss",
        "WeightRegularizerMixin",
        "EmbeddingRegularizerMixin",
    }
    from likewise.losses.pml import _REFUSED

    for kind in vars(losses).values():
        if isinstance(kind, type) and kind.__name__ not in tried | abstract:
            assert {base.__name__ for base in kind.__mro__} & set(_REFUSED), kind


@pytest.mark.parametrize("make", [miners.DistanceWeightedMiner, miners.AngularMiner])
def test_miners_that_need_vectors_are_refused(make):
    with pytest.raises(ValueError, match=f"^from_pml: {make.__name__} needs"):
        from_pml(losses.ContrastiveLoss(), make())


def test_other_objects_are_refused():
    with pytest.raises(TypeError, match="from_pml: expected loss to be a loss of pytorch-metric-learning, got Linear"):
        from_pml(torch.nn.Linear(1, 1))
    with pytest.raises(TypeError, match="from_pml: expected miner to be a miner of pytorch-metric-learning, got str"):
        from_pml(losses.ContrastiveLoss(), "hard")


def test_what_a_loss_does_not_take_is_refused():
    D, labels = torch.rand(4, 4), torch.tensor([0, 0, 1, 1])
    for loss in (losses.NPairsLoss(), losses.RankedListLoss(margin=0.4, Tn=1)):
        with pytest.raises(ValueError, match=r"this loss takes no col_labels: pass a square D"):
            from_pml(loss)(D, labels, labels)
    with pytest.raises(ValueError, match=r"from_pml\(RankedListLoss\): this loss takes no miner"):
        from_pml(losses.RankedListLoss(margin=0.4, Tn=1), miners.BatchHardMiner())(D, labels)
    with pytest.raises(ValueError, match=r"from_pml\(ContrastiveLoss\): its reducer must give one number"):
        from_pml(losses.ContrastiveLoss(reducer=reducers.DoNothingReducer()))(D, labels)


def test_it_is_imported_only_when_it_is_used():
    code = "import sys, likewise.losses; sys.exit('pytorch_metric_learning' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_any_loss_of_vectors():
    x, labels = vectors(dtype=torch.float32)
    theirs, miner = losses.CircleLoss(), miners.MultiSimilarityMiner()
    found = from_pml_vectors(theirs, miner)(x, labels)
    torch.testing.assert_close(found, theirs(x, labels, miner(x, labels)))
    assert from_pml_vectors(theirs)(x.requires_grad_(), torch.zeros(9, dtype=torch.int64)).requires_grad
    with pytest.raises(TypeError, match="expected loss to be a loss of pytorch-metric-learning, got Linear"):
        from_pml_vectors(torch.nn.Linear(2, 2))
