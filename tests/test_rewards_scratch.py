"""The folder of a reward worker: removed with it, and swept up when its owner was killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.rewards.scratch import PREFIX, Scratch, sweep


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def age(path: Path) -> None:
    os.utime(path, (1, 1))


def test_what_a_killed_process_left_is_swept_up_and_nothing_else(folder: Path) -> None:
    code = "import os, tempfile, workbench.rewards.scratch as s; print(s.Scratch().path, flush=True); os._exit(9)"
    environment = os.environ | {"TMPDIR": str(folder)}
    made = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment, check=False)
    left = Path(made.stdout.strip())
    (left / "a file").write_text("of a reward function")
    mine, others = Scratch(), folder / "something-else"
    others.mkdir()
    link = folder / f"{PREFIX}link"
    link.symlink_to(others)
    for path in (mine.path, others, left):
        age(path)
    new = folder / f"{PREFIX}new"  # made by a process that has not locked it yet
    new.mkdir()
    sweep()
    assert left.parent == folder
    assert set(folder.iterdir()) == {mine.path, others, link, new}
    mine.remove()
    assert not mine.path.exists()


def test_a_worker_sweeps_before_it_makes_its_own(folder: Path) -> None:
    left = folder / f"{PREFIX}left"
    left.mkdir()
    age(left)
    scratch = Scratch()
    assert list(folder.iterdir()) == [scratch.path]
    scratch.remove()
