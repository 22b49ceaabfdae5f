import pytest
import torch

from likewise.evaluation.curves import precision_recall_curve
from likewise.evaluation.retrieval import mean_average_precision


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_the_area_is_the_mean_average_precision(own, tied):
    generator = torch.Generator().manual_seed(0)
    D = torch.rand(30, 30, generator=generator)
    D = (D * 4).round() if tied else D
    labels = torch.randint(4, (30,), generator=generator)
    given = (D, labels) if own else (D, labels, labels.flip(0))
    # A multiple of every number of relevant columns up to 11 or so makes it exact.
    curve = precision_recall_curve(*given, points=27_720 * 13)
    assert curve.area == pytest.approx(mean_average_precision(*given), abs=1e-4)
    assert precision_recall_curve(*given).area == pytest.approx(mean_average_precision(*given), abs=0.02)
    assert ((curve.precision > 0) & (curve.precision <= 1)).all()


def test_by_hand():
    D = torch.tensor([[1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
    rows, columns = torch.tensor([1, 1, 7]), torch.tensor([1, 0, 1, 0])  # nobody has 7
    curve = precision_recall_curve(D, rows, columns, points=4)
    assert curve.recall.tolist() == [0.125, 0.375, 0.625, 0.875]
    expected = [(1 + 1 / 2) / 2] * 2 + [(2 / 3 + 2 / 4) / 2] * 2
    assert curve.precision.tolist() == pytest.approx(expected)
    assert precision_recall_curve(D[2:], rows[2:], columns, points=2).precision.tolist() == [0, 0]


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="precision_recall_curve: points must be a whole number of 1 or more, got 0"):
        precision_recall_curve(torch.zeros(2, 2), torch.tensor([0, 1]), points=0)
    with pytest.raises(ValueError, match="precision_recall_curve: D holds NaN in row 0"):
        precision_recall_curve(torch.full((2, 2), torch.nan), torch.tensor([0, 1]))
