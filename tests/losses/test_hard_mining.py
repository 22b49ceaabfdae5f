import pytest
import torch

from likewise import losses
from likewise.testing import check_loss
from tests.losses.problems import check_against_loops, mean, mined


@pytest.mark.parametrize("kind", [losses.HardMining, losses.HardMiningMeans])
@pytest.mark.parametrize("options", [{}, {"margin": 0.5}, {"reduction": "sum"}], ids=str)
def test_contract(kind, options):
    check_loss(kind(**options))


@pytest.mark.parametrize("margin", [0.1, 0.4])
def test_the_paper_in_loops(margin):
    def hinges(positives, negatives):
        if not positives or not negatives:
            return 0.0
        pulled = sum(max(0.0, p - min(negatives) + margin) for p in positives)
        return pulled + sum(max(0.0, max(positives) + margin - n) for n in negatives)

    check_against_loops(losses.HardMining, hinges, margin=margin)


@pytest.mark.parametrize("margin", [0.1, 0.4])
def test_the_code_in_loops(margin):
    def means(positives, negatives):
        positives, negatives = mined(positives, negatives, margin)
        return mean(positives) + mean([margin - n for n in negatives])

    check_against_loops(losses.HardMiningMeans, means, margin=margin)


def test_by_hand():
    # Positives at 0.2 and 0.7, negatives at 0.6 and 0.9, margin 0.1: p_max 0.7, n_min 0.6.
    D = torch.tensor([[0.2, 0.7, 0.6, 0.9]])
    labels = torch.tensor([0]), torch.tensor([0, 0, 1, 2])
    assert losses.HardMining()(D, *labels).item() == pytest.approx((0.7 - 0.6 + 0.1) + (0.7 + 0.1 - 0.6))
    assert losses.HardMiningMeans()(D, *labels).item() == pytest.approx(0.7 + (0.1 - 0.6))


def test_gradients_of_both_forms_by_hand():
    D = torch.tensor([[0.2, 0.7, 0.6, 0.9]], requires_grad=True)
    labels = torch.tensor([0]), torch.tensor([0, 0, 1, 2])
    # The hinges move the hardest distances as well: each appears in its own hinge and as the other side's bound.
    (slope,) = torch.autograd.grad(losses.HardMining()(D, *labels), D)
    assert slope.tolist() == [[0, 2, -2, 0]]
    (slope,) = torch.autograd.grad(losses.HardMiningMeans()(D, *labels), D)
    assert slope.tolist() == [[0, 1, -1, 0]]


def test_an_augmentation_on_the_diagonal_is_a_positive():
    # As TAP trains: no other item of the class, but the distance to an augmented copy on the diagonal.
    D, labels = torch.tensor([[0.5, 0.3], [0.3, 0.1]]), torch.tensor([0, 1])
    assert losses.HardMining(reduction="sum")(D, labels) == 0
    expected = (0.5 - 0.3 + 0.1) + (0.5 + 0.1 - 0.3)
    assert losses.HardMining(reduction="sum")(D, labels, labels).item() == pytest.approx(expected)


def test_anchors_without_hard_pairs_have_no_loss():
    D, labels = torch.tensor([[0.1, 0.9]], requires_grad=True), ([0], [0, 1])
    for kind in (losses.HardMining, losses.HardMiningMeans):
        loss = kind()(D, *labels)
        assert loss == 0
        assert torch.autograd.grad(loss, D)[0].abs().sum() == 0


@pytest.mark.parametrize("kind", [losses.HardMining, losses.HardMiningMeans])
def test_bad_settings_are_refused(kind):
    with pytest.raises(TypeError, match=f"{kind.__name__}: expected margin to be a number, got str"):
        kind("0.1")
    with pytest.raises(ValueError, match=f"{kind.__name__}: expected reduction to be 'mean' or 'sum', got 'none'"):
        kind(reduction="none")
