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
from workbench.runs.launch import resolved
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
    """Write pairs of completions of one prompt: the higher outcome is the chosen one, by at least ``margin``.

    Raises TaskError if the file is there already or no pair came about.
    """

    limits = {"per_group": per_group, "margin": margin}
    making = _Making("pairs", config, Path(out), prompts, first, groups, workspace, again, tell)
    return making.write(lambda scored: pairs_of(scored, per_group, margin), {"limits": limits})


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
    making = _Making("demonstrations", config, Path(out), prompts, first, groups, workspace, again, tell)
    return making.write(lambda scored: demonstrations_of(scored, per_group, threshold), {"limits": limits})


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

    return _written(prompts_of(scored, low, high, right_from), Path(out), about, began, sampled)


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

    making = _Making("step_values", config, Path(out), prompts, first, None, workspace, again)
    labels = {"labels_as": labels_as, "estimation": estimation, "continuations": continuations}
    about = {"rewards": [{"name": outcome, "kind": "outcome"}], "labels": labels, "completions": completions}
    if (before := _made_before(making.out, making.source | about, again)) is not None:
        return before
    began = time.monotonic()
    rows = labelled_rows(valued or _estimated(making, outcome, continuations), labels_as, estimation, completions)
    count = rows.counts["continuations"] + (rows.counts["completions"] if sampled else 0)
    return _written(rows, making.out, making.source | about, began, count)


def _estimated(making: _Making, outcome: str, continuations: int) -> Iterator[tuple[Group, StepValues]]:
    from workbench.policies.load import load_configured
    from workbench.policies.monte_carlo import step_values

    config = making.config
    policy = load_configured(config.policy)
    for group in sample_prompts(policy, config, making.first, making.prompts):
        values = step_values(policy, group, config.sampled.pattern, outcome, continuations, config.seed)
        assert values is not None  # nothing cancels it
        yield group, values


def mix_rows(
    fresh: Path, replay: Sequence[Path], out: Path | str, *, share: float = 0.1, seed: int = 0, again: bool = False
) -> MadeRows:
    """Write all ``fresh`` rows and ``share`` of the training rows of each file of ``replay``. Raises TaskError."""

    began = time.monotonic()
    made = mixed_of(fresh, replay, share, seed)
    files = [{"file": str(path), "sha256": sha256(path)} for path in (fresh, *replay)]
    about = {"made_by": "mix", "fresh": files[0], "replay": files[1:], "share": share, "seed": seed}
    before = _made_before(Path(out), about, again)
    return before or _written(made, Path(out), about, began, sampled=0)


def sample_prompts(policy: Policy, config: RunConfig, first: int, count: int) -> Iterator[Group]:
    """Sample a group for each of the task's training prompts from ``first`` on. Raises TaskError for no such prompt."""
    from workbench.policies.sampler import sample_groups

    task = prompted(load_task(config.task), config.prompt, policy.tokenizer.chat_template is not None)
    if not 0 <= first < len(task):
        raise TaskError(f"first {first}: {config.task.name} has training prompts 0 to {len(task) - 1}")
    examples = [task[i] for i in range(first, min(first + count, len(task)))]
    kwargs = config.prompt.template_kwargs
    sampling, environment = config.sampled.sampling, config.environment
    return sample_groups(policy, examples, sampling, config.seed, template_kwargs=kwargs, environment=environment)


def score_outcomes(config: RunConfig, groups: Iterable[Group], tell: Tell) -> Iterator[ScoredGroup]:
    """Score the outcomes of groups by the configuration's rewards; steps are not scored."""

    rewards = [reward for reward in config.sampled.rewards if reward.kind == "outcome"]
    for number, group in enumerate(groups, start=1):
        yield score_group(group, config.sampled.pattern, rewards)
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
        "sampling": {**config.sampled.sampling.model_dump(), "seed": config.seed},
        "environment": checkpoints.environment(config),
    }


class _Making:
    """One file of rows: what is sampled for it, and where it goes. Raises TaskError if the file is there already."""

    def __init__(
        self,
        made_by: str,
        config: RunConfig,
        out: Path,
        prompts: int,
        first: int,
        groups: Sequence[Group] | None,
        workspace: Path | str | None,
        again: bool,
        tell: Tell = lambda line: None,
    ) -> None:
        if not again:
            refuse_to_overwrite(out)
        self.made_by, self.out, self.prompts, self.first = made_by, out, prompts, first
        self.config, self.given, self.again, self.tell = resolved(config, workspace), groups, again, tell
        self.source = source_of(made_by, self.config, {"first": first, "count": prompts}, groups)

    def write(self, make: Callable[[Iterator[ScoredGroup]], Made], limits: dict[str, Any]) -> MadeRows:
        from workbench.policies.load import load_configured

        rewards = [reward for reward in self.config.sampled.rewards if reward.kind == "outcome"]
        about = {"rewards": [reward.model_dump(mode="json", exclude_defaults=True) for reward in rewards], **limits}
        if (before := _made_before(self.out, self.source | about, self.again)) is not None:
            return before
        began = time.monotonic()
        groups: Iterable[Group] | None = self.given
        if groups is None:
            groups = sample_prompts(load_configured(self.config.policy), self.config, self.first, self.prompts)
        made = make(score_outcomes(self.config, groups, self.tell))
        sampled = 0 if self.given is not None else made.counts["completions"]
        return _written(made, self.out, self.source | about, began, sampled)


def _made_before(file: Path, about: dict[str, Any], again: bool) -> MadeRows | None:
    """Return the rows that were made with the same settings. Raises TaskError for a file of other settings."""

    if not file.exists():
        return None
    if not again:
        refuse_to_overwrite(file)
    written = read_json(provenance_of(file))
    settings = json.loads(encode({name: value for name, value in about.items() if name != "environment"}))
    if written["sha256"] != sha256(file) or settings != {name: written.get(name) for name in settings}:
        raise TaskError(f"{file} was made with other settings, or changed since; remove it, and it is made again")
    spent = (written["completions_sampled"], written["seconds"], written["peak_memory_mb"])
    return MadeRows(str(file), str(provenance_of(file)), written["rows"], written["counts"], *spent)


def _written(made: Made, file: Path, about: dict[str, Any], began: float, sampled: int) -> MadeRows:
    seconds, peak = round(time.monotonic() - began, 1), checkpoints.peak_memory_mb()
    spent = {"rows": len(made.rows), "completions_sampled": sampled, "seconds": seconds, "peak_memory_mb": peak}
    beside = write_made(made, file, {**about, **spent})
    return MadeRows(str(file), str(beside), len(made.rows), dict(made.counts), sampled, seconds, peak)
