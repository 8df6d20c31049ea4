"""Rewards of the turns of an episode: calls of a tool, and what comes of their answers."""

from __future__ import annotations


def call_parses(prompt: object, step: str, **columns: object) -> float | None:
    """1 if every call in the step can be read, 0 if one cannot, None without a call.

    A call is a line `call: (37+5)*8`, which must be arithmetic, or a `<tool_call>` with a JSON object that has a `name`
    and, where there are any, an object of `arguments`.
    """
    import ast
    import json
    import re

    tokens = re.compile(r"(?:\s*(?:[0-9]{1,15}(?:\.[0-9]{1,9})?(?![0-9.])|[-+*/()]))+\s*")
    kinds = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.USub, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Constant)

    def is_arithmetic(text: str) -> bool:
        if len(text) > 200 or not tokens.fullmatch(text):
            return False
        try:
            tree = ast.parse(re.sub(r"(?<![0-9.])0+(?=[0-9])", "", text.strip()), mode="eval")
        except (SyntaxError, MemoryError, RecursionError):
            return False
        return all(isinstance(node, kinds) for node in ast.walk(tree) if not isinstance(node, ast.expr_context))

    def is_tool_call(text: str) -> bool:
        try:
            call = json.loads(text)
        except (ValueError, RecursionError):
            return False
        named = isinstance(call, dict) and isinstance(call.get("name"), str)
        return named and isinstance(call.get("arguments", {}), dict)

    lines = [is_arithmetic(text) for text in re.findall(r"(?m)^[ \t]*call:(.*)$", step)]
    tools = [is_tool_call(text) for text in re.findall(r"(?s)<tool_call>(.*?)(?:</tool_call>|\Z)", step)]
    return float(all(lines + tools)) if lines or tools else None


def call_needed(
    prompts: list[object],
    completions: list[object],
    steps: list[list[str]],
    calls: list[list[str] | None] | None = None,
    **columns: object,
) -> list[list[float | None]]:
    """1 for a call that the right answer needs and that was not made before, 0 for any other, None without a call.

    The column `calls` lists the calls that are needed; a call is a line `call: 37*8`.
    """
    import re

    if calls is None:
        raise ValueError("the column 'calls' is missing; give each row of the data the calls that its answer needs")
    scores: list[list[float | None]] = []
    for texts, needed in zip(steps, calls, strict=True):
        left = None if needed is None else [re.sub(r"\s", "", str(call)) for call in needed]
        row: list[float | None] = []
        for text in texts:
            made = [re.sub(r"\s", "", call) for call in re.findall(r"(?m)^[ \t]*call:(.*)$", text)]
            if left is None or not made:
                row.append(None)
                continue
            row.append(1.0)
            for call in made:
                if call in left:
                    left.remove(call)
                else:
                    row[-1] = 0.0
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
