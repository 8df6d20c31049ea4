"""The public surface, pinned: a name that goes or comes is a decision, not an accident."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import workbench as wb

ROOT = Path(__file__).parents[1]
WRITTEN = re.compile(r"(?<![\w/.])(?<!-host )wb\.([A-Za-z]\w*)")
NAMES = [
    "Credit",
    "Example",
    "Group",
    "Progress",
    "Reward",
    "Rollout",
    "RunComparison",
    "RunConfig",
    "ScoredGroup",
    "Step",
    "StepPattern",
    "StepScores",
    "align_steps",
    "assign_credit",
    "beliefs",
    "check_reward",
    "compare",
    "compare_credits",
    "credit_group",
    "default_workspace",
    "group_of",
    "heatmap",
    "label_steps",
    "list_runs",
    "load_groups",
    "load_policy",
    "load_task",
    "make_demonstrations",
    "make_pairs",
    "mix_rows",
    "open_in_page",
    "open_run",
    "preflight",
    "probe",
    "sample_group",
    "score_both",
    "score_group",
    "show",
    "split_steps",
    "step_values",
    "token_texts",
    "train",
    "train_to_end",
    "watch",
    "with_importances",
    "with_reference",
]


def test_the_public_names() -> None:
    assert wb.__all__ == NAMES
    assert set(NAMES) <= set(dir(wb))


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_is_its_modules_own(name: str) -> None:
    assert getattr(wb, name) is getattr(importlib.import_module(wb._HOMES[name]), name)


def test_every_name_in_the_documentation_and_the_notebooks_is_there() -> None:
    """A host may be called wb, too: ``--allow-host wb.example``."""
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    files += [*(ROOT / "notebooks").glob("*.ipynb"), *(ROOT / "examples").glob("*.*")]
    found = {name: file.name for file in files for name in WRITTEN.findall(file.read_text(encoding="utf-8"))}
    assert len(found) > 30
    assert {name: file for name, file in found.items() if not hasattr(wb, name)} == {}


def in_a_fresh_interpreter(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = "torch", "gradio", "pandas", "transformers", "trl", "pyarrow", "numpy", "pydantic"
    loaded = in_a_fresh_interpreter(f"import sys, workbench; print({set(heavy)!r} & sys.modules.keys())")
    assert loaded.strip() == "set()"


def test_the_names_that_need_no_model_load_no_torch() -> None:
    needing = {"beliefs", "load_policy", "sample_group", "step_values", "with_importances", "with_reference"}
    code = (
        "import sys, workbench as wb, workbench.policies.client\n"
        f"[getattr(wb, name) for name in wb.__all__ if name not in {needing}]\n"
        "print({'torch', 'gradio', 'transformers', 'trl'} & sys.modules.keys())"
    )
    assert in_a_fresh_interpreter(code).strip() == "set()"


def test_threads_wait_briefly_unless_the_user_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    for before, after in (("", "1000"), ("7", "7")):
        monkeypatch.setenv("GOMP_SPINCOUNT", before)
        if not before:
            monkeypatch.delenv("GOMP_SPINCOUNT")
        importlib.reload(wb)
        assert os.environ["GOMP_SPINCOUNT"] == after
