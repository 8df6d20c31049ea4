"""Output of commands: results to standard output, progress messages to standard error."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from workbench.files import encode


def print_result(args: argparse.Namespace, data: dict[str, Any], text: Callable[[], str]) -> int:
    """Print the result as asked for; ``text`` is called only if it is text."""
    print(encode(data).decode() if args.json else text())
    return 0


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
