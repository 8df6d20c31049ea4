"""What a notebook does with runs: watching one, comparing several, tables, and handing a group to the page."""

from __future__ import annotations

import json
import os
import stat

import pytest

import workbench as wb
from tests.credits import worked_credit
from workbench import handoff
from workbench.display import RunComparison, compare, html, open_in_page, text
from workbench.display.live import Watch
from workbench.figures.glossary import METRICS, find_metric
from workbench.figures.lines import Chart, Line, run_charts, ticks
from workbench.rundir import RunDir
from workbench.runs import start

FAKE = "tests.fake_run"


@pytest.fixture
def run(tmp_path):
    return start(wb.RunConfig(name="watched", task="finish"), tmp_path, module=FAKE)


# -- watching -------------------------------------------------------------------------------------------------------


def test_watching_draws_until_the_run_is_over(run):
    drawn = []
    Watch(run, every=0.01).follow(drawn.append)
    assert run.status().state == "finished"
    assert ">finished</span>" in drawn[-1]
    # Three measures and the base's: 0.3 0.5 0.7 0.8, every point marked and labelled.
    assert "held out: 80 % at 3" in drawn[-1]
    assert drawn[-1].count("<title>held out:") == 4


def test_leaving_ends_the_watching_and_not_the_run(tmp_path):
    run = start(wb.RunConfig(name="going", task="obey"), tmp_path, module=FAKE)
    watch = Watch(run, every=0.01)
    with run.held():
        watch.follow(lambda html: watch.leave())
        assert not run.status().final
        run.stop()


def test_a_resumed_run_is_read_anew(tmp_path):
    directory = RunDir.create(tmp_path, wb.RunConfig(name="again"))
    for step, loss in ((1, 1.0), (2, 2.0), (3, 3.0)):
        directory.append_metrics({"step": step, "loss": loss})
    watch = Watch(wb.open_run("again", tmp_path))
    assert watch.read()
    directory.append_metrics({"event": "resumed", "step": 1})
    directory.append_metrics({"step": 2, "loss": 9.0})
    directory.close()
    watch.read()
    assert [(row["step"], row["loss"]) for row in watch._rows] == [(1, 1.0), (2, 9.0)]


def test_run_watch_is_the_notebooks_own(run):
    watch = run.watch("loss", every=0.2)
    assert isinstance(watch, Watch)
    assert (watch.panels, watch.every) == (("loss",), 0.2)
    run.wait()


def test_a_run_shows_its_state_and_last_values(run):
    run.wait()
    assert text(run).splitlines()[:2] == ["watched: finished, step 3 of 60", "Accuracy: held out 80 %"]
    assert '<span class="state">finished</span>' in html(run)


def test_the_stop_button_stops_the_run(tmp_path):
    run = start(wb.RunConfig(name="stopped", task="obey"), tmp_path, module=FAKE)
    with run.held():
        next(run.follow())
        button = Watch(run)._button()
        button.click()
        assert run.wait(30).state == "stopped"
        assert button.disabled


# -- tables ---------------------------------------------------------------------------------------------------------


def test_rollouts_as_a_table_have_a_row_a_step(tmp_path):
    directory = RunDir.create(tmp_path, wb.RunConfig(name="table"))
    directory.write_rollouts(1, [worked_credit()])
    table = wb.open_run("table", tmp_path).rollouts_frame(1)
    assert table["rollout"].tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 2]
    assert table["rule"].tolist() == [1, 1, 0, 1, 0, 0, 0, 0, 1]
    # Of each step's last token: the suffix sums of credit.md's worked group.
    assert table["advantage"].round(3).tolist() == [1.265, 0.211, -0.843, 0.211, -0.843, -1.475, -0.632, 0.211, 1.054]
    assert table["text"][0] == "t0 t1 t2 t3 "


# -- comparing ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compared(tmp_path_factory) -> RunComparison:
    config = wb.RunConfig(task="finish", training={"steps": 3})
    return compare(config, ["outcome", "process"], 2, tmp_path_factory.mktemp("compared"), module=FAKE)


def test_compared_runs_are_rows_in_order(compared):
    rows = compared.frame()[["scheme", "seed", "final_accuracy"]].values.tolist()
    assert rows == [["outcome", 0, 0.6], ["outcome", 1, 0.6], ["process", 0, 0.8], ["process", 1, 0.8]]
    assert compared.by_scheme()["mean"].to_dict() == {"outcome": 0.6, "process": 0.8}
    assert RunComparison.of(compared.runs).rows == compared.rows


def test_a_band_reaches_from_the_lowest_seed_to_the_highest(tmp_path):
    for seed, values in enumerate(([0.2, 0.4], [0.4, 0.8], [0.3, 0.6, 0.9])):
        directory = RunDir.create(tmp_path, wb.RunConfig(name=f"seed-{seed}", seed=seed))
        for step, value in enumerate(values):
            directory.append_metrics({"step": step, "accuracy": value})
        directory.close()
    runs = [wb.open_run(f"seed-{seed}", tmp_path) for seed in range(3)]
    (line,) = RunComparison.of(runs).lines()
    assert line.x == [0, 1]  # step 2 is one seed's alone
    assert line.y == pytest.approx([0.3, 0.6])
    assert (line.low, line.high) == ([0.2, 0.4], [0.4, 0.8])
    with pytest.raises(ValueError, match="no scheme has 'loss'"):
        RunComparison.of(runs).lines("loss")


def test_a_comparison_shows_its_table_and_a_line_and_a_band_a_scheme(compared):
    drawn = html(compared)
    assert drawn.count('class="line"') == drawn.count("<polygon") == 2
    assert text(compared).splitlines()[0].split() == ["scheme", "seed", "base_accuracy", "final_accuracy", "seconds",
                                                      "rollouts", "rollouts_to_65"]  # fmt: skip


# -- charts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 1, [0, 0.5, 1]), (0, 10, [0, 5, 10]), (-3, 3, [-2, 0, 2]), (2, 2, [2])],
)
def test_ticks_are_round(low, high, expected):
    assert ticks(low, high, 4) == pytest.approx(expected)


def test_a_chart_maps_numbers_to_places_and_escapes_its_words():
    svg = Chart("<b>", (Line("a<b", [0, 10], [0.0, 1.0]), Line("b", [0, 10], [0.5, 0.5])), share=True).svg()
    assert "<b>" not in svg
    # x from 50 to 388; y from 202 (0) to 44 (1): the axis of shares ends at 0 and 1.
    assert 'points="50.0,202.0 388.0,44.0"' in svg
    assert 'points="50.0,123.0 388.0,123.0"' in svg


def test_a_line_needs_as_many_values_as_places():
    with pytest.raises(ValueError, match="line 'a': 2 x and 1 y"):
        Line("a", [1, 2], [1.0])


def test_panels_without_data_are_left_out():
    drawn = run_charts([{"step": 1, "loss": 0.5}, {"step": 2, "loss": float("nan")}])
    assert str(drawn) == "Loss: loss 0.5"


# -- the glossary ---------------------------------------------------------------------------------------------------


def test_every_drawn_metric_is_in_the_glossary_once():
    from workbench.figures import PANELS

    names = [metric.name for metric in METRICS]
    assert len(names) == len(set(names))
    for panel in PANELS:
        for series in panel.series:
            assert find_metric(series.metric), series.metric
    assert find_metric("rewards/step_correctness/mean").name == "rewards/*/mean"
    assert find_metric("nonsense") is None


# -- to the page ----------------------------------------------------------------------------------------------------


def test_a_group_is_kept_under_the_hash_of_what_it_holds(tmp_path):
    credit = worked_credit()
    first, second = open_in_page(credit, tmp_path), open_in_page(credit.scored.group, tmp_path)
    assert first.group == second.group
    kept = json.loads((tmp_path / "groups" / f"{first.group}.json").read_text())
    assert wb.Group.from_json(kept) == credit.scored.group
    assert first.url is None
    assert "no page runs on" in str(first)
    assert "start one" in first._repr_html_()


def test_the_link_opens_the_group_under_its_scheme_while_the_page_runs(tmp_path):
    with handoff.announced(tmp_path, "http://127.0.0.1:7860/?token=abc"):
        assert stat.S_IMODE(os.stat(tmp_path / handoff.PAGE_FILE).st_mode) == 0o600
        link = open_in_page(worked_credit(), tmp_path)
    assert link.url.startswith(f"http://127.0.0.1:7860/?token=abc&saved={link.group}&scheme=process&options=%7B")
    assert open_in_page(worked_credit(), tmp_path).url is None
    assert not (tmp_path / handoff.PAGE_FILE).exists()


def test_a_page_that_crashed_is_not_linked_to(tmp_path):
    (tmp_path / handoff.PAGE_FILE).write_text(json.dumps({"link": "http://x/", "pid": os.getpid(), "created": 1.0}))
    assert handoff.page_link(tmp_path) is None
    (tmp_path / handoff.PAGE_FILE).write_text("torn")
    assert handoff.page_link(tmp_path) is None


def test_a_second_page_takes_the_place_and_the_first_leaves_it_alone(tmp_path):
    with handoff.announced(tmp_path, "http://one/"):
        with handoff.announced(tmp_path, "http://two/"):
            assert handoff.page_link(tmp_path) == "http://two/"
        assert handoff.page_link(tmp_path) is None
