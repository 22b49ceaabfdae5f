"""Ports for servers that tests start."""

import random
import socket


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody uses, and that the system gives to nobody else: it chooses from 32768."""
    found: list[int] = []
    while len(found) < count:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found
