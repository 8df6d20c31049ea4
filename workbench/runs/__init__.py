"""Runs: start one as a process of its own, find it again from anywhere, follow it, stop it.

A run's directory (``workbench.rundir``) is the only thing that a starter, a reader and the run itself share, so a run
outlives whoever started it and looks the same to everybody. ``workbench.training`` is started by its module's name;
neither it nor torch is ever imported here.
"""

from workbench.runs.compare import ComparedMethod, ComparedRun, compare, compare_methods
from workbench.runs.launch import start
from workbench.runs.recipes import COMPLETIONS, recipes
from workbench.runs.references import find_checkpoint, resolved
from workbench.runs.run import Run, default_workspace, list_runs, open_run
from workbench.runs.summary import RunSummary
from workbench.runs.trash import Trashed, discard, restore, trashed

train = start
"""The name ``start`` has among the public names."""

__all__ = [
    "COMPLETIONS",
    "ComparedMethod",
    "ComparedRun",
    "Run",
    "RunSummary",
    "Trashed",
    "compare",
    "compare_methods",
    "default_workspace",
    "discard",
    "find_checkpoint",
    "list_runs",
    "open_run",
    "recipes",
    "resolved",
    "restore",
    "start",
    "train",
    "trashed",
]
