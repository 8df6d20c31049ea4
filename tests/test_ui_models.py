"""Handlers of reward models and step values: forms to configurations, events to a line that says how far it is."""

from __future__ import annotations

import threading

import pytest

from workbench.config import RewardConfig
from workbench.errors import ConfigError, RewardError
from workbench.policies.step_values import StepValues
from workbench.schema import Group
from workbench.steps import StepPattern
from workbench.ui.handlers.reward_forms import FORMAT_CHOICES, estimate_values, model_reward

GROUP = Group("p", ())
VALUES = StepValues((), (), (), (), None, 2, 0, 0.5, "answer_correctness", (";", "ends"), tokens=7, seconds=0.25)
OUTCOME = RewardConfig(name="answer_correctness", kind="outcome")


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


class Worker:
    """Reports ``events``, each once the one before was shown, then gives or raises ``result``."""

    def __init__(self, events, result):
        self.events, self.result, self.asked = events, result, None
        self.shown = threading.Semaphore(0)

    def step_values(self, policy, group, pattern, outcome, *, k, seed, on_event, cancelled, **options):
        self.asked = (policy, k, seed, outcome.name)
        for event in self.events:
            on_event(event)
            assert self.shown.acquire(timeout=30)
        if isinstance(self.result, Exception):
            raise self.result
        return None if cancelled() else self.result


def views(worker, cancel=None):
    shown = []
    cancel = cancel or threading.Event()
    for view in estimate_values(worker, "tiny", GROUP, StepPattern(), OUTCOME, cancel, k=2, seed=5):
        if shown:  # the first view is none of the worker's events
            worker.shown.release()
        shown.append(view)
    return shown


def test_whoever_stops_listening_cancels():
    cancel = threading.Event()

    class Slow(Worker):
        def step_values(self, *args, cancelled, **kwargs):
            assert cancel.wait(10)

    listening = estimate_values(Slow([], None), "tiny", GROUP, StepPattern(), OUTCOME, cancel)
    next(listening)
    listening.close()
    assert cancel.is_set()
