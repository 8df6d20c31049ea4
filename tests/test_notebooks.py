"""Every notebook runs from top to bottom on a small budget, shows something in each cell, and is kept bare."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

from workbench.display import rendering
from workbench.display.badges import address_in, with_badge, write_badges
from workbench.display.rendering import NOTEBOOKS, ROOT, executed, page, started, without_colab
from workbench.errors import ConfigError

PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))
TRAINING = (
    "04_train_and_watch",
    "06_your_model_and_data",
    "07_process_against_outcome",
    "08_methods",
    "09_which_scheme",
    "10_turns",
)
START_WARM = """import workbench.runs.warm
workbench.load_policy("tiny")  # torch sets a variable, which what is warm has to have, too
workbench.runs.warm.FREE_BYTES = 0
workbench.runs.warm.warm_up(wait=True)"""
"""The runs of all notebooks are forked, where each would import torch and TRL."""
LINES = 18
"""Most lines of a code cell; short enough to be read at a glance."""


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
    """One for all notebooks; ``make notebooks`` gives each its own."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("OMP_NUM_THREADS", "1")
        with started(tmp_path_factory.mktemp("notebooks"), budget="test") as kernel:
            client = kernel.blocking_client()
            client.start_channels()
            client.execute_interactive(START_WARM)
            client.stop_channels()
            yield kernel


@pytest.mark.filterwarnings("default")  # Jupyter's own
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.stem, marks=[pytest.mark.training] * (path.stem in TRAINING)) for path in PATHS],
)
def test_a_notebook_runs_and_every_code_cell_shows_something(path, tmp_path, kernel):
    notebook = executed(path, tmp_path, seconds=900, kernel=kernel)
    for cell in code_cells(notebook):
        assert cell.outputs, f"shows nothing: {cell.source}"
    assert html_of(notebook)
    drawn = page(notebook)
    assert "<html" in drawn
    assert not re.search(r"""(?:src|href)\s*=\s*["'](?:https?:)?//|import\(["']https?:|from ["']https?:""", drawn)
    if path.stem == "04_train_and_watch":
        # What the watching cell shows was replaced, from the thread, by the run as it ended.
        assert any(">finished</span>" in html and 'class="wc ' in html for html in html_of(notebook))
        assert "finished at step 2 of 2" in texts(notebook)


def test_pages_go_where_they_are_asked_for_and_runs_beside_them(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(rendering, "executed", lambda path, workspace, budget: asked.append(workspace) or empty)
    empty = nbformat.v4.new_notebook()
    monkeypatch.chdir(tmp_path)
    assert rendering.render(Path("out"), [PATHS[0]]) == [tmp_path / "out" / "01_first_look.html"]
    assert asked == [tmp_path / "out" / "workspace"]  # a notebook runs in another folder


def test_the_notebooks_are_the_ten():
    assert [path.stem[:2] for path in PATHS] == [f"{n:02}" for n in range(1, 11)]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    assert all(not cell.outputs and cell.execution_count is None for cell in code_cells(notebook))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_cells_are_short_and_prose_stands_before_them(path):
    notebook = nbformat.read(path, as_version=4)
    assert notebook.cells[0].cell_type == "markdown"
    assert max(len(cell.source.splitlines()) for cell in code_cells(notebook)) <= LINES


def test_prose_types_no_measured_number():
    """Percentages and decimals in prose would be results that nothing computes."""
    for path in PATHS:
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "markdown":
                assert not re.search(r"\d\s?%|\d\.\d", re.sub(r"section [\d.]+", "", cell.source)), cell.source


def first_code(path: Path) -> str:
    return code_cells(without_colab(nbformat.read(path, as_version=4)))[0].source


def test_ones_own_answers_are_a_coloured_heatmap_in_under_ten_lines():
    lines = [line for line in first_code(PATHS[0]).splitlines() if line.strip()]
    assert len(lines) < 10
    body, last = "\n".join(lines[:-1]), lines[-1]
    names: dict[str, object] = {}
    exec(body, names)
    credit = eval(last, names)
    # Steps right 1 1, 0 1 and 1 0 (7 * 2 is not 15): mean 2/3, std sqrt(4/15) = 0.5164; right (1/3)/0.5165 = 0.6454,
    # wrong -1.2907. A token of a first step gets both steps' sum.
    assert [round(float(credit.of(i)[0]), 4) for i in range(3)] == [1.2907, -0.6454, -0.6454]
    assert [round(float(credit.of(i)[-1]), 4) for i in range(3)] == [0.6454, 0.6454, -1.2907]


ADDRESS = "https://github.com/owner/name"


def test_a_badge_opens_a_notebook_on_colab_and_installs_there():
    notebook = nbformat.read(PATHS[0], as_version=4)
    made = with_badge(notebook, PATHS[0].name, ADDRESS)
    nbformat.validate(made)
    badge, install = made.cells[:2]
    assert badge.source.endswith(
        "(https://colab.research.google.com/github/owner/name/blob/main/notebooks/01_first_look.ipynb)"
    )
    assert install.source.endswith(f"    %pip install --quiet git+{ADDRESS}")
    again = with_badge(made, PATHS[0].name, "https://github.com/other/name.git")
    assert "github/other/name/blob" in again.cells[0].source
    assert again.cells[2:] == made.cells[2:] == without_colab(notebook).cells


def test_badges_follow_the_one_address_there_is(tmp_path):
    address = address_in((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for path in PATHS:
        notebook = nbformat.read(path, as_version=4)
        wanted = without_colab(notebook) if address is None else with_badge(notebook, path.name, address)
        assert notebook == wanted, f"make badges was not run since the address changed: {path.name}"
    with pytest.raises(ConfigError, match=r"names no public address of the project; add \[project.urls\]"):
        write_badges(tmp_path, None)
    with pytest.raises(
        ConfigError, match=r"Colab opens notebooks of https://github\.com/OWNER/NAME, not of 'https://else"
    ):
        with_badge(nbformat.v4.new_notebook(), "it.ipynb", "https://elsewhere.example/name")
    nbformat.write(nbformat.read(PATHS[0], as_version=4), tmp_path / PATHS[0].name)
    bare = (tmp_path / PATHS[0].name).read_bytes()
    assert bare == PATHS[0].read_bytes()  # what writing changes is the badge alone
    assert write_badges(tmp_path, ADDRESS) == [tmp_path / PATHS[0].name]
    assert (tmp_path / PATHS[0].name).read_bytes() != bare
    assert address_in('[project]\nname = "it"\n[project.urls]\nRepository = "https://github.com/owner/name"') == ADDRESS
