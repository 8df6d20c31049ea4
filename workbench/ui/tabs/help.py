"""The Help tab: one element that shows the formulas with the live numbers of what is on Inspect, and a glossary."""

from __future__ import annotations

import json

from pydantic import validate_call

from workbench.ui.door import TOKEN_FILE
from workbench.ui.handlers.help import guide, live_numbers
from workbench.ui.handlers.session import Services
from workbench.ui.payloads import LivePayload
from workbench.ui.tabs.common import drawn, served


def build_help(services: Services) -> None:
    @validate_call
    def live(tab: str, rollout: int | None, token: int | None) -> LivePayload | None:
        return live_numbers(services.credit(tab), rollout, token)

    text = guide(str(services.workspace / TOKEN_FILE), "{origin}")
    drawn("help", "help", json.dumps(text), server_functions=served([live]))
