"""``python -m benchmarks NAME``: measure something in one run; without a name, list what there is."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import BENCHES
from benchmarks.trained import Where
from workbench.errors import WorkbenchError
from workbench.files import encode
from workbench.views.cards import table


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    made.add_argument("name", nargs="?", choices=sorted(BENCHES), help="what to measure")
    made.add_argument("--repeat", type=int, default=5, metavar="N", help="measurements of each (default: %(default)s)")
    made.add_argument("--full", action="store_true", help="the longest version, where a benchmark has one")
    made.add_argument("--workspace", type=Path, metavar="DIR", help="where a benchmark that trains has its runs")
    made.add_argument("--only", metavar="CELLS", help="of a benchmark that trains: cells of its table, by commas")
    made.add_argument("--stored", action="store_true", help="start nothing, show what was trained before")
    made.add_argument("--json", action="store_true", help="print the result as JSON")
    return made


def main(arguments: list[str] | None = None) -> int:
    """Run one benchmark and print its rows. Returns the exit status: 2 for anything that cannot be measured."""
    args = parser().parse_args(arguments)
    if args.name is None:
        summaries = {name: bench.summary for name, bench in BENCHES.items()}
        rows = list(summaries.items())
        return _print(args, {"benches": summaries}, lambda: table(("benchmark", "measures"), rows))
    if args.repeat < 1:
        print(f"error: --repeat {args.repeat}: must be at least 1", file=sys.stderr)
        return 2
    try:
        bench = BENCHES[args.name]
        tables: dict[str, list[dict[str, Any]]] = {}
        for row in bench.measure(args.repeat, full=args.full, where=_where(args)):
            tables.setdefault(getattr(row, "TABLE", "rows"), []).append(dataclasses.asdict(row))
    except WorkbenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return _print(
        args,
        {"bench": args.name, **tables},
        lambda: "\n\n".join(table(list(rows[0]), [list(row.values()) for row in rows]) for rows in tables.values()),
    )


def _print(args: argparse.Namespace, data: dict[str, Any], text: Callable[[], str]) -> int:
    print(encode(data).decode() if args.json else text())
    return 0


def _where(args: argparse.Namespace) -> Where | None:
    if args.workspace is None and args.only is None and not args.stored:
        return None
    only = None if args.only is None else tuple(name.strip() for name in args.only.split(","))
    return Where(args.workspace, only, args.stored)


if __name__ == "__main__":
    sys.exit(main())
