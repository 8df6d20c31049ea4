"""Runs: start one as a process of its own, find it again from anywhere, follow it, stop it.

A run's directory (``workbench.rundir``) is the only thing that a starter, a reader and the run itself share, so a run
outlives whoever started it and looks the same to everybody. ``workbench.training`` is started by its module's name;
neither it nor torch is ever imported here.
"""

from workbench.places import default_workspace
from workbench.rundir import find_checkpoint
from workbench.runs.compare import ComparedMethod, ComparedRun, MethodStages, compare
from workbench.runs.launch import resolve, start, train_to_end
from workbench.runs.making import label_steps, make_demonstrations, make_pairs, mix_rows
from workbench.runs.run import Run, RunSummary, Trashed, discard, list_runs, open_run, restore, trashed

train = start
"""The name ``start`` has among the public names."""

__all__ = [
    "ComparedMethod",
    "ComparedRun",
    "MethodStages",
    "Run",
    "RunSummary",
    "Trashed",
    "compare",
    "default_workspace",
    "discard",
    "find_checkpoint",
    "label_steps",
    "list_runs",
    "make_demonstrations",
    "make_pairs",
    "mix_rows",
    "open_run",
    "resolve",
    "restore",
    "start",
    "train",
    "train_to_end",
    "trashed",
]
