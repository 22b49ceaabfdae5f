"""Plots of alignments and of scores: an ``ax`` goes in, or None for a new figure, and the ``ax`` comes out.

Nothing is shown or saved; ``ax.figure.savefig("alignment.png")`` does. x runs along the horizontal axis and y along the
vertical one, wherever both have an axis of their own.
"""

from likewise.viz.attention import plot_attention
from likewise.viz.cells import density, path
from likewise.viz.confusion import confusion
from likewise.viz.dynamics import coupling_norm, loss_by_coupling, noise, synchronization
from likewise.viz.embeddings import embedding_map
from likewise.viz.episodes import episode_accuracy
from likewise.viz.features import feature_map
from likewise.viz.plan import plan_lines
from likewise.viz.retrieval import distance_histogram, precision_recall
from likewise.viz.series import three_way, two_way
from likewise.viz.solver import plot_solver
from likewise.viz.virtual import virtual_alignment
from likewise.viz.warp import plot_warp

__all__ = [
    "confusion",
    "coupling_norm",
    "density",
    "distance_histogram",
    "embedding_map",
    "episode_accuracy",
    "feature_map",
    "loss_by_coupling",
    "noise",
    "path",
    "plan_lines",
    "plot_attention",
    "plot_solver",
    "plot_warp",
    "precision_recall",
    "synchronization",
    "three_way",
    "two_way",
    "virtual_alignment",
]
