"""A run's directory: what is written comes back, whatever the bytes, and nothing torn is ever believed."""

import dataclasses
import json
import math
import os
import re
import resource
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.credits import make_credit as scored_credit
from tests.credits import make_rollout
from workbench import rundir
from workbench.credit import credit_group
from workbench.errors import RunError
from workbench.files import replace_file
from workbench.rewards import RewardConfig
from workbench.rundir import RunDir, checkpoints, metrics
from workbench.schema import Credit, Group, RewardSummary, Rollout, ScoredGroup, Step, StepScores
from workbench.training.methods import RunConfig


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir.create(tmp_path, RunConfig(name="a"))


def make_credit(texts: tuple[str, ...] = ("St", "ep", "\n"), prompt: object = "Start with 7.") -> Credit:
    """Two rollouts of 3 and 2 tokens: scored, unscored and unmatched steps, a -0.0, and numbers float32 rounds."""
    first = Rollout(
        (5, 6, 7),
        texts,
        finished=True,
        logprobs=(-0.1, -1.5, 0.0),
        entropies=(0.3, 1.25, 0.7),
        ref_logprobs=(-0.2, -1.0, 0.0),
        raw_logprobs=(-0.1, -1.25, 0.0),
        mask=(1, 0, 1),
    )
    second = Rollout((8, 9), ("x", "y"), finished=False)
    group = Group(prompt, (first, second), {"answer": "12", "operations": [["+", 5]]}, "tiny", {"temperature": 1.0})
    scored = (
        StepScores(
            steps=(Step(0, 2), Step(2, 4)),
            spans=((0, 0), (1, 2)),
            scores={"right": (1.0, None), "short": (0.1, None)},
            rewards=(1.1, None),
            outcome_scores={"answer": 1.0},
            outcome=1.0,
        ),
        StepScores(
            steps=(Step(0, 2, matched=False),),
            spans=((0, 1),),
            scores={"right": (None,), "short": (1 / 3,)},
            rewards=(1 / 3,),
            outcome_scores={"answer": None},
            outcome=None,
        ),
    )
    summaries = (RewardSummary("right", "step", 1.0, 0.25), RewardSummary("answer", "outcome", 0.5))
    return Credit(
        scored=ScoredGroup(group, scored, summaries),
        scheme="process",
        options={"scale": True, "clip": None},
        advantages=np.array([[0.1, -0.0, -1 / 3], [1e-45, 3.4e38, 0.0]], dtype=np.float32),
        normalised=[[0.7071, None], [-0.7071]],
        mean=0.7166666666666667,
        std=0.5421151989096864,
        warnings=("rollout 1 was truncated",),
    )


def assert_same(a: Credit, b: Credit) -> None:
    assert a.advantages.dtype == b.advantages.dtype == np.float32
    assert np.array_equal(a.advantages.view(np.uint32), b.advantages.view(np.uint32))
    same = dataclasses.replace(b, normalised=a.normalised)
    assert dataclasses.replace(a).__dict__ | {"advantages": 0} == same.__dict__ | {"advantages": 0}
    assert [list(row) for row in a.normalised] == [list(row) for row in b.normalised]


# -- making one -----------------------------------------------------------------------------------------------------


def test_reward_code_is_kept_in_its_folder_however_it_is_called(tmp_path: Path) -> None:
    rewards = [
        RewardConfig(name="built_in"),
        RewardConfig(name="../../x", code="bad = 1  # é\n"),
        RewardConfig(name="unknown"),
    ]
    run = RunDir.create(tmp_path, RunConfig(method={"rewards": rewards}), {"built_in": "def built_in(): ...\n"})
    manifest = json.loads((run.path / "rewards" / "manifest.json").read_text())
    assert [(entry["name"], entry["file"]) for entry in manifest] == [
        ("built_in", "built_in.py"),
        ("../../x", "reward-1.py"),
    ]
    assert (run.path / "rewards" / "reward-1.py").read_text() == "bad = 1  # é\n"
    assert sorted(os.listdir(tmp_path)) == ["runs"]


# -- status ---------------------------------------------------------------------------------------------------------


def test_settling_keeps_a_final_state_but_a_certain_cause_beats_a_guess(run: RunDir) -> None:
    assert run.settle("crashed", "its process is gone", certain=False).reason == "its process is gone"
    assert run.settle("crashed", "another guess", certain=False).reason == "its process is gone"
    assert run.settle("crashed", "killed by signal 9", certain=True).reason == "killed by signal 9"
    run.set_status("finished")
    assert run.settle("crashed", "killed by signal 9", certain=True).state == "finished"


def test_writers_of_status_do_not_lose_each_others_fields(run: RunDir) -> None:
    def count(field: str) -> None:
        for number in range(1, 31):
            run.note(**{field: number})

    with ThreadPoolExecutor(3) as pool:
        pool.map(count, ("step", "pid", "ranks"))
    status = run.status()
    assert (status.step, status.pid, status.ranks) == (30, 30, 30)


# -- metrics --------------------------------------------------------------------------------------------------------


def test_rows_come_back_with_null_for_what_is_not_finite_and_name_it(run: RunDir) -> None:
    run.append_metrics({"step": 1, "loss": math.nan, "kl": np.float32(-math.inf), "reward": np.float32(0.5), "n": 3})
    table = run.metrics()
    assert math.isnan(table["loss"][0])
    assert table["kl"][0] == -math.inf
    assert "not_finite" not in table
    run.append_metrics({"step": 2, "nested": {"x": [math.inf, 1.5]}, "text": "a\u2028b\nc\x00\ud800"})
    rows, cursor = run.read_metrics()
    assert rows == [
        {"step": 1, "loss": None, "kl": None, "reward": 0.5, "n": 3, "not_finite": {"loss": "nan", "kl": "-inf"}},
        {"step": 2, "nested": {"x": [None, 1.5]}, "text": "a\u2028b\nc\x00\ud800"},
    ]
    content = (run.path / "metrics.jsonl").read_bytes()
    assert content.count(b"\n") == 3  # the version and two rows
    assert cursor == len(content)


def test_corrupt_rows_are_skipped_and_named_by_their_line(run: RunDir) -> None:
    bad = [b'{"step": 1, "lo\n', b"\x00\xff\n", b"\n"]
    path = run.path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n' + b"".join(bad) + b'{"step": 2}\n')
    for _ in range(2):  # reading again names them once
        assert [row["step"] for row in run.read_metrics()[0]] == [1, 2]
        offsets = [12 + sum(len(line) for line in bad[:n]) for n in range(len(bad))]
        assert list(run.corrupt) == offsets
    assert run.corrupt[offsets[1]].startswith("metrics.jsonl, line 3")
    later = RunDir(run.path)  # one that reads on from the second row on names the same line
    later.read_metrics(offsets[1])
    assert later.corrupt[offsets[1]] == run.corrupt[offsets[1]]
    assert run.warnings() == [f"skipped {what}" for what in run.corrupt.values()]


def test_an_unterminated_tail_is_left_for_later_and_does_not_take_the_next_row_along(run: RunDir) -> None:
    (run.path / "metrics.jsonl").write_bytes(b'{"step": 1}\n{"st')
    rows, cursor = run.read_metrics()
    assert rows == [{"step": 1}]
    assert run.corrupt == {}
    run.append_metrics({"step": 3})
    assert run.read_metrics(cursor)[0] == [{"step": 3}]
    assert list(run.corrupt) == [12]


def test_a_full_disk_is_named_and_the_rows_before_are_kept(run: RunDir) -> None:
    """A file size limit cuts the write short, as a full disk does: 114 bytes hold 14 of the header, 4 rows of 24 and 4
    bytes more."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (114, before[1]))
        for step in range(1, 5):
            run.append_metrics({"step": step, "x": 12345})
        with pytest.raises(RunError, match="step 5: 4 of 24"):
            run.append_metrics({"step": 5, "x": 12345})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    run.append_metrics({"step": 6, "x": 12345})
    assert [row["step"] for row in run.read_metrics()[0]] == [1, 2, 3, 4, 6]


def test_a_writer_killed_at_any_moment_loses_no_row_it_had_written(run: RunDir) -> None:
    """The writer reports each row after its append; SIGKILL comes while it writes on."""
    writing = (
        "import itertools, os, sys\n"
        "from workbench.rundir import RunDir\n"
        "run = RunDir(sys.argv[1])\n"
        "for step in itertools.count(1):\n"
        "    run.append_metrics({'step': step})\n"
        "    os.write(1, b'.')\n"
    )
    with subprocess.Popen([sys.executable, "-c", writing, run.path], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        acknowledged = len(writer.stdout.read(200))
        writer.kill()
        acknowledged += len(writer.stdout.read())
    rows = run.read_metrics()[0]
    assert len(rows) >= acknowledged
    assert [row["step"] for row in rows] == list(range(1, len(rows) + 1))


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(
        st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.floats() | st.text(), max_size=4),
        max_size=6,
    ),
    cuts=st.lists(st.integers(0, 400), max_size=4),
)
def test_any_rows_read_in_any_pieces_come_back_in_order(
    rows: list[dict[str, object]], cuts: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    run = RunDir(folder)
    for row in rows:
        run.append_metrics(row)
    run.close()
    whole = (folder / "metrics.jsonl").read_bytes() if rows else b""
    read: list[dict[str, object]] = []
    cursor = 0
    for end in [*sorted(cuts), len(whole)]:
        (folder / "metrics.jsonl").write_bytes(whole[:end])
        more, cursor = run.read_metrics(cursor)
        read += more
    assert repr([metrics.restore(row) for row in read]) == repr(rows)  # NaN differs from itself, its name does not
    assert run.corrupt == {}


# -- rollouts -------------------------------------------------------------------------------------------------------


def test_invariant_the_run_directory_is_the_truth(run: RunDir) -> None:
    chat = make_credit(prompt=[{"role": "user", "content": "7 + 5?\u2028\ud800"}])
    zero = dataclasses.replace(make_credit(), mean=None, std=None, warnings=())
    written = [make_credit(), chat, zero]
    run.rollouts.write(12, written)
    rows = pq.read_table(next((run.path / "rollouts").glob("*.parquet"))).to_pylist()
    assert [len(row["advantages"]) for row in rows] == [len(row["token_ids"]) for row in rows] == [3, 2] * 3
    read = RunDir(run.path).rollouts.read(12)
    assert len(read) == 3
    for a, b in zip(written, read, strict=True):
        assert_same(a, b)
    assert np.signbit(read[0].advantages[0, 1])


def test_a_stored_credit_explains_its_tokens_as_before(run: RunDir) -> None:
    rollouts = [make_rollout(["a", "b"]), make_rollout(["c", "d"])]
    credit = credit_group(scored_credit(rollouts, [[1], [1]], [[1.0], [0.0]], [1, 0]).scored, "prpo")
    run.rollouts.write(1, [credit])
    [read] = run.rollouts.read(1)
    explained = credit.explain(1, 0)
    assert [term.centre for term in explained.terms] == ["fixed mean", "mean"]
    assert read.explain(1, 0) == explained


# -- checkpoints ----------------------------------------------------------------------------------------------------


def save_checkpoint(folder: Path, step: int) -> Path:
    draft = folder / checkpoints.SAVING
    draft.mkdir(parents=True)
    (draft / "model.safetensors").write_bytes(bytes(range(256)))
    (draft / "state").mkdir()
    (draft / "state" / "rng.json").write_text("[1]")
    checkpoints.seal(draft, folder / f"checkpoint-{step}", {"step": step})
    return folder / f"checkpoint-{step}"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda c: (c / "model.safetensors").write_bytes(b"\x01" + bytes(range(1, 256))), "its SHA-256 differs"),
        (lambda c: (c / "state" / "rng.json").unlink(), "state/rng.json cannot be read"),
        (lambda c: (c / "manifest.json").unlink(), "has no whole manifest.json"),
        (lambda c: (c / "manifest.json").write_text('{"files": '), "has no whole manifest.json"),
        (lambda c: (c / "more.txt").touch(), "more.txt was not saved here"),
    ],
)
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_taken(tmp_path: Path, damage, message: str) -> None:
    save_checkpoint(tmp_path, 9)
    damaged = save_checkpoint(tmp_path, 10)
    damage(damaged)
    found, skipped = checkpoints.newest_valid(tmp_path)
    assert found is not None
    assert found.step == 9
    assert len(skipped) == 1
    assert re.search(f"^checkpoint-10: .*{message}", skipped[0])


# -- a full disk ----------------------------------------------------------------------------------------------------


def test_a_run_that_ends_on_a_full_disk_says_so_in_the_space_reserved_for_it(run: RunDir, monkeypatch) -> None:
    left = [0, 1]  # how many writes the disk has room for, once the reserve is gone

    def write(path: Path, data: bytes) -> None:
        if not left.pop(0):
            raise RunError("the disk is full")
        replace_file(path, data)

    monkeypatch.setattr(rundir, "replace_file", write)
    run.set_status("failed", "the disk is full at step 7")
    assert (run.status().state, run.status().reason) == ("failed", "the disk is full at step 7")
    left.append(0)
    with pytest.raises(RunError, match="full"):
        run.note(step=8)


def test_only_a_run_that_is_over_begins_again(run: RunDir) -> None:
    with pytest.raises(RunError, match="queued"):
        run.begin_again()
    run.set_status("stopped", "on request", stop_requested=1.0, started=2.0, step=7)
    status = run.begin_again()
    assert (status.state, status.stop_requested, status.started, status.pid) == ("queued", None, None, os.getpid())
    assert status.step == 7
