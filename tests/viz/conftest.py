import pytest
from matplotlib import pyplot


@pytest.fixture(autouse=True)
def no_figure_is_left():
    """A plot without an ax makes a figure; the next test starts without any."""
    yield
    pyplot.close("all")
