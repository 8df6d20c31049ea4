"""Runs in a real Chromium: the table, chosen runs together, deleting and undoing, and what Train shows of a run."""

import os
import re
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browsing import App, serious, visit
from tests.credits import pass_over, worked_credit
from tests.stored_runs import learning, store
from tests.watched import before_and_now
from workbench.runs import Run, list_runs

pytestmark = pytest.mark.browser

ROWS = "#runs .scroller[aria-label=Runs] tbody tr"
LONG = 10_000


def store_three(workspace: Path) -> None:
    """Two seeds of one configuration, and another one."""
    for seed in (0, 1):
        store(workspace, f"process-{seed}", learning(12, best=0.8, seed=seed), seed=seed, made=1e9 + seed)
    store(
        workspace,
        "outcome-0",
        learning(8, best=0.6),
        method={"credit": {"scheme": "outcome"}},
        state="stopped",
        made=2000000000.0,
    )


def with_rewards(rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The rows with what two reward functions give: one rises as the other falls."""
    for row in rows:
        yield row | {"rewards/right/mean": row["reward"], "rewards/short/mean": 1 - row["reward"]}


def alive(run: Run) -> Run:
    """As if this process were training it."""
    run.dir.note(pid=os.getpid(), pid_created=psutil.Process().create_time())
    return run


def names(page: Page) -> list[str]:
    return page.locator(f"{ROWS} th").all_inner_texts()


def choose(page: Page, *runs: str) -> None:
    for run in runs:
        page.get_by_label(f"Choose {run}", exact=True).check()


def lines(page: Page, panel: str, expected: list[tuple[str, ...]]) -> None:
    """Waits until a panel of the overlay draws just these lines, each told by what it has of: faint, band."""
    names = """key => {
        const data = document.querySelector(`#runs-curves [data-panel=${key}] .plot`).data ?? [];
        return data.map(({ line }, i) => line.width === 1 ? "faint" : data[i - 1]?.fill ? "band" : "")
            .filter((_, i) => data[i].line.width).join("; "); }"""
    wanted = "; ".join(" ".join(line) for line in expected)
    page.wait_for_function(f"([key, wanted]) => ({names})(key) === wanted", arg=[panel, wanted])


def last_x(page: Page, panel: str) -> Locator:
    """The texts beside a panel's axes."""
    return page.locator(f"#runs-curves [data-panel={panel}] .xaxislayer-above")


def open_in_train(page: Page, run: str) -> None:
    page.locator(ROWS).get_by_role("button", name=run, exact=True).click()
    expect(page.locator("#run-picker")).to_have_value(run)


def slide(page: Page, place: int) -> None:
    page.evaluate(
        "n => { const s = document.querySelector('#step-slider'); s.value = n; s.dispatchEvent(new Event('input')); }",
        place,
    )


def drag(page: Page, chart: Locator, start: int, end: int) -> None:
    """Drag over a chart from one place to another, in pixels from its left, and leave it."""
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    page.mouse.move(box["x"] + start, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + end, box["y"] + 60, steps=3)
    page.mouse.up()
    page.mouse.move(5, 5)


def plotted(figure: Locator) -> list[dict[str, Any]]:
    """The traces that Plotly was given of a figure."""
    expect(figure.locator(".main-svg").first).to_be_visible()
    drawn: list[dict[str, Any]] = figure.locator(".plot").evaluate("plot => plot.data")
    return drawn


# ── Runs ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_runs_are_sorted_compared_opened_and_deleted(
    browser: Browser, app: App, workspace: Path, tmp_path: Path
) -> None:
    with visit(browser, f"{app.url}?runs=gone,../etc") as page:
        no_run_is_there(page)
        store_three(workspace)
        page.get_by_role("tab", name="Runs").click()
        the_table_sorts_filters_and_says_when_nothing_matches(page)
        chosen_runs_are_drawn_together(page)
        dragging_zooms_all_charts_and_a_reload_keeps_the_view(page)
        a_run_is_downloaded_and_opened_in_train(page, tmp_path)
        deleting_offers_undo_and_refuses_a_run_that_goes_on(page, workspace)


def no_run_is_there(page: Page) -> None:
    expect(page.locator("#runs-empty")).to_contain_text("No run yet.")
    expect(page.locator("#runs .missing")).to_contain_text("there is no run 'gone'")
    expect(page.locator("#runs .missing")).to_contain_text("cannot be a run's name")
    page.get_by_role("button", name="Start one on Train").click()
    expect(page.locator("#start")).to_have_text("Start GRPO run")
    expect(page.locator(".ahead figcaption")).to_have_text(["Accuracy", "Reward by function", "Answer length"])


def the_table_sorts_filters_and_says_when_nothing_matches(page: Page) -> None:
    expect(page.locator(ROWS)).to_have_count(3)
    page.locator("#runs-clear").click()
    expect(page.locator("#runs .missing")).to_be_hidden()
    assert names(page) == ["outcome-0", "process-1", "process-0"]
    page.get_by_role("button", name=re.compile("^Accuracy")).click()
    expect(page.locator("th[aria-sort=descending]")).to_have_text("Accuracy")
    assert names(page)[-1] == "outcome-0"
    page.get_by_role("button", name=re.compile("^Accuracy")).click()
    expect(page.locator("th[aria-sort=ascending]")).to_have_text("Accuracy")
    assert names(page)[0] == "outcome-0"
    page.get_by_label("Filter runs").fill("nowhere")
    expect(page.get_by_text("No run matches “nowhere”.")).to_be_visible()
    page.get_by_role("button", name="Show all").click()
    expect(page.locator(ROWS)).to_have_count(3)
    expect(page.locator("#runs-hint")).to_be_visible()


def chosen_runs_are_drawn_together(page: Page) -> None:
    choose(page, "process-0", "process-1", "outcome-0")
    expect(page.locator("#runs-legend li")).to_have_count(2)
    expect(page.locator("#runs-curves [data-panel=length] .main-svg").first).to_be_visible()
    expect(page.locator("#runs-diff")).to_contain_text("credit.scheme")
    assert page.locator("#runs-diff tbody th").all_inner_texts() == ["seed", "method.credit.scheme"]
    # The mean of two seeds with its band; the other configuration is its one run.
    lines(page, "batch", [("band",), ()])
    # With a seed off there is no mean of all: the seed that is left is drawn as it is.
    page.get_by_role("button", name="seed 1").click()
    expect(page.get_by_role("button", name="seed 1")).to_have_attribute("aria-pressed", "false")
    lines(page, "batch", [(), ()])


def dragging_zooms_all_charts_and_a_reload_keeps_the_view(page: Page) -> None:
    """The address holds the chosen runs, the order, the filter and the zoom; the button shows all again."""
    reward = page.locator("#runs-curves [data-panel=length] .nsewdrag")
    reward.scroll_into_view_if_needed()
    expect(last_x(page, "accuracy")).to_contain_text("10")
    drag(page, reward, 40, 140)
    expect(page.locator("#runs-curves .show-all")).to_have_text(re.compile("^steps [1-3]–[3-6] · show all$"))
    expect(last_x(page, "accuracy")).not_to_contain_text("10")
    page.get_by_label("Filter runs").fill("process finished")
    expect(page.locator(ROWS)).to_have_count(2)
    for part in ("runs=process-0,process-1,outcome-0", "sort=accuracy_last", "filter=process.finished", "xmin=.*xmax="):
        page.wait_for_url(re.compile(part))
    page.reload()
    expect(page.locator("th[aria-sort=ascending]")).to_have_text("Accuracy")
    expect(page.locator(ROWS)).to_have_count(2)
    expect(page.locator("#runs-curves [data-panel=batch] .main-svg").first).to_be_visible()
    lines(page, "batch", [("band",), ()])
    page.locator("#runs-curves .show-all").click()
    expect(last_x(page, "length")).to_contain_text("10")
    page.get_by_label("Filter runs").fill("")
    expect(page.locator(f"{ROWS}.chosen")).to_have_count(3)


def a_run_is_downloaded_and_opened_in_train(page: Page, tmp_path: Path) -> None:
    expect(page.locator(ROWS, has_text="process-0").locator(".course svg")).to_be_visible()
    page.get_by_label("Actions of process-0", exact=True).click()
    with page.expect_download() as waiting:
        page.get_by_role("menuitem", name="Save run as ZIP of process-0").click()
    waiting.value.save_as(tmp_path / "run.zip")
    assert "process-0/metrics.jsonl" in zipfile.ZipFile(tmp_path / "run.zip").namelist()
    open_in_train(page, "process-0")
    page.wait_for_url(re.compile(r"\?run=process-0$"))
    # Once more, with the tab there already.
    page.get_by_role("tab", name="Runs").click()
    open_in_train(page, "outcome-0")
    expect(page.locator("#run-state")).to_have_text("stopped")
    page.go_back()
    expect(page.locator(ROWS).first).to_be_visible()
    page.wait_for_url(re.compile("tab=runs"))
    # And through the runs that Train showed.
    page.go_back()
    expect(page.locator("#run-picker")).to_have_value("process-0")
    page.locator("#run-picker").select_option("process-1")
    page.wait_for_url(re.compile(r"\?run=process-1$"))
    page.go_back()
    expect(page.locator("#run-picker")).to_have_value("process-0")
    page.wait_for_url(re.compile(r"\?run=process-0$"))


def deleting_offers_undo_and_refuses_a_run_that_goes_on(page: Page, workspace: Path) -> None:
    alive(store(workspace, "busy", [{"step": 1}], state="running", made=3e9))
    page.get_by_role("tab", name="Runs").click()
    page.get_by_label("Actions of busy", exact=True).click()
    expect(page.get_by_role("menuitem", name="Delete busy")).to_be_disabled()
    page.keyboard.press("Escape")
    page.get_by_label("Actions of outcome-0", exact=True).click()
    page.get_by_role("menuitem", name="Delete outcome-0").click()
    expect(page.locator("#runs-toast")).to_contain_text("Deleted outcome-0.")
    expect(page.locator(ROWS)).to_have_count(3)
    expect(page.locator("#runs-undo")).to_be_focused()
    assert "outcome-0" not in [run.name for run in list_runs(workspace)]
    page.keyboard.press("Enter")
    expect(page.locator("#runs-notice")).to_have_text("outcome-0 is back.")
    expect(page.locator(ROWS)).to_have_count(4)
    choose(page, "process-0", "process-1", "busy")
    page.locator("#runs-delete").click()
    expect(page.locator("#runs-notice")).to_contain_text("run 'busy' is running; stop it first")
    expect(page.locator("#runs-toast")).to_contain_text("Deleted 2 runs.")
    page.get_by_label("Dismiss").click()
    page.locator("#runs-trash summary").click()
    page.get_by_role("button", name="Restore process-1").click()
    expect(page.locator(ROWS)).to_have_count(3)
    assert sorted(run.name for run in list_runs(workspace)) == ["busy", "outcome-0", "process-1"]
    page.get_by_role("tab", name="Train").click()
    expect(page.locator("#run-picker")).to_have_value("process-0")
    expect(page.locator("#run-state")).to_have_text("deleted")


def test_train_says_what_state_a_run_is_in(browser: Browser, app: App, workspace: Path) -> None:
    with visit(browser, f"{app.url}?run=gone") as page:
        an_unknown_run_leads_to_those_there_are(page)
        a_run_that_ends_tells_how_long_the_next_one_takes(page, workspace)
        a_queued_run_names_the_one_before_it(page, workspace)
        a_run_that_failed_shows_why_and_its_log(page, workspace)
        checks_warnings_and_watched_prompts_of_a_run(page, workspace)
        the_loss_of_a_step_comes_to_the_rollouts_that_are_drawn(page, workspace)
        a_run_that_samples_nothing_shows_the_rows_it_watches(page, workspace)


def an_unknown_run_leads_to_those_there_are(page: Page) -> None:
    expect(page.locator("#run-reason")).to_contain_text("no run 'gone'")
    page.get_by_role("button", name="See the runs there are").click()
    expect(page.locator("#runs-empty")).to_be_visible()
    page.wait_for_url(re.compile("tab=runs"))


def a_run_that_ends_tells_how_long_the_next_one_takes(page: Page, workspace: Path) -> None:
    run = alive(store(workspace, "paced", [{"step": 1, "seconds": 2.0}], state="running"))
    open_in_train(page, "paced")
    expect(page.locator("#run-state")).to_have_text("running")
    expect(page.locator("#estimate")).to_contain_text("your first GRPO run")
    page.get_by_role("tab", name="Inspect").click()
    for step in range(2, 12):
        run.dir.append_metrics({"step": step, "seconds": 2.0 * step})
    run.dir.set_status("finished", step=11)
    page.get_by_role("button", name="paced has finished at step 11").click()
    expect(page.locator("#told button")).to_have_count(0)
    expect(page.locator("#estimate")).to_contain_text("the pace of paced")


def a_queued_run_names_the_one_before_it(page: Page, workspace: Path) -> None:
    alive(store(workspace, "first", [{"step": 1}], state="running"))
    second = alive(store(workspace, "second", [], state="queued"))
    second.dir.set_status("queued", "waiting: run 'first' uses the CPU", behind="first", started=None)
    expect(page.locator("#run-picker option[value=second]")).to_be_attached()
    page.locator("#run-picker").select_option("second")
    expect(page.locator("#stop")).to_have_text("Leave the queue")
    expect(page.locator(".run-head .progress-text")).to_have_text(
        "waiting: run 'first' uses the CPU · place 1 in the queue"
    )
    page.get_by_role("button", name="Start anyway").click()
    expect(page.locator("#run-message")).to_have_text("second starts beside the run that it waited for")
    assert second.status().now
    page.locator("#run-ahead").click()
    expect(page.locator("#run-picker")).to_have_value("first")
    expect(page.locator("#run-state")).to_have_text("running")
    expect(page.locator("#start-now")).to_be_hidden()


def a_run_that_failed_shows_why_and_its_log(page: Page, workspace: Path) -> None:
    run = store(workspace, "broken", [{"step": 1, "reward": 0.25}])
    run.dir.log.write_text("first line\n<b>last line</b>\n")
    run.dir.set_status("failed", "loss became NaN at step 2; lower optimiser.learning_rate", step=1)
    expect(page.locator("#run-picker option[value=broken]")).to_be_attached()
    page.locator("#run-picker").select_option("broken")
    expect(page.locator("#run-state")).to_have_text("failed")
    expect(page).to_have_url(re.compile(r"run=broken$"))
    expect(page.locator("#run-reason")).to_contain_text("loss became NaN at step 2")
    expect(page.locator("#run-log")).to_have_text("first line\n<b>last line</b>")
    expect(page.locator("#curves [data-panel=reward] output").last).to_have_text("0.250")


def checks_warnings_and_watched_prompts_of_a_run(page: Page, workspace: Path) -> None:
    rows = [{"step": i, "entropy": 1.0 if i < 30 else 0.01, "reward": 1 - i / 60} for i in range(1, 61)]
    run = store(workspace, "watched", with_rewards(rows), state="stopped")
    for step in (30, 60):
        run.dir.rollouts.write(step, [worked_credit()] * 2)
    for step in (0, 20, 60):
        run.dir.rollouts.write(step, [worked_credit()], watched=True)
    page.locator("#run-picker").select_option("watched")
    entropy = page.locator("#run-alarms [data-alarm='entropy collapse']")
    expect(entropy.get_by_role("button")).to_have_text(
        ["Show the curve", "Set for the next run: half the learning rate"]
    )
    entropy.get_by_role("button", name="Show the curve").click()
    expect(page.locator("[data-panel=entropy]")).to_be_focused()
    expect(page.locator("#group-shown")).to_have_text("group 1 of 2")
    assert serious(page) == []
    page.get_by_label("Which rollouts").select_option("watched")
    expect(page.locator("#group-shown")).to_have_text("group 1 of 1")
    page.get_by_label("beside step 0").check()
    expect(page.locator("#run-beside .about")).to_have_text("3 answers of 3 unchanged.")
    expect(page.locator("#run-beside .changed h4")).to_have_text([re.compile("^step 0 "), re.compile("^step 60 ")] * 3)
    page.get_by_label("beside step 0").uncheck()
    expect(page.locator("#run-beside")).to_be_hidden()
    slide(page, 0)
    expect(page.locator("#step-shown")).to_have_text("0")
    page.wait_for_url(re.compile("watched=1"))
    # A pinned step of a rollout is in the address, too.
    page.locator("#run-heatmap .rollout[data-g='1'] .chip").first.click()
    page.wait_for_url(re.compile("rollout=2&k=1"))
    page.reload()
    expect(page.locator("#run-heatmap .details .where")).to_contain_text("rollout 2 · step 1")
    expect(page.locator("#step-shown")).to_have_text("0")
    expect(page.get_by_label("Which rollouts")).to_have_value("watched")


def the_loss_of_a_step_comes_to_the_rollouts_that_are_drawn(page: Page, workspace: Path) -> None:
    """Those of the last step, say: they are stored before their loss is computed, and none is drawn after them."""
    run = alive(store(workspace, "newest", [{"step": 1, "reward": 0.5}], state="running"))
    run.dir.rollouts.write(2, [worked_credit()])
    page.locator("#run-picker").select_option("newest")
    expect(page.locator("#step-shown")).to_have_text("2")
    expect(page.locator("#run-heatmap .rollout")).to_have_count(3)
    expect(page.locator(".shares")).to_be_hidden()
    page.locator("#run-heatmap .rollout[data-g='1'] .chip").first.click()
    run.dir.passes.write(pass_over(worked_credit(), 2))
    run.dir.append_metrics({"step": 2, "reward": 0.5})
    run.dir.note(step=2)
    expect(page.locator(".shares summary")).to_have_text("Where the gradient comes from")
    expect(page.locator("#run-heatmap .details .where")).to_contain_text("rollout 2 · step 1")  # what is pinned stays
    page.keyboard.press("Escape")


def a_run_that_samples_nothing_shows_the_rows_it_watches(page: Page, workspace: Path) -> None:
    """Those of a pair side by side, before and now."""
    run = store(workspace, "pairs", [{"step": 30, "loss": 0.5}], method={"name": "dpo"})
    now = before_and_now()
    run.dir.rollouts.write_rows(0, [now.before])
    run.dir.rollouts.write_rows(30, [now])
    page.locator("#run-picker").select_option("pairs")
    expect(page.get_by_role("heading", name="Watched rows")).to_be_visible()
    expect(page.locator("#group-shown")).to_have_text("row 1 of 1")
    expect(page.locator("#run-without-rollouts")).to_contain_text("DPO doesn’t sample")
    expect(page.locator("#run-heatmap .summary")).to_have_text("margin 0.00 → 1.63")
    expect(page.locator("#run-heatmap .legend .meaning")).to_have_text("blue: likelier")
    expect(page.get_by_label("Which rollouts")).to_be_hidden()
    chosen, rejected = page.locator("#run-heatmap .rollout").all()
    expect(chosen.locator(".pane.a .text i").first).to_have_class(re.compile("^p s"))
    expect(chosen.locator(".pane.b .text i").first).to_have_class("")
    expect(rejected.locator(".pane.a .step").first).to_have_attribute(
        "aria-label", "step 1 of 2, label 1, implicit reward \u22121.00"
    )
    tops = [card.bounding_box()["y"] for card in (chosen, rejected)]
    assert tops[0] == tops[1]
    slide(page, 0)
    expect(page.locator("#step-shown")).to_have_text("0")
    expect(page.locator("#run-heatmap .summary")).to_have_text("margin 0.00")
    expect(page.locator("#run-heatmap .pane")).to_have_count(0)


def test_the_curves_of_a_run_are_read_and_zoomed(browser: Browser, app: App, workspace: Path) -> None:
    long = alive(store(workspace, "long", with_rewards(learning(LONG)), run={"steps": LONG + 10}, state="running"))
    long.dir.rollouts.write(LONG, [worked_credit()])
    few = [{"step": i, "grad_norm": value, "entropy": value - 2} for i, value in enumerate((1.0, 10.0, 100.0), start=1)]
    store(workspace, "few", few)
    keys = store(workspace, "keys", [{"step": i, "entropy": i / 4} for i in (1, 2, 3, 5, 8, 13, 21, 34, 55)])
    for step in (5, 34):
        keys.dir.rollouts.write(step, [worked_credit()])
    with visit(browser, f"{app.url}?run=long") as page:
        ten_thousand_steps_are_drawn_with_few_points(page)
        dragging_zooms_every_chart_while_rows_come(page, long)
        a_logarithmic_axis(page)
        a_curve_is_read_and_zoomed_with_the_keyboard(page)
        a_run_comes_before_its_controls_on_a_narrow_screen(page)


def ten_thousand_steps_are_drawn_with_few_points(page: Page) -> None:
    reward, grad = (page.locator(f".curve[data-panel={key}]") for key in ("reward", "grad"))
    expect(page.locator(".curve[data-panel=length] .main-svg").first).to_be_visible()
    expect(grad).to_have_count(0)  # what is looked at less is folded away and not even sent
    for title in ("Reward", "Optimiser"):
        page.locator(".fold > summary", has=page.get_by_text(title, exact=True)).click()
    expect(reward.locator(".xaxislayer-above")).to_contain_text("10,000")
    expect(page.locator("#step-shown")).to_have_text(f"{LONG}")
    # Every reward function is a line of its own.
    names = page.locator(".curve[data-panel=rewards] .line").all_inner_texts()
    assert [name.split()[0] for name in names] == ["right", "short"]
    swatches = page.locator(".curve:is([data-panel=reward], [data-panel=rewards]) .line .swatch")
    looks = swatches.evaluate_all("all => all.map(swatch => swatch.style.background)")
    assert len(looks) == len(set(looks)) == 4  # none is taken for the steps' or the outcomes' mean beside it
    assert 0 < max(len(trace["x"]) for figure in (reward, grad) for trace in plotted(figure)) <= 1_000


def dragging_zooms_every_chart_while_rows_come(page: Page, run: Run) -> None:
    svg, loss = page.locator(".curve[data-panel=reward] .nsewdrag"), page.locator(".curve[data-panel=loss]")
    drag(page, svg, 20, 70)
    loss.scroll_into_view_if_needed()
    expect(loss.locator(".xaxislayer-above")).not_to_contain_text("10,000")
    expect(page.locator("#curves .show-all")).to_have_text(re.compile("^steps \\d+–\\d+ · show all$"))
    page.wait_for_url(re.compile("xmin=.*xmax="))
    run.dir.append_metrics({"step": LONG + 1, "loss": 4.25})
    expect(loss.locator("output")).to_have_text("4.25")
    page.evaluate("() => new Promise(done => setTimeout(() => requestAnimationFrame(() => setTimeout(done))))")
    expect(page.locator("#curves .show-all")).to_be_visible()
    expect(loss.locator(".xaxislayer-above")).not_to_contain_text("10,000")
    # A double click shows everything again: it picks no step, so the page goes on following.
    svg.dblclick(position={"x": 60, "y": 60})
    loss.scroll_into_view_if_needed()
    expect(loss.locator(".xaxislayer-above")).to_contain_text("10,000")
    expect(page.locator("#curves .show-all")).to_be_hidden()
    run.dir.rollouts.write(LONG + 2, [worked_credit()])
    expect(page.locator("#step-shown")).to_have_text(f"{LONG + 2}")
    expect(page.locator("#follow-latest")).to_be_checked()
    # One click does pick a step.
    svg.click(position={"x": 60, "y": 60})
    expect(page.locator("#follow-latest")).not_to_be_checked()


def a_logarithmic_axis(page: Page) -> None:
    page.locator("#run-picker").select_option("few")
    entropy, grad = (page.locator(f".curve[data-panel={key}]") for key in ("entropy", "grad"))
    # A logarithmic axis with values below 0 cannot be had.
    grad.locator(".figure-menu summary").click()
    grad.get_by_label("log scale").check()
    page.wait_for_function("document.querySelector('[data-panel=grad] .plot')._fullLayout.yaxis.type === 'log'")
    with page.expect_download() as waiting:
        grad.get_by_role("button", name="CSV").click()
    assert waiting.value.suggested_filename == "few-grad.csv"
    assert Path(waiting.value.path()).read_text() == "step,grad_norm\n1,1\n2,10\n3,100\n"
    entropy.locator(".figure-menu summary").click()
    expect(entropy.get_by_label("log scale")).to_be_disabled()


def a_curve_is_read_and_zoomed_with_the_keyboard(page: Page) -> None:
    page.locator("#run-picker").select_option("keys")
    curve = page.get_by_role("slider", name="Entropy")
    value = page.locator(".curve[data-panel=entropy] output")
    expect(value).to_have_text("13.75")
    curve.focus()
    for key, shown in {"ArrowLeft": 55, "Home": 1, "ArrowRight": 2, "End": 55}.items():
        page.keyboard.press(key)
        expect(curve).to_have_attribute("aria-valuenow", str(shown))
        expect(value).to_have_text(f"{shown / 4:.2f}" if shown > 3 else f"{shown / 4:.3f}")
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    page.keyboard.press("+")  # half of 0 to 55, about step 13
    expect(page.locator("#curves .show-all")).to_have_text("steps 0–26 · show all")
    page.keyboard.press("0")
    expect(page.locator("#curves .show-all")).to_be_hidden()
    expect(page.locator("#step-shown")).to_have_text("34")
    page.keyboard.press("Home")
    page.keyboard.press("Enter")  # the rollouts nearest to step 1
    expect(page.locator("#step-shown")).to_have_text("5")
    assert serious(page) == []


def a_run_comes_before_its_controls_on_a_narrow_screen(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.locator("#run-picker").select_option("few")
    expect(page.locator("#run-state")).to_have_text("finished")
    expect(page.locator("#stop")).to_be_hidden()
    expect(page.locator("#steps")).to_be_hidden()
    expect(page.locator("#start")).to_be_visible()
    page.get_by_role("button", name="Show controls").locator("visible=true").click()
    expect(page.locator("#steps")).to_be_visible()
    page.locator("#run-picker").select_option("keys")
    expect(page.locator("#steps")).to_be_hidden()
    page.set_viewport_size({"width": 1280, "height": 860})
    expect(page.locator("#steps")).to_be_visible()
