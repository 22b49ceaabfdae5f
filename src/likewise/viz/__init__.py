"""Plots of alignments and of scores: an ``ax`` goes in, or None for a new figure, and the ``ax`` comes out.

Nothing is shown or saved; ``ax.figure.savefig("alignment.png")`` does. x runs along the horizontal axis and y along the
vertical one, wherever both have an axis of their own.
"""

from likewise.viz.attention import plot_attention
from likewise.viz.cells import density, path
from likewise.viz.confusion import confusion
from likewise.viz.embeddings import embedding_map
from likewise.viz.episodes import episode_accuracy
from likewise.viz.features import feature_map
from likewise.viz.retrieval import distance_histogram, precision_recall
from likewise.viz.series import three_way, two_way
from likewise.viz.warp import plot_warp

__all__ = [
    "confusion",
    "density",
    "distance_histogram",
    "embedding_map",
    "episode_accuracy",
    "feature_map",
    "path",
    "plot_attention",
    "plot_warp",
    "precision_recall",
    "three_way",
    "two_way",
]
