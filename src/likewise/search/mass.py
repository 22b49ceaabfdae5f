"""Euclidean windows: all distances of a query by FFT, and the matrix profile along diagonals.

The dot products of a query with all windows are one convolution; with the windows' means and deviations they give the
Euclidean distances of z-normalised windows: ||x - y||^2 = 2 m (1 - (x . y - m mean_x mean_y) / (m dev_x dev_y)).

Reference: Mueen et al. (2017), MASS; Zhu et al. (2016), STOMP, the algorithm of stumpy.
"""

import numpy as np

from likewise.ops.search.reference import normalize as normalize_windows


def mass(query: np.ndarray, series: np.ndarray, *, normalize: bool = True) -> np.ndarray:
    """Squared Euclidean distances of a query (m, C) to every window of a series (T, C), in O(T log T): (T - m + 1,).

    normalize: z-normalise the query and every window, channel by channel.

    Example:
        >>> mass(np.array([[0.0], [1.0]]), np.array([[5.0], [5.0], [7.0], [3.0]])).round(6)
        array([2., 0., 8.])
    """
    length = len(query)
    if len(series) < length:
        return np.empty(0)
    query, series = query.astype(np.float64), series.astype(np.float64)
    query = normalize_windows(query[None])[0] if normalize else query
    centre = series.mean(0)
    series = series - centre  # an offset would cost digits
    if not normalize:
        query = query - centre
    products = sliding_products(query, series)  # (T - m + 1, C)
    if normalize:
        _, deviation = moments(series + centre, length)
        constant = deviation == 0
        own = (query**2).sum(0)  # m, or 0 if constant
        products = products - query.sum(0) * _means(series, length)
        cross = products / np.where(constant, 1, deviation)
        squared = np.where(constant, own, own + length - 2 * np.where(constant, 0, cross))
    else:
        squared = (query**2).sum(0) + _means(series**2, length) * length - 2 * products
    return np.maximum(squared, 0).sum(1)


def sliding_products(query: np.ndarray, series: np.ndarray) -> np.ndarray:
    """Dot products of query (m, C) with every window of series (T, C), channel by channel: (T - m + 1, C).

    Example:
        >>> sliding_products(np.array([[1.0], [2.0]]), np.array([[1.0], [0.0], [3.0]])).round(6).ravel()
        array([1., 6.])
    """
    from scipy import fft  # takes a while to import

    size = fft.next_fast_len(len(series) + len(query) - 1, real=True)
    spectrum = np.asarray(fft.rfft(series, size, axis=0)) * np.asarray(fft.rfft(query[::-1], size, axis=0))
    return np.asarray(fft.irfft(spectrum, size, axis=0))[len(query) - 1 : len(series)]


def moments(series: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Means and deviations of every window, (T - m + 1, C); the deviation of a constant window is 0.

    Two passes, a thousand windows at a time: running sums would lose the digits of small windows after large ones.

    Example:
        >>> moments(np.array([[1.0], [3.0], [3.0]]), 2)[1].ravel()
        array([1., 0.])
    """
    count = len(series) - length + 1
    mean, deviation = np.empty((count, series.shape[1])), np.empty((count, series.shape[1]))
    windows = np.lib.stride_tricks.sliding_window_view(series, length, axis=0)  # (T - m + 1, C, m)
    for first in range(0, count, 1024):
        part = windows[first : first + 1024]
        middle = part.mean(2)
        spread = np.sqrt(np.square(part - middle[..., None]).mean(2))
        spread[spread <= 1e-7 * np.abs(part).max(2)] = 0
        mean[first : first + 1024], deviation[first : first + 1024] = middle, spread
    return mean, deviation


def _means(series: np.ndarray, length: int) -> np.ndarray:
    sums = np.concatenate([np.zeros((1, series.shape[1])), series.cumsum(0)])
    return (sums[length:] - sums[:-length]) / length


def euclidean_profile(
    series: np.ndarray, length: int, radius: int, *, normalize: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Squared Euclidean distance of every window to its nearest other one, and where that starts.

    series (T, C); windows that start less than ``radius`` apart are not compared. A window without a neighbour gets
    infinity and -1. O(T^2) time, O(T) memory: the products of one window follow from those of the one before.

    Example:
        >>> distance, neighbor = euclidean_profile(np.array([[0.0], [1.0], [5.0], [0.0], [1.0]]), 2, 1, normalize=False)
        >>> distance.round(6), neighbor
        (array([ 0., 17., 26.,  0.]), array([3, 0, 0, 0]))
    """
    count, channels = len(series) - length + 1, series.shape[1]
    if count < 1:
        return np.empty(0), np.empty(0, dtype=np.int64)
    x = series.astype(np.float64) - series.mean(0, dtype=np.float64)
    mean, deviation = moments(series.astype(np.float64), length)
    mean = _means(x, length)
    constant = deviation == 0
    inverse = np.where(constant, 0, 1 / np.where(constant, 1, deviation))
    energy = length * ~constant if normalize else _means(x**2, length) * length
    first = sliding_products(x[:length], x)  # of window 0 with all
    products = first.copy()
    close = 1e-12 * length * (channels if normalize else float(energy.max()))
    best, where = np.full(count, np.inf), np.full(count, -1, dtype=np.int64)
    for i in range(count):
        if i > 0:
            products[1:] = products[:-1] - x[i - 1] * x[: count - 1] + x[i + length - 1] * x[length:]
            products[0] = first[i]
        if normalize:
            squared = energy[i] + energy - 2 * (products - length * mean[i] * mean) * (inverse[i] * inverse)
        else:
            squared = energy[i] + energy - 2 * products
        distance = squared.sum(1) if channels > 1 else squared[:, 0]
        distance = np.maximum(distance, 0)
        distance[max(0, i - radius + 1) : i + radius] = np.inf
        nearest = int((distance <= distance.min() + close).argmax())  # the first of equals, but for rounding
        if distance[nearest] < np.inf:
            best[i], where[i] = distance[nearest], nearest
    return best, where
