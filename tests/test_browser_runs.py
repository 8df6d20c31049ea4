"""Runs in a real Chromium: the table, chosen runs together, deleting and undoing, and what Train shows of a run."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browsing import serious
from tests.credits import pass_over, worked_credit
from tests.stored_runs import alive, learning, store
from tests.watched import before_and_now
from workbench.runs import list_runs

pytestmark = pytest.mark.browser

ROWS = "#runs .scroller[aria-label=Runs] tbody tr"
LONG = 2_000


@pytest.fixture
def page(opened: Page, workspace: Path) -> Page:
    """The file's page, where no run is left of the test before."""
    opened.set_viewport_size({"width": 1280, "height": 860})
    return opened


def go(page: Page, query: str) -> None:
    """Open the page at this address, in the tab that has its scripts already."""
    page.goto(f"{page.url.partition('?')[0]}?{query}")


def with_rewards(rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The rows with what two reward functions give: one rises as the other falls."""
    for row in rows:
        yield row | {"rewards/right/mean": row["reward"], "rewards/short/mean": 1 - row["reward"]}


@pytest.fixture
def three(page: Page, workspace: Path) -> None:
    """Two seeds of one configuration, and another one, in the table."""
    for seed in (0, 1):
        store(workspace, f"process-{seed}", learning(12, best=0.8, seed=seed), seed=seed, made=1e9 + seed)
    credit = {"credit": {"scheme": "outcome"}}
    store(workspace, "outcome-0", learning(8, best=0.6), method=credit, state="stopped", made=2000000000.0)
    go(page, "tab=runs")
    expect(page.locator(ROWS)).to_have_count(3)


def names(page: Page) -> list[str]:
    return page.locator(f"{ROWS} th").all_inner_texts()


def choose(page: Page, *runs: str) -> None:
    for run in runs:
        page.get_by_label(f"Choose {run}", exact=True).check()


def expect_lines(page: Page, panel: str, expected: list[str]) -> None:
    """Expect a panel of the overlay to draw just these lines, each told by what it has of: faint, band."""
    names = """key => {
        const data = document.querySelector(`#runs-curves [data-panel=${key}] .plot`).data ?? [];
        return data.map(({ line }, i) => line.width === 1 ? "faint" : data[i - 1]?.fill ? "band" : "")
            .filter((_, i) => data[i].line.width).join("; "); }"""
    page.wait_for_function(f"([key, wanted]) => ({names})(key) === wanted", arg=[panel, "; ".join(expected)])


def last_x(page: Page, panel: str) -> Locator:
    """The texts beside a panel's axes."""
    return page.locator(f"#runs-curves [data-panel={panel}] .xaxislayer-above")


SHOW = """(run) => {
  history.pushState({ tab: "train-tab-button" }, "", `?run=${run}`);
  dispatchEvent(new PopStateEvent("popstate", { state: history.state }));
}"""


def show(page: Page, run: str) -> None:
    """Have a run on Train, as going back to it has; nothing is loaded anew."""
    page.evaluate(SHOW, run)
    expect(page.locator("#run-picker")).to_have_value(run)


def open_in_train(page: Page, run: str) -> None:
    page.locator(ROWS).get_by_role("button", name=run, exact=True).click()
    expect(page.locator("#run-picker")).to_have_value(run)


def pick(page: Page, run: str) -> None:
    expect(page.locator(f"#run-picker option[value={run}]")).to_be_attached()
    page.locator("#run-picker").select_option(run)


def slide(page: Page, place: int) -> None:
    page.evaluate(
        "n => { const s = document.querySelector('#step-slider'); s.value = n; s.dispatchEvent(new Event('input')); }",
        place,
    )


def drag(page: Page, chart: Locator, start: int, end: int) -> None:
    """Drag over a chart from one place to another, in pixels from its left, and leave it."""
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + start, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + end, box["y"] + 60, steps=3)
    page.mouse.up()
    page.mouse.move(5, 5)


# ── Runs ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("three")
def test_chosen_runs_are_sorted_drawn_together_zoomed_and_there_after_a_reload(page: Page) -> None:
    """The address holds the chosen runs, the order, the filter and the zoom; the button shows all again."""
    assert names(page) == ["outcome-0", "process-1", "process-0"]
    page.get_by_role("button", name=re.compile("^Accuracy")).click()
    expect(page.locator("th[aria-sort=descending]")).to_have_text("Accuracy")
    assert names(page)[-1] == "outcome-0"
    page.get_by_label("Filter runs").fill("nowhere")
    expect(page.locator(ROWS)).to_have_count(0)
    page.get_by_role("button", name="Show all").click()
    choose(page, "process-0", "process-1", "outcome-0")
    expect(page.locator("#runs-legend li")).to_have_count(2)
    length = page.locator("#runs-curves [data-panel=length]")
    expect(length.locator(".main-svg").first).to_be_visible()
    expect(page.locator("#runs-diff tbody th")).to_have_text(["seed", "method.credit.scheme"])
    # The mean of two seeds with its band; the other configuration is its one run. With a seed off there is no mean.
    expect_lines(page, "batch", ["band", ""])
    seed = page.get_by_role("button", name="seed 1")
    seed.click()
    expect_lines(page, "batch", ["", ""])
    seed.click()

    expect(last_x(page, "accuracy")).to_contain_text("10")
    drag(page, length.locator(".nsewdrag"), 40, 140)
    expect(page.locator("#runs-curves .show-all")).to_have_text(re.compile("^steps [1-3]–[3-6] · show all$"))
    expect(last_x(page, "accuracy")).not_to_contain_text("10")
    page.get_by_label("Filter runs").fill("process finished")
    expect(page.locator(ROWS)).to_have_count(2)
    for part in ("runs=process-0,process-1,outcome-0", "sort=-accuracy", "filter=process.finished", "xmin=.*xmax="):
        page.wait_for_url(re.compile(part))
    page.reload()
    expect(page.locator(ROWS)).to_have_count(2)
    expect(page.locator("#runs-curves [data-panel=batch] .main-svg").first).to_be_visible()
    expect_lines(page, "batch", ["band", ""])
    page.locator("#runs-curves .show-all").click()
    expect(last_x(page, "length")).to_contain_text("10")
    page.get_by_label("Filter runs").fill("")
    expect(page.locator(f"{ROWS}.chosen")).to_have_count(3)


@pytest.mark.usefixtures("three")
def test_back_leads_through_the_runs_that_were_shown(page: Page) -> None:
    open_in_train(page, "process-0")
    page.wait_for_url(re.compile(r"\?run=process-0$"))
    page.get_by_role("tab", name="Runs").click()
    open_in_train(page, "outcome-0")
    page.go_back()
    expect(page.locator(ROWS).first).to_be_visible()
    page.wait_for_url(re.compile("tab=runs"))
    page.go_back()
    expect(page.locator("#run-picker")).to_have_value("process-0")
    pick(page, "process-1")
    page.wait_for_url(re.compile(r"\?run=process-1$"))
    page.go_back()
    expect(page.locator("#run-picker")).to_have_value("process-0")
    page.wait_for_url(re.compile(r"\?run=process-0$"))


@pytest.mark.usefixtures("three")
def test_deleting_is_undone_by_keyboard_or_from_the_trash_and_a_run_that_goes_on_stays(
    page: Page, workspace: Path
) -> None:
    open_in_train(page, "process-0")
    alive(store(workspace, "busy", [{"step": 1}], state="running", made=3e9))
    page.get_by_role("tab", name="Runs").click()
    page.get_by_label("Actions of outcome-0", exact=True).click()
    page.get_by_role("menuitem", name="Delete outcome-0").click()
    expect(page.locator("#runs-undo")).to_be_focused()
    assert "outcome-0" not in [run.name for run in list_runs(workspace)]
    page.keyboard.press("Enter")
    expect(page.locator(ROWS)).to_have_count(4)
    choose(page, "process-0", "process-1", "busy")
    page.locator("#runs-delete").click()
    expect(page.locator("#runs-notice")).to_contain_text("'busy'")
    page.get_by_label("Dismiss").click()
    page.locator("#runs-trash summary").click()
    page.get_by_role("button", name="Restore process-1").click()
    expect(page.locator(ROWS)).to_have_count(3)
    assert sorted(run.name for run in list_runs(workspace)) == ["busy", "outcome-0", "process-1"]
    page.get_by_role("tab", name="Train").click()
    expect(page.locator("#run-picker")).to_have_value("process-0")
    expect(page.locator("#run-state")).to_have_text("deleted")


# ── the states of a run on Train ─────────────────────────────────────────────────────────────────────────────────


def test_a_run_that_ends_tells_so_elsewhere_and_how_long_the_next_one_takes(page: Page, workspace: Path) -> None:
    run = alive(store(workspace, "paced", [{"step": 1, "seconds": 2.0}], state="running"))
    show(page, "paced")
    expect(page.locator("#run-state")).to_have_text("running")
    page.get_by_role("tab", name="Inspect").click()
    for step in range(2, 12):
        run.dir.append_metrics({"step": step, "seconds": 2.0 * step})
    run.dir.set_status("finished", step=11)
    page.locator("#told button").click()
    expect(page.locator("#told button")).to_have_count(0)
    expect(page.locator("#estimate")).to_contain_text("the pace of paced")


def test_a_queued_run_leads_to_the_one_before_it_and_starts_anyway(page: Page, workspace: Path) -> None:
    alive(store(workspace, "first", [{"step": 1}], state="running"))
    second = alive(store(workspace, "second", [], state="queued"))
    second.dir.set_status("queued", "waiting: run 'first' uses the CPU", behind="first", started=None)
    show(page, "second")
    expect(page.locator("#stop")).to_have_text("Leave the queue")
    page.get_by_role("button", name="Start anyway").click()
    expect(page.locator("#run-message")).to_contain_text("second")
    assert second.status().now
    page.locator("#run-ahead").click()
    expect(page.locator("#run-picker")).to_have_value("first")
    expect(page.locator("#start-now")).to_be_hidden()


# ── rollouts and watched rows ────────────────────────────────────────────────────────────────────────────────────


def test_alarms_and_watched_prompts_of_a_run_whose_pinned_step_outlasts_a_reload(page: Page, workspace: Path) -> None:
    rows = [{"step": i, "entropy": 1.0 if i < 30 else 0.01, "reward": 1 - i / 60} for i in range(1, 61)]
    run = store(workspace, "watched", with_rewards(rows), state="stopped")
    for step in (30, 60):
        run.dir.rollouts.write(step, [worked_credit()] * 2)
    for step in (0, 20, 60):
        run.dir.rollouts.write(step, [worked_credit()], watched=True)
    show(page, "watched")
    page.locator("#run-alarms [data-alarm='entropy collapse']").get_by_role("button", name="Show the curve").click()
    expect(page.locator("[data-panel=entropy]")).to_be_focused()
    expect(page.locator("#group-shown")).to_have_text("group 1 of 2")
    assert serious(page, "#live") == []
    page.get_by_label("Which rollouts").select_option("watched")
    expect(page.locator("#group-shown")).to_have_text("group 1 of 1")
    page.get_by_label("beside step 0").check()
    expect(page.locator("#run-beside .changed h4")).to_have_text([re.compile("^step 0 "), re.compile("^step 60 ")] * 3)
    page.get_by_label("beside step 0").uncheck()
    expect(page.locator("#run-beside")).to_be_hidden()
    slide(page, 0)
    expect(page.locator("#step-shown")).to_have_text("0")
    page.wait_for_url(re.compile("watched=1"))
    page.locator("#run-heatmap .rollout[data-g='1'] .chip").first.click()
    page.wait_for_url(re.compile("rollout=2&k=1"))
    page.reload()
    expect(page.locator("#run-heatmap .details .where")).to_contain_text("rollout 2 · step 1")
    expect(page.locator("#step-shown")).to_have_text("0")
    expect(page.get_by_label("Which rollouts")).to_have_value("watched")


def test_the_loss_of_a_step_comes_to_the_rollouts_that_are_drawn(page: Page, workspace: Path) -> None:
    """Those of the last step, say: they are stored before their loss is computed, and none is drawn after them."""
    run = alive(store(workspace, "newest", [{"step": 1, "reward": 0.5}], state="running"))
    run.dir.rollouts.write(2, [worked_credit()])
    show(page, "newest")
    expect(page.locator("#step-shown")).to_have_text("2")
    expect(page.locator("#run-heatmap .rollout")).to_have_count(3)
    expect(page.locator(".shares")).to_be_hidden()
    page.locator("#run-heatmap .rollout[data-g='1'] .chip").first.click()
    run.dir.passes.write(pass_over(worked_credit(), 2))
    run.dir.append_metrics({"step": 2, "reward": 0.5})
    run.dir.note(step=2)
    expect(page.locator(".shares summary")).to_be_visible()
    expect(page.locator("#run-heatmap .details .where")).to_contain_text("rollout 2 · step 1")  # what is pinned stays
    page.keyboard.press("Escape")


def test_a_run_that_samples_nothing_shows_the_rows_it_watches(page: Page, workspace: Path) -> None:
    """Those of a pair side by side, before and now."""
    run = store(workspace, "pairs", [{"step": 30, "loss": 0.5}], method={"name": "dpo"})
    now = before_and_now()
    run.dir.rollouts.write_rows(0, [now.before])
    run.dir.rollouts.write_rows(30, [now])
    show(page, "pairs")
    expect(page.locator("#group-shown")).to_have_text("row 1 of 1")
    expect(page.locator("#run-heatmap .summary")).to_have_text("margin 0.00 → 1.63")
    expect(page.get_by_label("Which rollouts")).to_be_hidden()
    chosen, rejected = page.locator("#run-heatmap .rollout").all()
    expect(chosen.locator(".pane.a .text i").first).to_have_class(re.compile("^p s"))
    expect(chosen.locator(".pane.b .text i").first).to_have_class("")
    expect(rejected.locator(".pane.a .step").first).to_have_attribute("aria-label", re.compile("reward \u22121.00$"))
    tops = [card.evaluate("node => node.getBoundingClientRect().y") for card in (chosen, rejected)]
    assert tops[0] == tops[1]
    slide(page, 0)
    expect(page.locator("#run-heatmap .summary")).to_have_text("margin 0.00")
    expect(page.locator("#run-heatmap .pane")).to_have_count(0)


# ── curves ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_long_run_is_drawn_with_few_points_and_zoomed_while_rows_come(page: Page, workspace: Path) -> None:
    run = alive(store(workspace, "long", with_rewards(learning(LONG)), run={"steps": LONG + 10}, state="running"))
    run.dir.rollouts.write(LONG, [worked_credit()])
    show(page, "long")
    grad, loss = (page.locator(f".curve[data-panel={key}]") for key in ("grad", "loss"))
    rewards = page.locator(".curve[data-panel=rewards]")
    expect(rewards.locator(".main-svg").first).to_be_visible()
    expect(grad).to_have_count(0)  # what is looked at less is folded away and not even sent
    page.locator("details.fold > summary", has=page.get_by_text("Optimiser", exact=True)).click()
    expect(grad.locator(".main-svg").first).to_be_visible()
    expect(loss.locator(".xaxislayer-above")).to_contain_text(str(LONG))
    # Every reward function is a line of its own.
    assert [name.split()[0] for name in rewards.locator(".line").all_inner_texts()] == ["right", "short"]
    drawn = [figure.locator(".plot").evaluate("plot => plot.data[0].x.length") for figure in (rewards, grad)]
    assert 0 < max(drawn) <= 1_000

    svg = rewards.locator(".nsewdrag")
    drag(page, svg, 20, 70)
    loss.scroll_into_view_if_needed()
    expect(loss.locator(".xaxislayer-above")).not_to_contain_text(str(LONG))
    page.wait_for_url(re.compile("xmin=.*xmax="))
    run.dir.append_metrics({"step": LONG + 1, "loss": 4.25})
    expect(loss.locator("output")).to_have_text("4.25")
    page.evaluate("() => new Promise(done => setTimeout(() => requestAnimationFrame(() => setTimeout(done))))")
    expect(page.locator("#curves .show-all")).to_be_visible()
    expect(loss.locator(".xaxislayer-above")).not_to_contain_text(str(LONG))
    # A double click shows everything again: it picks no step, so the page goes on following.
    svg.dblclick(position={"x": 60, "y": 60})
    loss.scroll_into_view_if_needed()
    expect(loss.locator(".xaxislayer-above")).to_contain_text(str(LONG))
    expect(page.locator("#curves .show-all")).to_be_hidden()
    run.dir.rollouts.write(LONG + 2, [worked_credit()])
    expect(page.locator("#step-shown")).to_have_text(f"{LONG + 2}")
    expect(page.locator("#follow-latest")).to_be_checked()
    # One click does pick a step.
    svg.click(position={"x": 60, "y": 60})
    expect(page.locator("#follow-latest")).not_to_be_checked()


def test_a_curve_is_read_and_zoomed_with_the_keyboard_and_has_a_logarithmic_axis(page: Page, workspace: Path) -> None:
    run = store(workspace, "keys", [{"step": i, "entropy": i / 4, "grad_norm": i} for i in (1, 2, 3, 5, 8, 34, 55)])
    for step in (5, 34):
        run.dir.rollouts.write(step, [worked_credit()])
    show(page, "keys")
    curve, figure = page.get_by_role("slider", name="Entropy"), page.locator(".curve[data-panel=entropy]")
    value, all_again = figure.locator("output"), page.locator("#curves .show-all")
    expect(value).to_have_text("13.75")
    expect(figure.locator(".main-svg").first).to_be_visible()
    curve.focus()
    for key, step, shown in (("ArrowLeft", 55, "13.75"), ("Home", 1, "0.250"), ("ArrowRight", 2, "0.500")):
        page.keyboard.press(key)
        expect(curve).to_have_attribute("aria-valuenow", str(step))
        expect(value).to_have_text(shown)
    page.keyboard.press("End")
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    page.keyboard.press("+")  # half of 0 to 55, about step 5
    expect(all_again).to_have_text(re.compile(r"^steps \d+–\d+ · show all$"))
    page.keyboard.press("0")
    expect(all_again).to_be_hidden()
    expect(page.locator("#step-shown")).to_have_text("34")
    page.keyboard.press("Home")
    page.keyboard.press("Enter")  # the rollouts nearest to step 1
    expect(page.locator("#step-shown")).to_have_text("5")
    figure.locator(".figure-menu summary").click()
    figure.get_by_label("log scale").check()
    page.wait_for_function("document.querySelector('[data-panel=entropy] .plot')._fullLayout.yaxis.type === 'log'")
    with page.expect_download() as waiting:
        figure.get_by_role("button", name="CSV").click()
    assert waiting.value.suggested_filename == "keys-entropy.csv"


def test_a_run_comes_before_its_controls_on_a_phone(page: Page, workspace: Path) -> None:
    for name in ("one", "other"):
        store(workspace, name, [{"step": 1, "loss": 0.5}])
    show(page, "one")
    page.set_viewport_size({"width": 390, "height": 844})
    expect(page.locator("#steps")).to_be_hidden()
    expect(page.locator("#start")).to_be_visible()
    page.get_by_role("button", name="Show controls").locator("visible=true").click()
    expect(page.locator("#steps")).to_be_visible()
    pick(page, "other")
    expect(page.locator("#steps")).to_be_hidden()
    page.set_viewport_size({"width": 1280, "height": 860})
    expect(page.locator("#steps")).to_be_visible()
