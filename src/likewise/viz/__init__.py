"""Plots of alignments: an ``ax`` goes in, or None for a new figure, and the ``ax`` comes out.

Nothing is shown or saved; ``ax.figure.savefig("alignment.png")`` does. x runs along the horizontal axis and y along the
vertical one, wherever both have an axis of their own.
"""

from likewise.viz.cells import density, path
from likewise.viz.features import feature_map
from likewise.viz.series import three_way, two_way

__all__ = ["density", "feature_map", "path", "three_way", "two_way"]
