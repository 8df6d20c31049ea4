"""The heatmap's script in a real Chromium, on an exported file: exact text, readable colours, keyboard, no network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browsing import chromium, visit
from tests.credits import make_credit, make_rollout, worked_credit
from tests.test_figures import NASTY
from workbench.figures import heatmap
from workbench.schema import Credit

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def show(browser: Browser, tmp_path: Path):
    def opened(credit: Credit, matches=None, **options):
        file = tmp_path / "heatmap.html"
        file.write_text(heatmap(credit, matches).html(), encoding="utf-8", errors="surrogatepass")
        return visit(browser, file.as_uri(), **options)

    return opened


def texts(page: Page) -> list[str]:
    return page.locator(".rollout .text").evaluate_all("nodes => nodes.map(node => node.textContent)")


def test_the_text_drawn_is_the_completion_exactly(show) -> None:
    """Markup, controls and half characters come through as they are; the end-of-sequence sign is no text."""
    nasty = [text for text in NASTY if text != "\ud800"]  # Playwright itself cannot carry a lone surrogate
    rollouts = [make_rollout([*nasty, "<eos>"]), make_rollout([*nasty, "\r\n", ""], finished=False)]
    ends = [[3, len(nasty)], [3, len(nasty) + 1]]
    credit = make_credit(rollouts, ends, [[1.0, 0.0], [0.0, None]])
    with show(credit, [[(0, 2), (5, 40)], []]) as page:
        assert texts(page) == [rollout.text for rollout in rollouts]
        assert page.locator(".rollout img, .rollout script").count() == 0
        assert page.locator(".hidden-character").first.get_attribute("data-mark") == "U+202E"
        assert page.locator(".eos").get_attribute("data-mark") == "<eos>"


def test_a_lone_surrogate_is_marked(show) -> None:
    rollouts = [make_rollout(["a\ud800b"], finished=False)] * 2
    with show(make_credit(rollouts, [[0], [0]], [[1.0], [0.0]])) as page:
        assert page.locator(".hidden-character").first.get_attribute("data-mark") == "U+D800"


def test_steps_outside_text_and_straddling_tokens_are_told_apart(show) -> None:
    # "so: " is before the first step; token 3 ends step 1 and begins step 2, and belongs to step 1.
    rollout = make_rollout(["so: ", "1. ", "a", "\n2", ". b"], finished=False)
    credit = make_credit([rollout] * 2, [[3, 4]] * 2, [[1.0, 0.0], [0.0, 1.0]], starts=[[1, 4]] * 2)
    steps = credit.scored.scored[0].steps
    moved = [type(steps[0])(4, 9), type(steps[0])(9, 13)]  # characters: "1. a\n" and "2. b"
    for one in credit.scored.scored:
        object.__setattr__(one, "steps", tuple(moved))
    with show(credit) as page:
        first = page.locator(".rollout").first
        assert first.locator(".outside").inner_text() == "so: "
        assert first.locator(".straddles .astray").inner_text() == "2"
        assert first.locator(".straddles .astray").get_attribute("data-n") == "2"
        assert first.locator(".straddles").evaluate("node => node.closest('.step').dataset.k") == "0"
        assert first.locator(".step").count() == 2


CONTRASTS = """() => {
  const numbers = (css) => css.match(/[\\d.]+/g).map(Number);
  const linear = (c) => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const pre = document.querySelector('.rollout .text');
  const paper = numbers(getComputedStyle(document.querySelector('.rollout')).backgroundColor);
  const found = {};
  for (const kind of ['p', 'n', 'q']) for (let bin = 1; bin <= 10; bin++) {
    const node = document.createElement('i');
    node.className = `${kind} s${bin}`;
    pre.append(node);
    const style = getComputedStyle(node);
    const [r, g, b, alpha = 1] = numbers(style.backgroundColor);
    const mixed = [r, g, b].map((c, i) => c * alpha + paper[i] * (1 - alpha));
    const [x, y] = [light(mixed), light(numbers(style.color))].sort((a, b) => b - a);
    found[`${kind}${bin}`] = (x + 0.05) / (y + 0.05);
    node.remove();
  }
  return found;
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_is_readable_on_every_colour(show, theme: str) -> None:
    with show(worked_credit(), color_scheme=theme) as page:
        contrasts = page.evaluate(CONTRASTS)
        assert len(contrasts) == 30
        assert min(contrasts.values()) >= 4.5, contrasts


def test_the_whole_of_it_works_by_keyboard(show) -> None:
    with show(worked_credit()) as page:
        page.keyboard.press("Tab")  # colour by
        page.keyboard.press("Tab")  # order
        page.keyboard.press("Tab")  # the first step: steps and chips share one stop
        assert page.evaluate("document.activeElement.dataset.k") == "0"
        for key in ("ArrowRight", "ArrowRight", "ArrowRight"):  # three steps in the first rollout, then the second's
            page.keyboard.press(key)
        assert page.evaluate("document.activeElement.closest('.rollout').dataset.g") == "1"
        page.keyboard.press("Enter")
        expect(page.locator(".details .where")).to_contain_text("rollout 2 · step 1 · token 4")
        # Row 2 of the worked numbers: 1.0539 - 0.8431 = 0.2108.
        expect(page.locator(".details tfoot td")).to_have_text("+0.2108")
        page.keyboard.press("Escape")
        expect(page.locator(".details")).to_be_hidden()


def test_chips_show_score_and_advantage(show) -> None:
    with show(worked_credit()) as page:
        chips = page.locator(".rollout").nth(0).locator(".chip").all_inner_texts()
        assert [re.sub(r"\s+", " ", chip) for chip in chips] == ["1 1 ▲1.26", "2 1 ▲0.21", "3 0 ▼0.84"]
        assert page.locator(".rollout header").nth(2).inner_text().split("\n")[0] == "3"


def test_sixteen_rollouts_of_a_thousand_tokens_are_drawn_whole(show) -> None:
    rollout = make_rollout([f"w{i} " for i in range(1024)])
    ends = [list(range(31, 1024, 32))] * 16
    credit = make_credit([rollout] * 16, ends, [[float((i + k) % 2) for k in range(32)] for i in range(16)])
    with show(credit) as page:
        expect(page.locator(".rollout")).to_have_count(16)
        assert page.locator(".text i").count() == 16 * 1024
        assert texts(page)[15] == rollout.text
