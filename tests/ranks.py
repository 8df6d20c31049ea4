"""Several ranks of one launch: forked off this process, which has the libraries, with what torchrun sets for each."""

import multiprocessing
import os
import runpy
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.context import ForkProcess
from pathlib import Path

from accelerate.state import AcceleratorState, GradientState

from tests.browsing import free_port
from workbench.runs.processes import TAG
from workbench.sandbox.child import child_environment


def on_ranks(count: int, module: str, *arguments: str, log: Path) -> None:
    """``python -m module`` on each of ``count`` ranks, speaking to each other through gloo; all end well."""
    with running_on_ranks(count, module, *arguments, log=log):
        pass


@contextmanager
def running_on_ranks(count: int, module: str, *arguments: str, log: Path) -> Iterator[list[ForkProcess]]:
    """As ``on_ranks``, which have all ended after the block."""
    launched = {**child_environment(), TAG: "", "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    launched |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    fork = multiprocessing.get_context("fork").Process
    numbered = [launched | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]
    ranks = [fork(target=_become, args=(module, arguments, environment, log)) for environment in numbered]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # this process has threads, of which none matters there
            for rank in ranks:
                rank.start()
        yield ranks
        for rank in ranks:
            rank.join(300)
        assert [rank.exitcode for rank in ranks] == [0] * count, log.read_text()[-3000:]
    finally:
        for rank in ranks:
            rank.kill()


def _become(module: str, arguments: tuple[str, ...], environment: Mapping[str, str], log: Path) -> None:
    sys.stdout = sys.stderr = log.open("a", buffering=1)
    for descriptor in (1, 2):
        os.dup2(sys.stdout.fileno(), descriptor)
    os.environ.clear()
    os.environ.update(environment)
    warnings.resetwarnings()
    warnings.simplefilter("ignore")
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
