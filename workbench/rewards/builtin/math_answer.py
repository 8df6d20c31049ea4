"""Equality of mathematical answers, judged by ``math-verify``.

Comparing can take for ever (a tower of powers is enough). The library limits it by the clock on the wall, so that a
busy machine gives other scores than a quiet one; here the limit is processor time. Only the main thread can have the
signal that tells it, so the function runs in the reward worker, on its main thread and under its deadline.
"""

from __future__ import annotations


def math_equality(
    prompts: list[object],
    completions: list[str | list[dict[str, str]]],
    answer: list[object] | None = None,
    *,
    seconds: float = 1,
    **columns: object,
) -> list[float | None]:
    """1 if the completion's final answer is mathematically equal to the column `answer`, else 0, by math-verify.

    The final answer is what stands in the last `<answer>` or `<SOLUTION>` tag, in the last \\boxed{}, or the last
    number or formula. A right answer that cannot be read gives no score; an answer whose reading or comparing takes
    more than `seconds` of processor time is not equal.
    """
    import logging
    import re
    import signal
    import sys
    import threading
    from collections.abc import Callable
    from typing import Any

    import math_verify
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
    from math_verify.errors import TimeoutException

    if answer is None:
        raise ValueError("the column 'answer' is missing; give each row of the data the right answer")
    on_main, reported = threading.current_thread() is threading.main_thread(), sys.unraisablehook
    for name in ("math_verify.parser", "math_verify.grader"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    forms = [LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig()]

    if "tables_loaded" not in vars(math_verify):  # else the first answer pays for it out of its own time
        verify(
            parse("1", forms, parsing_timeout=None), parse("$ab$", forms, parsing_timeout=None), timeout_seconds=None
        )
        vars(math_verify)["tables_loaded"] = True

    def expire(*_: object) -> None:
        raise TimeoutException

    def report(lost: Any) -> None:
        if lost.exc_type is not TimeoutException:
            reported(lost)

    def limited(run: Callable[..., Any], otherwise: Any, *values: Any, **options: Any) -> Any:
        if not on_main:  # no signals there
            return run(*values, **options)
        before = signal.signal(signal.SIGVTALRM, expire)
        sys.unraisablehook = report
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds, 0.1)  # repeated: what a destructor raises is lost
        try:
            return run(*values, **options)
        except TimeoutException:
            return otherwise
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)
            sys.unraisablehook = reported

    def read(text: str) -> Any:
        options = {"extraction_mode": "first_match", "parsing_timeout": None}
        return limited(parse, [], text, forms, **options) or limited(parse, [], f"${text}$", forms, **options)

    def final(text: str) -> str:
        tagged = re.findall(r"<(answer|SOLUTION)>((?:(?!<\1>).)*?)</\1>", text, re.DOTALL)
        if tagged:
            return str(tagged[-1][1])
        return text[text.rfind("\\boxed") :] if "\\boxed" in text else text

    scores: list[float | None] = []
    for completion, right in zip(completions, answer, strict=True):
        text = completion if isinstance(completion, str) else completion[-1]["content"]
        expected = [] if right is None else read(str(right).split("####")[-1].strip())
        if not expected:
            scores.append(None)
            continue
        scores.append(float(limited(verify, False, expected, read(final(text).strip()), timeout_seconds=None)))
    return scores
