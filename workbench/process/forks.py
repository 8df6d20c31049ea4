"""``python -m workbench.process.forks``: imports what training imports, and forks the processes of runs."""

from __future__ import annotations

from workbench.child import fork_modules
from workbench.importing import uncollected

with uncollected():
    from workbench.process import child
    from workbench.training import trainer

__all__ = ["child", "trainer"]

if __name__ == "__main__":
    fork_modules()
