"""A reward function made of a judge: its scores, and its reasons and quotes as what is logged beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from workbench.rewards.judges.asking import question, text_of
from workbench.rewards.judges.judge import Judged, Question
from workbench.rewards.judges.reading import Verdict, is_quoted
from workbench.rewards.returned import Score
from workbench.schema import RewardKind
from workbench.sections import JudgeConfig

REASON, QUOTE, NOT_THERE = "reason", "quote", "quote that is not in the text"


class Judges(Protocol):
    """Who asks judges: ``client.JudgeWorker``."""

    def judged(self, name: str, config: JudgeConfig, questions: Sequence[Question]) -> Judged: ...


def judge_function(name: str, kind: RewardKind, config: JudgeConfig, judges: Judges) -> Callable[..., Any]:
    """The reward function of a judge, in the ``steps`` or the ``outcome`` form of ``protocol``."""

    def ask(questions: Sequence[Question], log_metric: Any) -> list[list[Verdict]]:
        asked = [question for question in questions if question.steps != 0]
        answered = judges.judged(name, config, asked) if asked else Judged([], 0)
        log_metric(f"judge_calls/{name}"[:80], answered.calls)
        verdicts = iter(answered.verdicts)
        return [next(verdicts) if question.steps != 0 else [] for question in questions]

    def steps_judged(
        prompts: Any, completions: Any, steps: Any, log_extra: Any, log_metric: Any, **columns: Any
    ) -> list[list[Score]]:
        questions = [
            Question(question(config, prompts[i], completions[i], texts, row_of(columns, i)), len(texts))
            for i, texts in enumerate(steps)
        ]
        verdicts = ask(questions, log_metric)
        _log(
            log_extra,
            [[said(*each) for each in zip(of, texts, strict=True)] for of, texts in zip(verdicts, steps, strict=True)],
        )
        return [[verdict.score for verdict in of] for of in verdicts]

    def whole_judged(prompts: Any, completions: Any, log_extra: Any, log_metric: Any, **columns: Any) -> list[Score]:
        questions = [
            Question(question(config, prompts[i], completion, None, row_of(columns, i)), None)
            for i, completion in enumerate(completions)
        ]
        verdicts = [of[0] for of in ask(questions, log_metric)]
        _log(log_extra, [said(*each) for each in zip(verdicts, map(text_of, completions), strict=True)])
        return [verdict.score for verdict in verdicts]

    return steps_judged if kind == "step" else whole_judged


def row_of(columns: Mapping[str, Any], i: int) -> dict[str, Any]:
    """A row's own columns."""
    return {name: values[i] for name, values in columns.items() if isinstance(values, list | tuple)}


def said(verdict: Verdict, text: str) -> dict[str, str]:
    """What is logged of a verdict on a text."""
    quote = {QUOTE if is_quoted(verdict.quote, text) else NOT_THERE: verdict.quote} if verdict.quote else {}
    return ({REASON: verdict.reason} if verdict.reason else {}) | quote


def _log(log_extra: Callable[[str, Any], None], logged: Sequence[Any]) -> None:
    """Each column, with a value a completion, or a list of one a step."""
    for column in (REASON, QUOTE, NOT_THERE):
        values = [[of.get(column) for of in row] if isinstance(row, list) else row.get(column) for row in logged]
        log_extra(column, values)
