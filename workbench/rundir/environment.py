"""``environment.json``: versions, device and git state of a run, for reproducing it; and the memory a process took.

Versions of the packages that training's numbers depend on, the interpreter and the machine, the state of the project's
git repository, and the hash of a local data file. It is read without importing any of those packages.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import resource
import subprocess
import sys
import time
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from typing import Any

from workbench.files import encode, opened, read_json, replace_file
from workbench.sections import SharedConfig

FILE = "environment.json"
PACKAGES = (
    *("torch", "trl", "transformers", "accelerate", "peft", "datasets", "tokenizers", "safetensors", "numpy", "regex"),
    *("vllm", "deepspeed"),
)
_GIT_SECONDS = 5.0
_MOST_FILES = 10_000  # of a folder that is hashed


def write_environment(folder: Path, config: SharedConfig) -> None:
    replace_file(folder / FILE, json.dumps(json.loads(encode(environment(config))), indent=1).encode() + b"\n")


def environment(config: SharedConfig) -> dict[str, Any]:
    """What this process would run ``config`` with."""
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
    }


def differences(folder: Path, config: SharedConfig) -> list[str]:
    """In what this process differs from the one that ran the run in ``folder``, in words; none if that is unknown."""
    try:
        then = read_json(folder / FILE)
    except (OSError, ValueError, RecursionError):
        return []
    if not isinstance(then, dict):
        return []
    now = environment(config)
    sentences = []
    for name in ("python", "task_sha256", "git"):
        before, after = then.get(name), now[name]
        if before != after:
            sentences.append(f"{_LABELS[name]} was {_short(before)} and is {_short(after)}")
    packages = then.get("packages", {})
    for name in sorted(packages.keys() | now["packages"].keys()):
        before, after = packages.get(name), now["packages"].get(name)
        if before != after:
            sentences.append(f"{name} was {before or 'not installed'} and is {after or 'not installed'}")
    return sentences


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


def git_state(folder: Path) -> dict[str, Any] | None:
    """Commit, and whether tracked files differ from it (``changes`` is their diff's SHA-256); None outside git."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    changes = _git(folder, "diff", "HEAD", "--no-ext-diff", "--binary")
    return {
        "commit": commit.decode().strip(),
        "changes": hashlib.sha256(changes).hexdigest() if changes else None,
    }


_LABELS = {"python": "Python", "task_sha256": "the SHA-256 of the task's file", "git": "the project's git state"}


def _short(value: Any) -> str:
    if isinstance(value, dict):
        commit, changes = str(value.get("commit"))[:10], value.get("changes")
        return commit + (f" with changes {str(changes)[:10]}" if changes else "")
    return "unknown" if value is None else str(value)[:20]


def _git(folder: Path, *arguments: str) -> bytes | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            timeout=_GIT_SECONDS,
            check=False,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


@cache
def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _task_hash(task: str) -> str | None:
    """Of a file; of a folder, that of the names and hashes of its files. None where there is neither."""
    path = Path(task)
    try:
        if path.is_dir():
            files = sorted(islice((file for file in path.rglob("*") if file.is_file()), _MOST_FILES))
            lines = [f"{file.relative_to(path)} {_task_hash(str(file))}\n" for file in files]
            return hashlib.sha256("".join(lines).encode()).hexdigest()
        with opened(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError):
        return None
