"""The reference: a page for each subpackage, generated from its ``__all__`` when the docs are built."""

import importlib
import inspect
from pathlib import Path
from types import ModuleType

import likewise

PAGES = {
    "distances": "Distances",
    "data": "Data",
    "models": "Encoders and metrics",
    "losses": "Losses",
    "regularizers": "Regularizers",
    "training": "Training",
    "evaluation": "Evaluation",
    "clusters": "Averages and clusters",
    "search": "Search",
    "selection": "Selection",
    "scale": "Beyond one machine",
    "sklearn": "scikit-learn estimators",
    "viz": "Plots",
    "web": "The explorer and the service",
    "dynamics": "Dynamics of recurrent networks",
    "testing": "Contract checks",
}
# Base classes come first on their pages, with the methods that subclasses implement; subclasses do not repeat them.
BASES = (
    "Distance",
    "Alignment",
    "Elastic",
    "Loss",
    "Metric",
    "Dataset",
    "fit",
    "evaluate",
    "Index",
    "Searcher",
    "Store",
)
PLUMBING = (
    "config",
    "extra_repr",
    "paired",
    "all_pairs",
    "per_anchor",
    "forward",
    "vectors",
    "scores",
    "draw",
    "begin",
    "moves",
    "side",
    "sides",
    "scale",
    "settings",
)


def write(folder: Path) -> None:
    """Write index.md and a page for each subpackage."""
    folder.mkdir(exist_ok=True)
    shown: list[object] = []  # names of two subpackages are only on the first page
    for part, title in PAGES.items():
        module = importlib.import_module(f"likewise.{part}")
        summary = (inspect.getdoc(module) or "").split("\n\n")[0].replace("\n", " ")
        lines = [f"# {title}", "", f"`likewise.{part}`: {summary}", ""]
        for path, thing in public(part, module):
            if not any(thing is other for other in shown):
                shown.append(thing)
                lines += ["```{eval-rst}", *directive(path, thing), "```", ""]
        update(folder / f"{part}.md", "\n".join(lines))
    text = "Names at the top level are `lw.X` after `import likewise as lw`; the others live in their subpackage."
    update(
        folder / "index.md",
        "\n".join(["# Reference", "", text, "", "```{toctree}", ":maxdepth: 1", "", *PAGES, "```", ""]),
    )


def directive(path: str, thing: object) -> list[str]:
    """The directive for autodoc."""
    if not inspect.isclass(thing):
        return [f".. autofunction:: {path}"]
    hidden = () if path.split(".")[-1] in BASES else PLUMBING
    return [
        f".. autoclass:: {path}",
        "   :members:",
        *([f"   :exclude-members: {', '.join(hidden)}"] if hidden else []),
    ]


def public(part: str, module: ModuleType) -> list[tuple[str, object]]:
    """Classes and functions of a part with their shortest public names, base classes first."""
    names = getattr(module, "__all__", None)
    if names is None:
        names = [name for name, thing in vars(module).items() if getattr(thing, "__module__", "") == module.__name__]
    found = []
    for name in sorted(names, key=lambda name: (BASES.index(name) if name in BASES else len(BASES), name.lower())):
        thing = getattr(module, name)
        if callable(thing) and not name.startswith("_"):
            own = name in likewise.__all__ and getattr(likewise, name) is thing
            found.append((f"likewise.{name}" if own else f"likewise.{part}.{name}", thing))
    return found


def update(path: Path, text: str) -> None:
    """Write the file if it changed, so that Sphinx only rebuilds changed pages."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
