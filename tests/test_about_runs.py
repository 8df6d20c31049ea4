"""What somebody says of a run, its other name, curves over other axes, and two runs' answers side by side."""

import json
from pathlib import Path
from typing import Any

from tests.credits import worked_credit
from tests.stored_runs import store
from workbench.runs import list_runs, open_run
from workbench.runs.run import About, about, describe, rename
from workbench.ui.handlers import runs
from workbench.ui.handlers.run_follow import side_by_side
from workbench.ui.handlers.session import Services
from workbench.views.curves import over


def test_a_note_and_tags_are_kept_and_a_damaged_file_says_nothing(tmp_path: Path) -> None:
    run = store(tmp_path, "a")
    assert about(run) == About()
    describe("a", " to repeat\n", ["base  line", "base line", " "], tmp_path)
    assert about(run) == About("to repeat", ("base line",))
    (row,) = runs.table(tmp_path)["runs"]
    assert (row["note"], row["tags"]) == ("to repeat", ("base line",))
    (run.path / "about.json").write_text("{")
    assert about(run) == About()


def test_a_run_that_is_over_has_another_name_with_all_it_holds(tmp_path: Path) -> None:
    store(tmp_path, "a", [{"step": 1, "reward": 0.5}], state="stopped")
    store(tmp_path, "taken")
    describe("a", "kept", [], tmp_path)
    assert runs.say_of(tmp_path, "a", "b", "kept", [])["message"] == "a is b now"
    assert {run.name for run in list_runs(tmp_path)} == {"b", "taken"}
    assert about(open_run("b", tmp_path)).note == "kept"
    assert open_run("b", tmp_path).metrics_rows()[0][0]["reward"] == 0.5
    assert rename("b", "my run", tmp_path).name == "my-run"
    rename("my-run", "b", tmp_path)
    for new, said in (
        ("taken", "there is a run 'taken' already"),
        ("../b", "cannot be a run's name"),
        ("", "cannot be"),
    ):
        answer = runs.say_of(tmp_path, "b", new, "", [])
        assert answer["level"] == "error"
        assert said in answer["message"]


def test_curves_over_another_metric_by_hand() -> None:
    """One run: x is 10, 20, 10 at steps 1 to 3, so the values 1 and 3 at 10 are their mean, 2, and step 4 has no x."""
    columns = {"time": ([1, 2, 3], [10, 20, 10]), "reward": ([1, 2, 3, 4], [1, 5, 3, 9])}
    ((_, moved),) = over([("a", columns)], "time")
    assert moved["reward"] == ([10, 20], [2, 5])


def test_seeds_are_read_off_at_each_others_places() -> None:
    """At 15 the first is half way from 0 to 2; the second ends at 15 and says nothing of 20."""
    one: Any = {"time": ([1, 2], [10, 20]), "reward": ([1, 2], [0, 2])}
    other: Any = {"time": ([1, 2], [10, 15]), "reward": ([1, 2], [4, 6])}
    (_, first), (_, second) = over([("one", one), ("other", other)], "time")
    assert first["reward"] == ([10, 15, 20], [0, 1, 2])
    assert second["reward"] == ([10, 15], [4, 6])


def test_two_runs_answers_to_a_prompt_that_both_watch(tmp_path: Path, services: Services) -> None:
    for name, step in (("a", 4), ("b", 9)):
        store(tmp_path, name).dir.rollouts.write(step, [worked_credit()], watched=True)
    store(tmp_path, "bare")
    answer = side_by_side(services, ["a", "b"], 3)
    assert (answer["index"], answer["count"], answer["steps"], answer["error"]) == (0, 1, [4, 9], "")
    drawn = [json.loads(drawing)["prompt"] for drawing in answer["drawings"]]
    assert drawn == [worked_credit().scored.group.prompt] * 2
    assert "'bare'" in side_by_side(services, ["a", "bare"], 0)["error"]
    assert "no run 'gone'" in side_by_side(services, ["a", "gone"], 0)["error"]
