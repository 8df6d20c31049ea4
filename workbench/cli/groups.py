"""Where a command's group comes from: a file, or the policy."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from workbench.cli.output import say
from workbench.config import TaskSection
from workbench.config.run import RunConfig
from workbench.errors import TaskError, cut
from workbench.policies.find import check_there
from workbench.schema import Example, Group


def given_group(args: argparse.Namespace, config: RunConfig) -> Group:
    """The group of ``--group``, or one sampled from the example that the flags name. Raises TaskError."""
    return read_group(args.group) if args.group is not None else sampled_group(args, config)


def read_group(path: Path) -> Group:
    """A group as ``sample --json`` prints it, - for standard input. Raises TaskError for what is no group."""
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
        return Group.from_json(json.loads(text))
    except OSError as error:
        raise TaskError(
            f"--group {cut(str(path), 300)}: {cut(str(error), 300)}; give a file that can be read"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TaskError(
            f"--group {cut(str(path), 300)}: this is no group as 'sample --json' prints it; a group of a data file is "
            f"scored by: rollouts {cut(str(path), 300)} --show 0 | python -m workbench score --group -"
        ) from error


def sampled_group(args: argparse.Namespace, config: RunConfig) -> Group:
    check_there(config.policy.path)  # before torch is imported
    from workbench.policies.load import load_configured
    from workbench.policies.prompts import plain_prompt_note, turn_end_note
    from workbench.policies.sampler import sample_group

    example = Example(args.prompt) if args.prompt is not None else _example(config.task, args.index, args.held_out)
    policy = load_configured(config.policy)
    if note := plain_prompt_note(policy.tokenizer.chat_template, config.prompt, example.prompt):
        say(f"note: {note}")
    options = config.sampled.sampling.model_dump() | config.prompt.model_dump()
    group = sample_group(policy, example, **options, environment=config.environment, seed=config.seed)
    if note := turn_end_note(group.sampling):
        say(f"note: {note}")
    return group


def _example(section: TaskSection, index: int, held_out: bool) -> Example:
    from workbench.data import load_task

    task = load_task(section)
    examples = task.held_out if held_out else task.examples
    if not 0 <= index < len(examples):
        raise TaskError(f"--index {index}: {section.name} has examples 0 to {len(examples) - 1}")
    return examples[index]
