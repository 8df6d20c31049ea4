"""Equality of mathematical answers, judged by ``math-verify``.

Comparing can take for ever (a tower of powers is enough), and the library's own limit is an alarm signal that only the
main thread can have. So it runs in the reward worker, on its main thread and under its deadline.
"""

from __future__ import annotations


def math_equality(
    prompts: list[object],
    completions: list[str | list[dict[str, str]]],
    answer: list[object] | None = None,
    *,
    seconds: int = 1,
    **columns: object,
) -> list[float | None]:
    """1 if the completion's final answer is mathematically equal to the column `answer`, else 0, by math-verify.

    The final answer is what stands in the last `<answer>` or `<SOLUTION>` tag, in the last \\boxed{}, or the last
    number or formula. A right answer that cannot be read gives no score; an answer whose reading or comparing takes
    longer than `seconds` (whole ones) is not equal.
    """
    import logging
    import re
    import threading

    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    if answer is None:
        raise ValueError("the column 'answer' is missing; give each row of the data the right answer")
    # The library keeps time with an alarm signal, which only the main thread can have; elsewhere it would raise.
    on_main = threading.current_thread() is threading.main_thread()
    limit = seconds if on_main else None
    for name in ("math_verify.parser", "math_verify.grader"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    forms = [LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig()]

    def read(text: str) -> list[object]:
        found: list[object] = parse(text, forms, extraction_mode="first_match", parsing_timeout=limit)
        return found

    def final(text: str) -> str:
        tagged = re.findall(r"<(answer|SOLUTION)>((?:(?!<\1>).)*?)</\1>", text, re.DOTALL)
        if tagged:
            return str(tagged[-1][1])
        return text[text.rfind("\\boxed") :] if "\\boxed" in text else text

    scores: list[float | None] = []
    for completion, right in zip(completions, answer, strict=True):
        text = completion if isinstance(completion, str) else completion[-1]["content"]
        gold = str(right).split("####")[-1].strip()
        expected = [] if right is None else read(gold) or read(f"${gold}$")
        if not expected:
            scores.append(None)
            continue
        given = final(text).strip()
        claimed = read(given) or read(f"${given}$")
        scores.append(float(verify(expected, claimed, timeout_seconds=limit)))
    return scores
