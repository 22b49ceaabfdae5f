"""Dependencies: their licences, pins and documented promises."""

import re
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def licences():
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        import licences
    finally:
        sys.path.remove(str(ROOT / "docs"))
    return licences


def test_nothing_of_the_core_is_under_the_gpl(licences):
    found = {name: licences.licence(name) for name in licences.core()}
    assert len(found) > 20
    assert "torch" in found
    assert [name for name, text in found.items() if licences.is_copyleft(text)] == []
    assert [name for name, text in found.items() if text == "not stated"] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("GPL-3.0-or-later", True),
        ("GNU General Public License v3 (GPLv3)", True),
        ("GNU Affero General Public License v3", True),
        ("MIT AND GPL-2.0", True),
        ("GNU Lesser General Public License v3 (LGPLv3)", False),
        ("LGPL-2.1-or-later", False),
        ("MIT OR GPL-2.0", False),
        ("GPL-3.0-or-later WITH GCC-exception-3.1", False),
        ("BSD-3-Clause", False),
    ],
)
def test_licences_that_count_as_the_gpl(licences, text, expected):
    assert licences.is_copyleft(text) == expected


def test_the_page_of_licences_is_complete(licences):
    page = licences.PAGE.read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| (\S+) \|", page, re.MULTILINE))
    missing = (set(licences.core()) | set(licences.extras())) - listed  # of the extras, what is installed
    assert not missing, "run python docs/licences.py"


def pins(name):
    """The versions that a file of constraints pins, by name."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    pairs = (line.split()[0].partition("==") for line in lines if "==" in line)
    return {canonicalize_name(package): version for package, _, version in pairs}


def test_a_release_pins_every_file_by_its_hash(licences):
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import release_constraints
    finally:
        sys.path.remove(str(ROOT / "tools"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    users = set(project["optional-dependencies"]) - {"bench", "dev", "docs", "fuzz"}
    assert set(release_constraints.EXTRAS) == users
    released, tested = pins("constraints-release.txt"), pins("constraints.txt")
    wanted = [Requirement(text) for extra in users for text in project["optional-dependencies"][extra]]
    needed = {**licences.core(), **licences.closure(wanted)}
    assert not set(needed) - set(released), "run make release-constraints"
    public = {name: version.partition("+")[0] for name, version in released.items()}  # torch is the CPU build
    assert {n: v for n, v in public.items() if tested.get(n, v) != v} == {}
    lines = (ROOT / "constraints-release.txt").read_text(encoding="utf-8").splitlines()[1:]
    assert [line for line in lines if not re.fullmatch(r"\S+==\S+ --hash=sha256:[0-9a-f]{64}", line)] == []


def test_every_dependency_is_pinned_and_no_registry_is_named():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(text for extra in project["optional-dependencies"].values() for text in extra),
    ]
    names = {canonicalize_name(Requirement(text).name) for text in wanted} - {"likewise"}
    pinned = pins("constraints.txt")
    assert names <= set(pinned)
    assert "dtw-python" not in pinned  # GPL-3
    for name in ("constraints.txt", "constraints-release.txt"):
        assert not re.search(r"https?://|index-url", (ROOT / name).read_text(encoding="utf-8"))


def test_lightnings_malicious_releases_are_excluded():
    assert '"lightning>=2.5,!=2.6.2,!=2.6.3"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
