"""Replies that no worker of ours sends: each is refused by name, whatever code that found the pipe made up."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.child.frames import HEADER, packed_request, read_request
from workbench.errors import RewardError, RewardTimeout, TaskError
from workbench.rewards.protocol import Batch
from workbench.rewards.wire import (
    NonsenseError,
    check_error,
    checked_isolation,
    packed_batch,
    packed_signature,
    packed_split,
    read_signature_reply,
    read_split_reply,
    unpacked_batch,
)
from workbench.schema import Step
from workbench.steps import Split

GOOD = {"steps": [[0, 1], [2, 3]], "matched": True, "matches": [[0, 3]], "failed": False}


def test_what_is_packed_is_read_back() -> None:
    def example(prompt, step, *, scale=2, **columns):
        return 1.0

    signature = inspect.signature(example)
    read = read_signature_reply({"parameters": packed_signature(signature)})
    assert [(one.name, one.kind) for one in read.parameters.values()] == [
        (one.name, one.kind) for one in signature.parameters.values()
    ]
    assert read.parameters["scale"].default is not inspect.Parameter.empty
    splits = [Split([Step(0, 1), Step(2, 3)], [(0, 3)]), Split([Step(0, 0, matched=False)], [], failed=True)]
    assert read_split_reply(json.loads(json.dumps({"splits": [*map(packed_split, splits)]})), ["abc", ""]) == splits


def test_a_batch_arrives_as_it_was_sent() -> None:
    """Texts of any characters, empty ones among them, chat messages and steps; texts travel beside the JSON."""
    chat = [{"role": "user", "content": "\ud800"}]
    batch = Batch(
        ["", "é🙂\0", chat, None], ["a\r\n\ud800", "", [], "🙂"], {"answer": [1, None, "x", 2.5]},
        [["a\r", "\n\ud800"], [], ["", "🙂"], ["🙂"]], turn=[[0, 1], [], [0, 0], [0]],
    )  # fmt: skip
    sent, texts, left_out = packed_batch(batch)
    frame = packed_request({"batch": sent, "texts": texts}, 7)
    (length,) = HEADER.unpack_from(frame)
    head, raw = json.loads(frame[4 : 4 + length]), frame[4 + length :]
    assert (head["id"], head["bytes"]) == (7, len(raw))
    request = read_request(head, raw)
    read = unpacked_batch(request["batch"], request["texts"])
    assert left_out == []
    assert (read.prompts, read.completions, read.columns) == (batch.prompts, batch.completions, batch.columns)
    assert (read.steps, read.turn, read.state) == (batch.steps, batch.turn, batch.state)


@pytest.mark.parametrize(
    "change",
    [
        {"steps": []},
        {"steps": [[0, 4]]},
        {"steps": [[2, 3], [0, 1]]},
        {"steps": [[0, 2], [1, 3]]},
        {"steps": [[1, 0]]},
        {"steps": [[-1, 1]]},
        {"steps": [[0.0, 1.0]]},
        {"steps": [[0, True]]},
        {"steps": [[0]]},
        {"steps": "01"},
        {"matched": 1},
        {"matches": [[0, 99]]},
        {"matches": None},
        {"failed": None},
        {"more": 1},
    ],
)
def test_a_split_that_does_not_fit_its_text_is_nonsense(change: dict[str, Any]) -> None:
    assert read_split_reply({"splits": [GOOD]}, ["abc"])
    with pytest.raises(NonsenseError, match="malformed reply"):
        read_split_reply({"splits": [GOOD | change]}, ["abc"])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(JSON)
def test_any_json_at_all_is_nonsense_and_nothing_worse(value: Any) -> None:
    for read, reply in (
        (lambda reply: read_split_reply(reply, ["abc"]), {"splits": [value]}),
        (lambda reply: read_split_reply(reply, ["abc"]), {"splits": value}),
        (read_signature_reply, {"parameters": [value]}),
        (read_signature_reply, {"parameters": [["x", value, False]]}),
        (checked_isolation, {"missing": [[value]]}),
        (checked_isolation, {}),
    ):
        with pytest.raises(NonsenseError):
            read(reply)


def test_an_errors_place_must_be_one_there_is() -> None:
    good = RewardTimeout("slow", reward="forged", line=3, rollout=1, step=0)
    assert check_error(good, "mine", 2) is good
    assert good.reward == "mine"
    for wrong in ({"rollout": 2}, {"rollout": -1}, {"line": "3"}, {"step": 1.0}, {"step": True}):
        checked = check_error(RewardError("odd", **wrong), "mine", 2)  # type: ignore[arg-type]
        assert str(checked) == "reward 'mine': malformed reply from the reward worker: odd"
        assert (checked.reward, checked.line, checked.rollout, checked.step) == ("mine", None, None, None)
    assert str(check_error(TaskError("no such task"), "mine", 2)) == "reward 'mine': no such task"
