"""Modules as plain data and back; tests of whole files are in test_metric.py."""

import json
import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import likewise as lw
from likewise.models.config import ENCODERS, MOST_LEVELS, arguments, build, describe, known, sketch


class Scaled(nn.Module):
    def __init__(self, scale: float, inner: nn.Module | None = None) -> None:
        super().__init__()
        self.scale, self.inner = scale, inner


@pytest.mark.parametrize(
    "module",
    [lw.DTW(band=3), lw.Euclidean(squared=True), lw.FrameMLP(3, hidden=4), lw.Metric(lw.TCN(2, 4), lw.SoftDTW(0.5))],
    ids=lambda module: type(module).__name__,
)
def test_a_description_is_json_and_builds_the_same_module(module):
    description = json.loads(json.dumps(describe(module), allow_nan=False))
    again = build("here", description, [lw.Metric])
    assert type(again) is type(module)
    assert repr(again) == repr(module)


def test_infinities_and_modules_inside_modules():
    description = describe(Scaled(math.inf, Scaled(-1.5)))
    assert description["settings"]["scale"] == {"number": "inf"}  # type: ignore[index]
    again = build("here", description, [Scaled])
    assert (again.scale, again.inner.scale) == (math.inf, -1.5)


def test_arguments_come_from_config_or_from_attributes():
    class Configured(Scaled):
        def config(self):
            return {"scale": 2.0}

    assert arguments(Configured(1.0)) == {"scale": 2.0}
    assert arguments(Scaled(1.0)) == {"scale": 1.0, "inner": None}

    class Forgetful(nn.Module):
        def __init__(self, size):
            super().__init__()

    with pytest.raises(TypeError, match="Forgetful: cannot find its argument 'size'"):
        arguments(Forgetful(3))


def test_known_classes():
    assert {kind.__name__ for kind in ENCODERS} < set(known("here"))
    assert known("here")["DTW"] is lw.DTW
    assert known("here", [Scaled])["Scaled"] is Scaled
    with pytest.raises(ValueError, match="two classes are called DTW; rename yours"):
        known("here", [type("DTW", (nn.Module,), {})])
    with pytest.raises(TypeError, match=r"subclasses of nn\.Module"):
        known("here", [int])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ({"class": "os.system", "settings": {}}, "unknown class 'os.system'"),
        ({"class": "DTW"}, "expected a mapping of class and settings"),
        ({"class": "DTW", "settings": []}, "expected the settings of DTW to be a mapping"),
        ({"class": "DTW", "settings": {"bandwidth": 1}}, "cannot make DTW from its settings"),
        ({"class": "DTW", "settings": {"subsequence": 1}}, "expected subsequence of DTW to be true or false, got 1"),
        ({"class": "Scaled", "settings": {"scale": {"number": "1e9"}}}, "expected inf, -inf or nan"),
        ({"class": "Scaled", "settings": {"scale": 1 << 60}}, "more than 53 bits"),
    ],
)
def test_bad_descriptions_are_refused(description, message):
    with pytest.raises(ValueError, match=message):
        build("here", description, [Scaled])


def test_deep_descriptions_are_refused():
    value: object = 0
    for _ in range(MOST_LEVELS + 2):
        value = [value]
    with pytest.raises(ValueError, match=f"more than {MOST_LEVELS} levels deep"):
        build("here", {"class": "Scaled", "settings": {"scale": value}}, [Scaled])


@pytest.mark.parametrize("value", [torch.ones(2), lambda x: x, object()], ids=["tensor", "function", "object"])
def test_what_a_file_cannot_hold(value):
    with pytest.raises(TypeError, match=r"Scaled\.scale: a file cannot hold"):
        describe(Scaled(value))


class Many(nn.Module):
    """Parameters whose number no setting of a known name gives away."""

    def __init__(self, count):
        super().__init__()
        self.count = count
        self.held = nn.ParameterList([torch.zeros(1) for _ in range(count)])


def test_parameters_are_counted_while_a_module_is_sketched():
    described = {"class": "Many", "settings": {"count": 100}}
    assert len(list(sketch("here", described, [Many], 100, "file").parameters())) == 100
    with pytest.raises(ValueError, match=r"here: .*asks for more than 84 parameters, but file holds 10 tensors"):
        sketch("here", described, [Many], 10, "file")
    # Those that other threads make do not count.
    with ThreadPoolExecutor() as pool:
        others = pool.submit(lambda: [nn.Linear(1, 1) for _ in range(2000)])
        while not others.done():
            sketch("here", {"class": "Many", "settings": {"count": 50}}, [Many], 0, "file")
    Many(1000)  # the count has ended
