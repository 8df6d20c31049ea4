"""Commands on other people's engines: their log beside our credit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic_settings import CliPositionalArg

from workbench.cli.arguments import Result, Settings
from workbench.cli.data import Format, Map, Tokenizer, columns_of_map
from workbench.credit import credit_groups, logged_credit
from workbench.data import read_groups
from workbench.engines import exchange
from workbench.errors import TaskError
from workbench.rewards import score_group
from workbench.schema import counted
from workbench.views.cards import table

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
        scored = [score_group(group, config.sampled.pattern, config.sampled.rewards) for group in imported.groups]
        credits = credit_groups(scored, **config.grpo.credit.keywords())
        logged = [logged_credit(credit) for credit in credits]
        if None in logged:
            raise TaskError(
                f"{file}: group {logged.index(None)} has no advantages to compare; log them with each token"
            )
        bound += ROUNDED.get(imported.facts.format, 0.0)
        loss, longest = config.grpo.loss_type, config.sampled.sampling.max_completion_length
        rows = [*exchange.rows_of(0, [credit for credit in logged if credit is not None], loss, longest)]
        ours = [credit.of(i) for credit in credits for i in range(len(credit.scored.group))]
    found = exchange.compare(rows, ours)
    bound = bound if tolerance is None else tolerance
    apart = sorted((one for one in found if not one.size <= bound), key=lambda one: -one.size)
    worst = max((one.size for one in found), default=0.0)
    tokens = int(np.sum([len(row.ids) for row in rows]))
    said = f"{counted(len(rows), 'completion')}, {counted(tokens, 'token')}: the largest difference is {worst:.2g}"
    where = [(o.batch, o.group, o.completion + 1, o.token, f"{o.ours:.6g}", f"{o.theirs:.6g}") for o in apart[:_SHOWN]]
    lines = [f"{said}, over {bound:g} in {len(apart)}" if apart else f"{said}, within {bound:g}: equal"]
    if where:
        lines.append(table(("batch", "group", "completion", "token", "ours", "theirs"), where))
    data = {"completions": len(rows), "tokens": tokens, "largest": worst, "tolerance": bound, "apart": len(apart)}
    places = [
        {"batch": b, "group": g, "completion": c, "token": t, "ours": x, "theirs": y} for b, g, c, t, x, y in where
    ]
    return Result(data | {"where": places}, lambda: "\n\n".join(lines), int(bool(apart)))
