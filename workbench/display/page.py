"""From the notebook to the page: a group, opened in the running app."""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape
from pathlib import Path
from urllib.parse import urlencode

from workbench.handoff import keep, page_link
from workbench.runs import default_workspace
from workbench.schema import Credit, Group, ScoredGroup


@dataclass(frozen=True)
class PageLink:
    """A kept group and where to see it; ``url`` is None while no page runs on the workspace.

    The link holds the page's token, as the one in the terminal does: whoever has it can use the page.
    """

    group: str
    url: str | None
    workspace: Path

    @property
    def advice(self) -> str:
        return (
            f"group {self.group} is kept, and no page runs on {self.workspace}; start one with "
            f"python app.py --workspace {self.workspace} and call open_in_page again"
        )

    def __str__(self) -> str:
        return self.url or self.advice

    def _repr_html_(self) -> str:
        if self.url is None:
            return f"<p>{escape(self.advice)}</p>"
        return f'<a href="{escape(self.url, quote=True)}" target="_blank" rel="noopener">Open in the page</a>'


def open_in_page(value: Credit | ScoredGroup | Group, workspace: Path | str | None = None) -> PageLink:
    """Keep a group in the workspace (the default one unless told) and return the link that opens it in the app.

    A credit is opened under its scheme and options. Raises RunError if the workspace cannot be written.
    """
    folder = (default_workspace() if workspace is None else Path(workspace)).resolve()
    scored = value.scored if isinstance(value, Credit) else value
    name = keep(folder, scored.group if isinstance(scored, ScoredGroup) else scored)
    link = page_link(folder)
    if link is None:
        return PageLink(name, None, folder)
    shown = {"saved": name}
    if isinstance(value, Credit):
        options = {option: setting for option, setting in value.options.items() if setting is not None}
        shown |= {"scheme": value.scheme, "options": json.dumps(options, separators=(",", ":"))}
    return PageLink(name, f"{link}{'&' if '?' in link else '?'}{urlencode(shown)}", folder)
