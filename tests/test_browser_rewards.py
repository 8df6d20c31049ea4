"""The list of reward functions in a real Chromium: pasting, errors far down, saving and loading, watching."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browsing import App, add_own_reward, add_reward, close_editor, expect_reward, write_reward

pytestmark = pytest.mark.browser

CHIPS = "#drawing .rollout:not(.streaming) .chip"
FAILING = re.compile(r"rgba\(164, 38, 44")
OWN = "def brief(prompt, step, **columns):\n    return 1.0 if len(step) < 20 else 0.0\n"


def remove(page: Page, place: int) -> None:
    page.locator(f"#reward-remove-{place}").click()
    expect(page.locator(f"#reward-{place}")).to_be_hidden()


def test_functions_are_watched_written_saved_and_limited(page: Page, app: App) -> None:
    each_row_says_what_its_function_gave_and_took_from_the_start(page)
    a_weight_by_step_is_written_refused_kept_and_undone(page)
    watching_shows_scores_positions_correlation_and_each_rollout(page)
    a_failing_line_far_down_is_the_one_that_is_marked(page)
    a_function_is_saved_and_found_after_a_reload(page, app)
    results_stand_beside_the_code_and_prints_under_them(page)


def each_row_says_what_its_function_gave_and_took_from_the_start(page: Page) -> None:
    expect(page.locator("#reward-note-0")).to_contain_text("85 % of steps right")
    expect(page.locator("#reward-note-0 pre")).to_be_hidden()


def a_weight_by_step_is_written_refused_kept_and_undone(page: Page) -> None:
    page.locator("#reward-edit-0").click()
    field = page.locator("#reward-schedule").get_by_role("textbox")
    field.fill("5:1,2:0")
    field.press("Enter")
    expect(page.locator("#editor-said")).to_contain_text("step 2 follows step 5")
    field.fill("0:2, 60:0")
    field.press("Tab")
    expect(page.locator("#reward-on-0")).to_contain_text("2 at step 0 → 0 at step 60")
    expect(page.locator("#reward-weight-0 input")).to_have_value("2")
    expect(page.locator("#reward-weight-0 input")).to_be_disabled()
    expect(page.locator("#reward-note-0")).to_contain_text("drawn with its weight at step 0")
    page.locator("#reward-list").get_by_role("button", name="Undo").click()
    expect(field).to_have_value("5:1,2:0")  # as it was before
    field.fill("")
    field.press("Enter")
    expect(page.locator("#reward-on-0")).to_have_text("step_correctness")
    expect(page.locator("#reward-note-0")).to_contain_text("85 % of steps right")
    expect(page.locator("#reward-weight-0 input")).to_be_enabled()
    page.keyboard.press("Escape")
    expect(page.locator("#reward-editor")).to_be_hidden()


def a_failing_line_far_down_is_the_one_that_is_marked(page: Page) -> None:
    """The editor draws only the lines in sight: the 150th is found after scrolling to it, and no other is marked."""
    lines = ["def mine(prompt, step, **columns):", *(f"    x{i} = {i}" for i in range(2, 150)), "    return 1 / 0"]
    add_own_reward(page, "\n".join(lines))
    expect(page.locator("#editor-said")).to_contain_text("at line 150")
    scroller = page.locator("#reward-code .cm-scroller")
    last = page.locator("#reward-code .cm-line", has_text="return 1 / 0")
    scroller.evaluate("node => node.scrollTo(0, 0)")
    expect(page.locator("#reward-code .cm-line").first).to_have_text(lines[0])
    expect(page.locator("#reward-code .cm-line").first).not_to_have_css("background-color", FAILING)
    scroller.evaluate("node => node.scrollTo(0, node.scrollHeight)")
    expect(last).to_have_css("background-color", FAILING)
    marked = page.locator("#reward-code .cm-line").evaluate_all(
        "nodes => nodes.filter((node) => getComputedStyle(node).boxShadow !== 'none').map((node) => node.textContent)"
    )
    assert marked == ["    return 1 / 0"]
    remove(page, 2)


def a_function_is_saved_and_found_after_a_reload(page: Page, app: App) -> None:
    add_own_reward(page, OWN)
    expect_reward(page, 2, "brief", "step")
    page.locator("#editor-save").click()
    expect(page.locator("#editor-saved")).to_contain_text("rewards/brief.py")
    write_reward(page, OWN.replace("20", "15"))
    expect(page.locator("#editor-saved .drawn")).to_be_hidden()
    assert (app.workspace / "rewards" / "brief.py").read_text() == OWN

    page.reload()
    expect(page.locator(CHIPS).first).to_be_visible()
    expect_reward(page, 2, "brief", "step")
    add_reward(page, "A function from a file")
    expect(page.locator("#file-path input")).to_have_value("brief")
    page.locator("#file-add").click()
    expect(page.locator("#reward-editor")).to_be_hidden()
    page.locator("#reward-edit-2").click()
    expect(page.locator("#reward-code .cm-content")).to_contain_text("len(step) < 20")  # the reload brought back 15
    expect(page.locator("#reward-note-2")).to_contain_text("mean")
    remove(page, 2)


def watching_shows_scores_positions_correlation_and_each_rollout(page: Page) -> None:
    page.locator("#watch summary").click()
    tables = page.locator("#watch table")
    expect(tables).to_have_count(4)
    expect(tables.nth(0)).to_contain_text("step_correctness")
    add_reward(page, "trl:think_format_reward")
    expect(tables.nth(0)).to_contain_text("trl:think_format_reward")
    expect(page.locator("#watch details")).to_have_attribute("open", "")
    page.locator("#reward-remove-2").click()
    expect(tables.nth(0)).not_to_contain_text("trl:think_format_reward")


def results_stand_beside_the_code_and_prints_under_them(page: Page) -> None:
    page.locator("#reward-edit-0").click()
    expect(page.locator("#editor-said")).to_contain_text("scores 41 of 48 steps 1 and 7 steps 0; none changed")
    expect(page.locator("#editor-results tr.wrong")).to_have_count(7)
    expect(page.locator("#drawing .cards")).to_be_hidden()
    write_reward(page, "def step_correctness(prompt, step, **columns):\n    print('seen')\n    return 1.0\n")
    expect(page.locator("#editor-said")).to_contain_text("7 changed since you opened it")
    expect(page.locator("#editor-results pre").first).to_contain_text("seen")
    page.locator("#editor-undo").click()
    expect(page.locator("#editor-said")).to_contain_text("none changed")
    close_editor(page)
    expect(page.locator("#drawing .cards")).to_be_visible()
