"""Reward models and Monte-Carlo values in a real Chromium, with tiny models made here; and who runs what where."""

import json
import re
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests import reward_models
from tests.browsing import (
    CHIPS,
    App,
    add_reward,
    advantages,
    children,
    expect_reward,
    expect_rollouts,
    set_regex,
    visit,
)
from tests.stored_runs import learning, store
from tests.waiting import wait_for
from workbench.rundir.checkpoints import seal

pytestmark = pytest.mark.browser

CONTEXT = {"max_position_embeddings": 512}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A process reward model and a classifier."""
    root = tmp_path_factory.mktemp("models")
    kinds = {"my-prm": "token", "judge": "sequence"}
    return {name: reward_models.save(kind, root / name, **CONTEXT) for name, kind in kinds.items()}


def add_model(page: Page, folder: str) -> None:
    if not page.locator("#model-path").is_visible():
        add_reward(page, "A reward model")
    page.locator("#model-path").get_by_role("textbox").fill(folder)
    page.locator("#model-add").click()


def estimate(page: Page, k: int) -> None:
    if not page.locator("#monte_carlo-continuations").is_visible():
        add_reward(page, "Step values")
    page.locator("#monte_carlo-continuations input").fill(str(k))
    page.locator("#monte_carlo-add").click()


def test_a_process_reward_model_is_added_and_changed_into_an_outcome_reward(
    page: Page, folders: dict[str, str]
) -> None:
    chip = page.locator(CHIPS).first
    before = chip.text_content() or ""
    add_model(page, "/nowhere/at-all")
    expect(page.locator("#model-note .error")).to_contain_text("/nowhere/at-all")
    add_model(page, folders["my-prm"])
    expect_reward(page, 2, "my_prm · model", "step")
    expect(page.locator("#model-path")).to_be_hidden()  # the form folds once it is there
    expect(chip).not_to_have_text(before)

    page.locator("#reward-edit-2").click()
    expect(page.locator("#model-path").get_by_role("textbox")).to_have_value(folders["my-prm"])
    select = page.locator("#model-reduce select")
    least = select.locator("option", has_text="outcome: the least").first
    select.select_option(least.get_attribute("value"))
    page.locator("#model-add").click()
    expect_reward(page, 2, "my_prm · model", "outcome")
    expect(page.locator("#reward-3")).to_be_hidden()
    expect(chip).to_have_text(before)  # its steps are scored by the function alone again


def test_a_run_s_reward_model_is_an_outcome_reward_in_one_click(
    page: Page, workspace: Path, folders: dict[str, str]
) -> None:
    run = store(workspace, "judge", learning(2), method={"name": "reward"})
    draft = run.dir.checkpoints / ".saving"
    shutil.copytree(folders["judge"], draft)
    seal(draft, run.dir.checkpoints / "final", {"step": 2})
    page.get_by_role("tab", name="Runs").click()
    page.get_by_label("Actions of judge", exact=True).click()
    page.get_by_role("menuitem", name="Use as a reward of judge").click()
    expect_reward(page, 2, "judge · model", "outcome")
    expect(page.locator("#reward-note-2")).to_contain_text("mean")


def test_values_are_cancelled_estimated_and_saved_as_labels(page: Page) -> None:
    estimate(page, 1024)
    expect(page.locator("#monte_carlo-note")).to_contain_text(re.compile(r"\d+ of \d+ continuations"))
    page.locator("#monte_carlo-cancel").click()
    expect(page.locator("#monte_carlo-note")).to_contain_text("Cancelled")
    expect(page.locator("#monte_carlo-add")).to_be_enabled()
    expect(page.locator("#reward-2")).to_be_hidden()
    estimate(page, 1)
    expect_reward(page, 2, "Monte-Carlo (k=1)", "step")
    expect(page.locator("#reward-note-2")).to_contain_text("mean")
    page.locator("#monte_carlo-progress input").check()
    expect_reward(page, 2, "Monte-Carlo progress (k=1)", "step")
    with page.expect_download() as download:
        page.locator("#labels-save").click()
        page.get_by_role("menuitem").first.click()
    assert download.value.suggested_filename == "labels-trl.jsonl"
    rows = [json.loads(line) for line in Path(download.value.path()).read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 8
    assert all(len(row["completions"]) == len(row["labels"]) > 1 for row in rows)


def test_two_tabs_touch_each_other_in_nothing_and_share_one_worker_of_models(
    page: Page, browser: Browser, folders: dict[str, str], app: App
) -> None:
    """And the page's own process has no torch in its memory, whatever it was asked to score with."""
    before = {process.pid for process in children(app, "sandbox-")}
    expect(page.locator(CHIPS)).to_have_count(36)
    scored = advantages(page)
    with visit(browser, app.url) as other:
        expect_rollouts(other, 8)
        set_regex(other, "nowhere to be found")  # of one's own, which the app does not match itself
        expect(other.locator(CHIPS)).to_have_count(6)  # three of the eight are copies
        page.locator("#reward-weight-1 input").fill("1")  # scored anew, with this tab's own pattern
        page.wait_for_function("document.querySelector('#heatmap').heatmap.data.options.outcome_weight === 1")
        expect(page.locator(CHIPS)).to_have_count(36)
        assert advantages(page) != scored
        for one in (page, other):
            add_model(one, folders["my-prm"])
            expect(one.locator("#reward-note-2")).to_contain_text("mean")

        def sandboxes() -> int:
            return len({process.pid for process in children(app, "sandbox-")} - before)

        wait_for(lambda: sandboxes() == 1, "one sandbox of the page that was opened")
        assert len(children(app, "workbench.policies.worker")) == 1
        assert "libtorch" not in Path(f"/proc/{app.pid}/maps").read_text()
