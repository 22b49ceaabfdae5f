"""Search: the nearest sequences under any distance, exactly, and why they match.

Example:
    >>> from likewise import DTW
    >>> Index(DTW(band=1), [[0.0, 1.0, 2.0], [5.0, 4.0, 3.0]]).search([[0.0, 0.0, 2.0]], k=1).ids.tolist()
    [['0']]
"""

from likewise.search.explanation import Counterfactual, Explanation
from likewise.search.files import Files
from likewise.search.found import Found, Stats
from likewise.search.hits import Hits
from likewise.search.index import Index
from likewise.search.milvus import MilvusStore
from likewise.search.segments import Segment
from likewise.search.store import Store

__all__ = [
    "Counterfactual",
    "Explanation",
    "Files",
    "Found",
    "Hits",
    "Index",
    "MilvusStore",
    "Segment",
    "Stats",
    "Store",
]
