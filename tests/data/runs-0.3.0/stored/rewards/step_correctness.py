def step_correctness(
    prompts: list[object],
    completions: list[str | list[dict[str, str]]],
    steps: list[list[str]],
    start: list[int | None] | None = None,
    operations: list[list[list[object]] | None] | None = None,
    **columns: object,
) -> list[list[float | None]]:
    """Chain arithmetic: 1 for a step that is right given the step before it, 0 for any other.

    A step is right if each of its lines is. The line `Step k: a op b = c` is right if "op b" is the prompt's k-th
    operation and the next one due, a is what the line before claimed (at first the start value), and c is a op b. A
    wrong result is blamed once: the next line goes on from it. `Answer: c` is right if every operation was worked and c
    is the last claim; any text after it is wrong. `<answer>c</answer>` is its like in a completion that has its
    reasoning in tags, where `<reasoning>` and `</reasoning>` are right before the first operation and after the last;
    a step of nothing but such a tag has no score.
    """
    import re

    if start is None or operations is None:
        raise ValueError(
            "the columns 'start' and 'operations' are missing; this reward needs the chain-arithmetic task"
        )

    number = "(-?(?:0|[1-9][0-9]{0,8}))"
    equation = re.compile(f"Step ([1-9][0-9]{{0,3}}): {number} ([+*-]) {number} = {number}")
    # A badly written line is wrong, but what it claims is what the next line goes on from.
    attempt = re.compile(r"Step\s*([0-9]{1,4})\b.*?(-?[0-9]{1,9})\s*([+*-])\s*(-?[0-9]{1,9})\s*=\s*(-?[0-9]{1,9})\b")
    answer = re.compile(f"(?:Answer: {number}|<answer>{number}</answer>)")
    work = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b}

    class Reader:
        def __init__(self, text: str, value: int, todo: list[tuple[str, int]]) -> None:
            self.untagged = not re.search("</?reasoning>", text)
            self.tagged = text.startswith("<reasoning>\n") and "\n</reasoning>\n<answer>" in text
            self.value, self.todo = value, todo
            self.done = 0  # operations worked so far
            self.skipped = self.opened = self.closed = self.answered = False

        def step(self, text: str) -> float | None:
            lines = [self.line(line) for line in text.removesuffix("\n").split("\n")]
            if False in lines:
                return 0.0
            return 1.0 if True in lines else None

        def line(self, text: str) -> bool | None:
            """Whether a line is right, or None where it only opens or closes the reasoning."""
            worked = self.done == len(self.todo) and not self.skipped
            if text == "<reasoning>":
                first = not (self.done or self.opened or self.closed or self.answered)
                self.opened = True
                return None if first else False
            if text == "</reasoning>":
                in_place = worked and not self.closed and not self.answered
                self.closed = True
                return None if in_place else False
            if found := answer.fullmatch(text):
                in_place = worked and not self.answered and (self.untagged if found[1] else self.tagged)
                self.answered = True
                return in_place and int(found[1] or found[2]) == self.value
            return not (self.closed or self.answered) and self.operation(text)

        def operation(self, text: str) -> bool:
            strict = equation.fullmatch(text)
            found = strict or (attempt.match(text) if len(text) < 200 else None)
            if not found:
                return False
            label, left, right, result = (int(found[group]) for group in (1, 2, 4, 5))
            claimed = (found[3], right)
            due = self.todo[self.done] if self.done < len(self.todo) else None
            labelled = label == self.done + 1
            right_start = left == self.value and claimed == due
            if due and (labelled or right_start):
                is_right = bool(strict) and labelled and right_start and result == work[found[3]](left, right)
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
        scores.append([reader.step(text) for text in texts])
    return scores
