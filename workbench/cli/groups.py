"""Commands on one group: sample it, score it, estimate what each of its steps is worth."""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from workbench import views
from workbench.checks import splitting_findings
from workbench.cli.arguments import AtLeastOne, Result, Settings, say
from workbench.cli.rewards import set_sandbox
from workbench.config import LabelFormat, SamplingConfig
from workbench.credit import compare_credits, credit_group
from workbench.data import load_task
from workbench.data.made import refuse_to_overwrite
from workbench.errors import ConfigError, TaskError, cut
from workbench.models.find import check_there
from workbench.policies.prompts import plain_prompt_note, turn_end_note
from workbench.policies.step_values import StepValues
from workbench.rewards import Reward, RewardConfig, score_both, score_group
from workbench.runs import making
from workbench.schema import Example, Group
from workbench.training.methods import RunConfig
from workbench.views.heatmap import heatmap

if TYPE_CHECKING:
    from workbench.policies.load import Policy

Index = Annotated[int, "which example of the task"]
HeldOut = Annotated[bool, "take it from the held-out examples"]
Text = Annotated[str | None, "a prompt of your own instead of an example (--prompt TEXT, too)"]
GroupFile = Annotated[Path | None, "a group that 'sample --json' printed, - for standard input; none to sample one"]
DIFFERENCES = ("flipped_share", "correlation", "mean_absolute_difference")
"""What two credits of a group differ in, of a ``Comparison``."""


def sample(settings: Settings, index: Index = 0, held_out: HeldOut = False, text: Text = None) -> Result:
    """Sample a group of answers to one prompt."""
    config = settings.read()
    group = sample_configured(config, example_of(config, index, held_out, text))
    return Result(group.to_json(), lambda: views.text(group))


def score(
    settings: Settings,
    group: GroupFile = None,
    index: Index = 0,
    held_out: HeldOut = False,
    text: Text = None,
    html: Annotated[Path | None, "write the heatmap there as a page of its own"] = None,
    other: Annotated[
        Path | None,
        "YAML whose rewards or credit give a second credit of the same answers, beside it",
    ] = None,
) -> Result:
    """Split a group into steps, score them and assign credit."""

    config = settings.read()
    side = None if other is None else Settings({}, {}).read(config.model_dump(mode="json"), other)
    set_sandbox(config.sampling_section.reward_deadline, isolate=config.sampling_section.isolate_rewards)
    of = read_group(group) if group else sample_configured(config, example_of(config, index, held_out, text))
    pattern, second = config.sampling_section.pattern, None
    if side is None:
        scored = score_group(of, pattern, with_policy(config))
        credit = credit_group(scored, **config.grpo.credit.keywords())
        data, text_of = credit.to_json(), lambda: views.text(credit)
    else:
        both = score_both(of, pattern, with_policy(config), with_policy(side))
        sections = config.grpo.credit, side.grpo.credit
        credit, second = [credit_group(one, **by.keywords()) for one, by in zip(both, sections, strict=True)]
        compared = compare_credits(credit, second)
        numbers = {name: getattr(compared, name) for name in ("names", *DIFFERENCES)}
        data = {"credit": credit.to_json(), "other": second.to_json(), "compared": numbers}
        text_of = lambda: views.text(compared)  # noqa: E731
    for finding in splitting_findings([credit]):
        if finding.level != "ok":
            say(f"{finding.level}: {finding.name}: {finding.value} ({finding.meaning}); {finding.advice}")
    scores_steps = any(reward.kind == "step" for reward in credit.scored.rewards)
    code = int(scores_steps and not any(scores.matched for scores in credit.scored.scored))
    return Result(data, text_of, code, lambda: html and html.write_text(heatmap(credit, other=second).html(), "utf-8"))


def read_group(path: Path) -> Group:
    """Return a group as ``sample --json`` prints it, - for standard input. Raises TaskError for what is no group."""
    name = cut(str(path), 300)
    try:
        text = sys.stdin.read() if name == "-" else path.read_text(encoding="utf-8")
        return Group.from_json(json.loads(text))
    except OSError as error:
        raise TaskError(f"--group {name}: {cut(str(error), 300)}; give a file that can be read") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TaskError(
            f"--group {name}: this is no group as 'sample --json' prints it; a group of a data file is scored by: "
            f"rollouts {name} --show 0 | python -m workbench score --group -"
        ) from error


def example_of(config: RunConfig, index: int, held_out: bool = False, text: str | None = None) -> Example:
    """Return the task's example at ``index``, or a text, before torch is imported and the policy is loaded.

    Raises TaskError for an example that is not there or a text that is empty, PolicyError for no such policy.
    """
    check_there(config.policy.path)
    if text is not None:
        if not text:
            raise TaskError("--text is empty; write something for the policy to answer")
        return Example(text)
    task = load_task(config.task)
    examples = task.held_out if held_out else task.examples
    if not 0 <= index < len(examples):
        raise TaskError(f"--index {index}: {config.task.name} has examples 0 to {len(examples) - 1}")
    return examples[index]


def sample_configured(config: RunConfig, example: Example, policy: Policy | None = None) -> Group:
    """Sample answers to an example, by the configuration's policy, which is loaded if it is not given."""
    from workbench.policies.load import load_configured
    from workbench.policies.sampler import sample_group

    policy = policy or load_configured(config.policy)
    if note := plain_prompt_note(policy.tokenizer.chat_template, config.prompt, example):
        say(f"note: {note}")
    options = config.sampling_section.sampling.model_dump() | config.prompt.model_dump()
    group = sample_group(policy, example, **options, environment=config.environment, seed=config.seed)
    for note in filter(None, (turn_end_note(group.sampling), group.sampling.get("server"))):
        say(f"note: {note}")
    return group


# -- step values ------------------------------------------------------------------------------------------------------


def step_values(
    settings: Settings,
    group: GroupFile = None,
    index: Index = 0,
    held_out: HeldOut = False,
    text: Text = None,
    continuations: Annotated[AtLeastOne, "sampled from each step"] = 8,
    outcome: Annotated[str, "outcome reward"] = "answer_correctness",
    labels: Annotated[Path | None, "write the steps' labels there, as rows to train on"] = None,
    labels_as: Annotated[LabelFormat, "trl is TRL's stepwise supervision"] = "trl",
    estimation: Annotated[
        Literal["hard", "soft"],
        ("hard: good if any continuation succeeds; soft: the share that does, over half where labels are yes or no"),
    ] = "hard",
    prompts: Annotated[AtLeastOne | None, "label completions of so many training prompts; needs --labels"] = None,
    first: Annotated[int, "the first of them"] = 0,
    completions: Annotated[
        AtLeastOne | None,
        ("begin no further prompt once so many completions were sampled, continuations included; with --prompts"),
    ] = None,
    html: Annotated[Path | None, "write the values' heatmap there as a page of its own"] = None,
    belief: Annotated[
        Literal["answer", "reference"] | None,
        "sample nothing: the policy's probability of the right answer, or of the rest of the reference solution",
    ] = None,
) -> Result:
    """Estimate what each step is worth by sampling on from its end, or by the policy's belief in the right answer."""
    config = settings.read()
    labels_prompts = labels is not None and group is None and text is None
    if (prompts is not None and not labels_prompts) or (completions and not prompts) or (labels and belief):
        raise ConfigError(
            "--prompts labels completions of the task's prompts: give --labels FILE and no --group, --prompt or "
            "--belief; --completions is a limit of --prompts"
        )
    if labels is not None:
        refuse_to_overwrite(labels)
    given = None if group is None else read_group(group)
    example = None if group or prompts else example_of(config, index, held_out, text)
    from workbench.policies.belief import beliefs
    from workbench.policies.load import load_configured

    policy = load_configured(config.policy)
    estimate = partial(_estimate, settings, config, policy, outcome, continuations)
    label = partial(
        making.label_steps,
        config,
        labels or "",
        prompts=prompts or 1,
        first=first if prompts else index,
        continuations=continuations,
        outcome=outcome,
        estimation=estimation,
        labels_as=labels_as,
        completions=completions,
        sampled=group is None,
    )
    if prompts is not None:
        groups = enumerate(making.sample_prompts(policy, config, first, prompts), start=1)
        made = label(valued=((drawn, estimate(drawn, about=f"group {number}: ")) for number, drawn in groups))
        return Result(made.to_json(), lambda: str(made))
    one = given if example is None else sample_configured(config, example, policy)
    assert one is not None
    values = estimate(one) if belief is None else beliefs(policy, one, config.sampling_section.pattern, of=belief)
    if labels is not None:
        say(str(label(valued=[(one, values)])))

    def write() -> None:
        if html is not None:
            credit = credit_group(values.as_scores(one), **config.grpo.credit.keywords())
            html.write_text(heatmap(credit).html(), encoding="utf-8")

    return Result({**values.to_json(), "progress": values.progress()}, lambda: views.text(values), write=write)


def _estimate(
    settings: Settings,
    config: RunConfig,
    policy: Policy,
    outcome: str,
    continuations: int,
    group: Group,
    about: str = "",
) -> StepValues:
    """Return the values of a group's steps; its progress goes to standard error."""
    from workbench.policies.monte_carlo import step_values

    shown_at = time.monotonic()

    def tell(event: dict[str, Any]) -> None:
        nonlocal shown_at
        if time.monotonic() - shown_at > 2 or (event["done"] == event["total"] and not about):
            shown_at = time.monotonic()
            done, tokens = f"{event['done']}/{event['total']} continuations", f"{event['tokens']} tokens"
            say(f"{about}{done}, {tokens}, {event['seconds']:.0f} s")

    sampling = _sampling(settings, config, group)
    how: dict[str, Any] = {"sampling": sampling, "on_progress": tell}
    values = step_values(policy, group, config.sampling_section.pattern, outcome, continuations, config.seed, **how)
    assert values is not None  # nothing cancels it but an interrupt, which ends the command
    return values


def _sampling(settings: Settings, config: RunConfig, group: Group) -> SamplingConfig | None:
    """Return how to sample continuations; None to sample as the group was, if no flag says otherwise."""
    set_by_flags = settings.given.get("method", {}).get("sampling", {})
    if not set_by_flags:
        return None
    names = SamplingConfig.model_fields.keys() & group.sampling.keys() - set_by_flags.keys()
    return config.sampling_section.sampling.model_copy(update={name: group.sampling[name] for name in names})


def with_policy(config: RunConfig) -> list[RewardConfig | Reward]:
    """Return the configuration's rewards, those that ask the policy with that policy."""
    if not any(reward.asks_policy for reward in config.sampling_section.rewards):
        return list(config.sampling_section.rewards)
    from workbench.policies.belief import policy_reward
    from workbench.policies.load import load_configured

    policy = load_configured(config.policy)
    how: dict[str, Any] = {"template_kwargs": config.prompt.template_kwargs, "pattern": config.sampling_section.pattern}
    return [
        policy_reward(reward, policy, config.sampling_section.sampling, config.seed, **how)
        if reward.asks_policy
        else reward
        for reward in config.sampling_section.rewards
    ]
