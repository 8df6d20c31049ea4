"""Check that the reward code of a configuration is trusted, before any command that runs it."""

from __future__ import annotations

import argparse
from pathlib import Path

from workbench import runs
from workbench.cli.rewards import gives_rewards
from workbench.config.run import RunConfig


def add_trust(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trust",
        action="store_true",
        help="run the code that --config, --from or a recipe brings, with your rights",
    )


def require_trust_of_other(args: argparse.Namespace, side: RunConfig, config: RunConfig) -> RunConfig:
    """The second side, unless the file ``--other`` brings code that is neither ``config``'s nor trusted here.

    Raises ConfigError, showing the code, in that case.
    """
    from workbench.rewards.trust import TrustStore

    if not args.trust:
        brought = [part for part in side.foreign if part not in config.foreign]
        TrustStore(Path(runs.default_workspace())).require(brought, f"--other {args.other}")
    return side


def require_trust(args: argparse.Namespace, config: RunConfig) -> RunConfig:
    """The configuration, unless a file brings code that is not trusted in the workspace, and ``--trust`` is not given.

    Raises ConfigError, showing the code, in that case. Code named on the command line is its user's own; what a run is
    started with is trusted from then on.
    """
    from workbench.rewards.trust import TrustStore  # loads numpy, which most commands do without

    workspace = getattr(args, "workspace", None)
    store = TrustStore(Path(runs.default_workspace() if workspace is None else workspace))
    base, recipe = (getattr(args, name, None) for name in ("from_run", "recipe"))
    source = f"--config {args.config}" if args.config is not None else f"--from {base}" if base else recipe
    replaced = config.method.reward_functions if gives_rewards(args) else ()  # instead of what a file brings
    if source is not None and not args.trust:
        store.require([part for part in config.foreign if part not in replaced], source)
    if args.trust or hasattr(args, "workspace"):
        for part in config.foreign:
            store.trust(part.foreign or "")
    return config
