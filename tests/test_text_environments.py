"""Text environments: built-in classes in this process, users' code in the sandbox, and all that can go wrong."""

import re
from typing import Any

import pytest

from workbench.config import EnvironmentSection
from workbench.errors import EpisodeError
from workbench.rewards import Sandbox
from workbench.rewards.environments import Environment, load_environment
from workbench.schema import Rollout, Turn

CODE = """
class Counter:
    stop = ("\\n",)

    def reset(self, prompt, **columns):
        self.count = columns.get("start", 0)
        if columns.get("broken"):
            raise KeyError(prompt)

    def reply(self, turn):
        self.count += 1
        if "hang" in turn:
            while True:
                pass
        if "raise" in turn:
            raise ValueError("no such turn")
        if "leave" in turn:
            raise SystemExit
        if "die" in turn:
            import os
            os._exit(3)
        if "print" in turn:
            print("counted", self.count)
        if "number" in turn:
            return self.count
        if "much" in turn:
            return "x" * 2**20
        return None if "end" in turn else f"= {self.count}\\n"

    def state(self):
        return str(self.count)
"""
DICE = """
import random
class Dice:
    stop = ["!"]
    def reset(self, prompt, **columns): pass
    def reply(self, turn): return str(random.SystemRandom().random())
"""


def counter(worker: Sandbox, **settings: Any) -> Environment:
    environment = load_environment(EnvironmentSection(name="Counter", code=CODE, **settings), lambda: worker)
    assert environment is not None
    return environment


def test_one_instance_a_row_runs_in_the_worker(worker):
    environment = counter(worker)
    assert environment.stop == ("\n",)
    first, second = environment.begin("Count.", {"start": 5, "left out": object()}), environment.begin("Count.", {})
    assert (first.state, second.state) == ("5", "0")
    assert [first.reply("go").text, second.reply("go").text, first.reply("go").text] == ["= 6\n", "= 1\n", "= 7\n"]
    assert (first.state, second.state) == ("7", "1")
    over = first.reply("end")
    assert (over.text, over.error, over.state) == (None, None, None)


@pytest.mark.parametrize(
    ("turn", "said"),
    [
        ("raise", r"environment 'Counter' raised ValueError at line 16: no such turn"),
        ("leave", r"environment 'Counter' raised SystemExit at line 18"),
        ("number", r"reply returned 2, a int; return the observation as text, or None where the episode is over"),
        ("die", r"environment 'Counter': sandbox exited 3"),
        ("hang", r"ran over its deadline of 0.5 s at line 1[34] and was stopped; .* raise environment.deadline"),
    ],
)
def test_an_environment_that_fails_says_so_and_other_episodes_go_on(worker, turn, said):
    """Also where its process was replaced: the other row's turns are played again."""
    environment = counter(worker, deadline=0.5)
    failing, other = environment.begin("", {}), environment.begin("", {"start": 3})
    assert (failing.reply("go").text, other.reply("go").text) == ("= 1\n", "= 4\n")
    reply = failing.reply(turn)
    assert reply.text is None
    assert re.search(said, reply.error or ""), reply.error
    assert failing.reply("go").error == reply.error
    assert other.reply("go").text == "= 5\n"
    failing.end()
    other.end()


def test_an_environment_of_chance_is_not_played_again(worker):
    environment = load_environment(EnvironmentSection(name="Dice", code=DICE), lambda: worker)
    assert environment is not None
    episode = environment.begin("", {})
    assert episode.reply("roll!").error is None
    worker.close()
    assert "when its turns were played again it answered otherwise" in (episode.reply("roll!").error or "")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            "class Counter:\n  stop = 3\n  def reset(self, prompt, **c): ...\n  def reply(self, turn): ...",
            "stop is 3; give",
        ),
        ("class Counter:\n  stop = ()\n  def reply(self, turn): ...", "has no method 'reset'; write 'def reset"),
        ("class Counter:\n  stop = ()\n  def reset(self): ...\n  def reply(self, turn): ...", "cannot take the data's"),
        ("def reply(turn): ...", "the code defines no class"),
        ("class Counter:", "environment 'Counter' does not compile: .* at line 1"),
        ("1 / 0", "the code of environment 'Counter' raised ZeroDivisionError at line 1"),
    ],
)
def test_code_that_defines_no_environment_is_refused(worker, code, said):
    with pytest.raises(EpisodeError, match=said):
        load_environment(EnvironmentSection(name="Counter", code=code), lambda: worker)


class Parrot:
    """Answers with the turn until it is silent."""

    stop = (".",)

    def reset(self, prompt: str, **columns: Any) -> None:
        self.prompt = prompt

    def reply(self, turn: str) -> str | None:
        if "raise" in turn:
            raise ValueError("no")
        return None if turn == "." else f"{self.prompt} {turn}" if "wrong" not in turn else 7  # type: ignore[return-value]


def test_a_class_of_this_process_is_asked_directly():
    environment = load_environment(Parrot)
    assert environment is not None
    assert environment.stop == (".",)
    episode = environment.begin([{"role": "user", "content": "Say"}], {"prompt": "hidden"})
    assert [episode.reply("a.").text, episode.reply(".").text] == ["user: Say a.", None]
    for turn, said in (("raise", "reply raised ValueError: no"), ("wrong", "reply returned 7, a int")):
        failing = environment.begin("Say", {})
        assert (failing.reply(turn).error or "").startswith(said)


# --- what an episode records --------------------------------------------------------------------------------------


def episode() -> Rollout:
    """\"ab.\" sampled, "cd" answered, "e" sampled: two turns."""
    turns = (
        Turn("assistant", 0, 3, seconds=0.5),
        Turn("environment", 3, 5, seconds=0.1, note="cut"),
        Turn("assistant", 5, 6, state="here"),
    )
    texts = ("a", "b", ".", "c", "d", "e")
    return Rollout((1, 2, 3, 4, 5, 6), texts, False, mask=(1, 1, 1, 0, 0, 1), stop=".", turns=turns)


def test_turns_are_read_off_records_and_off_a_mask_alike():
    rollout = episode()
    bare = Rollout.from_json({key: value for key, value in rollout.to_json().items() if key != "turns"})
    assert bare.turns == ()
    for row in (rollout, bare):
        assert row.is_episode
        assert row.turn_spans == [(0, 2), (5, 5)]
        assert row.observations == ["cd", None]
    assert rollout.turn_states == ["", "here"]
    assert bare.turn_states[0] == ""
    assert len(bare.turn_states[1]) == 16
    plain = Rollout((1, 2), ("a", "b"), True)
    assert not plain.is_episode
    assert (plain.turn_spans, plain.observations, plain.turn_states) == ([(0, 1)], [None], [""])
    assert "turns" not in plain.to_json()


def test_turns_travel_as_json_and_must_cover_the_completion():
    rollout = episode()
    data = rollout.to_json()
    assert Rollout.from_json(data) == rollout
    assert [turn.seconds for turn in Rollout.from_json(data).turns] == [0.5, 0.1, 0.0]
    with pytest.raises(ValueError, match="without a gap"):
        Rollout.from_json(data | {"turns": [data["turns"][0], data["turns"][2]]})
    with pytest.raises(ValueError, match="without a gap"):
        Rollout.from_json(data | {"turns": data["turns"][:2]})
