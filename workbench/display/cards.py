"""The nouns as HTML for a notebook cell: small tables beside the heatmap, which is the page's own.

Every text, and most are a model's, is escaped, its control characters are written out, and a $ in it starts no formula.
Colours follow JupyterLab's theme, and stay in an exported file.
"""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.display import terminal
from workbench.display.tables import number, visible
from workbench.figures import Heatmap
from workbench.figures.lines import run_charts
from workbench.schema import Credit, Example, Explanation, Group, Rollout, ScoredGroup, Step

if TYPE_CHECKING:
    from workbench.checks import Preflight, ProbeReport
    from workbench.checks.probes import ProbeResult
    from workbench.credit import Comparison
    from workbench.display.comparing import RunComparison
    from workbench.policies import Policy
    from workbench.policies.step_values import StepValues
    from workbench.rewards.check import RewardCheck
    from workbench.runs import Run
    from workbench.steps.split import Steps
    from workbench.tasks.task import Task

STRONGEST = 2.0
"""The advantage (or value) that is drawn in the full colour."""
PLAIN = "mathjax_ignore tex2jax_ignore"
"""Classes under which MathJax leaves text alone, which JupyterLab and nbconvert's pages run over every output."""


@cache
def style() -> str:
    return (Path(__file__).parent / "cards.css").read_text(encoding="utf-8")


def card(*parts: str) -> str:
    return f'<style>{style()}</style><div class="wd {PLAIN}">{"".join(parts)}</div>'


def table(headers: Sequence[str], rows: Iterable[Sequence[Any]], *, last: Sequence[Any] = ()) -> str:
    """``last`` is a row of totals. Numbers to the right with three digits; a Cell brings its own class and style."""
    rows = [list(row) for row in rows]
    right = [all(_is_number(row[i]) for row in rows) and bool(rows) for i in range(len(headers))]
    head = "".join(f"<th{_class('number' * r)}>{escape(h)}</th>" for h, r in zip(headers, right, strict=True))
    body = "".join(f"<tr>{''.join(_cell(value, r) for value, r in zip(row, right, strict=True))}</tr>" for row in rows)
    foot = f'<tr class="total">{"".join(map(_cell, last, right))}</tr>' if last else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}{foot}</tbody></table>"


@dataclasses.dataclass(frozen=True)
class Cell:
    """A cell with a class and a colour: ``amount`` above 0 is blue and below orange, None neither."""

    text: str
    kind: str = ""
    amount: float | None = None


def steps(value: Steps) -> str:
    rows = [(k, one.start, one.end, Cell(value.text[one.start : one.end], "text")) for k, one in enumerate(value, 1)]
    missed = "" if all(one.matched for one in value) else '<p class="note">no match: the whole text is one step</p>'
    return card(missed, table(("k", "start", "end", "step"), rows))


def example(value: Example) -> str:
    facts = [(name, Cell(str(fact), "text")) for name, fact in value.columns.items()]
    return card(_pre(terminal.prompt_text(value.prompt)), table(("column", "value"), facts) if facts else "")


def rollout(value: Rollout) -> str:
    end = "" if value.finished else ", truncated"
    return card(f"<p>{len(value)} tokens{end}</p>", _pre(value.text))


def group(value: Group) -> str:
    facts = ", ".join(f"{name} {fact}" for name, fact in value.sampling.items() if fact is not None)
    parts = [
        f"<h4>{len(value)} rollouts of {escape(value.policy or 'a file')}</h4><p>{escape(facts)}</p>",
        _pre(terminal.prompt_text(value.prompt)),
    ]
    rows = [
        (i, len(one), "yes" if one.finished else "truncated", Cell(one.text, "text"))
        for i, one in enumerate(value.rollouts, start=1)
    ]
    return card(*parts, table(("rollout", "tokens", "finished", "text"), rows))


def scored(value: ScoredGroup) -> str:
    """Each rollout's steps with what every function gave them, coloured by the step's reward."""
    names = [reward.name for reward in value.rewards if reward.kind == "step"]
    blocks = []
    for i, (one, scores) in enumerate(zip(value.group.rollouts, value.scored, strict=True), start=1):
        outcomes = ", ".join(f"{name} {number(score, 2)}" for name, score in scores.outcome_scores.items())
        rows = [
            (
                k + 1,
                *(scores.scores[name][k] for name in names),
                scores.rewards[k],
                _step_cell(one, step, scores.rewards[k]),
            )
            for k, (step, reward) in enumerate(zip(scores.steps, scores.rewards, strict=True))
        ]
        drawn = table(("k", *names, "reward", "step"), rows)
        blocks.append(f"<div><h4>rollout {i}</h4><p>{escape(outcomes)}</p>{drawn}</div>")
    return card(_pre(terminal.prompt_text(value.group.prompt)), f'<div class="side">{"".join(blocks)}</div>')


def credit(value: Credit) -> str:
    return Heatmap(value)._repr_html_()


def explanation(value: Explanation) -> str:
    rows = [
        (
            term.source if term.step is None else f"step {term.step + 1}",
            term.raw,
            term.mean,
            term.std,
            term.normalised,
            term.factor,
            Cell(f"{term.value:+.4f}", "number", term.value),
        )
        for term in value.terms
    ]
    bound = "" if value.clip is None else f" (bounded by {value.clip:g})"
    total = ("sum", "", "", "", "", "", Cell(f"{value.total:+.4f}", "number", value.total))
    return card(
        f"<h4>Rollout {value.rollout + 1}, token {value.token}: advantage {float(value.advantage):+.4f}{bound}</h4>",
        table(("of", "raw", "mean", "std", "normalised", "× factor", "= value"), rows, last=total),
    )


def comparison(value: Comparison) -> str:
    together = "undefined" if value.correlation is None else f"{value.correlation:.3f}"
    told = (
        f"{value.a.scheme} against {value.b.scheme}: {value.flipped_share:.1%} of the tokens change sign, "
        f"correlation {together}"
    )
    return card(f"<p>{escape(told)}</p>") + Heatmap(value.a, other=value.b)._repr_html_()


def probes(value: ProbeReport) -> str:
    rows = [(edit, *(_probe_cell(result) for result in row.values())) for edit, row in value.results.items()]
    told = (
        f"Largest gain of advantage over {value.rollouts} rollouts, for an edit that adds no content; "
        f"orange where the scheme pays for it. Rewards: {', '.join(value.rewards)}."
    )
    left = "".join(f'<p class="note">{escape(f"{s} left out: {why}")}</p>' for s, why in value.left_out.items())
    return card(f"<p>{escape(told)}</p>", table(("edit", *value.schemes), rows), left)


def _probe_cell(result: ProbeResult) -> Cell:
    if result.worst is None:
        return Cell("–", "number")
    largest = result.worst.largest
    return Cell(f"{largest:+.2f}", "number", -largest if result.pays else None)


def preflight(value: Preflight) -> str:
    rows = [
        (Cell(f.level, f.level), f.name, f.value, f.meaning + (f" → {f.advice}" if f.advice else ""))
        for f in value.findings
    ]
    return card(table(("", "what", "measured", "meaning"), rows))


def reward_check(value: RewardCheck) -> str:
    worst = [
        (
            one.group + 1,
            one.rollout + 1,
            None if one.step is None else one.step + 1,
            one.score,
            "right" if one.label else "wrong",
            Cell(one.text, "text"),
        )
        for one in value.worst[:5]
    ]
    parts = [f"<h4>{escape(value.reward)} against {escape(value.labels)}</h4>", table(("", ""), value.rows())]
    if worst:
        parts.append("<p>Where they disagree most:</p>")
        parts.append(table(("group", "rollout", "step", "score", "labelled", "text"), worst))
    return card(*parts)


def step_values(value: StepValues) -> str:
    """A row a rollout, a column a step: its value, coloured from the lowest to the highest, and the standard error."""
    known = [v for row in value.values for v in row if v is not None]
    low, high = min(known, default=0.0), max(known, default=1.0)
    rows = [
        (i + 1, *(_value_cell(v, error, low, high) for v, error in zip(row, errors, strict=True)))
        for i, (row, errors) in enumerate(zip(value.values, value.errors, strict=True))
    ]
    width = max((len(row) for row in rows), default=1)
    rows = [row + (Cell(""),) * (width - len(row)) for row in rows]
    head = (
        f"The value of each step ± its standard error: the mean {value.outcome} of {value.k} continuations from the "
        f"step's end. The last step of a finished answer has its own outcome. The prompt's value is "
        f"{number(value.start, 2)}."
    )
    steps = (f"step {k}" for k in range(1, width))
    return card(f"<p>{escape(head)}</p>", table(("rollout", *steps), rows))


def _value_cell(value: float | None, error: float | None, low: float, high: float) -> Cell:
    if value is None:
        return Cell("–", "number")
    amount = STRONGEST * (2 * (value - low) / (high - low) - 1) if high > low else None
    return Cell(number(value, 2) + (f" ± {number(error, 2)}" if error else ""), "number", amount)


def policy(value: Policy) -> str:
    return card(f"<p>{escape(terminal.policy(value))}</p>")


def task(value: Task) -> str:
    return card(table(("", ""), [(name, Cell(fact, "text")) for name, fact in terminal.task_facts(value)]))


def run(value: Run) -> str:
    """The run's state, what it is of, and its curves as they are now."""
    status = value.status()
    config = value.config()
    rows, _ = value.metrics_rows()
    why = f" {status.reason}" if status.reason else ""
    what = f"{config.task}, {config.policy}, scheme {config.credit.scheme}, seed {config.seed}"
    return (
        card(
            f'<h4>{escape(value.name)} <span class="state">{status.state}</span></h4>',
            f"<p>{escape(what)}; step {status.step} of {status.total_steps}.{escape(why)}</p>",
        )
        + run_charts(rows).html()
    )


def run_comparison(value: RunComparison) -> str:
    fields = [field.name for field in dataclasses.fields(value.rows[0])] if value.rows else []
    listed = card(table(fields, [tuple(dataclasses.asdict(row).values()) for row in value.rows]))
    try:
        return listed + value.figure().html()
    except ValueError as error:  # no run has measured what the figure shows
        return listed + card(f"<p>{escape(str(error))}</p>")


def escape(text: str) -> str:
    """For HTML, with what acts on a reader's screen unseen (control characters, changes of direction) written out."""
    return html.escape(visible(text))


def _is_number(value: Any) -> bool:
    if isinstance(value, Cell):
        return value.kind == "number" or not value.text
    return isinstance(value, int | float | None)


def _step_cell(one: Rollout, step: Step, reward: float | None) -> Cell:
    return Cell(one.text[step.start : step.end], "text", reward)


def _pre(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def _cell(value: Any, right: bool = False) -> str:
    if isinstance(value, Cell):
        side, strength = "", ""
        if value.amount:
            side = " above" if value.amount > 0 else " below"
            strength = f' style="--s:{min(abs(value.amount) / STRONGEST, 1):.2f}"'
        return f'<td class="{value.kind}{side}"{strength}>{escape(value.text)}</td>'
    if value is None:
        return f"<td{_class('number' * right)}>–</td>"
    shown = f"{value:.3f}" if isinstance(value, float) else str(value)
    return f"<td{_class('number' * right)}>{escape(shown)}</td>"
