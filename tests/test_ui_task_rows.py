"""How a task's rows are read on the page: shown, changed, kept, in a run's configuration and in notebook code."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.drafts import draft_of, with_values
from workbench.errors import TaskError
from workbench.training.methods import RunConfig
from workbench.ui.handlers.example import choose_example, preview, read_as
from workbench.ui.handlers.fields import credit_section
from workbench.ui.handlers.page_state import PageState
from workbench.ui.handlers.session import GroupStore
from workbench.ui.handlers.sharing import dump, inspect_code, restore

COLUMNS = "prompt=q,answer=truth.value"


@pytest.fixture
def file(tmp_path: Path) -> str:
    rows = [{"q": f"{n} + 1?", "truth": {"value": n + 1}, "level": n % 5} for n in range(20)]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    return str(tmp_path / "rows.json")


def typed(draft: PageState, **fields: Any) -> PageState:
    """The draft with what was typed into the fields, as the page sends it."""
    return with_values(draft, {f"task.{name}": value for name, value in fields.items()})


def test_a_file_of_other_columns_is_read_once_its_fields_say_how(file: str) -> None:
    first = draft_of()
    with pytest.raises(TaskError, match=r"its columns are 'q', 'truth', 'level'; say which of them .* task\.columns"):
        read_as(first, file, with_values(draft_of(), {"task.split": "x"}))
    draft = read_as(typed(first, columns=COLUMNS, filter="level >= 3"), file, first)
    assert draft is not None
    assert (draft.task, draft.index, draft.text, draft.columns["answer"]) == (file, 0, "3 + 1?", "4")
    assert [row.name for row in draft.rows] == ["sums_hold", "answer_correctness"]  # the task's own
    shown = json.loads(preview(draft))
    assert shown["text"] == "7 prompts to train on, 1 held out; 12 left out by filter"
    assert shown["rows"][0] == [["prompt", "3 + 1?"], ["answer", "4"], ["other columns", "q, truth, level"]]
    config = draft.but(credit=credit_section("outcome")).config()
    assert (config.task.columns, config.task.filter) == ({"prompt": "q", "answer": "truth.value"}, "level >= 3")
    assert read_as(draft, file, draft) is None  # nothing was changed


def test_a_task_of_several_turns_brings_its_environment_and_its_policy_and_takes_them_away_again(file: str) -> None:
    first = draft_of()
    played = read_as(first, "calculator", first)
    assert played is not None
    assert (played.policy, played.kind, played.pattern().kind) == ("tiny-tools", "turns", "turns")
    environment = played.environment()
    assert environment is not None
    assert environment.name == "calculator"
    assert played.config().environment == environment  # Train starts what Inspect sampled
    back = read_as(played, "chain-arithmetic", played)
    assert back is not None
    assert (back.policy, back.environment()) == ("tiny", None)
    mine = with_values(played, {"policy.path": "my/model"})
    away = read_as(mine, "chain-arithmetic", mine)
    assert away is not None
    assert away.policy == "my/model"


def test_a_reload_and_notebook_code_have_the_reading(file: str, tmp_path: Path) -> None:
    draft = PageState.of(RunConfig.parse({"task": {"name": file, "columns": COLUMNS, "sample_seed": None}}))
    draft = choose_example(draft, 2)
    kept = json.dumps({"page": dump(draft, "")})
    restored = restore(kept, {}, GroupStore(tmp_path))
    assert restored is not None
    assert (restored.problems, restored.draft.text) == ((), "2 + 1?")
    assert restored.draft.task_section() == draft.task_section()
    group = draft_of().group
    assert group is not None
    sampled = replace(group, prompt=draft.prompt, columns=draft.columns)
    code = inspect_code(draft.but(group=sampled), tmp_path / "group.json")
    assert f"wb.load_task({file!r}, columns={{'prompt': 'q', 'answer': 'truth.value'}}, sample_seed=None)" in code
