"""Keyboard, contrast and names for everybody, and a page that goes on when a worker dies, in a real Chromium."""

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browsing import (
    CARDS,
    CHIPS,
    App,
    add_reward,
    advantages,
    children,
    expect_rollouts,
    serious,
    set_regex,
    stopped,
    visit,
    write_reward,
)
from tests.waiting import wait_for

pytestmark = pytest.mark.browser


NAMES = """() => {
  const named = (node) => `${node.closest("[id]").id} ${node.tagName}`;
  globalThis.reached = new Set();
  document.addEventListener("focusin", (event) => { reached.add(named(event.target)); });
  return [...document.querySelectorAll("#inspect-tab *")]
    .filter((node) => node.matches("button, input, textarea, select, summary, [tabindex]"))
    .filter((node) => node.checkVisibility({ visibilityProperty: true }) && !node.disabled && node.tabIndex >= 0)
    .map(named);
}"""


def test_every_control_is_reached_by_keyboard_and_shows_its_focus(page: Page) -> None:
    wanted = page.evaluate(NAMES)
    assert len(wanted) > 40
    page.locator("#theme").focus()
    for _ in range(len(wanted) + 20):
        page.keyboard.press("Tab")
    assert set(wanted) - set(page.evaluate("[...reached]")) == set()
    page.locator(f"{CARDS} .step").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    skip = page.get_by_role("link", name="Skip to the heatmap")
    expect(skip).not_to_be_in_viewport()
    skip.focus()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("#heatmap .step:focus")).to_be_in_viewport()


@pytest.mark.usefixtures("workspace")
def test_axe_finds_nothing_serious_in_any_tab_by_night_on_a_phone_and_by_day(browser: Browser, app: App) -> None:
    with visit(browser, app.url, apart=True, color_scheme="dark", reduced_motion="reduce") as page:
        expect_rollouts(page, 8)
        assert page.evaluate("getComputedStyle(document.querySelector('.wh .cards')).transitionDuration") == "0s"
        add_reward(page, "Your own step function")
        expect(page.locator("#reward-code .cm-content[tabindex='0']")).to_be_visible()
        write_reward(page, "# read in the dark, too\ndef mine(prompt, step, **columns):\n    return 1.0")
        expect(page.locator("#reward-on-2")).to_contain_text("mine")
        assert serious(page) == []
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


FOCUS = """(wanted) => {
  const node = document.activeElement;
  if (node.matches(wanted)) return "there";
  const marked = [node, ...(node.closest(".wrap") ? [node.closest(".wrap")] : [])].map((one) => getComputedStyle(one));
  const isSeen = marked.some((style) => style.outlineStyle !== "none" || style.boxShadow !== "none");
  return node === document.body || isSeen ? "seen" : `${node.tagName} in #${node.closest("[id]")?.id} shows no focus`;
}"""


def tab_to(page: Page, wanted: str, key: str = "Tab") -> None:
    """Go there by one key; each stop before it is seen to have the focus."""
    for _ in range(150):
        at = page.evaluate(FOCUS, wanted)
        if at == "there":
            return
        assert at == "seen", f"on the way to {wanted}: {at}"
        page.keyboard.press(key)
    raise AssertionError(f"{wanted} is not reached by {key}")


@pytest.mark.usefixtures("workspace")
def test_the_whole_loop_goes_by_keyboard(browser: Browser, app: App) -> None:
    """Pattern, reward, sample, pin, label, train, stop, open, rollouts, back: focus is seen, and lost by no redraw."""
    with visit(browser, app.url, width=1440, height=900) as page:
        expect_rollouts(page, 8)
        keys = page.keyboard
        tab_to(page, "#regex textarea")
        keys.press("Control+a")
        keys.insert_text(r"(?m)^Step \d+:")
        expect(page.locator("#pattern-note")).to_contain_text("finds")
        tab_to(page, "#reward-edit-0")
        keys.press("Enter")
        code = page.locator("#reward-code .cm-content")
        expect(code).to_be_focused()
        keys.press("Control+a")
        keys.insert_text("def mine(prompt, step, **columns):\n    return float('8' in step)")
        expect(page.locator("#reward-on-0")).to_contain_text("mine")
        expect(code).to_be_focused()
        keys.press("Escape")
        expect(page.locator("#reward-edit-0")).to_be_focused()
        tab_to(page, "#add-reward")
        keys.press("Enter")
        while "length_and_mistake" not in page.evaluate("document.activeElement.textContent"):
            keys.press("ArrowDown")
        keys.press("Enter")
        expect(page.locator("#reward-on-2")).to_contain_text("length_and_mistake")
        tab_to(page, "#reward-edit-0", "Shift+Tab")
        keys.press("Control+Enter")
        expect(page.locator("#title .about")).to_contain_text("seed 1")
        expect(page.locator("#reward-edit-0")).to_be_focused()
        tab_to(page, "#heatmap .step")
        keys.press("Enter")
        why = page.get_by_role("region", name="Why this colour")
        expect(why).to_contain_text("step 1")
        keys.press("ArrowDown")
        expect(why).to_contain_text("step 2")
        keys.press("n")
        expect(page.locator("#drawing")).to_contain_text("labelled")
        tab_to(page, "#train-tab-button", "Shift+Tab")
        keys.press("Enter")
        tab_to(page, "#start")
        keys.press("Enter")
        expect(page.locator("#run-state")).to_have_text("running")
        expect(page.locator("#start")).to_be_focused()
        tab_to(page, "#stop")
        keys.press("Enter")
        expect(page.locator("#run-message")).to_be_focused()
        expect(page.locator("#run-state")).to_have_text("stopped")
        expect(page.locator("#run-state")).to_be_focused()
        tab_to(page, "#runs-tab-button", "Shift+Tab")
        keys.press("Enter")
        tab_to(page, "#runs tbody th .link")
        keys.press("Enter")
        expect(page.locator("#run-state")).to_be_focused()
        tab_to(page, "#run-heatmap .step")
        keys.press("Enter")
        expect(page.locator("#live").get_by_role("region", name="Why this colour")).to_be_visible()
        page.go_back()
        expect(page.locator("#runs-tab-button")).to_be_focused()
        tab_to(page, "#runs tbody .row-menu")
        keys.press("Enter")
        named = page.get_by_role("menuitem", name="Name, tags and note")
        while not named.evaluate("node => node === document.activeElement"):
            keys.press("ArrowDown")
        keys.press("Enter")
        expect(page.locator(".about-run input").first).to_be_focused()
        assert serious(page) == []
        keys.press("Escape")
        expect(page.locator("#runs tbody .row-menu").first).to_be_focused()


# ── what fails ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_link_that_cannot_be_had_says_so(browser: Browser, app: App) -> None:
    with visit(browser, f"{app.url}?task=/etc/passwd&saved=0123456789abcdef&scheme=step") as page:
        expect(page.locator("#restore-note")).to_contain_text("/etc/passwd")
        expect(page.locator("#scheme input")).to_have_value("step")
        expect_rollouts(page, 8)


def test_a_reward_worker_that_died_is_started_again(page: Page, app: App) -> None:
    before, steps = advantages(page), "document.querySelector('#heatmap').heatmap.data.rollouts[0].steps.length === "
    set_regex(page, r"(?m)^(?:Answer|Step \d+):")  # of one's own: matched outside the app
    expect(page.locator("#preset input")).to_have_value("custom")
    expect(page.locator("#drawing .stale")).to_be_hidden()
    killed = children(app, "sandbox-")[-1]  # nothing is asked of it; of one that dies while it works the page tells
    killed.kill()
    wait_for(lambda: killed not in children(app, "sandbox-"), "its end")
    set_regex(page, r"(?m)^Step\s\d+:")
    page.wait_for_function(f"{steps} 5")
    set_regex(page, r"(?m)^(?:Step \d+|Answer):")
    page.wait_for_function(f"{steps} 6")
    assert advantages(page) == before


def test_a_policy_worker_that_dies_while_sampling_is_said_and_the_group_stays(page: Page, app: App) -> None:
    expect(page.locator("#policy-status:is(.ready, .unloaded)")).to_be_visible()
    before = advantages(page)
    page.locator("#generations input").fill("2")
    page.locator("#max-tokens input").fill("8")
    with stopped(app, "policies.worker") as worker:
        page.locator("#sample").click()
        expect(page.locator("#cancel")).to_be_enabled()
        worker.kill()
    expect(page.locator("#sample-note")).to_contain_text(re.compile("died|ended|exited|signal"))
    expect_rollouts(page, 8)
    assert advantages(page) == before
    page.locator("#sample").click()
    expect_rollouts(page, 2)
    expect(page.locator("#sample")).to_be_enabled()
