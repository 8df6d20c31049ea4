"""One's own data in a real Chromium: drop a file, see it in colour, look through its groups, check rewards."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browsing import App, add_reward, drop_file, expect_rollouts, open_by_name
from workbench.data import load_task

pytestmark = pytest.mark.browser

CARDS = "#drawing .rollout:not(.streaming)"
COLOURED = """document.querySelector('#heatmap').heatmap.data.rollouts?.some((rollout) =>
  [rollout, rollout.twin].some((one) => one?.advantages?.some((advantage) => advantage !== 0)))"""
CASES = Path(__file__).parent / "data" / "cases"
SHAPES = (
    ("content-parts.jsonl", "Nothing in the file scores an answer"),
    ("ms-swift-completions.jsonl", "2 groups (4 answers) of an ms-swift log; its advantages are outcome ÷ std"),
    ("prime-rl-run", "1 group (1 answer) of a log of traces"),
    ("verl-countdown.jsonl", "Opened 4 problems."),
    ("prm800k-null-steps.jsonl", "no completion in any (line 1)"),
    ("open-r1-style-rewards.py", "Added 2 rewards: format_reward, len_reward."),
)
"""Files, and what the page says of each; ``test_ui_opening`` opens those of every layout."""


def write(file: Path, *rows: dict[str, Any]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_own_files_become_coloured_groups(page: Page, app: App, tmp_path: Path) -> None:
    problems_of_other_columns_are_mapped_and_answered(page, tmp_path)
    a_dropped_log_is_drawn_with_its_own_advantages(page, tmp_path)
    a_column_that_nothing_names_is_chosen_beside_the_error(page, tmp_path)
    what_a_file_says_is_shown_as_text(page, tmp_path)
    a_long_text_is_saved_without_its_end_token(page, tmp_path)
    a_configuration_opens_through_the_same_door(page, tmp_path)


def test_a_file_is_a_coloured_group_in_three_actions(page: Page, app: App) -> None:
    """Opening it is the first; what nothing scores is coloured once a reward is added. A folder is opened by name."""
    shutil.copytree(CASES / "prime-rl-run", app.workspace / "prime-rl-run")
    for name, said in SHAPES:
        if name == "prime-rl-run":
            open_by_name(page, name)
        else:
            drop_file(page, CASES / name)
        expect(page.locator("#door-note")).to_contain_text(said)
        if name == "content-parts.jsonl":  # for the logs after it, it is in the list by then
            expect(page.locator("#drawing")).to_contain_text("Not scored")
            add_reward(page, "length_and_mistake")
        if name.startswith("verl"):  # answers are sampled at once
            expect(page.locator("#title .about")).to_contain_text("sampled from tiny")
            expect_rollouts(page, 8)
        elif "null-steps" not in name and not name.endswith(".py"):  # which leave the group that is on screen
            expect(page.locator("#title .about")).to_contain_text(name)
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
    expect(page.locator("#reward-on-0")).to_contain_text("sums_hold")
    expect(page.locator("#reward-on-1")).to_contain_text("answer_correctness")
    expect(page.locator("#title .about")).to_contain_text(task[0].prompt)
    page.wait_for_function(f"{COLOURED} && !document.querySelector('#drawing [aria-busy=true]')")
    assert page.evaluate("document.querySelector('#heatmap').heatmap.data.scheme") == "process"


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
    turned = [{**row, "advantage": -row["advantage"]} for row in rows]
    drop_file(page, write(tmp_path / "turned.jsonl", *turned), onto="#header")
    page.locator(f"{CARDS}[data-g='0'] .chip").first.click()
    why = page.get_by_role("region", name="Why this colour")
    expect(why).to_contain_text("The file gives this token −0.71.")


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


def a_long_text_is_saved_without_its_end_token(page: Page, tmp_path: Path) -> None:
    text = "1206 " * 5000
    rollout = {"token_ids": [1, 2], "texts": [text, "<|end|>"], "finished": True}
    drop_file(page, write(tmp_path / "long.jsonl", {"prompt": "3 trays of 402?", "rollouts": [rollout, rollout]}))
    link = page.locator(CARDS).get_by_role("link", name="Full text, 25,000 characters").first
    with page.expect_download() as download:
        link.click()
    assert Path(download.value.path()).read_text(encoding="utf-8") == text


def a_configuration_opens_through_the_same_door(page: Page, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("method: {name: grpo, sampling: {num_generations: 3}}\n")
    with page.expect_file_chooser() as chooser:
        page.locator("#door-file").click()
    chooser.value.set_files(file)
    expect(page.locator("#door-note")).to_contain_text("run.yaml")
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
