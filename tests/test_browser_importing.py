"""People's own rollouts in a real Chromium: open, look through, score, check rewards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browsing import App, unfold_more

pytestmark = pytest.mark.browser

CARDS = "#drawing .rollout:not(.streaming)"


def test_groups_of_a_file_are_opened_looked_through_and_checked(page: Page, app: App, tmp_path: Path) -> None:
    unfold_more(page, "Your own rollouts")
    real_groups_are_opened_looked_through_and_checked(page, app)
    a_file_that_cannot_be_read_is_said_and_the_group_stays(page, app)
    an_upload_is_shown_as_text_whatever_it_says(page, tmp_path)


def real_groups_are_opened_looked_through_and_checked(page: Page, app: App) -> None:
    page.locator("#import-open").click()
    expect(page.locator("#import-note")).to_contain_text("300 groups, 300 rows · format gsm8k · tokenizer tiny")
    expect(page.locator(CARDS)).to_have_count(4)
    expect(page.locator("#regex textarea")).to_have_value(r"\n+")
    expect(page.locator("#reward-on-0")).to_contain_text("calculator_notes")
    expect(page.locator("#title .about")).to_contain_text("read from model-solutions-300.jsonl")
    expect(page.locator("#import-where")).to_contain_text("group 1 of 300")
    expect(page.locator("#drawing .stale")).to_be_hidden()
    page.locator("#import-next").click()
    expect(page.locator("#import-where")).to_contain_text("group 2 of 300")
    expect(page.locator("#prompt textarea")).to_have_value(
        "A robe takes 2 bolts of blue fiber and half that much white fiber.  How many bolts in total does it take?"
    )
    expect(page.locator(f"{CARDS} .text").first).to_contain_text("It takes 2*1/2=<<2*1/2=1.0>>1 bolt of white fiber")
    page.locator("#import-groups [aria-selected=true]").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#import-where")).to_contain_text("group 3 of 300")
    page.locator("#check-rewards").click()
    expect(page.locator("#check-note")).to_contain_text("20 of the worst disagreements listed")
    expect(page.locator("#check-table")).to_contain_text("gsm8k_answer")
    expect(page.locator("#check-table")).to_contain_text("0.510")
    page.locator("#check-worst").get_by_text("Janet eats 3 duck eggs").last.click()
    expect(page.locator("#import-where")).to_contain_text("group 1, rollout 4")
    expect(page.locator(f"{CARDS} .text").nth(3)).to_contain_text("Janet eats 3 duck eggs")
    maps = Path(f"/proc/{app.pid}/maps").read_text()
    assert "libtorch" not in maps


def a_file_that_cannot_be_read_is_said_and_the_group_stays(page: Page, app: App) -> None:
    (app.workspace / "bad.jsonl").write_text('{"prompt": "a", "completion": "1"}\n{"prompt": "a", "compl\n')
    page.locator("#import-path input").fill("bad.jsonl")
    page.locator("#import-path input").press("Enter")
    page.locator("#import-open").click()
    expect(page.locator("#import-note")).to_contain_text("bad.jsonl line 2: not JSON")
    # Said once; read at once, since a message of Gradio's own, beside that, would go by itself.
    assert page.get_by_text("line 2: not JSON").filter(visible=True).count() == 1
    expect(page.locator("#import-groups table")).to_have_count(0)  # those of the file before are gone
    expect(page.locator(CARDS)).to_have_count(4)
    page.locator("#import-path input").fill("/etc/passwd")
    page.locator("#import-path input").press("Enter")
    page.locator("#import-open").click()
    expect(page.locator("#import-note")).to_contain_text("is outside the workspace")


def an_upload_is_shown_as_text_whatever_it_says(page: Page, tmp_path: Path) -> None:
    bad = '<img src=x onerror="window.hacked = 1">'
    file = tmp_path / "mine.jsonl"
    rows = [{"prompt": f"{bad} {{{{hacked}}}}", "completion": f"{bad}\n{n}", "reward": n, "note": bad} for n in (0, 1)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    page.locator("#import-upload input[type=file]").set_input_files(file)
    expect(page.locator("#import-upload").get_by_role("cell", name="mine.jsonl", exact=True)).to_be_visible()
    page.locator("#import-open").click()
    expect(page.locator("#import-note")).to_contain_text("1 group, 2 rows · format plain")
    expect(page.locator(CARDS)).to_have_count(2)
    expect(page.locator(f"{CARDS} .text").first).to_contain_text(bad)
    expect(page.locator("#import-groups")).to_contain_text(bad)
    assert page.evaluate("window.hacked") is None
