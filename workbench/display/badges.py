"""Colab badges of the notebooks: ``python -m workbench.display.badges`` (``make badges``).

The project's public address stands in one place, ``Repository`` under ``project.urls`` in pyproject.toml. From it each
notebook gets two cells before its first: a badge that opens it on Colab, and the installation there. Run again, they
follow the address; without one nothing is written.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from workbench.display.rendering import COLAB, NOTEBOOKS, ROOT, without_colab
from workbench.errors import ConfigError

BADGE = "https://colab.research.google.com/assets/colab-badge.svg"
_OPENS = "https://colab.research.google.com/github/{repository}/blob/main/notebooks/{name}"
_INSTALL = """import sys

if "google.colab" in sys.modules:  # elsewhere it is installed
    %pip install --quiet git+{address}"""
_GITHUB = re.compile(r"https://github\.com/([\w.-]+/[\w.-]+?)(?:\.git)?/?", re.ASCII)


def address_in(pyproject: str) -> str | None:
    """The repository's address that a pyproject.toml names, else None."""
    urls: dict[str, str] = tomllib.loads(pyproject)["project"].get("urls", {})
    return urls.get("Repository")


def with_badge(notebook: Any, name: str, address: str) -> Any:
    """A copy of the notebook with the file ``name`` that opens and installs itself on Colab from ``address``.

    Raises ConfigError for an address that Colab cannot open.
    """
    from nbformat.v4 import new_code_cell, new_markdown_cell

    repository = _GITHUB.fullmatch(address)
    if repository is None:
        raise ConfigError(
            f"project.urls.Repository: Colab opens notebooks of https://github.com/OWNER/NAME, not of {address!r}; "
            "name the repository there"
        )
    opens = _OPENS.format(repository=repository[1], name=name)
    tagged = {"tags": [COLAB]}
    made = without_colab(notebook)
    made.cells = [
        new_markdown_cell(f"[![Open in Colab]({BADGE})]({opens})", id="colab-badge", metadata=tagged),
        new_code_cell(_INSTALL.format(address=address), id="colab-install", metadata=tagged),
        *made.cells,
    ]
    return made


def write_badges(folder: Path, address: str | None) -> list[Path]:
    """Give every notebook of a folder its badge. Raises ConfigError where there is no address."""
    import nbformat

    if address is None:
        raise ConfigError(
            "no badges: pyproject.toml names no public address of the project; add [project.urls] with "
            'Repository = "https://github.com/OWNER/NAME"'
        )
    paths = sorted(folder.glob("*.ipynb"))
    for path in paths:
        notebook = with_badge(nbformat.read(path, as_version=4), path.name, address)
        nbformat.write(notebook, path)
    return paths


if __name__ == "__main__":
    try:
        for written in write_badges(NOTEBOOKS, address_in((ROOT / "pyproject.toml").read_text(encoding="utf-8"))):
            print(written)
    except ConfigError as error:
        sys.exit(str(error))
