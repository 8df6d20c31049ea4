"""Safe loading of a policy's files: no pickles, and no remote code without the user's consent.

Weights saved with pickle (``.bin``, ``.pt``) run whatever they contain; only safetensors are read. A repository's own
modelling code runs with its user's rights; it is run after ``trust_remote_code: true`` alone. Nothing is loaded here.
"""

from __future__ import annotations

import json
from pathlib import Path

from workbench.errors import PolicyError

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
_NOT_WEIGHTS = frozenset({"training_args.bin", "optimizer.pt", "scheduler.pt", "scaler.pt"})  # a trainer's leftovers


def check_weights(name: str, folder: Path) -> None:
    """Raises PolicyError for a folder whose weights, or adapter, are there as pickles only."""
    if any(folder.glob("*.safetensors")):
        return
    pickles = sorted(path.name for path in folder.iterdir() if path.suffix in PICKLES and path.name not in _NOT_WEIGHTS)
    if pickles:
        raise PolicyError(pickles_refused(name, pickles[0]))


def pickles_refused(name: str, file: str = "pickled weights") -> str:
    return (
        f"policy {name!r} holds {file}, a pickle, which can run any program when it is opened; use safetensors: load "
        "it where you trust it and save it again with save_pretrained, which writes model.safetensors"
    )


def code_refused(name: str) -> str:
    """The message for a policy that does not load without its repository's own code."""
    files = ", ".join(own_code(Path(name).expanduser())) or "modelling code of its own"
    return (
        f"policy {name!r} brings {files}, which would run on this machine with your rights, outside every seal; "
        "read it first, then say trust_remote_code: true in the configuration (--trust_remote_code true)"
    )


def own_code(folder: Path) -> list[str]:
    """The Python files that a local policy's configuration names as its own modelling code."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    named = config.get("auto_map") if isinstance(config, dict) else None
    references = named.values() if isinstance(named, dict) else ()
    return sorted(
        {f"{reference.split('--')[-1].split('.')[0]}.py" for reference in references if isinstance(reference, str)}
    )
