"""Access control of the service, and the security headers of its responses."""

import pytest

pytest.importorskip("fastapi")
from fastapi.testclient import TestClient

import likewise as lw
from likewise.web.collection import Collection
from likewise.web.guard import HEADERS, Guard
from likewise.web.service import create_service


@pytest.fixture
def client():
    app = Guard(create_service(Collection([[0.0, 1.0]], {"dtw": lw.DTW()})))
    with TestClient(app, base_url="http://localhost") as client:
        yield client


def test_every_answer_has_the_security_headers(client):
    for found in (client.get("/healthz"), client.get("/nothing"), client.post("/search", content=b"")):
        assert {name: found.headers[name] for name in HEADERS} == HEADERS
        assert found.headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in found.headers
        assert "server" not in found.headers


def test_other_hosts_and_other_sites_are_refused(client):
    assert client.get("/healthz", headers={"host": "evil.example"}).status_code == 421
    assert client.get("/healthz", headers={"host": "127.0.0.1:8000"}).status_code == 200
    assert client.get("/healthz", headers={"origin": "http://evil.example"}).status_code == 403
    assert client.get("/healthz", headers={"origin": "http://localhost"}).status_code == 200


def test_a_token_is_asked_for():
    token = "0123456789abcdef"
    app = Guard(create_service(Collection(None, {"dtw": lw.DTW()})), token=token, hosts=None)
    client = TestClient(app)
    assert client.get("/healthz").status_code == 200
    body = {"x": [[0.0, 1.0]], "y": [[0.0]]}
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {token}"}):
        found = client.post("/align", json=body, headers=headers)
        assert found.status_code == 401
        assert found.headers["www-authenticate"] == "Bearer"
    assert client.post(f"/align?token={token}", json=body).status_code == 401
    assert client.post("/align", json=body, headers={"authorization": f"Bearer {token}"}).status_code == 200
    with pytest.raises(ValueError, match="at least 16 characters"):
        Guard(app, token="short")
