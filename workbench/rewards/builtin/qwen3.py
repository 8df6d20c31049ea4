"""The rewards of the Qwen3-4B-Base recipe: its format, exactly and approximately, and its graded answer check.

A completion is ``<start_working_out>…<end_working_out><SOLUTION>…</SOLUTION>``, where the chat template has usually
written the first tag already. The recipe's own expression takes the text of two solutions for one, and anything on the
lines after the last tag for nothing; its answer check punishes a wrong number as unreadable where the right one is 0.
"""

from __future__ import annotations


def qwen3_format_exact(
    prompts: list[object], completions: list[str | list[dict[str, str]]], **columns: object
) -> list[float | None]:
    """3 for working out and then a solution in their tags, each once and no text after, else 0.

    Space around is free. The tag that opens the working out may be left out: it is often part of the prompt.
    """
    import re

    tags = ("<end_working_out>", "<SOLUTION>", "</SOLUTION>")
    whole = re.compile(r"\s*(?:<start_working_out>)?(.*)<end_working_out>\s*<SOLUTION>(.*)</SOLUTION>\s*", re.DOTALL)
    scores: list[float | None] = []
    for completion in completions:
        text = completion if isinstance(completion, str) else completion[-1]["content"]
        once = all(text.count(tag) == 1 for tag in tags) and text.count("<start_working_out>") <= 1
        match = whole.fullmatch(text) if once else None
        is_exact = match and "<start_working_out>" not in match[1] and match[1].strip() and match[2].strip()
        scores.append(3.0 if is_exact else 0.0)
    return scores


def qwen3_format_approximate(
    prompts: list[object], completions: list[str | list[dict[str, str]]], **columns: object
) -> list[float | None]:
    """0.5 for each of the last three tags that is there exactly once, −1 for each that is not: −3 to 1.5."""
    scores: list[float | None] = []
    for completion in completions:
        text = completion if isinstance(completion, str) else completion[-1]["content"]
        tags = ("<end_working_out>", "<SOLUTION>", "</SOLUTION>")
        scores.append(sum(0.5 if text.count(tag) == 1 else -1.0 for tag in tags))
    return scores


def qwen3_answer(
    prompts: list[object],
    completions: list[str | list[dict[str, str]]],
    answer: list[object] | None = None,
    **columns: object,
) -> list[float | None]:
    """5 for the right solution, 3.5 if right but for space around, 2 within 10 %, 1.5 within 20 %, else −2.5.

    −4.5 for a solution that should be a number and is none, −2 where there is not exactly one solution in its tags. A
    row without an answer has no score.
    """
    from workbench.answers import log_extracted, read_number, spoken_texts

    if answer is None:
        raise ValueError("the column 'answer' is missing; give each row of the data the right answer")

    def score(answer: str, right: str) -> float:
        if answer == right:
            return 5.0
        if answer.strip() == right.strip():
            return 3.5
        claimed, true = read_number(answer), read_number(right)
        if claimed is None or true is None:
            return -4.5
        if true.value == 0:
            return 2.0 if claimed.value == 0 else -2.5
        tenths = 10 * claimed.value / true.value
        return 2.0 if 9 <= tenths <= 11 else 1.5 if 8 <= tenths <= 12 else -2.5

    claims: list[str | None] = []
    for text in spoken_texts(completions, columns):
        _, _, behind = text.partition("<SOLUTION>")
        claim, closed, rest = behind.partition("</SOLUTION>")
        is_single = closed and "</SOLUTION>" not in rest.partition("<SOLUTION>")[2]
        claims.append(claim if is_single else None)
    log_extracted(columns, claims)
    return [
        None
        if right is None
        else -2.0
        if claim is None
        else max(score(claim, str(one)) for one in (right if isinstance(right, list) else [right]))
        for claim, right in zip(claims, answer, strict=True)
    ]
