"""Labelled groups for evaluating rewards: chain arithmetic with planted errors, and GSM8K with its authors' verdicts.

Chain arithmetic's errors are planted by the task's own noisy teacher, so the labels are known because of how an answer
was made and owe nothing to any reward function.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from workbench.errors import TaskError
from workbench.rollouts import SHIPPED, load_groups
from workbench.rollouts.tokens import load_tokeniser
from workbench.schema import Example, Group, Rollout
from workbench.tasks.chain_arithmetic import SYMBOL, Chain, labelled_answer, noisy_results
from workbench.tasks.load import load_task
from workbench.tasks.task import Task

GENERATED = "chain-arithmetic"
LABELLED = (GENERATED, *SHIPPED)
"""Names of labelled data that need no file."""
_NAMES = {symbol: name for name, symbol in SYMBOL.items()}


def planted_errors(
    task: Task, n: int, *, rate: float = 0.2, seed: int = 0, num_generations: int = 4, tokenizer: Any = None
) -> list[Group]:
    """``n`` groups of answers to the task's first ``n`` held-out problems, each step wrong with probability ``rate``.

    Rollouts have ``labelled_steps``, ``labels`` (1 for a step that is right given the one before, so an answer that
    goes on correctly from a wrong value is blamed once) and ``correct`` (the final answer). Tokens are ``tokenizer``'s,
    or words. Raises TaskError for a task that is not chain arithmetic in steps.
    """
    if task.name != GENERATED:
        raise TaskError(f"errors can be planted in {GENERATED!r}, not in {task.name!r}")
    if not 0 <= rate <= 1:
        raise TaskError(f"rate {rate} is no probability; give 0 to 1")
    tokeniser = load_tokeniser(tokenizer)
    sampling = {"file": f"planted errors, rate {rate:g}, seed {seed}", "tokenizer": tokeniser.name, "preset": "line"}
    groups = []
    for index in range(n):
        example = task.held_out[index]
        rng = random.Random(f"planted/{seed}/{index}")
        rollouts = tuple(_rollout(example, rng, rate, tokeniser) for _ in range(num_generations))
        groups.append(Group(example.prompt, rollouts, example.columns, sampling=sampling))
    return groups


def _rollout(example: Example, rng: random.Random, rate: float, tokeniser: Any) -> Rollout:
    operations = tuple((_NAMES[symbol], int(operand)) for symbol, operand in example.columns["operations"])
    chain = Chain(int(example.columns["start"]), operations)
    results = noisy_results(chain, rng, rate)
    steps, labels = labelled_answer(chain, results)
    text = "\n".join(steps)
    tokens = tokeniser.tokens(text)
    token, shown = tokeniser.end
    return Rollout(
        (*tokens.ids, token),
        (*tokens.texts, shown),
        finished=True,
        columns={
            "labelled_steps": steps,
            "labels": list(map(float, labels)),
            "correct": results[-1] == chain.answer,
        },
    )


def labelled_groups(
    name: str,
    *,
    tokenizer: Any = None,
    format: str | None = None,
    limit: int | None = None,
    columns: Mapping[str, str] | None = None,
    skip_bad_rows: bool = False,
) -> list[Group]:
    """Return labelled data by name (one of ``LABELLED``), or a file's groups, as ``load_groups``. Raises TaskError."""
    if name == GENERATED:
        return planted_errors(load_task(name), 200 if limit is None else limit, tokenizer=tokenizer)
    return load_groups(
        name, tokenizer=tokenizer, format=format, limit=limit, columns=columns, skip_bad_rows=skip_bad_rows
    )
