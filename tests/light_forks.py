"""A warm process that has imported what a run needs that does not train, as ``tests.fake_run`` is one."""

from __future__ import annotations

from workbench import runs
from workbench.child import fork_modules

__all__ = ["runs"]

if __name__ == "__main__":
    fork_modules()
