"""Rewards of the chain-arithmetic task: each step checked against the prompt's operations, and the final answer."""

from __future__ import annotations


def step_correctness(
    prompts: list[object],
    completions: list[str | list[dict[str, str]]],
    steps: list[list[str]],
    start: list[int | None] | None = None,
    operations: list[list[list[object]] | None] | None = None,
    **columns: object,
) -> list[list[float | None]]:
    """Chain arithmetic: 1 for a step that is right given the step before it, 0 for any other.

    `Step k: a op b = c` is right if "op b" is the prompt's k-th operation, next one due, a is what the line before (at
    first the start) claimed, and c is a op b. `Answer: c`, or `<answer>c</answer>` behind reasoning in tags, is right
    if all operations were worked and c is the last claim. A tag alone has no score; text between steps is read, too.
    """
    import re

    if start is None or operations is None:
        raise ValueError("the columns 'start' and 'operations' are missing; this reward needs chain-arithmetic")
    number = "(-?(?:0|[1-9][0-9]{0,8}))"
    equation = re.compile(f"Step ([1-9][0-9]{{0,3}}): {number} ([+*-]) {number} = {number}")
    attempt = re.compile(r"Step\s*([0-9]{1,4})\b.*?(-?[0-9]{1,9})\s*([+*-])\s*(-?[0-9]{1,9})\s*=\s*(-?[0-9]{1,9})\b")
    answer = re.compile(f"(?:Answer: {number}|<answer>{number}</answer>)")

    class Reader:
        def __init__(self, text: str, value: int, todo: list[tuple[str, int]]) -> None:
            self.untagged = not re.search("</?reasoning>", text)
            self.tagged = text.startswith("<reasoning>\n") and "\n</reasoning>\n<answer>" in text
            self.value, self.todo, self.done = value, todo, 0  # done: operations worked so far
            self.skipped = self.opened = self.closed = self.answered = False

        def step(self, text: str) -> float | None:
            lines = [self.line(line) for line in text.strip("\n").split("\n")] if text.strip("\n") else []
            return 0.0 if False in lines else 1.0 if True in lines else None

        def line(self, text: str) -> bool | None:  # None if it only opens or closes the reasoning
            worked = self.done == len(self.todo) and not self.skipped
            if text in ("<reasoning>", "</reasoning>"):
                opens, in_place = text == "<reasoning>", not (self.closed or self.answered)
                in_place &= not (self.done or self.opened) if opens else worked
                self.opened, self.closed = self.opened or opens, self.closed or not opens
                return None if in_place else False
            if match := answer.fullmatch(text):
                in_place = worked and not self.answered and (self.untagged if match[1] else self.tagged)
                self.answered = True
                return in_place and int(match[1] or match[2]) == self.value
            return not (self.closed or self.answered) and self.operation(text)

        def operation(self, text: str) -> bool:
            strict = equation.fullmatch(text)
            if not (match := strict or (attempt.match(text) if len(text) < 200 else None)):
                return False
            label, left, right, result = (int(match[group]) for group in (1, 2, 4, 5))
            claimed, results = (match[3], right), {"+": left + right, "-": left - right, "*": left * right}
            due = self.todo[self.done] if self.done < len(self.todo) else None
            labelled, follows = label == self.done + 1, left == self.value and claimed == due
            if due and (labelled or follows):
                is_right = bool(strict) and labelled and follows and result == results[match[3]]
                self.done += 1
            elif self.done < label <= len(self.todo) and claimed == self.todo[label - 1]:
                is_right, self.done, self.skipped = False, label, True  # went ahead; goes on from there
            else:
                return False  # repeated or extra: works nothing
            self.value = result
            return is_right

    scores: list[list[float | None]] = []
    for completion, texts, value, todo in zip(completions, steps, start, operations, strict=True):
        if value is None or todo is None:  # a row of another task
            scores.append([None] * len(texts))
            continue
        text = completion if isinstance(completion, str) else completion[-1]["content"]
        reader = Reader(text, int(value), [(str(symbol), int(str(operand))) for symbol, operand in todo])
        at, row = 0, list[float | None]()
        for step in texts:
            begin = max(text.find(step, at), at)
            reader.step(text[at:begin])  # in no step: read, not scored
            row.append(reader.step(step))
            at = begin + len(step)
        scores.append(row)
    return scores


def answer_correctness(
    prompts: list[object],
    completions: list[str | list[dict[str, str]]],
    answer: list[object] | None = None,
    **columns: object,
) -> list[float | None]:
    """1 if the completion's final answer equals the column `answer`, else 0.

    The final answer is read as `workbench.answers` has it: behind the last `Answer:` or `####`, in `<answer>` tags or
    \\boxed{}, or else behind "the answer is" or in bold. Numbers are compared as numbers: 1,200 and $1200.0 are equal.
    Of a list of answers any is right. A row without an answer has no score.
    """
    from workbench.answers import final_answer, is_right, log_extracted, spoken_texts

    if answer is None:
        raise ValueError("the column 'answer' is missing; give each row of the data the right answer")
    claims = [final_answer(text) for text in spoken_texts(completions, columns)]
    log_extracted(columns, claims)
    judged = [is_right(claim, right) for claim, right in zip(claims, answer, strict=True)]
    return [None if right is None else float(right) for right in judged]


def answer_follows(
    prompts: list[object], completions: list[str | list[dict[str, str]]], **columns: object
) -> list[float | None]:
    """1 if the final answer is the last result that the reasoning before it reached, the number behind its last `=`.

    Else 0. No score where there is no answer that is a number, or no result before it.
    """
    from workbench.answers import last_result, log_extracted, read_number, reasoning_and_answer, spoken_texts

    scores: list[float | None] = []
    said = spoken_texts(completions, columns)
    parts = [reasoning_and_answer(text) for text in said]
    log_extracted(columns, [claim for _, claim in parts])
    for completion, after, (before, claim) in zip(completions, said, parts, strict=True):
        text = completion if isinstance(completion, str) else completion[-1]["content"]
        number, result = read_number(claim or ""), last_result(text[: text.rfind(after)] + before)
        scores.append(None if number is None or result is None else float(result.equals(number)))
    return scores


def tag_format(
    prompts: list[object], completions: list[str | list[dict[str, str]]], **columns: object
) -> list[float | None]:
    """0.5 for exactly `<reasoning>…</reasoning><answer>…</answer>`, each tag once and none of them empty, else 0."""
    import re

    tags = ("<reasoning>", "</reasoning>", "<answer>", "</answer>")
    whole = re.compile(r"<reasoning>(.*)</reasoning>\s*<answer>(.*)</answer>", re.DOTALL)
    scores: list[float | None] = []
    for completion in completions:
        text = (completion if isinstance(completion, str) else completion[-1]["content"]).strip()
        match = whole.fullmatch(text) if all(text.count(tag) == 1 for tag in tags) else None
        scores.append(0.5 if match and match[1].strip() and match[2].strip() else 0.0)
    return scores
