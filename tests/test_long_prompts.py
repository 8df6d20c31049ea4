"""Prompts that leave no room for an answer in the policy's context: refused or skipped before the first step."""

from dataclasses import replace

import pytest

from workbench.data import Task
from workbench.errors import ConfigError
from workbench.policies.prompts import encode_prompt
from workbench.schema import Example
from workbench.training.generation import within_context
from workbench.training.methods import RunConfig

SHORT, LONG, ENDLESS = (Example("7 " * n) for n in (5, 50, 500))


def fitted(policy, task: Task, how: str = "refuse", answer: int = 100, **run: int) -> Task:
    data = {"task": {"name": "t", "long_prompts": how}, "run": run}
    config = RunConfig.parse({**data, "method": {"sampling": {"max_completion_length": answer}}})
    return within_context(task, policy, config, config.grpo.sampling, 1000)


def test_rows_with_room_for_an_answer_are_kept(random_policy) -> None:
    """The context is 128 tokens: an answer of 100 leaves 28 to a prompt, one of 10 leaves 118."""
    lengths = [len(encode_prompt(random_policy.tokenizer, example.prompt)) for example in (SHORT, LONG, ENDLESS)]
    assert lengths[0] <= 28 < lengths[1] <= 118 < 128 < lengths[2]
    task = Task("t", [SHORT, LONG, SHORT], [SHORT])
    assert fitted(random_policy, task, answer=10) is task
    skipped = fitted(random_policy, task, "skip")
    assert (skipped.examples, skipped.held_out) == ([SHORT, SHORT], [SHORT])
    assert fitted(random_policy, replace(task, held_out=[ENDLESS, SHORT]), "skip").held_out == [SHORT]


def test_a_row_without_room_is_named_with_what_would_help(random_policy, capsys: pytest.CaptureFixture[str]) -> None:
    tokens = len(encode_prompt(random_policy.tokenizer, LONG.prompt))
    named = rf"1 of 2 training prompts have more than 28 tokens \(row 2 has {tokens}\).*max_completion_length \(100\)"
    with pytest.raises(ConfigError, match=named):
        fitted(random_policy, Task("t", [SHORT, LONG], [SHORT]))
    with pytest.raises(ConfigError, match=r"1 of 1 held-out prompts .*row 1 has"):
        fitted(random_policy, Task("t", [SHORT], [ENDLESS]))
    with pytest.raises(ConfigError, match="1 of 2 held-out prompts"):  # the second is the one that is measured
        fitted(random_policy, Task("t", [SHORT], [SHORT, ENDLESS]), eval_skip=1, eval_prompts=1, watch_prompts=0)
    with pytest.raises(ConfigError, match="2 of 2 training prompts"):  # nothing would be left
        fitted(random_policy, Task("t", [ENDLESS, ENDLESS], [SHORT]), "skip")
    fitted(random_policy, Task("t", [SHORT, LONG], [SHORT]), "skip")
    assert capsys.readouterr().out == "task.long_prompts: skipped 1 of 2 training rows\n"
