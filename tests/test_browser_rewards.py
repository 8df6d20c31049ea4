"""The list of reward functions in a real Chromium: the editor, schedules, saving, statistics, isolation and judges."""

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browsing import (
    CHIPS,
    App,
    add_own_reward,
    add_reward,
    close_editor,
    expect_reward,
    open_config,
    write_reward,
)
from tests.judge_server import serving, steps_answer
from workbench.rewards import RewardConfig
from workbench.training.methods import RunConfig

pytestmark = pytest.mark.browser

FAILING = re.compile(r"rgba\(164, 38, 44")
OWN = "def brief(prompt, step, **columns):\n    return 1.0 if len(step) < 20 else 0.0\n"


def test_a_weight_by_step_is_refused_kept_and_undone(page: Page) -> None:
    page.locator("#reward-edit-0").click()
    field = page.locator("#reward-schedule").get_by_role("textbox")
    field.fill("5:1,2:0")
    field.press("Enter")
    expect(page.locator("#editor-said")).to_contain_text("step 2 follows step 5")
    field.fill("0:2, 60:0")
    field.press("Tab")
    expect(page.locator("#reward-weight-0 input")).to_have_value("2")
    expect(page.locator("#reward-weight-0 input")).to_be_disabled()
    page.locator("#reward-list").get_by_role("button", name="Undo").click()
    expect(field).to_have_value("5:1,2:0")  # as it was before
    field.fill("")
    field.press("Enter")
    expect(page.locator("#reward-weight-0 input")).to_be_enabled()
    page.keyboard.press("Escape")
    expect(page.locator("#reward-editor")).to_be_hidden()


def test_a_failing_line_far_down_is_the_one_that_is_marked(page: Page) -> None:
    """The editor draws only the lines in sight: the 150th is found after scrolling to it, and no other is marked."""
    lines = ["def mine(prompt, step, **columns):", *(f"    x{i} = {i}" for i in range(2, 150)), "    return 1 / 0"]
    add_own_reward(page, "\n".join(lines))
    expect(page.locator("#editor-said")).to_contain_text("at line 150")
    scroller, drawn = page.locator("#reward-code .cm-scroller"), page.locator("#reward-code .cm-line")
    scroller.evaluate("node => node.scrollTo(0, 0)")
    expect(drawn.first).to_have_text(lines[0])
    expect(drawn.first).not_to_have_css("background-color", FAILING)
    scroller.evaluate("node => node.scrollTo(0, node.scrollHeight)")
    expect(drawn.filter(has_text="return 1 / 0")).to_have_css("background-color", FAILING)
    marked = (
        "nodes => nodes.filter((node) => getComputedStyle(node).boxShadow !== 'none').map((node) => node.textContent)"
    )
    assert drawn.evaluate_all(marked) == ["    return 1 / 0"]


def test_a_function_is_saved_and_found_after_a_reload(page: Page, app: App) -> None:
    add_own_reward(page, OWN)
    expect_reward(page, 2, "brief", "step")
    page.locator("#editor-save").click()
    expect(page.locator("#editor-saved")).to_contain_text("rewards/brief.py")
    write_reward(page, OWN.replace("20", "15"))
    expect(page.locator("#editor-saved .drawn")).to_be_hidden()
    assert (app.workspace / "rewards" / "brief.py").read_text() == OWN

    page.reload()
    expect_reward(page, 2, "brief", "step")
    add_reward(page, "A function from a file")
    expect(page.locator("#file-path input")).to_have_value("brief")
    page.locator("#file-add").click()
    expect(page.locator("#reward-editor")).to_be_hidden()
    page.locator("#reward-edit-2").click()
    expect(page.locator("#reward-code .cm-content")).to_contain_text("len(step) < 20")  # the reload brought back 15


def test_statistics_follow_the_list_and_stay_open(page: Page) -> None:
    page.locator("#watch summary").click()
    tables = page.locator("#watch table")
    expect(tables).to_have_count(4)
    add_reward(page, "trl:think_format_reward")
    expect(tables.nth(0)).to_contain_text("trl:think_format_reward")
    expect(page.locator("#watch details")).to_have_attribute("open", "")
    page.locator("#reward-remove-2").click()
    expect(tables.nth(0)).not_to_contain_text("trl:think_format_reward")
    page.locator("#watch summary").click()


def test_results_stand_beside_the_code_in_place_of_the_cards(page: Page) -> None:
    page.locator("#reward-edit-0").click()
    expect(page.locator("#editor-results tr.wrong")).to_have_count(7)
    expect(page.locator("#drawing .cards")).to_be_hidden()
    write_reward(page, "def step_correctness(prompt, step, **columns):\n    print('seen')\n    return 1.0\n")
    expect(page.locator("#editor-said")).to_contain_text("7 changed")
    expect(page.locator("#editor-results pre").first).to_contain_text("seen")
    page.locator("#editor-undo").click()
    expect(page.locator("#editor-said")).to_contain_text("none changed")
    close_editor(page)
    expect(page.locator("#drawing .cards")).to_be_visible()


# ── other people's code and judges ───────────────────────────────────────────────────────────────────────────────

READS_DISK = "import os\ndef shared(prompt, step, **c):\n    return float(len(os.listdir('/')) + len(step) % 3)\n"


def test_an_opened_configuration_is_isolated_until_that_is_switched_off(page: Page, tmp_path: Path) -> None:
    file = tmp_path / "shared.yaml"
    file.write_text(RunConfig(method={"rewards": [RewardConfig(name="shared", code=READS_DISK)]}).to_yaml())
    open_config(page, file)
    expect(page.locator("#reward-0")).to_contain_text("shared")
    expect(page.locator("#isolate input")).to_be_checked()
    note = page.locator("#reward-note-0")
    expect(note).to_contain_text(re.compile("mean|file access is off"))
    page.locator("#isolate input").uncheck()
    expect(note).to_contain_text("mean")


def test_a_judge_says_why_on_the_chip(page: Page) -> None:
    def answer(body: dict[str, Any]) -> str:
        texts = re.findall(r"(?m)^\[\d+\] (.*)$", body["messages"][0]["content"])
        return steps_answer(*(0.5 for _ in texts), reason="it <b>adds</b> up", quote="Step")

    with serving(answer) as endpoint:
        add_reward(page, "A judge")
        page.locator("#judge-base-url").get_by_role("textbox").fill(endpoint.url)
        page.locator("#judge-model").get_by_role("textbox").fill("small")
        page.locator("#judge-add").click()
        expect_reward(page, 2, "judge · judge", "step")
        expect(page.locator(f"{CHIPS} .r").first).to_contain_text(".5")  # whole numbers before
        expect(page.locator("#judge-model")).to_be_hidden()  # the form folds once it is there
    page.locator("#reward-edit-2").click()
    expect(page.locator("#judge-base-url").get_by_role("textbox")).to_have_value(endpoint.url)
    close_editor(page)
    chip = page.locator(CHIPS).first
    chip.hover()
    expect(page.locator("#drawing .tip .remark").first).to_have_text("judge, reason it <b>adds</b> up")
    chip.click()
    expect(page.locator("#drawing .details .remark", has_text="quote")).to_have_text("judge, quote “Step”")
