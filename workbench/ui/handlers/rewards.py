"""The list of reward functions: what can be added, what a row holds, saving one's own, and watching them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from workbench.config import RewardConfig
from workbench.errors import WorkbenchError
from workbench.figures.rewards import watch_payload
from workbench.rewards import BUILTINS, find_builtin
from workbench.rewards.saved import SavedReward, delete_saved, list_saved, load_saved, save_reward, undo_delete
from workbench.rewards.watch import CallTimes, RewardWatch, Watched, watch_rewards
from workbench.schema import RewardKind, ScoredGroup
from workbench.tasks import Task
from workbench.ui.handlers.models import model_facts
from workbench.ui.handlers.scoring import (
    Note,
    ScoringForm,
    SlotValues,
    builtin_source,
    function_name,
    is_builtin,
    message,
    slot_kind,
)
from workbench.ui.handlers.session import SLOTS, RewardSlot
from workbench.ui.handlers.step_values import values_facts

OWN_STEP, OWN_STEPS, OWN_OUTCOME, OWN_ANSWER = "own:step", "own:steps", "own:outcome", "own:answer"
TEMPLATES: dict[str, tuple[str, RewardKind, str, str]] = {
    OWN_STEP: (
        "Your own step function",
        "step",
        "my_step_reward",
        '''def {name}(prompt, step, **columns):
    """Score one step: a number, or None to leave it unscored."""
    return 1.0 if "=" in step else 0.0
''',
    ),
    OWN_OUTCOME: (
        "Your own outcome function",
        "outcome",
        "my_outcome_reward",
        '''def {name}(prompts, completions, **columns):
    """Score whole answers: a number or None for each."""
    return [1.0 if len(text) < 200 else 0.0 for text in completions]
''',
    ),
    OWN_STEPS: (
        "Template: all steps of an answer at once",
        "step",
        "my_steps_reward",
        '''def {name}(prompts, completions, steps, **columns):
    """Score each step in sight of those before it: a list for each answer, a number or None for each step."""
    return [[0.0 if text in texts[:k] else 1.0 for k, text in enumerate(texts)] for texts in steps]
''',
    ),
    OWN_ANSWER: (
        "Template: compare with a column of the data, as in TRL",
        "outcome",
        "my_answer_reward",
        '''def {name}(prompts, completions, answer, **kwargs):
    """1 where the answer's last word is that of the data's column `answer`. Runs in a TRL script too."""
    texts = [one if isinstance(one, str) else one[0]["content"] for one in completions]
    return [float(text.split()[-1:] == [str(right)]) for text, right in zip(texts, answer)]
''',
    ),
}
EMPTY_SLOT = SlotValues(None, True, 1.0, "")


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def reward_choices() -> list[tuple[str, str]]:
    """What can be added, as (label, value)."""
    own = [(label, choice) for choice, (label, *_) in TEMPLATES.items()]
    return own + [(f"{one.name}: {one.description}", one.name) for one in BUILTINS.values()]


def add_reward(slots: Sequence[SlotValues], choice: str) -> tuple[int, SlotValues] | None:
    """The place and the content of a reward function to add; None when the list is full or it is there already."""
    free = free_place(slots)
    if free is None:
        return None
    taken = {values.slot.name for values in slots if values.slot is not None}
    if choice not in TEMPLATES:
        return None if choice in taken else (free, builtin_slot(choice))
    _, kind, stem, template = TEMPLATES[choice]
    name = next(name for name in [stem, *(f"{stem}_{n}" for n in range(2, SLOTS + 2))] if name not in taken)
    return free, SlotValues(RewardSlot(name, kind), True, 1.0, template.format(name=name))


def builtin_slot(name: str, weight: float = 1.0) -> SlotValues:
    return SlotValues(RewardSlot(name, find_builtin(name).kind, name), True, weight, builtin_source(name))


def config_slot(config: RewardConfig) -> SlotValues:
    """A row for what a configuration describes; a built-in with options is shown as its code with them written in."""
    if config.model is not None or config.monte_carlo is not None:
        return SlotValues(RewardSlot(config.name, config.kind, given=config), True, config.weight, "")
    if config.code is not None:
        return SlotValues(RewardSlot(config.name, config.kind), True, config.weight, config.code)
    values = builtin_slot(config.name, config.weight)
    if not config.options:
        return values
    return SlotValues(values.slot, True, config.weight, find_builtin(config.name).source_with(config.options))


def task_slots(slots: Sequence[SlotValues], task: Task) -> tuple[SlotValues, ...]:
    """The task's own reward functions, followed by those of the old list that somebody wrote or changed.

    A row without code is one that has not reached the page yet: choosing may be told twice.
    """
    kept = [
        one for one in slots if one.slot is not None and not is_builtin(one) and (one.code.strip() or one.slot.given)
    ]
    new = [config_slot(config) for config in task.rewards]
    listed = [*new, *kept][:SLOTS]
    return tuple(listed) + (EMPTY_SLOT,) * (SLOTS - len(listed))


def slot_label(values: SlotValues) -> str:
    """What a row is called: the function's name as its code defines it, and what it scores."""
    if values.slot is None:
        return ""
    given = values.slot.given
    if given is not None and given.monte_carlo is not None:
        what = "Monte-Carlo progress" if given.monte_carlo.progress else "Monte-Carlo"
        return f"{what} (k={given.monte_carlo.continuations})  ·  step"
    return f"{function_name(values)}  ·  {slot_kind(values)}{'' if given is None else '  ·  model'}"


def slot_facts(values: SlotValues) -> list[tuple[str, str]]:
    """What a row that is no code consists of, as (label, value); nothing for one that is."""
    slot = values.slot
    if slot is None or slot.given is None:
        return []
    return model_facts(slot.given) if slot.given.model is not None else values_facts(slot)


def free_place(slots: Sequence[SlotValues]) -> int | None:
    return next((i for i, values in enumerate(slots) if values.slot is None), None)


# ── saving and loading ───────────────────────────────────────────────────────────────────────────────────────────


def saved_choices(workspace: Path) -> list[tuple[str, str]]:
    """Every saved version, as (label, value)."""
    return [
        (f"{one.name}  v{one.version}  ·  {one.kind}  ·  {_when(one.saved)}", f"{one.name}:{one.version}")
        for one in list_saved(workspace)
    ]


def save_slot(workspace: Path, values: SlotValues) -> Note:
    """Save a row's code under its function's name, and say as what."""
    if values.slot is None:
        return Note("there is nothing to save", level="info")
    if values.slot.given is not None:
        return Note("there is no code to save; a run's configuration holds a reward model's settings", level="info")
    name = function_name(values).removeprefix("trl:")
    try:
        before = {(one.name, one.version) for one in list_saved(workspace)}
        saved = save_reward(workspace, name, slot_kind(values), values.code)
    except WorkbenchError as error:
        return Note(str(error))
    known = (saved.name, saved.version) in before
    return Note(f"{saved.name} v{saved.version} {'holds this already' if known else 'saved'}", level="info")


def load_choice(workspace: Path, slots: Sequence[SlotValues], choice: str | None) -> tuple[int, SlotValues] | Note:
    """Where a saved version goes and what that row then holds: in place of its namesake, or in a free row."""
    name, _, version = (choice or "").partition(":")
    if not version.isdecimal():
        return Note("choose a saved function first", level="info")
    try:
        saved = load_saved(workspace, name, int(version))
    except WorkbenchError as error:
        return Note(str(error))
    same = [i for i, values in enumerate(slots) if values.slot is not None and function_name(values) == name]
    place = same[0] if same else free_place(slots)
    if place is None:
        return Note(f"{SLOTS} functions are the most; remove one first", level="info")
    before = slots[place]
    on, weight = (before.on, before.weight) if same else (True, 1.0)
    return place, SlotValues(RewardSlot(name, saved.kind), on, weight, saved.code)


def delete_choice(workspace: Path, choice: str | None) -> tuple[str, Note]:
    """Delete all versions of a saved function; what undoes it ("" if nothing was deleted), and what to say."""
    name = (choice or "").partition(":")[0]
    if not name:
        return "", Note("choose a saved function first", level="info")
    try:
        return delete_saved(workspace, name), Note(f"{name} deleted, with all its versions", level="info")
    except WorkbenchError as error:
        return "", Note(str(error))


def undo_choice(workspace: Path, token: str) -> Note:
    try:
        return Note(f"{undo_delete(workspace, token)} is back", level="info")
    except WorkbenchError as error:
        return Note(str(error))


def choice_of(saved: SavedReward) -> str:
    return f"{saved.name}:{saved.version}"


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


# ── watching ─────────────────────────────────────────────────────────────────────────────────────────────────────


def watch_group(form: ScoringForm, scored: ScoredGroup, times: CallTimes) -> RewardWatch:
    """The group on screen, with every call since its functions were last changed."""
    codes = {function_name(values): _identity(values) for values in form.slots if values.slot is not None}
    took = scored.group.sampling.get("seconds")
    sampler_seconds = float(took) if isinstance(took, int | float) else None
    return watch_rewards([scored], calls=times.add(scored.rewards, codes), sampler_seconds=sampler_seconds)


def _identity(values: SlotValues) -> str:
    """What, if it changes, makes a row another function."""
    given = values.slot.given if values.slot is not None else None
    return values.code if given is None else given.model_dump_json(exclude={"weight"})


def watch_message(watched: RewardWatch) -> str:
    """What the page's script draws."""
    return message(**watch_payload(watched))


def row_notes(form: ScoringForm, watched: RewardWatch) -> list[Note | None]:
    """Under each row, what its function gave and took; its range and source are the detail."""
    known = {one.name: one for one in watched.functions}
    return [_row_note(values, known) for values in form.slots]


def _row_note(values: SlotValues, known: dict[str, Watched]) -> Note | None:
    if values.slot is None:
        return None
    about = ""
    if is_builtin(values) and values.slot.builtin is not None:
        builtin = find_builtin(values.slot.builtin)
        about = f"{builtin.range}  ·  {builtin.reference}"
    one = known.get(function_name(values)) if values.on else None
    if one is None:
        return Note("off", level="plain", detail=about)
    scores = one.scores
    parts = ["no score" if scores.mean is None else f"mean {scores.mean:.2g}".replace("-", "−")]
    if scores.zeros:
        parts.append(f"{int(100 * scores.zeros + 0.5)} % zero")
    if scores.unscored:
        parts.append(f"{scores.unscored} unscored")
    if one.p50 is not None:
        parts.append(f"{1000 * one.p50:.2g} ms" if one.p50 < 0.1 else f"{one.p50:.2g} s")
    return Note("  ·  ".join(parts), level="plain", detail=about)
