"""How a prompt is put to the policy and leaves room, what ends a completion, what it thinks before it answers."""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from workbench.config import PromptSection, SamplingConfig
from workbench.credit import credit_group
from workbench.data import Task
from workbench.data.rows import Demonstration, Pair
from workbench.data.tasks import prompted
from workbench.errors import ConfigError, PolicyError
from workbench.policies.load import Policy
from workbench.policies.prompts import (
    StopStrings,
    arguments_of,
    check_template_kwargs,
    encode_prompt,
    prompt_record,
    thinking_open,
    turn_end_note,
)
from workbench.policies.sampler import sample_group
from workbench.rewards import score_group, split_group
from workbench.rundir.rollouts import Rollouts
from workbench.schema import Example, Group, Rollout, answer_span
from workbench.steps import StepPattern
from workbench.training.generation import within_context
from workbench.training.methods import RunConfig
from workbench.ui.handlers.sharing import can_sample_again
from workbench.views.heatmap import group_payload

TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: "
    "{% if enable_thinking is defined and enable_thinking %}<think>\n{% endif %}{% endif %}"
)
PROMPT = "Start with 3, subtract 3, add 2, add 7, multiply by 5.\n"
SHORT: dict[str, Any] = {"num_generations": 2, "max_completion_length": 40, "seed": 1}


@pytest.fixture(scope="module")
def chat() -> Policy:
    policy = wb.load_policy("tiny", device="cpu")
    policy.tokenizer.chat_template = TEMPLATE
    return policy


# -- the prompt -------------------------------------------------------------------------------------------------------


ASKED = [{"role": "user", "content": "2 + 2?"}]
TOLD = [{"role": "system", "content": "Be brief."}, *ASKED]


@pytest.mark.parametrize(
    ("settings", "prompt", "wanted"),
    [
        ({}, "2 + 2?", "2 + 2?"),
        ({}, ASKED, ASKED),
        ({"system": "Be brief."}, "2 + 2?", TOLD),
        ({"system": "Be brief."}, ASKED, TOLD),
        ({"system": "Never mind."}, TOLD, TOLD),  # a prompt's own system message stays
        ({"apply_template": "always"}, "2 + 2?", ASKED),
        ({"apply_template": "never"}, TOLD, "Be brief.\n\n2 + 2?"),
    ],
)
def test_a_prompt_is_put_as_its_section_says_and_twice_is_as_once(settings: Any, prompt: Any, wanted: Any) -> None:
    section = PromptSection.parse(settings)
    assert section.of(prompt) == wanted
    assert section.of(section.of(prompt)) == wanted


@pytest.mark.parametrize(
    ("text", "system", "wanted"),
    [
        ("2 + 2?", "", "user"),
        ("Write a poem.", "", "user"),
        ("Find $x$.", "Work in steps.", "system user"),
        ("What is 2 + 2", "Work in steps.", "system user"),
        ("What is 2 + 2", "", "text"),
        ("2 + 2 =", "Work in steps.", "text"),
        ("A long post.\nTL;DR:", "", "text"),
        ("Once upon a time, ", "", "text"),
        ("User: 2 + 2?\nAssistant: <think>", "Work in steps.", "text"),
        ("<|im_start|>user\n2 + 2?<|im_end|>", "", "text"),
    ],
)
def test_auto_puts_questions_through_the_template_and_leaves_texts_to_continue(text, system, wanted) -> None:
    prompt = PromptSection().of(text, has_template=True, system=system)
    assert ("text" if isinstance(prompt, str) else " ".join(message["role"] for message in prompt)) == wanted
    assert PromptSection().of(text, system=system) == text
    assert PromptSection(system="").of("Hi!", has_template=True, system="Work.") == [{"role": "user", "content": "Hi!"}]


def test_a_task_s_system_message_is_put_before_its_questions_where_the_policy_has_a_template(
    chat: Policy, tiny: Policy
) -> None:
    example = wb.load_task("gsm8k")[0]
    messages = sample_group(chat, example, **SHORT).prompt
    assert messages == [{"role": "system", "content": example.system}, {"role": "user", "content": example.prompt}]
    assert sample_group(tiny, example, **SHORT).prompt == example.prompt
    assert prompted(wb.load_task("gsm8k"), PromptSection(), has_template=True)[0].prompt == messages


def test_an_argument_that_the_template_does_not_read_is_refused() -> None:
    marked = "{% generation %}" + TEMPLATE + "{%- endgeneration -%}{% set inner = outer %}{{ inner }}"
    assert arguments_of(marked) == {"messages", "add_generation_prompt", "enable_thinking", "outer"}
    check_template_kwargs(TEMPLATE, {"enable_thinking": True})
    switches = PromptSection.parse({"template_kwargs": {"enable_thinking": "False", "effort": "low"}}).template_kwargs
    assert switches == {"enable_thinking": False, "effort": "low"}
    with pytest.raises(PolicyError, match=r"'enable_thinkin' .* 'enable_thinking'"):
        check_template_kwargs(TEMPLATE, {"enable_thinkin": True})


def test_a_group_records_its_prompt_so_that_it_can_be_sampled_again(chat: Policy) -> None:
    how = {**SHORT, "template_kwargs": {"enable_thinking": True}}
    group = sample_group(chat, Example(PROMPT), system="Be brief.", **how)
    assert group.prompt == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": PROMPT}]
    assert group.sampling["template_kwargs"] == {"enable_thinking": True}
    assert group.sampling["prompt_tail"] == "assistant: <think>\n"
    assert group.thinking_open
    assert can_sample_again(group)
    assert sample_group(chat, Example(group.prompt), **how).rollouts == group.rollouts
    other = sample_group(chat, Example(group.prompt), **SHORT)
    assert not other.thinking_open
    assert "template_kwargs" not in other.sampling
    assert thinking_open(chat.tokenizer, group.prompt, {"enable_thinking": True})


CHATML = "{% for m in messages %}{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


@pytest.mark.parametrize(
    ("template", "ends", "stop", "named"),
    [
        (CHATML, ["<|end|>"], (), "<|im_end|>"),
        (CHATML, ["<|end|>", "<|im_end|>"], (), None),  # generation_config.json lists both
        (CHATML, ["<|end|>"], ("<|im_end|>",), None),
        (TEMPLATE, ["<|end|>"], (), None),  # which ends a turn with a line break
        (TEMPLATE.replace("\n{% endfor", "{{ eos_token }}\n{% endfor"), ["<|end|>"], (), None),
    ],
)
def test_a_turn_that_ends_with_a_token_at_which_the_policy_does_not_stop_is_named(
    tiny: Policy, template: str, ends: list[str], stop: tuple[str, ...], named: str | None
) -> None:
    """As a base model's, whose template writes <|im_end|> and whose end token is <|endoftext|>."""
    tokenizer = deepcopy(tiny.tokenizer)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_end|>"]})
    tokenizer.chat_template = template
    ids = tokenizer.convert_tokens_to_ids(ends)
    record = prompt_record(tokenizer, ASKED, None, ids, stop)
    assert record.get("turn_end") == named
    assert ("<|im_end|>" in turn_end_note(record)) is bool(named)
    assert prompt_record(tokenizer, "2 + 2?", None, ids, stop) == {"chat_template": "unused"}


def test_a_task_s_rows_of_all_kinds_are_put_alike() -> None:
    messages = [{"role": "user", "content": "q"}]
    answer = [{"role": "assistant", "content": "a"}]
    task = Task(
        "t",
        [Example("q", {"answer": "1"})],
        [Example(messages)],
        data={"demonstrations": [Demonstration(messages, answer)], "pairs": [Pair("q", "a", "b")]},
    )
    told = prompted(task, PromptSection(system="s"))
    system = {"role": "system", "content": "s"}
    assert told.examples[0] == Example([system, *messages], {"answer": "1"})
    assert told.held_out[0].prompt == [system, *messages]
    assert told.data["pairs"][0] == Pair([system, *messages], "a", "b")
    joined = prompted(task, PromptSection(apply_template="never"))
    assert joined.data["demonstrations"][0] == Demonstration("q", "a")
    assert prompted(task, PromptSection(template_kwargs={"a": 1})) is task


# -- stop strings -----------------------------------------------------------------------------------------------------


def test_a_stop_string_ends_a_completion_with_its_own_tokens(tiny: Policy) -> None:
    whole = sample_group(tiny, Example(PROMPT), **SHORT)
    stopped = sample_group(tiny, Example(PROMPT), stop=["Step 3", "Step 2"], **SHORT)
    stops = ("Step 2", "Step 3")  # the second one skips a number
    for before, after, stop in zip(whole.rollouts, stopped.rollouts, stops, strict=True):
        assert (after.stop, after.finished, after.truncated) == (stop, False, False)
        assert after.text.endswith(stop)
        assert after.token_ids == before.token_ids[: len(after)]  # the same draws, cut short
        assert after.logprobs == before.logprobs[: len(after)]  # type: ignore[index]
    assert stopped.sampling["stop"] == ["Step 3", "Step 2"]
    assert [row["stop"] for row in group_payload(stopped)["rollouts"]] == ["Step 2", "Step 3"]
    assert "stop" not in whole.sampling


def test_the_tokens_of_a_stop_string_have_steps_and_advantages(tiny: Policy, tmp_path: Path) -> None:
    group = sample_group(tiny, Example(PROMPT), stop=["Step 2:", "Step 3:"], **SHORT)

    def by_step(prompts: Any, completions: Any, steps: Any, **_: Any) -> list[list[float]]:
        return [[float(2 * k + i) for k in range(len(row))] for i, row in enumerate(steps)]

    credit = credit_group(score_group(group, StepPattern(r"(?m)^Step \d+:"), [by_step]))
    for i, rollout in enumerate(group.rollouts):
        assert credit.scored.scored[i].spans[-1][1] == len(rollout) - 1  # the stop's tokens are the second step
        assert credit.of(i)[-1] != 0
    stored = Rollouts(tmp_path, "a")
    stored.write(1, [credit])
    assert stored.read(1)[0].scored.group.rollouts == group.rollouts
    assert Group.from_json(group.to_json()).rollouts == group.rollouts


class Bytes:
    """A tokenizer whose tokens are single bytes."""

    def decode(self, ids: list[int]) -> str:
        return bytes(ids).decode("utf-8", "replace")


def test_a_stop_string_is_found_across_tokens_and_inside_of_them() -> None:
    stops = StopStrings(Bytes(), ["é!"])
    ids = list("ça é!".encode())
    assert [stops.ends(ids[: n + 1]) for n in range(len(ids))] == [None] * (len(ids) - 1) + ["é!"]
    assert StopStrings(Bytes(), []).ends(ids) is None
    with pytest.raises(ConfigError, match="stop: an empty text would end every completion"):
        SamplingConfig.parse({"stop": ["x", ""]})


# -- thinking ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "opened", "answer"),
    [
        ("no block", False, "no block"),
        ("<think>a</think>b", False, "b"),
        ("a</think>b", True, "b"),
        ("cut off in it", True, ""),
        ("<think>cut off", False, ""),
        ("<think>a</think>b<think>c</think>d", False, "d"),
        ("<think>a</think>b<think>c", False, "b"),
    ],
)
def test_the_answer_is_what_follows_the_thinking(text: str, opened: bool, answer: str) -> None:
    start, end = answer_span(text, opened=opened)
    assert text[start:end] == answer


def test_thinking_left_out_is_in_no_step_and_unseen_by_rewards() -> None:
    texts = ["<think>Step 1: x\n</think>Step 1: a\nStep 2: b", "Step 1: c", "<think>Step 1: 7"]
    group = Group("q", tuple(Rollout(tuple(range(len(text) + 1)), (*text, "<end>"), finished=True) for text in texts))
    pattern = StepPattern(r"(?m)Step \d+:", leave_out_thinking=True)
    seen: dict[str, Any] = {}

    def steps_of(prompts: Any, completions: Any, steps: Any, **_: Any) -> list[list[float]]:
        seen.update(completions=completions, steps=steps)
        return [[1.0] * len(row) for row in steps]

    def outcome(prompts: Any, completions: Any, **_: Any) -> list[float]:
        return [float("7" in text) for text in completions]

    scored = score_group(group, pattern, [steps_of, outcome])
    assert seen["steps"] == [["Step 1: a\n", "Step 2: b"], ["Step 1: c"], []]
    assert seen["completions"] == ["Step 1: a\nStep 2: b", "Step 1: c", ""]
    assert [row.outcome for row in scored.scored] == [0.0, 0.0, 0.0]  # the 7 was only thought
    thought = len("<think>Step 1: x\n</think>")
    assert scored.scored[0].spans == ((thought, thought + 9), (thought + 10, thought + 19))  # its end token too
    assert [len(split.matches) for split in split_group(group, pattern)] == [2, 1, 0]
    with_thinking = score_group(group, StepPattern(pattern.regex), [steps_of]).scored
    assert [len(row.steps) for row in with_thinking] == [3, 1, 1]


# ── prompts that leave no room for an answer ─────────────────────────────────────────────────────────────────────────


BRIEF, LONG, ENDLESS = (Example("7 " * n) for n in (5, 50, 500))


def fitted(policy, task: Task, how: str = "refuse", answer: int = 100, **run: int) -> Task:
    data = {"task": {"name": "t", "long_prompts": how}, "run": run}
    config = RunConfig.parse({**data, "method": {"sampling": {"max_completion_length": answer}}})
    return within_context(task, policy, config, config.grpo.sampling, 1000)


def test_rows_with_room_for_an_answer_are_kept(random_policy) -> None:
    """The context is 128 tokens: an answer of 100 leaves 28 to a prompt, one of 10 leaves 118."""
    lengths = [len(encode_prompt(random_policy.tokenizer, example.prompt)) for example in (BRIEF, LONG, ENDLESS)]
    assert lengths[0] <= 28 < lengths[1] <= 118 < 128 < lengths[2]
    task = Task("t", [BRIEF, LONG, BRIEF], [BRIEF])
    assert fitted(random_policy, task, answer=10) is task
    skipped = fitted(random_policy, task, "skip")
    assert (skipped.examples, skipped.held_out) == ([BRIEF, BRIEF], [BRIEF])
    assert fitted(random_policy, replace(task, held_out=[ENDLESS, BRIEF]), "skip").held_out == [BRIEF]


def test_a_row_without_room_is_named_with_what_would_help(random_policy, capsys: pytest.CaptureFixture[str]) -> None:
    tokens = len(encode_prompt(random_policy.tokenizer, LONG.prompt))
    named = rf"1 of 2 training prompts have more than 28 tokens \(row 2 has {tokens}\).*max_completion_length \(100\)"
    with pytest.raises(ConfigError, match=named):
        fitted(random_policy, Task("t", [BRIEF, LONG], [BRIEF]))
    with pytest.raises(ConfigError, match=r"1 of 1 held-out prompts .*row 1 has"):
        fitted(random_policy, Task("t", [BRIEF], [ENDLESS]))
    with pytest.raises(ConfigError, match="1 of 2"):  # the second is the one that is measured
        fitted(random_policy, Task("t", [BRIEF], [BRIEF, ENDLESS]), eval_skip=1, eval_prompts=1, watch_prompts=0)
    with pytest.raises(ConfigError, match="2 of 2"):  # nothing would be left
        fitted(random_policy, Task("t", [ENDLESS, ENDLESS], [BRIEF]), "skip")
    fitted(random_policy, Task("t", [BRIEF, LONG], [BRIEF]), "skip")
    assert capsys.readouterr().out == "task.long_prompts: skipped 1 of 2 training rows\n"
