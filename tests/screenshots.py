"""Pictures of the page: ``python -m tests.screenshots [FOLDER] [--steps N]``.

Every view in light and dark, 1280 and 390 px wide, as PNG files named after view, width and theme. The Train views show
a run of N steps that is started for them, so this takes a minute or two.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from tests.browsing import SECONDS, App, chromium, serve, visit

WIDTHS = {1280: 860, 390: 844}
FAILING = "def mine(prompt, step, **columns):\n    return 1 / (len(step) - 19)\n"


def inspect(page: Page) -> None:
    """The page as it opens."""


def pinned(page: Page) -> None:
    page.locator("#drawing .rollout .chip").nth(2).click()
    page.mouse.move(0, 0)


def hovered(page: Page) -> None:
    page.locator("#drawing .rollout").nth(1).locator(".text i").nth(12).hover()


def entropy(page: Page) -> None:
    page.get_by_label("Colour by").select_option("entropy")


def no_match(page: Page) -> None:
    _unfold(page)
    page.locator("#regex textarea").fill("nowhere to be found")
    expect(page.locator("#drawing mark").first).to_be_visible()
    page.locator("#drawing").scroll_into_view_if_needed()


def bad_pattern(page: Page) -> None:
    _unfold(page)
    page.locator("#regex textarea").fill("(?m)^(Step")
    expect(page.locator("#pattern-note")).to_contain_text("does not compile")


def reward_error(page: Page) -> None:
    _unfold(page)
    page.locator("#add-reward input").click()
    page.get_by_role("option", name="Your own step function").click()
    page.locator("#reward-edit-2").click()
    page.locator("#reward-code-2 .cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(FAILING)
    expect(page.locator("#reward-note-2")).to_contain_text("ZeroDivisionError")


def two_schemes(page: Page) -> None:
    _unfold(page)
    page.locator("#b-scheme input").click()
    page.get_by_role("option", name="outcome", exact=True).click()
    expect(page.locator("#drawing .pane.b").first).to_be_visible()
    page.locator("#drawing").scroll_into_view_if_needed()


def no_spread(page: Page) -> None:
    _unfold(page)
    for place in (0, 1):
        page.locator(f"#reward-weight-{place} input").fill("0")
    expect(page.locator("#drawing .notices")).to_contain_text("No spread")
    page.locator("#drawing").scroll_into_view_if_needed()


def sampling(page: Page) -> None:
    _unfold(page)
    page.locator("#generations input").fill("16")
    page.locator("#sample").click()
    expect(page.locator("#drawing .rollout.streaming").first).to_be_visible()
    page.locator("#drawing").scroll_into_view_if_needed()


def notebook_code(page: Page) -> None:
    page.locator("#notebook").click()
    expect(page.locator("#notebook-code pre")).to_be_visible()


def help_page(page: Page) -> None:
    page.get_by_role("tab", name="Help").click()
    expect(page.locator("#help-sum")).to_be_visible()


def glossary(page: Page) -> None:
    help_page(page)
    page.locator("#help-metrics").evaluate("node => node.scrollIntoView()")


INSPECT: tuple[Callable[[Page], None], ...] = (
    inspect, pinned, hovered, entropy, no_match, bad_pattern, reward_error, two_schemes,
    no_spread, sampling, notebook_code, help_page, glossary,
)  # fmt: skip


def _unfold(page: Page) -> None:
    button = page.get_by_role("button", name="Show controls")
    if button.is_visible():
        button.click()


def train_top(page: Page) -> None:
    page.locator(".run-head").scroll_into_view_if_needed()


def train_rollouts(page: Page) -> None:
    page.locator(".rollout-head").evaluate("node => node.scrollIntoView()")
    page.wait_for_function("document.querySelector('#run-heatmap .rollout .chip')")


def shoot(browser: Browser, app: App, folder: Path, steps: int) -> None:
    with visit(browser, app.url) as page:
        expect(page.locator("#drawing .rollout .chip").first).to_be_visible()
        page.get_by_role("tab", name="Train").click()
        expect(page.locator("#start")).to_be_visible()
        page.screenshot(path=folder / "train-empty-1280-light.png")
        page.locator("#steps input").fill(str(steps))
        page.locator("#beta input").fill("0.01")
        page.locator("#start").click()
        expect(page.locator("#run-state")).to_have_text("starting")
        page.screenshot(path=folder / "train-starting-1280-light.png")
        expect(page.locator(".progress-text")).to_contain_text(re.compile(r"step (?:[89]|\d\d) of"))
        expect(page.locator(".curve .main-svg").first).to_be_visible()
        page.screenshot(path=folder / "train-live-1280-light.png")
        expect(page.locator("#run-state")).to_have_text("finished", timeout=20 * SECONDS)
        run = page.locator("#run-picker").input_value()
    for width, height in WIDTHS.items():
        for theme in ("light", "dark"):
            for view in INSPECT:
                with visit(browser, app.url, width=width, height=height, color_scheme=theme) as page:
                    expect(page.locator("#drawing .rollout .chip").first).to_be_visible()
                    expect(page.locator("#policy-status")).to_contain_text("parameters")
                    view(page)
                    page.screenshot(path=folder / f"{view.__name__.replace('_', '-')}-{width}-{theme}.png")
            with visit(browser, f"{app.url}?run={run}", width=width, height=height, color_scheme=theme) as page:
                expect(page.locator("#run-heatmap .rollout .chip").first).to_be_visible()
                expect(page.locator(".curve .main-svg").first).to_be_visible()
                expect(page.locator("#policy-status")).to_contain_text("parameters")
                for view in (train_top, train_rollouts):
                    view(page)
                    page.screenshot(path=folder / f"{view.__name__.replace('_', '-')}-{width}-{theme}.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("build/screenshots"))
    parser.add_argument("--steps", type=int, default=30, help="length of the run shown (default: %(default)s)")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    expect.set_options(timeout=SECONDS)
    with tempfile.TemporaryDirectory() as workspace, serve(Path(workspace)) as app, chromium() as browser:
        shoot(browser, app, arguments.folder, arguments.steps)
    pictures = sorted(arguments.folder.glob("*.png"))
    print(f"{len(pictures)} pictures in {arguments.folder}")


if __name__ == "__main__":
    main()
