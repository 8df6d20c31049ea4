"""Watched rewards as the plain JSON that ``rewards.js`` draws; ``rewards.watch`` says what the records mean."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from workbench.rewards.watch import RewardWatch, Watched

SHOWN_POSITIONS = 24
"""Step positions drawn at most; few completions have more steps, and their means say little."""


def watch_payload(watched: RewardWatch) -> dict[str, Any]:
    """As ``rewards.js`` takes it; ``slow`` is a sentence for each function slower than the sampler."""
    functions = [
        asdict(replace(function, positions=()))
        | {"positions": [{"mean": d.mean} for d in function.positions[:SHOWN_POSITIONS]]}
        for function in watched.functions
    ]
    return {
        "functions": functions,
        "correlations": [asdict(pair) for pair in watched.correlations],
        "slow": [
            _slow(function, watched.sampler_seconds)
            for function in watched.functions
            if function.name in watched.slower
        ],
    }


def _slow(function: Watched, sampler_seconds: float | None) -> str:
    seconds = f"{function.p50:.2g} s a call, sampling the group {sampler_seconds:.2g} s"
    return f"{function.name} takes {seconds}: it sets the pace"
