"""k-shape: clusters of series with the same shape, wherever it is in time."""

import numpy as np
import torch
from torch import Tensor

from likewise import _check
from likewise.clusters.kmeans import Clustering, kmeans
from likewise.clusters.members import Members
from likewise.data.batch import Batch, as_sequences
from likewise.distances.distance import full_lengths
from likewise.distances.sbd import SBD, fast_size
from likewise.ops.ground import at_least_float32, zero_padding


def kshape(
    x: object,
    clusters: int,
    *,
    init: object = "k-means++",
    n_init: int = 1,
    max_iter: int = 100,
    tol: float = 1e-6,
    length: int | None = None,
    seed: int = 0,
    verbose: bool = False,
) -> Clustering:
    """Divide series into clusters of similar shapes under SBD; ``likewise.sklearn.KShape`` states the arguments.

    Example:
        >>> up, peak = [0.0, 1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 3.0, 0.0, 0.0]
        >>> kshape([up, peak, [2 * v + 1 for v in up], peak[1:] + peak[:1]], 2).labels.tolist()
        [0, 1, 0, 1]
    """
    values, lengths = as_sequences("KShape", "X", x)
    _check.finite("KShape", "X", values, lengths)
    series = Batch(standardized(at_least_float32(values.detach()), lengths), lengths)
    return kmeans(
        SBD(independent=False),
        series,
        clusters,
        init=init,
        n_init=n_init,
        max_iter=max_iter,
        tol=tol,
        length=length,
        seed=seed,
        verbose=verbose,
        improve=extract_shapes,
        op="KShape",
    )


def extract_shapes(members: Members, z: Tensor, lengths: Tensor | None) -> Tensor:
    """Centres (K, L, C) whose squared correlations with their members, shifted to the old centres, are largest.

    For each channel this is the first eigenvector of Q S Q, where S = sum_n y_n y_n' over the shifted members y_n, and
    Q subtracts the mean. Its sign is that of most members; it is then standardised.
    """
    new, ends = z.clone(), full_lengths(z, lengths)
    for k in range(len(z)):
        some = members.take((members.groups == k).nonzero()[:, 0])
        if not len(some):
            continue
        length = int(ends[k])
        y = shifted(some, z[k, :length])  # (n, L, C)
        y = y - y.mean(1, keepdim=True)
        shape = torch.stack([_first_direction(channel) for channel in y.double().unbind(2)], 1)  # (L, C)
        new[k, :length] = standardized(shape[None], None)[0].to(z.dtype)
    return new


def shifted(members: Members, center: Tensor) -> Tensor:
    """The members, each shifted to match a centre (L, C) best: (n, L, C), zero beyond their ends."""
    length, x = len(center), members.values
    size = fast_size(length + x.shape[1])
    spectra = torch.fft.rfft(center, size, dim=0) * torch.fft.rfft(x, size, dim=1).conj()  # (n, F, C)
    best = torch.fft.irfft(spectra.sum(2), size).argmax(1)
    shift = torch.where(best < length, best, best - size)  # (n,)
    place = torch.arange(length, device=x.device) - shift[:, None]  # the frame of each member, (n, L)
    inside = (place >= 0) & (place < full_lengths(x, members.lengths)[:, None])
    place = place.clamp(0, x.shape[1] - 1)[..., None].expand(-1, -1, x.shape[2])
    return x.gather(1, place).masked_fill(~inside[..., None], 0)


def standardized(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Every channel of (B, T, C) with mean 0 and variance 1 over the real steps; a constant one is 0."""
    x = zero_padding(x, lengths)
    count = full_lengths(x, lengths).to(x.dtype)[:, None, None]
    centred = zero_padding(x - x.sum(1, keepdim=True) / count, lengths)
    # A constant sequence leaves only rounding errors.
    varies = centred.abs().amax(1, keepdim=True) > x.abs().amax(1, keepdim=True) * 8 * torch.finfo(x.dtype).eps
    variance = centred.square().sum(1, keepdim=True) / count
    return centred * varies / torch.where(varies, variance, 1).sqrt()


def _first_direction(y: Tensor) -> Tensor:
    """The unit vector (L,) of the largest sum of squared products with the rows of y (n, L)."""
    from scipy.linalg import eigh  # not with likewise: it takes long to import

    rows = y.cpu().numpy()
    wide = len(rows) < rows.shape[1]  # the smaller of the two Gram matrices has the same first eigenvalue
    gram = rows @ rows.T if wide else rows.T @ rows
    last = len(gram) - 1
    vector = eigh(gram, subset_by_index=[last, last])[1][:, 0]
    found = rows.T @ vector if wide else vector
    norm = np.linalg.norm(found)
    found = found / norm if norm > 0 else found
    return torch.from_numpy(found if (rows @ found).sum() >= 0 else -found).to(y.device)
