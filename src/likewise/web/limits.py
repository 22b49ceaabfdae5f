"""Limits: caps on the requests to the service."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The caps of the service. Requests above them are refused, with the status in brackets.

    body: bytes of a request (413). bodies: bytes of all requests that are being read or wait (503).
    queries: items in a batch (422). length, channels: of a sequence (422). pixels: of an image (413). k: hits (422).
    parallel: requests computed at once. waiting: requests that may wait for them (429).
    seconds: from a request's arrival to its answer (503). reading: seconds that a body may take to arrive (408).
    connections: open at once (503).

    Example:
        >>> Limits(k=50).k
        50
    """

    body: int = 8 << 20
    bodies: int = 256 << 20
    queries: int = 256
    length: int = 8192
    channels: int = 1024
    pixels: int = 1 << 24
    k: int = 1000
    parallel: int = 2
    waiting: int = 128
    seconds: float = 30.0
    reading: float = 10.0
    connections: int = 512

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise ValueError(f"Limits: {name} must be positive, got {value}")


DEFAULT_LIMITS = Limits()
