"""Everything shown is shown as text: hostile payloads in every view of the page, in a real Chromium.

The page's security policy would stop most of them even if they got in; it would also complain on the console, and a
page that complains fails (``browsing.visit``), so these tests are about escaping all the same.
"""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browsing import App, add_own_reward, expect_rollouts, visit
from tests.credits import make_credit, make_rollout
from tests.hostile import ALL, ONE_LINE, PAYLOADS, WATCH, check
from tests.stored_runs import store
from workbench.rundir import RunDir
from workbench.schema import Credit, RewardSummary, Turn
from workbench.views.heatmap import heatmap

pytestmark = pytest.mark.browser


def hostile_credit() -> Credit:
    """Every payload a token, and every name and text of the group a payload too."""
    rollouts = [make_rollout(PAYLOADS, finished=False), make_rollout([*PAYLOADS[:-1], PAYLOADS[0]])]
    last = len(PAYLOADS) - 1
    credit = make_credit(rollouts, [[2, last], [3, last]], [[1.0, 0.0], [0.0, 1.0]], [1.0, 0.0])
    scored = credit.scored
    names = {"rule": ALL, "right": PAYLOADS[0]}
    return replace(
        credit,
        warnings=(ALL, *PAYLOADS),
        scored=replace(
            scored,
            group=replace(scored.group, prompt=ALL, policy=ALL),
            scored=tuple(
                replace(
                    one, scores={ALL: one.scores["rule"], "b": one.scores["rule"]}, outcome_scores={PAYLOADS[0]: 1.0}
                )
                for one in scored.scored
            ),
            rewards=tuple(RewardSummary(names[reward.name], reward.kind, reward.weight) for reward in scored.rewards),
        ),
    )


def hostile_episodes() -> Credit:
    """Two episodes: a call of a tool with a payload's name, answered by all payloads, and one that calls nothing."""
    call = f"<tool_call>{json.dumps({'name': PAYLOADS[0]})}</tool_call>"
    turns = (
        Turn("assistant", 0, 1, 0.5, error=ALL),
        Turn(PAYLOADS[0], 1, 2, 0.25, note=ALL),
        Turn("assistant", 2, 3),
    )
    rollouts = [
        replace(make_rollout([text, ALL, "end"], finished=False), mask=(1, 0, 1), turns=turns) for text in (call, "no")
    ]
    return make_credit(rollouts, [[0, 2]] * 2, [[1.0, 0.0], [0.0, 1.0]], starts=[[0, 2]] * 2)


def hostile_run(workspace: Path) -> RunDir:
    method = {
        "pattern": {"regex": re.escape(ONE_LINE)},
        "rewards": [{"name": ALL, "code": "def f(prompt, step, **columns):\n    return 1.0\n"}],
    }
    run = store(workspace, "hostile", [{"step": 1, "reward": 0.25, ALL: 1.0}], task=ALL, policy=ALL, method=method).dir
    run.rollouts.write(1, [hostile_credit()])
    run.log.write_text(f"first\n{ONE_LINE}\n")
    run.set_status("failed", ALL, step=1, device=ALL)
    return run


def test_runs_and_controls_full_of_payloads_are_text(browser: Browser, app: App, workspace: Path) -> None:
    run = hostile_run(workspace)
    store(workspace, "plain", [{"step": 1, "reward": 0.5}])
    with visit(browser, f"{app.url}?runs=hostile,plain&tab=runs", script=WATCH) as page:
        expect(page.locator("#runs-diff")).to_contain_text("<img src=x onerror")
        expect(page.get_by_role("table").first).to_contain_text("<img src=x onerror")
        check(page)
        a_run_is_text(page, run)
        controls_answer_in_text(page)


POINTED = """(token) => {
  const letters = document.querySelector(`#run-heatmap .rollout .text i[data-t='${token}']`);
  letters.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
  return !document.querySelector("#run-heatmap .tip").hidden;
}"""


def a_run_is_text(page: Page, run: RunDir) -> None:
    page.locator("#runs tbody").get_by_role("button", name="hostile", exact=True).click()
    expect(page.locator("#run-heatmap .rollout")).to_have_count(2)
    expect(page.locator("#run-reason")).to_contain_text("<img src=x onerror")
    tokens = page.locator("#run-heatmap .rollout").first.locator(".text i[data-t]").all_text_contents()
    assert "".join(tokens) == run.rollouts.read(1)[0].scored.group.rollouts[0].text
    expect(page.locator("#run-log")).to_contain_text("<script>")
    expect(page.locator("#live .rollouts .prompt")).to_contain_text("</textarea><script>")
    page.locator("#run-settings > summary").click()
    expect(page.locator("#run-settings dl")).to_contain_text("<svg onload")
    for token in (0, 2, 8, 23, 24):  # the tip beside the pointer
        page.wait_for_function(POINTED, arg=token)  # again until it stands: a page that scrolls meanwhile hides it
    for chip in range(2):
        page.locator("#run-heatmap .rollout .chip").nth(chip).click()
        expect(page.get_by_role("region", name="Why this colour")).to_be_visible()
    page.locator("#run-rollouts > summary").click()
    expect(page.locator("#run-rollouts tbody tr").first).to_be_visible()
    check(page)


def controls_answer_in_text(page: Page) -> None:
    page.get_by_role("tab", name="Inspect").click()
    expect_rollouts(page, 8)
    page.locator("#regex textarea").fill(f"(?P<{ONE_LINE}")
    expect(page.locator("#pattern-note")).to_contain_text("invalid pattern")
    page.locator("#regex textarea").fill(r"(?m)^Step \d+:")
    code = f"def mine(prompt, step, **columns):\n    print({ALL!r})\n    raise ValueError({ALL!r})\n"
    add_own_reward(page, code)
    expect(page.locator("#editor-said")).to_contain_text("<img src=x onerror")
    page.locator("#prompt textarea").fill(f"{PAYLOADS[2]} {PAYLOADS[0]} {PAYLOADS[23]}\n")
    page.locator("#max-tokens input").fill("4")
    page.locator("#generations input").fill("2")
    page.locator("#sample").click()
    expect(page.locator("#title .about")).to_contain_text("</textarea><script>")
    expect_rollouts(page, 2)
    page.locator("#policy input").fill(f"/{ONE_LINE}")
    page.locator("#policy input").press("Enter")
    page.locator("#sample").click()
    expect(page.locator("#sample-note")).to_contain_text("<img src=x onerror")
    page.get_by_role("tab", name="Train").click()
    expect(page.locator("#inherited")).to_contain_text("<img src=x onerror")
    check(page)


def test_an_exported_heatmap_full_of_payloads_is_text(browser: Browser, tmp_path: Path) -> None:
    """The file allows inline scripts, its own, so here nothing but escaping stands between."""
    file = tmp_path / "heatmap.html"
    file.write_text(heatmap(hostile_credit()).html(), encoding="utf-8", errors="surrogatepass")
    with visit(browser, file.as_uri(), script=WATCH) as page:
        expect(page.locator(".rollout")).to_have_count(2)
        page.locator(".chip").first.click()
        page.locator(".text i").nth(5).hover()
        expect(page.locator(".notices")).to_contain_text("<svg onload")
        check(page)
    file.write_text(heatmap(hostile_episodes()).html(), encoding="utf-8", errors="surrogatepass")
    with visit(browser, file.as_uri(), script=WATCH) as page:
        observation = page.locator(".observation .seen").first
        assert observation.evaluate("node => node.textContent") == ALL
        page.locator(".unfold").first.press("Enter")
        expect(page.locator(".unfold").first).to_have_attribute("aria-expanded", "true")
        observation.locator("i").first.click()
        expect(page.locator(".details")).to_contain_text("not sampled: no advantage")
        expect(page.locator(".details .where")).to_contain_text("<img src=x onerror")
        page.get_by_role("button", name="calls <img").click()
        expect(page.locator(".rollout:visible")).to_have_count(1)
        page.get_by_role("searchbox").fill("<SVG onload")
        expect(page.locator(".rollout:visible")).to_have_count(1)
        check(page)
