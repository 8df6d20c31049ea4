"""Reward models and Monte-Carlo values in a real Chromium, with tiny models made here; and who runs what where."""

import json
import re
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests import reward_models
from tests.browsing import (
    App,
    add_reward,
    children,
    expect_no_sideways_scroll,
    expect_reward,
    visit,
)
from tests.stored_runs import learning, store
from tests.waiting import wait_for
from workbench.rewards import Sandbox
from workbench.rundir.checkpoints import seal
from workbench.ui.handlers.scoring import TRUST_MODEL

pytestmark = pytest.mark.browser

CHIPS = "#drawing .rollout:not(.streaming) .chip"
CONTEXT = {"max_position_embeddings": 512}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A process reward model, a classifier, and a language model whose format must be said."""
    root = tmp_path_factory.mktemp("models")
    kinds = {"my-prm": "token", "judge": "sequence", "words": "causal"}
    return {name: reward_models.save(kind, root / name, **CONTEXT) for name, kind in kinds.items()}


def add_model(page: Page, folder: str) -> None:
    if not page.locator("#model-path").is_visible():
        add_reward(page, "A reward model")
    page.locator("#model-path").get_by_role("textbox").fill(folder)
    page.locator("#model-add").click()


def choose(page: Page, field: str, label: re.Pattern[str]) -> None:
    select = page.locator(f"{field} select")
    select.select_option(select.locator("option", has_text=label).first.get_attribute("value"))


def estimate(page: Page, k: int = 2) -> None:
    if not page.locator("#monte_carlo-continuations").is_visible():
        add_reward(page, "Step values")
    page.locator("#monte_carlo-continuations input").fill(str(k))
    page.locator("#monte_carlo-add").click()


# ── reward models ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_process_reward_model_is_added_shown_changed_and_removed(page: Page, folders: dict[str, str]) -> None:
    chip = page.locator(CHIPS).first
    before = chip.text_content() or ""
    what_is_wrong_with_a_model_is_said_beside_the_form(page, folders)
    expect(chip).to_have_text(before)
    add_model(page, folders["my-prm"])
    expect_reward(page, 2, "my_prm · model", "step")
    expect(page.locator("#reward-note-2")).to_contain_text(re.compile(r"mean 0\.\d+"))
    expect(page.locator("#model-path")).to_be_hidden()  # the form folds once it is there
    expect(chip).not_to_have_text(before)

    page.locator("#reward-edit-2").click()
    expect(page.locator("#model-path").get_by_role("textbox")).to_have_value(folders["my-prm"])
    expect(page.locator("#reward-code")).to_be_hidden()
    expect_no_sideways_scroll(page, "#model-add")
    choose(page, "#model-reduce", re.compile("outcome: the least"))
    expect(page.locator("#model-add")).to_have_text("Load and change")
    page.locator("#model-add").click()
    expect_reward(page, 2, "my_prm · model", "outcome")
    expect(page.locator("#reward-3")).to_be_hidden()
    expect(chip).to_have_text(before)  # its steps are scored by the function alone again

    page.locator("#reward-on-2 input").uncheck()
    expect(page.locator("#reward-note-2")).to_contain_text("off")
    page.locator("#reward-remove-2").click()
    expect(page.locator("#reward-2")).to_be_hidden()


def what_is_wrong_with_a_model_is_said_beside_the_form(page: Page, folders: dict[str, str]) -> None:
    add_model(page, "/nowhere/at-all")
    expect(page.locator("#model-note .error")).to_contain_text("there is no folder '/nowhere/at-all'")
    choose(page, "#model-format", re.compile("stepwise"))
    page.locator("#model-path").get_by_role("textbox").fill(folders["words"])
    page.locator("#model-add").click()
    expect(page.locator("#model-note .error")).to_contain_text("has no weights for")
    expect(page.locator("#model-trust-remote-code input")).not_to_be_checked()
    choose(page, "#model-format", re.compile("ки"))
    page.locator("#model-add").click()
    expect_reward(page, 2, "words · model", "step")
    page.locator("#reward-remove-2").click()
    expect(page.locator("#reward-2")).to_be_hidden()


def test_a_run_s_reward_model_is_an_outcome_reward_in_one_click(page: Page, app: App, folders: dict[str, str]) -> None:
    run = store(app.workspace, "judge", learning(2), method={"name": "reward"})
    draft = run.dir.checkpoints / ".saving"
    shutil.copytree(folders["judge"], draft)
    seal(draft, run.dir.checkpoints / "final", {"step": 2})
    page.get_by_role("tab", name="Runs").click()
    page.get_by_label("Actions of judge", exact=True).click()
    page.get_by_role("menuitem", name="Use as a reward of judge").click()
    expect_reward(page, 2, "judge · model", "outcome")
    expect(page.locator("#reward-note-2")).to_contain_text("mean")
    page.locator("#heatmap .summary").get_by_role("button", name="Check this setup").click()
    page.locator("#probe").click()
    expect(page.locator("#probe-found td").first).to_be_visible()


# ── Monte-Carlo values ───────────────────────────────────────────────────────────────────────────────────────────


def test_values_are_estimated_drawn_stale_and_saved_as_labels(page: Page) -> None:
    estimating_is_cancelled(page)
    estimate(page)
    expect_reward(page, 2, "Monte-Carlo (k=2)", "step")
    expect(page.locator("#reward-note-2")).to_contain_text("mean")
    expect(page.locator("#values-facts")).to_contain_text(re.compile(r"\d+ tokens in"))
    expect(page.locator("#values-facts")).to_contain_text("mean answer_correctness of 2 continuations from its end")
    expect(page.locator("#values-facts")).to_contain_text("left out")

    of_values = page.locator("#reward-note-2").inner_text()
    page.locator("#monte_carlo-progress input").check()
    expect_reward(page, 2, "Monte-Carlo progress (k=2)", "step")
    expect(page.locator("#reward-note-2")).not_to_have_text(of_values)
    expect(page.locator("#reward-note-2")).to_contain_text("mean")
    page.locator("#monte_carlo-in-run input").check()
    expect(page.locator("#values-facts")).to_contain_text("estimated anew at each step of training")

    with page.expect_download() as download:
        page.locator("#labels-save").click()
        page.get_by_role("menuitem").first.click()
    assert download.value.suggested_filename == "labels-trl.jsonl"
    rows = [json.loads(line) for line in Path(download.value.path()).read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 8
    assert all(len(row["completions"]) == len(row["labels"]) > 1 for row in rows)

    page.locator("#regex textarea").fill("(?m)^Step")
    expect(page.locator("#reward-note-2")).to_contain_text("estimated for another pattern; estimate again")
    page.locator("#regex textarea").fill(r"(?m)^(?:Step \d+|Answer):")
    expect(page.locator("#reward-note-2")).to_contain_text("mean")

    page.locator("#train-on-this").click()
    expect(page.locator("#inherited")).to_contain_text("monte_carlo_progress (k=2)")


def estimating_is_cancelled(page: Page) -> None:
    estimate(page, 1024)
    expect(page.locator("#monte_carlo-note")).to_contain_text(re.compile(r"\d+ of \d+ continuations"))
    page.locator("#monte_carlo-cancel").click()
    expect(page.locator("#monte_carlo-note")).to_contain_text("Cancelled; nothing was estimated.")
    expect(page.locator("#monte_carlo-add")).to_be_enabled()
    expect(page.locator("#reward-2")).to_be_hidden()


# ── who runs what where ──────────────────────────────────────────────────────────────────────────────────────────


def test_each_page_has_a_reward_worker_and_all_share_one_of_models(
    browser: Browser, folders: dict[str, str], app: App
) -> None:
    """And the page's own process has no torch in its memory, whatever it was asked to score with."""
    before = {process.pid for process in children(app, "sandbox-")}
    with visit(browser, app.url) as first, visit(browser, app.url) as second:
        for page in (first, second):
            expect(page.locator(CHIPS).first).to_be_visible()
            expect(page.locator("#trust-model")).to_contain_text(TRUST_MODEL)
            add_model(page, folders["my-prm"])
            expect(page.locator("#reward-note-2")).to_contain_text("mean")
            page.locator("#regex textarea").fill("Step [0-9]")  # of one's own, which the app does not match itself
            expect(page.locator("#preset input")).to_have_value("custom")

        def sandboxes() -> int:
            return len({process.pid for process in children(app, "sandbox-")} - before)

        wait_for(lambda: sandboxes() == 2, "one sandbox of each page")
        assert len(children(app, "workbench.policies.worker")) == 1
        with Sandbox() as worker:
            missing = worker.missing_layers()
        if missing:
            expect(first.locator("#isolation-note")).to_contain_text(f"reduced isolation: {'; '.join(missing)}")
        else:
            expect(first.locator("#isolation-note .drawn")).to_be_hidden()
        assert "libtorch" not in Path(f"/proc/{app.pid}/maps").read_text()
