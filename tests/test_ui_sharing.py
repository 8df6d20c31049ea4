"""Links, kept controls, files and notebook code: what the page gives away gives back the same."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.drafts import PATTERN, draft_of, own_row
from workbench.config.run import RunConfig
from workbench.credit import credit_group, loss_weights
from workbench.errors import ConfigError
from workbench.rewards import Reward, Sandbox, score_group
from workbench.schema import Credit, Group
from workbench.steps import StepPattern
from workbench.ui.handlers.checks import probe_demo
from workbench.ui.handlers.credit import credit_section
from workbench.ui.handlers.draft import RUN, SAMPLING, Draft
from workbench.ui.handlers.example import find_task, first_group
from workbench.ui.handlers.group_export import EXPORTS, export, stem
from workbench.ui.handlers.groups import RECENT, GroupStore
from workbench.ui.handlers.notebook import can_sample_again, inspect_code, text_literal, train_code
from workbench.ui.handlers.page_restore import restore
from workbench.ui.handlers.page_state import dump, link_of
from workbench.ui.handlers.reward_rows import SLOTS, builtin_row
from workbench.ui.handlers.rewards import keep_written
from workbench.ui.handlers.scoring import rescore

MINE = '''LIMIT = 9


def mine(prompt, step, **columns):
    """Short steps."""
    return float(len(step) % LIMIT) / 4 if "=" in step else None
'''


@pytest.fixture(scope="module")
def worker() -> Any:
    worker = Sandbox()
    yield worker
    worker.close()


@pytest.fixture
def store(tmp_path: Path) -> GroupStore:
    return GroupStore(tmp_path)


def ids(group: Group) -> list[tuple[int, ...]]:
    return [rollout.token_ids for rollout in group.rollouts]


def credited() -> Credit:
    scored = score_group(
        first_group(), find_task("chain-arithmetic").pattern, ["step_correctness", "answer_correctness"]
    )
    return credit_group(scored, "process")


# ── notebook code ────────────────────────────────────────────────────────────────────────────────────────────────


CASES = {
    "as it opens": draft_of(),
    "own code, weights": draft_of(
        builtin_row("step_correctness", 0.5),
        own_row(MINE),
        own_row(MINE.replace("mine", "other"), "other", weight=2.0),
    ),
    "code that cannot stand in other code": draft_of(
        own_row("from __future__ import annotations\n" + MINE.replace("mine", "future"), "future")
    ),
    "options": draft_of(gamma=0.5, scale=False, outcome_weight=0.25, clip=0.75),
    "min": draft_of(scheme="min", temperature=0.3),
    "first_error": draft_of(scheme="first_error", threshold=0.25, normalise="per_completion"),
    "two schemes": replace(draft_of(), compare=credit_section("outcome")),
    "another pattern": draft_of(regex="\\n+'\"", kind="ends"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_code_shows_the_pages_numbers_bit_for_bit(name: str, worker: Sandbox, store: GroupStore) -> None:
    draft = CASES[name]
    view = rescore(draft, worker)
    assert view.credit is not None
    found: dict[str, Any] = {}
    exec(inspect_code(draft, store.keep(first_group())), found)
    assert found["credit"].advantages.tobytes() == view.credit.advantages.tobytes()
    assert found["credit"].options == view.credit.options
    assert ids(found["group"]) == ids(first_group())
    if draft.compare is not None:
        assert view.other is not None
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
    draft = draft_of(own_row(one, "a"), own_row(other, "b"))
    view = rescore(draft, worker)
    assert view.credit is not None
    found: dict[str, Any] = {"__name__": "__main__"}
    exec(inspect_code(draft, store.keep(first_group())), found)
    assert found["scored"].step_rewards == view.credit.scored.step_rewards


def test_the_code_names_the_reference_and_the_adapter(store: GroupStore) -> None:
    group = first_group()
    group = replace(group, sampling={**group.sampling, "reference": "tiny", "adapter": "mine/adapter"})
    code = inspect_code(replace(draft_of(), group=group), store.keep(group))
    assert "wb.load_policy('tiny', adapter='mine/adapter')" in code
    assert "group = wb.with_reference(wb.load_policy('tiny'), group)" in code


def test_a_group_that_was_edited_or_read_is_read_again(worker: Sandbox, store: GroupStore) -> None:
    group = first_group()
    edited = replace(group, sampling={}, rollouts=group.rollouts[1:], columns={**group.columns, "note": "'''\\"})
    draft = replace(draft_of(), group=edited)
    assert not can_sample_again(edited)
    code = inspect_code(draft, store.keep(edited))
    assert "load_policy" not in code
    found: dict[str, Any] = {}
    exec(code, found)
    assert found["credit"].advantages.tobytes() == rescore(draft, worker).credit.advantages.tobytes()


def test_a_prompt_of_ones_own_is_sampled_again(store: GroupStore) -> None:
    group = replace(first_group(), prompt="Start with 7, add 5.\n", columns={})
    code = inspect_code(replace(draft_of(), group=group), store.keep(group))
    assert "wb.Example('Start with 7, add 5.\\n', {})" in code


def test_training_code_is_the_runs_configuration() -> None:
    config = RunConfig.parse(
        {
            "name": "mine",
            "method": {
                "pattern": {"regex": "\\n+", "kind": "ends"},
                "rewards": [
                    {"name": "mine", "code": MINE, "weight": 0.5},
                    {"name": "answer_correctness", "kind": "outcome"},
                ],
                "credit": {"scheme": "first_error", "options": {"threshold": 0.25}},
                "beta": 0.01,
            },
            "run": {"steps": 3},
        }
    )
    code = train_code(config, Path("/somewhere"))
    before, _, after = code.partition("run = ")
    found: dict[str, Any] = {}
    exec(before, found)
    assert found["config"] == config
    assert after.startswith("wb.train(config, '/somewhere')\n")
    plain: dict[str, Any] = {}
    exec(train_code(RunConfig()).partition("run = ")[0], plain)
    assert plain["config"] == RunConfig()


@pytest.mark.parametrize("text", ["", "a", "\\", "'", "a\nb", "a'''\n\"\"\"\\", "\\n\n\\", "\r\n", "\x00", "'\n"])
def test_a_literal_gives_back_its_text(text: str) -> None:
    assert eval(text_literal(text)) == text


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_files_hold_the_numbers_on_screen() -> None:
    credit = credited()
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

    reward = Reward("reward", "step", lambda prompt, step, **columns: 1.0, 2.0)
    twice = credit_group(score_group(first_group(), StepPattern(PATTERN), [reward]), scheme="process")
    row = next(csv.DictReader(io.StringIO(export(twice, "steps").text, newline="")))
    assert (row["score of reward"], row["reward"]) == ("1.0", "2.0")

    steps = list(csv.DictReader(io.StringIO(export(credit, "steps").text, newline="")))
    assert len(steps) == sum(len(one.steps) for one in credit.scored.scored)
    assert float(steps[0]["reward"]) == credit.scored.scored[0].rewards[0]
    last = tokens[int(steps[0]["last_token"])]
    assert {name: steps[0][name] for name in last if name.startswith(("advantage", "weight"))} == {
        name: last[name] for name in ("advantage", "weight_grpo", "weight_bnpo", "weight_dapo", "weight_dr_grpo")
    }
    assert "difference" not in last
    assert steps[0]["text"].startswith("Step 1:")

    page = export(credit, "html").text
    assert page.startswith("<!doctype html>")
    assert "default-src 'none'" in page


def test_names_of_files_are_plain() -> None:
    group = replace(first_group(), policy="../org/My Model\n", sampling={})
    credit = credited()
    named = replace(credit, scored=replace(credit.scored, group=group))
    assert stem(named) == "group-My_Model-process-G8"
    assert stem(credit) == "group-tiny-process-G8-seed0"
    assert {export(credit, kind).name.split(".")[-1] for kind in EXPORTS} == {"html", "json", "csv"}


def test_a_models_text_is_no_formula_in_a_spreadsheet() -> None:
    group = first_group()
    texts = ("=HYPERLINK(1)", *group.rollouts[0].texts[1:])
    hostile = replace(group, rollouts=(replace(group.rollouts[0], texts=texts), *group.rollouts[1:]))
    scored = score_group(hostile, find_task("chain-arithmetic").pattern, ["step_correctness"])
    rows = list(csv.DictReader(io.StringIO(export(credit_group(scored), "tokens").text, newline="")))
    assert rows[0]["text"] == "'=HYPERLINK(1)"


def test_a_rewards_name_is_no_formula_in_a_spreadsheet() -> None:
    reward = Reward("=HYPERLINK(1)", "step", lambda prompt, step, **columns: -1.0)
    credit = credit_group(score_group(first_group(), StepPattern(PATTERN), [reward]), scheme="process")
    row = next(csv.DictReader(io.StringIO(export(credit, "steps").text, newline="")))
    assert row["'=HYPERLINK(1)"] == "-1.0"  # a number is none, whatever its sign


def test_a_references_log_probabilities_are_a_column_where_there_are_any() -> None:
    credit = credited()
    assert "reference_logprob" not in export(credit, "tokens").text
    first, *others = credit.scored.group.rollouts
    known = replace(first, ref_logprobs=tuple(-t / 4 for t in range(len(first))))
    group = replace(credit.scored.group, rollouts=(known, *others))
    text = export(replace(credit, scored=replace(credit.scored, group=group)), "tokens").text
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [row["reference_logprob"] for row in rows[:3]] == ["0.0", "-0.25", "-0.5"]
    assert rows[-1]["reference_logprob"] == ""


def test_two_schemes_are_exported_side_by_side() -> None:
    credit = credited()
    other = credit_group(credit.scored, "outcome")
    row = next(csv.DictReader(io.StringIO(export(credit, "tokens", other=other).text, newline="")))
    assert np.float32(row["advantage_b"]) == other.of(0)[0]
    assert np.float32(row["difference"]) == other.of(0)[0] - credit.of(0)[0]
    tokens = sum(credit.scored.lengths)
    assert float(row["weight_grpo_b"]) == pytest.approx(loss_weights(other, "grpo")[0, 0] * tokens, abs=1e-5)
    assert json.loads(export(credit, "json", other=other).text)["other"]["scheme"] == "outcome"


# ── invariant 12: a form is the configuration ────────────────────────────────────────────────────────────────────

WHOLE = {
    "name": "mine",
    "seed": 7,
    "policy": {"path": "someone/model", "lora": {"r": 4}},
    "task": {"name": "chain-arithmetic-tags"},
    "optimiser": {"learning_rate": 1e-3, "lr_scheduler": "cosine", "weight_decay": 0.1},
    "run": {"steps": 3, "eval_every": 2, "ranks": 2, "device": "cpu", "report_to": ["tensorboard"], "save_every": 4},
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
    draft = Draft.of(config)
    assert draft.config() == config
    assert Draft.of(RunConfig.from_yaml(draft.config().to_yaml())) == draft
    # What the page's fields show, given back unchanged, changes nothing.
    assert draft.with_values(draft.values()) == draft
    # A browser that keeps it gives it back, to the last field.
    shown = draft_of().with_config(config)
    restored = restore(json.dumps({"scoring": dump(shown, "")}), {}, store)
    assert restored is not None
    assert (restored.problems, restored.draft.config()) == ((), config)
    # Notebook code is the same configuration.
    code: dict[str, Any] = {}
    exec(train_code(config).partition("run = ")[0], code)
    assert code["config"] == config


def test_every_field_of_an_opened_file_survives_to_start_and_fields_on_the_page_change_theirs() -> None:
    opened = draft_of().with_config(RunConfig.parse(WHOLE))
    changed = opened.with_values(
        {
            "run.steps": 9.0,
            "method.sampling.temperature": 0.25,
            "method.credit.threshold": 0.4,
            "method.rewards.0.weight": 0.75,
            "method.rewards.1.on": False,
        }
    )
    expected = RunConfig.parse(WHOLE).model_dump()
    expected["run"]["steps"] = 9
    expected["method"]["sampling"]["temperature"] = 0.25
    expected["method"]["credit"]["options"]["threshold"] = 0.4
    expected["method"]["rewards"][0]["weight"] = 0.75
    del expected["method"]["rewards"][1]
    assert changed.config().model_dump() == expected


def test_a_field_that_does_not_fit_is_named_by_its_path() -> None:
    draft = draft_of().with_values({"run.steps": None, "method.sampling.num_generations": 1})
    with pytest.raises(ConfigError) as refused:
        draft.config()
    assert [line.partition(":")[0] for line in str(refused.value).splitlines()] == [
        "run.steps",
        "method.sampling.num_generations",
    ]


def test_another_scheme_for_the_run_takes_over_what_somebody_set() -> None:
    draft = draft_of(outcome_weight=0.5, gamma=0.9).with_values({"page.run_scheme": "step"})
    credit = draft.config().grpo.credit
    assert (credit.scheme, credit.outcome_weight, credit.gamma) == ("step", 0.5, None)  # step has no discount
    assert draft.credit["scheme"] == "process"


# ── kept controls and links ──────────────────────────────────────────────────────────────────────────────────────


def kept(draft: Draft, saved: str = "", **fields: Any) -> str:
    """What a browser tab keeps of a page, whose address is a link to it."""
    values = draft.values() | fields
    parts = {"sampling": SAMPLING, "run": RUN}
    forms = {part: {path: values[path] for path in paths} for part, paths in parts.items()}
    return json.dumps({"scoring": dump(draft, saved), "address": link_of(draft, saved), **forms})


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
    )
    draft = replace(draft, compare=credit_section("step"), group=group, edited=group.prompt)
    draft = draft.with_values(
        {
            "page.text": "a prompt",
            "method.sampling.num_generations": 4,
            "method.sampling.temperature": 0.5,
            "method.sampling.max_completion_length": 60,
            "page.seed": 7,
            "run.steps": 5,
            "grpo.beta": 0.01,
            "name": "mine",
        }
    )
    found = restore(kept(draft, store.keep_recent(group)), {}, store)
    assert found is not None
    assert found.problems == ()
    assert found.draft.group.to_json() == group.to_json()
    assert replace(found.draft, group=group) == draft
    saved = store.keep_recent(group)
    again = restore(kept(draft, saved), link_of(draft, saved), store)
    assert again == found  # the tab's own address changes nothing


def test_a_number_that_is_being_typed_comes_back_as_it_was(store: GroupStore) -> None:
    found = restore(kept(draft_of(), **{"method.sampling.num_generations": 1}), {}, store)
    assert found is not None
    assert found.draft.values()["method.sampling.num_generations"] == 1


def test_a_link_to_another_group_of_the_example_forgets_the_edited_prompt(store: GroupStore) -> None:
    group, other = first_group(), replace(first_group(), rollouts=first_group().rollouts[:3])
    draft = replace(draft_of(), edited=group.prompt)
    memory = kept(replace(draft, text="a prompt"), store.keep_recent(group))
    link = link_of(replace(draft_of(), group=other), store.keep(other).stem)
    found = restore(memory, link, store)
    assert found is not None
    assert (found.draft.edited, found.draft.text) == (None, find_task(draft.task)[draft.index].prompt)


def test_a_link_shows_the_same_in_every_tab_and_keeps_what_somebody_wrote_there(store: GroupStore) -> None:
    """The tab has the demo of the probes, a function of its own, another pattern, prompt and length."""
    demo, said = probe_demo(draft_of(own_row(MINE, weight=0.5), builtin_row("tag_format")))
    assert said.text.endswith("your own functions are kept, switched off: mine")
    assert [(row.name, row.on) for row in demo.rows if row] == [
        ("sums_and_answer", True),
        ("right_answer", True),
        ("mine", False),
    ]
    assert demo.group is not None
    assert demo.text == demo.prompt == demo.group.prompt
    assert dict(demo.columns) == {"answer": "10"}
    first, second, *others = demo.rows  # the editor gives code back without the line break at its end
    assert first is not None
    demo = replace(demo, rows=(first.with_values(True, 1.0, first.code.rstrip()), second, *others))
    memory = kept(demo, store.keep_recent(demo.group), **{"method.sampling.max_completion_length": 9})
    link = link_of(draft_of(scheme="step"), "")
    fresh, found = restore("", link, store), restore(memory, link, store)
    assert fresh is not None
    assert found is not None
    assert found.problems == ("your own functions are kept, switched off: mine",)
    assert replace(found.draft, rows=fresh.draft.rows) == fresh.draft
    assert found.draft.rows == (*fresh.draft.rows[:2], replace(own_row(MINE, weight=0.5), on=False), *[None] * 9)


def test_functions_that_do_not_fit_beside_others_are_named() -> None:
    full = [own_row(MINE.replace("mine", f"mine_{i}"), f"mine_{i}") for i in range(SLOTS)]
    rows, said = keep_written([builtin_row("step_correctness"), full[0]], full)
    assert [row.name for row in rows if row] == ["step_correctness", *(f"mine_{i}" for i in range(SLOTS - 1))]
    assert [row.on for row in rows if row] == [True, True, *[False] * (SLOTS - 2)]
    assert said.endswith("mine_10; there was no room for mine_11")


def test_an_imported_groups_prompt_stays_its_own(store: GroupStore) -> None:
    group = replace(first_group(), prompt="What is 2 + 2?", columns={"answer": "4"})
    draft = replace(draft_of(), group=group, prompt=group.prompt, text=group.prompt, columns=group.columns)
    saved = store.keep_recent(group)
    found = restore(kept(draft, saved), {}, store)
    assert found is not None
    assert (found.draft.prompt, dict(found.draft.columns)) == ("What is 2 + 2?", {"answer": "4"})
    assert restore(kept(draft, saved), link_of(draft, saved), store) == found


def test_a_link_shows_the_same_and_carries_no_code(store: GroupStore) -> None:
    group = replace(first_group(), rollouts=first_group().rollouts[:3])
    draft = draft_of(own_row(MINE), regex="(?m)^#", gamma=0.5)
    draft = replace(draft, compare=credit_section("return"), group=group)
    link = link_of(draft, store.keep(group).stem)
    assert "mine" not in json.dumps(link)
    found = restore("", link, store)
    assert found is not None
    assert (found.draft.regex, found.draft.kind) == ("(?m)^#", "starts")
    assert (found.draft.credit, found.draft.compare) == (draft.credit, draft.compare)
    assert found.draft.rows == draft_of().rows
    assert found.draft.group.to_json() == group.to_json()


def test_a_link_carries_settings_and_built_in_rewards_but_no_policy(store: GroupStore) -> None:
    assert "settings" not in link_of(draft_of(), "")
    rows = (builtin_row("step_correctness", 0.5), replace(builtin_row("answer_correctness"), on=False), own_row(MINE))
    changes = {
        "method.sampling.temperature": 0.5,
        "run.steps": 3,
        "policy.path": "someone/model",
        "page.reference": "someone/model",
        "name": "mine",
    }
    draft = draft_of(*rows).with_values(changes)
    link = link_of(draft, "")
    assert "someone" not in json.dumps(link)
    found = restore("", link, store)
    assert found is not None
    assert found.problems == ()
    assert found.draft.rows[:3] == (*rows[:2], None)
    assert found.draft.policy == "tiny"
    assert (found.draft.tree["run"]["steps"], found.draft.tree["method"]["sampling"]["temperature"]) == (3, 0.5)


@pytest.mark.parametrize(
    "settings",
    [
        {"policy.trust_remote_code": True, "policy.path": "x", "task.name": "/etc/passwd", "run.report_to": ["wandb"]},
        {
            "method.name": "none",
            "task.data": "/etc/passwd",
            "method.pattern.regex": "x",
            "method.pattern": {"regex": "x"},
            "name": "x",
        },
        {"run.steps": "x", "method.credit.clip": 1, "method.nonsense": 1, "run": {"steps": 4}, "method.": 3},
        {"rewards": [{"fields": {"name": "mine", "code": MINE}}]},
    ],
)
def test_a_link_sets_nothing_that_a_link_may_not(settings: dict[str, Any], store: GroupStore) -> None:
    found = restore("", {"settings": json.dumps(settings)}, store)
    assert found is not None
    assert found.draft.tree == draft_of().tree
    assert not any(row.code == MINE for row in found.draft.rows if row)


def test_a_link_to_another_task_brings_its_pattern_and_rewards(store: GroupStore) -> None:
    found = restore("", {"task": "chain-arithmetic-tags", "example": "3"}, store)
    task = find_task("chain-arithmetic-tags")
    assert found is not None
    assert (found.draft.task, found.draft.index, found.draft.text) == (task.name, 3, task[3].prompt)
    assert found.draft.regex == task.pattern.regex
    assert [row.name for row in found.draft.rows if row] == [reward.name for reward in task.rewards]
    assert "settings" not in link_of(found.draft, "")


def test_a_link_opens_no_file_and_no_hub(store: GroupStore, tmp_path: Path) -> None:
    for task in (str(tmp_path / "data.jsonl"), "hub:openai/gsm8k"):
        found = restore("", {"task": task}, store)
        assert found is not None
        assert found.draft.task == "chain-arithmetic"
        assert "not built in" in found.problems[0]


@pytest.mark.parametrize("bad", ["", "{", "[1]", '{"scoring": 3, "sampling": []}', '{"scoring": {"slots": [1, {}]}}'])
def test_what_a_browser_kept_is_not_trusted(bad: str, store: GroupStore) -> None:
    found = restore(bad, {}, store)
    assert found is None or found.draft.regex == PATTERN
    strange = {
        "config": {"run": {"steps": "x", "ranks": 0}, "policy": {"trust_remote_code": True}, "method": 3},
        "credit": {"scheme": "min", "options": {"temperature": "x", "normalise": 4}},
        "saved": "../../etc/passwd",
        "rewards": [{"fields": {"name": "gone"}}, {"fields": {"name": "x", "model": {"path": ""}}}],
    }
    found = restore(json.dumps({"scoring": strange, "run": {"seed": [], "else": 1}}), {}, store)
    assert found is not None
    assert found.draft.credit == credit_section("min")
    assert found.draft.tree == draft_of().tree
    assert found.draft.rows == (None,) * SLOTS
    said = " · ".join(found.problems)
    for named in ("not kept in this workspace", "run.steps", "run.ranks", "consent", "'gone'", "seed"):
        assert named in said


def test_groups_pointed_at_stay_and_others_go(store: GroupStore) -> None:
    groups = [replace(first_group(), prompt=f"prompt {i}") for i in range(RECENT + 3)]
    first = store.keep(groups[0]).stem
    names = [store.keep_recent(group) for group in groups]
    assert names[0] == first
    assert store.find(first).prompt == "prompt 0"
    assert len(list((store.folder / "recent").glob("*.json"))) == RECENT
    assert store.find(names[-1]).prompt == groups[-1].prompt
    assert store.find(names[1]) is None
    (store.folder / f"{'0' * 16}.json").write_text('{"prompt": 1}')
    assert store.find("0" * 16) is None
