"""What step patterns find in the group on screen: the page's own in a line, every preset in a table."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.errors import PatternError, PatternTooSlow
from workbench.rewards import Sandbox
from workbench.schema import Group
from workbench.schema.numbers import counted
from workbench.steps import PRESETS, Split, StepPattern
from workbench.ui.handlers.page_state import PageState
from workbench.ui.handlers.scoring import Note, ScoringView, split

HEADINGS = {"preset": False, "finds": False, "first step": False, "last step": False, "used by": False}
"""Of the table of presets; none is a column of plain numbers."""
SHOWN = 20
"""Characters of a step."""


def pattern_note(draft: PageState, view: ScoringView) -> Note | None:
    """What is wrong with the pattern, or else how many steps it finds and how an answer's first and last begin."""
    group = draft.group
    if view.pattern is not None or group is None or not any(cut.matched for cut in view.splits):
        return view.pattern
    first, last = _ends(group, view.splits)
    found = f"finds {_counts(view.splits, ' per answer')}: “{first}” to “{last}”"
    if draft.pattern().is_separator:
        return Note(f"{found}; text before the first white space is in no step", level="warning")
    return Note(found, level="plain")


def preset_rows(draft: PageState, worker: Sandbox) -> list[list[str]]:
    """A row a preset, those that match first: what it finds in the draft's group, or why it finds nothing there."""
    if draft.group is None:
        return []
    rows = []
    for name, preset in PRESETS.items():
        pattern = draft.with_pattern(preset.pattern.regex, preset.pattern.kind).pattern()
        rows.append([name, *_found(draft.group, pattern, worker), preset.used_by])
    return sorted(rows, key=lambda row: not row[2])  # only one that matches has a first step


def _found(group: Group, pattern: StepPattern, worker: Sandbox) -> tuple[str, str, str]:
    try:
        splits = split(group, pattern, worker)
    except PatternTooSlow:
        return "too slow", "", ""
    except PatternError:
        return "not on this group", "", ""
    return (_counts(splits), *_ends(group, splits)) if any(cut.matched for cut in splits) else ("no match", "", "")


def _counts(splits: Sequence[Split], each: str = "") -> str:
    """ "6 steps", "4 to 7 steps", and in how many answers if not in all."""
    counts = [len(cut.steps) for cut in splits if cut.matched]
    least, most = min(counts), max(counts)
    steps = counted(most, "step") if least == most else f"{least} to {counted(most, 'step')}"
    return f"{steps}{each}" + (f" in {len(counts)} of {len(splits)}" if len(counts) < len(splits) else "")


def _ends(group: Group, splits: Sequence[Split]) -> tuple[str, str]:
    """How the first and the last step begin, of the first answer that the pattern matches in."""
    rollout, cut = next(pair for pair in zip(group.rollouts, splits, strict=True) if pair[1].matched)
    ends = []
    for step in (cut.steps[0], cut.steps[-1]):
        text = rollout.text[step.start : step.end].strip().partition("\n")[0]
        ends.append(text if len(text) <= SHOWN else f"{text[: SHOWN - 1].rstrip()}…")
    return ends[0], ends[1]
