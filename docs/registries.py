"""Pages and pictures made from the code: schemes, built-in rewards, presets, probes, metrics. They cannot drift.

``write`` puts them into ``generated/`` and ``_static/generated/``, which are not kept in git.
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic.fields import FieldInfo

from benchmarks import blame
from benchmarks.schemes import RunResult, agreement, probes_that_pay, sees_labels, stored_results
from benchmarks.trained import mean
from workbench.checks import ALARMS, EDITS, TURN_EDITS
from workbench.checks.metrics import METRICS, SYMBOLS
from workbench.checks.probes import split_step_demo
from workbench.config import Section
from workbench.credit import LOSS_TYPES, NORMALISATIONS, SCHEMES, credit_group, length_normalisers
from workbench.data.formats import FORMATS
from workbench.rewards import BUILTINS, score_group
from workbench.steps import PRESETS
from workbench.training.methods import METHODS, RunConfig
from workbench.views.curves import Chart, Line, figure
from workbench.views.heatmap import heatmap

REFERENCE = {
    "Tasks, policies, groups": """
        load_task load_policy sample_group with_reference group_of load_groups
        workbench.data:Task(answer_is_right) workbench.policies.load:Policy Example Rollout(text,truncated) Group
    """,
    "Steps": "StepPattern split_steps token_texts align_steps Step",
    "Rewards": """
        score_group score_both Reward check_reward workbench.checks.reward_check:RewardCheck
        step_values beliefs workbench.policies.step_values:StepValues(as_reward,as_scores)
        ScoredGroup(step_rewards,step_ends,lengths,outcomes) StepScores(matched,step_ends)
    """,
    "Credit": """
        assign_credit credit_group workbench.credit:gae compare_credits workbench.credit.explain:Comparison
        workbench.credit:loss_weights workbench.credit:length_normalisers workbench.credit:token_losses
        workbench.credit:pass_losses workbench.credit:group_losses workbench.credit:gradient_shares
        workbench.credit:TokenLosses workbench.schema:LossSettings workbench.schema:LossPass
        Credit(of,explain,rows,to_json) workbench.schema:Explanation workbench.schema:Term
        heatmap workbench.views.heatmap:Heatmap(html)
    """,
    "Checks": """
        preflight workbench.checks.preflight:Preflight probe workbench.checks.probes:ProbeReport
        workbench.checks.alarms:alarms
    """,
    "Runs": """
        train open_run list_runs
        workbench.views.notebook:Run(status,summary,wait,stop,resume,metrics,figure,rollouts,rollouts_frame,rollout_steps,watch,follow,log_tail)
        compare RunComparison(of,frame,by_scheme,by_method,figure)
        workbench.runs:ComparedRun workbench.runs:ComparedMethod
        default_workspace train_to_end make_pairs make_demonstrations label_steps mix_rows
    """,
    "In a notebook": "show watch open_in_page workbench.views.notebook:PageLink Progress",
}
"""The names of each part of the reference: public ones as ``import workbench as wb`` has them, what they return as
``module:Name``, and of a class the members that are shown."""


def write(docs: Path) -> None:
    pages = (schemes, which_scheme, before_training, rewards, presets, probes, formats, methods, glossary)
    pages += (blame_shares, blame_numbers, blame_turns, blame_counterfactuals, blame_learning)
    folder, static = docs / "generated", docs / "_static" / "generated"
    for place in (folder, static):
        place.mkdir(parents=True, exist_ok=True)
    for page in (*pages, reference, config):
        (folder / f"{page.__name__}.md").write_text(page(), encoding="utf-8")
    for name, picture in pictures().items():
        (static / f"{name}.html").write_text(picture, encoding="utf-8")


def schemes() -> str:
    parts = []
    for scheme in SCHEMES.values():
        text = inspect.cleandoc(scheme.compute.__doc__ or "").replace("``", "`")
        rows = [
            (f"`{o.name}`", f"`{o.default}`", ", ".join(f"`{c}`" for c in o.choices) or _range(o.low, o.high), o.help)
            for o in scheme.options
        ]
        told = [f"**Formula** `{scheme.formula}`", text, f"*Reference: {scheme.reference}.*"]
        parts += [f"### {scheme.name}", *told, table(("option", "default", "values", "what it does"), rows)]
    parts += ["## What a reward is compared with", "The option `normalise`:"]
    parts.append(table(("normalise", "pool"), [(f"`{name}`", about) for name, about in NORMALISATIONS.items()]))
    parts += [
        "## What the loss makes of an advantage",
        "It multiplies each token's with c_i, by `loss_type`:",
    ]
    parts.append(table(("loss_type", "c_i"), [(f"`{name}`", about) for name, about in LOSS_TYPES.items()]))
    return _joined(parts)


def which_scheme() -> str:
    """Final accuracy and steps per answer of the runs that ``benchmarks schemes`` keeps, a row a scheme."""
    labels = {"right": "right labels", "noise10": "10 % turned", "noise30": "30 % turned", "prm": "a model's labels"}
    found: dict[tuple[str, str], list[RunResult]] = {}
    for result in stored_results().values():
        found.setdefault((result.scheme, result.labels), []).append(result)
    right = {scheme: mean([run.final for run in found.get((scheme, "right"), [])]) or 0.0 for scheme in SCHEMES}
    rows = [
        [
            f"`{scheme}`",
            *(_ends(found.get((scheme, name), []), name == "right" or sees_labels(scheme)) for name in labels),
        ]
        for scheme in sorted(SCHEMES, key=right.__getitem__, reverse=True)
    ]
    return table(("scheme", *labels.values()), rows)


def _ends(runs: Sequence[RunResult], sees: bool) -> str:
    """``76.5 %, 7.16 steps``, of several seeds their mean, lowest and highest."""
    if not runs:
        return "not trained" if sees else "as right"
    ends = [run.final for run in runs]
    steps = [run.steps_per_answer for run in runs if run.steps_per_answer is not None]
    several = f" ({min(ends):.1%} to {max(ends):.1%}, {len(runs)} seeds)" if len(runs) > 1 else ""
    told = f"{mean(ends):.1%}{several}".replace("%", " %")
    return f"{told}, {mean(steps):.2f} steps" if len(steps) == len(runs) else told


def before_training() -> str:
    """What turned labels leave of each scheme's advantages, and how many probes pay, in the group that comes along."""
    left = {scheme: [agreement(noise, scheme) for noise in ("noise10", "noise30")] for scheme in SCHEMES}
    rows = [
        (
            f"`{scheme}`",
            *(f"{share:.3f}" if sees_labels(scheme) else "1, reads no labels" for share in left[scheme]),
            probes_that_pay(scheme),
        )
        for scheme in sorted(SCHEMES, key=lambda scheme: left[scheme][1], reverse=True)
    ]
    return table(("scheme", "agreement, 10 % turned", "30 % turned", "probes that pay"), rows)


BLAMED = {
    "right": "right labels",
    "noise10": "10 % turned",
    "noise30": "30 % turned",
    "implicit": "a model's labels",
    "belief": "belief",
    "monte_carlo": "Monte-Carlo values",
    "monte_carlo_progress": "their changes",
}


def blame_shares() -> str:
    """The share of blame on the wrong steps of chains, a row a scheme and a column for each kind of labels."""
    return _blame_table("chains", BLAMED)


def blame_turns() -> str:
    return _blame_table("turns", {name: BLAMED[name] for name in blame.OF_TURNS if name in BLAMED})


def _blame_table(task: str, labels: Mapping[str, str]) -> str:
    found = {(row["scheme"], row["labels"]): row["step"] for row in _blame_rows() if row["task"] == task}
    named = dict.fromkeys(scheme for scheme, _ in found)
    share = {scheme: found.get((scheme, "right"), found.get((scheme, "outcome"), 0.0)) for scheme in named}
    rows = []
    for scheme in sorted(named, key=share.__getitem__, reverse=True):
        values = [found.get((scheme, name)) for name in labels]
        given = [_percent(value) for value in values if value is not None]
        cells = given or [_percent(share[scheme]), *["reads no labels"] * (len(labels) - 1)]
        rows.append((f"`{scheme}`", *cells, *["–"] * (len(labels) - len(cells))))
    return table(("scheme", *labels.values()), rows)


def blame_numbers() -> str:
    """All numbers of the rows of chains under right labels."""
    rows = [row for row in _blame_rows() if row["task"] == "chains" and row["labels"] in ("right", "outcome")]
    shares = {"step", "token", "wrong_down", "right_up"}
    body = [
        (f"`{row['scheme']}`", *(_percent(row[n]) if n in shares else f"{row[n]:.2f}" for n in blame.NUMBERS))
        for row in sorted(rows, key=lambda row: -row["step"])
    ]
    return table(("scheme", *(f"`{name}`" for name in blame.NUMBERS)), body)


def blame_counterfactuals() -> str:
    rows = [
        (row["task"], row["kind"], str(row["culprits"]), _change(row, "step"), _change(row, "answer"))
        for row in blame.stored_rows()["counterfactuals"]
    ]
    return table(("task", "kind", "culprits", "the step is right", "the answer is right"), rows)


def blame_learning() -> str:
    """Rank correlations of each number with final accuracy, a column for each kind of labels."""
    found = {(row["labels"], row["number"]): row for row in blame.stored_rows()["learning"]}
    there = {labels: len([1 for name, _ in found if name == labels]) for labels in blame.TRAINED}
    rows = []
    for number in blame.NUMBERS:
        cells = [found[labels, number] for labels, count in there.items() if count]
        said = [f"{row['correlation']:+.2f} ({row['low']:+.2f} to {row['high']:+.2f})" for row in cells]
        rows.append((f"`{number}`", *said))
    heads = [f"{BLAMED[n]}, {found[n, 'step']['schemes']} schemes" for n, count in there.items() if count]
    return table(("number", *heads), rows)


def _blame_rows() -> list[dict[str, Any]]:
    return blame.stored_rows()["rows"]


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _change(row: Mapping[str, Any], what: str) -> str:
    return f"{_percent(row[f'{what}_before'])} → {_percent(row[f'{what}_after'])}"


def rewards() -> str:
    rows = []
    for name, one in BUILTINS.items():
        options = ", ".join(f"`{option}`" for option in one.options) or "–"
        rows.append((f"`{name}`", one.kind, one.description, one.range, options, one.reference))
    return table(("name", "scores", "what it gives", "range", "options", "from"), rows)


def presets() -> str:
    rows = [(f"`{p.name}`", p.pattern.kind, p.used_by) for p in PRESETS.values()]
    return table(("preset", "a match … a step", "used by"), rows)


def probes() -> str:
    edits, of_episodes = (
        table(("edit", "what it does"), [(name, edit.summary) for name, edit in made.items()])
        for made in (EDITS, TURN_EDITS)
    )
    told = table(("alarm", "raised when"), [(name, inspect.getdoc(check) or "") for name, check in ALARMS.items()])
    between = "and in episodes of several turns:"
    return _joined(
        ["**Edits** that the probes make:", edits, between, of_episodes, "**Alarms** that read a run's curves:", told]
    )


def formats() -> str:
    of_rollouts = [one for one in FORMATS.values() if one.read is not None]
    rows = [(f"`{one.name}`", one.needs or ", ".join(f"`{name}`" for name in one.columns)) for one in of_rollouts]
    return table(("format", "what every row needs"), rows)


def reference() -> str:
    """A heading for each part, and under it a directive of Sphinx for each name."""
    parts = []
    for title, names in REFERENCE.items():
        directives = []
        for entry in names.split():
            name, _, members = entry.rstrip(")").partition("(")
            found = pkgutil.resolve_name(name if ":" in name else f"workbench:{name}")
            kind = "autoclass" if inspect.isclass(found) else "autofunction"
            directives.append(f".. {kind}:: {found.__module__}.{found.__name__}")
            directives += [f"   :members: {members.replace(',', ', ')}"] * bool(members)
        parts += [f"## {title}", "\n".join(["```{eval-rst}", *directives, "```"])]
    return _joined(parts)


def config() -> str:
    parts = []
    for section in sections(RunConfig, *(method.section for method in METHODS.values())):
        rows = [
            (f"`{name}`", _default(field), (field.description or "").replace("\n", " "))
            for name, field in section.model_fields.items()
        ]
        parts += [f"### {section.__name__}", table(("field", "default", "what it is"), rows)]
    return _joined(parts)


def sections(*roots: type[Section]) -> list[type[Section]]:
    """These and every section in them, each once."""
    listed: dict[type[Section], None] = {}

    def walk(kind: Any) -> None:
        if isinstance(kind, type) and issubclass(kind, Section) and kind not in listed:
            listed[kind] = None
            for field in kind.model_fields.values():
                walk(field.annotation)
        for part in get_args(kind):
            walk(part)

    for root in roots:
        walk(root)
    return list(listed)


def methods() -> str:
    rows = [
        (f"`{name}`", method.summary, ", ".join(f"`{metric}`" for metric in method.metrics))
        for name, method in METHODS.items()
    ]
    return table(("method", "what it does", "what its page shows first"), rows)


def glossary() -> str:
    rows = [(f"`{m.name}`", m.formula, m.meaning, m.source) for m in METRICS]
    return _joined(
        [
            table(("metric", "formula", "what it says", "from"), rows),
            "## What the letters mean",
            table(("letter", "meaning"), SYMBOLS),
        ]
    )


def pictures() -> dict[str, str]:
    """Standalone pages with the real heatmap, and charts, all computed here."""
    group, pattern, functions = split_step_demo()
    scored = score_group(group, pattern, functions)
    drawn = {name: heatmap(credit_group(scored, scheme=name)).html() for name in ("process", "outcome")}
    lengths = [20, 40, 80, 160, 320]
    lines = tuple(
        Line(loss, lengths, length_normalisers(lengths, loss, max_completion_length=320).tolist())
        for loss in ("grpo", "dapo", "dr_grpo")
    )
    chart = Chart("Weight of one token", lines, "tokens of the answer")
    return {**drawn, "length": figure([chart]).to_html(include_plotlyjs=True)}


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join("| " + " | ".join(_plain(cell) for cell in line) + " |" for line in lines)


def _plain(cell: str) -> str:
    """One line of Markdown that a table's cell can hold; within backticks only the bar needs escaping."""
    parts = " ".join(str(cell).split()).replace("|", "\\|").split("`")
    return "`".join(part if n % 2 else part.replace("*", "\\*") for n, part in enumerate(parts))


def _range(low: float | None, high: float | None) -> str:
    return "on or off" if low is None else f"{low:g} to {high:g}"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    return "its own defaults" if field.default_factory is not None else f"`{field.default}`"


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"
