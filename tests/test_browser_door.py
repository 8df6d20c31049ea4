"""One's own data in a real Chromium: drop a file, see it in colour, look through its groups, check rewards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browsing import App, add_reward, drop_file, open_by_name
from workbench.data import load_task

pytestmark = pytest.mark.browser

CARDS = "#drawing .rollout:not(.streaming)"
COLOURED = "document.querySelector('#heatmap').heatmap.data.rollouts?.some((r) => r.advantages?.some((a) => a !== 0))"


def write(file: Path, *rows: dict[str, Any]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_own_files_become_coloured_groups(page: Page, app: App, tmp_path: Path) -> None:
    problems_of_other_columns_are_mapped_and_answered(page, tmp_path)
    a_dropped_log_is_drawn_with_its_own_advantages(page, tmp_path)
    a_column_that_nothing_names_is_chosen_beside_the_error(page, tmp_path)
    what_a_file_says_is_shown_as_text(page, tmp_path)
    a_configuration_opens_through_the_same_door(page, tmp_path)


def test_logs_without_rewards_are_coloured_once_one_is_added(page: Page, app: App, tmp_path: Path) -> None:
    prompt, user = "3 trays of 402?", {"role": "user", "content": "3 trays of 402?"}
    thinking = {"type": "thinking", "thinking": "3*402"}
    logs = {
        "ended": [{"prompt": prompt, "completion": f"So {text}.<|im_end|>"} for text in ("12", "1206")],
        "reasoning": [
            {"messages": [user, {"role": "assistant", "content": text, "reasoning_content": "3*402"}]}
            for text in ("12", "1206")
        ],
        "parts": [
            {"messages": [user, {"role": "assistant", "content": [thinking, {"type": "text", "text": text}]}]}
            for text in ("12", "1206")
        ],
        "padded": [{"prompt": prompt, "token_ids": ids} for ids in ([43, 44, 2, 0, 0], [43, 44, 45, 46, 2])],
    }
    for name, rows in logs.items():
        drop_file(page, write(tmp_path / f"{name}.jsonl", *rows))
        if name == "ended":  # for the others it is in the list by then
            expect(page.locator("#door-note")).to_contain_text("add a reward")
            add_reward(page, "length_and_mistake")
        expect(page.locator("#title")).to_contain_text(f"{name}.jsonl")
        page.wait_for_function(COLOURED)


def test_groups_of_a_file_are_looked_through_and_rewards_checked(page: Page, app: App) -> None:
    groups_are_looked_through_and_rewards_checked(page, app)
    a_file_that_cannot_be_read_is_said_and_the_group_stays(page, app)


def problems_of_other_columns_are_mapped_and_answered(page: Page, tmp_path: Path) -> None:
    task = load_task("chain-arithmetic")
    rows = [{"Problem Text": task[i].prompt, "gold_value": task[i].columns["answer"]} for i in range(10)]
    drop_file(page, write(tmp_path / "mine.jsonl", *rows))
    expect(page.locator("#door-note")).to_contain_text(
        "Opened 10 problems: Problem Text is the prompt, gold_value is the right answer."
    )
    expect(page.locator("#prompt textarea")).to_have_value(task[0].prompt)
    expect(page.locator("#reward-on-0")).to_contain_text("answer_correctness")
    expect(page.locator("#title .about")).to_contain_text(task[0].prompt)
    page.wait_for_function(f"{COLOURED} && !document.querySelector('#drawing [aria-busy=true]')")
    assert page.evaluate("document.querySelector('#heatmap').heatmap.data.scheme") == "outcome"


def a_dropped_log_is_drawn_with_its_own_advantages(page: Page, tmp_path: Path) -> None:
    rows = [
        {"step": 3, "prompt": "3 trays of 402?", "completion": text, "right": right, "advantage": advantage}
        for text, right, advantage in (("It is 1206", 1.0, 0.707), ("It is 120", 0.0, -0.707))
    ]
    drop_file(page, write(tmp_path / "completions.jsonl", *rows), onto="#header")
    expect(page.locator("#door-note")).to_contain_text("Opened 1 group (2 answers) of a TRL log; its advantages are")
    expect(page.locator("#door-note")).to_contain_text("Tokens by tiny's tokenizer.")
    expect(page.locator(CARDS)).to_have_count(2)
    page.wait_for_function(COLOURED)


def a_column_that_nothing_names_is_chosen_beside_the_error(page: Page, tmp_path: Path) -> None:
    drop_file(page, write(tmp_path / "odd.jsonl", *[{"text": f"{n} + 1?", "gold": str(n + 1)} for n in range(4)]))
    expect(page.locator("#door-note [role=alert], #door-note .error")).to_contain_text("Which column is the prompt?")
    page.locator("#door-prompt input").click()
    page.get_by_role("option", name="text", exact=True).click()
    expect(page.locator("#door-note")).to_contain_text(
        "Opened 4 problems: text is the prompt, gold is the right answer."
    )
    expect(page.locator("#prompt textarea")).to_have_value("0 + 1?")


def what_a_file_says_is_shown_as_text(page: Page, tmp_path: Path) -> None:
    bad = '<img src=x onerror="window.hacked = 1">'
    prompts = (f"{bad} {{{{hacked}}}}", bad)
    rows = [{"prompt": p, "completion": f"{bad}\n{n}", "reward": n, bad: bad} for p in prompts for n in (0, 1)]
    drop_file(page, write(tmp_path / "bad.jsonl", *rows))
    expect(page.locator("#door-note")).to_contain_text("Opened 2 groups (4 answers)")
    expect(page.locator(f"{CARDS} .text").first).to_contain_text(bad)
    page.get_by_role("button", name="All groups").click()
    expect(page.locator("#door-groups")).to_contain_text(bad)
    assert page.evaluate("window.hacked") is None


def a_configuration_opens_through_the_same_door(page: Page, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("method: {name: grpo, sampling: {num_generations: 3}}\n")
    with page.expect_file_chooser() as chooser:
        page.locator("#door-file").click()
    chooser.value.set_files(file)
    expect(page.locator("#door-note")).to_contain_text("the settings are those of run.yaml")
    expect(page.locator("#generations input")).to_have_value("3")


def groups_are_looked_through_and_rewards_checked(page: Page, app: App) -> None:
    open_by_name(page, "gsm8k")
    expect(page.locator("#door-note")).to_contain_text("Opened 300 groups (1,200 answers) of GSM8K's model answers")
    expect(page.locator(CARDS)).to_have_count(4)
    expect(page.locator("#regex textarea")).to_have_value(r"\n+")
    expect(page.locator("#reward-on-0")).to_contain_text("calculator_notes")
    expect(page.locator("#title .about")).to_contain_text("read from model-solutions-300.jsonl")
    expect(page.locator("#door-where")).to_contain_text("1 of 300")
    expect(page.locator("#drawing .stale")).to_be_hidden()
    page.get_by_role("button", name="All groups").click()
    expect(page.locator("#door-groups tbody tr")).to_have_count(300)
    page.locator("#door-next").click()
    expect(page.locator("#door-where")).to_contain_text("2 of 300")
    expect(page.locator("#prompt textarea")).to_have_value(
        "A robe takes 2 bolts of blue fiber and half that much white fiber.  How many bolts in total does it take?"
    )
    expect(page.locator(f"{CARDS} .text").first).to_contain_text("It takes 2*1/2=<<2*1/2=1.0>>1 bolt of white fiber")
    page.locator("#door-groups [aria-selected=true]").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#door-where")).to_contain_text("3 of 300")
    page.locator("#door-check button").first.click()
    page.locator("#check-rewards").click()
    expect(page.locator("#check-note")).to_contain_text("20 of the worst disagreements listed")
    expect(page.locator("#check-table")).to_contain_text("gsm8k_answer")
    expect(page.locator("#check-table")).to_contain_text("0.510")
    page.locator("#check-worst").get_by_text("Janet eats 3 duck eggs").last.click()
    expect(page.locator("#door-where")).to_contain_text("1, rollout 4")
    expect(page.locator(f"{CARDS} .text").nth(3)).to_contain_text("Janet eats 3 duck eggs")
    maps = Path(f"/proc/{app.pid}/maps").read_text()
    assert "libtorch" not in maps


def a_file_that_cannot_be_read_is_said_and_the_group_stays(page: Page, app: App) -> None:
    (app.workspace / "bad.jsonl").write_text('{"prompt": "a", "completion": "1"}\n{"prompt": "a", "compl\n')
    open_by_name(page, "bad.jsonl")
    expect(page.locator("#door-note")).to_contain_text("bad.jsonl line 2: not JSON")
    # Said once; read at once, since a message of Gradio's own, beside that, would go by itself.
    assert page.get_by_text("line 2: not JSON").filter(visible=True).count() == 1
    expect(page.locator("#door-groups")).to_have_count(0)  # those of the file before are gone
    expect(page.locator(CARDS)).to_have_count(4)
    open_by_name(page, "/etc/passwd")
    expect(page.locator("#door-note")).to_contain_text("is outside the workspace")
