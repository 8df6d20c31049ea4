"""Reward models, judges and step values on the page: forms in, rows of the list and progress out.

A reward model is loaded once before it becomes a row, so that what is wrong with it is said beside the form; pressing
Add is what agrees to send answers to a judge's endpoint. Monte-Carlo values are of one group and one pattern, and their
row says so when either has changed; a run estimates its own. Models and values are asked of the model worker on a
thread, so that the page can show how far they are.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from workbench.assets import EMBEDDED
from workbench.config import (
    BeliefConfig,
    JudgeConfig,
    LabelFormat,
    Leaf,
    ModelConfig,
    MonteCarloConfig,
    RewardConfig,
    leaves,
)
from workbench.errors import ConfigError, WorkbenchError
from workbench.places import RUN, checkpoint_or
from workbench.policies.step_values import NAMES, Estimation, StepValues, label_rows
from workbench.rewards import BUILTINS, split_group
from workbench.rewards.judges import key_of
from workbench.rewards.models.formats import FORMATS, guess_format
from workbench.runs import find_checkpoint, list_runs, open_run
from workbench.schema import Group, counted
from workbench.steps import step_texts
from workbench.ui.handlers.page_state import Estimated, PageState, RewardRow, row_of, set_fields
from workbench.ui.handlers.scoring import Note, View, message, split
from workbench.ui.handlers.session import NO_EVENT, Services, progress_text

LISTED = 50
LISTED_STEPS = 4
"""Newest runs among which policies are suggested."""
FORMAT_CHOICES: tuple[tuple[str, str], ...] = (
    ("by its architecture", ""),
    ("classifier: one score a completion", "classifier"),
    ("stepwise: token classification (TRL)", "stepwise"),
    ("ки: P(+) of {+, −} (Math-Shepherd)", "ki"),
    ("<extra_0> after each step (Qwen2.5-Math-PRM)", "extra-0"),
    ("chat turns answered + or − (RLHFlow)", "turns"),
    ("implicit: how the likelihood of the answer moved", "implicit"),
)
"""Label and value of each choice of format."""
REDUCE_CHOICES: tuple[tuple[str, str], ...] = (
    ("a score for each step", ""),
    ("outcome: the last step's", "last"),
    ("outcome: the least", "min"),
    ("outcome: the product", "product"),
)
"""Label and value of what a process reward model is used as."""


BELIEF_OF = (("the answer", "answer"), ("the rest of a reference solution", "reference"))
BELIEF_FORMS = (
    ("what it adds to the belief", "difference"),
    ("what it adds to the best so far", "watermark"),
    ("the belief after it", "value"),
)
"""Label and value of what a policy believes in, and of what a step scores."""
KINDS = (("each step", "step"), ("whole answers", "outcome"))
"""Label and value of what a judge scores."""
SECTIONS: Mapping[str, type[Any]] = {"model": ModelConfig, "judge": JudgeConfig, "belief": BeliefConfig}
"""The parts of a reward's configuration that have a form."""
LAYOUT: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "model": (("path",), ("format", "reduce"), ("trust_remote_code",)),
    "judge": (("base_url",), ("model",), ("rubric",), ("key_variable",), ("kind",)),
    "belief": (("of", "form"), ("introduction", "policy"), ("per_token", "log")),
}
"""The fields of a form that stand in sight, row by row."""
FOLDED: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "judge": (
        ("lowest", "highest", "temperature", "max_tokens"),
        ("max_calls", "concurrency", "timeout", "retries"),
        ("cache",),
    )
}
"""Those that are folded away; what else a section has is set in a file."""
PLAIN: dict[str, Any] = {"elem_classes": []}
"""Of a field whose text may need more lines."""
SPECIAL: Mapping[str, Mapping[str, Any]] = {
    "model.path": {
        "label": "Reward model: folder, Hub id or run:NAME", "placeholder": "Qwen/Qwen2.5-Math-PRM-7B",
    },
    "model.format": {"label": "Format", "choices": FORMAT_CHOICES},
    "model.reduce": {"label": "Used as", "choices": REDUCE_CHOICES},
    "model.trust_remote_code": {"label": "Trust and run code from its repository", **PLAIN},
    "judge.kind": {"label": "Scores", "choices": KINDS},
    "judge.rubric": {"lines": 4, "max_lines": 12, **PLAIN},
    "belief.of": {"label": "Belief in", "choices": BELIEF_OF},
    "belief.form": {"label": "A step scores", "choices": BELIEF_FORMS},
}  # fmt: skip
"""What a field's widget has beside what its section says."""
NEW: Mapping[str, Mapping[str, Any]] = {"model": {"reduce": ""}, "judge": {"base_url": "http://127.0.0.1:8000/v1"}}
"""What a form that adds a reward holds, where that is no default."""
_KIND = Leaf("kind", str, False, "", "step")


def form_leaves(part: str) -> dict[str, Leaf]:
    """The fields of a part's form by name."""
    known = {leaf.name: leaf for leaf in (*leaves(SECTIONS[part]), _KIND)}
    return {name: known[name] for names in (*LAYOUT[part], *FOLDED.get(part, ())) for name in names}


def form_values(part: str, row: RewardRow | None) -> dict[str, Any]:
    """What a part's form shows of a row, or of the reward that it would add."""
    if row is None:
        return {**{name: leaf.default for name, leaf in form_leaves(part).items()}, **NEW.get(part, {})}
    values = getattr(row.unweighted(), part).model_dump() | {"kind": row.kind}
    if part == "model" and (row.kind == "step" or values["format"] not in FORMATS):
        values["reduce"] = ""
    return {name: values[name] for name in form_leaves(part)}


def row_from(
    part: str,
    values: Mapping[str, Any],
    rows: Sequence[RewardRow],
    key: str = "",
    path_of: Callable[[str], str] = checkpoint_or,
) -> RewardRow:
    """Return the row that the values of a part's form come to, in the place of the one with that key; "" adds one.

    Settings that have no field are those of the row before. Raises ConfigError for a value that does not fit,
    RewardError where a model's format must be said, or for a key that the environment lacks.
    """
    before = next((row for row in rows if row.key == key and row.fields.get(part) is not None), None)
    known, kind, name = form_leaves(part), values.get("kind", "step"), part
    given = {name: value.strip() if isinstance(value, str) else value for name, value in values.items()}
    if part == "model":
        if not given["path"]:
            raise ConfigError("give a reward model's folder or Hub id, or run:NAME")
        given["format"] = given.get("format") or guess_format(path_of(given["path"]))
        kind = "outcome" if given["format"] not in FORMATS or given.get("reduce") else "step"
        name = re.sub(r"\W+", "_", Path(given["path"].removeprefix(RUN)).name).strip("_") or "model"
    if part == "judge" and not (given.get("base_url") and given.get("model")):
        raise ConfigError("give the endpoint's base url and the model's name there")
    held = {} if before is None else {name: value for name, value in before.fields[part].items() if name not in known}
    held |= {name: value for name, value in given.items() if name != "kind" and value not in (None, "")}
    held |= {name: None for name, value in given.items() if known[name].optional and value in (None, "")}
    if before is not None and before.fields[part].get("path") == held.get("path"):
        name = before.name
    row = row_of(RewardConfig.parse({"name": free_name(name, rows, key), "kind": kind, part: held}))
    if row.judge is not None:
        key_of(row.judge)
    if before is None:
        return row
    kept = {field: before.fields[field] for field in ("weight", "schedule") if field in before.fields}
    return RewardRow({**row.fields, **kept}, on=before.on)


def add_row(
    part: str, values: Mapping[str, Any], rows: Sequence[RewardRow], key: str, services: Services, tab: str
) -> Iterator[View]:
    """Make a row of a form's values, once its model is loaded, or something listens at its judge's endpoint."""
    try:
        row = row_from(part, values, rows, key, services.path_of)
        if row.model is not None:
            yield from _load(row.model, services, tab)
        if row.judge is not None:
            services.judges.reach(row.judge)
        yield View(made=row)
    except WorkbenchError as error:
        yield View.of_error(error)


def _load(model: ModelConfig, services: Services, tab: str) -> Iterator[View]:
    """Load a reward model in the model worker, telling how far it is."""
    loading = f"loading reward model {model.path}"

    def load(report: Callable[[str], None], cancelled: Callable[[], bool]) -> None:
        def tell(event: Mapping[str, Any]) -> None:
            doing = f"{event['seconds']:.0f} s" if "busy" in event else f"the worker {event['waiting']}"
            report(f"{loading}, {doing}")

        services.models.load(model, tell, cancelled)

    with services.estimating.run(tab, load, loading, "Cancelled; nothing was added.") as work:
        for line in work:
            yield View(Note(line, level="info"), True)
        work.result()


def run_as_reward(rows: Sequence[RewardRow], name: str, workspace: Path) -> RewardRow:
    """The row of a finished run's reward model. Raises WorkbenchError where there is none to add."""
    path = f"{RUN}{name}"
    form = open_run(name, workspace).config().method.reward_format
    find_checkpoint(path, workspace)
    if form is None:
        raise ConfigError(f"{path} is a policy; a run that trains a reward model ends with one to use as a reward")
    if any(row.model is not None and row.model.path == path for row in rows):
        raise ConfigError(f"{path} is in the list already")
    return row_from("model", {"path": path, "format": form}, rows)


def policy_choices(workspace: Path) -> list[str]:
    """The policies that the page suggests: the embedded ones, and the newest checkpoints of runs that are over."""
    checkpoints = (name for run in list_runs(workspace)[:LISTED] for name in run.summary().policies[:LISTED_STEPS])
    return [*EMBEDDED, *checkpoints]


def free_name(name: str, rows: Sequence[RewardRow], key: str = "") -> str:
    """A name that no other row than that with the key has: ``name``, or that with a number."""
    taken = {row.name for row in rows if row.key != key}
    return next(free for free in (name, *(f"{name}_{n}" for n in range(2, len(taken) + 3))) if free not in taken)


Rows = Sequence[RewardRow]
LABEL_CHOICES: tuple[tuple[str, str], ...] = (
    ("TRL stepwise", "trl"),
    ("Math-Shepherd", "math-shepherd"),
    ("ProcessBench", "processbench"),
)
"""Label and value of each format that labels are written in."""
ESTIMATION_CHOICES: tuple[tuple[str, str], ...] = (
    ("any succeeds", "hard"),
    ("most succeed (trl: the share)", "soft"),
)
"""Label and value of when a step counts as good."""


def outcome_choices(rows: Rows) -> list[tuple[str, str]]:
    """The outcome rewards a value can be of, as (label, value): the list's own first, then those built in."""
    listed = [row.name for row in rows if row.kind == "outcome"]
    rest = [name for name, builtin in BUILTINS.items() if builtin.kind == "outcome" and name not in listed]
    return [(name, name) for name in (*listed, *rest)]


def estimate(draft: PageState, k: float | None, outcome: str, services: Services, tab: str) -> Iterator[View]:
    """Estimate the values of the group on screen, telling how far it is; their row is ``made``.

    Nothing on screen changes meanwhile.
    """
    try:
        group, how, reward = _asked(draft, k, outcome)
        pattern = draft.pattern()
        split(group, pattern, services.reward_worker(tab))  # where a bad pattern harms nobody

        def ask(report: Callable[[dict[str, Any]], None], cancelled: Callable[[], bool]) -> StepValues | None:
            return services.models.step_values(
                draft.policy, group, pattern, reward,
                k=how.continuations, seed=0, on_event=report, cancelled=cancelled, **draft.policy_options,
            )  # fmt: skip

        with services.estimating.run(tab, ask, NO_EVENT, "Cancelled; nothing was estimated.") as work:
            for event in work:
                yield View(Note(_status(event), level="info"), True)
            values = work.result()
        assert values is not None
        config = RewardConfig(name=NAMES["value"], kind="step", monte_carlo=how)
        said = f"{counted(values.tokens, 'token')} in {values.seconds:.1f} s"
        yield View(
            Note(said, level="info"), made=RewardRow(set_fields(config), estimated=Estimated(group, values, reward))
        )
    except WorkbenchError as error:
        yield View.of_error(error)


def _status(event: dict[str, Any]) -> str:
    if "done" in event:
        return f"{event['done']} of {event['total']} continuations, {event['tokens']} tokens, {event['seconds']:.0f} s"
    return progress_text(event)


def _asked(draft: PageState, k: float | None, outcome: str) -> tuple[Group, MonteCarloConfig, RewardConfig]:
    if draft.group is None:
        raise ConfigError("there is no group whose steps have a value; sample one first")
    if k is None or k != int(k):
        raise ConfigError("give a whole number of continuations, 8 say")
    how = MonteCarloConfig.parse({"continuations": int(k), "outcome": outcome})
    row = next((row for row in draft.rows if (row.name, row.kind) == (outcome, "outcome")), None)
    if row is not None:
        return draft.group, how, row.config()
    if outcome not in BUILTINS:
        raise ConfigError(f"there is no outcome reward {outcome!r} any more; choose another")
    return draft.group, how, RewardConfig(name=outcome, kind="outcome")


# ── the row ──────────────────────────────────────────────────────────────────────────────────────────────────────


def with_values_row(
    draft: PageState, made: RewardRow | None, progress: bool, in_run: bool
) -> tuple[PageState, Note | None]:
    """Return the draft with these choices about its Monte-Carlo values, those that were ``made`` or the ones it has.

    And why a run cannot use them although it was asked to.
    """
    before = values_row(draft.rows)
    row = made or before
    if row is None:
        return draft, None
    if made is not None and before is not None:
        row = made.with_edits({"weight": before.weight})
    fits = row.estimated is None or row.estimated.outcome.is_builtin
    values = {name: value for name, value in row.fields["monte_carlo"].items() if name != "progress"}
    values |= {"progress": True} if progress else {}
    fields = {**row.fields, "name": NAMES["progress" if progress else "value"], "monte_carlo": values}
    said = "a run can only estimate values of built-in outcome rewards as they are; choose one and estimate again"
    after = draft.with_row(replace(row, fields=fields, in_run=in_run and fits), before.key if before else "")
    return after, Note(said) if in_run and not fits else None


def values_row(rows: Rows) -> RewardRow | None:
    """The row that holds Monte-Carlo values."""
    return next((row for row in rows if row.monte_carlo is not None), None)


def values_facts(row: RewardRow) -> list[tuple[str, str]]:
    """What a row of Monte-Carlo values shows, as (label, value)."""
    how = row.monte_carlo
    assert how is not None
    score = "what it adds to the value before it" if how.progress else "its value"
    facts = [
        ("value of a step", f"mean {how.outcome} of {how.continuations} continuations from its end"),
        ("a step scores", score),
    ]
    if row.estimated is not None:
        values = row.estimated.values
        known = [error for errors in values.errors for error in errors if error is not None]
        spread = f", standard error {sum(known) / len(known):.2f} on average" if known else ""
        facts.append(("estimated", f"{counted(values.tokens, 'token')} in {values.seconds:.1f} s{spread}"))
    else:
        facts.append(("estimated", "not yet"))
    facts.append(("in a run", "estimated anew at each step of training" if row.in_run else "left out"))
    return facts


# ── labels ───────────────────────────────────────────────────────────────────────────────────────────────────────


def labels_file(rows: Rows, form: str, estimation: str, services: Services, tab: str) -> tuple[str, Note]:
    """The estimated group's steps as labels: what the page's script saves as a file ("" if nothing), and a note."""
    row = values_row(rows)
    if row is None or row.estimated is None:
        return "", Note("Estimate step values first; the labels are made of them.", level="info")
    if form not in get_args(LabelFormat) or estimation not in get_args(Estimation):
        return "", Note("Choose a format and when a step counts as good.", level="info")
    group, values = row.estimated.group, row.estimated.values
    texts = [rollout.text for rollout in group.rollouts]
    try:
        splits = split_group(group, values.pattern, worker=services.reward_worker(tab))
    except WorkbenchError as error:
        return "", Note(str(error))
    steps = [step_texts(text, text_split.steps) for text, text_split in zip(texts, splits, strict=True)]
    labels: list[dict[str, Any]] = label_rows(group, values, form, estimation=estimation, step_texts=steps)  # type: ignore[arg-type]
    if not labels:
        return "", Note("Every completion has a step without a value; there is nothing to write.", level="info")
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in labels)
    said = f"{len(labels)} of {len(group)} completions written"
    return message(name=f"labels-{form}.jsonl", text=text, once=secrets.token_hex(8)), Note(said, level="info")
