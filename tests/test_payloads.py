"""What the page's scripts are sent has the keys that the typed dictionaries declare, of which their types are made."""

import json
from dataclasses import replace
from types import NoneType
from typing import Any, NotRequired, get_args, get_origin

from tests.credits import make_rollout, worked_credit
from tests.payload_types import members
from tests.watched import before_and_now
from workbench.schema import Group, Turn
from workbench.views import payloads as drawing
from workbench.views.heatmap import credit_payload, group_payload, row_payload, why_payload


def assert_keys(value: dict[str, Any], *declared: Any) -> None:
    """Each key is declared, those that are always there are, and None stands only where a hint allows it."""
    known = {name: hint for declaration in declared for name, hint in members(declaration).items()}
    assert set(value) <= set(known)
    assert {name for name, hint in known.items() if get_origin(hint) is not NotRequired} <= set(value)
    for name in value:
        hint = get_args(known[name])[0] if get_origin(known[name]) is NotRequired else known[name]
        assert value[name] is not None or NoneType in get_args(hint) or hint is Any, name


def test_a_drawing_has_the_keys_it_declares():
    payload = json.loads(json.dumps(credit_payload(worked_credit(), other=worked_credit("step"))))
    assert_keys(payload, drawing.GroupPayload, drawing.SchemePayload)
    assert_keys(payload["other"], drawing.OtherPayload)
    for rollout in payload["rollouts"]:
        assert_keys(rollout, drawing.RolloutPayload, drawing.CreditedPayload)
        assert_keys(rollout["twin"], drawing.CreditedPayload)
        for step in rollout["steps"]:
            assert_keys(step, drawing.StepPayload)
        for stretch in rollout["why"]:
            assert_keys(stretch, drawing.StretchPayload)
    assert_keys(payload["rollouts"][0]["terms"][0], drawing.DATACLASSES["TermPayload"])
    assert_keys(why_payload(worked_credit(), 0, 0), drawing.WhyPayload)


def test_an_episode_has_the_keys_it_declares_and_a_single_turn_none():
    turns = (Turn("assistant", 0, 2, 0.5, error="no reply"), Turn("environment", 2, 3, note="cut"))
    episode = replace(make_rollout(["call:", " 1+1", "= 2\n"], finished=False), mask=(1, 1, 0), turns=turns)
    drawn = [group_payload(Group("", (rollout,)))["rollouts"][0] for rollout in (episode, make_rollout(["a"]))]
    for turn in drawn[0]["turns"]:
        assert_keys(turn, drawing.TurnPayload)
    assert "turns" not in drawn[1]


def test_a_watched_row_has_the_keys_it_declares():
    payload = json.loads(json.dumps(row_payload(before_and_now())))
    assert_keys(payload, drawing.GroupPayload)
    assert_keys(payload["measures"][0], drawing.DATACLASSES["MeasurePayload"])
    assert_keys(payload["facts"][0], drawing.FactPayload)
    for text in payload["rollouts"]:
        credited = text.keys() - members(drawing.RolloutPayload).keys()
        assert credited | {"advantages", "terms", "why", "logged", "extracted", "unsplit", "counted"} == set(
            members(drawing.CreditedPayload)
        )
        assert_keys(text["before"], drawing.BeforePayload)
    assert payload["facts"] == [{"name": "margin", "value": 1.625, "before": 0.0}]
    assert payload["rollouts"][0]["values"] == {"reward": [0.5, 0.25, -0.125, 0.0]}
