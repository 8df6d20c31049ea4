"""From the notebook to the page: a group, opened in the running app."""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape
from pathlib import Path
from urllib.parse import urlencode

from workbench.errors import PatternError
from workbench.handoff import keep, page_link
from workbench.runs import default_workspace
from workbench.schema import Credit, Group, ScoredGroup
from workbench.steps import PRESETS, StepPattern, split_all

_PAGES_TASK = "chain-arithmetic"  # whose pattern and rewards the page opens with


@dataclass(frozen=True)
class PageLink:
    """A kept group and where to see it; ``url`` is None while no page runs on the workspace.

    ``note`` says what the page does not show as the notebook does. The link holds the page's token, as the one in the
    terminal does: whoever has it can use the page.
    """

    group: str
    url: str | None
    workspace: Path
    note: str = ""

    @property
    def advice(self) -> str:
        return (
            f"group {self.group} is kept, and no page runs on {self.workspace}; start one with "
            f"python app.py --workspace {self.workspace} and call open_in_page again"
        )

    def __str__(self) -> str:
        return "\n".join(filter(None, (self.url or self.advice, self.note)))

    def _repr_html_(self) -> str:
        if self.url is None:
            opened = escape(self.advice)
        else:
            opened = f'<a href="{escape(self.url, quote=True)}" target="_blank" rel="noopener">Open in the page</a>'
        return f"<p>{opened}</p>" + (f"<p>{escape(self.note)}</p>" if self.note else "")


def open_in_page(value: Credit | ScoredGroup | Group, workspace: Path | str | None = None) -> PageLink:
    """Keep a group in the workspace (the default one unless told) and return the link that opens it in the app.

    A credit is opened under its scheme and options, and steps that a preset pattern finds are split by that preset. No
    code goes along: the page scores with the rewards that are on there, and the link's note says where those are not
    the ones given. Raises RunError if the workspace cannot be written.
    """
    folder = (default_workspace() if workspace is None else Path(workspace)).resolve()
    scored = value.scored if isinstance(value, Credit) else value
    group = scored.group if isinstance(scored, ScoredGroup) else scored
    name = keep(folder, group)
    shown, note = {"saved": name}, ""
    if isinstance(scored, ScoredGroup):
        more, note = _how_it_differs(scored)
        shown |= more
    if isinstance(value, Credit):
        options = {option: setting for option, setting in value.options.items() if setting is not None}
        shown |= {"scheme": value.scheme, "options": json.dumps(options, separators=(",", ":"))}
    link = page_link(folder)
    url = None if link is None else f"{link}{'&' if '?' in link else '?'}{urlencode(shown)}"
    return PageLink(name, url, folder, note)


def _how_it_differs(scored: ScoredGroup) -> tuple[dict[str, str], str]:
    """What a link says to have the group split as it is, and what has to be set on the page by hand."""
    from workbench.tasks import load_task

    task = load_task(_PAGES_TASK)
    differs, shown = [], {}
    if not _splits_so(scored, StepPattern(task.pattern.regex, task.pattern.kind)):
        preset = next((name for name, one in PRESETS.items() if _splits_so(scored, one.pattern)), None)
        if preset is None:
            differs.append("the step pattern")
        else:
            shown["preset"] = preset
    given = {reward.name: reward.weight for reward in scored.rewards}
    if given != {reward.name: reward.weight for reward in task.rewards}:
        differs.append(f"the rewards ({', '.join(given)})")
    return shown, f"For the same colours, set {' and '.join(differs)} there as they are here." if differs else ""


def _splits_so(scored: ScoredGroup, pattern: StepPattern) -> bool:
    try:
        found = split_all([rollout.text for rollout in scored.group.rollouts], pattern)
    except PatternError:
        return False
    return all(tuple(steps) == one.steps for steps, one in zip(found, scored.scored, strict=True))
