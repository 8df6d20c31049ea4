"""Which front end this runs in."""

from __future__ import annotations

import sys
from typing import Any


def running_shell() -> Any:
    """The IPython shell this runs in, None where there is none; IPython is not imported for the question."""
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()
