"""What the page's scripts are sent has the keys that both sides declare: typed dictionaries here, typedefs there."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any, NotRequired, get_origin, get_type_hints, is_typeddict

import pytest

from tests.credits import worked_credit
from tests.watched import before_and_now
from workbench.figures import payloads as drawing
from workbench.figures.heatmap import credit_payload, why_payload
from workbench.figures.rows import row_payload
from workbench.ui import payloads as page
from workbench.ui.handlers.help import guide, live

ROOT = Path(__file__).resolve().parents[1] / "workbench"
FILES = {drawing: ROOT / "figures" / "drawing" / "payload.js", page: ROOT / "ui" / "assets" / "payloads.js"}
TYPEDEF = re.compile(r"/\*\*\n \* @typedef \{Object\} (\w+)[^\n]*\n(.*?)\*/", re.DOTALL)
LOCAL = {"Handles", "Measure", "Prepares", "TermPayload"}
"""Typedefs of the scripts' own, and of the terms of a sum, which are ``schema.Term``'s fields."""


def keys(declared: Any) -> dict[str, bool]:
    """Each key of a typed dictionary or dataclass, and whether it is always there."""
    if dataclasses.is_dataclass(declared):
        return {field.name: True for field in dataclasses.fields(declared)}
    hints = get_type_hints(declared, include_extras=True)
    return {key: declared.__total__ and get_origin(hint) is not NotRequired for key, hint in hints.items()}


def property_of(line: str) -> tuple[str, bool]:
    """The name that ends ``@property {type} name``, and whether it is always there."""
    depth = 0
    for place, character in enumerate(line):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "}" and not depth:
            name = line[place + 1 :].split()[0]
            return name.strip("[]"), not name.startswith("[")
    raise AssertionError(line)


def typedefs(path: Path) -> dict[str, dict[str, bool]]:
    return {
        name: dict(property_of(line) for line in body.splitlines() if "@property" in line)
        for name, body in TYPEDEF.findall(path.read_text(encoding="utf-8"))
    }


def declared_in(module: Any) -> dict[str, dict[str, bool]]:
    classes = {
        name: value
        for name, value in vars(module).items()
        if is_typeddict(value) and value.__module__ == module.__name__
    }
    return {name: keys(value) for name, value in {**classes, **getattr(module, "DATACLASSES", {})}.items()}


@pytest.mark.parametrize("module", FILES, ids=["drawing", "page"])
def test_both_sides_declare_the_same_keys(module):
    there = {name: names for name, names in typedefs(FILES[module]).items() if name not in LOCAL}
    assert there == declared_in(module)


def assert_keys(value: dict[str, Any], *declared: Any) -> None:
    known = {key: always for one in declared for key, always in keys(one).items()}
    assert set(value) <= set(known)
    assert {key for key, always in known.items() if always} <= set(value)


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
    term = typedefs(FILES[drawing])["TermPayload"]
    assert set(payload["rollouts"][0]["terms"][0]) == set(term)
    why = why_payload(worked_credit(), 0, 0)
    assert_keys(why, drawing.WhyPayload)
    assert set(why["list"][0]) == set(term)


def test_a_watched_row_has_the_keys_it_declares():
    payload = json.loads(json.dumps(row_payload(before_and_now())))
    assert_keys(payload, drawing.GroupPayload)
    for measure in payload["measures"]:
        assert_keys(measure, drawing.MeasurePayload)
    for fact in payload["facts"]:
        assert_keys(fact, drawing.FactPayload)
    for text in payload["rollouts"]:
        watched = {key: value for key, value in text.items() if key not in keys(drawing.RolloutPayload)}
        assert set(watched) | {"advantages", "terms", "why"} == set(keys(drawing.CreditedPayload))
        assert_keys(text["before"], drawing.BeforePayload)
    assert payload["facts"] == [{"name": "margin", "value": 1.625, "before": 0.0}]
    assert payload["rollouts"][0]["values"] == {"reward": [0.5, 0.25, -0.125, 0.0]}


def test_help_has_the_keys_it_declares():
    whole = guide("token", "{origin}")
    assert_keys(whole, page.GuidePayload)
    for scheme in whole["schemes"]:
        assert_keys(scheme, page.SchemeGuide)
        for option in scheme["options"]:
            assert_keys(option, page.OptionPayload)
    shown = live(worked_credit())
    assert shown is not None
    assert_keys(shown, page.LivePayload)
