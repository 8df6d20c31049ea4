"""The heatmap's script in a real Chromium, on an exported file: exact text, readable colours, keyboard, no network."""

import re
from itertools import product
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browsing import visit
from tests.credits import make_credit, make_rollout, worked_credit
from tests.test_figures import NASTY
from workbench.schema import Credit
from workbench.views.heatmap import heatmap

pytestmark = pytest.mark.browser


@pytest.fixture
def show(browser: Browser, tmp_path: Path):
    def opened(credit: Credit, matches=None, other: Credit | None = None, **options):
        file = tmp_path / "heatmap.html"
        file.write_text(heatmap(credit, matches, other=other).html(), encoding="utf-8", errors="surrogatepass")
        return visit(browser, file.as_uri(), **options)

    return opened


def texts(page: Page) -> list[str]:
    """What is drawn of each rollout's tokens, without the numbers beside its steps."""
    words = "[...node.querySelectorAll('i')].map(token => token.textContent).join('')"
    return page.locator(".rollout .text").evaluate_all(f"nodes => nodes.map(node => {words})")


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
        expect(first.locator(".outside")).to_have_text("so: ")
        expect(first.locator(".straddles .astray")).to_have_text("2")
        assert first.locator(".straddles .astray").get_attribute("data-n") == "2"
        assert first.locator(".straddles").evaluate("node => node.closest('.step').dataset.k") == "0"
        assert first.locator(".step").count() == 2


THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
CONTRASTS = """(dim) => {
  const root = document.querySelector('.wh');
  root.heatmap.dim(dim);
  const numbers = (css) => css.match(/[\\d.]+/g).map((n, i) => css.startsWith('color') && i < 3 ? 255 * n : Number(n));
  const over = ([r, g, b, alpha = 1], below) => [r, g, b].map((c, i) => c * alpha + below[i] * (1 - alpha));
  const linear = (c) => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const page = over(numbers(getComputedStyle(document.body).backgroundColor), [255, 255, 255]);
  const found = {};
  const measure = (name, node, pseudo, colours) => {
    const opacity = Number(getComputedStyle(node.closest('.cards, .summary')).opacity);
    const card = node.closest('.rollout');
    const paper = card ? numbers(getComputedStyle(card).backgroundColor) : page;
    const below = over(colours ? numbers(getComputedStyle(colours).backgroundColor) : [0, 0, 0, 0], paper);
    const above = over(numbers(getComputedStyle(node, pseudo).color), below);
    const seen = [below, above].map((colour) => light(over([...colour, opacity], page))).sort((a, b) => b - a);
    found[name] = (seen[0] + 0.05) / (seen[1] + 0.05);
  };
  const step = document.querySelector('.rollout .text .step');
  const MARKS = ['nl', 'tab', 'bad', 'cut', 'hidden-character'];
  for (const kind of ['', 'p', 'n', 'q']) for (let bin = kind ? 1 : 0; bin <= (kind ? 10 : 0); bin++) {
    const token = (name) => {
      const node = document.createElement('i');
      node.className = `${name} ${kind} s${bin}`;
      return step.appendChild(node);
    };
    const plain = token('');
    measure(`text ${kind}${bin}`, plain, null, plain);
    for (const name of ['empty', 'eos']) {
      const node = token(name);
      measure(`${name} ${kind}${bin}`, node, '::before', node);
      node.remove();
    }
    for (const name of MARKS) {
      const node = plain.appendChild(document.createElement('u'));
      node.className = name;
      measure(`${name} ${kind}${bin}`, node, name === 'bad' ? null : '::before', plain);
    }
    plain.remove();
  }
  for (const chip of document.querySelectorAll('.step .chip span')) {
    measure(`chip ${chip.className} ${Object.keys(found).length}`, chip, null, null);
  }
  for (const name of ['.summary p', '.summary .more-said', '.summary b', 'mark', '.cols .measure', '.cols .l']) {
    measure(name, document.querySelector(`.wh ${name}`), null, null);
  }
  return found;
}"""


def test_text_and_marks_are_readable_on_every_colour(show) -> None:
    """31 tints (21 of the signed scale, 10 of the other), on each text, end of sequence and six marks; the chips."""
    credit = worked_credit()
    object.__setattr__(credit.scored.group.rollouts[2], "finished", False)  # for the mark that says so
    with show(credit, reduced_motion="reduce") as page:
        for theme, dim in product(THEMES, (False, True)):
            page.emulate_media(color_scheme=theme)
            contrasts = page.evaluate(CONTRASTS, dim)
            assert len(contrasts) == 31 * 8 + 9 * 3 + 6
            assert {name: value for name, value in contrasts.items() if value < 4.5} == {}, (theme, dim)
            seen = page.locator(".text i").first.evaluate("node => getComputedStyle(node).backgroundColor")
            red, _, blue = map(float, re.findall(r"[\d.]+", seen)[:3])
            assert (red == blue) == dim  # grey while dimmed


def test_the_whole_of_it_works_by_keyboard(show) -> None:
    with show(worked_credit()) as page:
        while not page.locator(":focus.cell").count():  # the links of the sentences come before the map
            page.keyboard.press("Tab")
        the_overview_works_by_keyboard(page)
        while not page.locator(":focus.colour-by").count():  # the facts come between
            page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")  # settings of the scale
        page.keyboard.press("Tab")
        page.keyboard.type("0.5")
        page.keyboard.press("Enter")
        expect(page.locator(".scale")).to_contain_text("≤ −0.5≥ +0.5")
        page.keyboard.press("Tab")
        expect(page.get_by_role("checkbox", name="keep scale")).to_be_focused()
        page.keyboard.press("Space")
        expect(page.locator(".scale")).to_contain_text("−1.48+1.48")
        page.keyboard.press("Tab")  # outline tokens
        page.keyboard.press("Space")
        expect(page.locator(".cards")).to_have_class(re.compile(r"\bedges\b"))
        page.keyboard.press("Escape")
        expect(page.locator(".popover.settings")).not_to_have_attribute("open", "")
        while not page.locator(":focus.step").count():  # steps share one stop
            page.keyboard.press("Tab")
        the_cards_are_walked_with_the_pin(page)


def the_overview_works_by_keyboard(page: Page) -> None:
    """Three columns of 3, 2 and 4 cells; arrows move what is explained."""
    cells = page.locator(".overview .cell")
    tints = cells.evaluate_all("nodes => nodes.map(node => node.className.match(/[pnq] s[0-9]+|$/)[0])")
    assert tints == ["p s9", "p s1", "n s6", "p s1", "n s6", "n s10", "n s4", "p s1", "p s7"]
    wrong = ["", "", "✕", "", "✕", "✕", "✕", "✕", ""]
    assert cells.evaluate_all("nodes => nodes.map(node => node.dataset.wrong ?? '')") == wrong
    where = page.locator(".details .where")
    expect(where).to_contain_text("rollout 3 · step 1")  # the largest of all, −1.48
    page.keyboard.press("ArrowDown")
    expect(where).to_contain_text("rollout 1 · step 2 · token 7")
    page.keyboard.press("ArrowRight")
    expect(page.locator(":focus")).to_have_attribute(
        "aria-label", "step 2 of 2, wrong by rule, score 0, advantage −0.84"
    )
    expect(where).to_contain_text("rollout 2 · step 2 · token 8")
    page.keyboard.press(",")
    expect(where).to_contain_text("rollout 2 · step 2 · token 7")
    expect(page.locator(".overview .pinned")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator(".overview .pinned")).to_have_count(0)
    expect(where).to_have_count(0)
    page.keyboard.press("ArrowLeft")  # a closed panel stays closed
    expect(where).to_have_count(0)
    page.keyboard.press("/")
    page.keyboard.type("T9")  # the first rollout has ten tokens, t0 to t9
    expect(page.locator(".finder .said")).to_have_text("1 of 3 shown")
    expect(page.locator(".overview .column")).to_have_count(1)
    page.keyboard.type("9")
    expect(page.locator(".nothing")).to_have_text("No rollout contains “T99”. Show all")
    page.locator(".nothing button").click()
    expect(page.locator(".rollout:visible")).to_have_count(3)
    page.locator(".overview .cell").first.focus()


def the_cards_are_walked_with_the_pin(page: Page) -> None:
    """Down along the steps of a card, right to the next card; with the panel open what is explained goes along."""
    here = "[document.activeElement.closest('.rollout').dataset.g, document.activeElement.dataset.k]"
    assert page.evaluate(here) == ["0", "0"]
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert page.evaluate(here) == ["1", "1"]
    page.keyboard.press("Enter")
    # Row 2 of the worked numbers: −0.8431 for its wrong step.
    expect(page.locator(".details .parts tfoot td")).to_have_text("−0.843")
    page.keyboard.press("ArrowUp")
    expect(page.locator(".details .where")).to_contain_text("rollout 2 · step 1 · token 4")
    expect(page.locator(".details .parts tfoot td")).to_have_text("+0.211")  # 1.0539 − 0.8431
    assert page.evaluate(here) == ["1", "0"]
    page.keyboard.press("Escape")
    expect(page.locator(".details .where")).to_have_count(0)


def expect_chips(page: Page, *texts: str) -> None:
    """Score, coloured value and later steps of each step of the first rollout, under the first scheme. What is
    drawn anew has no inner text before the browser has laid it out."""
    chips = page.locator(".rollout[data-g='0'] .text:not(.second) .chip")
    expect(chips).to_have_text(texts, use_inner_text=True)


def test_the_number_that_is_coloured_is_said(show) -> None:
    """On the chips, on their key, in the details and in the tip.

    The three completions have 28 tokens, so the grpo loss gives one of 10 tokens 28 / (3 · 10) = 0.9333 of an even
    share. Scheme step credits 1.0539, 1.0539 and −0.8431, which is −0.2108, +0.8431 and 0 more than process.
    """
    with show(worked_credit(), other=worked_credit("step")) as page:
        key = page.locator(".cols .measure").first
        expect_chips(page, "1 ▲1.26 +0.21", "1 ▲0.21 −0.84", "0 ▼0.84")
        second = page.locator(".rollout[data-g='0'] .second .chip .a")
        assert second.all_text_contents() == ["▲1.05", "▲1.05", "▼0.84"]  # B's own
        assert key.text_content() == "advantage"
        page.locator(".rollout[data-g='0'] .step > .chip").nth(1).click()
        page.locator(".details summary", has_text="Every number").click()
        shown = page.locator(".details .shown")
        assert shown.all_inner_texts() == ["advantage A", "+0.2108", "advantage B", "+1.0539"]
        page.locator(".colour-by").select_option("weight")
        page.get_by_label("Loss", exact=True).select_option("grpo")
        expect_chips(page, "1 ▲1.18 +0.21", "1 ▲0.20 −0.84", "0 ▼0.79")
        assert key.text_content() == "weight"
        name = "weight in the loss"
        assert shown.all_inner_texts() == [f"{name} A", "+0.1967", f"{name} B", "+0.9836"]
        page.locator(".colour-by").select_option("difference")
        expect_chips(page, "1 ▼0.21 +0.21", "1 ▲0.84 −0.84", "0 0.00")
        assert shown.all_inner_texts() == ["difference B − A", "+0.8431"]
        page.locator(".text i").first.hover()
        assert page.locator(".tip .shown").inner_text().split("\t") == ["difference B − A", "−0.2108"]
        page.locator(".colour-by").select_option("entropy")
        # What only tokens have is said of a step as its tokens' mean: (0 + 0.01 + 0.02 + 0.03) / 4 and so on.
        expect_chips(page, "1 0.015 +0.21", "1 0.055 −0.84", "0 0.085")
        assert key.text_content() == "mean entr."
        assert shown.all_inner_texts() == ["entropy", "0.070"]
        tints = (
            page.locator(".overview .column")
            .first.locator(".cell")
            .evaluate_all("nodes => nodes.map((node) => node.className)")
        )
        assert tints == ["cell q s2", "cell q s7 pinned", "cell q s10"]  # of a scale that ends at 0.08


REDRAWN = """(times) => {
  const payload = JSON.parse(document.querySelector('script[type="application/json"]').textContent);
  for (const r of payload.rollouts) r.advantages = r.advantages.map((value) => value * times);
  document.querySelector('.wh').heatmap.draw(payload);
}"""


def test_the_range_of_colours_is_set_and_held(show) -> None:
    """Of 28 tokens the 98th percentile is the 27th: 1.4754 = 3 · 0.8431 − 1.0539. 0.2108 of it is a tenth and a bit."""
    with show(worked_credit()) as page:
        token = page.locator(".text i").nth(4)  # 0.2108
        scale, end, hold = (page.locator(f".legend {name}") for name in (".scale", ".range-end", ".range-hold"))
        page.locator(".popover.settings summary").click()
        expect(token).to_have_class("p s1")
        expect(scale).to_contain_text("−1.48+1.48")
        assert (end.input_value(), end.get_attribute("placeholder"), hold.is_checked()) == ("", "1.48", False)
        hold.check()
        assert end.input_value() == "1.48"
        page.evaluate(REDRAWN, 10)
        expect(token).to_have_class("p s10")
        expect(scale).to_contain_text("≤ −1.48≥ +1.48")
        hold.uncheck()  # the scale is that of what is drawn now
        expect(token).to_have_class("p s1")
        expect(scale).to_contain_text("−14.8+14.8")
        end.fill("-5")  # a size: its sign does not matter
        end.blur()
        page.evaluate(REDRAWN, 1)
        expect(token).to_have_class("")  # 0.2108 is less than half of a tenth of 5
        assert (end.input_value(), hold.is_checked()) == ("5", True)
        page.locator(".colour-by").select_option("logprob")  # each measure has a range of its own
        expect(scale).to_contain_text("0≤ −0.8")
        page.locator(".colour-by").select_option("advantage")
        assert end.input_value() == "5"


DRAWN = "payload => document.querySelector('.wh').heatmap.draw(payload)"


def test_a_group_without_a_number_is_drawn_plain_and_the_next_one_as_before(show) -> None:
    with show(worked_credit()) as page:
        page.locator(".colour-by").select_option("reward")
        rollout = {"ids": [1], "texts": ["so"], "finished": False}
        page.evaluate(DRAWN, {"prompt": "", "rollouts": [rollout]})
        assert texts(page) == ["so"]
        expect(page.locator(".legend")).to_be_hidden()
        page.evaluate(DRAWN, {"prompt": "", "rollouts": [rollout | {"logprobs": [-0.5]}]})
        expect(page.locator(".colour-by")).to_have_value("logprob")
        page.evaluate(REDRAWN, 1)
        expect_chips(page, "1 ▲1.00 +0.21", "1 ▲1.00 −0.84", "0 0.00")


def test_a_large_group_is_drawn_token_by_token_as_it_comes_into_sight(show) -> None:
    """Every text stands there at once; tokens come with the scroll, a key, a click on the map, and all for print."""
    rollouts = [make_rollout([f"w{i} " for i in range(1024)], first_id=n) for n in range(16)]
    ends = [list(range(15, 1024, 16))] * 16
    credit = make_credit(rollouts, ends, [[float((i + k) % 2) for k in range(64)] for i in range(16)])
    with show(credit) as page:
        cards = page.locator(".rollout")
        drawn = page.locator(".rollout .text").evaluate_all(
            "nodes => nodes.map((node) => node.querySelectorAll('i').length)"
        )
        assert (drawn[0], drawn[-1]) == (1024, 0)
        assert cards.nth(15).locator(".text").text_content() == rollouts[15].text
        cards.nth(7).scroll_into_view_if_needed()
        expect(cards.nth(7).locator("i")).to_have_count(1024)
        cell = page.locator(".overview .cell[data-g='14']").last
        tint = str(cell.get_attribute("class")).removeprefix("cell ")
        cell.click()
        pinned = page.locator(".rollout[data-g='14'] i.pinned")
        expect(pinned).to_have_class(f"eos {tint} pinned")
        expect(pinned).to_be_in_viewport()
        page.locator(".rollout[data-g='14'] .step").last.focus()
        page.keyboard.press("Home")
        assert page.evaluate("document.activeElement.closest('.rollout').dataset.g") == "0"
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert texts(page) == [rollout.text for rollout in rollouts]


def test_a_long_text_is_saved_without_its_end_token(show) -> None:
    text = "1206 " * 5000
    rollout = make_rollout([text, "<|end|>"])
    with show(make_credit([rollout] * 2, [[1]] * 2, [[1.0], [0.0]])) as page:
        with page.expect_download() as download:
            page.get_by_role("link", name="Full text").first.click()
        assert Path(download.value.path()).read_text(encoding="utf-8") == text
