"""Handlers of reward models and step values: forms to configurations, events to a line that says how far it is."""

from __future__ import annotations

import threading
import time

import pytest

from workbench.errors import ConfigError, RewardError
from workbench.ui.handlers.reward_forms import FORMAT_CHOICES, model_reward
from workbench.ui.handlers.session import Busy, Works


def test_a_path_and_a_format_come_to_a_reward():
    step = model_reward(" me/math-shepherd prm ", "ki", weight=2)
    assert (step.name, step.kind, step.weight) == ("math_shepherd_prm", "step", 2.0)
    assert (step.model.path, step.model.format, step.model.reduce) == ("me/math-shepherd prm", "ki", "last")
    assert model_reward("me/prm", "extra-0", "min").kind == "outcome"
    assert model_reward("me/judge", "classifier").kind == "outcome"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("",), ConfigError, "give a reward model's folder or Hub id"),
        (("me/prm",), RewardError, "the format of reward model 'me/prm' must be said"),
        (("me/prm", "magic"), ConfigError, "model.format: choose one of classifier, "),
        (("me/prm", "ki", "", float("nan")), ConfigError, "weight: out of range"),
    ],
)
def test_what_does_not_fit_is_said(arguments, error, message):
    with pytest.raises(error, match=message):
        model_reward(*arguments)


def test_every_format_can_be_chosen():
    for _, form in FORMAT_CHOICES[1:]:
        assert model_reward("me/model", form).model.format == form


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
