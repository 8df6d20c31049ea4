"""Questions to a judge, many at once, and its verdicts: from the store where they were asked before."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

from workbench.errors import RewardError
from workbench.rewards.judges.asking import AGAIN
from workbench.rewards.judges.calls import complete
from workbench.rewards.judges.reading import UnreadableError, Verdict, read_steps, read_whole
from workbench.rewards.judges.store import Store
from workbench.sections import JudgeConfig

MAX_TOKENS = "max_completion_tokens"


@dataclass(frozen=True)
class Question:
    """``text`` asks for ``steps`` scores, or for that of a whole completion where it is None."""

    text: str
    steps: int | None


@dataclass(frozen=True)
class Judged:
    """Verdicts of each question, one a step or a single one, and how many requests that took."""

    verdicts: list[list[Verdict]]
    calls: int


class _Stopped(Exception):
    """Another question failed, and this one is not asked any more."""


def judged(
    name: str,
    config: JudgeConfig,
    questions: Sequence[Question],
    store: Store,
    scope: str,
    *,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    pause: Callable[[float], None] | None = None,
) -> Judged:
    """Verdicts on all questions. The same one is asked once, and once more where its answer cannot be read.

    ``scope`` is what ``max_calls`` is the limit of: a run, or an open page. Raises RewardError where the endpoint
    cannot be used or the limit is reached; answers until then stay in the store.
    """
    stop, sent = threading.Event(), _Counter()

    def count() -> None:
        if stop.is_set():
            raise _Stopped
        if store.count(scope, name, config.max_calls) is None:
            raise RewardError(
                f"the {config.max_calls:,} requests that judge.max_calls allows here are sent; raise it to go on "
                "(answers until now are kept and cost nothing again)"
            )
        sent.add()

    def wait(seconds: float) -> None:
        if pause is not None:
            pause(seconds)
        elif stop.wait(seconds):
            raise _Stopped

    def ask(question: Question) -> list[Verdict]:
        return _verdicts(config, question, store, lambda body: complete(config, body, count=count, pause=wait))

    different = list(dict.fromkeys(questions))
    found: dict[Question, list[Verdict]] = {}
    with ThreadPoolExecutor(config.concurrency, thread_name_prefix="judge") as pool:
        asked = {pool.submit(ask, question): question for question in different}
        failure: BaseException | None = None
        for future in as_completed(asked):
            error = future.exception()
            if error is None:
                found[asked[future]] = future.result()
                on_progress(len(found), len(different))
            elif not isinstance(error, _Stopped):
                failure = failure or error
                stop.set()
    if failure is not None:
        raise failure
    return Judged([found[question] for question in questions], sent.value)


class _Counter:
    def __init__(self) -> None:
        self.value = 0
        self._lock = threading.Lock()

    def add(self) -> None:
        with self._lock:
            self.value += 1


def _verdicts(
    config: JudgeConfig, question: Question, store: Store, ask: Callable[[dict[str, Any]], str]
) -> list[Verdict]:
    messages = [{"role": "user", "content": question.text}]
    key = key_of_question(config, question)
    if not config.cache:
        return _asked(config, question, messages, ask)[0]
    with store.claimed(key):
        known = store.get(key)
        if known is not None:
            return _read(config, question, known)
        verdicts, answer = _asked(config, question, messages, ask)
        if answer is not None:
            store.put(key, answer)
    return verdicts


def _asked(
    config: JudgeConfig, question: Question, messages: list[dict[str, str]], ask: Callable[[dict[str, Any]], str]
) -> tuple[list[Verdict], str | None]:
    """The verdicts, and the answer that they were read from; none where two could not be read: all is unscored."""
    problem = ""
    for _ in range(2):
        answer = ask(body_of(config, messages))
        try:
            return _read(config, question, answer), answer
        except UnreadableError as error:
            problem = str(error)
            messages = [
                *messages,
                {"role": "assistant", "content": answer or "(nothing)"},
                {"role": "user", "content": AGAIN.format(problem=f"it {problem}")},
            ]
    return [Verdict(None, f"unscored: the judge's answer {problem}")] * (question.steps or 1), None


def _read(config: JudgeConfig, question: Question, answer: str) -> list[Verdict]:
    if question.steps is None:
        return [read_whole(answer, config.lowest, config.highest)]
    return read_steps(answer, question.steps, config.lowest, config.highest)


def body_of(config: JudgeConfig, messages: Sequence[dict[str, str]]) -> dict[str, Any]:
    """The request, as JSON."""
    body: dict[str, Any] = {"model": config.model, "messages": list(messages)}
    if config.temperature is not None:
        body["temperature"] = config.temperature
    if MAX_TOKENS not in config.extra:
        body["max_tokens"] = config.max_tokens
    return body | config.extra


def key_of_question(config: JudgeConfig, question: Question) -> str:
    """SHA-256 of all that decides an answer."""
    body = body_of(config, [{"role": "user", "content": question.text}])
    decides = [config.base_url, body, config.lowest, config.highest, question.steps]
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()
