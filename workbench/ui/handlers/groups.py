"""Groups that outlive a page, in the workspace under the hash of what they hold.

``groups/`` has those that a link or a notebook points at, for good, and ``groups/recent/`` the latest others.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from pathlib import Path

from workbench.errors import RunError
from workbench.rundir.files import replace_file
from workbench.schema import Group

NAME = re.compile(r"[0-9a-f]{16}")
RECENT = 20
"""Groups kept that nothing points at."""


class GroupStore:
    """Groups in the workspace by the hash of what they hold. Safe to use from any thread."""

    def __init__(self, workspace: Path) -> None:
        self.folder = workspace / "groups"
        self._lock = threading.Lock()
        self._named: tuple[Group | None, str] = (None, "")

    def name(self, group: Group) -> str:
        with self._lock:
            if self._named[0] is group:  # asked at every change of a control
                return self._named[1]
        data = json.dumps(group.to_json(), sort_keys=True).encode("ascii")
        name = hashlib.sha256(data).hexdigest()[:16]
        with self._lock:
            self._named = (group, name)
        return name

    def keep(self, group: Group) -> Path:
        """Keep a group for good. Raises RunError where the disk refuses."""
        path = self.folder / f"{self.name(group)}.json"
        self._write(path, group)
        return path

    def keep_recent(self, group: Group) -> str:
        """Keep a group until RECENT others came; its name. Raises RunError where the disk refuses."""
        name, recent = self.name(group), self.folder / "recent"
        path = recent / f"{name}.json"
        if (self.folder / path.name).exists() or path.exists():
            return name
        self._write(path, group)
        kept = sorted(recent.glob("*.json"), key=lambda one: one.stat().st_mtime)
        for one in kept[:-RECENT]:
            one.unlink(missing_ok=True)
        return name

    def find(self, name: str) -> Group | None:
        """The group of that name; None where there is none (any more), or its file is no group."""
        if not NAME.fullmatch(name):
            return None
        for path in (self.folder / f"{name}.json", self.folder / "recent" / f"{name}.json"):
            try:
                return Group.from_json(json.loads(path.read_text(encoding="utf-8")))
            except FileNotFoundError:
                continue
            except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
                return None
        return None

    def _write(self, path: Path, group: Group) -> None:
        if path.exists():
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"groups cannot be kept in {path.parent}: {error}; choose another --workspace") from error
        replace_file(path, json.dumps(group.to_json()).encode("ascii"))
