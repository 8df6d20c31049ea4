"""Reward models and step values on the page: forms in, configurations and progress out. Both run in children.

A reward model becomes a ``RewardConfig`` like any other reward; it is loaded once before it becomes a row of the list,
so that what is wrong with it is said beside the form. Step values are asked of the model worker on a thread of their
own, so that the page can show how far they are.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from workbench.assets import EMBEDDED
from workbench.config import ModelFormat, Reduction, RewardConfig
from workbench.errors import ConfigError, WorkbenchError
from workbench.places import RUN, checkpoint_or
from workbench.policies.step_values import StepValues
from workbench.rewards.models.formats import FORMATS, guess_format
from workbench.runs import find_checkpoint, list_runs, open_run
from workbench.schema import Group
from workbench.schema.numbers import counted
from workbench.steps import StepPattern
from workbench.ui.handlers.reward_rows import RewardRow, row_of
from workbench.ui.handlers.scoring import Note
from workbench.ui.handlers.session import BackgroundWork, Services

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
)
"""Label and value of each choice of format."""
REDUCE_CHOICES: tuple[tuple[str, str], ...] = (
    ("a score for each step", ""),
    ("outcome: the last step's", "last"),
    ("outcome: the least", "min"),
    ("outcome: the product", "product"),
)
"""Label and value of what a process reward model is used as."""


def model_reward(
    path: str,
    form: str = "",
    reduce: str = "",
    weight: float | None = 1.0,
    *,
    trust: bool = False,
    before: RewardConfig | None = None,
    path_of: Callable[[str], str] = checkpoint_or,
) -> RewardConfig:
    """The reward that a folder, Hub id or run:NAME, and the choices beside it, come to.

    ``trust`` is consent to run the code that the model's repository brings. Settings that have no choice of their own
    (label, separator, …) are those of the reward ``before``. Raises RewardError where the format must be said,
    ConfigError for a field that does not fit.
    """
    path = path.strip()
    if not path:
        raise ConfigError("give a reward model's folder or Hub id, or run:NAME")
    chosen: ModelFormat = form or guess_format(path_of(path))  # type: ignore[assignment]  # checked just below
    how: Reduction | None = reduce or None  # type: ignore[assignment]
    kind = "outcome" if chosen not in FORMATS or how else "step"
    name = re.sub(r"\W+", "_", Path(path.removeprefix(RUN)).name).strip("_") or "model"
    model = {"path": path, "format": chosen, "trust_remote_code": trust} | ({"reduce": how} if how else {})
    if before is not None and before.model is not None:
        model = before.model.model_dump() | model
        name = before.name if before.model.path == path else name
    return RewardConfig.parse({"name": name, "kind": kind, "weight": 1.0 if weight is None else weight, "model": model})


@dataclass(frozen=True)
class ModelForm:
    """The fields of the form, as they stand. ``key`` is that of the row that is changed; "" adds one."""

    path: str
    form: str
    reduce: str
    weight: float | None
    trust: bool
    key: str = ""


def form_of(row: RewardRow | None) -> ModelForm:
    """The form that shows a row's settings, or the empty one that adds a row."""
    if row is None or (model := row.model) is None:
        return ModelForm("", "", "", 1.0, False)
    reduce = model.reduce if row.kind == "outcome" and model.format in FORMATS else ""
    return ModelForm(model.path, model.format, reduce, row.weight, model.trust_remote_code, row.key)


@dataclass(frozen=True)
class LoadView:
    """One thing to show while a reward model loads: how far it is or what is wrong, and at the end the reward."""

    note: Note | None
    running: bool
    reward: RewardConfig | None = None


def load_model(form: ModelForm, rows: Sequence[RewardRow], services: Services, tab: str) -> Iterator[LoadView]:
    """Load what the form describes in the model worker, telling how far it is."""
    before = next((row.unweighted() for row in rows if row.key == form.key), None)
    try:
        reward = model_reward(
            form.path, form.form, form.reduce, form.weight, trust=form.trust, before=before, path_of=services.path_of
        )
        reward = reward.model_copy(update={"name": free_name(reward.name, rows, form.key)})
    except WorkbenchError as error:
        yield LoadView(Note(str(error)), False)
        return
    model = reward.model
    assert model is not None
    cancel = services.estimating.begin(tab)
    if cancel is None:
        yield LoadView(Note("This page is estimating or loading already; cancel that first."), False)
        return
    yield LoadView(Note(f"loading reward model {model.path}", level="info"), True)

    def load(report: Callable[[str], None]) -> None:
        def tell(event: Mapping[str, Any]) -> None:
            doing = f"{event['seconds']:.0f} s" if "busy" in event else f"the worker {event['waiting']}"
            report(f"loading reward model {model.path}, {doing}")

        services.models.load(model, tell, cancel.is_set)

    try:
        with BackgroundWork(load, cancel) as work:
            for line in work:
                yield LoadView(Note(line, level="info"), True)
            work.result()
        yield LoadView(None, False, reward)
    except WorkbenchError as error:
        if cancel.is_set():
            yield LoadView(Note("Cancelled; nothing was added.", level="info"), False)
        else:
            yield LoadView(Note(str(error)), False)
    finally:
        services.estimating.end(tab)


def run_as_reward(rows: Sequence[RewardRow], name: str, workspace: Path) -> RewardRow | Note:
    """The row of a finished run's reward model; a note where there is none to add."""
    path = f"{RUN}{name}"
    try:
        run = open_run(name, workspace)
        form = run.config().method.reward_format
        find_checkpoint(path, workspace)
        if form is None:
            raise ConfigError(f"{path} is a policy; a run that trains a reward model ends with one to use as a reward")
    except WorkbenchError as error:
        return Note(str(error))
    if any(row.model is not None and row.model.path == path for row in rows):
        return Note(f"{path} is in the list already", level="info")
    reward = model_reward(path, form)
    return row_of(reward.model_copy(update={"name": free_name(reward.name, rows)}))


def policy_choices(workspace: Path) -> list[str]:
    """The policies that the page suggests: the embedded ones, and the newest checkpoints of runs that are over."""
    checkpoints = (name for run in list_runs(workspace)[:LISTED] for name in run.summary().policies[:LISTED_STEPS])
    return [*EMBEDDED, *checkpoints]


def cancel_load(services: Services, tab: str) -> None:
    """Give up what ``load_model`` waits for."""
    services.estimating.cancel(tab)


def model_status(services: Services) -> str:
    """What reward models and judges are at; "" while they rest."""
    return ", ".join(filter(None, (services.models.busy, services.judges.busy)))


def cancel_judges(services: Services) -> bool:
    """End what judges are asked by this page's scoring; whether there was anything."""
    return services.judges.cancel()


def free_name(name: str, rows: Sequence[RewardRow], key: str = "") -> str:
    """A name that no other row than that with the key has: ``name``, or that with a number."""
    taken = {row.name for row in rows if row.key != key}
    return next(free for free in (name, *(f"{name}_{n}" for n in range(2, len(taken) + 3))) if free not in taken)


@dataclass(frozen=True)
class ValuesView:
    """One thing to show while values are estimated: a line that says how far, and at the end the values or a note."""

    status: str
    running: bool
    note: str = ""
    values: StepValues | None = None


class Estimator(Protocol):
    """``policies.client.ModelWorker``, as far as it is asked here."""

    def step_values(
        self,
        policy: str,
        group: Group,
        pattern: StepPattern,
        outcome: RewardConfig,
        *,
        k: int,
        seed: int,
        on_event: Callable[[dict[str, Any]], None],
        cancelled: Callable[[], bool],
        adapter: str | None = None,
        loading: Mapping[str, str] | None = None,
    ) -> StepValues | None: ...


def estimate_values(
    worker: Estimator,
    policy: str,
    group: Group,
    pattern: StepPattern,
    outcome: RewardConfig,
    cancel: threading.Event,
    *,
    k: int = 8,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
) -> Generator[ValuesView]:
    """Monte-Carlo values of the group on screen, telling how far they are; setting ``cancel`` ends it.

    ``options`` are the draft's ``policy_options``. The values' ``as_reward()`` goes into ``score_group`` beside the
    other rewards. Whoever stops listening cancels.
    """

    def ask(report: Callable[[dict[str, Any]], None]) -> StepValues | None:
        return worker.step_values(
            policy, group, pattern, outcome, k=k, seed=seed, on_event=report, cancelled=cancel.is_set, **(options or {})
        )

    with BackgroundWork(ask, cancel) as work:
        yield ValuesView("asking the policy", True)
        for event in work:
            yield ValuesView(_status(event), True)
        try:
            values = work.result()
        except WorkbenchError as error:
            yield ValuesView("", False, note=str(error))
            return
    if values is None:
        yield ValuesView("", False, note="Cancelled; nothing was estimated.")
    else:
        yield ValuesView(f"{counted(values.tokens, 'token')} in {values.seconds:.1f} s", False, values=values)


def _status(event: dict[str, Any]) -> str:
    if "loading" in event:
        return f"loading policy {event['loading']}"
    if "waiting" in event:
        return f"waiting while the model worker {event['waiting']}"
    return f"{event['done']} of {event['total']} continuations, {event['tokens']} tokens, {event['seconds']:.0f} s"
