import numpy as np
import pytest
import torch
from matplotlib import pyplot
from matplotlib.figure import Figure

from likewise.viz import dynamics


@pytest.fixture
def ax():
    return Figure().subplots()


def test_the_norm_over_epochs_with_the_best_validations(ax):
    norms, scores = [2.0, 2.5, 3.1, 3.3], [0.7, 0.8, 0.75, 0.9]
    assert dynamics.plot_coupling_norm(torch.tensor(norms), scores, ax=ax) is ax
    np.testing.assert_allclose(ax.lines[0].get_ydata(), norms, rtol=1e-6)
    assert ax.collections[0].get_offsets()[:, 0].tolist() == [1, 2, 4]
    plain = dynamics.plot_coupling_norm(norms)
    assert not plain.collections
    pyplot.close(plain.figure)


def test_the_line_through_the_first_epochs(ax):
    norms, losses = np.array([1.0, 2.0, 3.0, 2.5]), np.array([5.0, 3.5, 1.0, 0.9])
    dynamics.plot_loss_by_coupling(norms, losses, ax=ax)
    slope, height = np.polyfit(norms[:3], losses[:3], 1)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), slope * np.array([1, 3]) + height)
    correlation = np.corrcoef(norms[:3], losses[:3])[0, 1]
    assert ax.get_legend().get_texts()[0].get_text() == f"first 3 epochs: correlation {correlation:.3f}"
    assert len(ax.collections[0].get_offsets()) == 4


def test_one_epoch_has_no_line(ax):
    dynamics.plot_loss_by_coupling([1.0], [2.0], ax=ax)
    assert not ax.lines


def test_noise_has_two_lines_a_method(ax):
    dynamics.plot_noise([0, 1, 2], {"SGRU": ([0, 1, 2], [3, 3, 3]), "CGRU": ([0, 0, 1], [4, 4, 4])}, ax=ax)
    assert [line.get_ydata().tolist() for line in ax.lines] == [[3, 3, 3], [0, 1, 2], [4, 4, 4], [0, 0, 1]]


def test_errors_end_with_their_length(ax):
    errors = torch.tensor([[1.0, 0.5, 0.1], [1.0, torch.nan, torch.nan]], requires_grad=True)
    dynamics.plot_synchronization(errors, torch.tensor([3, 1]), labels=("a", "b"), log=True, ax=ax)
    assert [len(line.get_xdata()) for line in ax.lines] == [3, 1]
    assert ax.get_yscale() == "log"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b"]


def test_bad_arguments_are_refused(ax):
    with pytest.raises(
        ValueError, match=r"plot_coupling_norm: expected norms of shape \(N,\), not empty, got \(1, 2\)"
    ):
        dynamics.plot_coupling_norm([[1.0, 2.0]], ax=ax)
    with pytest.raises(ValueError, match="plot_coupling_norm: expected 2 accuracies, got 1"):
        dynamics.plot_coupling_norm([1.0, 2.0], [1.0], ax=ax)
    with pytest.raises(ValueError, match="plot_loss_by_coupling: losses hold nan"):
        dynamics.plot_loss_by_coupling([1.0], [float("nan")], ax=ax)
    with pytest.raises(ValueError, match="plot_noise: expected 2 positive distances of A, got 1"):
        dynamics.plot_noise([0, 1], {"A": ([1], [1, 2])}, ax=ax)
    with pytest.raises(ValueError, match=r"plot_synchronization: expected lengths of shape \(1,\), between 1 and 2"):
        dynamics.plot_synchronization([1.0, 2.0], [3], ax=ax)
    with pytest.raises(ValueError, match="there are 2 labels for 1 lines"):
        dynamics.plot_synchronization([1.0, 2.0], labels=("a", "b"), ax=ax)


def test_epochs_between_validations():
    figure = Figure()
    left, right = figure.subplots(1, 2)
    dynamics.plot_coupling_norm([1.0, 2.0], [0.5, 0.6], epochs=[2.5, 5.0], ax=left)
    assert left.collections[0].get_offsets()[:, 0].tolist() == [2.5, 5.0]
    dynamics.plot_loss_by_coupling([1.0, 2.0], [3.0, 2.0], epochs=[2.5, 5.0], ax=right)
    assert right.get_legend().get_texts()[0].get_text() == "first 5 epochs: correlation -1.000"
    with pytest.raises(ValueError, match="epochs"):
        dynamics.plot_coupling_norm([1.0, 2.0], epochs=[1.0], ax=left)
