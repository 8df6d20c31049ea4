"""``python -m benchmarks NAME``: measure something in one run; without a name, list what there is."""

from __future__ import annotations

import argparse
import dataclasses
import sys

from benchmarks import BENCHES
from workbench.cli.output import print_result
from workbench.display.tables import table
from workbench.errors import WorkbenchError


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    made.add_argument("name", nargs="?", choices=sorted(BENCHES), help="what to measure")
    made.add_argument("--repeat", type=int, default=5, metavar="N", help="measurements of each (default: %(default)s)")
    made.add_argument("--full", action="store_true", help="the longest version, where a benchmark has one")
    made.add_argument("--json", action="store_true", help="print the result as JSON")
    return made


def main(arguments: list[str] | None = None) -> int:
    """Run one benchmark and print its rows. Returns the exit status: 2 for anything that cannot be measured."""
    args = parser().parse_args(arguments)
    if args.name is None:
        summaries = {name: bench.summary for name, bench in BENCHES.items()}
        rows = list(summaries.items())
        return print_result(args, {"benches": summaries}, lambda: table(("benchmark", "measures"), rows))
    if args.repeat < 1:
        print(f"error: --repeat {args.repeat}: must be at least 1", file=sys.stderr)
        return 2
    try:
        measures = [dataclasses.asdict(row) for row in BENCHES[args.name].measure(args.repeat, full=args.full)]
    except WorkbenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return print_result(
        args,
        {"bench": args.name, "rows": measures},
        lambda: table(list(measures[0]), [list(row.values()) for row in measures]),
    )


if __name__ == "__main__":
    sys.exit(main())
