"""Exploit probes of the setup on screen, rewards in the clinic or held against labels, pre-flight of new groups.

All take the controls as they stand. A pattern or a reward's code runs in the tab's sandbox, never here.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pydantic import validate_call

from workbench.checks import ALL_EDITS, Preflight, ProbeReport, clinic, preflight, probe, split_step_demo
from workbench.checks.clinic import ClinicReport
from workbench.checks.reward_check import RewardCheck, check_reward
from workbench.config import PolicySection
from workbench.credit import SCHEMES
from workbench.data import Imported
from workbench.errors import ConfigError, WorkbenchError
from workbench.places import RUN, is_of_run
from workbench.runs import open_run
from workbench.schema import Credit, Group, counted, two_places
from workbench.ui.handlers.example import choose_example, edited_example, find_task, with_group
from workbench.ui.handlers.fields import changed, credit_config
from workbench.ui.handlers.opening import short
from workbench.ui.handlers.page_state import PageState
from workbench.ui.handlers.rewards import demo_rows, keep_written
from workbench.ui.handlers.scoring import Note, View, believed, findings_json, mismatch, portable_configs, score, split
from workbench.ui.handlers.session import CHECKED, NO_EVENT, Services, Work, Works, progress_text
from workbench.ui.payloads import ProbePair, PromptPayload, SidesPayload
from workbench.views.heatmap import credit_payload, to_json
from workbench.views.sentences import about_probes

P = TypeVar("P")
T = TypeVar("T")
PREFLIGHT_PROMPTS = 8
CHECK_HEADINGS = {
    "reward": False,
    "of": False,
    "scored": True,
    "unscored": True,
    "AUC": True,
    "agreement": True,
    "first-error F1": True,
}
WORST_HEADINGS = {
    "reward": False,
    "group": True,
    "rollout": True,
    "step": True,
    "score": True,
    "label": False,
    "text": False,
}


@dataclass(frozen=True)
class Checked:
    """Rewards held against the labels: a row a reward, the worst disagreements, and where each of these is."""

    rows: tuple[tuple[str, ...], ...] = ()
    worst: tuple[tuple[str, ...], ...] = ()
    places: tuple[tuple[int, int], ...] = ()


def _tell(
    works: Works, tab: str, work: Work[P, T], first: P, draw: Callable[[T], str], said: Callable[[P], str] = str
) -> Iterator[View]:
    """Do a work, telling how far it is, and show what ``draw`` makes of what it came to."""
    try:
        with works.run(tab, work, first) as running:
            for event in running:
                yield View(running=True, drawing=to_json({"busy": said(event)}))
            found = running.result()
        yield View(drawing=draw(found))
    except WorkbenchError as error:
        yield View.of_error(error)


def probe_setup(draft: PageState, services: Services, tab: str) -> Iterator[View]:
    """Try each edit without content in the group on screen, under the page's own scheme and then all others."""
    group, own = draft.group, draft.credit["scheme"]
    if group is None:
        yield View(Note("There is no group to probe; sample one first."))
        return
    worker = services.reward_worker(tab, draft.reward_deadline, isolate=draft.isolates)

    def work(report: Callable[[str], None], cancelled: Callable[[], bool]) -> ProbeReport:
        return probe(
            group,
            draft.pattern(),
            _rewards(draft, services),
            [own, *(scheme for scheme in SCHEMES if scheme != own)],
            options=changed(draft.credit),
            worker=worker,
            models=services.models,
            on_progress=report,
            cancelled=cancelled,
        )

    def kept(report: ProbeReport) -> str:
        services.probed[tab] = report
        return probe_json(report, own)

    yield from _tell(services.probing, tab, work, "probing", kept)


def try_clinic(draft: PageState, services: Services, tab: str) -> Iterator[View]:
    """Try the rewards that are on in the clinic, telling which one is at it."""
    worker = services.reward_worker(tab, draft.reward_deadline, isolate=draft.isolates)

    def work(report: Callable[[str], None], cancelled: Callable[[], bool]) -> ClinicReport:
        return clinic.check_rewards(
            _rewards(draft, services),
            worker=worker,
            models=services.models,
            on_progress=report,
            cancelled=cancelled,
        )

    yield from _tell(services.clinic, tab, work, "trying the rewards", lambda found: to_json(found.to_json()))


@validate_call(config=CHECKED)
def pair(services: Services, tab: str, edit: str, scheme: str) -> ProbePair | None:
    """The answer in which an edit gains most under a scheme, before and after it; None where there is no such cell."""
    report = services.probed.get(tab)
    result = report.results.get(edit, {}).get(scheme) if report is not None else None
    if result is None or result.pair is None or result.worst is None:
        return None
    drawings = []
    for credit in result.pair:
        payload = credit_payload(credit, None, explain_at_most=0)
        rollout = {name: value for name, value in payload["rollouts"][result.worst.rollout].items() if name != "copyOf"}
        drawings.append(to_json({**payload, "rollouts": [rollout], "noSpread": None, "warnings": []}))
    before, after = result.worst.first
    return {
        "rollout": result.worst.rollout,
        "drawings": drawings,
        "first": [before, after],
        "at_edit": list(result.worst.at_edit),
    }


def probe_json(report: ProbeReport, own: str) -> str:
    """A report as ``checks.js`` draws it; ``own`` is the page's scheme."""
    own = next((scheme for scheme in (own, *report.schemes) if scheme in report.schemes), own)
    cells = [by_scheme[own] for by_scheme in report.results.values() if own in by_scheme]
    paying = []
    for cell in cells:
        if cell.pays and (worst := cell.worst) is not None:
            paying.append(
                (cell.edit, worst.rollout, *max(worst.first, worst.at_edit, key=lambda pair: pair[1] - pair[0]))
            )
    resisting = [scheme for scheme in report.schemes if not any(row[scheme].pays for row in report.results.values())]
    said = about_probes(own, len(cells), paying, len(resisting), len(report.schemes))
    return to_json(
        {
            "own": own,
            "said": said.parts,
            "schemes": report.schemes,
            "edits": [{"name": name, "summary": ALL_EDITS[name].summary} for name in report.results],
            "rows": report.rows(),
            "leftOut": dict(report.left_out),
            "rewards": list(report.rewards),
            "threshold": report.threshold,
        }
    )


def probe_demo(draft: PageState) -> tuple[PageState, Note]:
    """The group in which one good step, split in four, earns about five times the advantage under ``process``."""
    group, pattern, _ = split_step_demo()
    rows, kept = keep_written(demo_rows(), draft.rows)
    loaded = with_group(draft, group).but(rows=rows).with_pattern(pattern.regex, pattern.kind)
    said = "the demo's group, pattern and functions are on screen"
    return loaded, Note("; ".join(filter(None, (said, kept))), level="info")


# ── pre-flight ───────────────────────────────────────────────────────────────────────────────────────────────────


def run_preflight(draft: PageState, services: Services, tab: str) -> Iterator[View]:
    """Sample PREFLIGHT_PROMPTS groups with the policy, telling how far it is, and say what they show."""

    def work(report: Callable[[str], None], cancelled: Callable[[], bool]) -> tuple[list[int], Preflight]:
        (options, seed), how = draft.sampling(), {**draft.policy_options, "prompting": draft.prompting()}
        pattern, rewards, credit = draft.pattern(), _rewards(draft, services), credit_config(draft.credit)
        task = find_task(draft.task_section())
        places = sorted(random.Random(seed).sample(range(len(task)), min(PREFLIGHT_PROMPTS, len(task))))
        groups: list[Group] = []
        for n, place in enumerate(places):
            report(f"sampling prompt {n + 1} of {len(places)}")
            how["seed"] = seed + n
            group = services.models.sample(draft.policy, task[place], options, cancelled=cancelled, **how)
            if group is None:
                return [], Preflight((), ())
            groups.append(group)
        report("scoring")
        worker = services.reward_worker(tab, draft.reward_deadline, isolate=draft.isolates)
        return places, preflight(
            groups,
            pattern,
            rewards,
            credit,
            worker=worker,
            models=services.models,
            mask_truncated=bool(draft.tree[draft.method].get("mask_truncated_completions")),
        )

    def kept(found: tuple[list[int], Preflight]) -> str:
        places, report = found
        credited = dict(zip(places, report.credits, strict=False))  # none where the scheme lacks a reward that fails
        services.preflighted[tab] = {place: credit.scored.group for place, credit in credited.items()}
        return findings_json(report.findings, [_prompt_row(place, credit) for place, credit in credited.items()])

    yield from _tell(services.preflight, tab, work, "asking the policy", kept)


def _prompt_row(place: int, credit: Credit) -> PromptPayload:
    scored = credit.scored
    judge = scored.judge("outcome")
    verdicts = [None if judge is None else one.outcome_scores.get(judge) for one in scored.scored]
    means = [
        sum(own) / max(len(own), 1) if counts else None
        for i, (rollout, counts) in enumerate(zip(scored.group.rollouts, credit.counted, strict=True))
        for own in [[value for t, value in enumerate(credit.of(i).tolist()) if rollout.is_sampled(t)]]
    ]
    answers = [(mean, None if said is None else said > 0) for mean, said in zip(means, verdicts, strict=True)]
    return {"place": place, "prompt": short(scored.group.prompt), "answers": answers}


def open_prompt(draft: PageState, services: Services, tab: str, place: Any) -> PageState | None:
    """Return the draft with the group that pre-flight sampled for an example on screen; None where there is none."""
    group = services.preflighted.get(tab, {}).get(place)
    if group is None:
        return None
    chosen = choose_example(draft, place)
    return chosen.but(group=group, edited=None if group.prompt == chosen.prompt else group.prompt)


# ── beside another policy ────────────────────────────────────────────────────────────────────────────────────────


def sample_beside(draft: PageState, other: str, services: Services, tab: str) -> Iterator[View]:
    """Sample the prompt of the group on screen from another policy, by default the one that the run of this one began
    with, and draw both, scored alike."""
    here = services.credit(tab)
    if here is None or draft.group is None or mismatch(draft, draft.group):
        yield View(Note("Sample this prompt first; the other policy's answers are drawn beside them."))
        return

    def work(report: Callable[[dict[str, Any]], None], cancelled: Callable[[], bool]) -> tuple[str, Credit] | None:
        name = (other or "").strip() or _begun_with(draft.policy, services)
        (sampling, seed), (example, _), prompting = draft.sampling(), edited_example(draft), draft.prompting()
        options: dict[str, Any] = {"seed": here.scored.group.sampling.get("seed", seed), "prompting": prompting}
        options |= {"environment": draft.environment(), "isolate": draft.isolates}
        group = services.models.sample(name, example, sampling, on_event=report, cancelled=cancelled, **options)
        if group is None:
            return None
        if draft.credit.get("oar"):  # its tokens are weighed by the policy that sampled them
            group = services.models.with_importances(name, group)
        worker = services.reward_worker(tab, draft.reward_deadline, isolate=draft.isolates)
        plain = draft.but(compare=None)
        return name, score(plain, group, split(group, draft.pattern(), worker), worker, services.models)[0]

    def sides(found: tuple[str, Credit] | None) -> str:
        assert found is not None  # else it was cancelled
        named = ((draft.policy, here), found)
        drawings = [to_json(credit_payload(credit, None, explain_at_most=0)) for _, credit in named]
        said = "; ".join(f"{name}: {_told(credit)}" for name, credit in named)
        return to_json(SidesPayload(names=[name for name, _ in named], drawings=drawings, said=f"{said}."))

    yield from _tell(services.beside, tab, work, NO_EVENT, sides, progress_text)


def _begun_with(policy: str, services: Services) -> str:
    """The policy that a run began with, where the policy is a run's; or else the one that comes along."""
    if not is_of_run(policy):
        return PolicySection().path
    return open_run(policy.removeprefix(RUN).partition("@")[0], services.workspace).config().policy.path


def _told(credit: Credit) -> str:
    """Say how many answers of a group are right, or else what they score on average."""
    scored, judge = credit.scored, credit.scored.judge("outcome")
    if judge is not None:
        right = sum((one.outcome_scores.get(judge) or 0) > 0 for one in scored.scored)
        return f"{right} of {counted(len(scored.group), 'answer')} right"
    sums = [sum(reward for reward in one.rewards if reward is not None) for one in scored.scored]
    return f"step rewards of {two_places(sum(sums) / len(sums))} an answer"


def _rewards(draft: PageState, services: Services) -> list[Any]:
    """All that are on, but for Monte-Carlo values: those are of one group's own steps."""
    switched_on = [config for _, config in draft.switched_on() if config.monte_carlo is None]
    rewards = [believed(draft, one, services.models) if one.belief else one for one in switched_on]
    if not rewards:
        raise ConfigError("no reward function is on that can score other completions; switch one on or add one")
    return rewards


# ── rewards against labels ───────────────────────────────────────────────────────────────────────────────────────


def check_rewards(
    imported: Imported,
    draft: PageState,
    threshold: str,
    services: Services,
    tab: str,
) -> Iterator[View]:
    """Hold every reward that is on against the file's labels; without a ``threshold``, at the best one."""
    try:
        least = float(threshold) if threshold.strip() else None
    except ValueError:
        said = f"{threshold!r} is no number; give the score from which a thing counts as right, or nothing."
        yield View(Note(said), made=Checked())
        return
    groups = imported.groups

    def check(report: Callable[[str], None], cancelled: Callable[[], bool]) -> list[RewardCheck]:
        pattern = draft.pattern()
        return [
            check_reward(
                groups,
                config,
                pattern=pattern,
                threshold=least,
                worker=services.reward_worker(tab),
                models=services.models,
                on_progress=lambda done, of, name=config.name: report(f"{name}: {done:,} of {of:,} groups"),  # type: ignore[misc]
                cancelled=cancelled,
            )
            for config in portable_configs(draft)
        ]

    try:
        with services.opening.run(tab, check, "checking …") as work:
            for line in work:
                yield View(Note(line, level="info"), True, made=Checked())
            checks = work.result()
        yield _checked(checks)
    except WorkbenchError as error:
        yield replace(View.of_error(error), made=Checked())


def _checked(checks: Sequence[RewardCheck]) -> View:
    if not checks:
        said = "No reward function is on; switch one on or add one."
        return View(Note(said, level="info"), made=Checked())
    worst = [(check, mistake) for check in checks for mistake in check.worst]
    notes = [f"{check.reward}: {note}" for check in checks for note in check.notes]
    found = Checked(
        rows=tuple(_check_row(check) for check in checks),
        worst=tuple(
            (
                check.reward,
                str(mistake.group + 1),
                str(mistake.rollout + 1),
                "–" if mistake.step is None else str(mistake.step + 1),
                f"{mistake.score:.3g}",
                "right" if mistake.label else "wrong",
                short(mistake.text),
            )
            for check, mistake in worst
        ),
        places=tuple((mistake.group, mistake.rollout) for _, mistake in worst),
    )
    said = f"{len(worst)} of the worst disagreements listed."
    return View(Note(said, level="info", detail="\n".join(notes)), made=found)


def _check_row(check: RewardCheck) -> tuple[str, ...]:
    agreement = check.given or check.best
    error = check.first_error
    return (
        check.reward,
        check.items,
        str(check.count),
        str(check.unscored),
        "–" if check.auc is None else f"{check.auc:.3f}",
        "–" if agreement is None else f"{agreement.share:.1%} from {agreement.threshold:.3g}",
        "–" if error is None or error.f1 is None else f"{error.f1:.1%}",
    )
