"""Episodes of other tools: turns, observations and masks, from ids where a file has them, else by a chat template."""

import json
import re
from itertools import accumulate
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import trl
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from workbench.cli import main
from workbench.data.read import Row
from workbench.data.rollouts import REWRITTEN, Builder, read_drafts, read_groups
from workbench.data.tokens import load_tokeniser
from workbench.errors import TaskError
from workbench.schema import Group, Rollout

DATA = Path(__file__).parent / "data" / "episodes"
TEMPLATES = Path(trl.__file__).parent / "chat_templates"
USER = {"role": "user", "content": "2 + 3?"}
CALL = {"function": {"name": "add", "arguments": '{"a": 2, "b": 3}'}}


def tokenizer_with(template: str) -> PreTrainedTokenizerFast:
    """A token a byte, with one of TRL's chat templates."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<|im_end|>", additional_special_tokens=["<|im_start|>"]
    )
    tokenizer.chat_template = (TEMPLATES / template).read_text(encoding="utf-8")
    return tokenizer


def read(rows: str | list[dict[str, Any]], tokenizer: Any = None) -> tuple[list[Group], str, str]:
    """The groups of a file of ``DATA`` or of rows, with the format and the notes."""
    if isinstance(rows, str):
        rows = [json.loads(line) for line in (DATA / f"{rows}.jsonl").read_text(encoding="utf-8").splitlines()]
    drafts, facts = read_drafts([Row(f"line {n}", row) for n, row in enumerate(rows, 1)], "rows.jsonl")
    builder = Builder(load_tokeniser(tokenizer), facts, "rows.jsonl")
    groups = [builder.build(draft) for draft in drafts]
    assert [Group.from_json(json.loads(json.dumps(group.to_json()))) for group in groups] == groups
    return groups, facts.format, "\n".join(builder.facts().notes)


def stretches(rollout: Rollout) -> list[tuple[str, str]]:
    """(role, text) of each turn and observation; the mask says the same."""
    for turn in rollout.turns:
        assert set(rollout.mask[turn.start : turn.end]) <= {int(turn.is_sampled)}
    return [(turn.role, "".join(rollout.texts[turn.start : turn.end])) for turn in rollout.turns]


def add(a: int, b: int) -> str:
    return f'<tool_call>\n{{"name": "add", "arguments": {{"a": {a}, "b": {b}}}}}\n</tool_call>'


def test_openais_messages_with_tool_calls_are_episodes_by_the_chat_template():
    [group], format, notes = read("openai", tokenizer_with("qwen3_training.jinja"))
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
    roles = [role for role, _ in stretches(group.rollouts[1])]
    assert roles == ["environment", "assistant", "tool", "assistant", "tool", "assistant"]
    assert group.rollouts[1].finished
    assert [rollout.columns["reward"] for rollout in group.rollouts] == [1.0, 0.5]
    assert REWRITTEN not in notes


def test_the_mask_is_the_one_that_transformers_makes_of_a_template_with_marks():
    """Of one rendering of the whole, but for what no policy samples: the line's end behind an end-of-sequence token,
    and an empty thought."""
    tokenizer = tokenizer_with("qwen3_training.jinja")
    for line in (DATA / "openai.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        [group], _, _ = read([row], tokenizer)
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
    [group], _, notes = read("openai", tokenizer)
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
    [group], _, notes = read([{"prompt": "2 + 3?", "completion": said}], tokenizer)
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
        return {"messages": [USER, *said, {"role": "assistant", "content": "It is 5."}]}

    [group], _, notes = read([asks(call), asks(CALL)], tokenizer_with("qwen3_training.jinja"))
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
    [group], _, notes = read([{"messages": [USER, call, TOOL, ANSWER]}], tokenizer_with("qwen3_training.jinja"))
    wanted = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call><|im_end|>'
    assert stretches(group.rollouts[0])[1] == ("assistant", wanted)
    assert "malformed" not in notes


def test_verifiers_results_are_episodes_and_one_that_was_cut_off_ends_with_what_was_observed():
    [group], format, notes = read("verifiers-results")
    assert (format, len(group), group.columns["answer"]) == ("verifiers", 2, "5 and 9")
    whole, cut = group.rollouts
    assert stretches(whole) == [
        ("assistant", f"{add(2, 3)}\n{add(4, 5)}"),
        ("tool", "\n5\n9\n"),
        ("assistant", "5 and 9."),
    ]
    assert [role for role, _ in stretches(cut)] == ["assistant", "tool", "assistant", "tool"]
    assert (whole.finished, cut.truncated, cut.observations) == (True, True, ["\n5\n", "\n10\n"])
    assert "2 episodes whose turns and observations stand as plain text" in notes


def test_traces_of_verifiers_and_prime_rl_keep_ids_logprobs_and_who_wrote_what():
    [group], format, _ = read("verifiers-traces", "tiny")
    assert (format, group.prompt) == ("traces", [{"role": "user", "content": "Start with 2, add 3.\n"}])
    first = group.rollouts[0]
    assert stretches(first) == [
        ("assistant", "call: 2+3\n"),
        ("tool", "= 5\nStep 2: "),
        ("assistant", "Answer: 5<|end|>"),
    ]
    assert first.finished
    assert first.logprobs[-1] == -0.125
    assert set(zip(first.logprobs[:-1], first.mask[:-1], strict=True)) == {(-0.5, 1), (0.0, 0)}
    assert [rollout.columns["reward"] for rollout in group.rollouts] == [2.25, 0.25]  # 2 x 1 + 1/4, and 1/4
    assert group.columns["answer"] == "5"
    row = json.loads((DATA / "verifiers-traces.jsonl").read_text(encoding="utf-8").splitlines()[0])
    [trace] = row["traces"]
    del trace["nodes"][3]["token_ids"]  # an API's: the messages count
    [[alone], _, notes] = read([trace])
    assert [role for role, _ in stretches(alone.rollouts[0])] == ["assistant", "tool", "assistant"]
    assert "1 episode whose turns and observations stand as plain text" in notes


def test_prime_rls_token_exports_of_several_turns_have_their_mask():
    [group], format, _ = read("prime-rl-tokens", "tiny")
    [rollout] = group.rollouts
    assert (format, group.prompt) == ("prime-rl", "Start with 2, add 3.\n")
    assert rollout.observations == ["= 5\n", None]
    assert [rollout.text[:10], len(rollout.turn_spans)] == ["call: 2+3\n", 2]


def test_verls_outputs_are_parted_at_the_tools_answers():
    [group], format, notes = read("verl")
    first, second = group.rollouts
    assert (format, second.mask, second.turns) == ("verl", None, ())
    assert stretches(first) == [
        ("assistant", add(2, 3)),
        ("tool", "\nuser\n<tool_response>\n5\n</tool_response>\nassistant\n"),
        ("assistant", "It is 5."),
    ]
    assert first.text == "".join(text for _, text in stretches(first))
    assert "1 completion whose observations were told by <tool_response>" in notes


def test_trls_log_of_its_tool_loop_is_episodes(tmp_path):
    """As parquet has it, where every call has the arguments of all, those that it lacks being null."""
    rows = [json.loads(line) for line in (DATA / "trl.jsonl").read_text(encoding="utf-8").splitlines()]
    pd.DataFrame(rows).to_parquet(tmp_path / "completions_00002.parquet")
    imported = read_groups(tmp_path / "completions_00002.parquet")
    [group] = imported.groups
    assert (imported.facts.format, group.columns["training_step"]) == ("trl", 2)
    assert stretches(group.rollouts[0]) == [("assistant", add(2, 3)), ("tool", "\n5\n"), ("assistant", "5")]
    assert (group.rollouts[1].text, group.rollouts[1].mask) == ("I cannot.", None)


def test_plain_rows_have_ids_and_a_mask_and_the_shell_reads_what_the_page_reads(tmp_path, capsys):
    row = {"prompt": "p", "token_ids": [5, 6, 7], "mask": [1, 0, 1]}
    [group], _, _ = read([row], "tiny")
    assert (group.rollouts[0].token_ids, group.rollouts[0].mask) == ((5, 6, 7), (1, 0, 1))
    assert main(["rollouts", str(DATA / "openai.jsonl"), "--tokenizer", "tiny", "--show", "0"]) == 0
    shown = Group.from_json(json.loads(capsys.readouterr().out))
    assert [role for role, _ in stretches(shown.rollouts[0])] == ["assistant", "tool", "assistant"]


TRACE = {"task": {"data": {}}, "nodes": [{"message": USER}, {"parent": 0, "message": USER, "sampled": True}]}
ANSWER = {"role": "assistant", "content": "5"}
CALLING = {"role": "assistant", "content": "", "tool_calls": [CALL]}
TOOL = {"role": "tool", "content": "5"}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"messages": [CALLING, TOOL, ANSWER]}, "'messages' begins with the assistant's message"),
        ({"messages": [USER, TOOL]}, "'messages' has no message of the assistant"),
        ({"messages": [USER, CALLING, ANSWER]}, "messages 2 and 3 are both the assistant's, with no answer between"),
        ({"messages": [USER, {**CALLING, "content": 3}]}, "message 2 of 'messages' has a part of type int"),
        ({"prompt": "p", "token_ids": [5, 6], "mask": [1]}, "'mask' has 1 values for 2"),
        ({"prompt": "p", "token_ids": [5], "mask": [2]}, "'mask' .*not 2"),
        ({"prompt": "p", "completion": "a", "mask": [1]}, "'mask' has 1 values for 0"),
        ({**TRACE, "nodes": [{"parent": 0, "message": USER}]}, "node 0 has the parent 0, which is no node before it"),
        ({**TRACE, "nodes": "none", "traces": [{}]}, "'nodes'"),
        (
            {"task": {}, "nodes": [{"message": USER}, {"parent": 0, "message": ANSWER, "sampled": True,
             "token_ids": [5, 6], "mask": [True]}]},
            "node 1: 'mask' has 1 values for 2",
        ),
    ],
)  # fmt: skip
def test_malformed_episodes_are_refused(row: dict[str, Any], message: str):
    with pytest.raises(TaskError, match=message):
        read([row], "tiny")
