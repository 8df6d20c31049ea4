"""A warm process that has imported what a run needs that does not train, as ``tests.fake_run`` is one."""

from __future__ import annotations

from workbench.runs.forks import main

if __name__ == "__main__":
    main(["workbench.runs", "workbench.rundir.metrics"])
