"""Rows to train on, made of a policy's own completions: pairs, demonstrations, labelled steps; and mixes of such rows.

Each function samples the prompts ``first`` to ``first + prompts - 1`` of the configuration's task (or takes ``groups``
that were sampled before), scores them, and writes JSONL in TRL's format with ``FILE.provenance.json`` beside it. With
``again`` a file that was made with the same settings is passed by, as a run that is finished is.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.config import LabelFormat
from workbench.data import load_task, prompted
from workbench.data.made import (
    Made,
    demonstrations_of,
    mixed_of,
    pairs_of,
    prompts_of,
    provenance_of,
    refuse_to_overwrite,
    write_made,
)
from workbench.errors import TaskError
from workbench.files import encode, read_json, sha256
from workbench.policies.step_values import Estimation, StepValues, labelled_rows
from workbench.rewards import score_group
from workbench.rundir import checkpoints
from workbench.runs.launch import resolve
from workbench.schema import Group, ScoredGroup
from workbench.training.methods import RunConfig

if TYPE_CHECKING:
    from workbench.policies.load import Policy

Tell = Callable[[str], None]


@dataclass(frozen=True)
class MadeRows:
    """A file of rows that was made; ``completions_sampled`` counts continuations too, and is 0 for groups given."""

    file: str
    provenance: str
    rows: int
    counts: dict[str, int]
    completions_sampled: int
    seconds: float
    peak_memory_mb: float | None

    def __str__(self) -> str:
        told = ", ".join(f"{what} {count}" for what, count in self.counts.items() if count)
        return f"{self.file}: {told}\nwhere they come from: {self.provenance}"

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def make_pairs(
    config: RunConfig,
    out: Path | str,
    *,
    prompts: int = 100,
    first: int = 0,
    per_group: int = 1,
    margin: float = 0.0,
    groups: Sequence[Group] | None = None,
    again: bool = False,
    workspace: Path | str | None = None,
    tell: Tell = lambda line: None,
) -> MadeRows:
    """Write pairs of completions of the same prompt, the higher outcome chosen; ties are dropped.

    Raises TaskError for a file that is there already (with ``again``, if it was made with other settings), for no such
    prompts, and where there is no pair.
    """
    limits, make = {"per_group": per_group, "margin": margin}, partial(pairs_of, most=per_group, margin=margin)
    asked = (config, Path(out), prompts, first, groups, again, workspace, tell)
    return _of_outcomes("pairs", make, limits, *asked)


def make_demonstrations(
    config: RunConfig,
    out: Path | str,
    *,
    prompts: int = 100,
    first: int = 0,
    per_group: int = 1,
    threshold: float = 1.0,
    groups: Sequence[Group] | None = None,
    again: bool = False,
    workspace: Path | str | None = None,
    tell: Tell = lambda line: None,
) -> MadeRows:
    """Write the completions whose outcome is at least ``threshold``, at most ``per_group`` of each prompt.

    Raises TaskError as ``make_pairs`` does.
    """
    limits = {"per_group": per_group, "threshold": threshold}
    make = partial(demonstrations_of, most=per_group, threshold=threshold)
    asked = (config, Path(out), prompts, first, groups, again, workspace, tell)
    return _of_outcomes("demonstrations", make, limits, *asked)


def _of_outcomes(
    made_by: str,
    make: Callable[[Iterator[ScoredGroup]], Made],
    limits: dict[str, Any],
    config: RunConfig,
    out: Path,
    prompts: int,
    first: int,
    groups: Sequence[Group] | None,
    again: bool,
    workspace: Path | str | None,
    tell: Tell,
) -> MadeRows:
    """Sample groups, or take those given, score their outcomes and write what ``make`` makes of them."""
    config = resolve(config, workspace)
    rewards = [reward for reward in config.sampling_section.rewards if reward.kind == "outcome"]
    about = source_of(made_by, config, {"first": first, "count": prompts}, groups) | {
        "rewards": [reward.model_dump(mode="json", exclude_defaults=True) for reward in rewards],
        "limits": limits,
    }

    def sample_and_make() -> tuple[Made, int]:
        from workbench.policies.load import load_configured

        if groups is not None:
            return make(score_outcomes(config, groups, tell)), 0
        sampled = sample_prompts(load_configured(config.policy), config, first, prompts)
        made = make(score_outcomes(config, sampled, tell))
        return made, made.counts["completions"]

    return _write_once(out, about, again, sample_and_make)


def make_prompts(
    out: Path | str,
    scored: Iterable[ScoredGroup],
    *,
    low: float,
    high: float,
    right_from: float = 1.0,
    about: dict[str, Any],
    began: float,
    sampled: int = 0,
) -> MadeRows:
    """Write the prompts of scored groups whose pass rate is from ``low`` to ``high``. Raises TaskError as above."""
    return _write(prompts_of(scored, low, high, right_from), Path(out), about, began, sampled)


def label_steps(
    config: RunConfig,
    out: Path | str,
    *,
    prompts: int = 100,
    first: int = 0,
    continuations: int = 8,
    outcome: str = "answer_correctness",
    estimation: Estimation = "hard",
    labels_as: LabelFormat = "trl",
    completions: int | None = None,
    valued: Iterable[tuple[Group, StepValues]] | None = None,
    sampled: bool = True,
    again: bool = False,
    workspace: Path | str | None = None,
) -> MadeRows:
    """Write completions with a label for each step, from its Monte-Carlo value (Math-Shepherd, arXiv 2312.08935).

    No further prompt is begun once ``completions`` were sampled, continuations included. ``valued`` gives groups whose
    steps are valued already; their completions count unless they were not ``sampled`` for this. Raises TaskError as
    ``make_pairs`` does.
    """
    config = resolve(config, workspace)
    about = source_of("step_values", config, {"first": first, "count": prompts}) | {
        "rewards": [{"name": outcome, "kind": "outcome"}],
        "labels": {"labels_as": labels_as, "estimation": estimation, "continuations": continuations},
        "completions": completions,
    }

    def estimate() -> Iterator[tuple[Group, StepValues]]:
        from workbench.policies.load import load_configured
        from workbench.policies.monte_carlo import step_values

        policy = load_configured(config.policy)
        for group in sample_prompts(policy, config, first, prompts):
            values = step_values(policy, group, config.sampling_section.pattern, outcome, continuations, config.seed)
            assert values is not None  # nothing cancels it
            yield group, values

    def label() -> tuple[Made, int]:
        rows = labelled_rows(valued or estimate(), labels_as, estimation, completions)
        return rows, rows.counts["continuations"] + (rows.counts["completions"] if sampled else 0)

    return _write_once(Path(out), about, again, label)


def mix_rows(
    fresh: Path, replay: Sequence[Path], out: Path | str, *, share: float = 0.1, seed: int = 0, again: bool = False
) -> MadeRows:
    """Write all ``fresh`` rows and ``share`` of the training rows of each file of ``replay``. Raises TaskError."""
    files = [{"file": str(path), "sha256": sha256(path)} for path in (fresh, *replay)]
    about = {"made_by": "mix", "fresh": files[0], "replay": files[1:], "share": share, "seed": seed}
    return _write_once(Path(out), about, again, lambda: (mixed_of(fresh, replay, share, seed), 0))


def sample_prompts(policy: Policy, config: RunConfig, first: int, count: int) -> Iterator[Group]:
    """Sample a group for each of the task's training prompts from ``first`` on. Raises TaskError for no such prompt."""
    from workbench.policies.sampler import sample_groups

    task = prompted(load_task(config.task), config.prompt, policy.tokenizer.chat_template is not None)
    if not 0 <= first < len(task):
        raise TaskError(f"first {first}: {config.task.name} has training prompts 0 to {len(task) - 1}")
    examples = [task[i] for i in range(first, min(first + count, len(task)))]
    kwargs = config.prompt.template_kwargs
    sampling, environment = config.sampling_section.sampling, config.environment
    return sample_groups(policy, examples, sampling, config.seed, template_kwargs=kwargs, environment=environment)


def score_outcomes(config: RunConfig, groups: Iterable[Group], tell: Tell) -> Iterator[ScoredGroup]:
    """Score the outcomes of groups by the configuration's rewards; steps are not scored."""

    rewards = [reward for reward in config.sampling_section.rewards if reward.kind == "outcome"]
    for number, group in enumerate(groups, start=1):
        yield score_group(group, config.sampling_section.pattern, rewards)
        if number % 20 == 0:
            tell(f"{number} groups")


def source_of(
    made_by: str, config: RunConfig, prompts: dict[str, int], groups: Sequence[Any] | None = None
) -> dict[str, Any]:
    """Return what made and sampled the completions, for a file's provenance."""
    return {
        "made_by": made_by,
        "policy": config.policy.model_dump(exclude={"lora"}),
        "task": config.task.name,
        "prompt": config.prompt.model_dump(),
        "groups_given": None if groups is None else len(groups),
        "prompts": prompts,
        "sampling": {**config.sampling_section.sampling.model_dump(), "seed": config.seed},
        "environment": checkpoints.environment(config),
    }


def _write_once(file: Path, about: dict[str, Any], again: bool, make: Callable[[], tuple[Made, int]]) -> MadeRows:
    """Write the rows of ``make``, which returns how many completions it sampled, too.

    A file that was made with the same settings is passed by if ``again``. Raises TaskError for any other one.
    """
    if not again:
        refuse_to_overwrite(file)
    if not file.exists():
        began = time.monotonic()
        made, sampled = make()
        return _write(made, file, about, began, sampled)
    written = read_json(provenance_of(file))
    settings = json.loads(encode({name: value for name, value in about.items() if name != "environment"}))
    if written["sha256"] != sha256(file) or settings != {name: written.get(name) for name in settings}:
        raise TaskError(f"{file} was made with other settings, or changed since; remove it, and it is made again")
    spent = (written["completions_sampled"], written["seconds"], written["peak_memory_mb"])
    return MadeRows(str(file), str(provenance_of(file)), written["rows"], written["counts"], *spent)


def _write(made: Made, file: Path, about: dict[str, Any], began: float, sampled: int) -> MadeRows:
    seconds, peak = round(time.monotonic() - began, 1), checkpoints.peak_memory_mb()
    spent = {"rows": len(made.rows), "completions_sampled": sampled, "seconds": seconds, "peak_memory_mb": peak}
    beside = write_made(made, file, {**about, **spent})
    return MadeRows(str(file), str(beside), len(made.rows), dict(made.counts), sampled, seconds, peak)
