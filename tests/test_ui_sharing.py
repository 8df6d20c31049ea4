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

from workbench.config import RunConfig
from workbench.credit import credit_group, loss_weights
from workbench.rewards import Reward, RewardWorker, score_group
from workbench.schema import Credit, Group
from workbench.steps import StepPattern
from workbench.ui.handlers.credit import FIELDS, credit_form, default_values
from workbench.ui.handlers.exports import EXPORTS, export, stem
from workbench.ui.handlers.groups import RECENT, GroupStore
from workbench.ui.handlers.inspect import find_task, first_group, first_session
from workbench.ui.handlers.keeping import link_of, restore, sampling_kept, scoring_kept
from workbench.ui.handlers.notebook import can_sample_again, inspect_code, text_literal, train_code
from workbench.ui.handlers.rewards import EMPTY_SLOT, builtin_slot
from workbench.ui.handlers.sampling import SamplingForm
from workbench.ui.handlers.scoring import ScoringForm, SlotValues, rescore
from workbench.ui.handlers.session import SLOTS, RewardSlot, Session

MINE = '''LIMIT = 9


def mine(prompt, step, **columns):
    """Short steps."""
    return float(len(step) % LIMIT) / 4 if "=" in step else None
'''
PATTERN = r"(?m)^(?:Step \d+|Answer):"
SAMPLING = SamplingForm("", "tiny", 8, 1.0, 112, 1)


@pytest.fixture(scope="module")
def worker() -> Any:
    worker = RewardWorker()
    yield worker
    worker.close()


@pytest.fixture
def store(tmp_path: Path) -> GroupStore:
    return GroupStore(tmp_path)


def form_of(*rows: SlotValues, **options: Any) -> ScoringForm:
    listed = rows or (builtin_slot("step_correctness"), builtin_slot("answer_correctness"))
    return replace(
        ScoringForm(PATTERN, "starts", listed + (EMPTY_SLOT,) * (SLOTS - len(listed)), credit_form("process")),
        **options,
    )


def session_of(form: ScoringForm, group: Group | None = None) -> Session:
    session = first_session()
    return replace(session, group=group or session.group, slots=tuple(one.slot for one in form.slots))


def own_row(name: str, code: str, weight: float = 1.0) -> SlotValues:
    return SlotValues(RewardSlot(name, "step"), True, weight, code)


def with_option(form: ScoringForm, scheme: str, **options: Any) -> ScoringForm:
    values = [options.get(field.name, value) for field, value in zip(FIELDS, default_values(scheme), strict=True)]
    return replace(form, credit=credit_form(scheme, values))


def ids(group: Group) -> list[tuple[int, ...]]:
    return [rollout.token_ids for rollout in group.rollouts]


def credited() -> Credit:
    scored = score_group(
        first_group(), find_task("chain-arithmetic").pattern, ["step_correctness", "answer_correctness"]
    )
    return credit_group(scored, "process")


# ── notebook code ────────────────────────────────────────────────────────────────────────────────────────────────


CASES = {
    "as it opens": form_of(),
    "own code, weights": form_of(
        builtin_slot("step_correctness", 0.5),
        own_row("mine", MINE),
        own_row("other", MINE.replace("mine", "other"), 2.0),
    ),
    "code that cannot stand in other code": form_of(
        own_row("future", "from __future__ import annotations\n" + MINE.replace("mine", "future"))
    ),
    "options": with_option(form_of(), "process", gamma=0.5, scale=False, outcome_weight=0.25, clip=0.75),
    "min": with_option(form_of(), "min", temperature=0.3),
    "first_error": with_option(form_of(), "first_error", threshold=0.25, normalise="per_completion"),
    "two schemes": form_of(other=credit_form("outcome")),
    "another pattern": form_of(regex="\\n+'\"", kind="ends"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_code_shows_the_pages_numbers_bit_for_bit(name: str, worker: RewardWorker, store: GroupStore) -> None:
    form = CASES[name]
    session = session_of(form)
    view = rescore(session, form, worker)
    assert view.credit is not None
    found: dict[str, Any] = {}
    exec(inspect_code(session, form, store.keep(session.group)), found)
    assert found["credit"].advantages.tobytes() == view.credit.advantages.tobytes()
    assert found["credit"].options == view.credit.options
    assert ids(found["group"]) == ids(session.group)
    if form.other is not None:
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
    first: str, second: str, worker: RewardWorker, store: GroupStore
) -> None:
    uses = "h()" if "h()" in first else "float(sum([1, 2]))"
    one = first if "def a(" in first else f"{first}def a(prompt, step, **c):\n    return {uses}\n"
    other = f"{second}def b(prompt, step, **c):\n    return 0.5 * ('=' in step)\n"
    form = form_of(own_row("a", one), own_row("b", other))
    session = session_of(form)
    view = rescore(session, form, worker)
    assert view.credit is not None
    found: dict[str, Any] = {"__name__": "__main__"}
    exec(inspect_code(session, form, store.keep(session.group)), found)
    assert found["scored"].step_rewards == view.credit.scored.step_rewards


def test_the_code_names_the_reference_and_the_adapter(store: GroupStore) -> None:
    group = first_group()
    group = replace(group, sampling={**group.sampling, "reference": "tiny", "adapter": "mine/adapter"})
    code = inspect_code(session_of(form_of(), group), form_of(), store.keep(group))
    assert "wb.load_policy('tiny', adapter='mine/adapter')" in code
    assert "group = wb.with_reference(wb.load_policy('tiny'), group)" in code


def test_a_group_that_was_edited_or_read_is_read_again(worker: RewardWorker, store: GroupStore) -> None:
    form = form_of()
    group = first_group()
    edited = replace(group, sampling={}, rollouts=group.rollouts[1:], columns={**group.columns, "note": "'''\\"})
    session = session_of(form, edited)
    assert not can_sample_again(edited)
    code = inspect_code(session, form, store.keep(edited))
    assert "load_policy" not in code
    found: dict[str, Any] = {}
    exec(code, found)
    assert found["credit"].advantages.tobytes() == rescore(session, form, worker).credit.advantages.tobytes()


def test_a_prompt_of_ones_own_is_sampled_again(store: GroupStore) -> None:
    group = replace(first_group(), prompt="Start with 7, add 5.\n", columns={})
    code = inspect_code(session_of(form_of(), group), form_of(), store.keep(group))
    assert "wb.Example('Start with 7, add 5.\\n', {})" in code


def test_training_code_is_the_runs_configuration() -> None:
    config = RunConfig.parse(
        {
            "name": "mine",
            "pattern": {"regex": r"\n+", "kind": "ends"},
            "rewards": [
                {"name": "mine", "code": MINE, "weight": 0.5},
                {"name": "answer_correctness", "kind": "outcome"},
            ],
            "credit": {"scheme": "first_error", "options": {"threshold": 0.25}},
            "training": {"steps": 3, "beta": 0.01},
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


# ── kept controls and links ──────────────────────────────────────────────────────────────────────────────────────


def kept(session: Session, form: ScoringForm, sampling: SamplingForm = SAMPLING, saved: str = "") -> str:
    return json.dumps({"scoring": scoring_kept(session, form, saved), "sampling": sampling_kept(sampling)})


def test_a_reload_brings_everything_back(store: GroupStore) -> None:
    form = with_option(form_of(own_row("mine", MINE, 0.5), builtin_slot("step_correctness")), "min", temperature=0.3)
    form = replace(form, regex=r"\n+", kind="ends", other=credit_form("step"))
    group = replace(first_group(), rollouts=first_group().rollouts[:3])
    session = replace(session_of(form, group), edited=group.prompt)
    sampling = SamplingForm("a prompt", "tiny", 4, 0.5, 60, 7)
    found = restore(kept(session, form, sampling, store.keep_recent(group)), {}, form_of(), SAMPLING, store)
    assert found is not None
    assert (found.scoring, found.sampling, found.problems) == (form, sampling, ())
    assert found.session.group.to_json() == group.to_json()
    assert (found.session.slots, found.session.edited) == (session.slots, group.prompt)
    saved = store.keep_recent(group)
    again = restore(kept(session, form, sampling, saved), link_of(session, form, saved), form_of(), SAMPLING, store)
    assert again == found  # the tab's own address changes nothing


def test_a_link_to_another_group_of_the_example_forgets_the_edited_prompt(store: GroupStore) -> None:
    group, other = first_group(), replace(first_group(), rollouts=first_group().rollouts[:3])
    session = replace(session_of(form_of(), group), edited=group.prompt)
    memory = kept(session, form_of(), replace(SAMPLING, prompt="a prompt"), store.keep_recent(group))
    link = link_of(session_of(form_of(), other), form_of(), store.keep(other).stem)
    found = restore(memory, link, form_of(), SAMPLING, store)
    assert found is not None
    assert (found.session.edited, found.sampling.prompt) == (None, find_task(session.task)[session.index].prompt)


def test_an_imported_groups_prompt_stays_its_own(store: GroupStore) -> None:
    group = replace(first_group(), prompt="What is 2 + 2?", columns={"answer": "4"})
    session = replace(session_of(form_of(), group), prompt=group.prompt, columns=group.columns)
    found = restore(kept(session, form_of(), saved=store.keep_recent(group)), {}, form_of(), SAMPLING, store)
    assert found is not None
    assert (found.session.prompt, dict(found.session.columns)) == ("What is 2 + 2?", {"answer": "4"})
    saved = store.keep_recent(group)
    again = restore(
        kept(session, form_of(), saved=saved), link_of(session, form_of(), saved), form_of(), SAMPLING, store
    )
    assert again == found


def test_a_link_shows_the_same_and_carries_no_code(store: GroupStore) -> None:
    form = with_option(form_of(own_row("mine", MINE)), "process", gamma=0.5)
    form = replace(form, regex="(?m)^#", other=credit_form("return"))
    group = replace(first_group(), rollouts=first_group().rollouts[:3])
    session = session_of(form, group)
    link = link_of(session, form, store.keep(group).stem)
    assert "mine" not in json.dumps(link)
    found = restore("", link, form_of(), SAMPLING, store)
    assert found is not None
    assert (found.scoring.regex, found.scoring.kind) == ("(?m)^#", "starts")
    assert (found.scoring.credit, found.scoring.other) == (form.credit, form.other)
    assert found.scoring.slots == form_of().slots
    assert found.session.group.to_json() == group.to_json()


def test_a_link_to_another_task_brings_its_pattern_and_rewards(store: GroupStore) -> None:
    found = restore("", {"task": "chain-arithmetic-tags", "example": "3"}, form_of(), SAMPLING, store)
    task = find_task("chain-arithmetic-tags")
    assert found is not None
    assert (found.session.task, found.session.index, found.sampling.prompt) == (task.name, 3, task[3].prompt)
    assert found.scoring.regex == task.pattern.regex
    assert [one.name for one in found.session.slots if one] == [reward.name for reward in task.rewards]


def test_a_link_opens_no_file_and_no_hub(store: GroupStore, tmp_path: Path) -> None:
    for task in (str(tmp_path / "data.jsonl"), "hub:openai/gsm8k"):
        found = restore("", {"task": task}, form_of(), SAMPLING, store)
        assert found is not None
        assert found.session.task == "chain-arithmetic"
        assert "not built in" in found.problems[0]


@pytest.mark.parametrize("bad", ["", "{", "[1]", '{"scoring": 3, "sampling": []}', '{"scoring": {"slots": [1, {}]}}'])
def test_what_a_browser_kept_is_not_trusted(bad: str, store: GroupStore) -> None:
    found = restore(bad, {}, form_of(), SAMPLING, store)
    assert found is None or found.scoring.regex == PATTERN
    strange = {
        "credit": {"scheme": "min", "options": {"temperature": "x", "normalise": 4}},
        "saved": "../../etc/passwd",
    }
    found = restore(json.dumps({"scoring": strange}), {}, form_of(), SAMPLING, store)
    assert found is not None
    assert found.scoring.credit == credit_form("min")
    assert "not kept in this workspace" in found.problems[0]


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
