"""The frozen nouns every other module speaks in: Example, Step, Rollout, Group, StepScores, ScoredGroup, Credit.

They hold data and answer simple questions about it. They do not know how an answer is split (``steps``), scored
(``rewards``), credited (``credit``), sampled (``policies``) or drawn (``figures``), and they import nothing of ours.
All of them are plain enough to travel as JSON, which is how they cross the process boundaries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Prompt = str | list[dict[str, str]]
"""A prompt as TRL takes it: plain text, or chat messages with ``role`` and ``content``."""

RewardKind = Literal["step", "outcome"]


@dataclass(frozen=True)
class Example:
    """One row of a task: a prompt and the row's other columns, which reward functions receive by name."""

    prompt: Prompt
    columns: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """A contiguous span of a completion's text: characters ``start`` to ``end`` (exclusive).

    ``matched`` is False for the one step that stands for a whole completion in which the pattern found nothing.
    """

    start: int
    end: int
    matched: bool = True


@dataclass(frozen=True)
class Rollout:
    """One sampled completion.

    ``token_ids`` are the sampled ids, the end-of-sequence token included when it was sampled. ``texts`` has one string
    a token; they join to ``tokenizer.decode(token_ids)``. ``logprobs`` are natural-log probabilities under the policy
    that sampled, after temperature and the other logits processors. ``finished`` says whether the last token is an
    end-of-sequence token; a rollout that is not finished was truncated. ``columns`` is what its data says of this
    completion alone (a label, say); reward functions receive it with the group's own.
    """

    token_ids: tuple[int, ...]
    texts: tuple[str, ...]
    finished: bool
    logprobs: tuple[float, ...] | None = None
    entropies: tuple[float, ...] | None = None
    columns: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def truncated(self) -> bool:
        return not self.finished

    @cached_property
    def text(self) -> str:
        """What steps are cut from and reward functions see: the decoded ids without the closing end-of-sequence."""
        return "".join(self.texts[:-1] if self.finished else self.texts)

    def to_json(self) -> dict[str, Any]:
        return {
            "token_ids": list(self.token_ids),
            "texts": list(self.texts),
            "finished": self.finished,
            "logprobs": None if self.logprobs is None else list(self.logprobs),
            "entropies": None if self.entropies is None else list(self.entropies),
            **({"columns": dict(self.columns)} if self.columns else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Rollout:
        return cls(
            token_ids=tuple(data["token_ids"]),
            texts=tuple(data["texts"]),
            finished=bool(data["finished"]),
            logprobs=None if data.get("logprobs") is None else tuple(data["logprobs"]),
            entropies=None if data.get("entropies") is None else tuple(data["entropies"]),
            columns=data.get("columns") or {},
        )


@dataclass(frozen=True)
class Group:
    """The G rollouts of one prompt, with the data row's other ``columns`` (the right answer, say).

    ``policy`` names what sampled them and ``sampling`` how (temperature, seed, …); both are for showing only.
    """

    prompt: Prompt
    rollouts: tuple[Rollout, ...]
    columns: Mapping[str, Any] = field(default_factory=dict)
    policy: str = ""
    sampling: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rollouts)

    def to_json(self) -> dict[str, Any]:
        return {
            "prompt": self.prompt,
            "rollouts": [rollout.to_json() for rollout in self.rollouts],
            "columns": dict(self.columns),
            "policy": self.policy,
            "sampling": dict(self.sampling),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Group:
        return cls(
            prompt=data["prompt"],
            rollouts=tuple(Rollout.from_json(row) for row in data["rollouts"]),
            columns=data.get("columns", {}),
            policy=data.get("policy", ""),
            sampling=data.get("sampling", {}),
        )


@dataclass(frozen=True)
class StepScores:
    """One rollout, split and scored.

    ``steps`` are character spans of ``Rollout.text``; ``spans[k]`` is the (first, last) token of step k, last
    inclusive. ``scores[name][k]`` is what step reward ``name`` gave step k and ``rewards[k]`` the weighted sum of those
    (``None`` where every function left the step unscored). ``outcome_scores[name]`` and ``outcome`` are the same for
    the whole completion.
    """

    steps: tuple[Step, ...]
    spans: tuple[tuple[int, int], ...]
    scores: Mapping[str, tuple[float | None, ...]]
    rewards: tuple[float | None, ...]
    outcome_scores: Mapping[str, float | None]
    outcome: float | None

    @property
    def matched(self) -> bool:
        """Whether the pattern found at least one step."""
        return any(step.matched for step in self.steps)

    @property
    def step_ends(self) -> list[int]:
        """index(k) of DeepSeekMath (arXiv 2402.03300, section 4.1.3): the last token of each step."""
        return [last for _, last in self.spans]

    @property
    def step_starts(self) -> list[int]:
        return [first for first, _ in self.spans]


@dataclass(frozen=True)
class RewardSummary:
    """What a scored group remembers of one reward function: enough to explain a number, not to compute it.

    ``seconds`` is what calling it took and ``printed`` what its code printed.
    """

    name: str
    kind: RewardKind
    weight: float
    seconds: float = 0.0
    printed: str = ""


@dataclass(frozen=True)
class ScoredGroup:
    """A group with one ``StepScores`` a rollout, in the rollouts' order, and the reward functions that gave them."""

    group: Group
    scored: tuple[StepScores, ...]
    rewards: tuple[RewardSummary, ...]

    @property
    def step_rewards(self) -> list[list[float | None]]:
        return [list(one.rewards) for one in self.scored]

    @property
    def step_ends(self) -> list[list[int]]:
        return [one.step_ends for one in self.scored]

    @property
    def step_starts(self) -> list[list[int]]:
        return [one.step_starts for one in self.scored]

    @property
    def lengths(self) -> list[int]:
        return [len(rollout) for rollout in self.group.rollouts]

    @property
    def outcomes(self) -> list[float | None] | None:
        """R of each completion, or ``None`` when no outcome reward function was given."""
        if not any(reward.kind == "outcome" for reward in self.rewards):
            return None
        return [one.outcome for one in self.scored]


@dataclass(frozen=True)
class Credit:
    """A scored group with its token advantages.

    ``advantages`` is (G, T_max) float32, 0 on padding: the very tensor the loss uses. ``normalised[i][k]`` is the
    step's normalised reward (``None`` if unscored), ``mean`` and ``std`` those of the pool it was normalised in.
    ``spread`` is False when the group cannot teach anything (std 0, or fewer than two scored values).
    """

    scored: ScoredGroup
    scheme: str
    options: Mapping[str, Any]
    advantages: npt.NDArray[np.float32]  # (G, T_max)
    normalised: Sequence[Sequence[float | None]]
    mean: float | None
    std: float | None
    spread: bool
    warnings: tuple[str, ...] = ()

    def of(self, rollout: int) -> npt.NDArray[np.float32]:
        """The advantages of one rollout's own tokens, (T_i,) float32."""
        return self.advantages[rollout, : len(self.scored.group.rollouts[rollout])]
