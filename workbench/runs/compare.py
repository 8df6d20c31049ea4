"""Comparisons of credit schemes and of training methods, over seeds: one thing after the other, and a summary of each.

A compared scheme is a run, a compared method a pipeline (see ``recipes``). Each is named after the comparison, so that
one that was stopped goes on, under its name, with what is not finished. All numbers are read from what runs and stages
wrote.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from workbench.config import RunConfig
from workbench.credit.schemes import find_scheme
from workbench.errors import ConfigError, RunError, TaskError
from workbench.files import read_json
from workbench.runs.check import with_absolute_paths
from workbench.runs.launch import go_on
from workbench.runs.pipelines import Pipeline, Plan, StageProgress, open_pipeline
from workbench.runs.pipelines.check import check_plan
from workbench.runs.pipelines.pipeline import WORKBENCH, start_plan
from workbench.runs.recipes import COMPLETIONS, load_recipe
from workbench.runs.references import resolved
from workbench.runs.run import Run, default_workspace, open_run
from workbench.runs.spawn import TRAINING
from workbench.runs.warm import warm_up
from workbench.tasks.made import provenance_of

TARGET = 0.65
"""The held-out accuracy whose price in completions is compared."""
NAME = "compare"
"""What a comparison is called that is given no name, numbered where that is taken."""

Report = Callable[[Run, Mapping[str, Any]], None]
Tell = Callable[[str], None]


@dataclass(frozen=True)
class ComparedRun:
    """Results of one run; ``None`` where it was never measured or, for ``rollouts_to_65``, never reached.

    Accuracies are shares of held-out examples answered exactly, the base's measured before the first step. ``seconds``
    is training's wall time, ``rollouts`` the completions sampled for it.
    """

    scheme: str
    seed: int
    base_accuracy: float | None
    final_accuracy: float | None
    seconds: float | None
    rollouts: int | None
    rollouts_to_65: int | None

    grouped_by: ClassVar[str] = "scheme"
    to_65: ClassVar[str] = "rollouts_to_65"


@dataclass(frozen=True)
class ComparedMethod:
    """Results of one method's pipeline; ``None`` where nothing was measured, or 65 % never reached.

    ``completions`` were sampled in all its stages, for data too. ``final_accuracy`` is that of the last policy it
    trained, ``peak_memory_mb`` that of the stage that took most, ``seconds`` the sum of what stages took without
    loading and waiting, and ``models`` the most that are in memory at a time.
    """

    method: str
    seed: int
    base_accuracy: float | None
    final_accuracy: float | None
    completions: int
    completions_to_65: int | None
    peak_memory_mb: float | None
    seconds: float | None
    models: int

    grouped_by: ClassVar[str] = "method"
    to_65: ClassVar[str] = "completions_to_65"


# -- schemes -----------------------------------------------------------------------------------------------------------


def compare(
    config: RunConfig,
    schemes: Sequence[str],
    seeds: int,
    workspace: Path | str | None = None,
    *,
    report: Report | None = None,
    tell: Tell = lambda line: None,
    module: str = TRAINING,
) -> Iterator[tuple[Run, ComparedRun]]:
    """Run ``config`` under every scheme with the seeds ``config.seed``, ``+ 1``, …; yield each run as it ends.

    ``report(run, row)`` is called with each metrics row as it is written, ``tell`` with what becomes of runs that are
    there already: under ``config.name`` a comparison goes on with what is not finished. A run that fails is yielded
    like the others, with what it had measured; ``run.status()`` says why. The run at hand is stopped if the caller is
    interrupted.

    Raises CreditError for an unknown scheme, ConfigError for one that the rest does not fit, and for a name under which
    other settings were compared, before anything is started.
    """
    for scheme in schemes:
        find_scheme(scheme)
    planned = [
        (scheme, seed, _under_scheme(config, scheme, seed))
        for scheme, seed in itertools.product(schemes, range(config.seed, config.seed + seeds))
    ]
    folder = _folder(workspace)
    name = config.name or _free_name([f"-{scheme}-{seed}" for scheme, seed, _ in planned], folder, tell)
    for scheme, seed, planned_config in planned:
        planned_config.name = f"{name}-{scheme}-{seed}"
        _check_run(planned_config, folder, name, tell)
    if len(planned) > 1 and module == TRAINING:
        warm_up(wait=True)
    for scheme, seed, planned_config in planned:
        with go_on(planned_config, folder, module=module).held() as run:
            if run.status().state != "finished":
                for row in run.follow():
                    if report is not None:
                        report(run, row)
                run.wait()  # two runs at a time would measure each other
        yield run, summarise(scheme, seed, run.metrics_rows()[0])


def _under_scheme(config: RunConfig, scheme: str, seed: int) -> RunConfig:
    """The configuration under another scheme and seed. Raises ConfigError where it does not fit the scheme."""
    data = config.model_dump() | {"seed": seed}
    data["method"]["credit"] = config.grpo.credit.model_dump() | {"scheme": scheme}
    return RunConfig.parse(data)


def _check_run(config: RunConfig, workspace: Path, comparison: str, tell: Tell) -> None:
    """Tell what becomes of a run that is there already. Raises ConfigError where it was started with other settings."""
    assert config.name is not None
    try:
        run = open_run(config.name, workspace)
    except RunError:
        return
    if _settings(run.config()) != _settings(resolved(config, workspace)):
        raise ConfigError(_other_settings(comparison, f"run {run.name!r}"))
    tell(_what_becomes(run))


def _settings(config: RunConfig) -> dict[str, Any]:
    return with_absolute_paths(config).model_dump(exclude={"origins", "name"})


def summarise(scheme: str, seed: int, rows: Iterable[Mapping[str, Any]]) -> ComparedRun:
    """Summary of a run's metrics rows, given in order."""
    rows = list(rows)
    measured = [row for row in rows if row.get("accuracy") is not None]
    return ComparedRun(
        scheme=scheme,
        seed=seed,
        base_accuracy=measured[0]["accuracy"] if measured else None,
        final_accuracy=measured[-1]["accuracy"] if measured else None,
        seconds=_last(rows, "seconds"),
        rollouts=_last(rows, "rollouts"),
        rollouts_to_65=next((row.get("rollouts") for row in measured if row["accuracy"] >= TARGET), None),
    )


# -- methods -----------------------------------------------------------------------------------------------------------


def compare_methods(
    config: RunConfig,
    methods: Sequence[str | Path],
    seeds: int,
    workspace: Path | str | None = None,
    *,
    completions: int = COMPLETIONS,
    report: Report | None = None,
    on_stage: Callable[[Pipeline, StageProgress], None] = lambda pipeline, stage: None,
    tell: Tell = lambda line: None,
    module: str = TRAINING,
    maker: str = WORKBENCH,
) -> Iterator[tuple[Pipeline, ComparedMethod]]:
    """Carry out every recipe with ``config`` laid over it and the seeds ``config.seed``, ``+ 1``, …; yield each as it
    ends, with what it came to.

    ``methods`` are names of recipes that come along, or YAML files; each samples ``completions`` (see ``recipes``).
    ``report`` and ``tell`` are as in ``compare``; ``on_stage`` is told of each stage that ends. A pipeline that fails
    is yielded like the others. The one at hand is stopped if the caller is interrupted.

    Raises ConfigError, with a line for each problem of each recipe, before anything is started.
    """
    folder = _folder(workspace)
    first = _recipes(config, methods, completions, folder, deeply=module == TRAINING)
    planned = [(method, seed) for method in first for seed in range(config.seed, config.seed + seeds)]
    name = config.name or _free_name([f".{method}.{seed}" for method, seed in planned], folder, tell)
    plans = {}
    for method, seed in planned:
        plan = load_recipe(first[method], config.model_copy(update={"seed": seed}), completions)
        plans[method, seed] = check_plan(plan, folder, deeply=False)
        _check_pipeline(pipeline_name(name, method, seed), plans[method, seed], folder, name, tell)
    for (method, seed), plan in plans.items():
        pipeline = _carry_on(pipeline_name(name, method, seed), plan, folder, module, maker)
        with pipeline.held():
            for stage, row in pipeline.follow():
                run = pipeline.run_of(stage.name)
                if row is None:
                    on_stage(pipeline, stage)
                elif report is not None and run is not None:
                    report(run, row)
            pipeline.wait()
        yield pipeline, summarise_method(pipeline)


def pipeline_name(comparison: str, method: str, seed: int) -> str:
    return f"{comparison}.{method}.{seed}"


def _recipes(
    config: RunConfig, methods: Sequence[str | Path], completions: int, workspace: Path, *, deeply: bool
) -> dict[str, str | Path]:
    """Where each recipe is read, by its name. Raises ConfigError, with a line for each problem."""
    if "steps" in config.run.model_fields_set:
        raise ConfigError(
            f"run.steps: {config.run.steps} steps are no budget for methods that sample and train in stages; leave it "
            "out, and say how many completions each samples (--completions)"
        )
    sources: dict[str, str | Path] = {}
    problems: list[str] = []
    for source in methods:
        try:
            plan = load_recipe(source, config, completions)
        except (ConfigError, TaskError) as error:
            problems += str(error).splitlines()
            continue
        if plan.name in sources:
            problems.append(f"{plan.name}: two recipes have this name ({sources[plan.name]}, {source}); rename one")
        sources[plan.name] = source
        try:
            check_plan(plan, workspace, deeply=deeply)
        except ConfigError as error:
            problems += [f"{plan.name}: {line}" for line in str(error).splitlines()]
    if problems:
        raise ConfigError("\n".join(dict.fromkeys(problems)))
    return sources


def _check_pipeline(name: str, plan: Plan, workspace: Path, comparison: str, tell: Tell) -> None:
    """As ``_check_run``."""
    try:
        pipeline = open_pipeline(name, workspace)
    except RunError:
        return
    if pipeline.plan().stages != plan.stages:
        raise ConfigError(_other_settings(comparison, f"pipeline {name!r}"))
    tell(_what_becomes(pipeline))


def _carry_on(name: str, plan: Plan, workspace: Path, module: str, maker: str) -> Pipeline:
    """The pipeline of this name as it is where it is finished or goes on, else resumed, or started."""
    try:
        pipeline = open_pipeline(name, workspace)
    except RunError:
        return start_plan(plan, workspace, name=name, module=module, maker=maker)
    return pipeline.resume(module=module, maker=maker) if pipeline.resumable else pipeline


@dataclass(frozen=True)
class Course:
    """How a pipeline went: ``measures`` are (completions sampled so far, value) of a metric, in order."""

    measures: tuple[tuple[int, float], ...]
    completions: int
    seconds: float | None
    peak_memory_mb: float | None

    def curve(self) -> tuple[list[float], list[float]]:
        """The last measure at each number of completions: what they were worth in the end."""
        last = dict(self.measures)
        return list(map(float, last)), list(last.values())


def course(pipeline: Pipeline, metric: str = "accuracy") -> Course:
    """Read what each stage sampled, took and measured. The base policy, measured first, took no completions."""
    measures: list[tuple[int, float]] = []
    sampled, spent = 0, list[Mapping[str, Any]]()
    for stage in pipeline.plan().stages:
        if not stage.is_run:
            made = _provenance(pipeline.file_of(stage.name))
            sampled += made.get("completions_sampled") or 0
            spent.append(made)
            continue
        run = pipeline.run_of(stage.name)
        rows = [] if run is None else run.metrics_rows()[0]
        for row in rows:
            if row.get(metric) is not None:
                is_base = not measures and not row.get("step")
                measures.append((0 if is_base else sampled + (row.get("rollouts") or 0), row[metric]))
        sampled += _last(rows, "rollouts") or 0
        peaks = [row["peak_memory_mb"] for row in rows if row.get("peak_memory_mb") is not None]
        spent.append({"seconds": _last(rows, "seconds"), "peak_memory_mb": max(peaks, default=None)})
    seconds, peaks = ([each[name] for each in spent if each.get(name)] for name in ("seconds", "peak_memory_mb"))
    return Course(tuple(measures), sampled, round(sum(seconds), 3) if seconds else None, max(peaks, default=None))


def summarise_method(pipeline: Pipeline) -> ComparedMethod:
    """What a comparison's pipeline came to so far. Raises RunError for a pipeline that is of no comparison."""
    _, *parts = pipeline.name.rsplit(".", 2)
    if len(parts) < 2 or not parts[1].isdecimal():
        raise RunError(f"pipeline {pipeline.name!r} is of no comparison, whose pipelines are called NAME.METHOD.SEED")
    went = course(pipeline)
    accuracies = [accuracy for _, accuracy in went.measures]
    return ComparedMethod(
        method=parts[0],
        seed=int(parts[1]),
        base_accuracy=accuracies[0] if accuracies else None,
        final_accuracy=accuracies[-1] if accuracies else None,
        completions=went.completions,
        completions_to_65=next((n for n, accuracy in went.measures if accuracy >= TARGET), None),
        peak_memory_mb=went.peak_memory_mb,
        seconds=went.seconds,
        models=max((_models(stage.config) for stage in pipeline.plan().stages if stage.config is not None), default=0),
    )


def _models(config: RunConfig) -> int:
    """Models in memory: the one that is trained, its reference, a separate critic, and reward models."""
    method = config.method
    reference = method.has_reference and config.policy.lora is None and config.policy.adapter is None
    critic = getattr(method, "critic", None) == "separate"
    return 1 + reference + critic + sum(reward.model is not None for reward in method.reward_functions)


def _provenance(file: Path) -> dict[str, Any]:
    try:
        data = read_json(provenance_of(file))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


# -- both --------------------------------------------------------------------------------------------------------------


def _free_name(ends: Sequence[str], workspace: Path, tell: Tell) -> str:
    """``compare``, numbered where a run or a pipeline of such a comparison is there."""
    names = (NAME if number == 1 else f"{NAME}-{number}" for number in itertools.count(1))
    places = [workspace / "runs", workspace / "pipelines"]
    free = next(
        name for name in names if not any((place / f"{name}{end}").exists() for place in places for end in ends)
    )
    tell(f"comparison {free}: if it is stopped, it goes on with the same command and --name {free}")
    return free


def _folder(workspace: Path | str | None) -> Path:
    return (default_workspace() if workspace is None else Path(workspace)).resolve()


def _what_becomes(there: Run | Pipeline) -> str:
    status = there.status()
    if status.state == "finished":
        return f"{there.name}: finished before"
    if not status.final:
        return f"{there.name}: is {status.state}, and is followed"
    return f"{there.name}: {status.state} before, and goes on"


def _other_settings(comparison: str, what: str) -> str:
    return (
        f"name: comparison {comparison!r} was made with other settings: {what} is there and differs; give this one "
        "another name (--name), or the same settings to go on with it"
    )


def _last(rows: Sequence[Mapping[str, Any]], name: str) -> Any:
    return next((row[name] for row in reversed(rows) if row.get(name) is not None), None)
