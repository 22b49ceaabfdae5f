import numpy as np
import pytest

pytest.importorskip("fastapi")
from likewise.web import maps
from likewise.web.work import Job
from tests.web.problems import collection


def test_vectors_have_a_pca_and_others_are_scaled_from_distances():
    held = collection()
    by_vectors = maps.draw_map(held, "vectors", Job())
    assert (by_vectors.method, by_vectors.places.shape) == ("PCA", (40, 2))
    by_distances = maps.draw_map(held, "dtw", Job(), method="umap")
    assert (by_distances.method, by_distances.places.shape) == ("MDS", (40, 2))
    assert np.abs(by_vectors.places).max() <= 1


def test_umap_is_used_for_enough_vectors(monkeypatch):
    """The library itself takes ten seconds to compile, too long for a test."""
    asked = []
    monkeypatch.setattr(maps, "_umap", lambda vectors, seed: asked.append(seed) or vectors[:, :2].numpy())
    assert maps.draw_map(collection(), "vectors", Job(), method="umap", seed=3).method == "UMAP"
    assert maps.draw_map(collection(count=12), "vectors", Job(), method="umap").method == "PCA"
    assert asked == [3]
