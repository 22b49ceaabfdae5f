"""Sphinx configuration: Markdown pages, a gallery that runs, and a reference from docstrings."""

import os
import sys
from pathlib import Path

import likewise

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
os.environ.setdefault("DNNL_MAX_CPU_ISA", "AVX512_CORE_BF16")  # as in conftest.py

import reference_pages
from plain_docstrings import to_rst

project = "likewise"
author = "The likewise authors"
copyright = author  # noqa: A001
release = likewise.__version__
extensions = [
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "myst_parser",
]
exclude_patterns = ["_build", "examples"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = "likewise"
html_static_path = ["_static"]
html_css_files = ["style.css"]
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp, .go"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 600,
    "abort_on_example_error": True,
    "capture_repr": (),  # print what should be shown
    "matplotlib_animations": False,
}

reference_pages.write(HERE / "reference")


def process_docstring(app, what, name, obj, options, lines) -> None:
    """Called by autodoc; changes the lines of a docstring."""
    lines[:] = to_rst("\n".join(lines))


def setup(app) -> None:
    """Connect the functions that Sphinx calls."""
    app.connect("autodoc-process-docstring", process_docstring)
