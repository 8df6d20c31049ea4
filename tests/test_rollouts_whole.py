"""Imports lose nothing without a note: thoughts, parts, rewards, advantages, bad rows, and what follows the end."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import workbench as wb
from tests.test_rollouts_of_episodes import stretches, tokenizer_with
from workbench.cli import main
from workbench.data.read import Row
from workbench.data.rollouts import Builder, Imported, read_drafts, read_groups
from workbench.data.tokens import load_tokeniser
from workbench.errors import TaskError
from workbench.schema import Group
from workbench.steps import PRESETS

ASKED = "A baker fills 3 trays with 402 rolls each. How many rolls?"
USER = {"role": "user", "content": ASKED}


def read(*rows: dict[str, Any], tokenizer: Any = None, **how: Any) -> tuple[list[Group], str]:
    """The rows' groups and the notes."""
    drafts, facts = read_drafts([Row(f"line {n}", row) for n, row in enumerate(rows, 1)], "rows.jsonl", **how)
    builder = Builder(load_tokeniser(tokenizer), facts, "rows.jsonl")
    groups = [builder.build(draft) for draft in drafts]
    return groups, "\n".join(builder.facts().notes)


def written(file: Path, *rows: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows))
    return file


def numbered(end: str = "</s>", pad: str | None = "<pad>") -> PreTrainedTokenizerFast:
    """Words t3 … t49 of these ids; 2 is the end and 0 the padding."""
    words = {**{f"t{i}": i for i in range(3, 50)}, "?": 1, end: 2, "<pad>": 0}
    inner = Tokenizer(models.WordLevel(words, unk_token="?"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=end, **({} if pad is None else {"pad_token": pad}))


# ── messages ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
@pytest.mark.parametrize("row", ["messages", "completion"])
def test_thoughts_beside_the_text_are_part_of_the_completion(row: str, name: str) -> None:
    said = {"role": "assistant", "content": "1206 rolls", name: "3*402 is 1206"}
    values = {"messages": [USER, said]} if row == "messages" else {"prompt": [USER], "completion": [said]}
    [group], notes = read(values, values)
    assert group.prompt == [USER]
    assert [rollout.text for rollout in group.rollouts] == ["<think>\n3*402 is 1206\n</think>\n\n1206 rolls"] * 2
    assert "2 completions whose thoughts" in notes


def test_parts_of_a_message_are_thoughts_text_calls_and_answers_and_others_are_named() -> None:
    said = {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "3*402"}, {"type": "text", "text": "1206"}],
    }
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    seen = {"role": "user", "content": [{"type": "text", "text": ASKED}, image]}
    [group], notes = read({"messages": [seen, said]})
    assert (group.prompt, group.rollouts[0].text) == ([USER], "<think>\n3*402\n</think>\n\n1206")
    assert "1 completion whose messages' image_url part is left out" in notes
    call = {"type": "tool_use", "id": "a", "name": "times", "input": {"x": 3}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "1206"}]}
    episode = [USER, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}, said]
    [group], _ = read({"messages": episode})
    assert stretches(group.rollouts[0]) == [
        ("assistant", '<tool_call>\n{"name": "times", "arguments": {"x": 3}}\n</tool_call>'),
        ("tool", "\n1206\n"),
        ("assistant", "<think>\n3*402\n</think>\n\n1206"),
    ]


def test_a_template_that_writes_no_calls_leaves_no_empty_turn() -> None:
    tokenizer = tokenizer_with("qwen3.jinja")
    tokenizer.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "add", "arguments": "{}"}}]}
    said = [call, {"role": "tool", "content": "5"}, {"role": "assistant", "content": "It is 5."}]
    [group], notes = read({"prompt": [USER], "completion": said}, tokenizer=tokenizer)
    assert stretches(group.rollouts[0])[0] == (
        "assistant",
        '<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>',
    )
    assert "1 episode whose chat template leaves out calls or thoughts" in notes
    del said[0]["tool_calls"]
    said[0]["content"], said[1]["role"] = "I add.", "user"
    [group], notes = read({"prompt": [USER], "completion": said}, tokenizer=tokenizer)
    assert stretches(group.rollouts[0])[0] == ("assistant", "I add.<|im_end|>")
    assert "leaves out" not in notes


# ── TRL's log ────────────────────────────────────────────────────────────────────────────────────────────────────


def logged(*columns: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"step": 3, "prompt": ASKED, "completion": str(i), **row} for i, row in enumerate(columns)]


def rewards_of(group: Group) -> list[Any]:
    return [rollout.columns.get("reward") for rollout in group.rollouts]


def test_a_numeric_column_that_trl_logs_beside_the_rewards_is_not_summed() -> None:
    extra = [{"accuracy_reward": 1.0, "format_reward": 1.0, "n_tokens": 511, "advantage": 0.7},
             {"accuracy_reward": 0.0, "format_reward": 1.0, "n_tokens": 64, "advantage": -0.7}]  # fmt: skip
    [group], notes = read(*logged(*extra))
    assert rewards_of(group) == [2.0, 1.0]
    assert "the sum of accuracy_reward, format_reward" in notes
    assert "no reward: n_tokens" in notes
    assert [rollout.columns["logged_advantage"] for rollout in group.rollouts] == [0.7, -0.7]


def test_the_logged_advantages_show_which_floats_are_rewards() -> None:
    """Rewards 1.5, 1, 0.5, 0 have the mean 0.75 and the standard deviation 0.6455: advantages ±1.162 and ±0.387."""
    scores = [(1.0, 0.5), (1.0, 0.0), (0.0, 0.5), (0.0, 0.0)]
    entropies, advantages = (3.0, 9.0, 1.0, 7.0), (1.162, 0.387, -0.387, -1.162)
    rows = [
        {"acc": a, "fmt": f, "entropy": e, "advantage": z}
        for (a, f), e, z in zip(scores, entropies, advantages, strict=True)
    ]
    [group], notes = read(*logged(*rows))
    assert rewards_of(group) == [1.5, 1.0, 0.5, 0.0]
    assert "no reward: entropy" in notes
    [group], notes = read(*logged(*({**row, "advantage": -row["advantage"]} for row in rows)))
    assert "may have weights" in notes
    [group], notes = read(*logged({"advantage": 0.0}, {"advantage": 0.0}))
    assert rewards_of(group) == [None, None]
    assert "'reward' is not set" in notes
    [group], _ = read(*logged(*rows), columns={"reward": "acc"})  # as somebody says
    assert rewards_of(group) == [1.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize("cell", ["NaN", "nan", "", "None", "null", "NA", "inf"])
def test_a_cell_that_is_no_number_leaves_its_column_one_of_numbers(tmp_path: Path, cell: str) -> None:
    lines = ["step,prompt,completion,accuracy_reward,format_reward,advantage", "3,a,b,1.0,0.5,0.7"]
    file = written(tmp_path / "log.csv", "\n".join([*lines, f"3,a,c,{cell},0.5,-0.7", ""]))
    [group] = read_groups(file).groups
    assert rewards_of(group) == [1.5, 0.5]
    assert [rollout.columns["accuracy_reward"] for rollout in group.rollouts] == [1.0, None]


# ── advantages and traces ────────────────────────────────────────────────────────────────────────────────────────


def trace(advantages: Any) -> dict[str, Any]:
    asked = {"parent": None, "sampled": False, "message": USER, "token_ids": [10, 11], "mask": [False] * 2}
    said = {"role": "assistant", "content": "t20 t21 t22 t23"}
    answer = {"parent": 0, "sampled": True, "message": said, "token_ids": [12, 20, 21, 22, 23],
              "mask": [False, True, True, True, True], "logprobs": [-0.1, -0.2, -0.3, -0.4]}  # fmt: skip
    return {
        "task": {"data": {"prompt": ASKED, "answer": "1206"}},
        "nodes": [{**asked, "advantages": None}, {**answer, "advantages": advantages}],
        "rewards": {"right": {"score": 1.0, "weight": 1.0}},
        "stop_condition": "done",
    }


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ([0.5, 0.5, -0.5, None], [0.5, 0.5, -0.5, None]),  # of the sampled tokens
        ([None, 0.5, 0.5, -0.5, -0.5], [0.5, 0.5, -0.5, -0.5]),  # of all
        ([0.5] * 4, 0.5),
        ([None] * 4, None),
        (None, None),
    ],
)
def test_advantages_of_a_traces_tokens_are_kept_and_null_is_not_0(given: Any, kept: Any) -> None:
    [group], _ = read(trace(given), tokenizer=numbered())
    [rollout] = group.rollouts
    assert (rollout.token_ids, rollout.logprobs) == ((20, 21, 22, 23), (-0.1, -0.2, -0.3, -0.4))
    assert rollout.columns.get("logged_advantage") == kept
    with pytest.raises(TaskError, match="'advantages' must be"):
        read(trace([0.5] * 3), tokenizer=numbered())


def test_a_runs_folder_opens_and_its_annotations_are_passed_by_with_a_note(tmp_path: Path) -> None:
    whole = {"id": "e1", "group": {"id": "g"}, "task": {"data": {"prompt": ASKED}}, "traces": [trace([0.5] * 4)]}
    written(tmp_path / "run" / "annotations" / "trainer.jsonl", {"episode_id": "e1", "node": 1, "entropy": [0.1]})
    written(tmp_path / "run" / "traces" / "stream.jsonl", whole)
    found = read_groups(tmp_path / "run", tokenizer=numbered())
    assert [len(group) for group in found.groups] == [1]
    assert any(note.startswith("annotations/trainer.jsonl is passed by") for note in found.facts.notes)


# ── the end of a completion ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("ending", ["<|im_end|>", "<|im_end|>\n", "<|im_end|><|im_end|>"])
@pytest.mark.parametrize("tokenizer", ["its own", "tiny", "words"])
def test_an_end_token_in_the_text_is_the_end_token_and_no_text(tokenizer: str, ending: str) -> None:
    """In its last step, of which rewards see the text alone."""
    used = tokenizer_with("qwen3.jinja") if tokenizer == "its own" else tokenizer
    row = {"prompt": ASKED, "completion": "So 12.\n\n#### 12" + ending, "answer": "#### 12"}
    [group], _ = read(row, {**row, "completion": "So 12.\n\n#### 12"}, tokenizer=used)
    first, second = group.rollouts
    assert first.token_ids == second.token_ids
    assert (first.text, first.finished) == ("So 12.\n\n#### 12", True)
    scored = wb.score_group(group, PRESETS["line"].pattern, ["gsm8k_answer"])
    assert scored.outcomes == [1.0, 1.0]
    assert scored.scored[0].spans[-1][1] == len(first) - 1
    episode = [{"role": "assistant", "content": "Hm."}, USER, {"role": "assistant", "content": f"12{ending}"}]
    [group], _ = read({"prompt": "p", "completion": episode}, tokenizer=used)
    assert group.rollouts[0].text.endswith("12")


def test_padding_and_what_follows_the_end_token_are_no_part_of_the_completion() -> None:
    def kept(ids: list[int], tokenizer: Any = None, **row: Any) -> tuple[tuple[int, ...], str]:
        tokenizer = tokenizer or numbered()
        [group], notes = read({"prompt": ASKED, "token_ids": ids, **row}, tokenizer=tokenizer)
        rollout = group.rollouts[0]
        assert all(len(values) == len(rollout) for values in (rollout.logprobs, rollout.mask) if values is not None)
        return rollout.token_ids, notes

    ids, notes = kept([43, 44, 2, 0, 0, 0], logprobs=[-0.5] * 6)
    assert ids == (43, 44, 2)
    assert "1 completion without what follows the end token, or fills the batch: 3 tokens" in notes
    assert kept([43, 44, 2, 2, 2], numbered(pad=None))[0] == (43, 44, 2)
    assert kept([43, 44, 2, 7, 2])[0] == (43, 44, 2)
    assert kept([43, 44, 0, 0])[0] == (43, 44)  # cut off by a length, in a batch with longer ones
    assert kept([43, 44, 2]) == ((43, 44, 2), "")
    # An episode ends at the end of its last turn; what was observed after that stays.
    assert kept([43, 2, 7, 44, 2, 0, 0], mask=[1, 1, 0, 1, 1, 0, 0])[0] == (43, 2, 7, 44, 2)
    assert kept([43, 2, 7, 44, 2, 0, 0], mask=[1, 1, 0, 1, 1, 1, 1])[0] == (43, 2, 7, 44, 2)
    assert kept([43, 2, 7, 8], mask=[1, 1, 0, 0])[0] == (43, 2, 7, 8)
    [group], _ = read({"prompt": "p", "completion": "t43 t44</s><pad><pad>"}, tokenizer=numbered())
    assert group.rollouts[0].token_ids == (43, 44, 2)


# ── rows that cannot be read ─────────────────────────────────────────────────────────────────────────────────────


def test_a_problem_that_was_given_up_is_left_out_and_its_line_named(tmp_path: Path) -> None:
    steps = [{"completions": [{"text": "1206", "rating": 1}], "chosen_completion": 0}]
    given_up = {"question": {"problem": ASKED}, "label": {"steps": None, "finish_reason": "bad_problem"}}
    solved = {"question": {"problem": ASKED}, "label": {"steps": steps}}
    [group], notes = read(solved, given_up)
    assert [rollout.text for rollout in group.rollouts] == ["1206"]
    assert "1 row without a completion left out: line 2" in notes
    with pytest.raises(TaskError, match=r"1 row and no completion in any \(line 1\)"):
        read(given_up)
    file = written(tmp_path / "prm.jsonl", *[solved] * 12, given_up)
    assert len(wb.load_task(str(file)).rows("labelled_steps")) == 11  # one is held out


GOOD = {"prompt": "a", "completion": "x"}
BAD = ['{"prompt": "a", \n', '{"prompt": "a", "completion": 3}\n', "[1]\n", '{"prompt": "a", "reward": 1}\n']


def test_bad_rows_stop_an_import_unless_they_are_to_be_skipped_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    file = written(tmp_path / "rows.jsonl", BAD[0], GOOD, *BAD[1:], GOOD)
    with pytest.raises(TaskError, match="line 1: not JSON"):
        read_groups(file)
    found: Imported = read_groups(file, skip_bad_rows=True)
    assert [len(group) for group in found.groups] == [2]
    assert found.facts.notes[0].startswith("4 bad rows left out; the first: rows.jsonl line 1")
    with caplog.at_level(logging.WARNING):
        wb.load_groups(file, skip_bad_rows=True)
    assert "4 bad rows left out" in caplog.text
    assert main(["rollouts", str(file), "--skip-bad-rows"]) == 0
    assert "note: 4 bad rows left out" in capsys.readouterr().out
    table = written(tmp_path / "rows.csv", "prompt,completion,reward\na,x,1\na,x\na,y,0\n")
    assert rewards_of(read_groups(table, skip_bad_rows=True).groups[0]) == [1, 0]
    with pytest.raises(TaskError, match="line 1: not JSON"):
        read_groups(written(tmp_path / "rows.jsonl", *BAD), skip_bad_rows=True)


def test_the_torn_last_line_of_a_live_log_is_left_out_with_a_note(tmp_path: Path) -> None:
    whole = json.dumps({"prompt": "a", "completion": "é"}, ensure_ascii=False)
    for cut in (10, len(whole.encode()) - 3):  # within a character, too
        file = tmp_path / "live.jsonl"
        file.write_bytes(f"{whole}\n{whole}\n".encode() + whole.encode()[:cut])
        found = read_groups(file)
        assert [len(group) for group in found.groups] == [2]
        assert found.facts.notes[0].startswith("line 3, the last one, is left out")
        with pytest.raises(TaskError, match="line 3"):  # what is trained on is whole
            wb.load_task(str(file))
    file.write_bytes(f"{whole}\n{whole[:20]}\n{whole}\n".encode())
    with pytest.raises(TaskError, match="line 2"):
        read_groups(file)
    file.write_bytes(whole.encode()[:20])
    with pytest.raises(TaskError, match="line 1"):
        read_groups(file)
