"""The heatmap's payload and documents, and the curves: numbers by hand, no browser."""

import json
import math

import numpy as np
import pytest

from tests.credits import make_credit, make_rollout, worked_credit
from workbench.checks.metrics import METRICS
from workbench.training.methods import METHODS
from workbench.views.cards import FOLDER
from workbench.views.curves import Seeds, columns_of, figure, folds, overlay_charts, run_charts
from workbench.views.heatmap import credit_payload, to_json, why_payload
from workbench.views.panels import LARGE, PANELS, panels_of

NASTY = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    "${alert(1)} {{value}}",
    "\u202e\u200b\x00",
    "\ud800",
    "𝒳 = 4\n",
    "日本\t",
    "\u2028",
]


def test_advantages_of_any_float32_survive_the_payload():
    values = np.array([0.1, -1e-30, 3.4e38, 1 / 3, -0.0, np.nextafter(np.float32(1), np.float32(2))], dtype=np.float32)
    credit = make_credit([make_rollout(["a"] * 6)] * 2, [[5], [5]], [[1.0], [0.0]])
    credit.advantages[0, :] = values
    drawn = json.loads(to_json(credit_payload(credit)))["rollouts"][0]["advantages"]
    assert np.array(drawn, dtype=np.float32).tobytes() == values.tobytes()


@pytest.mark.parametrize("scheme", ["process", "step", "sum", "rescaled", "outcome"])
def test_every_token_is_explained_and_the_terms_add_up(scheme):
    rollouts = [make_rollout([f"{i} " for i in range(8)]) for _ in range(3)]
    credit = make_credit(
        rollouts,
        [[2, 5, 7], [3, 7], [6]],
        [[1.0, 0.5, None], [0.0, 1.0], [0.25]],
        [1.0, 0.0, None],
        scheme=scheme,
        starts=[[1, 3, 6], [0, 4], [2]],
        outcome_weight=0.5,
    )
    for i, rollout in enumerate(credit_payload(credit)["rollouts"]):
        covered = [t for stretch in rollout["why"] for t in range(stretch["first"], stretch["last"] + 1)]
        assert covered == list(range(8))
        for stretch in rollout["why"]:
            values = [rollout["terms"][i]["value"] for a, b in stretch["terms"] for i in range(a, b + 1)]
            assert math.fsum(values) == pytest.approx(stretch["total"], abs=1e-12)
            for t in range(stretch["first"], stretch["last"] + 1):
                assert np.float32(stretch["total"]) == credit.advantages[i, t]


def test_a_suffix_of_many_terms_is_written_as_one_range():
    steps = 50
    rollout = make_rollout(["x"] * steps)
    credit = make_credit([rollout, rollout], [list(range(steps))] * 2, [[1.0] * steps, [0.0] * steps])
    assert credit_payload(credit)["rollouts"][0]["why"][0]["terms"] == [[0, steps - 1]]


def test_a_large_group_is_explained_on_request_only():
    credit = worked_credit()
    assert "why" not in credit_payload(credit, explain_at_most=10)["rollouts"][0]
    answer = why_payload(credit, 0, 0)
    assert [term["step"] for term in answer["list"]] == [0, 1, 2]
    assert np.float32(answer["total"]) == credit.advantages[0, 0]
    with pytest.raises(IndexError):
        why_payload(credit, 0, 99)


def test_offsets_count_utf16_units():
    # "𝒳" is one character to Python and two units to JavaScript.
    rollout = make_rollout(["𝒳a", "b𝒳", "c"], finished=False)
    credit = make_credit([rollout, rollout], [[0, 2], [0, 2]], [[1.0, 0.0], [0.0, 1.0]])
    drawn = credit_payload(credit, matches=[[(2, 4)], []])["rollouts"][0]
    assert [(step["start"], step["end"]) for step in drawn["steps"]] == [(0, 3), (3, 7)]
    assert drawn["matches"] == [[3, 6]]


# ── curves ───────────────────────────────────────────────────────────────────────────────────────────────────────

ROWS = [
    {"step": 0, "accuracy": 0.25},
    {"step": 1, "reward": 0.5, "loss": -0.1, "kl/k1": 0.0},
    {"step": 2, "reward": None, "loss": float("nan"), "accuracy": 0.5},
]


def test_a_plotly_figure_holds_the_numbers_of_the_panels_that_have_data():
    """What is no number is left out."""
    drawn = figure(run_charts(columns_of(ROWS)))
    titles = [title.text.split("</b>")[0] for title in drawn.layout.annotations]
    assert titles == ["<b>Accuracy", "<b>Reward", "<b>Loss", "<b>KL"]
    assert [(trace.name, list(trace.x), list(trace.y)) for trace in drawn.data] == [
        ("held out", [0, 2], [0.25, 0.5]),
        ("outcome", [1], [0.5]),
        ("loss", [1], [-0.1]),
        ("k1", [1], [0.0]),
    ]
    assert len(figure(run_charts(columns_of(ROWS), ["loss"])).data) == 1
    with pytest.raises(ValueError, match="nothing to draw"):
        figure(run_charts({}))


def test_the_pages_plotly_is_the_packages_own_version():
    from plotly.offline import get_plotlyjs_version

    assert f"v{get_plotlyjs_version()}\n" in (FOLDER / "plotly" / "plotly-basic.min.js").read_text()[:100]


def test_every_metric_that_names_a_panel_is_drawn_there():
    assert {metric.panel for metric in METRICS if metric.panel} == {panel.key for panel in PANELS}
    assert all(metric.label for panel in PANELS for metric in panel.metrics)


@pytest.mark.parametrize("name", METHODS)
def test_curves_stand_in_the_order_of_their_methods_metrics(name):
    """On Train, on Runs and in notebooks; dpo's loss stands before its held-out accuracy."""
    metrics = METHODS[name].metrics
    of_method = [{m.name for m in panel.metrics} & set(metrics) for panel in panels_of(metrics)]
    shown = [min(map(metrics.index, names)) for names in of_method if names]
    assert shown == sorted(shown)
    assert all(of_method[: len(shown)])
    logged = [metric.replace("<name>", "mine") for metric in (*metrics, "step_time")]
    columns = {metric: ([1], [0.5]) for metric in logged}
    keys = [*(panel.key for panel in panels_of(metrics)[: len(shown)]), "time"]
    for charts in (overlay_charts([Seeds("a", [("run", columns)])], metrics), run_charts(columns, metrics=metrics)):
        assert [chart.key for chart in charts] == keys
        assert [bool(chart.group) for chart in charts] == [False] * LARGE + [True] * (len(keys) - LARGE)


def test_accuracy_has_the_interval_of_its_problems_and_what_it_was_before_training():
    """Wilson's interval of 50 % of 100 is (0.4038, 0.5962)."""
    columns = {"accuracy": ([0, 30], [0.5, 1.0]), "entropy": ([1, 2, 3], [1.0, 1.0, 1.0])}
    accuracy, entropy = run_charts(columns, metrics=METHODS["grpo"].metrics, problems=100)
    held_out, before = accuracy.lines
    assert (held_out.low[0], held_out.high[0]) == pytest.approx((0.4038, 0.5962), abs=1e-4)
    assert held_out.high[1] == pytest.approx(1.0)
    assert (before.x, before.y, entropy.lines[0].low) == ([0, 30], [0.5, 0.5], None)


def test_a_folded_group_says_what_its_numbers_did():
    noise = [0.9, 0.91, 0.89, 0.9, 0.9]
    steps = list(range(10))
    columns = {name: (steps, [0.5] * 10) for name in ("accuracy", "rewards/a/mean", "completions/mean_length")}
    columns |= {
        "entropy": (steps, [*noise, *(0.3 for _ in noise)]),
        "steps_per_answer": (steps, noise * 2),
        "zero_spread_share": (steps, [0.0] * 5 + [0.1] * 5),
    }
    told = {fold["title"]: fold for fold in folds(columns, METHODS["grpo"].metrics, ["zero_spread_share"])}
    assert told["Exploration"]["said"] == "entropy fell from 0.9 to 0.3; steps per answer 0.9"
    assert told["Wasted groups"]["said"] == "groups all equal rose from 0 % to 10 %"
    assert {title: fold["look"] for title, fold in told.items()} == {"Exploration": False, "Wasted groups": True}
    assert told["Wasted groups"]["spark"] == [0.0] * 5 + [0.1] * 5
