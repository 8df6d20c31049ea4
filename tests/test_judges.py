"""Judges: what is asked, how answers are read, and requests to an endpoint on the loopback interface."""

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.drafts import draft_of
from tests.judge_server import Endpoint, serving, steps_answer
from workbench.config import JudgeConfig
from workbench.errors import ConfigError, RewardError
from workbench.rewards import RewardConfig, Sandbox, score_group
from workbench.rewards.judges import (
    FILE,
    Judges,
    Question,
    UnreadableError,
    Verdict,
    question,
    read_steps,
    read_whole,
)
from workbench.schema import Group, Rollout
from workbench.steps import StepPattern
from workbench.training.methods import RunConfig
from workbench.ui.handlers.sharing import open_config

KEY = "sk_judge_4711_secret"
PATTERN = StepPattern(r";", kind="ends")
GROUP = Group("2+2?", (Rollout((1, 2), ("2+2;", "=4"), False), Rollout((3,), ("5",), False)), {"answer": "4"})


def config_of(url: str = "http://127.0.0.1:1/v1", **settings: Any) -> JudgeConfig:
    return JudgeConfig(base_url=url, model="small", **settings)


@pytest.fixture
def judges(tmp_path: Path) -> Iterator[Judges]:
    with Judges(tmp_path) as judges:
        yield judges


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between tries, which are not waited for."""
    pauses: list[float] = []

    async def note(failed: Any, seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("workbench.rewards.judges._pause", note)
    return pauses


def ask(endpoint: Endpoint, judges: Judges, questions: list[Question], **settings: Any) -> Any:
    return judges.judged("j", config_of(endpoint.url, **settings), questions)


# --- what is asked ------------------------------------------------------------------------------------------------


def test_a_question_has_the_rubric_the_rows_columns_and_numbered_steps() -> None:
    config = config_of(rubric='The answer is {answer}. Not {"json": 1}.', lowest=-1, highest=1)
    text = question(config, "2+2?", "2+2;=4", ["2+2;", "=4"], {"answer": 4})
    for part in ('The answer is 4. Not {"json": 1}.', "from -1 (worst) to 1", "[1] 2+2;\n[2] =4\n", '"score": 0, '):
        assert part in text
    whole = question(config, [{"role": "user", "content": "2+2?"}], "4", None, {"answer": 4})
    assert ("<<<\n2+2?\n>>>" in whole, "steps" in whole) == (True, False)
    with pytest.raises(RewardError, match=r"answer.*level"):
        question(config, "p", "c", None, {"level": 1})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"base_url": "ftp://x/v1"}, "base_url: "),
        ({"base_url": "https://u:p@host/v1"}, "base_url: "),
        ({"key_variable": "sk-abc"}, "key_variable: "),
        ({"lowest": 1}, "lowest: 1 "),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        JudgeConfig.parse({"base_url": "http://x.org/v1", "model": "m", **settings})


# --- how answers are read -----------------------------------------------------------------------------------------

TWO = [Verdict(1.0, "ok", "a"), Verdict(0.0, "no", "")]


@pytest.mark.parametrize(
    "text",
    [
        '{"steps": [{"step": 1, "score": 1, "reason": "ok", "quote": "a"}, {"step": 2, "score": 0, "reason": "no"}]}',
        'Sure!\n```json\n[{"score": 1, "reason": "ok", "quote": "a"}, {"score": "0", "reason": "no"}]\n```\nDone.',
        '<think>{"steps": [{"step": 1, "score": 0}]}</think>{"scores": [{"step": "Step 2", "score": 0, "reason": "no"}'
        ', {"step": "1", "score": 1, "reason": "ok", "quote": "a"}]}',
        # A draft first: what it says of a step that the answer leaves out does not count.
        '{"steps": [{"step": 1, "score": 0}, {"step": 2, "score": 1}]} No: '
        '[{"step": 1, "score": 1, "reason": "ok", "quote": "a"}, {"step": 2, "score": 0, "reason": "no"}]',
        # Cut off in the list, behind the second entry.
        '{"steps": [{"step": 1, "score": 1, "reason": "ok", "quote": "a"}, {"step": 2, "score": 0, "reason": "no"}, {',
    ],
)
def test_steps_are_read_in_many_forms(text: str) -> None:
    assert read_steps(text, 2, 0, 1) == TWO


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        ('{"steps": [{"step": 3, "score": 1}, {"step": 1, "score": null, "reason": "?"}]}', [None, None, 1.0]),
        ("[1, null, 0.5]", [1.0, None, 0.5]),
        ('[{"step": 1, "score": 7}, {"step": 2, "score": 1}]', [None, 1.0]),  # outside of 0 to 1
        (
            '[{"step": 1, "score": 1}, {"step": 2, "score": 1}] or [{"step": 2, "score": 0}, {"step": 9, "score": 1}]',
            [None, 0.0],
        ),
    ],
)
def test_what_an_answer_leaves_out_is_unscored(text: str, scores: list[float | None]) -> None:
    assert [verdict.score for verdict in read_steps(text, len(scores), 0, 1)] == scores


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ('{"score": 0.25, "reason": "r"}', 0.25),
        ('For example {"score": 1}. My verdict: {"score": 0.25}', 0.25),
        ("I would say.\nScore: 0.25", 0.25),
        ("0.25", 0.25),
        ('{"score": null, "reason": "unclear"}', None),
        ('{"score": true}', None),
    ],
)
def test_a_whole_answer_is_read_in_many_forms(text: str, score: float | None) -> None:
    assert read_whole(text, 0, 1).score == score


NO_SCORES = ["", "I cannot judge.", "[" * 5000, '{"score": 12}', '{"a": [1, 2, 3]}']


@pytest.mark.parametrize("text", [*NO_SCORES, '[{"score": 0, "step": 3}, {"score": 1, "step": 4}]'])
def test_an_answer_without_scores_is_unreadable(text: str) -> None:
    with pytest.raises(UnreadableError):
        read_whole(text, 0, 1)
    with pytest.raises(UnreadableError):
        read_steps(text, 2, 0, 1)


# --- requests -----------------------------------------------------------------------------------------------------


def test_the_same_is_asked_once_and_kept(judges: Judges, tmp_path: Path) -> None:
    with serving(lambda body: '{"score": 0.5}') as endpoint:
        questions = [Question("a", None), Question("b", None), Question("a", None)]
        result = ask(endpoint, judges, questions)
        assert [[verdict.score for verdict in of] for of in result[0]] == [[0.5]] * 3
        assert (result[1], len(endpoint.asked)) == (2, 2)
        assert ask(endpoint, Judges(tmp_path), questions)[1] == 0  # another process
        assert ask(endpoint, judges, questions, temperature=1.0)[1] == 2  # another request
        assert ask(endpoint, judges, questions, cache=False)[1] == 2
    assert (tmp_path / FILE).stat().st_mode & 0o077 == 0


def test_cancel_ends_what_is_asked_and_keeps_what_was_answered(judges: Judges) -> None:
    asked, go = threading.Event(), threading.Event()

    def answer(body: dict[str, Any]) -> str:
        if body["messages"][0]["content"] == "slow":
            asked.set()
            go.wait(30)
        return '{"score": 0.5}'

    with serving(answer) as endpoint, ThreadPoolExecutor(1) as pool:
        questions = [Question("quick", None), Question("slow", None)]
        both = pool.submit(ask, endpoint, judges, questions, concurrency=1)
        assert asked.wait(30)
        assert judges.cancel()
        # The endpoint has not answered yet, nor will it before this.
        with pytest.raises(RewardError, match="cancelled"):
            both.result(30)
        go.set()
        assert ask(endpoint, judges, questions)[1] == 1


def test_what_may_pass_is_asked_again_after_a_growing_pause(judges: Judges, pauses: list[float]) -> None:
    given = iter([(429, {}, {"Retry-After": "7"}), (503, b"busy", {}), (500, {}, {}), '{"score": 1}'])
    with serving(lambda body: next(given)) as endpoint:
        result = ask(endpoint, judges, [Question("a", None)])
    assert (result[0][0][0].score, result[1]) == (1.0, 4)
    assert pauses[0] == 7.0  # as it was asked to
    assert 1 <= pauses[1] <= 2 <= pauses[2] <= 4  # 2 ** attempt, half of it at random


@pytest.mark.usefixtures("pauses")
@pytest.mark.parametrize(
    ("answer", "settings", "message", "asked"),
    [
        ((503, {"error": {"message": "overloaded"}}, {}), {"retries": 2}, "503: overloaded", 3),
        (None, {"retries": 0, "timeout": 0.3}, "no answer", 1),
        # What no second try mends is said at once.
        ((401, {"error": {"message": f"wrong key {KEY}"}}, {}), {}, r"401: .*\[redacted\]", 1),
        ((404, {"error": "no such model"}, {}), {}, "404: .*judge.model", 1),
        ((302, {}, {"Location": "http://evil.example/"}), {}, "http://evil.example/", 1),
        ((200, b"<html>hello", {}), {}, "'<html>hello'", 1),
    ],
)
def test_what_no_try_mends_is_said_without_the_key(
    judges: Judges, monkeypatch: pytest.MonkeyPatch, answer: Any, settings: Any, message: str, asked: int
) -> None:
    monkeypatch.setenv("P16_JUDGE", KEY)
    done = threading.Event()
    with serving(lambda body: answer or (done.wait(30) and "")) as endpoint:
        with pytest.raises(RewardError, match=message) as caught:
            ask(endpoint, judges, [Question("a", None)], key_variable="P16_JUDGE", **settings)
        done.set()
        assert [headers["Authorization"] for _, headers, _ in endpoint.asked] == [f"Bearer {KEY}"] * asked
    assert KEY not in repr(caught.value)
    with pytest.raises(RewardError, match="once"):  # it is closed by now
        ask(endpoint, judges, [Question("a", None)], retries=0)


def test_an_unreadable_answer_is_asked_for_once_more_and_then_unscored(judges: Judges) -> None:
    given = iter(["Well …", '{"score": 1}', "no", "still no"])
    with serving(lambda body: next(given)) as endpoint:
        assert ask(endpoint, judges, [Question("a", None)])[0] == [[Verdict(1.0)]]
        again = endpoint.asked[1][2]["messages"]
        assert [message["role"] for message in again] == ["user", "assistant", "user"]
        (verdicts,), _ = ask(endpoint, judges, [Question("b", 2)])
    assert [verdict.score for verdict in verdicts] == [None, None]


def test_a_budget_stops_with_a_sentence_and_what_was_answered_is_kept(judges: Judges) -> None:
    with serving(lambda body: '{"score": 1}') as endpoint:
        many = [Question(str(i), None) for i in range(5)]
        with pytest.raises(RewardError, match=r"judge.max_calls"):
            ask(endpoint, judges, many, max_calls=3)
        assert len(endpoint.asked) == 3
        result = ask(endpoint, judges, many, max_calls=5)  # of the same run, which has two left
        assert (result[1], len(endpoint.asked)) == (2, 5)


def test_whether_anything_listens_is_told_before_a_run(judges: Judges) -> None:
    with serving(lambda body: "") as endpoint:
        judges.reach(config_of(endpoint.url))
    with pytest.raises(RewardError, match=r"http://127.0.0.1:"):
        judges.reach(config_of(endpoint.url))


# --- as a reward --------------------------------------------------------------------------------------------------


def judge(url: str, kind: str = "step", **settings: Any) -> RewardConfig:
    settings = {"base_url": url, "model": "small", **settings}
    return RewardConfig.model_validate({"name": "j", "kind": kind, "judge": settings})


def by_text(body: dict[str, Any]) -> str:
    """Scores of the two rollouts of GROUP."""
    text = body["messages"][0]["content"]
    if "numbered steps" not in text:
        return '{"score": 0.75, "reason": "nearly", "quote": "=4"}'
    return steps_answer(1, 0.5, quote="=4") if "[2]" in text else steps_answer(0)


def test_a_group_is_judged_with_reasons_and_quotes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("P16_JUDGE", KEY)
    with serving(by_text) as endpoint, Judges(tmp_path) as judges, Sandbox(judges=judges) as worker:
        config = judge(endpoint.url, key_variable="P16_JUDGE", rubric="It is {answer}.")
        scored = score_group(GROUP, PATTERN, [config], worker=worker)
        assert scored.step_rewards == [[1.0, 0.5], [0.0]]
        assert scored.scored[0].logged == {
            "j": {
                "reason": ("because", "because"),
                "quote": (None, "=4"),
                "quote that is not in the text": ("=4", None),
            }
        }
        assert scored.rewards[0].metrics == {"judge_calls/j": [2.0]}
        assert sorted(re.findall("It is 4", str(endpoint.asked))) == ["It is 4"] * 2
        whole = score_group(GROUP, PATTERN, [judge(endpoint.url, "outcome")], worker=worker)
        assert (whole.outcomes, whole.scored[0].logged["j"]["quote"]) == ([0.75, 0.75], "=4")
    assert KEY.encode() not in (tmp_path / FILE).read_bytes()
    assert KEY not in config.model_dump_json()


# --- on the page and the shell ------------------------------------------------------------------------------------


def test_a_judge_of_an_opened_configuration_is_off_until_it_is_switched_on() -> None:
    config = RunConfig(method={"rewards": [judge("https://judge.example/v1", key_variable="HOME")]})
    opened, note = open_config(draft_of(), "shared.yaml", config.to_yaml().encode())
    assert [(row.name, row.on) for row in opened.rows] == [("j", False)]
    assert (note.level, "j" in note.text) == ("warning", True)
