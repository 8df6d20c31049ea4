"""Each reward function has an interpreter of its own: whatever one does, the others' scores and states stay."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import psutil
import pytest

from workbench.config import RewardConfig
from workbench.errors import RewardError, RewardTimeout
from workbench.rewards import Reward, RewardWorker, load_reward, sealed
from workbench.rewards.pool import IDLE_SECONDS, WorkerPool
from workbench.rewards.protocol import Batch
from workbench.rewards.sealed import warm_zygote
from workbench.steps import StepPattern

BATCH = Batch(["p"], ["a"], steps=[["a"]])
PATCHES = "math.sqrt = statistics.fmean = lambda _: 100.0\n"
COUNTER = "calls = []\ndef reward(prompt, step, **columns):\n    calls.append(step)\n    return len(calls)\n"


@pytest.fixture
def worker() -> Iterator[RewardWorker]:
    with RewardWorker(deadline=60) as worker:
        yield worker


def load(worker: RewardWorker, name: str, body: str) -> Reward:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    code = body if body.startswith("calls") else f"def reward(prompt, step, **columns):\n{lines}"
    return load_reward(RewardConfig(name=name, code=code), worker)


def score(reward: Reward) -> Any:
    return reward.score_steps(BATCH)[0][0][0]


def pid(worker: RewardWorker, reward: Reward) -> int:
    return worker.pids[(reward.code or "", reward.name)]


def test_a_patched_library_is_patched_for_its_own_function_alone(worker: RewardWorker) -> None:
    body = "import math, statistics\nreturn math.sqrt(9) + statistics.fmean([1, 3])"
    first, patching = load(worker, "first", body), load(worker, "patching", f"import math, statistics\n{PATCHES}{body}")
    assert (score(first), score(patching), score(first)) == (5.0, 200.0, 5.0)
    assert score(load(worker, "later", body)) == 5.0


def test_the_same_code_under_two_names_has_two_states(worker: RewardWorker) -> None:
    first, second = load(worker, "first", COUNTER), load(worker, "second", COUNTER)
    assert [score(first), score(first), score(second), score(first)] == [1, 2, 1, 3]
    assert len({pid(worker, first), pid(worker, second), *worker.pids.values()}) == 2
    assert [len(worker.split(["Sa"], StepPattern("S"))), len(set(worker.pids.values()))] == [1, 3]


def test_frames_forged_for_later_calls_reach_no_other_function(worker: RewardWorker) -> None:
    """A thread answers every number there is from its own process, before and while others are asked."""
    body = """\
import gc, threading
from workbench.child.frames import packed
emit = next(one for one in gc.get_objects() if type(one).__name__ == "Emitter")
def forge():
    for number in range(2000):
        emit._send(packed({'reply': {'scores': [[9.0]]}, 'id': number}))
threading.Thread(target=forge, daemon=True).start()
return 1"""
    honest, forging = load(worker, "honest", COUNTER), load(worker, "forging", body)
    for count in range(1, 6):
        try:
            score(forging)
        except RewardError as error:
            assert "'forging'" in str(error)  # noqa: PT017
        assert score(honest) == count


def test_no_descriptor_of_another_process_can_be_reached(worker: RewardWorker) -> None:
    body = """\
import os
def is_open(fd):
    try: os.fstat(fd)
    except OSError: return False
    return True
return sum(is_open(fd) for fd in range(64))"""
    loaded = [load(worker, name, body) for name in "abc"]
    assert [score(reward) for reward in loaded] == [5.0] * 3  # input, output, errors, requests and frames
    reading = "import os\nreturn len(os.listdir('..'))"
    if worker.reduced_isolation() == ():
        with pytest.raises(RewardError, match="file access is off"):
            score(load(worker, "reading", reading))


def test_a_timer_that_exits_ends_its_own_function_alone(worker: RewardWorker) -> None:
    timer = "import os, threading\nthreading.Timer(0.2, os._exit, [7]).start()\n"
    exiting, counting = load(worker, "exiting", f"{timer}return 1"), load(worker, "counting", COUNTER)
    process = psutil.Process(pid(worker, exiting))
    with suppress(RewardError):  # on a slow machine it fires during the very call
        score(exiting)
    answered = 0
    while process.is_running():
        answered += 1
        assert score(counting) == answered
    assert score(counting) == answered + 1
    waiting = load(worker, "waiting", f"{timer}threading.Event().wait()")
    with pytest.raises(RewardError, match=r"^reward 'waiting': worker exited 7$"):
        score(waiting)
    assert score(counting) == answered + 2


def test_one_that_runs_out_of_memory_leaves_the_others_their_state(worker: RewardWorker) -> None:
    body = "global kept\nimport numpy\nkept = []\nwhile True: kept.append(numpy.empty(10 ** 7))"
    eating, counting = load(worker, "eating", body), load(worker, "counting", COUNTER)
    assert score(counting) == 1
    with pytest.raises(RewardError, match=r"'eating' raised .*MemoryError.*2 GB"):
        score(eating)
    assert score(counting) == 2


def test_one_that_runs_over_its_deadline_leaves_the_others_their_calls(worker: RewardWorker) -> None:
    """Another thread's calls of another function are answered while it hangs, and keep their state when it ends."""
    hanging, counting = load(worker, "hanging", "while True: pass"), load(worker, "counting", COUNTER)
    worker.deadline = 2.0
    errors: list[RewardError] = []

    def hang() -> None:
        try:
            score(hanging)
        except RewardError as error:
            errors.append(error)

    thread = threading.Thread(target=hang)
    thread.start()
    while not worker.busy:  # until the call has begun
        thread.join(0.01)
    worker.deadline = 60
    answered = 0
    while thread.is_alive():
        answered += 1
        assert score(counting) == answered
    assert answered > 2
    assert score(counting) == answered + 1
    assert isinstance(errors[0], RewardTimeout)


def test_together_they_have_one_quota_of_files(worker: RewardWorker) -> None:
    """48 MB and 40 MB are within it alone; together over 64 MB, and the larger one ends, whoever is asked."""
    body = "import os\nfor i in range({}): open(f'f{{i}}', 'wb').write(bytes(8 << 20))\nreturn len(os.listdir('.'))"
    large, small = load(worker, "large", body.format(6)), load(worker, "small", body.format(5))
    assert (score(large), score(small)) == (6.0, 5.0)
    with pytest.raises(RewardError, match=r"reward 'large': the folders of the reward functions held over 64 MB"):
        score(large)
    assert score(small) == 5.0


def test_together_they_have_one_limit_of_memory(worker: RewardWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """120 MB and 80 MB are within 150 MB alone, together they are not."""
    body = "global kept\nimport numpy\nkept = None\nkept = numpy.ones({} << 17)\nreturn 1"  # 8 bytes each
    large, small = load(worker, "large", body.format(120)), load(worker, "small", body.format(80))
    monkeypatch.setattr("workbench.rewards.sealed._MEASURED_SECONDS", 0)
    monkeypatch.setattr("workbench.rewards.sealed._TOGETHER", (("memory", 150 << 20, "too much memory"),))
    assert (score(large), score(small)) == (1.0, 1.0)
    with pytest.raises(RewardError, match=r"^reward 'large': too much memory$"):
        score(large)
    assert score(small) == 1.0


def test_the_function_unused_longest_ends_when_there_are_too_many() -> None:
    with RewardWorker(deadline=60, most_functions=2) as worker:
        first, second, third = (load(worker, name, COUNTER) for name in ("first", "second", "third"))
        assert [name for key in worker.pids if key is not None for name in [key[1]]] == ["second", "third"]
        assert [score(second), score(third), score(third), score(first), score(third)] == [1, 1, 2, 1, 3]
        assert score(second) == 1  # it began anew


@pytest.fixture
def its_own_zygote(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that are made and used here share no process with others, and the last of them ends theirs."""
    monkeypatch.setattr(sealed, "_zygotes", WeakValueDictionary())


@pytest.mark.usefixtures("its_own_zygote")
def test_workers_share_one_process_that_has_one_thread_and_ends_with_the_last_of_them() -> None:
    first, second = RewardWorker(deadline=60), RewardWorker(deadline=60)
    rewards = [load(worker, "counting", COUNTER) for worker in (first, second)]
    assert [score(reward) for reward in rewards] == [1, 1]
    zygote = psutil.Process(warm_zygote().pid)
    children = [psutil.Process(pid(worker, reward)) for worker, reward in zip((first, second), rewards, strict=True)]
    assert [child.ppid() for child in children] == [zygote.pid] * 2
    assert zygote.num_threads() == 1  # a fork of several threads can deadlock
    first.close()
    assert not children[0].is_running()
    assert score(rewards[1]) == 2
    second.close()
    assert not children[1].is_running()
    assert not zygote.is_running()


@pytest.mark.usefixtures("its_own_zygote")
def test_a_page_finds_the_process_of_the_pages_before_until_all_have_been_idle() -> None:
    pool = WorkerPool()
    assert score(load(pool.of("first"), "counting", COUNTER)) == 1
    zygote = psutil.Process(warm_zygote().pid)
    pool.end("first")
    assert zygote.is_running()
    assert score(load(pool.of("second"), "counting", COUNTER)) == 1
    assert warm_zygote().pid == zygote.pid
    pool.end_idle(time.monotonic() + IDLE_SECONDS)
    assert not zygote.is_running()
    pool.close()


@pytest.mark.usefixtures("its_own_zygote")
def test_a_killed_zygote_takes_its_children_along_and_is_replaced(worker: RewardWorker) -> None:
    counting = load(worker, "counting", COUNTER)
    assert score(counting) == 1
    child, zygote = psutil.Process(pid(worker, counting)), psutil.Process(warm_zygote().pid)
    zygote.kill()
    psutil.wait_procs([zygote, child], timeout=60)
    assert score(counting) == 1  # it began anew


def test_nothing_outlives_a_client_that_is_killed() -> None:
    """Not a function that hangs, nor what forked it, nor where patterns match."""
    program = """
import os, signal, threading
from tests.test_rewards_apart import COUNTER, load, score
from workbench.rewards import RewardWorker
from workbench.rewards.sealed import warm_zygote
worker = RewardWorker(deadline=60)
worker.start()
hanging = load(worker, "hanging", "while True: pass")
print(warm_zygote().pid, *worker.pids.values(), flush=True)
threading.Thread(target=score, args=[hanging], daemon=True).start()
while not worker.busy: pass
os.kill(os.getpid(), signal.SIGKILL)
"""
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == -9, done.stderr
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(set(pids)) == 3
    left = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    assert psutil.wait_procs(left, timeout=60)[1] == []


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="a run's processes are found there")
def test_forked_processes_carry_the_tag_by_which_a_runs_processes_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_RUN", "a-run")
    with RewardWorker(deadline=60) as worker:
        counting = load(worker, "counting", COUNTER)
        assert psutil.Process(pid(worker, counting)).environ()["WORKBENCH_RUN"] == "a-run"
