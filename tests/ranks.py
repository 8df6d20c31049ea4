"""Several ranks of one launch, as torchrun starts them, in copies of the warm process: imports are paid for once."""

from __future__ import annotations

from pathlib import Path

from tests.browsing import free_port
from tests.waiting import until_warm
from workbench.child import child_environment
from workbench.runs import warm
from workbench.runs.processes import TAG


def on_ranks(count: int, module: str, *arguments: str, log: Path, code: int = 0) -> None:
    """``python -m module`` on each of ``count`` ranks, speaking to each other through gloo; all end with ``code``."""
    until_warm()
    launched = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    launched |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    with log.open("wb") as printed:
        ranks = [
            warm.start_warm(
                [module, *arguments],
                child_environment() | launched | {"RANK": str(rank), "LOCAL_RANK": str(rank), TAG: ""},
                printed.fileno(),
            )
            for rank in range(count)
        ]
    try:
        assert [rank.wait(300) for rank in ranks] == [code] * count, log.read_text()[-3000:]
    finally:
        for rank in ranks:
            rank.kill()
