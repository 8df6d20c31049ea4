"""The documentation builds without a warning, asks the network for nothing, and says what the code says."""

import inspect
import io
import re
import shlex
import sys
import warnings
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import trl
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace, patch_docutils
from trl import GRPOTrainer

import workbench as wb
from benchmarks import schemes
from workbench.checks import ALL_EDITS
from workbench.checks.metrics import METRICS
from workbench.cli import COMMANDS
from workbench.cli.arguments import read_arguments
from workbench.config.section import leaves
from workbench.credit import SCHEMES
from workbench.rewards import BUILTINS
from workbench.training.config import ProcessGRPOConfig
from workbench.training.methods import METHODS, RunConfig
from workbench.training.ppo import ProcessPPOConfig
from workbench.training.trainer import ProcessGRPOTrainer

ROOT = Path(__file__).parents[1]
COMMAND = re.compile(r"^ *(?:OMP_NUM_THREADS=1 )?python -m workbench ([a-z].*)$", re.MULTILINE)
_FETCHED = re.compile(r"""(?:<link[^>]+href|<script[^>]+src|<img[^>]+src|<iframe[^>]+src)="(https?:)?//""")


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """In this process, which has the libraries; shares of turned labels are those of one draw of twenty."""
    folder, docs, said = tmp_path_factory.mktemp("docs"), ROOT / "docs", io.StringIO()
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(), patch_docutils(docs), docutils_namespace():
        warnings.simplefilter("ignore")
        patch.setattr(schemes, "TURNS", 1)
        patch.setattr(sys, "path", [*sys.path])
        app = Sphinx(docs, docs, folder / "html", folder / "trees", "html", status=None, warning=said)
        app.build()
    assert (app.statuscode, said.getvalue()) == (0, "")
    return folder / "html"


def shown(page: Path) -> str:
    return unescape(re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8")))


def test_every_page_is_there_and_nothing_is_fetched(built):
    pages = {path.stem for path in built.glob("*.html")}
    assert {path.stem for path in (ROOT / "docs").glob("*.md")} <= pages
    for path in built.glob("*.html"):
        assert not _FETCHED.search(path.read_text(encoding="utf-8")), path


def test_generated_pages_hold_every_entry_of_their_registry(built):
    for page, names in {
        "credit": SCHEMES,
        "schemes": SCHEMES,
        "rewards": BUILTINS,
        "concepts": ALL_EDITS,
        "glossary": [metric.name for metric in METRICS],
    }.items():
        text = shown(built / f"{page}.html").replace("’", "'")
        assert [name for name in names if name not in text] == []


def test_every_public_name_and_every_methods_settings_are_in_the_reference(built):
    text = shown(built / "api.html")
    assert [name for name in wb.__all__ if name not in text] == []
    sections = [method.section.__name__ for method in METHODS.values()]
    assert [name for name in ("RunConfig", "LoraConfig", *sections) if f"\n{name}¶" not in text] == []


ARTICLES = (ROOT / "docs" / "articles.md").read_text(encoding="utf-8")


def test_names_of_today_are_there_and_former_ones_are_not():
    tables = re.findall(r"\n\| (?:in the article|`PPOConfig`) .*?\n\n", ARTICLES, re.DOTALL)
    methods = [METHODS["grpo"].section, METHODS["ppo"].section]
    of_a_run = {f"method.{leaf.name}" for section in methods for leaf in leaves(section)} | {"method.rewards"}
    of_a_run |= {leaf.name for leaf in leaves(RunConfig)}
    trainer = inspect.signature(ProcessGRPOTrainer).parameters.keys() | inspect.signature(GRPOTrainer).parameters.keys()
    for table, config in zip(tables, (ProcessGRPOConfig, ProcessPPOConfig), strict=True):
        rows = [re.findall(r"`([\w.]+)`", cell) for line in table.splitlines()[3:] for cell in line.split("|")[1:4]]
        known = inspect.signature(config).parameters.keys() | trainer | {"Dataset.from_list", "train"}
        for former, today, path in zip(rows[::3], rows[1::3], rows[2::3], strict=True):
            assert known >= set(today), today
            assert of_a_run >= set(path), path
            assert config is ProcessPPOConfig or not (set(former) - set(today)) & known, former
    assert not hasattr(trl, "PPOConfig")


@pytest.mark.training
def test_the_script_of_an_article_trains(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", ARTICLES, re.DOTALL):
        exec(code, names)
    first = names["scored"].scored[0]
    assert first.rewards[0] == pytest.approx(0.01 * (first.steps[0].end - first.steps[0].start))
    assert names["trainer"].state.global_step == 2


def test_the_commands_of_the_documentation_are_read_by_the_command_line():
    pages = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "examples" / "README.md"]
    texts = [path.read_text(encoding="utf-8").replace("\\\n", " ").replace(" RATE ", " 1e-4 ") for path in pages]
    commands = [re.sub(r"\[.*?\]", "", found) for text in texts for found in COMMAND.findall(text)]
    assert len(commands) > 20
    for command in commands:
        name, *words = shlex.split(command, comments=True)
        if name in COMMANDS:  # the others are programs of examples/
            read_arguments(name, COMMANDS[name], words)
