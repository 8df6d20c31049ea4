"""The list of reward functions: what can be added, what a row holds, saving one's own, and watching them."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from inspect import getsource
from pathlib import Path
from typing import Any

from workbench.assets import EMBEDDED
from workbench.checks import split_step_demo
from workbench.config import EnvironmentSection, PolicySection
from workbench.data import Task
from workbench.errors import WorkbenchError, cut
from workbench.rewards import BUILTINS, find_builtin
from workbench.rewards.source import kind_in, load_saved, save_reward
from workbench.rewards.watch import CallTimes, RewardWatch, Watched, watch_rewards
from workbench.schema import RewardKind, ScoredGroup
from workbench.schema.numbers import counted, two_places
from workbench.ui.handlers.credit import for_scheme
from workbench.ui.handlers.draft import Draft
from workbench.ui.handlers.judges import judge_facts
from workbench.ui.handlers.models import model_facts
from workbench.ui.handlers.reward_rows import SLOTS, RewardRow, builtin_row, code_row, padded, row_of
from workbench.ui.handlers.scoring import Note, message
from workbench.ui.handlers.step_values import values_facts
from workbench.ui.handlers.tree import with_path

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
        "Your own, from a template: all steps of an answer at once",
        "step",
        "my_steps_reward",
        '''def {name}(prompts, completions, steps, **columns):
    """Score each step in sight of those before it: a list for each answer, a number or None for each step."""
    return [[0.0 if text in texts[:k] else 1.0 for k, text in enumerate(texts)] for texts in steps]
''',
    ),
    OWN_ANSWER: (
        "Your own, from a template: compare with a column of the data, as in TRL",
        "outcome",
        "my_answer_reward",
        '''def {name}(prompts, completions, answer, **kwargs):
    """1 where the answer's last word is that of the data's column `answer`. Runs in a TRL script too."""
    texts = [one if isinstance(one, str) else one[0]["content"] for one in completions]
    return [float(text.split()[-1:] == [str(right)]) for text, right in zip(texts, answer)]
''',
    ),
}


PRINTED_SHOWN = 4000
"""Characters shown of what a function printed."""

# ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────────

Rows = Sequence[RewardRow | None]


MODEL, JUDGE, VALUES, SAVED = "open:model", "open:judge", "open:values", "open:saved"
"""Choices whose own form adds the reward."""
_FORMS = ((MODEL, "Reward model …"), (JUDGE, "Judge …"), (VALUES, "Step values by sampling …"), (SAVED, "Saved …"))


def reward_choices() -> list[tuple[str, str]]:
    """What can be added, as (label, value): one's own, what has a form, then those built in."""
    written = [(label, choice) for choice, (label, *_) in TEMPLATES.items()]
    return [*written, *((label, choice) for choice, label in _FORMS), *builtin_choices()]


def builtin_choices() -> list[tuple[str, str]]:
    """The functions that are built in, as (label, value): rules and then TRL's, steps first."""
    listed = sorted(BUILTINS.values(), key=lambda rule: (rule.name.startswith("trl:"), rule.kind != "step"))
    return [(f"{rule.name} ({rule.kind}): {rule.description}", rule.name) for rule in listed]


def add_reward(rows: Rows, choice: str) -> tuple[int, RewardRow] | None:
    """The place and the content of a reward function to add; None when the list is full or it is there already."""
    place = free_place(rows)
    if place is None:
        return None
    taken = {row.name for row in rows if row is not None}
    if choice not in TEMPLATES:
        return None if choice in taken else (place, builtin_row(choice))
    _, kind, stem, template = TEMPLATES[choice]
    name = next(name for name in [stem, *(f"{stem}_{n}" for n in range(2, SLOTS + 2))] if name not in taken)
    return place, code_row(name, kind, template.format(name=name))


def with_task(draft: Draft, task: Task) -> Draft:
    """The draft with the task's own pattern, rewards, length and environment; reward functions somebody wrote stay.

    An embedded policy makes way for the one that was taught the task. The scheme is one that reads the rewards:
    ``outcome`` where there are no others, which makes way in turn for the task's own where there are.
    """
    kinds = {row.kind for row in draft.rows if row is not None and row.on}
    if kinds == {"outcome"} and draft.credit["scheme"] == "outcome":
        draft = replace(draft, credit=for_scheme(draft.credit, task.scheme))
    tree = with_path(draft.tree, "method.sampling.max_completion_length", task.max_completion_length)
    tree = with_path(tree, "environment", EnvironmentSection(name=task.environment).model_dump())
    if draft.policy in EMBEDDED:
        tree = with_path(tree, "policy.path", task.policy or PolicySection().path)
    draft = replace(draft, tree=tree, rows=task_rows(draft.rows, task))
    return draft.with_pattern(task.pattern.regex, task.pattern.kind).with_scheme_for_rewards()


def task_rows(rows: Rows, task: Task) -> tuple[RewardRow | None, ...]:
    """The task's own reward functions, followed by those of the old list that somebody wrote or changed.

    A row without code is one that has not reached the page yet: choosing may be told twice.
    """
    return padded([*map(row_of, task.rewards), *_written(rows)])


def keep_written(rows: Rows, before: Rows) -> tuple[tuple[RewardRow | None, ...], str]:
    """``rows``, followed by what somebody wrote of the list they take the place of, switched off; and what to say."""
    listed = [row for row in rows if row is not None]
    known = [_function(row) for row in (*listed, *demo_rows())]
    written = [replace(row, on=False) for row in _written(before) if _function(row) not in known]
    room = SLOTS - len(listed)
    kept, left = (", ".join(row.name for row in part) for part in (written[:room], written[room:]))
    said = [f"your own functions are kept, switched off: {kept}" if kept else ""]
    said += [f"there was no room for {left}" if left else ""]
    return padded([*listed, *written]), "; ".join(filter(None, said))


def _function(row: RewardRow) -> dict[str, Any]:
    """What a row is whatever it weighs; an editor may drop the last line break of its code."""
    return {name: value for name, value in row.fields.items() if name != "weight"} | {"code": row.code.strip()}


def _written(rows: Rows) -> list[RewardRow]:
    """The functions and models of a list that somebody wrote, changed or added."""
    changed = (row for row in rows if row is not None and not row.is_builtin)
    return [row for row in changed if row.code.strip() or not row.has_editor]


@cache
def demo_rows() -> tuple[RewardRow, ...]:
    """The reward functions of the probes' demo."""
    _, _, functions = split_step_demo()
    codes = [(function.__name__, getsource(function)) for function in functions]
    return tuple(code_row(name, kind_in(code, name) or "step", code) for name, code in codes)


def row_label(row: RewardRow | None) -> str:
    """What a row is called: the function's name as its code defines it, and what it is if it is no code."""
    if row is None:
        return ""
    if row.monte_carlo is not None:
        what = "Monte-Carlo progress" if row.monte_carlo.progress else "Monte-Carlo"
        return f"{what} (k={row.monte_carlo.continuations})"
    what = "judge" if row.judge is not None else "" if row.has_editor else "model"
    weight = f"weight{row.unweighted().weight_text.replace(' ×', '')}" if row.is_scheduled else ""
    return "  ·  ".join(filter(None, (row.name, what, weight)))


def row_classes(row: RewardRow | None) -> list[str]:
    """Classes of a row's switch, by which the style sheet says what it scores."""
    return ["inline", "kind", "step" if row is None or row.monte_carlo is not None else row.kind]


def row_facts(row: RewardRow | None) -> list[tuple[str, str]]:
    """What a row that is no code consists of, as (label, value); nothing for one that is."""
    if row is None or row.has_editor:
        return []
    if row.judge is not None:
        return judge_facts(row)
    return model_facts(row.unweighted()) if row.model is not None else values_facts(row)


def free_place(rows: Rows) -> int | None:
    return next((i for i, row in enumerate(rows) if row is None), None)


# ── saving and loading ───────────────────────────────────────────────────────────────────────────────────────────


def save_row(workspace: Path, row: RewardRow | None) -> Note:
    """Save a row's code under its function's name, and say where."""
    if row is None or not row.has_editor:
        return Note("there is no code to save; a run's configuration holds a model's or judge's settings", level="info")
    try:
        path = save_reward(workspace, row.name.removeprefix("trl:"), row.code)
    except (WorkbenchError, OSError) as error:
        return Note(str(error))
    return Note(f"saved in {path}", level="info")


def load_choice(workspace: Path, rows: Rows, name: str | None) -> tuple[int, RewardRow] | Note:
    """Where a saved function goes and what that row then holds: in place of its namesake, or in a free row."""
    if not name:
        return Note("choose a saved function first", level="info")
    try:
        code = load_saved(workspace, name)
    except WorkbenchError as error:
        return Note(str(error))
    row = code_row(name, kind_in(code, name) or "step", code)
    for place, before in enumerate(rows):
        if before is not None and before.name == name:
            return place, replace(row, on=before.on, fields={**row.fields, "weight": before.weight})
    free = free_place(rows)
    return Note(f"{SLOTS} functions are the most; remove one first", level="info") if free is None else (free, row)


# ── watching ─────────────────────────────────────────────────────────────────────────────────────────────────────


def watch_group(draft: Draft, scored: ScoredGroup, times: CallTimes) -> RewardWatch:
    """The group on screen, with every call since its functions were last changed."""
    codes = {row.name: _identity(row) for row in draft.rows if row is not None}
    took = scored.group.sampling.get("seconds")
    sampler_seconds = float(took) if isinstance(took, int | float) else None
    return watch_rewards([scored], calls=times.add(scored.rewards, codes), sampler_seconds=sampler_seconds)


def _identity(row: RewardRow) -> str:
    """What, if it changes, makes a row another function."""
    return row.code if row.has_editor else row.unweighted().model_dump_json()


def watch_message(watched: RewardWatch) -> str:
    """What the page's script draws."""
    return message(**watch_payload(watched))


def row_notes(
    rows: Rows,
    watched: RewardWatch,
    unused: Mapping[str, tuple[str, str]],
    scored: ScoredGroup,
) -> list[Note | None]:
    """Under each row, what its function gave; the detail is what it took, its range and source, or what it printed.

    ``unused`` says by name that and why a function plays no part in what is drawn.
    """
    known = {function.name: function for function in watched.functions}
    judges = {scored.judge("step"), scored.judge("outcome")}
    printed = {reward.name: reward.printed for reward in scored.rewards}
    return [None if row is None else _row_note(row, known, unused, printed, judges) for row in rows]


def _row_note(
    row: RewardRow,
    known: Mapping[str, Watched],
    unused: Mapping[str, tuple[str, str]],
    printed: Mapping[str, str],
    judges: Container[str | None],
) -> Note:
    about = ""
    if row.is_builtin:
        builtin = find_builtin(row.name)
        about = f"{builtin.range}  ·  {builtin.reference}"
    function = known.get(row.name) if row.on else None
    if function is None:
        return Note("off", level="plain", detail=about)
    if text := printed.get(row.name, "").rstrip():
        about = f"printed:\n{cut(text, PRINTED_SHOWN)}"
    scores = function.scores
    parts = [f"drawn with its weight at step 0 ({row.schedule})"] if row.is_scheduled else []
    parts.append(_gave(function, row.name in judges))
    if scores.unscored:
        parts.append(f"{scores.unscored} unscored")
    said, why = unused.get(row.name, ("", ""))
    parts[0] = f"{said}: {parts[0]}" if said else parts[0]
    took = function.p50
    details = [
        f"not counted: {why}" if why else "",
        BUILTINS[row.name].judged_by if row.is_builtin and row.name in BUILTINS else "",
        "" if took is None else f"{1000 * took:.2g} ms a call" if took < 0.1 else f"{took:.2g} s a call",
        about,
    ]
    detail = "  ·  ".join(filter(None, details))
    return Note("  ·  ".join(parts), level="plain", detail=detail)


def _gave(function: Watched, is_judge: bool) -> str:
    """What a function gave, in a few words: how many it calls right if it says so, or else its mean."""
    scores = function.scores
    if scores.mean is None or scores.zeros is None:
        return "no score"
    if is_judge:
        right = (1 + scores.mean - scores.zeros) / 2 if (scores.low or 0) < 0 else scores.mean
        if function.kind == "outcome":
            return f"{round(right * scores.count)} of {counted(scores.count, 'answer')} right"
        return f"{int(100 * right + 0.5)} % of steps right"
    return f"mean {two_places(scores.mean)}" + (f"  ·  {int(100 * scores.zeros + 0.5)} % zero" if scores.zeros else "")


SHOWN_POSITIONS = 24
"""Step positions drawn at most; few completions have more steps, and their means say little."""


def watch_payload(watched: RewardWatch) -> dict[str, Any]:
    """As ``rewards.js`` takes it; ``slow`` is a sentence for each function slower than the sampler."""
    functions = [
        asdict(replace(function, positions=()))
        | {"positions": [{"mean": d.mean} for d in function.positions[:SHOWN_POSITIONS]]}
        for function in watched.functions
    ]
    return {
        "functions": functions,
        "correlations": [asdict(pair) for pair in watched.correlations],
        "slow": [
            _slow(function, watched.sampler_seconds)
            for function in watched.functions
            if function.name in watched.slower
        ],
    }


def _slow(function: Watched, sampler_seconds: float | None) -> str:
    seconds = f"{function.p50:.2g} s a call, sampling the group {sampler_seconds:.2g} s"
    return f"{function.name} takes {seconds}: it sets the pace"
