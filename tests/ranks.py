"""Several ranks of one launch, started as torchrun starts them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.browsing import free_port
from workbench.runs.processes import TAG
from workbench.sandbox.child import child_environment

Rank = subprocess.Popen[bytes]


def on_ranks(count: int, module: str, *arguments: str, log: Path, code: int = 0) -> None:
    """``python -m module`` on each of ``count`` ranks, speaking to each other through gloo; all end with ``code``."""
    with running_on_ranks(count, module, *arguments, log=log, code=code):
        pass


@contextmanager
def running_on_ranks(count: int, module: str, *arguments: str, log: Path, code: int = 0) -> Iterator[list[Rank]]:
    """As ``on_ranks``, which have all ended after the block."""
    launched = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    launched |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ranks: list[Rank] = []
    try:
        with log.open("wb") as printed:
            for rank in range(count):
                environment = child_environment() | launched | {"RANK": str(rank), "LOCAL_RANK": str(rank), TAG: ""}
                command = [sys.executable, "-m", module, *arguments]
                ranks.append(subprocess.Popen(command, env=environment, stdout=printed, stderr=subprocess.STDOUT))
        yield ranks
        assert [rank.wait(300) for rank in ranks] == [code] * count, log.read_text()[-3000:]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
