"""Where the files that come with the workbench lie: the embedded policy and real data. Knows paths only."""

from __future__ import annotations

from pathlib import Path

ASSETS = Path(__file__).resolve().parents[1] / "assets"
GSM8K = ASSETS / "gsm8k"
"""GSM8K rows and four models' answers to 300 of its questions; its README.md says where they come from."""
