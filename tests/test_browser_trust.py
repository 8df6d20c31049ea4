"""In the browser: what the page says of the code it runs, and a configuration whose code waits for Trust."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browsing import SECONDS, App, chromium, visit
from workbench.config import RewardConfig, RunConfig
from workbench.rewards import TrustStore
from workbench.ui.handlers.scoring import TRUST_MODEL

pytestmark = pytest.mark.browser

CODE = "def shared_reward(prompt, step, **columns):\n    return float(len(step) % 3)\n"


@pytest.fixture(scope="module")
def page(app: App) -> Iterator[Page]:
    with chromium() as browser, visit(browser, app.url) as page:
        yield page


def test_code_of_an_opened_configuration_runs_once_it_is_trusted(page: Page, app: App, tmp_path: Path) -> None:
    expect(page.locator("#trust-model")).to_contain_text(TRUST_MODEL, timeout=SECONDS)
    expect(page.locator("#drawing")).to_contain_text("Step 1", timeout=SECONDS)
    shared = tmp_path / "shared.yaml"
    shared.write_text(RunConfig(rewards=[RewardConfig(name="shared_reward", code=CODE)]).to_yaml())
    with page.expect_file_chooser() as chooser:
        page.locator("#open-config").click()
    chooser.value.set_files(shared)

    expect(page.locator("#open-note")).to_contain_text("was not run here before (shared_reward)", timeout=SECONDS)
    expect(page.locator("#open-note pre")).to_contain_text("return float(len(step) % 3)")
    expect(page.locator("#reward-0")).not_to_contain_text("shared_reward")
    assert not TrustStore(app.workspace).is_trusted(CODE)

    page.locator("#trust-config").click()
    expect(page.locator("#reward-0")).to_contain_text("shared_reward", timeout=SECONDS)
    expect(page.locator("#open-note")).to_contain_text("are those of shared.yaml")
    expect(page.locator("#trust-config")).to_be_hidden()
    assert TrustStore(app.workspace).is_trusted(CODE)
