"""The settings of every run, whatever the method (``SharedConfig``), and what every method's section answers.

Everything below ``workbench.config`` that needs to know of a run takes a ``SharedConfig``; which methods there are is
known above (``workbench.training.methods``, and ``RunConfig``, which names them).
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self, TypeVar

from pydantic import Field, SerializeAsAny, field_validator, model_validator

from workbench.config.engine import EngineSection, check_engine
from workbench.config.policy import OptimiserSection, PolicySection
from workbench.config.reading import write_yaml
from workbench.config.rewards import ModelFormat, RewardSection
from workbench.config.section import Section
from workbench.config.task import EnvironmentSection, PromptSection, TaskSection
from workbench.errors import ConfigError

RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


def run_name_of(words: str) -> str:
    """Return words as one name, "Zoë's run (2)" as "Zoe-s-run-2"; it need not fit ``RUN_NAME``."""
    letters = re.sub("[\u0300-\u036f]", "", unicodedata.normalize("NFKD", words))
    return re.sub(r"[ ()\[\],:;!?'&+#=@]+", "-", letters).strip("-")


T = TypeVar("T")
Sharding = Literal["none", "fsdp", "zero2", "zero3"]
"""How ranks share weights, gradients and optimiser: not at all, by FSDP, or by DeepSpeed's ZeRO 2 or 3."""


class RunSection(Section):
    steps: int = Field(default=84, ge=1, le=1_000_000)
    """Optimiser steps."""
    epochs: float | None = Field(default=None, gt=0, le=100_000)
    """Passes over the training rows, which set the steps when the run is started; none for as many as `steps`."""
    micro_batch_size: int | None = Field(title="Rows in one pass", default=None, ge=1, le=1_000_000)
    """Completions in one forward and backward pass; None for the whole batch."""
    eval_steps: int = Field(title="Steps between measures", default=42, ge=0, le=1_000_000)
    """Steps between two measures of held-out accuracy; 0 for none."""
    eval_prompts: int = Field(title="Prompts in a measure", default=200, ge=1, le=1_000_000)
    """Held-out prompts in one measure."""
    eval_skip: int = Field(title="Held-out prompts to skip", default=0, ge=0, le=1_000_000)
    """Held-out prompts before the first that is measured: settings are chosen on others than are reported."""
    watch_prompts: int = Field(title="Prompts followed through the run", default=2, ge=0, le=64)
    """Held-out prompts answered again with the same seed, or stored rows read again, to be looked at; 0 for none."""
    watch_every: int = Field(title="Steps between looks at them", default=10, ge=1, le=1_000_000)
    """Steps between two such looks."""
    save_steps: int = Field(title="Steps between checkpoints", default=20, ge=0, le=1_000_000)
    """Steps between two checkpoints to resume from, a multiple of num_iterations; 0 for none."""
    save_total_limit: int = Field(title="Checkpoints kept", default=2, ge=1, le=1000)
    """Newest checkpoints that are kept."""
    ranks: int = Field(default=1, ge=1, le=64)
    """Processes that share the batch."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train; auto takes a GPU where there is one."""
    report_to: list[Literal["trackio", "wandb", "tensorboard"]] = Field(title="Trackers", default_factory=list)
    """Trackers that get configuration, metrics, alarms and heatmaps too; each must be installed."""
    project: str = Field(default="process-grpo", min_length=1, max_length=100, pattern=r"^[A-Za-z0-9._ -]+$")
    """The project that trackers list the run under."""

    def measured(self, count: int) -> range:
        """Return which of ``count`` held-out rows are measured. Raises ConfigError if `eval_skip` leaves none."""
        if count and self.eval_skip >= count:
            raise ConfigError(
                f"run.eval_skip: {self.eval_skip} leaves none of the task's {count} held-out prompts; lower it"
            )
        return range(self.eval_skip, min(self.eval_skip + self.eval_prompts, count))


class MethodSection(Section):
    """Base of a training method's settings. The properties have answers that suit a method without rollouts."""

    kind: ClassVar[str | None] = None
    """The kind of stored rows that it trains on (``data.rows``); None for one that samples what it trains on."""
    trl_config: ClassVar[str] = "TrainingArguments"
    """The configuration of its trainer, in TRL or transformers."""
    usual_learning_rate: ClassVar[float] = 5e-5
    """That configuration's own."""
    name: str
    """The training method."""
    isolate_rewards: bool = Field(default=False, title="Isolate reward code")
    """Run own code without network, processes or your files (Linux): for rewards that run what a policy wrote."""
    trl: dict[str, Any] = Field(default_factory=dict, title="Fields of TRL")
    """Other fields of its trainer's configuration in TRL, by their names there: name=value, with commas between."""

    def own_arguments(self, config: SharedConfig) -> dict[str, Any]:
        """Return the arguments of its trainer's configuration that no other method sets."""
        return {}

    def check(self, config: SharedConfig) -> None:
        """Raise ValueError, naming the field, if these settings and the rest of the run do not fit together."""

    def check_rows(self, config: SharedConfig) -> None:
        """Raise WorkbenchError for rows that the run cannot use; called in its first second, before it is queued."""

    @property
    def label(self) -> str:
        """Return what lists and legends call a run of this method."""
        return self.name

    @property
    def reward_functions(self) -> Sequence[RewardSection]:
        """The reward functions that a run loads."""
        return ()

    @property
    def iterations(self) -> int:
        """Optimiser steps between two points at which a run can be saved and resumed."""
        return 1

    @property
    def rollouts_per_step(self) -> int:
        """Completions sampled for one generation of training; 0 for methods that train on stored text."""
        return 0

    @property
    def rows_per_step(self) -> int:
        """Return what one optimiser step's batch holds: completions that are sampled, or stored rows."""
        return self.rollouts_per_step

    def steps_of_epochs(self, config: SharedConfig, epochs: float) -> int:
        """The optimiser steps that so many passes over the training rows take. Raises TaskError and ConfigError."""
        raise ConfigError(f"run.epochs: {self.name} counts no rows; set run.steps")

    @property
    def reward_format(self) -> ModelFormat | None:
        """The format of the reward model that a run ends with; None where it ends with a policy."""
        return None

    @property
    def has_reference(self) -> bool:
        """Return whether a reference policy is held in memory beside the policy."""
        return False

    def facts(self) -> list[tuple[str, str]]:
        """(label, value) for a description of a run, in a few lines."""
        return []

    def less_memory(self, config: SharedConfig) -> str:
        """Settings that would take less memory, with their present values."""
        return f"try a smaller run.micro_batch_size (now {config.run.micro_batch_size or 'the whole batch'})"


LEAST_BFLOAT16_RATE = 1e-4
"""bfloat16's half spacing around 0.02, a usual size of a weight, is 3e-5 to 6e-5; smaller updates are rounded off."""


class Origin(Section):
    """The checkpoint of another run that a path is, written down when a run is started."""

    reference: str
    """As it was named: run:NAME or run:NAME@STEP."""
    path: str
    """The checkpoint's folder."""
    manifest_sha256: str
    """SHA-256 of the manifest in it, which holds that of every file."""


class SharedConfig(Section):
    """Everything a run is made of, with a method that is not known more closely."""

    name: str | None = None
    """Name of the run (optional). Default: date and time."""
    seed: int = Field(default=0, ge=0, lt=2**31)
    """Seed of prompts order, sampling and new weights."""
    policy: PolicySection = Field(default_factory=PolicySection)
    task: TaskSection = Field(default_factory=TaskSection)
    prompt: PromptSection = Field(default_factory=PromptSection)
    environment: EnvironmentSection = Field(default_factory=EnvironmentSection)
    optimiser: OptimiserSection = Field(default_factory=OptimiserSection)
    run: RunSection = Field(default_factory=RunSection)
    engine: EngineSection = Field(default_factory=EngineSection)
    method: SerializeAsAny[MethodSection]
    origins: list[Origin] = Field(default_factory=list)
    """The checkpoints of other runs that this one's paths are; written when it is started."""

    @field_validator("name")
    @classmethod
    def _name_fits_a_folder(cls, name: str | None) -> str | None:
        """Words become one name: "my run" is "my-run"."""
        joined = name and run_name_of(name)
        if joined is not None and not RUN_NAME.fullmatch(joined):
            raise ValueError("use 1 to 80 letters, digits, dots, dashes and underscores, a letter or digit first")
        return joined

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        merges = self.method.reward_format is not None
        if self.policy.adapter is not None and self.policy.lora is not None and not merges:
            raise ValueError(
                f"policy.lora: the policy has the adapter {self.policy.adapter!r} already, which is trained on; leave "
                "policy.lora out, or the adapter"
            )
        self._check_merge(merges)
        self.method.check(self)
        if self.engine.is_remote:
            check_engine(self)
        every = self.method.iterations
        if self.run.save_steps % every:
            nearest = max(1, round(self.run.save_steps / every)) * every
            if "save_steps" in self.run.model_fields_set:
                raise ValueError(
                    f"run.save_steps: {self.run.save_steps} falls inside a generation of {every} iterations; "
                    f"the nearest that does not is {nearest}"
                )
            self.run.save_steps = nearest
        return self

    def _check_merge(self, merges: bool) -> None:
        policy = self.policy
        if policy.merge and policy.adapter in policy.merge:
            raise ValueError(f"policy.merge: {policy.adapter!r} is policy.adapter, too; name it in one of them")
        if policy.merge and policy.quantisation != "none":
            raise ValueError(
                f"policy.merge: {policy.quantisation} weights do not take adapters exactly; export them with their "
                "base (workbench export RUN --merged) and name that as policy.path, or set policy.quantisation to none"
            )
        lora = policy.lora
        if (
            policy.merge
            and lora is not None
            and not merges
            and (lora.dora or lora.modules_to_save or lora.bias != "none")
        ):
            raise ValueError(
                "policy.lora: over merged adapters it is saved as one LoRA with them, which has no dora, bias or "
                "modules_to_save; leave these out, or train on a model that is exported with --merged"
            )

    @property
    def lost_updates(self) -> str | None:
        """Say that the weights' number format loses most updates of a step, if it does.

        bfloat16 has 8 bits: a weight of 0.02 moves by 6e-5 or not at all, and Adam's update is about the rate.
        """
        policy, rate = self.policy, self.optimiser.learning_rate
        if policy.dtype != "bfloat16" or policy.lora or policy.adapter or rate >= LEAST_BFLOAT16_RATE:
            return None
        return (
            f"weights in bfloat16 lose most updates at a learning rate of {rate:g}, so the policy would hardly change; "
            "set policy.dtype to auto (trains float32 weights, computes in bfloat16 on a GPU) or train a LoRA adapter"
        )

    def to_yaml(self) -> str:
        return write_yaml(self.model_dump(mode="json"))

    def flat(self) -> dict[str, str]:
        """Return every field by its dotted name, as text: a reward's by its name, code by its length and hash."""
        dump = self.model_dump(mode="json")
        if "rewards" in dump["method"]:
            dump["method"]["rewards"] = {reward.pop("name"): reward for reward in dump["method"]["rewards"]}
        return dict(_flat(dump, ""))


def _flat(value: Any, prefix: str) -> list[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        return [pair for name, inner in value.items() for pair in _flat(inner, f"{prefix}.{name}" if prefix else name)]
    if prefix.startswith("method.rewards.") and prefix.endswith(".code") and isinstance(value, str):
        digest = hashlib.sha256(value.encode("utf-8", "replace")).hexdigest()
        return [(prefix, f"{value.count(chr(10)) + 1} lines, sha256 {digest[:8]}")]
    return [(prefix, value if isinstance(value, str) else json.dumps(value))]
