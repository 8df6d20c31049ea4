"""The Help tab: one element that shows the formulas with the live numbers of what is on Inspect, and a glossary."""

from __future__ import annotations

import json
from typing import Any

from workbench.ui.door import TOKEN_FILE
from workbench.ui.handlers.help import guide, live
from workbench.ui.handlers.session import Services
from workbench.ui.payloads import LivePayload
from workbench.ui.tabs.common import drawn, tab_of


def build_help(services: Services) -> None:
    def numbers(payload: Any) -> LivePayload | None:
        return live(services.credit(tab_of(payload)), payload.get("rollout"), payload.get("token"))

    numbers.__name__ = "live"
    text = guide(str(services.workspace / TOKEN_FILE), "{origin}")
    drawn("help", "help", json.dumps(text), server_functions=[numbers])
