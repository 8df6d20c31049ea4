"""The nouns of sampling: examples, rollouts, their groups and turns, and the steps a completion is cut into.

An *episode* has several turns. A turn of the policy's is a run of tokens that it sampled; an observation is what a tool
or an environment wrote in answer, whose tokens the policy never sampled. What stands between ``<think>`` and
``</think>`` is thinking, and what comes after the last ``</think>`` is the answer, as in Qwen3's chat template.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from itertools import groupby
from typing import Any

from workbench.schema.numbers import say_count

OPEN, CLOSE = "<think>", "</think>"


def answer_span(text: str, *, opened: bool = False) -> tuple[int, int]:
    """Start and end of the answer in ``text``; equal where there is none. ``opened``: the prompt ends in a block."""
    close = text.rfind(CLOSE)
    if close < 0 and opened:
        return len(text), len(text)
    start = close + len(CLOSE) if close >= 0 else 0
    again = text.find(OPEN, start)
    return start, len(text) if again < 0 else again


def ends_in_thinking(prompt: str) -> bool:
    """Return whether a prompt, as the policy reads it, leaves a block open."""
    return prompt.rstrip().endswith(OPEN)


ASSISTANT, ENVIRONMENT, TOOL = "assistant", "environment", "tool"
"""Roles of a turn; every role but the first is that of an observation."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One stretch of an episode: a turn of the policy's, or an observation.

    ``start`` and ``end`` are token indices into the completion, end exclusive; an empty observation has no token.
    ``role`` says who wrote it: ``assistant`` is the policy. ``seconds`` is what writing it took, and no part of what
    makes two turns equal. ``error`` is why the environment gave no answer to this turn, ``note`` what else is to be
    said of it (an observation that was cut, text that the environment printed). ``state`` is what the environment
    called the state in which this turn began, None where it does not name its states.
    """

    role: str
    start: int
    end: int
    seconds: float = field(default=0.0, compare=False)
    error: str | None = None
    note: str = ""
    state: str | None = None

    @property
    def is_sampled(self) -> bool:
        """Return whether the policy wrote it."""
        return self.role == ASSISTANT

    def to_json(self) -> dict[str, Any]:
        """Plain values, without what is as by default."""
        values = asdict(self)
        defaults = {part.name: part.default for part in fields(self)}
        return {name: value for name, value in values.items() if value != defaults[name]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Turn:
        """Raises TypeError for what is no turn."""
        return cls(**{part.name: data[part.name] for part in fields(cls) if part.name in data})


def runs_of_policy(mask: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The (first, last) tokens of each run of tokens that the policy sampled."""
    for sampled, run in groupby(range(len(mask)), key=lambda token: bool(mask[token])):
        if sampled:
            tokens = list(run)
            yield tokens[0], tokens[-1]


def state_of(observation: str) -> str:
    """Return what stands for the state that an observation leads to where the environment names none."""
    return hashlib.sha256(observation.encode(errors="surrogatepass")).hexdigest()[:16]


Prompt = str | list[dict[str, str]]
"""A prompt as TRL takes it: plain text, or chat messages with ``role`` and ``content``."""


def prompt_text(prompt: Prompt) -> str:
    """A prompt as a reader sees it: of messages, who says what."""
    if isinstance(prompt, str):
        return prompt
    return "\n\n".join(f"{message['role']}: {message['content']}" for message in prompt)


@dataclass(frozen=True)
class Example:
    """One row of a task: a prompt and the row's other columns, which reward functions receive by name.

    ``system`` is the task's message before a plain prompt that is put to a policy through its chat template.
    """

    prompt: Prompt
    columns: Mapping[str, Any] = field(default_factory=dict)
    system: str = ""


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
    that sampled, after temperature and the other logits processors; ``raw_logprobs`` are those at the same temperature
    before any other processor (as the trainer computes them, where another engine sampled: vLLM), and ``ref_logprobs``
    the same of a reference policy, where one was asked: KL and ratio are between these two. All are 0 for a token that
    was not sampled. ``mask`` is 1 for each token that the policy sampled and 0 for what a tool or an environment wrote,
    which the loss leaves out; None where the policy sampled all. ``finished`` says whether the last token is an
    end-of-sequence token, ``stop`` is the stop string that ended it, whose tokens are its last ones; a rollout that is
    neither finished nor stopped was truncated. ``columns`` is what its data says of this completion alone (a label,
    say); reward functions receive it with the group's own. ``turns`` are those of an episode that the workbench
    sampled, its observations among them; none of a completion of one turn. ``importances`` say how much each token
    matters for how probable a policy finds the right answer after it (``belief.with_importances``), -1 for a token that
    was not judged.
    """

    token_ids: tuple[int, ...]
    texts: tuple[str, ...]
    finished: bool
    logprobs: tuple[float, ...] | None = None
    entropies: tuple[float, ...] | None = None
    columns: Mapping[str, Any] = field(default_factory=dict, hash=False)
    ref_logprobs: tuple[float, ...] | None = None
    raw_logprobs: tuple[float, ...] | None = None
    mask: tuple[int, ...] | None = None
    stop: str | None = None
    turns: tuple[Turn, ...] = ()
    importances: tuple[float, ...] | None = None

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def truncated(self) -> bool:
        return not self.finished and self.stop is None

    @property
    def policy_length(self) -> int:
        """Number of tokens that the policy sampled."""
        return len(self) if self.mask is None else sum(self.mask)

    def is_sampled(self, token: int) -> bool:
        """Return whether the policy sampled this token (0-based)."""
        return self.mask is None or bool(self.mask[token])

    def of_sampled(self, values: Iterable[float]) -> tuple[float, ...]:
        """Numbers of all tokens, with 0 for those that the policy did not sample."""
        return tuple(value if self.is_sampled(token) else 0.0 for token, value in enumerate(values))

    @cached_property
    def text(self) -> str:
        """Return what steps are cut from and rewards see: the decoded ids without the closing end-of-sequence."""
        return "".join(self.texts[:-1] if self.finished else self.texts)

    @cached_property
    def turn_spans(self) -> list[tuple[int, int]]:
        """The (first, last) tokens of each turn of the policy's, last inclusive; a completion of one turn has one."""
        if self.turns:
            return [(turn.start, turn.end - 1) for turn in self.turns if turn.is_sampled and turn.end > turn.start]
        if self.mask is None:
            return [(0, len(self) - 1)] if self.token_ids else []
        return list(runs_of_policy(self.mask))

    @property
    def is_episode(self) -> bool:
        """Return whether there is more than one turn, or anything beside it."""
        return bool(self.turns) or (self.mask is not None and not all(self.mask))

    @cached_property
    def observations(self) -> list[str | None]:
        """Return what was written in answer to each of ``turn_spans``; None to a last turn that nothing answered."""
        if not self.turn_spans:
            return []
        borders = [*(first for first, _ in self.turn_spans[1:]), len(self)]
        texts: list[str | None] = [
            "".join(self.texts[last + 1 : border]) for (_, last), border in zip(self.turn_spans, borders, strict=True)
        ]
        if self.turn_spans[-1][1] == len(self) - 1:
            texts[-1] = None
        return texts

    def turn_of(self, token: int) -> int:
        """Return which of ``turn_spans`` holds a token, or is the last before it (0 where none is)."""
        return max(bisect_right(self.turn_spans, (token, len(self))) - 1, 0)

    @property
    def turn_states(self) -> list[str]:
        """The state in which each of ``turn_spans`` began: what the environment called it, else its observation's."""
        if not self.turn_spans:
            return []
        states = ["", *(state_of(text or "") for text in self.observations[:-1])]
        named = [turn.state for turn in self.turns if turn.is_sampled and turn.end > turn.start]
        return [name if name is not None else state for name, state in zip(named or states, states, strict=True)]

    def to_json(self) -> dict[str, Any]:
        plain = {part.name: getattr(self, part.name) for part in fields(self)}
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}
        plain |= {"columns": dict(self.columns), "turns": [turn.to_json() for turn in self.turns]}
        always = ("token_ids", "texts", "finished", "logprobs", "entropies")
        return {name: value for name, value in plain.items() if name in always or value not in (None, [], {})}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Rollout:
        """Raises ValueError, KeyError or TypeError for what is no rollout."""
        token_ids = tuple(data["token_ids"])

        def each_token(name: str, *kinds: type) -> Any:
            if name not in ("token_ids", "texts") and data.get(name) is None:
                return None
            values = tuple(data[name])
            if len(values) != len(token_ids) or not all(type(value) in kinds for value in values):
                raise ValueError(f"{name!r} must hold one {kinds[0].__name__} for each of {len(token_ids)} tokens")
            return values

        turns = tuple(map(Turn.from_json, data.get("turns") or ()))
        starts, ends = [turn.start for turn in turns], [turn.end for turn in turns]
        if turns and (starts != [0, *ends[:-1]] or ends != sorted(ends) or ends[-1] != len(token_ids)):
            raise ValueError(f"'turns' must cover the tokens 0 to {len(token_ids)} in order, without a gap")
        return cls(
            token_ids=each_token("token_ids", int),
            texts=each_token("texts", str),
            finished=bool(data["finished"]),
            logprobs=each_token("logprobs", float, int),
            entropies=each_token("entropies", float, int),
            columns=_columns(data.get("columns") or {}),
            ref_logprobs=each_token("ref_logprobs", float, int),
            raw_logprobs=each_token("raw_logprobs", float, int),
            mask=each_token("mask", int),
            stop=None if data.get("stop") is None else str(data["stop"]),
            turns=turns,
            importances=each_token("importances", float, int),
        )


@dataclass(frozen=True, repr=False)
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

    def __repr__(self) -> str:
        rollouts, tokens = say_count(len(self), "rollout"), say_count(sum(map(len, self.rollouts)), "token")
        return f"<Group: {rollouts}, {tokens}{f', of {self.policy}' * bool(self.policy)}>"

    def raw_logprobs(self, i: int) -> tuple[float, ...] | None:
        """Return rollout i's; where nothing but a temperature took part in sampling, they are the sampled ones.

        Files of version 0.3.0 have the sampled ones alone.
        """
        rollout = self.rollouts[i]
        neutral = {"top_k": (0, None), "top_p": (1.0, None), "min_p": (0.0, None), "repetition_penalty": (1.0, None)}
        is_neutral = all(self.sampling.get(name) in values for name, values in neutral.items())
        return rollout.logprobs if rollout.raw_logprobs is None and is_neutral else rollout.raw_logprobs

    @cached_property
    def copy_of(self) -> tuple[int | None, ...]:
        """For each rollout the first one that it is an exact copy of (0-based); None where none comes before it.

        Copies have the same token ids, the same end and the same mask: nothing is compared as text.
        """
        firsts: dict[Any, int] = {}
        first = [firsts.setdefault((r.token_ids, r.finished, r.mask), i) for i, r in enumerate(self.rollouts)]
        return tuple(None if f == i else f for i, f in enumerate(first))

    @property
    def distinct(self) -> list[tuple[int, ...]]:
        """The rollouts by equality (0-based): each one that is no copy, with its copies behind it."""
        members: dict[int, list[int]] = {}
        for i, first in enumerate(self.copy_of):
            members.setdefault(i if first is None else first, []).append(i)
        return [tuple(rollouts) for rollouts in members.values()]

    @property
    def thinking_open(self) -> bool:
        """Return whether the prompt ends inside a ``<think>`` block, which the completions go on with."""
        end = self.prompt if isinstance(self.prompt, str) else str(self.sampling.get("prompt_tail", ""))
        return ends_in_thinking(end)

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
        """Raises ValueError, KeyError, TypeError or AttributeError for what is no group."""
        prompt = data["prompt"]
        if not isinstance(prompt, str) and not (isinstance(prompt, list) and all(map(_columns, prompt))):
            raise ValueError("'prompt' must be text or a list of messages")
        return cls(
            prompt=prompt,
            rollouts=tuple(Rollout.from_json(row) for row in data["rollouts"]),
            columns=_columns(data.get("columns", {})),
            policy=str(data.get("policy", "")),
            sampling=_columns(data.get("sampling", {})),
        )


def _columns(values: Any) -> Mapping[str, Any]:
    if not isinstance(values, Mapping):
        raise ValueError(f"columns must be values by name, not a {type(values).__name__}")
    return values
