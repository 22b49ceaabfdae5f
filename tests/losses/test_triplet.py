import pytest
import torch

from likewise import losses
from likewise.testing import check_loss
from tests.losses.problems import check_against_loops, mean

MINING = [losses.all_triplets, losses.hard_triplets, losses.semi_hard_triplets]


@pytest.mark.parametrize("mining", MINING)
@pytest.mark.parametrize("options", [{}, {"margin": 0.6}, {"reduction": "sum"}], ids=str)
def test_contract(mining, options):
    check_loss(losses.Triplet(**options, mining=mining))


@pytest.mark.parametrize("margin", [0.2, 0.7])
def test_in_loops(margin):
    def every(positives, negatives):
        return mean([max(0.0, p - n + margin) for p in positives for n in negatives])

    def hard(positives, negatives):
        return max(0.0, max(positives) - min(negatives) + margin) if positives and negatives else 0.0

    def semi_hard(positives, negatives):
        return mean([p - n + margin for p in positives for n in negatives if p < n < p + margin])

    for mining, loop in zip(MINING, (every, hard, semi_hard), strict=True):
        check_against_loops(losses.Triplet, loop, margin=margin, mining=mining)


def test_by_hand():
    # Positives 0.1 and 0.5, negatives 0.2 and 0.6, margin 0.2: hinges 0.1, 0, 0.5 and 0.1.
    D, labels = torch.tensor([[0.1, 0.5, 0.2, 0.6]]), ([0], [0, 0, 1, 1])
    values = [losses.Triplet(mining=mining)(D, *labels).item() for mining in MINING]
    assert values == pytest.approx([0.7 / 4, 0.5, (0.1 + 0.1) / 2])


def test_a_mining_of_ones_own():
    def easy(pairs, margin):
        """The nearest positive with the farthest negative."""
        positive = pairs.distances.masked_fill(~pairs.positives, torch.inf).amin(1)
        negative = pairs.distances.masked_fill(~pairs.negatives, -torch.inf).amax(1)
        keep = pairs.complete
        return losses.Triplets(
            positive.masked_fill(~keep, 0)[:, None, None],
            negative.masked_fill(~keep, 0)[:, None, None],
            keep[:, None, None],
        )

    check_loss(losses.Triplet(2.0, mining=easy))
    assert losses.Triplet(2.0, mining=easy)(torch.tensor([[0.1, 0.5, 0.2, 0.6]]), [0], [0, 0, 1, 1]).item() == 1.5


def test_hard_triplets_share_the_gradient_among_ties():
    D = torch.tensor([[0.5, 0.5, 0.4, 0.4]], requires_grad=True)
    losses.Triplet(mining=losses.hard_triplets)(D, [0], [0, 0, 1, 1]).backward()
    assert D.grad.tolist() == [[0.5, 0.5, -0.5, -0.5]]


def test_bad_settings_are_refused():
    with pytest.raises(TypeError, match="Triplet: expected mining to be a function such as hard_triplets, got 'hard'"):
        losses.Triplet(mining="hard")


def test_repr():
    assert repr(losses.Triplet()) == "Triplet(reduction=mean, margin=0.2, mining=all_triplets)"
