"""Executed notebooks, and pages of them: ``python -m workbench.display.rendering build/notebooks``.

A notebook runs in its own folder with this checkout's ``workbench``. Widgets' views, which only live beside a kernel,
are left out of the page; everything else stays as it was shown. A page fetches nothing from elsewhere.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = ROOT / "notebooks"
BUDGET = "WORKBENCH_NOTEBOOK_BUDGET"
"""Set to ``test``, notebooks that sample or train a lot do as little as shows that they work."""
COLAB = "colab"
"""Tag of the cells that are for Colab alone (``badges``): they are neither run nor shown here."""
_WIDGET = "application/vnd.jupyter.widget-view+json"
_FETCHING = ("html_head_js_requirejs", "html_head_js_mathjax", "html_head_js_mermaidjs")
"""Blocks of nbconvert's template that load scripts from the network; the notebooks have no formulas or diagrams."""


def executed(path: Path, workspace: Path, *, budget: str = "", seconds: int = 3600, kernel: Any = None) -> Any:
    """The notebook at ``path`` with its outputs; runs go to ``workspace``. Raises CellExecutionError.

    It has a kernel of its own, or a ``kernel`` of ``started``, in which no name is left of what ran there before.
    """
    import nbformat
    from nbclient import NotebookClient

    notebook = without_colab(nbformat.read(path, as_version=4))
    nbformat.validate(notebook)
    client = NotebookClient(notebook, km=kernel, timeout=seconds, resources={"metadata": {"path": str(path.parent)}})
    if kernel is None:
        client.execute(env=_environment(workspace, budget))
        return notebook
    anew = f"%reset -f\nimport os\nos.environ['WORKBENCH_WORKSPACE'] = {str(workspace)!r}\ndel os"
    notebook.cells.insert(0, nbformat.v4.new_code_cell(anew))
    try:
        client.execute()
    finally:
        if client.kc is not None:
            client.kc.stop_channels()
    del notebook.cells[0]
    return notebook


def without_colab(notebook: Any) -> Any:
    """A copy without the cells that are for Colab alone."""
    made = copy.deepcopy(notebook)
    made.cells = [cell for cell in made.cells if COLAB not in cell.metadata.get("tags", [])]
    return made


@contextmanager
def started(workspace: Path, *, budget: str = "") -> Iterator[Any]:
    """A kernel for several notebooks, one after the other, which need not each import all that they use."""
    from jupyter_client.manager import KernelManager

    kernel = KernelManager()
    kernel.start_kernel(cwd=str(NOTEBOOKS), env=_environment(workspace, budget))
    try:
        yield kernel
    finally:
        kernel.shutdown_kernel(now=True)


def _environment(workspace: Path, budget: str) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "WORKBENCH_WORKSPACE": str(workspace), BUDGET: budget}


def page(notebook: Any) -> str:
    """The notebook as one HTML document."""
    from jinja2 import DictLoader
    from nbconvert import HTMLExporter

    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        outputs = [one for one in cell.get("outputs", []) if _WIDGET not in one.get("data", {})]
        if "outputs" in cell:
            cell["outputs"] = outputs
    emptied = "".join(f"{{% block {name} %}}{{% endblock %}}" for name in _FETCHING)
    template = DictLoader({"bare.html.j2": f"{{% extends 'lab/index.html.j2' %}}{emptied}"})
    exporter = HTMLExporter(extra_loaders=[template], template_file="bare.html.j2")
    html, _ = exporter.from_notebook_node(notebook)
    return str(html)


def render(folder: Path, paths: Iterable[Path]) -> list[Path]:
    """Execute each notebook and write its page into ``folder``."""
    folder = folder.resolve()  # a notebook runs in a folder of its own
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for path in paths:
        made = folder / f"{path.stem}.html"
        made.write_text(page(executed(path, folder / "workspace", budget=os.environ.get(BUDGET, ""))), encoding="utf-8")
        print(made, flush=True)
        written.append(made)
    return written


if __name__ == "__main__":
    wanted = [NOTEBOOKS / f"{name}.ipynb" for name in sys.argv[2:]]
    render(Path(sys.argv[1]), wanted or sorted(NOTEBOOKS.glob("*.ipynb")))
