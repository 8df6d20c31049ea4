"""Where the embedded policies and the group sampled from them lie. Knows paths only, no torch."""

from __future__ import annotations

from workbench.assets import ASSETS

EMBEDDED = {"tiny": ASSETS / "tiny", "tiny-tools": ASSETS / "tiny_tools"}
FIRST_GROUP = ASSETS / "first-group.json"
"""A group that was sampled from ``tiny`` when it was built, shown before any policy is loaded."""
