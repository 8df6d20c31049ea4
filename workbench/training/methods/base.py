"""The form of a training method: its section, its trainer, and what its page shows.

Light at import: pages and commands read sections and metrics without loading torch or trl.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from pydantic import Field

from workbench.config import MethodSection, Pattern, SamplingConfig, SharedConfig
from workbench.data import HUB, Kind, Task, load_rows, load_task, prompted
from workbench.errors import ConfigError
from workbench.policies.prompts import find_chat_template
from workbench.rewards import RewardConfig
from workbench.rewards.protocol import RESERVED
from workbench.schema import Example, OnAnswers, OnCredit, OnPass, OnRows, say_count
from workbench.steps import StepPattern

if TYPE_CHECKING:
    import pyarrow as pa

    from workbench.training.saving import Resumable


Trainer: TypeAlias = "Resumable"
"""transformers' own, with what ``training.saving`` adds for a run's process."""


@dataclass(frozen=True)
class Listeners:
    """The functions that a trainer tells of groups that it samples, where its method does, and of every event."""

    on_rollouts: OnCredit | None = None
    """Gets the groups that are trained on."""
    on_watched: OnCredit | None = None
    """Gets the groups of the run's watched prompts."""
    on_rows: OnRows | None = None
    """Gets the run's watched rows, by methods that train on stored rows."""
    on_answers: OnAnswers | None = None
    """Gets the answers to the held-out rows whenever accuracy is measured; on the first rank."""
    on_pass: OnPass | None = None
    """Gets what each optimiser step over a generation that ``on_rollouts`` got computed its loss from."""
    callbacks: Sequence[Any] = ()
    """transformers' ``TrainerCallback`` objects."""


NOBODY = Listeners()

Seen: TypeAlias = tuple[str, list[dict[str, Any]], dict[str, float]]
"""A watched row: the prompt as the model reads it, its texts as ``training.watching.watched_text`` takes them, and
numbers of the whole row."""


Build = Callable[..., Trainer]
"""``build(config, output_dir, listeners)`` makes the trainer of a configuration whose ``method`` is this section.

Raises WorkbenchError for anything in the configuration that cannot be loaded or cannot work together.
"""


@dataclass(frozen=True)
class Method:
    """``metrics`` are the names of ``metrics.jsonl`` that its page shows first; ``has_rollouts``: it stores groups.

    ``settings`` are the fields of its section that its form shows first; the others are folded away. All where none are
    named. ``when`` says what it needs and when to choose it, in a sentence or two for its form. Lists are in the
    ``order`` of methods.
    """

    section: type[MethodSection]
    build: Build
    metrics: tuple[str, ...]
    has_rollouts: bool = False
    settings: tuple[str, ...] = ()
    when: str = ""
    order: int = 100

    @property
    def name(self) -> str:
        return str(self.section.model_fields["name"].default)

    @property
    def summary(self) -> str:
        """One line on the method: the first of its section's docstring."""
        return (self.section.__doc__ or "").strip().splitlines()[0]


class SampledSection(MethodSection):
    """Base of methods that train on groups of sampled completions: how they are sampled, cut into steps and scored."""

    trl_config, usual_learning_rate = "GRPOConfig", 1e-6
    pattern: Pattern = Field(default_factory=StepPattern)
    rewards: list[RewardConfig] = Field(
        default_factory=lambda: [
            RewardConfig(name="step_correctness", kind="step"),
            RewardConfig(name="answer_correctness", kind="outcome"),
        ]
    )
    """The reward functions."""
    sampling: SamplingConfig = Field(default_factory=SamplingConfig)
    prompts_per_step: int = Field(default=6, ge=1, le=4096)
    """Distinct prompts in one generation; the batch is this times G."""
    max_prompt_length: int | None = Field(title="Longest prompt (tokens)", default=None, ge=1, le=10_000_000)
    """Tokens of a prompt at most: longer ones are refused or skipped (task.long_prompts); none for what has room."""
    num_iterations: int = Field(title="Updates per batch μ", default=1, ge=1, le=64)
    """mu, the optimiser passes over one generation."""
    mask_truncated_completions: bool = False
    """Leave truncated completions out of the loss."""
    rollouts_every: int = Field(title="Steps between stored rollouts", default=1, ge=1, le=1_000_000)
    """Store the rollouts of every n-th generation."""
    reward_deadline: float = Field(title="Deadline of a reward (s)", default=30.0, gt=0, le=86_400)
    """Seconds one reward function's code may take for a rank's whole batch."""
    on_reward_error: Literal["stop", "unscored"] = "stop"
    """When a reward function fails: stop the run, or leave what it failed on unscored."""
    max_reward_errors: int = Field(title="Reward errors tolerated", default=20, ge=0, le=1_000_000)
    """Such failures a run survives, over all ranks, if on_reward_error is unscored."""

    @property
    def reward_functions(self) -> Sequence[RewardConfig]:
        return self.rewards

    @property
    def iterations(self) -> int:
        return self.num_iterations

    @property
    def rollouts_per_step(self) -> int:
        return self.prompts_per_step * self.sampling.num_generations

    def steps_of_epochs(self, config: SharedConfig, epochs: float) -> int:

        return math.ceil(epochs * len(load_task(config.task)) / self.prompts_per_step) * self.num_iterations

    def check(self, config: SharedConfig) -> None:
        if config.task.data is not None:
            raise ValueError(
                f"task.data: {self.name} trains on prompts, which task.name gives; leave it out, or choose a method "
                "that trains on stored rows"
            )
        if not self.rewards:
            raise ValueError("method.rewards: give at least one reward function")
        names = [reward.name for reward in self.rewards]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"method.rewards: {sorted(twice)[0]!r} is given twice; give each function its own name")
        values = [reward for reward in self.rewards if reward.monte_carlo is not None]
        grouped = [reward.name for reward in values if reward.monte_carlo and reward.monte_carlo.progress]
        if grouped and self.prompts_per_step % config.run.ranks:
            raise ValueError(
                f"method.prompts_per_step: {self.prompts_per_step} prompts on {config.run.ranks} ranks split a group, "
                f"and {grouped[0]!r} needs its whole group on one; make it a multiple of {config.run.ranks}"
            )
        if config.environment.name is not None and values:
            raise ValueError(
                f"environment.name: {values[0].name!r} samples on from the end of a step, where "
                f"{config.environment.name!r} would have to be played again up to there; leave one of the two out"
            )
        _check_batch(config, self.rollouts_per_step, "completions", "method.prompts_per_step")

    def check_rows(self, config: SharedConfig) -> None:
        if not config.task.name.startswith(HUB):  # whose rows may be many: they are read when the run loads them
            self.rows_of(config, load_task(config.task))

    def rows_wanted(self, config: SharedConfig) -> int:
        """Return how many rows a run will ask for, at least a thousand."""
        return max(config.run.steps * self.prompts_per_step, 1000)

    def rows_of(self, config: SharedConfig, task: Task) -> pa.Table:
        """Return the prompts and columns of ``rows_wanted``, drawn from all rows; of all where there are fewer.

        Raises ConfigError for a task with fewer rows than one generation takes, or whose columns make no table.
        """
        import pyarrow as pa

        if len(task) < self.prompts_per_step:
            raise ConfigError(
                f"method.prompts_per_step: {self.prompts_per_step} distinct prompts are asked for and the "
                f"task has {len(task)} training rows; set it to {len(task)} or less, or give more rows"
            )
        rows: Sequence[Example] = task.some("prompts", self.rows_wanted(config), config.seed)
        # TRL hands columns to reward functions by name, those of the first row, beside what it gives them itself;
        # images it takes for a prompt's pictures.
        taken = RESERVED | {"image", "images"}
        names = dict.fromkeys(name for row in rows for name in row.columns if name not in taken)
        try:
            return pa.Table.from_pylist(
                [{"prompt": row.prompt, **{name: row.columns.get(name) for name in names}} for row in rows]
            )
        except (pa.ArrowException, OverflowError) as error:
            raise ConfigError(
                f"task {config.task.name!r}: a column holds values of several kinds "
                f"({str(error).splitlines()[0][:200]}); make them all text, say"
            ) from error

    def facts(self) -> list[tuple[str, str]]:
        return [
            ("pattern", f"{self.pattern.regex}  ({self.pattern.kind})"),
            ("rewards", ", ".join(f"{reward.name}{reward.weight_text}" for reward in self.rewards)),
            ("batch", f"{say_count(self.prompts_per_step, 'prompt')} × {self.sampling.num_generations}"),
        ]

    def less_memory(self, config: SharedConfig) -> str:
        batch = self.rollouts_per_step // config.run.ranks
        return (
            f"try smaller G (method.sampling.num_generations, now {self.sampling.num_generations}), shorter "
            f"completions (method.sampling.max_completion_length, now {self.sampling.max_completion_length}), fewer "
            f"prompts per step (method.prompts_per_step, now {self.prompts_per_step}) or a smaller "
            f"run.micro_batch_size (now {config.run.micro_batch_size or batch})"
        )


def _check_batch(config: SharedConfig, batch: int, unit: str, field: str) -> None:
    """Raise ValueError, with the fix, for a batch that its ranks or micro-batches do not divide."""
    ranks, micro = config.run.ranks, config.run.micro_batch_size
    if batch % ranks:
        raise ValueError(
            f"run.ranks: a batch of {batch} {unit} does not divide over {ranks} ranks; make {field} a multiple of it"
        )
    share = batch // ranks
    if micro is not None and share % micro:
        nearest = min((n for n in range(1, share + 1) if share % n == 0), key=lambda n: abs(n - micro))
        raise ValueError(
            f"run.micro_batch_size: {micro} does not divide the {share} {unit} of a rank's batch; try {nearest}"
        )


def section_of(config: SharedConfig) -> SampledSection:
    """The settings of a run that samples. Raises ConfigError for a run by another method, which has no rollouts."""
    if not isinstance(config.method, SampledSection):
        raise ConfigError(
            f"method: this needs a run that samples completions, and the method {config.method.name!r} trains on "
            "stored rows"
        )
    return config.method


_LEAST_ROWS = 1000
"""Rows that are taken where there are that many, however few the run's steps ask for: epochs mix them all."""


class StoredSection(MethodSection):
    """Base of methods that train on rows of one kind: their batch, and what is checked of them."""

    kind: ClassVar[Kind]
    """The kind of rows."""
    batch_size: int = Field(default=32, ge=1, le=65_536)
    """Rows (demonstrations, pairs, labelled completions) in one step, over all ranks; all there are where fewer."""
    max_length: int = Field(title="Longest row (tokens)", default=1024, ge=2, le=131_072)
    """Tokens of prompt and completion together; what is longer is cut off, or left out where a score is learnt."""

    @property
    def rows_per_step(self) -> int:
        return self.batch_size

    @property
    def unit(self) -> str:
        """Return what a row is called, in the plural."""
        return self.kind

    @property
    def why_left_out(self) -> str:
        """Return what is wrong with rows that the run leaves out."""
        return f"they do not fit method.max_length, {self.max_length:,} tokens"

    def check(self, config: SharedConfig) -> None:
        _check_batch(config, self.batch_size, self.unit, "method.batch_size")
        if self.reward_format is not None and config.policy.quantisation != "none":
            raise ValueError(
                f"policy.quantisation: {self.name} trains a reward model, whose weights are saved in full; set it to "
                "none (policy.dtype bfloat16 halves them)"
            )

    def check_rows(self, config: SharedConfig) -> None:
        self.training_rows(config)
        self.eval_rows(config)

    def training_rows(self, config: SharedConfig) -> list[Any]:
        """The rows that the run trains on; a step takes all where they are fewer than a batch. Raises TaskError."""
        task = _rows(config)
        return list(task.some(self.kind, max(config.run.steps * self.batch_size, _LEAST_ROWS), config.seed))

    def steps_of_epochs(self, config: SharedConfig, epochs: float) -> int:
        return math.ceil(epochs * len(_rows(config).rows(self.kind)) / self.batch_size)

    def eval_rows(self, config: SharedConfig) -> list[Any]:
        """Return the rows that the run is measured on, none if it measures nothing. Raises TaskError, ConfigError."""
        if not config.run.eval_steps:
            return []
        rows = _rows(config).rows(self.kind, held_out=True)
        if config.task.data is None:
            return [rows[i] for i in config.run.measured(len(rows))]
        # No row of a file is kept apart: eval_skip is prompts'.
        return [rows[i] for i in range(min(len(rows), config.run.eval_prompts))]

    def less_memory(self, config: SharedConfig) -> str:
        return (
            f"try shorter {self.unit} (method.max_length, now {self.max_length}), a smaller method.batch_size (now "
            f"{self.batch_size}) or a smaller run.micro_batch_size "
            f"(now {config.run.micro_batch_size or self.batch_size // config.run.ranks})"
        )


def _rows(config: SharedConfig) -> Task:
    has_template = find_chat_template(config.policy.path) is not None
    return prompted(load_rows(config.task), config.prompt, has_template)
