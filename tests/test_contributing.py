"""CONTRIBUTING.md's walks, followed on a copy of the tree: what they write is put where they say, checked and used."""

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
NOT_COPIED = (".git", ".venv*", ".hypothesis", ".pytest_cache", "__pycache__", "build", "workspace", "generated")
SEEING = {
    "tests/test_structure.py": "",
    "tests/test_alpaca_eval.py": "",
    "tests/test_longest_step.py": "",
    "tests/test_group_lengths.py": "",
    "tests/test_ui_handlers.py": "pinned or guide",
    "tests/test_config.py": "explains_itself",
    "tests/test_config_fields.py": "pattern",
    "tests/test_credit.py": "only_errors or two_implementations or signature or say_so",
    "tests/test_credit_unused.py": "every_scheme",
    "tests/test_figures.py": "rloo or panel",
}
"""Tests of every scheme, method, metric, format and field of the pattern, and of the tree, with what is chosen of them;
the others know the entries by name, or hold what an entry of another name does as well."""


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


def in_tree(tree: Path, *command: str, program: str = sys.executable) -> str:
    environment = os.environ | {"PYTHONPATH": str(tree), "WORKBENCH_WORKSPACE": str(tree / "workspace")}
    done = subprocess.run([program, *command], cwd=tree, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


def test_the_linters_pass_what_the_walks_write(tree: Path) -> None:
    """Those of types begin with what `make types` knows of this tree."""
    in_tree(tree, "-m", "ruff", "check", ".")
    in_tree(tree, "-m", "ruff", "format", "--check", ".")
    in_tree(tree, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()")
    in_tree(tree, "-m", "mypy")
    deno = str(Path(sys.executable).with_name("deno"))
    in_tree(tree, "fmt", "--check", program=deno)
    in_tree(tree, "lint", program=deno)


WALK = """
import json

import pytest

import workbench as wb
from tests.configs import config_of
from tests.in_this_process import trained
from workbench.assets import FIRST_GROUP
from workbench.checks.metrics import group_metrics
from workbench.views.panels import PANELS


def test_a_new_scheme_and_a_new_curve_are_everywhere_by_their_entries():
    assert config_of("--method.credit.scheme", "only_errors").grpo.credit.scheme == "only_errors"
    group = wb.Group.from_json(json.loads(FIRST_GROUP.read_text()))
    scored = wb.score_group(group, wb.load_task("chain-arithmetic").pattern, rewards=["step_correctness"])
    assert wb.credit_group(scored, "only_errors").spread
    longest = max(last - first + 1 for row in scored.scored for first, last in row.spans)
    assert group_metrics([wb.credit_group(scored)])["longest_step"] == longest > 1
    titles = [panel.title for panel in PANELS for line in panel.metrics if line.name == "longest_step"]
    assert titles == ["Longest step"]


@pytest.mark.training
def test_a_new_method_trains_in_a_run(tmp_path):
    run = trained(
        config_of(
            *("--method", "rloo", "--name", "method", "--run.steps", "2", "--run.device", "cpu"),
            *("--method.prompts_per_step", "2", "--method.sampling.num_generations", "2", "--run.save_steps", "1"),
        ),
        tmp_path,
    )
    assert [row["step"] for row in run.metrics_rows()[0] if "loss" in row] == [1, 2]
    assert run.status().state == "finished"
"""


def test_what_sees_every_entry_passes_and_what_the_walks_wrote_is_used_and_trains(tree: Path) -> None:
    """In one process, so that libraries are imported once."""
    (tree / "tests" / "test_walk.py").write_text(WALK, encoding="utf-8")
    names = [f"{Path(file).stem} and ({part})" if part else Path(file).stem for file, part in SEEING.items()]
    chosen = " or ".join([*names, "test_walk"])
    in_tree(
        tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", "-k", chosen, *SEEING, "tests/test_walk.py"
    )
