"""``run:NAME`` and ``run:NAME@STEP`` in the place of a path: a checkpoint of another run of the workspace.

A configuration that is started names the checkpoint's folder, and in ``origins`` what stood there and the SHA-256 of
the checkpoint's manifest, which names every file with its own. Files that changed since are noticed by that.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from workbench.config import ModelConfig, Origin, Section
from workbench.config.policy import MergedName
from workbench.config.run import RunConfig
from workbench.errors import RunError, WorkbenchError
from workbench.places import is_of_run
from workbench.policies.find import is_adapter
from workbench.rundir import checkpoints
from workbench.runs.run import open_run

REFERENCE = re.compile(r"run:([^@]+)(?:@(\d+))?")
"""A run's name and, if there is one, the step of a checkpoint."""


def resolved(config: RunConfig, workspace: Path | str | None = None) -> RunConfig:
    """A copy with the folders of checkpoints for references to runs of ``workspace``, and their ``origins``.

    Raises RunError for a run or checkpoint that is not there or not whole, for a policy in a reward model's place and
    the other way round, and for one named in ``origins`` that is not what it was.
    """
    config = config.model_copy(deep=True)
    used = {getattr(section, field) for section, field in places(config)}
    config.origins = [origin for origin in config.origins if origin.path in used]
    check_origins(config)
    origins = {origin.path: origin for origin in config.origins}
    for section, field in places(config):
        value = getattr(section, field)
        if is_of_run(value):
            path = find_checkpoint(value, workspace)
            _check_product(config, section, value, path, workspace)
            setattr(section, field, str(path))
            origins[str(path)] = Origin(reference=value, path=str(path), manifest_sha256=_manifest_hash(path))
    config.origins = list(origins.values())
    return config


def find_checkpoint(reference: str, workspace: Path | str | None = None) -> Path:
    """The folder of the checkpoint that ``reference`` names: a step's, or the run's last. Raises RunError."""
    match = REFERENCE.fullmatch(reference)
    if match is None:
        raise RunError(f"{reference[:80]!r} is no checkpoint of a run; write run:NAME, or run:NAME@STEP")
    run = open_run(match[1], workspace)
    folder = run.dir.checkpoints / ("final" if match[2] is None else f"checkpoint-{int(match[2])}")
    if not folder.is_dir():
        steps = [str(checkpoint.step) for checkpoint in checkpoints.saved(run.dir.checkpoints)]
        there = f"it has those of steps {', '.join(reversed(steps))}" if steps else "it has saved none"
        final = ", and its final one" if (run.dir.checkpoints / "final").is_dir() else ""
        way = f"name one as run:{run.name}@STEP" if steps or final else "let it train to its end, or take another run"
        raise RunError(
            f"{reference}: run {run.name!r} ({run.status().state}) has no {folder.name}; {there}{final}: {way}"
        )
    if (problem := checkpoints.problem(folder)) is not None:
        raise RunError(f"{reference}: {folder.name} cannot be used: {problem}; name another checkpoint of the run")
    return folder


def _check_product(
    config: RunConfig, section: Section | MergedName, reference: str, path: Path, workspace: Path | str | None
) -> None:
    """Raises RunError where a run trained something else than ``section`` asks for."""
    match = REFERENCE.fullmatch(reference)
    assert match is not None
    try:
        method = open_run(match[1], workspace).config().method
    except WorkbenchError:  # of another version, or damaged: the checkpoint itself is whole
        return
    made = method.reward_format
    if not isinstance(section, ModelConfig):
        if made is not None and config.method.reward_format is None:
            raise RunError(
                f"{reference} is a reward model, trained by {method.name}, and writes no text; name a run that trained "
                "a policy, and this one as a reward (model.path of a reward, --reward-model)"
            )
    elif made is None:
        raise RunError(
            f"{reference} is a policy, trained by {method.name}, and no reward model; name a run by reward or prm"
        )
    elif made != section.format:
        raise RunError(f"{reference} is a reward model of format {made!r}, not {section.format!r}; set its format so")
    elif is_adapter(path):
        raise RunError(
            f"{reference} is an adapter alone, which its run puts into the weights at the end; name run:{match[1]}"
        )


def check_origins(config: RunConfig) -> None:
    """Raises RunError for a checkpoint that is gone, or not the one that it was when the run was started."""
    for origin in config.origins:
        folder = Path(origin.path)
        if not (folder / checkpoints.MANIFEST).is_file():
            raise RunError(f"{origin.path} ({origin.reference}) is gone; start again with another checkpoint")
        if _manifest_hash(folder) != origin.manifest_sha256:
            raise RunError(
                f"{origin.path} is not the checkpoint that {origin.reference} was: its manifest differs; start a new "
                f"run with {origin.reference} to take the present one"
            )


def places(config: RunConfig) -> Iterator[tuple[Section | MergedName, str]]:
    """The fields that may name a run's checkpoint."""
    yield from ((config.policy, "path"), (config.policy, "adapter"))
    yield from ((merged, "path") for merged in config.policy.merged_names)
    for reward in config.method.reward_functions:
        if reward.model is not None:
            yield reward.model, "path"


def _manifest_hash(folder: Path) -> str:
    return hashlib.sha256((folder / checkpoints.MANIFEST).read_bytes()).hexdigest()
