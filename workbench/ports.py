"""The port that the page listens on, looked at before anything that takes long to import."""

from __future__ import annotations

import argparse
import socket
from collections.abc import Sequence

from workbench.errors import WorkbenchError

PORT = 7860


def free_port(host: str, port: int) -> int:
    """The port to listen on: ``port`` itself, or for 0 one that is free. Raises WorkbenchError."""
    if not 0 <= port <= 65_535:
        raise WorkbenchError(f"port {port} is none; choose one from 1 to 65535 with --port, or 0 for any that is free")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            return int(probe.getsockname()[1])
        except OSError as error:
            raise WorkbenchError(
                f"port {port} of {host} cannot be used ({error.strerror}); choose another with --port"
            ) from error


def check_port_of(arguments: Sequence[str]) -> None:
    """Raises WorkbenchError where the page cannot listen as these arguments of ``app`` say."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=PORT)
    try:
        args, _ = parser.parse_known_args(arguments)
    except argparse.ArgumentError:
        return  # the whole parser says what is wrong
    if "-h" not in arguments and "--help" not in arguments:
        free_port(args.host, args.port)
