"""One's own data in a real Chromium: drop a file, see it in colour, look through its groups, check rewards."""

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browsing import CARDS, App, choose, drop_file, expect_rollouts, open_by_name
from workbench.assets import GSM8K

pytestmark = pytest.mark.browser

COLOURED = """document.querySelector('#heatmap').heatmap.data.rollouts?.some((rollout) =>
  [rollout, rollout.twin].some((one) => one?.advantages?.some((advantage) => advantage !== 0)))"""
CASES = Path(__file__).parent / "data" / "cases"


def write(file: Path, *rows: dict[str, Any]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_a_dropped_log_is_drawn_as_text_beside_its_own_advantages(page: Page, tmp_path: Path) -> None:
    """The file's have the other sign."""
    bad = '<img src=x onerror="window.hacked = 1">'
    rows = [
        {"step": 3, "prompt": prompt, "completion": f"{bad}\n{n}", "right": float(n), bad: bad, "advantage": 0.707 - n}
        for prompt in (f"{bad} {{{{hacked}}}}", bad)
        for n in (1, 0)
    ]
    drop_file(page, write(tmp_path / "completions.jsonl", *rows), onto="#header")
    expect(page.locator("#door-note")).to_contain_text("2 groups (4 answers) of a TRL log")
    expect(page.locator(CARDS)).to_have_count(2)
    page.wait_for_function(COLOURED)
    page.locator(f"{CARDS}[data-g='0'] .chip").first.click()
    expect(page.get_by_role("region", name="Why this colour")).to_contain_text("−0.29")
    expect(page.locator(f"{CARDS} .text").first).to_contain_text(bad)
    page.get_by_role("button", name="All groups").click()
    expect(page.locator("#door-groups")).to_contain_text(bad)
    assert page.evaluate("window.hacked") is None


def test_a_column_that_nothing_names_is_chosen_and_rewards_of_a_file_are_added(page: Page, tmp_path: Path) -> None:
    page.locator("#max-tokens input").fill("8")
    drop_file(page, write(tmp_path / "odd.jsonl", *[{"text": f"{n} + 1?", "gold": str(n + 1)} for n in range(4)]))
    expect(page.locator("#door-note [role=alert], #door-note .error")).to_contain_text("prompt")
    choose(page, "door-prompt", "text")
    expect(page.locator("#door-note")).to_contain_text("4 problems")
    expect(page.locator("#prompt textarea")).to_have_value("0 + 1?")
    expect(page.locator("#title .about")).to_contain_text("sampled from tiny")
    expect_rollouts(page, 8)
    drop_file(page, CASES / "open-r1-style-rewards.py")
    expect(page.locator("#reward-list")).to_contain_text("len_reward")


def test_groups_are_looked_through_rewards_checked_and_a_bad_file_leaves_them_there(page: Page, app: App) -> None:
    lines = (GSM8K / "model-solutions-300.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (app.workspace / "some.jsonl").write_text("".join(lines[:12]), encoding="utf-8")
    open_by_name(page, "some.jsonl")
    expect(page.locator("#door-note")).to_contain_text("12 groups (48 answers)")
    where = page.locator("#door-where")
    expect(where).to_contain_text("1 of 12")
    page.get_by_role("button", name="All groups").click()
    expect(page.locator("#door-groups tbody tr")).to_have_count(12)
    page.locator("#door-next").click()
    expect(where).to_contain_text("2 of 12")
    page.locator("#door-groups [data-row='1'][aria-selected=true]").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(where).to_contain_text("3 of 12")
    page.locator("#door-check button").first.click()
    page.locator("#check-rewards").click()
    page.locator("#check-worst").get_by_text("Janet eats 3 duck eggs").last.click()
    expect(where).to_contain_text("1, rollout 4")
    expect(page.locator(f"{CARDS} .text").nth(3)).to_contain_text("Janet eats 3 duck eggs")

    (app.workspace / "bad.jsonl").write_text('{"prompt": "a", "completion": "1"}\n{"prompt": "a", "compl\n')
    open_by_name(page, "bad.jsonl")
    expect(page.locator("#door-note")).to_contain_text("bad.jsonl line 2")
    # Said once; read at once, since a message of Gradio's own, beside that, would go by itself.
    assert page.get_by_text("bad.jsonl line 2").filter(visible=True).count() == 1
    expect(page.locator("#door-groups")).to_have_count(0)  # those of the file before are gone
    expect(page.locator(CARDS)).to_have_count(4)
