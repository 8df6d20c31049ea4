"""CONTRIBUTING.md's walks, followed on a copy of the tree: what they write is put where they say, checked and used."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[1]
PLACE = re.compile(
    r"<!-- (?P<file>[\w/.]+)(?:, (?P<where>before|at the end of): (?P<line>.+?))? -->\n"
    r"```\w+\n(?P<code>.*?)^```",
    re.DOTALL | re.MULTILINE,
)


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
    """A copy of the package and its tests in which all walks were followed."""
    copy = tmp_path_factory.mktemp("copy")
    for folder in ("workbench", "tests"):
        shutil.copytree(ROOT / folder, copy / folder)  # with what is compiled already
    for name in ("assets", "pyproject.toml", "deno.json"):
        (copy / name).symlink_to(ROOT / name)
    for edits in walks().values():
        for edit in edits:
            edit.apply(copy)
    return copy


@pytest.mark.parametrize("command", ["ruff check", "ruff format --check", "deno fmt --check", "deno lint"])
def test_the_linters_pass_what_the_walks_write(tree: Path, command: str) -> None:
    program, *arguments = command.split()
    kinds = (".js",) if program == "deno" else (".py",)
    files = sorted({edit.file for edits in walks().values() for edit in edits if edit.file.endswith(kinds)})
    path = Path(sys.executable).with_name(program)
    done = subprocess.run([path, *arguments, *files], cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def imported(tree: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Import this package and its tests from the copy; the libraries are those of this process."""

    def ours() -> dict[str, ModuleType]:
        return {name: module for name, module in sys.modules.items() if name.split(".")[0] in ("workbench", "tests")}

    before = ours()
    for name in before:
        del sys.modules[name]
    monkeypatch.syspath_prepend(str(tree))
    yield
    for name in ours():
        del sys.modules[name]
    sys.modules.update(before)


@pytest.mark.training
@pytest.mark.usefixtures("imported")
def test_what_the_walks_write_is_everywhere_by_its_entries_and_a_new_method_trains(tree: Path, tmp_path: Path) -> None:
    import workbench as wb
    from tests import test_credit
    from tests.configs import config_of
    from tests.in_this_process import trained
    from workbench.assets import FIRST_GROUP
    from workbench.views.panels import PANELS

    assert Path(wb.__file__).parents[1] == tree
    for name in ("test_alpaca_eval", "test_longest_step", "test_group_lengths"):
        tests = vars(import_module(f"tests.{name}"))
        [test] = [test for name, test in tests.items() if name.startswith("test_")]
        test(*[tmp_path][: len(signature(test).parameters)])

    assert config_of("--method.credit.scheme", "only_errors").grpo.credit.scheme == "only_errors"
    group = wb.Group.from_json(json.loads(FIRST_GROUP.read_text()))
    scored = wb.score_group(group, wb.load_task("chain-arithmetic").pattern, rewards=["step_correctness"])
    assert wb.credit_group(scored, "only_errors").spread
    drawn = (test_credit.groups(), st.just("only_errors"), st.sampled_from(list(test_credit.NORMALISATIONS)))
    compared = test_credit.test_two_implementations_agree.hypothesis.inner_test
    settings(max_examples=20)(given(*drawn, st.booleans(), st.data())(compared))()

    titles = [panel.title for panel in PANELS for line in panel.metrics if line.name == "longest_step"]
    assert titles == ["Longest step"]
    assert wb.StepPattern("x", whole_lines=True).whole_lines  # type: ignore[call-arg]

    run = trained(
        config_of(
            *("--method", "rloo", "--name", "method", "--run.steps", "2", "--run.device", "cpu"),
            *("--method.prompts_per_step", "2", "--method.sampling.num_generations", "2", "--run.save_steps", "1"),
        ),
        tmp_path,
    )
    assert [row["step"] for row in run.metrics_rows()[0] if "loss" in row] == [1, 2]
    assert run.status().state == "finished"
