import pytest
import torch

from likewise.data.batch import Batch
from likewise.training.pairs import AlignedPairs


def test_some_pairs():
    x, y = Batch(torch.randn(4, 5, 2), [5, 3, 2, 4]), torch.randn(4, 6, 2)
    pairs = AlignedPairs(x, y, torch.rand(4, 5), y_times=torch.arange(6.0), x_times=torch.rand(4, 5), lengths=x.lengths)
    some = pairs[torch.tensor([2, 1])]
    assert len(some) == 2
    assert some.x[0].tolist() == x[2].tolist()
    assert torch.equal(some.truth, pairs.truth[[2, 1]])
    assert torch.equal(some.x_times, pairs.x_times[[2, 1]])
    assert torch.equal(some.y_times, pairs.y_times), "shared by all"
    assert some.lengths.tolist() == [2, 3]
    assert len(pairs[1:]) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": torch.zeros(3, 6, 2)}, "there are 4 items in x, but 3 in y"),
        ({"truth": torch.zeros(5)}, r"expected truth of shape \(4, K\), got \(5,\)"),
        ({"points": torch.zeros(7)}, r"expected points of shape \(4, 5\) or \(5,\), got \(7,\)"),
        ({"x_times": torch.zeros(2, 5)}, r"expected x_times of shape \(T,\) or \(4, T\)"),
        ({"lengths": torch.ones(3, dtype=torch.int64)}, r"expected lengths of shape \(4,\)"),
    ],
)
def test_refusals(change, message):
    given = {"x": torch.zeros(4, 5, 2), "y": torch.zeros(4, 6, 2), "truth": torch.zeros(4, 5)}
    with pytest.raises(ValueError, match=message):
        AlignedPairs(**given | change)
