"""Every notebook runs from top to bottom on a small budget, shows something in each cell, and is kept bare."""

import os
import subprocess
import sys
from ast import literal_eval
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
PATHS = sorted((ROOT / "notebooks").glob("*.ipynb"))
TRAINING = (
    "00_from_regex_to_loss",
    "04_train_and_watch",
    "06_your_model_and_data",
    "07_process_against_outcome",
    "08_methods",
    "09_which_scheme",
    "10_turns",
)


FIRST = "00_from_regex_to_loss"
LOOKED_AT = (
    *("float(mean)", "float(advantages.max())", "float(advantages.sum())", "float(mask.sum())"),
    "bool((credits[0].advantages == credit.advantages).all())",
    *("list(map(float, by_hand))", "list(map(float, of_trl))", "float(ratio.min())"),
    *("list(map(float, moves['moved with their colour']))", "float(moves['correlation'].iloc[2])"),
)
"""Values of the first notebook, as expressions."""


def test_a_notebook_imports_the_package_where_it_is_not_installed() -> None:
    """As a kernel does, whose folder is that of its notebook; ``-S`` leaves out all that is installed."""
    subprocess.run([sys.executable, "-S", "-c", "import workbench as wb"], cwd=ROOT / "notebooks", env={}, check=True)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def texts(notebook) -> str:
    """Everything that the cells printed or showed as plain text."""
    parts = []
    for cell in code_cells(notebook):
        for output in cell.outputs:
            parts.append(output.get("text", "") or output.get("data", {}).get("text/plain", ""))
    return "\n".join(parts)


def html_of(notebook) -> list[str]:
    return [o["data"]["text/html"] for c in code_cells(notebook) for o in c.outputs if "text/html" in o.get("data", {})]


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    """One kernel for all notebooks, so that libraries are imported once; ``make notebooks`` gives each its own."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "WORKBENCH_NOTEBOOK_BUDGET": "test", "OMP_NUM_THREADS": "1"}
    kernel = KernelManager()
    kernel.start_kernel(cwd=str(ROOT / "notebooks"), env=environment)
    yield kernel
    kernel.shutdown_kernel(now=True)


def executed(path, workspace, kernel):
    """The notebook with its outputs; runs go to ``workspace``, and no name is left of the notebook before.

    Runs train in the kernel, which has the libraries; one that is watched does so beside it.
    """
    notebook = nbformat.read(path, as_version=4)
    anew = "%reset -f\nimport os\nfrom tests import in_this_process\nfrom workbench.runs import launch, processes\n"
    anew += f"os.environ['WORKBENCH_WORKSPACE'] = {str(workspace)!r}\nlaunch.spawn = "
    anew += "processes.spawn" if path.stem == "04_train_and_watch" else "in_this_process.started_here"
    anew += "\ndel os, in_this_process, launch, processes"
    notebook.cells.insert(0, nbformat.v4.new_code_cell(anew))
    if path.stem == FIRST:
        notebook.cells.append(nbformat.v4.new_code_cell(f"print(repr({{name: eval(name) for name in {LOOKED_AT}}}))"))
    client = NotebookClient(notebook, km=kernel, timeout=900)
    try:
        client.execute()
    finally:
        if client.kc is not None:
            client.kc.stop_channels()
    del notebook.cells[0]
    return notebook


@pytest.mark.filterwarnings("default")  # Jupyter's own
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.stem, marks=[pytest.mark.training] * (path.stem in TRAINING)) for path in PATHS],
)
def test_a_notebook_runs_and_every_code_cell_shows_something(path, tmp_path, kernel):
    notebook = executed(path, tmp_path, kernel)
    for cell in code_cells(notebook):
        assert cell.outputs, f"shows nothing: {cell.source}"
    assert html_of(notebook)
    if path.stem == FIRST:
        the_loss_by_hand_is_trls_and_tokens_with_room_move_as_all_with_their_beginning_push(
            literal_eval(code_cells(notebook)[-1].outputs[0]["text"])
        )
    if path.stem == "04_train_and_watch":
        # What the watching cell shows was replaced, from the thread, by the run as it ended.
        assert any(">finished</span>" in html for html in html_of(notebook))
        shown = [output.get("data", {}) for cell in code_cells(notebook) for output in cell.outputs]
        assert any("application/vnd.plotly.v1+json" in data for data in shown)
        assert "finished at step 2 of 2" in texts(notebook)


def the_loss_by_hand_is_trls_and_tokens_with_room_move_as_all_with_their_beginning_push(seen: dict[str, Any]) -> None:
    # 22 of 32 sums are right; the first tokens of an answer whose four are right get all four.
    mean, largest, summed, tokens, is_credited, by_hand, of_trl, least, moved, correlation = seen.values()
    assert mean == 0.6875
    assert largest == pytest.approx(4 * (1 - 0.6875) / ((22 * 10 / 32 / 31) ** 0.5 + 1e-4))
    assert is_credited
    assert by_hand == pytest.approx(of_trl, abs=5e-7)
    assert of_trl[0] == pytest.approx(-summed / tokens)
    assert least < 0.8  # so that the second pass is another loss than the first
    own, with_room, shared = moved
    assert own < with_room < shared
    assert shared > 0.8
    assert correlation > 0.5


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    assert all(not cell.outputs and cell.execution_count is None for cell in code_cells(notebook))


def first_code(path: Path) -> str:
    return code_cells(nbformat.read(path, as_version=4))[0].source


def test_ones_own_answers_are_a_coloured_heatmap_in_under_ten_lines():
    lines = [line for line in first_code(ROOT / "notebooks" / "01_first_look.ipynb").splitlines() if line.strip()]
    assert len(lines) < 10
    body, last = "\n".join(lines[:-1]), lines[-1]
    names: dict[str, object] = {}
    exec(body, names)
    credit = eval(last, names)
    # Steps right 1 1, 0 1 and 1 0 (7 * 2 is not 15): mean 2/3, std sqrt(4/15) = 0.5164; right (1/3)/0.5165 = 0.6454,
    # wrong -1.2907. A token of a first step gets both steps' sum.
    assert [round(float(credit.of(i)[0]), 4) for i in range(3)] == [1.2907, -0.6454, -0.6454]
    assert [round(float(credit.of(i)[-1]), 4) for i in range(3)] == [0.6454, 0.6454, -1.2907]
