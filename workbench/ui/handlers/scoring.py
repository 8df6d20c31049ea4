"""From the controls to a drawn credit: build the configuration, score the frozen group, say what went wrong where.

Nothing is sampled here, and neither a pattern nor anybody's code runs here: both do in the reward worker. Whatever
fails, the last good drawing stays on the page and is marked as stale; the message goes beside the control it is about.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any, Literal

from pydantic import ValidationError

from workbench.checks import Finding, preflight_of
from workbench.config import PatternConfig, RewardConfig
from workbench.credit import SCHEMES, credit_group
from workbench.errors import ConfigError, CreditError, PatternError, RewardError, WorkbenchError
from workbench.figures.heatmap import EXPLAINED_AT_ONCE, credit_payload, group_payload, to_json, why_payload
from workbench.redact import redact
from workbench.rewards import Reward, RewardWorker, find_builtin, score_split
from workbench.rewards.models.reward import Models
from workbench.rewards.source import functions_in, kind_in, reward_functions
from workbench.schema import Credit, Group, RewardKind, Step
from workbench.steps import PatternKind, Split, StepPattern
from workbench.ui.handlers.credit import CreditForm
from workbench.ui.handlers.session import RewardSlot, Session

TRUST_MODEL = (
    "This is your own code on your own machine, like Jupyter; the seal limits accidents, it is not a sandbox for "
    "strangers' code."
)


@dataclass(frozen=True)
class SlotValues:
    """What one row of the list of reward functions holds: the slot and its widgets' values."""

    slot: RewardSlot | None
    on: bool
    weight: float | None
    code: str


@dataclass(frozen=True)
class ScoringForm:
    """The controls that scoring depends on, as they stand."""

    regex: str
    kind: PatternKind
    slots: tuple[SlotValues, ...]
    credit: CreditForm
    other: CreditForm | None = None
    """A second scheme to draw beside the first."""


@dataclass(frozen=True)
class Note:
    """A message beside a control. ``line`` (1-based) is a line of that control's text to point at."""

    text: str
    level: str = "error"
    line: int | None = None
    detail: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"text": redact(self.text), "level": self.level, "line": self.line, "detail": redact(self.detail)}


@dataclass(frozen=True)
class ScoringView:
    """What the page shows after a change: the drawing's message and a note for each control that has something wrong.

    ``note`` is about credit, or anything else that belongs to no single control; ``credit`` is what is drawn, if it is.
    ``names`` are the reward functions' names as their code now defines them.
    """

    drawing: str
    pattern: Note | None
    slots: tuple[Note | None, ...]
    note: Note | None
    names: tuple[str, ...]
    credit: Credit | None = None
    other: Credit | None = None
    preflight: str = ""
    """The findings about the group on screen, for the strip above it."""


def rescore(session: Session, form: ScoringForm, worker: RewardWorker, models: Models | None = None) -> ScoringView:
    """Score the group on screen anew. Reward models are held by ``models``, by default in this process."""
    names = tuple("" if values.slot is None else function_name(values) for values in form.slots)
    asked = [name if values.on else "" for name, values in zip(names, form.slots, strict=True)]
    notes: list[Note | None] = [None] * len(form.slots)
    pattern_note = credit_note = None
    if session.group is None:
        return ScoringView(
            message(empty="Press Sample & score (Ctrl+Enter) to see a group."), None, tuple(notes), None, names
        )
    drawing, found, credit, other = "", "", None, None
    splits: list[Split] = []
    try:
        pattern = pattern_config(form)
        splits = split(session.group, pattern, worker)
        credit, other = score(session.group, [one.steps for one in splits], form, worker, models)
        drawing = show(session, credit, [one.matches for one in splits], other)
        found = findings_json(preflight_of([credit], StepPattern(pattern.regex, pattern.kind)).findings)
    except PatternError as error:
        position = getattr(error, "position", None)
        pattern_note = Note(str(error), detail=_pointer(form.regex, position) if position is not None else "")
    except RewardError as error:
        place = asked.index(error.reward) if error.reward in asked else None
        note = Note(str(error), line=error.line, detail=_where(session.group, splits, error))
        if place is None:
            credit_note = note
        else:
            notes[place] = note
    except (ConfigError, CreditError, WorkbenchError) as error:
        credit_note = Note(str(error))
    problem = pattern_note or credit_note or next((note for note in notes if note), None)
    if problem is not None:
        drawing = message(stale=problem.text, group=to_fallback(session.group))
        credit = other = None
    else:
        pattern_note = _no_match(splits)
    for place, values in enumerate(form.slots):
        if notes[place] is None and values.on and (why := stale(values, form, session.group)):
            notes[place] = Note(why, level="warning")
    return ScoringView(drawing, pattern_note, tuple(notes), credit_note, names, credit, other, found)


def split(group: Group, pattern: PatternConfig, worker: RewardWorker) -> list[Split]:
    """Steps and matches of each rollout. Raises PatternError and those under it."""
    return worker.split([rollout.text for rollout in group.rollouts], StepPattern(pattern.regex, pattern.kind))


def score(
    group: Group,
    steps: Sequence[Sequence[Step]],
    form: ScoringForm,
    worker: RewardWorker,
    models: Models | None = None,
) -> tuple[Credit, Credit | None]:
    """The group's credit under the form's scheme, and under its second one.

    Raises WorkbenchError for a reward function or a scheme that cannot be used.
    """
    rewards = rewards_on_screen(form, group)
    if not rewards:
        raise ConfigError("no reward function is on; switch one on or add one")
    wanted = [one.config() for one in (form.credit, form.other) if one is not None]
    pattern = StepPattern(form.regex, form.kind)
    scored = score_split(group, steps, rewards, worker=worker, models=models, pattern=pattern)
    first, *rest = [credit_group(scored, one.scheme, **one.keywords(but=("scheme",))) for one in wanted]
    return first, rest[0] if rest else None


def pattern_config(form: ScoringForm) -> PatternConfig:
    if not form.regex:
        raise PatternError("the pattern is empty and would match empty text; write what a step begins with")
    if len(form.regex) > 10_000:
        raise PatternError(f"the pattern has {len(form.regex):,} characters; the limit is 10,000")
    return PatternConfig(regex=form.regex, kind=form.kind)


def reward_configs(form: ScoringForm) -> list[RewardConfig]:
    """The rewards that are switched on, as a run's configuration has them.

    Raises RewardError for two of one name, or a weight out of range.
    """
    return [config for values, config in _switched_on(form) if _goes_with_a_run(values)]


def portable_configs(form: ScoringForm) -> list[RewardConfig]:
    """The rewards that are on and can score any group, which Monte-Carlo values cannot. Raises as above."""
    return [config for _, config in _switched_on(form) if config.monte_carlo is None]


def rewards_on_screen(form: ScoringForm, group: Group) -> list[RewardConfig | Reward]:
    """The rewards that are on and can score this group, Monte-Carlo values among them. Raises as above."""
    rewards: list[RewardConfig | Reward] = []
    for values, config in _switched_on(form):
        if config.monte_carlo is None:
            rewards.append(config)
        elif values.slot is not None and values.slot.estimated is not None and not stale(values, form, group):
            what: Literal["value", "progress"] = "progress" if config.monte_carlo.progress else "value"
            rewards.append(replace(values.slot.estimated.values.as_reward(what, config.weight), name=config.name))
    return rewards


def stale(values: SlotValues, form: ScoringForm, group: Group | None) -> str:
    """Why a row's Monte-Carlo values are not those of the group on screen; "" where they are, or it holds none."""
    slot = values.slot
    if slot is None or slot.given is None or slot.given.monte_carlo is None:
        return ""
    if slot.estimated is None:
        return "not estimated yet; press Estimate step values"
    if slot.estimated.fits(group, form.regex, form.kind):
        return ""
    pattern = slot.estimated.values.pattern != (form.regex, form.kind)
    return f"estimated for another {'pattern' if pattern else 'group'}; estimate again"


def _switched_on(form: ScoringForm) -> Iterator[tuple[SlotValues, RewardConfig]]:
    names: set[str] = set()
    for values in form.slots:
        if values.slot is None or not values.on:
            continue
        config = row_config(values)
        if config.name in names:
            raise RewardError(f"{config.name!r} is there twice; rename one of the two functions", reward=config.name)
        names.add(config.name)
        yield values, config


def row_config(values: SlotValues) -> RewardConfig:
    """What one row describes. Raises RewardError for a weight out of range."""
    assert values.slot is not None
    name, given = function_name(values), values.slot.given
    described: dict[str, Any] = {"name": name, "kind": slot_kind(values)}
    if given is not None:
        described = given.model_dump()
    elif not is_builtin(values):
        described["code"] = values.code
    try:
        return RewardConfig.model_validate(described | {"weight": 1.0 if values.weight is None else values.weight})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise RewardError(f"{name!r}: {where}: {first['msg']} (got {first['input']})", reward=name) from error


def _goes_with_a_run(values: SlotValues) -> bool:
    slot = values.slot
    return slot is None or slot.given is None or slot.given.monte_carlo is None or slot.in_run


def is_builtin(values: SlotValues) -> bool:
    """Whether the editor still holds a built-in's own source."""
    slot = values.slot
    return slot is not None and slot.builtin is not None and values.code.strip() == builtin_source(slot.builtin).strip()


def function_name(values: SlotValues) -> str:
    """The name of the editor's reward function: the slot's own while defined, else the last that looks like one."""
    assert values.slot is not None
    if values.slot.given is not None or is_builtin(values):
        return values.slot.name
    defined = [function.name for function in functions_in(values.code)]
    if not defined or values.slot.name in defined:
        return values.slot.name
    return (reward_functions(values.code) or defined)[-1]


def slot_kind(values: SlotValues) -> RewardKind:
    """What the editor's function scores, by its parameters; the slot's own kind while they cannot be read."""
    assert values.slot is not None
    if values.slot.given is not None:
        return values.slot.given.kind
    return kind_in(values.code, function_name(values)) or values.slot.kind


@cache
def builtin_source(name: str) -> str:
    return find_builtin(name).source


def show(
    session: Session, credit: Credit, matches: Sequence[Sequence[tuple[int, int]]], second: Credit | None = None
) -> str:
    """The message that draws a credit (and a second one beside it), with what the page says above it."""
    group = credit.scored.group
    other = group.prompt not in (session.prompt, session.edited)
    return message(
        show=credit_payload(credit, matches, other=second, explain_at_most=EXPLAINED_AT_ONCE),
        about=_about(group),
        other="This group answers another prompt; Sample & score samples the one on the left." if other else "",
    )


def explain_token(credit: Credit | None, rollout: Any, token: Any) -> dict[str, Any] | None:
    """Why a token of the drawn credit has its advantage; None where there is no such token."""
    if credit is None or not isinstance(rollout, int) or not isinstance(token, int):
        return None
    if not 0 <= rollout < len(credit.scored.group):
        return None
    try:
        return why_payload(credit, rollout, token)
    except IndexError:
        return None


def findings_json(findings: Sequence[Finding]) -> str:
    """Findings of a pre-flight as the page's script draws them."""
    return to_json({"findings": [asdict(finding) for finding in findings]})


def message(**parts: Any) -> str:
    """A message to the drawing's script: what to do, as JSON."""
    return to_json(parts)


def to_fallback(group: Group) -> dict[str, Any]:
    """The group without colours, drawn only where there is no earlier drawing of it to keep."""
    return group_payload(group)


def scheme_note(scheme: str) -> str:
    """The formula of a scheme and where it comes from."""
    known = SCHEMES[scheme]
    return f"{known.formula}  ({known.source})"


def _about(group: Group) -> str:
    sampling = dict(group.sampling)
    parts = [f"sampled from {group.policy}" if group.policy else ""]
    if "file" in sampling:
        parts = [f"read from {sampling['file']}", f"tokenizer {sampling.get('tokenizer', 'unknown')}"]
    if "temperature" in sampling:
        parts.append(f"temperature {sampling['temperature']:g}")
    if "seed" in sampling:
        parts.append(f"seed {sampling['seed']}")
    return ", ".join(part for part in parts if part)


def isolation_note(worker: RewardWorker) -> Note | None:
    """What of the seal around reward code this system lacks."""
    try:
        missing = worker.reduced_isolation()
    except RewardError as error:
        return Note(str(error))
    return Note(f"reduced isolation: {'; '.join(missing)}", level="warning") if missing else None


def _no_match(splits: Sequence[Split]) -> Note | None:
    unmatched = [str(i + 1) for i, one in enumerate(splits) if not one.steps[0].matched]
    if not unmatched:
        return None
    which = f"rollout {unmatched[0]}" if len(unmatched) == 1 else f"{len(unmatched)} of {len(splits)} rollouts"
    return Note(f"no match in {which}, where all text is one step", level="warning")


def _pointer(regex: str, position: int) -> str:
    """The line of the pattern that is wrong, with a caret under the place."""
    start = regex.rfind("\n", 0, position) + 1
    line = regex[start:].split("\n", 1)[0]
    column = position - start
    from_column = max(0, column - 40)
    return f"{line[from_column : from_column + 80]}\n{' ' * (column - from_column)}^"


def _where(group: Group, splits: Sequence[Split], error: RewardError) -> str:
    """The rollout and the step's own text that a reward function failed on."""
    if error.rollout is None or not 0 <= error.rollout < len(splits):
        return ""
    text = group.rollouts[error.rollout].text
    if error.step is None:
        return f"rollout {error.rollout + 1}:\n{text}"
    steps = splits[error.rollout].steps
    step = steps[error.step] if 0 <= error.step < len(steps) else None
    return f"rollout {error.rollout + 1}, step {error.step + 1}" + (f":\n{text[step.start : step.end]}" if step else "")
