"""Searching for many queries piece by piece, so that a progress bar can move."""

import time
from typing import Any

from likewise._progress import moving
from likewise.models.metric import take
from likewise.search.found import Found, Searcher

PIECE = 0.3  # seconds that a piece of the queries should take
MOST_GROWTH = 4


def search_in_pieces(searcher: Searcher, queries: Any, *, skip: Any = None, **options: Any) -> Found:
    """What ``searcher.search`` finds, with a progress bar on stderr; a piece is as large as its time allows."""
    found, begin, size = [], 0, 1
    with moving(f"searching for {len(queries):,} queries", len(queries)) as move:
        while begin < len(queries):
            part, start = slice(begin, begin + size), time.perf_counter()
            some = take(queries, part)
            found.append(searcher.search(some, skip=None if skip is None else skip[part], **options))
            move(len(some))
            seconds = time.perf_counter() - start
            begin += size
            size = max(1, min(MOST_GROWTH * size, int(size * PIECE / max(seconds, 1e-9))))
    return Found.cat(found)
