"""``pairs``, ``demonstrations``, ``difficulty``, ``mix``: rows to train on, made of a policy's own completions."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from workbench import views
from workbench.checks import Difficulty
from workbench.cli.arguments import AtLeastOne, Result, Settings, say
from workbench.cli.groups import read_group
from workbench.cli.rewards import set_sandbox
from workbench.data.made import refuse_to_overwrite
from workbench.runs import making
from workbench.training.methods import RunConfig

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
    config = _prepared(settings, out)
    return _result(making.make_pairs(config, margin=margin, **_asked(out, per_group, prompts, first, group)))


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
    config, asked = _prepared(settings, out), _asked(out, per_group, prompts, first, group)
    return _result(making.make_demonstrations(config, threshold=threshold, **asked))


def _asked(out: Path, per_group: int, prompts: int, first: int, files: list[Path]) -> dict[str, Any]:
    groups = list(map(read_group, files)) if files else None
    asked = {"out": out, "prompts": prompts, "first": first, "per_group": per_group}
    return {**asked, "groups": groups, "tell": say}


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
    config = _prepared(settings, out)
    given = list(map(read_group, group)) if group else None
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
    return _result(making.mix_rows(fresh, replay, out, share=share, seed=seed))


def _prepared(settings: Settings, out: Path | None) -> RunConfig:
    """Read the configuration, which has an outcome reward; raise TaskError if the file to write is there already."""
    config = settings.read({"method": {"name": "grpo", "credit": {"scheme": "outcome"}}})  # needs one, as this does
    set_sandbox(config.sampled.reward_deadline, isolate=config.sampled.isolate_rewards)
    if out is not None:
        refuse_to_overwrite(out)
    return config


def _result(made: making.MadeRows) -> Result:
    return Result(made.to_json(), lambda: str(made))
