"""Descriptions of values: one function a class, giving the parts that a notebook and a terminal show."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from workbench.checks import Difficulty, Finding, Preflight, ProbeReport, ProbeResult
from workbench.checks.clinic import LOOKS, STRATEGIES, ClinicReport
from workbench.checks.difficulty import SIZES
from workbench.checks.reward_check import RewardCheck
from workbench.credit import Comparison, why_no_spread
from workbench.data.tasks import Task
from workbench.errors import cut
from workbench.policies.step_values import StepValues
from workbench.runs import Run
from workbench.schema import (
    Credit,
    Example,
    Explanation,
    Group,
    Prompt,
    Rollout,
    ScoredGroup,
    StepScores,
    WatchedRow,
    say_count,
    signed,
)
from workbench.steps.split import Steps
from workbench.views.cards import (
    STRONGEST,
    Cell,
    Drawing,
    Note,
    Part,
    Section,
    Table,
    Text,
    Title,
    draw_html,
    number,
    visible,
)
from workbench.views.curves import columns_of, run_charts
from workbench.views.heatmap import heatmap
from workbench.views.run import run_sentences

if TYPE_CHECKING:
    from workbench.policies.load import Policy
    from workbench.views.notebook import RunComparison

Parts = tuple[Part, ...]


def steps(value: Steps) -> Parts:
    rows = [
        (k, step.start, step.end, Cell(value.text[step.start : step.end], "text")) for k, step in enumerate(value, 1)
    ]
    missed = () if all(step.matched for step in value) else (Note("no match: the whole text is one step"),)
    return *missed, Table(("k", "start", "end", "step"), rows)


def example(value: Example) -> Parts:
    rows = [(name, Cell(str(column), "text")) for name, column in value.columns.items()]
    prompt = Text(_prompt(value.prompt).text.rstrip())
    return (prompt, Table(("column", "value"), rows)) if rows else (prompt,)


def rollout(value: Rollout) -> Parts:
    return _length(value), Text(value.text)


def group(value: Group) -> Parts:
    shown = [(members, value.rollouts[members[0]]) for members in value.distinct]
    distinct = "" if len(shown) == len(value) else f", {len(shown)} distinct,"
    head = (
        Title(f"{say_count(len(value), 'rollout')}{distinct} of {value.policy or 'a file'}"),
        ", ".join(f"{name} {setting}" for name, setting in value.sampling.items() if setting is not None),
    )
    return (
        Drawing(lambda: draw_html(head)),
        _prompt(value.prompt),
        *(Section(f"rollout {_numbered(members)}: {_length(one)}", (Text(one.text),)) for members, one in shown),
    )


def step_scores(value: ScoredGroup) -> Parts:
    """Return each rollout's steps with every function's score, coloured by the step's reward."""
    names = [reward.name for reward in value.rewards if reward.kind == "step"]
    sections = []
    for members in _alike(value):
        scores, rows = value.scored[members[0]], []
        for k, step in enumerate(value.rows(members[0]), 1):
            shaded = Cell(step["text"], "text", shade=step["reward"])
            rows.append((k, *(step["scores"][name] for name in names), step["reward"], shaded))
        outcomes = ", ".join(f"{name} {number(score, 2)}" for name, score in scores.outcome_scores.items())
        table = Table(("k", *names, "reward", "step"), rows)
        sections.append(Section(f"rollout {_numbered(members)}{_outcome(scores)}", (outcomes, table)))
    return _prompt(value.group.prompt), *sections


def credit(value: Credit) -> Parts:
    """Return the heatmap; in a terminal, each step's reward, normalised reward and the advantage of its last token."""
    numbers = ("reward", "normalised", "advantage")
    centre = value.parts[0].centre if value.parts else "mean"
    parts: list[Part] = [
        _prompt(value.scored.group.prompt),
        f"scheme {value.scheme}: {centre} {number(value.mean)}, std {number(value.std)}",
    ]
    if (flat := why_no_spread(value)) is not None:
        parts.append(f"{flat}; {flat.advice}" if flat.remedies else str(flat))
    parts += map(Note, value.warnings)
    for members in _alike(value.scored):
        i = members[0]
        rollout, scores = value.scored.group.rollouts[i], value.scored.scored[i]
        rows = [(str(k), *(step[name] for name in numbers), step["text"]) for k, step in enumerate(value.rows(i), 1)]
        matched = "" if scores.matched else ", over 1,000 steps, unsplit" if scores.unsplit else ", no match"
        once = "" if all(value.is_counted[member] for member in members) else ", not counted"
        title = f"rollout {_numbered(members)}: {_length(rollout, _outcome(scores) + matched)}{once}"
        parts.append(Section(title, (Table(("k", *numbers, "step"), rows),)))
    return (Drawing(heatmap(value)._repr_html_, tuple(parts)),)


def explanation(value: Explanation) -> Parts:
    """Return the terms, their sum, and the advantage in float32."""
    rows = [
        (
            term.source if term.step is None else f"step {term.step + 1}",
            *(term.raw, term.mean, term.std, term.normalised, term.factor),
            Cell(term.value, rich=f"{term.value:+.4f}", shade=term.value),
        )
        for term in value.terms
    ]
    bound = "" if value.clip is None else f", bounded by {value.clip:g}"
    centre = " or ".join(dict.fromkeys(term.centre for term in value.terms)) or "mean"
    headers = ("of", "raw", centre, "std", "normalised", "× factor", "= value")
    total = Cell(value.total, rich=f"{value.total:+.4f}", shade=value.total)
    return (
        Title(f"Rollout {value.rollout + 1}, token {value.token}: advantage {float(value.advantage):+.6f}{bound}"),
        Table(headers, rows, totals=("sum", *[""] * 5, total)),
    )


def watched_row(value: WatchedRow) -> Parts:
    """Return the heatmap, before and now; in a terminal, the numbers of the row and of each text."""
    before = value.before or value
    texts = zip(value.texts, before.texts, strict=True)
    numbers = [f"{text.name}: {_numbers(text.numbers, first.numbers)}" for text, first in texts]
    words: Parts = (Text(value.prompt), _numbers(value.numbers, before.numbers), *numbers)
    return (Drawing(heatmap(value)._repr_html_, words),)


def _numbers(now: Mapping[str, float], before: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {number(before[name])} → {number(value)}" for name, value in now.items())


def comparison(value: Comparison) -> Parts:
    names = value.names
    correlation = "undefined" if value.correlation is None else f"{value.correlation:.3f}"
    columns = names if names == (value.a.scheme, value.b.scheme) else ("A", "B")
    rows = [(s.rollout + 1, s.step + 1, s.tokens, s.mean_a, s.mean_b, s.flipped) for s in value.steps]
    return (
        f"{names[0]} against {names[1]}: {value.flipped_share:.1%} of the tokens change sign, correlation "
        f"{correlation}, mean absolute difference {value.mean_absolute_difference:.3f}",
        Drawing(heatmap(value)._repr_html_, (Table(("rollout", "k", "tokens", *columns, "flipped"), rows),)),
    )


def probes(value: ProbeReport) -> Parts:
    about = (
        f"Largest gain of advantage over {say_count(value.rollouts, 'rollout')}, for an edit that adds no content. "
        f"Star: the scheme pays for it, by over {value.threshold:g} of the group's spread in some rollout. Rewards: "
        f"{', '.join(value.rewards)}."
    )
    rows = [(edit, *map(_gain, row.values())) for edit, row in value.results.items()]
    left_out = [Note(f"{scheme} left out: {why}") for scheme, why in value.left_out.items()]
    return about, Table(("edit", *value.schemes), rows), *left_out


def preflight(value: Preflight) -> Parts:
    return (findings(value.findings),)


def findings(found: Sequence[Finding]) -> Table:
    rows = [
        (Cell(f.level, f.level), f.name, f.value, f.meaning + (f" → {f.advice}" if f.advice else "")) for f in found
    ]
    return Table(("", "what", "measured", "meaning"), rows)


def clinic(value: ClinicReport) -> Parts:
    """The findings of each reward, one sentence each, and the scoreboard of the strategies."""
    parts: list[Part] = [value.headline]
    for report in value.rewards:
        where = f", in the forms {', '.join(report.forms)}" if report.forms else ""
        parts.append(f"{report.name} looks at {LOOKS[report.looks_at]}{where}; {say_count(report.tried, 'row')} fit")
        parts += [findings(report.findings)] if report.findings else []
    parts += ["all together", findings(value.together)] if value.together else []
    boards = [report.scores for report in value.rewards]
    names = [report.name for report in value.rewards]
    if len(names) > 1:
        boards, names = [*boards, value.totals], [*names, "sum"]
    rows = [(strategy, *(board.get(strategy) for board in boards)) for strategy in STRATEGIES]
    return *parts, Table(("strategy", *names), rows)


def difficulty(value: Difficulty) -> Parts:
    facts, counts = value.to_json(), value.histogram()
    about = (
        f"{facts['prompts']} prompts, {facts['answers']} answers: pass rate {facts['mean_pass_rate']:.2f}, never right "
        f"{facts['never_right']}, always right {facts['always_right']}"
    )
    bars = ["█" * math.ceil(30 * count / max(counts)) for count in counts]
    tenths = [f"{k / 10:.1f}–{(k + 1) / 10:.1f}" for k in range(10)]
    mark = "← proposed: twice as many answers bring few more groups to life"
    sizes = [(size, f"{value.dead_share(size):.0%}", mark if size == value.proposed else "") for size in SIZES]
    return (
        about,
        Table(("pass rate", "prompts", ""), list(zip(tenths, counts, bars, strict=True))),
        Table(("group size", "groups without spread (expected)", ""), sizes),
    )


def reward_check(value: RewardCheck) -> Parts:
    worst = [
        (
            *(item.group + 1, item.rollout + 1, None if item.step is None else item.step + 1, item.score),
            *("right" if item.label else "wrong", Cell(cut(item.text, 300), "text")),
        )
        for item in value.worst
    ]
    headers = ("group", "rollout", "step", "score", "labelled", "text")
    wrong = ("Where they disagree most:", Table(headers, worst)) if worst else ()
    return Title(f"{value.reward} against {value.labels}"), findings(value.findings), *wrong


def step_values(value: StepValues) -> Parts:
    """A row a rollout, a column a step, coloured from the lowest value to the highest; in a terminal a row a step."""
    known = [v for row in value.values for v in row if v is not None]
    low, high = min(known, default=0.0), max(known, default=1.0)
    width = max(map(len, value.values), default=0)
    wide, long = [], []
    for i, (values, errors, counts) in enumerate(zip(value.values, value.errors, value.counts, strict=True), 1):
        cells = [Cell(None)] * len(values)
        for k, (v, error) in enumerate(zip(values, errors, strict=True)):
            if v is not None:
                shade = STRONGEST * (2 * (v - low) / (high - low) - 1) if high > low else None
                cells[k] = Cell(v, rich=number(v, 2) + (f" ± {number(error, 2)}" if error else ""), shade=shade)
        wide.append((i, *cells, *[""] * (width - len(cells))))
        long += [(i, k, *cell) for k, cell in enumerate(zip(values, errors, counts, strict=True), 1)]
    about = (
        f"The value of each step ± its standard error: the mean {value.outcome} of {value.k} continuations from the "
        f"step's end. The last step of a finished answer has its own outcome. The prompt's value is "
        f"{number(value.start, 2)}."
    )
    if not value.k:
        about = f"The policy's {value.outcome} after each step, {number(value.start, 2)} after the prompt alone."
    shown = Table(("rollout", *(f"step {k}" for k in range(1, width + 1))), wide)
    headers = ("rollout", "k", "value", "standard error", "continuations")
    return about, Drawing(lambda: draw_html([shown]), (Table(headers, long),))


def policy(value: Policy) -> Parts:
    from workbench.policies.decoding import decoding_of  # torch is there already: the policy is its

    millions = sum(p.numel() for p in value.model.parameters()) / 1e6
    where = value.model.device if value.server is None else value.server.where
    size = f"policy {value.name}: {millions:.1f} million parameters on {where}"
    return (f"{size}, decoded by the {decoding_of(value.model)}",)


def task(value: Task) -> Parts:
    facts = {
        "task": value.name,
        "examples": f"{len(value.examples):,} to train on, {len(value.held_out):,} held out",
        "pattern": str(value.pattern),
        "rewards": ", ".join(reward.name for reward in value.rewards) or "none of its own",
        "scheme": value.scheme,
        "prompt": _prompt(value[0].prompt).text.strip(),
    }
    return (Table(("", ""), [(name, Cell(fact, "text")) for name, fact in facts.items()]),)


def run(value: Run) -> Parts:
    """Return the run's state and settings; in a terminal the ends of its curves, which a notebook shows below."""
    row = value.summary().row("state", "reason", "step", "total_steps", "task", "policy", "scheme", "seed")
    charts = run_charts(columns_of(value.metrics_rows()[0]), metrics=value.method.metrics)
    settings = f"{row['task']}, {row['policy']}, scheme {row['scheme']}, seed {row['seed']}"
    return (
        Title(value.name, row["state"]),
        *map(str, run_sentences(value)),
        f"{settings}; step {row['step']} of {row['total_steps']}. {row['reason']}".rstrip(),
        Drawing(str, tuple(map(str, charts))),
    )


def run_comparison(value: RunComparison) -> Parts:
    fields = [field.name for field in dataclasses.fields(value.rows[0])] if value.rows else []
    return (Table(fields, [tuple(dataclasses.asdict(row).values()) for row in value.rows]),)


def _prompt(prompt: Prompt) -> Text:
    if isinstance(prompt, str):
        return Text(prompt)
    return Text("\n".join(f"{visible(m['role'], one_line=True)}: {m['content']}" for m in prompt))


def _alike(value: ScoredGroup) -> list[tuple[int, ...]]:
    """Return the rollouts that are shown as one: exact copies with the same scores."""
    return [
        rollouts
        for members in value.group.distinct
        for rollouts in (
            [members]
            if all(value.scored[i] == value.scored[members[0]] for i in members)
            else [(member,) for member in members]
        )
    ]


def _numbered(members: Sequence[int]) -> str:
    """Return the numbers of rollouts shown as one: "2", "2, 5, 7 (×3)"."""
    numbers = ", ".join(str(i + 1) for i in members)
    return numbers if len(members) == 1 else f"{numbers} (×{len(members)})"


def _length(rollout: Rollout, more: str = "") -> str:
    return f"{say_count(len(rollout), 'token')}{more}{', truncated' if rollout.truncated else ''}"


def _outcome(scores: StepScores) -> str:
    """Return the outcome, and what was read as the final answer."""
    outcome = "" if scores.outcome is None else f", outcome {scores.outcome:.3f}"
    return outcome + (f" ({said})" if (said := scores.extracted_said) else "")


def _gain(result: ProbeResult) -> Cell:
    if result.worst is None:
        return Cell(None)
    largest = result.worst.largest
    text = f"{signed(largest)}*" if result.pays else f"{largest:+.2f}"
    return Cell(text, "number", shade=-largest if result.pays else None)
