"""In the browser: what the page says of the code it runs, and what is isolated."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browsing import SECONDS, App, add_reward, close_editor, expect_reward, open_config, visit
from tests.judge_server import serving, steps_answer
from workbench.rewards import RewardConfig
from workbench.training.methods import RunConfig
from workbench.ui.handlers.scoring import TRUST_MODEL

pytestmark = pytest.mark.browser

CODE = "import os\ndef shared_reward(prompt, step, **c):\n    return float(len(os.listdir('/')) + len(step) % 3)\n"


@pytest.fixture(scope="module")
def page(browser: Browser, app: App) -> Iterator[Page]:
    with visit(browser, app.url) as page:
        yield page


def test_an_opened_configuration_is_isolated_until_that_is_switched_off(page: Page, tmp_path: Path) -> None:
    expect(page.locator("#trust-model")).to_contain_text(TRUST_MODEL, timeout=SECONDS)
    expect(page.locator("#drawing")).to_contain_text("Step 1", timeout=SECONDS)
    shared = tmp_path / "shared.yaml"
    shared.write_text(RunConfig(method={"rewards": [RewardConfig(name="shared_reward", code=CODE)]}).to_yaml())
    open_config(page, shared)

    expect(page.locator("#reward-0")).to_contain_text("shared_reward", timeout=SECONDS)
    expect(page.locator("#door-note")).to_contain_text("isolated")
    expect(page.locator("#isolate input")).to_be_checked()
    note = page.locator("#reward-note-0")
    expect(note).to_contain_text(re.compile("mean|file access is off"))
    page.locator("#isolate input").uncheck()
    expect(note).to_contain_text("mean")


def test_a_judge_says_why_on_the_chip(page: Page) -> None:
    def answer(body: dict[str, Any]) -> str:
        texts = re.findall(r"(?m)^\[\d+\] (.*)$", body["messages"][0]["content"])
        return steps_answer(*(0.5 for _ in texts), reason="it <b>adds</b> up", quote="Step")

    with serving(answer) as endpoint:
        add_reward(page, "A judge")
        page.locator("#judge-base-url").get_by_role("textbox").fill(endpoint.url)
        page.locator("#judge-model").get_by_role("textbox").fill("small")
        page.locator("#judge-add").click()
        expect_reward(page, 1, "judge · judge", "step")
        expect(page.locator("#drawing .chip .r").first).to_contain_text(".5")  # whole numbers before
        expect(page.locator("#judge-model")).to_be_hidden()  # the form folds once it is there
    page.locator("#reward-edit-1").click()
    expect(page.locator("#judge-base-url").get_by_role("textbox")).to_have_value(endpoint.url)
    close_editor(page)
    chip = page.locator("#drawing .chip").first
    chip.hover()
    expect(page.locator("#drawing .tip .remark").first).to_have_text("judge, reason it <b>adds</b> up")
    chip.click()
    expect(page.locator("#drawing .details .remark").last).to_have_text("judge, quote “Step”")
