"""A drawn group as files: an HTML page, JSON, and CSV tables of steps and tokens; charts as CSV, too.

Each file is made from the credit that is drawn, so that it holds the very numbers on screen. The picture is made by the
browser (``share.js``). Knows nothing of how a file gets to whoever asked for it.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.schema import Credit
from workbench.views.curves import Chart
from workbench.views.heatmap import even_shares, heatmap, source_of

STEP_COLUMNS = ("text", "first_token", "last_token", "scores", "reward")
"""The fields of a step in ``credit_data``."""


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
    """Return a row a step: 1-based rollout and step, place, scores, r, r̃ and what its last token is drawn by."""
    names = list(dict.fromkeys(name for step_scores in credit.scored.scored for name in step_scores.scores))
    rows = []
    for i, drawn in enumerate(_measure_tokens(credit, other)):
        for k, row in enumerate(credit.rows(i), start=1):
            shown = {"rollout": i + 1, "step": k, "first_token": row["first_token"], "last_token": row["last_token"]}
            values = {"reward": row["reward"], "normalised": row["normalised"], **drawn[row["last_token"]]}
            taken = shown.keys() | values.keys() | {"text"}
            scores = {f"score of {name}" if name in taken else name: row["scores"][name] for name in names}
            rows.append(shown | scores | values | {"text": row["text"]})
    return _table(rows, credit, other)


def _tokens(credit: Credit, other: Credit | None) -> str:
    """Return a row a token: 1-based rollout and step (empty outside all), 0-based token, id, what it is drawn by."""
    group, rows = credit.scored.group, []
    compares = any(rollout.ref_logprobs for rollout in group.rollouts)
    for i, drawn in enumerate(_measure_tokens(credit, other)):
        rollout, spans = group.rollouts[i], credit.scored.scored[i].spans
        step_of = {t: k + 1 for k, (first, last) in enumerate(spans) for t in range(first, last + 1)}
        sampled = {"logprob": rollout.logprobs, "entropy": rollout.entropies}
        if compares:
            sampled |= {"raw_logprob": group.raw_logprobs(i), "reference_logprob": rollout.ref_logprobs}
        for t, token in enumerate(rollout.token_ids):
            known = rollout.is_sampled(t)
            measured = {name: values[t] if values and known else None for name, values in sampled.items()}
            row = {"rollout": i + 1, "token": t, "id": token, "step": step_of.get(t), **measured}
            rows.append(row | drawn[t] | {"text": rollout.texts[t]})
    return _table(rows, credit, other)


def _table(rows: list[dict[str, Any]], credit: Credit, other: Credit | None) -> str:
    """Return the rows as CSV; a last column says in the first row where they come from."""
    source = "; ".join(f"{name}: {text}" for name, text in source_of(credit, other))
    head = [*rows[0], "source"] if rows else ["source"]
    return csv_text(head, [[*row.values(), "" if i else source] for i, row in enumerate(rows)])


def _measure_tokens(credit: Credit, other: Credit | None) -> Iterator[list[dict[str, np.float32]]]:
    """Yield each rollout's tokens with what they can be coloured by: advantage, weight in each loss, difference B - A.

    A weight is the advantage times the loss's length normaliser, where 1 is an even share of the group's tokens. Every
    value is rounded to float32.
    """
    shares = even_shares(credit)
    for i in range(len(credit.scored.group)):
        columns = {}
        for of, behind in ((credit, ""), (other, "_b")):
            if of is not None:
                columns[f"advantage{behind}"] = of.of(i)
                columns |= {f"weight_{loss}{behind}": of.of(i) * np.float32(c[i]) for loss, c in shares.items()}
        if other is not None:
            columns["difference"] = other.of(i) - credit.of(i)
        yield [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


EXPORTS: dict[str, tuple[str, str, Callable[[Credit, Credit | None], str]]] = {
    "html": (".html", "text/html;charset=utf-8", lambda credit, other: heatmap(credit, other=other).html()),
    "json": (".json", "application/json", _json),
    "steps": ("-steps.csv", "text/csv;charset=utf-8", _steps),
    "tokens": ("-tokens.csv", "text/csv;charset=utf-8", _tokens),
}


FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
"""A text that starts with one of these is a formula to a spreadsheet."""


def csv_text(headers: Sequence[str], rows: Iterable[Sequence[Any]], newline: str = "\r\n") -> str:
    """Return the table as CSV; text that a spreadsheet would calculate gets an apostrophe, numbers stay as they are."""
    out = io.StringIO()
    csv.writer(out, lineterminator=newline).writerows([_cell(value) for value in row] for row in (headers, *rows))
    return out.getvalue()


def chart_csv(chart: Chart) -> str:
    """Return a row an x and a column a line, its band's ends behind it, empty where a line has no value."""
    columns: dict[str, dict[float, float]] = {}
    for line in chart.lines:
        parts = {
            line.metric or line.label: line.y,
            f"{line.label}, lowest": line.low,
            f"{line.label}, highest": line.high,
        }
        columns |= {name: dict(zip(line.x, y, strict=True)) for name, y in parts.items() if y is not None}
    places = sorted({x for column in columns.values() for x in column})
    rows = ([x, *(column.get(x) for column in columns.values())] for x in places)
    written = ([None if value is None else _short(value) for value in row] for row in rows)
    return csv_text([chart.x_label or "x", *columns], written, "\n")


def _short(value: float) -> float:
    """Round to seven digits; whole numbers have no point."""
    return int(value) if float(value).is_integer() else float(f"{value:.7g}")


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA_STARTS) else value
