"""Alarms of a run: what in its curves should make a person look, each worded "check" because none is a proof.

What is measured is said; its cause is asked, beside the number that tells it where the run logs one. Pure functions of
the rows a run logs. Trends compare the mean of the first and the last third of the last ``WINDOW`` rows that have the
metric, and need ``LEAST`` of them. A difference counts when it is large (``EFFECT`` of the metric's own size) and sure
(``SURE`` times its own standard error, which allows for neighbouring rows being alike), because a page looks anew at
every row. ``tests/test_checks.py`` says how often noise alone raises an alarm.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any

import numpy as np

from workbench.checks.findings import Finding
from workbench.config.policy import OptimiserSection
from workbench.schema.numbers import differ

Rows = Sequence[Mapping[str, Any]]
WINDOW = 60
LEAST = 18
LEAST_SAME = 6
"""Rows after which a reward that is one number, or completions that are all cut off, are no chance."""
MOSTLY_UNSCORED = 0.9
PHANTOM = 0.1
"""Groups without a right answer that train all the same: a larger share is said."""
LEAST_LEARNING = 48
"""Rows after which a run that learns has shown it."""
GONE = 0.02
"""Accuracy that is as good as none."""
LEARNT = 0.12
"""A rise of accuracy that a run which learns has made by then."""
EFFECT = 0.1
SURE = 5.0
LEAST_GONE = 3
"""Rows in which nothing works that did before, by which a policy has collapsed."""
FAR_OFF = 30
"""A learning rate that is so many times the default is said to be."""
FLOOR_ENTROPY = 0.05
"""Nats a token below which a group's answers hardly differ."""

LOSS_GAP = 1e-4
"""How far an engine's loss of a token may be from its advantage: float32 in two libraries is 1e-5."""


@dataclass(frozen=True)
class Trend:
    """Means of a metric over the first and the last third of a window, and whether they really differ.

    ``error`` is the standard error of their difference, ``after_error`` that of ``after`` alone.
    """

    before: float
    after: float
    moved: bool
    error: float = 0.0
    after_error: float = 0.0

    def between(self, format: str) -> str:
        """Return both means in words."""
        return f"from {self.before:{format}} to {self.after:{format}}"

    def surely_over(self, level: float) -> bool:
        """Return whether the last third's mean is above ``level`` by twice its own error."""
        return self.after - 2 * self.after_error > level

    @property
    def rose(self) -> bool:
        return self.moved and self.after > self.before

    @property
    def fell(self) -> bool:
        return self.moved and self.after < self.before


def trend(rows: Rows, metric: str, *, window: int | None = WINDOW, least: int = LEAST) -> Trend | None:
    """Over the last ``window`` values, None for all. None where there are fewer than ``least`` finite ones."""
    logged = [row[metric] for row in rows if _finite(row.get(metric))]
    values = np.array(logged[-window if window else None :], dtype=np.float64)
    if len(values) < least:
        return None
    third = len(values) // 3
    first, last = values[:third], values[-third:]
    # Residuals of straight lines, so that a steady rise does not count as noise.
    t = np.arange(third) - (third - 1) / 2
    left = [piece - piece.mean() - t * float((t * piece).sum() / (t * t).sum()) for piece in (first, last)]
    # The share of independent rows: (1 - r) / (1 + r), r the residuals' lag-1 autocorrelation. So few rows, with a line
    # taken out, show less of it than there is: add two of its own standard errors.
    spread = sum(float((piece * piece).sum()) for piece in left)
    r = sum(float((piece[:-1] * piece[1:]).sum()) for piece in left) / spread if spread > 0 else 0.0
    r = min(max(r + 2 / math.sqrt(2 * third), 0.0), 0.9)
    fresh = third * ((1 - r) / (1 + r))
    error = math.sqrt(sum(float(piece.var()) for piece in left) / fresh)
    before, after = float(first.mean()), float(last.mean())
    moved = abs(after - before) > max(EFFECT * max(abs(before), abs(after)), SURE * error)
    after_error = math.sqrt(float(left[1].var()) / fresh)
    return Trend(before, after, moved, error, after_error)


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def alarms(rows: Rows, first: Rows = ()) -> list[Finding]:
    """Everything in a run's metric rows (oldest first) that is worth a look, but for what follows from a collapse.

    ``first`` are rows of the run's beginning, where ``rows`` are the newest ones.
    """
    gone = list(collapsed(rows, first))
    found = (one for check in ([not_finite] if gone else ALARMS.values()) for one in check(rows))
    every = [*gone, *(replace(one, since=_since(rows, one.where[0])) for one in found)]
    last = [_values((*first, *rows), one.where[0])[-1:] for one in every]
    values = ["".join(f"{value:.3g}" for value in of) for of in last]
    return [replace(one, value=one.value or value) for one, value in zip(every, values, strict=True)]


def _alarm(name: str, what: str, advice: str, metrics: tuple[str, ...], since: int | None = None) -> Finding:
    """Return an alarm: ``advice`` asks for the cause and says what to do, ``metrics`` are the curves to look at."""
    return Finding(name, "check", "", what, advice, metrics, since)


def _since(rows: Rows, metric: str) -> int | None:
    """The step from which means of ``LEAST_SAME`` rows are nearer to the metric's last ones than to its first."""
    logged = [(row["step"], row[metric]) for row in rows if "step" in row and _finite(row.get(metric))]
    values = [value for _, value in logged]
    if len(values) < 2 * LEAST_SAME:
        return None
    means = np.convolve(values, np.full(LEAST_SAME, 1 / LEAST_SAME), "valid")
    away = np.flatnonzero(np.abs(means - means[-1]) > np.abs(means - means[0]))
    if not len(away):
        return None  # it has always been so
    return int(logged[away[-1] + 1 + LEAST_SAME // 2][0])


def collapsed(rows: Rows, first: Rows = ()) -> Iterator[Finding]:
    """In the last rows no answer ends, or none has a step, and all to a prompt score the same, as was not so at first.

    A policy that a high rate destroys is so after a few updates, and pattern and rewards fail with it.
    """
    sampled = [row for row in (*first, *rows) if _finite(row.get("zero_spread_share"))]
    gone = ("completions/clipped_ratio", "is cut off"), ("no_match_share", "has no step")
    works = [row["zero_spread_share"] < 1 or max(row.get(name, 0.0) for name, _ in gone) < 1 for row in sampled]
    since = len(works) - works[::-1].index(True) if True in works else len(works)
    if len(works) - since < LEAST_GONE:
        return
    last, score = sampled[-1], sampled[-1].get("reward", sampled[-1].get("step_reward", 0.0))
    what = next(said for name, said in gone if last.get(name) == 1)
    rate = max((row["learning_rate"] for row in (*first, *rows) if _finite(row.get("learning_rate"))), default=0.0)
    times = float(f"{rate / OptimiserSection().learning_rate:.2g}")
    cause = f"was an update too large (learning rate {rate:g})?"
    if times >= FAR_OFF:
        cause = f"the learning rate of {rate:g} is {times:,.0f} times the default."
    yield _alarm(
        "collapsed",
        f"the policy has collapsed: every answer {what} and scores {score:.2g}",
        f"{cause} Go on from an earlier checkpoint with a lower one",
        ("completions/mean_length", "step_reward"),
        None if first and sampled[since] is rows[0] else sampled[since].get("step"),  # rows before it are missing
    )


def steps_without_accuracy(rows: Rows) -> Iterator[Finding]:
    """Steps per answer rise and accuracy does not: the policy may be splitting steps for their bonus."""
    steps, accuracy = trend(rows, "steps_per_answer"), trend(rows, "accuracy/train")
    if steps and accuracy and steps.rose and not accuracy.rose:
        length = trend(rows, "completions/mean_length")
        tokens = "" if length is None else f" ({length.before / steps.before:.0f} tokens a step before, "
        tokens += "" if length is None else f"{length.after / steps.after:.0f} now)"
        yield _alarm(
            "steps without accuracy",
            f"steps per answer rose {steps.between('.1f')} while the batch's accuracy went {accuracy.between('.0%')}",
            f"are steps split for their bonus{tokens}? Probe the scheme with 'split a step', or try mean_suffix",
            ("steps_per_answer", "accuracy/train"),
        )


def reward_without_accuracy(rows: Rows) -> Iterator[Finding]:
    """A reward function's mean rises by a fifth and accuracy does not: what is paid for may not be what is wanted."""
    accuracy = trend(rows, "accuracy/train")
    for name, course in _reward_trends(rows).items():
        much = course.after - course.before > 2 * EFFECT * max(abs(course.before), abs(course.after))
        if accuracy and course.rose and much and accuracy.after <= accuracy.before:
            yield _alarm(
                "reward without accuracy",
                f"{_short(name)} rose {course.between('.2f')} while the batch's accuracy went "
                f"{accuracy.between('.0%')}",
                "does it pay for something that right answers need not have? Look at the rollouts that gained most",
                (name, "accuracy/train"),
            )
            return


def accuracy_fell(rows: Rows) -> Iterator[Finding]:
    """Accuracy falls to two fifths of what it was, or is gone: the steps are too large, or something else is paid for.

    A policy that a high rate destroys does so in a few rows, which are no trend: what it began with counts, too.
    """
    accuracy = trend(rows, "accuracy/train")
    if accuracy is None:
        return
    first = [row for row in rows if _finite(row.get("accuracy/train"))][:3]
    began = sum(row["accuracy/train"] for row in first) / len(first)
    gone = accuracy.after < GONE and began > 5 * GONE
    if not gone and not (accuracy.fell and accuracy.after <= 0.4 * accuracy.before):
        return
    if gone and began > accuracy.before:
        accuracy = replace(accuracy, before=began)
    yield _alarm(
        "accuracy fell",
        f"the batch's accuracy fell {accuracy.between('.0%')}",
        f"is the learning rate too high"
        f"{_beside(rows, 'kl/k3', 'KL to the reference')}, or do the rewards pay for something else"
        f"{_beside(rows, 'reward', 'mean reward')}? Lower the rate, look at rollouts that gained, or go on from an "
        "earlier checkpoint",
        ("accuracy/train",),
    )


def nothing_learnt(rows: Rows) -> Iterator[Finding]:
    """Since the run began no reward rose and accuracy hardly can have, though groups have spread.

    What accuracy's own error leaves open, entropy decides, which is measured more closely: who learns moves it.
    """
    accuracy = trend(rows, "accuracy/train", window=None, least=LEAST_LEARNING)
    flat, entropy = trend(rows, "zero_spread_share"), trend(rows, "entropy", window=None)
    if accuracy is None or (flat is not None and flat.after >= 0.5):
        return
    stayed = entropy is not None and (
        abs(entropy.after - entropy.before) + 2 * entropy.error < EFFECT * max(abs(entropy.before), abs(entropy.after))
    )
    doubt = 0.0 if stayed else 2 * accuracy.error
    if accuracy.after - accuracy.before + doubt >= LEARNT or accuracy.fell or accuracy.before > 1 - LEARNT:
        return
    if not any(risen.rose for risen in _reward_trends(rows, window=None).values()):
        kl = trend(rows, "kl/k3")
        held = "" if kl is None else f", or does beta hold it (KL to the reference {kl.after:.1g})"
        yield _alarm(
            "nothing learnt",
            f"since the first rows the batch's accuracy went {accuracy.between('.0%')} and no reward rose",
            f"is "
            f"the learning rate too low{_beside(rows, 'entropy', 'entropy')}, do the rewards tell few answers apart"
            f"{_beside(rows, 'zero_spread_share', 'groups without spread', '.0%')}{held}?",
            ("accuracy/train", *(() if kl is None else ("kl/k3",))),
        )


def _reward_trends(rows: Rows, window: int | None = WINDOW) -> dict[str, Trend]:
    names = _rewards_with("mean", rows)
    return {name: course for name in names if (course := trend(rows, name, window=window)) is not None}


def rewards_apart(rows: Rows) -> Iterator[Finding]:
    """One reward function rises while another falls: the policy may be trading one for the other.

    Where the one that falls is watched and the other trained on, what is paid for may not be what is wanted.
    """
    trends = _reward_trends(rows)
    watched = {_short(metric) for metric in _rewards_with("trained_correlation", rows)}
    for first, second in combinations(trends, 2):
        up, down = (first, second) if trends[first].rose else (second, first)
        if trends[up].rose and trends[down].fell:
            only_watched = _short(down) in watched and _short(up) not in watched
            advice = "is one traded for the other? Look at rollouts that gained, and at the weights"
            if only_watched:
                metric = f"rewards/{_short(down)}/trained_correlation"
                advice = (
                    f"does {_short(up)} pay for what {_short(down)} does not want"
                    f"{_beside(rows, metric, 'their correlation')}? Look at rollouts that gained"
                )
            yield _alarm(
                "watched reward fell" if only_watched else "rewards apart",
                f"{_short(up)} rose from {trends[up].before:.2f} to {trends[up].after:.2f} while "
                f"{_short(down)}{', which is not trained on,' if only_watched else ''} fell from "
                f"{trends[down].before:.2f} to {trends[down].after:.2f}",
                advice,
                (up, down),
            )


def _short(metric: str) -> str:
    return metric.removeprefix("rewards/").rpartition("/")[0]


def length_drift(rows: Rows) -> Iterator[Finding]:
    """Completions became a third longer, or a quarter shorter."""
    length = trend(rows, "completions/mean_length")
    if length and length.moved and length.before and not 0.75 < length.after / length.before < 4 / 3:
        yield _alarm(
            "length drift",
            f"the mean completion went from {length.before:.0f} to {length.after:.0f} tokens",
            f"does a reward pay "
            "for length (pre-flight shows the correlation), or the way in which the loss averages over "
            f"tokens{_beside(rows, 'completions/clipped_ratio', 'cut off at the limit', '.0%')}?",
            ("completions/mean_length",),
        )


def entropy_collapse(rows: Rows) -> Iterator[Finding]:
    """Entropy fell to a quarter within the window, or lies below 0.05 nats after a fall, and accuracy did not rise.

    A policy that learns grows sure; one that grows sure without getting better has stopped looking.
    """
    entropy, accuracy = trend(rows, "entropy"), trend(rows, "accuracy/train")
    if entropy is None or (accuracy and accuracy.after - accuracy.before > 2 * accuracy.error):
        return
    began = next(row["entropy"] for row in rows if _finite(row.get("entropy")))
    low = entropy.after < FLOOR_ENTROPY and entropy.after < began / 4
    before = max(entropy.before, began) if low else entropy.before
    if low or (entropy.fell and entropy.after <= entropy.before / 4):
        yield _alarm(
            "entropy collapse",
            f"entropy fell from {before:.2f} to {entropy.after:.2f} nats a token",
            f"do answers to a prompt still "
            f"differ{_beside(rows, 'zero_spread_share', 'groups without spread', '.0%')}? Lower the learning rate, "
            "raise epsilon_high or the temperature, or set beta",
            ("entropy",),
        )


def no_spread(rows: Rows) -> Iterator[Finding]:
    """Over the last third of the window most groups had no spread and taught nothing, by more than chance."""
    share = trend(rows, "zero_spread_share")
    if share and share.surely_over(0.5):
        right = _values(rows, "accuracy/train")[-LEAST_SAME:]
        level = sum(right) / len(right) if right else 0.5
        cause = "too easy" if level > 1 - LEARNT else "too hard" if level < LEARNT else "too easy or too hard"
        yield _alarm(
            "zero spread",
            f"in {share.after:.0%} of the groups every answer gets the same reward, so they teach nothing",
            f"are the prompts {cause}{_beside(rows, 'accuracy/train', 'accuracy', '.0%')}, or the rewards too coarse?",
            ("zero_spread_share",),
        )


def phantoms(rows: Rows) -> Iterator[Finding]:
    """In more than a tenth of the last rows' groups no answer was right and another outcome reward decided alone."""
    shares = _values(rows, "phantom_share")[-LEAST_SAME:]
    if len(shares) == LEAST_SAME and sum(shares) / LEAST_SAME > PHANTOM:
        yield _alarm(
            "phantom advantages",
            f"in {sum(shares) / LEAST_SAME:.0%} of the groups no answer is right, yet they train at full size "
            "on what else differs, length or form say",
            f"is that meant"
            f"{_beside(rows, 'accuracy/train', 'accuracy', '.0%')}? Set credit.gate to outcome, with a reward that "
            "judges answers (answer_correctness, with weight 0 to watch it only)",
            ("phantom_share", "accuracy/train"),
        )


def not_finite(rows: Rows) -> Iterator[Finding]:
    """The loss or the gradient is no number: the weights are lost from there on."""
    for row, name in product(rows, ("loss", "grad_norm")):
        value = row.get("not_finite", {}).get(name, row.get(name))
        if isinstance(value, str | float) and not math.isfinite(float(value)):
            at = f" in step {row['step']}" if "step" in row else ""
            before = [old["grad_norm"] for old in rows[: rows.index(row)] if _finite(old.get("grad_norm"))]
            norm = f" (gradient norm {before[-1]:.3g} just before, at first {before[0]:.3g})" if before else ""
            advice = (
                f"was an update too large{norm}? Go on from an earlier checkpoint with a lower learning rate, or "
                "max_grad_norm"
            )
            yield Finding("not a number", "check", str(value), f"{name} is {value}{at}", advice, (name,))
            return


def nothing_split(rows: Rows) -> Iterator[Finding]:
    """The pattern finds nothing in any answer, or nearly every token is a step."""
    last = next((row for row in reversed(rows) if "no_match_share" in row), {})
    steps, tokens = last.get("steps_per_answer", 0.0), last.get("completions/mean_length", 0.0)
    if last and min(_values(rows, "no_match_share")[-LEAST_SAME:]) == 1:
        yield _alarm(
            "step pattern",
            "the step pattern finds nothing in any answer: each is one step, as under outcome credit",
            "are steps written otherwise? Try all presets on Inspect: it lists what each finds",
            ("steps_per_answer", "no_match_share"),
        )
    elif steps > 1 and 2 * steps >= tokens > 0:
        yield _alarm(
            "step pattern",
            f"{steps:.0f} steps in an answer of {tokens:.0f} tokens",
            "does the step pattern cut inside words? Try another on Inspect",
            ("steps_per_answer", "no_match_share"),
        )


def answers_unsplit(rows: Rows) -> Iterator[Finding]:
    """Some answers of the last rows had too many steps, or took too long: they stay whole and unscored."""
    shares = _values(rows, "unsplit_share")
    if any(shares):
        yield _alarm(
            "answers unsplit",
            f"{sum(shares) / len(shares):.1%} of the answers stayed unsplit and unscored, since the pattern "
            "found over 1,000 steps in them or took too long",
            f"do they run on"
            f"{_beside(rows, 'completions/clipped_ratio', 'cut off at the limit', '.0%')}? If not, choose a pattern "
            "that finds fewer steps",
            ("unsplit_share",),
        )


def constant_reward(rows: Rows) -> Iterator[Finding]:
    """A reward function told no answers of a prompt apart: in 18 rows, or in the first 6 with one and the same score.

    Where every completion was cut off, that is named as what may be the cause.
    """
    advice = "does it find what it looks for? See on Inspect what it reads, or give it weight 0"
    if min(_values(rows, "completions/clipped_ratio")[-LEAST_SAME:], default=0.0) == 1:
        advice = "do the answers end too late for it (100 % cut off)? Raise max_completion_length first"
    for metric in _rewards_with("frac_zero_std", rows):
        shares, means = _values(rows, metric), _values(rows, f"rewards/{_short(metric)}/mean")
        same = len(means) == len(shares) and not differ(min(means), max(means))
        if min(shares) == 1 and len(shares) >= (LEAST_SAME if same else LEAST):
            gave = f"{means[-1]:.3g} for every completion" if same else "the same for all completions of a prompt"
            yield _alarm(
                "constant reward",
                f"{_short(metric)} gave {gave} in {len(shares)} rows, so it teaches nothing",
                advice,
                (metric,),
            )


def unscored_reward(rows: Rows) -> Iterator[Finding]:
    """Over the last third of the window a reward function gave no score to more than nine in ten."""
    for metric in _rewards_with("unscored_share", rows):
        share = trend(rows, metric)
        if share and share.surely_over(MOSTLY_UNSCORED):
            yield _alarm(
                "unscored",
                f"{_short(metric)} left {share.after:.0%} of what it looks at unscored",
                "does it find the columns and the format it expects? Its editor on Inspect shows what it returns",
                (metric,),
            )


WRONGED = {
    "answers": "do the rewards or the scheme go against the task? Look at one on Inspect; count the final answer, too",
    "steps": "do their answers decide? A scheme that reads step rewards, such as process, tells steps apart",
}
"""What may help where answers, or steps, are pushed against the verdict."""


def wronged(rows: Rows) -> Iterator[Finding]:
    """Over the last third of the window most right answers (or steps) were pushed down, or wrong ones up more often
    than right ones. Where all are wrong, half of them go up whatever the rewards: that says nothing."""
    for kind, advice in WRONGED.items():
        metrics = f"wronged/right_{kind}", f"wronged/wrong_{kind}"
        down, up = (trend(rows, metric) for metric in metrics)
        if down and down.surely_over(0.5):
            yield _alarm(f"{kind} wronged", f"{down.after:.0%} of the right {kind} are pushed down", advice, metrics)
        elif down and up and up.surely_over(1 - down.after):
            yield _alarm(
                f"{kind} wronged",
                f"wrong {kind} are pushed up more often ({up.after:.0%}) than right ones ({1 - down.after:.0%})",
                advice,
                metrics,
            )


def truncated(rows: Rows) -> Iterator[Finding]:
    """All completions of the first 6 rows, or most over the last third of the window, were cut off."""
    shares = _values(rows, "completions/clipped_ratio")
    share = trend(rows, "completions/clipped_ratio")
    if (share and share.surely_over(0.5)) or (len(shares) >= LEAST_SAME and min(shares) == 1):
        limit = max(_values(rows, "completions/max_length"), default=0.0)
        longer = f" ({2 * limit:.0f}, say)" if limit else ""
        yield _alarm(
            "truncated",
            f"{shares[-1] if share is None else share.after:.0%} of the completions are cut off at "
            f"{limit:.0f} tokens and what they would have answered is unknown",
            f"do they need more, or does nothing end "
            f"them{_beside(rows, 'completions/mean_terminated_length', 'tokens of those that end', '.0f')}? Raise "
            f"max_completion_length{longer}, or see in pre-flight whether the end of a turn ends them",
            ("completions/clipped_ratio", "completions/max_length"),
        )


def engine_differs(rows: Rows) -> Iterator[Finding]:
    """The loss that a server returned for a token is not the advantage that it was sent."""
    gaps = _values(rows, "engine/loss_gap")
    if gaps and gaps[-1] > LOSS_GAP:
        ratio = max(_values(rows, "engine/ratio_gap"), default=0.0)
        cause = "does it sample and train in other precisions" if ratio > LOSS_GAP else "does it divide or mask anew"
        yield _alarm(
            "engine differs",
            f"the engine's loss of a token is {gaps[-1]:.2g} from the advantage it was sent, and {LOSS_GAP:g} "
            f"is rounding",
            f"{cause}{_beside(rows, 'engine/ratio_gap', 'its ratios from 1')}? The heatmap shows what was "
            "sent, not what it trained on",
            ("engine/loss_gap", "engine/ratio_gap"),
        )


def _beside(rows: Rows, metric: str, said: str, format: str = ".2g") -> str:
    """Return " (said: its mean at first → in the last rows)" for a number that tells a cause; "" if none is logged."""
    values = [row[metric] for row in rows if _finite(row.get(metric))]
    if not values:
        return ""
    first, last = values[:LEAST_SAME], values[-LEAST_SAME:]
    before, now = f"{sum(first) / len(first):{format}}", f"{sum(last) / len(last):{format}}"
    return f" ({said}: {now})" if before == now else f" ({said}: {before} → {now})"


def _rewards_with(what: str, rows: Rows) -> list[str]:
    """The metrics of rewards whose name ends so, of which the last window has a number."""
    names = {
        name for row in rows[-WINDOW:] for name in row if name.startswith("rewards/") and name.endswith(f"/{what}")
    }
    return [name for name in sorted(names) if _values(rows, name)]


def _values(rows: Rows, metric: str) -> list[float]:
    return [row[metric] for row in rows[-WINDOW:] if _finite(row.get(metric))]


ALARMS: dict[str, Callable[[Rows], Iterator[Finding]]] = {
    "collapsed": collapsed,
    "not a number": not_finite,
    "accuracy fell": accuracy_fell,
    "reward without accuracy": reward_without_accuracy,
    "nothing learnt": nothing_learnt,
    "steps without accuracy": steps_without_accuracy,
    "rewards apart": rewards_apart,
    "length drift": length_drift,
    "entropy collapse": entropy_collapse,
    "zero spread": no_spread,
    "phantom advantages": phantoms,
    "answers unsplit": answers_unsplit,
    "step pattern": nothing_split,
    "constant reward": constant_reward,
    "unscored": unscored_reward,
    "wronged": wronged,
    "truncated": truncated,
    "engine differs": engine_differs,
}
