"""Keyboard, contrast and names for everybody, and one run from its start to its policy, in a real Chromium."""

import re
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browsing import (
    CHIPS,
    App,
    add_reward,
    expect_rollouts,
    serious,
    set_regex,
    visit,
    write_reward,
)
from workbench.rundir import RunDir
from workbench.training.methods import RunConfig

pytestmark = pytest.mark.browser


@pytest.mark.usefixtures("workspace")
def test_axe_finds_nothing_serious_in_any_tab_by_night_on_a_phone_and_by_day(browser: Browser, app: App) -> None:
    with visit(browser, app.url, apart=True, color_scheme="dark", reduced_motion="reduce") as page:
        expect_rollouts(page, 8)
        assert page.evaluate("getComputedStyle(document.querySelector('.wh .cards')).transitionDuration") == "0s"
        add_reward(page, "Your own step function")
        expect(page.locator("#reward-code .cm-content[tabindex='0']")).to_be_visible()
        write_reward(page, "# read in the dark, too\ndef mine(prompt, step, **columns):\n    return 1.0")
        expect(page.locator("#reward-on-2")).to_contain_text("mine")
        assert serious(page, "#reward-editor") == []
        page.locator("#editor-done").click()  # the editor stands where the cards do
        page.set_viewport_size({"width": 390, "height": 844})
        page.get_by_role("button", name="Show controls").locator("visible=true").click()
        page.locator(CHIPS).nth(2).click()
        expect(page.get_by_role("region", name="Why this colour")).to_be_visible()
        every_tab_is_in_order(page, 390)
        page.set_viewport_size({"width": 1280, "height": 860})
        page.get_by_role("button", name="Switch to the light theme").click()
        expect(page.locator("body")).not_to_have_class(re.compile(r"\bdark\b"))
        page.get_by_role("tab", name="Inspect").click()
        set_regex(page, "")
        expect(page.locator("#pattern-note")).to_contain_text("empty")
        add_reward(page, "A reward model")
        expect(page.locator("#model-add")).to_be_visible()
        every_tab_is_in_order(page, 1280)


def every_tab_is_in_order(page: Page, width: int) -> None:
    for tab, seen in (("Inspect", "#regex"), ("Train", "#start"), ("Runs", "#runs-empty"), ("Help", "#help-sum")):
        page.get_by_role("tab", name=tab).click()
        expect(page.locator(seen)).to_be_visible()
        assert serious(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") == width


# ── the whole loop by keyboard ───────────────────────────────────────────────────────────────────────────────────

CONTROLS = """() => {
  const named = (node) => `${node.closest("[id]").id} ${node.tagName}`;
  globalThis.reached = new Set();
  document.addEventListener("focusin", (event) => { reached.add(named(event.target)); });
  return [...document.querySelectorAll("#inspect-tab *")]
    .filter((node) => node.matches("button, input, textarea, select, summary, [tabindex]"))
    .filter((node) => node.checkVisibility({ visibilityProperty: true }) && !node.disabled && node.tabIndex >= 0)
    .map(named);
}"""
FOCUS = """(wanted) => {
  const node = document.activeElement;
  if (node.matches(wanted)) return "there";
  const marked = [node, ...(node.closest(".wrap") ? [node.closest(".wrap")] : [])].map((one) => getComputedStyle(one));
  const isSeen = marked.some((style) => style.outlineStyle !== "none" || style.boxShadow !== "none");
  return node === document.body || isSeen ? "seen" : `${node.tagName} in #${node.closest("[id]")?.id} shows no focus`;
}"""
ALL_POINTS = """() => {
  const { data, calcdata } = document.querySelector(".curve[data-panel=length] .plot");
  return data[0].x.length > 2 && calcdata[0].length === data[0].x.length;
}"""
"""What was added to a curve is drawn, too."""


def tab_to(page: Page, wanted: str, key: str = "Tab") -> None:
    """Go there by one key; each stop before it is seen to have the focus."""
    for _ in range(150):
        at = page.evaluate(FOCUS, wanted)
        if at == "there":
            return
        assert at == "seen", f"on the way to {wanted}: {at}"
        page.keyboard.press(key)
    raise AssertionError(f"{wanted} is not reached by {key}")


def enter(page: Page, wanted: str, text: str) -> None:
    """Go to a field and replace what it holds."""
    tab_to(page, wanted)
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)


def press(page: Page, wanted: str, key: str = "Tab") -> None:
    """Go to a button by one key, and press it."""
    tab_to(page, wanted, key)
    page.keyboard.press("Enter")


def choose_item(page: Page, name: str) -> None:
    """Choose from the menu that is open."""
    while name not in page.evaluate("document.activeElement.textContent"):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")


@pytest.mark.training
def test_the_whole_loop_goes_by_keyboard(browser: Browser, app: App, workspace: Path) -> None:
    """Pattern, reward, sample, pin, label, train, stop, open, rollouts, back: focus is seen, and lost by no redraw."""
    with visit(browser, app.url, width=1440, height=900) as page:
        expect_rollouts(page, 8)
        from_a_pattern_to_a_label(page)
        press(page, "#train-tab-button")  # past the end, and the beginning
        a_run_starts_as_it_was_typed(page, workspace)
        expect(page.locator(".curve[data-panel=rewards] .main-svg").first).to_be_visible()
        expect_rollouts(page, 8, "#run-heatmap")
        expect(page.locator(".curve[data-panel=length] output").first).to_have_text(re.compile(r"\d"))
        what_is_drawn_is_what_was_stored(page, RunDir(workspace / "runs" / "live"))
        a_reload_keeps_the_run_the_step_and_the_theme(page)
        press(page, "#stop", "Shift+Tab")
        expect(page.locator("#run-message")).to_be_focused()
        expect(page.locator("#run-state")).to_have_text("stopped")
        expect(page.locator("#run-state")).to_be_focused()
        expect(page.locator("#run-message")).to_contain_text("live was stopped at step")
        expect(page.locator("#stop")).to_be_hidden()
        page.wait_for_function(ALL_POINTS)
        a_run_is_looked_at_and_named(page)
        # The stopped run's final checkpoint, or on a slow machine the last it wrote, answers the prompt of Inspect.
        page.get_by_role("tab", name="Train").click()
        page.locator("#inspect-policy").click()
        expect(page.locator("#policy input")).to_have_value(re.compile(r"^run:live(@\d+)?$"))
        expect(page.locator("#title .about")).to_contain_text("sampled from run:live")


def from_a_pattern_to_a_label(page: Page) -> None:
    """And on the way every control of Inspect is reached, the first of all a link past them."""
    controls, keys = page.evaluate(CONTROLS), page.keyboard
    assert len(controls) > 40
    skip = page.get_by_role("link", name="Skip to the heatmap")
    expect(skip).not_to_be_in_viewport()
    tab_to(page, ".skip")
    expect(skip).to_be_in_viewport()
    enter(page, "#regex textarea", r"(?m)^Step \d+:")
    expect(page.locator("#pattern-note")).to_contain_text("finds")
    press(page, "#reward-edit-0")
    code = page.locator("#reward-code .cm-content")
    expect(code).to_be_focused()
    keys.press("Control+a")
    keys.insert_text("def mine(prompt, step, **columns):\n    return float('8' in step)")
    expect(page.locator("#reward-on-0")).to_contain_text("mine")
    expect(code).to_be_focused()
    keys.press("Escape")
    expect(page.locator("#reward-edit-0")).to_be_focused()
    press(page, "#add-reward")
    choose_item(page, "length_and_mistake")
    expect(page.locator("#reward-on-2")).to_contain_text("length_and_mistake")
    tab_to(page, "#reward-edit-0", "Shift+Tab")
    keys.press("Control+Enter")
    expect(page.locator("#title .about")).to_contain_text("seed 1")
    expect(page.locator("#reward-edit-0")).to_be_focused()
    press(page, "#heatmap .step")
    why = page.get_by_role("region", name="Why this colour")
    expect(why).to_contain_text("step 1")
    keys.press("ArrowDown")
    expect(why).to_contain_text("step 2")
    keys.press("n")
    expect(page.locator("#drawing")).to_contain_text("labelled")
    tab_to(page, ".skip")
    assert set(controls) - set(page.evaluate("[...reached]")) == set()
    keys.press("Enter")
    expect(page.locator("#heatmap .step:focus")).to_be_in_viewport()


def a_run_starts_as_it_was_typed(page: Page, workspace: Path) -> None:
    """Also where an earlier change is not answered yet. A value that is refused is marked where it stands."""
    expect(page.locator("#inherited")).to_contain_text("mine (edited), answer_correctness, length_and_mistake")
    enter(page, "#method-beta input", "-1")
    press(page, "#start")
    expect(page.locator("#start-note")).to_contain_text("method.beta")
    expect(page.locator("#method-beta.wrong input")).to_have_attribute("aria-invalid", "true")
    held: list[Route] = []
    page.route("**/gradio_api/run/predict*", lambda route: route.continue_() if held else held.append(route))
    tab_to(page, "#steps input", "Shift+Tab")
    enter(page, "#steps input", "500")
    enter(page, "#method-prompts-per-step input", "1")
    enter(page, "#method-beta input", "0.04")
    enter(page, "#run-name :is(input, textarea)", "live")
    press(page, "#start")
    expect(page.locator("#run-state")).to_have_text("running")
    expect(page.locator("#start")).to_be_focused()
    held[0].continue_()
    config = RunConfig.from_yaml((workspace / "runs" / "live" / "run.yaml").read_text())
    assert (config.run.steps, config.method.beta) == (500, 0.04)


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
        assert np.array(drawn, dtype=np.float32).tobytes() == stored.of(i).tobytes()


def a_reload_keeps_the_run_the_step_and_the_theme(page: Page) -> None:
    page.get_by_role("button", name="Switch to the dark theme").click()
    page.reload()
    expect(page.locator("#run-picker")).to_have_value("live")
    expect(page.locator("#step-shown")).to_have_text("1")
    expect_rollouts(page, 8, "#run-heatmap")
    expect(page.get_by_role("button", name="Switch to the light theme")).to_be_visible()
    expect(page.locator("body")).to_have_class(re.compile(r"\bdark\b"))


def a_run_is_looked_at_and_named(page: Page) -> None:
    press(page, "#runs-tab-button", "Shift+Tab")
    press(page, "#runs tbody th .link")
    expect(page.locator("#run-state")).to_be_focused()
    press(page, "#run-heatmap .step")
    expect(page.locator("#live").get_by_role("region", name="Why this colour")).to_be_visible()
    page.go_back()
    expect(page.locator("#runs-tab-button")).to_be_focused()
    press(page, "#runs tbody .row-menu")
    choose_item(page, "Name, tags and note")
    expect(page.locator(".about-run input").first).to_be_focused()
    assert serious(page, "#runs") == []
    page.keyboard.press("Escape")
    expect(page.locator("#runs tbody .row-menu").first).to_be_focused()
