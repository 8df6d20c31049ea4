"""Fixtures shared by the tests: small models and tokenizers made here, nothing downloaded."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

# Before torch is imported anywhere: the models are too small to gain from threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Runs of the tests wait for each other, not for a run that somebody has going on this machine.
os.environ["WORKBENCH_LOCKS"] = tempfile.mkdtemp(prefix="workbench-test-locks-")

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.browsing import App

# No wall clock decides whether a property holds.
settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("here")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that drive a browser come first: they take longest, and what is short fills the end."""
    items.sort(key=lambda item: item.get_closest_marker("browser") is None)


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
def warm_runs() -> None:
    """Runs that are started in this process of tests start warm, as soon as that is possible."""
    from workbench.runs.warm import warm_up

    warm_up()


@pytest.fixture(scope="module")
def warm_fake_runs() -> Iterator[None]:
    """Runs of ``tests.fake_run`` start warm."""
    from workbench.runs import warm

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(warm, "_warm", warm.Warm("tests.light_forks"))
        warm.warm_up()
        while not warm.is_warm():
            time.sleep(0.02)
        yield


# Files that want nothing special share one app in each process of tests; a file has a browser of its own, because what
# drives it runs an event loop in this thread for as long as it is open.


@pytest.fixture(scope="session")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """The workbench, for all tests: what one leaves in its workspace must not matter to another."""
    from tests.browsing import serve

    with serve(tmp_path_factory.mktemp("workspace")) as app:
        yield app


@pytest.fixture
def workspace(app: App) -> Iterator[Path]:
    """The app's, without runs and pipelines before and after a test."""

    def put_runs_aside() -> None:
        for folder in ("runs", "pipelines", "trash"):
            if (app.workspace / folder).exists():
                (app.workspace / folder).rename(app.workspace / f"{folder}-{os.urandom(4).hex()}")

    put_runs_aside()
    yield app.workspace
    put_runs_aside()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from tests.browsing import chromium

    with chromium() as browser:
        yield browser


@pytest.fixture
def page(browser: Browser, app: App) -> Iterator[Page]:
    """The page as it opens, its first group drawn."""
    from tests.browsing import GROUP_DRAWN, visit

    with visit(browser, app.url) as page:
        page.wait_for_function(GROUP_DRAWN)
        yield page
