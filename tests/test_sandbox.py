"""The sandbox: one process with limits and no secrets, isolated if that is asked for; what the system lacks is told."""

import os
import re
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from textwrap import indent
from typing import Any

import psutil
import pytest

from tests.drafts import draft_of, own_row
from workbench.errors import PatternError, PatternSyntaxError, RewardError, RewardTimeout
from workbench.rewards import RewardConfig, Sandbox, load_reward, score_completions, score_group
from workbench.rewards.protocol import Batch
from workbench.sandbox import client, isolate
from workbench.schema import Group, Rollout, Step
from workbench.steps import StepPattern
from workbench.ui.handlers.page_state import builtin_row
from workbench.ui.handlers.scoring import isolation_note, rescore

BATCH = Batch(["p"], ["a"], steps=[["a"]])
COUNTER = "calls = []\ndef reward(prompt, step, **columns):\n    calls.append(step)\n    return len(calls)\n"


@pytest.fixture(scope="module")
def isolated() -> Iterator[Sandbox]:
    with Sandbox(deadline=60, isolate=True) as worker:
        yield worker


def run(worker: Sandbox, body: str, name: str = "mine") -> float | None:
    code = body if body == COUNTER else f"def mine(prompt, step, **columns):\n{indent(body, '    ')}\n"
    return load_reward(RewardConfig(name=name, code=code), worker).score(BATCH)[0][0][0]


# --- one process ------------------------------------------------------------------------------------------------------


def test_one_process_holds_functions_with_a_state_each_and_patterns(worker: Sandbox) -> None:
    assert [run(worker, COUNTER, name) for name in ("first", "first", "second", "first")] == [1, 2, 1, 3]
    pid = worker.pid
    assert len(worker.split(["Sa"], StepPattern("S"))) == 1
    assert worker.pid == pid
    psutil.Process(pid).kill()
    while worker._child is not None and worker._child.alive:
        pass
    assert run(worker, COUNTER, "first") == 1  # it began anew, and the next call worked


def test_it_is_asked_from_many_threads_and_nothing_gets_mixed_up(worker: Sandbox) -> None:
    with ThreadPoolExecutor(4) as pool:
        scores = pool.map(lambda number: run(worker, f"return {number}"), [*range(4)] * 20)
        assert list(scores) == [0.0, 1.0, 2.0, 3.0] * 20


def test_nothing_outlives_a_client_that_is_killed() -> None:
    program = """
import os, signal, threading
from workbench.rewards import RewardConfig, Sandbox, load_reward
from workbench.rewards.protocol import Batch
worker = Sandbox(deadline=60)
reward = load_reward(RewardConfig(name="mine", code="def mine(prompt, step):\\n    while True: pass"), worker)
print(worker.pid, flush=True)
threading.Thread(target=reward.score, args=[Batch(["p"], ["a"], steps=[["a"]])], daemon=True).start()
while not worker.running: pass
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == -9, done.stderr
    left = [psutil.Process(pid) for pid in map(int, done.stdout.split()) if psutil.pid_exists(pid)]
    assert psutil.wait_procs(left, timeout=60)[1] == []


# --- what the code has ------------------------------------------------------------------------------------------------

ASKS = """
import socket, subprocess
import own_helper

def mine(prompt, step, **columns):
    socket.create_connection(("127.0.0.1", {port})).close()
    subprocess.run(["true"], check=True)
    return own_helper.scale * len(open("data.txt").read())
"""


def test_code_has_the_network_files_programs_and_modules_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_helper.py").write_text("scale = 4\n")
    (tmp_path / "data.txt").write_text("xyz")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONSAFEPATH", "1")  # as in a run
    with socket.create_server(("127.0.0.1", 0)) as server, Sandbox() as worker:
        code = ASKS.format(port=server.getsockname()[1])
        assert load_reward(RewardConfig(name="mine", code=code), worker).score(BATCH)[0] == [[12.0]]


def test_no_secret_reaches_the_code_and_its_temporary_folder_goes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("https_proxy", "http://user:password@proxy")
    with Sandbox(deadline=60) as fresh:
        body = "import os\nassert 'PATH' in os.environ\nreturn sum('hf_secret' in v or 'password' in v for v in {})"
        assert run(fresh, body.format("os.environ.values()")) == 0.0
        body = "import tempfile\nopen(tempfile.mkstemp()[1], 'w').close()\nraise ValueError(tempfile.gettempdir())"
        with pytest.raises(RewardError) as caught:
            run(fresh, body)
        folder = Path(str(caught.value).rpartition(": ")[2])
        assert len(list(folder.iterdir())) == 1
    assert not folder.exists()
    kept = {"LANG": "C", "KEYBOARD": "de", "PYTHONPATH": "/here", "TOKENIZERS_PARALLELISM": "false"}
    secrets = {"HF_TOKEN": "x", "OPENAI_API_KEY": "x", "AWS_SECRET_ACCESS_KEY": "x", "DB_PASSWORD": "x"}
    assert client.without_secrets(kept | secrets) == kept


# --- isolated ---------------------------------------------------------------------------------------------------------


def test_what_is_missing_is_told_on_the_page(isolated: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (isolation_note(isolated) is None) == (isolated.missing_layers() == ())
    monkeypatch.setattr(isolated, "missing_layers", lambda: ("no Landlock (Linux only)",))
    note = isolation_note(isolated)
    assert note is not None
    assert (note.level, "no Landlock (Linux only)" in note.text) == ("warning", True)


def test_isolating_is_another_process() -> None:
    with Sandbox(deadline=60) as changing:
        changing.start()
        changing.set_isolated(True)
        if changing.missing_layers() == ():
            with pytest.raises(RewardError, match="file access"):
                run(changing, "import os\nreturn len(os.listdir('/')) > 0")


@pytest.mark.parametrize(
    ("layer", "body", "says"),
    [
        ("Landlock", "open('/etc/passwd')", r"\[Errno 13\].*'/etc/passwd' \(file access"),
        ("Landlock", "import os\nos.listdir('/etc')", "file access"),
        ("Landlock", "open('/proc/self/environ')", "file access"),
        ("Landlock", "open('/var/tmp/workbench-test', 'w')", "file access"),
        ("seccomp", "import os\nos.chmod('.', 0o755)", "file access"),
        ("seccomp", "import os\nos.mknod('pipe', 0o10644)", "file access"),
        ("seccomp", "import os\nos.memfd_create('x')", "Function not implemented"),
        ("seccomp", "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM)", "network is off"),
        ("seccomp", "import socket\nsocket.socket(socket.AF_UNIX)", "network is off"),
        ("seccomp", "import socket\nsocket.getaddrinfo('example.org', 80)", "network is off"),
        ("seccomp", "import os\nos.posix_spawn('/bin/true', ['true'], {})", "processes are off"),
        ("seccomp", "import os\nos.execv('/bin/true', ['true'])", "processes are off"),
        ("seccomp", "import os\nos.setsid()", "processes are off"),
        ("seccomp", "import multiprocessing as m\nm.get_context('fork').Process(target=int).start()", "processes are"),
    ],
)
def test_what_is_off_is_refused_and_named(isolated: Sandbox, layer: str, body: str, says: str) -> None:
    """Or the layer that would refuse it is reported missing, and it goes through."""
    if any(f"no {layer}" in missing for missing in isolated.missing_layers()):
        run(isolated, f"{body}\nreturn 1")
        return
    with pytest.raises(RewardError, match=says):
        run(isolated, f"{body}\nreturn 1")


@pytest.mark.parametrize(
    "body",
    [
        "import resource\nreturn len(resource.getrlimit(resource.RLIMIT_CPU)) / 2",
        "import threading\nseen = []\nt = threading.Thread(target=seen.append, args=(1,))\nt.start(); t.join()\n"
        "return len(seen)",
        "import asyncio\nasync def one(): return 1\nreturn asyncio.run(one())",
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(2) as pool: return sum(pool.map(int, '10'))",
        "import sympy\nreturn float(sympy.sympify('2 / 2'))",
        "import datetime, uuid\nreturn float(datetime.datetime.now().year > 2000 and bool(uuid.uuid4()))",
        "import os, signal\nos.kill(os.getpid(), 0)\nreturn 1",
    ],
    ids=["own limits", "thread", "asyncio", "pool", "sympy", "clock", "own signal"],
)
def test_what_rewards_need_stays(isolated: Sandbox, body: str) -> None:
    assert run(isolated, body) == 1.0


def test_the_parents_limits_and_priorities_stay_as_they_are(isolated: Sandbox) -> None:
    if isolated.missing_layers():
        pytest.skip("; ".join(isolated.missing_layers()))
    body = """
import fcntl, os, resource
parent, pipe = os.getppid(), os.pipe()[0]
refused = 0
for change in (
    lambda: resource.prlimit(parent, resource.RLIMIT_CORE, (0, 0)),
    lambda: os.setpriority(os.PRIO_PROCESS, parent, 19),
    lambda: os.sched_setaffinity(parent, {min(os.sched_getaffinity(parent))}),
    lambda: os.sched_setscheduler(parent, os.SCHED_BATCH, os.sched_param(0)),
    lambda: fcntl.fcntl(pipe, fcntl.F_SETOWN, parent),
):
    try:
        change()
    except PermissionError:
        refused += 1
return float(refused)
"""

    def of_this_process() -> list[Any]:
        return [
            resource.getrlimit(resource.RLIMIT_CORE),
            os.getpriority(os.PRIO_PROCESS, 0),
            os.sched_getaffinity(os.getpid()),
            os.sched_getscheduler(os.getpid()),
        ]

    before = of_this_process()
    assert run(isolated, body) == 5.0
    assert of_this_process() == before


# --- code that does its worst -----------------------------------------------------------------------------------------


HANGING = {
    "sleeps in C": "import ctypes\nctypes.CDLL(None).pause()",
    "holds the interpreter": "import re\nre.match('^(a+)+$', 'a' * 60 + 'b')",
    "prints without end": "while True:\n    print('x' * 1000)",
    "an error that loops": "class Loop(Exception):\n    def __str__(self):\n        while True: pass\nraise Loop",
}
"""Only the deadline ends them; loops are in ``test_rewards_worker.py``."""
HOSTILE = {
    # It ends the process.
    "exits": ("import os\nos._exit(3)", r"sandbox exited 3$"),
    "asks to exit": ("import sys\nsys.exit(4)", r"raised SystemExit .*line 3: 4$"),
    "interrupts": ("raise KeyboardInterrupt", r"raised KeyboardInterrupt"),
    "segfaults": ("import ctypes\nctypes.string_at(0)", r"at line 3: sandbox died of signal 11 \(SIGSEGV\)"),
    "closes every file": ("import os\nos.closerange(0, 64)", r"sandbox (exited \d+|closed its pipes)"),
    "breaks the interpreter": ("import builtins\nbuiltins.isinstance = None", r"sandbox exited 1$"),
    # It eats.
    "eats memory": (
        "import numpy\nkept = []\nwhile True:\n    kept.append(numpy.zeros(10 ** 7))",
        r"MemoryError.*4 GB",
    ),
    "recurses": ("return reward(prompt, step)", r"raised RecursionError"),
    "fills the disk": ("open('big', 'wb').write(bytes(80 * 2 ** 20))", r"a file may have 64 MB"),
    "opens without end": ("kept = [open('/dev/null') for _ in range(300)]", r"256 files may be open"),
    "starts threads without end": (
        "import threading\nwait = threading.Event()\n"
        "for _ in range(10 ** 5): threading.Thread(target=wait.wait, daemon=True).start()",
        r"can't start new thread",
    ),
    "prints 10 MB": ("print('x' * 10 ** 7)", None),
    # It reaches out.
    "opens a socket": ("import socket\nsocket.socket()", r"network is off"),
    "reads a page": ("from urllib.request import urlopen\nurlopen('http://127.0.0.1:9/')", r"network is off"),
    "forks": ("import os\nif os.fork() == 0: os._exit(0)", r"processes are off"),
    "runs a program": ("import subprocess\nsubprocess.run(['true'])", r"processes are off"),
    "signals its parent": ("import os\nos.kill(os.getppid(), 0)", r"processes are off"),
    "reads a file": ("open('/etc/passwd').read()", r"/etc/passwd' \(file access is off"),
}
"""The body of a step reward, and a regular expression found in its error, None where it has none."""


def code_of(body: str) -> str:
    return f"def reward(prompt, step, **columns):\n{indent(body, '    ')}\n    return 1.0\n"


GROUP = Group("p", tuple(Rollout(tuple(range(len(texts))), texts, True) for texts in (("Sa", "Sb", "$"), ("Sc", "$"))))
HARMLESS = "def reward(prompt, step, **columns):\n    return 2.0\n"


def in_a_run(worker: Sandbox, code: str) -> list[Any]:
    """What a run's trainer gets."""
    reward = load_reward(RewardConfig(name="reward", code=code), worker)
    scored, _ = score_completions(["p", "p"], GROUP.rollouts, [{}, {}], StepPattern("S"), [reward], worker=worker)
    return [row.rewards for row in scored]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_code_gets_its_message_and_the_next_call_works(name: str, isolated: Sandbox) -> None:
    body, says = HOSTILE[name]
    view = rescore(draft_of(own_row(code_of(body), "reward"), regex="S").but(group=GROUP), isolated)
    if says is None or (" off" in says and isolated.missing_layers()):
        assert view.credit is not None
    else:
        assert view.rows[0] is not None
        assert re.search(says, view.rows[0].text)
    assert in_a_run(isolated, HARMLESS) == [(2.0, 2.0), (2.0,)]


@pytest.mark.parametrize("name", HANGING)
def test_code_that_hangs_is_ended_and_others_are_answered_meanwhile(
    name: str, isolated: Sandbox, worker: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = code_of(HANGING[name])
    load_reward(RewardConfig(name="reward", code=code), worker)
    with ThreadPoolExecutor(1) as pool, monkeypatch.context() as hurried:
        hurried.setattr(worker, "deadline", 0.5)
        hangs = pool.submit(in_a_run, worker, code)
        assert in_a_run(isolated, HARMLESS) == [(2.0, 2.0), (2.0,)]
        with pytest.raises(RewardTimeout):
            hangs.result()
    assert in_a_run(worker, HARMLESS) == [(2.0, 2.0), (2.0,)]


def test_what_was_refused_is_found_behind_other_errors() -> None:
    outer = RuntimeError("could not fetch")
    outer.__context__ = ConnectionError("no luck")
    outer.__context__.__cause__ = OSError(100, os.strerror(100))
    outer.__context__.__cause__.__context__ = outer  # a circle
    assert isolate.what_is_off(outer) == "network is off"


# --- step patterns: the message each bad one gets on the page, and what a run makes of it -----------------------------


def group(*texts: str) -> Group:
    return Group("p", tuple(Rollout((1, 2), (text, ""), True) for text in texts))


@pytest.mark.parametrize(
    ("regex", "texts", "message"),
    [
        ("(a|aa)+$", ["b", "aab", "a" * 50 + "b"], "rollout 3"),
        ("(" * 3000, ["a"], "maximum recursion"),
        ("[", ["a"], "character 1"),
        ("x*", ["a"], "empty text"),
        ("a" * 10_001, ["a"], "10,001"),
    ],
)
def test_a_bad_pattern_gets_its_message_beside_the_field(
    worker: Sandbox, regex: str, texts: list[str], message: str
) -> None:
    draft = draft_of(builtin_row("step_correctness"), regex=regex)
    view = rescore(draft.but(group=replace(group(*texts), columns=draft.columns)), worker)
    assert view.pattern is not None
    assert message in view.pattern.text
    assert "stale" in view.drawing


def test_in_a_run_a_text_that_cannot_be_split_is_unscored_and_the_others_are_not(worker: Sandbox) -> None:
    texts = ["aab", "a" * 50 + "b", "a"]
    rollouts = group(*texts).rollouts
    reward = load_reward(always_one)
    scored, _ = score_completions(["p"] * 3, rollouts, [{}] * 3, StepPattern("(a|aa)+$"), [reward], worker=worker)
    assert [one.rewards for one in scored] == [(1.0,), (None,), (1.0,)]
    assert [one.matched for one in scored] == [False, False, True]


def always_one(prompt: str, step: str, **columns: object) -> float:
    return 1.0


@pytest.mark.parametrize("leniently", [False, True])
@pytest.mark.parametrize(("regex", "kind"), [("[", PatternSyntaxError), ("x*", PatternError)])
def test_a_pattern_that_cannot_be_used_ends_a_run_too(
    worker: Sandbox, regex: str, kind: type[PatternError], leniently: bool
) -> None:
    for texts in ([], ["a"]):
        with pytest.raises(kind):
            worker.split(texts, StepPattern(regex), leniently=leniently)


@pytest.mark.parametrize("leniently", [False, True])
def test_a_text_of_over_a_thousand_steps_stays_whole_and_stops_no_other(worker: Sandbox, leniently: bool) -> None:
    one, many = worker.split(["a", "a" * 200_000], StepPattern("a", "is"), leniently=leniently)
    assert (one.steps, one.failed) == ([Step(0, 1)], False)
    assert (many.steps, many.failed) == ([Step(0, 200_000, matched=False)], True)


def test_a_group_scored_with_a_worker_is_split_there(worker: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.steps.pattern._compiled", None)
    scored = score_group(group("Sa", "SbSc"), StepPattern("S"), [always_one], worker=worker)
    assert scored.step_rewards == [[1.0], [1.0, 1.0]]
