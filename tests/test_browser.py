"""Inspect in a real Chromium, used as a person uses it, and one run from its start to its policy."""

import re
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browsing import (
    CARDS,
    CHIPS,
    PATTERN,
    App,
    add_own_reward,
    advantages,
    choose,
    expect_no_wrapped_steps,
    expect_rollouts,
    set_regex,
    stopped,
    visit,
)
from workbench.rundir import RunDir
from workbench.training.methods import RunConfig

pytestmark = pytest.mark.browser


# ── Inspect ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pattern_is_typed_or_chosen_by_what_it_finds(page: Page) -> None:
    before = page.locator(CHIPS).count()
    set_regex(page, r"(?m)^Step \d+:")  # the answer is no step of its own any more
    expect(page.locator(CHIPS)).to_have_count(before - 6)
    set_regex(page, "nowhere to be found")
    expect(page.locator("#drawing mark", has_text="no match")).to_have_count(6)
    page.get_by_role("button", name="Try all presets on these answers").click()
    rows = page.locator("#preset-table tbody tr")
    rows.filter(has_text="GRPO tutorials").click()
    expect(page.locator("#regex textarea")).to_have_value(r"(?m)^Step \d+:")
    expect(page.locator("#preset input")).to_have_value("step-n")
    page.locator("#preset-table").get_by_role("button", name="Close").click()
    expect(rows).to_have_count(0)
    set_regex(page, PATTERN)
    expect(page.locator(CHIPS)).to_have_count(before)


def test_copies_are_one_card_until_they_are_unfolded(page: Page) -> None:
    """By click and by keyboard, and the focus stays."""
    fold = page.locator("#heatmap .copies")
    expect(fold).to_have_text("×3")
    fold.click()
    expect(page.locator(CARDS)).to_have_count(8)
    expect(fold).to_have_attribute("aria-expanded", "true")
    fold.focus()
    page.keyboard.press("Enter")
    expect(page.locator(CARDS)).to_have_count(6)
    expect(fold).to_be_focused()


IS_SEEN = """(selector) => {
  const node = document.querySelector(selector), { left, right, top, bottom } = node.getBoundingClientRect();
  return [top + 1, bottom - 1].every((y) => node.contains(document.elementFromPoint((left + right) / 2, y)));
}"""
"""Whether nothing lies over an element, at its upper edge or at its lower one."""


def test_on_a_phone_the_controls_fold_and_the_pinned_token_is_seen(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    expect(page.locator("#regex")).to_be_hidden()
    token = page.locator(f"{CARDS} .text i").nth(2)
    token.evaluate("node => node.scrollIntoView({ block: 'end' })")  # to where the details will be
    token.click()
    expect(page.locator(".details")).to_be_visible()
    expect(token).to_have_class(re.compile(r"\bpinned\b"))
    page.wait_for_function(IS_SEEN, arg=".text i.pinned")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Show controls").click()
    set_regex(page, r"(?m)^Step \d+:")
    expect(page.locator("#preset input")).to_have_value("step-n")


def test_no_step_wraps_on_any_usual_screen_and_a_sum_is_in_sight(page: Page) -> None:
    expect_no_wrapped_steps(page)
    page.locator(f"{CARDS}[data-g='0'] .chip").nth(1).click()
    details = page.get_by_role("region", name="Why this colour")
    details.get_by_text("Every number").click()
    terms = details.get_by_role("region", name="Terms of the advantage")
    edges = terms.evaluate("node => [node, node.querySelector('tfoot td')].map((n) => n.getBoundingClientRect().right)")
    assert edges[1] <= edges[0] + 1


def test_another_task_brings_its_pattern_and_passing_through_its_field_brings_nothing(page: Page) -> None:
    set_regex(page, "mine")
    page.locator("#task input").click()
    page.keyboard.press("Tab")
    expect(page.locator("#drawing .rollout mark").first).to_have_text("no match")
    expect(page.locator("#regex textarea")).to_have_value("mine")
    choose(page, "task", "chain-arithmetic-tags")
    expect(page.locator("#regex textarea")).to_have_value(re.compile("<answer>"))
    expect(page.locator("#title h2")).to_contain_text("Use tags")  # what is sampled at once answers its first prompt


def test_two_tabs_do_not_touch_each_other(page: Page, browser: Browser, app: App) -> None:
    before, scored = page.locator(CHIPS).count(), advantages(page)
    with visit(browser, app.url) as other:
        expect_rollouts(other, 8)
        set_regex(other, "nowhere to be found")
        expect(other.locator(CHIPS)).to_have_count(6)  # three of the eight are copies
        page.locator("#reward-weight-1 input").fill("1")  # scored anew, with this tab's own pattern
        page.wait_for_function("document.querySelector('#heatmap').heatmap.data.options.outcome_weight === 1")
        assert (page.locator(CHIPS).count(), advantages(page) == scored) == (before, False)


def test_a_sampled_group_streams_in_and_is_shown_without_scores_while_a_reward_fails(page: Page, app: App) -> None:
    add_own_reward(page, "def broken(prompt, step, **columns):\n    return 1 / 0\n")
    expect(page.locator("#drawing .stale")).to_contain_text("Showing the last valid result")
    page.locator("#example-next").click()
    expect(page.locator("#example input")).to_have_value("2")
    prompt = page.locator("#prompt textarea").input_value()
    for field, value in (("generations", "2"), ("max-tokens", "8")):
        page.locator(f"#{field} input").fill(value)
    expect(page.locator("#policy-status:is(.ready, .unloaded)")).to_be_visible()
    with stopped(app, "policies.worker"):
        page.locator("#prompt textarea").press("Control+Enter")
        expect(page.locator("#drawing .busy")).to_be_visible()
    expect(page.locator("#title .about")).to_contain_text(prompt.strip())
    expect_rollouts(page, 2)
    expect(page.locator("#seed input")).to_have_value("2")
    expect(page.locator("#cancel")).to_be_disabled()
    expect(page.locator("#drawing .stale")).to_contain_text("Not scored")
    expect(page.locator(CHIPS)).to_have_count(0)
    page.locator("#reward-remove-2").click()
    expect(page.locator(CHIPS).first).to_be_visible()
    expect(page.locator("#drawing .stale")).to_be_hidden()


# ── Train ────────────────────────────────────────────────────────────────────────────────────────────────────────


def bits(values: list[float]) -> bytes:
    return np.array(values, dtype=np.float32).tobytes()


@pytest.mark.usefixtures("workspace")
def test_the_form_of_another_method_marks_what_is_wrong_and_outlasts_a_reload(page: Page) -> None:
    page.get_by_role("tab", name="Train").click()
    choose(page, "method", "dpo")
    page.locator("#method-beta input").fill("-1")
    page.locator("#start").click()
    expect(page.locator("#start-note")).to_contain_text("method.beta")
    expect(page.locator("#method-beta.wrong input")).to_have_attribute("aria-invalid", "true")
    page.reload()
    page.get_by_role("tab", name="Train").click()
    expect(page.locator("#method")).to_contain_text("Direct preference optimisation")
    expect(page.locator("#method-beta input")).to_have_value("-1")


ALL_POINTS = """() => {
  const { data, calcdata } = document.querySelector(".curve[data-panel=length] .plot");
  return data[0].x.length > 2 && calcdata[0].length === data[0].x.length;
}"""
"""What was added to a curve is drawn, too."""


@pytest.mark.training
def test_from_the_open_page_to_a_live_run_and_back(browser: Browser, app: App, workspace: Path) -> None:
    with visit(browser, app.url) as page:
        page.locator("#train-on-this").click()
        expect(page.locator("#inherited")).to_contain_text("step_correctness, answer_correctness")
        held: list[Route] = []  # an earlier change is not answered yet: Start sends what was typed since
        page.route("**/gradio_api/run/predict*", lambda route: route.continue_() if held else held.append(route))
        page.locator("#steps input").fill("500")
        page.wait_for_function("document.querySelector('#steps input').value === '500'")
        page.locator("#method-prompts-per-step input").fill("1")
        page.locator("#run-name input, #run-name textarea").fill("live")
        page.locator("#start").click()
        state = page.locator("#run-state")
        expect(state).to_have_text("running")
        held[0].continue_()
        assert RunConfig.from_yaml((workspace / "runs" / "live" / "run.yaml").read_text()).run.steps == 500
        expect(page.locator(".curve[data-panel=rewards] .main-svg").first).to_be_visible()
        expect_rollouts(page, 8, "#run-heatmap")
        expect(page.locator(".curve[data-panel=length] output").first).to_have_text(re.compile(r"\d"))
        what_is_drawn_is_what_was_stored(page, RunDir(workspace / "runs" / "live"))
        a_reload_keeps_the_run_the_step_and_the_theme(page)
        page.locator("#stop").press("Enter")
        expect(state).to_have_text("stopped")
        expect(page.locator("#run-message")).to_contain_text("live was stopped at step")
        expect(page.locator("#stop")).to_be_hidden()
        page.wait_for_function(ALL_POINTS)
        # The stopped run's final checkpoint, or on a slow machine the last it wrote, answers the prompt of Inspect.
        page.locator("#inspect-policy").click()
        expect(page.locator("#policy input")).to_have_value(re.compile(r"^run:live(@\d+)?$"))
        expect(page.locator("#title .about")).to_contain_text("sampled from run:live")


def what_is_drawn_is_what_was_stored(page: Page, run: RunDir) -> None:
    """And what was stored is what the loss used."""
    page.locator("#follow-latest").uncheck()
    page.evaluate("const s = document.querySelector('#step-slider'); s.value = 0; s.dispatchEvent(new Event('input'))")
    expect(page.locator("#step-shown")).to_have_text("1")
    expect(page).to_have_url(re.compile("run=live&step=1(&|$)"))
    # A later step that was asked for before may be drawn first: the step is read with its numbers.
    drawing = "(({ step, rollouts }) => [step, rollouts.map(r => r.advantages)])"
    step, answers = page.evaluate(f"{drawing}(document.querySelector('#run-heatmap').heatmap.data)")
    stored = run.rollouts.read(step)[0]
    for i, drawn in enumerate(answers):
        assert bits(drawn) == stored.of(i).tobytes()


def a_reload_keeps_the_run_the_step_and_the_theme(page: Page) -> None:
    page.get_by_role("button", name="Switch to the dark theme").click()
    expect(page.locator("body")).to_have_class(re.compile(r"\bdark\b"))
    page.reload()
    expect(page.locator("#run-picker")).to_have_value("live")
    expect(page.locator("#step-shown")).to_have_text("1")
    expect_rollouts(page, 8, "#run-heatmap")
    expect(page.get_by_role("button", name="Switch to the light theme")).to_be_visible()
    expect(page.locator("body")).to_have_class(re.compile(r"\bdark\b"))
