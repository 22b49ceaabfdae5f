import ast
import doctest
import inspect
import operator
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import likewise

PUBLIC = [
    "ADTW",
    "AttendedFeatures",
    "Batch",
    "Cosine",
    "CoupledGRU",
    "DDTW",
    "DTW",
    "DTWGlobalInvariance",
    "Dataset",
    "Distance",
    "EDR",
    "EMD",
    "ERP",
    "EfficientNetLite",
    "Embedder",
    "Episodes",
    "Euclidean",
    "FrameMLP",
    "GDTW",
    "GRUEncoder",
    "GradientReversal",
    "HeldOutClasses",
    "ImageSet",
    "Index",
    "LCSS",
    "MSM",
    "MeanFrames",
    "Metric",
    "MilvusStore",
    "OPW",
    "OTAM",
    "SBD",
    "ShapeDTW",
    "SiameseGRU",
    "Sinkhorn",
    "SoftDTW",
    "SoftDTWDivergence",
    "SoftElastic",
    "TAP",
    "TCN",
    "TCOT",
    "TWE",
    "TransformerTAP",
    "WDDTW",
    "WDTW",
    "barycenter",
    "clusters",
    "data",
    "distances",
    "dynamics",
    "evaluate",
    "evaluation",
    "explore",
    "few_shot_accuracy",
    "few_shot_predict",
    "fit",
    "losses",
    "models",
    "read_audio_folder",
    "read_image_folder",
    "read_npz",
    "read_table",
    "read_ts",
    "regularizers",
    "scale",
    "search",
    "selection",
    "sklearn",
    "training",
    "tune",
    "viz",
    "web",
]
SUBPACKAGES = [
    "clusters",
    "data",
    "distances",
    "dynamics",
    "evaluation",
    "losses",
    "models",
    "regularizers",
    "scale",
    "search",
    "selection",
    "sklearn",
    "training",
    "viz",
    "web",
]
# Every name that a user may import, by where it lives.
NAMES = PUBLIC + [f"{part}.{name}" for part in SUBPACKAGES for name in getattr(likewise, part).__all__]


def named(path: str) -> object:
    return operator.attrgetter(path)(likewise)


def run(program: str) -> str:
    """What a fresh interpreter prints."""
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(program)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_the_public_names():
    assert sorted(likewise.__all__) == PUBLIC
    assert all(hasattr(likewise, name) for name in PUBLIC)


def test_the_package_file_holds_imports_and_names_only():
    assert likewise.__file__ is not None
    body = ast.parse(Path(likewise.__file__).read_text(encoding="utf-8")).body
    assert isinstance(body[0], ast.Expr), "the docstring"
    for node in body[1:]:
        if isinstance(node, ast.If):  # imported by type checkers, and lazily at run time
            assert ast.unparse(node.test) == "TYPE_CHECKING"
            assert all(isinstance(inner, ast.ImportFrom) for inner in node.body)
            continue
        if isinstance(node, ast.FunctionDef):
            assert node.name == "__getattr__"
            continue
        names = (
            [target.id for target in node.targets if isinstance(target, ast.Name)]
            if isinstance(node, ast.Assign)
            else []
        )
        assert isinstance(node, ast.ImportFrom | ast.Import) or names in (["__all__"], ["__version__"], ["_LATER"])


def test_an_unknown_name_is_refused():
    with pytest.raises(AttributeError, match="module 'likewise' has no attribute 'Nothing'"):
        likewise.Nothing  # noqa: B018


@pytest.mark.parametrize("part", SUBPACKAGES)
def test_what_a_subpackage_names(part):
    package = getattr(likewise, part)
    assert len(set(package.__all__)) == len(package.__all__)
    for name in package.__all__:
        assert getattr(package, name).__module__.startswith("likewise.")
    # The top-level name is the same object.
    namesakes = {"evaluate", "tune"} if part == "scale" else set()  # the same, on several machines
    for name in set(PUBLIC) & set(package.__all__) - namesakes:
        assert getattr(likewise, name) is getattr(package, name)


def test_every_public_name_is_in_one_subpackage():
    found = [name for part in SUBPACKAGES for name in getattr(likewise, part).__all__]
    for name in set(PUBLIC) - set(SUBPACKAGES):
        assert found.count(name) >= 1, name


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_an_example(name):
    thing = named(name)
    assert thing.__doc__, "a docstring of its own"
    assert ">>> " in inspect.getdoc(thing).partition("Example:")[2]


@pytest.mark.parametrize("name", PUBLIC)
def test_the_examples_of_public_names_run(name):
    thing = getattr(likewise, name)
    # Its methods' examples run too.
    tests = doctest.DocTestFinder().find(thing, name, globs=dict(vars(inspect.getmodule(thing) or thing)))
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert any(test.examples for test in tests)
    for test in tests:
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


@pytest.mark.parametrize("name", NAMES)
def test_every_public_method_has_a_docstring(name):
    thing = named(name)
    for method, value in vars(thing).items() if inspect.isclass(thing) else ():
        if not method.startswith("_") and (callable(value) or isinstance(value, (classmethod, staticmethod, property))):
            assert inspect.getdoc(getattr(thing, method)), f"{name}.{method}"


def test_the_import_is_fast_once_torch_is_there(monkeypatch):
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)  # the first of the three runs compiles, as for users
    program = """
        import time
        import torch
        start = time.process_time()  # other programs may keep the machine busy
        import likewise
        print(time.process_time() - start)
    """
    seconds = min(float(run(program)) for _ in range(3))
    assert seconds < 0.5, f"{seconds:.2f} s"


def test_the_import_brings_nothing_that_it_does_not_need():
    program = """
        import sys
        import torch
        before = set(sys.modules)
        import likewise
        print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before}))
    """
    unwanted = {"typer", "rich", "matplotlib", "triton", "aeon", "tslearn", "dtaidistance", "numba", "sklearn", "scipy"}
    assert not set(run(program).split()) & (unwanted | {"pandas", "lightning", "pytorch_metric_learning"})


def test_works_without_triton():
    program = """
        import sys
        sys.modules["triton"] = None
        import likewise as lw
        print(lw.DTW()([[0.0, 1.0, 2.0]], [[0.0, 2.0]]).item(), lw.SoftDTW().matrix([[0.0, 1.0]]).shape)
    """
    assert run(program) == "1.0 torch.Size([1, 1])"
