"""A server of its own process, and plain sockets to it."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time


@contextlib.contextmanager
def command(*arguments, env=None):
    """``likewise serve`` or ``explore`` in a process; gives the process and its port once it listens."""
    process = subprocess.Popen(
        [sys.executable, "-m", "likewise", *map(str, arguments), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | (env or {}),
    )
    try:
        line = process.stdout.readline()
        found = re.search(r"http://[^/]+:(\d+)/", line)
        assert found, line + process.stdout.read()
        wait_for(int(found[1]))
        yield process, int(found[1])
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()


def wait_for(port):
    for _ in range(1200):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            if b" 200 " in connection.recv(100):
                return
        time.sleep(0.05)
    raise AssertionError("the server does not answer")


def request(path, body=b"", *, kind="application/json", length=None):
    size = len(body) if length is None else length
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {size}\r\n\r\n"
    return head.encode() + body


def connect(port):
    return socket.create_connection(("127.0.0.1", port), 30)
