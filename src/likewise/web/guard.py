"""Guard: access control, and the security headers of every response."""

import hashlib
import hmac
import ipaddress
import json
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
SHORTEST_TOKEN = 16

HEADERS = {
    # Everything comes from this server. Pictures that the page draws itself are blobs or data.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
        (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, which may mean anything
        return False


class Guard:
    """Checks the host, the origin and the token of every request, and adds the security headers to every response.

    token: what ``Authorization: Bearer`` must hold; None lets everyone in, which is for loopback only.
    hosts: the names by which the server may be addressed, without ports; None allows any. On loopback it keeps out
        pages of other sites that have their own name resolve to this machine.
    public: paths that need no token: a probe's and the page itself, which holds no data.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str | None = None,
        hosts: Iterable[str] | None = LOOPBACK_NAMES,
        public: Iterable[str] = ("/healthz",),
    ) -> None:
        if token is not None and len(token) < SHORTEST_TOKEN:
            raise ValueError(f"the token must have at least {SHORTEST_TOKEN} characters")
        self.app = app
        self.token = None if token is None else _digest(token.encode())
        self.hosts = None if hosts is None else frozenset(hosts)
        self.public = frozenset(public)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1008})

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refused = self._refused(scope["path"], Headers(scope=scope))
        if refused is not None:
            return await _answer(send_with_headers, *refused)
        return await self.app(scope, receive, send_with_headers)

    def _refused(self, path: str, headers: Headers) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if self.hosts is not None and _without_port(host) not in self.hosts:
            return 421, "this server does not answer to that host name"
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            return 403, "requests from pages of other sites are refused"
        if self.token is None or path in self.public:
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(_digest(given.strip().encode()), self.token):
            return 401, "this server needs a token: send it as Authorization: Bearer TOKEN"
        return None


def _digest(token: bytes) -> bytes:
    """A digest of fixed length, so that comparing takes the same time for any token."""
    return hashlib.sha256(token).digest()


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() else host).lower()


async def _answer(send: Send, status: int, detail: str) -> None:
    body = json.dumps({"detail": detail}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
