"""Train's form of every method: what it is made of, what it keeps, and what a run gets of it."""

import json
import re
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from pydantic import Field

from tests.drafts import assert_given_back, draft_of, with_values
from workbench.config import leaves
from workbench.config.shared import RunSection
from workbench.errors import ConfigError, RewardError
from workbench.rundir import RunDir
from workbench.training.methods import METHODS, RunConfig
from workbench.ui.handlers import fields, page_state, runs
from workbench.ui.handlers.fields import (
    INSPECTED,
    Part,
    elem_id,
    every_leaf,
    fits,
    help_of,
    is_used,
    may_be_empty,
    method_field,
    method_form,
    paths_of,
    run_form,
    show_value,
)
from workbench.ui.handlers.page_state import PageState, Tab, builtin_row
from workbench.ui.handlers.scoring import Note
from workbench.ui.handlers.session import GroupStore, Services
from workbench.ui.handlers.sharing import dump, link_of, restore, take_over
from workbench.ui.tabs.form import form_note_value, widget

CHANGED: dict[str, dict[str, Any]] = {
    "grpo": {"beta": 0.02, "loss_type": "cispo", "epsilon_high": 5.0, "on_reward_error": "unscored"},
    "sft": {"loss_type": "dft", "batch_size": 8},
    "dpo": {"beta": 0.3, "loss_type": "robust", "label_smoothing": 0.1, "max_length": 256},
    "reward": {"center_rewards_coefficient": 0.01},
    "ppo": {"kl_coef": 0.0, "critic": "separate", "whiten": False},
    "prm": {"format": "ki", "separator": "#", "until_first_error": True},
}
"""Settings that are not a method's defaults, for the methods that a test knows."""


def changed(method: str) -> PageState:
    """A draft in whose form somebody chose a method and changed some of its settings."""
    settings = {f"{method}.{name}": value for name, value in CHANGED.get(method, {}).items()}
    return with_values(draft_of(), {"method.name": method, "run.steps": 7, **settings})


def form_of(method: str) -> list[Part]:
    """The fields that are there while a method is chosen."""
    before, after = run_form()
    form = [("", [method_field(method)]), *before, *method_form(method), *after]
    return [(title, [leaf for leaf in part if is_used(leaf.name, method)]) for title, part in form]


@pytest.mark.parametrize("method", METHODS)
def test_a_form_has_every_setting_that_one_value_sets(method: str) -> None:
    draft, form = PageState.of(RunConfig.parse({"method": method})), form_of(method)
    drawn = {leaf.name: leaf for _, part in form for leaf in part}
    for leaf in leaves(METHODS[method].section):
        if leaf.name.partition(".")[0] in ("name", *INSPECTED):
            continue
        field = drawn[f"{method}.{leaf.name}"]
        assert leaf.help.replace("`", "").split(".")[0] in help_of(field)
        assert fits(field.name, draft.value(field.name))
    for section in ("optimiser", "run"):
        assert {f"{section}.{leaf.name}" for leaf in leaves(getattr(draft.config(), section).__class__)} <= drawn.keys()
    assert any(leaf.name.startswith(f"{method}.") for title, part in form if not title for leaf in part)
    assert len({elem_id(path) for path in drawn}) == len(paths_of(form))


class LongerRun(RunSection):
    patience: int = Field(default=3, ge=1)
    """Measures without a gain after which a run ends."""


class LongerConfig(RunConfig):
    run: LongerRun = Field(default_factory=LongerRun)


def test_a_field_that_a_section_gets_is_on_the_page_and_in_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SharedConfig", "RunConfig"):
        monkeypatch.setattr(fields, name, LongerConfig)
    monkeypatch.setattr(page_state, "RunConfig", LongerConfig)
    cached = (fields._shared, fields.every_leaf, fields.default_tree)
    for known in cached:
        known.cache_clear()
    draft = PageState.of(LongerConfig())
    leaf = next(leaf for _, part in run_form()[1] for leaf in part if leaf.name == "run.patience")
    field = widget(leaf, draft.value(leaf.name))
    assert (type(field), field.value, field.label) == (gr.Number, 3, "Patience")
    assert "without a gain" in field.info
    assert draft.with_value(leaf.name, 7).config().run.model_dump()["patience"] == 7
    monkeypatch.undo()
    for known in cached:
        known.cache_clear()


def test_a_number_that_may_be_empty_is_a_text() -> None:
    """Gradio's own field of a number shows and sends 0 once it is drawn without a value."""
    empty = [leaf for leaf in every_leaf().values() if may_be_empty(leaf)]
    known = {"policy.lora.r", "run.epochs", "run.micro_batch_size", "grpo.max_prompt_length"}
    assert known <= {leaf.name for leaf in empty}
    assert {(type(field), field.value) for field in (widget(leaf, None) for leaf in empty)} == {(gr.Textbox, "")}
    for path, value in (("run.micro_batch_size", 4), ("run.epochs", 0.5)):
        typed = draft_of().with_value(path, str(value))
        assert (typed.value(path), show_value(every_leaf()[path], value)) == (value, str(value))
        assert typed.with_value(path, "").value(path) is None
    assert draft_of().with_value("run.epochs", "half").value("run.epochs") == "half"


def test_the_next_run_says_how_it_differs_from_the_one_shown(tmp_path: Path, services: Services) -> None:
    before = RunDir.create(tmp_path, draft_of().config())
    differ = {"run.steps": 7, "optimiser.learning_rate": 0.5}
    said = dict(runs.estimated(with_values(draft_of(), differ), services, before.path.name))["differs"]
    assert re.findall(r"(\w+) ([\d.]+), not", said) == [("rate", "0.5"), ("steps", "7")]


def test_the_fields_of_the_browser_own_their_values() -> None:
    """What was overtaken on its way changes nothing, nor does what was sent before the page shows a replacement."""
    tab, field, other = Tab(draft_of()), "method.sampling.temperature", "method.sampling.num_generations"
    first = tab.draft
    tab.set_all({field: (3, 0, 0.5), other: (4, 0, 5)}, 0)
    tab.set_all({field: (1, 0, 0.25), other: (2, 0, 4)}, 0)
    assert (tab.draft.value(field), tab.draft.value(other)) == (0.5, 5)
    told = tab.hold(tab.draft, first.with_value(field, 0.75), [field])
    tab.set_all({field: (5, 0, 0.5), other: (6, 0, 6)}, 0)  # before the page was told, which comes before it shows 0.75
    assert (tab.draft.value(field), tab.draft.value(other)) == (0.75, 6)
    tab.set_all({field: (7, told, 1.5), other: (6, 0, 6)}, told)
    assert tab.draft.value(field) == 1.5
    with pytest.raises(ConfigError, match="anew"):
        Tab(draft_of()).set_all({}, told)


@pytest.mark.parametrize("method", METHODS)
def test_the_form_of_every_method_is_the_configuration(method: str, store: GroupStore) -> None:
    """In a file, a reload, a link, notebook code and Start (invariant 12)."""
    draft = changed(method)
    config = draft.config()
    assert (config.method.name, config.run.steps) == (method, 7)
    assert {name: getattr(config.method, name) for name in CHANGED.get(method, {})} == CHANGED.get(method, {})
    opened, _ = take_over(draft_of(), "c.yaml", RunConfig.from_yaml(config.to_yaml()))
    assert opened.config() == config
    tab = Tab(draft_of())
    tab.choose("method.name", method)
    values = {leaf.name: show_value(leaf, draft.value(leaf.name)) for _, part in form_of(method) for leaf in part}
    tab.set_all({path: (1, 0, value) for path, value in values.items()}, 0)
    assert tab.draft.config() == config
    sent = tab.draft
    tab.set_all({path: (2, 0, value) for path, value in values.items()}, 0)
    assert tab.draft == sent  # the second time it is no news
    assert_given_back(draft, store, link_of(draft, ""))


def test_each_method_keeps_its_settings_while_another_is_chosen(store: GroupStore) -> None:
    draft = with_values(draft_of(), {"grpo.beta": 0.5, "method.name": "dpo", "dpo.beta": 0.3, "task.data": "a.jsonl"})
    back = with_values(draft, {"method.name": "grpo"})
    assert (back.config().grpo.beta, back.config().task.data) == (0.5, None)
    assert with_values(back, {"method.name": "dpo"}).config() == draft.config()
    for restored in (
        restore(json.dumps({"page": dump(back, "")}), {}, store),
        restore("", link_of(back, ""), store),
    ):
        again = with_values(restored.draft, {"method.name": "dpo", "task.data": "a.jsonl"})
        assert again.config() == draft.config()
    # What a file of another method does not speak of stays, too.
    opened = back.with_config(RunConfig.parse({"method": {"name": "sft", "batch_size": 4}}))
    first = with_values(opened, {"method.name": "grpo"})
    assert (first.config().grpo.beta, first.rows, first.regex) == (0.5, draft.rows, draft.regex)
    assert "a.jsonl" not in json.dumps(link_of(draft, ""))
    linked = json.loads(link_of(draft, "")["settings"])
    assert (linked["method.beta"], linked["grpo.beta"]) == (0.3, 0.5)


def test_what_a_method_does_not_use_of_inspect_does_not_keep_it_from_starting() -> None:
    draft = draft_of().with_pattern("", "starts").with_row(builtin_row("tag_format").with_edits({"weight": 1e9}))
    with pytest.raises((ConfigError, RewardError)):
        draft.with_pattern("x", "starts").config()
    assert with_values(draft, {"method.name": "reward"}).config().method.name == "reward"


def test_the_rows_are_counted_or_the_reason_given_why_there_are_none(tmp_path: Path) -> None:
    assert runs.rows_found(changed("grpo")) is None
    assert runs.rows_found(changed("dpo")) == Note("100,000 pairs to train on, 1,000 held out", level="info")
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(f'{{"prompt": "a", "chosen": "{i}", "rejected": "x"}}\n' for i in range(20)))
    own = with_values(changed("dpo"), {"task.data": str(file)})
    assert runs.rows_found(own) == Note("18 pairs to train on, 2 held out", level="info")
    for named, values in (("no demonstrations", {"method.name": "sft"}), ("nowhere", {"task.data": "nowhere.jsonl"})):
        wrong = runs.rows_found(with_values(own, values))
        assert (wrong.level, named in wrong.text) == ("error", True)


def test_a_refused_start_marks_the_fields_that_its_message_names() -> None:
    draft = with_values(draft_of(), {"run.steps": None, "method.sampling.num_generations": 1})
    with pytest.raises(ConfigError) as refused:
        draft.config()
    assert json.loads(form_note_value(Note(str(refused.value))))["fields"] == ["steps", "generations"]
    assert json.loads(form_note_value(Note("the disk is full: free some")))["fields"] == []
