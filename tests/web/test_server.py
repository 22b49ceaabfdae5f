"""The server as a process: clients that stall or leave do not disturb others, SIGTERM drains, and remote clients need a token."""

import json
import signal
import time

import pytest

pytest.importorskip("fastapi")
import httpx2
import torch

import likewise as lw
from likewise.web.collection import Collection
from likewise.web.limits import Limits
from likewise.web.server import Server, read_token
from likewise.web.service import create_service
from tests.cli.commands import refusal
from tests.web.problems import learned, waves
from tests.web.servers import command, connect, request


class Patient(lw.Distance):
    """A distance that counts the queries it was asked for, each of which takes a while."""

    def __init__(self):
        super().__init__()
        self.queries = 0

    def all_pairs(self, x, y, x_lengths, y_lengths):
        self.queries += 1
        time.sleep(0.1)
        return x.new_zeros(len(x), len(y if y is not None else x))


BODY = json.dumps({"queries": [[0.0, 1.0]] * 200}).encode()


@pytest.fixture
def patient():
    distance = Patient()
    held = Collection(torch.zeros(10, 2, 1), {"patient": distance})
    limits = Limits(reading=0.5, seconds=600, parallel=1)
    app = create_service(held, limits)
    with Server(app, limits=limits) as server:
        yield server, distance, app.state.service.work


def get_health(port):
    return httpx2.get(f"http://127.0.0.1:{port}/healthz", timeout=20).status_code


def until(happened, seconds=60):
    """Wait until something has happened; fail if it does not."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.02)


def refuses(port):
    """Whether the server takes no connections."""
    try:
        connect(port).close()
    except ConnectionRefusedError:
        return True
    return False


def test_work_ends_when_the_client_leaves(patient):
    server, distance, work = patient
    with connect(server.port) as client:
        client.sendall(request("/search", BODY))
        until(lambda: distance.queries >= 3)
        assert get_health(server.port) == 200
        assert work.taken == 1, "other requests are answered meanwhile"
    until(lambda: work.taken == 0)
    assert distance.queries < 200


def test_a_running_query_is_interrupted_when_its_client_leaves():
    """One query that takes a minute or more: its thread is free again soon after the client left."""
    generator = torch.Generator().manual_seed(0)
    held = Collection(torch.randn(512, 4096, 1, generator=generator).cumsum(1), {"soft-dtw": lw.SoftDTW()})
    held._indexes["soft-dtw", False] = lw.Index(lw.SoftDTW(), held.items)  # what is made on first use takes as long
    body = json.dumps({"queries": [torch.randn(8192, generator=generator).cumsum(0).tolist()]}).encode()
    limits = Limits(parallel=1, seconds=600)
    app = create_service(held, limits)
    with Server(app, limits=limits) as server:
        with connect(server.port) as client:
            client.sendall(request("/search", body))
            until(lambda: app.state.service.work.taken)
            time.sleep(1)  # it is in the kernel by now
            assert app.state.service.work.taken == 1
        until(lambda: not app.state.service.work.taken, seconds=30)


def test_a_slow_client_is_given_up_and_others_are_served(patient):
    server, _, _ = patient
    slow = [connect(server.port) for _ in range(100)]  # 50 s, one after the other
    for client in slow[:50]:
        client.sendall(request("/search", b"{", length=1000))  # the rest never comes
    for client in slow[50:]:
        client.sendall(b"POST /search HTTP/1.1\r\nHost: loc")  # nor do these headers
    assert get_health(server.port) == 200
    for client in slow[:50]:
        assert b" 408 " in client.recv(1000)
    for client in slow[50:]:
        assert client.recv(1000) == b""
    for client in slow:
        client.close()


def test_sigterm_drains(tmp_path):
    lw.data.write_npz(waves(), tmp_path / "waves.npz")
    learned().save(tmp_path / "run")
    with command("serve", tmp_path / "run", tmp_path / "waves.npz", "-d", "gdtw") as (process, port):
        found = httpx2.get(f"http://127.0.0.1:{port}/healthz").json()
        assert found["metrics"] == ["run", "gdtw"]
        body = json.dumps({"queries": [waves().items[0].tolist()], "metric": "gdtw"}).encode()
        with connect(port) as client:
            sent = request("/search", body)
            client.sendall(sent[:-10])  # the request has begun, and ends only after the signal
            get_health(port)  # whoever asks later is answered later: the server has seen the beginning
            process.send_signal(signal.SIGTERM)
            until(lambda: refuses(port))
            client.sendall(sent[-10:])
            answer = client.makefile("rb").read()  # to the end: the server closes the connection
        assert b" 200 " in answer.splitlines()[0]
        assert str(tmp_path).encode() not in answer
        assert process.wait(60) == 0 or process.returncode == -signal.SIGTERM


def test_off_loopback_a_token_is_needed(tmp_path, monkeypatch):
    monkeypatch.delenv("LIKEWISE_TOKEN", raising=False)
    lw.data.write_npz(waves(6), tmp_path / "waves.npz")
    assert "a token is required" in refusal(1, "serve", tmp_path / "waves.npz", "--host", "0.0.0.0")
    with pytest.raises(ValueError, match="a token is required"):
        Server(create_service(Collection(None, {"dtw": lw.DTW()})), host="0.0.0.0")
    secret = "a secret of twenty letters"
    (tmp_path / "token").write_text(secret + "\n")
    assert read_token(tmp_path / "token", "0.0.0.0") == secret
    monkeypatch.setenv("LIKEWISE_TOKEN", secret)
    assert read_token(None, "0.0.0.0") == secret
    with command("serve", tmp_path / "waves.npz", "--host", "0.0.0.0", "--token-file", tmp_path / "token") as (
        process,
        port,
    ):
        url = f"http://127.0.0.1:{port}/align"
        body = {"x": [[[0.0, 1.0]]], "y": [[[0.0, 1.0]]]}
        assert httpx2.post(url, json=body).status_code == 401
        assert httpx2.post(url, json=body, headers={"Authorization": f"Bearer {secret}"}).status_code == 200
        process.send_signal(signal.SIGTERM)
        assert secret not in process.stdout.read()


def test_errors_before_serving_are_one_line(tmp_path):
    assert "no such file or folder" in refusal(1, "serve", tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    assert "has no metric" in refusal(1, "serve", tmp_path / "empty", tmp_path / "nothing.npz")
