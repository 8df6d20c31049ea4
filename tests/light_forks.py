"""A warm process that has imported what runs need that do not train: ``tests.fake_run`` and ``benchmarks.writer``."""

from __future__ import annotations

from benchmarks import writer
from workbench import runs
from workbench.child import fork_modules

__all__ = ["runs", "writer"]

if __name__ == "__main__":
    fork_modules()
