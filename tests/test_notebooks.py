"""Every notebook runs from top to bottom on a small budget, shows something in each cell, and is kept bare."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import pytest
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from workbench.views import register

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


@dataclass(frozen=True)
class Shown:
    """What a cell prints, and the data that it displays, by media type."""

    printed: str
    data: list[dict[str, Any]]


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    """IPython in this process, which has the libraries; runs train in it as well."""
    monkeypatch.chdir(ROOT / "notebooks")
    monkeypatch.setenv("WORKBENCH_WORKSPACE", str(tmp_path))
    monkeypatch.setenv("WORKBENCH_NOTEBOOK_BUDGET", "test")
    # As in a kernel, whichever test imported Plotly.
    monkeypatch.setattr("plotly.io.renderers.default", "plotly_mimetype")
    monkeypatch.setattr("plotly.io.renderers.render_on_display", True)
    shell = InteractiveShell.instance()
    register(shell)
    shell.display_pub = CapturingDisplayPublisher()  # also of what a thread shows after its cell
    yield shell
    InteractiveShell.clear_instance()


def executed(path: Path, shell: InteractiveShell) -> list[Shown]:
    """Run the notebook; what its code cells show."""
    found = []
    for cell in code_cells(nbformat.read(path, as_version=4)):
        before = len(shell.display_pub.outputs)
        with capture_output(display=False) as said:
            result = shell.run_cell(cell.source)
        result.raise_error()
        data = [output["data"] for output in shell.display_pub.outputs[before:]]
        if result.result is not None:
            data.append(shell.display_formatter.format(result.result)[0])
        found.append(Shown(said.stdout, data))
    return found


@pytest.mark.filterwarnings("default")  # as in a notebook
@pytest.mark.usefixtures("runs_here")
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.stem, marks=[pytest.mark.training] * (path.stem in TRAINING)) for path in PATHS],
)
def test_a_notebook_runs_and_every_code_cell_shows_something(path: Path, shell: InteractiveShell) -> None:
    cells = executed(path, shell)
    assert [number for number, cell in enumerate(cells) if not (cell.printed or cell.data)] == []
    data = [data for cell in cells for data in cell.data]
    assert any("text/html" in one for one in data)
    if path.stem == FIRST:
        the_loss_by_hand_is_trls_and_tokens_with_room_move_as_all_with_their_beginning_push(
            {name: eval(name, shell.user_ns) for name in LOOKED_AT}
        )
    if path.stem == "04_train_and_watch":
        assert any(">finished</span>" in one.get("text/html", "") for one in data)
        assert any("application/vnd.plotly.v1+json" in one for one in data)
        assert any("finished at step 2 of 2" in cell.printed for cell in cells)


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


def test_ones_own_answers_are_a_coloured_heatmap_in_under_ten_lines():
    first = code_cells(nbformat.read(ROOT / "notebooks" / "01_first_look.ipynb", as_version=4))[0]
    lines = [line for line in first.source.splitlines() if line.strip()]
    assert len(lines) < 10
    body, last = "\n".join(lines[:-1]), lines[-1]
    names: dict[str, object] = {}
    exec(body, names)
    credit = eval(last, names)
    # Steps right 1 1, 0 1 and 1 0 (7 * 2 is not 15): mean 2/3, std sqrt(4/15) = 0.5164; right (1/3)/0.5165 = 0.6454,
    # wrong -1.2907. A token of a first step gets both steps' sum.
    assert [round(float(credit.of(i)[0]), 4) for i in range(3)] == [1.2907, -0.6454, -0.6454]
    assert [round(float(credit.of(i)[-1]), 4) for i in range(3)] == [0.6454, 0.6454, -1.2907]
