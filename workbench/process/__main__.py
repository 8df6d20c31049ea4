"""``python -m workbench.process <run directory> [--resume <checkpoint>]``: the process of one training run.

``--standby`` instead imports what training needs and then waits on the standard input for a run to go on as. Until it
has one it ends with the process that started it, at which the input closes.
"""

import json
import os
import runpy
import sys
import sysconfig
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from workbench.errors import RedactedStream

PACKAGE = Path(__file__).resolve().parents[1]


def without_folders(path: Sequence[str]) -> list[str]:
    """Return an import path without the current folder and the one that holds this package, unless libraries lie there.

    transformers and TRL look for optional packages by name. A folder called ``trackio`` or ``wandb`` where a run is
    started is a package to Python, and training fails when it is used as what it is not. This package is found without
    it: its modules are looked up in its own folder once it has been imported.
    """
    libraries = {Path(folder).resolve() for folder in sysconfig.get_paths().values()}
    left_out = {Path.cwd().resolve(), PACKAGE.parent} - libraries
    return [entry for entry in path if Path(entry or os.curdir).resolve() not in left_out]


def stand_by() -> None:
    """Import what training needs, wait for a run, and go on as the command that it is started by."""
    with suppress(Exception):  # what is missing is said in the run's log, when it imports the same
        from workbench.process import train  # noqa: F401
        from workbench.training import trainer  # noqa: F401
    line = sys.stdin.readline()
    if not line:
        return
    asked = json.loads(line)
    for descriptor, file in enumerate((os.devnull, asked["log"], asked["log"])):
        opened = os.open(file, os.O_RDWR | os.O_APPEND)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    sys.argv = asked["command"]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    sys.path[:] = without_folders(sys.path)
    if sys.argv[1:] == ["--standby"]:
        stand_by()
    else:
        from workbench.process.train import main

        sys.stdout, sys.stderr = RedactedStream(sys.stdout), RedactedStream(sys.stderr)
        sys.exit(main(sys.argv[1:]))
