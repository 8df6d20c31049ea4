"""Tasks: prompts, columns, and the defaults that make a task runnable at once; and labelled groups to check rewards."""

from workbench.tasks.hub import PREFIX as HUB
from workbench.tasks.labelled import LABELLED, labelled_groups, planted_errors
from workbench.tasks.load import load_rows, load_task, tasks_kept
from workbench.tasks.preview import Preview, preview_of
from workbench.tasks.task import TASKS, Task

__all__ = [
    "HUB",
    "LABELLED",
    "TASKS",
    "Preview",
    "Task",
    "labelled_groups",
    "load_rows",
    "load_task",
    "planted_errors",
    "preview_of",
    "tasks_kept",
]
