"""The held-out rows of a run, one by one: how each was answered at the first and at the newest measure of accuracy."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

from workbench.errors import RunError, WorkbenchError
from workbench.runs import open_run
from workbench.ui.handlers.run_follow import Failed


class AnswerPayload(TypedDict):
    """An answer, whether it is right, and what was read as its final answer ("" for none, None if not known)."""

    text: str
    right: bool
    answer: str | None


class ProblemPayload(TypedDict):
    """A held-out row with its answers at both measures."""

    prompt: str
    before: AnswerPayload
    now: AnswerPayload


class Problems(TypedDict):
    """The measured rows in their order, and the training steps of the two measures."""

    run: str
    before: int
    now: int
    rows: list[ProblemPayload]


def problems(workspace: Path, name: str) -> Problems | Failed:
    """Every stored held-out row at the first and the newest measure; says why where there are not two."""
    try:
        run = open_run(name, workspace)
        steps = run.dir.answers.steps()
        if len(steps) < 2:
            raise RunError(f"run {run.name!r} has measured accuracy {len(steps)} times; answers are compared from 2 on")
        first, newest = (run.dir.answers.read(step) for step in (steps[0], steps[-1]))
        if [row.prompt for row in first] != [row.prompt for row in newest]:
            raise RunError(f"run {run.name!r} was measured on other rows at step {steps[0]} than at {steps[-1]}")
    except WorkbenchError as error:
        return {"run": name, "error": str(error)}
    return {
        "run": run.name,
        "before": steps[0],
        "now": steps[-1],
        "rows": [
            {
                "prompt": was.prompt,
                "before": {"text": was.text, "right": was.right, "answer": was.answer},
                "now": {"text": now.text, "right": now.right, "answer": now.answer},
            }
            for was, now in zip(first, newest, strict=True)
        ],
    }
