"""The child: replies, events, prints, deadlines, deaths of every kind and the respawn after them."""

import json
import os
import threading
from collections.abc import Iterator
from multiprocessing.connection import wait

import pytest

from workbench.errors import ChildDied, ChildFailed, RewardValueError
from workbench.sandbox.child import Child

MODULE = "tests.echo_child"
LONG = 60.0


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    with Child(MODULE, args=["--flag"], name="worker") as child:
        yield child


def test_it_replies_from_another_process_with_its_arguments(child: Child) -> None:
    reply = child.call({"text": "中文 🙂 \ud800"}, deadline=LONG)
    assert reply["echo"] == {"text": "中文 🙂 \ud800"}
    assert reply["pid"] == child.pid != os.getpid()
    assert reply["args"] == ["--flag"]


def test_prints_of_every_kind_are_kept_apart_from_the_frames(child: Child) -> None:
    child.call({"do": "print", "times": 3}, deadline=LONG)
    assert child.output == "xxx\nlow level\nto stderr\n"
    child.call({}, deadline=LONG)
    assert child.output == ""


def test_our_errors_cross_the_pipe_as_themselves(child: Child) -> None:
    with pytest.raises(RewardValueError, match="bad value") as caught:
        child.call({"do": "raise-ours"}, deadline=LONG)
    assert (caught.value.reward, caught.value.rollout, caught.value.step) == ("mine", 1, 2)


def test_other_errors_carry_the_traceback_and_the_child_serves_on(child: Child) -> None:
    pid = child.pid
    with pytest.raises(ChildFailed, match=r"'surprise'[\s\S]*echo_child"):
        child.call({"do": "raise"}, deadline=LONG)
    with pytest.raises(ChildFailed, match="JSON"):
        child.call({"do": "not-json"}, deadline=LONG)
    assert child.call({}, deadline=LONG)["pid"] == pid


def test_an_exit_is_named_and_the_next_call_gets_a_new_child(child: Child) -> None:
    with pytest.raises(ChildDied, match=r"^worker exited 3$"):
        child.call({"do": "exit", "code": 3}, deadline=LONG)
    assert not child.alive
    assert child.call({}, deadline=LONG)["pid"] == child.pid
    assert child.alive


def test_a_cancelled_call_is_told_and_still_replies(child: Child) -> None:
    started = threading.Event()
    reply = child.call(
        {"do": "until-cancelled"}, deadline=LONG, on_event=lambda _: started.set(), cancelled=started.is_set
    )
    assert reply == {"stopped": True}
    # The next call starts uncancelled.
    again = threading.Event()
    child.call({"do": "until-cancelled"}, deadline=LONG, on_event=lambda _: again.set(), cancelled=again.is_set)


@pytest.mark.parametrize(
    "message",
    [
        "[",
        "[" * 100_000,
        "5",
        "[]",
        "{}",
        '{"ready": true}',
        '{"reply": {}, "last": false, "number": -7}',
        '"%s"' % ("x" * 5000),
    ],
    ids=["torn", "nested", "number", "list", "empty", "ready again", "another's", "long"],
)
def test_a_foreign_message_ends_the_child_and_the_next_call_gets_its_own_answer(message: str) -> None:
    with Child(MODULE, name="worker", largest=4096) as child:
        with pytest.raises(ChildDied):
            child.call({"do": "send", "message": message, "waits": True}, deadline=LONG)
        assert not child.alive
        assert child.call({"text": "mine"}, deadline=LONG)["echo"] == {"text": "mine"}


def test_a_child_that_answers_twice_is_ended_before_the_next_call(child: Child) -> None:
    child.call({}, deadline=LONG)
    pid, number = child.pid, next(child._numbers) + 1
    forged = json.dumps({"reply": {"forged": True}, "last": False, "number": number})
    assert child.call({"do": "send", "message": forged}, deadline=LONG) == {"forged": True}
    assert wait([child._process.connection], LONG)
    assert child.call({"text": "mine"}, deadline=LONG)["echo"] == {"text": "mine"}
    assert child.pid != pid


def test_a_child_that_cannot_start_says_why() -> None:
    with Child(MODULE, args=["--fail-to-start"], name="policy worker") as child:
        with pytest.raises(ChildDied, match="no such luck"):
            child.call({}, deadline=LONG)
