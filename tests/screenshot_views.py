"""What ``tests.screenshots`` takes pictures of: each function brings a page into one state, and is the picture's name.

The page is the one its list is for: Inspect as it opens, Train on a stored run, Runs, or one without any run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import psutil
from playwright.sync_api import Page, expect

from tests.browsing import add_own_reward, add_reward, open_by_name
from tests.credits import worked_credit
from tests.stored_runs import learning, store
from tests.watched import before_and_now

View = Callable[[Page], None]
FAILING = "def mine(prompt, step, **columns):\n    return 1 / (len(step) - 19)\n"


# ── Inspect ──────────────────────────────────────────────────────────────────────────────────────────────────────


def inspect(page: Page) -> None:
    """The page as it opens."""


def pinned(page: Page) -> None:
    page.locator("#drawing .rollout .chip").nth(2).click()
    page.mouse.move(0, 0)


def hovered(page: Page) -> None:
    page.locator("#drawing .rollout").nth(1).locator(".text i").nth(12).hover()


def entropy(page: Page) -> None:
    page.get_by_label("Colour by").select_option("entropy")


def no_match(page: Page) -> None:
    _unfold(page)
    page.locator("#regex textarea").fill("nowhere to be found")
    expect(page.locator("#drawing mark").first).to_be_visible()
    page.locator("#drawing").scroll_into_view_if_needed()


def bad_pattern(page: Page) -> None:
    _unfold(page)
    page.locator("#regex textarea").fill("(?m)^(Step")
    expect(page.locator("#pattern-note")).to_contain_text("invalid pattern")


def slow_pattern(page: Page) -> None:
    _unfold(page)
    page.locator("#regex textarea").fill(r"(?s)(?:.|..)+\Z(?<!\S)")
    expect(page.locator("#pattern-note .drawn.error")).to_be_visible()


def presets(page: Page) -> None:
    _unfold(page)
    page.get_by_role("button", name="Try all presets on these answers").click()
    expect(page.locator("#preset-table tbody tr").first).to_be_visible()


def reward_error(page: Page) -> None:
    _unfold(page)
    add_own_reward(page, FAILING)
    expect(page.locator("#editor-said")).to_contain_text("ZeroDivisionError")


def reward_editor(page: Page) -> None:
    _unfold(page)
    page.locator("#reward-edit-0").click()
    expect(page.locator("#editor-results")).to_contain_text("Rollout 1")


def reward_model_form(page: Page) -> None:
    _unfold(page)
    add_reward(page, "A reward model")
    page.locator("#model-path").get_by_role("textbox").fill("/nowhere/at/all")
    page.locator("#model-add").click()
    expect(page.locator("#model-note .drawn.error")).to_be_visible()


def step_values(page: Page) -> None:
    _unfold(page)
    add_reward(page, "Step values")
    page.locator("#monte_carlo-continuations input").fill("1")
    page.locator("#monte_carlo-add").click()
    expect(page.locator("#reward-on-2")).to_contain_text("Monte-Carlo")
    page.locator("#monte_carlo-add").scroll_into_view_if_needed()


def two_schemes(page: Page) -> None:
    _unfold(page)
    page.locator("#b-scheme input").click()
    page.get_by_role("option", name="outcome", exact=True).click()
    expect(page.locator("#drawing .pane.b").first).to_be_visible()
    page.locator("#drawing").scroll_into_view_if_needed()


def no_spread(page: Page) -> None:
    _unfold(page)
    for place in (0, 1):
        page.locator(f"#reward-weight-{place} input").fill("0")
    expect(page.locator("#drawing .notices")).to_contain_text("No spread")
    page.locator("#drawing").scroll_into_view_if_needed()


def probes(page: Page) -> None:
    page.get_by_role("button", name="Probes", exact=True).click()
    page.locator("#probe-demo").click()
    page.wait_for_function("document.querySelector('#heatmap').heatmap.data.rollouts.length === 4")
    page.locator("#probe").click()
    expect(page.locator("#probe-table tbody tr").first).to_be_visible()


def probe_chosen(page: Page) -> None:
    probes(page)
    page.locator("#probe-table tbody tr").filter(has_text="split a step").get_by_role("button").first.click()
    expect(page.locator("#probe-table p.said")).to_contain_text("first token")
    page.locator("#probe-table p.said").evaluate("node => node.scrollIntoView({ block: 'center' })")


def weight_by_step(page: Page) -> None:
    _unfold(page)
    page.locator("#reward-edit-1").click()
    field = page.locator("#reward-schedule").get_by_role("textbox")
    field.fill("0:1,60:0")
    field.press("Enter")
    expect(page.locator("#reward-on-1")).to_contain_text("0 at step 60")


def episode(page: Page) -> None:
    """Answers of several turns, with a tool."""
    _unfold(page)
    page.locator("#task input").click()
    page.get_by_role("option", name="calculator", exact=True).click()
    expect(page.locator("#prompt textarea")).not_to_have_value(re.compile("Start with 7"))
    page.locator("#sample").click()
    expect(page.locator("#drawing .rollout:not(.streaming) .observation").first).to_be_visible()
    page.locator("#drawing").scroll_into_view_if_needed()


def own_rollouts(page: Page) -> None:
    _unfold(page)
    open_by_name(page, "gsm8k")
    expect(page.locator("#door-note")).to_contain_text("300 groups")
    page.locator("#door-check button").first.click()
    page.locator("#check-rewards").click()
    expect(page.locator("#check-note")).to_contain_text("worst disagreements")


def sampling(page: Page) -> None:
    _unfold(page)
    page.locator("#generations input").fill("16")
    page.locator("#sample").click()
    expect(page.locator("#drawing .rollout.streaming").first).to_be_visible()
    page.locator("#drawing").scroll_into_view_if_needed()


def policy_not_found(page: Page) -> None:
    _unfold(page)
    page.locator("#policy input").fill("/nowhere/at/all")
    page.locator("#policy input").press("Enter")
    page.locator("#sample").click()
    expect(page.locator("#sample-note .drawn.error")).to_contain_text("/nowhere/at/all")
    page.locator("#sample-note").scroll_into_view_if_needed()


def notebook_code(page: Page) -> None:
    page.locator("#notebook").click()
    expect(page.locator("#notebook-code pre")).to_be_visible()


def help_page(page: Page) -> None:
    page.get_by_role("tab", name="Help").click()
    expect(page.locator("#help-sum")).to_be_visible()


def glossary(page: Page) -> None:
    help_page(page)
    page.locator("#help-metrics").evaluate("node => node.scrollIntoView()")


def offline(page: Page) -> None:
    page.context.set_offline(True)
    expect(page.locator("#policy-status")).to_contain_text("no connection")


INSPECT: tuple[View, ...] = (
    inspect, pinned, hovered, entropy, no_match, bad_pattern, slow_pattern, presets, reward_error, reward_editor,
    reward_model_form, step_values, two_schemes, no_spread, probes, probe_chosen, own_rollouts,
    weight_by_step, episode, sampling, notebook_code,
    help_page, glossary,
)  # fmt: skip


# ── Train ────────────────────────────────────────────────────────────────────────────────────────────────────────


def train_top(page: Page) -> None:
    page.locator(".run-head").scroll_into_view_if_needed()


def train_rollouts(page: Page) -> None:
    page.locator(".rollout-head").evaluate("node => node.scrollIntoView()")
    page.wait_for_function("document.querySelector('#run-heatmap .rollout .chip')")


TRAIN: tuple[View, ...] = (train_top, train_rollouts)
"""On a run that was trained."""

STORED = ("failed", "crashed", "stopped", "watched", "pairs", "queued", "gone")
"""Runs shown on Train, each a picture ``run-NAME``."""


def preflight(page: Page) -> None:
    _unfold(page)
    page.locator("#generations input").fill("4")
    page.get_by_role("tab", name="Train").click()
    page.locator("#preflight").click()
    expect(page.locator("#preflight-findings li").first).to_be_visible()


def train_empty(page: Page) -> None:
    page.get_by_role("tab", name="Train").click()
    expect(page.locator("#steps")).to_be_visible()
    expect(page.locator("#estimate dt").first).to_be_visible()


def train_refused(page: Page) -> None:
    train_empty(page)
    rate = page.locator("#learning-rate input")
    rate.fill("5")
    rate.press("Tab")
    page.locator("#start").click()
    expect(page.locator("#start-note")).to_contain_text("learning_rate")
    page.locator("#start-note").scroll_into_view_if_needed()


# ── Runs ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def runs_table(page: Page) -> None:
    page.get_by_role("tab", name="Runs").click()
    expect(page.locator("#runs tbody tr").first).to_be_visible()


def runs_chosen(page: Page) -> None:
    runs_table(page)
    for name in ("process-0", "process-1", "outcome-0"):
        page.get_by_label(f"Choose {name}", exact=True).check()
    expect(page.locator("#runs-curves .main-svg").first).to_be_visible()
    page.locator("#runs-curves").evaluate("node => node.scrollIntoView()")


def runs_diff(page: Page) -> None:
    runs_chosen(page)
    expect(page.locator("#runs-diff")).to_contain_text("credit.scheme")
    page.locator("#runs-diff").evaluate("node => node.scrollIntoView()")


def runs_deleted(page: Page) -> None:
    runs_table(page)
    page.get_by_label("Actions of stopped", exact=True).click()
    page.get_by_role("menuitem", name="Delete stopped").click()
    undo = page.get_by_role("button", name="Undo").first
    expect(undo).to_be_visible()


def run_menu(page: Page) -> None:
    runs_table(page)
    page.get_by_label("Actions of process-0", exact=True).click()


def about_run(page: Page) -> None:
    run_menu(page)
    page.get_by_role("menuitem", name="Name, tags and note").click()
    expect(page.locator(".about-run")).to_be_visible()


def runs_restored(page: Page) -> None:
    """Undoes ``runs_deleted`` for the pictures after it."""
    page.get_by_role("button", name="Undo").first.click()
    expect(page.get_by_label("Actions of stopped", exact=True)).to_be_visible()


def runs_no_match(page: Page) -> None:
    runs_table(page)
    page.locator("#runs input[type=search]").fill("nowhere")
    expect(page.get_by_text("No run matches")).to_be_visible()


RUNS: tuple[View, ...] = (runs_table, runs_chosen, runs_diff, runs_no_match, run_menu, about_run, runs_deleted)


def runs_empty(page: Page) -> None:
    page.get_by_role("tab", name="Runs").click()
    expect(page.locator("#runs-empty")).to_be_visible()


WITHOUT_RUNS: tuple[View, ...] = (train_empty, train_refused, preflight, runs_empty)


def store_runs(workspace: Path) -> None:
    """The runs that the Runs views and ``STORED`` show."""
    for seed in (0, 1):
        store(workspace, f"process-{seed}", learning(60, best=0.9, seed=seed), seed=seed, made=1.76e9 + seed)
    store(workspace, "outcome-0", learning(60, best=0.7), method={"credit": {"scheme": "outcome"}}, made=1761000000.0)
    store(workspace, "stopped", learning(21, best=0.6), state="stopped", made=1.762e9)
    failed = store(workspace, "failed", learning(9), state="failed", made=1.763e9)
    failed.dir.log.write_text("step 8\nstep 9\ntorch.OutOfMemoryError: tried to allocate 2.00 GiB\n")
    failed.dir.set_status(
        "failed", "out of memory at step 9; lower sampling.num_generations or method.prompts_per_step", step=9
    )
    watched = store(workspace, "watched", ({"step": i, "entropy": 1.0 if i < 30 else 0.01} for i in range(1, 61)))
    for step in (30, 60):
        watched.dir.rollouts.write(step, [worked_credit()] * 2)
    for step in (0, 20, 60):
        watched.dir.rollouts.write(step, [worked_credit()], watched=True)
    crashed = store(workspace, "crashed", learning(14), state="crashed", made=1.7635e9)
    crashed.dir.log.write_text("step 13\nstep 14\nKilled\n")
    pairs = store(workspace, "pairs", learning(30), method={"name": "dpo"})
    for row in (before_and_now().before, before_and_now()):
        assert row is not None
        pairs.dir.rollouts.write_rows(row.step, [row])
    for name, state in (("going", "running"), ("queued", "queued")):  # as if this process trained them
        run = store(workspace, name, learning(12), state=state, made=1.764e9)
        run.dir.note(pid=os.getpid(), pid_created=psutil.Process().create_time())
    run.dir.set_status("queued", "waiting: run 'going' uses the CPU", behind="going", started=None)


def _unfold(page: Page) -> None:
    button = page.get_by_role("button", name="Show controls")
    if button.is_visible():
        button.click()
