"""What the page's scripts are sent has the keys that both sides declare: typed dictionaries here, typedefs there."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import replace
from pathlib import Path
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

import pytest

from tests.credits import make_rollout, worked_credit
from tests.stored_runs import store
from tests.watched import before_and_now
from workbench.runs import discard
from workbench.schema import Group
from workbench.schema.rollouts import Turn
from workbench.ui import payloads as page
from workbench.ui.handlers import held_out, run_changes, run_follow, run_loss, runs, sides
from workbench.ui.handlers.help import guide, live
from workbench.ui.tabs import runs as runs_tab
from workbench.ui.tabs import train as train_tab
from workbench.views import curves, lines, overlay
from workbench.views import payloads as drawing
from workbench.views.heatmap import credit_payload, group_payload, row_payload, why_payload

ROOT = Path(__file__).resolve().parents[1] / "workbench"
ASSETS = ROOT / "ui" / "assets"
DRAWING = ROOT / "views" / "drawing" / "payload.js"
FILES = {
    DRAWING: [drawing],
    ROOT / "views" / "charts" / "payload.js": [curves, overlay, lines],
    ASSETS / "payloads.js": [page],
    ASSETS / "train" / "payloads.js": [run_follow, run_loss, held_out],
    ASSETS / "runs" / "payloads.js": [runs, run_changes, sides],
}
"""The scripts' typedefs, and the modules that declare the same in Python."""
TYPEDEF = re.compile(r"/\*\*\n \* @typedef \{Object\} (\w+)[^\n]*\n(.*?)\*/", re.DOTALL)
LOCAL = {"Handles", "Measure", "Prepares", "TermPayload", "TokenLosses", "TrainServer", "RunsServer", "LabelServer"}
"""Typedefs of the scripts' own, and of the terms of a sum, which are ``schema.Term``'s fields."""


@dataclasses.dataclass(frozen=True)
class Key:
    """What both sides say of a key: whether it is always there, and whether its value may be None."""

    always: bool
    nullable: bool


def keys(declared: Any) -> dict[str, Key]:
    """Each key of a typed dictionary or dataclass."""
    hints = get_type_hints(declared, include_extras=True)
    if dataclasses.is_dataclass(declared):
        return {field.name: Key(True, nullable(hints[field.name])) for field in dataclasses.fields(declared)}
    return {
        key: Key(declared.__total__ and get_origin(hint) is not NotRequired, nullable(hint))
        for key, hint in hints.items()
    }


def nullable(hint: Any) -> bool:
    """Whether ``hint`` is a union with None."""
    inner = get_args(hint)[0] if get_origin(hint) is NotRequired else hint
    return NoneType in get_args(inner) and get_origin(inner) in (Union, UnionType)


def property_of(line: str) -> tuple[str, str]:
    """The type and the name, in brackets where it is not always there, of ``@property {type} name``."""
    depth, start = 0, line.index("{")
    for place, character in enumerate(line):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "}" and not depth:
            return line[start + 1 : place], line[place + 1 :].split()[0]
    raise AssertionError(line)


def properties(path: Path) -> dict[str, list[tuple[str, str]]]:
    """The typedefs of a script, each with the types and names of its properties."""
    return {
        name: [property_of(line) for line in body.splitlines() if "@property" in line]
        for name, body in TYPEDEF.findall(path.read_text(encoding="utf-8"))
    }


def typedefs(path: Path) -> dict[str, dict[str, Key]]:
    return {
        name: {key.strip("[]"): Key(not key.startswith("["), text.endswith("| null")) for text, key in listed}
        for name, listed in properties(path).items()
    }


def declared_in(module: Any) -> dict[str, dict[str, Key]]:
    classes = {
        name: value
        for name, value in vars(module).items()
        if is_typeddict(value) and value.__module__ == module.__name__ and not name.startswith("_")
    }
    return {name: keys(value) for name, value in {**classes, **getattr(module, "DATACLASSES", {})}.items()}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_both_sides_declare_the_same_keys(path):
    there = {name: names for name, names in typedefs(path).items() if name not in LOCAL}
    assert there == {name: names for module in FILES[path] for name, names in declared_in(module).items()}


def script_type(hint: Any) -> str:
    """A return annotation as the scripts write it: ``list[A] | None`` is ``A[] | null``."""
    if get_origin(hint) in (Union, UnionType):
        return " | ".join(script_type(inner) for inner in get_args(hint))
    if get_origin(hint) is list:
        return f"{script_type(get_args(hint)[0])}[]"
    return "null" if hint is NoneType else hint.__name__


@pytest.mark.parametrize(("tab", "folder", "server"), [
    (train_tab, "train", "TrainServer"), (runs_tab, "runs", "RunsServer"),
])  # fmt: skip
def test_every_call_of_the_server_has_the_type_that_it_answers(tab, folder, server, tmp_path):
    functions = tab._server_functions(SimpleNamespace(workspace=tmp_path))
    answered = {function.__name__: script_type(get_type_hints(function)["return"]) for function in functions}
    calls = properties(ASSETS / folder / "payloads.js")[server]  # Call<asked, answered>
    assert {name: text.rpartition(", ")[2].removesuffix(">") for text, name in calls} == answered


def assert_keys(value: dict[str, Any], *declared: Any) -> None:
    known = {name: key for declaration in declared for name, key in keys(declaration).items()}
    assert set(value) <= set(known)
    assert {name for name, key in known.items() if key.always} <= set(value)
    assert {name for name, key in known.items() if name in value and value[name] is None and not key.nullable} == set()


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
    term = typedefs(DRAWING)["TermPayload"]
    assert set(payload["rollouts"][0]["terms"][0]) == set(term)
    why = why_payload(worked_credit(), 0, 0)
    assert_keys(why, drawing.WhyPayload)
    assert set(why["list"][0]) == set(term)


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
    for measure in payload["measures"]:
        assert_keys(measure, drawing.MeasurePayload)
    for fact in payload["facts"]:
        assert_keys(fact, drawing.FactPayload)
    for text in payload["rollouts"]:
        watched = {key: value for key, value in text.items() if key not in keys(drawing.RolloutPayload)}
        assert set(watched) | {"advantages", "terms", "why", "logged", "extracted", "unsplit"} == set(
            keys(drawing.CreditedPayload)
        )
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


def test_a_listed_run_has_the_keys_it_declares(tmp_path):
    store(tmp_path, "a", [{"step": 1, "reward": 0.5, "accuracy": 0.25, "seconds": 2.0}])
    store(tmp_path, "empty")
    damaged = store(tmp_path, "damaged")
    (damaged.path / "run.yaml").write_text("policy: [")
    discard("empty", tmp_path)
    answer = json.loads(json.dumps(runs.table(tmp_path)))
    assert_keys(answer, runs.Table)
    for row in answer["runs"]:
        assert_keys(row, runs.RunRow)
    assert_keys(answer["trash"][0], runs.Trashed)
    for listed in run_follow.runs_table(tmp_path):
        assert_keys(listed, run_follow.ListedRun)


def test_runs_that_are_followed_and_laid_over_each_other_have_the_keys_they_declare(tmp_path):
    for name in ("a", "b"):
        store(tmp_path, name, [{"step": 1, "reward": 0.5}, {"step": 2, "reward": 0.75}])
    news = run_follow.poll(tmp_path, "a", 0, -1)
    assert_keys(news, run_follow.News)
    for panel in news["panels"]:
        assert_keys(panel, curves.PanelPayload)
        for series in panel["series"]:
            assert_keys(series, curves.SeriesPayload)
    assert_keys(run_follow.poll(tmp_path, "gone", 0, -1), run_follow.Failed)
    assert_keys(run_follow.describe(tmp_path, "a"), run_follow.Described)
    answer = runs.overlay(tmp_path, ["a", "b", "gone"])
    assert_keys(answer, runs.Overlay)
    assert_keys(answer["missing"][0], runs.Missing)
    for configuration in answer["configurations"]:
        assert_keys(configuration, runs.Configuration)
        for seed in configuration["runs"]:
            assert_keys(seed, runs.Seed)
    for panel in answer["panels"]:
        assert_keys(panel, overlay.OverlayPanel)
        for line in panel["lines"]:
            assert_keys(line, overlay.OverlayLine)
            for run in line["runs"]:
                assert_keys(run, overlay.RunLine)


def test_a_stored_chart_has_the_keys_it_declares():
    payload = lines.run_charts([{"step": 1, "reward": 0.5}], name="a").payload("zoom")
    assert_keys(payload, lines.ChartsPayload)
    assert_keys(payload["panels"][0], lines.ChartPayload)
    assert_keys(payload["panels"][0]["lines"][0], lines.LinePayload)
