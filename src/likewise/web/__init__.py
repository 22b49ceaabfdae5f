"""The service and the explorer: a Collection behind FastAPI, and a page to browse and query it.

They need the extra ``web``: ``pip install "likewise[web]"``. The names are imported on first use.

Example:
    >>> from likewise import DTW
    >>> from likewise.web import Collection, Explorer
    >>> collection = Collection(([[0.0, 1.0], [5.0, 6.0]], ["low", "high"]), {"dtw": DTW()})
    >>> with Explorer(collection) as page:
    ...     page.url.startswith("http://127.0.0.1:")
    True
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from likewise.web.collection import Collection
    from likewise.web.explorer import Explorer, explore
    from likewise.web.limits import Limits
    from likewise.web.server import Server, read_token
    from likewise.web.service import create_service

__all__ = ["Collection", "Explorer", "Limits", "Server", "create_service", "explore", "read_token"]

_HOMES = {
    "Collection": "collection",
    "Explorer": "explorer",
    "Limits": "limits",
    "Server": "server",
    "create_service": "service",
    "explore": "explorer",
    "read_token": "server",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'likewise.web' has no attribute {name!r}")
    try:
        module = importlib.import_module(f"likewise.web.{_HOMES[name]}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("fastapi", "pydantic", "starlette", "uvicorn"):
            raise ImportError(f'{error.name} is missing; install it with pip install "likewise[web]"') from error
        raise
    return getattr(module, name)
