"""Exploit probes of the setup on screen, rewards in the clinic or held against labels, pre-flight of new groups.

All take the controls as they stand. A pattern or a reward's code runs in the tab's sandbox, never here.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any

from pydantic import validate_call

from workbench.checks import ALL_EDITS, ProbeReport, clinic, preflight, probe, reward_check, split_step_demo
from workbench.config import PolicySection
from workbench.credit import SCHEMES
from workbench.data import Imported
from workbench.errors import ConfigError, WorkbenchError
from workbench.places import RUN, is_of_run
from workbench.rewards import Sandbox
from workbench.runs import open_run
from workbench.schema import Credit, Group, say_count, two_places
from workbench.ui.handlers import fields, opening, page_state, session
from workbench.ui.handlers.example import choose_example, example_to_sample, find_task, with_group
from workbench.ui.handlers.rewards import demo_rows, keep_written
from workbench.ui.handlers.scoring import Note, View, believed, findings_json, mismatch, portable_configs, score, split
from workbench.ui.payloads import ProbePair, PromptPayload, SidesPayload
from workbench.views import heatmap, sentences

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

    rows: Sequence[tuple[str, ...]] = ()
    worst: Sequence[tuple[str, ...]] = ()
    places: Sequence[tuple[int, int]] = ()


def _check(works: str, first: Any, said: Callable[[Any], str] = str) -> Callable[..., Callable[..., Iterator[View]]]:
    """Have a function do its work in the background, one of the services' ``works``, telling how far it is.

    It is given what the check is, the services and the tab among that, a function that reports progress and one that
    says whether it was cancelled, and returns what to draw.
    """

    def decorate(check: Callable[..., str]) -> Callable[..., Iterator[View]]:
        @wraps(check)
        def views(*given: Any) -> Iterator[View]:
            services, tab = given[-2:]
            try:
                with getattr(services, works).run(tab, partial(check, *given), first) as running:
                    for event in running:
                        yield View(running=True, drawing=heatmap.to_json({"busy": said(event)}))
                    yield View(drawing=running.result())
            except WorkbenchError as error:
                yield View.of_error(error)

        return views

    return decorate


Report = Callable[[Any], None]
Cancelled = Callable[[], bool]


@_check("probing", "probing")
def probe_setup(
    draft: page_state.PageState, services: session.Services, tab: str, report: Report, cancelled: Cancelled
) -> str:
    """Try each edit without content in the group on screen, under the page's own scheme and then all others."""
    if draft.group is None:
        raise ConfigError("There is no group to probe; sample one first.")
    own = draft.credit["scheme"]
    services.probed[tab] = found = probe(
        draft.group,
        draft.pattern(),
        _rewards(draft, services),
        [own, *(scheme for scheme in SCHEMES if scheme != own)],
        options=fields.changed(draft.credit),
        worker=_worker(draft, services, tab),
        models=services.models,
        on_progress=report,
        cancelled=cancelled,
    )
    return probe_json(found, own)


@_check("clinic", "trying the rewards")
def try_clinic(
    draft: page_state.PageState, services: session.Services, tab: str, report: Report, cancelled: Cancelled
) -> str:
    """Try the rewards that are on in the clinic, telling which one is at it."""
    how: dict[str, Any] = {"on_progress": report, "cancelled": cancelled, "models": services.models}
    return heatmap.to_json(
        clinic.check_rewards(_rewards(draft, services), worker=_worker(draft, services, tab), **how).to_json()
    )


def _worker(draft: page_state.PageState, services: session.Services, tab: str) -> Sandbox:
    return services.reward_worker(tab, draft.reward_deadline, isolate=draft.isolates)


@validate_call(config=session.CHECKED)
def pair(services: session.Services, tab: str, edit: str, scheme: str) -> ProbePair | None:
    """The answer in which an edit gains most under a scheme, before and after it; None where there is no such cell."""
    report = services.probed.get(tab)
    result = report.results.get(edit, {}).get(scheme) if report is not None else None
    if result is None or result.pair is None or result.worst is None:
        return None
    drawings = []
    for credit in result.pair:
        payload = heatmap.credit_payload(credit, None, explain_at_most=0)
        rollout = {name: value for name, value in payload["rollouts"][result.worst.rollout].items() if name != "copyOf"}
        drawings.append(heatmap.to_json({**payload, "rollouts": [rollout], "noSpread": None, "warnings": []}))
    before, after = result.worst.first
    return {
        "rollout": result.worst.rollout,
        "drawings": drawings,
        "first": [before, after],
        "at_edit": list(result.worst.at_edit),
    }


def probe_json(report: ProbeReport, own: str) -> str:
    """A report as ``checks.js`` draws it; ``own`` is the page's scheme."""
    own = own if own in report.schemes else next(iter(report.schemes), own)
    cells = [by_scheme[own] for by_scheme in report.results.values() if own in by_scheme]
    worst = [(cell.edit, cell.worst) for cell in cells if cell.pays and cell.worst is not None]
    paying = [
        (edit, one.rollout, *max(one.first, one.at_edit, key=lambda pair: pair[1] - pair[0])) for edit, one in worst
    ]
    resisting = [scheme for scheme in report.schemes if not any(row[scheme].pays for row in report.results.values())]
    said = sentences.about_probes(own, len(cells), paying, len(resisting), len(report.schemes))
    return heatmap.to_json(
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


def probe_demo(draft: page_state.PageState) -> tuple[page_state.PageState, Note]:
    """The group in which one good step, split in four, earns about five times the advantage under ``process``."""
    group, pattern, _ = split_step_demo()
    rows, kept = keep_written(demo_rows(), draft.rows)
    loaded = with_group(draft, group).but(rows=rows).with_pattern(pattern.regex, pattern.kind)
    said = "the demo's group, pattern and functions are on screen"
    return loaded, Note("; ".join(filter(None, (said, kept))), level="info")


# ── pre-flight ───────────────────────────────────────────────────────────────────────────────────────────────────


@_check("preflight", "asking the policy")
def run_preflight(
    draft: page_state.PageState, services: session.Services, tab: str, report: Report, cancelled: Cancelled
) -> str:
    """Sample PREFLIGHT_PROMPTS groups with the policy, telling how far it is, and say what they show."""
    (options, seed), how = draft.sampling(), {**draft.policy_options, "prompting": draft.prompting()}
    pattern, rewards, credit = draft.pattern(), _rewards(draft, services), fields.credit_config(draft.credit)
    task = find_task(draft.task_section())
    places = sorted(random.Random(seed).sample(range(len(task)), min(PREFLIGHT_PROMPTS, len(task))))
    groups: list[Group] = []
    for n, place in enumerate(places):
        report(f"sampling prompt {n + 1} of {len(places)}")
        how["seed"] = seed + n
        group = services.models.sample(draft.policy, task[place], options, cancelled=cancelled, **how)
        if group is None:
            return ""
        groups.append(group)
    report("scoring")
    found = preflight(
        groups,
        pattern,
        rewards,
        credit,
        worker=_worker(draft, services, tab),
        models=services.models,
        mask_truncated=bool(draft.tree[draft.method].get("mask_truncated_completions")),
    )
    credited = dict(zip(places, found.credits, strict=False))  # none where the scheme lacks a reward that fails
    services.preflighted[tab] = {place: credit.scored.group for place, credit in credited.items()}
    return findings_json(found.findings, [_prompt_row(place, credit) for place, credit in credited.items()])


def _prompt_row(place: int, credit: Credit) -> PromptPayload:
    scored = credit.scored
    judge = scored.judge("outcome")
    verdicts = [None if judge is None else one.outcome_scores.get(judge) for one in scored.scored]
    means = [
        sum(own) / max(len(own), 1) if counts else None
        for i, (rollout, counts) in enumerate(zip(scored.group.rollouts, credit.is_counted, strict=True))
        for own in [[value for t, value in enumerate(credit.of(i).tolist()) if rollout.is_sampled(t)]]
    ]
    answers = [(mean, None if said is None else said > 0) for mean, said in zip(means, verdicts, strict=True)]
    return {"place": place, "prompt": opening.short(scored.group.prompt), "answers": answers}


def open_prompt(
    draft: page_state.PageState, services: session.Services, tab: str, place: Any
) -> page_state.PageState | None:
    """Return the draft with the group that pre-flight sampled for an example on screen; None where there is none."""
    group = services.preflighted.get(tab, {}).get(place)
    if group is None:
        return None
    chosen = choose_example(draft, place)
    return chosen.but(group=group, edited=None if group.prompt == chosen.prompt else group.prompt)


# ── beside another policy ────────────────────────────────────────────────────────────────────────────────────────


@_check("beside", session.NO_EVENT, session.progress_text)
def sample_beside(
    draft: page_state.PageState, other: str, services: session.Services, tab: str, report: Report, cancelled: Cancelled
) -> str:
    """Sample the prompt of the group on screen from another policy, by default the one that the run of this one began
    with, and draw both, scored alike."""
    here = services.credit(tab)
    if here is None or draft.group is None or mismatch(draft, draft.group):
        raise ConfigError("Sample this prompt first; the other policy's answers are drawn beside them.")
    name = (other or "").strip()
    if not name:  # of another policy than a run's, the one that comes along
        begun = draft.policy.removeprefix(RUN).partition("@")[0] if is_of_run(draft.policy) else ""
        name = open_run(begun, services.workspace).config().policy.path if begun else PolicySection().path
    (sampling, seed), (example, _), prompting = draft.sampling(), example_to_sample(draft), draft.prompting()
    options: dict[str, Any] = {"seed": here.scored.group.sampling.get("seed", seed), "prompting": prompting}
    options |= {"environment": draft.environment(), "isolate": draft.isolates}
    group = services.models.sample(name, example, sampling, on_event=report, cancelled=cancelled, **options)
    if group is None:
        return ""
    if draft.credit.get("oar"):  # its tokens are weighed by the policy that sampled them
        group = services.models.with_importances(name, group)
    worker = _worker(draft, services, tab)
    splits = split(group, draft.pattern(), worker)
    there, _ = score(draft.but(compare=None), group, splits, worker, services.models)
    drawings = [heatmap.to_json(heatmap.credit_payload(credit, None, explain_at_most=0)) for credit in (here, there)]
    return heatmap.to_json(
        SidesPayload(
            names=[draft.policy, name],
            drawings=drawings,
            said=f"{draft.policy}: {_say_score(here)}; {name}: {_say_score(there)}.",
        )
    )


def _say_score(credit: Credit) -> str:
    """Say how many answers of a group are right, or else what they score on average."""
    scored, judge = credit.scored, credit.scored.judge("outcome")
    if judge is not None:
        right = sum((one.outcome_scores.get(judge) or 0) > 0 for one in scored.scored)
        return f"{right} of {say_count(len(scored.group), 'answer')} right"
    sums = [sum(reward for reward in one.rewards if reward is not None) for one in scored.scored]
    return f"step rewards of {two_places(sum(sums) / len(sums))} an answer"


def _rewards(draft: page_state.PageState, services: session.Services) -> list[Any]:
    """All that are on, but for Monte-Carlo values: those are of one group's own steps."""
    switched_on = [config for _, config in draft.switched_on() if config.monte_carlo is None]
    rewards = [believed(draft, one, services.models) if one.belief else one for one in switched_on]
    if not rewards:
        raise ConfigError("no reward function is on that can score other completions; switch one on or add one")
    return rewards


# ── rewards against labels ───────────────────────────────────────────────────────────────────────────────────────


def check_rewards(
    imported: Imported,
    draft: page_state.PageState,
    threshold: str,
    services: session.Services,
    tab: str,
) -> Iterator[View]:
    """Hold every reward that is on against the file's labels; without a ``threshold``, at the best one."""

    def check(report: Callable[[str], None], cancelled: Callable[[], bool]) -> list[reward_check.RewardCheck]:
        groups, pattern, least = imported.groups, draft.pattern(), fields.number_in(threshold)
        if isinstance(least, str):
            raise ConfigError(f"{threshold!r} is no number; give the score from which a thing counts as right")
        return [
            reward_check.check_reward(
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
        found = _sum_up(checks)
        notes = [f"{check.reward}: {note}" for check in checks for note in check.notes]
        said = f"{len(found.worst)} of the worst disagreements listed." if checks else "No reward function is on."
        yield View(Note(said, level="info", detail="\n".join(notes)), made=found)
    except WorkbenchError as error:
        yield replace(View.of_error(error), made=Checked())


def _sum_up(checks: Sequence[reward_check.RewardCheck]) -> Checked:
    worst = [(check, mistake) for check in checks for mistake in check.worst]
    agreements = [check.given or check.best for check in checks]
    errors = [check.first_error and check.first_error.f1 for check in checks]
    return Checked(
        rows=[
            (
                check.reward,
                check.items,
                str(check.count),
                str(check.unscored),
                "–" if check.auc is None else f"{check.auc:.3f}",
                "–" if agreement is None else f"{agreement.share:.1%} from {agreement.threshold:.3g}",
                "–" if f1 is None else f"{f1:.1%}",
            )
            for check, agreement, f1 in zip(checks, agreements, errors, strict=True)
        ],
        worst=[
            (
                check.reward,
                str(mistake.group + 1),
                str(mistake.rollout + 1),
                "–" if mistake.step is None else str(mistake.step + 1),
                f"{mistake.score:.3g}",
                "right" if mistake.label else "wrong",
                opening.short(mistake.text),
            )
            for check, mistake in worst
        ],
        places=[(mistake.group, mistake.rollout) for _, mistake in worst],
    )
