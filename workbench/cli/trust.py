"""Check that the reward code of a configuration is trusted, before any command that runs it."""

from __future__ import annotations

import argparse
from pathlib import Path

from workbench import runs
from workbench.cli.flags import gives_rewards
from workbench.config import RunConfig


def add_trust(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trust",
        action="store_true",
        help="run the reward code that --config, --from or a recipe brings, with your rights",
    )


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
    replaced = gives_rewards(args)  # instead of what a file brings
    if source is not None and not replaced and not args.trust:
        store.require(config.method.reward_functions, source)
    if args.trust or hasattr(args, "workspace"):
        for reward in config.method.reward_functions:
            if reward.foreign is not None:
                store.trust(reward.foreign)
    return config
