"""What a run keeps of its rewards: each function's code as it ran, each model's settings, and hashes of all of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.redact import redact_known
from workbench.sections import RUN_NAME, RewardConfig, SharedConfig

HASHED_BYTES = 2**30
"""Largest file of a reward model that is hashed: a start is not to wait for more."""


def write_rewards(folder: Path, config: SharedConfig, sources: Mapping[str, str]) -> None:
    """Make ``folder``: ``NAME.py`` of a function, ``NAME.json`` of a model or of Monte-Carlo values, ``manifest.json``.

    ``sources`` gives the code of the rewards that ``config`` only names.
    """
    folder.mkdir()
    manifest = []
    for number, reward in enumerate(config.method.reward_functions):
        stem = reward.name if RUN_NAME.fullmatch(reward.name) else f"reward-{number}"
        if any(part is not None for part in (reward.model, reward.judge, reward.monte_carlo)):
            file, text = f"{stem}.json", json.dumps(described(reward), indent=2, ensure_ascii=False) + "\n"
        else:
            code = reward.code if reward.code is not None else sources.get(reward.name)
            if code is None:
                continue
            file, text = f"{stem}.py", redact_known(code)
        data = text.encode("utf-8", "replace")
        (folder / file).write_bytes(data)
        trusted = {"trusted": True} if reward.trusted else {}
        manifest.append({"name": reward.name, "file": file, "sha256": hashlib.sha256(data).hexdigest(), **trusted})
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def described(reward: RewardConfig) -> dict[str, Any]:
    """The settings, and of a reward model in a folder its files' sizes and, up to HASHED_BYTES, their SHA-256."""
    settings = reward.model_dump(exclude_none=True, exclude={"options"})
    if reward.model is None:
        return settings
    folder = Path(reward.model.path).expanduser()
    files = sorted(path for path in folder.glob("*") if path.suffix in (".json", ".safetensors") and path.is_file())
    return settings | {"files": {path.name: _identity(path) for path in files}}


def _identity(path: Path) -> dict[str, Any]:
    """Empty for a file that cannot be read; whoever loads it says so."""
    try:
        size = path.stat().st_size
        if size > HASHED_BYTES:
            return {"bytes": size}
        with path.open("rb") as file:
            return {"bytes": size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
    except OSError:
        return {}
