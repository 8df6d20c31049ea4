"""Checks of a whole pipeline before any of its stages is started: what stages name, and each as a run of its own.

What an earlier stage will have made is not there yet. A policy that a stage trains has the architecture and the
tokenizer of the one it starts from, which stands in for it; rows are known by their kind, a reward model by its format.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from workbench.config import METHODS, ModelConfig, RunConfig
from workbench.errors import ConfigError, RunError, WorkbenchError, did_you_mean
from workbench.places import RUN, absolute, is_of_run
from workbench.runs.check import checked, with_absolute_paths
from workbench.runs.pipelines.plan import DATA, ROWS, MixOptions, Place, Plan, Stage, run_name
from workbench.runs.references import REFERENCE, find_checkpoint, resolved
from workbench.runs.run import list_runs
from workbench.tasks import load_task


def check_plan(plan: Plan, workspace: Path, *, deeply: bool = True) -> Plan:
    """The plan with absolute paths. Raises ConfigError with a line for everything that would keep it from working.

    Not ``deeply``: what runs themselves are refused for is left out.
    """
    check = _PlanCheck(plan, workspace)
    check.references()
    if deeply and not check.problems:
        check.configurations()
    if check.problems:
        raise ConfigError("\n".join(dict.fromkeys(check.problems)))
    return Plan(plan.name, plan.about, tuple(map(_with_absolute_paths, plan.stages)))


def named_stage(text: str | None, stages: Mapping[str, Stage]) -> tuple[Stage | None, int | None]:
    """The stage that ``run:STAGE``, ``run:STAGE@STEP`` or ``data:STAGE`` names, and the step; None for no stage's."""
    if text is not None and text.startswith(DATA):
        return stages.get(text.removeprefix(DATA)), None
    match = REFERENCE.fullmatch(text or "")
    if match is None:
        return None, None
    return stages.get(match[1]), None if match[2] is None else int(match[2])


class _PlanCheck:
    """One check: the plan, and the problems met so far."""

    def __init__(self, plan: Plan, workspace: Path) -> None:
        self.plan, self.workspace = plan, workspace
        self.stages = {stage.name: stage for stage in plan.stages}
        self.order = {name: number for number, name in enumerate(self.stages)}
        self.problems: list[str] = []

    def references(self) -> None:
        """What each stage names is there, comes before it, and is of the kind that it needs."""
        for stage in self.plan.stages:
            for place in stage.places():
                for problem in self._reference(stage, place):
                    self.problems.append(f"stage {stage.name}: {place.name}: {problem}")
            if stage.kind == "mix":
                self._same_kinds(stage)

    def configurations(self) -> None:
        """Each stage's configuration passes the check of a single run."""
        for stage in self.plan.stages:
            if stage.config is None:
                continue
            try:
                config, rows_later = self._stand_in(stage)
                checked(config, without_rows=rows_later)
            except WorkbenchError as error:
                self.problems += [f"stage {stage.name}: {line}" for line in str(error).splitlines()]

    # -- what stages name -------------------------------------------------------------------------------------------

    def _reference(self, stage: Stage, place: Place) -> Iterator[str]:
        text = place.text
        if text is None or not text.startswith((DATA, RUN)):
            if stage.kind == "mix" and not Path(text or "").expanduser().is_file():
                yield f"there is no file {text!r}; give data:STAGE, or a JSONL file"
            return
        named, step = named_stage(text, self.stages)
        wants_rows = place.name == "task.data" or stage.kind == "mix"
        if text.startswith(DATA) and not wants_rows:
            yield f"{text} is rows, and this is a model; give run:STAGE"
        elif text.startswith(RUN) and wants_rows:
            yield f"{text} is a model, and these are rows; give data:STAGE"
        elif named is None:
            yield from self._unknown(stage, text, wants_rows)
        elif self.order[named.name] >= self.order[stage.name]:
            yield self._later(stage, named)
        elif named.is_run == wants_rows:
            yield f"stage {named.name!r} makes {'a model' if named.is_run else 'rows'}; " + (
                f"give {DATA if not named.is_run else RUN}{named.name} where that is wanted"
            )
        elif wants_rows:
            yield from self._wrong_rows(stage, named)
        else:
            yield from self._wrong_model(stage, place, named, step)
            yield from _wrong_step(named, step)

    def _unknown(self, stage: Stage, text: str, wants_rows: bool) -> Iterator[str]:
        name = text.partition(":")[2]
        earlier = self.plan.stages[: self.order[stage.name]]
        of_kind = [other.name for other in earlier if other.is_run != wants_rows]
        if wants_rows:
            near = did_you_mean(name, of_kind)
            yield f"there is no stage {name!r}{near}; earlier ones that make rows: {_list(of_kind)}"
            return
        try:
            find_checkpoint(text, self.workspace)
        except RunError as error:
            match = REFERENCE.fullmatch(text)
            others = [*of_kind, *(run.name for run in list_runs(self.workspace))]
            near = did_you_mean(match[1] if match else name, others)
            yield f"no stage is called so, and {error}{near}"

    def _later(self, stage: Stage, named: Stage) -> str:
        if named is stage:
            return "a stage cannot name itself"
        circle = self._needs(named, stage.name, set())
        if circle:
            path = " → ".join([stage.name, *circle])
            return f"stage {named.name!r} needs {stage.name!r} itself, which is a circle: {path}; take one of them out"
        return f"stage {named.name!r} comes later; move it before {stage.name!r}"

    def _needs(self, stage: Stage, target: str, seen: set[str]) -> list[str]:
        """The stages from ``stage`` to ``target`` by what each names; empty where it does not lead there."""
        if stage.name == target:
            return [target]
        seen.add(stage.name)
        for place in stage.places():
            named, _ = named_stage(place.text, self.stages)
            if named is not None and named.name not in seen and (path := self._needs(named, target, seen)):
                return [stage.name, *path]
        return []

    # -- kinds ------------------------------------------------------------------------------------------------------

    def rows_kind(self, stage: Stage) -> str | None:
        """The kind of rows that a data stage makes; None where a mix names something that is not there."""
        if not isinstance(stage.options, MixOptions):
            return ROWS[stage.kind].kind
        return self._input_kind(stage.options.fresh)

    def _input_kind(self, text: str) -> str | None:
        named, _ = named_stage(text, self.stages)
        if named is not None:
            return None if named.is_run else self.rows_kind(named)
        try:
            return load_task(text).kind
        except WorkbenchError:
            return None  # said by whoever looks for it

    def _wrong_rows(self, stage: Stage, named: Stage) -> Iterator[str]:
        if stage.config is None:
            return
        wanted, kind = stage.config.method.kind, self.rows_kind(named)
        if kind is not None and wanted is not None and kind != wanted:
            can = [name for name, method in METHODS.items() if method.section.kind == kind]
            yield (
                f"{stage.config.method.name} trains on {_words(wanted)}, and {named.name!r} makes {_words(kind)}; "
                f"name a stage that makes {_words(wanted)}, or take the method {_list(can, ' or ')}"
            )

    def _same_kinds(self, stage: Stage) -> None:
        assert isinstance(stage.options, MixOptions)
        fresh = self._input_kind(stage.options.fresh)
        for i, text in enumerate(stage.options.replay):
            kind = self._input_kind(text)
            if None not in (fresh, kind) and kind != fresh:
                self.problems.append(
                    f"stage {stage.name}: replay.{i}: {text} holds {_words(kind)}, and the fresh rows are "
                    f"{_words(fresh)}; mix rows of one kind"
                )

    def _wrong_model(self, stage: Stage, place: Place, named: Stage, step: int | None) -> Iterator[str]:
        assert stage.config is not None
        assert named.config is not None
        made = named.config.method.reward_format
        trained = f"stage {named.name!r} ({named.config.method.name}) trains a {_product(made)}"
        if isinstance(place.section, ModelConfig):
            if (wanted := place.section.format) != made:
                what = f"name a stage that trains a {_product(wanted)}" if made is None else f"its format is {made!r}"
                yield f"{trained}, and this is to be one of the format {wanted!r}; {what}"
            elif step is not None and named.config.policy.lora is not None:
                yield f"stage {named.name!r} saves its adapter alone until its end; name {RUN}{named.name}"
            return
        if made not in (None, stage.config.method.reward_format if stage.is_run else None):
            yield f"{trained}, which writes no text; name a stage that trains a policy"
        whole = named.config.policy.lora is None and named.config.policy.adapter is None
        wants_adapter = place.name in ("policy.adapter", "policy.merge")
        if wants_adapter and whole:
            yield f"stage {named.name!r} trains whole weights, no adapter; name it as policy.path"
        is_trained_on = not whole and made is None and stage.config.method.reward_format is None
        if place.field == "path" and is_trained_on and stage.config.policy.lora is not None:
            yield f"stage {named.name!r} trains an adapter, which is trained on; leave policy.lora out"

    # -- configurations ---------------------------------------------------------------------------------------------

    def _stand_in(self, stage: Stage) -> tuple[RunConfig, bool]:
        """The stage's configuration with what is there in the place of what will be, and whether its rows are not."""
        config = stage.copy().config
        assert config is not None
        config.policy.path = self._base(config.policy.path)
        if self._is_stage(config.policy.adapter):
            config.policy.adapter = None
        config.policy.merge = {name: share for name, share in config.policy.merge.items() if not self._is_stage(name)}
        rows_later = (config.task.data or "").startswith(DATA)
        if rows_later:
            config.task.data = None
        trained_here = [
            r for r in config.method.reward_functions if r.model is not None and self._is_stage(r.model.path)
        ]
        for reward in trained_here:
            reward.model.path = "tiny"  # type: ignore[union-attr]
        config = resolved(config, self.workspace)
        if trained_here:  # what they are was checked where they are trained
            names = [reward.name for reward in trained_here]
            there = [reward for reward in config.method.reward_functions if reward.name not in names]
            config.method.rewards = there  # type: ignore[attr-defined]
        return config, rows_later

    def _base(self, path: str) -> str:
        named, _ = named_stage(path, self.stages)
        return path if named is None or named.config is None else self._base(named.config.policy.path)

    def _is_stage(self, text: str | None) -> bool:
        return named_stage(text, self.stages)[0] is not None


def carried_out(stage: Stage, plan: Plan, files: Mapping[str, Path]) -> Stage:
    """The stage with the runs and files of earlier stages (``files``, by stage) in the place of their names."""
    stage, stages = stage.copy(), {other.name: other for other in plan.stages}
    for place in stage.places():
        text = place.text
        named, step = named_stage(text, stages)
        if text is None or named is None:
            continue
        if text.startswith(DATA):
            place.set(str(files[named.name]))
        else:
            place.set(f"{RUN}{run_name(plan.name, named.name)}" + ("" if step is None else f"@{step}"))
    return stage


def _wrong_step(named: Stage, step: int | None) -> Iterator[str]:
    assert named.config is not None
    run = named.config.run
    if step is None:
        return
    every, last = run.save_every, run.steps
    kept = [] if not every else list(range(every, last + 1, every))[-run.keep_checkpoints :]
    if step not in kept:
        yield (
            f"stage {named.name!r} will have the checkpoints of steps {_list(map(str, kept))} and its final one; name "
            "one of them, or change its run.save_every and run.keep_checkpoints"
        )


def _with_absolute_paths(stage: Stage) -> Stage:
    stage = stage.copy()
    if stage.config is not None:
        return Stage(stage.name, stage.kind, with_absolute_paths(stage.config), stage.options, stage.round)
    for place in stage.places():
        if place.text is not None and not is_of_run(place.text):
            place.set(absolute(place.text))
    return stage


def _product(reward_format: str | None) -> str:
    if reward_format is None:
        return "policy"
    return "reward model" if reward_format == "classifier" else "process reward model"


def _words(kind: str | None) -> str:
    return str(kind).replace("_", " ")


def _list(names: Iterator[str] | list[str], last: str = ", ") -> str:
    return last.join(names) or "none"
