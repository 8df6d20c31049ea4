"""Rows that are a reward model or Monte-Carlo values, without a browser: scoring, staleness, runs, labels, forms."""

import json
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.drafts import draft_of, own_row
from workbench.config import ModelConfig
from workbench.config.rewards import RUBRIC
from workbench.errors import ConfigError, RewardError
from workbench.policies.step_values import StepValues
from workbench.rewards import RewardConfig, Sandbox
from workbench.schema import Group, Rollout
from workbench.steps import StepPattern
from workbench.steps import pattern as pattern_module
from workbench.training.methods import RunConfig
from workbench.ui.handlers import reward_forms as handlers
from workbench.ui.handlers import runs
from workbench.ui.handlers.example import find_task
from workbench.ui.handlers.page_state import Estimated, PageState, RewardRow, builtin_row, row_of, set_fields
from workbench.ui.handlers.reward_forms import form_values, row_from
from workbench.ui.handlers.rewards import page_row, row_label, task_rows
from workbench.ui.handlers.scoring import ScoringView, rescore
from workbench.ui.handlers.session import Busy, Services, Works

GROUP = Group("p", (Rollout((1, 2), ("a;", "b;"), False), Rollout((3, 4), ("c;", "d;"), False)))
VALUES = StepValues(
    values=((0.25, 1.0), (0.5, 0.0)),
    errors=((0.25, 0.0), (0.5, 0.0)),
    counts=((4, 1), (4, 1)),
    successes=((1, 1), (2, 0)),
    start=0.5,
    k=4,
    seed=0,
    threshold=0.5,
    outcome="answer_correctness",
    pattern=StepPattern(";", "ends"),
    tokens=20,
    seconds=0.5,
)
OUTCOME = RewardConfig(name="answer_correctness", kind="outcome")
MONTE_CARLO = RewardConfig(name="monte_carlo", kind="step", monte_carlo={"continuations": 4})
PRM = RewardConfig(name="prm", kind="step", weight=2.0, model={"path": "me/prm", "format": "ki"})
LEAST = RewardConfig(name="least", kind="outcome", model={"path": "me/prm", "format": "ki", "reduce": "min"})


class Models:
    """Scores a step by how many characters it has, an eighth each; notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def prepare(self, config: ModelConfig) -> None:
        pass

    def score(self, config: ModelConfig, prompts: Any, steps: Any) -> list[list[float]]:
        self.asked.append([list(row) for row in steps])
        return [[len(text) / 8 for text in row] for row in steps]


def form(*rows: RewardRow, regex: str = ";", kind: str = "ends", group: Group = GROUP) -> PageState:
    return draft_of(*rows, regex=regex, kind=kind).but(group=group)


def placed(progress: bool = False, in_run: bool = False, outcome: RewardConfig = OUTCOME) -> RewardRow:
    """The row with what somebody switched in its form on the page."""
    estimated = Estimated(GROUP, VALUES, outcome)
    sent = page_row(RewardRow(set_fields(MONTE_CARLO), estimated=estimated))
    switched = {**sent["fields"]["monte_carlo"], "progress": progress}
    fields = {**sent["fields"], "monte_carlo": switched}
    return RewardRow.of_page({**sent, "fields": fields, "in_run": in_run}, {sent["key"]: estimated})


def scores(view: ScoringView, name: str) -> list[list[float | None]]:
    assert view.credit is not None, (view.note, view.rows)
    return [list(one.scores[name]) for one in view.credit.scored.scored]


# ── reward models ────────────────────────────────────────────────────────────────────────────────────────────────


def of_model(path: str, form: str = "", reduce: str = "") -> RewardRow:
    return row_from("model", {"path": path, "format": form, "reduce": reduce, "trust_remote_code": False}, ())


def test_a_path_and_a_format_come_to_a_reward() -> None:
    step = of_model(" me/math-shepherd prm ", "ki")
    assert (step.name, step.kind, step.weight) == ("math_shepherd_prm", "step", 1.0)
    assert step.model == ModelConfig(path="me/math-shepherd prm", format="ki", reduce="last")
    assert of_model("me/prm", "extra-0", "min").kind == of_model("me/judge", "classifier").kind == "outcome"


@pytest.mark.parametrize(
    ("arguments", "error", "named"),
    [
        (("",), ConfigError, "Hub id"),
        (("me/prm",), RewardError, "'me/prm'"),
        (("me/prm", "magic"), ConfigError, "model.format"),
    ],
)
def test_what_does_not_fit_is_refused(arguments: tuple[str, ...], error: type[Exception], named: str) -> None:
    with pytest.raises(error, match=named):
        of_model(*arguments)


def test_a_changed_form_keeps_the_rest_of_its_row() -> None:
    """A judge's further fields of the request, its weight and its switch have no field in the form."""
    url = {"base_url": "http://127.0.0.1:1/v1", "model": "small"}
    before = row_of(RewardConfig(name="strict", kind="step", weight=2.0, judge={**url, "extra": {"top_p": 0.5}}))
    values = form_values("judge", before) | {"kind": "outcome", "temperature": None}
    after = row_from("judge", values, [before], before.key)
    assert (after.name, after.kind, after.weight) == ("strict", "outcome", 2.0)
    assert (after.judge.extra, after.judge.temperature) == ({"top_p": 0.5}, None)
    added = row_from("judge", {**form_values("judge", None), **url}, [before, after])
    assert (added.name, added.judge.rubric) == ("judge", RUBRIC)


def test_whoever_stops_listening_cancels() -> None:
    works, stopped = Works(), threading.Event()

    def work(report: Any, cancelled: Any) -> None:
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


def test_a_model_scores_steps_or_completions_and_no_pattern_is_compiled_here(
    worker: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pattern_module, "_compiled", None)  # calling it would fail
    models = Models()
    group = replace(GROUP, rollouts=(Rollout((1, 2), ("a;", "bcd;"), False), GROUP.rollouts[1]))
    view = rescore(form(row_of(PRM), row_of(LEAST), group=group), worker, models)
    assert scores(view, "prm") == [[0.25, 0.5], [0.25, 0.25]]
    assert [(one.outcome_scores["least"], one.rewards) for one in view.credit.scored.scored] == [
        (0.25, (0.5, 1.0)),  # weight 2
        (0.25, (0.5, 0.5)),
    ]
    assert models.asked == [[["a;", "bcd;"], ["c;", "d;"]]] * 2


def test_a_row_of_a_model_is_shown_kept_and_taken_over_by_a_run(tmp_path: Path) -> None:
    values = row_of(PRM).with_edits({"weight": 0.5, "code": ""})
    assert row_label(values) == "prm  ·  model"
    assert [one.name for one in task_rows([values], find_task("chain-arithmetic"))][-1] == "prm"
    assert dict(runs.inherited(form(values)))["rewards"] == "prm (model) × 0.5"
    config = form(values).config()
    assert config.grpo.rewards == [PRM.model_copy(update={"weight": 0.5})]
    assert RunConfig.from_yaml(config.to_yaml()) == config
    forms = [form_values("model", row) for row in (values, row_of(LEAST))]
    assert [(form["path"], form["reduce"]) for form in forms] == [("me/prm", ""), ("me/prm", "min")]


# ── Monte-Carlo values ───────────────────────────────────────────────────────────────────────────────────────────


def test_values_score_their_own_group_as_values_or_progress(worker: Sandbox) -> None:
    assert scores(rescore(form(placed()), worker), "monte_carlo") == [[0.25, 1.0], [0.5, 0.0]]
    view = rescore(form(placed(progress=True)), worker)
    assert scores(view, "monte_carlo_progress") == [[-0.25, 0.75], [0.0, -0.5]]
    assert handlers.values_facts(placed())[2] == ("estimated", "20 tokens in 0.5 s, standard error 0.19 on average")


def test_values_of_another_group_or_pattern_are_stale_and_said_to_be(worker: Sandbox) -> None:
    listed = form(builtin_row("tag_format"), builtin_row("think_format"), placed())
    fresh = rescore(listed, worker)
    assert fresh.rows == (None,) * 3
    for draft, said in (
        (listed.but(group=replace(GROUP, prompt="q")), "another group"),
        (listed.with_pattern("[;]", "ends"), "another pattern"),
        (form(builtin_row("step_correctness"), row_of(MONTE_CARLO)), "not estimated yet"),
    ):
        note = rescore(draft, worker).rows[-1]
        assert (note.level, said in note.text) == ("warning", True)


def test_a_run_has_the_values_only_where_it_was_asked_to() -> None:
    listed = form(builtin_row("step_correctness"), placed())
    assert listed.config().grpo.rewards == [RewardConfig(name="step_correctness")]
    (config,) = form(placed(progress=True, in_run=True)).config().grpo.rewards
    assert (config.name, config.monte_carlo.progress) == ("monte_carlo_progress", True)
    assert form(placed(in_run=True)).config().grpo.rewards[0].monte_carlo == MONTE_CARLO.monte_carlo
    mine = RewardConfig(name="mine", kind="outcome", code="def mine(prompts, completions, **c):\n    return [0.0]\n")
    asked = form(builtin_row("step_correctness"), placed(in_run=True, outcome=mine))
    # Whose code the run's policy does not have.
    assert asked.config().grpo.rewards == [RewardConfig(name="step_correctness")]
    assert dict(runs.inherited(listed))["rewards"] == ("step_correctness, without monte_carlo (k=4)")


class Policy:
    """A model worker that knows the values already."""

    asked: Any = None

    def step_values(self, policy: str, group: Group, pattern: Any, outcome: RewardConfig, **how: Any) -> StepValues:
        self.asked = (policy, pattern.regex, outcome, how["k"])
        how["on_event"]({"done": 3, "total": 8, "tokens": 9, "seconds": 1.0})
        return VALUES


def test_estimating_tells_how_far_it_is_and_ends_in_a_row(
    worker: Sandbox, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = Policy()
    monkeypatch.setattr(services, "models", policy)
    monkeypatch.setattr(services, "reward_worker", lambda tab: worker)
    own = own_row("def mine(prompts, completions, **c):\n    return [0.0] * len(prompts)\n")
    asked = {"continuations": 4, "outcome": "mine", "progress": True, "in_run": True}
    views = list(handlers.add("monte_carlo", asked, "", form(own), services, "tab"))
    path, regex, outcome, k = policy.asked
    assert (path, regex, outcome.name, k) == ("tiny", ";", "mine", 4)
    assert [view.note.text for view in views if view.note][1] == "3 of 8 continuations, 9 tokens, 1 s"
    row, instead = views[-1].made
    assert (row.estimated, instead) == (Estimated(GROUP, VALUES, outcome), "")
    assert services.estimates[row.key] is row.estimated
    assert (row.name, row.monte_carlo.outcome, row.in_run) == ("monte_carlo_progress", "mine", True)
    weighted = form(own, replace(row, fields={**row.fields, "weight": 0.5}))
    again, instead = list(handlers.add("monte_carlo", asked, "", weighted, services, "tab"))[-1].made
    assert (again.weight, instead) == (0.5, row.key)


def test_labels_are_written_in_each_format_without_compiling_the_pattern_here(
    worker: Sandbox, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pattern_module, "_compiled", None)  # calling it would fail
    monkeypatch.setattr(services, "reward_worker", lambda tab: worker)
    services.estimates["row"] = placed().estimated

    def file(shape: str, good: str = "hard", key: str = "row") -> dict[str, str]:
        return handlers.step_labels(services, tab="tab", key=key, form=shape, estimation=good)

    def rows(shape: str, good: str = "hard") -> list[dict[str, Any]]:
        assert (file(shape)["said"], file(shape)["name"]) == ("2 of 2 completions written", f"labels-{shape}.jsonl")
        return [json.loads(line) for line in file(shape, good)["text"].splitlines()]

    assert rows("trl") == [
        {"prompt": "p", "completions": ["a;", "b;"], "labels": [True, True]},
        {"prompt": "p", "completions": ["c;", "d;"], "labels": [True, False]},
    ]
    assert [row["labels"] for row in rows("trl", "soft")] == [[0.25, 1.0], [0.5, 0.0]]
    assert [row["label"] for row in rows("processbench", "soft")] == [0, 0]
    assert [row["label"] for row in rows("processbench")] == [-1, 1]
    assert "text" not in file("trl", key="another")
    with pytest.raises(ValidationError):
        file("xml")
