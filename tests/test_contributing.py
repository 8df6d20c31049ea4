"""CONTRIBUTING.md's walks, followed on a copy of the tree: what they write is put where they say, and used."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PLACE = re.compile(
    r"<!-- (?P<file>[\w/.]+)(?:, before: (?P<before>.+?))? -->\n```\w+\n(?P<code>.*?)^```", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True)
class Edit:
    """A block of code and where it goes: before the only line that begins with ``before``, or a file of its own."""

    file: str
    before: str | None
    code: str

    def apply(self, tree: Path) -> None:
        path = tree / self.file
        if self.before is None:
            assert not path.exists()
            path.write_text(self.code, encoding="utf-8")
            return
        source = path.read_text(encoding="utf-8")
        lines = [match.start() for match in re.finditer(f"^ *{re.escape(self.before)}", source, re.MULTILINE)]
        assert len(lines) == 1, f"{self.file} has {len(lines)} lines that begin with {self.before!r}"
        path.write_text(source[: lines[0]] + self.code + source[lines[0] :], encoding="utf-8")


def walk(title: str) -> list[Edit]:
    """The edits of the section of that title."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]
    edits = [Edit(match["file"], match["before"], match["code"]) for match in PLACE.finditer(section)]
    assert edits
    return edits


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree in which all three walks were followed."""
    copy = tmp_path_factory.mktemp("copy")
    for folder in ("workbench", "assets"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "tests").mkdir()
    for title in ("A new credit scheme", "A new training method", "A new curve"):
        for edit in walk(title):
            edit.apply(copy)
    return copy


def in_tree(tree: Path, *command: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(tree), "WORKBENCH_WORKSPACE": str(tree / "workspace")}
    done = subprocess.run(
        [sys.executable, *command], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def metrics(tree: Path, run: str) -> list[dict[str, Any]]:
    lines = (tree / "workspace" / "runs" / run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_a_new_scheme_is_everywhere_by_its_one_line(tree: Path) -> None:
    in_tree(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_only_errors.py")
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
from workbench.views.metrics import PANELS, find_metric
from workbench.training.metrics import group_metrics

group = wb.Group.from_json(json.loads(Path("assets/first-group.json").read_text()))
scored = wb.score_group(group, wb.load_task("chain-arithmetic").pattern, rewards=["step_correctness"])
longest = max(last - first + 1 for row in scored.scored for first, last in row.spans)
assert group_metrics([wb.credit_group(scored)])["longest_step"] == longest > 1
assert find_metric("longest_step").meaning
assert any(metric.name == "longest_step" for panel in PANELS for metric in panel.metrics)
"""
    in_tree(tree, "-c", code)


@pytest.mark.training
def test_a_new_method_trains_in_a_run_of_its_own(tree: Path) -> None:
    in_tree(
        tree, "-m", "workbench", "train", "--method", "rloo", "--name", "method", "--run.steps", "2",
        "--method.prompts_per_step", "2", "--method.sampling.num_generations", "2", "--run.save_every", "1",
    )  # fmt: skip
    assert [row["step"] for row in metrics(tree, "method") if "loss" in row] == [1, 2]
    status = json.loads((tree / "workspace" / "runs" / "method" / "status.json").read_text(encoding="utf-8"))
    assert status["state"] == "finished"
