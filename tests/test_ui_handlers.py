"""What the page does, without a browser: scoring, examples, reward functions, sampling and runs as plain functions."""

import json
import threading
from dataclasses import replace

import pytest

from tests.credits import make_rollout, pass_over, worked_credit
from tests.drafts import draft_of, own_row, with_values
from tests.stored_runs import alive, store
from workbench.credit import credit_group
from workbench.errors import ChildDied
from workbench.rewards import Reward, score_group
from workbench.schema import Group, Rollout, Step
from workbench.steps import Split, StepPattern, pattern
from workbench.training.methods import RunConfig
from workbench.ui.handlers import run_follow, runs, scoring
from workbench.ui.handlers import sharing as imports
from workbench.ui.handlers.checks import _prompt_row
from workbench.ui.handlers.example import (
    first_group,
    pattern_note,
    read_as,
    sample,
    try_presets,
)
from workbench.ui.handlers.help import live_numbers
from workbench.ui.handlers.page_state import builtin_row
from workbench.ui.handlers.scoring import explain_token, mismatch, remedied, rescore


def test_a_rollout_without_a_step_is_not_one_without_a_match():
    """One that is still thinking has no step; neither has an empty text cut by tokens."""
    assert scoring._no_match([Split([], [])]) is None
    assert "rollout 2" in scoring._no_match([Split([], []), Split([Step(0, 3, matched=False)], [])]).text


def test_presets_are_listed_by_what_they_find():
    """Those that match in every answer come first, and of these the ones with most steps in each."""
    rollouts = [make_rollout(["Step 1: a\n", "Step 2: b\n", "end"]), make_rollout(["Step 1: c\n", "\nd", "end"])]
    rows, others = try_presets(draft_of().but(group=Group("q", tuple(rollouts))))
    found = {name: (finds, first, last) for name, finds, first, last, _ in rows}
    assert found["step-n"] == ("1 to 2 steps", "Step 1: a", "Step 2: b")
    assert found["paragraph"] == ("2 steps in 1 of 2", "Step 1: c", "d")
    names = [name for name, *_ in rows]
    assert names.index("line") < names.index("step-n") < names.index("paragraph")
    assert {"numbered", "ki", "entropy"} <= set(others)
    assert not set(names) & set(others)


# ── scoring ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_bad_pattern_is_noted_with_its_place_and_the_drawing_goes_stale(worker):
    view = rescore(draft_of(regex="(?m)^(Step"), worker)
    assert "character 10" in view.pattern.text
    assert view.pattern.detail == "(?m)^(Step\n" + " " * 10 + "^"
    message = json.loads(view.drawing)
    assert "character 10" not in message["stale"]  # a message stands once
    assert ("show" in message, view.credit) == (False, None)


def test_a_reward_that_raises_is_noted_at_its_row_line_and_step(worker):
    code = "def mine(prompt, step, **columns):\n    if 'Answer' in step:\n        return 1 / 0\n    return 1.0\n"
    view = rescore(draft_of(builtin_row("answer_correctness"), own_row(code)), worker)
    fine, wrong = view.rows
    assert (fine, wrong.line, "ZeroDivisionError" in wrong.text) == (None, 3, True)
    assert wrong.detail.startswith("rollout 1, step 6:\nAnswer: ")
    assert "mine" in json.loads(view.drawing)["stale"]


def test_a_group_whose_outcome_alone_differs_gets_its_colours_by_a_remedy(worker):
    """One right answer, and every step worth the same: ``process`` makes nothing of it."""
    whole = "def right(prompts, completions, **columns):\n    return [float(i == 0) for i in range(len(prompts))]\n"
    same = "def mine(prompt, step, **columns):\n    return 1.0\n"
    draft = draft_of(own_row(same), own_row(whole, name="right", kind="outcome"))
    view = rescore(draft, worker)
    assert json.loads(view.drawing)["show"]["noSpread"]["remedies"] == ["Outcome weight 1", "Scheme outcome"]
    finding = next(f for f in json.loads(view.preflight)["findings"] if f["name"] == "groups without spread")
    assert finding["level"] == "stop"
    for label in ("Outcome weight 1", "Scheme outcome"):
        assert rescore(remedied(draft, view.credit, label), worker).credit.advantages.any()
    assert remedied(draft, view.credit, "Scheme step") is None  # what was not offered
    assert remedied(draft, view.credit, None) is remedied(draft, None, "Scheme outcome") is None


def test_a_group_that_is_not_of_the_page_says_what_differs():
    first, messages = first_group(), [{"role": "user", "content": first_group().prompt}]
    group, told = replace(first, sampling={**first.sampling, "temperature": 0.7}), replace(first, prompt=messages)
    through, without = (
        draft_of().with_value("prompt.apply_template", applied).but(edited=messages) for applied in ("always", "never")
    )
    for draft, shown, said in (
        (draft_of(), first, ""),
        (draft_of().but(prompt="something else"), first, "previous prompt"),
        (with_values(draft_of(), {"policy.path": "gpt2"}), first, "of the policy tiny"),
        (draft_of(), group, "temperature 0.7"),
        (draft_of(), replace(group, sampling={"file": "rollouts.jsonl"}), ""),
        (through, told, ""),
        (without, told, "through"),
        (through, first, "without"),
    ):
        assert said in mismatch(draft, shown)
        assert bool(said) == bool(mismatch(draft, shown))


def test_a_token_is_explained_on_request_only_where_it_exists(worker):
    credit = rescore(draft_of(), worker).credit
    assert explain_token(credit, 0, 0)["list"]
    missing = [(credit, 0, 10**6), (credit, 99, 0), (credit, -1, 0), (None, 0, 0)]
    assert [explain_token(*asked) for asked in missing] == [None] * 4


# ── sampling ─────────────────────────────────────────────────────────────────────────────────────────────────────


SAMPLING = with_values(
    draft_of(),
    {
        "page.text": "Start with 2, add 3.\n",
        "policy.path": "tiny",
        "method.sampling.num_generations": 2,
        "method.sampling.temperature": 1.0,
        "method.sampling.max_completion_length": 8,
        "page.seed": 5,
    },
)


class FakePolicy:
    """Stands for the model worker: sends the events it is given, then the group or, once it is cancelled, nothing."""

    def __init__(self, events, result):
        self.events, self.result = events, result

    def sample(self, policy, example, sampling, *, seed, on_event, cancelled, **options):
        self.asked, self.options = (policy, example, sampling, seed), options
        for event in self.events:
            if cancelled():
                return None
            on_event(event)
        return None if cancelled() else self.result

    def close(self):
        pass


@pytest.mark.parametrize("task", ["calculator", "gsm8k"])
def test_the_environment_of_the_task_answers_what_is_sampled(services, task):
    services.models = FakePolicy([], first_group())
    list(sample(read_as(draft_of(), task, draft_of()), services, "tab"))
    environment = services.models.options.get("environment")
    assert (environment and environment.name) == (task if task == "calculator" else None)


def test_what_a_facts_button_does_is_a_change_of_the_credit_or_of_how_answers_are_sampled(worker):
    draft = draft_of(builtin_row("step_correctness"))
    how = {**first_group().sampling, "max_completion_length": 96, "turn_end": "<end>"}
    credit = rescore(draft.but(group=replace(first_group(), sampling=how)), worker).credit
    settings = {
        "template": ("prompt.apply_template", "always"),
        "penalty": ("method.sampling.repetition_penalty", 1.1),
        "longer": ("method.sampling.max_completion_length", 192),
        "stop": ("method.sampling.stop", ["<end>"]),
        "count": ("method.credit.outcome_weight", 1),
        "compare": ("page.compare.scheme", "outcome"),
    }
    for label, (path, value) in settings.items():
        assert remedied(draft, credit, label).value(path) == value
    assert remedied(draft.but(compare={"scheme": "outcome"}), credit, "uncompare").compare is None


def test_a_sampled_group_takes_the_place_of_the_old_one(services):
    group = replace(first_group(), policy="fake", prompt="mine")
    growing = {"texts": ["a", "b"], "finished": [True, False], "tokens": 2, "seconds": 1.0}
    services.models = FakePolicy([{"loading": "tiny"}, growing], group)
    views = list(sample(SAMPLING.with_value("page.text", "mine").but(columns={}), services, "tab"))
    assert views[0].running
    assert "asking" in json.loads(views[0].drawing)["busy"]
    timed = replace(group, sampling={**group.sampling, "seconds": 1.0})
    assert views[-1].made == {"group": timed, "edited": "mine", "seed": 6}  # the next press samples anew
    assert (views[-1].running, services.sampling.going("tab"), services.models.asked[0]) == (False, False, "tiny")


def test_cancelling_keeps_the_group(services):
    asked = threading.Event()

    def events():
        yield {"waiting": "loads a policy"}
        asked.wait(10)
        yield {}

    services.models = FakePolicy(events(), first_group())
    views = sample(SAMPLING, services, "tab")
    next(views)
    assert "loads a policy" in json.loads(next(views).drawing)["busy"]
    assert services.sampling.cancel("tab")
    assert not services.sampling.cancel("another tab")
    asked.set()
    last = list(views)[-1]
    assert (json.loads(last.drawing), last.made) == ({"back": True}, None)
    assert last.note.text.startswith("Cancelled")


def test_a_worker_that_dies_is_said_and_the_group_stays(services):
    def events():
        yield {"loading": "tiny"}
        raise ChildDied("policy worker died of signal 9")

    services.models = FakePolicy(events(), first_group())
    last = list(sample(SAMPLING, services, "tab"))[-1]
    assert "signal 9" in last.note.text
    assert (json.loads(last.drawing), last.made) == ({"back": True}, None)


# ── runs ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pattern_that_does_not_compile_starts_no_run(services):
    name, note = runs.start_run(draft_of(regex="["), services)
    assert (name, "method.pattern" in note.text) == (None, True)
    assert not (services.workspace / "runs").exists()


def test_no_pattern_but_a_preset_runs_in_the_pages_own_process(services, worker, run, monkeypatch):
    monkeypatch.setattr(scoring, "_PRESETS", [])

    def compiled(source: str) -> None:
        raise AssertionError(f"{source} was compiled in the page's process")

    monkeypatch.setattr(pattern, "_compiled", compiled)
    assert json.loads(rescore(draft_of(), worker).drawing)["show"]
    assert json.loads(run_follow.rollouts(services, "seen", 1, 0)["drawing"])["rollouts"]
    bad = with_values(draft_of(), {"seed": -1})
    assert "seed" in runs.start_run(bad, services)[1].text


# ── configurations opened ────────────────────────────────────────────────────────────────────────────────────────


def test_an_opened_configuration_is_isolated_and_what_reaches_out_is_off():
    code = "def mine(prompt, step, **columns):\n    return 1.0\n"
    model = {"path": "a/b", "format": "stepwise", "trust_remote_code": True}
    rewards = [{"name": "mine", "code": code}, {"name": "prm", "model": model}, {"name": "step_correctness"}]
    shared = RunConfig.parse({"policy": {"trust_remote_code": True}, "method": {"name": "grpo", "rewards": rewards}})
    other = own_row("def other(prompt, step, **columns):\n    return 1.0\n", name="other")
    draft, note = imports.open_config(draft_of(other), "shared.yaml", shared.to_yaml().encode())
    assert (draft.isolates, draft.config().method.isolate_rewards) == (True, True)
    assert [row.name for row in draft.rows if row.on] == ["mine", "step_correctness"]
    assert not draft.policy_options.get("loading", {}).get("trust_remote_code")
    assert all(said in note.text for said in ("shared.yaml", "isolated", "prm", "trust_remote_code", "other"))
    assert not imports.take_over(draft_of(other), "run mine", RunConfig())[0].isolates


@pytest.fixture
def run(tmp_path, services):
    run = store(tmp_path, "seen", [{"step": 1, "reward": 0.5}]).dir
    run.rollouts.write(1, [worked_credit()])
    return run


def test_what_a_reader_should_know_of_a_run_is_told(run, tmp_path):
    with open(run.path / "metrics.jsonl", "ab") as log:
        log.write(b"x\n")
    (run.checkpoints / "checkpoint-1").mkdir()
    run.set_status("crashed", "killed", warnings=["skipped checkpoint-2"])
    news = run_follow.poll(tmp_path, "seen", 0, -1)
    assert (news["warnings"][0], news["resumable"]) == ("skipped checkpoint-2", True)
    assert "line 3" in news["warnings"][1]
    (run.checkpoints / "checkpoint-1").rmdir()
    assert not run_follow.poll(tmp_path, "seen", 0, -1)["resumable"]
    assert "no checkpoint to resume from" in run_follow.resume(tmp_path, "seen")["message"]


def test_stored_rollouts_are_drawn_as_stored(run, services, tmp_path):
    answer = run_follow.rollouts(services, "seen", 1, 7)
    drawn = json.loads(answer["drawing"])
    assert (answer["group"], answer["groups"]) == (0, 1)
    assert drawn["rollouts"][0]["advantages"] == pytest.approx(worked_credit().of(0).tolist())
    assert "step 9" in run_follow.rollouts(services, "seen", 9, 0)["error"]
    assert run_follow.why(tmp_path, "seen", 1, 0, 0, 0)["list"]
    assert run_follow.why(tmp_path, "seen", 1, 0, 0, 0, watched=True) is None
    assert (drawn["loss"]["passes"], answer["shares"]) == ([], [])  # of an earlier version: on policy


def test_a_stored_group_is_drawn_with_its_passes(run, services):
    for number in (1, 2):  # two passes over the generation of step 1
        run.passes.write(pass_over(worked_credit(), 1, number))
    answer = run_follow.rollouts(services, "seen", 1, 0)
    drawn = json.loads(answer["drawing"])
    assert [(p["step"], p["number"], p["logged"]) for p in drawn["loss"]["passes"]] == [(1, 1, 0.25), (2, 2, 0.25)]
    assert drawn["rollouts"][0]["loss"]["coefficients"]["grpo"] == pytest.approx(1 / 30)  # 3 answers, 10 tokens
    assert drawn["rollouts"][0]["loss"]["passes"][1]["logprobs"] == [-1.0] * 10
    assert sum(part.share for part in answer["shares"] if part.name.startswith("step")) == pytest.approx(1)


def test_a_stored_group_says_which_step_its_loss_still_awaits(services, tmp_path):
    """Two steps over the generation of step 3; what a step computed is stored before the step is logged."""
    method = {"num_iterations": 2}
    run = alive(store(tmp_path, "live", [{"step": 2}], state="running", method=method, run={"save_steps": 2})).dir
    run.rollouts.write(3, [worked_credit()])
    awaited = []
    for logged in (2, 3, 4):
        run.note(step=logged)
        awaited.append(run_follow.rollouts(services, "live", 3, 0)["awaited"])
    assert awaited == [3, 4, None]
    run.note(step=2)
    run.set_status("stopped")  # none comes any more
    assert run_follow.rollouts(services, "live", 3, 0)["awaited"] is None


# ── presets ──────────────────────────────────────────────────────────────────────────────────────────────────────


def answers(*texts: str) -> Group:
    return Group("p", tuple(make_rollout(text.splitlines(keepends=True), finished=False) for text in texts))


def test_the_pattern_says_what_it_finds_and_what_is_wrong_with_it_comes_first(worker):
    scored = draft_of(own_row("def mine(prompt, step, **columns):\n    return 1.0\n"))
    draft = scored.but(group=answers("Step 1: a\nStep 2: b\nAnswer: 3", "Step 1: a\nAnswer: 3"))
    note = pattern_note(draft, rescore(draft, worker))
    assert (note.text, note.level) == ("finds 2 to 3 steps per answer: “Step 1: a” to “Answer: 3”", "plain")
    unmatched = draft.but(group=answers("Step 1: a\nAnswer: 3", "nothing"))
    assert pattern_note(unmatched, rescore(unmatched, worker)).text.startswith("no match in rollout 2")
    white = draft.with_pattern(r"\n+", "starts")
    assert pattern_note(white, rescore(white, worker)).level == "warning"
    assert pattern_note(white.with_pattern(r"\n+", "ends"), rescore(white, worker)).level == "plain"


def test_prompts_are_coloured_by_what_the_loss_counts() -> None:
    """A truncated answer that the loss leaves out has no mean; of one with a tool's token its own count alone.

    Outcomes 1, 0 and 1: mean 2/3, std 0.57735, so (1/3) / 0.57745 and -(2/3) / 0.57745 on each sampled token.
    """
    rollouts = [
        Rollout((1, 2), ("a", "b"), finished=True),
        Rollout((1, 2, 3), ("a", "x", "b"), finished=True, mask=(True, False, True)),
        Rollout((1, 2), ("a", "c"), finished=False),
    ]
    group = Group("p", tuple(rollouts), {}, sampling={"mask_truncated_completions": True})
    reward = Reward("mine", "outcome", lambda prompts, completions, **columns: [1.0, 0.0, 1.0])
    credit = credit_group(score_group(group, StepPattern(r"\n"), [reward]), "outcome")
    first, second, third = (mean for mean, _ in _prompt_row(0, credit)["answers"])
    assert (first, second) == (pytest.approx(0.57725, abs=1e-4), pytest.approx(-1.1545, abs=1e-4))
    assert third is None


# ── Help ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_first_token_is_explained_where_none_is_pinned():
    # Rollout 1 has r = 1, 1, 0: A of its first token is the sum of all three (r - 4/9) / (sqrt(5/18) + 1e-4).
    shown = live_numbers(worked_credit())
    assert (shown["pinned"], shown["rollout"], shown["token"], shown["step"]) == (False, 1, 0, 1)
    assert [term["reward"] for term in shown["why"]["list"]] == [1.0, 1.0, 0.0]
    expected = (1 + 1 + 0 - 3 * 4 / 9) / ((5 / 18) ** 0.5 + 1e-4)
    assert shown["why"]["total"] == pytest.approx(expected, abs=1e-12)
    assert shown["advantage"] == pytest.approx(expected, abs=1e-6)
