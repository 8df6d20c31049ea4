"""``export --merged | --adapter | --push``: the model of a run to a folder or to the Hub."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from workbench.cli.output import print_result
from workbench.errors import ConfigError
from workbench.runs import export as exporting


def add_model_export(to: argparse.ArgumentParser) -> None:
    form = to.add_mutually_exclusive_group()
    form.add_argument("--merged", type=Path, metavar="FOLDER", help="write the model, an adapter put into its base")
    form.add_argument("--adapter", type=Path, metavar="FOLDER", help="write the adapter alone")
    to.add_argument("--push", metavar="OWNER/NAME", help="say what a model repository of the Hub would get")
    to.add_argument("--yes", action="store_true", help="with --push: send it, to a private repository")
    to.add_argument("--public", action="store_true", help="with --push: a repository that all can see")


def asks_for_model(args: argparse.Namespace) -> bool:
    """Whether a run's model is to be exported. Raises ConfigError for flags of --push without it."""
    if args.push is None and (args.yes or args.public):
        raise ConfigError("--yes and --public say how --push is done; give --push OWNER/NAME")
    return any(asked is not None for asked in (args.merged, args.adapter, args.push))


def export_model(args: argparse.Namespace) -> int:
    form: exporting.Form | None = (
        "merged" if args.merged is not None else "adapter" if args.adapter is not None else None
    )
    folder = args.merged or args.adapter
    if args.push is not None:
        exporting.check_push(args.push, args.run, form, args.workspace)
    with tempfile.TemporaryDirectory() as aside:
        written = exporting.export_model(args.run, form, folder or Path(aside) / "model", args.workspace)
        result = {"run": args.run, "folder": None if folder is None else str(folder)}
        lines = [] if folder is None else [f"{args.run}: the model is in {folder}"]
        if args.push is not None:
            sent = exporting.plan(written, args.push, private=not args.public)
            result |= {"repository": sent.repository, "private": sent.private, "files": dict(sent.files)}
            result |= {"card": sent.card, "pushed": args.yes}
            lines += [f"  {size:>13,} bytes  {name}" for name, size in sent.files]
            kind = "private" if sent.private else "public"
            if args.yes:
                lines.append(f"pushed to {exporting.push(written, sent)} ({kind})")
            else:
                lines += ["", sent.card, f"nothing was pushed to {sent.repository} ({kind}); add --yes to do it"]
    return print_result(args, result, lambda: "\n".join(lines))
