"""Pre-flight: what a sample of groups says about a pattern, a reward set and a scheme before any training.

Every finding is a number, what it means and what to do about it. Nothing is sampled here: whoever has a policy samples
a few groups (eight prompts are the custom) and passes them in.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate, chain, compress
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.checks.alarms import MOSTLY_UNSCORED, PHANTOM, WRONGED
from workbench.checks.findings import Finding, Level, worst_level
from workbench.config import CreditConfig
from workbench.credit import credit_groups, why_no_spread
from workbench.errors import ConfigError, CreditError, RewardError
from workbench.rewards import Reward, RewardConfig, Sandbox, load_reward, score_group
from workbench.rewards.protocol import columns_left_out
from workbench.rewards.reward import Models
from workbench.rewards.statistics import DROWNED, correlation, tell_apart
from workbench.schema import JUDGES, Credit, Group, differ
from workbench.steps import MAX_STEPS, StepPattern, turn_texts

_TAG_AT_END = re.compile(r"<([A-Za-z_][\w-]*)>\s*$")
LEAST_FOR_CORRELATION = 8
SHORTEST_STEP = 4
"""Characters of a step, on average, below which a pattern cuts inside words."""


@dataclass(frozen=True)
class Preflight:
    """The findings, and the scored and credited groups they are about."""

    findings: tuple[Finding, ...]
    credits: tuple[Credit, ...]

    @property
    def level(self) -> Level:
        return worst_level(self.findings)

    def to_json(self) -> dict[str, Any]:
        return {"level": self.level, "findings": [asdict(finding) for finding in self.findings]}


def preflight(
    groups: Sequence[Group],
    pattern: StepPattern,
    rewards: Sequence[str | Callable[..., Any] | RewardConfig | Reward],
    credit: CreditConfig | None = None,
    *,
    worker: Sandbox | None = None,
    models: Models | None = None,
    mask_truncated: bool = False,
) -> Preflight:
    """Split, score and credit ``groups`` as a run would, and say what to look at.

    A reward function that fails is a finding of its own and is left out of the rest. ``mask_truncated``: the run's loss
    leaves truncated completions out. Code runs in ``worker`` and reward models are held by ``models``, as in
    ``score_group``. Raises PatternError for a pattern that cannot be used and CreditError for a scheme that cannot.
    """
    credit = credit or CreditConfig()
    if not any(len(group) for group in groups):
        raise ConfigError("there is no rollout to look at; sample at least one group")
    if not rewards:
        raise ConfigError("rewards: give at least one reward function")
    groups = [replace(one, sampling={"mask_truncated_completions": mask_truncated, **one.sampling}) for one in groups]
    loaded = [load_reward(spec, worker, models=models, pattern=pattern) for spec in rewards]
    errors: list[Finding] = []
    try:
        scored = [score_group(group, pattern, loaded, worker=worker) for group in groups]
    except RewardError:
        working, errors = _working(groups, pattern, loaded, worker)
        scored = [score_group(group, pattern, working, worker=worker) for group in groups]
    try:
        credits = credit_groups(scored, credit.scheme, **credit.keywords(but=("scheme",)))
    except CreditError:
        if errors:  # it lacks the very reward that failed
            return Preflight(tuple(errors), ())
        raise
    report = preflight_of(credits, pattern)
    return Preflight((*errors, *report.findings), report.credits)


def preflight_of(credits: Sequence[Credit], pattern: StepPattern) -> Preflight:
    """The findings about groups that have been scored and credited already."""
    groups = [credit.scored.group for credit in credits]
    findings = [
        *splitting_findings(credits),
        *_prompts(groups, pattern),
        *_turn_ends(groups),
        *_columns(groups),
        *_sampling(credits),
        *_spread(credits),
        *_phantoms(credits),
        *_verdicts(credits),
        *_rewards(credits),
        *_correlations(credits),
    ]
    # What the scheme says of the rewards it got, the warnings that most groups have first.
    counts = Counter(warning for credit in credits for warning in dict.fromkeys(credit.warnings))
    for warning, count in counts.most_common(3):
        value = f"{count} of {len(credits)} groups"
        findings.append(Finding(f"scheme {credits[0].scheme}", "check", value, warning))
    return Preflight(tuple(findings), tuple(credits))


def _working(
    groups: Sequence[Group], pattern: StepPattern, rewards: Sequence[Reward], worker: Sandbox | None
) -> tuple[list[Reward], list[Finding]]:
    """The rewards that score every group, and a finding for each that does not."""
    working, findings = [], []
    for reward in rewards:
        failures = []
        for group in groups:
            try:
                score_group(group, pattern, [reward], worker=worker)
            except RewardError as error:
                failures.append(str(error))
        if failures:
            advice = "mend it on Inspect; a run would stop at its first error"
            value = f"{len(failures)} of {len(groups)} groups"
            findings.append(Finding(f"errors of {reward.name}", "stop", value, failures[0], advice))
        else:
            working.append(reward)
    return working, findings


# ── splitting ────────────────────────────────────────────────────────────────────────────────────────────────────


def splitting_findings(credits: Sequence[Credit]) -> Iterable[Finding]:
    """Yield what the pattern finds in the groups' answers."""
    scored = [credit.scored for credit in credits]
    in_all: Level = "check" if any(credit.spread for credit in credits) else "stop"
    every = [row for group in scored for row in zip(group.group.rollouts, group.scored, strict=True)]
    rows = [row for row in every if not row[1].unsplit]
    if len(rows) < len(every):
        yield Finding(
            "answers left unsplit",
            "check" if rows else in_all,
            f"{len(every) - len(rows)} of {len(every)}",
            f"the pattern finds over {MAX_STEPS:,} steps in each: it stays whole and unscored",
            "choose a pattern that finds fewer steps, paragraph for line say",
        )
    if not rows:
        return
    counts = np.array([len(scores.steps) if scores.matched else 0 for _, scores in rows])
    covered = sum(step.end - step.start for _, scores in rows for step in scores.steps)
    low, high, middle = int(counts.min()), int(counts.max()), float(np.median(counts))
    if middle < 2:
        level: Level = "check"
        advice = "with one step an answer, process credit is outcome credit; choose another pattern on Inspect"
    elif covered < SHORTEST_STEP * counts.sum():
        level, advice = "check", f"a step has {covered / counts.sum():.1f} characters; the pattern cuts inside words"
    else:
        level, advice = ("ok", "") if middle <= 50 else ("check", "so many steps are hard to score; a coarser pattern?")
    yield Finding("steps per answer", level, f"{middle:g} ({low} to {high})", "median, fewest and most", advice)

    missed = float((counts == 0).mean())
    yield Finding(
        "answers without a match",
        in_all if missed == 1 else "check" if missed > 0.1 else "ok",
        f"{missed:.0%}",
        "each of them counts as one step",
        "the pattern finds nothing in them: look at one on Inspect" if missed > 0.1 else "",
    )

    characters = max(sum(turn.end - turn.start for rollout, _ in rows for turn in turn_texts(rollout)), 1)
    outside = 1 - covered / characters
    yield Finding(
        "text outside steps",
        "check" if outside > 0.2 else "ok",
        f"{outside:.0%}",
        "characters that no reward function of steps sees",
        "own-step schemes leave these tokens at 0; widen the pattern if they matter" if outside > 0.2 else "",
    )

    astride = 0
    for rollout, scores in rows:
        ends = list(accumulate(map(len, rollout.texts)))
        inside = {step.start for step in scores.steps}.difference((0, *ends))  # steps that begin inside a token
        astride += len({bisect_right(ends, start) for start in inside})
    straddling = astride / max(sum(rollout.policy_length for rollout, _ in rows), 1)
    yield Finding(
        "straddling tokens",
        "check" if straddling > 0.05 else "ok",
        f"{straddling:.1%}",
        "tokens with characters of two steps; each belongs to the step that ends in it",
        "begin steps where tokens begin, for example with the line break before them" if straddling > 0.05 else "",
    )

    rewards = [reward for _, scores in rows for reward in scores.rewards]
    unscored = sum(reward is None for reward in rewards) / max(len(rewards), 1)
    if any(reward.kind == "step" for group in scored for reward in group.rewards):
        yield Finding(
            "unscored steps",
            in_all if unscored == 1 else "check" if unscored > 0.5 else "ok",
            f"{unscored:.0%}",
            "steps that every function left without a score",
            "they get no credit of their own; see that the pattern cuts what the rewards expect"
            if unscored > 0.5
            else "",
        )


def _prompts(groups: Sequence[Group], pattern: StepPattern) -> Iterable[Finding]:
    """A chat template may end the prompt with a tag that the pattern waits for in the completion, in vain."""
    tails = {match[1] for group in groups if (match := _TAG_AT_END.search(_tail(group)))}
    written = pattern.regex.replace("\\", "")
    for tag in sorted(tag for tag in tails if f"<{tag}>" in written):
        if any(form in written for form in (f"(?:<{tag}>)?", f"(<{tag}>)?", f"^|<{tag}>", f"<{tag}>|")):
            continue  # it does without the opener
        yield Finding(
            "prompt ends with a tag",
            "check",
            f"<{tag}>",
            "the prompt already opens a tag that the pattern looks for, so completions begin inside it",
            f"make the opener optional: (?:<{tag}>)? or (?:^|<{tag}>)",
        )


def _turn_ends(groups: Sequence[Group]) -> Iterable[Finding]:
    """A base model may stop at another token than the one that its chat template ends turns with."""
    unended = [group for group in groups if group.sampling.get("turn_end")]
    if not unended:
        return
    end = str(unended[0].sampling["turn_end"])
    ran_on = [end in rollout.text for group in unended for rollout in group.rollouts]
    yield Finding(
        "end of a turn",
        "check",
        end,
        f"the chat template ends a turn with it and the policy does not stop there; {float(np.mean(ran_on)):.0%} of "
        "the completions write it and go on",
        f"add {end} to sampling.stop, or to eos_token_id in the policy's generation_config.json",
    )


def _columns(groups: Sequence[Group]) -> Iterable[Finding]:
    if names := columns_left_out(name for group in groups for name in group.columns):
        yield Finding(
            "columns left out",
            "check",
            ", ".join(names),
            "a column of this name would hide an argument of reward functions, and none of them gets it",
            "rename it in the data if a reward function is to have it",
        )


def _tail(group: Group) -> str:
    """Return how the prompt ends as the policy read it, chat template and all."""
    prompt = group.prompt
    written = prompt if isinstance(prompt, str) else prompt[-1]["content"] if prompt else ""
    return str(group.sampling.get("prompt_tail", written))


# ── sampling and spread ──────────────────────────────────────────────────────────────────────────────────────────


def _sampling(credits: Sequence[Credit]) -> Iterable[Finding]:
    groups = [credit.scored.group for credit in credits]
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    truncated = float(np.mean([rollout.truncated for rollout in rollouts]))
    # A limit that about a tenth would reach, were completions to end at the rate per token that they do.
    lengths = [len(rollout) for rollout in rollouts]
    enough = f"(to {2 * max(lengths)}, say: at {max(lengths)} none has ended)"
    if 0 < truncated < 1:
        limit = max(lengths) + sum(lengths) / (len(lengths) * (1 - truncated)) * np.log(10 * truncated)
        enough = f"(about {16 * int(np.ceil(limit / 16))} would do for nine in ten)"
    yield Finding(
        "truncated",
        "check" if truncated > 0.1 else "ok",
        f"{truncated:.0%}",
        "completions cut off by the length limit; what they would have answered is unknown",
        f"raise max_completion_length {enough}, or set mask_truncated_completions" if truncated > 0.1 else "",
    )
    repeated = float(np.mean([(len(group) - len(group.distinct)) / max(len(group), 1) for group in groups]))
    dropped = credits[0].options.get("drop_duplicates")
    remedy = "" if dropped else "set credit.drop_duplicates to count each once, "
    yield Finding(
        "repeated answers",
        "check" if repeated > 0.5 else "ok",
        f"{repeated:.0%}",
        f"answers equal to an earlier one of their group token for token, {'left out' if dropped else 'each counted'}",
        f"{remedy}raise the temperature, or choose prompts the policy is less sure of" if repeated > 0.5 else "",
    )


def _spread(credits: Sequence[Credit]) -> Iterable[Finding]:
    flat = [reason for credit in credits if (reason := why_no_spread(credit)) is not None]
    share = len(flat) / len(credits)
    meaning = "all that the scheme compares is equal: every advantage is 0, nothing to learn from such a group"
    advice = "prompts of middling difficulty, more rollouts a group, or a finer reward"
    if any(credit.gate_reason for credit in credits):
        meaning = "no reward differs, or the outcome does not and the group is gated: every advantage is 0"
    unused = [reason for reason in flat if reason.remedies]
    if 2 * len(unused) > len(flat):
        meaning = f"in {len(unused)} of {len(credits)} groups {unused[0].cause}"
        advice = unused[0].advice
    yield Finding(
        "groups without spread",
        "stop" if share == 1 else "check" if share > 0.5 else "ok",
        f"{share:.0%}",
        meaning,
        advice if share > 0.5 else "",
    )


def _phantoms(credits: Sequence[Credit]) -> Iterable[Finding]:
    """In how many groups no answer is right and another reward decides alone, and how many the gate keeps out."""
    judged = [(credit, right) for credit in credits if (right := credit.scored.answers_right) is not None]
    deciding = [names for credit, right in judged if not any(right) and (names := credit.deciding())]
    if credits[0].options.get("gate"):
        gated = sum(bool(credit.gate_reason) for credit in credits)
        meaning = "the rewards differ and the outcome does not: advantage 0, and counted in the loss's divisor"
        yield Finding("groups gated", "ok", f"{gated} of {len(credits)}", meaning, "")
    elif deciding:
        many = len(deciding) > PHANTOM * len(credits)
        yield Finding(
            "phantom advantages",
            "check" if many else "ok",
            f"{len(deciding)} of {len(credits)}",
            f"groups in which no answer is right train at full size: only {', '.join(dict.fromkeys(chain(*deciding)))} "
            "differs",
            "set credit.gate to outcome" if many else "",
        )


def _verdicts(credits: Sequence[Credit]) -> Iterable[Finding]:
    """Count who is pushed against the verdict, where a reward, or labels, say what is right."""
    for kind in WRONGED:
        every = [one for credit in credits for one in credit.judged()]
        judged = [one for one in every if (one.step is not None) is (kind == "steps")]
        down = [one.is_wronged for one in judged if one.right]
        up = [one.is_wronged for one in judged if not one.right]
        if not (down and up):
            continue
        mostly = 2 * sum(down) > len(down) or np.mean(up) > 1 - np.mean(down)
        yield Finding(
            f"right {kind} pushed down",
            "check" if mostly and len(credits) > 1 else "ok",  # of one prompt that may be chance
            f"{sum(down)} of {len(down)} · wrong ones up {sum(up)} of {len(up)}",
            f"by the sum of the advantages of each of the {kind} that a reward, or a label, judges",
            WRONGED[kind] if mostly else "",
        )


# ── rewards ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _rewards(credits: Sequence[Credit]) -> Iterable[Finding]:
    """Look at each function's scores, and whether they tell the answers of a group apart."""
    scored = [credit.in_loss if any(credit.is_counted) else credit.scored for credit in credits]
    told = tell_apart(scored)
    drowns = not credits[0].options.get("each_reward")
    for reward in scored[0].rewards:
        telling = told[reward.name]
        if reward.weight < 0 and reward.name in JUDGES:
            meaning = "it says what is right, and a weight below 0 pays for what is wrong"
            yield Finding(
                f"weight of {reward.name}", "check", f"{reward.weight:g}", meaning, "make the weight positive"
            )
        scores = [score for group in scored for score in group.scores(reward) if score is not None]
        if not scores:
            yield Finding(f"reward {reward.name}", "check", "no score", "all is unscored", _EXPECTS)
            continue
        low, high = min(scores), max(scores)
        commonest, count = Counter(scores).most_common(1)[0]
        bound = (
            "" if low == high else ", the lowest" if commonest == low else ", the highest" if commonest == high else ""
        )
        equal = round(telling.zero_std * len(scored))
        meaning = (
            f"mean of {len(scores)} scores from {low:.3g} to {high:.3g}; {count / len(scores):.0%} are {commonest:.3g}"
            f"{bound}; {telling.unscored:.0%} unscored; equal in {equal} of {len(scored)} groups"
        )
        advice = ""
        level: Level = "check"
        if telling.zero_std == 1 and any(len(group.group) > 1 for group in scored):
            gave = (
                "the same for all completions of a prompt" if differ(low, high) else f"{low:.3g} for every completion"
            )
            meaning, advice = f"{gave}, so it teaches nothing", _CONSTANT
            if all(rollout.truncated for group in scored for rollout in group.group.rollouts):
                advice = "all completions are cut off before their end: raise max_completion_length first"
            elif reward.kind == "outcome" and not isinstance(scored[0].group.prompt, str):
                advice = _CONSTANT_OF_MESSAGES
            level = "check" if len(scored) > 1 else "ok"  # of one prompt that may be chance
        elif telling.unscored > MOSTLY_UNSCORED:
            advice = _EXPECTS
        elif drowns and telling.variance is not None and telling.variance < DROWNED and telling.zero_std < 0.5:
            advice = (
                f"it is {telling.variance:.1%} of what the summed rewards differ by and hardly counts; raise its "
                "weight, or set credit.each_reward"
            )
        mean = float(np.mean(scores))
        yield Finding(f"reward {reward.name}", level if advice else "ok", f"{mean:.3g}", meaning, advice)


_EXPECTS = "see that it finds the columns and the format it expects"
_CONSTANT = "it looks for what no answer has, or all have: try it on Inspect, or give it weight 0"
_CONSTANT_OF_MESSAGES = (
    "with these prompts a completion is a list of one message: its text is completion[0]['content'], and "
    "len(completion) is 1; or the function looks for what no answer has, or all have"
)


def _correlations(credits: Sequence[Credit]) -> Iterable[Finding]:
    """Within groups, so that a hard prompt with long answers is not taken for a reward that pays for length."""
    scored = [credit.in_loss for credit in credits]
    lengths = [group.lengths for group in scored]
    steps = [[len(scores.steps) for scores in group.scored] for group in scored]
    given = [[(*row.rewards, row.outcome) for row in group.scored] for group in scored]
    known = [[[reward for reward in row if reward is not None] for row in rows] for rows in given]
    rewards = [[sum(row) if row else None for row in rows] for rows in known]
    for name, others, advice in (
        ("reward and length", lengths, "longer answers score higher: probe 'pad with filler'"),
        ("reward and step count", steps, "answers with more steps score higher: probe 'split a step'"),
    ):
        r, least = _pearson(_tables(rewards, others))
        if r is not None:
            less = advice if r > 0 else advice.replace("higher", "lower")
            meaning = "correlation within groups, of the summed rewards"
            yield _correlation(name, r, least, meaning, less if least > 0.5 else "")
    pushes = [[float(row.sum()) for row in compress(credit.advantages, credit.is_counted)] for credit in credits]
    right = [[None if one is None else float(one) for one in group.answer_verdicts] for group in scored]
    r, least = _pearson(tables := _tables(right, pushes))
    if r is not None:
        against = r < 0 and least**2 * sum(map(len, tables)) > 4  # twice its standard error under no correlation
        meaning = "correlation within groups, of right answers and the sum of their advantages"
        advice = "the reward goes against the outcome: right answers are pushed down; see the signs of the weights"
        yield _correlation("reward and outcome", r, least, meaning, advice if against else "")


def _correlation(name: str, r: float, least: float, meaning: str, advice: str) -> Finding:
    if abs(r) > 0.5 and least <= 0.5:
        return Finding(name, "ok", "–", f"{meaning}: r = {r:+.2f}; too few answers to tell")
    return Finding(name, "check" if advice else "ok", f"r = {r:+.2f}", meaning, advice)


Table = npt.NDArray[np.float64]
"""Of a group, two values of each completion: (G, 2)."""


def _tables(xs: Sequence[Sequence[float | None]], ys: Sequence[Sequence[float]]) -> list[Table]:
    """The completions of each group that have both values."""
    rows = [[pair for pair in zip(x, y, strict=True) if pair[0] is not None] for x, y in zip(xs, ys, strict=True)]
    return [np.array(pairs, dtype=np.float64) for pairs in rows if len(pairs) > 1]


def _pearson(tables: Sequence[Table]) -> tuple[float | None, float]:
    """Return r within groups, and the least |r| there is without one of the completions; None where one is equal."""
    parts = [_centre(table) for table in tables]
    r = correlation(np.concatenate([*parts, np.zeros((0, 2))]))
    if r is None or sum(map(len, tables)) < LEAST_FOR_CORRELATION:
        return None, 0.0
    without = [
        correlation(np.concatenate([*parts[:g], _centre(np.delete(table, i, axis=0)), *parts[g + 1 :]]))
        for g, table in enumerate(tables)
        for i in range(len(table))
    ]
    return r, max(0.0, min((other or 0.0) * np.sign(r) for other in without))


def _centre(table: Table) -> Table:
    """Return how far a group's values lie above its mean; 0 for values that differ by rounding alone."""
    return np.where(differ(table.min(axis=0), table.max(axis=0)), table - table.mean(axis=0), 0.0)
