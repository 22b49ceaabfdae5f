"""Encoders that keep the order of frames, against plain loops."""

import pytest
import torch
from torch import nn

import likewise as lw
from papers.unseen_classes.encoders import PACE, InParts, Motion
from papers.unseen_classes.parts import Settings, make_encoder


class Same(nn.Module):
    """Gives what it is given."""

    out = 2

    def forward(self, x):
        return x


def with_nan_padding(*lengths):
    values = torch.full((len(lengths), max(lengths), 2), torch.nan)
    for row, length in zip(values, lengths, strict=True):
        row[:length] = torch.randn(length, 2)
    return lw.Batch(values, lengths)


def test_parts_are_means_of_fine_slices_of_time():
    x = with_nan_padding(8, 5, 1, 3)
    found = InParts(Same(), 4)(x)
    for row, sequence in zip(found, x, strict=True):
        # Each frame 4 times: every part then begins and ends between two of these, whatever the length.
        fine = [frame for frame in sequence for _ in range(4)]
        size = len(sequence)
        wanted = [torch.stack(fine[p * size : (p + 1) * size]).mean(0) for p in range(4)]
        torch.testing.assert_close(row, torch.cat(wanted))


def test_motion_is_places_from_the_first_frame_and_changes():
    x = with_nan_padding(6, 3, 1)
    found = Motion(Same(), 2)(x)
    for row, sequence in zip(found, x, strict=True):
        for t, frame in enumerate(sequence):
            change = sequence[t + 1] - frame if t + 1 < len(sequence) else torch.zeros(2)
            torch.testing.assert_close(row[t], torch.cat([frame - sequence[0], PACE * change]))


@pytest.mark.parametrize("data", ["sad", "utd_mhad"])
@pytest.mark.parametrize("add", ["none", "gdfl"])
def test_encoders_see_no_padding_and_know_the_order(data, add):
    torch.manual_seed(0)
    encoder = make_encoder(
        Settings(data=data, encoder="tcn", embedding=8, add=add), lw.Dataset(torch.zeros(2, 3, 2))
    ).eval()
    x = with_nan_padding(9, 4)
    found = encoder(x)
    torch.testing.assert_close(found[1:], encoder(lw.Batch(x[1][None])))
    assert not torch.allclose(found[:1], encoder(lw.Batch(x[0].flip(0)[None])))
    found.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in encoder.parameters())
