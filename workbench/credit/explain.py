"""Credits read: what the loss makes of tokens, why a group has no spread, gradient shares, differences of two credits.

A scheme reads step rewards or outcome rewards; the others reach tokens through ``outcome_weight`` or not at all. Where
only rewards that are left out differ in a group, every advantage is 0 although there is something to learn. A remedy is
a change of settings that was tried on the group and gives it spread.

The policy loss is read token by token: ratio, clipping, KL, length normaliser, and their product, the contribution.
Nothing is trained with this: it is a reading of the loss of TRL 1.16, ``GRPOTrainer._compute_loss``
(https://github.com/huggingface/trl/blob/v1.16.0/trl/trainer/grpo_trainer.py), from stored numbers. The contributions of
all tokens of an optimiser step add up to the loss that was trained on; a test holds both against each other for every
loss type. With rho = pi / pi_old and c the length normaliser, a token adds

    c (-f(rho) A + beta k3),   k3 = e^d - d - 1 with d = log pi_ref - log pi  (DeepSeekMath, arXiv 2402.03300, eq. 4)

where f(rho) A is min(rho A, clip(rho, 1 - eps, 1 + eps_high) A) for grpo (2402.03300 eq. 3), bnpo, dapo (2503.14476),
dr_grpo (2503.20783) and luspo; min(rho, eps_high) log(pi) A with a constant ratio for cispo (2506.13585 eq. 4);
4 sigmoid(tau (rho - 1)) / tau A for sapo (2511.20347); phi(w) log(pi) A with w the product of a completion's ratios for
vespo (2602.10693).

An entropy bonus adds -coef H / (P N) to each token: H its entropy, N the counted tokens of its micro-batch, P the
number of the step's micro-batches over all ranks, coef what TRL applied in the step. It has no push, as its derivative
is not by the token's log-probability alone. A router's loss is no token's; a pass has it as one number.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from workbench.credit.assign import COUNTS, GAE, credit_group
from workbench.credit.schemes import SCHEMES, find_scheme
from workbench.credit.schemes.scheme import SHARED
from workbench.errors import CreditError
from workbench.schema import Credit, Group, LossPass, LossSettings, PartKind, RewardKind, RolloutPass

Floats = npt.NDArray[np.float64]
CLIPPED_LOSSES = ("grpo", "bnpo", "dapo", "dr_grpo", "luspo")
LENS_LOSSES = (*CLIPPED_LOSSES, "cispo", "sapo", "vespo")
"""The loss types that can be read: all of TRL 1.16."""


@dataclass(frozen=True, eq=False)
class TokenLosses:
    """The terms of one completion's tokens, each (T,) float64.

    ``ratio`` is rho, ``factor`` what the advantage is multiplied with instead of it (clipped, capped or softened), and
    ``clipped`` 1 where an upper bound holds the ratio back, -1 where a lower one does. ``policy`` and ``kl`` are the
    two terms of the token's loss, the latter times beta; ``contribution`` is ``normaliser`` times their sum, 0 for what
    the loss leaves out, plus what an entropy bonus adds. ``push`` is minus the loss's derivative by
    the token's log-probability, without the bonus: above 0, a step makes the token more likely.
    """

    ratio: Floats
    factor: Floats
    clipped: npt.NDArray[np.int8]
    policy: Floats
    kl: Floats
    contribution: Floats
    push: Floats
    normaliser: float


def token_losses(
    settings: LossSettings,
    advantages: npt.ArrayLike,
    logprobs: npt.ArrayLike,
    *,
    normaliser: float,
    old: npt.ArrayLike | None = None,
    reference: npt.ArrayLike | None = None,
    weights: npt.ArrayLike | None = None,
    mask: npt.ArrayLike | None = None,
    bonus: npt.ArrayLike | None = None,
) -> TokenLosses:
    """The terms of one completion; all arrays are (T,).

    ``old`` are the log-probabilities that ratios are taken to, by default ``logprobs`` themselves; ``reference`` is
    needed where beta is not 0; ``weights`` multiply the policy term; ``mask`` is 0 for what the loss leaves out;
    ``bonus`` is what an entropy bonus adds.

    Raises CreditError for a loss there is not, and for a KL without a reference.
    """
    if settings.loss_type not in LENS_LOSSES:
        raise CreditError(f"unknown loss_type {settings.loss_type!r}; choose one of {', '.join(LENS_LOSSES)}")
    advantage, logp = (np.asarray(numbers, dtype=np.float64) for numbers in (advantages, logprobs))
    counted = np.ones(len(logp)) if mask is None else np.asarray(mask, dtype=np.float64)
    weight = np.ones(len(logp)) if weights is None else np.asarray(weights, dtype=np.float64)
    is_counted = counted > 0  # what a tool wrote may have any number, or none
    logp = np.where(is_counted, logp, 0.0)
    log_ratio = np.zeros(len(logp)) if old is None else np.where(is_counted, logp - np.asarray(old, np.float64), 0.0)
    log_weight = log_ratio
    if settings.sequence_ratio:
        log_weight = np.full(len(logp), (log_ratio * counted).sum() / max(counted.sum(), 1.0))
    ratio = np.exp(log_weight)
    factor, slope = _factor(settings, advantage, ratio, log_ratio * counted)
    constant = settings.loss_type in ("cispo", "vespo")  # the factor has no gradient, log pi has
    policy = -factor * advantage * weight * (logp if constant else 1.0)
    direct = -factor * advantage * weight if constant else np.zeros(len(logp))  # by log pi, as it stands there
    by_ratio = np.zeros(len(logp)) if constant else -slope * ratio * advantage * weight  # by log rho
    kl = np.zeros(len(logp))
    if settings.beta:
        if reference is None:
            raise CreditError(f"beta is {settings.beta:g} and there is no reference policy; give its log-probabilities")
        d = np.where(is_counted, np.asarray(reference, dtype=np.float64) - logp, 0.0)
        times = ratio if settings.kl_times_ratio else 1.0
        kl = settings.beta * (np.exp(d) - d - 1) * times
        direct = direct + settings.beta * (1 - np.exp(d)) * times
        by_ratio = by_ratio + (kl if settings.kl_times_ratio else 0.0)
    if settings.sequence_ratio:  # every token has its part in the one ratio
        by_ratio = np.full(len(logp), (by_ratio * counted).sum() / max(counted.sum(), 1.0))
    return TokenLosses(
        ratio=ratio,
        factor=factor,
        clipped=(np.sign(ratio - factor) * (slope == 0) * (advantage != 0)).astype(np.int8),
        policy=policy,
        kl=kl,
        contribution=normaliser * counted * (policy + kl) + (0.0 if bonus is None else np.asarray(bonus, np.float64)),
        push=-normaliser * counted * (direct + by_ratio),
        normaliser=normaliser,
    )


def _factor(settings: LossSettings, advantage: Floats, ratio: Floats, log_ratio: Floats) -> tuple[Floats, Floats]:
    """Return the advantage's factor and its derivative by the ratio, which is 0 where a bound holds the ratio."""
    if settings.loss_type in CLIPPED_LOSSES:
        bounded = ratio if settings.delta is None else np.minimum(ratio, settings.delta)
        clipped = np.clip(ratio, 1 - settings.epsilon, 1 + settings.epsilon_high)
        # min(rho A, clip(rho) A), whichever sign A has
        factor = np.where(advantage >= 0, np.minimum(bounded, clipped), np.maximum(bounded, clipped))
        return factor, (factor == ratio).astype(np.float64)
    if settings.loss_type == "cispo":
        factor = np.minimum(ratio, settings.epsilon_high)
        return factor, (factor == ratio).astype(np.float64)
    if settings.loss_type == "sapo":
        temperature = np.where(advantage > 0, *settings.sapo_temperatures)
        gate = 1 / (1 + np.exp(-temperature * (ratio - 1)))
        return 4 * gate / temperature, 4 * gate * (1 - gate)
    least, most = np.log(1e-8), 20.0
    log_w = np.clip(np.clip(log_ratio, -most, most).sum(), least, most)
    k, lam = (np.where(advantage >= 0, *pair) for pair in (settings.vespo_k, settings.vespo_lambda))
    lam = np.maximum(lam, 1e-4)
    return np.exp(lam + k * log_w - lam * np.exp(log_w)), np.ones(len(ratio))


def pass_losses(credits: Sequence[Credit], seen: LossPass, settings: LossSettings | None = None) -> list[TokenLosses]:
    """The terms of every rollout of a stored generation in one pass, in the order of ``seen.rollouts``.

    ``settings`` reads the same pass with another loss. Raises CreditError where the pass is of other rollouts.
    """
    settings = settings or seen.settings
    rollouts = [(credit, i) for credit in credits for i in range(len(credit.scored.group))]
    return [
        _rollout_losses(settings, credit, i, row, float(c))
        for (credit, i), row, c in zip(rollouts, seen.rollouts, pass_normalisers(credits, seen, settings), strict=True)
    ]


def pass_normalisers(credits: Sequence[Credit], seen: LossPass, settings: LossSettings) -> Floats:
    """The coefficient c of every rollout's tokens in a pass, 0 for what the loss leaves out. Raises as above."""
    groups = [credit.scored.group for credit in credits]
    count = sum(map(len, groups))
    if count != len(seen.rollouts):
        raise CreditError(
            f"the pass of step {seen.step} has {len(seen.rollouts)} rollouts and {count} are here; give the "
            f"groups stored for step {seen.generation}"
        )
    return length_normalisers(
        [rollout.policy_length for group in groups for rollout in group.rollouts],
        settings.loss_type,
        max_completion_length=settings.max_completion_length or max(map(longest_allowed, groups)),
        masked=[not row for credit in credits for row in credit.is_counted],
        micro_batches=[row.micro_batch for row in seen.rollouts],
        all_tokens=seen.tokens,
    )


def group_losses(credit: Credit, settings: LossSettings) -> list[TokenLosses]:
    """The terms of a group's rollouts on policy: every ratio is 1, and the group is the whole batch.

    A KL is read where the group has a reference; without one there is none.
    """
    normalisers = group_normalisers(credit, settings.loss_type, max_completion_length=settings.max_completion_length)
    group = credit.scored.group
    return [_rollout_losses(settings, credit, i, on_policy(group, i), float(c)) for i, c in enumerate(normalisers)]


def on_policy(group: Group, i: int) -> RolloutPass:
    """Rollout i as a first pass over it sees it: log-probabilities as sampled, 0 where it has none."""
    logprobs = group.raw_logprobs(i)
    known = np.zeros(len(group.rollouts[i])) if logprobs is None else np.asarray(logprobs)
    return RolloutPass(0, known.astype(np.float32))


def _rollout_losses(
    settings: LossSettings, credit: Credit, i: int, seen: RolloutPass, normaliser: float
) -> TokenLosses:
    rollout = credit.scored.group.rollouts[i]
    length = len(rollout)
    if seen.logprobs is None or not normaliser:
        ones, zeros = np.ones(length), np.zeros(length)
        return TokenLosses(ones, ones, zeros.astype(np.int8), zeros, zeros, zeros, zeros, normaliser)
    return token_losses(
        replace(settings, beta=0.0) if rollout.ref_logprobs is None else settings,
        credit.of(i),
        seen.logprobs,
        normaliser=normaliser,
        old=seen.old_logprobs,
        reference=rollout.ref_logprobs,
        weights=seen.weights,
        mask=rollout.mask,
        bonus=seen.bonus,
    )


# --- weight of each token in the loss: its advantage times the length normaliser -------------------------------------
#
# Two completions with the same advantage do not pull equally hard: ``grpo`` divides by the completion's own length, the
# others do not. The coefficients are those of the policy term of TRL 1.16's loss where the ratio is 1 (the first pass
# over a generation), with the group at hand as the whole batch; a test holds them against TRL's own gradient.

LossType = Literal["grpo", "bnpo", "dapo", "dr_grpo", "cispo", "sapo", "luspo"]
LOSS_TYPES: Mapping[str, str] = {
    "grpo": "1 / (G · T_i): every completion counts the same, so a long one's tokens count less each",
    "bnpo": "1 / Σ T: every token of the micro-batch counts the same",
    "dapo": "1 / Σ T: every token of the generation counts the same",
    "dr_grpo": "1 / (G · longest allowed): every token counts the same, in every batch",
    "cispo": "1 / Σ T, as dapo",
    "sapo": "1 / (G · T_i), as grpo",
    "luspo": "1 / G: summed over a completion, so a long one counts more",
}
"""The coefficient c_i of each token of completion i, by TRL's name of the loss."""


def length_normalisers(
    lengths: Sequence[int],
    loss_type: str,
    *,
    max_completion_length: int,
    masked: Sequence[bool] | None = None,
    micro_batches: Sequence[int] | None = None,
    all_tokens: float | None = None,
) -> npt.NDArray[np.float64]:
    """The coefficient c_i of completion i's tokens, (G,): the loss is −Σ_i c_i Σ_t A_{i,t} ρ_{i,t}.

    ``lengths`` are T_i, the tokens that the policy sampled: what tools wrote has no part in the loss.
    ``masked`` completions (truncated ones, under ``mask_truncated_completions``, and copies, under ``drop_duplicates``)
    weigh nothing and are left out of Σ T; they count in G. ``micro_batches`` numbers the micro-batch, of any rank, that
    each was in (all of one by default): losses are averaged over these, each with its own G and Σ T. ``all_tokens`` is
    the generation's Σ T, where these are not all of it.
    Sources: grpo, DeepSeekMath (arXiv 2402.03300) eq. 3; dapo (2503.14476) eq. 8; dr_grpo (2503.20783) section 3.
    Raises CreditError for a loss there is not.
    """
    if loss_type not in LOSS_TYPES and loss_type != "vespo":  # which divides as dapo does
        raise CreditError(f"unknown loss_type {loss_type!r}; choose one of {', '.join(LOSS_TYPES)}")
    counted = np.ones(len(lengths), dtype=bool) if masked is None else ~np.asarray(masked, dtype=bool)
    tokens = np.where(counted, np.asarray(lengths, dtype=np.float64), 0.0)  # (G,)
    parts = np.zeros(len(lengths), dtype=np.int64) if micro_batches is None else np.asarray(micro_batches)
    rows = np.bincount(parts)[parts] * (parts.max(initial=0) + 1)  # (G,): those of its micro-batch, times their number
    of_part = np.maximum(np.bincount(parts, weights=tokens)[parts], 1.0) * (parts.max(initial=0) + 1)
    generation = np.full(len(lengths), float(tokens.sum()) if all_tokens is None else all_tokens)
    divisors = {
        **dict.fromkeys(("grpo", "sapo"), rows * np.maximum(tokens, 1.0)),
        "bnpo": of_part,
        **dict.fromkeys(("dapo", "cispo", "vespo"), np.maximum(generation, 1.0)),
        "dr_grpo": rows * max_completion_length,
        "luspo": rows,
    }
    return np.asarray(np.where(counted, 1.0 / divisors[loss_type], 0.0))


def longest_allowed(group: Group) -> int:
    """Tokens that a completion of a group may have at most; those of its longest where the group does not know."""
    limit = group.sampling.get("max_completion_length")
    return int(limit) if limit else max(map(len, group.rollouts), default=1)


def group_normalisers(
    credit: Credit, loss_type: str, *, max_completion_length: int | None = None
) -> npt.NDArray[np.float64]:
    """``length_normalisers`` of a group, (G,), 0 for rollouts that the loss does not count, with its own limit unless
    another is given.

    The limit matters to dr_grpo alone; where the group does not know its own it is its longest completion.
    """
    group = credit.scored.group
    return length_normalisers(
        [rollout.policy_length for rollout in group.rollouts],
        loss_type,
        max_completion_length=max_completion_length or longest_allowed(group),
        masked=[not is_counted for is_counted in credit.is_counted],
    )


def loss_weights(credit: Credit, loss_type: str = "dapo", **limits: Any) -> npt.NDArray[np.float64]:
    """A_{i,t} · c_i of every token, (G, T_max) float64, 0 where A is; ``limits`` are those of ``group_normalisers``."""
    return np.asarray(credit.advantages * group_normalisers(credit, loss_type, **limits)[:, None], dtype=np.float64)


# --- rewards that a credit does not use, and why a group has no spread ------------------------------------------------

NO_SPREAD = "No spread: every advantage is 0, there is nothing to learn from this group"


@dataclass(frozen=True)
class Remedy:
    """Settings of the credit, by name, under which the group has spread; ``label`` says them in words."""

    label: str
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class NoSpread:
    """The reason that all advantages are 0. ``cause`` is "" where all rewards are equal, which no setting changes."""

    cause: str = ""
    remedies: tuple[Remedy, ...] = ()

    @property
    def advice(self) -> str:
        """Return what to do, in a line: "outcome weight 1, or scheme outcome"."""
        if not self.cause:
            return "sample again, try a stronger policy, or add a reward that tells these answers apart"
        return ", or ".join(f"{remedy.label[:1].lower()}{remedy.label[1:]}" for remedy in self.remedies)

    def __str__(self) -> str:
        return f"Every advantage is 0: {self.cause}" if self.cause else NO_SPREAD


def unused_rewards(credit: Credit) -> dict[str, str]:
    """Say why a reward function plays no part in the advantages, by the names of those that do not."""
    read = _kinds_read(credit)
    unused = {}
    for reward in credit.scored.rewards:
        if reward.weight == 0:
            unused[reward.name] = "its weight is 0"
        elif reward.kind not in read:
            left_out = "outcome weight is 0" if reward.kind == "outcome" else f"{credit.scheme} reads outcomes alone"
            unused[reward.name] = left_out
    return unused


def what_counts(credit: Credit) -> str:
    """Return what a token's advantage is made of, in words, and whether the outcome is part of it."""
    scheme = SCHEMES.get(credit.scheme)
    counts = scheme.counts if scheme else COUNTS if credit.scheme == GAE else ""
    outcomes = [reward for reward in credit.scored.rewards if reward.kind == "outcome" and reward.weight != 0]
    if not outcomes or (scheme and scheme.counts_outcome):
        return counts
    used = "outcome" in _kinds_read(credit)
    return f"{counts}{', and the outcome R' if used else '; the outcome R is not in it'}".lstrip(",; ")


def why_no_spread(credit: Credit) -> NoSpread | None:
    """None for a group that teaches something."""
    if credit.spread:
        return None
    if credit.advantages.any():
        return NoSpread("the loss leaves out the truncated answers, and others have none")
    if credit.gate_reason:
        return NoSpread(f"gated by the outcome, since {credit.gate_reason}")
    read = _kinds_read(credit)
    kinds: tuple[RewardKind, ...] = ("outcome", "step")
    for kind in kinds:
        names = [r.name for r in credit.scored.rewards if r.kind == kind and r.weight != 0]
        if names and kind not in read and (remedies := tuple(_that_help(credit, kind))):
            several = len(names) > 1
            what = f"{kind} reward{'s' if several else ''} ({', '.join(names)}) differ{'' if several else 's'}"
            setting = f"{credit.scheme} with outcome weight 0" if kind == "outcome" else credit.scheme
            unused = f"the {what}, and {setting} does not use {'them' if several else 'it'}"
            # The rewards of steps tell none of them apart, which may be the fault of the pattern.
            steps = [r.name for r in credit.scored.rewards if r.kind == "step" and r.weight != 0]
            values = {reward for row in credit.scored.step_rewards for reward in row if reward is not None}
            equal = "only "
            if steps and len(values) < 2:
                says = f"scores every step {values.pop():g}" if values else "scores no step"
                equal = f"{' + '.join(steps)} {says} (does the pattern cut what it judges?); "
            return NoSpread(f"{equal}{unused}", remedies)
    return NoSpread()


def _kinds_read(credit: Credit) -> set[RewardKind]:
    """The kinds of rewards that the advantages are made of; a completion's sum is one of its steps' rewards."""
    of_parts: dict[PartKind, set[RewardKind]] = {"outcome": {"outcome"}, "token": {"outcome"}}
    of_parts["importance"] = set()
    both: set[RewardKind] = {"step", "outcome"}  # of returns, and of the temporal differences of token rewards
    of_parts |= dict.fromkeys(("return", "delta", "later", "centre"), both)
    return {kind for part in credit.parts for kind in of_parts.get(part.kind, {"step"})}


def _that_help(credit: Credit, kind: RewardKind) -> Iterator[Remedy]:
    """The settings that bring in rewards of ``kind``, as far as they give the group spread."""
    if kind == "outcome":
        tried = [Remedy("Outcome weight 1", {"outcome_weight": 1.0}), Remedy("Scheme outcome", {"scheme": "outcome"})]
    else:
        tried = [Remedy("Scheme process", {"scheme": "process"})]
    for remedy in tried:
        settings = {**credit.options, "scheme": credit.scheme, **remedy.settings}
        scheme = settings.pop("scheme")
        names = {option.name for option in find_scheme(scheme).options} | set(SHARED)
        try:
            changed = credit_group(credit.scored, scheme, **{name: settings[name] for name in names & settings.keys()})
        except CreditError:  # rewards too large for the scheme, for example
            continue
        if changed.spread:
            yield remedy


# --- which answers and which steps the gradient comes from --------------------------------------------------------
#
# A token's push is minus the derivative of the loss by its log-probability (``token_losses``); the gradient is the sum
# of push times the gradient of the log-probability. The share of a set of tokens is that of the pushes' sizes: how hard
# the loss pulls there, whatever the policy's weights make of it.

NAMED_STEPS = 8
"""Step positions that have a share of their own; later ones share one."""


@dataclass(frozen=True)
class GradientShare:
    """The part ``name``, of ``tokens`` tokens, has ``share`` of all pushes' sizes, ``up`` of it upwards."""

    name: str
    tokens: int
    share: float
    up: float


def gradient_shares(credits: Sequence[Credit], losses: Sequence[TokenLosses]) -> list[GradientShare]:
    """Return the shares of right and wrong answers, where an outcome reward judges them, then of each step position.

    ``losses`` are the rollouts' of all groups, as ``pass_losses`` gives them. Empty where nothing is pushed.
    """
    answers = {True: "right answers", False: "wrong answers", None: "answers without a verdict"}
    steps = [*(f"step {k + 1}" for k in range(NAMED_STEPS)), f"step {NAMED_STEPS + 1} and later", "outside every step"]
    tokens: dict[str, list[float]] = {name: [] for name in (*answers.values(), *steps)}  # in the order of the answer
    rows = iter(losses)
    for credit in credits:
        verdicts = credit.scored.answer_verdicts
        for i, scored in enumerate(credit.scored.scored):
            push = next(rows).push[: credit.is_counted[i] * len(credit.of(i))]  # none of what the loss does not count
            tokens[answers[verdicts[i]]].extend(push)
            place = np.full(len(push), -1)
            for k, (first, last) in enumerate(scored.spans):
                place[first : last + 1] = min(k, NAMED_STEPS)
            for k in np.unique(place):
                tokens[steps[k]].extend(push[place == k])
    total = sum(abs(push) for name in answers.values() for push in tokens[name])
    if not total:
        return []
    shares = [
        GradientShare(
            name,
            len(pushes),
            float(np.abs(pushes).sum() / total),
            float(np.maximum(pushes, 0).sum() / total),
        )
        for name, pushes in tokens.items()
        if pushes
    ]
    judged = tokens["right answers"] or tokens["wrong answers"]
    return [share for share in shares if judged or share.name != "answers without a verdict"]


# --- two credits of the same rollouts: what a change of scheme does before any training is spent on it ------------


@dataclass(frozen=True)
class StepDifference:
    """One step under both credits: its tokens' mean advantage in each, and how many of them change sign."""

    rollout: int
    step: int
    tokens: int
    mean_a: float
    mean_b: float
    flipped: int


@dataclass(frozen=True)
class Comparison:
    """``a`` and ``b`` credit the same group; ``difference`` = b − a and ``flipped`` are (G, T_max).

    ``names`` are the two schemes', with the rewards behind them where these are what differs. ``flipped_share`` is the
    share of tokens whose advantage is above 0 in one and below 0 in the other; ``correlation`` Pearson's r over all
    tokens, None where one of them is constant.
    """

    a: Credit
    b: Credit
    names: tuple[str, str]
    difference: npt.NDArray[np.float32]
    flipped: npt.NDArray[np.bool_]
    flipped_share: float
    correlation: float | None
    mean_absolute_difference: float
    steps: tuple[StepDifference, ...]


LOGGED = "logged"
"""What a credit made of a file's own advantages has for its scheme's name."""


def logged_credit(credit: Credit) -> Credit | None:
    """Return the advantages that the group's file logged as another credit of it, 0 where it logged none.

    ``logged_advantage`` of a rollout is a number for all tokens that were sampled, or one a token (None for unknown).
    None where no rollout has such a column.
    """
    rollouts = credit.scored.group.rollouts
    logged = [rollout.columns.get("logged_advantage") for rollout in rollouts]
    if all(value is None for value in logged):
        return None
    advantages = np.zeros_like(credit.advantages)
    for i, (rollout, value) in enumerate(zip(rollouts, logged, strict=True)):
        row = value if isinstance(value, list) else [value] * len(rollout)
        for t, one in enumerate(row[: len(rollout)]):
            advantages[i, t] = one if one is not None and rollout.is_sampled(t) else 0.0
    unscored = [[None] * len(row.steps) for row in credit.scored.scored]
    return Credit(credit.scored, LOGGED, {}, advantages, unscored, None, None)


def compare_credits(a: Credit, b: Credit) -> Comparison:
    """Raises CreditError unless both credit the same token ids."""
    ids = [[rollout.token_ids for rollout in credit.scored.group.rollouts] for credit in (a, b)]
    if ids[0] != ids[1]:
        raise CreditError("the two credits are of different rollouts; compare credits of one group")
    inside = np.arange(a.advantages.shape[1]) < np.array(a.scored.lengths)[:, None]  # (G, T_max)
    inside &= np.array(a.is_counted)[:, None] | np.array(b.is_counted)[:, None]
    flipped = (np.sign(a.advantages) * np.sign(b.advantages) < 0) & inside
    x, y = a.advantages[inside].astype(np.float64), b.advantages[inside].astype(np.float64)
    first, second = (
        ", ".join(f"{r.name}{'' if r.weight == 1 else f' × {r.weight:g}'}" for r in credit.scored.rewards)
        for credit in (a, b)
    )
    names = a.scheme, b.scheme
    if a.scored.scored != b.scored.scored or first != second:
        other = ", other scores" if first == second else ""  # the same functions by name: other options, say
        names = f"{a.scheme} on {first or 'no reward'}", f"{b.scheme} on {second or 'no reward'}{other}"
    return Comparison(
        a=a,
        b=b,
        names=names,
        difference=b.advantages - a.advantages,
        flipped=flipped,
        flipped_share=float(flipped[inside].mean()) if len(x) else 0.0,
        correlation=float(np.corrcoef(x, y)[0, 1]) if x.size > 1 and x.std() > 0 and y.std() > 0 else None,
        mean_absolute_difference=float(np.abs(y - x).mean()) if len(x) else 0.0,
        steps=tuple(
            StepDifference(
                rollout=i,
                step=k,
                tokens=last - first + 1,
                mean_a=float(a.advantages[i, first : last + 1].mean()),
                mean_b=float(b.advantages[i, first : last + 1].mean()),
                flipped=int(flipped[i, first : last + 1].sum()),
            )
            for i, scored in enumerate(a.scored.scored)
            for k, (first, last) in enumerate(scored.spans)
        ),
    )
