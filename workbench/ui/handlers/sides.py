"""Two runs' answers to the same watched prompt, side by side as heatmaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from workbench.errors import RunError, WorkbenchError
from workbench.runs import open_run
from workbench.ui.handlers.run_follow import drawn_credit, stored_credits
from workbench.ui.handlers.session import Services
from workbench.views.heatmap import to_json


class Sides(TypedDict):
    """A prompt that both runs watched, ``index`` of ``count``: each run's newest step and its group, as drawings are
    sent. ``error`` says why there is none."""

    index: int
    count: int
    steps: list[int]
    drawings: list[str]
    error: str


def side_by_side(services: Services, names: Sequence[str], index: int) -> Sides:
    """What two runs answered the same watched prompt last."""
    try:
        first, second = (open_run(name, services.workspace) for name in names)
        steps = []
        for run in (first, second):
            if not run.method.has_rollouts or not (stored := run.rollout_steps(watched=True)):
                raise RunError(f"run {run.name!r} has no answers to watched prompts; run.watch_prompts keeps some")
            steps.append(stored[-1])
        ours, theirs = (stored_credits(run, step, True) for run, step in zip((first, second), steps, strict=True))
        others = {str(credit.scored.group.prompt): credit for credit in theirs}
        pairs = [(credit, others[key]) for credit in ours if (key := str(credit.scored.group.prompt)) in others]
        if not pairs:
            raise RunError(f"{first.name} and {second.name} watch no prompt in common; they need the same task")
        place = index % len(pairs)
        drawings = [
            to_json(drawn_credit(run, credit, services))
            for run, credit in zip((first, second), pairs[place], strict=True)
        ]
        return {"index": place, "count": len(pairs), "steps": steps, "drawings": drawings, "error": ""}
    except (WorkbenchError, ValueError) as error:
        return {"index": 0, "count": 0, "steps": [], "drawings": [], "error": str(error)}
