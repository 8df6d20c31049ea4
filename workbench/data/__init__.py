"""Data: tasks (prompts, answers, pairs, labelled steps) and other people's rollouts, read from files and the Hub."""

from workbench.data.formats import FORMATS, ROLLOUTS
from workbench.data.made import LABELLED, labelled_groups, planted_errors
from workbench.data.read import HUB, SHIPPED, Row, read_rows, row_of
from workbench.data.rollouts import Facts, Imported, group_of, load_groups, read_groups
from workbench.data.rows import Kind
from workbench.data.tasks import TASKS, Task, load_rows, load_task, preview_of, prompted, tasks_kept

__all__ = [
    "FORMATS",
    "HUB",
    "LABELLED",
    "ROLLOUTS",
    "SHIPPED",
    "TASKS",
    "Facts",
    "Imported",
    "Kind",
    "Row",
    "Task",
    "group_of",
    "labelled_groups",
    "load_groups",
    "load_rows",
    "load_task",
    "planted_errors",
    "preview_of",
    "prompted",
    "read_groups",
    "read_rows",
    "row_of",
    "tasks_kept",
]
