"""Handlers of reward models and step values: forms to configurations, events to a line that says how far it is."""

import threading
import time

import pytest

from workbench.config.rewards import RUBRIC
from workbench.errors import ConfigError, RewardError
from workbench.rewards import RewardConfig
from workbench.ui.handlers.page_state import RewardRow, row_of
from workbench.ui.handlers.reward_forms import form_values, row_from
from workbench.ui.handlers.session import Busy, Cancelled, Works


def of_model(path: str, form: str = "", reduce: str = "") -> RewardRow:
    return row_from("model", {"path": path, "format": form, "reduce": reduce, "trust_remote_code": False}, ())


def test_a_path_and_a_format_come_to_a_reward():
    step = of_model(" me/math-shepherd prm ", "ki")
    assert (step.name, step.kind, step.weight) == ("math_shepherd_prm", "step", 1.0)
    assert (step.model.path, step.model.format, step.model.reduce) == ("me/math-shepherd prm", "ki", "last")
    assert of_model("me/prm", "extra-0", "min").kind == "outcome"
    assert of_model("me/judge", "classifier").kind == "outcome"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("",), ConfigError, "give a reward model's folder or Hub id"),
        (("me/prm",), RewardError, "the format of reward model 'me/prm' must be said"),
        (("me/prm", "magic"), ConfigError, "model.format: choose one of classifier, "),
    ],
)
def test_what_does_not_fit_is_said(arguments, error, message):
    with pytest.raises(error, match=message):
        of_model(*arguments)


def test_a_changed_form_keeps_the_rest_of_its_row():
    """A judge's further fields of the request, its weight and its switch have no field in the form."""
    url = {"base_url": "http://127.0.0.1:1/v1", "model": "small"}
    before = row_of(RewardConfig(name="strict", kind="step", weight=2.0, judge={**url, "extra": {"top_p": 0.5}}))
    values = form_values("judge", before) | {"kind": "outcome", "temperature": None}
    after = row_from("judge", values, [before], before.key)
    assert (after.name, after.kind, after.weight) == ("strict", "outcome", 2.0)
    assert (after.judge.extra, after.judge.temperature) == ({"top_p": 0.5}, None)
    added = row_from("judge", {**form_values("judge", None), **url}, [before, after])
    assert (added.name, added.judge.rubric) == ("judge", RUBRIC)


def test_whoever_stops_listening_cancels():
    works, stopped = Works(), threading.Event()

    def work(report, cancelled):
        while not cancelled():
            time.sleep(0.01)
        stopped.set()

    with works.run("tab", work, "asking") as running:
        assert next(iter(running)) == "asking"
        with pytest.raises(Busy), works.run("tab", work, "asking"):
            pass
        assert works.going("tab")
    assert stopped.wait(60)
    assert not works.going("tab")
    with works.run("tab", work, "asking", "nothing was done") as running:
        works.cancel("tab")
        with pytest.raises(Cancelled, match="nothing was done"):
            running.result()
