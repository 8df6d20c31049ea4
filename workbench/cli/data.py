"""Commands on rows: show a task's or a file's, and make rows to train on of a policy's own completions."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from pydantic_settings import CliPositionalArg

from workbench import views
from workbench.checks import Difficulty
from workbench.cli.arguments import AtLeastOne, Result, Settings, say
from workbench.cli.groups import read_group
from workbench.cli.rewards import set_sandbox
from workbench.config.section import of_text
from workbench.data import load_task, preview_of, read_groups
from workbench.data.made import refuse_to_overwrite
from workbench.errors import ConfigError, TaskError, cut
from workbench.files import encode
from workbench.runs import making
from workbench.schema.numbers import say_count
from workbench.training.methods import RunConfig
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
        data_of = imported.groups[show].to_json()
        for note in imported.facts.notes:
            say(f"note: {visible(note)}")
        return Result(data_of, lambda: encode(data_of).decode())
    rows, listed, facts = [], [], imported.facts
    for number, group in enumerate(imported.groups):
        counts = {"group": number, "rollouts": len(group), "tokens": sum(len(rollout) for rollout in group.rollouts)}
        text = group.prompt if isinstance(group.prompt, str) else group.prompt[-1]["content"]
        rows.append(counts | {"prompt": group.prompt})
        listed.append([*counts.values(), visible(text, one_line=True)[:_SHOWN]])
    read = f"{say_count(len(imported), 'group')} from {say_count(facts.rows, 'row')}"
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


# -- rows made of a policy's own completions ---------------------------------------------------------------------------

Out = Annotated[Path, "the JSONL file to write"]
PerGroup = Annotated[AtLeastOne, "at most, of the answers to one prompt"]
Prompts = Annotated[AtLeastOne, "training prompts sampled"]
First = Annotated[int, "the first of them"]
Groups = Annotated[list[Path], "take a sampled group instead; repeatable"]
Right = Annotated[float, Field(description="least outcome that is right", allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]


def pairs(
    settings: Settings,
    out: Out,
    margin: Annotated[
        float, Field(description="least difference of the outcomes; ties are dropped", ge=0, allow_inf_nan=False)
    ] = 0.0,
    per_group: PerGroup = 1,
    prompts: Prompts = 100,
    first: First = 0,
    group: Groups = [],  # noqa: B006
) -> Result:
    """Make pairs of a policy's own completions: the higher outcome is the chosen one."""
    how = {"margin": margin, "per_group": per_group, "prompts": prompts, "first": first}
    return _make_rows(making.make_pairs, settings, out, group, how)


def demonstrations(
    settings: Settings,
    out: Out,
    threshold: Right = 1.0,
    per_group: PerGroup = 1,
    prompts: Prompts = 100,
    first: First = 0,
    group: Groups = [],  # noqa: B006
) -> Result:
    """Make demonstrations of a policy's own right completions."""
    how = {"threshold": threshold, "per_group": per_group, "prompts": prompts, "first": first}
    return _make_rows(making.make_demonstrations, settings, out, group, how)


def _make_rows(
    make: Callable[..., making.MadeRows], settings: Settings, out: Path, files: list[Path], how: Mapping[str, Any]
) -> Result:
    made = make(_prepare(settings, out), out=out, groups=[*map(read_group, files)] or None, tell=say, **how)
    return Result(made.to_json(), lambda: str(made))


def difficulty(
    settings: Settings,
    keep: Annotated[tuple[Share, Share], "pass rates of the prompts that --out gets, LOW,HIGH"] = (
        0.05,
        0.95,
    ),
    right_from: Right = 1.0,
    out: Annotated[Path | None, "the JSONL file to write"] = None,
    prompts: Prompts = 100,
    first: First = 0,
    group: Groups = [],  # noqa: B006
) -> Result:
    """Measure how often a policy is right by prompt, and which group size that asks for."""
    from workbench.policies.load import load_configured

    (low, high), began = keep, time.monotonic()
    config = _prepare(settings, out)
    given = [*map(read_group, group)] or None
    groups = given or making.sample_prompts(load_configured(config.policy), config, first, prompts)
    scored = list(making.score_outcomes(config, groups, say))
    found = Difficulty.of(scored, right_from)
    if out is None:
        return Result(found.to_json(), lambda: views.text(found))
    limits = {"keep": [low, high], "right_from": right_from}
    source = making.source_of("difficulty", config, {"first": first, "count": prompts}, given)
    made = making.make_prompts(
        out,
        scored,
        low=low,
        high=high,
        right_from=right_from,
        about={**source, "limits": limits, "difficulty": found.to_json()},
        began=began,
        sampled=0 if given else sum(found.answers),
    )
    return Result({**found.to_json(), **made.to_json()}, lambda: f"{views.text(found)}\n\n{made}")


def mix(
    fresh: Annotated[Path, "rows that are all taken"],
    replay: Annotated[list[Path], "rows trained on before; repeatable"],
    out: Out,
    share: Annotated[Share, "share of each that is drawn"] = 0.1,
    seed: Annotated[int, "seed of the draw"] = 0,
) -> Result:
    """Mix fresh rows with a share of earlier ones, so that these are not forgotten."""
    made = making.mix_rows(fresh, replay, out, share=share, seed=seed)
    return Result(made.to_json(), lambda: str(made))


def _prepare(settings: Settings, out: Path | None) -> RunConfig:
    """Read the configuration, which has an outcome reward; raise TaskError if the file to write is there already."""
    config = settings.read({"method": {"name": "grpo", "credit": {"scheme": "outcome"}}})  # needs one, as this does
    set_sandbox(config.sampling_section.reward_deadline, isolate=config.sampling_section.isolate_rewards)
    if out is not None:
        refuse_to_overwrite(out)
    return config
