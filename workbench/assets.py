"""Where the files that come with the workbench lie: the embedded policy and real data. Knows paths only."""

from __future__ import annotations

from pathlib import Path

_IN_WHEEL = Path(__file__).resolve().parent / "data"
ASSETS = _IN_WHEEL if _IN_WHEEL.is_dir() else _IN_WHEEL.parents[1] / "assets"
"""``assets`` beside the package in a checkout, the package's own ``data`` where it was installed as a wheel."""
GSM8K = ASSETS / "gsm8k"
"""GSM8K rows and four models' answers to 300 of its questions; its README.md says where they come from."""
