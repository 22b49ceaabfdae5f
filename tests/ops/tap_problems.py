"""Networks and sequences shared by the tests of TAP's kernels."""

import torch

from likewise.distances.tap import TAP


def network(width=30, kernels=(5, 5, 3)):
    torch.manual_seed(0)
    tap = TAP(width, kernels)
    with torch.no_grad():
        for parameter in tap.parameters():  # so that the network says something
            parameter.mul_(2)
    return tap


def sequences(lengths, channels=3, seed=0):
    """Padded frames (B, T, C) with NaN in the padding, and lengths (B,)."""
    torch.manual_seed(seed)
    n = torch.tensor(lengths)
    x = torch.randn(len(n), int(n.max()) + 1, channels)
    x[torch.arange(x.shape[1]) >= n[:, None]] = torch.nan
    return x, n
