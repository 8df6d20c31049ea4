"""The list of rewards: what can be added, what a row says, what the editor shows, saving one's own, statistics."""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from inspect import getsource
from typing import Any, cast

from pydantic import validate_call

from workbench.assets import EMBEDDED
from workbench.checks import difficulty, split_step_demo
from workbench.config import EnvironmentSection, PolicySection
from workbench.credit import SCHEMES
from workbench.data import Task
from workbench.errors import WorkbenchError, cut, redact
from workbench.rewards import BUILTINS, find_builtin, source, statistics
from workbench.schema import RewardKind, ScoredGroup, say_count, two_places, whole_percent
from workbench.ui.handlers import reward_forms, scoring, session
from workbench.ui.handlers.fields import for_scheme, with_path, with_settings
from workbench.ui.handlers.page_state import PageState, RewardRow, builtin_row, code_row, row_of
from workbench.ui.payloads import (
    CataloguePayload,
    ListedPayload,
    ReturnedPayload,
    RewardEditorPayload,
    RewardsPayload,
    RowPayload,
    SaidPayload,
)

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


PRINTED_SHOWN = 2000
"""Characters shown of what a function printed for a rollout, or for all at once."""
SHOWN_STEPS = 500
"""Steps of a group whose scores stand beside the editor."""
LONGEST_STEP = 120
"""Characters of a step that stand beside its score."""

# ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def catalogue(forms: Collection[str]) -> CataloguePayload:
    """Return all that the list can add: one's own if ``forms`` has a file's, what has a form, rules, TRL's functions.

    ``forms`` are the parts of a reward that have one here.
    """
    built_in = sorted(BUILTINS.values(), key=lambda rule: (rule.name.startswith("trl:"), rule.kind != "step"))
    written = {
        choice: (label, page_row(code_row(name, kind, code.format(name=name))))
        for choice, (label, kind, name, code) in TEMPLATES.items()
        if reward_forms.FILE in forms
    }
    titles = {part: (f"{reward_forms.form_payload(part)['title']} …", None) for part in forms}
    ready = {
        rule.name: (f"{rule.name} ({rule.kind}): {rule.description}", page_row(builtin_row(rule.name)))
        for rule in built_in
    }
    offered = written | titles | ready
    return {
        "adds": [(choice, label) for choice, (label, _) in offered.items()],
        "rows": {choice: row for choice, (_, row) in offered.items() if row is not None},
        "forms": {part: reward_forms.form_payload(part) for part in forms},
    }


def list_value(draft: PageState, told: int = 0) -> str:
    """Return the list of rewards as the page takes it over: its rows, and the weight of the final answer.

    ``told`` is the number of the page's last change of the list that the draft has.
    """
    return json.dumps(
        {
            "rows": [page_row(row) for row in draft.rows],
            "outcome_weight": draft.credit.get("outcome_weight", 0.0),
            "number": told,
        }
    )


def page_row(row: RewardRow) -> RowPayload:
    """Return a row as the page holds it (``RewardRow.of_page``), with what its part's form shows."""
    part = reward_forms.part_of(row)
    return {
        "key": row.key,
        "fields": dict(row.fields),
        "on": row.on,
        "in_run": row.in_run,
        "unfed": row.unfed,
        "schedule": row.schedule,
        "code": row.code if row.has_editor else None,
        "is_builtin": row.is_builtin,
        "part": part,
        "form": reward_forms.form_values(part, row) if part else {},
        **_list_entry(row),
    }


def _list_entry(row: RewardRow) -> ListedPayload:
    return {"name": row.name, "label": row_label(row), "kind": row.kind, "weight": row.weight}


def with_task(draft: PageState, task: Task) -> PageState:
    """The draft with the task's own pattern, rewards, length and environment; reward functions somebody wrote stay.

    An embedded policy makes way for the one that was taught the task. The scheme is one that reads the rewards:
    ``outcome`` where there are no others, which makes way in turn for the task's own where there are.
    """
    kinds = {row.kind for row in draft.rows if row.on}
    if kinds == {"outcome"} and draft.credit["scheme"] == "outcome":
        draft = draft.but(credit=for_scheme(draft.credit, task.scheme))
    if draft.credit["scheme"] == task.scheme and draft.credit.get("outcome_weight", 0) in (0, 1):
        draft = draft.but(credit=with_settings(draft.credit, {"outcome_weight": task.outcome_weight}))
    tree = with_path(draft.tree, "method.sampling.max_completion_length", task.max_completion_length)
    tree = with_path(tree, "environment", EnvironmentSection(name=task.environment).model_dump())
    if draft.policy in EMBEDDED:
        tree = with_path(tree, "policy.path", task.policy or PolicySection().path)
    draft = draft.but(tree=tree, rows=task_rows(draft.rows, task))
    return draft.with_pattern(task.pattern.regex, task.pattern.kind).with_scheme_for_rewards()


def task_rows(rows: Sequence[RewardRow], task: Task) -> tuple[RewardRow, ...]:
    """The task's own reward functions, followed by those of the old list that somebody wrote or changed.

    A row without code is one that has not reached the page yet: choosing may be told twice.
    """
    return (*map(row_of, task.rewards), *_own_rows(rows))


def keep_written(rows: Sequence[RewardRow], before: Sequence[RewardRow]) -> tuple[tuple[RewardRow, ...], str]:
    """``rows``, followed by what somebody wrote of the list they take the place of, switched off; and what to say."""
    known = [_function(row) for row in (*rows, *demo_rows())]
    written = [row.but(on=False) for row in _own_rows(before) if _function(row) not in known]
    kept = ", ".join(row.name for row in written)
    return (*rows, *written), f"your own functions are kept, switched off: {kept}" if kept else ""


def _function(row: RewardRow) -> dict[str, Any]:
    """Return what a row is whatever it weighs; an editor may drop the last line break of its code."""
    return {name: value for name, value in row.fields.items() if name != "weight"} | {"code": row.code.strip()}


def _own_rows(rows: Sequence[RewardRow]) -> list[RewardRow]:
    """Return the functions and models of a list that somebody wrote, changed or added."""
    return [row for row in rows if not row.is_builtin and (row.code.strip() or not row.has_editor)]


@cache
def demo_rows() -> tuple[RewardRow, ...]:
    """The reward functions of the probes' demo."""
    _, _, functions = split_step_demo()
    return tuple(
        code_row(name, source.kind_in(code, name) or "step", code)
        for name, code in [(function.__name__, getsource(function)) for function in functions]
    )


def row_label(row: RewardRow) -> str:
    """Return what a row is called: the function's name as its code defines it, and what it is if it is no code."""
    if row.monte_carlo is not None:
        what = "Monte-Carlo progress" if row.monte_carlo.progress else "Monte-Carlo"
        return f"{what} (k={row.monte_carlo.continuations})"
    if row.belief is not None:
        return f"{row.name}  ·  {row.belief.form} of the {row.belief.of}"
    what = "judge" if row.judge is not None else "" if row.has_editor else "model"
    weight = f"weight{row.unweighted().weight_text.replace(' ×', '')}" if row.is_scheduled else ""
    return "  ·  ".join(filter(None, (row.name, what, weight)))


@validate_call(config=session.CHECKED)
def save_code(services: session.Services, name: str, code: str) -> SaidPayload:
    """Save a reward's code under its function's name, and say where."""
    try:
        note = scoring.Note(
            f"saved in {source.save_reward(services.workspace, name.removeprefix('trl:'), code)}", level="info"
        )
    except (WorkbenchError, OSError) as error:
        note = scoring.Note(str(error))
    return cast(SaidPayload, note.to_json())


@validate_call(config=session.CHECKED)
def saved_names(services: session.Services) -> list[str]:
    """Return the names of the functions that are saved in the workspace."""
    return source.saved_rewards(services.workspace)


@validate_call(config=session.CHECKED)
def rewards_running(services: session.Services, tab: str) -> str:
    """Say what the tab's rewards are at: the call of a function, a reward model, a judge; "" if nothing runs."""
    running = services.reward_worker(tab).running
    said = "" if running is None else f"{running[0]} running, {running[1]:.0f} s"
    return ", ".join(filter(None, (said, services.models.busy, services.judges.busy)))


@validate_call(config=session.CHECKED)
def cancel_rewards(services: session.Services, tab: str, judges: bool = True) -> None:
    """End the call of a function of the tab, and what judges are asked; a reward model scores to its end."""
    services.reward_worker(tab).cancel()
    if judges:
        services.judges.cancel()


@validate_call(config=session.CHECKED)
def cancel_form(services: session.Services, tab: str) -> None:
    """End the loading or the estimate that a form of the tab began."""
    services.estimating.cancel(tab)


LIST_ASKED = (save_code, saved_names, rewards_running, cancel_rewards, cancel_form, reward_forms.step_labels)
"""What the list's script asks of the services."""


# ── what the rewards returned ────────────────────────────────────────────────────────────────────────────────────


def watch_group(draft: PageState, scored: ScoredGroup, times: statistics.CallTimes) -> statistics.RewardStatistics:
    """The group on screen, with every call since its functions were last changed."""
    codes = {row.name: row.code if row.has_editor else row.unweighted().model_dump_json() for row in draft.rows}
    took = scored.group.sampling.get("seconds")
    return statistics.describe_rewards(
        scored, times.add(scored.rewards, codes), float(took) if isinstance(took, int | float) else None
    )


def rewards_said(
    draft: PageState, view: scoring.ScoringView, watched: statistics.RewardStatistics | None, editing: str
) -> RewardsPayload:
    """Return what stands under each row by its key, and beside the code of the row that is edited.

    Where nothing could be scored that is what is wrong alone; the page keeps what it said of the others.
    """
    shown = {row.key: _list_entry(row) for row in draft.rows}
    weighs = not SCHEMES[draft.credit["scheme"]].counts_outcome
    notes = dict(zip((row.key for row in draft.rows), view.rows, strict=True))
    if view.credit is not None and watched is not None:
        unused, scored = scoring.unused_notes(view), view.credit.scored
        notes = {row.key: notes[row.key] or row_note(row, watched, unused, scored) for row in draft.rows}
    said = {key: cast(SaidPayload, note.to_json()) for key, note in notes.items() if note is not None}
    row, editor = draft.row(editing), None
    if row is not None and editing in said and said[editing]["level"] == "error":
        editor = _before_the_error(editing, said[editing], view.prints)
        said[editing] = cast(SaidPayload, scoring.Note("Error: see the editor").to_json())  # a message stands once
    elif row is not None and view.credit is not None:
        editor = returned(view.credit.scored, row)
    if editor is not None and row is not None and row.monte_carlo is not None:
        editor["facts"] = reward_forms.values_facts(row)
    return {"rows": said, "editor": editor, "listed": shown, "weighs": weighs, "number": 0}


def row_note(
    row: RewardRow, watched: statistics.RewardStatistics, unused: Mapping[str, tuple[str, str]], scored: ScoredGroup
) -> scoring.Note:
    """Say under a row what its function returned; the detail is what it took, its range and source.

    ``unused`` says by name that and why a function plays no part in what is drawn.
    """
    about = f"{find_builtin(row.name).range}  ·  {find_builtin(row.name).reference}" if row.is_builtin else ""
    scores_what = "each step" if row.kind == "step" else "final answer"
    function = next((one for one in watched.functions if one.name == row.name), None) if row.on else None
    if function is None:
        return scoring.Note(f"{scores_what} · off", level="plain", detail=about)
    summary = next(reward for reward in scored.rewards if reward.name == row.name)
    said, why = unused.get(row.name, ("", ""))
    parts = [
        scores_what,
        summary.read_as,
        _gave(function, row.name in (scored.judge("step"), scored.judge("outcome"))),
        f"{function.scores.unscored} unscored" if function.scores.unscored else "",
        "printed: see Edit" if summary.prints else "",
        _say_discrimination(scored, row.name) if row.belief else "",
        f"drawn with its weight at step 0 ({row.schedule})" if row.is_scheduled else "",
        said,
    ]
    took = function.p50
    details = [
        why,
        BUILTINS[row.name].judged_by if row.is_builtin and row.name in BUILTINS else "",
        "" if took is None else f"{1000 * took:.2g} ms a call" if took < 0.1 else f"{took:.2g} s a call",
        about,
    ]
    return scoring.Note(" · ".join(filter(None, parts)), level="plain", detail="  ·  ".join(filter(None, details)))


def _say_discrimination(scored: ScoredGroup, name: str) -> str:
    """Say how often a step reward puts a right step above a wrong one, or without labels a right answer's step."""
    judge, of_steps = scored.judge("step") or scored.judge("outcome"), scored.judge("step") is not None
    pairs = [
        (score, label >= 1)
        for one in scored.scored
        for k, score in enumerate(one.scores[name])
        if judge is not None and score is not None
        if (label := one.scores[judge][k] if of_steps else one.outcome_scores[judge]) is not None
    ]
    if len({right for _, right in pairs}) < 2:
        return ""
    share = difficulty.auc([score for score, _ in pairs], [right for _, right in pairs])
    better, worse = ("a right step", "a wrong one") if of_steps else ("a right answer's step", "a wrong one's")
    return f"{better} is above {worse} in {share:.0%} of pairs"


def _gave(function: statistics.FunctionStatistics, is_judge: bool) -> str:
    """Return what a function gave, in a few words: how many it calls right if it says so, or else its mean."""
    scores = function.scores
    if scores.mean is None or scores.zeros is None:
        return "no score"
    if is_judge:
        right = (1 + scores.mean - scores.zeros) / 2 if (scores.low or 0) < 0 else scores.mean
        answers = f"{round(right * scores.count)} of {say_count(scores.count, 'answer')} right"
        return answers if function.kind == "outcome" else f"{whole_percent(right)} % of steps right"
    return f"mean {two_places(scores.mean)}" + (f" · {whole_percent(scores.zeros)} % zero" if scores.zeros else "")


def returned(scored: ScoredGroup, row: RewardRow) -> RewardEditorPayload:
    """Return what a reward returned for each step, or each answer, of a group: in a sentence, and one by one.

    A score of 0 or less is marked wrong if the reward is the one that says so; whether a rollout's answer is right
    comes from the reward that judges answers.
    """
    payload = RewardEditorPayload(
        key=row.key, said=f"{row.name} is off.", wrong=None, rollouts=[], printed="", facts=[]
    )
    reward = next((one for one in scored.rewards if one.name == row.name), None)
    if reward is None:
        return payload
    is_step, judge = reward.kind == "step", scored.judge("outcome")
    judges, rollouts, every = scored.judge(reward.kind) == reward.name, list[ReturnedPayload](), list[float | None]()
    for g, (rollout, one) in enumerate(zip(scored.group.rollouts, scored.scored, strict=True)):
        spans = [(step.start, step.end) for step in one.steps] if is_step else [(0, len(rollout.text))]
        scores = one.scores[reward.name] if is_step else (one.outcome_scores.get(reward.name),)
        verdict = None if judge is None else one.outcome_scores.get(judge)
        every += scores
        if len(every) > SHOWN_STEPS and rollouts:
            continue
        steps = [
            (" ".join(cut(rollout.text[start:end], LONGEST_STEP).split()), score, judges and (score or 0) <= 0)
            for (start, end), score in zip(spans, scores, strict=True)
        ]
        right = "" if verdict is None else "right" if verdict > 0 else "wrong"
        rollouts.append(
            {"name": f"Rollout {g + 1}", "verdict": right, "steps": steps, "printed": _cut_print(reward.prints, g)}
        )
    return {
        **payload,
        "said": scores_sentence(reward.name, "step" if is_step else "answer", every),
        "rollouts": rollouts,
        "printed": _cut_print(reward.prints, None),
    }


def _before_the_error(key: str, wrong: SaidPayload, prints: Mapping[int | None, str]) -> RewardEditorPayload:
    rollouts = [
        ReturnedPayload(name=f"Rollout {place + 1}", verdict="", steps=[], printed=_cut_print(prints, place))
        for place in prints
        if place is not None
    ]
    return {
        "key": key,
        "said": "",
        "wrong": wrong,
        "rollouts": rollouts,
        "printed": _cut_print(prints, None),
        "facts": [],
    }


def _cut_print(prints: Mapping[int | None, str], place: int | None) -> str:
    return redact(cut(prints.get(place, "").rstrip(), PRINTED_SHOWN))


def scores_sentence(name: str, unit: str, scores: Sequence[float | None]) -> str:
    """Say what a reward returned: "step_correctness scores 41 of 48 steps 1 and 7 steps 0"."""
    given = [score for score in scores if score is not None]
    if not given:
        return f"{name} scores none of {say_count(len(scores), unit)}"
    missing = len(scores) - len(given)
    left = f"; {say_count(missing, unit)} without a score" if missing else ""
    (most, first), *others = sorted(Counter(given).items(), reverse=True)
    if len(others) > 2:
        mean = two_places(sum(given) / len(given))
        return f"{name} scores {say_count(len(given), unit)} from {min(given):g} to {most:g}, mean {mean}{left}"
    parts = [f"{first} of {say_count(len(scores), unit)} {most:g}"]
    parts += [f"{say_count(count, unit)} {score:g}" for score, count in others]
    return f"{name} scores {' and '.join(filter(None, (', '.join(parts[:-1]), parts[-1])))}{left}"


SHOWN_POSITIONS = 24
"""Step positions drawn at most; few completions have more steps, and their means say little."""


def watch_payload(watched: statistics.RewardStatistics) -> dict[str, Any]:
    """Return the payload of ``rewards.js``; ``slow`` is a sentence for each function slower than the sampler."""
    return {
        "functions": [
            asdict(replace(function, positions=function.positions[:SHOWN_POSITIONS])) for function in watched.functions
        ],
        "correlations": [asdict(pair) for pair in watched.correlations],
        "slow": [
            f"{function.name} takes {function.p50:.2g} s a call, sampling the group {watched.sampler_seconds:.2g} s: "
            "it sets the pace"
            for function in watched.functions
            if function.p50 and watched.sampler_seconds and function.p50 > watched.sampler_seconds
        ],
    }
