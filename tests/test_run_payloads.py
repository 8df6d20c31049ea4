"""What the Train and Runs tabs are answered has the same keys in Python and in the scripts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_type_hints

import pytest

from tests.stored_runs import store
from workbench.figures.overlay import OverlayLine, OverlayPanel, RunLine
from workbench.ui.handlers import metrics_cache, run_follow, runs

ASSETS = Path(runs.__file__).parents[1] / "assets"
PAIRS = {
    "train": {
        "News": run_follow.News, "Described": run_follow.Described, "StoredGroup": run_follow.StoredGroup,
        "Answer": run_follow.Answer, "Block": metrics_cache.Block,
    },
    "runs": {
        "Table": runs.Table, "Overlay": runs.Overlay, "Configuration": runs.Configuration, "Seed": runs.Seed,
        "Difference": runs.Difference, "Missing": runs.Missing, "Removed": runs.Removed, "Restored": runs.Restored,
        "OverlayPanel": OverlayPanel, "OverlayLine": OverlayLine, "RunLine": RunLine,
    },
}  # fmt: skip


def typedefs(folder: str) -> dict[str, set[str]]:
    """The keys of each ``@typedef {{key: type, …}} Name``."""
    text = re.sub(r"\n \*\s*", " ", (ASSETS / folder / "payloads.js").read_text(encoding="utf-8"))
    return {name: set(re.findall(r"(\w+): ", body)) for body, name in re.findall(r"@typedef \{\{(.*?)\}\} (\w+)", text)}


@pytest.mark.parametrize("folder", PAIRS)
def test_both_sides_name_the_same_keys(folder):
    there = typedefs(folder)
    for name, declared in PAIRS[folder].items():
        assert there[name] == set(get_type_hints(declared)), name


def test_a_listed_run_has_the_keys_that_scripts_read(tmp_path):
    store(tmp_path, "a", [{"step": 1, "reward": 0.5, "accuracy": 0.25, "seconds": 2.0}])
    (row,) = runs.table(tmp_path)["runs"]
    assert typedefs("runs")["RunRow"] - {"problem"} == set(row) - {"problem"}
    (listed,) = run_follow.runs_table(tmp_path)
    assert typedefs("train")["ListedRun"] == set(listed)
