"""Links, kept controls, files and notebook code: what the page gives away gives back the same."""

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.configs import merged
from tests.drafts import PATTERN, assert_given_back, draft_of, own_row, with_values
from workbench.credit import credit_group, loss_weights
from workbench.data import load_task
from workbench.rewards import Reward, Sandbox, score_group
from workbench.runs import resolve
from workbench.schema import Group
from workbench.steps import StepPattern
from workbench.training.methods import RunConfig
from workbench.ui.handlers.checks import probe_demo
from workbench.ui.handlers.example import find_task, first_group
from workbench.ui.handlers.fields import credit_section, every_leaf, show_value
from workbench.ui.handlers.page_state import PageState, builtin_row
from workbench.ui.handlers.scoring import rescore
from workbench.ui.handlers.session import GroupStore
from workbench.ui.handlers.sharing import (
    dump,
    inspect_code,
    link_of,
    open_config,
    restore,
    text_literal,
)
from workbench.views.export import export

MINE = '''LIMIT = 9


def mine(prompt, step, **columns):
    """Short steps."""
    return float(len(step) % LIMIT) / 4 if "=" in step else None
'''


# ── notebook code ────────────────────────────────────────────────────────────────────────────────────────────────


READ = replace(first_group(), sampling={})
CASES = {
    "as it opens": draft_of(),
    "own code, weights": draft_of(
        builtin_row("step_correctness", 0.5),
        own_row(MINE),
        own_row(MINE.replace("mine", "other"), "other", weight=2.0),
    ).but(group=READ),
    "code that cannot stand in other code": draft_of(
        own_row("from __future__ import annotations\n" + MINE.replace("mine", "future"), "future")
    ).but(group=READ),
    "options": draft_of(gamma=0.5, scale=False, outcome_weight=0.25, clip=0.75).but(group=READ),
    "first_error": draft_of(scheme="first_error", threshold=0.25, normalise="per_completion").but(group=READ),
    "two schemes": draft_of().but(compare=credit_section("outcome"), group=READ),
    "an edited group": draft_of().but(
        group=replace(READ, rollouts=READ.rollouts[1:], columns={**READ.columns, "note": "'''\\"})
    ),
    "another pattern": draft_of(regex="\\n+'\"", kind="ends").but(group=READ),
}


def run_code(draft: PageState, store: GroupStore) -> dict[str, Any]:
    """Return what a notebook's code of the page's draft leaves; a group that was not sampled is read, not sampled."""
    found: dict[str, Any] = {"__name__": "__main__"}
    exec(inspect_code(draft, store.keep(draft.group)), found)
    return found


@pytest.mark.parametrize("name", CASES)
def test_the_code_shows_the_pages_numbers_bit_for_bit(name: str, worker: Sandbox, store: GroupStore) -> None:
    draft = CASES[name]
    view, found = rescore(draft, worker), run_code(draft, store)
    assert found["credit"].advantages.tobytes() == view.credit.advantages.tobytes()
    assert found["credit"].options == view.credit.options
    assert [one.token_ids for one in found["group"].rollouts] == [one.token_ids for one in draft.group.rollouts]
    if draft.compare is not None:
        assert found["other"].advantages.tobytes() == view.other.advantages.tobytes()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("def a(prompt, step, **c):\n    return float(any(w in step for w in ['zzz']))\n", "from numpy import *\n"),
        (
            "try:\n    import nothing\nexcept ImportError:\n    def h():\n        return 1.0\n",
            "def h():\n    return 2.0\n",
        ),
        ("if __name__ == '__main__':\n    raise SystemExit(3)\n", ""),
        ("", "sum = max\n"),
    ],
)
def test_code_that_would_reach_into_other_code_stays_text(
    first: str, second: str, worker: Sandbox, store: GroupStore
) -> None:
    uses = "h()" if "h()" in first else "float(sum([1, 2]))"
    one = first if "def a(" in first else f"{first}def a(prompt, step, **c):\n    return {uses}\n"
    other = f"{second}def b(prompt, step, **c):\n    return 0.5 * ('=' in step)\n"
    draft = draft_of(own_row(one, "a"), own_row(other, "b")).but(group=READ)
    assert run_code(draft, store)["scored"].step_rewards == rescore(draft, worker).credit.scored.step_rewards


def test_the_code_names_the_reference_and_the_adapter(store: GroupStore) -> None:
    group = replace(first_group(), sampling={**first_group().sampling, "reference": "tiny", "adapter": "mine/adapter"})
    code = inspect_code(draft_of().but(group=group), store.keep(group))
    assert "wb.load_policy('tiny', adapter='mine/adapter')" in code
    assert "group = wb.with_reference(wb.load_policy('tiny'), group)" in code


@pytest.mark.parametrize("text", ["", "a", "\\", "'", "a\nb", "a'''\n\"\"\"\\", "\\n\n\\", "\r\n", "\x00", "'\n"])
def test_a_literal_gives_back_its_text(text: str) -> None:
    assert eval(text_literal(text)) == text


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_files_hold_the_numbers_on_screen() -> None:
    double = Reward("reward", "step", lambda prompt, step, **columns: float("=" in step), 2.0)
    credit = credit_group(score_group(first_group(), StepPattern(PATTERN), [double, "answer_correctness"]), "process")
    whole = json.loads(export(credit, "json").text)
    assert Group.from_json(whole["group"]).to_json() == first_group().to_json()
    for i, rollout in enumerate(whole["credit"]["rollouts"]):
        assert np.array(rollout["advantages"], np.float32).tobytes() == credit.of(i).tobytes()

    tokens = list(csv.DictReader(io.StringIO(export(credit, "tokens").text, newline="")))
    assert len(tokens) == sum(credit.scored.lengths)
    first = [np.float32(row["advantage"]) for row in tokens if row["rollout"] == "1"]
    assert np.array(first, np.float32).tobytes() == credit.of(0).tobytes()
    for loss in ("grpo", "bnpo", "dapo", "dr_grpo"):  # 1 is an even share of the group's tokens
        weights = loss_weights(credit, loss)[0][: len(first)] * len(tokens)
        assert [float(row[f"weight_{loss}"]) for row in tokens[: len(first)]] == pytest.approx(weights, abs=1e-5)

    steps = list(csv.DictReader(io.StringIO(export(credit, "steps").text, newline="")))
    assert len(steps) == sum(len(one.steps) for one in credit.scored.scored)
    assert (steps[0]["score of reward"], steps[0]["reward"]) == ("1.0", "2.0")
    last = tokens[int(steps[0]["last_token"])]
    assert {name: steps[0][name] for name in last if name.startswith(("advantage", "weight"))} == {
        name: last[name] for name in ("advantage", "weight_grpo", "weight_bnpo", "weight_dapo", "weight_dr_grpo")
    }
    html = export(credit, "html").text
    for told in (steps[0]["source"], tokens[0]["source"], str(whole["source"]), html):
        assert "Start with 7, add 3" in told
    assert "default-src 'none'" in html


# ── invariant 12: a form is the configuration ────────────────────────────────────────────────────────────────────

WHOLE: dict[str, Any] = {
    "name": "mine",
    "seed": 7,
    "policy": {"path": "someone/model", "lora": {"r": 4}},
    "task": {"name": "chain-arithmetic-tags"},
    "optimiser": {"learning_rate": 1e-3, "lr_scheduler_type": "cosine", "weight_decay": 0.1},
    "run": {"steps": 3, "eval_steps": 2, "ranks": 2, "device": "cpu", "report_to": ["tensorboard"], "save_steps": 4},
    "method": {
        "name": "grpo",
        "pattern": {"regex": r"\n+", "kind": "ends"},
        "rewards": [
            {"name": "mine", "code": MINE, "weight": 0.5},
            {"name": "length_target", "kind": "outcome", "options": {"target_length": 80}},
            {"name": "prm", "weight": 2.0, "model": {"path": "me/prm", "format": "ki", "batch_size": 3}},
            {"name": "monte_carlo", "monte_carlo": {"continuations": 4}},
        ],
        "credit": {"scheme": "first_error", "normalise": "pooled", "options": {"threshold": 0.25}, "clip": 2.0},
        "sampling": {"num_generations": 4, "temperature": 0.7, "top_p": 0.9},
        "prompts_per_step": 2,
        "loss_type": "cispo",
        "epsilon_high": 5.0,
        "num_iterations": 2,
    },
}


@pytest.mark.parametrize(
    "data", [{}, WHOLE, {"method": {"credit": {"scheme": "process", "scale": True, "gamma": 1.0}}}]
)
def test_invariant_12_a_form_is_the_configuration(data: dict[str, Any], store: GroupStore) -> None:
    config = RunConfig.parse(data)
    draft = PageState.of(config)
    assert draft.config() == config
    assert PageState.of(RunConfig.from_yaml(draft.config().to_yaml())) == draft
    # What the page's fields show, given back unchanged, changes nothing.
    held = {path: show_value(leaf, draft.value(path)) for path, leaf in every_leaf().items()}
    assert with_values(draft, held).config() == config
    assert_given_back(draft_of().with_config(config), store, {})


def test_every_field_of_an_opened_file_survives_to_start_and_fields_on_the_page_change_theirs() -> None:
    changed = with_values(
        draft_of().with_config(RunConfig.parse(WHOLE)),
        {"run.steps": 9.0, "method.sampling.temperature": 0.25, "method.credit.threshold": 0.4},
    )
    first, second, *others = changed.rows
    changed = changed.but(rows=(first.with_edits({"weight": 0.75}), second.with_edits({"on": False}), *others))
    mine, _, *models = WHOLE["method"]["rewards"]
    method = {
        "rewards": [mine | {"weight": 0.75}, *models],
        "credit": {"options": {"threshold": 0.4}},
        "sampling": {"temperature": 0.25},
    }
    assert changed.config() == RunConfig.parse(merged(WHOLE, {"run": {"steps": 9}, "method": method}))


def test_a_file_that_names_a_task_brings_what_the_task_does_as_a_run_of_it_would(tmp_path: Path) -> None:
    text = "task: gsm8k\nmethod: {name: grpo, sampling: {temperature: 0.7}}\n"
    opened, _ = open_config(draft_of(), "mine.yaml", text.encode())
    run = resolve(RunConfig.from_yaml(text), tmp_path)
    assert opened.config().method == run.method.model_copy(update={"isolate_rewards": True})
    assert [row.name for row in opened.rows] == [reward.name for reward in load_task("gsm8k").rewards]


# ── kept controls and links ──────────────────────────────────────────────────────────────────────────────────────


def kept(draft: PageState, saved: str = "", **fields: Any) -> str:
    """What a browser tab keeps of a page, whose address is a link to it."""
    return json.dumps({"page": dump(with_values(draft, fields), saved), "address": link_of(draft, saved)})


def test_a_reload_brings_everything_back(store: GroupStore) -> None:
    group = replace(first_group(), rollouts=first_group().rollouts[:3])
    draft = draft_of(
        own_row(MINE, weight=0.5),
        builtin_row("step_correctness"),
        builtin_row("gsm8k_answer").for_data({"start"}),
        regex=r"\n+",
        kind="ends",
        scheme="min",
        temperature=0.3,
    ).but(compare=credit_section("step"), group=group, edited=group.prompt)
    draft = with_values(
        draft,
        {
            "page.text": "a prompt",
            "method.sampling.num_generations": 4,
            "method.sampling.temperature": 0.5,
            "method.sampling.max_completion_length": 60,
            "page.seed": 7,
            "run.steps": 5,
            "grpo.beta": 0.01,
            "name": "mine",
        },
    )
    saved = store.keep_recent(group)
    found = restore(kept(draft, saved), {}, store)
    assert (found.problems, found.draft.group.to_json()) == ((), group.to_json())
    assert found.draft.but(group=group) == draft
    assert restore(kept(draft, saved), link_of(draft, saved), store) == found  # the tab's own address changes nothing


def test_a_link_to_another_group_of_the_example_forgets_the_edited_prompt(store: GroupStore) -> None:
    group, other = first_group(), replace(first_group(), rollouts=first_group().rollouts[:3])
    draft = draft_of().but(edited=group.prompt)
    memory = kept(draft.but(text="a prompt"), store.keep_recent(group))
    link = link_of(draft_of().but(group=other), store.keep(other).stem)
    found = restore(memory, link, store)
    assert (found.draft.edited, found.draft.text) == (None, find_task(draft.task)[draft.index].prompt)


def test_a_link_shows_the_same_in_every_tab_and_keeps_what_somebody_wrote_there(store: GroupStore) -> None:
    """The tab has the demo of the probes, a function of its own, another pattern, prompt and length."""
    demo, said = probe_demo(draft_of(own_row(MINE, weight=0.5), builtin_row("tag_format")))
    assert said.text.endswith("switched off: mine")
    assert [(row.name, row.on) for row in demo.rows] == [
        ("sums_and_answer", True),
        ("right_answer", True),
        ("mine", False),
    ]
    assert (demo.text, demo.prompt, dict(demo.columns)) == (demo.group.prompt, demo.group.prompt, {"answer": "10"})
    first, second, *others = demo.rows  # the editor gives code back without the line break at its end
    demo = demo.but(rows=(first.with_edits({"code": first.code.rstrip()}), second, *others))
    memory = kept(demo, store.keep_recent(demo.group), **{"method.sampling.max_completion_length": 9})
    link = link_of(draft_of(scheme="step"), "")
    fresh, found = restore("", link, store), restore(memory, link, store)
    assert len(found.problems) == 1
    assert found.draft.but(rows=fresh.draft.rows) == fresh.draft
    assert found.draft.rows == (*fresh.draft.rows[:2], replace(own_row(MINE, weight=0.5), on=False))


def test_an_imported_groups_prompt_stays_its_own(store: GroupStore) -> None:
    group = replace(first_group(), prompt="What is 2 + 2?", columns={"answer": "4"})
    draft = draft_of().but(group=group, prompt=group.prompt, text=group.prompt, columns=group.columns)
    saved = store.keep_recent(group)
    found = restore(kept(draft, saved), {}, store)
    assert (found.draft.prompt, dict(found.draft.columns)) == ("What is 2 + 2?", {"answer": "4"})
    assert restore(kept(draft, saved), link_of(draft, saved), store) == found


def test_a_link_shows_the_same_and_carries_settings_but_neither_code_nor_policy(store: GroupStore) -> None:
    assert "settings" not in link_of(draft_of(), "")
    group = replace(first_group(), rollouts=first_group().rollouts[:3])
    rows = (builtin_row("step_correctness", 0.5), replace(builtin_row("answer_correctness"), on=False), own_row(MINE))
    changes = {
        "method.sampling.temperature": 0.5,
        "run.steps": 3,
        "policy.path": "someone/model",
        "page.reference": "someone/model",
        "name": "mine",
    }
    draft = draft_of(*rows, regex="(?m)^#", gamma=0.5).but(compare=credit_section("return"), group=group)
    link = link_of(with_values(draft, changes), store.keep(group).stem)
    assert not {"someone", "mine"} & set(re.findall(r"\w+", json.dumps(link)))
    found = restore("", link, store)
    assert (found.problems, found.draft.policy, found.draft.rows) == ((), "tiny", rows[:2])
    assert (found.draft.regex, found.draft.kind) == ("(?m)^#", "starts")
    assert (found.draft.credit, found.draft.compare) == (draft.credit, draft.compare)
    assert found.draft.group.to_json() == group.to_json()
    assert (found.draft.tree["run"]["steps"], found.draft.tree["method"]["sampling"]["temperature"]) == (3, 0.5)


def test_a_link_to_another_task_brings_its_pattern_and_rewards(store: GroupStore) -> None:
    found = restore("", {"task": "chain-arithmetic-tags", "example": "3"}, store)
    task = find_task("chain-arithmetic-tags")
    assert (found.draft.task, found.draft.index, found.draft.text) == (task.name, 3, task[3].prompt)
    assert found.draft.pattern() == task.pattern
    assert [row.name for row in found.draft.rows] == [reward.name for reward in task.rewards]
    assert "settings" not in link_of(found.draft, "")
