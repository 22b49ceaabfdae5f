"""Running the server: on loopback or with a token, with timeouts for slow clients, and draining on SIGTERM."""

import asyncio
import os
import socket
import threading
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from likewise.web.guard import LOOPBACK_NAMES, Guard, is_loopback
from likewise.web.limits import DEFAULT_LIMITS, Limits

TOKEN_VARIABLE = "LIKEWISE_TOKEN"
LONGEST_TOKEN_FILE = 4096
BACKLOG = 2048


class Impatient(H11Protocol):
    """HTTP whose request line and headers must arrive in time: uvicorn would wait for them forever."""

    seconds = 10.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock."""
        super().connection_made(transport)
        self._begin = self.loop.call_later(self.seconds, self._give_up)

    def handle_events(self) -> None:
        """Stop the clock once a request has begun."""
        super().handle_events()
        if self.cycle is not None:
            self._begin.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._begin.cancel()
        super().connection_lost(exc)

    def _give_up(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()


def read_token(path: Path | None, host: str) -> str | None:
    """The token from a file, or from the variable LIKEWISE_TOKEN; off loopback one is required.

    Example:
        >>> read_token(None, "0.0.0.0")
        Traceback (most recent call last):
        ValueError: other machines can reach 0.0.0.0, so a token is required: ...
    """
    token = os.environ.get(TOKEN_VARIABLE)
    if path is not None:
        with open(path, encoding="utf-8") as file:
            token = file.read(LONGEST_TOKEN_FILE)
    token = token.strip() if token else None
    if token is None and not is_loopback(host):
        raise ValueError(
            f"other machines can reach {host}, so a token is required: write one to a file and give --token-file, "
            f"or set {TOKEN_VARIABLE}"
        )
    return token


class Server:
    """An application on a port; ``run`` serves until SIGINT or SIGTERM, ``start`` does in a thread until ``close``.

    host: an address; off loopback a token is needed. port: 0 picks a free one.

    Example:
        >>> import urllib.request
        >>> app = FastAPI()
        >>> with Server(app) as server:
        ...     b"openapi" in urllib.request.urlopen(server.url + "openapi.json").read()
        True
    """

    def __init__(
        self,
        app: FastAPI,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        public: tuple[str, ...] = ("/healthz",),
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        if token is None and not is_loopback(host):
            raise ValueError(f"other machines can reach {host}, so a token is required")
        hosts = LOOPBACK_NAMES if is_loopback(host) else None
        self.socket = _bind(host, port)
        self.host, self.port = host, self.socket.getsockname()[1]
        config = uvicorn.Config(
            Guard(app, token=token, hosts=hosts, public=public),
            http=type("Impatient", (Impatient,), {"seconds": limits.reading}),
            ws="none",
            log_level="warning",
            access_log=False,
            server_header=False,
            limit_concurrency=limits.connections,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=int(limits.seconds) + 1,
            h11_max_incomplete_event_size=32 << 10,
        )
        self.server = uvicorn.Server(config)
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The address to open."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/"

    def run(self) -> None:
        """Serve until SIGINT or SIGTERM, and answer what has begun."""
        self.server.run(sockets=[self.socket])

    def start(self) -> "Server":
        """Serve in a thread, so that a notebook goes on."""
        self._thread = threading.Thread(target=self.run, daemon=True, name="likewise-server")
        self._thread.start()
        while not self.server.started and self._thread.is_alive():
            self._thread.join(0.01)
        return self

    def close(self) -> None:
        """Stop serving."""
        self.server.should_exit = True
        if self._thread is not None:
            self._thread.join(10)
        self.socket.close()

    def __enter__(self) -> "Server":
        return self.start()

    def __exit__(self, *error: Any) -> None:
        self.close()


def _bind(host: str, port: int) -> socket.socket:
    """A listening socket; errors name the host and port."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG)  # clients may connect as soon as they know the address
    except OSError as error:
        raise ValueError(f"cannot listen on {host}, port {port}: {error.strerror or error}") from error
    return bound
