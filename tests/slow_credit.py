"""A second implementation of every credit scheme, slow and token by token, straight from its formula.

It shares no code with ``workbench.credit``. ``how`` and ``scale`` are the options ``normalise`` and ``scale``; a
scheme's own options are keyword arguments of its function here, too.
"""

import math
import statistics
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean as mean


@dataclass(frozen=True)
class SlowGroup:
    """One group: of each completion its rewards, first and last token of each step, token count, and so on."""

    rewards: list[list[float | None]]
    starts: list[list[int]]
    ends: list[list[int]]
    lengths: list[int]
    outcomes: list[float | None]
    ids: list[list[int]]
    states: list[list[str]]

    def own(self, i, t):
        """The steps that hold token t of completion i, at most one."""
        return [k for k in range(len(self.ends[i])) if self.starts[i][k] <= t <= self.ends[i][k]]

    def ahead(self, i, t):
        return [k for k, end in enumerate(self.ends[i]) if end >= t]

    def tokens(self):
        return [[(i, t) for t in range(length)] for i, length in enumerate(self.lengths)]

    def suffix_sums(self, values, gamma):
        """Of each token the sum of its step's and all later steps' values, discounted from its step on."""
        return [
            [sum(gamma ** (k - self.ahead(i, t)[0]) * (values[i][k] or 0.0) for k in self.ahead(i, t)) for i, t in row]
            for row in self.tokens()
        ]

    def of_own_step(self, values):
        return [[sum(values[i][k] or 0.0 for k in self.own(i, t)) for i, t in row] for row in self.tokens()]

    def of_whole(self, values):
        return [[values[i]] * length for i, length in enumerate(self.lengths)]


OF_OUTCOMES = (
    *("outcome", "max_rl", "papo", "progrs", "prpo", "prime", "adca", "turn_credit", "gigpo", "lambda_grpo", "ktae"),
)
"""Schemes that are of the outcome already, which is not counted twice."""


def slow_credit(scheme, group, how, scale, *, outcome_weight=0.0, clip=None, **options):
    """A of each token of each completion."""
    rows = SLOW[scheme](group, how, scale, **options)
    if outcome_weight and scheme not in OF_OUTCOMES:
        rows = added(rows, group.of_whole([outcome_weight * z for z in z_of_each(group.outcomes, how, scale)]))
    return rows if clip is None else [[max(-clip, min(clip, a)) for a in row] for row in rows]


def added(*parts):
    return [[sum(values) for values in zip(*rows, strict=True)] for rows in zip(*parts, strict=True)]


def z(i, value, pool, everything, how, scale):
    """z of ``value``, which is completion i's, among ``pool``: (completion, value) pairs without a None."""
    voters = {j: [x for owner, x in pool if owner == j] for j, _ in pool}
    values = [x for _, x in pool]
    if value is None:
        return None
    if len(values) < 2 or max(values) == min(values):
        return 0.0
    if how in ("per_completion", "leave_one_out") and len(voters) < 2:
        return 0.0
    if how == "none":
        return value
    centre, spread = mean(values), statistics.stdev(values)
    if how == "per_completion":
        centre = mean([mean(votes) for votes in voters.values()])
        spread = math.sqrt(
            sum(mean([(x - centre) ** 2 for x in votes]) for votes in voters.values()) / (len(voters) - 1)
        )
    if how == "batch":
        spread = statistics.stdev(everything)
    if how == "leave_one_out":
        centre = mean([mean(votes) for j, votes in voters.items() if j != i])
    return (value - centre) / (spread + 1e-4) if scale else value - centre


def among(jagged, how, scale, same=lambda one, other: True, wide=lambda one, other: True):
    """z of every value, among those of the places (i, k) that are the ``same``; "batch" takes the std of ``wide``."""
    places = [(i, k) for i, row in enumerate(jagged) for k, x in enumerate(row) if x is not None]

    def pool(place, related):
        return [(j, jagged[j][n]) for j, n in places if related(place, (j, n))]

    def value(i, k, x):
        return z(i, x, pool((i, k), same), [x for _, x in pool((i, k), wide)], how, scale)

    return [[value(i, k, x) for k, x in enumerate(row)] for i, row in enumerate(jagged)]


def z_of_each(values, how, scale):
    """z of one value a completion, 0 where there is none."""
    return [row[0] or 0.0 for row in among([[value] for value in values], how, scale)]


def sums(rewards):
    known = [[r for r in row if r is not None] for row in rewards]
    return [sum(row) if row else None for row in known]


# -- Step rewards alone, and the outcome alone -------------------------------------------------------------------------


def process(group, how, scale, gamma=1.0, merge_equal=False):
    rewards = [thoughts(row) if merge_equal else row for row in group.rewards]
    return group.suffix_sums(among(rewards, how, scale), gamma)


def thoughts(rewards):
    """The last of each run of equal rewards; None in the others' places."""
    kept, later = [], None
    for r in reversed(rewards):
        kept.append(None if r == later else r)
        later = later if r is None else r
    return kept[::-1]


def max_rl(group, how, scale):
    known = [total for total in group.outcomes if total is not None]
    m = mean(known) if known else 0.0
    return group.of_whole([z / (m + 1e-6) if m > 0 else 0.0 for z in z_of_each(group.outcomes, how, scale)])


def adca(group, how, scale, process_weight=1.0):
    weighed = [[process_weight * a for a in row] for row in process(group, how, scale)]
    return added(weighed, outcome(group, how, scale))


def outcome(group, how, scale):
    return group.of_whole(z_of_each(group.outcomes, how, scale))


def step(group, how, scale):
    return group.of_own_step(among(group.rewards, how, scale))


def sum_of_steps(group, how, scale):
    return group.of_whole(z_of_each(sums(group.rewards), how, scale))


def discounted_return(group, how, scale, gamma=1.0):
    returns = [
        [
            None if r is None else sum(gamma**d * (later or 0.0) for d, later in enumerate(row[k:]))
            for k, r in enumerate(row)
        ]
        for row in group.rewards
    ]
    return group.of_own_step(among(returns, how, scale))


def position(group, how, scale):
    same = lambda one, other: one[1] == other[1]  # noqa: E731
    return group.of_own_step(among(group.rewards, how, scale, same, wide=same))


def mean_suffix(group, how, scale):
    values = among(group.rewards, how, scale)
    later = [[[values[i][k] for k in group.ahead(i, t)] for i, t in row] for row in group.tokens()]
    known = [[[x for x in ahead if x is not None] for ahead in row] for row in later]
    return [[mean(ahead) if ahead else 0.0 for ahead in row] for row in known]


def min_form(group, how, scale, gamma=1.0, temperature=0.1, signed=False):
    weighed = []
    for row in group.rewards:
        mapped = [r if r is None or not signed else 2 * r - 1 for r in row]
        lowest = min((r for r in mapped if r is not None), default=0.0)
        total = sum(math.exp((lowest - r) / temperature) for r in mapped if r is not None)
        weighed.append([None if r is None else math.exp((lowest - r) / temperature) / total * r for r in mapped])
    return group.suffix_sums(among(weighed, how, scale), gamma)


def progress(group, how, scale, gamma=1.0):
    differences = []
    for row in group.rewards:
        known = [0.0, *(r for r in row if r is not None)]
        gained = iter([after - before for before, after in pairwise(known)])
        differences.append([None if r is None else next(gained) for r in row])
    return group.suffix_sums(among(differences, how, scale), gamma)


def first_error(group, how, scale, gamma=1.0, threshold=0.5):
    until = []
    for row in group.rewards:
        wrong = [k for k, r in enumerate(row) if r is not None and r < threshold]
        until.append([r if not wrong or k <= wrong[0] else None for k, r in enumerate(row)])
    return group.suffix_sums(among(until, how, scale), gamma)


def rescaled(group, how, scale):
    whole, rows = z_of_each(sums(group.rewards), how, scale), []
    for row in group.tokens():
        rewards = [group.rewards[i][k] for i, t in row for k in group.own(i, t) if group.rewards[i][k] is not None]
        average = mean(rewards) if rewards else 0.0
        near_zero = abs(average) < 1e-3  # the completion gets 0, with a warning
        own = [sum(group.rewards[i][k] or 0.0 for k in group.own(i, t)) for i, t in row]
        rows.append([0.0 if near_zero else r * whole[i] / (average + 1e-5) for r, (i, _) in zip(own, row, strict=True)])
    return rows


# -- Both together -----------------------------------------------------------------------------------------------------


def papo(group, how, scale, process_weight=1.0, right_from=1.0):
    known = [[r for r in row if r is not None] for row in group.rewards]
    right = [
        mean(row) if row and total is not None and total >= right_from else None
        for row, total in zip(known, group.outcomes, strict=True)
    ]
    steps = [process_weight * value for value in z_of_each(right, how, scale)]
    return added(outcome(group, how, scale), group.of_whole(steps))


def progrs(group, how, scale, process_weight=1.0, right_from=1.0):
    means = [mean(known) if (known := [r for r in row if r is not None]) else None for row in group.rewards]
    wrong = [total is not None and total < right_from for total in group.outcomes]
    of_wrong = [m for m, is_wrong in zip(means, wrong, strict=True) if is_wrong and m is not None]
    totals = []
    for m, is_wrong, total in zip(means, wrong, group.outcomes, strict=True):
        bonus = 0.0 if m is None else m - mean(of_wrong) if is_wrong else m
        totals.append(None if total is None else total + process_weight * bonus)
    return group.of_whole(z_of_each(totals, how, scale))


def prpo(group, how, scale, prior_mean=0.5, prior_std=24**-0.5):
    known = [r for row in group.rewards for r in row if r is not None]
    flat = not known or min(known) == max(known)
    steps = [[None if r is None or flat else (r - prior_mean) / prior_std for r in row] for row in group.rewards]
    return added(group.of_own_step(steps), outcome(group, how, scale))


def prime(group, how, scale, gamma=1.0):
    def more(jagged):
        count = sum(any(x is not None for x in row) for row in jagged)
        return count / (count - 1) if how == "per_completion" and count > 1 else 1.0

    factor, whole = more(group.rewards), more([[total] for total in group.outcomes])
    steps = [[factor * (x or 0.0) for x in row] for row in among(group.rewards, how, scale)]
    outcomes = [whole * x for x in z_of_each(group.outcomes, how, scale)]
    return added(group.suffix_sums(steps, gamma), group.of_whole(outcomes))


def turn_credit(group, how, scale, gamma=0.9, process_weight=1.0):
    """Each gain handed out step by step, to the step itself and to those before it."""
    moved, returns = [], []
    for i, (row, whole) in enumerate(zip(group.rewards, group.outcomes, strict=True)):
        shares, before, net = [0.0] * len(row), None, 0.0
        for k, r in enumerate(row):
            if r is None:
                continue
            gain = 0.0 if before is None else r - before
            total = sum(gamma**d for d in range(k + 1))
            for d in range(k + 1):
                shares[k - d] += gain * gamma**d / total
            before, net = r, net + gain
        of_tokens = [shares[k] for t in range(group.lengths[i]) for k in group.own(i, t)]
        moved.append([process_weight * (share - mean(of_tokens)) for share in shares])
        returns.append(None if whole is None else whole + net)
    return added(group.of_own_step(moved), group.of_whole(z_of_each(returns, how, scale)))


def gigpo(group, how, scale, gamma=0.95, state_weight=1.0, across_steps=False):
    """Each return summed term by term."""
    returns = [
        [
            None
            if whole is None
            else sum(gamma**d * (r or 0.0) for d, r in enumerate(row[k:])) + gamma ** (len(row) - 1 - k) * whole
            for k in range(len(row))
        ]
        for row, whole in zip(group.rewards, group.outcomes, strict=True)
    ]
    state = lambda place: group.states[place[0]][place[1]]  # noqa: E731
    steps = among(returns, how, scale, lambda one, other: state(one) == state(other))
    beside = [[state_weight * (x or 0.0) for x in row] for row in steps]
    totals = [
        None if whole is None else whole + sum(r for r in row if r is not None)
        for row, whole in zip(group.rewards, group.outcomes, strict=True)
    ]
    pool = [
        (i, total)
        for i, total in enumerate(totals)
        if total is not None
        for _ in range(max(len(group.rewards[i]), 1) if across_steps else 1)
    ]
    everything = [total for _, total in pool]
    whole = [z(i, total, pool, everything, how, scale) or 0.0 for i, total in enumerate(totals)]
    return added(group.of_whole(whole), group.of_own_step(beside))


# -- Token by token ----------------------------------------------------------------------------------------------------


def lambda_grpo(group, how, scale):
    whole = z_of_each(group.outcomes, how, scale)
    scored = [ids for ids, total in zip(group.ids, group.outcomes, strict=True) if total is not None]
    return [
        [whole[i] / max(sum(other[: t + 1] == group.ids[i][: t + 1] for other in scored), 1) for i, t in row]
        for row in group.tokens()
    ]


def ktae(group, how, scale, token_weight=1.0, right_from=1.0):
    """The authors' code, a token at a time."""
    known = [(ids, total) for ids, total in zip(group.ids, group.outcomes, strict=True) if total is not None]
    right, wrong = [ids for ids, x in known if x >= right_from], [ids for ids, x in known if x < right_from]
    counted = right and wrong
    words = [
        [token_weight * key_token(token, right, wrong) if counted and total is not None else 0.0 for token in ids]
        for ids, total in zip(group.ids, group.outcomes, strict=True)
    ]
    return added(outcome(group, how, scale), words)


def key_token(token, right, wrong):
    a, b = sum(token in ids for ids in right), sum(token in ids for ids in wrong)
    c, d = len(right) - a, len(wrong) - b
    n = a + b + c + d
    ways = {
        k: math.comb(a + c, k) * math.comb(b + d, a + b - k) / math.comb(n, a + b)
        for k in range(n + 1)
        if 0 <= a + b - k <= b + d and k <= a + c
    }
    p = sum(chance for chance in ways.values() if chance <= ways[a] * (1 + 1e-9))
    fisher = math.exp(-2 * p) if p < 1 - 1e-6 else 0.0
    inside = (a + b) / n * entropy(a, b) + ((c + d) / n * entropy(c, d) if c + d else 0.0)
    lengths = [sum(map(len, kind)) for kind in (right, wrong)]
    frequencies = []
    for kind, total in zip((right, wrong), lengths, strict=True):
        frequency = sum(ids.count(token) for ids in kind) / total
        k = 2.0 * (1 - 0.5 + 0.5 * total / (sum(lengths) / 2))
        frequencies.append(frequency * (2.0 + 1) / (frequency + k))
    x = math.asin(math.sqrt(a / len(right))) - math.asin(math.sqrt(b / len(wrong)))
    x += frequencies[0] / (frequencies[1] + 1e-5) - frequencies[1] / (frequencies[0] + 1e-5)
    combined = (fisher + entropy(a + c, b + d) - inside) * x / 2
    sigmoid = 1 / (1 + math.exp(-combined)) if combined > -700 else 0.0
    return (sigmoid - 0.5) * 2


def entropy(*counts):
    total = sum(counts)
    return -sum(n / total * math.log2(n / total) for n in counts if n)


SLOW = {
    "process": process,
    "outcome": outcome,
    "max_rl": max_rl,
    "step": step,
    "sum": sum_of_steps,
    "return": discounted_return,
    "position": position,
    "mean_suffix": mean_suffix,
    "min": min_form,
    "progress": progress,
    "first_error": first_error,
    "rescaled": rescaled,
    "papo": papo,
    "progrs": progrs,
    "prpo": prpo,
    "prime": prime,
    "adca": adca,
    "turn_credit": turn_credit,
    "gigpo": gigpo,
    "lambda_grpo": lambda_grpo,
    "ktae": ktae,
}
