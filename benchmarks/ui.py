"""How soon the page answers a hand, measured in a real Chromium against the times it aims for.

A key pressed in the step pattern until the tokens are painted anew, with 8 rollouts of 256 tokens and the default
rewards; and 16 rollouts of 4,096 tokens handed to the drawing until they are painted. Times are taken inside the page:
from the key's own event, or the call, to the frame after the new cards. The processor time that the app and what it
starts take when a page is loaded, once a policy is ready. Then the longest task for a run of 10,000 rows on Train (see
``following``). Playwright and a Chromium are needed, as for the tests.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import psutil

from benchmarks import Measure
from benchmarks.following import LIVE, ROWS, longest_tasks
from workbench.credit import credit_group
from workbench.data import load_task
from workbench.errors import ChildDied, WorkbenchError
from workbench.rewards import score_group
from workbench.schema import Group, Rollout
from workbench.ui.handlers.session import GroupStore
from workbench.views.heatmap import EXPLAINED_AT_ONCE, credit_payload, to_json

if TYPE_CHECKING:
    from playwright.sync_api import Page

KEYSTROKE_AIM = 0.1
DRAWING_AIM = 1.5
TASK_AIM = 0.05
LOAD_AIM = 0.8
LOADS = 3
START, STEP_TOKENS = 7, 12
LOAD_SETTLED = 2.0
KEYSTROKES = 20
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")

WATCH = """() => {
  const painted = (then) => requestAnimationFrame(() => { const c = new MessageChannel(); c.port1.onmessage = then; c.port2.postMessage(0); });
  globalThis.bench = { pressed: 0 };
  bench.press = () => { bench.took = new Promise((resolve) => { bench.done = resolve; }); };
  document.addEventListener("keydown", () => { bench.pressed = performance.now(); }, { capture: true });
  new MutationObserver(() => {
    const began = bench.pressed;
    bench.pressed = 0;
    if (began) painted(() => bench.done(performance.now() - began));
  }).observe(document.querySelector("#heatmap .cards"), { childList: true });
  bench.draw = (payload) => new Promise((resolve) => {
    const began = performance.now();
    document.querySelector("#heatmap").heatmap.draw(payload);
    document.body.offsetHeight;
    painted(() => resolve(performance.now() - began));
  });
}"""  # noqa: E501


def measure(repeat: int) -> list[Measure]:
    """Raises WorkbenchError where Playwright or a browser is missing."""
    with tempfile.TemporaryDirectory() as folder:
        typed = GroupStore(Path(folder)).keep(made_up_group(8, 256)).stem
        with served(Path(folder)) as link, chromium_page(f"{link}&saved={typed}") as page:
            page.wait_for_selector("#heatmap .rollout .chip", timeout=120_000)
            page.wait_for_function("document.querySelector('#policy-status').textContent.includes('parameters')")
            page.evaluate(WATCH)
            keystroke = _keystrokes(page, KEYSTROKES * repeat)
            drawing = [page.evaluate("bench.draw", _large_drawing()) / 1000 for _ in range(max(3, repeat))]
        with served(Path(folder)) as link:
            tasks = longest_tasks(Path(folder), lambda more: chromium_page(link + more), repeat)
            loads = _loads(link, LOADS * repeat)
    return [
        _against("keystroke to repaint, 8 × 256 tokens, median", median(keystroke), KEYSTROKE_AIM),
        _against("keystroke to repaint, slowest of " + str(len(keystroke)), max(keystroke), KEYSTROKE_AIM),
        _against("page start, processor time of the app, median", median(loads), LOAD_AIM),
        _against("16 × 4,096 tokens drawn, median", median(drawing), DRAWING_AIM),
        _against(f"run of {ROWS:,} rows drawn first, longest task", tasks["drawn"].longest, TASK_AIM),
        _against("the same, most processor time of a task", tasks["drawn"].processor, TASK_AIM),
        _against(f"{LIVE} more rows followed live, longest task", tasks["followed"].longest, TASK_AIM),
        _against("the same, most processor time of a task", tasks["followed"].processor, TASK_AIM),
    ]


def made_up_group(size: int, length: int) -> Group:
    """Rollouts of just so many tokens that work out one long chain: a step every dozen tokens, a fifth wrong."""
    chance = random.Random(0)
    operations = [["+", str(chance.randrange(1, 9))] for _ in range(length // STEP_TOKENS)]
    rollouts: list[Rollout] = []
    for _ in range(size):
        texts: list[str] = []
        value = START
        for number, (_, added) in enumerate(operations[: (length - 3) // STEP_TOKENS], 1):
            shown = value + int(added) + (chance.random() < 0.2)
            texts += ["Step", " ", str(number), ":", " ", str(value), " +", " ", added, " =", f" {shown}", "\n"]
            value = shown
        texts += [" "] * (length - 3 - len(texts))
        texts = [*texts, "\n", f"Answer: {value}", "<|end|>"]
        logprobs = tuple(-chance.random() for _ in texts)
        ids = range(len(rollouts), len(rollouts) + len(texts))  # of each its own: equal answers are drawn once
        rollouts.append(Rollout(tuple(ids), tuple(texts), True, logprobs, logprobs))
    answer = START + sum(int(added) for _, added in operations)
    columns = {"start": START, "operations": operations, "answer": str(answer)}
    prompt = f"Start with {START}, {', '.join(f'add {added}' for _, added in operations)}.\n"
    return Group(prompt, tuple(rollouts), columns, "made up")


def _large_drawing() -> str:
    task = load_task("chain-arithmetic")
    scored = score_group(made_up_group(16, 4096), task.pattern, ["step_correctness", "answer_correctness"])
    return to_json(credit_payload(credit_group(scored), explain_at_most=EXPLAINED_AT_ONCE))


def _keystrokes(page: Page, count: int) -> list[float]:
    """Seconds from a key to the new drawing: a space at the pattern's end, taken back, and again."""
    page.click("#regex textarea")
    page.keyboard.press("Control+End")
    took: list[float] = []
    for number in range(count + 1):  # the first is not counted
        page.evaluate("bench.press()")
        page.keyboard.press("Space" if number % 2 == 0 else "Backspace")
        took.append(page.evaluate("bench.took") / 1000)  # a promise: a test that looks at every frame would slow them
    return took[1:]


def _loads(link: str, count: int) -> list[float]:
    """Processor seconds of this process's app and its children for each page loaded, in a browser that knows none."""
    app = next(child for child in psutil.Process().children() if "app" in child.cmdline())
    took: list[float] = []
    spent: dict[int, float] = {}

    def total() -> float:
        for process in (app, *app.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                spent[process.pid] = sum(process.cpu_times()[:2])
        return sum(spent.values())

    for _ in range(count):
        before = total()
        with chromium_page(link) as page:
            page.wait_for_selector("#heatmap .rollout .chip", timeout=120_000)
            page.wait_for_timeout(LOAD_SETTLED * 1000)
            took.append(total() - before)
    return took


def _against(what: str, seconds: float, aim: float) -> Measure:
    return Measure(what, round(seconds, 4), "s", round(seconds / aim, 2), f"the {aim:g} s aimed for")


@contextmanager
def served(workspace: Path) -> Iterator[str]:
    """The page on a free port of this machine; the link it printed."""
    command = [sys.executable, "-m", "workbench", "app", "--no-browser", "--json", "--workspace", str(workspace)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1"}
    app = subprocess.Popen([*command, "--port", str(_free_port())], stdout=subprocess.PIPE, text=True, env=environment)
    assert app.stdout is not None
    try:
        line = app.stdout.readline()
        if "http" not in line:
            raise ChildDied(f"the page's process said {line!r} in place of its link (exit code {app.poll()})")
        yield str(json.loads(line)["url"])
    finally:
        app.terminate()
        app.wait()
        app.stdout.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def chromium_page(url: str) -> Iterator[Page]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise WorkbenchError("bench ui needs Playwright; pip install -r tests/requirements.txt adds it") from error
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        raise WorkbenchError(
            f"bench ui needs a browser and there is none of {', '.join(BROWSERS)}; make browser installs one"
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        try:
            page = browser.new_page(viewport={"width": 1280, "height": 860})
            page.set_default_timeout(120_000)
            page.goto(url)
            yield page
        finally:
            browser.close()
