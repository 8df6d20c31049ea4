"""What a run's process may import: libraries, and nothing that happens to lie beside it.

transformers and TRL look for optional packages by name. A folder called ``trackio`` or ``wandb`` where a run is started
is a package to Python, and training fails when it is used as what it is not.
"""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Sequence
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def without_folders(path: Sequence[str]) -> list[str]:
    """An import path without the current folder and the one that holds this package, unless libraries lie there.

    This package is found without it: its modules are looked up in its own folder once it has been imported.
    """
    libraries = {Path(folder).resolve() for folder in sysconfig.get_paths().values()}
    left_out = {Path.cwd().resolve(), PACKAGE.parent} - libraries
    return [entry for entry in path if Path(entry or os.curdir).resolve() not in left_out]
