"""What a run that is over is used for on the page: inspected, taken as settings, exported."""

import zipfile
from pathlib import Path

import pytest

from tests.drafts import draft_of
from tests.stored_runs import store
from tests.test_references import saved
from workbench.data import load_task
from workbench.errors import RunError, WorkbenchError
from workbench.runs import Run
from workbench.steps import StepPattern
from workbench.ui.downloads import export_run, write_folder
from workbench.ui.handlers.fields import with_path
from workbench.ui.handlers.runs import inspect_policy, train_on, use_settings

ROOT = Path(__file__).parents[1]


@pytest.fixture
def first(tmp_path: Path) -> Run:
    """A stopped run of 7 steps on another task, with a checkpoint of step 4."""
    run = store(tmp_path, "first", state="stopped", task="finish", run={"steps": 7})
    saved(run, "checkpoint-4")
    return run


def test_inspect_has_what_the_policy_answered_and_was_scored_by_and_trains_as_before(tmp_path: Path) -> None:
    method = {
        "pattern": {"regex": r"\n+", "kind": "ends", "leave_out_thinking": True},
        "rewards": [{"name": "tag_format", "kind": "outcome", "weight": 2.0}],
        "credit": {"scheme": "outcome"},
        "sampling": {"max_completion_length": 77},
    }
    prompt = {"system": "Think first."}
    run = store(tmp_path, "first", state="stopped", task="chain-arithmetic-tags", run={"steps": 7}, method=method,
                prompt=prompt)  # fmt: skip
    saved(run, "checkpoint-4")
    draft = draft_of()
    draft = draft.but(tree=with_path(with_path(draft.tree, "policy.adapter", "some/adapter"), "method.name", "dpo"))
    after, _ = inspect_policy(draft, "run:first@4", tmp_path)
    assert (after.policy, after.policy_options["adapter"]) == ("run:first@4", None)
    assert (after.task, after.tree["prompt"]["system"]) == ("chain-arithmetic-tags", "Think first.")
    assert after.prompt == load_task("chain-arithmetic-tags")[0].prompt
    assert after.pattern() == StepPattern(r"\n+", "ends", leave_out_thinking=True)
    assert [(row.name, row.weight) for row in after.rows if row.on] == [("tag_format", 2.0)]
    assert after.credit["scheme"] == "outcome"
    assert after.sampling()[0].max_completion_length == 77
    assert after.method == "dpo"
    assert [after.tree[part] for part in ("run", "optimiser")] == [draft.tree[part] for part in ("run", "optimiser")]


def test_settings_are_the_run_s_and_the_draft_before_is_left(tmp_path: Path, first: Run) -> None:
    draft = draft_of()
    after, _ = use_settings(draft, "first", tmp_path)
    assert (after.tree["run"]["steps"], after.task) == (7, "finish")
    assert draft.tree["run"]["steps"] != 7
    assert after.config().run == first.config().run
    slower, _ = use_settings(draft, "first/entropy collapse", tmp_path)
    assert slower.config().optimiser.learning_rate == first.config().optimiser.learning_rate / 2


def test_training_goes_on_from_a_checkpoint_under_the_run_s_settings(tmp_path: Path, first: Run) -> None:
    after, _ = train_on(draft_of(), "run:first@4", tmp_path)
    assert (after.config().policy.path, after.config().run) == ("run:first@4", first.config().run)
    with pytest.raises(WorkbenchError, match="5"):
        train_on(draft_of(), "run:first@5", tmp_path)


def test_a_model_is_exported_as_by_the_command_and_refusals_are_its_own(tmp_path: Path) -> None:
    saved(store(tmp_path, "whole", state="stopped"), "checkpoint-4")  # it has no final one
    folder = tmp_path / "aside" / "whole-model"
    export_run("whole", "model", folder, tmp_path)
    with (tmp_path / "model.zip").open("wb") as file:
        write_folder(folder, file)
    names = zipfile.ZipFile(tmp_path / "model.zip").namelist()
    assert {"whole-model/README.md", "whole-model/config.json", "whole-model/model.safetensors"} <= set(names)
    with pytest.raises(RunError, match="no adapter"):
        export_run("whole", "adapter", tmp_path / "aside" / "whole-adapter", tmp_path)
    with pytest.raises(RunError, match="picture"):
        export_run("whole", "picture", folder, tmp_path)
