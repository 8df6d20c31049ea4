"""What other tools write of their rollouts, in rows as their code writes them."""

import json
from pathlib import Path
from typing import Any

import pytest

from workbench.cli import main
from workbench.data.formats import stepwise_rows
from workbench.data.read import Row
from workbench.data.rollouts import Builder, read_drafts, read_groups
from workbench.data.tokens import load_tokeniser
from workbench.errors import TaskError
from workbench.schema import Group

CASES = Path(__file__).parent / "data" / "cases"
USER = {"role": "user", "content": "1 + 1?"}


def read(*rows: dict[str, Any], tokenizer: str | None = None, **how: Any) -> tuple[list[Group], str, tuple[str, ...]]:
    """The rows' groups as ``read_groups`` makes them in its process, the format and the notes."""
    drafts, facts = read_drafts([Row(f"line {n}", row) for n, row in enumerate(rows, 1)], "rows.jsonl", **how)
    builder = Builder(load_tokeniser(tokenizer), facts, "rows.jsonl")
    groups = [builder.build(draft) for draft in drafts]
    return groups, facts.format, builder.facts().notes


def test_verls_dumps_are_groups_by_step() -> None:
    row = {"input": "1 + 1?", "output": "2", "gts": "2", "score": 1.0, "step": 5, "acc": True}
    groups, format, _ = read(row, {**row, "output": "3", "score": 0.0, "acc": False}, {**row, "step": 6})
    assert (format, [len(group) for group in groups]) == ("verl", [2, 1])
    assert groups[0].columns == {"answer": "2", "training_step": 5}
    assert [rollout.columns for rollout in groups[0].rollouts] == [
        {"reward": 1.0, "acc": True},
        {"reward": 0.0, "acc": False},
    ]


def test_verifiers_results_are_groups() -> None:
    row = {
        "example_id": 7,
        "prompt": [{**USER, "tool_calls": None}],
        "completion": [{"role": "assistant", "content": "2"}],
        "answer": "2",
        "reward": 1.0,
        "metrics": {"exact": 1.0},
        "is_completed": True,
        "is_truncated": False,
        "timing": {"total": 0.5},
    }
    failed = {**row, "completion": [], "reward": 0.0, "error": {"error": "TimeoutError"}}
    called = [
        {"role": "assistant", "content": None, "tool_calls": ['{"name": "add"}']},
        {"role": "tool", "content": [{"type": "text", "text": "2"}]},
        {"role": "assistant", "content": "It is 2"},
    ]
    [group], format, notes = read(row, {**row, "is_truncated": True}, {**row, "completion": called}, failed)
    assert (format, group.prompt) == ("verifiers", [USER])
    assert [rollout.finished for rollout in group.rollouts] == [True, False, True]
    assert group.columns["answer"] == "2"
    assert "timing" not in group.columns
    assert [rollout.is_episode for rollout in group.rollouts] == [False, False, True]
    assert group.rollouts[2].text == '<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>\n2\nIt is 2'
    assert "1 row without a completion left out: line 4" in notes


def test_prime_rls_token_exports_keep_ids_logprobs_and_the_mask() -> None:
    tokeniser = load_tokeniser("tiny")
    asked, answer = (tokeniser.tokens(text).ids for text in ("Start with 7, add 5.\n", "Step 1: 7 + 5 = 12\n"))
    ids = [*asked, *answer]
    first = len(asked)
    row = {
        "schema_version": 1,
        "step": 3,
        "env_name": "sums",
        "token_ids": ids,
        "position_ids": list(range(len(ids))),
        "loss_mask": [False] * first + [True] * (len(answer) - 1) + [False],
        "advantages": [0.0] * first + [0.5] * len(answer),
        "inference_logprobs": [0.0] * first + [-0.25] * len(answer),
        "entropy": [1.0] * len(ids),
    }
    groups, format, _ = read(row, {**row, "advantages": [0.0] * first + [-0.5] * len(answer)}, tokenizer="tiny")
    assert (format, len(groups), len(groups[0])) == ("prime-rl", 1, 2)
    [group] = groups
    assert group.prompt == "Start with 7, add 5.\n"
    rollout = group.rollouts[0]
    assert (rollout.token_ids, rollout.text) == (tuple(answer), "Step 1: 7 + 5 = 12\n")
    assert rollout.logprobs == (-0.25,) * len(answer)
    assert rollout.mask == (1,) * (len(answer) - 1) + (0,)
    assert [rollout.columns["logged_advantage"] for rollout in group.rollouts] == [0.5, -0.5]


def test_ms_swifts_log_has_a_table_in_a_line() -> None:
    row = {
        "step": ["3"] * 4,
        "prompt": ["1 + 1?", "1 + 1?", "2 + 2?", "2 + 2?"],
        "completion": ["2", "3", "4", "5"],
        "Accuracy": [1.0, 0.0, 1.0, 0.0],
        "Format": [None, 0.5, 0.5, 0.5],
        "advantages": [0.7, -0.7, 0.7, -0.7],
        "entropy": [0.1, 0.2, 0.3, 0.4],
    }
    groups, format, notes = read(row)
    assert (format, [len(group) for group in groups]) == ("ms-swift", [2, 2])
    assert [rollout.columns["reward"] for group in groups for rollout in group.rollouts] == [1.0, 0.5, 1.5, 0.5]
    assert groups[0].rollouts[1].columns["logged_advantage"] == -0.7
    assert notes[0].startswith("reward is the sum of Accuracy, Format, which")
    with pytest.raises(TaskError, match="'Format' must be a list of 4 values"):
        read({**row, "Format": [0.5]})


def test_nemo_rls_ids_under_the_mask_are_the_completion_without_padding() -> None:
    row = {
        "content": ["1 + 1?", "2"],
        "rewards": 1.0,
        "input_lengths": 5,
        "token_ids": [1, 2, 3, 4, 5, 0, 0],
        "token_loss_mask": [0, 0, 0, 1, 1, 0, 0],
        "advantages": [0, 0, 0, 0.5, -0.5, 0, 0],
        "generation_logprobs": [0, 0, 0, -0.1, -0.2, 0, 0],
    }
    [group], format, _ = read(row, {**row, "rewards": 0.0}, tokenizer="tiny")
    assert (format, group.prompt, len(group)) == ("nemo-rl", "1 + 1?", 2)
    [rollout, _] = group.rollouts
    assert (rollout.token_ids, rollout.logprobs, rollout.mask) == ((4, 5), (-0.1, -0.2), None)
    assert rollout.columns == {"reward": 1.0, "logged_advantage": [0.5, -0.5]}
    with pytest.raises(TaskError, match="'token_loss_mask' leaves no prompt"):
        read({**row, "token_loss_mask": [1] * 7}, tokenizer="tiny")


def test_miles_samples_end_with_their_completion() -> None:
    row = {
        "group_index": 0,
        "prompt": "1 + 1?",
        "tokens": [5, 6, 7, 8],
        "response": "2",
        "response_length": 2,
        "label": "2",
        "reward": 1.0,
        "loss_mask": [1, 1],
        "rollout_log_probs": [-0.1, -0.2],
        "status": "truncated",
    }
    [group], format, _ = read(row, {**row, "reward": 0.0}, tokenizer="tiny")
    assert (format, group.prompt, group.columns) == ("miles", "1 + 1?", {"answer": "2"})
    [rollout, _] = group.rollouts
    assert (rollout.token_ids, rollout.logprobs, rollout.finished) == ((7, 8), (-0.1, -0.2), False)
    with pytest.raises(TaskError, match="'response_length' is 9"):
        read({**row, "response_length": 9})


def test_lm_evals_samples_are_groups_of_each_filter() -> None:
    row = {
        "doc_id": 4,
        "doc": {"question": "1 + 1?"},
        "target": "2",
        "arguments": {"gen_args_0": {"arg_0": "Q: 1 + 1?\nA:", "arg_1": {"until": ["Q:"]}}},
        "resps": [["2"]],
        "filtered_resps": ["2"],
        "filter": "strict-match",
        "metrics": ["exact_match"],
        "exact_match": 1.0,
    }
    older = {**row, "arguments": [["Q: 1 + 1?\nA:", {"until": ["Q:"]}]], "resps": [["2", "3"]], "filter": "flexible"}
    groups, format, _ = read(row, older)
    assert (format, [len(group) for group in groups], groups[0].prompt) == ("lm-eval", [1, 2], "Q: 1 + 1?\nA:")
    assert groups[0].rollouts[0].columns["correct"] is True
    assert "correct" not in groups[1].rollouts[0].columns | groups[1].columns  # which of the two it is of is not said
    with pytest.raises(TaskError, match="this task of lm-eval compares choices and generates no text"):
        read({**row, "resps": [[["-1.5", "False"]]]})


COOK = "A cook fills 3 pots with 4 litres each. How many litres?"
CALL = '<tool_call>\n{"name": "mul", "arguments": {"a": 3, "b": 4}}\n</tool_call>'


@pytest.mark.parametrize(
    ("name", "format", "prompt", "turns", "logged", "rewards"),
    [
        (
            "nemo-gym-rollouts",
            "nemo-gym",
            [{"role": "system", "content": "Use the tool."}, {"role": "user", "content": COOK}],
            [f"<think>\nthree fours\n</think>\n\n{CALL}", "\n12\n", "Answer: 12"],
            [None, None],
            [1.0, 0.0],
        ),
        (
            "agent-r1-dump",
            "agent-r1",
            f"user\n{COOK}\nassistant\n",
            ["<tool_call>mul 3*4</tool_call>", "\nuser\n12\nassistant\n", "The answer is 12."],
            [None, None],
            [1.1, 0.0],
        ),
        (
            "torchtitan-rollouts",
            "torchtitan",
            [{"role": "user", "content": COOK}],
            [CALL, "\n12\n", "Answer: 12"],
            [0.5, -0.5],
            [1.0, 0.0],
        ),
        (
            "art-trajectories",
            "art",
            [{"role": "user", "content": COOK}],
            [CALL, "\n12\n", "Answer: 12"],
            [None, None],
            [1.0, 0.0],
        ),
    ],
)
def test_logs_of_turns_are_groups_with_every_turn(
    name: str, format: str, prompt: Any, turns: list[str], logged: list[Any], rewards: list[float]
) -> None:
    found = read_groups(CASES / f"{name}.jsonl")
    [group] = found.groups
    first, second = group.rollouts
    assert (found.facts.format, group.prompt) == (format, prompt)
    assert ["".join(first.texts[turn.start : turn.end]) for turn in first.turns] == turns
    assert [turn.role for turn in first.turns] == ["assistant", "tool", "assistant"]
    assert [rollout.columns["reward"] for rollout in group.rollouts] == rewards
    assert [rollout.columns.get("logged_advantage") for rollout in group.rollouts] == logged
    assert (first.finished, second.finished) == (True, format != "art")  # whose second one the length cut off
    assert second.text.endswith("7." if format == "agent-r1" else "7")
    assert not any("list of objects" in note for note in found.facts.notes)


def test_a_column_of_turns_that_no_reader_takes_is_noted() -> None:
    steps = [{"said": "I think of it", "score": 1}]
    row = {"prompt": "1 + 1?", "completion": "2", "steps": steps, "tools": [{"description": "two words"}]}
    _, _, notes = read(row, {**row, "steps": [{"n": 1}]}, {**row, "steps": [{"inner": steps}]})
    assert [note for note in notes if "objects" in note] == [
        "2 completions with a list of objects in 'steps', whose text is not shown"
    ]


def test_a_reader_claims_a_row_only_if_its_answer_is_there() -> None:
    with pytest.raises(TaskError, match="no known format"):
        read({"input": "1 + 1?", "output": [{"n": 1}], "score": 1.0})
    moved = {"input": "p", "output": "b", "score": 1.0, "steps": [{"input": "p", "output": "a"}] * 2}
    with pytest.raises(TaskError, match="does not go on from the step before"):
        read(moved)


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [USER, {"role": "assistant", "content": "2"}]},
        {"conversations": [{"from": "human", "value": "1 + 1?"}, {"from": "gpt", "value": "2"}]},
    ],
)
def test_conversations_end_with_their_completion(row: dict[str, Any]) -> None:
    [group], format, _ = read({**row, "reward": 1}, {**row, "reward": 0})
    assert (format, group.prompt, [rollout.text for rollout in group.rollouts]) == ("messages", [USER], ["2", "2"])
    with pytest.raises(TaskError, match="line 1: the last of the messages must be the assistant's"):
        read({"messages": [USER]})


def test_rlhflows_turns_are_labelled_steps_to_look_at_and_to_train_on() -> None:
    turns = ["How many? Step 1: 1 + 1 = 2", "+", "Step 2: 2 + 1 = 4", "-"]
    roles = ("user", "assistant") * 2
    row = {"conversations": [{"role": role, "content": text} for role, text in zip(roles, turns, strict=True)]}
    [group], format, _ = read(row)
    assert (format, group.prompt) == ("rlhflow", "How many?")
    assert group.rollouts[0].columns["labels"] == [1.0, 0.0]
    assert stepwise_rows("line 1", row) == [
        {"prompt": "How many?", "completions": ["Step 1: 1 + 1 = 2", "Step 2: 2 + 1 = 4"], "labels": [1.0, 0.0]}
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"input": 3, "output": "2", "score": 1.0}, "line 1: 'input' is of type int"),
        ({"input": "a", "output": None, "score": 1.0}, "line 1: 'output' is missing"),
        ({"input": "a", "output": "b", "score": "good"}, "line 1: 'score' .*'good'"),
        (
            {"example_id": 0, "prompt": "a", "completion": [USER], "reward": 0},
            "line 1: 'completion' has no message of the assistant",
        ),
        ({"example_id": 0, "prompt": None, "completion": None, "reward": 0}, "1 row and no completion in any"),
        ({"token_ids": [1, 2], "loss_mask": [1, 0], "inference_logprobs": [0, 0]}, "'loss_mask'"),
        (
            {"token_ids": [1, 2], "loss_mask": [True, True], "inference_logprobs": [0, 0]},
            "'loss_mask' leaves no prompt",
        ),
        (
            {"token_ids": [1, 2], "loss_mask": [False, True], "inference_logprobs": [0]},
            "'inference_logprobs' has 1 values for 2",
        ),
    ],
)
def test_rows_that_do_not_fit_are_named(row: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        read(row)


# ── columns by other names ───────────────────────────────────────────────────────────────────────────────────────


def test_columns_by_other_names_are_mapped() -> None:
    row = {"meta": {"q": "1 + 1?"}, "texts": ["2"], "points": 3}
    columns = {"prompt": "meta.q", "completion": "texts.0", "reward": "points"}
    [group], format, _ = read(row, {**row, "texts": ["3"], "points": 0}, columns=columns)
    assert (format, group.prompt, [rollout.columns["reward"] for rollout in group.rollouts]) == (
        "plain",
        "1 + 1?",
        [3, 0],
    )
    # Only a reward is mapped: the format is still found by the row.
    [group], format, _ = read({"input": "a", "output": "b", "points": 2}, columns={"reward": "points"})
    assert (format, {**group.columns, **group.rollouts[0].columns}["reward"]) == ("openrlhf", 2)
    with pytest.raises(TaskError, match=r"columns: rows.jsonl line 1 has no 'meta.p'; did you mean 'meta.q'\?"):
        read(row, columns={"prompt": "meta.p", "completion": "texts.0"})


def test_the_shell_maps_columns_of_a_csv_file_and_reads_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "all.csv").write_text("question,reply,points\n1 + 1?,2,1\n1 + 1?,3,0.5\n")
    how = ["--map", "prompt=question,completion=reply,reward=points"]
    assert main(["rollouts", str(tmp_path / "all.csv"), *how, "--show", "0"]) == 0
    group = Group.from_json(json.loads(capsys.readouterr().out))
    assert [rollout.columns["reward"] for rollout in group.rollouts] == [1, 0.5]
    assert main(["rollouts", str(tmp_path / "all.csv"), "--map", "question"]) == 2
    assert "--map: write name=value" in capsys.readouterr().err
    for step in (2, 10):
        row = {"input": "1 + 1?", "output": "2", "gts": "2", "score": 1.0, "step": step}
        (tmp_path / "dumps").mkdir(exist_ok=True)
        (tmp_path / "dumps" / f"{step}.jsonl").write_text(json.dumps(row) + "\n")
    groups = read_groups(tmp_path / "dumps").groups
    assert [group.columns["training_step"] for group in groups] == [2, 10]


def test_the_shell_shows_a_tasks_rows_as_a_run_would_take_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"q": f"{n} + 1?", "truth": {"value": n + 1}} for n in range(20)]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    how = [str(tmp_path / "rows.json"), "--map", "prompt=q,answer=truth.value", "--task.filter", "truth.value > 10"]
    assert main(["task", *how, "--json", "--limit", "1"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["training_rows"], shown["held_out_rows"], shown["skipped"]) == (9, 1, {"filter": 10})
    [row] = shown["rows"]
    assert (row["prompt"], row["answer"], set(row["columns"])) == ("10 + 1?", "11", {"q", "truth"})
    assert main(["task", *how]) == 0
    assert "9 prompts to train on, 1 held out; 10 left out by filter" in capsys.readouterr().out
