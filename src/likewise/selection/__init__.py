"""Choose a metric for the data: try several within a given time, and keep the best.

Example:
    >>> named_candidate("tap").name
    'tap, frame-mlp'
"""

from likewise.selection.candidates import Candidate, candidates_for, named_candidate, tuned_dtw
from likewise.selection.result import Difference, Result, Selection, compare
from likewise.selection.search import select

__all__ = [
    "Candidate",
    "Difference",
    "Result",
    "Selection",
    "candidates_for",
    "compare",
    "named_candidate",
    "select",
    "tuned_dtw",
]
