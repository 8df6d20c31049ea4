"""What is typed while the page opens, or in the moment that a part of it opens, stays."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browsing import (
    CALM,
    SECONDS,
    App,
    add_own_reward,
    busy_machine,
    choose,
    expect_rollouts,
    heard,
    is_event,
    show_more,
    visit,
    with_token,
    write_reward,
)

pytestmark = pytest.mark.browser

REGEX = "#regex textarea"
NOWHERE = "0123456789abcdef"
"""A link names this group, and nothing holds it."""
EVENTS = "**/gradio_api/run/predict*"


@contextmanager
def held_back(page: Page) -> Iterator[None]:
    """The page's events reach the app when the block ends. The route stays: a request that is on it as it is removed
    is answered twice."""
    waiting: list[Route] = []
    holds = True

    def hold(route: Route) -> None:
        if holds:
            waiting.append(route)
        else:  # what the first answers ask for
            route.continue_()

    page.route(EVENTS, hold)
    yield
    holds = False
    for route in waiting:
        route.continue_()


TYPE_AT_ONCE = """([opener, field]) => new Promise((resolve) => {
  const frames = (count, then) => (count ? requestAnimationFrame(() => frames(count - 1, then)) : then());
  const input = () => document.querySelector(field);
  const { port1, port2 } = new MessageChannel(); // its messages come as often as the browser can, between frames too
  const began = performance.now();
  port1.onmessage = () => {
    if (!input()?.checkVisibility({ visibilityProperty: true })) {
      const there = (seen) => [...document.querySelectorAll(seen)].map((node) => node.outerHTML);
      if (performance.now() - began < 60_000) port2.postMessage(0);
      else resolve(`${field} stays hidden: ${there(`${opener}, #more > button, [role=tab], ${field}`)}`);
      return;
    }
    input().value = "77";
    input().dispatchEvent(new Event("input", { bubbles: true }));
    frames(5, () => resolve(input().value));
  };
  // Gradio folds a part again that is pressed before the first frame that shows it: nobody can.
  frames(1, () => setTimeout(() => {
    document.querySelector(opener).click();
    port2.postMessage(0);
  }));
})"""
"""Opens a part of the page and types into a field the moment that it can be seen; what the field holds frames later."""


COUNT_FRAMES = """window.framesAsked = 0;
const frame = window.requestAnimationFrame;
window.requestAnimationFrame = (callback) => { window.framesAsked++; return frame(callback); };"""
NO_FRAME = "() => { const asked = window.framesAsked; window.framesAsked = 0; return asked === 0; }"
"""Asked once a second, whether anything was animated since."""


@pytest.mark.usefixtures("workspace")  # a run that another test left is opened on Train, and again after a reload
def test_invariant_no_answer_of_the_page_sets_a_value_that_somebody_may_be_typing(browser: Browser, app: App) -> None:
    with browser.contexts[0].new_page() as page:
        page.set_default_timeout(SECONDS)
        page.add_init_script(COUNT_FRAMES)
        with held_back(page):
            with page.expect_request(is_event):
                page.goto(with_token(f"{app.url}?task=chain-arithmetic-tags&example=2&scheme=outcome&saved={NOWHERE}"))
            expect(page.locator(REGEX)).to_have_count(1)
            expect(page.locator(REGEX)).to_be_hidden()
        page.locator(REGEX).fill("mine")  # as soon as it can be
        expect(page.locator("#restore-note")).to_contain_text(NOWHERE)
        expect(page.locator("#drawing .summary")).to_contain_text("no step found in 8 of 8")
        expect(page.locator("#example input")).to_have_value("2")
        expect(page.locator("#scheme input")).to_have_value("outcome")
        expect(page.locator(REGEX)).to_have_value("mine")
        with busy_machine():
            what_is_typed_after_the_fields_before_were_left_stays(page)
        page.wait_for_function(NO_FRAME, polling=1000)  # a page that nobody touches rests

        page.emulate_media(reduced_motion="reduce")
        with held_back(page):
            with page.expect_request(is_event):
                page.reload()
            expect(page.locator(REGEX)).to_have_count(1)
        page.locator("#seed input").fill("77")
        expect(page.locator("#drawing .summary")).to_contain_text("no step found in 8 of 8")
        expect(page.locator(REGEX)).to_have_value("mine")
        expect(page.locator("#seed input")).to_have_value("77")
        a_row_goes_while_what_went_before_is_answered(page)
        what_a_run_would_take_is_told_of_what_is_chosen_last(page)
        page.get_by_role("tab", name="Inspect").click()
        page.locator("#train-tab-button").wait_for(state="attached")
        assert page.evaluate(TYPE_AT_ONCE, ["#train-tab-button", "#steps input"]) == "77"


def what_is_typed_after_the_fields_before_were_left_stays(page: Page) -> None:
    """A field of choices says that it was chosen from whenever it is left: that changes no text that is typed since."""
    for field, shown in (("#preset input", r"(?m)^Step \d+:"), ("#kind input", r"\d+")):
        page.locator(REGEX).fill(shown)
        expect(page.locator("#preset input")).to_have_value("custom" if field == "#kind input" else "step-n")
        page.locator(field).focus()
        with held_back(page):
            with page.expect_request(is_event):
                page.locator(REGEX).focus()
            page.locator(REGEX).fill("mine")
        expect(page.locator("#pattern-note")).to_contain_text("no match")
        expect(page.locator(REGEX)).to_have_value("mine")


HOLD = """const asked = window.fetch;
window.fetch = async (...asking) => {
  const answer = await asked(...asking);
  if (window.holds && (await answer.clone().text()).includes(window.holds)) {
    window.holds = "";
    await new Promise((then) => { window.arrive = then; });
  }
  return answer;
};"""
"""An answer of the app's with the text that it ``holds`` is on its way until ``arrive()``."""


def test_what_is_changed_in_rows_while_the_list_is_replaced_stays(browser: Browser, app: App) -> None:
    """A row that stays is as it was typed; what replaces the weight of the answer replaces that alone."""
    with visit(browser, app.url, script=HOLD) as page:
        expect_rollouts(page, 8)
        add_own_reward(page, "def same(prompt, step, **columns):\n    return 1.0\n")
        expect(page.locator("#reward-note-2")).to_contain_text("each step")
        page.wait_for_function(CALM)
        page.evaluate(r"window.holds = 'outcome_weight\\\": 1'")
        page.get_by_role("button", name="Count it too").click()
        page.wait_for_function("Boolean(window.arrive)")
        page.locator("#reward-on-0 input").uncheck()
        page.locator("#reward-weight-2 input").fill("0.5")
        write_reward(page, "def another(prompt, step, **columns):\n    return 1.0\n")
        page.evaluate("window.arrive()")
        expect(page.locator("#reward-weight-1 input")).to_have_value("1")
        expect(page.locator("#reward-on-0 input")).not_to_be_checked()
        expect(page.locator("#reward-on-2")).to_contain_text("another")
        expect(page.locator("#reward-weight-2 input")).to_have_value("0.5")
        expect(page.locator("#reward-code .cm-content")).to_contain_text("def another")
        what_is_typed_while_fields_are_replaced_stays_and_undoes_no_other(page)


def what_is_typed_while_fields_are_replaced_stays_and_undoes_no_other(page: Page) -> None:
    """The page sends all fields of the form, of which it has yet to show those that are replaced."""
    size, temperature = page.locator("#generations input"), page.locator("#temperature input")
    size.fill("4")
    thinking = page.locator("#leave-out-thinking input")
    thinking.check()
    page.wait_for_url(re.compile("num_generations.*leave_out|leave_out.*num_generations"))
    show_more(page)
    page.evaluate("window.holds = 'Reset to defaults'; window.arrive = null")
    page.locator("#start-over").click()
    page.wait_for_function("Boolean(window.arrive)")
    with page.expect_response(lambda answer: is_event(answer.request)):
        temperature.fill("0.3")
    page.evaluate("window.arrive()")
    expect(size).to_have_value("8")
    expect(page).not_to_have_url(
        re.compile("num_generations|leave_out")
    )  # what was sent before it was shown is not kept
    page.wait_for_url(re.compile("temperature%22%3A0.3"))
    page.reload()
    expect_rollouts(page, 8)
    expect(size).to_have_value("8")
    expect(temperature).to_have_value("0.3")
    expect(thinking).not_to_be_checked()


def a_row_goes_while_what_went_before_is_answered(page: Page) -> None:
    """The list is one value: what is sent last has both changes, and no answer brings a row back."""
    with heard(page), held_back(page):
        with page.expect_request(is_event):
            page.locator("#reward-remove-0").click()
        page.locator("#reward-remove-0").click()
    expect(page.locator("#reward-remove-1")).to_have_count(0)  # of three
    expect(page.locator("#reward-on-0")).to_contain_text("tag_format")


def what_a_run_would_take_is_told_of_what_is_chosen_last(page: Page) -> None:
    """Also where an earlier question would be answered after it."""
    asked: list[Route] = []
    holds = True

    def hold(route: Route) -> None:
        if holds:
            asked.append(route)
        else:
            route.continue_()

    page.get_by_role("tab", name="Train").click()
    expect(page.locator("#estimate dt").first).to_be_visible()
    expect(page.locator("#method input")).to_be_visible()
    page.route(EVENTS, hold)
    with page.expect_request(is_event):
        page.get_by_role("tab", name="Inspect").click()
        page.get_by_role("tab", name="Train").click()
    with page.expect_request(is_event):
        choose(page, "method", "dpo")
    holds = False
    for route in reversed(asked):
        with page.expect_response(lambda answer, at=route.request: answer.request == at):
            route.continue_()
    expect(page.locator("#rows-found")).to_have_text("100,000 pairs to train on, 1,000 held out")
    choose(page, "method", "grpo")


def test_a_page_whose_opening_failed_can_be_used(browser: Browser, app: App) -> None:
    with browser.contexts[0].new_page() as page:
        page.set_default_timeout(SECONDS)
        page.route(EVENTS, lambda route: route.fulfill(status=500, json={"error": "made up"}))
        page.goto(with_token(app.url))
        expect(page.locator(REGEX)).to_be_visible()
        page.unroute(EVENTS)
        page.locator(REGEX).fill(r"\n+")
        expect_rollouts(page, 8)
