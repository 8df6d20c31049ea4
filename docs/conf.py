"""How the pages are built: `make docs`. Pages made from the code's own registries are written by ``registries.py``."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import registries  # noqa: E402

project = "Process-GRPO workbench"
author = "the workbench's authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
exclude_patterns = ["generated"]
html_theme = "furo"
html_title = project
html_static_path = ["_static"]
html_css_files = ["drawings.css"]
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_google_docstring = True
napoleon_numpy_docstring = False


def setup(app: object) -> None:
    registries.write(HERE)
