"""Comparison of credit schemes: the same run per scheme and seed, in sequence, with a summary of each."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.config import RunConfig
from workbench.credit.schemes import find_scheme
from workbench.runs.launch import start
from workbench.runs.run import Run
from workbench.runs.spawn import TRAINING

TARGET = 0.65
"""The held-out accuracy whose price in rollouts is compared."""

Report = Callable[[Run, Mapping[str, Any]], None]


@dataclass(frozen=True)
class ComparedRun:
    """Results of one run; ``None`` where it was never measured or, for ``rollouts_to_65``, never reached.

    Accuracies are shares of held-out examples answered exactly, the base's measured before the first step. ``seconds``
    is training's wall time, ``rollouts`` the completions sampled for it.
    """

    scheme: str
    seed: int
    base_accuracy: float | None
    final_accuracy: float | None
    seconds: float | None
    rollouts: int | None
    rollouts_to_65: int | None


def compare(
    config: RunConfig,
    schemes: Sequence[str],
    seeds: int,
    workspace: Path | str | None = None,
    *,
    report: Report | None = None,
    module: str = TRAINING,
) -> Iterator[tuple[Run, ComparedRun]]:
    """Run ``config`` under every scheme with the seeds ``config.seed``, ``+ 1``, …; yield each run as it ends.

    ``report(run, row)`` is called with each metrics row as it is written. A run that fails is yielded like the others,
    with what it had measured; ``run.status()`` says why. The run at hand is stopped if the caller is interrupted.

    Raises CreditError for an unknown scheme, ConfigError for one that the rest does not fit, before anything is
    started.
    """
    for scheme in schemes:
        find_scheme(scheme)
    planned = [
        (scheme, seed, _changed(config, scheme, seed))
        for scheme, seed in itertools.product(schemes, range(config.seed, config.seed + seeds))
    ]
    for scheme, seed, changed in planned:
        rows = []
        with start(changed, workspace, module=module).held() as run:
            for row in run.follow():
                rows.append(row)
                if report is not None:
                    report(run, row)
            run.wait()  # two runs at a time would measure each other
        yield run, summarise(scheme, seed, rows)


def _changed(config: RunConfig, scheme: str, seed: int) -> RunConfig:
    """The configuration under another scheme and seed. Raises ConfigError where it does not fit the scheme."""
    data = config.model_dump() | {"name": f"compare-{scheme}-{seed}", "seed": seed}
    data["method"]["credit"] = config.grpo.credit.model_dump() | {"scheme": scheme}
    return RunConfig.parse(data)


def summarise(scheme: str, seed: int, rows: Iterable[Mapping[str, Any]]) -> ComparedRun:
    """Summary of a run's metrics rows, given in order."""
    rows = list(rows)
    measured = [row for row in rows if row.get("accuracy") is not None]
    return ComparedRun(
        scheme=scheme,
        seed=seed,
        base_accuracy=measured[0]["accuracy"] if measured else None,
        final_accuracy=measured[-1]["accuracy"] if measured else None,
        seconds=_last(rows, "seconds"),
        rollouts=_last(rows, "rollouts"),
        rollouts_to_65=next((row.get("rollouts") for row in measured if row["accuracy"] >= TARGET), None),
    )


def _last(rows: Sequence[Mapping[str, Any]], name: str) -> Any:
    return next((row[name] for row in reversed(rows) if row.get(name) is not None), None)
