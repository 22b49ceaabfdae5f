import pytest
import torch

from likewise import losses
from likewise.testing import check_loss
from tests.losses.problems import check_against_loops, matrices, mean, rows_of


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beta": 0.5, "learn_beta": True},
        {"beta": 0.6, "classes": 4, "learn_beta": True, "nu": 0.1},
        {"reduction": "sum"},
    ],
    ids=str,
)
def test_contract(options):
    check_loss(losses.Margin(**options))


def hinges(positives, negatives, margin, beta):
    return mean([max(0.0, p - beta + margin) for p in positives]) + mean(
        [max(0.0, beta - n + margin) for n in negatives]
    )


@pytest.mark.parametrize(("margin", "beta"), [(0.2, 1.2), (0.3, 0.6)])
def test_in_loops(margin, beta):
    check_against_loops(
        lambda **options: losses.Margin(**options).double(),
        lambda p, n: hinges(p, n, margin, torch.tensor(beta).item()) + 0.5 * torch.tensor(beta).item(),
        margin=margin,
        beta=beta,
        nu=0.5,
    )


def test_a_boundary_for_each_class():
    loss = losses.Margin(classes=4, learn_beta=True, nu=0.3, reduction="sum").double()
    boundaries = [0.3, 0.6, 0.9, 1.2]
    with torch.no_grad():
        loss.beta.copy_(torch.tensor(boundaries))
    for D, row_labels, col_labels in matrices(0):
        expected = 0.0
        for label, (p, n) in zip(row_labels.tolist(), rows_of(D, row_labels, col_labels), strict=True):
            expected += hinges(p, n, 0.2, boundaries[label]) + 0.3 * boundaries[label]
        assert loss(D, row_labels, col_labels).item() == pytest.approx(expected, rel=1e-7)


def test_the_boundary_is_learned():
    D, labels = torch.tensor([[1.5, 1.4, 3.0]]), ([0], [0, 0, 1])
    loss = losses.Margin(learn_beta=True)
    loss(D, *labels).backward()
    assert loss.beta.grad.item() == -1  # both positives are too far, the negative is far enough: move it out
    fixed = losses.Margin()
    assert not fixed.beta.requires_grad
    assert fixed(D, *labels) == loss(D, *labels)
    assert set(fixed.state_dict()) == {"beta"}


def test_labels_outside_of_the_classes_are_refused():
    loss = losses.Margin(classes=2)
    with pytest.raises(ValueError, match="Margin: row_labels hold 2, but there are 2 classes, counted from 0"):
        loss(torch.zeros(2, 2), [0, 2])
    with pytest.raises(ValueError, match="Margin: row_labels hold -1"):
        loss(torch.zeros(2, 2), [0, -1])


@pytest.mark.parametrize("classes", [0, 2.0, True, "3"])
def test_bad_settings_are_refused(classes):
    with pytest.raises(ValueError, match="Margin: classes must be a whole number of at least 1"):
        losses.Margin(classes=classes)


def test_repr():
    assert repr(losses.Margin()) == "Margin(reduction=mean, margin=0.2, nu=0.0, beta=1.2 (fixed))"
    assert repr(losses.Margin(classes=3, learn_beta=True)).endswith("beta=1.2 (learned, 3 classes))")
