import pytest
from matplotlib import pyplot


@pytest.fixture(autouse=True)
def no_figure_is_left():
    """A plot without an ax creates a figure; close all of them after each test."""
    yield
    pyplot.close("all")
