"""What the address of Inspect says of its drawing, in a real Chromium: the page's own scripts and no app."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qsl

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browsing import visit
from tests.credits import worked_credit
from workbench.views.cards import asset, bundle
from workbench.views.heatmap import credit_payload, to_json

pytestmark = pytest.mark.browser

ASSETS = Path(__file__).resolve().parents[1] / "workbench" / "ui" / "assets"
MOUNT = """const element = document.querySelector("#view");
const value = JSON.stringify({ show: JSON.parse(document.querySelector("#data").textContent) });
Workbench.inspect({ element, props: { value }, watch() {}, server: {} });"""


def document() -> str:
    payload = to_json(credit_payload(worked_credit(), other=worked_credit("step")))
    return (
        f'<!doctype html><meta charset="utf-8"><style>{asset("drawing/heatmap.css")}</style>'
        f'<div id="view"><div class="drawn"></div></div><script type="application/json" id="data">{payload}</script>'
        f"<script>globalThis.Workbench = {bundle(ASSETS / 'workbench.js')};</script><script>{MOUNT}</script>"
    )


class Pages(BaseHTTPRequestHandler):
    body = b""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        """Nothing: the test's output is its own."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    Pages.body = document().encode()
    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def state(page: Page) -> tuple[str, str]:
    """Where the pin is, "" for nowhere, and what is coloured."""
    pinned = page.locator(".details.own")
    where = pinned.locator(".where").inner_text() if pinned.count() else ""
    return where.split(' "')[0], page.locator(".colour-by").input_value()


def said(page: Page) -> dict[str, str]:
    return dict(parse_qsl(page.evaluate("location.search")[1:]))


def test_a_link_carries_the_colour_and_the_token(browser: Browser, url: str) -> None:
    with visit(browser, url) as page:
        page.locator(".colour-by").select_option("weight")
        assert said(page) == {"colour": "weight"}
        page.locator(".rollout").nth(1).locator(".chip").first.click()  # a step: its last token is understood
        assert said(page) == {"colour": "weight", "rollout": "2", "k": "1"}
        page.locator(".rollout").nth(1).locator(".text:not(.second) i").nth(6).click()
        assert said(page) == {"colour": "weight", "rollout": "2", "k": "2", "t": "6"}
        link = page.evaluate("location.href")
        with visit(browser, link) as other:
            assert state(other) == ("rollout 2 · step 2 · token 6", "weight")
            other.locator(".details summary", has_text="Every number").click()
            expect(other.locator(".details .shown").first).to_have_text("weight in the loss")
            expect(other).to_have_url(link)
        page.locator(".colour-by").select_option("advantage")
        page.keyboard.press("Escape")
        assert said(page) == {}


ADDRESSES = {
    "colour=nonsense&rollout=1&k=2&t=99": ("rollout 1 · step 2 · token 7", "advantage"),  # its step, without the token
    "colour=difference&rollout=3&t=0": ("rollout 3 · step 1 · token 0", "difference"),
    "colour=&rollout=4&k=1&t=1": ("", "advantage"),
    "colour=entropy&rollout=1&k=x&t=1.5": ("", "entropy"),
    "t=2": ("", "advantage"),
    "run=x&colour=entropy&rollout=1&k=1": ("", "advantage"),  # a link to Train
}


def test_what_an_address_asks_in_vain_is_left_out(browser: Browser, url: str) -> None:
    with visit(browser, url) as page:
        for query, expected in ADDRESSES.items():
            page.goto(f"{url}?{query}")
            assert (query, state(page)) == (query, expected)
