"""The rewards of a batch of groups as flat arrays, checked, and how values are normalised within pools of them.

One array over all steps of all completions makes each scheme a few lines of numpy that are linear in steps; the
jagged lists people write are turned into it here and nowhere else. Knows nothing of schemes or tokens' advantages.

Normalised is z(x) = (x - mean) / (std + 1e-4), std with ddof = 1. The constants are those of TRL's ``GRPOTrainer`` and
of DeepSeekMath (arXiv 2402.03300, section 4.1), so that a group scored by outcome only gets TRL's own numbers.
Everything is float64; the one rounding to float32 happens when advantages are laid out in tokens. What a pool holds is
the scheme's to say.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from workbench.errors import CreditError, quote
from workbench.schema import RewardKind, ScoredGroup
from workbench.schema.numbers import differ

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
EPSILON = 1e-4
Normalise = Literal["pooled", "per_completion", "leave_one_out", "batch", "none"]
NORMALISATIONS: dict[str, str] = {
    "pooled": "every scored value of the group counts once",
    "per_completion": "every completion of the group counts once, however many steps it has",
    "leave_one_out": "a completion is compared with the mean of the group's other completions (RLOO, PURE)",
    "batch": "mean of the group, standard deviation of the whole batch",
    "none": "nothing is subtracted or divided; a group without spread still gets 0",
}
assert tuple(NORMALISATIONS) == get_args(Normalise)
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
    ``importances[i]`` are those of completion i's tokens, below 0 where there is none; None where none was judged.
    ``judged`` are the outcomes that the group is gated by, None where none is known.
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
    importances: Sequence[Sequence[float] | None] | None = None
    judged: Sequence[float | None] | None = None

    @classmethod
    def from_lists(
        cls,
        steps: Sequence[Sequence[float | None]],
        ends: Sequence[Sequence[int]],
        lengths: Sequence[int],
        starts: Sequence[Sequence[int]] | None = None,
        outcomes: Sequence[float | None] | None = None,
        masks: Sequence[Sequence[int] | None] | None = None,
        token_ids: Sequence[Sequence[int]] | None = None,
        states: Sequence[Sequence[Hashable]] | None = None,
        importances: Sequence[Sequence[float] | None] | None = None,
    ) -> GroupRewards:
        """By default a step starts right after the one before it. Raises CreditError where the lists do not fit."""
        ends = [list(map(operator.index, row)) for row in ends]
        firsts = [[0, *(end + 1 for end in row[:-1])][: len(row)] for row in ends]
        if starts is not None:
            firsts = [list(map(operator.index, row)) for row in starts]
        outcomes = None if outcomes is None else list(outcomes)
        rewards = [list(row) for row in steps]
        counts = list(map(operator.index, lengths))
        group = cls(rewards, firsts, ends, counts, outcomes, masks, token_ids, None, states, importances, outcomes)
        group._check()
        return group

    @classmethod
    def of(cls, scored: ScoredGroup, *, drop_duplicates: bool = False, each_reward: bool = False) -> GroupRewards:
        """``drop_duplicates``: a copy of an earlier rollout counts as unscored, in its steps and as a whole.

        ``each_reward``: rewards are sums of scores that were normalised on their own, function by function.
        """
        counted = np.array([not drop_duplicates or first is None for first in scored.group.copy_of], dtype=bool)
        steps, outcomes = scored.step_rewards, scored.outcomes
        if each_reward:
            steps = _sum_rewards(scored, "step", counted)
            outcomes = outcomes and [row[0] for row in _sum_rewards(scored, "outcome", counted)]
        for i in np.flatnonzero(~counted).tolist():
            steps[i] = [None] * len(steps[i])
            if outcomes is not None:
                outcomes[i] = None
        ids = [rollout.token_ids for rollout in scored.group.rollouts]
        finished = [rollout.finished for rollout in scored.group.rollouts]
        importances = [rollout.importances for rollout in scored.group.rollouts]
        starts, ends, masks = scored.step_starts, scored.step_ends, scored.masks
        judged = scored.judged_outcomes(drop_duplicates=drop_duplicates)
        states, lengths = scored.step_states, scored.lengths
        return cls(steps, starts, ends, lengths, outcomes, masks, ids, finished, states, importances, judged)

    def spans(self, i: int) -> list[tuple[int, int]]:
        return list(zip(self.starts[i], self.ends[i], strict=True))

    def policy_mask(self, i: int) -> npt.NDArray[np.bool_] | None:
        """Return which tokens of completion i the policy sampled, (T_i,); None for all."""
        mask = None if self.masks is None else self.masks[i]
        return None if mask is None else np.asarray(mask, dtype=bool)

    def _check(self) -> None:
        named: dict[str, Any] = {
            "step_rewards": self.steps,
            "step_ends": self.ends,
            "step_starts": self.starts,
            "outcome_rewards": self.outcomes,
            "masks": self.masks,
            "token_ids": self.token_ids,
            "states": self.states,
            "importances": self.importances,
        }
        for name, rows in named.items():
            if rows is not None and len(rows) != len(self.lengths):
                raise CreditError(
                    f"{name} has {len(rows)} completions and lengths has {len(self.lengths)}; give one each"
                )
        for i, length in enumerate(self.lengths):
            rewards, firsts, ends = self.steps[i], self.starts[i], list(self.ends[i])
            counts = f"{len(rewards)} step rewards, {len(firsts)} step starts and {len(ends)} step ends"
            # A step that ends inside the token of another one has no token of its own, and begins one behind its end.
            are_apart = all(0 <= first <= end + 1 for first, end in zip(firsts, ends, strict=False))
            wanted_of_steps = (
                (len(rewards) == len(ends) == len(firsts), f"it has {counts}; give one of each a step"),
                (0 <= length < _LONGEST, f"its length is {quote(length)}; give the number of its tokens"),
                (ends == sorted(ends), f"step_ends {ends} go backwards; steps must be in order"),
                (
                    not ends or 0 <= ends[0] <= ends[-1] < length,
                    f"step_ends {ends} do not lie within its {length} tokens",
                ),
                (are_apart, f"step_starts {list(firsts)} do not lie before step_ends {ends}"),
            )
            for holds, said in wanted_of_steps:
                if not holds:
                    raise CreditError(f"completion {i}: {said}")
            for name in ("masks", "token_ids", "importances", "states"):
                of_all = named[name]
                row: Any = None if of_all is None else of_all[i]
                wanted, units = (len(rewards), "steps") if name == "states" else (length, "tokens")
                if row is not None and len(row) != wanted:
                    raise CreditError(f"{name}: completion {i} has {len(row)} and {wanted} {units}; give one each")
                if row is not None and name == "masks" and not set(row) <= {0, 1}:
                    raise CreditError(
                        f"masks: completion {i} has entries of {sorted(set(row))[:3]}; give 1 for each token that the "
                        "policy sampled, 0 for each other one"
                    )
            outcome = [] if self.outcomes is None else [("outcome", self.outcomes[i])]
            for what, reward in (*((f"step {k}", reward) for k, reward in enumerate(rewards)), *outcome):
                if reward is not None and not is_finite(reward):
                    raise CreditError(
                        f"completion {i}, {what}: reward {quote(reward)} is not finite; use None for unscored"
                    )


def is_finite(value: Any) -> bool:
    """Return whether it is a number that a float holds."""
    try:
        return not isinstance(value, bool) and math.isfinite(value)
    except (OverflowError, TypeError):
        return False


def _widths(
    groups: Sequence[GroupRewards], first: Integers, last: Integers, completion: Integers, offsets: Integers
) -> Integers:
    """Count the sampled tokens that are each step's own, (N,): one in which two steps end is the later one's."""
    apart = completion * (int(last.max(initial=0)) + 3)  # so that a completion's tokens all come before the next one's
    begins = np.where(first <= last, first, last.max(initial=0) + 2) + apart
    later = np.append(np.minimum.accumulate(begins[::-1])[::-1][1:], np.iinfo(np.int64).max)  # the first behind a step
    width: Integers = np.maximum(np.minimum(last + 1 + apart, later[: len(last)]) - (first + apart), 0)
    masks = [group.policy_mask(i) for group in groups for i in range(len(group.lengths))]
    sampled = [(i, mask) for i, mask in enumerate(masks) if mask is not None]
    for n, mask in ((n, mask) for i, mask in sampled for n in range(offsets[i], offsets[i + 1])):
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
        first = np.array([start for group in groups for row in group.starts for start in row], dtype=np.int64)
        last = np.array([end for group in groups for row in group.ends for end in row], dtype=np.int64)
        outcomes = [outcome for group in groups for outcome in group.outcomes or [None] * len(group.lengths)]
        return cls(
            rewards=_numbers(reward for group in groups for row in group.steps for reward in row),
            completion=completion,
            index=np.arange(len(completion)) - offsets[completion],
            width=_widths(groups, first, last, completion, offsets),
            offsets=offsets,
            group=np.repeat(np.arange(len(groups)), [len(group.lengths) for group in groups]),
            outcomes=None if all(group.outcomes is None for group in groups) else _numbers(outcomes),
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
        """Return how many turns of the policy's each completion has, (B,)."""
        masks = [group.policy_mask(i) for group in self.groups for i in range(len(group.lengths))]
        return np.array(
            [1 if mask is None else np.count_nonzero(np.diff(mask.astype(int), prepend=0) == 1) for mask in masks],
            dtype=np.int64,
        )

    @cached_property
    def policy_tokens(self) -> tuple[Integers, ...]:
        """The tokens of each completion that the policy sampled, (<= T_i,) each."""
        pairs = ((group, i) for group in self.groups for i in range(len(group.lengths)))
        return tuple(
            np.arange(group.lengths[i]) if (mask := group.policy_mask(i)) is None else np.flatnonzero(mask)
            for group, i in pairs
        )

    @cached_property
    def token_offsets(self) -> Integers:
        """Return where each completion's sampled tokens lie among all sampled tokens, (B + 1,)."""
        return np.cumsum([0, *map(len, self.policy_tokens)], dtype=np.int64)


def _numbers(values: Iterable[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


# --- normalisation within pools ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Normalised:
    """``raw`` (N,) and what became of it, NaN where unscored; ``spread`` (N,): whether the value's pool has any.

    ``mean`` and ``std`` (N,) are what was subtracted from and divided into each value (NaN where nothing was).
    ``centre`` is what the former is called: a scheme may subtract another number than a mean.
    """

    raw: Floats
    mean: Floats
    std: Floats
    value: Floats
    spread: npt.NDArray[np.bool_]
    centre: str = "mean"


def z_within(
    raw: Floats, pool: Integers, completion: Integers, how: Normalise, scale: bool, *, wide: Integers | None = None
) -> Normalised:
    """Normalise each value of ``raw`` (N,) within its pool.

    Args:
        raw: values, NaN where unscored: left out of every mean and std.
        pool: (N,) the pool of each value, 0-based; usually its group.
        completion: (N,) the completion each value belongs to.
        how: ``pooled``: mean and std of the pool's values. ``per_completion``: the mean of the completions' means, and
            the variance around it in which each completion weighs the same (C / (C - 1) of it, for C completions).
            ``leave_one_out``: the mean of the other completions' means (RLOO, arXiv 2402.14740; PURE's step baseline,
            arXiv 2504.15275), the pool's std. ``batch``: the pool's mean, the std of everything in the same ``wide``
            pool (TRL's ``scale_rewards="batch"``). ``none``: x itself.
        scale: divide by the std; off is Dr. GRPO's choice (arXiv 2503.20783).
        wide: (N,) the pools of ``batch``; one by default.

    A pool with fewer than two values, or none but equal ones, gives 0 whatever the normalisation; so does one with a
    single completion where completions are compared.

    Raises:
        CreditError: for a normalisation there is not, and rewards too large to be squared.
    """
    if how not in NORMALISATIONS:
        raise CreditError(f"unknown normalisation {how!r}; choose one of {', '.join(NORMALISATIONS)}")
    scored = ~np.isnan(raw)
    x, p, c = raw[scored], pool[scored], completion[scored]
    with np.errstate(over="ignore", invalid="ignore"):  # what is too large is told below
        mean, std, spread = _statistics(x, p)
        if how in ("per_completion", "leave_one_out"):
            voter, means, owner, count, voters = _voters(x, p, c)
            spread &= voters[p] > 1
            total = np.bincount(owner, means, minlength=len(voters))
            if how == "per_completion":
                centre = (total / np.maximum(voters, 1))[p]
                squares = np.bincount(p, (x - centre) ** 2 / count[voter], minlength=len(voters))
                mean, std = centre, np.sqrt(squares / np.maximum(voters - 1, 1))[p]
            else:
                mean = ((total[owner] - means) / np.maximum(voters[owner] - 1, 1))[voter]
        elif how == "batch":
            std = _statistics(x, np.zeros_like(p) if wide is None else wide[scored])[1]
        elif how == "none":
            mean = std = np.full(len(x), np.nan)
        value = x if how == "none" else x - mean
        if scale and how != "none":
            value = value / (std + EPSILON)
    sizes = (x, np.where(spread, value, 0.0), np.where(spread & scale & (how != "none"), std, 0.0))
    if not np.isfinite(sizes).all():
        raise CreditError(
            f"rewards of up to {np.abs(x).max():.3g} are too large to be compared: their squares are no numbers any "
            "more; scale them down"
        )
    value = np.where(spread, value, 0.0)
    mean = np.where(spread, mean, np.nan)  # where nothing spreads nothing was compared
    std = np.where(spread & scale, std, np.nan)
    placed = np.full((4, len(raw)), np.nan)  # of the unscored, NaN
    placed[:, scored] = mean, std, value, spread
    return Normalised(raw, placed[0], placed[1], placed[2], placed[3] == 1)


def _statistics(x: Floats, pool: Integers) -> tuple[Floats, Floats, npt.NDArray[np.bool_]]:
    """Mean, std (0 without spread) and whether there is spread, of each value's pool: three (n,)."""
    size = int(pool.max(initial=-1)) + 1
    count = np.bincount(pool, minlength=size)
    low, high = np.full(size, np.inf), np.full(size, -np.inf)
    np.minimum.at(low, pool, x)
    np.maximum.at(high, pool, x)
    spread = differ(low, high)
    mean = np.bincount(pool, x, minlength=size) / np.maximum(count, 1)
    squares = np.bincount(pool, (x - mean[pool]) ** 2, minlength=size)
    std = np.where(spread, np.sqrt(squares / np.maximum(count - 1, 1)), 0.0)
    return mean[pool], std[pool], spread[pool]


def _voters(x: Floats, pool: Integers, completion: Integers) -> tuple[Integers, Floats, Integers, Floats, Integers]:
    """The (pool, completion) pairs that have a value: each value's pair, and each pair's mean, pool and count; C."""
    key = pool * (int(completion.max(initial=0)) + 1) + completion
    pairs, voter = np.unique(key, return_inverse=True)
    count = np.bincount(voter, minlength=len(pairs)).astype(np.float64)
    means = np.bincount(voter, x, minlength=len(pairs)) / np.maximum(count, 1)
    owner = np.zeros(len(pairs), dtype=np.int64)
    owner[voter] = pool
    return voter, means, owner, count, np.bincount(owner)


# --- rewards summed after each function's scores were normalised on their own: GDPO ----------------------------------
#
# r'_{i,k} = sum over functions f of w_f z(r_{i,k,f}) and R'_i = sum over f of w_f z(R_{i,f}), z over the function's own
# scores in the group, which a scheme then takes for rewards. So a function with a small spread counts as much as one
# with a large one. GDPO (arXiv 2601.05242) has it for outcomes and normalises the sums once more over the batch:
# ``trl-GDPO/trl-0.18.0-gdpo/trl/trainer/grpo_trainer.py`` of https://github.com/NVlabs/GDPO, and TRL 1.16 as
# ``multi_objective_aggregation="normalize_then_sum"``.

NOTE = "each reward function's scores were normalised over the group before they were summed (normalize_then_sum)"


def _sum_rewards(scored: ScoredGroup, kind: RewardKind, counted: npt.NDArray[np.bool_]) -> list[list[float | None]]:
    """Return r' of each completion's steps, or R' of each completion, None where no function scored it.

    Completions that are not ``counted`` are in no mean or std; a score that is not there adds nothing.
    """
    totals = [list(row.rewards) if kind == "step" else [row.outcome] for row in scored.scored]
    known = np.array([total is not None for row in totals for total in row], dtype=bool)
    counted = np.repeat(counted, [len(row) for row in totals]) & known
    pool, sums = np.zeros(len(known), dtype=np.int64), np.zeros(len(known))
    for reward in scored.rewards:
        if reward.kind == kind:
            raw = _numbers(scored.scores(reward))
            z = z_within(np.where(counted, raw, np.nan), pool, np.arange(len(raw)), "pooled", scale=True)
            sums += reward.weight * np.nan_to_num(z.value)
    flat = iter(sums.tolist())
    return [[None if total is None else here for total, here in zip(row, flat, strict=False)] for row in totals]
