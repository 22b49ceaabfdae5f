"""MilvusStore against Milvus Lite and against a real server, which is killed and started again."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import likewise as lw
from likewise.search.milvus import condition
from likewise.search.store import Form, Rows
from tests.search.milvus_server import Server, missing
from tests.search.stores import NASTY, check_sequences, check_vectors

pytest.importorskip("pymilvus", reason="pymilvus is not installed")


def lite(folder, name, files=None):
    pytest.importorskip("milvus_lite", reason="milvus-lite is not installed")
    return lw.MilvusStore(f"{folder}/vectors.db", name, files=files)


def test_lite(tmp_path):
    made = []

    def make(name, files):
        made.append(lite(tmp_path, name, files))
        return made[-1]

    check_sequences(make, tmp_path)
    check_vectors(make, tmp_path)
    kept = len(made[0])
    # The file opens in one process only: another one is told so.
    program = f"import likewise as lw; lw.MilvusStore({made[0].uri!r}, 'walks', retry=0.2).form()"
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert other.returncode != 0
    assert "opens in one process at a time" in other.stderr.splitlines()[-1], other.stderr[-500:]
    for store in made:
        store.close()
    # What was added is there after a kill, without a flush.
    program = (
        f"import likewise as lw, torch, os, signal; store = lw.MilvusStore({made[0].uri!r}, 'kill');"
        "lw.Index(lw.Euclidean(), store=store).add(torch.arange(1500.0)[:, None]); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=100).returncode == -9
    again = lite(tmp_path, "kill")
    assert len(lw.Index(lw.Euclidean(), store=again)) == 1500
    assert len(lite(tmp_path, "walks")) == kept
    again.close()


def test_conditions_are_quoted(tmp_path):
    """No id or label is taken for a part of a condition."""
    store = lite(tmp_path, "quoted")
    store.create(Form(2, False, "names"))
    x = torch.arange(2.0 * len(NASTY)).reshape(-1, 2)
    keys = tuple(f"{0:016x}-{i:064x}" for i in range(len(NASTY)))
    store.put(Rows(tuple(NASTY), keys, (1,) * len(NASTY), np.array(NASTY), x))
    for i, name in enumerate(NASTY):
        assert store.get([name]).keys == (keys[i],), condition("id", [name])
        (found,) = store.nearest(x[:1], 99, {"label": name}, with_vectors=False)
        assert found.ids == (name,)
        store.delete([name])
        assert len(store) == len(NASTY) - i - 1
    store.close()


def test_a_server_that_is_not_there():
    store = lw.MilvusStore("http://127.0.0.1:9", "nobody", retry=0.5, timeout=1)
    start = time.monotonic()
    with pytest.raises(
        ConnectionError, match=r"MilvusStore\('http://127.0.0.1:9', 'nobody'\) did not answer for 0.5 s"
    ):
        lw.Index(lw.Euclidean(), store=store)
    assert time.monotonic() - start < 10


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"collection": "a b"}, "letters"),
        ({"consistency": "strong"}, "one of Strong"),
        ({"retry": -1}, "retry"),
        ({"timeout": 0}, "timeout"),
    ],
)
def test_arguments(options, said):
    with pytest.raises(ValueError, match=said):
        lw.MilvusStore(**{"uri": "x.db", "collection": "a"} | options)


def test_a_real_server(tmp_path):
    """All that Lite does; the recall of its graph; and killed twice, in the middle of an add and of a search."""
    if missing():
        pytest.skip(missing())
    server = Server(tmp_path / "server")
    server.start()
    try:
        server.wait()

        def make(name, files):
            return lw.MilvusStore(server.uri, name, files=files)

        check_sequences(make, tmp_path)
        check_vectors(make, tmp_path)
        check_recall(make("many", None))
        index = lw.Index(lw.Euclidean(), store=make("faults", None))
        for at in ("add", "search"):
            drill(server, index, at)
    finally:
        server.kill()


def check_recall(store):
    """The graph, after a flush, and not only the rows in memory: ``ef`` has an effect."""
    generator = torch.Generator().manual_seed(0)
    x, queries = (torch.randn(count, 24, generator=generator) for count in (3000, 50))
    index = lw.Index(lw.Euclidean(), store=store).add(x)
    assert index.recall(queries, k=10) > 0.95
    store.flush()
    assert index.recall(queries, k=10) > 0.95
    same = [row.ids for row in store.nearest(queries, 10, {}, with_vectors=False)]
    assert all(len(set(ids)) == 10 for ids in same)


def drill(server, index, at):
    """Kill the server in the middle of an add or of a search, and start it again: nothing is lost or doubled."""
    before, calls, threads, killed = len(index), [], [], []
    new = 5000 if at == "add" else 0
    x = torch.arange(float(before + new))[:, None].expand(-1, 4).contiguous()
    names = [str(i) for i in range(len(x))]

    def kill():
        time.sleep(0.01)
        server.kill()
        killed.append(len(calls))
        server.start()

    def fault(what):
        calls.append(what)
        if len(calls) == 3:
            threads.append(threading.Thread(target=kill))
            threads[0].start()
        while len(calls) == 4 and not killed:  # at the latest now
            time.sleep(0.01)

    def put(rows, done=index.store.put):
        fault("put")
        done(rows)

    if at == "add":
        index.store.put = put
        index.add(x[before:], ids=names[before:])
        del index.store.put
    else:
        for _ in range(6):
            fault("search")
            assert index.search(x[::500], k=1).ids[:, 0].tolist() == names[::500]
    threads[0].join()
    assert killed[0] < len(calls), "the server was killed after the end"
    assert len(index) == len(x)
    found = index.search(x[::497], k=2)
    assert found.ids[:, 0].tolist() == names[::497]
    assert (found.ids[:, 0] != found.ids[:, 1]).all()
    seen = [name for rows in index.store.scan(with_vectors=False) for name in rows.ids]
    assert len(seen) == len(set(seen)) == len(x)


def main():
    """Ten kills: ``python -m tests.search.test_milvus FOLDER``."""
    server = Server(Path(sys.argv[1]))
    server.start()
    try:
        server.wait()
        index = lw.Index(lw.Euclidean(), store=lw.MilvusStore(server.uri, "faults"))
        for number in range(10):
            start = time.monotonic()
            drill(server, index, "add" if number % 2 == 0 else "search")
            print(f"kill {number + 1}: {len(index)} rows, {time.monotonic() - start:.1f} s", flush=True)
        print("10 kills, nothing lost or doubled")
    finally:
        server.kill()


if __name__ == "__main__":
    main()
