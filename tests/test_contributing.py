"""CONTRIBUTING.md's walks, followed on a copy of the tree: what they write is put where they say, checked and used."""

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
NOT_COPIED = (".git", ".venv*", ".hypothesis", ".pytest_cache", "__pycache__", "build", "workspace", "generated")
SEEING = {
    "tests/test_structure.py": "",
    "tests/test_alpaca_eval.py": "",
    "tests/test_longest_step.py": "",
    "tests/test_ui_help.py": "",
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


def test_what_sees_every_scheme_method_format_curve_and_field_passes(tree: Path) -> None:
    chosen = " or ".join(
        f"{Path(file).stem} and ({part})" if part else Path(file).stem for file, part in SEEING.items()
    )
    in_tree(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", "-k", chosen, *SEEING)


ENTRIES = """
import json
from pathlib import Path
import workbench as wb
from workbench.checks.metrics import group_metrics
from workbench.cli import main
from workbench.views.panels import PANELS

assert main([*"score --group assets/first-group.json --method.credit.scheme only_errors".split(), "--json"]) == 0
group = wb.Group.from_json(json.loads(Path("assets/first-group.json").read_text()))
scored = wb.score_group(group, wb.load_task("chain-arithmetic").pattern, rewards=["step_correctness"])
longest = max(last - first + 1 for row in scored.scored for first, last in row.spans)
assert group_metrics([wb.credit_group(scored)])["longest_step"] == longest > 1
assert [panel.title for panel in PANELS for line in panel.metrics if line.name == "longest_step"] == ["Longest step"]
"""


def test_a_new_scheme_and_a_new_curve_are_everywhere_by_their_entries(tree: Path) -> None:
    assert json.loads(in_tree(tree, "-c", ENTRIES))["scheme"] == "only_errors"


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
