"""A drawn group as files: an HTML page, JSON, and CSV tables of steps and tokens; charts as CSV, too.

Each file is made from the credit that is drawn, so that it holds the very numbers on screen. The picture is made by the
browser (``share.js``). Knows nothing of how a file gets to whoever asked for it.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.schema import Credit
from workbench.views.curves import Chart
from workbench.views.heatmap import even_shares, heatmap, source_of

STEP_COLUMNS = ("text", "first_token", "last_token", "scores", "reward")
"""What ``credit_data`` says of a step."""


@dataclass(frozen=True)
class Export:
    name: str
    type: str
    text: str


def export(credit: Credit, kind: str, *, other: Credit | None = None) -> Export:
    """``kind`` is one of EXPORTS; ``other`` is the second scheme's credit where one is drawn. Raises KeyError."""
    ending, mime, write = EXPORTS[kind]
    return Export(f"{stem(credit)}{ending}", mime, write(credit, other))


def stem(credit: Credit) -> str:
    """The file's name without its ending: policy, scheme, G, and the seed where there is one."""
    group = credit.scored.group
    seed = group.sampling.get("seed")
    parts = ["group", group.policy.rstrip("/").rsplit("/", 1)[-1], credit.scheme, f"G{len(group)}"]
    parts += [f"seed{seed}"] if seed is not None else []
    return "-".join(filter(None, (re.sub(r"[^A-Za-z0-9._]+", "_", part).strip("._") for part in parts)))


def _json(credit: Credit, other: Credit | None) -> str:
    """The group as ``wb.Group.from_json`` reads it, the reward functions, and each scheme's credit."""
    whole: dict[str, Any] = {
        "source": dict(source_of(credit, other)),
        "group": credit.scored.group.to_json(),
        "rewards": [{"name": r.name, "kind": r.kind, "weight": r.weight} for r in credit.scored.rewards],
        "outcomes": [dict(step_scores.outcome_scores) for step_scores in credit.scored.scored],
        "credit": _credit(credit),
    }
    if other is not None:
        whole["other"] = _credit(other)
    return json.dumps(whole, allow_nan=False)


def _credit(credit: Credit) -> dict[str, Any]:
    return credit_data(credit) | {
        "options": dict(credit.options),
        "normalised": [list(row) for row in credit.normalised],
    }


def credit_data(credit: Credit) -> dict[str, Any]:
    """A credit in plain values: for each rollout its steps, the outcome reward and one advantage a token."""
    return {name: value for name, value in credit.facts().items() if name != "options"} | {
        "rollouts": [
            {
                "text": rollout.text,
                "steps": [{name: row[name] for name in STEP_COLUMNS} for row in credit.rows(i)],
                "outcome": credit.scored.scored[i].outcome,
                "advantages": credit.of(i).tolist(),
            }
            for i, rollout in enumerate(credit.scored.group.rollouts)
        ],
    }


def _steps(credit: Credit, other: Credit | None) -> str:
    """A row a step: 1-based rollout and step, its place, its scores, r, r̃ and what is drawn of its last token."""
    names = list(dict.fromkeys(name for step_scores in credit.scored.scored for name in step_scores.scores))
    drawn = _Drawn(credit, other)
    columns = ["rollout", "step", "first_token", "last_token", "reward", "normalised", *drawn.head, "text"]
    called = [f"score of {name}" if name in columns else name for name in names]
    head = ["rollout", "step", "first_token", "last_token", *called, "reward", "normalised", *drawn.head]
    rows = []
    for i in range(len(credit.scored.group)):
        for k, row in enumerate(credit.rows(i), start=1):
            places = [i + 1, k, row["first_token"], row["last_token"]]
            scores = [row["scores"][name] for name in names]
            values = [*places, *scores, row["reward"], row["normalised"], *drawn.of(i, row["last_token"])]
            rows.append([*values, row["text"]])
    return _table([*head, "text"], rows, credit, other)


def _tokens(credit: Credit, other: Credit | None) -> str:
    """A row a token: 1-based rollout and step (empty outside every step), 0-based token, its id and what is drawn."""
    drawn = _Drawn(credit, other)
    group = credit.scored.group
    compared = ["raw_logprob", "reference_logprob"] if any(rollout.ref_logprobs for rollout in group.rollouts) else []
    head = ["rollout", "token", "id", "step", "logprob", "entropy", *compared, *drawn.head]
    rows = []
    for i, (rollout, step_scores) in enumerate(zip(group.rollouts, credit.scored.scored, strict=True)):
        step_of = {t: k + 1 for k, (first, last) in enumerate(step_scores.spans) for t in range(first, last + 1)}
        for t, token in enumerate(rollout.token_ids):
            sampled = [rollout.logprobs, rollout.entropies]
            sampled += [group.raw_logprobs(i), rollout.ref_logprobs] if compared else []
            known = rollout.is_sampled(t)
            measured = [values[t] if values and known else None for values in sampled]
            rows.append([i + 1, t, token, step_of.get(t), *measured, *drawn.of(i, t), rollout.texts[t]])
    return _table([*head, "text"], rows, credit, other)


def _table(head: list[str], rows: list[list[Any]], credit: Credit, other: Credit | None) -> str:
    """The rows as CSV; a last column says in the first row where they come from."""
    source = "; ".join(f"{name}: {text}" for name, text in source_of(credit, other))
    return csv_text([*head, "source"], [[*row, "" if i else source] for i, row in enumerate(rows)])


class _Drawn:
    """What a token can be coloured by under its schemes, as cells: advantage, weight in each loss, difference B - A.

    A weight is the advantage times the loss's length normaliser, where 1 is an even share of the group's tokens. Every
    value is rounded to float32.
    """

    def __init__(self, credit: Credit, other: Credit | None) -> None:
        self.credits = [credit] if other is None else [credit, other]
        self.shares = even_shares(credit)
        names = ["advantage", *(f"weight_{loss}" for loss in self.shares)]
        self.head = names if other is None else [*names, *(f"{name}_b" for name in names), "difference"]

    def of(self, rollout: int, token: int) -> list[np.float32]:
        advantages = [credit.of(rollout)[token] for credit in self.credits]
        shares = [np.float32(values[rollout]) for values in self.shares.values()]
        cells = [cell for advantage in advantages for cell in (advantage, *(advantage * share for share in shares))]
        return cells if len(advantages) == 1 else [*cells, advantages[1] - advantages[0]]


EXPORTS: dict[str, tuple[str, str, Callable[[Credit, Credit | None], str]]] = {
    "html": (".html", "text/html;charset=utf-8", lambda credit, other: heatmap(credit, other=other).html()),
    "json": (".json", "application/json", _json),
    "steps": ("-steps.csv", "text/csv;charset=utf-8", _steps),
    "tokens": ("-tokens.csv", "text/csv;charset=utf-8", _tokens),
}


FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
"""A text that starts with one of these is a formula to a spreadsheet."""


def csv_text(headers: Sequence[str], rows: Iterable[Sequence[Any]], newline: str = "\r\n") -> str:
    """The table as CSV; text that a spreadsheet would calculate gets a leading apostrophe, numbers stay as they are."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator=newline)
    writer.writerow(map(_cell, headers))
    writer.writerows([_cell(value) for value in row] for row in rows)
    return out.getvalue()


def chart_csv(chart: Chart) -> str:
    """A row an x and a column a line, empty where a line has no value."""
    columns = chart.columns()
    rows = (
        [x, *(values.get(x) for _, values in columns)] for x in sorted({x for _, values in columns for x in values})
    )
    written = ([None if value is None else _short(value) for value in row] for row in rows)
    return csv_text([chart.x_label or "x", *(name for name, _ in columns)], written, "\n")


def _short(value: float) -> float:
    """With seven digits, and whole numbers without a point."""
    return int(value) if float(value).is_integer() else float(f"{value:.7g}")


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA_STARTS) else value
