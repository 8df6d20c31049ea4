"""The reward clinic: a person's rewards on written-out answers whose right score is known, and what they get wrong.

The rows are ``assets/clinic/*.jsonl``, one file a family. Each is an answer with its gold, what is particular about it
(``why``), what to do (``fix``) and the public thread in which the fault was met; the texts are invented. ``[open]``,
``[close]``, ``[from]`` and ``[to]`` stand for the marks of a form (tags, ``\\boxed``, ``####``, …), so that a row is
tried in each form in which the reward tells right from wrong. No model is needed.

A reward is asked first what it looks at: the ``answer`` if a wrong one scores otherwise than a right one of the same
length, the ``format`` if only the marks matter, ``something else`` if neither, such as length. A row fits if the
reward scores its ``like`` above its ``unlike``. Then a right answer must score nearer to ``like``, and a wrong one
less than it.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import chain, pairwise
from typing import Any, Literal

import numpy as np

from workbench.assets import ASSETS
from workbench.checks.findings import Finding, Level, worst_level
from workbench.errors import ConfigError, RewardTimeout, WorkbenchError, cut
from workbench.rewards import Reward, RewardConfig, Sandbox, load_reward
from workbench.rewards.protocol import Batch
from workbench.rewards.reward import Models
from workbench.schema import EXTRACTED, differ, say_count
from workbench.steps import PRESETS

FAMILIES = ("format", "extraction", "numbers", "template", "environment", "steps", "output")
LooksAt = Literal["answer", "format", "something else"]

FORMS: dict[str, tuple[str, str, str, str]] = {
    "tags": ("<reasoning>\n", "\n</reasoning>\n", "<answer>\n", "\n</answer>\n"),
    "tags_inline": ("<reasoning>", "</reasoning>\n", "<answer>", "</answer>"),
    "think_answer": ("<think>\n", "\n</think>\n", "<answer>\n", "\n</answer>"),
    "think_inline": ("<think>", "</think>\n", "<answer>", "</answer>"),
    "think_box": ("<think>\n", "\n</think>\n", "\\boxed{", "}"),
    "qwen3": ("<start_working_out>", "<end_working_out>\n", "<SOLUTION>", "</SOLUTION>"),
    "hashes": ("", "\n", "#### ", ""),
    "boxed": ("", "\n", "\\boxed{", "}"),
    "answer": ("", "\n", "Answer: ", ""),
    "said": ("", "\n", "The answer is ", "."),
    "bare": ("", "\n", "", ""),
}
"""The marks around reasoning and around the answer: what opens and closes the one, and then the other."""
_LIKE = "[open][work][close][from][gold][to]"
_WRONG = "[open][work][close][from][wrong][to]"
_WORK = "The boxes are counted one by one, and what they hold is added."
_LONG = " ".join([_WORK] * 60)
_NEXT = {ord(a): b for text in ("01234567890", "abcdefghijklmnopqrstuvwxyza") for a, b in pairwise(text)}
_SCRAMBLED = str.maketrans("<>/#\\{}:", "()|=|[];")
STRATEGIES = {
    "perfect": _LIKE,
    "verbose": "[open][long][close][from][gold][to]",
    "lazy": "[from][gold][to]",
    "format only": "[open]…[close][from]…[to]",
    "near miss": _WRONG,
    "hedging": "[open][work][close][from][wrong] or [gold] or 9[to]",
    "garbage": "%%% }{ qwrt ][ zxcv %%% 77 ??",
}
"""What a policy may do, as texts."""
KINDS: dict[str, tuple[str, Level, str, str]] = {
    "no score": ("no score", "ok", "it leaves every one of these answers unscored", ""),
    "constant": ("constant", "stop", "it scores every answer {value}, so it teaches nothing", "see its code"),
    "wrong sign": (
        "wrong sign",
        "stop",
        "it scores a wrong answer {wrong:.3g} and the right one {right:.3g}",
        "turn its sign round",
    ),
    "state": (
        "state",
        "stop",
        "the same answers scored again get other scores in {value} cases",
        "keep nothing between calls, and draw no random numbers",
    ),
    "order": (
        "order",
        "check",
        "an answer's score depends on the other answers of the batch or on their order",
        "score each answer by itself",
    ),
    "no common form": (
        "no common form",
        "stop",
        "no answer satisfies both {both}",
        "let both read one form, and ask for it in the prompt",
    ),
    "zero weight": ("zero weight", "ok", "{name} has weight 0: it is watched, not trained on", ""),
    "negative weight": (
        "wrong sign",
        "stop",
        "{name} scores good answers higher and its weight is {value}, so they are pushed down",
        "give it a positive weight",
    ),
    "unscored": (
        "unscored",
        "check",
        "{name} returns None for {value}: training leaves such an answer out, whatever others score",
        "return 0 for an answer that is wrong, None only where nothing can be said",
    ),
    "dominance": (
        "dominance",
        "check",
        "{value} of what the strategies' summed rewards differ by is {name}; the others hardly count",
        "bring the weights together, or set credit.each_reward",
    ),
    "pays": (
        "{paid} pays",
        "check",
        "{paid} earns {value}, a perfect answer {best:.3g}",
        "compare the answer as a whole",
    ),
    "verbose pays": (
        "verbose pays",
        "check",
        "the same answer with sixty sentences of reasoning earns {value} in place of {best:.3g}",
        "bound what length can earn",
    ),
}
"""Kinds of findings: name, level, meaning and advice, in which facts are filled."""
MOST_SHARE = 0.9
"""Share of the summed reward's variance from which one of several functions decides alone."""
_MOST_ERRORS = 5


def _finding(kind: str, value: str, **facts: Any) -> Finding:
    name, level, meaning, advice = KINDS[kind]
    return Finding(name.format(**facts), level, value, meaning.format(value=value, **facts), advice)


@dataclass(frozen=True)
class ClinicAnswer:
    """A line of a family's file. ``kind`` is what a reward must look at for the row to fit it."""

    answer: str
    gold: str
    prompt: str
    right: bool
    why: str
    fix: str
    thread: str
    family: str
    kind: str = ""
    like: str = _LIKE
    like_gold: str | None = None
    unlike: str | None = None
    forms: tuple[str, ...] = tuple(FORMS)
    columns: Mapping[str, Any] = field(default_factory=dict, hash=False)
    opened: bool = False
    observation: str = ""


@cache
def clinic_rows() -> tuple[ClinicAnswer, ...]:
    """Return the rows of all families."""
    kinds = {"format": "format", "extraction": "answer", "numbers": "answer", "template": "answer"}
    lines = [
        {"kind": kinds.get(family, "any"), **json.loads(line), "family": family}
        for family in FAMILIES
        for line in (ASSETS / "clinic" / f"{family}.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    return tuple(ClinicAnswer(**line | ({"forms": tuple(line["forms"])} if "forms" in line else {})) for line in lines)


@dataclass(frozen=True)
class Case:
    """A text that a reward scores."""

    text: str
    gold: str
    prompt: str = "How many pens are in the boxes?"
    columns: Mapping[str, Any] = field(default_factory=dict)
    opened: bool = False
    observation: str = ""


@dataclass(frozen=True)
class RewardReport:
    """The findings on one reward.

    ``tried`` counts the rows that fit, ``findings`` are what it gets wrong and what should be known, and ``scores`` has
    a score for each of ``STRATEGIES``.
    """

    name: str
    looks_at: LooksAt
    forms: tuple[str, ...]
    tried: int
    findings: tuple[Finding, ...]
    scores: Mapping[str, float | None]


@dataclass(frozen=True)
class ClinicReport:
    """The findings on each reward, and on all ``together``; ``totals`` are the weighted sums by strategy."""

    rewards: tuple[RewardReport, ...]
    together: tuple[Finding, ...]
    totals: Mapping[str, float | None]

    @property
    def level(self) -> Level:
        return worst_level(chain(self.together, *(report.findings for report in self.rewards)))

    @property
    def suites(self) -> dict[str, tuple[Finding, ...]]:
        """Return the findings by reward, and first of each what was tried."""
        tried = {r.name: Finding("rows", "ok", f"{r.tried}", "answers were tried") for r in self.rewards}
        return {r.name: (tried[r.name], *r.findings) for r in self.rewards} | {"together": self.together}

    @property
    def headline(self) -> str:
        """Return what was found, in one sentence."""
        amiss = sum(finding.level != "ok" for finding in self.together)
        said = [
            f"{report.name} gets {say_count(count, 'thing')} wrong"
            for report in self.rewards
            if (count := sum(finding.level != "ok" for finding in report.findings))
        ]
        said += [f"{say_count(amiss, 'thing')} amiss with all together"] if amiss else []
        untried = [r.name for r in self.rewards if any((f.name, f.level) == ("not tried", "ok") for f in r.findings)]
        if not said and len(untried) < len(self.rewards):
            said = [f"{', '.join(r.name for r in self.rewards if r.name not in untried)}: no fault found"]
        said += [f"{', '.join(untried)} could not be tried here"] if untried else []
        return f"{'. '.join(said)}."

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {"level": self.level, "headline": self.headline, **asdict(self)}


LOOKS: Mapping[LooksAt, str] = {
    "answer": "the answer",
    "format": "the format",
    "something else": "neither answer nor format",
}


def check_rewards(
    rewards: Sequence[str | Callable[..., Any] | RewardConfig | Reward],
    *,
    worker: Sandbox | None = None,
    models: Models | None = None,
    on_progress: Callable[[str], None] = lambda said: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> ClinicReport:
    """Run rewards on the rows that fit them and say what they get wrong.

    Code runs in ``worker`` and reward models are held by ``models``, as in ``score_group``. Raises RewardCodeError for
    a reward that cannot be loaded; one that fails on a row is a finding.
    """
    if not rewards:
        raise ConfigError("rewards: give at least one reward function")
    patients = [_Patient(load_reward(spec, worker, models=models, pattern=PRESETS["line"].pattern)) for spec in rewards]
    examined: list[_Patient] = []
    for patient in patients:
        if cancelled():
            break
        on_progress(f"{patient.reward.name}, {len(examined) + 1} of {say_count(len(patients), 'reward')}")
        patient.examine()
        examined.append(patient)
    together, form = _compose(examined) if len(examined) > 1 else ([], None)
    reports = [patient.report(form or (*patient.forms, "tags")[0]) for patient in examined]
    # A function that scores none of them has no part in the sum, as in training.
    counting = [
        (report.scores, patient.reward.weight)
        for report, patient in zip(reports, examined, strict=True)
        if patient.reward.weight and any(score is not None for score in report.scores.values())
    ]
    totals: dict[str, float | None] = {}
    for strategy in STRATEGIES:
        terms = [weight * score for scores, weight in counting if (score := scores[strategy]) is not None]
        totals[strategy] = sum(terms) if terms and len(terms) == len(counting) else None
    looking = [patient for patient in examined if patient.looks_at != "something else"]
    if looking:
        together += _strategies(totals, any(patient.looks_at == "answer" for patient in looking))
    return ClinicReport(tuple(reports), tuple(together), totals)


# ── texts ────────────────────────────────────────────────────────────────────────────────────────────────────────


def write_row(template: str, form: str, gold: str) -> str:
    """Return a row's text with the marks of a form and the gold answer in it."""
    marks = dict(zip(("open", "close", "from", "to"), FORMS[form], strict=True))
    parts = {
        **{f"[{name}]": mark for name, mark in marks.items()},
        "[to-]": marks["to"].rstrip(),
        "[work]": _WORK,
        "[long]": _LONG,
        "[gold]": gold,
        "[wrong]": gold.translate(_NEXT),
    }
    for name, text in parts.items():
        template = template.replace(name, text)
    return template


def _unlike(looks_at: str, form: str, gold: str) -> str:
    """Return what must score less than a right text: a wrong answer, or other marks of the same length."""
    if looks_at == "answer":
        return write_row(_WRONG, form, gold)
    return write_row(_LIKE, form, gold).translate(_SCRAMBLED)


def _columns(cases: Sequence[Case]) -> dict[str, list[Any]]:
    """The columns of the cases, the right answer under each name that it usually has."""
    golds = [case.gold for case in cases]
    columns: dict[str, list[Any]] = dict.fromkeys(("answer", "solution", "ground_truth", "target"), golds)
    columns["question"] = [case.prompt for case in cases]
    for name in dict.fromkeys(name for case in cases for name in case.columns):
        columns[name] = [case.columns.get(name) for case in cases]
    if any(opened := [case.opened for case in cases]):
        columns["thinking_open"] = opened
    return columns


# ── one reward ───────────────────────────────────────────────────────────────────────────────────────────────────


class _Patient:
    """A reward under examination: ``findings`` grow while it is examined."""

    def __init__(self, reward: Reward) -> None:
        self.reward = reward
        self.findings: list[Finding] = []
        self.looks_at: LooksAt = "something else"
        self.forms: tuple[str, ...] = ()
        self.tried = 0

    def say(self, name: str, level: Level, value: str, meaning: str, advice: str = "") -> None:
        self.findings.append(Finding(name, level, value, meaning, advice))

    def report(self, form: str) -> RewardReport:
        return RewardReport(
            self.reward.name, self.looks_at, self.forms, self.tried, tuple(self.findings), self.board(form)
        )

    def call(self, cases: Sequence[Case]) -> tuple[list[float | None], list[str]]:
        """Score cases in one call and return what the function logged as extracted. Raises RewardError."""
        words = [case.text.split() for case in cases]
        ids = {word: n for n, word in enumerate(dict.fromkeys(word for row in words for word in row))}
        batch = Batch(
            prompts=[case.prompt for case in cases],
            completions=[case.text for case in cases],
            columns=_columns(cases),
            steps=[[case.text] for case in cases],
            completion_ids=[[ids[word] for word in row] for row in words],
            step_ends=[[len(row)] for row in words],
            turn=[[0]] * len(cases),
            observation=[[case.observation] for case in cases],
        )
        scores = self.reward.score(batch)[0]
        extracted = batch.log.extra.get(EXTRACTED) or [None] * len(cases)
        scores = scores if self.reward.kind == "outcome" else [row[0] for row in scores]
        return scores, ["" if text is None else str(text) for text in extracted]

    def scores(self, cases: Sequence[Case]) -> tuple[list[float | None], list[str], dict[int, str]]:
        """Score cases; where the call fails each one alone, with the errors by case."""
        try:
            return *self.call(cases), {}
        except WorkbenchError:
            scores: list[float | None] = [None] * len(cases)
            errors: dict[int, str] = {}
            for n, case in enumerate(cases):
                try:
                    scores[n] = self.call([case])[0][0]
                except WorkbenchError as error:
                    errors[n] = str(error)
                if len(errors) >= _MOST_ERRORS and len(errors) == n + 1:
                    break
            return scores, [""] * len(cases), errors

    def board(self, form: str) -> dict[str, float | None]:
        """Return the score of each strategy in a form, None for each where the reward could not be tried."""
        if any(finding.name == "not tried" for finding in self.findings):
            return dict.fromkeys(STRATEGIES)
        cases = [Case(write_row(text, form, "1206"), "1206") for text in STRATEGIES.values()]
        return dict(zip(STRATEGIES, self.scores(cases)[0], strict=True))

    def examine(self) -> None:
        plain = [Case(write_row(text, form, "1206"), "1206") for form in FORMS for text in (_LIKE, _WRONG)]
        scrambled = [Case(_unlike("format", form, "1206"), "1206") for form in FORMS]
        try:
            self.call(plain[:1])
        except RewardTimeout as late:
            self.say("not tried", "stop", "–", str(late))
            return
        except WorkbenchError as error:
            self._rows()  # some bring further columns
            if not self.tried:
                needs = "column" in str(error)
                said = re.sub(r"^\S+ missing \d+ required [\w -]+: ", "it needs ", str(error).partition(": ")[2])
                self.say("not tried", "ok" if needs else "stop", "–", said, "" if needs else "see its code")
            return
        cases = [*plain, *scrambled]
        scores, _, errors = self.scores(cases)
        right, wrong, other = scores[: len(plain) : 2], scores[1 : len(plain) : 2], scores[len(plain) :]
        self._find_out(right, wrong, other)
        self._rows()
        judged = [score for score in (*scores, *self.board("tags").values()) if score is not None]
        if not judged and not errors and not self.tried:
            self.findings.append(_finding("no score", "None"))
        of_turns = "turn" in self.reward.signature.parameters  # and these answers have one
        if judged and not (of_turns or self.forms or self.tried or differ(min(judged), max(judged))):
            self.findings.append(_finding("constant", f"{judged[0]:.3g}"))
        if not self.reward.waits and not self.reward.judges_all:
            self._state(cases)

    def _find_out(self, right: list[Any], wrong: list[Any], other: list[Any]) -> None:
        """Decide what the reward looks at, and in which forms."""

        def forms(above: Sequence[float | None], below: Sequence[float | None]) -> tuple[str, ...]:
            rows = [
                (a, name)
                for name, a, b in zip(FORMS, above, below, strict=True)
                if a is not None and b is not None and differ(b, a)
            ]
            known = [score for score in (*right, *wrong, *other) if score is not None]
            if not rows:
                return ()
            top = max(a for a, _ in rows)
            # Of a graded reward the forms that it scores best, or nearly so.
            return tuple(name for a, name in rows if a >= top - 0.1 * (max(known) - min(known)))

        if answers := forms(right, wrong):
            self.looks_at, self.forms = "answer", answers
        elif reversed_forms := forms(wrong, right):
            self.looks_at = "answer"
            n = list(FORMS).index(reversed_forms[0])
            value = f"{wrong[n]:.3g} > {right[n]:.3g}"
            self.findings.append(_finding("wrong sign", value, wrong=wrong[n], right=right[n]))
        elif formats := forms(right, other):
            self.looks_at, self.forms = "format", formats

    def _rows(self) -> None:
        """Try the rows that fit, and say which of them go wrong."""
        trials: list[tuple[ClinicAnswer, list[Case]]] = []
        for row in clinic_rows():
            is_free = row.family in ("environment", "steps")  # written out, whatever the form
            if row.family == "steps" and not set(row.columns) <= set(self.reward.signature.parameters):
                continue  # they are steps of one task, whose columns only its own rewards read
            fits = self.looks_at == "something else" if is_free else row.kind in ("any", self.looks_at)
            for form in ("bare",) if is_free else [name for name in self.forms if name in row.forms]:
                gold = row.gold if row.like_gold is None else row.like_gold
                good, text = write_row(row.like, form, gold), write_row(row.answer, form, row.gold)
                below = _unlike(self.looks_at, form, gold)
                bad = below if row.unlike is None else write_row(row.unlike, form, gold)
                if fits and (text != good or row.prompt != Case.prompt):
                    known: dict[str, Any] = {"columns": row.columns, "observation": row.observation}
                    texts = [Case(good, gold, **known), Case(bad, gold, **known)]
                    trials.append((row, [*texts, Case(text, row.gold, row.prompt, opened=row.opened, **known)]))
                    if self.reward.waits or self.reward.judges_all:
                        break
        if not trials:
            return
        scores, extracted, errors = self.scores([case for _, cases in trials for case in cases])
        tried, told, failed = set[ClinicAnswer](), set[ClinicAnswer](), Counter[str]()
        for n, (row, _) in enumerate(trials):
            like, unlike, score = scores[3 * n : 3 * n + 3]
            if 3 * n + 2 in errors and 3 * n not in errors:
                message = errors[3 * n + 2]
                if not failed[message]:
                    self.say(row.family, "stop", "error", f"it fails where {row.why}: {message}")
                failed[message] += 1
                continue
            if like is None or unlike is None or not differ(unlike, like):
                continue
            tried.add(row)
            if score is None or row in told:
                continue
            least = like - (like - unlike) * (0.5 if self.looks_at == "answer" else 0.1)  # of a graded reward
            if score < least if row.right else not differ(score, like):
                told.add(row)
                read = " ".join(extracted[3 * n + 2].split())
                took = f" (it took '{cut(read, 60)}' for the answer)" if read else ""
                if row.right:
                    meaning = f"it scores a right answer {score:.3g} in place of {like:.3g} where {row.why}{took}"
                else:
                    meaning = f"it scores {score:.3g}, as for a right answer, where {row.why}{took}"
                if self.looks_at == "format":
                    meaning = meaning.replace("a right answer", "a good format")
                self.say(row.family, "check", f"{score:.3g}", meaning, row.fix)
        self.tried = len(tried)

    def _state(self, cases: Sequence[Case]) -> None:
        """Say whether scores depend on earlier calls, chance, or the other answers of the batch."""
        first, _, errors = self.scores(cases)
        if errors:
            return
        again, backwards = self.scores(cases)[0], self.scores(cases[::-1])[0][::-1]
        alone = [self.scores([case])[0][0] for case in cases[:4]]
        if changed := sum(a != b for a, b in zip(first, again, strict=True)):
            self.findings.append(_finding("state", f"{changed} of {len(cases)}"))
        elif first != backwards or alone != first[:4]:
            self.findings.append(_finding("order", "differs"))


# ── several rewards ──────────────────────────────────────────────────────────────────────────────────────────────


def _compose(patients: Sequence[_Patient]) -> tuple[list[Finding], str | None]:
    """Return what is amiss with the rewards' sum, and the form in which most of them can score."""
    found: list[Finding] = []
    formed = [patient for patient in patients if patient.forms]
    form = max(FORMS, key=lambda name: sum(name in patient.forms for patient in formed)) if formed else None
    for patient in formed:
        if form not in patient.forms:
            other = min(formed, key=lambda other: len({*other.forms} & {*patient.forms}))
            both = " and ".join(f"{one.reward.name} ({', '.join(one.forms)})" for one in (patient, other))
            found.append(_finding("no common form", form or "", both=both))
    spreads = dict[str, float]()
    for patient in patients:
        name, weight, board = patient.reward.name, patient.reward.weight, patient.board(form or "tags")
        known = [score for score in board.values() if score is not None]
        if not weight:
            found.append(_finding("zero weight", "0", name=name))
            continue
        if weight < 0 and patient.looks_at != "something else":
            found.append(_finding("negative weight", f"{weight:g}", name=name))
        if known:
            spreads[name] = weight**2 * float(np.var(known))
        if known and (unscored := ", ".join(strategy for strategy, score in board.items() if score is None)):
            found.append(_finding("unscored", unscored, name=name))
    name, most = max(spreads.items(), key=lambda item: item[1], default=("", 0.0))
    if len(spreads) > 1 and most > MOST_SHARE * sum(spreads.values()):
        found.append(_finding("dominance", f"{most / sum(spreads.values()):.0%}", name=name))
    return found, form


def _strategies(totals: Mapping[str, float | None], judge_answers: bool) -> list[Finding]:
    """Say which strategies earn as much as a perfect answer."""
    best = totals["perfect"]
    if best is None:
        return []
    paid = [
        strategy
        for strategy in ("format only", "near miss", "hedging", "garbage")
        if (score := totals[strategy]) is not None and not differ(score, best)
    ]
    found = []
    if paid and not judge_answers:
        meaning = f"{', '.join(paid)} earn{'s' if len(paid) == 1 else ''} as much as a perfect answer, {best:.3g}"
        advice = "no reward here compares the answer; give one that does beside it"
        found.append(Finding("format alone", "check" if "garbage" in paid else "ok", f"{best:.3g}", meaning, advice))
    elif paid:
        found += [_finding("pays", f"{totals[strategy]:.3g}", paid=strategy, best=best) for strategy in paid]
    if (verbose := totals["verbose"]) is not None and differ(best, verbose):
        found.append(_finding("verbose pays", f"{verbose:.3g}", best=best))
    return found
