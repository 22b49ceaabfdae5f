"""Private parts of PyTorch and Triton are used in ops/private.py, or listed there."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import likewise
from likewise.ops import private

SOURCE = Path(likewise.__file__).parent
ELSEWHERE = {  # named in the table of ops/private.py
    "models/frozen_batch_norm.py": {"_BatchNorm", "_forward_pre_hooks"},
    "training/batch_norm.py": {"_BatchNorm", "_check_input_dim"},
}
# Not PyTorch's or Triton's: fields of a named tuple, and the layers of efficientnet-lite-pytorch.
OTHERS = {"_fields", "_replace", "_asdict", "_conv_stem", "_bn0", "_blocks", "_conv_head", "_bn1"}


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


def defined(tree):
    """Private names that one of our modules defines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def used(tree):
    """Private names that a module takes from another, or from an object."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names)
            yield from (node.module or "").split(".")
        elif isinstance(node, ast.Import):
            yield from (part for alias in node.names for part in alias.name.split("."))


def foreign():
    """By file, the private names that are not defined in likewise."""
    files = {path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text()) for path in SOURCE.rglob("*.py")}
    own = {part.removesuffix(".py") for file in files for part in file.split("/")} | {"_native"} | OTHERS
    for tree in files.values():
        own.update(defined(tree))
    found = {file: {name for name in used(tree) if is_private(name)} - own for file, tree in files.items()}
    return {file: names for file, names in found.items() if names}


def test_private_names_are_in_the_list():
    found = foreign()
    assert "_len_torch_dispatch_stack" in found.pop("ops/private.py")
    assert found == ELSEWHERE


def test_the_list_names_all_used_parts():
    text = private.__doc__
    names = {name for names in foreign().values() for name in names} - {"_C", "_functorch"}
    assert all(name in text for name in names)
    for file in re.findall(r"(?<!tests/)(?:ops|models)/[a-z_/]+\.py", text):
        assert (SOURCE / file).is_file(), file


def test_the_versions_of_the_table_are_those_of_the_code():
    tried = set(re.findall(r"\b(\d\.\d+)\b", private.__doc__))
    assert {*private.TORCH_VERSIONS, *private.LAUNCH_VERSIONS["torch"], *private.LAUNCH_VERSIONS["triton"]} <= tried


@pytest.mark.parametrize(
    ("version", "known"), [("2.13.1+cu130", True), ("2.11.0", True), ("2.12.0", False), ("3.0", False)]
)
def test_versions(version, known):
    assert private.is_among(version, private.TORCH_VERSIONS) == known


def test_untested_versions_are_named(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "9.1.0")
    monkeypatch.setattr(private, "_triton_version", lambda: "3.6.0")
    assert private.untried() == ["torch 9.1.0"]
    monkeypatch.setattr(torch, "__version__", "2.11.0+cu130")
    assert private.untried() == []


OTHER_TORCH = """
import torch
from likewise.ops import private
assert not private.torch_is_tried and private.dispatch_modes is None
from likewise.ops.dtw import dtw, dtw_matrix
from likewise.ops.soft_dtw import soft_dtw
from likewise.testing import check_op
torch.manual_seed(0)
x, y = (torch.randn(2, t, 2, dtype=torch.float64, requires_grad=True) for t in (4, 3))
for op in (dtw, soft_dtw):
    assert torch.autograd.gradcheck(op, (x, y))
assert torch.autograd.gradgradcheck(soft_dtw, (x, y))
print(*dtw_matrix(x.detach(), y.detach()).flatten().tolist())
"""


def test_an_unknown_torch_goes_through_the_dispatcher():
    """Operators are registered when likewise is imported: in a process of its own."""
    unknown = "import torch; torch.__version__ = '9.1.0'\n" + OTHER_TORCH
    found = subprocess.run([sys.executable, "-c", unknown], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    torch.manual_seed(0)
    x, y = (torch.randn(2, t, 2, dtype=torch.float64) for t in (4, 3))
    from likewise.ops.dtw import dtw_matrix

    assert [float(number) for number in found.stdout.split()] == dtw_matrix(x, y).flatten().tolist()
