"""Commands on data files: show a task's rows, list a file's groups, hold a reward against labels."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

from pydantic_settings import CliPositionalArg

from workbench import views
from workbench.cli.arguments import AtLeastOne, Result, Settings, say
from workbench.cli.rewards import named_rewards, rewards_of_word, set_sandbox
from workbench.config.section import of_text
from workbench.data import TASKS, labelled_groups, load_task, preview_of, read_groups
from workbench.errors import ConfigError, TaskError, cut
from workbench.files import encode
from workbench.rewards import RewardConfig
from workbench.schema.numbers import counted
from workbench.steps import PRESETS
from workbench.views.cards import table, visible

Data = CliPositionalArg[Annotated[str, "a data file or folder, gsm8k, or a task with labels"]]
Map = Annotated[str, "what columns become, NAME=COLUMN,…: prompt=input,completion=output"]
Format = Annotated[str | None, "the file's format; none to tell by its rows"]
Tokenizer = Annotated[str | None, "tiny, a folder or a Hub name; none to cut into words"]
Limit = Annotated[AtLeastOne | None, "read no more groups than this"]
SkipBadRows = Annotated[bool, "leave out rows that cannot be read, and count them"]
_SHOWN = 100
"""Characters of a text in a list."""


def rollouts(
    data: Data,
    map: Map = "",
    format: Format = None,
    tokenizer: Tokenizer = None,
    limit: Limit = None,
    skip_bad_rows: SkipBadRows = False,
    show: Annotated[int | None, "print this group (from 0) as one JSON document"] = None,
) -> Result:
    """List the groups of a data file, or print one for 'score --group -'."""

    imported = read_groups(
        data, tokenizer=tokenizer, format=format, limit=limit, columns=columns_of_map(map), skip_bad_rows=skip_bad_rows
    )
    if show is not None:
        if not 0 <= show < len(imported):
            raise TaskError(f"--show {show}: {data} has groups 0 to {len(imported) - 1}")
        group = imported.groups[show].to_json()
        for note in imported.facts.notes:
            say(f"note: {visible(note)}")
        return Result(group, lambda: encode(group).decode())
    rows = [
        {
            "group": number,
            "rollouts": len(group),
            "tokens": sum(len(rollout) for rollout in group.rollouts),
            "prompt": group.prompt,
        }
        for number, group in enumerate(imported.groups)
    ]
    facts = imported.facts
    listed = []
    for row in rows:
        prompt: Any = row["prompt"]
        text = prompt if isinstance(prompt, str) else prompt[-1]["content"]
        listed.append([row["group"], row["rollouts"], row["tokens"], visible(text, one_line=True)[:_SHOWN]])
    read = f"{counted(len(imported), 'group')} from {counted(facts.rows, 'row')}"
    lines = [
        table(("group", "rollouts", "tokens", "prompt"), listed),
        f"{read}, format {facts.format}, tokenizer {facts.tokenizer}",
        *(f"note: {visible(note)}" for note in facts.notes),
    ]
    return Result({"facts": asdict(facts), "groups": rows}, lambda: "\n".join(lines))


def columns_of_map(text: str) -> dict[str, str]:
    """Return what ``--map`` says that columns become. Raises ConfigError."""
    try:
        return of_text(text)
    except ValueError as error:
        raise ConfigError(f"--map: {error}") from error


def task(
    settings: Settings,
    data: CliPositionalArg[Annotated[str, "a task's name, a data file or folder, hub:OWNER/NAME"]],
    map: Map = "",
    limit: Annotated[AtLeastOne, "rows that are shown"] = 5,
) -> Result:
    """Show a task's rows as a run would take them, and how many are left out."""

    given = {"name": data} | ({"columns": columns_of_map(map)} if map else {})
    preview = preview_of(load_task(settings.read({"task": given}).task), limit)
    parts = []
    for number, row in enumerate(preview["rows"]):
        columns = ", ".join(row["columns"]) or "none"
        texts = {name: v if isinstance(v, str) else encode(v).decode() for name, v in row.items() if name != "columns"}
        fields = [(name, cut(visible(text, one_line=True), 4 * _SHOWN)) for name, text in texts.items()]
        parts.append(table(("row", str(number)), [*fields, ("other columns", visible(columns, one_line=True))]))
    return Result(preview, lambda: "\n\n".join([*parts, visible(preview["said"])]))


def check_reward(
    settings: Settings,
    data: CliPositionalArg[Annotated[list[str], "a data file or folder, gsm8k, a task with labels; --clinic: rewards"]],
    map: Map = "",
    format: Format = None,
    tokenizer: Tokenizer = None,
    limit: Limit = None,
    skip_bad_rows: SkipBadRows = False,
    labels: Annotated[str | None, "the column to believe; none for the steps', else answers'"] = None,
    threshold: Annotated[float | None, "score from which a thing counts as right"] = None,
    worst: Annotated[AtLeastOne, "disagreements shown"] = 10,
    preset: Annotated[str | None, "preset pattern that finds the steps; none for the data's own"] = None,
    clinic: Annotated[
        bool, "try the named rewards, NAME or FILE.py[::FUNCTION], on answers whose score is known"
    ] = False,
    ci: Annotated[bool, "with --clinic: exit code 1 where something needs a look"] = False,
) -> Result:
    """Hold a reward against labelled data, or try it in the clinic."""
    from workbench.checks.reward_check import check_reward

    if preset is not None and preset not in PRESETS:
        raise ConfigError(f"--preset {preset}: choose one of {', '.join(PRESETS)}")
    if (deadline := settings.given.get("method", {}).get("reward_deadline")) is not None:
        set_sandbox(float(deadline))
    rewards = [RewardConfig.parse(reward) for reward in named_rewards(settings.options, settings.workspace)]
    if clinic:
        named = [RewardConfig.parse(reward) for word in data for reward in rewards_of_word(word)]
        return _clinic([*named, *rewards], ci)
    if len(data) != 1:
        raise ConfigError("give one data file, or --clinic and the rewards to try")
    source = data[0]
    if not rewards and source in TASKS:
        rewards = list(load_task(source).rewards)
    if not rewards:
        raise ConfigError("give the reward to check with --reward NAME or --reward-file FILE.py")
    groups = labelled_groups(
        source,
        tokenizer=tokenizer,
        format=format,
        limit=limit,
        columns=columns_of_map(map),
        skip_bad_rows=skip_bad_rows,
    )
    checks = [
        check_reward(
            groups,
            reward,
            labels=labels,
            pattern=None if preset is None else PRESETS[preset].pattern,
            threshold=threshold,
            worst=worst,
            on_progress=_progress if sys.stderr.isatty() else None,
        )
        for reward in rewards
    ]
    found = {"data": source, "checks": [check.to_json() for check in checks]}
    return Result(found, lambda: "\n\n".join(views.text(check) for check in checks))


def _clinic(rewards: Sequence[RewardConfig], ci: bool) -> Result:
    from workbench.checks.clinic import check_rewards

    found = check_rewards(rewards, on_progress=say if sys.stderr.isatty() else lambda said: None)
    return Result(found.to_json(), lambda: views.text(found), 1 if ci and found.level != "ok" else 0)


def _progress(done: int, of: int) -> None:
    print(f"\r{done} of {of} groups", end="\n" if done == of else "", file=sys.stderr, flush=True)
