"""Credit options, two schemes side by side, pre-flight and probes, driven in a real Chromium."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browsing import App, add_own_reward, close_editor, expect_rollouts, show_more, stopped

pytestmark = pytest.mark.browser
PATTERN = r"(?m)^(?:Step \d+|Answer):"
"""What the page opens with."""
COMPARES_TEXTS = """def extract_answer(text):
    return text.split("<answer>")[-1].split("</answer>")[0].strip()


def compares_texts(completions, answer, **columns):
    return [float(extract_answer(text) == right) for text, right in zip(completions, answer)]
"""
ROLLOUTS = "document.querySelector('#heatmap').heatmap.data.rollouts"


def choose(page: Page, elem_id: str, option: str) -> None:
    page.locator(f"#{elem_id} input").click()
    page.locator(f"li[role=option][aria-label='{option}']").click()


def advantages(page: Page) -> list[list[float]]:
    return page.evaluate(f"{ROLLOUTS}.map(r => r.advantages)")


def test_credit_schemes_are_chosen_set_and_compared(page: Page) -> None:
    two_schemes_side_by_side(page)
    the_hover_shows_the_sum(page)
    an_option_changes_the_drawing_and_a_bad_one_keeps_it(page)


def an_option_changes_the_drawing_and_a_bad_one_keeps_it(page: Page) -> None:
    before = advantages(page)
    page.get_by_role("button", name="Advanced credit").first.click()
    choose(page, "credit-normalise", "leave_one_out")
    page.wait_for_function("document.querySelector('#heatmap').heatmap.data.options.normalise === 'leave_one_out'")
    after = advantages(page)
    assert after != before
    page.locator("#credit-gamma input").fill("7")
    expect(page.locator("#credit-note")).to_contain_text("gamma")
    assert advantages(page) == after


def two_schemes_side_by_side(page: Page) -> None:
    choose(page, "b-scheme", "step")
    expect(page.locator(".rollout").first.locator(".pane")).to_have_count(2)
    expect(page.locator("#heatmap .sentences")).to_contain_text("`step` flips the sign of".replace("`", ""))
    half = page.locator("#heatmap .overview .cell .b.p, #heatmap .overview .cell .b.n").first
    expect(half).to_be_visible()
    covers = half.evaluate("node => getComputedStyle(node).backgroundColor")
    assert not re.search(r"/|rgba", covers)  # else it is mixed with the first scheme's colour below it
    shown = f"{ROLLOUTS}.filter(r => r.copyOf === undefined)"
    flipped = page.evaluate(f"{shown}.flatMap(r => r.advantages.filter((a, t) => a * r.twin.advantages[t] < 0)).length")
    assert page.locator("#heatmap .text:not(.second) i.flips").count() == flipped > 0
    # The details explain both, and each sum is the number that is drawn.
    page.locator(".rollout[data-g='2']").locator(".text.second i").nth(12).click()
    expect(page.locator(".details .reason:not(.loss-reason)")).to_have_count(2)
    drawn = page.evaluate(f"[{ROLLOUTS}[2].advantages[12], {ROLLOUTS}[2].twin.advantages[12]]")
    for shown, value in zip(page.locator(".details .parts tfoot td").all_inner_texts(), drawn, strict=True):
        assert float(shown.replace("−", "-")) == pytest.approx(value, abs=0.005)
    # The difference, in one pane.
    page.locator(".colour-by").select_option("difference")
    expect(page.locator(".rollout").first.locator(".pane.b")).to_be_hidden()
    choose(page, "b-scheme", "none")
    expect(page.locator(".pane")).to_have_count(0)


def the_hover_shows_the_sum(page: Page) -> None:
    page.locator(".rollout").first.locator(".text i").nth(3).hover()
    expect(page.locator(".tip .sum")).to_have_text(re.compile(r"^= [+−][\d.]+ \(step 1\)"))


def test_a_group_is_probed_and_checked_before_training(page: Page, app: App) -> None:
    page.locator("#heatmap .summary").get_by_role("button", name="Check this setup").click()
    the_strip_tells_the_groups_preflight(page)
    the_clinic_names_a_fault_of_ones_own_reward(page)
    probes_and_their_demo(page)
    new_prompts_are_sampled_and_one_is_opened(page, app)
    another_policy_answers_the_same_prompt(page)


def the_strip_tells_the_groups_preflight(page: Page) -> None:
    strip = page.locator("#check-setup #preflight-strip")
    strip.locator("summary").click()
    expect(strip).to_contain_text("straddling tokens")
    page.locator("#regex textarea").fill("nowhere")
    expect(strip.locator(".verdict")).to_contain_text(
        "need a look: steps per answer 0 (0 to 0), answers without a match 100%"
    )
    page.locator("#regex textarea").fill(PATTERN)
    expect(strip.locator(".verdict")).to_contain_text(re.compile(r"(\d+) of \1 checks pass"))


def the_clinic_names_a_fault_of_ones_own_reward(page: Page) -> None:
    """What is typed is tried: one fault, said with what was extracted, and what each strategy earns."""
    add_own_reward(page, COMPARES_TEXTS)
    close_editor(page)
    page.locator("#clinic").click()
    clinic = page.locator("#clinic-found")
    expect(clinic.locator("li.check").filter(has_text="thousands comma").first).to_be_visible()
    expect(clinic.locator("tr").filter(has_text="near miss").locator("td")).to_have_text(["–", "0", "0", "0"])
    expect(clinic.locator("tr").filter(has_text="perfect").locator("td")).to_have_text(["–", "1", "1", "2"])
    page.locator("#reward-remove-2").click()


def probes_and_their_demo(page: Page) -> None:
    page.locator("#probe-demo").click()
    expect_rollouts(page, 4)
    expect(page.locator("#reward-on-0")).to_contain_text("sums_and_answer")
    expect(page.locator("#prompt textarea")).to_have_value(re.compile("A box holds 3 pens"))
    page.locator("#probe").click()
    expect(page.locator("#heatmap .summary")).to_contain_text("under process · Check this setup")
    row = page.locator("#probe-found tbody tr").filter(has_text="split a step")
    expect(row.locator("td").first).to_have_text("+1.95 ▲")
    row.get_by_role("button").first.click()
    expect(page.locator("#probe-found p.said")).to_contain_text("first token +0.48 to +2.44")
    what_was_replaced_or_removed_is_brought_back(page)


def what_was_replaced_or_removed_is_brought_back(page: Page) -> None:
    said, first = page.locator("#undo-note"), page.locator("#reward-on-0")
    expect(said).to_contain_text("the demo's group, pattern and functions are on screen")
    page.locator("#reward-remove-0").click()
    removed = page.locator("#reward-list p", has_text="Removed sums_and_answer")
    expect(first).not_to_contain_text("sums_and_answer")
    removed.get_by_role("button", name="Undo").click()
    expect(first).to_contain_text("sums_and_answer")
    show_more(page)
    page.locator("#start-over").click()
    expect_rollouts(page, 8)
    expect(first).to_contain_text("step_correctness")
    expect(page.locator("#prompt textarea")).to_have_value(re.compile("Start with"))
    said.get_by_role("button", name="Undo").click()
    expect_rollouts(page, 4)
    expect(said).to_contain_text("Restored")
    said.get_by_role("button", name="Undo").click()
    expect_rollouts(page, 8)
    expect(first).to_contain_text("step_correctness")


def new_prompts_are_sampled_and_one_is_opened(page: Page, app: App) -> None:
    """As Train leads to; a click on a prompt puts its group on screen."""
    page.locator("#generations input").fill("2")
    page.locator("#max-tokens input").fill("12")
    expect(page.locator("#policy-status:is(.ready, .unloaded)")).to_be_visible()
    page.locator("#check-title").get_by_role("button", name="Close").click()
    page.get_by_role("tab", name="Train").click()
    page.locator("#check").click()
    found = page.locator("#preflight-found")
    with stopped(app, "policies.worker"):
        page.locator("#preflight").click()
        expect(found.locator(".busy")).to_contain_text("sampling prompt 1 of")
    expect(found.locator("li").filter(has_text="truncated").locator("b")).to_have_text("100%")
    expect(page.locator("#preflight-cancel")).to_be_disabled()
    expect(found.locator("td")).to_have_count(16)
    prompt = found.get_by_role("button").nth(2)
    asked = prompt.inner_text()
    prompt.click()
    expect_rollouts(page, 2)
    expect(page.locator("#title h2")).to_contain_text(asked)
    expect(page.locator("#drawing .stale")).to_be_hidden()


def another_policy_answers_the_same_prompt(page: Page) -> None:
    page.locator("#heatmap .summary").get_by_role("button", name="Beside another policy").click()
    page.locator("#beside-it").click()
    sides = page.locator("#beside-it-found .sides > div")
    expect(sides).to_have_count(2)
    expect(sides.nth(1).locator(".rollout")).not_to_have_count(0)
    expect(page.locator("#beside-it-found .headline")).to_contain_text("of 2 answers right; tiny:")
