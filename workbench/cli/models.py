"""Step values by sampling: as a table, as a heatmap, and as labels to train a process reward model on."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, get_args

from workbench.cli.flags import flags, read_config
from workbench.cli.groups import given_group
from workbench.cli.output import print_result, say
from workbench.config import LabelFormat, RewardConfig, SamplingConfig
from workbench.config.run import RunConfig
from workbench.errors import ConfigError
from workbench.runs import making
from workbench.schema.numbers import counted
from workbench.views.cards import number, table, visible

if TYPE_CHECKING:
    from workbench.policies.load import Policy
    from workbench.policies.step_values import StepValues
    from workbench.rewards import Reward
    from workbench.schema import Group

LABEL_FORMATS: tuple[str, ...] = get_args(LabelFormat)


def step_values(args: argparse.Namespace) -> int:
    from workbench.policies.load import load_configured

    config = read_config(args)
    if args.prompts is not None and (args.labels is None or args.group is not None or args.prompt is not None):
        raise ConfigError(
            "--prompts labels completions of the task's prompts: give --labels FILE, no --group or --prompt"
        )
    if args.completions is not None and args.prompts is None:
        raise ConfigError("--completions limits what --prompts asks for; give both")
    if args.labels is not None:
        making.refuse_to_overwrite(args.labels)
    policy = load_configured(config.policy)
    if args.prompts is not None:
        groups = enumerate(making.sample_prompts(policy, config, args.first, args.prompts), start=1)
        valued = ((group, _estimated(args, config, policy, group, f"group {number}: ")) for number, group in groups)
        made = _label_steps(args, config, valued)
        return print_result(args, made.to_json(), lambda: str(made))
    group = given_group(args, config)
    values = _estimated(args, config, policy, group)
    right = correctness(group, values)
    agreement = agreement_with(values, right) if right is not None else {}
    data = {**values.to_json(), "progress": values.progress(), "correct": right, "agreement": agreement or None}
    code = print_result(args, data, lambda: _values_text(group, values, right, agreement))
    if args.labels is not None:
        say(str(_label_steps(args, config, [(group, values)])))
    if args.html is not None:
        from workbench.credit import credit_group
        from workbench.views.heatmap import heatmap

        credit = credit_group(values.as_scores(group), **config.grpo.credit.keywords())
        args.html.write_text(heatmap(credit).html(), encoding="utf-8")
    return code


def _label_steps(
    args: argparse.Namespace, config: RunConfig, valued: Iterable[tuple[Group, StepValues]]
) -> making.MadeRows:
    return making.label_steps(
        config,
        args.labels,
        prompts=args.prompts or 1,
        first=args.first if args.prompts else args.index,
        continuations=args.continuations,
        outcome=args.outcome,
        estimation=args.estimation,
        labels_as=args.labels_as,
        completions=args.completions,
        valued=valued,
        sampled=args.group is None,
    )


def _estimated(
    args: argparse.Namespace, config: RunConfig, policy: Policy, group: Group, about: str = ""
) -> StepValues:
    """The values of a group's steps, with its progress on standard error."""
    from workbench.policies.monte_carlo import step_values as estimated

    shown_at = time.monotonic()

    def tell(event: dict[str, Any]) -> None:
        nonlocal shown_at
        if time.monotonic() - shown_at > 2 or (event["done"] == event["total"] and not about):
            shown_at = time.monotonic()
            done, tokens = f"{event['done']}/{event['total']} continuations", f"{event['tokens']} tokens"
            say(f"{about}{done}, {tokens}, {event['seconds']:.0f} s")

    values = estimated(
        policy,
        group,
        config.sampled.pattern,
        args.outcome,
        args.continuations,
        config.seed,
        sampling=_sampling(args, config, group),
        on_progress=tell,
    )
    assert values is not None  # nothing cancels it but an interrupt, which ends the command
    return values


def _sampling(args: argparse.Namespace, config: RunConfig, group: Group) -> SamplingConfig | None:
    """How continuations are sampled: None for as the group was, where no flag says otherwise."""
    set_by_flags = {
        flag.name.rpartition(".")[2] for flag in flags() if flag.name.startswith("grpo.sampling.") and flag.is_in(args)
    }
    if not set_by_flags:
        return None
    sampled_with = {name: group.sampling[name] for name in SamplingConfig.model_fields if name in group.sampling}
    return config.sampled.sampling.model_copy(
        update={name: value for name, value in sampled_with.items() if name not in set_by_flags}
    )


def correctness(group: Group, values: StepValues) -> list[list[float | None]] | None:
    """Chain arithmetic's true step labels; None for another task."""
    from workbench.rewards import score_group

    if not {"start", "operations"} <= set(group.columns):
        return None
    return score_group(group, values.cutter, ["step_correctness"]).step_rewards


def agreement_with(values: StepValues, right: list[list[float | None]]) -> dict[str, float | int | None]:
    """How the values agree with the true labels, over all steps and over those whose prefix was right before them.

    ``auc``: the chance that a right step's value is over a wrong one's (of the steps that follow right ones only, as
    after an error every value is low, whatever the step). ``correlation`` is Pearson's over those steps.
    """
    import numpy as np

    from workbench.checks.difficulty import auc

    pairs = []
    for row, labels in zip(values.values, right, strict=True):
        for value, label in zip(row, labels, strict=True):
            if value is None or label is None:
                continue
            pairs.append((value, label == 1.0))
            if label != 1.0:
                break
    scores, good = [value for value, _ in pairs], [label for _, label in pairs]
    if len(set(good)) < 2:
        return {"steps": len(pairs), "wrong": good.count(False), "auc": None, "correlation": None}
    varied = len(set(scores)) > 1
    correlation = float(np.corrcoef(scores, good)[0, 1]) if varied else None
    return {"steps": len(pairs), "wrong": good.count(False), "auc": auc(scores, good), "correlation": correlation}


def with_policy(config: RunConfig) -> list[RewardConfig | Reward]:
    """The configuration's rewards, those that sample from the policy with that policy."""
    rewards, sampling = config.sampled.rewards, config.sampled.sampling
    if all(reward.monte_carlo is None for reward in rewards):
        return list(rewards)
    from workbench.policies.load import load_configured
    from workbench.policies.monte_carlo import monte_carlo_reward

    policy = load_configured(config.policy)
    return [
        reward
        if reward.monte_carlo is None
        else monte_carlo_reward(
            reward,
            policy,
            sampling,
            config.seed,
            template_kwargs=config.prompt.template_kwargs,
            pattern=config.sampled.pattern,
        )
        for reward in rewards
    ]


def _values_text(
    group: Group, values: StepValues, right: list[list[float | None]] | None, agreement: dict[str, Any]
) -> str:
    lines = []
    progress = values.progress()
    for i, texts in enumerate(values.step_texts(group)):
        for k, text in enumerate(texts):
            label = [] if right is None else [number(right[i][k], 0)]
            shown = visible(text.strip(), one_line=True)
            lines.append(
                [
                    f"{i + 1}.{k + 1}",
                    values.values[i][k],
                    values.errors[i][k],
                    values.counts[i][k],
                    progress[i][k],
                    *label,
                    shown[:60],
                ]
            )
    headers = ["step", "value", "error", "n", "progress", *([] if right is None else ["right"]), "text"]
    text = table(headers, lines)
    text += f"\n\n{counted(values.tokens, 'token')} sampled in {values.seconds:.1f} s"
    text += f"; value of the prompt {number(values.start)}"
    if agreement and agreement["auc"] is not None:
        text += (
            f"\nup to each first error: {agreement['steps']} steps, {agreement['wrong']} wrong, "
            f"AUC {agreement['auc']:.3f}, correlation {number(agreement['correlation'])}"
        )
    return text
