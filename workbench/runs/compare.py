"""Comparisons of credit schemes over seeds, and what a comparison's runs came to.

A compared scheme is a run, named after the comparison, so that one that was stopped goes on, under its name, with what
is not finished. A compared method may be several runs and files of rows (``examples/compare_methods.py``). All numbers
are read from what these wrote.

``differences`` lists the fields in which configurations differ, ``configuration_labels`` names each by them.
"""

import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypedDict

from workbench.credit.schemes import find_scheme
from workbench.data.made import provenance_of
from workbench.files import read_json
from workbench.places import default_workspace
from workbench.runs.launch import Report, carry_on
from workbench.runs.processes import TRAINING
from workbench.runs.run import Run
from workbench.training.methods import RunConfig

TARGET = 0.65
"""The held-out accuracy whose price in completions is compared."""
NAME = "compare"
"""What a comparison is called that is given no name, numbered where that is taken."""

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
    """Results of one method; ``None`` where nothing was measured, or 65 % never reached.

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

    ``report(run, row)`` is called with each metrics row as it is written, ``tell`` with the name of
    a comparison that has none: under ``config.name`` one goes on with what is not finished. A run that fails is yielded
    like the others, with what it had measured; ``run.status()`` says why. The run at hand is stopped if the caller is
    interrupted.

    Raises CreditError for an unknown scheme and ConfigError for one that the rest does not fit, before anything is
    started; ConfigError for a run that was compared under this name with other settings, when its turn comes.
    """
    planned = []
    for scheme, seed in itertools.product(schemes, range(config.seed, config.seed + seeds)):
        find_scheme(scheme)
        data = config.model_dump() | {"seed": seed}
        data["method"]["credit"] = config.grpo.credit.model_dump() | {"scheme": scheme}
        planned.append((scheme, seed, RunConfig.parse(data)))
    folder = (default_workspace() if workspace is None else Path(workspace)).resolve()
    name = config.name or free_name([f"-{scheme}-{seed}" for scheme, seed, _ in planned], folder, tell)
    for scheme, seed, planned_config in planned:
        planned_config.name = f"{name}-{scheme}-{seed}"
        run = carry_on(planned_config, folder, report=report, module=module)
        yield run, summarise(scheme, seed, run.metrics_rows()[0])


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


def free_name(ends: Sequence[str], workspace: Path, tell: Tell) -> str:
    """``compare``, numbered where a run of such a comparison is there."""
    names = (NAME if number == 1 else f"{NAME}-{number}" for number in itertools.count(1))
    taken = {path.name for path in (workspace / "runs").glob("*")}
    free = next(name for name in names if not any(run.startswith(f"{name}{end}") for end in ends for run in taken))
    tell(f"comparison {free}: if it is stopped, it goes on with the same command and --name {free}")
    return free


# -- methods of several stages -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Course:
    """The course of a method's stages: ``measures`` are (completions sampled so far, value) of a metric, in order."""

    measures: tuple[tuple[int, float], ...]
    completions: int
    seconds: float | None
    peak_memory_mb: float | None

    def curve(self) -> tuple[list[float], list[float]]:
        """Return the last measure at each number of completions: what they were worth in the end."""
        last = dict(self.measures)
        return list(map(float, last)), list(last.values())


@dataclass(frozen=True)
class MethodStages:
    """One method with one seed: its runs, and the files of rows that were made between them, in order.

    ``problem`` is why it did not finish, "" if it did.
    """

    method: str
    seed: int
    stages: tuple[Run | Path, ...]
    problem: str = ""

    def course(self, metric: str = "accuracy") -> Course:
        """Read what each stage sampled, took and measured. The base policy, measured first, took no completions."""
        measures: list[tuple[int, float]] = []
        sampled, spent = 0, list[Mapping[str, Any]]()
        for stage in self.stages:
            if isinstance(stage, Path):
                made = read_json(provenance_of(stage))
                sampled += made["completions_sampled"]
                spent.append(made)
                continue
            rows = stage.metrics_rows()[0]
            for row in rows:
                if row.get(metric) is not None:
                    is_base = not measures and not row.get("step")
                    measures.append((0 if is_base else sampled + (row.get("rollouts") or 0), row[metric]))
            sampled += _last(rows, "rollouts") or 0
            peaks = [row["peak_memory_mb"] for row in rows if row.get("peak_memory_mb") is not None]
            spent.append({"seconds": _last(rows, "seconds"), "peak_memory_mb": max(peaks, default=None)})
        seconds, peaks = ([each[name] for each in spent if each.get(name)] for name in ("seconds", "peak_memory_mb"))
        return Course(tuple(measures), sampled, round(sum(seconds), 3) if seconds else None, max(peaks, default=None))

    def summary(self) -> ComparedMethod:
        """Sum up the results so far."""
        went = self.course()
        accuracies = [accuracy for _, accuracy in went.measures]
        models = 0  # most in memory: the one that is trained, its reference, a separate critic, and reward models
        for config in (stage.config() for stage in self.stages if isinstance(stage, Run)):
            method = config.method
            reference = method.has_reference and config.policy.lora is None and config.policy.adapter is None
            critic = getattr(method, "critic", None) == "separate"
            rewards = sum(reward.model is not None for reward in method.reward_functions)
            models = max(models, 1 + reference + critic + rewards)
        return ComparedMethod(
            method=self.method,
            seed=self.seed,
            base_accuracy=accuracies[0] if accuracies else None,
            final_accuracy=accuracies[-1] if accuracies else None,
            completions=went.completions,
            completions_to_65=next((n for n, accuracy in went.measures if accuracy >= TARGET), None),
            peak_memory_mb=went.peak_memory_mb,
            seconds=went.seconds,
            models=models,
        )


def _last(rows: Sequence[Mapping[str, Any]], name: str) -> Any:
    return next((row[name] for row in reversed(rows) if row.get(name) is not None), None)


# -- in what configurations differ ------------------------------------------------------------------------------------


FEW_FIELDS = 4
"""Fields that a configuration's label names, as long as they tell all of them apart."""
APART = ("name", "seed")
"""What two runs of one configuration may differ in."""
MISSING = "–"
_REWARDS = "method.rewards."


class Difference(TypedDict):
    """A field of the configuration, with one value a run."""

    field: str
    values: list[str]


def configuration_key(config: RunConfig) -> str:
    """Equal for runs that are seeds of one configuration."""
    dump = {name: value for name, value in config.model_dump(mode="json").items() if name not in APART}
    return hashlib.sha256(json.dumps(dump, sort_keys=True).encode()).hexdigest()


def configuration_labels(configs: Sequence[RunConfig]) -> list[str]:
    """Return a label for each configuration: the fields in which they differ, or its credit scheme if it is alone."""
    if len(configs) == 1:
        return [configs[0].method.label]
    every = dict.fromkeys(name for config in configs for name in _reward_names(config))
    not_in_all = [name for name in every if any(name not in _reward_names(config) for config in configs)]
    methods = [config.method.name.upper() for config in configs]
    said = {"method.name": methods} if len(set(methods)) > 1 else {}  # what differs → how each configuration says it
    for row in differences(dict(zip(map(str, range(len(configs))), configs, strict=True))):
        field, values = row["field"], row["values"]
        reward = next((name for name in not_in_all if field.startswith(f"{_REWARDS}{name}.")), None)
        if reward is not None:
            said[f"{_REWARDS}{reward}"] = [
                f"{'with' if reward in _reward_names(config) else 'without'} {reward}" for config in configs
            ]
        elif field not in ("seed", "method.name") and MISSING not in values:
            said[field] = [f"{value} steps" if field == "run.steps" else f"{_short(field)} {value}" for value in values]
    parts = list(said.values())
    few = 2 if "method.name" in said else FEW_FIELDS  # methods differ in most of their fields
    apart = (n for n in range(few, len(parts)) if len(set(zip(*parts[:n], strict=True))) == len(configs))
    count = next(apart, len(parts))
    return [" · ".join(part[i] for part in parts[:count]) or config.method.label for i, config in enumerate(configs)]


def _reward_names(config: RunConfig) -> list[str]:
    return [reward.name for reward in config.method.reward_functions]


def _short(field: str) -> str:
    """A field's own name; with the function of a reward; of ``task.name`` and ``policy.path`` the section."""
    if field.startswith(_REWARDS):
        return field.removeprefix(_REWARDS).replace(".", " ")
    section, _, name = field.rpartition(".")
    return section if field in ("task.name", "policy.path") else name


def differences(configs: Mapping[str, RunConfig]) -> list[Difference]:
    """The fields in which configurations differ, but their names: each with one value a configuration, as text."""
    flat = [config.flat() for config in configs.values()]
    fields = dict.fromkeys(name for settings in flat for name in settings)
    rows: list[Difference] = [
        {"field": name, "values": [settings.get(name, MISSING) for settings in flat]}
        for name in fields
        if name != "name"
    ]
    return [row for row in rows if len(set(row["values"])) > 1]
