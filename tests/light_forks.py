"""A warm process that has imported what ``tests.fake_run`` needs."""

from __future__ import annotations

from workbench import runs
from workbench.child import fork_modules

__all__ = ["runs"]

if __name__ == "__main__":
    fork_modules()
