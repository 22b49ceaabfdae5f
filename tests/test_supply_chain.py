"""Dependencies: their licences, their pins, and what is promised of them."""

import re
import sys
from pathlib import Path

import pytest

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
def test_what_counts_as_the_gpl(licences, text, expected):
    assert licences.is_copyleft(text) == expected


def test_the_page_of_licences_is_complete(licences):
    page = licences.PAGE.read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| (\S+) \|", page, re.MULTILINE))
    assert set(licences.core()) <= listed, "run python docs/licences.py"


def test_every_dependency_is_pinned_and_no_registry_is_named():
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    names = {line.partition("==")[0].lower().replace("_", "-") for line in pins.splitlines() if "==" in line}
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    block = text[text.index("dependencies = [") : text.index("[project.optional-dependencies]")]
    wanted = {name.lower().replace("_", "-") for name in re.findall(r'"([A-Za-z0-9_-]+)', block)}
    assert wanted <= names
    assert "dtw-python" not in names  # GPL-3
    assert not re.search(r"https?://|index-url", pins)


def test_lightnings_malicious_releases_are_excluded():
    assert '"lightning>=2.5,!=2.6.2,!=2.6.3"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
