"""The sentence about a token: where training pushes it, and what its advantage adds up from."""

from collections.abc import Sequence
from itertools import chain

from workbench.schema import Credit, Explanation, Term
from workbench.views.wording import (
    SAME,
    Sentence,
    drop_none,
    is_same,
    join_words,
    names,
    number,
    quantity,
    sentence,
    signed,
)


def about_token(credit: Credit, rollout: int, token: int) -> Sentence:
    """Say why a token is pushed where it is, in one sentence: first what pulls its way, then what pulls against it.

    ``rollout`` and ``token`` are counted from 0. Raises IndexError when there is no such token.
    """
    return about_explanation(credit, credit.explain(rollout, token, at_most=1))


def about_explanation(credit: Credit, explanation: Explanation) -> Sentence:
    """The same of an explanation that is there already."""
    right, verdicts = credit.scored.answers_right, credit.scored.steps_right
    rollout, token = explanation.rollout, explanation.token
    spans = credit.scored.scored[rollout].spans
    own = next((k for k, (first, last) in enumerate(spans) if first <= token <= last), None)
    step_right = verdicts[rollout] if verdicts else []
    sampled = credit.scored.group.rollouts[rollout].is_sampled(token)
    before = [k for k in range(own or 0) if credit.scheme == "first_error" and step_right and step_right[k] is False]
    still, gated = not explanation.terms, credit.gate_reason
    reasons = (
        (not credit.is_counted[rollout], "left out of the loss, with its whole answer."),
        (not sampled, "not moved: the environment wrote it, not the policy."),
        (still and before, f"not moved: {names('step', before[:1])} is wrong, and no later step counts."),
        (still and own is None, "not moved: it belongs to no step."),
        (still, "not moved: nothing it depends on was scored."),
        (gated, f"not moved: the group is gated, since {gated}."),
    )
    if why_still := next((said for holds, said in reasons if holds), ""):
        return sentence(why_still)
    value = float(explanation.advantage)
    clauses = _clauses(credit, explanation, own, verdicts, right[rollout] if right else None)
    ahead = join_words([text for size, text in clauses if size * (value or 1) > 0])
    against = join_words([text for size, text in clauses if size * (value or 1) < 0])
    way = f"pushed {'up' if value > 0 else 'down'} ({signed(value)})" if abs(value) > SAME else "evens out (0)"
    verdict = step_right[own] if own is not None and step_right else None
    if verdict is not None and verdict is (value < 0) and abs(value) > SAME:
        way = f"a {'right' if verdict else 'wrong'} step, yet {way}"
    why = "; ".join(filter(None, (ahead, against))) or "nothing it could be compared with scores differently"
    clip = "; its bound is what is left of more" if abs(explanation.total - value) > SAME else ""
    return sentence(f"{way}: {why}{clip}.")


def _clauses(
    credit: Credit,
    explanation: Explanation,
    own: int | None,
    verdicts: list[list[bool | None]] | None,
    right: bool | None,
) -> list[tuple[float, str]]:
    """(value, what to say) of the steps' terms, those each way in one, and of every other term."""
    terms = [term for term in explanation.terms if abs(term.value) > SAME]
    ways: list[list[Term]] = [[t for t in terms if t.source == "step" and t.value * sign > 0] for sign in (1, -1)]
    total = explanation.total or 1.0
    step_right = verdicts[explanation.rollout] if verdicts else []
    clauses = [
        _of_steps(credit, of_way, own, step_right, of_way[0].value * total > 0, len(of_way) == len(terms))
        for of_way in ways
        if of_way
    ]
    for term in terms:
        if term.source == "step":
            continue
        text = _of_answer(term, right)
        clauses.append((term.value, f"{text} ({signed(term.value)})" if len(terms) > 1 else text))
    return clauses


def _of_answer(term: Term, right: bool | None) -> str:
    """A term that is not one step's."""
    if term.source == "outcome":
        if right is not None and right is (term.value > 0):
            return f"the answer is {'right' if right else 'wrong'}"
        return f"the answer scores {quantity(term.raw)}"
    average = "" if term.mean is None else f", {quantity(term.mean)} on average"
    if term.source == "return":
        return f"the answer and what its steps earn come to {quantity(term.raw)}{average}"
    if term.source in ("sum", "mean"):
        what = "scores add up to" if term.source == "sum" else "mean score is"
        return f"its steps' {what} {quantity(term.raw)}{average}"
    return {
        "token": "it goes with right answers more or less than others do",
        "delta": "what is expected of the answer changes here",
        "later": "what is expected of it changes later",
        "centre": "the batch's mean is taken off",
        "importance": f"the right answer depends on it {'more' if term.factor > 0 else 'less'} than on most tokens",
    }[term.source]


def _of_steps(
    credit: Credit, terms: Sequence[Term], own: int | None, step_right: Sequence[bool | None], ahead: bool, alone: bool
) -> tuple[float, str]:
    """The clause of the steps that pull one way: which they are, whether they are right, what they come to."""
    steps = [term.step for term in terms if term.step is not None]
    total, many = sum(term.value for term in terms), len(terms) > 1
    verdicts = {step_right[k] if step_right else None for k in steps}
    right = next(iter(verdicts)) if len(verdicts) == 1 else None
    itself = all(term.raw == term.reward for term in terms)  # not what the scheme made of it, a return say
    word = "" if right is None or right is (total < 0) or not itself else "right" if right else "wrong"
    later = [k for k in steps if k != own]
    if own in steps and later:
        following = f"the next {number(len(later)) if len(later) > 1 else ''}".rstrip()
        who = f"this step and {following if later[-1] - steps[0] == len(later) else _others(later, '')}"
    else:
        who = _others(later, "" if ahead else word) if later else "this step"
    if not ahead:
        verb = "give{} back" if total > 0 else "take{} away"
        return total, f"{who} {verb.format('' if many else 's')} {signed(total).lstrip('+−')}"
    if word:
        says = f"{who} {'are' if many else 'is'} {word}"
    else:
        says = _compared(terms, who, "fixed mean" if credit.scheme == "prpo" else "mean")
    if alone and not many:
        return total, f"{says}{_peers(credit, own) if word else ''}"
    each = " each" if many and is_same([term.value for term in terms]) else " in all" * many
    return total, f"{says} ({signed(terms[0].value if each == ' each' else total)}{each})"


def _compared(terms: Sequence[Term], who: str, mean: str) -> str:
    """Say what steps came to beside what they were compared with, where right and wrong do not say it."""
    term, many = terms[0], len(terms) > 1
    than = "0" if term.mean is None else f"the {mean} of {quantity(term.mean)}"
    above = f"{'above' if term.value > 0 else 'below'} {than}"
    if term.raw == term.reward:
        return f"{who} score{'' if many else f's {quantity(term.raw)},'} {above}"
    if many:
        return f"{who} count {above}"
    return f"from {'here' if who == 'this step' else who} on it earns {quantity(term.raw)}, {above}"


def _peers(credit: Credit, own: int | None) -> str:
    """Say what a step that is right or wrong was compared with, in counts, where nothing else decides."""
    counted = credit.in_loss
    if (
        own is None
        or credit.scheme not in ("step", "position")
        or not set(chain(*counted.step_rewards)) <= {0, 1, None}
    ):
        return ""
    at = slice(None) if credit.scheme == "step" else slice(own, own + 1)
    pool = drop_none(row[at] for row in counted.steps_right or ())
    right = f"{sum(pool)} of {len(pool)}"
    return f"; {right} steps are right" if credit.scheme == "step" else f"; step {own + 1} is right in {right} answers"


def _others(steps: Sequence[int], word: str) -> str:
    if len(steps) > 2:
        return " ".join(filter(None, (number(len(steps)), "later", word, "steps")))
    return f"the {word} {names('step', steps)}" if word else names("step", steps)
