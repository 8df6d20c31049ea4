"""``python -m workbench``: what costs nothing is looked at before imports that take seconds."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from workbench.errors import WorkbenchError
from workbench.views.page_link import check_port_of


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command, as ``cli.main`` does."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    try:
        if arguments[:1] == ["app"]:
            check_port_of(arguments[1:])
    except WorkbenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    from workbench.cli import main as run

    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
