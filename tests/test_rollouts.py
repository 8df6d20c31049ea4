"""Groups from plain files under tokenizers of every kind: no text changes, no token is misaligned, nothing is lost."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import workbench as wb
from tests.credits import worked_credit
from tests.imported import put, read, stretches, tokenizer_with
from workbench.cli import main
from workbench.data import read_groups
from workbench.data.tokens import Words, cut_by_offsets
from workbench.errors import TaskError
from workbench.rundir.rollouts import Rollouts
from workbench.schema import Group
from workbench.steps import PRESETS

# ── formats ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_plain_rows_with_the_same_prompt_are_a_group_in_the_files_order(tmp_path):
    file = put(
        tmp_path / "data.jsonl",
        {"prompt": "a", "completion": "1", "answer": "2", "reward": 0.0},
        {"prompt": "b", "completion": "2", "answer": "2", "reward": 1.0},
        {"prompt": "a", "completion": "3", "answer": "2", "reward": 0.0},
    )
    found = read_groups(file)
    assert [group.prompt for group in found.groups] == ["a", "b"]
    assert [rollout.text for rollout in found.groups[0].rollouts] == ["1", "3"]
    assert found.groups[0].columns == {"answer": "2"}  # all of the group agree; the reward is always one's own
    assert [rollout.columns for rollout in found.groups[0].rollouts] == [{"reward": 0.0}, {"reward": 0.0}]
    assert (found.facts.format, found.facts.rows, found.facts.tokenizer) == ("plain", 3, "words")
    assert len(read_groups(file, limit=1)) == 1


def test_trls_log_is_grouped_by_step_and_prompt(tmp_path):
    # The columns that GRPOTrainer writes, a reward that scored nothing being NaN.
    table = pd.DataFrame(
        {
            "step": [1, 1, 1, 1, 2, 2],
            "prompt": ["a", "a", "b", "b", "a", "a"],
            "completion": ["1", "2", "3", "4", "5", "6"],
            "accuracy": [1.0, 0.0, 1.0, 0.0, 1.0, float("nan")],
            "format": [0.5, 0.5, 0.0, 0.5, 0.5, float("nan")],
            "advantage": [0.7, -0.7, 0.7, -0.7, 0.0, 0.0],
        }
    )
    file = tmp_path / "completions_00001.parquet"
    table.to_parquet(file)
    found = read_groups(file)
    assert (found.facts.format, read_groups(file, format="plain").facts.format) == ("trl", "plain")
    assert [[r.text for r in group.rollouts] for group in found.groups] == [["1", "2"], ["3", "4"], ["5", "6"]]
    assert [group.columns["training_step"] for group in found.groups] == [1, 1, 2]
    first, unscored = found.groups[0].rollouts[0].columns, found.groups[2].rollouts[1].columns
    assert (first["accuracy"], first["reward"], first["logged_advantage"]) == (1.0, 1.5, 0.7)
    assert (unscored["accuracy"], unscored["reward"]) == (None, None)
    table = table.assign(reward=[1.0, 0.0, 1.0, 0.0, None, None])  # a function of that name is one of the rewards
    table.to_parquet(file)
    own = read_groups(file).groups[0].rollouts[0].columns
    assert (own["logged_reward"], own["reward"]) == (1.0, 2.5)
    assert wb.score_group(found.groups[2], PRESETS["line"].pattern, ["given_reward"]).outcomes == [1.5, None]


STEPS = ["7 + 5 = 12", "12 * 2 = 24", "So it is 25."]


@pytest.mark.parametrize(
    ("row", "preset", "labels"),
    [
        ({"prompt": "p", "completions": STEPS, "labels": [True, True, False]}, "line", [1.0, 1.0, 0.0]),
        ({"prompt": "p", "completions": ["one\ntwo", "3"], "labels": [True, None]}, "paragraph", [1.0, None]),
        ({"problem": "p", "steps": STEPS, "label": 1}, "paragraph", [1.0, 0.0, None]),
        ({"problem": "p", "steps": STEPS, "label": -1}, "paragraph", [1.0, 1.0, 1.0]),
        # A step holds every separator.
        ({"problem": "p", "steps": ["a\n\nb", "c"], "label": 0}, "paragraph", [None] * 3),
    ],
)
def test_labelled_steps_are_found_again_by_the_preset_that_is_named(tmp_path, row, preset, labels):
    found = read_groups(put(tmp_path / "data.jsonl", row))
    assert found.facts.preset == preset
    [rollout] = found.groups[0].rollouts
    scored = wb.score_group(found.groups[0], PRESETS[preset].pattern, ["given_labels"]).scored[0]
    texts = [rollout.text[step.start : step.end].strip() for step in scored.steps]
    assert list(scored.rewards) == labels
    is_found = labels != [None] * 3
    assert (texts == (row.get("steps") or row["completions"])) is is_found
    assert any("does not find" in note for note in found.facts.notes) is not is_found


def labelled(file: Path) -> tuple[str, list[tuple[Any, Any, Any]]]:
    """The format of a file, and the prompt, the labelled steps and the labels of each of its completions."""
    found = read_groups(file)
    return found.facts.format, [
        (group.prompt, rollout.columns["labelled_steps"], rollout.columns["labels"])
        for group in found.groups
        for rollout in group.rollouts
    ]


def test_math_shepherds_signs_label_the_steps_before_them(tmp_path):
    """Rows as the data set has them: the first step stands behind the question; marks may be in odd places."""
    label = "1 + 1? Step 1: It is 2. +\nStep 2: So 3. -\n"
    rows = [
        {"input": label.replace("+\n", "ки\n").replace("-\n", "ки\n"), "label": label, "task": "GSM8K"},
        {"input": "1 + 1? ки\nStep 1: It is 2. ки", "label": "1 + 1? -\nStep 1: It is 2. +", "task": "MATH"},
        {"input": "Is 1 odd? Yes. ки", "label": "Is 1 odd? Yes. +", "task": "MATH"},
    ]
    assert labelled(put(tmp_path / "data.jsonl", *rows)) == (
        "math-shepherd",
        [
            ("1 + 1?", ["Step 1: It is 2.", "Step 2: So 3."], [1.0, 0.0]),
            ("1 + 1?", ["Step 1: It is 2."], [1.0]),
            ("Is 1 odd?", ["Yes."], [1.0]),
        ],
    )


def rated(*texts: tuple[str, int | None], chosen: int | None = None, written: str | None = None) -> dict[str, Any]:
    """A step of PRM800K."""
    return {
        "completions": [{"text": text, "rating": rating, "flagged": None} for text, rating in texts],
        "human_completion": None if written is None else {"text": written, "rating": None},
        "chosen_completion": chosen,
    }


def test_prm800k_gives_a_completion_for_each_alternative_and_the_one_gone_on_from(tmp_path):
    """0 is not incorrect, and so right; an error that nothing was chosen for ends the answer."""
    steps = [rated(("a", 0), ("b", -1), chosen=0), rated(("c", -1), written="d"), rated(("e", -1), ("f", None))]
    row = {"question": {"problem": "p", "ground_truth_answer": "4"}, "label": {"steps": steps}}
    solved = {"question": {"problem": "q"}, "label": {"steps": [rated(("g", 1), chosen=0), rated(("h", 1), chosen=0)]}}
    file = put(tmp_path / "data.jsonl", row, solved)
    expected = [
        ("p", ["b"], [0.0]),
        ("p", ["a", "c"], [1.0, 0.0]),
        ("p", ["a", "d", "e"], [1.0, 1.0, 0.0]),
        ("p", ["a", "d", "f"], [1.0, 1.0, None]),
        ("q", ["g", "h"], [1.0, 1.0]),
    ]
    assert labelled(file) == ("prm800k", expected)
    task = wb.load_task(str(file))  # to be trained on, by the method prm
    rows = [*task.rows("labelled_steps"), *task.rows("labelled_steps", held_out=True)]
    assert [(row.prompt, list(row.steps), list(row.labels)) for row in rows] == expected
    assert task[0].columns["answer"] == "4"


def test_labels_go_to_steps_of_the_same_text_however_they_are_cut(tmp_path):
    file = put(tmp_path / "data.jsonl", {"prompt": "p", "completions": ["a", "b", "a"], "labels": [True, False, False]})
    [group] = wb.load_groups(file)
    assert wb.score_group(group, PRESETS["line"].pattern, ["given_labels"]).step_rewards == [[1.0, 0.0, 0.0]]
    assert wb.score_group(group, PRESETS["paragraph"].pattern, ["given_labels"]).step_rewards == [[None]]


TOKENS = {"token_ids": [1, 2], "texts": ["a", "b"]}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "p", "completions": STEPS, "labels": [True]}, "'completions' .*'labels' 1"),
        ({"prompt": "p", "completions": [], "labels": []}, "'completions' .*list of texts"),
        ({"prompt": "p", "completions": STEPS, "labels": ["+", "+", "-"]}, "'labels' .*'\\+'"),
        ({"prompt": "p", "completions": STEPS, "labels": [1, 1, 7]}, "'labels' .*not 7 .item 3"),
        ({"problem": "p", "steps": STEPS, "label": 3}, "'label' is 3"),
        ({"problem": "p", "steps": "abc", "label": 0}, "'steps' .*'abc'"),
        ({"input": "1? a ки b ки", "label": "1? a + b ?"}, "'label' .*'input'"),
        ({"input": "a ки", "label": "a +"}, "neither 'Step 1:' nor '\\?' .*'a '"),
        (
            {"question": {"problem": "p"}, "label": {"steps": [{"completions": [{"text": "a", "rating": 2}]}]}},
            "step 1: 'rating' .*not 2",
        ),
        ({"question": {}, "label": {"steps": []}}, "'question.problem'"),
        ({"prompt": "p", "token_ids": [1.5]}, "'token_ids' .*not 1.5"),
        ({"prompt": "p", "token_ids": [-1]}, "'token_ids' .*not -1"),
        ({"prompt": "p", "token_ids": [99999999]}, "'token_ids' .*not 99999999"),
        ({"prompt": "p", "completion": "x", "reward": 10**400}, "'reward' .*not 1000"),
        ({"prompt": "p", "completion": "x", "labelled_steps": ["x"], "labels": [1, 1]}, "'labelled_steps'"),
        ({"prompt": "p", "completion": "x", "labelled_steps": ["x"], "labels": "10"}, "'labels' .*not '10'"),
        ({"prompt": "p", "completion": "x", "logprobs": [1.0]}, "'logprobs'"),
        ({"question": "q", "m": {"solution": 7}}, "'m.solution' .*not 7"),
        ({"prompt": "p", "rollouts": [{"token_ids": [1], "texts": []}]}, "rollout 1: 'texts'"),
        ({"prompt": "p", "rollouts": ["x"]}, "rollout 1: .*an object"),
        ({"prompt": "p", "rollouts": [{"reward": 1.0}]}, "rollout 1: 'completion'"),
        ({"prompt": "p", "columns": [1], "rollouts": [{"completion": "x"}]}, "rollout 1: .*'columns' are named"),
        ({"prompt": "p", "rollouts": [TOKENS | {"entropies": [0.0]}]}, "rollout 1: 'entropies' .*2 tokens"),
        ({"prompt": "p", "rollouts": [TOKENS | {"entropies": ["x", "y"]}]}, "rollout 1: 'entropies' .*2 tokens"),
        ({"prompt": "p", "rollouts": [TOKENS | {"mask": [1, 2]}]}, "rollout 1: 'mask' .*not 2"),
    ],
)
def test_a_row_that_does_not_fit_its_format_is_named(tmp_path, row, message):
    with pytest.raises(TaskError, match=rf"^data\.jsonl line 1: {message}"):
        wb.load_groups(put(tmp_path / "data.jsonl", row))


def test_a_groups_own_json_comes_back_as_it_was(tmp_path, random_policy):
    prompt = wb.load_task("chain-arithmetic")[0]
    sampled = wb.sample_group(random_policy, prompt, num_generations=2, max_completion_length=20)
    group = wb.with_reference(random_policy, sampled)
    masked = replace(group.rollouts[0], mask=(0,) + (1,) * (len(group.rollouts[0]) - 1))
    group = replace(group, rollouts=(masked, *group.rollouts[1:]))
    [back] = read_groups(put(tmp_path / "data.jsonl", group.to_json())).groups
    assert (back.prompt, back.columns) == (group.prompt, json.loads(json.dumps(dict(group.columns))))
    assert (back.rollouts, back.policy) == (group.rollouts, group.policy)
    assert {name: back.sampling[name] for name in group.sampling} == dict(group.sampling)


def test_a_group_may_list_plain_completions(tmp_path):
    rollouts = [
        {"completion": "Step 1: 4", "reward": 1.0, "finished": True},
        {"completion": "Step 1: 5", "columns": {"reward": 0.0}, "finished": False},
    ]
    row = {"prompt": "2 + 2?", "columns": {"answer": "4"}, "policy": "mine", "rollouts": rollouts}
    found = read_groups(put(tmp_path / "data.jsonl", row, row), tokenizer="tiny")
    assert (found.facts.format, len(found)) == ("group", 2)  # a row is a group, whatever its prompt
    group = found.groups[0]
    assert (dict(group.columns), group.policy) == ({"answer": "4"}, "mine")
    assert [(one.text.removesuffix("<|end|>"), one.columns["reward"], one.finished) for one in group.rollouts] == [
        ("Step 1: 4", 1.0, True),
        ("Step 1: 5", 0.0, False),
    ]


def test_a_runs_own_rollouts_come_back_as_they_were(tmp_path):
    credit = worked_credit()
    Rollouts(tmp_path, "a").write(1, [credit])
    found = read_groups(tmp_path / "step-000001.parquet")
    assert found.facts.format == "run"
    assert found.groups[0].rollouts == credit.scored.group.rollouts


# ── tokens ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_token_ids_are_the_truth(tmp_path, tiny):
    text = "Step 1: 7 + 5 = 12\nAnswer: 12"
    ids = tiny.tokenizer(text)["input_ids"]
    end = tiny.tokenizer.eos_token_id
    # Spelled letter by letter: no tokenizer would give these ids again.
    spelled = [one for letter in text for one in tiny.tokenizer(letter)["input_ids"]]
    file = put(
        tmp_path / "data.jsonl",
        {"prompt": "p", "token_ids": [*spelled, end], "logprobs": [-0.5] * (len(spelled) + 1)},
        {"prompt": "p", "token_ids": ids, "completion": text},
        {"prompt": "p", "token_ids": ids, "completion": "something else"},
    )
    found = read_groups(file, tokenizer="tiny")
    first, second, _ = found.groups[0].rollouts
    assert (first.token_ids, first.text, first.finished) == ((*spelled, end), text, True)
    assert first.logprobs == (-0.5,) * (len(spelled) + 1)
    assert (second.token_ids, second.finished) == (tuple(ids), False)  # no end token was sampled
    assert "1 row whose token ids decode to another text" in found.facts.notes[0]
    [words] = read_groups(put(tmp_path / "words.jsonl", {"prompt": "p", "token_ids": ids, "completion": text})).groups
    assert words.rollouts[0].text == text


@pytest.mark.parametrize(
    ("text", "offsets", "texts"),
    [
        ("ab cd", [(0, 2), (3, 5)], ["ab", " cd"]),  # a dropped space goes to the token after it
        ("ab \n cd", [(0, 2), (5, 7)], ["ab \n", " cd"]),  # but a line end to the one before
        ("é!", [(0, 1), (0, 1), (1, 2)], ["", "é", "!"]),  # a character of two tokens to the one that completes it
        ("  x  ", [(2, 3)], ["  x  "]),
        ("ab", [(0, 2), (0, 2)], ["", "ab"]),
        ("abc", [(0, 2), (1, 3)], ["a", "bc"]),  # of two that overlap the later one has the common part
        ("", [], []),
    ],
)
def test_texts_from_offsets(text, offsets, texts):
    assert list(cut_by_offsets(text, offsets)) == texts


@given(st.text(max_size=30), st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=8))
def test_texts_from_any_offsets_join_to_the_text(text, offsets):
    assert "".join(cut_by_offsets(text, offsets)) == text
    assert len(cut_by_offsets(text, offsets)) == len(offsets)


def lower_case_words() -> Tokenizer:
    """Lower-cases, strips accents and drops all white space: nothing of the text's form survives in the ids."""
    words = ["[UNK]", "she", "has", "cafe", "12", "."]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def test_a_tokenizer_that_loses_the_text_is_said_and_misaligns_nothing(tmp_path):
    row = {"prompt": "p", "completion": "She has  Café\n\n\u201c12\u201d. "}
    found = read_groups(put(tmp_path / "data.jsonl", row), tokenizer=lower_case_words())
    [rollout] = found.groups[0].rollouts
    assert rollout.texts == ("She", " has", "  Café\n\n", "\u201c", "12", "\u201d. ", "")
    assert "1 completion that tokenizer 'Tokenizer' cannot give back" in found.facts.notes[0]


@given(st.text(max_size=60))
def test_words_join_to_any_text(text):
    assert "".join(Words().tokens(text).texts) == text


def test_words_are_runs_of_letters_or_digits_and_single_marks():
    tokens = Words().tokens("The cat's 12.5 中文 the cat\n")
    assert tokens.texts == (
        "The", " ", "cat", "'", "s", " ", "12", ".", "5", " ", "中", "文", " ", "the", " ", "cat", "\n",
    )  # fmt: skip
    assert tokens.ids[1] == tokens.ids[5]  # the same word, the same number


def test_an_empty_completion_is_its_end_alone(tmp_path, tiny):
    for tokenizer in (None, "tiny", lower_case_words()):
        [rollout] = wb.load_groups(
            put(tmp_path / "data.jsonl", {"prompt": "p", "completion": ""}), tokenizer=tokenizer
        )[0].rollouts
        assert (len(rollout), rollout.text, rollout.finished) == (1, "", True)


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_group_is_tokenised_when_it_is_asked_for(tmp_path):
    rows = [{"prompt": f"p{n // 2}", "completion": "Two  words"} for n in range(6)]
    found = read_groups(put(tmp_path / "data.jsonl", *rows), tokenizer=lower_case_words())
    assert found.facts.notes == ()
    assert found.groups[1] == found.groups[1] is not found.groups[1]  # made once, and unpacked each time
    assert [group.prompt for group in found.groups] == ["p0", "p1", "p2"]
    assert found.facts.notes[0].startswith("6 completions that tokenizer")


def test_progress_is_heard_and_reading_can_be_cancelled(tmp_path):
    heard: list[dict[str, Any]] = []
    file = put(tmp_path / "data.jsonl", *({"prompt": f"p{n}", "completion": "1"} for n in range(1500)))
    assert len(read_groups(file, on_event=heard.append)) == 1500
    assert [event["phase"] for event in heard] == ["reading", "reading, 1,000 rows", "loading the tokenizer"]
    assert len(read_groups(file, cancelled=lambda: True)) == 999


# ── imports lose nothing without a note ──────────────────────────────────────────────────────────────────────────────


ASKED = "A baker fills 3 trays with 402 rolls each. How many rolls?"
USER = {"role": "user", "content": ASKED}


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
    [group], _, notes = read(values, values)
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
    [group], _, notes = read({"messages": [seen, said]})
    assert (group.prompt, group.rollouts[0].text) == ([USER], "<think>\n3*402\n</think>\n\n1206")
    assert "1 completion whose messages' image_url part is left out" in notes
    call = {"type": "tool_use", "id": "a", "name": "times", "input": {"x": 3}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "1206"}]}
    episode = [USER, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}, said]
    [group], _, _ = read({"messages": episode})
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
    [group], _, notes = read({"prompt": [USER], "completion": said}, tokenizer=tokenizer)
    assert stretches(group.rollouts[0])[0] == (
        "assistant",
        '<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>',
    )
    assert "1 episode whose chat template leaves out calls or thoughts" in notes


# ── TRL's log ────────────────────────────────────────────────────────────────────────────────────────────────────


def logged(*columns: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"step": 3, "prompt": ASKED, "completion": str(i), **row} for i, row in enumerate(columns)]


def rewards_of(group: Group) -> list[Any]:
    return [rollout.columns.get("reward") for rollout in group.rollouts]


def test_a_numeric_column_that_trl_logs_beside_the_rewards_is_not_summed() -> None:
    extra = [{"accuracy_reward": 1.0, "format_reward": 1.0, "n_tokens": 511, "advantage": 0.7},
             {"accuracy_reward": 0.0, "format_reward": 1.0, "n_tokens": 64, "advantage": -0.7}]  # fmt: skip
    [group], _, notes = read(*logged(*extra))
    assert rewards_of(group) == [2.0, 1.0]
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
    [group], _, notes = read(*logged(*rows))
    assert rewards_of(group) == [1.5, 1.0, 0.5, 0.0]
    assert "no reward: entropy" in notes
    [group], _, notes = read(*logged({"advantage": 0.0}, {"advantage": 0.0}))
    assert rewards_of(group) == [None, None]
    [group], _, _ = read(*logged(*rows), columns={"reward": "acc"})  # as somebody says
    assert rewards_of(group) == [1.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize("cell", ["NaN", "nan", "", "None", "null", "NA", "inf"])
def test_a_cell_that_is_no_number_leaves_its_column_one_of_numbers(tmp_path: Path, cell: str) -> None:
    lines = ["step,prompt,completion,accuracy_reward,format_reward,advantage", "3,a,b,1.0,0.5,0.7"]
    file = put(tmp_path / "log.csv", "\n".join([*lines, f"3,a,c,{cell},0.5,-0.7", ""]))
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
    [group], _, _ = read(trace(given), tokenizer=numbered())
    [rollout] = group.rollouts
    assert (rollout.token_ids, rollout.logprobs) == ((20, 21, 22, 23), (-0.1, -0.2, -0.3, -0.4))
    assert rollout.columns.get("logged_advantage") == kept
    with pytest.raises(TaskError, match="'advantages'"):
        read(trace([0.5] * 3), tokenizer=numbered())


def test_a_runs_folder_opens_and_its_annotations_are_passed_by_with_a_note(tmp_path: Path) -> None:
    whole = {"id": "e1", "group": {"id": "g"}, "task": {"data": {"prompt": ASKED}}, "traces": [trace([0.5] * 4)]}
    put(tmp_path / "run" / "annotations" / "trainer.jsonl", {"episode_id": "e1", "node": 1, "entropy": [0.1]})
    put(tmp_path / "run" / "traces" / "stream.jsonl", whole)
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
    [group], _, _ = read(row, {**row, "completion": "So 12.\n\n#### 12"}, tokenizer=used)
    first, second = group.rollouts
    assert first.token_ids == second.token_ids
    assert (first.text, first.finished) == ("So 12.\n\n#### 12", True)
    scored = wb.score_group(group, PRESETS["line"].pattern, ["gsm8k_answer"])
    assert scored.outcomes == [1.0, 1.0]
    assert scored.scored[0].spans[-1][1] == len(first) - 1
    episode = [{"role": "assistant", "content": "Hm."}, USER, {"role": "assistant", "content": f"12{ending}"}]
    [group], _, _ = read({"prompt": "p", "completion": episode}, tokenizer=used)
    assert group.rollouts[0].text.endswith("12")


@pytest.mark.parametrize(
    ("ids", "row", "kept"),
    [
        ([43, 44, 2, 0, 0, 0], {"logprobs": [-0.5] * 6}, (43, 44, 2)),
        ([43, 44, 2, 7, 2], {}, (43, 44, 2)),
        ([43, 44, 0, 0], {}, (43, 44)),  # cut off by a length, in a batch with longer ones
        ([43, 44, 2], {}, (43, 44, 2)),
        # An episode ends at the end of its last turn; what was observed after that stays.
        ([43, 2, 7, 44, 2, 0, 0], {"mask": [1, 1, 0, 1, 1, 0, 0]}, (43, 2, 7, 44, 2)),
        ([43, 2, 7, 44, 2, 0, 0], {"mask": [1, 1, 0, 1, 1, 1, 1]}, (43, 2, 7, 44, 2)),
        ([43, 2, 7, 8], {"mask": [1, 1, 0, 0]}, (43, 2, 7, 8)),
    ],
)
def test_padding_and_what_follows_the_end_token_are_no_part_of_the_completion(
    ids: list[int], row: dict[str, Any], kept: tuple[int, ...]
) -> None:
    [group], _, notes = read({"prompt": ASKED, "token_ids": ids, **row}, tokenizer=numbered())
    rollout = group.rollouts[0]
    assert rollout.token_ids == kept
    assert all(len(values) == len(kept) for values in (rollout.logprobs, rollout.mask) if values is not None)
    assert bool(notes) is (len(kept) < len(ids))


@pytest.mark.parametrize(
    ("row", "tokenizer"),
    [
        ({"token_ids": [43, 44, 2, 2, 2]}, numbered(pad=None)),
        ({"completion": "t43 t44</s><pad><pad>"}, numbered()),
    ],
)
def test_end_tokens_that_pad_and_padding_in_a_text_are_left_out(row: dict[str, Any], tokenizer: Any) -> None:
    [group], _, _ = read({"prompt": "p", **row}, tokenizer=tokenizer)
    assert group.rollouts[0].token_ids == (43, 44, 2)


# ── rows that cannot be read ─────────────────────────────────────────────────────────────────────────────────────


def test_a_problem_that_was_given_up_is_left_out_and_its_line_named() -> None:
    steps = [{"completions": [{"text": "1206", "rating": 1}], "chosen_completion": 0}]
    given_up = {"question": {"problem": ASKED}, "label": {"steps": None, "finish_reason": "bad_problem"}}
    [group], _, notes = read({"question": {"problem": ASKED}, "label": {"steps": steps}}, given_up)
    assert [rollout.text for rollout in group.rollouts] == ["1206"]
    assert "1 row without a completion left out: line 2" in notes
    with pytest.raises(TaskError, match="line 1"):
        read(given_up)


GOOD = {"prompt": "a", "completion": "x"}
BAD = ['{"prompt": "a", \n', '{"prompt": "a", "completion": 3}\n', "[1]\n", '{"prompt": "a", "reward": 1}\n']


def test_bad_rows_stop_an_import_unless_they_are_to_be_skipped_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = put(tmp_path / "rows.jsonl", BAD[0], GOOD, *BAD[1:], GOOD)
    with pytest.raises(TaskError, match="line 1"):
        read_groups(file)
    found = read_groups(file, skip_bad_rows=True)
    assert [len(group) for group in found.groups] == [2]
    assert found.facts.notes[0].startswith("4 bad rows left out; the first: rows.jsonl line 1")
    assert main(["rollouts", str(file), "--skip-bad-rows"]) == 0
    assert "note: 4 bad rows left out" in capsys.readouterr().out
    table = put(tmp_path / "rows.csv", "prompt,completion,reward\na,x,1\na,x\na,y,0\n")
    assert rewards_of(read_groups(table, skip_bad_rows=True).groups[0]) == [1, 0]
    with pytest.raises(TaskError, match="line 1"):
        read_groups(put(tmp_path / "rows.jsonl", *BAD), skip_bad_rows=True)


WHOLE = json.dumps({"prompt": "a", "completion": "é"}, ensure_ascii=False)


@pytest.mark.parametrize("cut", [10, len(WHOLE.encode()) - 3])  # within a character, too
def test_the_torn_last_line_of_a_live_log_is_left_out_with_a_note(tmp_path: Path, cut: int) -> None:
    file = tmp_path / "live.jsonl"
    file.write_bytes(f"{WHOLE}\n{WHOLE}\n".encode() + WHOLE.encode()[:cut])
    found = read_groups(file)
    assert [len(group) for group in found.groups] == [2]
    assert "line 3" in found.facts.notes[0]
    with pytest.raises(TaskError, match="line 3"):  # what is trained on is whole
        wb.load_task(str(file))


@pytest.mark.parametrize(("lines", "named"), [([WHOLE, WHOLE[:20], WHOLE], "line 2"), ([WHOLE[:20]], "line 1")])
def test_a_torn_line_that_is_not_the_last_of_several_is_refused(tmp_path: Path, lines: list[str], named: str) -> None:
    with pytest.raises(TaskError, match=named):
        read_groups(put(tmp_path / "live.jsonl", "\n".join(lines)))
