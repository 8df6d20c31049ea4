"""Links, files, notebook code, Help, access and the states of Inspect, in a real Chromium."""

import base64
import re
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browsing import (
    App,
    add_reward,
    children,
    expect_no_wrapped_steps,
    expect_rollouts,
    serious,
    share,
    stopped,
    visit,
    write_reward,
)

pytestmark = pytest.mark.browser

CARDS = "#drawing .rollout:not(.streaming)"
CHIPS = f"{CARDS} .chip"
PATTERN = r"(?m)^(?:Step \d+|Answer):"
"""What the page opens with."""


@pytest.fixture
def page(page: Page) -> Page:
    """The page as it opens, with a clipboard."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    return page


def advantages(page: Page) -> bytes:
    rows = page.evaluate("document.querySelector('#heatmap').heatmap.data.rollouts.map(r => r.advantages)")
    return b"".join(np.array(row, np.float32).tobytes() for row in rows)


def clipboard(page: Page) -> str:
    return page.evaluate("navigator.clipboard.readText()")


def choose(page: Page, box: str, option: str) -> None:
    page.locator(f"{box} input").click()
    page.locator(f"li[role=option][aria-label='{option}']").click()


def exported(page: Page, kind: str, folder: Path) -> Path:
    with page.expect_download() as download:
        share(page, f"export-{kind}")
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path


def code_of(page: Page, box: str) -> str:
    return page.locator(f"{box} pre").inner_text()


# ── taking Inspect along ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_link_and_a_reload_bring_everything_back(page: Page, browser: Browser) -> None:
    a_link_shows_the_same_in_another_browser(page, browser)


def a_link_shows_the_same_in_another_browser(page: Page, browser: Browser) -> None:
    page.locator("#example-next").click()
    expect(page.locator("#example input")).to_have_value("2")
    page.locator("#max-tokens input").fill("60")
    page.locator("#sample").click()
    expect(page.locator("#title .about")).to_contain_text("seed 1")
    choose(page, "#scheme", "mean_suffix")
    page.wait_for_function("location.search.includes('mean_suffix')")
    card = page.locator(CARDS).nth(1)
    number = int(card.get_attribute("data-g") or "") + 1
    card.locator(".chip").nth(1).click()
    share(page, "copy-link")
    expect(page.locator("#share-tools .said")).to_have_text("Link copied.")
    link = clipboard(page)
    assert "token" not in link
    with visit(browser, link, apart=True) as other:
        details = other.get_by_role("region", name="Why this colour")
        expect(details.locator(".where")).to_contain_text(f"rollout {number} · step 2")
        expect(other.locator("#example input")).to_have_value("2")
        expect(other.locator("#scheme input")).to_have_value("mean_suffix")
        assert advantages(other) == advantages(page)


def test_what_is_on_screen_is_explained_and_taken_along(page: Page, browser: Browser, tmp_path: Path) -> None:
    help_has_the_live_numbers_of_the_pinned_token(page)
    page.get_by_role("tab", name="Inspect").click()
    files_hold_what_is_on_screen(page, browser, tmp_path)
    the_picture_is_of_the_drawing(page, tmp_path)
    notebook_code_is_copied_and_gives_the_same_numbers(page)


def help_has_the_live_numbers_of_the_pinned_token(page: Page) -> None:
    page.get_by_role("tab", name="Help").click()
    expect(page.locator("#help-live")).to_contain_text("the first token")
    expect(page).to_have_url(re.compile("tab=help"))
    page.go_back()  # from the first change of tabs on
    expect(page.get_by_role("tab", name="Inspect")).to_have_attribute("aria-selected", "true")
    expect(page).not_to_have_url(re.compile("tab=help"))
    page.locator(f"{CARDS}[data-g='2'] .chip").nth(1).click()
    total = page.locator("#heatmap .sum-of tfoot td").text_content()
    assert total
    page.get_by_role("tab", name="Help").click()
    expect(page.locator("#help-live")).to_contain_text("the pinned token, rollout 3, step 2")
    expect(page.locator("#help-sum")).to_contain_text(total.replace("+", ""))
    page.get_by_label("Find a metric").fill("kl/k")
    expect(page.locator("#help-metrics tbody tr:visible")).to_have_count(3)


def files_hold_what_is_on_screen(page: Page, browser: Browser, tmp_path: Path) -> None:
    choose(page, "#scheme", "return")
    page.wait_for_function("document.querySelector('#heatmap').heatmap.data.scheme === 'return'")
    files = {kind: exported(page, kind, tmp_path) for kind in ("html", "png", "json", "steps", "tokens")}
    assert files["html"].name == "group-tiny-return-G8-seed0.html"
    head = files["png"].read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(head[16:20]) > 1000  # as wide as the drawing, at two pixels a point
    with visit(browser, files["html"].as_uri()) as alone:
        expect_rollouts(alone, 8, ".wh")
        expect(alone.locator(".legend")).to_be_visible()
        expect(alone.locator(".prompt")).to_have_text("Start with 7, add 3, multiply by 8, add 8, subtract 7, add 7.")
        loaded = (
            "document.fonts.ready.then((all) => [...all].filter((f) => f.status === 'loaded').map((f) => f.family))"
        )
        assert {"Inter", "JetBrains Mono"} <= {name.strip('"') for name in alone.evaluate(loaded)}
        expect_no_wrapped_steps(alone)


def the_picture_is_of_the_drawing(page: Page, tmp_path: Path) -> None:
    page.locator("body").evaluate("node => node.classList.add('dark')")
    path = exported(page, "png", tmp_path)
    page.locator("body").evaluate("node => node.classList.remove('dark')")
    colours = page.evaluate(
        """async (url) => {
          const image = new Image(); image.src = url; await image.decode();
          const canvas = document.createElement("canvas");
          [canvas.width, canvas.height] = [image.width, image.height];
          const context = canvas.getContext("2d"); context.drawImage(image, 0, 0);
          const { data } = context.getImageData(0, 0, image.width, image.height);
          const seen = new Set();
          for (let i = 0; i < data.length; i += 4 * 97) seen.add(`${data[i]},${data[i + 1]},${data[i + 2]}`);
          return [seen.size, [...data.slice(0, 3)].join()];
        }""",
        f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}",
    )
    assert colours[0] > 20
    assert colours[1] == "14,16,19"  # the dark page's own colour


def notebook_code_is_copied_and_gives_the_same_numbers(page: Page) -> None:
    page.locator("#notebook").click()
    expect(page.locator("#notebook-code .said")).to_have_text("Copied.")
    code = clipboard(page)
    assert code.strip() == code_of(page, "#notebook-code").strip()


# ── access ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_everybody_can_use_every_part(browser: Browser, app: App, workspace: Path) -> None:
    with visit(browser, app.url, apart=True, color_scheme="dark", reduced_motion="reduce") as page:
        expect_rollouts(page, 8)
        assert page.evaluate("getComputedStyle(document.querySelector('.wh .cards')).transitionDuration") == "0s"
        every_control_can_be_reached_by_keyboard_and_shows_its_focus(page)
        add_reward(page, "Your own step function")
        expect(page.locator("#reward-code .cm-content[tabindex='0']")).to_be_visible()
        write_reward(page, "# read in the dark, too\ndef mine(prompt, step, **columns):\n    return 1.0")
        expect(page.locator("#reward-on-2")).to_contain_text("mine")
        assert serious(page) == []
        page.locator("#editor-done").click()  # the editor stands where the cards do
        page.set_viewport_size({"width": 390, "height": 844})
        page.get_by_role("button", name="Show controls").locator("visible=true").click()
        expect(page.locator("body")).to_have_class(re.compile(r"\bdark\b"))
        axe_finds_nothing_serious(page, 390)
        page.set_viewport_size({"width": 1280, "height": 860})
        page.get_by_role("button", name="Switch to the light theme").click()
        expect(page.locator("body")).not_to_have_class(re.compile(r"\bdark\b"))
        axe_finds_nothing_serious(page, 1280)


NAMES = """() => {
  const named = (node) => `${node.closest("[id]").id} ${node.tagName}`;
  globalThis.reached = new Set();
  document.addEventListener("focusin", (event) => { reached.add(named(event.target)); });
  return [...document.querySelectorAll("#inspect-tab *")]
    .filter((node) => node.matches("button, input, textarea, select, summary, [tabindex]"))
    .filter((node) => node.checkVisibility({ visibilityProperty: true }) && !node.disabled && node.tabIndex >= 0)
    .map(named);
}"""


def every_control_can_be_reached_by_keyboard_and_shows_its_focus(page: Page) -> None:
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


FOCUS = """(wanted) => {
  const node = document.activeElement;
  if (node.matches(wanted)) return "there";
  const marked = [node, ...(node.closest(".wrap") ? [node.closest(".wrap")] : [])].map((one) => getComputedStyle(one));
  const isSeen = marked.some((style) => style.outlineStyle !== "none" || style.boxShadow !== "none");
  return node === document.body || isSeen ? "seen" : `${node.tagName} in #${node.closest("[id]")?.id} shows no focus`;
}"""


def axe_finds_nothing_serious(page: Page, width: int) -> None:
    """In any tab, and nothing scrolls sideways."""
    page.get_by_role("tab", name="Inspect").click()
    page.locator("#regex textarea").fill(PATTERN)
    expect(page.locator("#drawing .stale")).to_be_hidden()
    page.locator(CHIPS).nth(2).click()
    expect(page.get_by_role("region", name="Why this colour")).to_be_visible()
    page.locator("#regex textarea").fill("")
    expect(page.locator("#pattern-note")).to_contain_text("the pattern is empty")
    page.locator("#notebook").click()
    expect(page.locator("#notebook-code")).to_contain_text("There is no code")
    assert serious(page) == []
    for tab, seen in (("Train", "#start"), ("Runs", "#runs-empty"), ("Help", "#help-sum")):
        page.get_by_role("tab", name=tab).click()
        expect(page.locator(seen)).to_be_visible()
        assert serious(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") == width


def test_the_whole_loop_goes_by_keyboard(browser: Browser, app: App, workspace: Path) -> None:
    """Pattern, reward, sample, pin, label, train, stop, open, rollouts, back: focus is seen, and lost by no redraw."""
    with visit(browser, app.url, width=1440, height=900, apart=True, color_scheme="dark") as page:
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
        expect(page.locator("#title .about")).to_contain_text("sampled from tiny, temperature 1, seed 1")
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


def tab_to(page: Page, wanted: str, key: str = "Tab") -> None:
    """Go there by one key; each stop before it is seen to have the focus."""
    for _ in range(150):
        at = page.evaluate(FOCUS, wanted)
        if at == "there":
            return
        assert at == "seen", f"on the way to {wanted}: {at}"
        page.keyboard.press(key)
    raise AssertionError(f"{wanted} is not reached by {key}")


# ── states ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_fails_is_said_and_the_page_goes_on(browser: Browser, app: App) -> None:
    with visit(browser, f"{app.url}?task=/etc/passwd&saved=0123456789abcdef&scheme=step") as page:
        a_link_that_cannot_be_had_says_so(page)
        a_reward_worker_that_died_is_started_again(page, app)
        a_policy_worker_that_dies_while_sampling_is_said_and_the_group_stays(page, app)


def a_link_that_cannot_be_had_says_so(page: Page) -> None:
    expect(page.locator("#restore-note")).to_contain_text("not built in")
    expect(page.locator("#restore-note")).to_contain_text("not kept in this workspace")
    expect(page.locator("#scheme input")).to_have_value("step")
    expect_rollouts(page, 8)


def a_reward_worker_that_died_is_started_again(page: Page, app: App) -> None:
    before = advantages(page)
    page.locator("#regex textarea").fill(r"(?m)^(?:Answer|Step \d+):")  # of one's own: matched outside the app
    expect(page.locator("#preset input")).to_have_value("custom")
    expect(page.locator("#drawing .stale")).to_be_hidden()
    kill_sandbox(app)
    page.locator("#regex textarea").fill(r"(?m)^Step\s\d+:")
    page.wait_for_function("document.querySelector('#heatmap').heatmap.data.rollouts[0].steps.length === 5")
    expect(page.locator("#drawing .stale")).to_be_hidden()
    page.locator("#regex textarea").fill(r"(?m)^(?:Step \d+|Answer):")
    page.wait_for_function("document.querySelector('#heatmap').heatmap.data.rollouts[0].steps.length === 6")
    assert advantages(page) == before


def kill_sandbox(app: App) -> None:
    """Kill the newest while nothing is asked of it; of one that dies while it works the page tells."""
    killed = children(app, "sandbox-")[-1]
    killed.kill()
    while killed in children(app, "sandbox-"):  # a process that is told to die takes a moment on a busy machine
        pass


def a_policy_worker_that_dies_while_sampling_is_said_and_the_group_stays(page: Page, app: App) -> None:
    expect(page.locator("#policy-status:is(.ready, .unloaded)")).to_be_visible()
    before = advantages(page)
    page.locator("#generations input").fill("64")
    page.locator("#max-tokens input").fill("160")
    with stopped(app, "policies.worker") as worker:
        page.locator("#sample").click()
        expect(page.locator("#cancel")).to_be_enabled()
        worker.kill()
    expect(page.locator("#sample-note")).to_contain_text(re.compile("died|ended|exited|signal"))
    expect_rollouts(page, 8)
    assert advantages(page) == before
    page.locator("#generations input").fill("2")
    page.locator("#max-tokens input").fill("60")
    page.locator("#sample").click()
    expect_rollouts(page, 2)
    expect(page.locator("#sample")).to_be_enabled()
