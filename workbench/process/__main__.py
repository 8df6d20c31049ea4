"""``python -m workbench.process <run directory> [--resume <checkpoint>]``: the process of one training run."""

from __future__ import annotations

import sys

from workbench.importing import uncollected
from workbench.process.imports import without_folders
from workbench.redact import RedactedStream

if __name__ == "__main__":
    sys.path[:] = without_folders(sys.path)
    with uncollected():
        from workbench.process.child import main

    sys.stdout, sys.stderr = RedactedStream(sys.stdout), RedactedStream(sys.stderr)
    sys.exit(main(sys.argv[1:]))
