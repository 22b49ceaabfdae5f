"""Imports point one way: each part of likewise imports only what DESIGN.md allows."""

import ast
from pathlib import Path

import pytest

import likewise

ROOT = Path(likewise.__file__).parent
# Entry points for users. The library imports none of these; they may import anything but each other and testing.
ENTRANCES = {"web", "cli", "__main__"}
ENDS = {"viz", "testing"} | ENTRANCES

# The parts of likewise that each part may import, besides itself.
CHECKS = {"_check", "_labels"}
HELPERS = {"_modes", "_output", "_progress"}  # a context, a writer and a progress bar, which do not depend on likewise
BELOW_DISTANCES = CHECKS | HELPERS | {"data", "ops"}
BELOW_MODELS = BELOW_DISTANCES | {"distances"}
BELOW_TRAINING = BELOW_MODELS | {"models", "losses", "regularizers", "evaluation"}
BELOW_SCALE = BELOW_TRAINING | {"training", "clusters", "search"}
EVERYTHING = BELOW_SCALE | {"scale", "selection", "sklearn", "dynamics"}
MAY_IMPORT = {
    "_check": set(),
    "_labels": {"_check"},
    "_modes": set(),
    "_output": set(),
    "_progress": set(),
    "data": CHECKS | HELPERS,
    "ops": {"_check"},
    "losses": CHECKS,
    "regularizers": CHECKS | {"ops"},
    "dynamics": {"_check"},
    "evaluation": CHECKS | HELPERS,
    "distances": BELOW_DISTANCES,
    "models": BELOW_MODELS,
    "training": BELOW_TRAINING,
    "clusters": BELOW_TRAINING,
    "search": BELOW_TRAINING,
    "scale": BELOW_SCALE | {"selection"},
    "selection": BELOW_SCALE,
    "sklearn": BELOW_SCALE,
    "viz": CHECKS,
    "testing": BELOW_MODELS | {"losses"},
    "web": EVERYTHING | {"viz"},
    "__init__": EVERYTHING | {"viz", "web"},
    "cli": EVERYTHING | {"__init__", "viz", "web"},
    "__main__": {"cli"},
}
# k nearest neighbours through an index, where that is exact and faster; search imports evaluation, so it is looked up late.
THROUGH_AN_INDEX = {
    "evaluation/evaluate.py": {"data", "distances", "search"},
    "clusters/leave_one_out.py": {"search"},
}
# What parts that see matrices and tensors may import beside torch.
STANDARD = {
    "collections", "concurrent", "contextlib", "copy", "dataclasses", "enum", "functools", "itertools", "math",
    "typing", "warnings",
}  # fmt: skip
ONLY_TENSORS = {"losses", "regularizers", "dynamics", "evaluation"}
INSIDE_FUNCTIONS = {"scipy", "sklearn"}  # imports allowed inside functions
ON_GPU = {"gpu", "launch", "engine"}  # where Triton may be imported: kernels, how they start, and what they share
PEERS = {"aeon", "tslearn", "dtaidistance", "tsdistances", "pysdtw", "dtw", "gdtw", "ot"}


def imported(path: Path) -> set[str]:
    """Full names of the modules that a file imports, inside functions too."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write imports in full"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def imported_at_once(path: Path) -> set[str]:
    """Packages that a file imports when it is itself imported."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    names = [alias.name for node in body if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in body if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


def part(path: Path) -> str:
    """The folder or module of likewise that a file belongs to."""
    inside = path.relative_to(ROOT)
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


def parts_imported(path: Path) -> set[str]:
    """Parts of likewise that a file imports; the package as a whole counts as __init__."""
    found = set()
    for name in imported(path):
        first, _, rest = name.partition(".")
        if first != "likewise":
            continue
        name = rest.split(".")[0]
        known = name in MAY_IMPORT or (ROOT / name).is_dir() or (ROOT / f"{name}.py").exists()
        found.add(name if name and known else "_native" if name == "_native" else "__init__")
    return found


FILES = sorted(ROOT.rglob("*.py"))
each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))


def test_there_are_files():
    assert len(FILES) > 20


@each_file
def test_imports_point_one_way(path):
    mine = part(path)
    assert mine in MAY_IMPORT, f"{mine} is new: give it a line in MAY_IMPORT, and one in DESIGN.md"
    allowed = MAY_IMPORT[mine] | {mine} | THROUGH_AN_INDEX.get(str(path.relative_to(ROOT)), set())
    if mine == "ops":
        allowed = allowed | {"_native"}
    wrong = parts_imported(path) - allowed
    assert not wrong, f"{path.relative_to(ROOT)} imports {', '.join(sorted(wrong))}"


@each_file
def test_the_library_imports_none_of_the_ends(path):
    mine = part(path)
    # The package itself names viz and web, for type checkers, and imports them when they are asked for.
    allowed = {mine} | ({"viz", "web"} if mine == "__init__" else set())
    wrong = parts_imported(path) & ({"testing"} if mine in ENTRANCES else ENDS) - allowed
    assert not wrong, f"{path.relative_to(ROOT)} imports {', '.join(sorted(wrong))}"


@each_file
def test_triton_stays_in_the_gpu_modules(path):
    inside = path.relative_to(ROOT)
    on_gpu = inside.parts[0] == "ops" and any(Path(name).stem in ON_GPU for name in inside.parts[1:])
    packages = {name.partition(".")[0] for name in imported(path)}
    assert on_gpu or "triton" not in packages
    if not on_gpu:
        lazy = {name for name in imported(path) if name.startswith("likewise.ops") and "gpu" in name.split(".")}
        assert not lazy, "the GPU modules are imported by name, when they are first called"


@each_file
def test_peers_are_for_tests_and_benchmarks(path):
    assert not {name.partition(".")[0] for name in imported(path)} & PEERS


@pytest.mark.parametrize("path", [p for p in FILES if part(p) in ONLY_TENSORS], ids=lambda p: str(p.relative_to(ROOT)))
def test_what_sees_matrices_imports_torch_and_checks_only(path):
    assert imported_at_once(path) <= STANDARD | {"torch", "likewise"}
    allowed = STANDARD | INSIDE_FUNCTIONS | {"torch", "likewise"}
    if path.name == "pml.py":
        allowed = allowed | {"pytorch_metric_learning"}
    assert {name.partition(".")[0] for name in imported(path)} <= allowed


def test_the_rule_itself_points_one_way():
    order: list[str] = []
    left = dict(MAY_IMPORT)
    while left:
        free = [name for name, below in left.items() if below <= set(order)]
        assert free, f"these import each other: {', '.join(left)}"
        order += free
        left = {name: below for name, below in left.items() if name not in free}
    library = (below for name, below in MAY_IMPORT.items() if name not in ENTRANCES | {"__init__"})
    assert not set().union(*library) & ENDS
    assert not any("testing" in below for below in MAY_IMPORT.values())


def test_the_parser_sees_what_it_should(tmp_path):
    path = tmp_path / "example.py"
    path.write_text(
        "import likewise as lw\nfrom likewise import _check, Batch\nfrom likewise.data.batch import Batch\n"
        "def f():\n    import triton.language as tl\n    from likewise.viz import path\n"
    )
    assert parts_imported(path) == {"__init__", "_check", "data", "viz"}
    assert "triton.language" in imported(path)
