"""Tasks: prompts, columns, and the defaults that make a task runnable at once."""

from workbench.tasks.task import TASKS, Task, load_task

__all__ = ["TASKS", "Task", "load_task"]
