"""A judge's answers by what was asked, and how many requests each run has sent, in one file of the workspace.

Several processes use it at once: the ranks of a run, and a page. A request is claimed while it is under way, so that of
two ranks that ask the same one asks and the other finds the answer.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from workbench.errors import RewardError

FILE = "judges.sqlite"
_TABLES = """
CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, text TEXT NOT NULL, time REAL NOT NULL);
CREATE TABLE IF NOT EXISTS calls (scope TEXT, judge TEXT, count INTEGER NOT NULL, PRIMARY KEY (scope, judge));
"""
_COUNTED = """
INSERT INTO calls VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET count = count + 1 WHERE count < ? RETURNING count
"""


class Store:
    """Safe between threads and processes. Raises RewardError where the file cannot be used."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._lock = threading.Lock()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # As private as what it holds: prompts and answers.
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
            self._claims = os.open(folder / f"{FILE}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            self._database = sqlite3.connect(self.path, timeout=30, isolation_level=None, check_same_thread=False)
            self._database.executescript(_TABLES)
        except (OSError, sqlite3.Error) as error:
            raise self._broken(error) from error

    def get(self, key: str) -> str | None:
        """The answer to what was asked before."""
        rows = self._run("SELECT text FROM answers WHERE key = ?", key)
        return str(rows[0][0]) if rows else None

    def put(self, key: str, text: str) -> None:
        self._run("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", key, text, time.time())

    def count(self, scope: str, judge: str, most: int) -> int | None:
        """Count one more request of ``scope`` to ``judge``: how many that makes, None where there were ``most``."""
        rows = self._run(_COUNTED, scope, judge, most)
        return int(rows[0][0]) if rows else None

    @contextmanager
    def claimed(self, key: str) -> Iterator[None]:
        """Wait until no other process is asking the same."""
        place = int(key[:12], 16)
        # Two processes whose threads wait for each other's claims are taken for a deadlock: then both ask.
        with suppress(OSError):
            fcntl.lockf(self._claims, fcntl.LOCK_EX, 1, place)
        try:
            yield
        finally:
            with suppress(OSError):
                fcntl.lockf(self._claims, fcntl.LOCK_UN, 1, place)

    def _run(self, statement: str, *values: Any) -> list[Any]:
        try:
            with self._lock:
                return self._database.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise self._broken(error) from error

    def _broken(self, error: Exception) -> RewardError:
        return RewardError(f"{self.path}, where judges' answers are kept, cannot be used ({error}); remove it")

    def close(self) -> None:
        self._database.close()
        os.close(self._claims)
