"""The licences of likewise's dependencies, from their metadata: writes docs/licences.md.

``python docs/licences.py`` writes the page. tests/test_supply_chain.py checks that nothing of the core is under the
GPL.
"""

import re
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PAGE = Path(__file__).parent / "licences.md"
INTRODUCTION = """# Licences of the dependencies

Made by `python docs/licences.py` from the metadata of what is installed. The core is what `pip install likewise`
brings, with all that this needs; the others come with an extra. Nothing of the core is under the GPL or the AGPL: a
test says so.
"""


def requirements(name: str, extra: str = "") -> list[Requirement]:
    """What a distribution needs here, with an extra or without one."""
    found = [Requirement(text) for text in metadata.requires(name) or []]
    return [r for r in found if r.marker is None or r.marker.evaluate({"extra": extra})]


def closure(wanted: list[Requirement]) -> dict[str, str]:
    """Names and versions of the distributions that these need, themselves included; without those not installed."""
    found: dict[str, str] = {}
    left = [(r.name, extra) for r in wanted for extra in ("", *r.extras)]
    seen = set()
    while left:
        name, extra = left.pop()
        key = canonicalize_name(name)
        if (key, extra) in seen or key == "likewise":
            continue
        seen.add((key, extra))
        try:
            found[key] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        left += [(r.name, more) for r in requirements(name, extra) for more in ("", *r.extras)]
    return dict(sorted(found.items()))


def licence(name: str) -> str:
    """The licence that a distribution states: its expression, its classifiers, or the first line of its text."""
    about = metadata.metadata(name)
    if about["License-Expression"]:
        return about["License-Expression"]
    classified = [c.split("::")[-1].strip() for c in about.get_all("Classifier") or [] if c.startswith("License ::")]
    classified = [c for c in classified if c != "OSI Approved"]
    if classified:
        return ", ".join(classified)
    text = (about["License"] or "").strip()
    return re.sub(r"\s+", " ", text.splitlines()[0])[:60] if text else "not stated"


def is_copyleft(text: str) -> bool:
    """Whether a licence is the GPL or the AGPL, without a choice or an exception; the LGPL is not."""
    return any(
        re.search(r"(?<!L)GPL|General Public License|Affero", part)
        and not re.search(r"LGPL|Lesser|Library| OR |[Ee]xception", part)
        for part in re.split(r" AND |,", text)
    )


def core() -> dict[str, str]:
    return closure(requirements("likewise"))


def extras() -> dict[str, str]:
    """All that any extra needs and the core does not."""
    names = metadata.metadata("likewise").get_all("Provides-Extra") or []
    inside = core()
    found = closure([r for extra in names for r in requirements("likewise", extra)])
    return {name: version for name, version in found.items() if name not in inside}


def table(found: dict[str, str]) -> str:
    rows = [f"| {name} | {version} | {licence(name)} |" for name, version in found.items()]
    return "\n".join(["| distribution | version | licence |", "|---|---|---|", *rows])


if __name__ == "__main__":
    PAGE.write_text(f"{INTRODUCTION}\n## Core\n\n{table(core())}\n\n## Extras\n\n{table(extras())}\n", encoding="utf-8")
