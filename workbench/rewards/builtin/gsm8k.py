"""The five rewards of the GSM8K recipe that most GRPO tutorials train with, with its values and without its slips.

A completion is to be ``<reasoning>…</reasoning><answer>…</answer>``; the data's answer is what follows ``####``. Where
these differ from the recipe, its regular expressions are wrong: ``.`` stops at a line's end there, so that reasoning of
two lines scores nothing; a repeated tag scores in full; a text that ends at ``</answer>`` without a newline is charged
for its whole length.
"""

from __future__ import annotations


def gsm8k_correctness(
    prompts: list[object],
    completions: list[str | list[dict[str, str]]],
    answer: list[object] | None = None,
    **columns: object,
) -> list[float | None]:
    """2 if the text of the one `<answer>` tag equals the column `answer`, or what follows #### in it, else 0.

    Numbers are compared as numbers: 1,200 and $1200.0 are equal. A row without an answer has no score.
    """
    from workbench.answers import cleaned, is_right, log_extracted, spoken_texts

    if answer is None:
        raise ValueError("the column 'answer' is missing; give each row of the data the right answer")
    claims: list[str | None] = []
    for text in spoken_texts(completions, columns):
        parts = text.split("<answer>")[1].split("</answer>") if text.count("<answer>") == 1 else []
        claims.append(cleaned(parts[0]) or None if len(parts) == 2 else None)
    log_extracted(columns, claims)
    judged = [is_right(claim, right) for claim, right in zip(claims, answer, strict=True)]
    return [None if right is None else 2.0 * right for right in judged]


def gsm8k_integer(
    prompts: list[object], completions: list[str | list[dict[str, str]]], **columns: object
) -> list[float | None]:
    """0.5 if the text of the one `<answer>` tag is an integer (a sign and commas are allowed), else 0."""
    import re

    scores: list[float | None] = []
    for completion in completions:
        text = completion if isinstance(completion, str) else completion[-1]["content"]
        parts = text.split("<answer>")[1].split("</answer>") if text.count("<answer>") == 1 else []
        whole = len(parts) == 2 and re.fullmatch(r"[+-]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)", parts[0].strip())
        scores.append(0.5 if whole else 0.0)
    return scores


def gsm8k_strict_format(
    prompts: list[object], completions: list[str | list[dict[str, str]]], **columns: object
) -> list[float | None]:
    """0.5 for the four tags, each once and on a line of its own, with text between them and none around, else 0."""
    import re

    tags = ("<reasoning>", "</reasoning>", "<answer>", "</answer>")
    whole = re.compile(r"<reasoning>\n(.*)\n</reasoning>\n<answer>\n(.*)\n</answer>\n?", re.DOTALL)
    scores: list[float | None] = []
    for completion in completions:
        text = completion if isinstance(completion, str) else completion[-1]["content"]
        match = whole.fullmatch(text) if all(text.count(tag) == 1 for tag in tags) else None
        scores.append(0.5 if match and match[1].strip() and match[2].strip() else 0.0)
    return scores


def gsm8k_soft_format(
    prompts: list[object], completions: list[str | list[dict[str, str]]], **columns: object
) -> list[float | None]:
    """0.5 for a text that begins with reasoning and then an answer in their tags, each tag once, else 0.

    Line breaks do not matter and text may follow, which `gsm8k_xml_count` charges for.
    """
    import re

    tags = ("<reasoning>", "</reasoning>", "<answer>", "</answer>")
    begins = re.compile(r"\s*<reasoning>(.*)</reasoning>\s*<answer>(.*)</answer>", re.DOTALL)
    scores: list[float | None] = []
    for completion in completions:
        text = completion if isinstance(completion, str) else completion[-1]["content"]
        match = begins.match(text) if all(text.count(tag) == 1 for tag in tags) else None
        scores.append(0.5 if match and match[1].strip() and match[2].strip() else 0.0)
    return scores


def gsm8k_xml_count(
    prompts: list[object], completions: list[str | list[dict[str, str]]], **columns: object
) -> list[float | None]:
    """0.125 for each of the four tags that is there once on its line, less 0.002 a character that follows; 0 to 0.5.

    The charge is 0.001 for each of the two answer tags that scored, as in the recipe; one closing newline is free.
    """
    scores: list[float | None] = []
    for completion in completions:
        text = completion if isinstance(completion, str) else completion[-1]["content"]
        score = 0.125 * (text.count("<reasoning>\n") == 1) + 0.125 * (text.count("\n</reasoning>\n") == 1)
        closed = text.count("\n</answer>") == 1
        after = len(text.split("\n</answer>")[1].removeprefix("\n")) if closed else 0
        score += (0.125 - 0.001 * after) * (text.count("\n<answer>\n") == 1)
        score += (0.125 - 0.001 * after) * closed
        scores.append(max(0.0, score))
    return scores
