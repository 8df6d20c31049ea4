"""Opening one's own data on the page, without a browser: files, logs and tasks of other columns."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.drafts import assert_given_back, draft_of, own_row, with_values
from workbench.assets import GSM8K
from workbench.errors import TaskError
from workbench.steps import PRESETS
from workbench.training.methods import RunConfig
from workbench.ui.handlers.checks import check_rewards
from workbench.ui.handlers.example import choose_example, first_group, preview, read_as
from workbench.ui.handlers.fields import credit_section
from workbench.ui.handlers.opening import (
    Ask,
    choose_group,
    find_file,
    find_rewards,
    group_rows,
    open_file,
    with_opened,
)
from workbench.ui.handlers.page_state import PageState, builtin_row
from workbench.ui.handlers.scoring import rescore
from workbench.ui.handlers.session import Services
from workbench.ui.handlers.sharing import dump, inspect_code, open_config, restore

ROWS = [{"prompt": "2 + 2?", "completion": f"Step 1: 2 + 2 = {n}"} for n in (4, 5)]


def opened(tmp_path, path="gsm8k", **how):
    """What is shown while a file is opened, the last view being what came of it."""
    services = Services(tmp_path)
    views = list(open_file(Ask(path, **how), services, "tab"))
    assert not services.opening.going("tab")  # whatever happened, the tab is free again
    return views


def test_a_recipe_opens_by_name_with_its_task_and_policy(tmp_path):
    file = opened(tmp_path, "recipe:first-real-run")[-1].configuration
    draft, _ = open_config(draft_of(), file.name, file.read_bytes())
    assert (draft.task, draft.policy) == (str(GSM8K / "train-1500.jsonl"), "HuggingFaceTB/SmolLM2-135M-Instruct")
    assert ([row.on for row in draft.rows], draft.config().policy.lora.r) == ([True] * 3, 16)


def write(tmp_path, *rows, name="mine.jsonl"):
    (tmp_path / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return name


def shown(draft, worker):
    """The advantage of each answer's first token."""
    return [rollout["advantages"][0] for rollout in json.loads(rescore(draft, worker).drawing)["show"]["rollouts"]]


def test_data_that_comes_along_is_opened_with_progress_and_scored(tmp_path, worker):
    views = opened(tmp_path)
    assert [view.running for view in views] == [True] * (len(views) - 1) + [False]
    imported, note = views[-1].imported, views[-1].note
    assert ("300 groups (1,200 answers)" in note.text, note.level) == (True, "info")
    assert group_rows(imported)[1][:3] == ["2", "4", "3 of 4"]
    draft = with_opened(draft_of(), views[-1])
    assert (draft.regex, draft.group) == (r"\n+", imported.groups[0])
    chosen, index = choose_group(draft, imported, 1)
    assert (index, chosen.group, chosen.text) == (1, imported.groups[1], imported.groups[1].prompt)
    assert [row.name for row in draft.rows] == ["calculator_notes", "gsm8k_answer"]
    view = rescore(chosen, worker)
    drawn = json.loads(view.drawing)
    assert (view.note, view.pattern, drawn["other"]) == (None, None, "")
    assert [rollout["outcome"] for rollout in drawn["show"]["rollouts"]] == [1.0, 1.0, 0.0, 1.0]


def test_a_log_takes_a_preset_that_matches_where_the_pages_own_matches_nothing(tmp_path):
    texts = ["1. Add\nwith more\n2. So it is 7", "1. Guess\n2. So it is 8"]
    rows = [{"prompt": "3 + 4?", "completion": text, "reward": float(i)} for i, text in enumerate(texts)]
    view = opened(tmp_path, write(tmp_path, *rows))[-1]
    page = draft_of()
    assert with_opened(page, view).pattern() == PRESETS["numbered"].pattern
    written = page.with_pattern(r"(?m)^Thus", "starts")
    assert with_opened(written, view).pattern() == written.pattern()
    steps = [{**row, "completion": f"Step 1: {row['completion']}"} for row in rows]
    kept = with_opened(page, opened(tmp_path, write(tmp_path, *steps, name="steps.jsonl"))[-1])
    assert kept.pattern() == page.pattern()


UNSCORED = "Nothing in the file scores an answer"
SHAPES = {
    "content-parts.jsonl": UNSCORED,
    "messages-reasoning.jsonl": UNSCORED,
    "end-token-text.jsonl": UNSCORED,
    "pads-after-end.jsonl": UNSCORED,
    "miles-sample.jsonl": "1 group (2 answers) of a miles log",
    "ms-swift-completions.jsonl": "2 groups (4 answers) of an ms-swift log; its advantages are outcome ÷ std",
    "nemo-rl-train-data.jsonl": "1 group (2 answers) of a NeMo-RL log",
    "trl-extra-column.jsonl": "equal within 0.01; 1 column was not used (n_tokens)",
    "trl-nan.csv": "1 group (2 answers) of a TRL log",
    "verifiers-traces.jsonl": "1 group (2 answers) of a log of traces",
    "prime-rl-run": "1 group (1 answer) of a log of traces",
    "nemo-gym-rollouts.jsonl": "1 group (2 answers) of a NeMo Gym log",
    "agent-r1-dump.jsonl": "1 group (2 answers) of an Agent-R1 log",
    "torchtitan-rollouts.jsonl": "1 group (2 answers) of a torchtitan log; its advantages are outcome, not ÷ std",
    "art-trajectories.jsonl": "1 group (2 answers) of ART's trajectories",
    "verl-countdown.jsonl": "Opened 4 problems.",
    "own-rows.jsonl": "Opened 12 problems.",
    "prm800k-null-steps.jsonl": "no completion in any (line 1)",
}
"""Of ``tests/data/cases``, and what the page says of each."""


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_of_file_is_a_coloured_group(tmp_path, worker, name):
    """What nothing scores is coloured once a reward is added."""
    shutil.copytree(Path(__file__).parent / "data" / "cases", tmp_path / "cases")
    view = opened(tmp_path, f"cases/{name}")[-1]
    assert SHAPES[name] in view.note.text
    assert (view.imported is None) == name.startswith(("verl", "own", "prm"))
    if view.imported is not None:
        length = builtin_row("length_and_mistake")
        draft = with_opened(draft_of(), view)
        drawn = json.loads(rescore(draft.with_row(length) if UNSCORED in view.note.text else draft, worker).drawing)
        rollouts = [one for rollout in drawn["show"]["rollouts"] for one in (rollout, rollout.get("twin") or rollout)]
        assert any(any(rollout["advantages"]) for rollout in rollouts)


def test_problems_of_other_columns_open_as_a_task_that_runs_find_again(tmp_path):
    uploads = tmp_path / "uploads" / "ab12"
    uploads.mkdir(parents=True)
    rows = [{"Problem Text": f"{n} + 1?", "gold_value": n + 1} for n in range(12)]
    write(uploads, *rows)
    view = opened(tmp_path, "uploads/ab12/mine.jsonl")[-1]
    draft = with_opened(draft_of(), view)
    assert (draft.task, draft.text, draft.columns["answer"]) == (str(tmp_path / "data" / "mine.jsonl"), "0 + 1?", "1")
    assert (draft.credit, draft.group) == ({"scheme": "process", "outcome_weight": 1.0}, None)  # sampled at once
    assert draft.config().task.columns == {"prompt": "Problem Text", "answer": "gold_value"}
    assert opened(tmp_path, "uploads/ab12/mine.jsonl")[-1].section == view.section  # the same file is kept once
    write(uploads, *rows[:5])
    assert opened(tmp_path, "uploads/ab12/mine.jsonl")[-1].section.name == str(tmp_path / "data" / "mine-2.jsonl")


def test_an_upload_goes_with_the_last_tab_that_shows_it_or_when_it_is_refused(tmp_path, services):
    def upload(folder, *rows):
        (tmp_path / "uploads" / folder).mkdir(parents=True)
        return str(tmp_path / "uploads" / folder / write(tmp_path / "uploads" / folder, *rows))

    def left_by(tab, path, **how):
        """Return the uploads that are there once a tab has opened a file, and whether it could."""
        view = list(open_file(Ask(path, **how), services, tab))[-1]
        return {folder.name for folder in (tmp_path / "uploads").iterdir()}, view.imported is not None

    first, second, bad = upload("a", *ROWS), upload("b", *ROWS[::-1]), {"prompt": "a", "completion": 7}
    assert left_by("one", first) == left_by("two", first) == ({"a", "b"}, True)
    assert left_by("one", first, tokenizer="words") == ({"a", "b"}, True)  # read again, in another way
    assert left_by("one", second) == ({"a", "b"}, True)  # the other tab still shows the first
    services.leave("two")
    mixed = upload("c", *ROWS, bad)
    assert left_by("one", mixed) == ({"c"}, False)  # bad rows can be passed by
    assert left_by("one", mixed, skip_bad_rows=True) == ({"c"}, True)
    assert left_by("one", upload("d")) == (set(), False)  # an empty one
    own = write(tmp_path, *ROWS)
    assert left_by("one", own) == (set(), True)
    services.leave("one")
    assert (tmp_path / own).exists()


def test_a_task_without_a_column_of_answers_is_warned_of(tmp_path):
    name = write(tmp_path, *[{"text": f"{n} + 1?", "gold": n + 1} for n in range(3)])
    unjudged = opened(tmp_path, name, columns={"prompt": "text", "answer": ""})[-1]
    assert (unjudged.note.level, len(unjudged.task.rewards)) == ("warning", 0)


@pytest.mark.parametrize(
    ("logged", "options"),
    [((0.7070, -0.7070), {"scale": True}), ((0.5, -0.5), {"scale": False})],  # of rewards 1 and 0
)
def test_a_log_opens_in_colour_under_the_scheme_that_made_its_own_advantages(tmp_path, worker, logged, options):
    rows = [
        {"step": 1, **row, "right": right, "n_tokens": 9, "advantage": advantage}
        for row, right, advantage in zip(ROWS, (1.0, 0.0), logged, strict=True)
    ]
    view = opened(tmp_path, write(tmp_path, *rows))[-1]
    assert (view.advantages.options, view.advantages.within < 1e-4) == (options, True)
    assert "(n_tokens)" in view.note.text
    assert shown(with_opened(draft_of(), view), worker) == pytest.approx(logged, abs=1e-4)


def test_a_log_with_outcome_rewards_alone_opens_under_outcome(tmp_path, worker):
    """``process`` reads step rewards, and gives none any advantage."""
    name = write(tmp_path, *[{**row, "reward": reward} for row, reward in zip(ROWS, (1.0, 0.0), strict=True)])
    draft = with_opened(draft_of(), opened(tmp_path, name)[-1])
    assert draft.credit["scheme"] == "outcome"
    assert [advantage > 0 for advantage in shown(draft, worker)] == [True, False]
    assert with_opened(draft, opened(tmp_path)[-1]).credit["scheme"] == "process"  # of a file with step rewards
    assert draft_of(builtin_row("step_correctness")).with_scheme_for_rewards().credit["scheme"] == "process"
    weighted = draft_of(builtin_row("given_reward")).but(credit={"scheme": "process", "outcome_weight": 1.0})
    assert weighted.with_scheme_for_rewards() is weighted


def test_answers_are_compared_with_the_files_right_ones_where_it_has_no_reward(tmp_path):
    name = write(tmp_path, *[{**row, "gold": r"\frac{1}{2}"} for row in (*ROWS, ROWS[0])])
    assert [reward.name for reward in find_rewards(opened(tmp_path, name)[-1].imported)] == ["math_equality"]
    unscored = opened(tmp_path, write(tmp_path, *ROWS, ROWS[0]))[-1]
    assert (find_rewards(unscored.imported), unscored.note.level) == ([], "warning")


def test_rewards_that_a_file_cannot_feed_are_switched_off(tmp_path, worker):
    """A file with ``reward``, one without anything, one of chain arithmetic, one after the other."""
    mine = own_row("def mine(prompt, step, **columns):\n    return float('4' in step)\n")
    draft = draft_of(builtin_row("step_correctness"), builtin_row("tag_format"), mine)
    chain = {"start": 2, "operations": [["+", 2]], "answer": "4"}
    for columns, rows in (
        ({"reward": 1.0}, [("given_reward", True)]),
        ({}, [("given_reward", False)]),
        (chain, [("step_correctness", True), ("answer_correctness", True)]),
        ({}, [("step_correctness", False), ("answer_correctness", False)]),
    ):
        name = write(tmp_path, *[columns | row for row in ROWS])
        draft = with_opened(draft, opened(tmp_path, name)[-1])
        assert "show" in json.loads(rescore(draft, worker).drawing)
        assert [(row.name, row.on) for row in draft.rows] == [*rows, ("mine", True)]


# ── checking rewards ─────────────────────────────────────────────────────────────────────────────────────────────


def test_the_pages_rewards_are_held_against_the_labels(tmp_path, services):
    first_groups = (GSM8K / "model-solutions-300.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)[:30]
    (tmp_path / "mine.jsonl").write_text("".join(first_groups), encoding="utf-8")
    opening = opened(tmp_path, "mine.jsonl")[-1]
    draft = with_opened(draft_of(), opening).with_pattern(r"\n+", "ends")
    views = list(check_rewards(opening.imported, draft, "0.5", services, "tab"))
    assert [view.running for view in views] == [True] * (len(views) - 1) + [False]  # it can be cancelled till its end
    found = views[-1].made
    assert list(found.rows) == [
        ("calculator_notes", "completions", "119", "1", "0.525", "35.3% from 0.5", "–"),
        ("gsm8k_answer", "completions", "120", "0", "1.000", "100.0% from 0.5", "–"),
    ]
    assert len(found.worst) == len(found.places) == 20
    group, rollout = found.places[0]
    row, text = found.worst[0], opening.imported.groups[group].rollouts[rollout].text
    assert (row[1], row[2]) == (str(group + 1), str(rollout + 1))
    assert row[6].startswith(text.split("\n")[0][:100])


# ── a file's own advantages ──────────────────────────────────────────────────────────────────────────────────────


def drawn(tmp_path, worker, advantages, **how):
    rows = [
        {"prompt": "2 + 2?", "completion": str(n), "reward": float(n == 4), "logged_advantage": advantage}
        for n, advantage in zip((4, 5), advantages, strict=True)
    ]
    draft = with_opened(draft_of(), opened(tmp_path, write(tmp_path, *rows))[-1])
    return json.loads(rescore(draft.but(**how), worker).drawing)["show"]


def said(payload):
    return " ".join(text for parts in payload["said"] for text, _ in parts)


def test_the_files_own_advantages_are_said_where_they_are_the_same_and_drawn_beside_others(tmp_path, worker):
    same = drawn(tmp_path, worker, (0.7070, -0.7070))  # 0.5 / (0.70711 + 1e-4), rounded
    assert ("within 1e-5" in said(same), "other" in same) == (True, False)
    payload = drawn(tmp_path, worker, (-0.5, 0.5))
    assert payload["other"]["names"] == ["outcome", "logged"]
    assert payload["rollouts"][0]["twin"]["advantages"][0] == -0.5
    assert "by up to 1.21: 100 %" in said(payload)
    # What somebody chose goes before.
    assert drawn(tmp_path, worker, (-0.5, 0.5), compare={"scheme": "process"})["other"]["scheme"] == "process"


# ── how a task's rows are read ───────────────────────────────────────────────────────────────────────────────────

COLUMNS = "prompt=q,answer=truth.value"


@pytest.fixture
def file(tmp_path):
    rows = [{"q": f"{n} + 1?", "truth": {"value": n + 1}, "level": n % 5} for n in range(20)]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    return str(tmp_path / "rows.json")


def test_a_file_of_other_columns_is_read_once_its_fields_say_how(file):
    first = draft_of()
    with pytest.raises(TaskError, match="'q', 'truth', 'level'"):
        read_as(first, file, with_values(draft_of(), {"task.split": "x"}))
    typed = with_values(first, {"task.columns": COLUMNS, "task.filter": "level >= 3"})
    draft = read_as(typed, file, first)
    assert (draft.task, draft.index, draft.text, draft.columns["answer"]) == (file, 0, "3 + 1?", "4")
    assert [row.name for row in draft.rows] == ["sums_hold", "answer_correctness"]  # the task's own
    shown = json.loads(preview(draft))
    assert shown["text"] == "7 prompts to train on, 1 held out; 12 left out by filter"
    assert shown["rows"][0] == [["prompt", "3 + 1?"], ["answer", "4"], ["other columns", "q, truth, level"]]
    config = draft.but(credit=credit_section("outcome")).config()
    assert (config.task.columns, config.task.filter) == ({"prompt": "q", "answer": "truth.value"}, "level >= 3")
    assert read_as(draft, file, draft) is None  # nothing was changed


def test_a_task_of_several_turns_brings_its_environment_and_its_policy_and_takes_them_away_again(file):
    first = draft_of()
    played = read_as(first, "calculator", first)
    assert (played.policy, played.kind, played.pattern().kind) == ("tiny-tools", "turns", "turns")
    assert played.environment().name == "calculator"
    assert played.config().environment == played.environment()  # Train starts what Inspect sampled
    back = read_as(played, "chain-arithmetic", played)
    assert (back.policy, back.environment()) == ("tiny", None)
    mine = with_values(played, {"policy.path": "my/model"})
    assert read_as(mine, "chain-arithmetic", mine).policy == "my/model"


def test_a_reload_and_notebook_code_have_the_reading(file, store, tmp_path):
    config = RunConfig.parse({"task": {"name": file, "columns": COLUMNS, "sample_seed": None}})
    draft = choose_example(PageState.of(config), 2)
    assert restore(json.dumps({"page": dump(draft, "")}), {}, store).draft.text == "2 + 1?"
    assert_given_back(draft, store, {})
    sampled = replace(first_group(), prompt=draft.prompt, columns=draft.columns)
    code = inspect_code(draft.but(group=sampled), tmp_path / "group.json")
    assert f"wb.load_task({file!r}, columns={{'prompt': 'q', 'answer': 'truth.value'}}, sample_seed=None)" in code


def test_a_file_outside_the_workspace_is_not_opened_by_its_name(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "link").symlink_to(tmp_path)
    assert find_file(" rows.jsonl ", workspace) == workspace.resolve() / "rows.jsonl"
    for typed in ("/etc/passwd", "../other.jsonl", "~root/x", "link/other.jsonl", "a\0b"):
        with pytest.raises(TaskError):
            find_file(typed, workspace)
