"""The real page in a real Chromium: the app as a process of its own, and a browser page that minds what it sees."""

import base64
import inspect
import os
import random
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psutil
from axe_playwright_python.sync_playwright import Axe
from playwright._impl import _sync_base
from playwright.sync_api import Browser, Page, Request, expect, sync_playwright

ROOT = Path(__file__).resolve().parents[1]


def _callers(context: int = 0) -> list[inspect.FrameInfo]:
    """As ``inspect.stack``, which looks through all modules for frames of no file: 12 ms at each call of Playwright."""
    frame, found = inspect.currentframe(), list[inspect.FrameInfo]()
    while frame := frame and frame.f_back:
        code = frame.f_code
        found.append(inspect.FrameInfo(frame, code.co_filename, frame.f_lineno, code.co_name, None, None))
    return found


_sync_base.inspect = SimpleNamespace(stack=_callers)
SECONDS = 300_000  # milliseconds to wait for anything; the machine may be busy
expect.set_options(timeout=SECONDS)  # in every test that looks at a page, whichever file is run alone


BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""In this order: the first one is the same browser without a window, which starts in a third of the time."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """The system's Chromium, with the context that ``visit`` opens tabs in. Fails where there is none: a page nobody
    looked at is not tested."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert found, f"none of {', '.join(BROWSERS)} is installed; `make browser` installs one"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        try:
            browser.new_context()
            yield browser
        finally:
            browser.close()


@contextmanager
def busy_machine() -> Iterator[None]:
    """Two processes that only loop, beside the browser and the app."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@dataclass(frozen=True)
class App:
    """A served page: its address, and the token its link was printed with."""

    url: str
    pid: int
    workspace: Path
    token: str

    @property
    def link(self) -> str:
        return f"{self.url}?token={self.token}"

    @property
    def headers(self) -> dict[str, str]:
        """What a script sends to be let in."""
        return {"Authorization": f"Bearer {self.token}"}


CARDS = "#drawing .rollout:not(.streaming)"
CHIPS = f"{CARDS} .chip"
PATTERN = r"(?m)^(?:Step \d+|Answer):"
"""What the page opens with."""
GROUP_DRAWN = (
    "(() => { const h = document.querySelector('#heatmap')?.heatmap; return h && !h.streams"
    " && h.data.rollouts.length === 8 && h.cards.querySelector('.chip') !== null; })()"
)
"""True once the group that the page opens with is drawn."""
_tokens: dict[str, str] = {}
"""Of the apps served by now, by address: ``visit`` opens each with its own."""


def free_port() -> int:
    """A port that nobody has, below those that the system gives to whoever connects."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@contextmanager
def serve(workspace: Path, *flags: str, port: int | None = None) -> Iterator[App]:
    """``python app.py`` on a free port, ready when it says where it is."""
    port = port or free_port()
    process = subprocess.Popen(
        [sys.executable, "app.py", "--port", str(port), "--workspace", str(workspace), *flags],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert "http://" in line, f"the app did not start: {line!r}, exit code {process.poll()}"
        parts = urlsplit(line.split()[-1])
        url = f"{parts.scheme}://{parts.netloc}/"
        _tokens[url] = parse_qs(parts.query).get("token", [""])[0]
        yield App(url, process.pid, workspace, _tokens[url])
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def children(app: App, module: str) -> list[psutil.Process]:
    """The app's living children that run this module, the newest last."""
    found = []
    for one in psutil.Process(app.pid).children(recursive=True):
        with suppress(psutil.Error):  # it may end while it is looked at
            if one.status() != psutil.STATUS_ZOMBIE and any(module in word for word in one.cmdline()):
                found.append(one)
    return found


@contextmanager
def stopped(app: App, module: str) -> Iterator[psutil.Process]:
    """The app's worker of this module held still, so that what it is asked for cannot be over before a test acts."""
    found = children(app, module)
    assert found, f"no child of the app runs {module}"
    found[-1].suspend()
    try:
        yield found[-1]
    finally:
        with suppress(psutil.NoSuchProcess):
            found[-1].resume()


def expect_reward(page: Page, place: int, label: str, kind: str) -> None:
    """Expect a row of the list of rewards to be called so, and to score steps or outcomes."""
    switch = page.locator(f"#reward-on-{place}.{kind}")
    expect(switch).to_contain_text(label)


def add_reward(page: Page, name: str) -> None:
    """Choose what to add to the list of rewards."""
    page.locator("#add-reward").click()
    page.get_by_role("menuitem", name=name).first.click()


def write_reward(page: Page, code: str) -> None:
    """Put this code into the open editor, in place of what it holds."""
    page.locator("#reward-code .cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(code)


def add_own_reward(page: Page, code: str) -> None:
    """Add a reward of one's own, and leave its editor open."""
    add_reward(page, "Your own step function")
    expect(page.locator("#reward-code .cm-content")).to_contain_text("def my_step_reward")
    write_reward(page, code)


def close_editor(page: Page) -> None:
    """Have the cards in the editor's place again."""
    page.locator("#editor-done").click()
    expect(page.locator("#reward-editor")).to_be_hidden()


def set_regex(page: Page, text: str) -> None:
    page.locator("#regex textarea").fill(text)


def advantages(page: Page) -> list[list[float]]:
    """Those of the group on Inspect, by rollout and token."""
    found: list[list[float]] = page.evaluate(
        "document.querySelector('#heatmap').heatmap.data.rollouts.map(r => r.advantages)"
    )
    return found


def choose(page: Page, field: str, name: str) -> None:
    """Choose from a list of choices by its elem_id."""
    page.locator(f"#{field} input").click()
    page.get_by_role("option", name=name, exact=True).click()


COUNTS = """const ask = window.fetch;
window.pending = 0;
window.fetch = async (...asking) => {
  const isEvent = String(asking[0]?.url ?? asking[0]).includes("run/predict");
  window.pending += isEvent;
  return ask(...asking).finally(() => window.pending -= isEvent);
};"""
CALM = """() => new Promise((then) =>
  requestAnimationFrame(() => requestAnimationFrame(() => then(window.pending === 0))))"""
"""Every answer is there and drawn: no button is drawn anew under the pointer."""


FIRST = [
    "Start with 7, add 3, multiply by 8, add 8, subtract 7, add 7.",
    "tiny, temperature 1, seed 0",
    r"(?m)^(?:Step \d+|Answer): (starts)",
    "step_correctness (step), answer_correctness (outcome)",
    "process",
]
"""What the page opens with: prompt, policy, pattern, rewards and scheme."""
OPENING = """(first) => JSON.stringify(first) === JSON.stringify(
  document.querySelector("#heatmap").heatmap.data.source?.slice(0, 5).map(([, text]) => text))"""
"""True once the group that is drawn is the first one, scored as it is then."""


def is_event(request: Request) -> bool:
    """Return whether it tells the app of something that happened on the page."""
    return "gradio_api/run/predict" in request.url


def start_over(page: Page) -> None:
    """Have Inspect as it opens, by the page's own button."""
    page.set_viewport_size({"width": 1280, "height": 860})
    page.locator("#inspect-tab-button").click()
    show_more(page)
    with page.expect_request(is_event):
        page.locator("#start-over").click()
    page.wait_for_function(OPENING, arg=FIRST)
    page.wait_for_function(CALM)
    page.wait_for_function(GROUP_DRAWN)


def show_more(page: Page) -> None:
    """Unfold More, below the controls, if it is folded."""
    more = page.locator("#more > button")
    if "open" not in (more.get_attribute("class") or ""):
        more.click()


def open_config(page: Page, file: Path) -> None:
    """Open a configuration file."""
    with page.expect_file_chooser() as chooser:
        page.locator("#door-file").click()
    chooser.value.set_files(file)


def open_by_name(page: Page, name: str) -> None:
    """Open data that comes along, or a path in the workspace."""
    field = page.locator("#door-path input")
    if not field.is_visible():
        page.get_by_role("button", name="Open by name").click()
    field.fill(name)
    field.press("Enter")


def drop_file(page: Page, file: Path, onto: str = "#view") -> None:
    """Drop a file somewhere on the page."""
    bytes_of = base64.b64encode(file.read_bytes()).decode()
    page.evaluate(
        """([name, bytes, onto]) => {
          const dataTransfer = new DataTransfer();
          dataTransfer.items.add(new File([Uint8Array.from(atob(bytes), (one) => one.charCodeAt(0))], name));
          for (const type of ["dragenter", "dragover", "drop"]) {
            const event = new DragEvent(type, { bubbles: true, cancelable: true, dataTransfer });
            document.querySelector(onto).dispatchEvent(event);
          }
        }""",
        [file.name, bytes_of, onto],
    )


def share(page: Page, item: str) -> None:
    """Choose an item of the Share menu by its id."""
    page.locator("#share-tools").get_by_role("button", name="Share").click()
    page.locator(f"#{item}").click()


@contextmanager
def heard(page: Page) -> Iterator[None]:
    """A click inside has reached the app when the block ends: it is answered, and all that else is posted meanwhile are
    the scripts' own questions."""
    with page.expect_response(lambda answer: answer.request.method == "POST" and "component" not in answer.url):
        yield


def expect_rollouts(page: Page, count: int, holder: str = "#heatmap") -> None:
    """A group of this many is drawn, exact copies as one; none of it is being sampled any more."""
    page.wait_for_function(
        "([holder, count]) => { const h = document.querySelector(holder)?.heatmap;"
        " return h && !h.streams && h.data.rollouts.length === count"
        " && h.cards.children.length === h.data.rollouts.filter((r) => r.copyOf === undefined).length; }",
        arg=[holder, count],
    )


WRAPPED = """() => [...document.querySelectorAll(".wh .rollout:not([hidden]) .text .step > .tokens")].filter((node) => {
  const lines = node.textContent.replace(/\\n$/, "").split("\\n").length;
  return Math.round(node.getBoundingClientRect().height / parseFloat(getComputedStyle(node).lineHeight)) > lines;
}).length"""
WIDTHS = (1280, 1366, 1440, 1600, 1920, 2560)


def expect_no_wrapped_steps(page: Page) -> None:
    """On every usual screen each line of a step is one line of its card, and nothing scrolls sideways."""
    assert page.locator(".wh .step .tokens").count() > 0
    found = {}
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 860})
        page.wait_for_function("width => innerWidth === width", arg=width)
        found[width] = (page.evaluate(WRAPPED), page.evaluate("document.documentElement.scrollWidth - innerWidth"))
    assert found == dict.fromkeys(WIDTHS, (0, 0))
    page.set_viewport_size({"width": 1280, "height": 860})


def serious(page: Page, within: str = "body") -> list[str]:
    """What axe finds there that keeps people from using the page."""
    # Built as the first ones are; checking all takes half a minute for cards, and minutes for a table of 300 rows.
    alike = [[".rollout:nth-child(n + 2)"], ["tbody tr:nth-child(n + 4)"], [".column:nth-child(n + 4)"]]
    found = Axe().run(page, context={"include": [[within]], "exclude": alike}).response["violations"]
    return [
        f"{violation['id']}: {node['target']} {node['failureSummary']}"
        for violation in found
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]


@dataclass
class Seen:
    """What a page did that it should not: errors on its console, and requests that left the machine."""

    origin: str
    errors: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self._request(request.url))

    def _request(self, url: str) -> None:
        if not url.startswith((self.origin, "data:", "blob:", "file:")):
            self.foreign.append(url)

    def check(self) -> None:
        """Fail for what came since the last check."""
        errors, self.errors = self.errors, []
        foreign, self.foreign = self.foreign, []
        assert errors == []
        assert foreign == []


_seen: dict[Page, Seen] = {}
"""Of the pages that ``visit`` opened."""


def expect_no_errors(page: Page) -> None:
    """Expect that nothing has gone wrong in a page of ``visit`` since this was expected last."""
    _seen[page].check()


def with_token(url: str) -> str:
    """The address as a link that lets in."""
    token = _tokens.get(url.split("?")[0])
    return f"{url}{'&' if '?' in url else '?'}token={token}" if token else url


@contextmanager
def visit(
    browser: Browser,
    url: str,
    *,
    width: int = 1280,
    height: int = 860,
    script: str = "",
    apart: bool = False,
    **media: Any,
) -> Iterator[Page]:
    """A tab on ``url``, of an app once its opening is answered; at the end nothing may have gone wrong in it.

    Tabs share the browser's cache, so that a page's scripts are fetched and compiled once; one that is ``apart`` has a
    cache, cookies and storage of its own, as another person's. ``script`` runs in the page before anything else does;
    ``media`` is what the page is told of its reader: ``color_scheme``, ``reduced_motion``.
    """
    context = browser.new_context() if apart else browser.contexts[0]
    page = context.new_page()
    page.set_default_timeout(SECONDS)
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(**media)
    # Gradio calls off what is under way when a page is left, and a page that waits for the next one complains of that.
    page.add_init_script("addEventListener('beforeunload', () => { console.error = () => {} })")
    page.add_init_script(COUNTS)
    if script:
        page.add_init_script(script)
    _seen[page] = Seen(url.split("?")[0])
    _seen[page].watch(page)
    try:
        page.goto(with_token(url))
        if url.split("?")[0] in _tokens:
            expect(page.locator("html[data-opened]")).to_be_attached()
        yield page
        expect_no_errors(page)
    finally:
        if apart:
            context.close()
        else:
            page.close()
