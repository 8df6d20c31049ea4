"""What a run that is over is used for: its policy is inspected, its settings are taken over, its model is exported."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

from workbench.errors import ConfigError, RunError, WorkbenchError, cut
from workbench.places import RUN
from workbench.runs import open_run
from workbench.runs.launch import find_checkpoint
from workbench.sandbox.child import child_environment
from workbench.ui.handlers.config_import import take_over
from workbench.ui.handlers.draft import Draft
from workbench.ui.handlers.scoring import Note
from workbench.ui.handlers.tree import with_path

EXPORTS = {"model": "--merged", "adapter": "--adapter", "script": "--script"}
"""What a run is exported as, and the flag of ``python -m workbench export`` that does it."""
LONGEST_EXPORT = 1800
"""Seconds."""
_one_at_a_time = threading.Lock()


def inspect_policy(draft: Draft, reference: str, workspace: Path) -> tuple[Draft, Note | None]:
    """The draft with a run's policy, ``run:NAME`` or ``run:NAME@STEP``; unchanged, with the reason, where it cannot be
    sampled from."""
    try:
        find_checkpoint(reference, workspace)
        run = open_run(reference.removeprefix(RUN).partition("@")[0], workspace)
        config = run.config()
        if config.method.reward_format is not None:
            raise ConfigError(f"{reference} is a reward model; use it as a reward instead")
    except WorkbenchError as error:
        return draft, Note(str(error))
    section = {**draft.tree["policy"], "path": reference, "adapter": None, "merge": {}}
    section["trust_remote_code"] = config.policy.trust_remote_code
    note = None
    if config.task.name != draft.task:
        said = f"run {run.name} was trained on {config.task.name}; the prompt is of {draft.task}"
        note = Note(said, level="info")
    return replace(draft, tree=with_path(draft.tree, "policy", section)), note


def use_settings(draft: Draft, name: str, workspace: Path) -> tuple[Draft, Note]:
    """The page with a run's configuration; unchanged, with the reason, where it cannot be taken over."""
    try:
        run = open_run(name, workspace)
        return take_over(draft, f"run {run.name}", run.config())
    except WorkbenchError as error:
        return draft, Note(str(error))


def export_run(name: str, kind: str, folder: Path, workspace: Path) -> None:
    """Write the model or adapter of a run's newest checkpoint, or its script, into ``folder``: ``workbench export``.

    In a process of its own, as the page's holds no model. Raises RunError with what that said.
    """
    run = open_run(name, workspace)
    if kind not in EXPORTS:
        raise RunError(f"{kind!r} is nothing that a run is exported as; take one of {', '.join(EXPORTS)}")
    command = [sys.executable, "-m", "workbench", "export", EXPORTS[kind], str(folder)]
    newest = next(iter(run.summary().policies), run.name).removeprefix(RUN)
    command += ["--workspace", str(workspace), "--", run.name if kind == "script" else newest]
    with _one_at_a_time:
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                check=False,
                timeout=LONGEST_EXPORT,
                env={**child_environment(), "PYTHONSAFEPATH": "1"},
            )
        except subprocess.TimeoutExpired as error:
            raise RunError(
                f"exporting run {run.name!r} took longer than {LONGEST_EXPORT} s; use the command"
            ) from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise RunError(
            cut(lines[-1].removeprefix("error: "), 500) if lines else f"the export ended with code {done.returncode}"
        )
