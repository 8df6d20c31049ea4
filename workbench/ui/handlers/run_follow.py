"""Follow a run on Train: its state, new rows of its curves, alarms and sentences; stop and resume; what it sampled.

Everything is read from the run's directory, so that every page shows the same; the reader holds its own cursor and asks
for what it has not seen. Each question reads the run's status, the life of its process and its configuration once. Of
what was sampled there are the stored groups, the held-out problems, and two runs' answers side by side; the groups
looked at last are kept.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypedDict

from pydantic import validate_call

from workbench.checks import Finding
from workbench.credit import GradientShare, gradient_shares, pass_losses
from workbench.errors import PatternError, RunError, WorkbenchError
from workbench.rundir import RunStatus
from workbench.rundir.rollouts import MOST_ANSWERS
from workbench.runs import Run, list_runs, open_run
from workbench.runs.index import RolloutIndex, RolloutPage
from workbench.runs.run import RunSummary
from workbench.schema import Credit, HeldOutAnswer, LossPass
from workbench.training.methods import RunConfig
from workbench.ui.handlers import fields, scoring, session
from workbench.views import curves, export, heatmap, payloads
from workbench.views.log import KeptRun, open_log
from workbench.views.run import run_sentences

LOG_LINES = 14
LISTED_RUNS = 200

CHANGES: dict[str, tuple[str, str, Callable[[Any], Any]]] = {
    "accuracy fell": ("half the learning rate", "optimiser.learning_rate", lambda rate: rate / 2),
    "collapsed": (
        "the default learning rate",
        "optimiser.learning_rate",
        lambda _: RunConfig().optimiser.learning_rate,
    ),
    "answers wronged": ("the final answer counted", "method.credit.outcome_weight", lambda weight: weight or 1.0),
    "entropy collapse": ("half the learning rate", "optimiser.learning_rate", lambda rate: rate / 2),
    "not a number": ("half the learning rate", "optimiser.learning_rate", lambda rate: rate / 2),
    "phantom advantages": ("groups gated by the outcome", "method.credit.gate", lambda _: "outcome"),
    "steps wronged": ("`process` credit", "method.credit.scheme", lambda _: "process"),
    "truncated": ("answers twice as long", "method.sampling.max_completion_length", lambda tokens: 2 * tokens),
    "zero spread": ("such groups replaced", "method.resample_flat", lambda _: True),
}
"""By an alarm's name, the setting to try in another run: what it is called, its path, and its value by the run's."""


# What ``train.js`` is answered; tests/payload_types.py writes the types.


class LiveValue(TypedDict):
    """Value of the live element: the run that Start began, None if it was refused, and a token of that answer.

    ``downloads`` is the address of runs' files. The page outlives the app: were answers counted, the first one after a
    restart would look like one it has seen.
    """

    run: str | None
    start: str
    downloads: str


class ListedRun(TypedDict):
    """A run as Train lists it."""

    name: str
    state: str


class Failed(TypedDict):
    """In place of any answer about a run that cannot be read."""

    run: str
    error: str


class Remedy(TypedDict):
    """The setting that may help against an alarm in another run, None for none."""

    change: str | None


class _NewRows(TypedDict):
    """The rows since a cursor, to be added to the curves that are drawn, or in their place curves to draw anew; and the
    folded groups, None where there is no new row."""

    rows: list[dict[str, Any]]
    panels: list[curves.ChartPayload] | None
    folds: list[curves.FoldPayload] | None
    cursor: int
    restarted: bool


class _Queue(TypedDict):
    """A queued run's place: the runs before it, and how long they take."""

    ahead: int
    wait: float | None


class Followed(_NewRows, _Queue):
    """News of a run, beside its status and summary.

    ``lost`` names the metrics whose newest value is no number. ``seconds`` is how long it has trained, over all times
    that it was resumed.

    ``pace`` is in seconds a step; of a queued run, ``ahead`` counts the runs it waits for, and ``wait`` is how long
    they will take, where that is known.
    """

    about: str
    seconds: float | None
    pace: float | None
    warnings: Sequence[str]
    alarms: list[Any]
    said: list[payloads.Said]
    lost: list[str]
    has_rollouts: bool
    steps: list[int]
    watched: list[int]
    answers: list[int]
    log: list[str]


News = Mapping[str, Any]
"""A run's status and summary, and what is new in it."""
DATACLASSES = {
    "News": (RunSummary, RunStatus, Followed),
    "AlarmPayload": (Finding, Remedy),
    "SharePayload": GradientShare,
    "AnswerPayload": HeldOutAnswer,
}
"""Sent field by field."""


class Described(TypedDict):
    """A run's settings: the telling ones as (name, value), and all of them as YAML."""

    run: str
    settings: list[tuple[str, str]]
    yaml: str


class Answer(TypedDict):
    """Outcome of a request, as a message; ``level`` is info or error."""

    message: str
    level: str


P = ParamSpec("P")


def of_run(asked: Callable[Concatenate[Run, P], Any]) -> Callable[Concatenate[Path, str, P], Any]:
    """Have a function of a run take the workspace and the run's name; a run that cannot be read is ``Failed``."""
    checked = validate_call(config=session.CHECKED)(asked)

    @wraps(asked)
    def answer(workspace: Path, run: str, *args: P.args, **kwargs: P.kwargs) -> Any:
        try:
            return checked(open_run(run, workspace), *args, **kwargs)
        except WorkbenchError as error:
            return {"run": run, "error": str(error)}

    answer.__annotations__ = {**asked.__annotations__, "return": asked.__annotations__["return"] | Failed}
    return answer  # type: ignore[return-value]  # a script names its arguments


def runs_table(workspace: Path) -> list[ListedRun]:
    """The newest runs, the newest first."""
    summaries = (run.summary() for run in list_runs(workspace)[:LISTED_RUNS])
    return [{"name": summary.name, "state": summary.state} for summary in summaries]


@of_run
def poll(
    run: Run,
    cursor: int,
    after: int,
    after_watched: int = -1,
    smoothing: float = 0.0,
    groups: Collection[str] = (),
) -> News:
    """Return what is new in a run.

    New is what came since ``cursor`` (bytes of metrics), ``after`` and ``after_watched`` (the last steps known to have
    rollouts, and watched ones). ``smoothing`` is that of ``curves.run_charts``; ``groups`` are the folded groups of
    charts that are open.
    """
    status, config = run.status(), run.config()
    method, summary, answers = run.method, run.summary_of(status, config), run.dir.answers.steps()
    with open_log(run) as known:
        seconds = known.columns["seconds"][1]
        said, problems = _run_sentences(run, tuple(answers), status.started, known)
        news = _rows_since(known, cursor, method.metrics, smoothing=smoothing, problems=problems, groups=groups)
        alarms = [
            {**dataclasses.asdict(alarm), "change": (changed_settings(config, alarm.name) or (None,))[0]}
            for alarm in known.alarms()
        ]
        corrupt = [f"skipped {what}" for what in known.corrupt.values()]
        pace, lost = known.pace, sorted(known.lost)
    if news["restarted"]:
        after, after_watched = -1, -1
    followed: Followed = {
        "about": f"{config.task.name} · {config.method.label} · {config.policy.path}",
        **_queue(run.path.parent.parent, status.behind if status.state == "queued" else None),
        **news,
        "seconds": seconds[-1] if seconds else None,
        "pace": pace,
        "warnings": (*status.warnings, *corrupt),
        "alarms": alarms,
        "said": said,
        "lost": lost,
        "has_rollouts": method.has_rollouts,
        "steps": [step for step in run.rollout_steps() if step > after],
        "watched": [step for step in run.rollout_steps(watched=True) if step > after_watched],
        "answers": answers,
        "log": run.log_tail(LOG_LINES),
    }
    return {**dataclasses.asdict(summary), **dataclasses.asdict(status), **followed}


def _run_sentences(
    run: Run, measured: tuple[int, ...], started: float | None, known: KeptRun
) -> tuple[list[payloads.Said], int]:
    """Return sentences about a run and the number of its held-out problems, anew when it has logged more."""
    key = (run, measured, started, known.rows)
    if known.told[0] != key:
        said: list[payloads.Said] = [sentence.parts for sentence in run_sentences(run, known.columns)]
        known.told = key, (said, _problems(run, measured, started))
    return known.told[1]


@lru_cache(maxsize=64)
def _problems(run: Run, measured: tuple[int, ...], started: float | None) -> int:
    """Return how many held-out problems a measure of accuracy is of; 0 where that is not known."""
    try:
        stored = len(run.dir.answers.read(measured[-1])) if measured else 0
    except RunError:
        return 0
    return stored if stored < MOST_ANSWERS else run.config().run.eval_prompts


def _rows_since(known: KeptRun, cursor: int, metrics: Sequence[str], **drawn: Any) -> _NewRows:
    """Return the rows logged since ``cursor``; ``restarted`` where that is none that was given lately: the run was
    resumed, or its log replaced, or the page was away."""
    rows = known.since(cursor)
    anew = rows is None or (drawn["smoothing"] > 0 and bool(rows))
    return {
        "rows": [] if anew else [dict(row) for row in rows or ()],
        "panels": [chart.payload() for chart in known.charts(metrics, **drawn)] if anew else None,
        "folds": known.folds(metrics) if anew or rows else None,
        "cursor": known.cursor,
        "restarted": cursor > 0 and cursor not in known.read_at,
    }


def changed_settings(config: RunConfig, alarm: str) -> tuple[str, RunConfig] | None:
    """Return a remedy against an alarm in words, and a run's configuration with it; None where none is known."""
    said, path, change = CHANGES.get(alarm, ("", "", None))
    tree = config.model_dump()
    with suppress(WorkbenchError):  # the method does not take that value
        if change is not None and (value := fields.get(tree, path)) is not None:
            changed = RunConfig.parse(fields.with_path(tree, path, change(value)))
            return None if changed == config else (said, changed)
    return None


def _queue(workspace: Path, behind: str | None) -> _Queue:
    """The runs from ``behind`` on, each of which waits for the next."""
    names: list[str] = []
    wait: float | None = 0.0
    try:
        while behind is not None and behind not in names:
            run = open_run(behind, workspace)
            status = run.status()
            if status.final:
                break
            names.append(behind)
            with open_log(run) as known:
                pace = known.pace
            wait = None if pace is None or wait is None else wait + pace * (status.total_steps - status.step)
            behind = status.behind if status.state == "queued" else None
    except WorkbenchError:
        wait = None  # of another workspace, or damaged
    return {"ahead": len(names), "wait": wait if names else None}


@validate_call
def curve(workspace: Path, run: str, key: str) -> str:
    """All points of a run's panel as CSV. Raises RunError for a run that cannot be read."""
    opened = open_run(run, workspace)
    with open_log(opened) as known:
        return export.chart_csv(next(chart for chart in known.charts(opened.method.metrics) if chart.key == key))


@of_run
def describe(run: Run) -> Described:
    """The settings of a run."""
    config = run.config()
    return {
        "run": run.name,
        "settings": [
            ("task", config.task.name),
            ("policy", config.policy.path),
            *config.method.facts(),
            ("optimiser", f"lr {config.optimiser.learning_rate:g}"),
            ("seed", str(config.seed)),
        ],
        "yaml": run.dir.config_text(),
    }


def answer(do: Callable[[], str]) -> Answer:
    """Return what ``do`` says of what it did, or why it could not."""
    try:
        return {"message": do(), "level": "info"}
    except WorkbenchError as error:
        return {"message": str(error), "level": "error"}


@validate_call
def resume(workspace: Path, run: str) -> Answer:
    """Go on with a run from its newest valid checkpoint; says what it waits for or why it cannot."""
    return answer(lambda: f"{open_run(run, workspace).resume().name} resumed")


@validate_call
def start_now(workspace: Path, run: str) -> Answer:
    """Start a run that is queued beside the run that it waits for; says so when it waits for none."""

    def start() -> str:
        open_run(run, workspace).start_now()
        return f"{run} starts beside the run that it waited for"

    return answer(start)


@validate_call
def stop(workspace: Path, run: str) -> Answer:
    """Stop a run; says so when it is over already."""

    def stopped() -> str:
        status = open_run(run, workspace).stop()
        return f"{status.state}: {status.reason}" if status.reason else status.state

    return answer(stopped)


# ── what it sampled ──────────────────────────────────────────────────────────────────────────────────────────────


INDEXED_RUNS = 8


class StoredGroup(TypedDict):
    """A stored group or watched row as the heatmap takes it (JSON), and how many the step has.

    ``awaited`` is the next optimiser step over the group that is still to come, and changes its loss; None for none.
    """

    step: int
    group: int
    groups: int
    watched: bool
    shares: Sequence[GradientShare]
    awaited: int | None
    drawing: str


@validate_call(config=session.CHECKED)
def rollouts(
    services: session.Services, run: str, step: int, group: int, watched: bool = False
) -> StoredGroup | Failed:
    """One stored group as the heatmap takes it, with how many groups the step has; of the watched prompts if asked.

    Of a method without rollouts it is one of the watched rows.
    """
    try:
        opened = open_run(run, services.workspace)
        if opened.method.has_rollouts:
            return _stored_group(opened, step, group, watched, services)
        rows = opened.watched_rows(step)
        group = min(max(group, 0), len(rows) - 1)
        return StoredGroup(
            step=step, group=group, groups=len(rows), watched=watched, shares=[], awaited=None,
            drawing=heatmap.to_json(heatmap.row_payload(rows[group])),
        )  # fmt: skip
    except WorkbenchError as error:
        return {"run": run, "error": str(error)}


def _stored_group(run: Run, step: int, group: int, watched: bool, services: session.Services) -> StoredGroup:
    awaited = None  # the next optimiser step over this generation; what a step computed is stored before it is logged
    if not watched:  # before the passes are read: none comes between the two unseen
        status = run.status()
        following = max(step, status.step + 1)
        if not status.final and following < step + run.config().method.iterations:
            awaited = following
    credits = stored_credits(run, step, watched)
    group = min(max(group, 0), len(credits) - 1)
    if not watched and (passes := _passes(run, step)):
        loss = heatmap.DrawnLoss.of_passes(credits, group, passes)
    else:  # watched prompts, older runs, a step not yet done
        stored = run.dir.passes.steps()
        loss = heatmap.DrawnLoss.on_policy(credits[group], run.dir.passes.read(stored[0]).settings if stored else None)
    return {
        "step": step,
        "group": group,
        "groups": len(credits),
        "watched": watched,
        "shares": shares(run, step, credits, watched=watched),
        "awaited": awaited,
        "drawing": heatmap.to_json(draw_credit(run, credits[group], services, loss)),
    }


@validate_call
def why(
    workspace: Path, run: str, step: int, group: int, rollout: int, token: int, watched: bool = False
) -> payloads.WhyPayload | None:
    """Say why a token of a stored group has its advantage; None where there is no such token or group."""
    try:
        credits = stored_credits(open_run(run, workspace), step, watched)
    except WorkbenchError:
        return None
    return scoring.explain_token(credits[group], rollout, token) if 0 <= group < len(credits) else None


def stored_credits(run: Run, step: int, watched: bool) -> list[Credit]:
    return _read_credits(run, step, watched, run.dir.rollouts.write_time(step, watched=watched))


@lru_cache(maxsize=32)
def _read_credits(run: Run, step: int, watched: bool, written: int) -> list[Credit]:
    return run.rollouts(step, watched=watched)


def draw_credit(
    run: Run, credit: Credit, services: session.Services, loss: heatmap.DrawnLoss | None = None
) -> Mapping[str, Any]:
    """Draw the credit as stored, with the run's own pattern underlined where it still works."""
    pattern = run.config().sampling_section.pattern
    matches: list[list[tuple[int, int]]] | None = None
    with suppress(PatternError):
        matches = [
            cut.matches for cut in scoring.split(credit.scored.group, pattern, services.reward_worker(session.RUNS))
        ]
    return heatmap.credit_payload(credit, matches, explain_at_most=heatmap.EXPLAINED_AT_ONCE, loss=loss)


def shares(run: Run, step: int, credits: Sequence[Credit], *, watched: bool) -> list[GradientShare]:
    """Return shares of the first pass over a stored generation; none where no pass is stored."""
    passes = () if watched else _passes(run, step)
    return gradient_shares(credits, pass_losses(credits, passes[0])) if passes else []


def _passes(run: Run, step: int) -> tuple[LossPass, ...]:
    return _read_passes(run, step, sum(step <= other for other in run.dir.passes.steps()))


@lru_cache(maxsize=32)
def _read_passes(run: Run, step: int, later: int) -> tuple[LossPass, ...]:
    """``later`` is how many steps from this one on are stored: with one more, there may be one more pass."""
    return tuple(run.passes(step))


_indexes: session.Recent[RolloutIndex] = session.Recent(INDEXED_RUNS)


@of_run
def all_rollouts(run: Run, search: str, order: str, offset: int) -> RolloutPage:
    """A page of every rollout of a run that has the text ``search``, by ``order``: a column, with "-" the lowest first,
    or "disagreement": how far a rollout's step reward and its outcome lie apart, in standard deviations over the run.
    """
    _indexes[str(run.path)] = index = _indexes.get(str(run.path)) or RolloutIndex()
    with index.lock:
        return index.page(run, search.casefold(), order, max(0, offset))


class ProblemPayload(TypedDict):
    """A held-out row with its answers at both measures."""

    before: HeldOutAnswer
    now: HeldOutAnswer


class Problems(TypedDict):
    """The measured rows in their order, and the training steps of the two measures."""

    run: str
    before: int
    now: int
    rows: list[ProblemPayload]


@of_run
def problems(run: Run) -> Problems:
    """Every stored held-out row at the first and the newest measure; says why where there are not two."""
    steps = run.dir.answers.steps()
    if len(steps) < 2:
        raise RunError(f"run {run.name!r} has measured accuracy {len(steps)} times; answers are compared from 2 on")
    first, newest = (run.dir.answers.read(step) for step in (steps[0], steps[-1]))
    if [row.prompt for row in first] != [row.prompt for row in newest]:
        raise RunError(f"run {run.name!r} was measured on other rows at step {steps[0]} than at {steps[-1]}")
    return {
        "run": run.name,
        "before": steps[0],
        "now": steps[-1],
        "rows": [{"before": was, "now": now} for was, now in zip(first, newest, strict=True)],
    }


class Sides(TypedDict):
    """A prompt that both runs watched, ``index`` of ``count``: each run's newest step and its group, as drawings are
    sent. ``error`` says why there is none."""

    index: int
    count: int
    steps: list[int]
    drawings: list[str]
    error: str


@validate_call(config=session.CHECKED)
def side_by_side(services: session.Services, runs: Sequence[str], index: int) -> Sides:
    """Return what two runs answered the same watched prompt last."""
    try:
        first, second = (open_run(name, services.workspace) for name in runs)
        steps = []
        for run in (first, second):
            if not run.method.has_rollouts or not (stored := run.rollout_steps(watched=True)):
                raise RunError(f"run {run.name!r} has no answers to watched prompts; run.watch_prompts keeps some")
            steps.append(stored[-1])
        ours, theirs = (stored_credits(run, step, True) for run, step in zip((first, second), steps, strict=True))
        others = {str(credit.scored.group.prompt): credit for credit in theirs}
        pairs = [(credit, others[key]) for credit in ours if (key := str(credit.scored.group.prompt)) in others]
        if not pairs:
            raise RunError(f"{first.name} and {second.name} watch no prompt in common; they need the same task")
        place = index % len(pairs)
        drawings = [
            heatmap.to_json(draw_credit(run, credit, services))
            for run, credit in zip((first, second), pairs[place], strict=True)
        ]
        return {"index": place, "count": len(pairs), "steps": steps, "drawings": drawings, "error": ""}
    except (WorkbenchError, ValueError) as error:
        return {"index": 0, "count": 0, "steps": [], "drawings": [], "error": str(error)}
