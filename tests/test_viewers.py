"""Many at once: eight pages on one live run, and a page that outlives its app."""

import base64
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import psutil
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browsing import SECONDS, App, serve, with_token
from workbench.rundir import RunDir
from workbench.training.methods import RunConfig

VIEWERS, ROWS = 8, 30


def live_element(app: App) -> int:
    """The element of the Train tab whose server functions the page's script calls."""
    components = httpx.get(f"{app.url}config", headers=app.headers, timeout=60).json()["components"]
    return next(one["id"] for one in components if one["props"].get("elem_id") == "live")


@pytest.mark.browser  # no Chromium, but before the test below, which ends the app
def test_viewers_of_one_live_run_each_see_every_row_once(app: App, workspace: Path) -> None:
    """This process writes the run while eight pages poll, each with its own cursor."""
    run = RunDir.create(workspace, RunConfig(name="watched"))
    run.set_status("running", device="cpu")
    everybody_looks = threading.Barrier(VIEWERS + 1)
    element = live_element(app)

    def drawn(panels: list[dict[str, Any]]) -> list[int]:
        """The steps of the loss that figures show: they hold all rows so far."""
        lines = {trace["metric"]: trace["x"] for panel in panels for trace in panel["traces"]}
        return np.frombuffer(base64.b64decode(lines.get("loss", "")), "<f4").astype(int).tolist()

    def watch(number: int) -> list[int]:
        with httpx.Client(base_url=app.url, headers=app.headers, timeout=60) as client:
            asked = {"component_id": element, "session_hash": f"viewer{number}", "fn_name": "poll"}
            cursor, seen, final = 0, list[int](), False
            everybody_looks.wait(60)
            while not final:
                data = {"run": "watched", "cursor": cursor, "after": -1}
                news = client.post("gradio_api/component_server/", json={**asked, "data": data}).json()
                assert "error" not in news, news
                seen = drawn(news["panels"]) if news["panels"] else seen + [row["step"] for row in news["rows"]]
                cursor, final = news["cursor"], news["final"]
            return seen

    with ThreadPoolExecutor(VIEWERS) as pool:
        watching = [pool.submit(watch, number) for number in range(VIEWERS)]
        everybody_looks.wait(60)
        for step in range(1, ROWS + 1):
            run.append_metrics({"step": step, "loss": 0.5})
        run.set_status("finished", step=ROWS)
        rows = [one.result() for one in watching]
    # A final status follows the last row, and the poll that sees it reads the rows after it.
    assert rows == [list(range(1, ROWS + 1))] * VIEWERS


@pytest.mark.browser
def test_an_open_page_goes_on_after_the_app_was_started_again(
    browser: Browser, workspace: Path, ending_app: App
) -> None:
    RunDir.create(workspace, RunConfig(name="there")).set_status("finished", step=1)
    with browser.contexts[0].new_page() as page:
        page.set_default_timeout(SECONDS)
        page.goto(with_token(ending_app.url))
        assert page.url == ending_app.url  # no token in the address, so none in history, bookmarks or Referer
        page.get_by_role("tab", name="Train").click()
        expect(page.locator("#run-picker")).to_have_value("there")
        page.get_by_role("tab", name="Runs").click()
        expect(page.locator("#runs tbody tr")).to_have_count(1)
        process = psutil.Process(ending_app.pid)
        process.terminate()
        process.wait()
        page.get_by_label("Actions of there", exact=True).click()
        page.get_by_role("menuitem", name="Delete there").click()
        expect(page.locator("#runs-lost")).to_be_visible()
        expect(page.locator("#runs tbody tr")).to_have_count(1)
        expect(page.locator("#policy-status")).to_contain_text("no connection")
        page.get_by_role("tab", name="Help").click()
        expect(page.locator("#help-live")).to_contain_text("did not answer")
        page.get_by_role("tab", name="Train").click()
        expect(page.locator("#run-state")).to_have_text("no connection")
        page.locator("#start").click()  # its answer is lost, whether or not a run comes of it
        RunDir.create(workspace, RunConfig(name="started")).set_status("finished", step=1)
        with serve(workspace, port=urlsplit(ending_app.url).port) as again:
            assert again.token == ending_app.token
            expect(page.locator("#policy-status")).not_to_contain_text("no connection")
            expect(page.locator("#run-picker")).to_have_value("started")
            page.get_by_role("tab", name="Runs").click()
            expect(page.locator("#runs-lost")).to_be_hidden()
            expect(page.locator("#runs tbody tr")).to_have_count(2)
            a_start_that_gradio_waits_for_in_vain_is_shown(page, workspace)


def a_start_that_gradio_waits_for_in_vain_is_shown(page: Page, workspace: Path) -> None:
    """Gradio hears nothing of Start, neither an answer nor that the connection broke, so that it never loads anew."""
    page.get_by_role("tab", name="Train").click()
    expect(page.locator("#run-picker option")).to_have_count(2)
    page.route("**/queue/join*", lambda _: None)
    page.route("**/component_server/", lambda route: route.abort())
    expect(page.locator("#run-state")).to_have_text("no connection")
    page.locator("#start").click()
    RunDir.create(workspace, RunConfig(name="meanwhile")).set_status("finished", step=1)
    page.unroute("**/component_server/")
    expect(page.locator("#run-picker")).to_have_value("meanwhile")
