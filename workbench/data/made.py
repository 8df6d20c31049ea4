"""Pairs, demonstrations and prompts of a chosen difficulty made of scored groups, and mixes of earlier rows.

JSONL in TRL's formats, with provenance.

A completion counts if it is finished (training adds an end-of-sequence token, which a truncated one never had), has
text, has an outcome and was not written before in its group. Where groups come from and how they were scored is not
known here.
"""

import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.data.chain_arithmetic import SYMBOL, Chain, labelled_answer, noisy_results
from workbench.data.read import SHIPPED, read_rows
from workbench.data.rollouts import Builder, Facts, UntokenizedGroup, load_groups
from workbench.data.rows import PROMPTS, Record, kind_of
from workbench.data.tasks import Task, count_training_rows, load_task
from workbench.data.tokens import load_tokeniser
from workbench.errors import TaskError
from workbench.files import encode, replace_file
from workbench.schema import Group, ScoredGroup

_TAKEN = {*PROMPTS, "messages", "completion", "chosen", "rejected", "completions", "labels"}
"""Columns that say what kind a row is: a task's own of these names are left out of it."""


@dataclass
class Made:
    """Rows, and how many groups and completions there were and why some gave none."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


def pairs_of(groups: Iterable[ScoredGroup], most: int, margin: float = 0.0) -> Made:
    """At most ``most`` pairs a group: the best completion over the worst, the second best over the second worst, ….

    Each completion is in one pair at most. A pair's outcomes differ, by at least ``margin``; ties are dropped.
    """
    made = Made()
    for group in groups:
        ranked = sorted(_usable(group, made.counts), key=lambda candidate: -candidate[0])
        couples = [(ranked[i], ranked[-1 - i]) for i in range(min(most, len(ranked) // 2))]
        before = len(made.rows)
        for (high, chosen), (low, rejected) in couples:
            if high > low and high - low >= margin:
                outcomes = {"chosen_outcome": high, "rejected_outcome": low}
                made.rows.append(_row(group, {"chosen": chosen, "rejected": rejected, **outcomes}))
        made.counts["groups without a pair"] += len(made.rows) == before
    made.counts["pairs"] = len(made.rows)
    return made


def demonstrations_of(groups: Iterable[ScoredGroup], most: int, threshold: float = 1.0) -> Made:
    """Rejection sampling: the first ``most`` completions of each group whose outcome is at least ``threshold``."""
    made = Made()
    for group in groups:
        right = [(outcome, text) for outcome, text in _usable(group, made.counts) if outcome >= threshold]
        made.rows += [_row(group, {"completion": text, "outcome": outcome}) for outcome, text in right[:most]]
        made.counts["groups without a demonstration"] += not right
    made.counts["demonstrations"] = len(made.rows)
    return made


def prompts_of(groups: Iterable[ScoredGroup], low: float, high: float, right_from: float = 1.0) -> Made:
    """The prompts of a pass rate from ``low`` to ``high`` (both included), with their columns and ``pass_rate``."""
    made = Made()
    for group in groups:
        made.counts["groups"] += 1
        right, answers = right_of(group, right_from)
        if not answers:
            made.counts["groups without an outcome"] += 1
        elif right < low * answers:
            made.counts["prompts too hard"] += 1
        elif right > high * answers:
            made.counts["prompts too easy"] += 1
        else:
            made.rows.append(_row(group, {"pass_rate": right / answers}))
    made.counts["prompts"] = len(made.rows)
    return made


def mixed_of(fresh: Path, replay: Sequence[Path], share: float, seed: int) -> Made:
    """Return all fresh rows, and ``share`` of the training rows of each file of ``replay``, in a drawn order.

    The last fresh rows stay at the end, as many as a file's readers hold out, so that what is measured is fresh. Raises
    TaskError for files whose rows are of several kinds, and for too few fresh rows.
    """
    new = [row.values for row in read_rows(fresh)]
    draw, old = random.Random(f"mix/{seed}"), list[dict[str, Any]]()
    for file in replay:
        rows = [row.values for row in read_rows(file)]
        if kind_of(rows[0]) != kind_of(new[0]):
            raise TaskError(f"{file} holds {kind_of(rows[0])} and {fresh} {kind_of(new[0])}; mix rows of one kind")
        trained_on = rows[: count_training_rows(len(rows))]
        old += draw.sample(trained_on, round(share * len(trained_on)))
    total = len(new) + len(old)
    held_out = total - count_training_rows(total)
    if held_out >= len(new):
        raise TaskError(f"{fresh} has {len(new)} rows, and {held_out} of them would be held out; make more fresh rows")
    trained = new[:-held_out] + old
    draw.shuffle(trained)
    counts = {"fresh rows": len(new), "replayed rows": len(old), "held-out rows": held_out}
    return Made(trained + new[-held_out:], Counter(counts))


def provenance_of(file: Path) -> Path:
    """Return the file that says what a file of rows was made of."""
    return file.with_name(f"{file.name}.provenance.json")


def refuse_to_overwrite(file: Path) -> None:
    """Raise TaskError for a file that is there; said before anything is sampled."""
    if file.exists():
        raise TaskError(f"{file} is there already; choose another name, or remove it")


def write_made(made: Made, file: Path, about: Mapping[str, Any]) -> Path:
    """Write the rows as JSONL and, beside it, ``FILE.provenance.json``; the path of that.

    It holds ``about`` (what sampled and scored them), the counts and the SHA-256 of the rows. Raises TaskError for a
    file that is there already, and where there is no row.
    """
    beside = provenance_of(file)
    refuse_to_overwrite(file)
    if not made.rows:
        counts = ", ".join(f"{what} {count}" for what, count in made.counts.items() if count)
        raise TaskError(
            f"nothing to write to {file}: {counts}; sample more completions (--method.sampling.num_generations) of "
            "more prompts (--prompts), or change the limit (--margin, --threshold, --keep)"
        )
    rows = b"".join(encode(row) + b"\n" for row in made.rows)
    provenance = {**about, "counts": dict(made.counts), "sha256": hashlib.sha256(rows).hexdigest()}
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(beside, json.dumps(json.loads(encode(provenance)), indent=1).encode() + b"\n")
    replace_file(file, rows)
    return beside


def _usable(group: ScoredGroup, counts: Counter[str]) -> Sequence[tuple[float, str]]:
    """(outcome, text) of the completions that count, in their order."""
    counts["groups"] += 1
    usable: dict[str, tuple[float, str]] = {}
    for rollout, scores in zip(group.group.rollouts, group.scored, strict=True):
        counts["completions"] += 1
        words = rollout.text.strip()
        if rollout.truncated:
            counts["truncated completions"] += 1
        elif not words or scores.outcome is None:
            counts["completions without text or outcome"] += 1
        elif words in usable:
            counts["repeated completions"] += 1
        else:
            usable[words] = (scores.outcome, rollout.text)
    return list(usable.values())


def _row(group: ScoredGroup, columns: Mapping[str, Any]) -> dict[str, Any]:
    task_columns = {name: value for name, value in group.group.columns.items() if name not in _TAKEN | columns.keys()}
    return {"prompt": group.group.prompt, **columns, **task_columns}


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
    or words. The task is chain arithmetic in steps.
    """
    facts = Facts("generated", n * num_generations, preset="line")
    builder = Builder(load_tokeniser(tokenizer), facts, f"planted errors, rate {rate:g}, seed {seed}")
    groups = []
    for index in range(n):
        example, rng = task.held_out[index], random.Random(f"planted/{seed}/{index}")
        operations = tuple((_NAMES[symbol], int(operand)) for symbol, operand in example.columns["operations"])
        chain, records = Chain(int(example.columns["start"]), operations), list[Record]()
        for results in (noisy_results(chain, rng, rate) for _ in range(num_generations)):
            steps, labels = labelled_answer(chain, results)
            known = {
                "labelled_steps": steps,
                "labels": list(map(float, labels)),
                "correct": results[-1] == chain.answer,
            }
            columns = {**example.columns, **known}
            records.append(Record("", example.prompt, "\n".join(steps), finished=True, columns=columns))
        groups.append(builder.build(UntokenizedGroup(example.prompt, tuple(records))))
    return groups


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


def right_of(group: ScoredGroup, right_from: float) -> tuple[int, int]:
    """Right answers of a group, and its answers with an outcome."""
    outcomes = [outcome for outcome in group.outcomes or () if outcome is not None]
    return sum(outcome >= right_from for outcome in outcomes), len(outcomes)
