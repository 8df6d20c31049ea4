"""What is taken along from Inspect, in a real Chromium: a link, files, the picture, notebook code; and Help."""

import base64
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browsing import CARDS, advantages, choose, expect_rollouts, share, visit

pytestmark = pytest.mark.browser


@pytest.fixture
def clipboard(page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])


COPIED = "navigator.clipboard.readText()"


@pytest.mark.usefixtures("clipboard")
def test_a_link_shows_the_same_in_another_browser(page: Page, browser: Browser) -> None:
    page.locator("#example-next").click()
    expect(page.locator("#example input")).to_have_value("2")
    page.locator("#max-tokens input").fill("30")
    page.locator("#generations input").fill("3")
    page.locator("#sample").click()
    expect(page.locator("#title .about")).to_contain_text("seed 1")
    expect_rollouts(page, 3)
    g, k = page.evaluate("document.querySelector('#heatmap').heatmap.data.opens")
    expect(page.locator(".details .where")).to_contain_text(f"rollout {g + 1} · step {k + 1}")
    choose(page, "scheme", "mean_suffix")
    page.wait_for_function("location.search.includes('mean_suffix')")
    card = page.locator(CARDS).first
    number = int(card.get_attribute("data-g") or "") + 1
    card.locator(".chip").first.click()
    share(page, "copy-link")
    expect(page.locator("#share-tools .said")).to_have_text("Link copied.")
    link = page.evaluate(COPIED)
    assert "token" not in link
    with visit(browser, link, apart=True) as other:
        details = other.get_by_role("region", name="Why this colour")
        expect(details.locator(".where")).to_contain_text(f"rollout {number} · step 1")
        expect(other.locator("#example input")).to_have_value("2")
        expect(other.locator("#scheme input")).to_have_value("mean_suffix")
        assert advantages(other) == advantages(page)


def test_help_has_the_live_numbers_of_the_pinned_token(page: Page) -> None:
    page.locator(f"{CARDS}[data-g='2'] .chip").nth(1).click()
    total = page.locator("#heatmap .sum-of tfoot td").text_content() or ""
    page.get_by_role("tab", name="Help").click()
    expect(page.locator("#help-live")).to_contain_text("rollout 3, step 2")
    expect(page.locator("#help-sum")).to_contain_text(total.replace("+", ""))
    page.get_by_label("Find a metric").fill("kl/k")
    expect(page.locator("#help-metrics tbody tr:visible")).to_have_count(3)
    expect(page).to_have_url(re.compile("tab=help"))
    page.go_back()
    expect(page.get_by_role("tab", name="Inspect")).to_have_attribute("aria-selected", "true")
    expect(page).not_to_have_url(re.compile("tab=help"))


def exported(page: Page, kind: str, folder: Path) -> Path:
    with page.expect_download() as download:
        share(page, f"export-{kind}")
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path


LOADED = "document.fonts.ready.then((all) => [...all].filter((f) => f.status === 'loaded').map((f) => f.family))"
PIXELS = """async (url) => {
  const image = new Image(); image.src = url; await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.width, image.height];
  const context = canvas.getContext("2d"); context.drawImage(image, 0, 0);
  const { data } = context.getImageData(0, 0, image.width, image.height);
  const seen = new Set();
  for (let i = 0; i < data.length; i += 4 * 97) seen.add(`${data[i]},${data[i + 1]},${data[i + 2]}`);
  return [image.width, seen.size, [...data.slice(0, 3)].join()];
}"""
"""Of a picture, its width, about how many colours it has and the one in its corner."""


@pytest.mark.usefixtures("clipboard")
def test_files_the_picture_and_notebook_code_hold_what_is_on_screen(
    page: Page, browser: Browser, tmp_path: Path
) -> None:
    file = exported(page, "html", tmp_path)
    assert file.name == "group-tiny-process-G8-seed0.html"
    with visit(browser, file.as_uri()) as alone:
        expect_rollouts(alone, 8, ".wh")
        expect(alone.locator(".prompt")).to_have_text("Start with 7, add 3, multiply by 8, add 8, subtract 7, add 7.")
        assert {"Inter", "JetBrains Mono"} <= {name.strip('"') for name in alone.evaluate(LOADED)}

    page.locator("body").evaluate("node => node.classList.add('dark')")
    picture = exported(page, "png", tmp_path).read_bytes()
    page.locator("body").evaluate("node => node.classList.remove('dark')")
    width, colours, corner = page.evaluate(PIXELS, f"data:image/png;base64,{base64.b64encode(picture).decode()}")
    assert width > 1000  # as wide as the drawing, at two pixels a point
    assert colours > 20
    assert corner == "14,16,19"  # the dark page's own colour

    page.locator("#notebook").click()
    expect(page.locator("#notebook-code .said")).to_have_text("Copied.")
    assert page.evaluate(COPIED).strip() == page.locator("#notebook-code pre").inner_text().strip()
