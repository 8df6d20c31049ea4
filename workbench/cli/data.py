"""Commands on data files: list a file's groups, evaluate a reward function on its labels."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from workbench.cli.flags import read_config
from workbench.cli.rewards import read_rewards, set_sandbox
from workbench.config.task import columns_of_text
from workbench.errors import ConfigError, TaskError, cut
from workbench.files import encode
from workbench.schema.numbers import counted
from workbench.views.cards import table, visible

_SHOWN = 100
"""Characters of a text in a list."""


def rollouts(args: argparse.Namespace) -> int:
    from workbench.data import read_groups

    imported = read_groups(
        args.data,
        tokenizer=args.tokenizer,
        format=args.format,
        limit=args.limit,
        columns=_columns(args),
        skip_bad_rows=args.skip_bad_rows,
    )
    if args.show is not None:
        if not 0 <= args.show < len(imported):
            raise TaskError(f"--show {args.show}: {args.data} has groups 0 to {len(imported) - 1}")
        print(encode(imported.groups[args.show].to_json()).decode())
        for note in imported.facts.notes:
            print(f"note: {visible(note)}", file=sys.stderr)
        return 0
    rows = [
        {
            "group": number,
            "rollouts": len(group),
            "tokens": sum(map(len, group.rollouts)),
            "prompt": group.prompt,
        }
        for number, group in enumerate(imported.groups)
    ]
    if args.json:
        print(encode({"facts": imported.facts.to_json(), "groups": rows}).decode())
        return 0
    listed = [[*list(row.values())[:3], _short(row["prompt"])] for row in rows]
    print(table(("group", "rollouts", "tokens", "prompt"), listed))
    facts = imported.facts
    read = f"{counted(len(imported), 'group')} from {counted(facts.rows, 'row')}"
    print(f"{read}, format {facts.format}, tokenizer {facts.tokenizer}")
    for note in facts.notes:
        print(f"note: {visible(note)}")
    return 0


def _columns(args: argparse.Namespace) -> dict[str, str]:
    """What ``--map`` says that columns become. Raises ConfigError."""
    try:
        return columns_of_text(args.map or "")
    except ValueError as error:
        raise ConfigError(f"--map: {error}") from error


def task(args: argparse.Namespace) -> int:
    """A task's rows as a run would take them."""
    from workbench.data import load_task, preview_of

    vars(args)["task.name"] = args.data
    if args.map is not None:
        vars(args)["task.columns"] = args.map
    config = read_config(args)
    preview = preview_of(load_task(config.task), args.limit)
    if args.json:
        print(encode(preview.to_json()).decode())
        return 0
    for number, row in enumerate(preview.rows):
        columns = ", ".join(row["columns"]) or "none"
        fields = [(name, _short_value(value)) for name, value in row.items() if name != "columns"]
        print(table(("row", str(number)), [*fields, ("other columns", visible(columns, one_line=True))]), end="\n\n")
    print(visible(preview.said))
    return 0


def check_reward(args: argparse.Namespace) -> int:
    from workbench.checks.reward_check import check_reward
    from workbench.data import TASKS, labelled_groups, load_task
    from workbench.steps import PRESETS

    if args.preset is not None and args.preset not in PRESETS:
        raise ConfigError(f"--preset {args.preset}: choose one of {', '.join(PRESETS)}")
    if args.reward_deadline is not None:
        set_sandbox(args.reward_deadline)
    rewards = read_rewards(args)
    if not rewards and args.data in TASKS:
        rewards = list(load_task(args.data).rewards)
    if not rewards:
        raise ConfigError("give the reward to check with --reward NAME or --reward-file FILE.py")
    groups = labelled_groups(
        args.data,
        tokenizer=args.tokenizer,
        format=args.format,
        limit=args.limit,
        columns=_columns(args),
        skip_bad_rows=args.skip_bad_rows,
    )
    checks = [
        check_reward(
            groups,
            reward,
            labels=args.labels,
            pattern=None if args.preset is None else PRESETS[args.preset].pattern,
            threshold=args.threshold,
            aggregate=args.aggregate,
            worst=args.worst,
            on_progress=_progress if sys.stderr.isatty() else None,
        )
        for reward in rewards
    ]
    if args.json:
        print(encode({"data": args.data, "checks": [check.to_json() for check in checks]}).decode())
        return 0
    print("\n\n".join(map(_check_text, checks)))
    return 0


def _check_text(check: Any) -> str:
    parts = [f"{visible(check.reward)} against {visible(check.labels)}", table(("", ""), check.rows())]
    if check.worst:
        worst = [
            (
                mistake.group,
                mistake.rollout + 1,
                None if mistake.step is None else mistake.step + 1,
                mistake.score,
                "right" if mistake.label else "wrong",
                visible(mistake.text, one_line=True)[:_SHOWN],
            )
            for mistake in check.worst
        ]
        parts.append(table(("group", "rollout", "step", "score", "label", "text"), worst))
    return "\n".join(parts)


def _short(prompt: Any) -> str:
    text = prompt if isinstance(prompt, str) else prompt[-1]["content"]
    return visible(text, one_line=True)[:_SHOWN]


def _short_value(value: Any) -> str:
    """A text, or anything else as JSON, on one line."""
    text = value if isinstance(value, str) else encode(value).decode()
    return cut(visible(text, one_line=True), 4 * _SHOWN)


def _progress(done: int, of: int) -> None:
    print(f"\r{done} of {of} groups", end="\n" if done == of else "", file=sys.stderr, flush=True)
