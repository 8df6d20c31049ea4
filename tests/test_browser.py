"""Inspect in a real Chromium, used as a person uses it."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browsing import (
    CARDS,
    CHIPS,
    PATTERN,
    App,
    add_own_reward,
    choose,
    expect_no_wrapped_steps,
    expect_rollouts,
    set_regex,
    stopped,
)

pytestmark = pytest.mark.browser


def test_a_pattern_is_typed_or_chosen_by_what_it_finds(page: Page) -> None:
    expect(page.locator(CHIPS)).to_have_count(36)
    set_regex(page, r"(?m)^Step \d+:")  # the answer is no step of its own any more
    expect(page.locator(CHIPS)).to_have_count(30)
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
    expect(page.locator(CHIPS)).to_have_count(36)


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
    expect(page.locator("#regex")).to_be_visible()


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
