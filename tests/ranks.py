"""Several ranks of one launch, as torchrun starts them, in copies of the warm process: imports are paid for once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.browsing import free_port
from tests.waiting import until_warm
from workbench.child import Handle
from workbench.runs import warm
from workbench.runs.processes import TAG
from workbench.sandbox.child import child_environment


def on_ranks(count: int, module: str, *arguments: str, log: Path, code: int = 0) -> None:
    """``python -m module`` on each of ``count`` ranks, speaking to each other through gloo; all end with ``code``."""
    with running_on_ranks(count, module, *arguments, log=log, code=code):
        pass


@contextmanager
def running_on_ranks(count: int, module: str, *arguments: str, log: Path, code: int = 0) -> Iterator[list[Handle]]:
    """As ``on_ranks``, which have all ended after the block."""
    until_warm()
    launched = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    launched |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ranks: list[Handle] = []
    try:
        with log.open("wb") as printed:
            for rank in range(count):
                environment = child_environment() | launched | {"RANK": str(rank), "LOCAL_RANK": str(rank), TAG: ""}
                started = warm.start_warm([module, *arguments], environment, printed.fileno())
                assert started is not None
                ranks.append(started)
        yield ranks
        assert [rank.wait(300) for rank in ranks] == [code] * count, log.read_text()[-3000:]
    finally:
        for rank in ranks:
            rank.kill()
