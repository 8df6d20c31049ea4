"""The rewards of a batch of groups as flat arrays, checked: what every credit scheme reads.

One array over all steps of all completions makes each scheme a few lines of numpy that are linear in steps; the
jagged lists people write are turned into it here and nowhere else. Knows nothing of schemes or tokens' advantages.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.credit.normalise import z_within
from workbench.errors import CreditError, shown
from workbench.schema import ScoredGroup

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
_LONGEST = 2**31  # tokens
END = -1
"""What stands for the end-of-sequence token that closes a completion, whatever its id."""


@dataclass(frozen=True)
class GroupRewards:
    """One group's jagged rewards and where its steps lie in tokens, as ``assign_credit`` takes them.

    ``ends[i][k]`` is index(k), the last token of step k in completion i; ``starts[i][k]`` its first token;
    ``lengths[i]`` is T_i in tokens. ``outcomes`` is None when no outcome reward was given. ``masks[i]`` is 1 for each
    token that the policy sampled and 0 for others, None where it sampled all. ``token_ids[i]`` are the completion's
    ids, and ``finished[i]`` says that the last of them is an end-of-sequence token; only schemes that need ids look.
    ``states[i][k]`` stands for the state in which step k of completion i begins, equal where states are.
    """

    steps: Sequence[Sequence[float | None]]
    starts: Sequence[Sequence[int]]
    ends: Sequence[Sequence[int]]
    lengths: Sequence[int]
    outcomes: Sequence[float | None] | None = None
    masks: Sequence[Sequence[int] | None] | None = None
    token_ids: Sequence[Sequence[int]] | None = None
    finished: Sequence[bool] | None = None
    states: Sequence[Sequence[Hashable]] | None = None

    def __post_init__(self) -> None:
        self._check()

    @classmethod
    def checked(
        cls,
        steps: Sequence[Sequence[float | None]],
        ends: Sequence[Sequence[int]],
        lengths: Sequence[int],
        starts: Sequence[Sequence[int]] | None = None,
        outcomes: Sequence[float | None] | None = None,
        masks: Sequence[Sequence[int] | None] | None = None,
        token_ids: Sequence[Sequence[int]] | None = None,
        finished: Sequence[bool] | None = None,
        states: Sequence[Sequence[Hashable]] | None = None,
    ) -> GroupRewards:
        """By default a step starts right after the one before it. Raises CreditError where the lists do not fit."""
        steps, ends, lengths = _lists("step_rewards", steps), _integers("step_ends", ends), _whole("lengths", lengths)
        if starts is None:
            starts = [[0, *(end + 1 for end in row[:-1])] if row else [] for row in ends]
        outcome_list = None if outcomes is None else _list("outcome_rewards", outcomes)
        mask_lists = None if masks is None else _list("masks", masks)
        firsts = _integers("step_starts", starts)
        return cls(steps, firsts, ends, lengths, outcome_list, mask_lists, token_ids, finished, states)

    @classmethod
    def of(cls, scored: ScoredGroup, *, drop_duplicates: bool = False, each_reward: bool = False) -> GroupRewards:
        """``drop_duplicates``: a copy of an earlier rollout counts as unscored, in its steps and as a whole.

        ``each_reward``: rewards are sums of scores that were normalised on their own, function by function.
        """
        counted = np.array([not drop_duplicates or first is None for first in scored.group.copy_of], dtype=bool)
        steps = summed_steps(scored, counted) if each_reward else scored.step_rewards
        outcomes = summed_outcomes(scored, counted) if each_reward else scored.outcomes
        for i in np.flatnonzero(~counted).tolist():
            steps[i] = [None] * len(steps[i])
            if outcomes is not None:
                outcomes[i] = None
        ids = [rollout.token_ids for rollout in scored.group.rollouts]
        finished = [rollout.finished for rollout in scored.group.rollouts]
        starts, ends, masks = scored.step_starts, scored.step_ends, scored.masks
        return cls.checked(steps, ends, scored.lengths, starts, outcomes, masks, ids, finished, scored.step_states)

    def spans(self, i: int) -> list[tuple[int, int]]:
        return list(zip(self.starts[i], self.ends[i], strict=True))

    def sampled(self, i: int) -> npt.NDArray[np.bool_] | None:
        """Which tokens of completion i the policy sampled, (T_i,); None for all."""
        mask = None if self.masks is None else self.masks[i]
        return None if mask is None else np.asarray(mask, dtype=bool)

    def _check(self) -> None:
        named = {
            "step_rewards": self.steps,
            "step_ends": self.ends,
            "step_starts": self.starts,
            "outcome_rewards": self.outcomes,
            "masks": self.masks,
            "token_ids": self.token_ids,
            "states": self.states,
        }
        for name, rows in named.items():
            if rows is not None and len(rows) != len(self.lengths):
                raise CreditError(
                    f"{name} has {len(rows)} completions and lengths has {len(self.lengths)}; give one each"
                )
        for i, length in enumerate(self.lengths):
            _check_completion(i, self.steps[i], self.starts[i], self.ends[i], length)
        for i, mask in enumerate(() if self.masks is None else self.masks):
            if mask is not None and (len(mask) != self.lengths[i] or not set(mask) <= {0, 1}):
                raise CreditError(
                    f"completion {i}: its mask has {len(mask)} entries of {sorted(set(mask))[:3]} and the completion "
                    f"{self.lengths[i]} tokens; give 1 for each token that the policy sampled, 0 for each other one"
                )
        for i, ids in enumerate(() if self.token_ids is None else self.token_ids):
            if len(ids) != self.lengths[i]:
                raise CreditError(
                    f"completion {i} has {len(ids)} token ids and {self.lengths[i]} tokens; give one each"
                )
        for i, states in enumerate(() if self.states is None else self.states):
            if len(states) != len(self.steps[i]):
                raise CreditError(
                    f"completion {i} has {len(states)} states and {len(self.steps[i])} steps; give each step the "
                    "state in which it begins"
                )
        for i, reward in enumerate(() if self.outcomes is None else self.outcomes):
            _check_number(f"completion {i}: outcome reward", reward)


def _list(name: str, values: Any) -> list[Any]:
    if isinstance(values, str | bytes | Mapping):
        raise CreditError(f"{name} is {shown(values)}; give a list")
    try:
        return list(values)
    except TypeError:
        raise CreditError(f"{name} is {shown(values)}; give a list") from None


def _lists(name: str, rows: Any) -> list[list[Any]]:
    return [_list(f"{name} of completion {i}", row) for i, row in enumerate(_list(name, rows))]


def _whole(name: str, values: Any) -> list[int]:
    values = _list(name, values)
    try:
        return [operator.index(value) for value in values]
    except TypeError:
        raise CreditError(f"{name} is {shown(values)}; give whole numbers") from None


def _integers(name: str, rows: Any) -> list[list[int]]:
    return [_whole(f"{name} of completion {i}", row) for i, row in enumerate(_list(name, rows))]


def _check_completion(
    i: int, rewards: Sequence[float | None], firsts: Sequence[int], ends: Sequence[int], length: int
) -> None:
    if not len(rewards) == len(ends) == len(firsts):
        raise CreditError(
            f"completion {i} has {len(rewards)} step rewards, {len(firsts)} step starts and {len(ends)} step ends; "
            "give one of each a step"
        )
    if not 0 <= length < _LONGEST:
        raise CreditError(f"completion {i}: its length is {shown(length)}; give the number of its tokens")
    if any(later < earlier for earlier, later in pairwise(ends)):
        raise CreditError(f"completion {i}: step_ends {list(ends)} go backwards; steps must be in order")
    if len(ends) and not (ends[0] >= 0 and ends[-1] < length):
        raise CreditError(f"completion {i}: step_ends {list(ends)} do not lie within its {length} tokens")
    # A step that ends inside the token of another one has no token of its own, and begins one behind its end.
    if any(not 0 <= first <= end + 1 for first, end in zip(firsts, ends, strict=True)):
        raise CreditError(f"completion {i}: step_starts {list(firsts)} do not lie before step_ends {list(ends)}")
    for k, reward in enumerate(rewards):
        _check_number(f"completion {i}, step {k}: reward", reward)


def _check_number(what: str, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, str | bytes) or not hasattr(value, "__float__"):
        raise CreditError(f"{what} is {shown(value)}; give a number, or None for unscored")
    try:
        finite = math.isfinite(value)
    except OverflowError:  # an integer beyond what a float holds
        finite = False
    if not finite:
        raise CreditError(f"{what} {shown(value)} is not finite; use None for unscored")


def _owned(first: Integers, last: Integers, completion: Integers) -> Integers:
    """How many tokens are each step's own, (N,): one in which two steps end is the later one's, as everywhere."""
    if not len(last):
        return last
    apart = completion * (int(last.max()) + 3)  # so that a completion's tokens all come before the next one's
    begins = np.where(first <= last, first, last.max() + 2) + apart
    later = np.append(np.minimum.accumulate(begins[::-1])[::-1][1:], np.iinfo(np.int64).max)  # the first behind a step
    owned: Integers = np.maximum(np.minimum(last + 1 + apart, later) - (first + apart), 0)
    return owned


def _sampled_width(width: Integers, first: Integers, offsets: Integers, groups: Sequence[GroupRewards]) -> Integers:
    """How many of each step's own tokens the policy sampled, (N,)."""
    masks = [group.sampled(i) for group in groups for i in range(len(group.lengths))]
    for i, mask in enumerate(masks):
        if mask is None:
            continue
        for n in range(offsets[i], offsets[i + 1]):
            width[n] = np.count_nonzero(mask[first[n] : first[n] + width[n]])
    return width


@dataclass(frozen=True)
class Batch:
    """B completions of one or more groups, flat. N is the number of their steps.

    ``rewards`` (N,) are the step rewards, NaN where unscored; ``completion`` (N,) is the completion a step belongs to,
    ``index`` (N,) its number there and ``width`` (N,) its own sampled tokens; ``offsets`` (B + 1,) where each
    completion's steps lie; ``group`` (B,) which group a completion belongs to; ``outcomes`` (B,) R, or None when there
    is none; ``groups`` what all this was made of.
    """

    rewards: Floats
    completion: Integers
    index: Integers
    width: Integers
    offsets: Integers
    group: Integers
    outcomes: Floats | None
    groups: tuple[GroupRewards, ...]

    @classmethod
    def of(cls, groups: Sequence[GroupRewards]) -> Batch:
        counts = np.array([len(row) for group in groups for row in group.steps], dtype=np.int64)  # (B,)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        completion = np.repeat(np.arange(len(counts)), counts)
        first = _flat(start for group in groups for row in group.starts for start in row)
        last = _flat(end for group in groups for row in group.ends for end in row)
        outcome_lists = [group.outcomes for group in groups]
        outcomes = None
        if any(row is not None for row in outcome_lists):
            outcomes = _numbers(
                chain.from_iterable(
                    row or [None] * len(g.lengths) for g, row in zip(groups, outcome_lists, strict=True)
                )
            )
        return cls(
            rewards=_numbers(reward for group in groups for row in group.steps for reward in row),
            completion=completion,
            index=np.arange(len(completion)) - offsets[completion],
            width=_sampled_width(_owned(first, last, completion), first, offsets, groups),
            offsets=offsets,
            group=np.repeat(np.arange(len(groups)), [len(group.lengths) for group in groups]),
            outcomes=outcomes,
            groups=tuple(groups),
        )

    @property
    def completions(self) -> int:
        return len(self.group)

    @cached_property
    def step_group(self) -> Integers:
        """The group of each step, (N,)."""
        return self.group[self.completion]

    @cached_property
    def sums(self) -> Floats:
        """The sum of each completion's scored step rewards, (B,); NaN where none was scored."""
        scored = ~np.isnan(self.rewards)
        counts = np.bincount(self.completion[scored], minlength=self.completions)
        sums = np.bincount(self.completion[scored], self.rewards[scored], minlength=self.completions)
        return np.where(counts > 0, sums, np.nan)

    @cached_property
    def means(self) -> Floats:
        """The mean of each completion's scored step rewards, (B,); NaN where none was scored."""
        counts = np.bincount(self.completion[~np.isnan(self.rewards)], minlength=self.completions)
        return np.asarray(self.sums / np.maximum(counts, 1))

    def with_rewards(self, rewards: Floats) -> Batch:
        """The same batch with other step rewards."""
        return replace(self, rewards=rewards)

    @cached_property
    def token_ids(self) -> tuple[Integers, ...] | None:
        """The ids of each completion, (T_i,) each, None where a group has none. An end-of-sequence token is END."""
        arrays: list[Integers] = []
        for group in self.groups:
            if group.token_ids is None:
                return None
            finished = group.finished or [False] * len(group.lengths)
            for ids, ended in zip(group.token_ids, finished, strict=True):
                arrays.append(np.array(ids, dtype=np.int64))
                arrays[-1][len(ids) - int(ended) :] = END
        return tuple(arrays)

    @cached_property
    def step_state(self) -> Integers | None:
        """A number for the state of its group in which each step begins, (N,); None where a group has no states."""
        numbers: dict[tuple[int, Hashable], int] = {}
        states: list[int] = []
        for number, group in enumerate(self.groups):
            if group.states is None:
                return None
            states += [numbers.setdefault((number, state), len(numbers)) for row in group.states for state in row]
        return np.array(states, dtype=np.int64)

    @cached_property
    def turns(self) -> Integers:
        """How many turns of the policy's each completion has, (B,)."""
        masks = [group.sampled(i) for group in self.groups for i in range(len(group.lengths))]
        return np.array(
            [1 if mask is None else np.count_nonzero(np.diff(mask.astype(int), prepend=0) == 1) for mask in masks],
            dtype=np.int64,
        )

    @cached_property
    def sampled(self) -> tuple[Integers, ...]:
        """The tokens of each completion that the policy sampled, (<= T_i,) each."""
        pairs = ((group, i) for group in self.groups for i in range(len(group.lengths)))
        return tuple(
            np.arange(group.lengths[i]) if (mask := group.sampled(i)) is None else np.flatnonzero(mask)
            for group, i in pairs
        )

    @cached_property
    def token_offsets(self) -> Integers:
        """Where each completion's sampled tokens lie among all sampled tokens, (B + 1,)."""
        return np.cumsum([0, *map(len, self.sampled)], dtype=np.int64)


def _flat(values: object) -> Integers:
    return np.fromiter(values, dtype=np.int64)  # type: ignore[call-overload, no-any-return]


def _numbers(values: object) -> Floats:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)  # type: ignore[attr-defined]


# --- rewards summed after each function's scores were normalised on their own: GDPO ----------------------------------
#
# r'_{i,k} = sum over functions f of w_f z(r_{i,k,f}) and R'_i = sum over f of w_f z(R_{i,f}), z over the function's own
# scores in the group, which a scheme then takes for rewards. So a function with a small spread counts as much as one
# with a large one. GDPO (arXiv 2601.05242) has it for outcomes and normalises the sums once more over the batch:
# ``trl-GDPO/trl-0.18.0-gdpo/trl/trainer/grpo_trainer.py`` of https://github.com/NVlabs/GDPO, and TRL 1.16 as
# ``multi_objective_aggregation="normalize_then_sum"``.

NOTE = "each reward function's scores were normalised over the group before they were summed (normalize_then_sum)"


def summed_steps(scored: ScoredGroup, counted: npt.NDArray[np.bool_]) -> list[list[float | None]]:
    """r' of each step, None where no function scored it; completions that are not ``counted`` are in no mean or std."""
    rows = scored.scored
    ends = np.cumsum([len(row.rewards) for row in rows]).tolist()
    names = [reward.name for reward in scored.rewards if reward.kind == "step"]
    scores = {name: list(chain.from_iterable(row.scores[name] for row in rows)) for name in names}
    known = np.array([reward is not None for row in rows for reward in row.rewards], dtype=bool)
    sums = _summed(scored, scores, np.repeat(counted, np.diff(ends, prepend=0)) & known)
    flat = [total if there else None for total, there in zip(sums, known, strict=True)]
    return [flat[first:after] for first, after in zip([0, *ends], ends, strict=False)]


def summed_outcomes(scored: ScoredGroup, counted: npt.NDArray[np.bool_]) -> list[float | None] | None:
    """R' of each completion, None where it is unscored; None where there is no outcome reward function."""
    if scored.outcomes is None:
        return None
    names = [reward.name for reward in scored.rewards if reward.kind == "outcome"]
    scores = {name: [row.outcome_scores[name] for row in scored.scored] for name in names}
    sums = _summed(scored, scores, counted & np.array([outcome is not None for outcome in scored.outcomes]))
    return [None if outcome is None else total for outcome, total in zip(scored.outcomes, sums, strict=True)]


def _summed(scored: ScoredGroup, scores: dict[str, list[float | None]], counted: npt.NDArray[np.bool_]) -> list[float]:
    """The weighted sum of each function's normalised scores; a score that is not there adds nothing."""
    pool, sums = np.zeros(len(counted), dtype=np.int64), np.zeros(len(counted))
    for reward in scored.rewards:
        if reward.name in scores:
            raw = np.array([np.nan if score is None else score for score in scores[reward.name]], dtype=np.float64)
            z = z_within(np.where(counted, raw, np.nan), pool, np.arange(len(raw)), "pooled", scale=True)
            sums += reward.weight * np.nan_to_num(z.value)
    return sums.tolist()
