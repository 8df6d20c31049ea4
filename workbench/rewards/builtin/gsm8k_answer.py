"""GSM8K's outcome reward: is the final answer the right one?

The authors' own check (Cobbe et al. 2021, https://github.com/openai/grade-school-math) reads the number behind ``####``
and compares texts without commas; their models' published answers end in ``A:`` instead.
"""

from __future__ import annotations


def gsm8k_answer(
    prompts: list[object],
    completions: list[str | list[dict[str, str]]],
    answer: list[object] | None = None,
    **columns: object,
) -> list[float | None]:
    """1 if the number behind the last `####` or `A:` is that of the column `answer`, else 0.

    The column may be the bare number or a whole worked answer. How the number is written and a unit behind it do not
    matter. A row without an answer that is a number has no score.
    """
    from workbench.answers import final_answer, golds_of, is_right, log_extracted, read_number, spoken_texts

    if answer is None:
        raise ValueError("the column 'answer' is missing; give each row of the data the right answer")
    claims = [final_answer(text, "gsm8k") for text in spoken_texts(completions, columns)]
    log_extracted(columns, claims)
    golds = [[gold for gold in golds_of(right) if read_number(gold) is not None] for right in answer]
    judged = [is_right(claim, right) for claim, right in zip(claims, golds, strict=True)]
    return [None if right is None else float(right) for right in judged]
