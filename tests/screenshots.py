"""Pictures of the page: ``python -m tests.screenshots [FOLDER] [--steps N] [--only NAME …]``.

Every page and state in light and dark, 1440, 1280 and 390 px wide, as PNG files named after view, width and theme. A
page is opened once a width, and changes its theme as the button does. The live views show a run of N steps that is
started for them; the whole takes about a quarter of an hour.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, Error, Page, ViewportSize, expect

from tests.browsing import SECONDS, App, chromium, serve, stopped, visit, with_token
from tests.screenshot_views import (
    INSPECT,
    RUNS,
    STORED,
    TRAIN,
    WITHOUT_RUNS,
    offline,
    policy_not_found,
    runs_deleted,
    runs_restored,
    store_runs,
)

LOOKS: tuple[dict[str, int], ...] = tuple(
    {"width": width, "height": height} for width, height in ((1440, 900), (1280, 860), (390, 844))
)
THEMES: tuple[Literal["dark", "light"], ...] = ("dark", "light")

SETTLED = """() => new Promise((settled) => {
  let due = setTimeout(settled, 1500);
  const again = () => { clearTimeout(due); due = setTimeout(settled, 1500); };
  new MutationObserver(again).observe(document.body, { childList: true, characterData: true, subtree: true });
  setTimeout(settled, 10_000);
})"""
"""Resolves when nothing was drawn for a second and a half, or after ten."""

PAINTED = "() => new Promise((painted) => requestAnimationFrame(() => requestAnimationFrame(painted)))"
"""Resolves when what a jump has brought into sight is painted, too."""


@dataclass(frozen=True)
class Album:
    """Where the pictures go. ``only`` names those that are wanted, and is empty for all."""

    folder: Path
    only: Collection[str]
    missed: list[str] = field(default_factory=list)

    def wants(self, *names: str) -> bool:
        return not self.only or any(name in self.only for name in names)

    def take(self, page: Page, name: str, look: dict[str, int]) -> None:
        for theme in THEMES:
            page.emulate_media(color_scheme=theme)  # the locked page has no button
            page.evaluate("isDark => document.body.classList.toggle('dark', isDark)", theme == "dark")
            page.evaluate(PAINTED)
            page.screenshot(path=self.folder / f"{name}-{look['width']}-{theme}.png")

    @contextmanager
    def tried(self, name: str, look: dict[str, int]) -> Iterator[None]:
        """A picture that cannot be had is named at the end and keeps nobody from the others."""
        try:
            yield
        except (AssertionError, Error) as error:
            reason = str(error).partition("\n")[0]
            self.missed.append(f"{name} at {look['width']}: {reason}")


def _name(view: Any) -> str:
    return str(view.__name__).replace("_", "-")


@contextmanager
def _inspect(browser: Browser, app: App, look: dict[str, int]) -> Iterator[Page]:
    with visit(browser, app.url, **look) as page:
        expect(page.locator("#drawing .rollout .chip").first).to_be_visible()
        expect(page.locator("#policy-status")).to_contain_text(re.compile("parameters|loads when"))
        yield page


def shoot_policy(browser: Browser, workspace: Path, album: Album) -> None:
    """The page while the policy loads, after its worker died, and with one that is not there: all of an app hear it."""
    if not album.wants("policy-loading", "policy-died", "policy-not-found"):
        return
    for i, look in enumerate(LOOKS):
        with serve(workspace / str(i)) as app, album.tried("policy", look), visit(browser, app.url, **look) as page:
            expect(page.locator("#drawing .rollout .chip").first).to_be_visible()
            expect(page.locator("#policy-status")).to_contain_text("loading")
            album.take(page, "policy-loading", look)
            expect(page.locator("#policy-status")).to_contain_text("parameters")
            with stopped(app, "policies.worker") as worker:
                page.locator("#sample").evaluate("node => node.click()")
                expect(page.locator("#cancel")).to_be_enabled()
                worker.kill()
                expect(page.locator("#sample-note")).to_contain_text(re.compile("died|ended|exited|signal"))
            page.locator("#sample-note").evaluate("node => node.scrollIntoView({ block: 'center' })")
            album.take(page, "policy-died", look)
            policy_not_found(page)
            album.take(page, "policy-not-found", look)


def shoot_inspect(browser: Browser, app: App, album: Album) -> None:
    for look in LOOKS:
        for view in INSPECT:
            if album.wants(_name(view)):
                with album.tried(_name(view), look), _inspect(browser, app, look) as page:
                    view(page)
                    album.take(page, _name(view), look)
        if album.wants("offline"):  # its console has errors, as it should
            context = browser.new_context(viewport=ViewportSize(width=look["width"], height=look["height"]))
            page = context.new_page()
            page.goto(with_token(app.url))
            expect(page.locator("#drawing .rollout .chip").first).to_be_visible()
            offline(page)
            album.take(page, "offline", look)
            context.close()


def shoot_without_runs(browser: Browser, app: App, album: Album) -> None:
    for look in LOOKS:
        if album.wants("locked"):
            context = browser.new_context(viewport=ViewportSize(width=look["width"], height=look["height"]))
            page = context.new_page()
            page.goto(app.url)
            album.take(page, "locked", look)
            context.close()
        for view in WITHOUT_RUNS:
            if album.wants(_name(view)):
                with album.tried(_name(view), look), _inspect(browser, app, look) as page:
                    view(page)
                    album.take(page, _name(view), look)


def shoot_stored(browser: Browser, app: App, album: Album) -> None:
    store_runs(app.workspace)
    for look in LOOKS:
        for name in STORED:
            if album.wants(f"run-{name}"):
                with album.tried(f"run-{name}", look), visit(browser, f"{app.url}?run={name}", **look) as page:
                    expect(page.locator("#run-state")).to_be_attached()
                    page.evaluate(SETTLED)
                    album.take(page, f"run-{name}", look)
        for view in RUNS:
            if album.wants(_name(view)):
                with album.tried(_name(view), look), _inspect(browser, app, look) as page:
                    view(page)
                    album.take(page, _name(view), look)
                    if view is runs_deleted:
                        runs_restored(page)


def shoot_live(browser: Browser, app: App, album: Album, steps: int) -> None:
    """A run that is started for it: as it starts, while it goes on, and when it is there."""
    if not album.wants("train-starting", "train-live", *map(_name, TRAIN)):
        return
    with ExitStack() as pages:
        first, *others = LOOKS
        page = pages.enter_context(_inspect(browser, app, first))
        page.get_by_role("tab", name="Train").click()
        page.locator("#steps input").fill(str(steps))
        page.locator("#method-beta input").fill("0.01")
        page.locator("#start").click()
        expect(page.locator("#run-state")).to_have_text("starting")
        run = page.locator("#run-picker").input_value()
        seen = [(page, first)]
        for look in others:
            seen.append((pages.enter_context(visit(browser, f"{app.url}?run={run}", **look)), look))
            expect(seen[-1][0].locator("#run-state")).to_be_visible()
        for page, look in seen:
            album.take(page, "train-starting", look)
        for page, look in seen:
            expect(page.locator(".progress-text")).to_contain_text(re.compile(r"step (?:[89]|\d\d) of"))
            expect(page.locator(".curve .main-svg").first).to_be_visible()
            album.take(page, "train-live", look)
        for page, look in seen:
            expect(page.locator("#run-state")).to_have_text("finished", timeout=20 * SECONDS)
            expect(page.locator("#run-heatmap .rollout .chip").first).to_be_visible()
            for view in TRAIN:
                view(page)
                album.take(page, _name(view), look)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("build/screenshots"))
    parser.add_argument("--steps", type=int, default=30, help="length of the run shown (default: %(default)s)")
    parser.add_argument("--only", nargs="*", default=(), help="names of pictures, without width and theme")
    arguments = parser.parse_args()
    album = Album(arguments.folder, frozenset(arguments.only))
    album.folder.mkdir(parents=True, exist_ok=True)
    expect.set_options(timeout=SECONDS)
    with tempfile.TemporaryDirectory() as workspace, chromium() as browser:
        shoot_policy(browser, Path(workspace) / "policy", album)
        with serve(Path(workspace) / "main") as app:
            shoot_without_runs(browser, app, album)
            shoot_inspect(browser, app, album)
            shoot_live(browser, app, album, arguments.steps)
            shoot_stored(browser, app, album)
    print(f"{len(list(album.folder.glob('*.png')))} pictures in {album.folder}")
    if album.missed:
        raise SystemExit("\n".join(["not taken:", *album.missed]))


if __name__ == "__main__":
    main()
