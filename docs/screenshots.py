"""Pictures of the page: ``make screenshots``, or ``PYTHONPATH=. python docs/screenshots.py [FOLDER] [--only NAME …]``.

Views and states in light and dark, 1920, 1440, 1366 and 390 px wide, as PNG files named after view, width and theme. A
step of a view is a selector that is clicked, a selector and a text that is filled in, a function of the page, or,
after ``see``, what has to be seen before the next one. The live run is started for its pictures.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from playwright.sync_api import Browser, Error, Page, expect

from tests.browsing import SECONDS, App, add_own_reward, add_reward, chromium, open_by_name, serve, visit, with_token
from tests.credits import worked_credit
from tests.stored_runs import learning, store
from tests.watched import before_and_now

SIZES = ((1440, 900), (1366, 768), (1920, 1080), (390, 844))
Step = str | tuple[str, str] | Callable[[Page], object]


def see(selector: str, text: str = "") -> Step:
    return lambda page: expect(page.locator(selector).first).to_contain_text(text)


def into_sight(selector: str) -> Step:
    return lambda page: page.locator(selector).first.evaluate("node => node.scrollIntoView({ block: 'center' })")


def tab(name: str) -> Step:
    return lambda page: page.get_by_role("tab", name=name).click()


def chosen(page: Page) -> None:
    for name in ("process-0", "process-1", "outcome-0"):
        page.get_by_label(f"Choose {name}", exact=True).check()


RUNS = (tab("Runs"), see("#runs tbody tr"))
PANEL = "#heatmap .summary button:text-is('Check this setup')"
PROBES = (PANEL, "#probe-demo", see("#reward-on-0", "sums_and_answer"), "#probe", see("#probe-found tbody tr"))
FAILING = "def mine(prompt, step, **columns):\n    return 1 / (len(step) - 19)\n"
INSPECT: dict[str, tuple[Step, ...]] = {
    "inspect": (),
    "pinned": (".rollout .chip >> nth=2",),
    "entropy": (lambda page: page.get_by_label("Colour by").select_option("entropy"),),
    "no-match": (("#regex textarea", "nowhere to be found"), see("#drawing mark", "no match")),
    "bad-pattern": (("#regex textarea", "(?m)^(Step"), see("#pattern-note", "invalid pattern")),
    "presets": ("button:text('Try all presets')", see("#preset-table tbody tr")),
    "reward-error": (lambda page: add_own_reward(page, FAILING), see("#editor-said", "ZeroDivisionError")),
    "reward-editor": ("#reward-edit-0", see("#editor-results", "Rollout 1")),
    "reward-model-form": (lambda page: add_reward(page, "A reward model"), ("#model-path :is(input, textarea)", "/no"),
                          "#model-add", see("#model-note .drawn.error")),
    "step-values": (lambda page: add_reward(page, "Step values"), ("#monte_carlo-continuations input", "1"),
                    "#monte_carlo-add", see("#reward-on-2", "Monte-Carlo")),
    "two-schemes": ("#b-scheme input", "li[role=option][aria-label=outcome]", see(".pane.b"), into_sight("#drawing")),
    "no-spread": (("#reward-weight-0 input", "0"), ("#reward-weight-1 input", "0"), see(".notices", "advantage is 0")),
    "probes": PROBES,
    "probe-chosen": (*PROBES, "#probe-found tr:has-text('split a step') button", into_sight("#probe-found p.said")),
    "episode": ("#task input", "li[role=option][aria-label=calculator]", "#sample", see(".rollout .observation")),
    "own-rollouts": (lambda page: open_by_name(page, "gsm8k"), see("#door-note", "300 groups"), "#door-check button",
                     "#check-rewards", see("#check-note", "worst disagreements")),
    "sampling": (("#generations input", "16"), "#sample", see(".rollout.streaming")),
    "policy-not-found": (("#policy input", "/nowhere"), lambda page: page.keyboard.press("Enter"), "#sample",
                         see("#sample-note .drawn.error")),
    "notebook-code": ("#notebook", see("#notebook-code pre")),
    "help-page": (tab("Help"), see("#help-sum")),
    "glossary": (tab("Help"), see("#help-sum"), into_sight("#help-metrics")),
    "train-empty": (tab("Train"), see("#estimate dt")),
    "train-refused": (tab("Train"), ("#learning-rate input", "5"), "#start", see("#start-note", "learning_rate")),
    "preflight": (("#generations input", "4"), tab("Train"), "#check", "#preflight", see("#preflight-found td")),
    "beside": (PANEL.replace("Check this setup", "Beside another policy"), "#beside-it", see("#beside-it-found h3")),
    "yaml": (tab("Train"), "#yaml > button", see("#yaml-code .cm-line >> nth=3")),
    "runs-empty": (tab("Runs"), see("#runs-empty")),
    "offline": (lambda page: page.context.set_offline(True), see("#policy-status", "no connection")),
}  # fmt: skip
STORED: dict[str, tuple[Step, ...]] = {
    "runs-table": RUNS,
    "runs-chosen": (*RUNS, chosen, see("#runs-curves .main-svg"), into_sight("#runs-curves")),
    "runs-diff": (*RUNS, chosen, see("#runs-diff", "credit.scheme"), into_sight("#runs-diff")),
    "runs-no-match": (*RUNS, ("#runs input[type=search]", "nowhere")),
    "run-menu": (*RUNS, "[aria-label='Actions of process-0']"),
    "about-run": (*RUNS, "[aria-label='Actions of process-0']", "text='Name, tags and note'", see(".about-run")),
    "runs-deleted": (*RUNS, "[aria-label='Actions of stopped']", "role=menuitem[name=/^Delete/]", see("#runs-undo")),
}
SHOWN = ("failed", "crashed", "stopped", "watched", "pairs", "queued", "gone")
"""Runs on Train, each a picture ``run-NAME``."""

LIVE = (("starting", "starting", "#live"), ("live", "running", ".curve .main-svg"),
        ("top", "finished", ".run-head"), ("rollouts", "finished", "#run-heatmap .chip"))  # fmt: skip
"""Pictures of a run, with its state and what is seen then."""


class Album:
    """Takes pictures of the views that are wanted; one that cannot be had is named at the end."""

    def __init__(self, browser: Browser, folder: Path, only: list[str]) -> None:
        self.browser, self.folder, self.only, self.missed = browser, folder, only, list[str]()

    def take(self, page: Page, name: str) -> None:
        assert page.viewport_size is not None
        for theme in ("dark", "light"):
            page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
            page.evaluate("isDark => document.body.classList.toggle('dark', isDark)", theme == "dark")
            page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            page.screenshot(path=self.folder / f"{name}-{page.viewport_size['width']}-{theme}.png")

    @contextmanager
    def opened(self, name: str, url: str, size: tuple[int, int]) -> Iterator[Page]:
        context = self.browser.new_context(viewport={"width": size[0], "height": size[1]})
        try:
            page = context.new_page()
            page.goto(url)
            yield page
        except (AssertionError, Error) as error:
            self.missed.append(f"{name} at {size[0]}: {str(error).partition(chr(10))[0]}")
        finally:
            context.close()

    def views(self, app: App, views: dict[str, tuple[Step, ...]]) -> None:
        for name, steps in views.items():
            for size in SIZES if not self.only or name in self.only else ():
                with self.opened(name, with_token(app.url), size) as page:
                    see("#drawing .rollout .chip")(page)  # type: ignore[operator]
                    if (unfold := page.get_by_role("button", name="Show controls")).is_visible():
                        unfold.click()
                    for step in steps:
                        carry_out(page, step)
                    self.take(page, name)

    def live(self, app: App, steps: int) -> None:
        """Show a run as it starts, while it goes on, and when it is there."""
        with visit(self.browser, app.url) as page:
            for step in (tab("Train"), ("#steps input", str(steps)), ("#method-beta input", "0.01"), "#start"):
                carry_out(page, step)
            for name, state, seen in LIVE:
                expect(page.locator("#run-state")).to_have_text(state, timeout=20 * SECONDS)
                expect(page.locator(seen).first).to_be_visible()
                for width, height in SIZES:
                    page.set_viewport_size({"width": width, "height": height})
                    into_sight(".run-head" if name != "rollouts" else ".rollout-head")(page)  # type: ignore[operator]
                    self.take(page, f"train-{name}")


def carry_out(page: Page, step: Step) -> None:
    if callable(step):
        step(page)
    elif isinstance(step, tuple):
        page.locator(step[0]).fill(step[1])
    else:
        page.locator(step).first.click()


def store_runs(workspace: Path) -> None:
    for seed in (0, 1):
        store(workspace, f"process-{seed}", learning(60, best=0.9, seed=seed), seed=seed, made=1.76e9 + seed)
    store(workspace, "outcome-0", learning(60, best=0.7), method={"credit": {"scheme": "outcome"}}, made=1761000000.0)
    store(workspace, "stopped", learning(21, best=0.6), state="stopped", made=1.762e9)
    failed = store(workspace, "failed", learning(9), state="failed", made=1.763e9)
    failed.dir.log.write_text("step 8\nstep 9\ntorch.OutOfMemoryError: tried to allocate 2.00 GiB\n")
    failed.dir.set_status("failed", "out of memory at step 9; lower method.prompts_per_step", step=9)
    store(workspace, "crashed", learning(14), state="crashed", made=1.7635e9).dir.log.write_text("step 14\nKilled\n")
    watched = store(workspace, "watched", ({"step": i, "entropy": 1.0 if i < 30 else 0.01} for i in range(1, 61)))
    for step in (0, 30, 60):
        watched.dir.rollouts.write(step, [worked_credit()] * 2, watched=step < 60)
    pairs = store(workspace, "pairs", learning(30), method={"name": "dpo"})
    for row in filter(None, (before_and_now().before, before_and_now())):
        pairs.dir.rollouts.write_rows(row.step, [row])
    for name in ("going", "queued"):  # as if this process trained them
        run = store(workspace, name, learning(12), state="running", made=1.764e9)
        run.dir.note(pid=os.getpid(), pid_created=psutil.Process().create_time())
    run.dir.set_status("queued", "waiting: run 'going' uses the CPU", behind="going", started=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("build/screenshots"))
    parser.add_argument("--steps", type=int, default=30, help="length of the run shown (default: %(default)s)")
    parser.add_argument("--only", nargs="*", default=[], help="names of views, without width and theme; no run is made")
    options: Any = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as workspace, chromium() as browser, serve(Path(workspace)) as app:
        album = Album(browser, options.folder, options.only)
        album.views(app, INSPECT)
        if not options.only:
            album.live(app, options.steps)
            with album.opened("locked", app.url, SIZES[1]) as page:
                album.take(page, "locked")
        store_runs(app.workspace)
        album.views(app, STORED)
        for name in SHOWN:
            for size in SIZES if not options.only or f"run-{name}" in options.only else ():
                with album.opened(f"run-{name}", with_token(f"{app.url}?run={name}"), size) as page:
                    expect(page.locator("#run-state")).to_have_text(re.compile(r"\w"))
                    page.wait_for_timeout(1500)
                    album.take(page, f"run-{name}")
    print(f"{len(list(options.folder.glob('*.png')))} pictures in {options.folder}")
    if album.missed:
        raise SystemExit("\n".join(["not taken:", *album.missed]))


if __name__ == "__main__":
    main()
