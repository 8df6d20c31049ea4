"""What a notebook does with runs: watching one, comparing several, tables, and handing a group to the page."""

import json
import stat
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from jupyter_client.manager import start_new_kernel

import workbench as wb
from tests import fake_run
from tests.browsing import ROOT, visit
from tests.credits import worked_credit
from tests.stored_runs import store
from workbench.rundir import RunDir
from workbench.ui.handlers.example import first_group
from workbench.views import page_link
from workbench.views.notebook import RunComparison, Watch, open_in_page

# -- watching -------------------------------------------------------------------------------------------------------


def test_watching_draws_until_the_run_is_over(tmp_path):
    """The run is done while it is drawn for the first time."""
    run = wb.open_run(RunDir.create(tmp_path, wb.RunConfig(name="watched")).name, tmp_path)
    drawn = []

    def draw(html):
        if not drawn:
            fake_run.finish(run.dir)
        drawn.append(html)

    watch = Watch(run, every=0.0)
    watch.follow(draw)
    assert [">finished</span>" in html for html in drawn] == [False, True]
    # The base's and three measures.
    accuracy, *_ = watch.charts()
    (held_out,) = accuracy.lines
    assert (held_out.label, held_out.x, held_out.y) == ("held out", [0, 1, 2, 3], pytest.approx([0.3, 0.5, 0.7, 0.8]))
    assert "Accuracy: held out 80 %" in watch.curves()["text/plain"]  # for whoever runs no scripts


STOPPABLE = """
import sys
import workbench as wb
sys.executable = {program!r}
run = wb.train(wb.RunConfig(name="waited-for"), {workspace!r}, module="a program")
run.watch()
"""


@pytest.mark.filterwarnings("default")  # Jupyter's own
def test_the_stop_button_is_heard_while_a_cell_runs(tmp_path):
    """As JupyterLab does it: a click is sent to a subshell, and the cell that waits for the run ends."""
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    manager, client = start_new_kernel(kernel_name="python3", cwd=str(ROOT))
    opened: dict[str, str] = {}

    def note(message: dict[str, Any]) -> None:
        content = message["content"]
        assert message["msg_type"] != "error", content
        if message["msg_type"] == "comm_open":
            opened[content["data"]["state"]["_model_name"]] = content["comm_id"]

    try:
        client.execute_interactive(
            STOPPABLE.format(program=str(program), workspace=str(tmp_path)), timeout=60, output_hook=note
        )
        client.control_channel.send(client.session.msg("create_subshell_request"))
        subshell = client.get_control_msg(timeout=60)["content"]["subshell_id"]
        waiting = client.execute("print('waiting', flush=True); print(run.wait(60).state)")
        printed = streams(client, waiting)
        assert next(printed) == "waiting\n"
        said = {"method": "custom", "content": {"event": "click"}}
        click = client.session.msg("comm_msg", {"comm_id": opened["ButtonModel"], "data": said})
        click["header"]["subshell_id"] = subshell
        client.shell_channel.send(click)
        assert next(printed) == "stopped\n"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def streams(client: Any, request: str) -> Iterator[str]:
    """What a request prints, piece by piece."""
    while True:
        message = client.get_iopub_msg(timeout=90)
        if message["parent_header"].get("msg_id") == request and message["msg_type"] == "stream":
            yield message["content"]["text"]


# -- tables ---------------------------------------------------------------------------------------------------------


def test_rollouts_as_a_table_have_a_row_a_step(tmp_path):
    directory = RunDir.create(tmp_path, wb.RunConfig(name="table"))
    directory.rollouts.write(1, [worked_credit()])
    table = wb.open_run("table", tmp_path).rollouts_frame(1)
    assert table["rollout"].tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 2]
    assert table["rule"].tolist() == [1, 1, 0, 1, 0, 0, 0, 0, 1]
    # Of each step's last token: the suffix sums of credit.md's worked group.
    assert table["advantage"].round(3).tolist() == [1.265, 0.211, -0.843, 0.211, -0.843, -1.475, -0.632, 0.211, 1.054]
    assert table["text"][0] == "t0 t1 t2 t3 "


# -- comparing ------------------------------------------------------------------------------------------------------


def test_a_band_reaches_from_the_lowest_seed_to_the_highest(tmp_path):
    runs = [
        store(tmp_path, f"seed-{seed}", [{"step": step, "accuracy": y} for step, y in enumerate(values)], seed=seed)
        for seed, values in enumerate(([0.2, 0.4], [0.4, 0.8], [0.3, 0.6, 0.9]))
    ]
    (line,) = RunComparison.of(runs).lines()
    assert line.x == [0, 1, 2]
    assert line.y == pytest.approx([0.3, 0.6, 0.9])  # step 2 is one seed's alone
    assert (line.low, line.high) == ([0.2, 0.4, 0.9], [0.4, 0.8, 0.9])
    assert [list(trace.y) for trace in RunComparison.of(runs).figure().data] == [line.low, line.high, line.y]
    with pytest.raises(ValueError, match="no scheme has 'loss'"):
        RunComparison.of(runs).lines("loss")


# -- to the page ----------------------------------------------------------------------------------------------------


def test_a_group_is_kept_under_the_hash_of_what_it_holds(tmp_path):
    credit = worked_credit()
    first, second = open_in_page(credit, tmp_path), open_in_page(credit.scored.group, tmp_path)
    assert first.group == second.group
    kept = json.loads((tmp_path / "groups" / f"{first.group}.json").read_text())
    assert wb.Group.from_json(kept) == credit.scored.group
    assert first.url is None
    assert "start one" in first._repr_html_()


def test_the_link_opens_the_group_under_its_scheme_while_the_page_runs(tmp_path):
    with page_link.announced(tmp_path, "http://127.0.0.1:7860/?token=abc"):
        [announced] = (tmp_path / page_link.PAGES).iterdir()
        assert stat.S_IMODE(announced.stat().st_mode) == 0o600
        link = open_in_page(worked_credit(), tmp_path)
    assert link.url.startswith(f"http://127.0.0.1:7860/?token=abc&saved={link.group}&scheme=process&options=%7B")
    assert open_in_page(worked_credit(), tmp_path).url is None
    assert list((tmp_path / page_link.PAGES).iterdir()) == []


def test_the_link_splits_by_the_preset_or_carries_the_pattern_and_names_what_has_to_be_set_by_hand(tmp_path):
    """The thoughts have no line "Step", so that the steps alone do not tell whether they were left out."""

    def mine(prompt, step, **columns):
        return 1.0

    group = wb.group_of("q", ["<think>12</think>Step 1: 7\n", "<think>12\n"])
    switched = replace(wb.load_task("chain-arithmetic").pattern, leave_out_thinking=True)
    scored = [
        wb.score_group(group, wb.StepPattern(r"\n+", kind="ends"), [mine]),
        wb.score_group(group, wb.StepPattern("t", kind="ends"), [mine]),
        wb.score_group(group, switched, ["think_format"]),
    ]
    assert wb.StepPattern(**scored[2].pattern) == switched
    with page_link.announced(tmp_path, "http://one/"):
        links = [open_in_page(one, tmp_path) for one in scored]
    queries = [parse_qs(urlsplit(link.url).query) for link in links]
    assert [query.get("preset") for query in queries] == [["line"], None, None]
    assert json.loads(queries[2]["settings"][0]) == {"method.pattern.leave_out_thinking": True}
    assert [("pattern" in link.note, "mine" in link.note) for link in links] == [
        (False, True),
        (True, True),
        (False, False),
    ]


@pytest.mark.browser
def test_the_page_shows_the_credit_that_was_opened_in_it(app, browser):
    first = first_group()
    group = replace(first, rollouts=first.rollouts[5:1:-1])
    task = wb.load_task("chain-arithmetic")
    credit = wb.credit_group(wb.score_group(group, task.pattern, task.rewards), "process", gamma=0.5)
    link = open_in_page(credit, app.workspace)
    assert link.note == ""
    with visit(browser, link.url) as page:
        page.locator("#drawing .rollout:not(.streaming)").nth(3).wait_for()
        drawn = page.evaluate("() => document.querySelector('#heatmap').heatmap.data.rollouts")
        shown = page.locator("#drawing .rollout .text").evaluate_all(
            "nodes => nodes.map(node => [...node.querySelectorAll('.tokens')].map(one => one.textContent).join(''))"
        )
    assert app.url in link.url
    assert [row["ids"] for row in drawn] == [list(rollout.token_ids) for rollout in group.rollouts]
    assert sorted(shown) == sorted(rollout.text for rollout in group.rollouts)  # the surprising ones stand first
    for i, row in enumerate(drawn):
        assert [step["reward"] for step in row["steps"]] == list(credit.scored.scored[i].rewards)
        assert np.array(row["advantages"], np.float32).tobytes() == credit.of(i).tobytes()
