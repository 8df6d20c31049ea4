"""GSM8K's outcome reward: is the final answer the right one?

The authors' own check (Cobbe et al. 2021, https://github.com/openai/grade-school-math) reads the number behind ``####``
and compares texts without commas; their models' published answers end in ``A:`` instead. Like every built-in the
function stands alone.
"""

from __future__ import annotations


def gsm8k_answer(
    prompts: list[object],
    completions: list[str | list[dict[str, str]]],
    answer: list[object] | None = None,
    **columns: object,
) -> list[float | None]:
    """1 if the number behind the last `####` or `A:` is that of the column `answer`, else 0.

    The column may be the bare number or a whole worked answer. $, thousands' commas, a closing full stop and zeros
    after the decimal point do not matter; a unit after the number is passed over. A row without an answer has no score.
    """
    import re
    from decimal import Decimal

    if answer is None:
        raise ValueError("the column 'answer' is missing; give each row of the data the right answer")

    def number(text: str) -> Decimal | None:
        match = re.match(r"\s*(-?)\s*\$?\s*(-?)(\d+(?:,\d{3})*(?:\.\d+)?|\.\d+)", text, re.ASCII)
        return (
            Decimal(match[1] + match[2] + match[3].replace(",", "")) if match and not (match[1] and match[2]) else None
        )

    def final(text: str) -> Decimal | None:
        marked = re.findall(r"(?m)(?:####|^A:)([^\n]*)", text)
        return number(marked[-1]) if marked else None

    scores: list[float | None] = []
    for completion, right in zip(completions, answer, strict=True):
        truth = None if right is None else final(str(right))
        if truth is None and right is not None:
            truth = number(str(right))
        if truth is None:
            scores.append(None)
            continue
        claim = final(completion if isinstance(completion, str) else completion[-1]["content"])
        scores.append(float(claim is not None and claim == truth))
    return scores
