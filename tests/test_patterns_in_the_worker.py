"""Step patterns run in the sandbox: the message each bad one gets on the page, and what a run makes of it."""

from dataclasses import replace

import pytest

from tests.drafts import draft_of
from workbench.checks import preflight_of
from workbench.errors import PatternError, PatternSyntaxError
from workbench.rewards import Sandbox, load_reward, score_completions, score_group
from workbench.schema import Group, Rollout, Step
from workbench.steps import StepPattern
from workbench.ui.handlers.page_state import builtin_row
from workbench.ui.handlers.scoring import ScoringView, rescore


def group(*texts: str) -> Group:
    return Group("p", tuple(Rollout((1, 2), (text, ""), True) for text in texts))


def preview(worker: Sandbox, regex: str, *texts: str, kind: str = "starts") -> ScoringView:
    draft = draft_of(builtin_row("step_correctness"), regex=regex, kind=kind)
    return rescore(draft.but(group=replace(group(*texts), columns=draft.columns)), worker)


@pytest.mark.parametrize(
    ("regex", "texts", "kind", "message"),
    [
        ("(a|aa)+$", ["b", "aab", "a" * 50 + "b"], "starts", "the step pattern is too slow (0.25 s) on rollout 3"),
        (r"\s+$", [" " * 100_000 + "x"], "starts", "the step pattern is too slow (0.25 s) on rollout 1"),
        ("(" * 3000, ["a"], "starts", "invalid pattern: maximum recursion"),
        ("[", ["a"], "starts", "invalid pattern: unterminated character set at character 1"),
        ("", ["a"], "starts", "the pattern is empty and would match empty text"),
        ("x*", ["a"], "starts", "the step pattern matches empty text; require at least one character"),
        ("é" * 5001, ["a"], "starts", "the step pattern is 10,002 bytes; the limit is 10,000"),
        ("a" * 10_001, ["a"], "starts", "the pattern has 10,001 characters; the limit is 10,000"),
    ],
)
def test_a_bad_pattern_gets_its_message_beside_the_field(
    worker: Sandbox, regex: str, texts: list[str], kind: str, message: str
) -> None:
    view = preview(worker, regex, *texts, kind=kind)
    assert view.pattern is not None
    assert message in view.pattern.text
    assert "stale" in view.drawing


def test_no_match_is_a_warning_and_one_step(worker: Sandbox) -> None:
    view = preview(worker, "never", "ab", "cd")
    assert view.pattern is not None
    assert (view.pattern.level, "2 of 2" in view.pattern.text) == ("warning", True)
    assert view.credit is not None
    assert [one.steps for one in view.credit.scored.scored] == [(Step(0, 2, matched=False),)] * 2


def test_in_a_run_a_text_that_cannot_be_split_is_unscored_and_the_others_are_not(worker: Sandbox) -> None:
    texts = ["aab", "a" * 50 + "b", "a"]
    rollouts = group(*texts).rollouts
    reward = load_reward(always_one)
    scored, _ = score_completions(["p"] * 3, rollouts, [{}] * 3, StepPattern("(a|aa)+$"), [reward], worker=worker)
    assert [one.rewards for one in scored] == [(1.0,), (None,), (1.0,)]
    assert [one.matched for one in scored] == [False, False, True]


def always_one(prompt: str, step: str, **columns: object) -> float:
    return 1.0


@pytest.mark.parametrize("leniently", [False, True])
@pytest.mark.parametrize(("regex", "kind"), [("[", PatternSyntaxError), ("x*", PatternError)])
def test_a_pattern_that_cannot_be_used_ends_a_run_too(
    worker: Sandbox, regex: str, kind: type[PatternError], leniently: bool
) -> None:
    for texts in ([], ["a"]):
        with pytest.raises(kind):
            worker.split(texts, StepPattern(regex), leniently=leniently)


@pytest.mark.parametrize("leniently", [False, True])
def test_a_text_of_over_a_thousand_steps_stays_whole_and_stops_no_other(worker: Sandbox, leniently: bool) -> None:
    one, many = worker.split(["a", "a" * 200_000], StepPattern("a", "is"), leniently=leniently)
    assert (one.steps, one.failed) == ([Step(0, 1)], False)
    assert (many.steps, many.failed) == ([Step(0, 200_000, matched=False)], True)


def test_an_answer_of_5000_lines_is_shown_unsplit_and_counted_beside_one_of_two(worker: Sandbox) -> None:
    view = preview(worker, r"\n+", "one\ntwo", "line\n" * 5000, kind="ends")
    assert view.credit is not None
    short, long = view.credit.scored.scored
    assert (None in short.rewards, len(short.steps)) == (False, 2)
    assert (long.unsplit, long.rewards) == (True, (None,))
    found = {
        finding.name: finding.value for finding in preflight_of([view.credit], StepPattern(r"\n+", "ends")).findings
    }
    assert found["answers left unsplit"] == "1 of 2"


def test_a_group_scored_with_a_worker_is_split_there(worker: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.steps.pattern._compiled", None)
    scored = score_group(group("Sa", "SbSc"), StepPattern("S"), [always_one], worker=worker)
    assert scored.step_rewards == [[1.0], [1.0, 1.0]]
