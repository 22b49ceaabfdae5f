"""Convert likewise's docstrings, which are plain text, to reStructuredText, so that formulas keep stars and bars."""

import inspect
import re

_NAME = r"[A-Za-z_][\w.]*(?: \([^)]*\))?"  # "x" or "values (B, T, C)"
_NAMED = re.compile(rf"({_NAME}(?:, {_NAME})*): ")
_NEXT = re.compile(r"(?<=\. )(?=[a-z_]\w*(?:, [a-z_]\w*)*: )")  # another argument on the same line
_HEADS = ("Reference", "References", "Note", "Raises", "Returns")


def to_rst(text: str) -> list[str]:
    """Lines of reStructuredText: arguments with bold names, examples as doctests, indented paragraphs as they are."""
    out: list[str] = []
    in_example = False
    for block in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        lines = block.split("\n")
        indented = all(line.startswith(" ") for line in lines)
        if lines[0] in ("Example:", "Examples:"):
            in_example = True
            out += [".. rubric:: Example", "", *_dedent(lines[1:]), ""]
        elif indented and in_example:
            out += [*_dedent(lines), ""]
        elif indented:
            out += ["::", "", *lines, ""]
        else:
            in_example = False
            out += _paragraph(lines)
    return out


def _paragraph(lines: list[str]) -> list[str]:
    """A paragraph of text, and its arguments: a line that starts with ``name: `` and the indented ones below it.

    A line may name several arguments, one after another: "labels: (N,). names: of the classes."
    """
    entries: list[str] = []
    for line in lines:
        if line.startswith(" ") and entries:
            entries[-1] += " " + line.strip()
        else:
            entries.append(line)
    out: list[str] = []
    for entry in (part.strip() for whole in entries for part in _NEXT.split(whole)):
        named = _NAMED.match(entry)
        if named and named[1] in _HEADS:
            out += ["", f"*{named[1]}:* {escape(entry[named.end() :])}"]
        elif named and named[1][0].islower():
            out += ["", f"**{escape(named[1])}**: {escape(entry[named.end() :])}"]
        elif entry.startswith(("- ", "* ")):
            out += ["", f"- {escape(entry[2:])}"]
        else:
            out.append(escape(entry))
    return [*out, ""]


def _dedent(lines: list[str]) -> list[str]:
    return inspect.cleandoc("\n".join(["", *lines])).split("\n")


def escape(text: str) -> str:
    """Marks of reStructuredText as plain text, outside of ``code``."""
    parts = re.split(r"(``.*?``)", text)
    return "".join(part if part.startswith("``") else re.sub(r"([\\*|`_])", r"\\\1", part) for part in parts)
