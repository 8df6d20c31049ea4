"""Commands that check: groups before a run, a reward against labels, a scheme against edits, an engine's advantages."""

import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic_settings import CliPositionalArg

from workbench import views
from workbench.checks.findings import write_report
from workbench.cli.arguments import AtLeastOne, Result, Settings, say
from workbench.cli.data import Format, Limit, Map, SkipBadRows, Tokenizer, columns_of_map
from workbench.cli.groups import GroupFile, example_of, read_group, sample_configured
from workbench.cli.rewards import read_rewards, rewards_of_word, set_sandbox
from workbench.credit import credit_groups, logged_credit
from workbench.data import TASKS, labelled_groups, load_task, read_groups
from workbench.engines import exchange
from workbench.errors import ConfigError, TaskError
from workbench.rewards import RewardConfig, score_group
from workbench.schema import Group, say_count
from workbench.steps import PRESETS
from workbench.training.methods import RunConfig
from workbench.views.cards import table

ReportFile = Annotated[Path | None, "write the findings to FILE.json, or as JUnit to FILE.xml"]


def preflight(
    settings: Settings,
    prompts: Annotated[AtLeastOne, "prompts to sample"] = 8,
    group: Annotated[list[Path], "look at a sampled group instead; repeatable"] = [],  # noqa: B006
    report: ReportFile = None,
) -> Result:
    """Sample a few groups and say what to look at before training on them."""
    from workbench.checks import preflight

    config = settings.read()
    method = config.grpo
    set_sandbox(method.reward_deadline, isolate=method.isolate_rewards)
    groups = [*map(read_group, group)] if group else _sample_prompts(config, prompts)
    found = preflight(
        groups,
        method.pattern,
        method.rewards,
        method.credit,
        mask_truncated=method.mask_truncated_completions,
    )
    write_report(report, found.to_json(), {"pre-flight": found.findings})
    return Result(found.to_json(), lambda: views.text(found), code=1 if found.level == "stop" else 0)


def probe(
    settings: Settings,
    group: GroupFile = None,
    demo: Annotated[bool, "the shipped group, in which splitting one step pays"] = False,
    schemes: Annotated[str, "credit schemes, A,B,…; all if empty"] = "",
    index: Annotated[int, "which example of the task to sample"] = 0,
    report: ReportFile = None,
) -> Result:
    """Say what edits without content would earn under each credit scheme."""
    from workbench.checks import probe, split_step_demo

    config = settings.read()
    set_sandbox(config.sampling_section.reward_deadline, isolate=config.sampling_section.isolate_rewards)
    probed: tuple[Group, Any, Sequence[Any]] = split_step_demo()
    if not demo:
        of = read_group(group) if group else sample_configured(config, example_of(config, index))
        probed = of, config.sampling_section.pattern, config.sampling_section.rewards
    names = [scheme.strip() for scheme in schemes.split(",") if scheme.strip()]
    found = probe(*probed, schemes=names or None, options=config.grpo.credit.keywords(but=("scheme",)))
    write_report(report, found.to_json(), found.suites)
    return Result(found.to_json(), lambda: views.text(found))


def _sample_prompts(config: RunConfig, count: int) -> list[Group]:
    """Return groups of ``count`` examples, drawn by the seed."""
    from workbench.policies.load import load_configured
    from workbench.policies.sampler import sample_group

    task = load_task(config.task)
    indices = sorted(random.Random(config.seed).sample(range(len(task)), min(count, len(task))))
    policy = load_configured(config.policy)
    options = config.sampling_section.sampling.model_dump() | config.prompt.model_dump()
    options["environment"] = config.environment
    return [sample_group(policy, task[i], **options, seed=config.seed + n) for n, i in enumerate(indices)]


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
    report: ReportFile = None,
) -> Result:
    """Hold a reward against labelled data, or try it in the clinic."""
    from workbench.checks.reward_check import check_reward

    if preset is not None and preset not in PRESETS:
        raise ConfigError(f"--preset {preset}: choose one of {', '.join(PRESETS)}")
    if (deadline := settings.given.get("method", {}).get("reward_deadline")) is not None:
        set_sandbox(float(deadline))
    rewards = [RewardConfig.parse(reward) for reward in read_rewards(settings.options, settings.workspace)]
    if clinic:
        named = [RewardConfig.parse(reward) for word in data for reward in rewards_of_word(word)]
        return _clinic([*named, *rewards], ci, report)
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
    how: dict[str, Any] = {"labels": labels, "threshold": threshold, "worst": worst}
    how |= {"pattern": None if preset is None else PRESETS[preset].pattern}
    on_progress = _progress if sys.stderr.isatty() else None
    checks = [check_reward(groups, reward, **how, on_progress=on_progress) for reward in rewards]
    found = {"data": source, "checks": [check.to_json() for check in checks]}
    write_report(report, found, {f"{check.reward} against {check.labels}": check.findings for check in checks})
    return Result(found, lambda: "\n\n".join(views.text(check) for check in checks))


def _clinic(rewards: Sequence[RewardConfig], ci: bool, report: Path | None) -> Result:
    from workbench.checks.clinic import check_rewards

    found = check_rewards(rewards, on_progress=say if sys.stderr.isatty() else lambda said: None)
    write_report(report, found.to_json(), found.suites)
    return Result(found.to_json(), lambda: views.text(found), 1 if ci and found.level != "ok" else 0)


def _progress(done: int, of: int) -> None:
    print(f"\r{done} of {of} groups", end="\n" if done == of else "", file=sys.stderr, flush=True)


# -- an engine's log beside our credit --------------------------------------------------------------------------------

ROUNDED = {"traces": 5e-5, "verifiers": 5e-5, "prime-rl": 5e-5}
"""Formats whose files hold four decimals, and how far these are off."""
_SHOWN = 20


def check_parity(
    settings: Settings,
    file: CliPositionalArg[Annotated[Path, "rows of docs/step-credit.schema.json, or an engine's log with advantages"]],
    map: Map = "",
    format: Format = None,
    tokenizer: Tokenizer = None,
    tolerance: Annotated[float | None, "none for 1e-6, or for what the file's decimals leave"] = None,
) -> Result:
    """Compute an engine's advantages anew: equal, or where not. Another file's groups are scored by the settings."""
    try:
        with file.open(encoding="utf-8") as stream:
            is_exchange = '"step-credit/' in stream.readline()
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"{file}: {error}; give a text file that can be read") from error
    bound = exchange.TOLERANCE
    if is_exchange:
        rows = exchange.read_rows(file)
        ours = exchange.recompute(rows)
    else:
        imported = read_groups(file, tokenizer=tokenizer, format=format, columns=columns_of_map(map))
        config = settings.read()
        scored = [
            score_group(group, config.sampling_section.pattern, config.sampling_section.rewards)
            for group in imported.groups
        ]
        credits = credit_groups(scored, **config.grpo.credit.keywords())
        logged = [logged_credit(credit) for credit in credits]
        if None in logged:
            raise TaskError(
                f"{file}: group {logged.index(None)} has no advantages to compare; log them with each token"
            )
        bound += ROUNDED.get(imported.facts.format, 0.0)
        loss, longest = config.grpo.loss_type, config.sampling_section.sampling.max_completion_length
        rows = [*exchange.rows_of(0, [credit for credit in logged if credit is not None], loss, longest)]
        ours = [credit.of(i) for credit in credits for i in range(len(credit.scored.group))]
    found = exchange.compare(rows, ours)
    bound = bound if tolerance is None else tolerance
    apart = sorted((one for one in found if not one.size <= bound), key=lambda one: -one.size)
    worst = max((one.size for one in found), default=0.0)
    tokens = sum(len(row.ids) for row in rows)
    said = f"{say_count(len(rows), 'completion')}, {say_count(tokens, 'token')}: the largest difference is {worst:.2g}"
    said += f", over {bound:g} in {len(apart)}" if apart else f", within {bound:g}: equal"
    columns = ("batch", "group", "completion", "token", "ours", "theirs")
    where = [(o.batch, o.group, o.completion + 1, o.token, f"{o.ours:.6g}", f"{o.theirs:.6g}") for o in apart[:_SHOWN]]
    data = {"completions": len(rows), "tokens": tokens, "largest": worst, "tolerance": bound, "apart": len(apart)}
    places = [dict(zip(columns, place, strict=True)) for place in where]
    text = f"{said}\n\n{table(columns, where)}" if where else said
    return Result(data | {"where": places}, lambda: text, int(bool(apart)))
