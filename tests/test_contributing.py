"""CONTRIBUTING.md's walks, followed on a copy of the tree: what they write is put where they say, checked and used."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PLACE = re.compile(
    r"<!-- (?P<file>[\w/.]+)(?:, (?P<where>before|at the end of): (?P<line>.+?))? -->\n"
    r"```\w+\n(?P<code>.*?)^```",
    re.DOTALL | re.MULTILINE,
)
NOT_COPIED = (
    ".git",
    ".venv*",
    ".*_cache",
    ".hypothesis",
    "__pycache__",
    "build",
    "workspace",
    "generated",
    "*.egg-info",
)
SEEING = (
    *("test_structure.py", "test_alpaca_eval.py", "test_credit.py", "test_credit_unused.py", "test_figures.py"),
    *("test_config.py", "test_passed_on.py", "test_longest_step.py", "test_ui_help.py", "test_public_names.py"),
)
"""Tests of every scheme, method, metric and format, and of the tree; the others know them by name."""


@dataclass(frozen=True)
class Edit:
    """A block of code, and the only line that begins with ``line``, beside which it goes; or a file of its own."""

    file: str
    where: str | None
    line: str | None
    code: str

    def apply(self, tree: Path) -> None:
        path = tree / self.file
        if self.line is None:
            assert not path.exists()
            path.write_text(self.code, encoding="utf-8")
            return
        source = path.read_text(encoding="utf-8")
        found = list(re.finditer(f"^ *{re.escape(self.line)}.*\n", source, re.MULTILINE))
        assert len(found) == 1, f"{self.file} has {len(found)} lines that begin with {self.line!r}"
        place = found[0].start()
        if self.where == "at the end of":  # before the first line that closes a bracket and is indented as much
            indent = len(found[0][0]) - len(found[0][0].lstrip())
            place = next(re.compile(f"^ {{{indent}}}[])}}]", re.MULTILINE).finditer(source, found[0].end())).start()
        apart = "\n\n" if self.code.startswith("def ") else ""
        path.write_text(source[:place] + self.code + apart + source[place:], encoding="utf-8")


def walks() -> dict[str, list[Edit]]:
    """The edits of each section that has any, by its title."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    found = {}
    for section in text.split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        found[title] = [Edit(m["file"], m["where"], m["line"], m["code"]) for m in PLACE.finditer(body)]
    return {title: edits for title, edits in found.items() if edits}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree in which all walks were followed."""
    copy = tmp_path_factory.mktemp("copy") / "tree"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*NOT_COPIED))
    for edits in walks().values():
        for edit in edits:
            edit.apply(copy)
    return copy


def in_tree(tree: Path, *command: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(tree), "WORKBENCH_WORKSPACE": str(tree / "workspace")}
    done = subprocess.run(
        [sys.executable, *command], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


@pytest.mark.parametrize(
    "command",
    [
        ("-m", "ruff", "check", "."),
        ("-m", "ruff", "format", "--check", "."),
        ("-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"),
        ("-m", "mypy"),
    ],
    ids=["ruff check", "ruff format", "lint-imports", "mypy"],
)
def test_the_linters_pass_what_the_walks_write(tree: Path, command: tuple[str, ...]) -> None:
    in_tree(tree, *command)


def test_the_tests_of_every_scheme_method_format_and_curve_pass(tree: Path) -> None:
    tests = [f"tests/{name}" for name in SEEING]
    in_tree(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not training and not browser", *tests)


def test_a_new_field_of_the_step_pattern_is_everywhere(tree: Path) -> None:
    in_tree(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_config_fields.py", "-k", "pattern")


def test_a_new_scheme_is_everywhere_by_its_entry(tree: Path) -> None:
    shown = json.loads(
        in_tree(tree, "-m", "workbench", "score", "--group", str(tree / "assets" / "first-group.json"),
                "--method.credit.scheme", "only_errors", "--method.credit.options", "threshold=0.5", "--json")
    )  # fmt: skip
    assert shown["scheme"] == "only_errors"


def test_a_new_curve_is_computed_explained_and_drawn(tree: Path) -> None:
    code = """
import json
from pathlib import Path
import workbench as wb
from workbench.checks.metrics import group_metrics
from workbench.views.panels import PANELS

group = wb.Group.from_json(json.loads(Path("assets/first-group.json").read_text()))
scored = wb.score_group(group, wb.load_task("chain-arithmetic").pattern, rewards=["step_correctness"])
longest = max(last - first + 1 for row in scored.scored for first, last in row.spans)
assert group_metrics([wb.credit_group(scored)])["longest_step"] == longest > 1
assert [panel.title for panel in PANELS for line in panel.metrics if line.name == "longest_step"] == ["Longest step"]
"""
    in_tree(tree, "-c", code)


@pytest.mark.training
def test_a_new_method_trains_in_a_run_of_its_own(tree: Path) -> None:
    in_tree(
        tree, "-m", "workbench", "train", "--method", "rloo", "--name", "method", "--run.steps", "2",
        "--method.prompts_per_step", "2", "--method.sampling.num_generations", "2", "--run.save_steps", "1",
    )  # fmt: skip
    run = tree / "workspace" / "runs" / "method"
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["step"] for row in rows if "loss" in row] == [1, 2]
    assert json.loads((run / "status.json").read_text(encoding="utf-8"))["state"] == "finished"
