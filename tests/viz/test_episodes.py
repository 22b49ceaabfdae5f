import pytest
import torch
from matplotlib.figure import Figure

from likewise.evaluation.few_shot import FewShotScore
from likewise.viz.episodes import plot_episode_accuracy


def test_points_and_intervals_are_where_they_belong():
    scores = {"DTW": FewShotScore(0.9, 0.01, torch.zeros(2)), "TAP": (0.95, 0.005)}
    ax = plot_episode_accuracy(scores, chance=0.2, ax=Figure().subplots())
    assert [label.get_text() for label in ax.get_yticklabels()] == ["DTW", "TAP"]
    points = ax.lines[0].get_xydata()
    assert points.tolist() == [[90, 0], [95, 1]]
    (bars,) = ax.collections
    assert [segment[:, 0].tolist() for segment in bars.get_segments()] == [[89, 91], [94.5, 95.5]]
    assert ax.lines[-1].get_xdata()[0] == 20
    assert ax.yaxis_inverted()
    ax.figure.canvas.draw()


def test_a_figure_of_its_own():
    assert plot_episode_accuracy({"TAP": (0.5, 0.1)}).get_xlabel().startswith("accuracy")


@pytest.mark.parametrize("score", [(1.5, 0.1), (0.5, -1.0), (0.5,)])
def test_other_scores_are_refused(score):
    with pytest.raises(ValueError, match="plot_episode_accuracy: expected TAP to have an accuracy"):
        plot_episode_accuracy({"TAP": score}, ax=Figure().subplots())
    with pytest.raises(TypeError, match="expected a mapping"):
        plot_episode_accuracy([score])
