"""Plots of alignments, scores and training: each takes ``ax``, or None for a new figure, and returns the axes.

Nothing is shown or saved: call ``ax.figure.savefig("alignment.png")``. Where x and y each have an axis, x is the
horizontal one.

Example:
    >>> from likewise import DTW
    >>> from matplotlib.figure import Figure
    >>> ax = plot_path(DTW().align([[0.0, 1.0, 2.0]], [[0.0, 2.0]]), ax=Figure().subplots())
    >>> ax.get_xlabel()
    'step of x'
"""

from likewise.viz.attention import plot_attention
from likewise.viz.cells import plot_density, plot_path
from likewise.viz.clusters import (
    plot_barycenter,
    plot_clusters,
    plot_dendrogram,
    plot_interpolation,
    plot_silhouette,
)
from likewise.viz.confusion import plot_confusion
from likewise.viz.dynamics import plot_coupling_norm, plot_loss_by_coupling, plot_noise, plot_synchronization
from likewise.viz.embeddings import plot_embeddings
from likewise.viz.episodes import plot_episode_accuracy
from likewise.viz.explanation import plot_explanation
from likewise.viz.features import plot_feature_map
from likewise.viz.hits import plot_hits, plot_match
from likewise.viz.plan import plot_plan
from likewise.viz.retrieval import plot_distance_histogram, plot_precision_recall
from likewise.viz.series import plot_three_way, plot_two_way
from likewise.viz.solver import plot_solver
from likewise.viz.virtual import plot_virtual_alignment
from likewise.viz.warp import plot_warp

__all__ = [
    "plot_attention",
    "plot_barycenter",
    "plot_clusters",
    "plot_confusion",
    "plot_coupling_norm",
    "plot_dendrogram",
    "plot_density",
    "plot_distance_histogram",
    "plot_embeddings",
    "plot_episode_accuracy",
    "plot_explanation",
    "plot_feature_map",
    "plot_hits",
    "plot_interpolation",
    "plot_loss_by_coupling",
    "plot_match",
    "plot_noise",
    "plot_path",
    "plot_plan",
    "plot_precision_recall",
    "plot_silhouette",
    "plot_solver",
    "plot_synchronization",
    "plot_three_way",
    "plot_two_way",
    "plot_virtual_alignment",
    "plot_warp",
]
