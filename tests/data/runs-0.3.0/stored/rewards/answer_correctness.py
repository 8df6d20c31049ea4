def answer_correctness(
    prompts: list[object],
    completions: list[str | list[dict[str, str]]],
    answer: list[object] | None = None,
    **columns: object,
) -> list[float | None]:
    """1 if the completion's final answer equals the column `answer`, else 0.

    The final answer is what follows the last `Answer:` or `####` on its line, or stands in the last `<answer>` tag.
    Numbers are compared as numbers: 1,200 and $1200.0 are equal. A row without an answer has no score.
    """
    import re
    from decimal import Decimal

    if answer is None:
        raise ValueError("the column 'answer' is missing; give each row of the data the right answer")

    def final_answer(text: str) -> str | None:
        found = re.findall(r"<answer>((?:(?!<answer>).)*?)</answer>|(?:\bAnswer:|####)([^\n]*)", text, re.DOTALL)
        return None if not found else found[-1][0] or found[-1][1]

    def value(text: str) -> Decimal | str:
        plain = text.strip().removesuffix(".")
        number = re.fullmatch(r"\$?(-?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?)", plain)
        return Decimal(number[1].replace(",", "")) if number else plain

    scores: list[float | None] = []
    for completion, right in zip(completions, answer, strict=True):
        if right is None:
            scores.append(None)
            continue
        found = final_answer(completion if isinstance(completion, str) else completion[-1]["content"])
        scores.append(float(found is not None and value(found) == value(str(right))))
    return scores
