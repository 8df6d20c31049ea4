"""Reward functions saved in the workspace: versions, names that will not do, deleting and undoing it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from workbench.errors import RewardCodeError
from workbench.rewards.saved import (
    SavedReward,
    UnreadableReward,
    delete_saved,
    list_saved,
    load_saved,
    save_reward,
    undo_delete,
)
from workbench.rewards.source import kind_in, reward_functions

STEP = "def mine(prompt, step, **columns):\n    return 1.0\n"
OTHER = STEP.replace("1.0", "2.0")
OUTCOME = "def whole(prompts, completions, **columns):\n    return [1.0] * len(prompts)\n"


def test_each_change_is_a_version_and_the_same_code_is_not(tmp_path: Path) -> None:
    first = save_reward(tmp_path, "mine", "step", STEP)
    assert (first.version, first.kind, first.code) == (1, "step", STEP)
    assert first.sha256 == hashlib.sha256(STEP.encode()).hexdigest()
    assert save_reward(tmp_path, "mine", "step", STEP) == first
    assert save_reward(tmp_path, "mine", "step", OTHER).version == 2
    assert save_reward(tmp_path, "mine", "step", STEP).version == 3  # going back is a change too
    assert load_saved(tmp_path, "mine").version == 3
    assert load_saved(tmp_path, "mine", 2).code == OTHER
    save_reward(tmp_path, "whole", "outcome", OUTCOME)
    listed = [(one.name, one.version, one.kind) for one in list_saved(tmp_path)]
    assert listed == [("mine", 3, "step"), ("mine", 2, "step"), ("mine", 1, "step"), ("whole", 1, "outcome")]
    assert (tmp_path / "rewards" / "mine" / "2.py").read_text() == OTHER


def test_two_pages_that_save_at_once_get_a_version_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_reward(tmp_path, "mine", "step", STEP)
    monkeypatch.setattr("workbench.rewards.saved._versions", lambda folder: [])  # as read before the other one saved
    assert save_reward(tmp_path, "mine", "step", OTHER).version == 2


def test_deleting_can_be_undone(tmp_path: Path) -> None:
    save_reward(tmp_path, "mine", "step", STEP)
    save_reward(tmp_path, "mine", "step", OTHER)
    token = delete_saved(tmp_path, "mine")
    assert list_saved(tmp_path) == []
    assert undo_delete(tmp_path, token) == "mine"
    assert [one.version for one in list_saved(tmp_path)] == [2, 1]
    with pytest.raises(RewardCodeError, match="brought back already"):
        undo_delete(tmp_path, token)


def test_undoing_does_not_write_over_what_was_saved_since(tmp_path: Path) -> None:
    save_reward(tmp_path, "mine", "step", STEP)
    token = delete_saved(tmp_path, "mine")
    save_reward(tmp_path, "mine", "step", OTHER)
    with pytest.raises(RewardCodeError, match="saved anew"):
        undo_delete(tmp_path, token)
    assert load_saved(tmp_path, "mine").code == OTHER


@pytest.mark.parametrize("name", ["", "../../x", "a/b", "a.b", "1a", "x" * 81, ".deleted", "nul\0", "é"])
def test_a_name_that_could_lead_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    for act in (
        lambda: save_reward(tmp_path, name, "step", STEP),
        lambda: load_saved(tmp_path, name),
        lambda: delete_saved(tmp_path, name),
    ):
        with pytest.raises(RewardCodeError, match="cannot be a saved reward's name"):
            act()
    with pytest.raises(RewardCodeError, match="nothing deleted"):
        undo_delete(tmp_path, f"{name}-0123abcd")


def test_links_out_of_the_workspace_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "1.py").write_text(STEP)
    folder = tmp_path / "workspace" / "rewards"
    folder.mkdir(parents=True)
    (folder / "mine").symlink_to(outside)
    with pytest.raises(RewardCodeError, match="out of the workspace"):
        load_saved(tmp_path / "workspace", "mine")
    (link,) = list_saved(tmp_path / "workspace")
    assert isinstance(link, UnreadableReward)
    assert "out of the workspace" in link.reason
    (folder / "other").mkdir()
    (folder / "other" / "1.py").symlink_to(outside / "1.py")
    with pytest.raises(RewardCodeError, match="is a link"):
        load_saved(tmp_path / "workspace", "other")


def test_invariant_saved_functions_put_there_by_hand_count_and_damaged_ones_hide_no_others(tmp_path: Path) -> None:
    folder = tmp_path / "rewards" / "whole"
    folder.mkdir(parents=True)
    (folder / "1.py").write_text(OUTCOME)
    (folder / "2.py").write_bytes(b"\xff\xfe")
    (folder / "2.json").write_text("{")
    (folder / "3.py").write_text(OUTCOME)
    (folder / "3.json").write_text("{")  # what it would note is made up for from the code
    os.mkfifo(folder / "4.py")  # which would be read without an end
    (folder / "notes.txt").write_text("x")
    pipe, noted, broken, good = list_saved(tmp_path)
    assert isinstance(pipe, UnreadableReward)
    assert isinstance(broken, UnreadableReward)
    assert isinstance(good, SavedReward)
    assert isinstance(noted, SavedReward)
    assert (pipe.version, broken.version, good.version, good.kind) == (4, 2, 1, "outcome")
    assert (noted.version, noted.kind, noted.code) == (3, "outcome", OUTCOME)
    assert "no file" in pipe.reason
    with pytest.raises(RewardCodeError, match="cannot be read"):
        load_saved(tmp_path, "whole", 2)
    assert save_reward(tmp_path, "whole", "outcome", OUTCOME).version == 5  # none is written over


def test_what_is_not_there_is_said_with_what_is(tmp_path: Path) -> None:
    with pytest.raises(RewardCodeError, match="no saved reward is named 'mine'; there are none"):
        load_saved(tmp_path, "mine")
    save_reward(tmp_path, "whole", "outcome", OUTCOME)
    with pytest.raises(RewardCodeError, match="there are whole"):
        delete_saved(tmp_path, "mine")
    with pytest.raises(RewardCodeError, match="no version 7; it has 1"):
        load_saved(tmp_path, "whole", 7)
    with pytest.raises(RewardCodeError, match="no code"):
        save_reward(tmp_path, "mine", "step", " \n")
    with pytest.raises(RewardCodeError, match="262,144 can be saved"):
        save_reward(tmp_path, "mine", "step", "#" * 262_145)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (STEP, "step"),
        (OUTCOME, "outcome"),
        ("def f(prompts, completions, steps, **c): ...", "step"),
        ("def f(prompts, completions, *, step=1, **c): ...", "outcome"),
        ("def _help(step): ...\ndef f(completions, **c): ...", "outcome"),
        ("def a(step): ...\ndef reward(completions, **c): ...", "outcome"),
        ("def a(step): ...\ndef b(completions, **c): ...", None),
        ("x = 1", None),
        ("def f(", None),
    ],
)
def test_a_functions_kind_is_read_from_its_parameters(code: str, kind: str | None) -> None:
    assert kind_in(code, "mine") == kind


def test_the_reward_functions_among_a_recipes_are_found() -> None:
    code = "def extract(text): ...\ndef right(prompts, completions, answer, **kwargs): ...\ndef count(text): ...\n"
    code += "def tags(completions, **kwargs): ...\ndef one(prompt, step, **c): ...\ndef closed(completions): ...\n"
    assert reward_functions(code) == ["right", "tags", "one"]
