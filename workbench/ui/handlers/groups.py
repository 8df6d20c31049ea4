"""Groups stored in the workspace, each under the hash of its content.

``groups/`` has those that a link or a notebook points at, for good, and ``groups/recent/`` the latest others. What a
file holds is ``page_link``'s, as notebooks keep groups there too.
"""

from __future__ import annotations

import re
import threading
from pathlib import Path

from workbench.page_link import GROUPS, group_name, read_group, write_group
from workbench.schema import Group

NAME = re.compile(r"[0-9a-f]{16}")
RECENT = 20
"""Groups kept that nothing points at."""


class GroupStore:
    """Groups in the workspace by the hash of what they hold. Safe to use from any thread."""

    def __init__(self, workspace: Path) -> None:
        self.folder = workspace / GROUPS
        self._lock = threading.Lock()
        self._named: tuple[Group | None, str] = (None, "")

    def name(self, group: Group) -> str:
        with self._lock:
            if self._named[0] is group:  # asked at every change of a control
                return self._named[1]
        name = group_name(group)
        with self._lock:
            self._named = (group, name)
        return name

    def keep(self, group: Group) -> Path:
        """Keep a group for good. Raises RunError where the disk refuses."""
        return write_group(self.folder, self.name(group), group)

    def keep_recent(self, group: Group) -> str:
        """Keep a group until RECENT others came; its name. Raises RunError where the disk refuses."""
        name, recent = self.name(group), self.folder / "recent"
        if any((folder / f"{name}.json").exists() for folder in (self.folder, recent)):
            return name
        write_group(recent, name, group)
        paths = sorted(recent.glob("*.json"), key=lambda path: path.stat().st_mtime)
        for path in paths[:-RECENT]:
            path.unlink(missing_ok=True)
        return name

    def find(self, name: str) -> Group | None:
        """The group of that name; None where there is none (any more), or its file is no group."""
        if not NAME.fullmatch(name):
            return None
        for folder in (self.folder, self.folder / "recent"):
            try:
                return read_group(folder, name)
            except FileNotFoundError:
                continue
        return None
