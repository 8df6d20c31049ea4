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

    The final answer is read as `workbench.answers` has it, else it is the last number or formula. Of a list of right
    answers any counts. A right answer that cannot be read gives no score; an answer whose reading or comparing takes
    more than `seconds` of processor time is not equal.
    """
    import logging
    import re
    from functools import partial
    from typing import Any

    import math_verify
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
    from math_verify.errors import TimeoutException

    from workbench.answers import (
        call_limited,
        cleaned,
        final_answer,
        golds_of,
        in_plain_digits,
        is_same,
        log_extracted,
        read_number,
        spoken_texts,
    )

    if answer is None:
        raise ValueError("the column 'answer' is missing; give each row of the data the right answer")
    for name in ("math_verify.parser", "math_verify.grader"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    forms = [LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig()]

    if "tables_loaded" not in vars(math_verify):  # else the first answer pays for it out of its own time
        verify(
            parse("1", forms, parsing_timeout=None), parse("$ab$", forms, parsing_timeout=None), timeout_seconds=None
        )
        vars(math_verify)["tables_loaded"] = True

    limited = partial(call_limited, seconds, TimeoutException)

    def read(text: str) -> Any:
        """What an answer without the text around it means. Bare LaTeX is read as what stands in \\boxed."""
        options = {"extraction_mode": "first_match", "parsing_timeout": None}
        boxed = text if re.search(r"\\boxed|\$|\\\(|\\\[", text) else f"\\boxed{{{text}}}"
        return limited(parse, [], boxed, forms, **options) or limited(parse, [], text, forms, **options)

    def last_formula(text: str) -> Any:
        return limited(parse, [], text, forms, extraction_mode="first_match", parsing_timeout=None)

    def is_equal(claim: str | None, found: Any, gold: str, expected: Any) -> bool:
        number, right = read_number(claim or ""), read_number(gold)
        if number is not None and right is not None:
            rounded = "." in f"{claim}{gold}" and round(number.value, 6) == round(right.value, 6)
            return number.equals(right) or rounded
        if claim is not None and re.fullmatch("[A-Za-z ]{3,}", gold):  # a word is no product of its letters
            return is_same(claim, gold)
        return bool(limited(verify, False, expected, found, timeout_seconds=None))

    scores: list[float | None] = []
    claims: list[str | None] = []
    for text, right in zip(spoken_texts(completions, columns), answer, strict=True):
        claim = final_answer(text)
        found = last_formula(in_plain_digits(text.strip())) if claim is None else read(claim)
        claims.append(claim or (str(found[-1]) if found else None))
        golds = [cleaned(gold) for gold in golds_of(right)]
        read_golds = [(gold, expected) for gold in golds if (expected := read(gold))]
        scores.append(float(any(is_equal(claim, found, *gold) for gold in read_golds)) if read_golds else None)
    log_extracted(columns, claims)
    return scores
