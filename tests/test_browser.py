"""The page in a real Chromium, used as a person uses it; every wait is for something to be seen."""

import re
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browsing import (
    App,
    add_own_reward,
    choose,
    close_editor,
    expect_no_wrapped_steps,
    expect_rollouts,
    stopped,
    visit,
)
from workbench.rundir import RunDir
from workbench.training.methods import RunConfig

pytestmark = pytest.mark.browser

CARDS = "#drawing .rollout:not(.streaming)"
CHIPS = f"{CARDS} .chip"
PATTERN = r"(?m)^(?:Step \d+|Answer):"
"""What the page opens with."""


def set_regex(page: Page, text: str) -> None:
    page.locator("#regex textarea").fill(text)


# ── Inspect ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_group_is_split_scored_and_explained(page: Page, app: App) -> None:
    a_scored_group_is_on_screen_and_the_pages_process_has_no_torch(page, app)
    typing_a_pattern_splits_anew(page)
    a_preset_is_chosen_by_what_it_finds(page)
    equal_rewards_teach_nothing_and_the_page_says_so(page)
    a_token_is_pinned_and_explained(page)
    copies_are_one_card_until_they_are_unfolded(page)
    controls_fold_on_a_narrow_screen(page)
    another_task_brings_its_pattern_and_rewards(page)


def a_scored_group_is_on_screen_and_the_pages_process_has_no_torch(page: Page, app: App) -> None:
    assert page.locator(CHIPS).count() > 8
    expect(page.locator("#pattern-note")).to_contain_text(
        "finds 6 steps per answer: “Step 1: 7 + 3 = 10” to “Answer: 88”"
    )
    assert "libtorch" not in Path(f"/proc/{app.pid}/maps").read_text()
    expect(page.locator("#policy-status:is(.ready, .unloaded)")).to_be_visible()
    assert "libtorch" not in Path(f"/proc/{app.pid}/maps").read_text()


def typing_a_pattern_splits_anew(page: Page) -> None:
    before = page.locator(CHIPS).count()
    set_regex(page, r"(?m)^Step \d+:")  # the answer is no step of its own any more
    expect(page.locator(CHIPS)).to_have_count(before - 6)
    set_regex(page, "nowhere to be found")
    expect(page.locator("#drawing mark", has_text="no match")).to_have_count(6)
    expect(page.locator("#drawing .summary")).to_contain_text("no step found in 8 of 8")
    set_regex(page, PATTERN)
    expect(page.locator(CHIPS)).to_have_count(before)


def a_preset_is_chosen_by_what_it_finds(page: Page) -> None:
    page.get_by_role("button", name="Try all presets on these answers").click()
    rows = page.locator("#preset-table tbody tr")
    rows.last.click()
    expect(page.locator("#preset input")).to_have_value(str(rows.last.locator("td").first.text_content()))
    rows.filter(has_text="GRPO tutorials").click()  # the table stays for the next one to be tried
    expect(page.locator("#regex textarea")).to_have_value(r"(?m)^Step \d+:")
    page.locator("#preset-table").get_by_role("button", name="Close").click()
    expect(rows).to_have_count(0)
    page.get_by_role("button", name="Try all presets on these answers").click()
    expect(rows.first).to_be_visible()
    set_regex(page, PATTERN)
    expect(page.locator("#pattern-note")).to_contain_text("finds 6 steps per answer")


def equal_rewards_teach_nothing_and_the_page_says_so(page: Page) -> None:
    add_own_reward(page, "def same(prompt, step, **columns):\n    return 1.0\n")
    close_editor(page)
    page.locator("#reward-on-0 input").uncheck()
    notices = page.locator("#drawing .notices")
    expect(notices).to_contain_text("the outcome reward (answer_correctness) differs")
    notices.get_by_role("button", name="Outcome weight 1").click()
    expect(page.locator("#reward-weight-1 input")).to_have_value("1")
    expect(notices).to_be_empty()
    page.locator("#reward-weight-1 input").fill("0")
    page.locator("#reward-on-0 input").check()
    page.locator("#reward-remove-2").click()
    expect(notices).to_be_empty()


def a_token_is_pinned_and_explained(page: Page) -> None:
    first = page.locator(f"{CARDS}[data-g='0']")
    first.locator(".chip").nth(1).click()
    details = page.get_by_role("region", name="Why this colour")
    details.get_by_text("Every number").click()
    terms = details.get_by_role("region", name="Terms of the advantage")
    page.set_viewport_size({"width": 1366, "height": 860})  # the panel is narrow, and the sum in sight
    edges = terms.evaluate("node => [node, node.querySelector('tfoot td')].map((n) => n.getBoundingClientRect().right)")
    assert edges[1] <= edges[0] + 1
    page.set_viewport_size({"width": 1280, "height": 860})
    page.keyboard.press("Escape")
    expect(details.locator(".where")).to_have_count(0)


def copies_are_one_card_until_they_are_unfolded(page: Page) -> None:
    """By click and by keyboard; with the option the copies are left out."""
    first, fold = page.locator(f"{CARDS}[data-g='0']"), page.locator("#heatmap .copies")
    expect(first.locator("header")).to_contain_text("identical: 1, 2, 5")
    expect(fold).to_have_text("×3")
    fold.click()
    expect(page.locator(CARDS)).to_have_count(8)
    expect(fold).to_have_attribute("aria-expanded", "true")
    expect(page.locator("#heatmap .rollout[data-g='4'] header")).to_contain_text("as rollout 1")
    fold.focus()
    page.keyboard.press("Enter")
    expect(page.locator(CARDS)).to_have_count(6)
    expect(fold).to_be_focused()


IS_SEEN = """(selector) => {
  const node = document.querySelector(selector), { left, right, top, bottom } = node.getBoundingClientRect();
  return [top + 1, bottom - 1].every((y) => node.contains(document.elementFromPoint((left + right) / 2, y)));
}"""
"""Whether nothing lies over an element, at its upper edge or at its lower one."""


def controls_fold_on_a_narrow_screen(page: Page) -> None:
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
    page.set_viewport_size({"width": 1280, "height": 860})


def another_task_brings_its_pattern_and_rewards(page: Page) -> None:
    set_regex(page, "mine")
    page.locator("#task input").click()
    page.keyboard.press("Tab")  # passing through the field changes nothing
    expect(page.locator("#drawing .rollout mark").first).to_have_text("no match")
    expect(page.locator("#regex textarea")).to_have_value("mine")
    page.locator("#task input").click()
    page.get_by_role("option", name="chain-arithmetic-tags").click()
    expect(page.locator("#regex textarea")).to_have_value(re.compile("<answer>"))


# ── sampling ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_groups_are_sampled_cancelled_and_refused(page: Page, browser: Browser, app: App) -> None:
    page.get_by_role(
        "tab", name="Train"
    ).click()  # at which the app imports what runs need: the next test's starts warm
    page.get_by_role("tab", name="Inspect").click()
    no_step_wraps_and_each_group_is_explained(page)
    two_tabs_do_not_touch_each_other(page, browser, app)
    sampling_streams_a_new_group_in(page, app)
    a_group_sampled_while_a_reward_fails_is_shown_without_scores(page)


def two_tabs_do_not_touch_each_other(page: Page, browser: Browser, app: App) -> None:
    before = page.locator(CHIPS).count()
    advantage = page.locator(f"{CHIPS} .a").first.text_content()
    with visit(browser, app.url) as other:
        expect_rollouts(other, 8)
        set_regex(other, "nowhere to be found")
        expect(other.locator(CHIPS)).to_have_count(6)  # three of the eight are copies
        page.locator("#reward-weight-1 input").fill("1")  # scored anew, with this tab's own pattern
        expect(page.locator(f"{CHIPS} .a").first).not_to_have_text(advantage)
        expect(page.locator("#drawing .stale")).to_be_hidden()
        assert page.locator(CHIPS).count() == before


def no_step_wraps_and_each_group_is_explained(page: Page) -> None:
    """As the page opens and after Sample & score, where the panel was closed before."""
    where = page.locator(".details .where")
    expect(where).to_contain_text("rollout 7 · step 2")
    expect_no_wrapped_steps(page)
    page.locator(".details .close").click()
    expect(where).to_have_count(0)
    page.locator("#sample").click()
    expect(page.locator("#title .about")).to_contain_text("seed 1")
    g, k = page.evaluate("document.querySelector('#heatmap').heatmap.data.opens")
    expect(where).to_contain_text(f"rollout {g + 1} · step {k + 1}")


def sampling_streams_a_new_group_in(page: Page, app: App) -> None:
    page.locator("#example-next").click()
    expect(page.locator("#example input")).to_have_value("2")
    prompt = page.locator("#prompt textarea").input_value()
    page.locator("#max-tokens input").fill("60")
    expect(page.locator("#policy-status:is(.ready, .unloaded)")).to_be_visible()
    with stopped(app, "policies.worker"):
        page.locator("#prompt textarea").press("Control+Enter")
        expect(page.locator("#drawing .busy")).to_be_visible()
    expect(page.locator("#title .about")).to_contain_text(prompt.strip())
    expect(page.locator("#title .about")).to_contain_text("seed 2")
    expect_rollouts(page, 8)
    expect(page.locator("#seed input")).to_have_value("3")
    expect(page.locator("#cancel")).to_be_disabled()


def a_group_sampled_while_a_reward_fails_is_shown_without_scores(page: Page) -> None:
    add_own_reward(page, "def broken(prompt, step, **columns):\n    return 1 / 0\n")
    expect(page.locator("#drawing .stale")).to_contain_text("Showing the last valid result")
    page.locator("#generations input").fill("2")
    page.locator("#max-tokens input").fill("4")
    page.locator("#sample").click()
    expect_rollouts(page, 2)
    expect(page.locator("#drawing .stale")).to_contain_text("Not scored")
    expect(page.locator(CHIPS)).to_have_count(0)
    page.locator("#reward-remove-2").click()
    expect(page.locator(CHIPS).first).to_be_visible()
    expect(page.locator("#drawing .stale")).to_be_hidden()


# ── Train ────────────────────────────────────────────────────────────────────────────────────────────────────────


def bits(values: list[float]) -> bytes:
    return np.array(values, dtype=np.float32).tobytes()


@pytest.mark.training
def test_from_the_open_page_to_a_live_run_and_back(browser: Browser, app: App, workspace: Path) -> None:
    with visit(browser, app.url, apart=True) as page:
        page.locator("#train-on-this").click()
        expect(page.locator("#inherited")).to_contain_text("step_correctness, answer_correctness")
        held: list[Route] = []  # an earlier change is not answered yet: Start sends what was typed since
        page.route("**/gradio_api/run/predict*", lambda route: route.continue_() if held else held.append(route))
        page.locator("#steps input").fill("500")
        page.wait_for_function("document.querySelector('#steps input').value === '500'")
        page.locator("#method-prompts-per-step input").fill("2")
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
        its_policy_is_inspected(page)


ALL_POINTS = """() => {
  const { data, calcdata } = document.querySelector(".curve[data-panel=length] .plot");
  return data[0].x.length > 2 && calcdata[0].length === data[0].x.length;
}"""
"""What was added to a curve is drawn, too."""


def its_policy_is_inspected(page: Page) -> None:
    """The stopped run's final checkpoint, or on a slow machine the last it wrote, answers the prompt of Inspect."""
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
    for i, advantages in enumerate(answers):
        assert bits(advantages) == stored.of(i).tobytes()


def a_reload_keeps_the_run_the_step_and_the_theme(page: Page) -> None:
    page.get_by_role("button", name="Switch to the dark theme").click()
    expect(page.locator("body")).to_have_class(re.compile(r"\bdark\b"))
    page.reload()
    expect(page.locator("#run-picker")).to_have_value("live")
    expect(page.locator("#step-shown")).to_have_text("1")
    expect_rollouts(page, 8, "#run-heatmap")
    expect(page.get_by_role("button", name="Switch to the light theme")).to_be_visible()
    expect(page.locator("body")).to_have_class(re.compile(r"\bdark\b"))


@pytest.mark.training
def test_a_run_of_another_method_is_set_up_kept_over_a_reload_and_started(page: Page, workspace: Path) -> None:
    page.get_by_role("tab", name="Train").click()
    choose(page, "method", "dpo")
    for field, value in (("steps", "2"), ("method-batch-size", "2"), ("method-beta", "-1"), ("run-name", "preferred")):
        page.locator(f"#{field} :is(input, textarea)").fill(value)
    page.locator("#start").click()
    expect(page.locator("#start-note")).to_contain_text("method.beta")
    expect(page.locator("#method-beta.wrong input")).to_have_attribute("aria-invalid", "true")
    page.reload()
    page.get_by_role("tab", name="Train").click()
    expect(page.locator("#method")).to_contain_text("Direct preference optimisation")
    expect(page.locator("#method-beta input")).to_have_value("-1")
    page.locator("#method-beta input").fill("0.2")
    page.locator("#start").click()
    expect(page.locator("#run-state")).to_have_text("finished")
    expect(page.locator("#start-note p")).to_have_count(0)
    for panel in ("loss", "pairs"):
        expect(page.locator(f"#curves .curve[data-panel={panel}]")).to_be_visible()
    expect(page.locator("#train-controls #estimate")).to_contain_text("DPO run")
