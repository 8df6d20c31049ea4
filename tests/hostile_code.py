"""Reward functions that misbehave, each in a way that somebody's has or could, and what is said of each.

None of them does harm where a layer of
the isolation is missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import indent


@dataclass(frozen=True)
class Hostile:
    """``body`` is the body of a step reward; ``says`` a regular expression found in its error, None where it has none.

    ``hangs`` where only the deadline ends it; ``needs`` is the layer ("Landlock" or "seccomp") that refuses it.
    """

    name: str
    body: str
    says: str | None
    hangs: bool = False
    needs: str | None = None

    @property
    def code(self) -> str:
        return f"def reward(prompt, step, **columns):\n{indent(self.body, '    ')}\n    return 1.0\n"


_DEADLINE = r"ran over its deadline of .* and was stopped"
HOSTILE = (
    # It never ends.
    Hostile("loops", "while True:\n    pass", _DEADLINE, hangs=True),
    Hostile(
        "swallows everything",
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        _DEADLINE,
        hangs=True,
    ),
    Hostile("waits", "import threading\nthreading.Event().wait()", _DEADLINE, hangs=True),
    Hostile("sleeps in C", "import ctypes\nctypes.CDLL(None).pause()", _DEADLINE, hangs=True),
    Hostile("holds the interpreter", "import re\nre.match('^(a+)+$', 'a' * 60 + 'b')", _DEADLINE, hangs=True),
    Hostile("computes a huge power", "9 ** 9 ** 9", _DEADLINE, hangs=True),
    Hostile("prints without end", "while True:\n    print('x' * 1000)", _DEADLINE, hangs=True),
    Hostile(
        "an error that loops",
        "class Loop(Exception):\n    def __str__(self):\n        while True: pass\nraise Loop",
        _DEADLINE,
        hangs=True,
    ),
    # It ends the process.
    Hostile("exits", "import os\nos._exit(3)", r"sandbox exited 3$"),
    Hostile("asks to exit", "import sys\nsys.exit(4)", r"raised SystemExit .*line 3: 4$"),
    Hostile("interrupts", "raise KeyboardInterrupt", r"raised KeyboardInterrupt"),
    Hostile("segfaults", "import ctypes\nctypes.string_at(0)", r"at line 3: sandbox died of signal 11 \(SIGSEGV\)"),
    Hostile("aborts", "import os\nos.abort()", r"sandbox died of signal 6 \(SIGABRT\)"),
    Hostile("kills itself", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", r"signal 9 \(SIGKILL\)"),
    Hostile("closes every file", "import os\nos.closerange(0, 64)", r"sandbox (exited \d+|closed its pipes)"),
    # It eats.
    Hostile(
        "eats memory",
        "import numpy\nkept = []\nwhile True:\n    kept.append(numpy.zeros(10 ** 7))",
        r"MemoryError.*4 GB",
    ),
    Hostile("recurses", "return reward(prompt, step)", r"raised RecursionError"),
    Hostile(
        "recurses in C",
        "import sys\nsys.setrecursionlimit(10 ** 9)\nnested = []\n"
        "for _ in range(10 ** 5): nested = [nested]\nrepr(nested)",
        r"sandbox died of signal 11",
    ),
    Hostile("fills the disk", "open('big', 'wb').write(bytes(80 * 2 ** 20))", r"a file may have 64 MB"),
    Hostile("opens without end", "kept = [open('/dev/null') for _ in range(300)]", r"256 files may be open"),
    Hostile(
        "starts threads without end",
        "import threading\nwait = threading.Event()\n"
        "for _ in range(10 ** 5): threading.Thread(target=wait.wait, daemon=True).start()",
        r"can't start new thread",
    ),
    Hostile("prints 100 MB", "print('x' * 10 ** 8)", None),
    # It reaches out.
    Hostile("opens a socket", "import socket\nsocket.socket()", r"network is off", needs="seccomp"),
    Hostile(
        "reads a page",
        "from urllib.request import urlopen\nurlopen('http://127.0.0.1:9/')",
        r"network is off",
        needs="seccomp",
    ),
    Hostile("forks", "import os\nif os.fork() == 0: os._exit(0)", r"processes are off", needs="seccomp"),
    Hostile("runs a program", "import subprocess\nsubprocess.run(['true'])", r"processes are off", needs="seccomp"),
    Hostile("signals its parent", "import os\nos.kill(os.getppid(), 0)", r"processes are off", needs="seccomp"),
    Hostile("reads a file", "open('/etc/passwd').read()", r"/etc/passwd' \(file access is off", needs="Landlock"),
    Hostile("breaks the interpreter", "import builtins\nbuiltins.isinstance = None", r"sandbox exited 1$"),
)
