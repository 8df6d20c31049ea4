"""Help's numbers and the registry of metrics."""

import json

import pytest

from tests.credits import worked_credit
from workbench.checks.metrics import METRICS, find_metric
from workbench.credit import SCHEMES
from workbench.ui.handlers.help import guide, live_numbers
from workbench.views.panels import PANELS


def test_the_first_token_is_explained_where_none_is_pinned() -> None:
    # Rollout 1 has r = 1, 1, 0: A of its first token is the sum of all three (r - 4/9) / (sqrt(5/18) + 1e-4).
    shown = live_numbers(worked_credit())
    assert shown is not None
    assert (shown["pinned"], shown["rollout"], shown["token"], shown["step"]) == (False, 1, 0, 1)
    assert [term["reward"] for term in shown["why"]["list"]] == [1.0, 1.0, 0.0]
    expected = (1 + 1 + 0 - 3 * 4 / 9) / ((5 / 18) ** 0.5 + 1e-4)
    assert shown["why"]["total"] == pytest.approx(expected, abs=1e-12)
    assert shown["advantage"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_pinned_tokens_terms_add_up_under_every_scheme(scheme: str) -> None:
    shown = live_numbers(worked_credit(scheme, [1.0, 0.0, 1.0]), 1, 5)
    assert shown is not None
    assert (shown["pinned"], shown["rollout"], shown["token"], shown["step"]) == (True, 2, 5, 2)
    assert sum(term["value"] for term in shown["why"]["list"]) == pytest.approx(shown["why"]["total"], abs=1e-12)
    assert shown["advantage"] == pytest.approx(shown["why"]["total"], abs=1e-6)


def test_the_guide_has_every_scheme_and_metric_as_plain_values() -> None:
    text = json.loads(json.dumps(guide("/workspace/.token", "{origin}")))
    assert [one["name"] for one in text["schemes"]] == list(SCHEMES)
    assert len(text["metrics"]) == len(METRICS)
    assert "/workspace/.token" in text["snippet"]
    compile(text["snippet"], "snippet", "exec")


def test_metrics_have_one_entry_each_and_charts_know_theirs() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for panel in PANELS:
        assert all(metric.formula in panel.about for metric in panel.metrics)
    assert find_metric("rewards/my own/mean") == find_metric("rewards/<name>/mean")
    assert find_metric("rewards/x/other") is None
    assert find_metric("nothing") is None
