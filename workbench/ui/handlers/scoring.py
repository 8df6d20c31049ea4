"""From the draft to a drawn credit: score the frozen group, say what went wrong where.

Nothing is sampled here, and neither a pattern nor anybody's code runs here: both do in the sandbox. Whatever
fails, the last good drawing stays on the page and is marked as stale; the message goes beside the control it is about.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import validate_call

from workbench.assets import BLAME
from workbench.checks import Finding, preflight_of
from workbench.config import PromptSection
from workbench.credit import LOGGED, SCHEMES, credit_group, logged_credit, unused_rewards, why_no_spread
from workbench.data.labelled import HandLabelled, HandLabels, Label, LabelLayout
from workbench.errors import ConfigError, PatternError, PolicyError, RewardError, RewardTimeout, WorkbenchError, redact
from workbench.policies.client import ModelWorker
from workbench.rewards import Reward, RewardConfig, Sandbox, environments, protocol, score_split, split_group
from workbench.rewards.reward import Models
from workbench.schema import Credit, Group
from workbench.steps import MAX_STEPS, PRESETS, Split, StepPattern
from workbench.ui.handlers import fields, page_state, session
from workbench.ui.payloads import HandLabelsPayload, PromptPayload
from workbench.views import heatmap, payloads, sentences

TRUST_MODEL = (
    "This is your own code on your own machine, like Jupyter: a hang, a crash or a memory bomb costs one call. "
    "Isolated, it has no network, programs or files of yours: for code of others, or that runs what a policy wrote."
)


_PRESETS = [preset.pattern for preset in PRESETS.values()]


class NothingScores(ConfigError):
    """No reward function is on, which is no single control's fault."""


@dataclass(frozen=True)
class Note:
    """A message beside a control. ``line`` (1-based) is a line of that control's text to point at."""

    text: str
    level: str = "error"
    line: int | None = None
    detail: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"text": redact(self.text), "level": self.level, "line": self.line, "detail": redact(self.detail)}


@dataclass(frozen=True)
class View:
    """One thing to show while a work goes on: a note beside its button, what an element draws (JSON), and at the end
    what was ``made``.

    ``running`` says whether there is anything to cancel, None that this is as it was.
    """

    note: Note | None = None
    running: bool | None = False
    drawing: str = ""
    made: Any = None

    @classmethod
    def of_error(cls, error: WorkbenchError, drawing: str = "") -> View:
        """Say why a work came to nothing."""
        return cls(
            Note(
                str(error),
                level="info" if isinstance(error, session.Cancelled) else "error",
                line=getattr(error, "line", None),
            ),
            None if isinstance(error, session.Busy) else False,
            drawing,
        )


@dataclass(frozen=True)
class ScoringView:
    """View of the page after a change: the drawing's message and a note for each control that has something wrong.

    ``note`` is about credit, or anything else that belongs to no single control; ``credit`` is what is drawn, if it is.
    """

    drawing: str
    pattern: Note | None
    rows: tuple[Note | None, ...]
    note: Note | None
    credit: Credit | None = None
    other: Credit | None = None
    preflight: str = ""
    """The findings about the group on screen, for the strip above it."""
    splits: Sequence[Split] = ()
    """The steps of each rollout, where the pattern could be used."""
    prints: Mapping[int | None, str] = field(default_factory=dict)
    """What a reward that failed had printed by then, for each rollout."""


def rescore(
    draft: page_state.PageState, worker: Sandbox, models: Models | None = None, labels: HandLabels | None = None
) -> ScoringView:
    """Score the group on screen anew. Reward models are held by ``models``, by default in this process."""
    group = draft.group
    notes: list[Note | None] = [None] * len(draft.rows)
    if group is None:
        return ScoringView(message(empty="No answers to this prompt yet.", prompt=draft.text), None, tuple(notes), None)
    findings, wrong, credit, other = "", "", None, None
    pattern_note: Note | None = None
    credit_note: Note | None = None
    prints: Mapping[int | None, str] = {}
    splits: list[Split] = []
    try:
        pattern = draft.pattern()
        splits = split(group, pattern, worker)
        credit, other = score(draft, group, splits, worker, models, labels)
        drawing = show(draft, credit, [text_split.matches for text_split in splits], other)
        findings, pattern_note = findings_json(preflight_of([credit], pattern).findings), _no_match(splits)
    except PatternError as error:
        position = getattr(error, "position", None)
        pattern_note = Note(str(error), detail=_pointer(draft.regex, position) if position is not None else "")
        wrong = "Fix the pattern under Steps."
    except RewardError as error:
        note, prints = _of_reward(error, draft, group, splits, worker), error.prints
        place = next((i for i, row in enumerate(draft.rows) if row.on and row.name == error.reward), None)
        if place is None:
            credit_note, wrong = note, CREDIT_WRONG
        else:
            notes[place], wrong = note, f"Fix {error.reward} under Rewards."
    except NothingScores as error:
        wrong = str(error)
    except WorkbenchError as error:
        credit_note, wrong = Note(str(error)), CREDIT_WRONG
    if wrong:
        # The group without colours is drawn only where there is no earlier drawing of it to keep.
        drawing, credit, other = message(stale=wrong, group=heatmap.group_payload(group)), None, None
    for place, row in enumerate(draft.rows):
        if notes[place] is None and row.on and (why := stale(row, draft)):
            notes[place] = Note(why, level="warning")
    return ScoringView(drawing, pattern_note, tuple(notes), credit_note, credit, other, findings, splits, prints)


CREDIT_WRONG = "Fix the settings under Credit."


def _of_reward(
    error: RewardError, draft: page_state.PageState, group: Group, splits: Sequence[Split], worker: Sandbox
) -> Note:
    """Say what went wrong in a reward, in which line, and at which rollout and step."""
    said, detail = str(error), ""
    if isinstance(error, RewardTimeout) and worker.deadline < draft.reward_deadline:
        waits = f"the page waits {worker.deadline:g} s for a call, a run {draft.reward_deadline:g} s"
        said = f"{said.partition(';')[0]}; {waits}"
    if error.rollout is not None and 0 <= error.rollout < len(splits):
        text, detail = group.rollouts[error.rollout].text, f"rollout {error.rollout + 1}"
        if error.step is not None:
            detail += f", step {error.step + 1}"
            text = "".join(text[one.start : one.end] for one in splits[error.rollout].steps[error.step :][:1])
        detail += f":\n{text}" if text else ""
    return Note(said, line=error.line, detail=detail)


def split(group: Group, pattern: StepPattern, worker: Sandbox) -> list[Split]:
    """Steps and matches of each rollout; a preset matches in this process. Raises PatternError and those under it."""
    return split_group(group, pattern, worker=None if pattern in _PRESETS else worker)


def score(
    draft: page_state.PageState,
    group: Group,
    splits: Sequence[Split],
    worker: Sandbox,
    models: Models | None = None,
    labels: HandLabels | None = None,
) -> tuple[Credit, Credit | None]:
    """The group's credit under the draft's scheme, and under its second scheme if it has one, or else the advantages
    of the group's file where they are others.

    Raises WorkbenchError for a reward function or a scheme that cannot be used.
    """
    on_screen = rewards_on_screen(draft, group, models)
    rewards = [one for one in on_screen if isinstance(one, Reward) or not one.asks_policy]
    if not rewards:
        raise NothingScores("No reward is on: switch one on or add one.")
    scheme = fields.credit_config(draft.credit)
    second = None if draft.compare is None else fields.credit_config(draft.compare, "page.compare")
    weighs = scheme.oar or (second is not None and second.oar)
    if weighs and isinstance(models, ModelWorker) and all(rollout.importances is None for rollout in group.rollouts):
        group = models.with_importances(draft.policy, group, **draft.policy_options)
    run_steps = draft.tree["run"]["steps"]
    state = protocol.preview_state(run_steps if isinstance(run_steps, int) and run_steps > 0 else 1)
    options: dict[str, Any] = {"worker": worker, "models": models, "trainer_state": state}
    options["pattern"] = draft.pattern()
    scored = score_split(group, splits, rewards, **options)
    scored = scored if labels is None else labels.of_group(scored)
    credit = credit_group(scored, **scheme.keywords())
    if second is None:
        logged = logged_credit(credit)
        differs = logged is not None and abs(logged.advantages - credit.advantages).max(initial=0) > sentences.AS_LOGGED
        return credit, logged if differs else None
    return credit, credit_group(scored, **second.keywords())


def portable_configs(draft: page_state.PageState) -> list[RewardConfig]:
    """The rewards that are on and need no policy: they can score any group. Raises RewardError."""
    return [config for _, config in draft.switched_on() if not config.asks_policy]


def believed(draft: page_state.PageState, config: RewardConfig, models: ModelWorker) -> Reward:
    """Return a row's belief as a reward, asked of the page's policy. Raises ConfigError and PatternError."""
    belief, policy = config.belief, draft.policy
    assert belief is not None
    prompting = PromptSection.parse(draft.tree["prompt"], "prompt")
    options: dict[str, Any] = {
        "pattern": draft.pattern(),
        "template_kwargs": prompting.template_kwargs,
        **draft.policy_options,
    }

    def score_steps(
        prompts: Any, completions: Any, steps: Any, completion_ids: Any, step_ends: Any, **columns: Any
    ) -> Any:
        batch = {"prompts": prompts, "completions": completions, "steps": steps, **columns}
        batch |= {"completion_ids": completion_ids, "step_ends": step_ends}
        try:
            return models.score_beliefs(policy, belief, batch, **options)
        except PolicyError as error:
            raise RewardError(str(error)) from error

    return Reward(config.name, "step", score_steps, config.weight, schedule=config.points).at(0)


def rewards_on_screen(draft: page_state.PageState, group: Group, models: Any = None) -> list[RewardConfig | Reward]:
    """The rewards that are on and can score this group, Monte-Carlo values among them; beliefs as their configuration
    where there are no ``models`` to ask. Raises RewardError.
    """
    rewards: list[RewardConfig | Reward] = []
    for row, config in draft.switched_on():
        if not config.asks_policy:
            rewards.append(config)
        elif config.belief is not None:
            rewards.append(config if models is None else believed(draft, config, models))
        elif (
            config.monte_carlo is not None
            and row.estimated is not None
            and row.estimated.fits(group, draft.pattern_as_typed)
        ):
            what: Literal["value", "progress"] = "progress" if config.monte_carlo.progress else "value"
            rewards.append(replace(row.estimated.values.as_reward(what, config.weight_at(0)), name=config.name))
    return rewards


def stale(row: page_state.RewardRow, draft: page_state.PageState) -> str:
    """Say why a row's Monte-Carlo values are not those of the group on screen; "" where they are, or it holds none."""
    if row.monte_carlo is None:
        return ""
    if row.estimated is None:
        return "not estimated yet; press Estimate again"
    if row.in_run and not row.for_run:
        return "left out of the run, which can only estimate values of built-in outcome rewards as they are"
    if row.estimated.fits(draft.group, draft.pattern_as_typed):
        return ""
    pattern = row.estimated.values.pattern != draft.pattern_as_typed
    return f"estimated for another {'pattern' if pattern else 'group'}; estimate again"


def show(
    draft: page_state.PageState,
    credit: Credit,
    matches: Sequence[Sequence[tuple[int, int]]],
    second: Credit | None = None,
) -> str:
    """The message that draws a credit (and a second one beside it), with what the page says above it."""
    group = credit.scored.group
    return message(
        show=heatmap.credit_payload(credit, matches, other=second, explain_at_most=heatmap.EXPLAINED_AT_ONCE),
        about=_about(group),
        other=mismatch(draft, group),
    )


def mismatch(draft: page_state.PageState, group: Group) -> str:
    """Say in what the group is not as the page says: prompt, policy, or how it was sampled; "" where all is."""
    if group.prompt not in (draft.prompt, draft.edited):
        return "These answers are for the previous prompt."
    if "temperature" not in group.sampling:  # nobody sampled it here
        return ""
    if group.policy != draft.policy:
        return f"These answers are of the policy {group.policy}."
    is_plain = isinstance(group.prompt, str)
    try:
        wanted = draft.sampling()[0].recorded
        put = draft.prompting().of(
            draft.prompt,
            has_template=not is_plain or "chat_template" in group.sampling,
            system="" if is_plain else "told",
        )
    except ConfigError:  # said at its field
        return ""
    if isinstance(put, str) is not is_plain:
        return f"These answers were sampled {'without' if is_plain else 'through'} the chat template."
    names = [name for name, value in wanted.items() if name in group.sampling and group.sampling[name] != value]
    labels = [fields.label_of(fields.every_leaf()[f"method.sampling.{name}"]) for name in names]
    how = ", ".join(
        f"{label[0].lower()}{label[1:]} {group.sampling[name]}" for name, label in zip(names, labels, strict=True)
    )
    return f"These answers were sampled with {how}." if names else ""


def explain_token(credit: Credit | None, rollout: int, token: int) -> payloads.WhyPayload | None:
    """Say why a token of the drawn credit has its advantage; None where there is no such token."""
    if credit is None or not 0 <= rollout < len(credit.scored.group) or credit.scheme == LOGGED:
        return None
    try:
        return heatmap.why_payload(credit, rollout, token)
    except IndexError:
        return None


def remedied(draft: page_state.PageState, credit: Credit | None, label: Any) -> page_state.PageState | None:
    """The draft with the settings of what was offered beside the drawn credit: a remedy, or what a fact's button does.

    None where it was not offered.
    """
    if credit is None:
        return None
    credits: dict[Any, dict[str, Any]] = {
        "count": {"outcome_weight": 1.0},
        "leave-out": {"outcome_weight": 0.0},
        "gate": {"gate": "outcome"},
        "ungate": {"gate": "none"},
    }
    if label in credits:
        return draft.but(credit=fields.with_settings(draft.credit, credits[label]))
    if label == "compare":
        names = [name for name in ("outcome", "process") if name != credit.scheme]
        return draft.but(compare=fields.for_scheme(draft.credit, names[0]))
    if label == "uncompare":
        return draft.but(compare=None)
    sampling, how = draft.tree["method"]["sampling"], credit.scored.group.sampling
    settings = {
        "template": ("prompt.apply_template", "always"),
        "penalty": ("method.sampling.repetition_penalty", 1.1),
        "longer": ("method.sampling.max_completion_length", 2 * how.get("max_completion_length", 1)),
        "stop": ("method.sampling.stop", [*sampling["stop"], how.get("turn_end")]),
    }
    if label in settings:
        return draft.but(tree=fields.with_path(draft.tree, *settings[label]))
    flat = why_no_spread(credit)
    remedy = next((remedy for remedy in flat.remedies if remedy.label == label), None) if flat is not None else None
    return None if remedy is None else draft.but(credit=fields.with_settings(draft.credit, remedy.settings))


def findings_json(findings: Sequence[Finding], prompts: Sequence[PromptPayload] = ()) -> str:
    """Findings of a pre-flight as the page's script draws them, with the prompts that it sampled."""
    return heatmap.to_json({"findings": [asdict(finding) for finding in findings], "prompts": prompts})


def message(**parts: Any) -> str:
    """A message to the drawing's script: what to do, as JSON."""
    return heatmap.to_json(parts)


def scheme_note(section: fields.Section) -> str:
    """The formula of a scheme, with the outcome's term where it has one, and where it comes from."""
    scheme, weight = SCHEMES[section["scheme"]], fields.option_values(section).get("outcome_weight")
    return f"{scheme.formula}{f' + {weight:g} · z(R)' if weight else ''}  ({scheme.reference})"


def which_scheme() -> str:
    """Return HTML with a line for each scheme on where its blame goes; the one that finds the culprit best is first."""
    measured = json.loads(BLAME.read_text(encoding="utf-8"))
    found = sorted(measured["schemes"].items(), key=lambda item: -item[1]["right"])
    lines = "".join(f"<dt>{name}</dt><dd>{blame_said(**row)}</dd>" for name, row in found)
    labels = {"right": "right labels", "implicit": "a reward model's labels"}
    learning = "; ".join(
        f"{row['correlation']:+.2f} under {words} ({row['low']:+.2f} to {row['high']:+.2f}, {row['schemes']} schemes)"
        for name, words in labels.items()
        if (row := measured["learning"].get(name))
    )
    told = f"<p>{BLAME_MEANS}</p><dl class='facts'>{lines}</dl><p>{LEARNING_MEANS} {learning}.</p>"
    return f"<div class='drawn'>{told}</div>"


BLAME_MEANS = (
    "Of all that a scheme pushes down in answers with a planted error, the share on the wrong step; in brackets with "
    "30 % of the labels turned."
)
LEARNING_MEANS = "Rank correlation of the share with the accuracy after training:"


def blame_said(right: float, noise30: float, pays: Sequence[str]) -> str:
    """Say what share of the blame a scheme puts on the culprit, also under turned labels, and which edits pay."""
    turned = f" ({100 * noise30:.0f} %)" if abs(right - noise30) >= 0.005 else ""
    gamed = f"; can be gamed: {pays[0]}{f' and {len(pays) - 1} more' * (len(pays) > 1)}" if pays else ""
    return f"{100 * right:.0f} % of the blame{turned}{gamed}"


WATCHED = "a run draws its curve and how it goes with what is trained on, and warns if it falls while that rises"


def unused_notes(view: ScoringView) -> dict[str, tuple[str, str]]:
    """Return what to say of each reward that plays no part in the colours of a scheme drawn, and why it plays none."""
    if view.credit is None:
        return {}
    first = unused_rewards(view.credit)
    second = first if view.other is None or view.other.scheme == LOGGED else unused_rewards(view.other)
    said = {name: ("not counted by B", why) for name, why in second.items()}
    said |= {name: ("not counted by A", why) for name, why in first.items()}
    watched = {reward.name for reward in view.credit.scored.rewards if reward.weight == 0}
    said |= {name: ("shown, not counted", first[name]) for name in first.keys() & second.keys()}
    return said | dict.fromkeys(watched, ("watched, not trained on", WATCHED))


def _about(group: Group) -> str:
    how, origin = group.sampling, f"sampled from {group.policy}" if group.policy else ""
    if "file" in how:
        origin = f"read from {how['file']}, tokenizer {how.get('tokenizer', 'unknown')}"
    temperature = f"temperature {how['temperature']:g}" if "temperature" in how else ""
    said = ", ".join(filter(None, (origin, temperature, f"seed {how['seed']}" if "seed" in how else "")))
    if not isinstance(environment := how.get("environment"), dict):
        return said
    name = str(environment.get("name"))
    return (
        f"{said}. The environment {name} {getattr(environments.ENVIRONMENTS.get(name), 'about', 'answers each turn')}."
    )


def isolation_note(worker: Sandbox) -> Note | None:
    """Return what of the isolation of reward code this system lacks, if code is isolated."""
    if not worker.isolate:
        return None
    try:
        missing = worker.missing_layers()
    except RewardError as error:
        return Note(str(error))
    return Note(f"reduced isolation: {'; '.join(missing)}", level="warning") if missing else None


def _no_match(splits: Sequence[Split]) -> Note | None:
    unsplit = [i + 1 for i, cut in enumerate(splits) if cut.failed]
    unmatched = [i + 1 for i, cut in enumerate(splits) if cut.steps and not cut.matched and not cut.failed]
    said = [
        f"over {MAX_STEPS:,} steps in {_which(unsplit, len(splits))}, shown unsplit and unscored" if unsplit else "",
        f"no match in {_which(unmatched, len(splits))}, where all text is one step" if unmatched else "",
    ]
    return Note("; ".join(filter(None, said)), level="warning") if any(said) else None


def _which(numbers: Sequence[int], count: int) -> str:
    return f"rollout {numbers[0]}" if len(numbers) == 1 else f"{len(numbers)} of {count} rollouts"


def _pointer(regex: str, position: int) -> str:
    """The line of the pattern that is wrong, with a caret under the place."""
    start = regex.rfind("\n", 0, position) + 1
    line = regex[start:].split("\n", 1)[0]
    column = position - start
    from_column = max(0, column - 40)
    return f"{line[from_column : from_column + 80]}\n{' ' * (column - from_column)}^"


# ── labels by hand ───────────────────────────────────────────────────────────────────────────────────────────────────


MOST_COMPLETIONS = 1024
"""Of a group whose labels are asked for."""


@validate_call
def labels_of(workspace: Path, prompt: str, completions: Sequence[str]) -> HandLabelsPayload:
    """The labels of each completion of a group, the error "" where they were read."""
    labels = HandLabels(workspace)
    return _answer(labels, [labels.of(prompt, text) for text in completions[:MOST_COMPLETIONS]])


@validate_call
def mark_step(
    workspace: Path, prompt: str, completion: str, steps: list[tuple[int, int]], k: int, label: Label | None
) -> HandLabelsPayload:
    """Label one step; what is answered is its completion's labels, or why there is none."""
    labels = HandLabels(workspace)
    try:
        return _answer(labels, [labels.mark(prompt, completion, steps, k, label)])
    except WorkbenchError as error:
        return _answer(labels, [], str(error))


@validate_call
def labels_file(workspace: Path, layout: LabelLayout) -> dict[str, str]:
    """All labelled completions in one of the layouts, for the page's script to save."""
    return {"name": f"hand-labels-{layout}.jsonl", "text": HandLabels(workspace).text(layout)}


LABELLING = (labels_of, mark_step, labels_file)
"""What the page's scripts ask of the workspace, on Inspect and on Train: ``LabelServer`` in their types."""


def _answer(labels: HandLabels, completions: Sequence[HandLabelled | None], error: str = "") -> HandLabelsPayload:
    return {
        "completions": [
            [{"start": start, "end": end, "label": label} for start, end, label in labelled.labels] if labelled else []
            for labelled in completions
        ],
        "table": str(labels.table),
        "error": error,
    }
