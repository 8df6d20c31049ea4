"""Checkpoints as folders on a disk: written aside, sealed with the hash of every file, and only then given their name.

::

    checkpoints/
    ├── checkpoint-20/       manifest.json names every file with its size and SHA-256, and the versions that wrote it
    ├── checkpoint-40/
    ├── final/               the weights at the end, sealed in the same way
    └── .saving/             one being written, or half-written by a process that died

A folder is valid when its manifest is there and every file in it is as the manifest says; nothing else is ever resumed
from. Beside them stand what a run is reproduced by: ``environment.json`` (configuration, versions of packages, device,
git state, hash of a local data file; read without importing any of those packages) and ``rewards/`` (each function's
code as it ran, each model's settings, and hashes of all of it). Knows nothing of what the files of a checkpoint hold
(``training.saving`` does), and imports no torch: a launcher, a page and a command line can all tell which checkpoint is
good.
"""

import hashlib
import json
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from workbench.config import RUN_NAME, RewardSection, SharedConfig
from workbench.errors import RunError, redact_known
from workbench.files import encode, read_json, replace_file, sha256, sync

MANIFEST = "manifest.json"
SAVING = ".saving"

_NAME = re.compile(r"checkpoint-(\d+)")


@dataclass(frozen=True)
class Checkpoint:
    """A folder to resume from, and the training step after which it was saved."""

    path: Path
    step: int

    @property
    def name(self) -> str:
        return self.path.name


def seal(draft: Path, target: Path, about: Mapping[str, Any]) -> None:
    """Make ``draft`` valid and call it ``target``; a folder of that name is replaced.

    Every file is on the disk before the manifest is, and the manifest before the name. Raises OSError.
    """
    files = {}
    for path in _files(draft):
        sync(path)
        files[str(path.relative_to(draft))] = {"size": path.stat().st_size, "sha256": sha256(path)}
    manifest = draft / MANIFEST
    manifest.write_text(json.dumps({**about, "files": files}, indent=1) + "\n", encoding="utf-8")
    sync(manifest)
    for folder in {path.parent for path in _files(draft)}:
        sync(folder)
    if target.exists():
        remove(target)
    draft.rename(target)
    sync(target.parent)


def problem(path: Path) -> str | None:
    """Say what is wrong with the checkpoint at ``path``; None if it is valid. Reads every byte of it."""
    try:
        listed = read_json(path / MANIFEST)["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return f"has no whole {MANIFEST}: it was not written to its end"
    for name, entry in listed.items():
        try:
            if sha256(path / name) != entry["sha256"]:
                return f"{name} is not what was saved: its SHA-256 differs"
        except OSError as error:
            return f"{name} cannot be read: {error}"
    there = {str(file.relative_to(path)) for file in _files(path)} - {MANIFEST}
    if strange := sorted(there - listed.keys()):
        return f"{strange[0]} was not saved here"
    return None


def saved(folder: Path) -> list[Checkpoint]:
    """Return the folders named as checkpoints, the newest first, valid or not."""
    names = os.listdir(folder) if folder.is_dir() else []
    matches = [(match, folder / name) for name in names if (match := _NAME.fullmatch(name))]
    return sorted((Checkpoint(path, int(match[1])) for match, path in matches), key=lambda checkpoint: -checkpoint.step)


def newest_valid(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """Return the checkpoint to resume from, if there is one, and what is wrong with each newer one."""
    skipped: list[str] = []
    for checkpoint in saved(folder):
        wrong = problem(checkpoint.path)
        if wrong is None:
            return checkpoint, skipped
        skipped.append(f"{checkpoint.name}: {wrong}")
    return None, skipped


def prune(folder: Path, keep: int) -> None:
    """Remove all but the ``keep`` newest."""
    for checkpoint in saved(folder)[keep:]:
        remove(checkpoint.path)


def remove(path: Path) -> None:
    """Remove a checkpoint; if this is cut short, what is left has no manifest."""
    (path / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(path)


def nothing_usable(run: str, skipped: Sequence[str], *, save_steps: int, step: int) -> RunError:
    """Says what is wrong with each checkpoint of ``run``, which ended after ``step``, and what to do instead."""
    why = "; ".join(skipped) or f"it ended after step {step}, and run.save_steps is {save_steps}"
    return RunError(f"run {run!r} has no checkpoint to resume from ({why}); start it again with: train --from {run}")


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


ENVIRONMENT_FILE = "environment.json"
PACKAGES = (
    *("torch", "trl", "transformers", "accelerate", "peft", "datasets", "tokenizers", "safetensors", "numpy", "regex"),
    *("vllm", "deepspeed"),
)
_GIT_SECONDS = 5.0


def write_environment(folder: Path, config: SharedConfig) -> None:
    replace_file(
        folder / ENVIRONMENT_FILE, json.dumps(json.loads(encode(environment(config))), indent=1).encode() + b"\n"
    )


def environment(config: SharedConfig) -> dict[str, Any]:
    """Describe what this process would run ``config`` with."""
    return {
        "time": time.time(),
        "seed": config.seed,
        "device": config.run.device,
        "cuda_visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "executable": sys.executable,
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
        "git": git_state(Path(__file__).parents[2]),
        "task_sha256": _task_hash(config.task.data or config.task.name),
        "config": config.model_dump(mode="json"),
    }


MAY_CHANGE = (
    *("name", "origins", "run.", "method.isolate_rewards", "method.reward_deadline"),
    *("method.on_reward_error", "method.max_reward_errors"),
)
"""Fields that a resumed run may have otherwise than before: its curve does not depend on them, or goes on (steps)."""


def find_edits(folder: Path, config: SharedConfig) -> list[str]:
    """Return other fields in which ``config`` differs from what the run in ``folder`` trained by, with both values.

    None are known of a run that has not begun, or began in a version that did not write them down.
    """
    try:
        then = type(config).parse(read_json(folder / ENVIRONMENT_FILE)["config"]).flat()
    except (OSError, ValueError, KeyError):
        return []
    now = config.flat()
    names = [name for name in {**then, **now} if then.get(name) != now.get(name) and not name.startswith(MAY_CHANGE)]
    return [f"{name} (was {then.get(name)}, is {now.get(name)})" for name in names]


def peak_memory_mb() -> float:
    """Most memory that this process has held so far, in 10^6 bytes: a GPU's by torch where that is in use, else RAM."""
    torch = sys.modules.get("torch")  # a process that has not loaded it holds no GPU
    if torch is not None and torch.cuda.is_initialized():
        return round(float(torch.cuda.max_memory_allocated()) / 1e6, 1)
    try:  # not getrusage's, which a process has from the one that started it
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return round(int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6, 1)
    except (OSError, ValueError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return round(peak * (1 if sys.platform == "darwin" else 1024) / 1e6, 1)


def git_state(folder: Path) -> str | None:
    """Return the commit, with "-dirty" if tracked files differ from it; None outside git."""
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--exclude=*", "--abbrev=10"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


@cache
def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _task_hash(task: str) -> str | None:
    """Hash a file of rows; None for any other task."""
    try:
        return sha256(Path(task))
    except (OSError, ValueError):
        return None


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
        if any(part is not None for part in (reward.model, reward.judge, reward.monte_carlo, reward.belief)):
            file, text = f"{stem}.json", json.dumps(described(reward), indent=2, ensure_ascii=False) + "\n"
        else:
            code = reward.code if reward.code is not None else sources.get(reward.name)
            if code is None:
                continue
            file, text = f"{stem}.py", redact_known(code)
        data = text.encode("utf-8", "replace")
        (folder / file).write_bytes(data)
        manifest.append({"name": reward.name, "file": file, "sha256": hashlib.sha256(data).hexdigest()})
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def described(reward: RewardSection) -> dict[str, Any]:
    """The settings, and of a reward model in a folder its files' sizes and, up to HASHED_BYTES, their SHA-256."""
    settings = reward.model_dump(exclude_none=True, exclude={"options"})
    if reward.model is None:
        return settings
    files = {}
    for path in sorted(Path(reward.model.path).expanduser().glob("*")):
        if path.suffix in (".json", ".safetensors") and path.is_file():
            size = path.stat().st_size
            files[path.name] = {"bytes": size, **({"sha256": sha256(path)} if size <= HASHED_BYTES else {})}
    return settings | {"files": files}
