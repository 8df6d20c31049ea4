"""A pipeline's plan: its YAML parsed into stages. Whether they can work together is ``check``'s question.

::

    name: warm-up
    stages:
      - name: taught
        run: {policy: tiny, method: sft, run: {steps: 20}}
      - name: compared
        pairs: {policy: run:taught, prompts: 100}
      - rounds: 2
        stages:
          - name: judge-{round}
            run: {method: reward, task: {data: data:compared}}

A stage is a ``run``, its configuration in the short form that ``train --config`` reads, or one of the data commands in
``ROWS``. ``rounds`` writes its stages out that many times, with the round's number in the place of ``{round}`` and the
one before it in that of ``{before}``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from workbench.assets import ASSETS
from workbench.config import RUN_NAME, RunConfig, migrate, run_name_of
from workbench.config.reading import read_text, read_yaml
from workbench.config.task_defaults import fill_from_task
from workbench.errors import ConfigError, WorkbenchError, cut, did_you_mean, shown
from workbench.runs.references import places
from workbench.sections import Section
from workbench.sections.policy import MergedName
from workbench.sections.writing import write_yaml

DATA = "data:"
MOST_STAGES = 100
STAGE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
SHIPPED = ASSETS / "pipelines"


class PairsOptions(Section):
    """``pairs``: a policy's own completions, the higher outcome chosen."""

    prompts: int = Field(default=100, ge=1, le=1_000_000)
    """Training prompts sampled."""
    first: int = Field(default=0, ge=0)
    """The first of them."""
    per_group: int = Field(default=1, ge=1, le=64)
    """Pairs of one prompt at most."""
    margin: float = Field(default=0.0, ge=0)
    """Least difference of the outcomes."""


class DemonstrationsOptions(Section):
    """``demonstrations``: a policy's own right completions."""

    prompts: int = Field(default=100, ge=1, le=1_000_000)
    """Training prompts sampled."""
    first: int = Field(default=0, ge=0)
    """The first of them."""
    per_group: int = Field(default=1, ge=1, le=64)
    """Demonstrations of one prompt at most."""
    threshold: float = 1.0
    """Least outcome that is right."""


class LabelsOptions(Section):
    """``labels``: steps of a policy's own completions, labelled by the outcomes of what it samples from their ends."""

    prompts: int = Field(default=100, ge=1, le=1_000_000)
    """Training prompts sampled."""
    first: int = Field(default=0, ge=0)
    """The first of them."""
    completions: int | None = Field(default=None, ge=1)
    """No further prompt is begun once so many completions were sampled, continuations included; None for all."""
    continuations: int = Field(default=8, ge=1, le=1024)
    """Completions sampled from the end of each step."""
    outcome: str = "answer_correctness"
    """The built-in outcome reward that tells whether a continuation succeeds."""
    estimation: Literal["hard", "soft"] = "hard"
    """hard: a step is good if any continuation succeeds; soft: its label is the share that does."""


class MixOptions(Section):
    """``mix``: fresh rows, and a share of earlier ones so that these are not forgotten."""

    fresh: str
    """The rows that are all taken, the last ones held out: data:STAGE or a file."""
    replay: list[str] = Field(min_length=1)
    """Rows trained on before: data:STAGE or files."""
    share: float = Field(default=0.1, ge=0, le=1)
    """Share of each of them that is drawn."""
    seed: int = Field(default=0, ge=0, lt=2**31)
    """Seed of the draw and of the order."""


_SAMPLED = ("policy", "task", "seed", "sampling")
_SCORED = (*_SAMPLED, "rewards")


@dataclass(frozen=True)
class Rows:
    """A data command: its options, the kind of rows that it makes (None: that of its inputs), what it takes of a run's
    configuration, and the words of ``python -m workbench`` that write them to the file named next."""

    options: type[Section]
    kind: str | None
    takes: tuple[str, ...]
    words: tuple[str, ...]


ROWS: dict[str, Rows] = {
    "pairs": Rows(PairsOptions, "pairs", _SCORED, ("pairs", "--trust", "--out")),
    "demonstrations": Rows(DemonstrationsOptions, "demonstrations", _SCORED, ("demonstrations", "--trust", "--out")),
    "labels": Rows(LabelsOptions, "labelled_steps", _SAMPLED, ("step-values", "--labels")),
    "mix": Rows(MixOptions, None, (), ("mix", "--out")),
}
"""The data commands by name."""


@dataclass(frozen=True)
class Place:
    """A field that may name another stage. ``text`` is what stands there."""

    name: str
    section: Section | MergedName
    field: str
    index: int | None = None

    @property
    def text(self) -> str | None:
        value = getattr(self.section, self.field)
        return value if self.index is None else value[self.index]  # type: ignore[no-any-return]

    def set(self, text: str | None) -> None:
        if self.index is None:
            setattr(self.section, self.field, text)
        else:
            values = list(getattr(self.section, self.field))
            values[self.index] = text
            setattr(self.section, self.field, values)


@dataclass(frozen=True)
class Stage:
    """One stage. ``kind`` is ``run`` or a data command's name; ``config`` is what a run trains, or what is sampled."""

    name: str
    kind: str
    config: RunConfig | None = None
    options: Section | None = None
    round: int | None = None

    @property
    def is_run(self) -> bool:
        return self.kind == "run"

    def copy(self) -> Stage:
        """With a configuration and options of its own, to be changed."""
        config = None if self.config is None else self.config.model_copy(deep=True)
        options = None if self.options is None else self.options.model_copy(deep=True)
        return Stage(self.name, self.kind, config, options, self.round)

    def places(self) -> Iterator[Place]:
        """The fields that may name an earlier stage or a run."""
        if self.config is not None:
            for section, field in places(self.config):
                yield Place(_field_name(self.config, section, field), section, field)
            yield Place("task.name", self.config.task, "name")
            yield Place("task.data", self.config.task, "data")
        if isinstance(self.options, MixOptions):
            yield Place("fresh", self.options, "fresh")
            for i in range(len(self.options.replay)):
                yield Place(f"replay.{i}", self.options, "replay", i)

    def to_data(self) -> dict[str, Any]:
        """The stage as ``read_plan`` takes it."""
        settings = {} if self.options is None else self.options.model_dump(mode="json", exclude_unset=True)
        if self.config is not None:
            config = self.config.model_dump(mode="json", exclude_unset=True)
            if self.is_run:
                settings = config
            else:
                method = config.pop("method")
                settings |= {name: (config | method)[name] for name in ROWS[self.kind].takes if name in config | method}
        numbered = {} if self.round is None else {"round": self.round}
        return {"name": self.name, **numbered, self.kind: settings}


@dataclass(frozen=True)
class Plan:
    """The stages in their order."""

    name: str
    about: str
    stages: tuple[Stage, ...]

    def stage(self, name: str) -> Stage:
        return next(stage for stage in self.stages if stage.name == name)

    def to_yaml(self) -> str:
        data = {"name": self.name, "about": self.about, "stages": [stage.to_data() for stage in self.stages]}
        return write_yaml(data, width=120)


def shipped() -> dict[str, Path]:
    """The pipelines that come with the workbench, by name."""
    return {path.stem: path for path in sorted(SHIPPED.glob("*.yaml"))}


def load_plan(
    source: str | Path | Mapping[str, Any], name: str | None = None, known: Mapping[str, Path] | None = None
) -> Plan:
    """The plan in a file, of a name in ``known`` (by default the shipped pipelines), or as plain data.

    Raises ConfigError.
    """
    if isinstance(source, Mapping):
        return read_plan(source, name or "pipeline")
    known = shipped() if known is None else known
    path = known.get(str(source), Path(source))
    if not path.exists():
        raise ConfigError(
            f"there is no file {shown(str(source))}{did_you_mean(source, known)}; give a pipeline's YAML file, or the "
            f"name of one that comes along: {', '.join(known) or 'none'}"
        )
    return read_plan(read_yaml(read_text(path, str(path)), str(path)), name or path.stem)


def read_plan(data: Any, name: str) -> Plan:
    """A plan of a YAML document's values; ``name`` is what it is called unless it says so itself.

    Raises ConfigError with a line for everything that does not fit.
    """
    if not isinstance(data, Mapping):
        raise ConfigError(f"a pipeline is a mapping with 'stages', and this is a {type(data).__name__}")
    for key in data:
        if key not in ("name", "about", "stages"):
            known = did_you_mean(key, ("name", "about", "stages"))
            raise ConfigError(f"{key}: a pipeline has name, about and stages{known}; remove it")
    name = run_name_of(str(data.get("name") or name))
    if not RUN_NAME.fullmatch(name):
        raise ConfigError(
            f"name: {shown(name)} cannot be a pipeline's; use 1 to 80 letters, digits, dots, dashes and underscores"
        )
    written = _written_out(data.get("stages"))
    problems: list[str] = []
    stages = []
    for number, stage in enumerate(written, start=1):
        try:
            stages.append(_stage(stage, number))
        except WorkbenchError as error:
            problems.append(str(error))
    names = [stage.name for stage in stages]
    problems += [f"stage {twice}: two stages have this name; rename one" for twice in _repeated(names)]
    for stage in stages:
        if not RUN_NAME.fullmatch(run_name(name, stage.name)):
            problems.append(f"stage {stage.name}: its run would be called {run_name(name, stage.name)!r}; shorten it")
    if problems:
        raise ConfigError("\n".join(problems))
    return Plan(name, str(data.get("about") or ""), tuple(stages))


def run_name(pipeline: str, stage: str) -> str:
    """The name of a stage's run."""
    return f"{pipeline}.{stage}"


def _written_out(stages: Any) -> list[Any]:
    """The stages with those of every round in their place."""
    if not isinstance(stages, list) or not stages:
        raise ConfigError("stages: give a list with at least one stage")
    written: list[Any] = []
    for entry in stages:
        if not (isinstance(entry, Mapping) and "rounds" in entry):
            written.append(entry)
            continue
        rounds, inner = entry["rounds"], entry.get("stages")
        if isinstance(rounds, bool) or not isinstance(rounds, int) or not 1 <= rounds <= MOST_STAGES:
            raise ConfigError(f"rounds: {shown(rounds)} is no number of rounds; give 1 to {MOST_STAGES}")
        if set(entry) - {"rounds", "stages"} or not isinstance(inner, list) or not inner:
            raise ConfigError("rounds: beside it stands 'stages', a list, and nothing else")
        for number in range(1, rounds + 1):
            written += [_of_round(stage, number) for stage in inner]
    if len(written) > MOST_STAGES:
        raise ConfigError(f"stages: {len(written)} are more than {MOST_STAGES}; make several pipelines of them")
    return written


def _of_round(stage: Any, number: int) -> Any:
    def filled(value: Any) -> Any:
        if isinstance(value, str):
            return value.replace("{round}", str(number)).replace("{before}", str(number - 1))
        if isinstance(value, Mapping):
            return {key: filled(inner) for key, inner in value.items()}
        return [filled(inner) for inner in value] if isinstance(value, list) else value

    return {**filled(stage), "round": number} if isinstance(stage, Mapping) else stage


def _stage(data: Any, number: int) -> Stage:
    """Raises ConfigError, each line beginning with the stage."""
    kinds = ("run", *ROWS)
    if not isinstance(data, Mapping):
        raise ConfigError(f"stage {number}: a mapping with name and one of {', '.join(kinds)} is wanted")
    name = data.get("name")
    if not isinstance(name, str) or not STAGE_NAME.fullmatch(name):
        raise ConfigError(
            f"stage {number}: name {shown(name)} cannot be a stage's; use 1 to 40 letters, digits, dashes and "
            "underscores, a letter or digit first"
        )
    for key in data:
        if key not in ("name", "round", *kinds):
            raise ConfigError(
                f"stage {name}: {shown(key)} is no kind of stage{did_you_mean(key, kinds)}; give one of "
                f"{', '.join(kinds)}"
            )
    given = [kind for kind in kinds if kind in data]
    if len(given) != 1:
        what = " and ".join(given) or "nothing"
        raise ConfigError(f"stage {name}: give one of {', '.join(kinds)}; this one has {what}")
    (kind,) = given
    settings = {} if data[kind] is None else data[kind]
    if not isinstance(settings, Mapping):
        raise ConfigError(f"stage {name}: {kind}: settings by name are wanted, and this is {shown(settings)}")
    round_ = data.get("round")
    return _about(
        name, lambda: _run_stage(name, settings, round_) if kind == "run" else _rows_stage(name, kind, settings, round_)
    )


def _run_stage(name: str, settings: Mapping[str, Any], round_: int | None) -> Stage:
    if "name" in settings:
        raise ConfigError(f"name: {shown(settings['name'])} is not needed; the run is called after its stage")
    return Stage(name, "run", config=_config(settings), round=round_)


def _rows_stage(name: str, kind: str, settings: Mapping[str, Any], round_: int | None) -> Stage:
    command = ROWS[kind]
    fields = (*command.options.model_fields, *command.takes)
    for key in settings:
        if key not in fields:
            raise ConfigError(
                f"{kind}.{key}: there is no such setting{did_you_mean(key, fields)}; there are {', '.join(fields)}"
            )
    options = command.options.parse({key: value for key, value in settings.items() if key not in command.takes})
    if not command.takes:
        return Stage(name, kind, options=options, round=round_)
    config = {key: settings[key] for key in ("policy", "task", "seed") if key in settings}
    method = {key: settings[key] for key in ("sampling", "rewards") if key in settings}
    config["method"] = {"name": "grpo", "credit": {"scheme": "outcome"}, **method}  # which needs an outcome reward
    return Stage(name, kind, _config(config), options, round_)


def _config(settings: Mapping[str, Any]) -> RunConfig:
    try:
        data = migrate(settings)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    task = data.get("task")
    if isinstance(task, Mapping) and str(task.get("name", "")).startswith(DATA):
        raise ConfigError(f"task.name: {shown(task['name'])} is rows to train on; give it as task.data")
    fill_from_task(data)
    return RunConfig.parse(data)


def _about(name: str, make: Callable[[], Stage]) -> Stage:
    try:
        return make()
    except WorkbenchError as error:
        raise ConfigError("\n".join(f"stage {name}: {line}" for line in str(error).splitlines())) from error


def _field_name(config: RunConfig, section: Section | MergedName, field: str) -> str:
    if isinstance(section, MergedName):
        return "policy.merge"
    if section is config.policy:
        return f"policy.{field}"
    reward = next(reward for reward in config.method.reward_functions if reward.model is section)
    return f"rewards.{cut(reward.name, 40)}.model.{field}"


def _repeated(names: list[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})
