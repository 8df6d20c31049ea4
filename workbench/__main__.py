"""``python -m workbench``."""

import os
import sys

from workbench.child import child_environment
from workbench.cli import main

if __name__ == "__main__":
    os.environ.update(child_environment())  # before torch is loaded: commands that sample here want it too
    sys.exit(main())
