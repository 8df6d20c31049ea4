"""Fixtures shared by the tests: small models and tokenizers made here, nothing downloaded."""

from __future__ import annotations

import fcntl
import gc
import os
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

# Before torch is imported anywhere: the models are too small to gain from threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Runs of the tests wait for each other, not for a run that somebody has going on this machine.
os.environ["WORKBENCH_LOCKS"] = tempfile.mkdtemp(prefix="workbench-test-locks-")
import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

    from tests.browsing import App

# What fails in the tests' own helpers shows the values, too.
pytest.register_assert_rewrite("tests.browsing", "tests.waiting")
# Hundreds of processes import this package: it is compiled once, also where the shell says that nothing shall be kept.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Libraries make a million objects that stay; the collector need not look through them every 700 objects.
gc.set_threshold(20_000)
# Nobody pulls the plug in a test, and what waits for the disk waits for all that others write.
os.fsync = lambda descriptor: None

# Neither a wall clock nor chance decides whether the checks pass; `--hypothesis-profile search` draws other examples.
settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("search"), derandomize=True)
settings.load_profile("same")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What drives a browser comes first, then what uses an app, then files that take long, those that train before
    others; the short fill the end."""
    items.sort(
        key=lambda item: (
            item.get_closest_marker("browser") is None,
            not _uses_app(item),
            item.path.stem not in LOTS["runs"],
            item.path.stem not in LONG,
        )
    )


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Processes that collect side by side meet each file one after the other: the first one compiles it for all."""
    if not isinstance(collector, pytest.Module):
        return (yield)
    with collector.path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        return (yield)


def pytest_collection_finish() -> None:
    """What was imported stays: whatever collects looks through what came since."""
    gc.collect()
    gc.freeze()


LOTS = {
    "browser 0": {
        "test_browser",
        "test_browser_models",
        "test_browser_opening",
        "test_browser_rewards",
        "test_browser_runs",
        "test_viewers",
    },
    "browser 1": {
        "test_api",
        "test_browser_access",
        "test_browser_checks",
        "test_browser_data",
        "test_browser_sharing",
        "test_drawing",
        "test_drawing_links",
        "test_hostile_text",
        "test_live",
    },
    "runs": {
        "test_real_runs",
        "test_resume",
        "test_script",
        "test_training",
    },
}
"""Files that share what is slow to start: an app and a browser, or the process that runs are forked from."""

LONG = {
    "test_bad_input",
    "test_cli",
    "test_contributing",
    "test_docs",
    "test_notebooks",
    "test_prm",
    "test_examples",
    "test_recipes",
    "test_references",
    "test_runs",
}
"""Files of twenty seconds and more that neither drive a browser nor ask an app."""


class FilesScheduling(LoadFileScheduling):
    """Files as a whole, some of them in lots: each lot is one process of tests', with what its files share."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return next((name for name, lot in LOTS.items() if Path(file).stem in lot), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    return FilesScheduling(config, log)


@pytest.fixture(autouse=True, scope="session")
def _trainers_collect_nothing() -> None:
    """Python's collector comes by itself; a trainer would ask for it at its beginning and end, 0.3 s each here."""
    from accelerate.utils import memory

    memory.gc = SimpleNamespace(collect=lambda: 0)


@pytest.fixture(autouse=True, scope="module")
def _runs_share_sandboxes(request: pytest.FixtureRequest) -> None:
    """Only where something trains: what trains is slow to import."""
    if any(item.path == request.path and item.get_closest_marker("training") for item in request.session.items):
        from tests.in_this_process import share_sandboxes

        share_sandboxes()


@pytest.fixture(scope="session")
def tiny():
    """The embedded policy."""
    from workbench.policies.load import load_policy

    return load_policy("tiny", device="cpu")


@pytest.fixture(scope="session")
def random_policy(tiny):
    """A random-weight Llama of two layers with the embedded tokenizer: samples nonsense of every length, quickly."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from workbench.policies.load import Policy

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tiny.tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        eos_token_id=tiny.tokenizer.eos_token_id,
        pad_token_id=tiny.tokenizer.pad_token_id,
        initializer_range=0.3,
    )
    return Policy("random", LlamaForCausalLM(config).eval(), tiny.tokenizer)


@pytest.fixture(scope="session")
def worker():
    """A sandbox for all files, with the patience that a busy machine needs."""
    from workbench.rewards import Sandbox

    with Sandbox(deadline=60, pattern_margin=60) as worker:
        yield worker


@pytest.fixture
def services(tmp_path):
    """The page's."""
    from workbench.ui.handlers.session import Services

    services = Services(tmp_path)
    yield services
    services.close()


@pytest.fixture
def store(tmp_path):
    from workbench.ui.handlers.session import GroupStore

    return GroupStore(tmp_path)


@pytest.fixture
def standby(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run that trains is taken by a standby process, however full the memory is."""
    from workbench.runs import processes

    monkeypatch.setattr(processes, "FREE_BYTES", 0)
    processes.prepare()


@pytest.fixture
def runs_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that train do so in this process, which has the libraries, and are over once they were started."""
    from tests.in_this_process import started_here
    from workbench.runs import launch

    monkeypatch.setattr(launch, "spawn", started_here)


# Files share one app and one Chromium in each process of tests, until a test comes that uses neither: what drives the
# browser runs an event loop in this thread, and an app costs something while it waits.
_opened = ExitStack()
_apps: list[App] = []
_browsers: list[Browser] = []


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("browser") is None and not _uses_app(item):
        _close()


def _uses_app(item: pytest.Item) -> bool:
    return "app" in getattr(item, "fixturenames", ())


def pytest_sessionfinish() -> None:
    _close()


def _close() -> None:
    _apps.clear()
    _browsers.clear()
    _opened.close()


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> App:
    """The workbench, for all files: what one leaves in its workspace must not matter to another."""
    from tests.browsing import serve

    if not _apps:
        _apps.append(_opened.enter_context(serve(tmp_path_factory.mktemp("workspace"))))
    return _apps[0]


@pytest.fixture
def ending_app(app: App) -> Iterator[App]:
    """The app, for a file's last test, which ends it: files after that share another."""
    yield app
    _close()


@pytest.fixture
def workspace(app: App) -> Iterator[Path]:
    """The app's, without runs before and after a test."""

    def put_runs_aside() -> None:
        for folder in ("runs", "trash"):
            if (app.workspace / folder).exists():
                (app.workspace / folder).rename(app.workspace / f"{folder}-{os.urandom(4).hex()}")

    put_runs_aside()
    yield app.workspace
    put_runs_aside()


@pytest.fixture(scope="module")
def browser() -> Browser:
    """Chromium."""
    from tests.browsing import chromium

    if not _browsers:
        _browsers.append(_opened.enter_context(chromium()))
    return _browsers[0]


@pytest.fixture(scope="module")
def opened(browser: Browser, app: App) -> Iterator[Page]:
    """A page that a file's tests share."""
    from tests.browsing import visit

    with visit(browser, app.url) as page:
        yield page


@pytest.fixture
def page(opened: Page) -> Iterator[Page]:
    """That page as it opens, its first group drawn."""
    from tests.browsing import expect_no_errors, start_over

    start_over(opened)
    yield opened
    expect_no_errors(opened)
