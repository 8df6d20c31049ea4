"""Rollouts of other tools, as their code writes them, and their episodes: from ids, or by a chat template."""

import json
import re
from itertools import accumulate
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.imported import CASES, episodes_of, put, read, stretches, tokenizer_with
from workbench.cli import main
from workbench.data.formats import recognise
from workbench.data.rollouts import REWRITTEN, read_groups
from workbench.data.tokens import load_tokeniser
from workbench.errors import TaskError
from workbench.schema import Group

USER = {"role": "user", "content": "1 + 1?"}


VERL = {"input": "1 + 1?", "output": "2", "gts": "2", "score": 1.0, "step": 5, "acc": True}
SWIFT = {
    "step": ["3"] * 4,
    "prompt": ["1 + 1?", "1 + 1?", "2 + 2?", "2 + 2?"],
    "completion": ["2", "3", "4", "5"],
    "Accuracy": [1.0, 0.0, 1.0, 0.0],
    "Format": [None, 0.5, 0.5, 0.5],
    "advantages": [0.7, -0.7, 0.7, -0.7],
    "entropy": [0.1, 0.2, 0.1, 0.2],
}
FIRST = {"logged_entropy": 0.1, "logged_advantage": 0.7}
SECOND = {"logged_entropy": 0.2, "logged_advantage": -0.7}
LM_EVAL = {
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
OF_LM_EVAL = {"answer": "2", "doc": {"question": "1 + 1?"}}
OLDER = {"arguments": [["Q: 1 + 1?\nA:", {"until": ["Q:"]}]], "resps": [["2", "3"]], "filter": "flexible"}
NEMO_RL = {
    "content": ["1 + 1?", "2"],
    "rewards": 1.0,
    "input_lengths": 5,
    "token_ids": [1, 2, 3, 4, 5, 0, 0],
    "token_loss_mask": [0, 0, 0, 1, 1, 0, 0],
    "advantages": [0, 0, 0, 0.5, -0.5, 0, 0],
    "generation_logprobs": [0, 0, 0, -0.1, -0.2, 0, 0],
}
MILES = {
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
PRIME_RL = {
    "schema_version": 1,
    "step": 3,
    "env_name": "sums",
    "token_ids": [5, 6, 7, 8, 9],
    "position_ids": [0, 1, 2, 3, 4],
    "loss_mask": [False, False, True, True, False],
    "advantages": [0.0, 0.0, 0.5, 0.5, 0.5],
    "inference_logprobs": [0.0, 0.0, -0.25, -0.5, -0.75],
    "entropy": [1.0] * 5,
}


@pytest.mark.parametrize(
    ("format", "rows", "prompts", "groups", "tokens"),
    [
        (
            "verl",
            [VERL, {**VERL, "output": "3", "score": 0.0, "acc": False}, {**VERL, "step": 6}],
            ["1 + 1?", "1 + 1?"],
            [
                ({"answer": "2", "training_step": 5}, [{"reward": 1.0, "acc": True}, {"reward": 0.0, "acc": False}]),
                ({"answer": "2", "training_step": 6, "acc": True}, [{"reward": 1.0}]),
            ],
            None,
        ),
        (
            "ms-swift",
            [SWIFT],
            ["1 + 1?", "2 + 2?"],
            [
                (
                    {"training_step": "3"},
                    [
                        {
                            "Accuracy": 1.0,
                            "Format": None,
                            "logged_entropy": 0.1,
                            "logged_advantage": 0.7,
                            "reward": 1.0,
                        },
                        {
                            "Accuracy": 0.0,
                            "Format": 0.5,
                            "logged_entropy": 0.2,
                            "logged_advantage": -0.7,
                            "reward": 0.5,
                        },
                    ],
                ),
                (
                    {"training_step": "3", "Format": 0.5},
                    [
                        FIRST | {"Accuracy": 1.0, "reward": 1.5},
                        SECOND | {"Accuracy": 0.0, "reward": 0.5},
                    ],
                ),
            ],
            None,
        ),
        (  # which of the two answers of the older row is right is not said
            "lm-eval",
            [LM_EVAL, LM_EVAL | OLDER],
            ["Q: 1 + 1?\nA:"] * 2,
            [
                (OF_LM_EVAL | {"filter": "strict-match", "exact_match": 1.0}, [{"correct": True}]),
                (OF_LM_EVAL | {"filter": "flexible"}, [{}, {}]),
            ],
            None,
        ),
        (
            "nemo-rl",
            [NEMO_RL, {**NEMO_RL, "rewards": 0.0}],
            ["1 + 1?"],
            [({}, [{"reward": reward, "logged_advantage": [0.5, -0.5]} for reward in (1.0, 0.0)])],
            ((4, 5), (-0.1, -0.2), None),
        ),
        (
            "miles",
            [MILES, {**MILES, "reward": 0.0}],
            ["1 + 1?"],
            [({"answer": "2"}, [{"reward": 1.0}, {"reward": 0.0}])],
            ((7, 8), (-0.1, -0.2), None),
        ),
        (
            "prime-rl",
            [PRIME_RL, {**PRIME_RL, "advantages": [0.0, 0.0, -0.5, -0.5, 0.5]}],
            [load_tokeniser("tiny").decode([5, 6])],
            [({"training_step": 3, "env_name": "sums"}, [{"logged_advantage": 0.5}, {"logged_advantage": -0.5}])],
            ((7, 8, 9), (-0.25, -0.5, -0.75), (1, 1, 0)),
        ),
    ],
)
def test_a_log_is_groups_with_what_it_says_of_each_completion(
    format: str, rows: list[dict[str, Any]], prompts: list[str], groups: list[Any], tokens: Any
) -> None:
    read_as, named, _ = read(*rows, tokenizer=tokens and "tiny")
    assert (named, [group.prompt for group in read_as]) == (format, prompts)
    assert [(group.columns, [rollout.columns for rollout in group.rollouts]) for group in read_as] == groups
    rollout = read_as[0].rollouts[0]
    assert tokens in (None, (rollout.token_ids, rollout.logprobs, rollout.mask))
    assert rollout.finished == (format not in ("miles", "nemo-rl", "prime-rl"))  # of ids alone the last one tells


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
    assert (format, group.prompt, group.columns["answer"]) == ("verifiers", [USER], "2")
    assert "timing" not in group.columns
    assert [(one.finished, one.is_episode) for one in group.rollouts] == [(True, False), (False, False), (True, True)]
    assert group.rollouts[2].text == '<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>\n2\nIt is 2'
    assert "line 4" in notes


COOK = "A cook fills 3 pots with 4 litres each. How many litres?"
TIMES = '<tool_call>\n{"name": "mul", "arguments": {"a": 3, "b": 4}}\n</tool_call>'


@pytest.mark.parametrize(
    ("name", "format", "prompt", "turns", "logged", "rewards"),
    [
        (
            "nemo-gym-rollouts",
            "nemo-gym",
            [{"role": "system", "content": "Use the tool."}, {"role": "user", "content": COOK}],
            [f"<think>\nthree fours\n</think>\n\n{TIMES}", "\n12\n", "Answer: 12"],
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
            [TIMES, "\n12\n", "Answer: 12"],
            [0.5, -0.5],
            [1.0, 0.0],
        ),
        (
            "art-trajectories",
            "art",
            [{"role": "user", "content": COOK}],
            [TIMES, "\n12\n", "Answer: 12"],
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


def test_a_column_of_turns_that_no_reader_takes_is_noted() -> None:
    steps = [{"said": "I think of it", "score": 1}]
    row = {"prompt": "1 + 1?", "completion": "2", "steps": steps, "tools": [{"description": "two words"}]}
    _, _, notes = read(row, {**row, "steps": [{"n": 1}]}, {**row, "steps": [{"inner": steps}]})
    assert [note for note in notes.splitlines() if "objects" in note] == [
        "2 completions with a list of objects in 'steps', whose text is not shown"
    ]


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


def test_rlhflows_turns_are_labelled_steps_to_look_at_and_to_train_on() -> None:
    turns = ["How many? Step 1: 1 + 1 = 2", "+", "Step 2: 2 + 1 = 4", "-"]
    roles = ("user", "assistant") * 2
    row = {"conversations": [{"role": role, "content": text} for role, text in zip(roles, turns, strict=True)]}
    [group], format, _ = read(row)
    assert (format, group.prompt) == ("rlhflow", "How many?")
    assert group.rollouts[0].columns["labels"] == [1.0, 0.0]
    assert recognise(row).task_rows("line 1", row) == [
        {"prompt": "How many?", "completions": ["Step 1: 1 + 1 = 2", "Step 2: 2 + 1 = 4"], "labels": [1.0, 0.0]}
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"input": "1 + 1?", "output": [{"n": 1}], "score": 1.0}, "no known format"),
        (
            {"input": "p", "output": "b", "score": 1.0, "steps": [{"input": "p", "output": "a"}] * 2},
            "step before",
        ),
        ({"messages": [USER]}, "line 1"),
        ({**SWIFT, "Format": [0.5]}, "line 1"),
        ({**SWIFT, "Format": "four"}, "'Format'"),
        ({**NEMO_RL, "token_loss_mask": [1] * 7}, "'token_loss_mask'"),
        ({**MILES, "response_length": 9}, "'response_length'"),
        ({**LM_EVAL, "resps": [[["-1.5", "False"]]]}, "choices"),
        ({"input": 3, "output": "2", "score": 1.0}, "line 1: 'input'"),
        ({"input": "a", "output": None, "score": 1.0}, "line 1: 'output'"),
        ({"input": "a", "output": "b", "score": "good"}, "line 1: 'score' .*'good'"),
        (
            {"example_id": 0, "prompt": "a", "completion": [USER], "reward": 0},
            "line 1: 'completion'",
        ),
        ({"example_id": 0, "prompt": None, "completion": None, "reward": 0}, "1 row"),
        ({"token_ids": [1, 2], "loss_mask": [1, 0], "inference_logprobs": [0, 0]}, "'loss_mask'"),
        ({"token_ids": [1, 2], "loss_mask": [True, True], "inference_logprobs": [0, 0]}, "'loss_mask' .*prompt"),
        (
            {"token_ids": [1, 2], "loss_mask": [False, True], "inference_logprobs": [0]},
            "'inference_logprobs'",
        ),
    ],
)
def test_rows_that_do_not_fit_are_named(row: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        read(row, tokenizer="tiny")


# ── columns by other names ───────────────────────────────────────────────────────────────────────────────────────


def test_columns_by_other_names_are_mapped() -> None:
    row = {"meta": {"q": "1 + 1?"}, "texts": ["2"], "points": 3}
    columns = {"prompt": "meta.q", "completion": "texts.0", "reward": "points"}
    [group], format, _ = read(row, {**row, "texts": ["3"], "points": 0}, columns=columns)
    assert (format, group.prompt) == ("plain", "1 + 1?")
    assert [rollout.columns["reward"] for rollout in group.rollouts] == [3, 0]
    # Only a reward is mapped: the format is still found by the row.
    [group], format, _ = read({"input": "a", "output": "b", "points": 2}, columns={"reward": "points"})
    assert (format, {**group.columns, **group.rollouts[0].columns}["reward"]) == ("openrlhf", 2)
    with pytest.raises(TaskError, match=r"'meta\.p'.*'meta\.q'"):
        read(row, columns={"prompt": "meta.p", "completion": "texts.0"})


def test_the_shell_maps_columns_of_a_csv_file_and_reads_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "all.csv").write_text("question,reply,points\n1 + 1?,2,1\n1 + 1?,3,0.5\n")
    how = ["--map", "prompt=question,completion=reply,reward=points"]
    assert main(["rollouts", str(tmp_path / "all.csv"), *how, "--show", "0"]) == 0
    group = Group.from_json(json.loads(capsys.readouterr().out))
    assert [rollout.columns["reward"] for rollout in group.rollouts] == [1, 0.5]
    for step in (2, 10):
        put(tmp_path / "dumps" / f"{step}.jsonl", {**VERL, "step": step})
    assert [group.columns["training_step"] for group in read_groups(tmp_path / "dumps").groups] == [2, 10]


def test_the_shell_shows_a_tasks_rows_as_a_run_would_take_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = put(tmp_path / "rows.jsonl", *({"q": f"{n} + 1?", "truth": {"value": n + 1}} for n in range(20)))
    how = [str(file), "--map", "prompt=q,answer=truth.value", "--task.filter", "truth.value > 10"]
    assert main(["task", *how, "--json", "--limit", "1"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["training_rows"], shown["held_out_rows"], shown["skipped"]) == (9, 1, {"filter": 10})
    [row] = shown["rows"]
    assert (row["prompt"], row["answer"], set(row["columns"])) == ("10 + 1?", "11", {"q", "truth"})


# ── episodes: turns, observations and masks ──────────────────────────────────────────────────────────────────────────


SUM = {"role": "user", "content": "2 + 3?"}
CALL = {"function": {"name": "add", "arguments": '{"a": 2, "b": 3}'}}


def add(a: int, b: int) -> str:
    return f'<tool_call>\n{{"name": "add", "arguments": {{"a": {a}, "b": {b}}}}}\n</tool_call>'


def test_openais_messages_with_tool_calls_are_episodes_by_the_chat_template():
    [group], format, notes = read(*episodes_of("openai"), tokenizer=tokenizer_with("qwen3_training.jinja"))
    assert (format, [message["role"] for message in group.prompt]) == ("messages", ["system", "user"])
    think, start = "<think>\n\n</think>\n\n", "<|im_start|>assistant\n"
    assert stretches(group.rollouts[0]) == [
        ("environment", think),  # the template adds it
        ("assistant", f"{add(2, 3)}\n{add(4, 5)}<|im_end|>"),
        (
            "tool",
            "\n<|im_start|>user\n<tool_response>\n5\n</tool_response>\n<tool_response>\n9\n</tool_response><|im_end|>\n"
            + start
            + think,
        ),
        ("assistant", "5 and 9.<|im_end|>"),
    ]
    assert [role for role, _ in stretches(group.rollouts[1])] == [
        "environment",
        *["assistant", "tool"] * 2,
        "assistant",
    ]
    assert [rollout.columns["reward"] for rollout in group.rollouts] == [1.0, 0.5]
    assert REWRITTEN not in notes


def test_the_mask_is_the_one_that_transformers_makes_of_a_template_with_marks():
    """Of one rendering of the whole, but for what no policy samples: the line's end behind an end-of-sequence token,
    and an empty thought."""
    tokenizer = tokenizer_with("qwen3_training.jinja")
    for row in episodes_of("openai"):
        [group], _, _ = read(row, tokenizer=tokenizer)
        messages = json.loads(json.dumps(row["messages"]))
        for message in messages:
            message["content"] = message["content"] or ""
            for call in message.get("tool_calls", ()):
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        whole = tokenizer.apply_chat_template(
            messages, tools=row["tools"], return_dict=True, return_assistant_tokens_mask=True
        )
        rollout, first = group.rollouts[0], whole["assistant_masks"].index(1)
        end = first + len(rollout)
        assert list(rollout.token_ids) == whole["input_ids"][first:end]
        ended = [0, *(int(token == tokenizer.eos_token_id) for token in rollout.token_ids[:-1])]
        thoughts = [match.span() for match in re.finditer(r"<think>\s*</think>\s*", "".join(rollout.texts))]
        assert len(thoughts) == len(rollout.turn_spans)
        places = list(accumulate(map(len, rollout.texts), initial=0))[:-1]
        added = [any(a <= place < b for a, b in thoughts) for place in places]
        marked = whole["assistant_masks"][first:end]
        assert list(rollout.mask) == [
            int(mark and not out and not thought) for mark, out, thought in zip(marked, ended, added, strict=True)
        ]


def test_a_template_that_writes_earlier_turns_anew_is_pointed_out_and_each_turn_stands_as_it_was_written():
    """Qwen3's leaves an empty thought out of every turn but the last, and all thoughts once a user speaks again."""
    tokenizer = tokenizer_with("qwen3.jinja")
    [group], _, notes = read(*episodes_of("openai"), tokenizer=tokenizer)
    assert f"2 episodes {REWRITTEN}" in notes
    assert stretches(group.rollouts[0])[:2] == [
        ("environment", "<think>\n\n</think>\n\n"),
        ("assistant", f"{add(2, 3)}\n{add(4, 5)}<|im_end|>"),
    ]
    said = [
        {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm <|im_end|> hm", "tool_calls": [CALL]},
        {"role": "tool", "content": "5"},
        {"role": "user", "content": "Sure? Yes.<|im_end|>"},
        {"role": "assistant", "content": "It is 5."},
    ]
    [group], _, notes = read({"prompt": "2 + 3?", "completion": said}, tokenizer=tokenizer)
    assert f"1 episode {REWRITTEN}" in notes
    assert group.prompt == "2 + 3?"
    assert stretches(group.rollouts[0])[:2] == [
        ("assistant", f"<think>\nHm <|im_end|> hm\n</think>\n\nYes.\n{add(2, 3)}<|im_end|>"),
        (
            "tool",
            "\n<|im_start|>user\n<tool_response>\n5\n</tool_response><|im_end|>\n<|im_start|>user\nSure? Yes.<|im_end|>"
            "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
        ),
    ]


@pytest.mark.parametrize(
    ("call", "written"),
    [
        ({"function": {"name": "add", "arguments": '{"a": 2, "b'}}, r'{"name": "add", "arguments": "{\"a\": 2, \"b"}'),
        ({"function": {"name": "add", "arguments": [2, 3]}}, '{"name": "add", "arguments": "[2, 3]"}'),
        ({"id": "a"}, r'{"name": "", "arguments": "{\"id\": \"a\"}"}'),
        ('{"name": "add", "argu', r'{"name": "", "arguments": "{\"name\": \"add\", \"argu"}'),
    ],
)
def test_an_episode_with_a_malformed_call_stands_as_plain_text_and_is_counted(call: Any, written: str):
    def asks(call: Any) -> dict[str, Any]:
        said = [{"role": "assistant", "content": "Hm.", "tool_calls": [call]}, {"role": "tool", "content": "5"}]
        return {"messages": [SUM, *said, {"role": "assistant", "content": "It is 5."}]}

    [group], _, notes = read(asks(call), asks(CALL), tokenizer=tokenizer_with("qwen3_training.jinja"))
    malformed, whole = group.rollouts
    assert stretches(malformed) == [
        ("assistant", f"Hm.\n<tool_call>\n{written}\n</tool_call>"),
        ("tool", "\n5\n"),
        ("assistant", "It is 5.<|im_end|>"),
    ]
    assert stretches(whole)[1] == ("assistant", f"Hm.\n{add(2, 3)}<|im_end|>")
    assert "1 episode with a malformed tool call" in notes


@pytest.mark.parametrize("arguments", ["", None, "null", {}, "{}"])
def test_a_call_without_arguments_is_well_formed(arguments: Any):
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "now", "arguments": arguments}}]}
    [group], _, _ = read({"messages": [SUM, call, TOOL, ANSWER]}, tokenizer=tokenizer_with("qwen3_training.jinja"))
    wanted = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call><|im_end|>'
    assert stretches(group.rollouts[0])[1] == ("assistant", wanted)


def test_verifiers_results_are_episodes_and_one_that_was_cut_off_ends_with_what_was_observed():
    [group], format, _ = read(*episodes_of("verifiers-results"))
    assert (format, len(group), group.columns["answer"]) == ("verifiers", 2, "5 and 9")
    whole, cut = group.rollouts
    assert stretches(whole) == [
        ("assistant", f"{add(2, 3)}\n{add(4, 5)}"),
        ("tool", "\n5\n9\n"),
        ("assistant", "5 and 9."),
    ]
    assert [role for role, _ in stretches(cut)] == ["assistant", "tool", "assistant", "tool"]
    assert (whole.finished, cut.truncated, cut.observations) == (True, True, ["\n5\n", "\n10\n"])


def test_traces_of_verifiers_and_prime_rl_keep_ids_logprobs_and_who_wrote_what():
    [group], format, _ = read(*episodes_of("verifiers-traces"), tokenizer="tiny")
    assert (format, group.prompt) == ("traces", [{"role": "user", "content": "Start with 2, add 3.\n"}])
    first = group.rollouts[0]
    assert stretches(first) == [
        ("assistant", "call: 2+3\n"),
        ("tool", "= 5\nStep 2: "),
        ("assistant", "Answer: 5<|end|>"),
    ]
    assert set(zip(first.logprobs, first.mask, strict=True)) == {(-0.5, 1), (0.0, 0), (-0.125, 1)}
    assert [rollout.columns["reward"] for rollout in group.rollouts] == [2.25, 0.25]  # 2 x 1 + 1/4, and 1/4
    assert group.columns["answer"] == "5"
    [trace] = episodes_of("verifiers-traces")[0]["traces"]
    del trace["nodes"][3]["token_ids"]  # an API's: the messages count
    [alone], _, _ = read(trace)
    assert [role for role, _ in stretches(alone.rollouts[0])] == ["assistant", "tool", "assistant"]


def test_prime_rls_token_exports_of_several_turns_have_their_mask():
    [group], format, _ = read(*episodes_of("prime-rl-tokens"), tokenizer="tiny")
    [rollout] = group.rollouts
    assert (format, group.prompt) == ("prime-rl", "Start with 2, add 3.\n")
    assert rollout.observations == ["= 5\n", None]
    assert len(rollout.turn_spans) == 2


def test_verls_outputs_are_parted_at_the_tools_answers():
    [group], format, notes = read(*episodes_of("verl"))
    first, second = group.rollouts
    assert (format, second.mask, second.turns) == ("verl", None, ())
    assert stretches(first) == [
        ("assistant", add(2, 3)),
        ("tool", "\nuser\n<tool_response>\n5\n</tool_response>\nassistant\n"),
        ("assistant", "It is 5."),
    ]
    assert "<tool_response>" in notes


def test_trls_log_of_its_tool_loop_is_episodes(tmp_path):
    """As parquet has it, where every call has the arguments of all, those that it lacks being null."""
    pd.DataFrame(episodes_of("trl")).to_parquet(tmp_path / "completions_00002.parquet")
    imported = read_groups(tmp_path / "completions_00002.parquet")
    [group] = imported.groups
    assert (imported.facts.format, group.columns["training_step"]) == ("trl", 2)
    assert stretches(group.rollouts[0]) == [("assistant", add(2, 3)), ("tool", "\n5\n"), ("assistant", "5")]
    assert (group.rollouts[1].text, group.rollouts[1].mask) == ("I cannot.", None)


TRACE = {"task": {"data": {}}, "nodes": [{"message": SUM}, {"parent": 0, "message": SUM, "sampled": True}]}
ANSWER = {"role": "assistant", "content": "5"}
CALLING = {"role": "assistant", "content": "", "tool_calls": [CALL]}
TOOL = {"role": "tool", "content": "5"}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"messages": [CALLING, TOOL, ANSWER]}, "'messages' begins"),
        ({"messages": [SUM, TOOL]}, "'messages' has no message"),
        ({"messages": [SUM, CALLING, ANSWER]}, "messages 2 and 3"),
        ({"messages": [SUM, {**CALLING, "content": 3}]}, "message 2 of 'messages'"),
        ({"prompt": "p", "token_ids": [5, 6], "mask": [1]}, "'mask' .*1 .*2"),
        ({"prompt": "p", "token_ids": [5], "mask": [2]}, "'mask' .*not 2"),
        ({"prompt": "p", "completion": "a", "mask": [1]}, "'mask' .*1 .*0"),
        ({**TRACE, "nodes": [{"parent": 0, "message": SUM}]}, "node 0 .*parent 0"),
        ({**TRACE, "nodes": "none", "traces": [{}]}, "'nodes'"),
        (
            {"task": {}, "nodes": [{"message": SUM}, {"parent": 0, "message": ANSWER, "sampled": True,
             "token_ids": [5, 6], "mask": [True]}]},
            "node 1: 'mask'",
        ),
    ],
)  # fmt: skip
def test_malformed_episodes_are_refused(row: dict[str, Any], message: str):
    with pytest.raises(TaskError, match=message):
        read(row, tokenizer="tiny")
