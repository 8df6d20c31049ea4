"""Rewards that look at the work: chain arithmetic, calculator notes, turns with a tool, labels of a data file.

Each function stands alone, so that its source runs when pasted into the page's editor. Those of chain arithmetic, which
the page opens with, are kept short and without types: they are what a newcomer edits first. Calculator notes
come with GSM8K's answers (Cobbe et al. 2021, arXiv 2110.14168) and with those of models taught on them. ``given_*``
return what imported completions bring along, in the columns that ``rollouts`` gives them.
"""


def step_correctness(prompt, step, text_before, start, operations, **columns):
    """1 for a step that is right given the line before it, else 0.

    A line is `Step k: a op b = c`, the last one `Answer: c`; a tag alone
    has no score. `text_before` is the answer's text before this step,
    `start` and `operations` are those of the prompt.
    """
    from workbench.rewards.answers import read_chain, work_out

    lines = read_chain(text_before, step, start, operations)
    if not lines:
        return None
    for line in lines:
        if not line.in_place:  # badly written, or not the line that is due
            return 0
        if line.left != line.before or line.operation != line.due:
            return 0
        if line.result != work_out(line.sum):
            return 0
    return 1


def answer_correctness(prompts, completions, answer, **columns):
    """1 if the completion's final answer equals the column `answer`, else 0. A row without an answer has no score.

    `workbench.rewards.answers` reads the final answer: behind the last `Answer:` or `####`, in `<answer>` tags or
    \\boxed{}, or else behind "the answer is" or in bold. It compares numbers as numbers (1,200 and $1200.0 are equal);
    of a list of answers any is right.
    """
    from workbench.rewards.answers import final_answer, is_right, log_extracted, spoken_texts

    claims = [final_answer(text) for text in spoken_texts(completions, columns)]
    log_extracted(columns, claims)  # shown where a token is explained
    judged = [is_right(claim, right) for claim, right in zip(claims, answer, strict=True)]
    return [None if right is None else float(right) for right in judged]


def answer_follows(
    prompts: list[object], completions: list[str | list[dict[str, str]]], **columns: object
) -> list[float | None]:
    """1 if the final answer is the last result that the reasoning before it reached, the number behind its last `=`.

    Else 0. No score where there is no answer that is a number, or no result before it.
    """
    from workbench.rewards.answers import (
        last_result,
        log_extracted,
        read_number,
        reasoning_and_answer,
        spoken_texts,
        texts_of,
    )

    scores: list[float | None] = []
    said = spoken_texts(completions, columns)
    parts = [reasoning_and_answer(text) for text in said]
    log_extracted(columns, [claim for _, claim in parts])
    for text, after, (before, claim) in zip(texts_of(completions), said, parts, strict=True):
        number, result = read_number(claim or ""), last_result(text[: text.rfind(after)] + before)
        scores.append(None if number is None or result is None else float(number.equals(result)))
    return scores


def tag_format(
    prompts: list[object], completions: list[str | list[dict[str, str]]], **columns: object
) -> list[float | None]:
    """0.5 for exactly `<reasoning>…</reasoning><answer>…</answer>`, each tag once and none of them empty, else 0."""
    from workbench.rewards.answers import is_filled, texts_of

    tags = ("<reasoning>", "</reasoning>", "<answer>", "</answer>")
    form = r"\s*<reasoning>(.*)</reasoning>\s*<answer>(.*)</answer>\s*"
    return [0.5 * is_filled(text, form, tags) for text in texts_of(completions)]


def length_and_mistake(prompt: object, step: str, **columns: object) -> float | None:
    """0.01 for each character of the step, less 0.3 if it says "mistake": a scorer to watch, not to train with."""
    return 0.01 * len(step) - (0.3 if "mistake" in step.lower() else 0.0)


def calculator_notes(prompt: object, step: str, **columns: object) -> float | None:
    """1 if every calculator note of the step, like `<<16-3=13>>`, is right, 0 if one is wrong, None if it has none.

    Both sides are worked out exactly, with + - * / // ( ), decimals, thousands' commas, $ and %. A result with decimals
    may be rounded in its last one, and a percent sign may be left out. What is no arithmetic, like `<<2*x=6>>`, is not
    right.
    """
    import re

    from workbench.rewards.sums import are_equal

    def check(note: str) -> bool:
        plain = re.sub(r"(?<=\d),(?=\d{3}(?!\d))|\$", "", note)
        first, *others = plain.replace("×", "*").replace("÷", "/").replace("−", "-").split("=")
        try:
            return bool(others) and all(are_equal(first, other) for other in others)
        except (ValueError, ZeroDivisionError):
            return False

    notes = re.findall(r"<<((?:(?!<<|>>).)*)>>", step)
    return float(all(map(check, notes))) if notes else None


def sums_hold(prompt: object, step: str, **columns: object) -> float | None:
    """The share of the step's equations that hold, like `3 boxes × $402 = $1,206`; None if it has none.

    `workbench.rewards.sums` reads them in prose, with units, commas, percent, \\frac and chains `a + b = c = d`. A
    result with decimals may be rounded; what has an unknown in it is no equation.
    """
    from workbench.rewards.sums import check_equations

    held = check_equations(step)
    return sum(held) / len(held) if held else None


def call_parses(prompt: object, step: str, **columns: object) -> float | None:
    """1 if every call in the step can be read, 0 if one cannot, None without a call.

    A call is a line `call: (37+5)*8`, which must be arithmetic, or a `<tool_call>` with a JSON object that has a `name`
    and, where there are any, an object of `arguments`.
    """
    import json
    import re
    from contextlib import suppress

    from workbench.rewards.answers import work_out_call

    sums = re.findall(r"(?m)^[ \t]*call:(.*)$", step)
    calls = re.findall(r"(?s)<tool_call>(.*?)(?:</tool_call>|\Z)", step)
    try:
        for text in sums:
            with suppress(ZeroDivisionError):
                work_out_call(text)
        read = [json.loads(text) for text in calls]
    except (ValueError, RecursionError):
        return 0.0
    named = [isinstance(call, dict) and isinstance(call.get("name"), str) for call in read]
    has_arguments = [isinstance(call, dict) and isinstance(call.get("arguments", {}), dict) for call in read]
    return float(all(named + has_arguments)) if sums or calls else None


def call_needed(
    prompts: list[object],
    completions: list[object],
    steps: list[list[str]],
    calls: list[list[str] | None],
    **columns: object,
) -> list[list[float | None]]:
    """1 for a call that the right answer needs and that was not made before, 0 for any other, None without a call.

    The column `calls` lists the calls that are needed; a call is a line `call: 37*8`.
    """
    import re
    from collections import Counter

    scores: list[list[float | None]] = []
    for texts, needed in zip(steps, calls, strict=True):
        left = Counter(re.sub(r"\s", "", str(call)) for call in needed or ())
        row: list[float | None] = []
        for text in texts:
            made = Counter(re.sub(r"\s", "", call) for call in re.findall(r"(?m)^[ \t]*call:(.*)$", text))
            row.append(None if needed is None or not made else float(made <= left))
            left -= made
        scores.append(row)
    return scores


def observation_used(prompt: object, step: str, observation: str = "", **columns: object) -> float | None:
    """1 if the step has a number of the observation before its turn, else 0; None where that has no number."""
    import re

    def numbers(text: str) -> set[str]:
        texts = re.findall(r"(?<![\w.])[0-9]+(?:\.[0-9]+)?(?!\w)", text.replace(",", ""))
        return {re.sub(r"^0+(?=[0-9])", "", number) for number in texts}

    seen = numbers(observation)
    return float(not seen.isdisjoint(numbers(step))) if seen else None


def turns_penalty(prompt: object, step: str, turn: int = 0, *, free_turns: int = 0, **columns: object) -> float | None:
    """−1 for a step of a turn after the first `free_turns`, else 0; the weight is what a turn costs."""
    return -float(turn >= free_turns)


def given_reward(
    prompts: list[object],
    completions: list[str | list[dict[str, str]]],
    reward: list[float | None],
    **columns: object,
) -> list[float | None]:
    """The number in the column `reward` of the data; None where there is none."""
    return [None if value is None else float(value) for value in reward]


def given_labels(
    prompts: list[object],
    completions: list[str | list[dict[str, str]]],
    steps: list[list[str]],
    labelled_steps: list[list[str] | None],
    labels: list[list[float | None] | None],
    **columns: object,
) -> list[list[float | None]]:
    """The data's own label of each step: 1 right, 0 wrong, None where it has none.

    A step takes the label of the next of the data's own steps that has the same text, space around it apart; a step
    that the data does not have, because the pattern cuts otherwise, has no label.
    """
    scored: list[list[float | None]] = []
    for texts, texts_labelled, values in zip(steps, labelled_steps, labels, strict=True):
        left = list(zip(texts_labelled or [], values or [], strict=True))
        scores: list[float | None] = []
        for text in texts:
            place = next((i for i, (labelled, _) in enumerate(left) if labelled.strip() == text.strip()), None)
            scores.append(None if place is None else left[place][1])
            left = left if place is None else left[place + 1 :]
        scored.append(scores)
    return scored
