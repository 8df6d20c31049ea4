"""Reward code that does its worst, and values that are no scores: the message each gets, in a preview and in a run.

What is checked is which error comes, and that the next call and
everybody else are answered.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.drafts import draft_of, own_row
from tests.hostile_code import HOSTILE, Hostile
from workbench.config import RewardConfig
from workbench.errors import RewardCodeError, RewardError, RewardTimeout, RewardValueError
from workbench.rewards import RewardWorker, load_reward, score_completions
from workbench.rewards.protocol import Batch
from workbench.schema import Group, Rollout
from workbench.steps import StepPattern
from workbench.ui.handlers.scoring import ScoringView, rescore

# Two steps in the first rollout and one in the second; the last token ends the sequence and is no text.
GROUP = Group("p", tuple(Rollout(tuple(range(len(texts))), texts, True) for texts in (("Sa", "Sb", "$"), ("Sc", "$"))))
HARMLESS = "def reward(prompt, step, **columns):\n    return 2.0\n"


@pytest.fixture(scope="module")
def worker() -> Iterator[RewardWorker]:
    with RewardWorker(deadline=60, isolate=True) as worker:
        yield worker


@pytest.fixture(scope="module")
def impatient() -> Iterator[RewardWorker]:
    """For code that hangs; a test lowers its deadline for the call that will not end."""
    with RewardWorker(deadline=60) as worker:
        yield worker


@pytest.fixture(scope="module")
def other() -> Iterator[RewardWorker]:
    with RewardWorker(deadline=60) as worker:
        yield worker


def preview(worker: RewardWorker, code: str, kind: Any = "step") -> ScoringView:
    """What the page shows with this one function in its editor."""
    scheme = "process" if kind == "step" else "outcome"
    draft = draft_of(own_row(code, "reward", kind), regex="S", scheme=scheme)
    return rescore(replace(draft, group=GROUP), worker)


def in_a_run(worker: RewardWorker, code: str, kind: Any = "step") -> Any:
    """What a run's trainer calls."""
    reward = load_reward(RewardConfig(name="reward", kind=kind, code=code), worker)
    return score_completions(["p", "p"], GROUP.rollouts, [{}, {}], StepPattern("S"), [reward], worker=worker)[0]


def expected(one: Hostile, worker: RewardWorker) -> str | None:
    """What is said of it here: a layer that is missing is reported, and refuses nothing."""
    missing = worker.missing_layers()
    return None if one.needs and any(f"no {one.needs}" in layer for layer in missing) else one.says


QUICK = [one for one in HOSTILE if not one.hangs]
HANGING = [one for one in HOSTILE if one.hangs]


def test_there_are_many_of_them() -> None:
    assert len(HOSTILE) >= 25
    assert len({one.code for one in HOSTILE}) == len(HOSTILE)


@pytest.mark.parametrize("one", QUICK, ids=lambda one: one.name)
def test_hostile_code_gets_its_message_and_the_next_call_works(one: Hostile, worker: RewardWorker) -> None:
    says = expected(one, worker)
    if says is None:
        assert [row.rewards for row in in_a_run(worker, one.code)] == [(1.0, 1.0), (1.0,)]
    else:
        with pytest.raises(RewardError, match=says) as caught:
            in_a_run(worker, one.code)
        assert type(caught.value) in (RewardError, RewardValueError)
    assert [row.rewards for row in in_a_run(worker, HARMLESS)] == [(2.0, 2.0), (2.0,)]


@pytest.mark.parametrize("one", HANGING, ids=lambda one: one.name)
def test_code_that_hangs_gets_the_deadlines_message_and_the_next_call_works(
    one: Hostile, impatient: RewardWorker
) -> None:
    reward = load_reward(RewardConfig(name="reward", code=one.code), impatient)
    impatient.deadline = 0.5
    try:
        with pytest.raises(RewardTimeout, match=f"'reward' {one.says}"):
            score_completions(["p", "p"], GROUP.rollouts, [{}, {}], StepPattern("S"), [reward], worker=impatient)
    finally:
        impatient.deadline = 60
    assert [row.rewards for row in in_a_run(impatient, HARMLESS)] == [(2.0, 2.0), (2.0,)]


@pytest.mark.parametrize("one", HANGING, ids=lambda one: one.name)
def test_others_are_answered_while_code_hangs(one: Hostile, other: RewardWorker) -> None:
    started = threading.Event()
    ended: list[RewardError] = []
    hanging = RewardWorker(deadline=600)

    def hang() -> None:
        reward = load_reward(RewardConfig(name="reward", code=one.code), hanging)
        started.set()
        try:
            reward.score_steps(Batch(["p"], ["a"], steps=[["a"]]))
        except RewardError as error:
            ended.append(error)

    thread = threading.Thread(target=hang)
    thread.start()
    assert started.wait(60)
    for _ in range(3):
        assert preview(other, HARMLESS).credit is not None
    assert thread.is_alive()
    hanging.close()
    thread.join(60)
    assert "SIGKILL" in str(ended[0])


@pytest.mark.parametrize("one", [one for one in QUICK if one.says], ids=lambda one: one.name)
def test_the_page_says_it_beside_the_function(one: Hostile, worker: RewardWorker) -> None:
    view = preview(worker, one.code)
    if expected(one, worker) is None:
        assert view.credit is not None
        return
    note = view.rows[0]
    assert note is not None
    assert "reward 'reward'" in note.text
    assert "stale" in view.drawing


def test_a_flood_of_prints_is_cut(worker: RewardWorker) -> None:
    flood = next(one for one in HOSTILE if one.name == "prints 100 MB")
    view = preview(worker, flood.code)
    assert view.credit is not None
    printed = view.credit.scored.rewards[0].printed
    # Three steps print 100,000,001 bytes each, of which 65,536 are kept.
    assert f"… {3 * 100_000_001 - 65_536} bytes left out …" in printed
    assert len(printed) < 70_000


# --- code that is no reward ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def reward(prompt, step, **c):\n    return (", r"does not compile: .* at line 2: return \("),
        ("x = 1", r"define a function named 'reward' .*the code defines no function"),
        ("1 / 0", r"the code of reward 'reward' raised ZeroDivisionError at line 1"),
        ("async def reward(prompt, step, **c):\n    yield 1", "yields; write 'def reward"),
        ("def reward(prompts, completions): return [1]", "cannot take the data's columns"),
        ("def reward(prompt, step, **c):\n    yield 1", "yields; write 'def reward"),
        ("def reward(prompts, completions, **c): return [1, 1]", "is set as a step reward but its signature"),
    ],
)
def test_code_that_is_no_reward_says_what_is_wrong_with_it(worker: RewardWorker, code: str, message: str) -> None:
    with pytest.raises(RewardCodeError, match=message):
        in_a_run(worker, code)
    note = preview(worker, code).rows[0]
    if "set as a step reward" in message:  # the page takes a row's kind from its code
        assert note is None
    else:
        assert note is not None
        assert "'reward'" in note.text


# --- sixteen shapes that are no scores ----------------------------------------------------------------------------

ONE = "def reward(prompt, step, **columns):\n    return {} if step == 'Sb' else 1.0\n"
ALL = "def reward(prompts, completions, steps, **columns):\n    return {}\n"
WHOLE = "def reward(prompts, completions, **columns):\n    return {}\n"
STEP_2 = r" for rollout 1, step 2 \('Sb'\); give a finite number"
SHAPES = [
    ("step", ONE.format("{'score': 1}"), r"gave the dict \{'score': 1\}" + STEP_2),
    ("step", ONE.format("'1.0'"), r"gave the str '1.0'" + STEP_2),
    ("step", ONE.format("[[1.0]]"), r"gave the list \[\[1.0\]\]" + STEP_2),
    ("step", ONE.format("float('inf')"), "gave inf" + STEP_2),
    ("step", ONE.format("float('nan')"), "gave nan" + STEP_2),
    ("step", ONE.format("1e30"), r"gave 1e\+30" + STEP_2),
    ("step", ONE.format("10 ** 400"), "gave an integer of 1,329 bits" + STEP_2),
    ("step", ONE.format("(one for one in [1.0])"), "gave the generator .*" + STEP_2),
    ("step", ALL.format("[[1.0, 2.0]]"), "returned 1 lists for 2 completions"),
    ("step", ALL.format("[[1.0], [1.0]]"), "gave 1 scores for rollout 1, which has 2 steps"),
    ("step", ALL.format("[[1.0, 2.0], None]"), "gave None for rollout 2, which has 1 steps"),
    ("outcome", WHOLE.format("[1.0]"), "returned 1 scores for 2 completions"),
    ("outcome", WHOLE.format("[1.0] * 3"), "returned 3 scores for 2 completions"),
    ("outcome", WHOLE.format("{'a': 1.0, 'b': 2.0}"), "returned the dict .*; return a list"),
    ("outcome", WHOLE.format("None"), "returned None; return a list"),
    ("outcome", WHOLE.format("[1.0, [2.0]]"), r"gave the list \[2.0\] for rollout 2; give a finite number"),
]


@pytest.mark.parametrize(("kind", "code", "message"), SHAPES, ids=range(1, len(SHAPES) + 1))
def test_a_shape_that_is_no_score_is_named_in_a_preview_and_in_a_run(
    worker: RewardWorker, kind: str, code: str, message: str
) -> None:
    with pytest.raises(RewardValueError, match=f"^reward 'reward' {message}") as caught:
        in_a_run(worker, code, kind)
    note = preview(worker, code, kind).rows[0]
    assert note is not None
    assert note.text == str(caught.value)
