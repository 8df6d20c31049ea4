"""The Train tab: a configuration made of what Inspect shows and the tab's own fields, and runs followed live.

Everything about a run is read from its directory, so that every page shows the same; the reader holds its own cursor
and asks for what it has not seen. Training itself is a process of its own that this one only starts and stops.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from workbench.config import RunConfig
from workbench.errors import PatternError, RunError, WorkbenchError
from workbench.figures.heatmap import EXPLAINED_AT_ONCE, credit_payload, to_json
from workbench.redact import redact
from workbench.runs import Run, default_workspace, list_runs, open_run, start
from workbench.schema import Credit
from workbench.steps import StepPattern
from workbench.ui.handlers.credit import CreditForm, carried_over
from workbench.ui.handlers.estimate import estimate, measured_pace
from workbench.ui.handlers.kept import KeptRun, kept, read_config
from workbench.ui.handlers.notebook import train_code
from workbench.ui.handlers.sampling import SamplingForm, sampling_config
from workbench.ui.handlers.scoring import (
    Note,
    ScoringForm,
    SlotValues,
    explain_token,
    is_builtin,
    pattern_config,
    reward_configs,
    split,
)
from workbench.ui.handlers.session import Services, Session

LOG_LINES = 14
LISTED_RUNS = 200
ROWS_AT_ONCE = 500
"""Rows of a log that are given as they are; a longer one is given as columns of the metrics that are drawn."""
AS_INSPECT = "as on Inspect"


@dataclass(frozen=True)
class TrainingForm:
    """The Train tab's own fields. ``scheme`` is a credit scheme's name or AS_INSPECT."""

    steps: float | None
    prompts_per_step: float | None
    learning_rate: float | None
    beta: float | None
    loss_type: str
    scheme: str
    seed: float | None
    name: str = ""


def run_config(session: Session, scoring: ScoringForm, sampling: SamplingForm, form: TrainingForm) -> RunConfig:
    """The run that Start would start, its pattern untried. Raises ConfigError, PatternError or RewardError."""
    pattern = pattern_config(scoring)
    rewards = reward_configs(scoring)
    options, _ = sampling_config(sampling)
    training = {
        "steps": _whole(form.steps),
        "prompts_per_step": _whole(form.prompts_per_step),
        "learning_rate": form.learning_rate,
        "beta": form.beta,
        "loss_type": form.loss_type,
    }
    return RunConfig.parse(
        {
            "name": form.name.strip() or None,
            "task": session.task,
            "policy": sampling.policy.strip() or "tiny",
            "seed": _whole(form.seed),
            "pattern": pattern.model_dump(),
            "rewards": [reward.model_dump() for reward in rewards],
            "credit": chosen_credit(scoring, form.scheme).config().model_dump(),
            "sampling": options.model_dump(),
            "training": training,
        }
    )


def chosen_credit(scoring: ScoringForm, scheme: str) -> CreditForm:
    """Inspect's credit, or another scheme with what somebody set on Inspect."""
    if scheme in (AS_INSPECT, scoring.credit.scheme):
        return scoring.credit
    return CreditForm(scheme, carried_over(scoring.credit.scheme, scheme, scoring.credit.values))


def _whole(value: float | None) -> int | float | None:
    """Number fields give floats; one that is whole is meant as an integer, any other is refused by its field."""
    return int(value) if value is not None and value == int(value) else value


def inherited(session: Session, scoring: ScoringForm, sampling: SamplingForm) -> list[tuple[str, str]]:
    """What Train takes over from Inspect, as (label, value)."""
    rewards = [_reward_line(values) for values in scoring.slots if values.slot is not None and values.on]
    return [
        ("task", session.task),
        ("policy", sampling.policy.strip() or "tiny"),
        ("pattern", f"{scoring.regex}  ({scoring.kind})"),
        ("rewards", ", ".join(rewards) or "none is on"),
        ("credit", scoring.credit.summary),
        (
            "sampling",
            f"G {sampling.num_generations:g}, {sampling.max_completion_length:g} tokens, T {sampling.temperature:g}",
        )
        if None not in (sampling.num_generations, sampling.max_completion_length, sampling.temperature)
        else ("sampling", "incomplete"),
    ]


def estimated(
    session: Session, scoring: ScoringForm, sampling: SamplingForm, form: TrainingForm, services: Services
) -> list[tuple[str, str]]:
    """What the run that Start would start will take; nothing while a field is not as it should be."""
    try:
        config = run_config(session, scoring, sampling, form)
    except WorkbenchError:  # Start says what is wrong
        return []
    status = services.policy.status()
    parameters = status.parameters if status.policy == config.policy else None
    return estimate(config, measured_pace(services.workspace, config.policy), parameters)


def _reward_line(values: SlotValues) -> str:
    assert values.slot is not None
    given = values.slot.given
    if given is not None and given.monte_carlo is not None:
        name = f"{values.slot.name} (k={given.monte_carlo.continuations})"
        if not values.slot.in_run:
            return f"without {name}"
    elif given is not None:
        name = f"{values.slot.name} (model)"
    else:
        name = f"{values.slot.name}{'' if is_builtin(values) else ' (edited)'}"
    return name + (f" × {values.weight:g}" if values.weight not in (None, 1.0) else "")


def start_run(
    session: Session, scoring: ScoringForm, sampling: SamplingForm, form: TrainingForm, services: Services, tab: str
) -> tuple[str | None, Note | None]:
    """Start a run; its name, or what to put right. Code that was typed here is trusted from now on."""
    try:
        config = run_config(session, scoring, sampling, form)
        pattern = StepPattern(config.pattern.regex, config.pattern.kind)
        services.reward_worker(tab).split([], pattern)
        for reward in config.rewards:
            if reward.foreign is not None:
                services.trust.trust(reward.foreign)
        run = start(config, services.workspace)
    except WorkbenchError as error:
        return None, Note(str(error))
    return run.name, None


def notebook(
    session: Session, scoring: ScoringForm, sampling: SamplingForm, form: TrainingForm, services: Services
) -> str:
    """What Start would start as Python, or why there is none, as the page's script takes it."""
    usual = default_workspace().resolve() == services.workspace
    try:
        config = run_config(session, scoring, sampling, form)
        return to_json({"code": train_code(config, None if usual else services.workspace)})
    except WorkbenchError as error:
        return to_json({"problem": redact(f"There is no code for this yet: {error}")})


# ── following runs: what the page's script calls ─────────────────────────────────────────────────────────────────


def runs_table(workspace: Path) -> list[dict[str, Any]]:
    """The newest runs, with what a list shows of each."""
    rows: list[dict[str, Any]] = []
    for run in list_runs(workspace)[:LISTED_RUNS]:
        try:
            status, config = run.status(), read_config(run)
        except WorkbenchError as error:
            rows.append({"name": run.name, "state": "unreadable", "reason": str(error)})
            continue
        rows.append(
            {
                "name": run.name,
                "state": status.state,
                "reason": status.reason,
                "behind": status.behind,
                "resumable": run.resumable,
                "step": status.step,
                "total": status.total_steps,
                "created": status.created,
                "task": config.task,
                "scheme": config.credit.scheme,
            }
        )
    return rows


def poll(workspace: Path, name: str, cursor: int, after: int, after_watched: int = -1) -> dict[str, Any]:
    """What is new in a run since ``cursor`` (bytes of metrics), ``after`` and ``after_watched`` (the last steps with
    rollouts, and with watched prompts, known).

    A long log is given as one ``block`` of numbers to whoever begins to read it, later rows as ``rows``.
    """
    try:
        run = open_run(name, workspace)
        status = run.status()
        restarted = False
        with kept(run) as known:
            try:
                news = _rows_since(run, known, cursor)
            except RunError:  # the run was resumed, or the file is not the one the cursor is from
                news = _rows_since(run, known, 0)
                restarted, after, after_watched = True, -1, -1
            alarms = [dataclasses.asdict(alarm) for alarm in known.alarms()]
            corrupt = [f"skipped {what}" for what in known.corrupt.values()]
        return {
            "run": run.name,
            "state": status.state,
            "final": status.final,
            "reason": status.reason,
            "step": status.step,
            "total": status.total_steps,
            "device": status.device,
            "started": status.started,
            "updated": status.updated,
            "behind": status.behind,
            "resumable": run.resumable,
            "resumed_from": status.resumed_from,
            "warnings": [*status.warnings, *corrupt],
            "alarms": alarms,
            "stopping": status.stop_requested is not None and not status.final,
            **news,
            "restarted": restarted,
            "steps": [step for step in run.rollout_steps() if step > after],
            "watched": [step for step in run.rollout_steps(watched=True) if step > after_watched],
            "log": run.log_tail(LOG_LINES),
        }
    except WorkbenchError as error:
        return {"run": name, "error": str(error)}


def _rows_since(run: Run, known: KeptRun, cursor: int) -> dict[str, Any]:
    if cursor == 0 and known.rows > ROWS_AT_ONCE:
        return {"rows": [], "block": known.block(), "cursor": known.cursor}
    rows, cursor = run.metrics_rows(cursor)
    return {"rows": rows, "block": None, "cursor": cursor}


def describe(workspace: Path, name: str) -> dict[str, Any]:
    """The settings of a run in a few lines, and how it stands."""
    try:
        config = read_config(open_run(name, workspace))
    except WorkbenchError as error:
        return {"run": name, "error": str(error)}
    training, sampling = config.training, config.sampling
    return {
        "run": name,
        "settings": [
            ["task", config.task],
            ["policy", config.policy],
            ["pattern", f"{config.pattern.regex}  ({config.pattern.kind})"],
            ["rewards", ", ".join(f"{r.name}{f' × {r.weight:g}' if r.weight != 1 else ''}" for r in config.rewards)],
            ["credit", config.credit.scheme],
            ["batch", f"{training.prompts_per_step} prompts × {sampling.num_generations}"],
            ["optimiser", f"lr {training.learning_rate:g}, β {training.beta:g}, {training.loss_type}"],
            ["seed", str(config.seed)],
        ],
    }


def rollouts(services: Services, name: str, step: int, group: int, watched: bool = False) -> dict[str, Any]:
    """One stored group as the heatmap takes it, with how many groups the step has; of the watched prompts if asked."""
    try:
        run = open_run(name, services.workspace)
        credits = _credits(run, step, watched)
        group = min(max(group, 0), len(credits) - 1)
        credit = credits[group]
        return {
            "step": step,
            "group": group,
            "groups": len(credits),
            "watched": watched,
            "drawing": to_json(_drawn(run, credit, services)),
        }
    except WorkbenchError as error:
        return {"step": step, "group": group, "watched": watched, "error": str(error)}


def why(
    workspace: Path, name: str, step: int, group: int, rollout: int, token: int, watched: bool = False
) -> dict[str, Any] | None:
    """Why a token of a stored group has its advantage; None where there is no such token or group."""
    try:
        credits = _credits(open_run(name, workspace), step, watched)
    except WorkbenchError:
        return None
    return explain_token(credits[group], rollout, token) if 0 <= group < len(credits) else None


def _credits(run: Run, step: int, watched: bool) -> list[Credit]:
    return _read_credits(run, step, watched, run.dir.rollouts_written(step, watched=watched))


@lru_cache(maxsize=32)
def _read_credits(run: Run, step: int, watched: bool, written: int) -> list[Credit]:
    return run.rollouts(step, watched=watched)


def _drawn(run: Run, credit: Credit, services: Services) -> Mapping[str, Any]:
    """The credit as stored, with the run's own pattern underlined where it still works."""
    pattern = read_config(run).pattern
    matches: list[list[tuple[int, int]]] | None
    try:
        matches = [one.matches for one in split(credit.scored.group, pattern, services.pattern_worker)]
    except PatternError:
        matches = None
    return credit_payload(credit, matches, explain_at_most=EXPLAINED_AT_ONCE)


def resume(workspace: Path, name: str) -> dict[str, Any]:
    """Go on with a run from its newest valid checkpoint; says what it waits for or why it cannot."""
    try:
        run = open_run(name, workspace).resume()
    except WorkbenchError as error:
        return {"message": str(error), "level": "error"}
    return {"message": f"{run.name} goes on", "level": "info"}


def stop(workspace: Path, name: str) -> dict[str, Any]:
    """Stop a run; says so when it is over already."""
    try:
        status = open_run(name, workspace).stop()
    except RunError as error:
        return {"message": str(error), "level": "info"}
    except WorkbenchError as error:
        return {"message": str(error), "level": "error"}
    return {"message": f"{status.state}" + (f": {status.reason}" if status.reason else ""), "level": "info"}
