"""Maps: a place in the plane for every item, near where its neighbours are."""

import warnings

import numpy as np
import torch
from torch import Tensor

from likewise.data.batch import Batch
from likewise.models.metric import Metric
from likewise.web.collection import Collection
from likewise.web.work import Job

SHOWN = 20_000  # points of a map; of more items a sample is shown
FEWEST = 15  # items of which UMAP makes no map
LANDMARKS = 64
CELLS = 1 << 33  # cells of alignment tables that a map may cost: about a second of DTW
PIECE = 512  # items placed between two checks of a job


class Map:
    """Places (n, 2) in [-1, 1] of some items (n,), and how they were found: "PCA", "UMAP" or "MDS"."""

    def __init__(self, items: np.ndarray, places: np.ndarray, method: str, share: float | None) -> None:
        self.items, self.places, self.method, self.share = items, places, method, share


def draw_map(collection: Collection, name: str, job: Job, *, method: str | None = None, seed: int = 0) -> Map:
    """A map of a collection under one of its metrics.

    A metric that gives vectors is drawn by their principal components, or by UMAP if asked for. Any other
    metric is drawn from its distances: landmarks are placed by classical scaling, and the others by their distances to
    these.

    Reference: de Silva & Tenenbaum, Sparse multidimensional scaling using landmark points (2004).
    """
    generator = np.random.default_rng(seed)
    total = len(collection)
    items = np.arange(total) if total <= SHOWN else np.sort(generator.choice(total, SHOWN, replace=False))
    vectors = _vectors(collection, name, items, job)
    if vectors is not None:
        if method == "umap" and len(items) > FEWEST:
            return Map(items, _scaled(_umap(vectors, seed)), "UMAP", None)
        places, share = _principal(vectors)
        return Map(items, _scaled(places), "PCA", share)
    places, share = _landmarks(collection, name, items, generator, job)
    return Map(items, _scaled(places), "MDS", share)


def _vectors(collection: Collection, name: str, items: np.ndarray, job: Job) -> Tensor | None:
    """The encoded items, if these are vectors (n, D)."""
    metric = collection.metrics[name]
    if isinstance(collection.items, Tensor) and collection.items.ndim == 2 and not isinstance(metric, Metric):
        return collection.items[torch.from_numpy(items)].float()
    if not isinstance(metric, Metric) or metric.encoder is None:
        return None
    parts = []
    for start in range(0, len(items), PIECE):
        job.check()
        metric, some = collection.many(name, items[start : start + PIECE])
        part = metric.embed(some)  # type: ignore[attr-defined]
        if isinstance(part, Batch):
            return None
        parts.append(part.float().cpu())
    return torch.cat(parts)


def _principal(vectors: Tensor) -> tuple[np.ndarray, float]:
    """The first two principal components, and the share of the variance that they hold."""
    centred = (vectors - vectors.mean(0)).double()
    covariance = centred.T @ centred
    values, axes = torch.linalg.eigh(covariance)
    order = values.argsort(descending=True)[:2]
    places = centred @ axes[:, order]
    if places.shape[1] < 2:
        places = torch.nn.functional.pad(places, (0, 1))
    return places.numpy(), float(values[order].sum() / values.sum().clamp(min=1e-300))


def _umap(vectors: Tensor, seed: int) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of TensorFlow, and of points without neighbours
        try:
            from umap import UMAP  # type: ignore[import-not-found]
        except ImportError as error:
            raise ValueError('UMAP is not installed: pip install "likewise[umap]"') from error
        return np.asarray(UMAP(random_state=seed, n_jobs=1).fit_transform(vectors.numpy()))


def _landmarks(
    collection: Collection, name: str, items: np.ndarray, generator: np.random.Generator, job: Job
) -> tuple[np.ndarray, float]:
    """Landmark scaling: places (n, 2), and the share of the landmarks' variance that two dimensions hold."""
    steps = float(collection.lengths[items].mean())
    most = int(CELLS / max(1.0, len(items) * steps * steps))
    count = min(len(items), max(12, min(LANDMARKS, most)))
    chosen = np.sort(generator.choice(len(items), count, replace=False))
    _, marks = collection.many(name, items[chosen])
    rows = []
    with torch.no_grad():
        for start in range(0, len(items), PIECE):
            job.check()
            metric, part = collection.many(name, items[start : start + PIECE])
            rows.append(metric.matrix(part, marks).double().cpu())
    squared = torch.cat(rows).clamp(min=0).square().numpy()  # (n, L)
    if squared.max() > 0:
        squared = squared / squared.max()
    inner = (squared[chosen] + squared[chosen].T) / 2
    means = inner.mean(0)
    gram = -(inner - means - means[:, None] + inner.mean()) / 2
    values, axes = np.linalg.eigh(gram)
    order = values.argsort()[::-1][:2]
    top = np.clip(values[order], 1e-12, None)
    share = float(np.clip(values[order], 0, None).sum() / max(np.clip(values, 0, None).sum(), 1e-300))
    places = -(squared - means) @ (axes[:, order] / np.sqrt(top)) / 2
    return places, share


def _scaled(places: np.ndarray) -> np.ndarray:
    """Places in [-1, 1], with both axes in one scale. A few far points do not squeeze the others together."""
    centred = places - np.median(places, 0)
    extent = np.quantile(np.abs(centred), 0.995, axis=0).max() if len(places) else 1.0
    return np.clip(centred / max(extent, 1e-12), -1, 1).astype(np.float32)
