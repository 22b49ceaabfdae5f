"""check_loss finds each kind of broken loss, with its message."""

import pytest
import torch

from likewise import losses
from likewise.testing import check_loss


class Changed(torch.nn.Module):
    """The contrastive loss, through change(loss, D, row_labels, col_labels)."""

    def __init__(self, change):
        super().__init__()
        self.loss, self.change = losses.Contrastive(), change

    def forward(self, D, row_labels, col_labels=None):
        return self.change(self.loss, D, row_labels, col_labels)


def spoil(D):
    D.mul_(2)
    return D


def test_a_sound_loss_passes():
    check_loss(Changed(lambda loss, D, *labels: loss(D, *labels)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda loss, D, *labels: loss(D, *labels)[None], r"expected a scalar, got the shape \(1,\)"),
        (lambda loss, D, *labels: loss(spoil(D), *labels), "the loss changed D"),
        (lambda loss, D, *labels: loss(D, *labels) + D[0, 1], "items in another order"),
        (lambda loss, D, row, col: loss(D, row, row if col is None else col), "the diagonal is not a pair"),
        (lambda loss, D, row, col: loss(D, row, col) + 0 * D.sum(), "the diagonal is not a pair"),
        (lambda loss, D, *labels: loss(D, *labels) / (loss(D, *labels) != 0), "the loss is nan"),
        (
            lambda loss, D, *labels: loss(D.detach(), *labels).requires_grad_(),
            "the loss cannot be differentiated",
        ),
        (lambda loss, D, *labels: loss(D, *labels).to(D.dtype), "torch.float16 in, torch.float16 out"),
        (lambda loss, D, *labels: loss(D.nan_to_num(), *labels), "NaN in D is not refused"),
        (lambda loss, D, row, col: loss(D, torch.as_tensor(row).long(), col), "not whole numbers is not refused"),
        (
            lambda loss, D, row, col: loss(D, row, None if col is None or len(D) == D.shape[1] else col),
            "the diagonal counts",
        ),
        (lambda loss, D, *labels: loss(D.detach(), *labels) + loss(D, *labels), "wrong gradient"),
    ],
)
def test_broken_losses(change, message):
    with pytest.raises(AssertionError, match=message):
        check_loss(Changed(change))


def test_optional_abilities():
    def square(loss, D, row, col):
        if col is not None and len(col) == D.shape[1]:
            raise NotImplementedError
        return loss(D, row, col)

    check_loss(Changed(square), rectangular=False)
    check_loss(Changed(lambda loss, D, *labels: loss(D.detach(), *labels) + loss(D, *labels)), gradient=False)
    check_loss(losses.Contrastive(margin=300.0), distances=300.0)
