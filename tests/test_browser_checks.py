"""Two schemes side by side, probes, undo and pre-flight, driven in a real Chromium."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browsing import App, add_own_reward, choose, close_editor, expect_rollouts, show_more, stopped

pytestmark = pytest.mark.browser

COMPARES_TEXTS = """def extract_answer(text):
    return text.split("<answer>")[-1].split("</answer>")[0].strip()


def compares_texts(completions, answer, **columns):
    return [float(extract_answer(text) == right) for text, right in zip(completions, answer)]
"""
ROLLOUTS = "document.querySelector('#heatmap').heatmap.data.rollouts"


def test_two_schemes_side_by_side(page: Page) -> None:
    choose(page, "b-scheme", "step")
    expect(page.locator(".rollout").first.locator(".pane")).to_have_count(2)
    half = page.locator("#heatmap .overview .cell .b.p, #heatmap .overview .cell .b.n").first
    covers = half.evaluate("node => getComputedStyle(node).backgroundColor")
    assert not re.search(r"/|rgba", covers)  # else it is mixed with the first scheme's colour below it
    shown = f"{ROLLOUTS}.filter(r => r.copyOf === undefined)"
    flipped = page.evaluate(f"{shown}.flatMap(r => r.advantages.filter((a, t) => a * r.twin.advantages[t] < 0)).length")
    assert flipped > 0
    expect(page.locator("#heatmap .text:not(.second) i.flips")).to_have_count(flipped)  # out of sight after a pause
    # The details explain both, and each sum is the number that is drawn.
    page.locator(".rollout[data-g='2']").locator(".text.second i").nth(12).click()
    expect(page.locator(".details .reason:not(.loss-reason)")).to_have_count(2)
    drawn = page.evaluate(f"[{ROLLOUTS}[2].advantages[12], {ROLLOUTS}[2].twin.advantages[12]]")
    for said, value in zip(page.locator(".details .parts tfoot td").all_inner_texts(), drawn, strict=True):
        assert float(said.replace("−", "-")) == pytest.approx(value, abs=0.005)
    # The difference, in one pane.
    page.locator(".colour-by").select_option("difference")
    expect(page.locator(".rollout").first.locator(".pane.b")).to_be_hidden()
    choose(page, "b-scheme", "none")
    expect(page.locator(".pane")).to_have_count(0)


def test_an_option_changes_the_drawing_and_a_bad_one_keeps_it(page: Page) -> None:
    page.get_by_role("button", name="Advanced credit").first.click()
    choose(page, "credit-normalise", "leave_one_out")
    page.wait_for_function("document.querySelector('#heatmap').heatmap.data.options.normalise === 'leave_one_out'")
    after = page.evaluate(f"{ROLLOUTS}.map(r => r.advantages)")
    page.locator("#credit-gamma input").fill("7")
    expect(page.locator("#credit-note")).to_contain_text("gamma")
    assert page.evaluate(f"{ROLLOUTS}.map(r => r.advantages)") == after


def open_checks(page: Page) -> None:
    if not page.locator("#clinic").is_visible():
        page.locator("#heatmap .summary").get_by_role("button", name="Check this setup").click()


def test_the_clinic_names_a_fault_of_ones_own_reward(page: Page) -> None:
    """What is typed is tried: one fault, said with what was extracted, and what each strategy earns."""
    open_checks(page)
    add_own_reward(page, COMPARES_TEXTS)
    close_editor(page)
    page.locator("#clinic").click()  # at once: the button brings the list of rewards, too
    clinic = page.locator("#clinic-found")
    expect(clinic.locator("li.check").filter(has_text="thousands comma").first).to_be_visible()
    expect(clinic.locator("tr").filter(has_text="near miss").locator("td")).to_have_text(["–", "0", "0", "0"])


def test_a_demo_is_probed_and_what_was_replaced_or_removed_is_brought_back(page: Page) -> None:
    open_checks(page)
    page.locator("#probe-demo").click()
    expect_rollouts(page, 4)
    said, first = page.locator("#undo-note"), page.locator("#reward-on-0")
    expect(first).to_contain_text("sums_and_answer")
    expect(page.locator("#prompt textarea")).to_have_value(re.compile("A box holds 3 pens"))
    page.locator("#probe").click()
    row = page.locator("#probe-found tbody tr").filter(has_text="split a step")
    expect(row.locator("td").first).to_have_text("+1.95 ▲")
    row.get_by_role("button").first.click()
    expect(page.locator("#probe-found p.said")).to_contain_text("+0.48 to +2.44")

    page.locator("#reward-remove-0").click()
    removed = page.locator("#reward-list p", has_text="Removed sums_and_answer")
    expect(first).not_to_contain_text("sums_and_answer")
    removed.get_by_role("button", name="Undo").click()
    expect(first).to_contain_text("sums_and_answer")
    show_more(page)
    page.locator("#start-over").click()
    expect_rollouts(page, 8)
    expect(first).to_contain_text("step_correctness")
    said.get_by_role("button", name="Undo").click()
    expect_rollouts(page, 4)
    expect(said).to_contain_text("Restored")
    expect(page.locator("#prompt textarea")).to_have_value(re.compile("A box holds 3 pens"))


def test_new_prompts_are_sampled_and_one_is_answered_beside_another_policy(page: Page, app: App) -> None:
    """As Train leads to; a click on a prompt puts its group on screen."""
    for field, value in (("generations", "2"), ("max-tokens", "4")):
        page.locator(f"#{field} input").fill(value)
    expect(page.locator("#policy-status:is(.ready, .unloaded)")).to_be_visible()
    page.get_by_role("tab", name="Train").click()
    page.locator("#check").click()
    found = page.locator("#preflight-found")
    with stopped(app, "policies.worker"):
        page.locator("#preflight").click()
        expect(found.locator(".busy")).to_contain_text("prompt 1 of")
    expect(found.locator("td")).to_have_count(16)
    expect(page.locator("#preflight-cancel")).to_be_disabled()
    prompt = found.get_by_role("button").nth(2)
    asked = prompt.inner_text()
    prompt.click()
    expect_rollouts(page, 2)
    expect(page.locator("#title h2")).to_contain_text(asked)
    expect(page.locator("#drawing .stale")).to_be_hidden()
    page.locator("#heatmap .summary").get_by_role("button", name="Beside another policy").click()
    page.locator("#beside-it").click()
    sides = page.locator("#beside-it-found .sides > div")
    expect(sides).to_have_count(2)
    expect(sides.nth(1).locator(".rollout")).not_to_have_count(0)
