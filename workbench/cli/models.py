"""The commands about reward models: step values by sampling, and training a small process reward model."""

from __future__ import annotations

import argparse
import dataclasses
import time
from typing import TYPE_CHECKING, Any, get_args

from workbench.cli.flags import flags, read_config
from workbench.cli.groups import given_group
from workbench.cli.output import print_result, say
from workbench.config import LabelFormat, RewardConfig, RunConfig, SamplingConfig
from workbench.display.tables import number, table, visible
from workbench.schema.wording import counted

if TYPE_CHECKING:
    from workbench.policies.step_values import StepValues
    from workbench.rewards import Reward
    from workbench.schema import Group

LABEL_FORMATS: tuple[str, ...] = get_args(LabelFormat)


def step_values(args: argparse.Namespace) -> int:
    from workbench.policies.load import load_policy
    from workbench.policies.monte_carlo import step_values as estimated
    from workbench.policies.step_values import label_rows, write_labels

    config = read_config(args)
    policy = load_policy(config.policy.path, config.policy.adapter, trust_remote_code=config.policy.trust_remote_code)
    group = given_group(args, config)
    shown_at = time.monotonic()

    def tell(event: dict[str, Any]) -> None:
        nonlocal shown_at
        if time.monotonic() - shown_at > 2 or event["done"] == event["total"]:
            shown_at = time.monotonic()
            say(f"{event['done']}/{event['total']} continuations, {event['tokens']} tokens, {event['seconds']:.0f} s")

    set_by_flags = {
        flag.name.rpartition(".")[2] for flag in flags() if flag.name.startswith("grpo.sampling.") and flag.is_in(args)
    }
    sampling = None  # the group's own
    if set_by_flags:
        sampled_with = {name: group.sampling[name] for name in SamplingConfig.model_fields if name in group.sampling}
        sampling = config.sampled.sampling.model_copy(
            update={name: value for name, value in sampled_with.items() if name not in set_by_flags}
        )
    values = estimated(
        policy,
        group,
        config.sampled.pattern,
        args.outcome,
        args.continuations,
        config.seed,
        sampling=sampling,
        on_progress=tell,
    )
    assert values is not None  # nothing cancels it but an interrupt, which ends the command
    right = correctness(group, values)
    agreement = agreement_with(values, right) if right is not None else {}
    data = {**values.to_json(), "progress": values.progress(), "correct": right, "agreement": agreement or None}
    code = print_result(args, data, lambda: _values_text(group, values, right, agreement))
    if args.labels is not None:
        rows = label_rows(group, values, args.labels_as, estimation=args.estimation)
        write_labels(rows, args.labels)
        say(f"{len(rows)} of {len(group)} completions' labels in {args.labels}")
    if args.html is not None:
        from workbench.credit import credit_group
        from workbench.figures import heatmap

        credit = credit_group(values.as_scores(group), **config.grpo.credit.keywords())
        args.html.write_text(heatmap(credit).html(), encoding="utf-8")
    return code


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

    from workbench.policies.build_prm import auc

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
    from workbench.policies.load import load_policy
    from workbench.policies.monte_carlo import monte_carlo_reward

    policy = load_policy(config.policy.path, config.policy.adapter, trust_remote_code=config.policy.trust_remote_code)
    return [
        reward if reward.monte_carlo is None else monte_carlo_reward(reward, policy, sampling, config.seed)
        for reward in rewards
    ]


def build_prm(args: argparse.Namespace) -> int:
    from workbench.policies.build_prm import PrmRecipe
    from workbench.policies.build_prm import build_prm as build

    set_by_flags = {"steps": args.steps, "held_out": args.held_out}
    recipe = PrmRecipe(**{name: value for name, value in set_by_flags.items() if value is not None})
    began = time.monotonic()
    report = build(args.out, recipe, lambda step, loss: say(f"step {step}/{recipe.steps}  loss {loss:.4f}"))
    seconds = round(time.monotonic() - began, 1)
    result = {"folder": str(args.out), "training_steps": recipe.steps, **dataclasses.asdict(report), "seconds": seconds}
    return print_result(
        args,
        result,
        lambda: (
            f"{args.out}: AUC {report.auc:.3f} on {report.steps} held-out steps, {report.wrong} of them wrong, "
            f"in {seconds} s"
        ),
    )


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
