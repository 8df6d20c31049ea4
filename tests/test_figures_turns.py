"""Episodes in a drawing's payload: the stretches of turns and masks, and the calls that are read in them."""

from dataclasses import replace

import pytest

from tests.credits import make_rollout
from workbench.schema.rollouts import Turn
from workbench.views.payloads import find_calls, turns_payload


def test_turns_have_their_tokens_seconds_and_what_went_wrong():
    turns = (Turn("assistant", 0, 2, 0.25, error="no reply"), Turn("tool", 2, 3, 0.5, note="cut"))
    rollout = replace(make_rollout(["call: 3", "*4\n", "= 12\n"], finished=False), mask=(1, 1, 0), turns=turns)
    call, answer = turns_payload(rollout)
    assert call == {
        "role": "assistant",
        "sampled": True,
        "start": 0,
        "end": 2,
        "seconds": 0.25,
        "error": "no reply",
        "note": "",
        "calls": [""],
        "isCall": True,
    }
    assert [answer[key] for key in ("role", "sampled", "note")] == ["tool", False, "cut"]
    assert "calls" not in answer


def test_a_mask_alone_tells_where_turns_are():
    rollout = replace(make_rollout(list("abcdef"), finished=False), mask=(0, 1, 1, 0, 1, 0))
    assert [(turn["role"], turn["start"], turn["end"]) for turn in turns_payload(rollout)] == [
        ("observation", 0, 1),
        ("assistant", 1, 3),
        ("observation", 3, 4),
        ("assistant", 4, 5),
        ("observation", 5, 6),
    ]
    assert turns_payload(replace(rollout, mask=(1,) * 6)) == []


@pytest.mark.parametrize(
    ("text", "tools", "is_call"),
    [
        ("call: 3*4\n", [""], True),
        ("I say call: 3\n", [], None),
        ("Let me see.\ncall: 3\n", [""], False),
        ('<tool_call>{"name": "search"}</tool_call><|im_end|>', ["search"], True),
        ('Hm <tool_call>{"name": "a"}</tool_call><tool_call>{"name": 3}', ["a", ""], False),
        ("<tool_call>[1", [""], True),
        (f'<tool_call>{{"name": "{"x" * 99}"}}</tool_call>', ["x" * 60], True),
    ],
)
def test_calls_are_read_in_a_turn(text, tools, is_call):
    rollout = replace(make_rollout([text], finished=False), turns=(Turn("assistant", 0, 1),))
    assert find_calls(text) == tools
    assert turns_payload(rollout)[0].get("isCall") is is_call
