"""The sandbox's process: ``python -m workbench.rewards TEMPORARY [--isolated] [FOLDER …]``, started by ``sandbox``."""

import os
import sys
from pathlib import Path

from workbench.rewards.sandboxed import MISSING, handle
from workbench.sandbox.child import serve
from workbench.sandbox.limits import restrict

if __name__ == "__main__":
    os.environ.pop("PYTHONSAFEPATH", None)
    temporary, *importable = sys.argv[1:]
    isolated = "--isolated" in importable
    MISSING += restrict(Path(temporary), [one for one in importable if one != "--isolated"], isolated=isolated)
    serve(handle)
