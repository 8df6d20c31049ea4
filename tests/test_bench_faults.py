"""The bench of faults, in its shortest form: what it promises of a run holds for one fault of each kind."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import faults
from workbench.runs import spawn


@pytest.fixture
def workspace() -> Iterator[Path]:
    with faults._own_place() as folder:
        yield folder


@pytest.fixture
def warm_workspace(workspace: Path, warm_fake_runs: None) -> Path:
    """A workspace whose runs start warm."""
    return workspace


def assert_nothing_is_left_or_lost(fault: faults.Fault, injected: int) -> None:
    assert (fault.injected, fault.lost_rows, fault.orphans, fault.named) == (injected, 0, 0, injected)


def test_a_run_killed_at_a_random_moment(warm_workspace: Path) -> None:
    assert_nothing_is_left_or_lost(faults.killed_runs(warm_workspace, 2, random.Random(1)), 2)


def test_a_run_stopped_in_every_phase(warm_workspace: Path) -> None:
    assert_nothing_is_left_or_lost(faults.stopped_runs(warm_workspace, len(faults.PHASES)), len(faults.PHASES))


def test_the_app_killed(workspace: Path) -> None:
    assert_nothing_is_left_or_lost(faults.killed_apps(workspace, 1), 1)


def test_a_rank_killed(warm_workspace: Path) -> None:
    assert_nothing_is_left_or_lost(faults.killed_ranks(warm_workspace, 1), 1)


def test_a_full_disk(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its limit on the size of files is one that a run has from the process that starts it, so it starts cold."""
    monkeypatch.setattr(spawn, "start_warm", lambda *_: None)
    assert_nothing_is_left_or_lost(faults.full_disks(workspace, 1), 1)


def test_seven_corruptions_have_seven_names(warm_workspace: Path) -> None:
    fault = faults.corrupted(warm_workspace)
    assert (fault.injected, fault.named) == (7, 7)
