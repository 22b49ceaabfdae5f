"""The service through its ASGI application: answers equal the library's, and what is wrong is refused by name."""

import json
import os
import queue
import sys
import threading

import numpy as np
import pytest
import torch

pytest.importorskip("fastapi")
from fastapi.testclient import TestClient

import likewise as lw
from likewise.web.collection import Collection
from likewise.web.explorer import create_explorer
from likewise.web.guard import Guard
from likewise.web.limits import Limits
from likewise.web.service import create_service
from tests.web.problems import collection, images, npy

NPY = {"content-type": "application/x-npy"}
LIMITS = Limits(body=1 << 16, queries=4, length=64, channels=3, k=20, seconds=20)


@pytest.fixture(scope="module")
def held():
    return collection()


@pytest.fixture(scope="module")
def client(held):
    with TestClient(Guard(create_service(held, LIMITS)), base_url="http://localhost") as client:
        yield client


def query(held, i):
    return held.items[i].tolist()


def test_health_says_what_the_service_holds(client):
    found = client.get("/healthz").json()
    assert found["status"] == "ok"
    assert (found["items"], found["kind"]) == (40, "sequences")
    assert found["metrics"] == ["dtw", "soft-dtw", "learned", "vectors"]
    assert found["embeds"] == ["learned", "vectors"]


@pytest.mark.parametrize("metric", ["dtw", "soft-dtw", "learned", "vectors"])
def test_search_equals_the_matrix(client, held, metric):
    body = {"queries": [query(held, 3), query(held, 7)], "k": 5, "metric": metric}
    found = client.post("/search", json=body)
    assert found.status_code == 200, found.text
    with torch.no_grad():
        D = held.metrics[metric].matrix(held.take([3, 7]), held.items)
    values, items = D.sort(dim=1, stable=True)
    for q, hits in enumerate(found.json()["hits"]):
        assert [hit["item"] for hit in hits] == items[q, :5].tolist()
        assert [hit["distance"] for hit in hits] == pytest.approx(values[q, :5].tolist(), rel=1e-5, abs=1e-5)
        assert [hit["label"] for hit in hits] == [held.labels[hit["item"]] for hit in hits]


def test_search_takes_npy_and_options_in_the_address(client, held):
    found = client.post("/search?k=2&metric=dtw", content=npy(held.items[3].numpy()), headers=NPY)
    assert found.status_code == 200, found.text
    (hits,) = found.json()["hits"]
    assert len(hits) == 2
    assert hits[0]["item"] == 3


def test_search_within_a_distance(client, held):
    every = client.post("/search", json={"queries": [query(held, 0)], "k": 20}).json()["hits"][0]
    radius = every[4]["distance"]
    found = client.post("/search", json={"queries": [query(held, 0)], "k": 20, "within": radius}).json()["hits"][0]
    assert [hit["item"] for hit in found] == [hit["item"] for hit in every if hit["distance"] <= radius]


def test_align_equals_the_library(client, held):
    x, y = held.items[0], held.items[5]
    (found,) = client.post("/align", json={"x": [x.tolist()], "y": [y.tolist()]}).json()["alignments"]
    alignment = lw.DTW().align([x], [y])
    assert found["path"] == alignment.path(0).tolist()
    assert found["warp"] == alignment.warp[0].tolist()
    assert found["distance"] == pytest.approx(alignment.value.item(), rel=1e-6)


def test_a_metric_of_vectors_does_not_align(client, held):
    found = client.post("/align", json={"x": [query(held, 0)], "y": [query(held, 1)], "metric": "vectors"})
    assert found.status_code == 422


@pytest.mark.parametrize("metric", ["dtw", "soft-dtw", "learned", "vectors"])
def test_contributions_sum_to_the_distance(client, held, metric):
    x, y = held.items[0], held.items[5]
    found = client.post("/explain", json={"x": [x.tolist()], "y": [y.tolist()], "metric": metric})
    assert found.status_code == 200, found.text
    (explained,) = found.json()["explanations"]
    with torch.no_grad():
        distance = held.metrics[metric]([x], [y]).item()
    parts = np.array(explained["contributions"])
    assert parts.shape == tuple(x.shape)
    assert parts.sum() + explained["rest"] == pytest.approx(distance, rel=1e-5)
    if metric == "dtw":
        assert explained["rest"] == 0
        assert (parts >= 0).all()


def test_embed_in_json_and_npy(client, held):
    body = {"items": [query(held, 0), query(held, 3)], "metric": "vectors"}
    expected = held.metrics["vectors"].embed(held.take([0, 3])).numpy()
    found = client.post("/embed", json=body).json()["embeddings"]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    raw = client.post("/embed", json=body, headers={"accept": "application/x-npy"})
    assert raw.headers["content-type"] == "application/x-npy"
    assert lw.data.npz.decode_npy(raw.content).tolist() == expected.tolist()
    assert client.post("/embed", json={"items": body["items"], "metric": "dtw"}).status_code == 422


def text(body):
    return json.dumps(body).encode()


SERIES = [[0.0, 1.0], [1.0, 2.0]]
WRONG = {
    "no JSON": (b"{", 422),
    "empty": (b"", 422),
    "a list": (b"[]", 422),
    "no queries": (text({"queries": []}), 422),
    "an empty query": (text({"queries": [[]]}), 422),
    "text": (text({"queries": [["a"]]}), 422),
    "NaN": (b'{"queries": [[NaN, 1.0]]}', 422),
    "infinite in float32": (text({"queries": [[[1e300, 1.0]]]}), 422),
    "ragged frames": (text({"queries": [[[0.0, 1.0], [1.0]]]}), 422),
    "other channels": (text({"queries": [[0.0, 1.0]]}), 422),
    "too long": (text({"queries": [[[0.0, 1.0]] * 65]}), 422),
    "too wide": (text({"queries": [[[0.0] * 4]]}), 422),
    "too many": (text({"queries": [SERIES] * 5}), 422),
    "k too large": (text({"queries": [SERIES], "k": 21}), 422),
    "k of zero": (text({"queries": [SERIES], "k": 0}), 422),
    "an unknown metric": (text({"queries": [SERIES], "metric": "nothing"}), 422),
    "an unknown field": (text({"queries": [SERIES], "path": "/etc/passwd"}), 422),
    "too large": (text({"queries": [SERIES], "metric": "x" * (1 << 16)}), 413),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_bodies_are_refused(client, name):
    body, status = WRONG[name]
    found = client.post("/search", content=body, headers={"content-type": "application/json"})
    assert found.status_code == status, found.text
    detail = found.json()["detail"]
    assert detail
    assert len(detail) < 600
    assert "/" not in detail.replace("application/", "")


NOT_NPY = {
    "text": b"hello",
    "a pickle": npy(np.array([{}, 1], dtype=object)),
    "truncated": npy(np.zeros((5, 2), np.float32))[:-1],
    "four dimensions": npy(np.zeros((1, 2, 3, 4))),
    "no steps": npy(np.zeros((1, 0, 2))),
    "complex": npy(np.zeros((5, 2), complex)),
    "NaN": npy(np.full((5, 2), np.nan)),
    "a huge claim": npy(np.zeros((2, 2))).replace(b"(2, 2)", b"(9, 9)"),
}


@pytest.mark.parametrize("name", NOT_NPY)
def test_wrong_arrays_are_refused(client, name):
    found = client.post("/search", content=NOT_NPY[name], headers=NPY)
    assert found.status_code == 422, found.text


def test_other_types_methods_and_paths(client):
    assert client.post("/search", content=b"x", headers={"content-type": "text/plain"}).status_code == 415
    assert client.get("/search").status_code == 405
    assert client.get("/docs").status_code == 404
    assert client.get("/../../etc/passwd").status_code == 404
    assert client.get("/openapi.json").json()["paths"].keys() == {"/search", "/align", "/explain", "/embed", "/healthz"}


def test_a_body_without_a_declared_length_is_cut_off(client):
    pieces = (b"x" * 1024 for _ in range(100))
    assert client.post("/search", content=pieces, headers={"content-type": "application/json"}).status_code == 413


def test_without_items_there_is_no_search():
    client = TestClient(create_service(Collection(None, {"dtw": lw.DTW()})))
    assert client.get("/healthz").json()["kind"] == "none"
    found = client.post("/search", json={"queries": [[1.0]]})
    assert found.status_code == 422
    assert "start it with data" in found.json()["detail"]


class Waiting(lw.Distance):
    """A distance that takes as long as a test wants."""

    def __init__(self):
        super().__init__()
        self.go, self.begun = threading.Event(), threading.Event()

    def paired(self, x, y, x_lengths, y_lengths):
        self.begun.set()
        self.go.wait(300)
        return x.new_zeros(len(x))


def test_slow_work_is_answered_with_503_and_a_full_queue_with_429():
    slow = Waiting()
    held = Collection([[0.0, 1.0]], {"slow": slow})
    app = create_service(held, Limits(seconds=0.3, parallel=1, waiting=1))
    with TestClient(app) as client:
        while not slow.begun.is_set():  # on a busy machine the time may be over before the work begins
            found = client.post("/search", json={"queries": [[1.0]]})
            assert found.status_code == 503
            assert found.headers["retry-after"]
        # The thread is still busy with it; one more may wait, and a third is refused.
        assert client.post("/search", json={"queries": [[1.0]]}).status_code == 503
        app.state.service.work.limits = Limits(seconds=300, parallel=1, waiting=1)
        results = queue.Queue()
        threads = [
            threading.Thread(target=lambda: results.put(client.post("/search", json={"queries": [[1.0]]})))
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        assert [results.get(timeout=300).status_code for _ in range(2)] == [429, 429]
        slow.go.set()
        for thread in threads:
            thread.join()
        assert results.get().status_code == 200


def test_an_internal_error_reveals_nothing():
    class Broken(lw.Distance):
        def paired(self, x, y, x_lengths, y_lengths):
            raise RuntimeError("/secret/path")

    held = Collection([[0.0, 1.0]], {"broken": Broken()})
    client = TestClient(create_service(held), raise_server_exceptions=False)
    found = client.post("/search", json={"queries": [[1.0]]})
    assert found.status_code == 500
    assert "secret" not in found.text


def test_no_answer_names_a_folder_of_the_server():
    files = ("/srv/secret/rose/1.png", "/srv/secret/rose/2.png")
    held = Collection(lw.Dataset([[0.0], [1.0]], ids=files), {"dtw": lw.DTW()})
    found = TestClient(create_service(held)).post("/search", json={"queries": [[0.0]]})
    assert [hit["id"] for hit in found.json()["hits"][0]] == ["rose/1.png", "rose/2.png"]
    assert "secret" not in found.text


@pytest.mark.parametrize("path", ["/srv/secret/index/items-100.safetensors", "C:\\secret\\items.npz"])
def test_no_refusal_names_a_file_of_the_server(path):
    class Damaged(lw.Distance):
        def paired(self, x, y, x_lengths, y_lengths):
            raise ValueError(f"{path}: its checksum is wrong; use application/x-npy, or 3/4 of it")

    found = TestClient(create_service(Collection([[0.0, 1.0]], {"damaged": Damaged()}))).post(
        "/search", json={"queries": [[1.0]]}
    )
    assert found.status_code == 422
    assert "secret" not in found.text
    assert found.json()["detail"].endswith(": its checksum is wrong; use application/x-npy, or 3/4 of it")


def test_all_bodies_together_are_bounded():
    held = Collection([[0.0, 1.0]], {"dtw": lw.DTW()})
    client = TestClient(create_service(held, Limits(body=1 << 20, bodies=1 << 10)))
    found = client.post("/search", content=b" " * 2000, headers={"content-type": "application/json"})
    assert found.status_code == 503
    assert found.headers["retry-after"]
    assert client.post("/search", json={"queries": [[1.0]]}).status_code == 200  # nothing is held any more


def test_a_picture_of_too_many_pixels_is_refused_before_it_is_decoded():
    from io import BytesIO

    from PIL import Image

    held = Collection(images(), {"cnn": lw.Metric(lw.models.SmallCNN(3, out=8), lw.Euclidean())})
    client = TestClient(create_service(held, Limits(pixels=100)))
    buffer = BytesIO()
    Image.new("RGB", (11, 10)).save(buffer, "PNG")
    found = client.post("/search", content=buffer.getvalue(), headers={"content-type": "image/png"})
    assert found.status_code == 413
    assert "110 pixels" in found.json()["detail"]


def test_bodies_and_uploads_never_touch_the_disk(held):
    opened, watching = [], [False]

    def watch(event, given):
        if watching[0] and event == "open" and given[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            opened.append(given[0])

    sys.addaudithook(watch)  # for good: Python removes none
    with TestClient(create_explorer(held)) as client:
        large = npy(np.tile(held.items[3].double().numpy(), (200, 1)))  # a few hundred kilobytes
        client.post("/search?k=2", content=npy(held.items[3].numpy()), headers=NPY)  # imports what it needs
        watching[0] = True
        try:
            assert client.post("/search?k=2", content=large, headers=NPY).status_code == 200
            assert client.post("/api/upload", content=large, headers=NPY).status_code == 200
            rows = "\n".join("0.5,1.5" for _ in range(2000)).encode()
            assert client.post("/api/upload", content=rows, headers={"content-type": "text/csv"}).status_code == 200
        finally:
            watching[0] = False
    assert opened == []


def test_images_by_npy_and_by_picture():
    from io import BytesIO

    from PIL import Image

    torch.manual_seed(0)
    held = Collection(images(), {"cnn": lw.Metric(lw.models.SmallCNN(3, out=8), lw.Euclidean())})
    client = TestClient(create_service(held))
    pixels = held.items[4].numpy()
    found = client.post("/search?k=1", content=npy(pixels), headers=NPY).json()
    assert found["hits"][0][0]["item"] == 4
    buffer = BytesIO()
    Image.fromarray(pixels.transpose(1, 2, 0)).save(buffer, "PNG")
    found = client.post("/search?k=1", content=buffer.getvalue(), headers={"content-type": "image/png"}).json()
    assert found["hits"][0][0]["item"] == 4
    wrong = client.post("/search", content=b"\x89PNG\r\n\x1a\nno", headers={"content-type": "image/png"})
    assert wrong.status_code == 422
    assert client.post("/search", content=npy(pixels.astype(np.float32)), headers=NPY).status_code == 422
    assert client.post("/search", json={"queries": [[1.0]]}).status_code == 422
