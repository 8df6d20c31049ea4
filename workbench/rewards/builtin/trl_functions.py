"""The functions of ``trl.rewards``, by name: ``trl:accuracy_reward``.

This module does not import TRL. It writes the few lines that do, and they run in the reward worker, in a preview and in
a run alike; loading ``trl.rewards`` there takes a fraction of a second and no torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from workbench.errors import RewardCodeError
from workbench.rewards.builtin.entry import Builtin, OptionValue

PREFIX = "trl:"
_LINK = "https://huggingface.co/docs/trl/rewards"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,79}")

_PLAIN = '''def {name}(prompts, completions, completion_ids=None, **columns):
    """{about}"""
    from trl.rewards import {name} as score

    if "solution" not in columns and "answer" in columns:  # TRL's name for the right answer
        columns["solution"] = columns["answer"]
    chat = [[{{"role": "assistant", "content": text}}] if isinstance(text, str) else text for text in completions]
    return score(prompts=prompts, completions=chat, completion_ids=completion_ids, **columns)
'''
_MADE = '''def {short}(prompts, completions, completion_ids=None, *, {parameters}, **columns):
    """{about}"""
    from trl.rewards import {name}

    score = {name}({arguments})
    if "solution" not in columns and "answer" in columns:  # TRL's name for the right answer
        columns["solution"] = columns["answer"]
    chat = [[{{"role": "assistant", "content": text}}] if isinstance(text, str) else text for text in completions]
    return score(prompts=prompts, completions=chat, completion_ids=completion_ids, **columns)
'''


def trl_function(
    name: str,
    about: str = "",
    low: float = -float("inf"),
    high: float = float("inf"),
    options: Mapping[str, OptionValue] | None = None,
) -> Builtin:
    """The function ``name`` of ``trl.rewards`` as a built-in; ``options`` are the arguments of one that makes another.

    Raises RewardCodeError for what cannot be a function's name. Whether TRL has it, the worker finds out.
    """
    if not _NAME.fullmatch(name):
        raise RewardCodeError(
            f"'{PREFIX}{name[:80]}' names no function; write {PREFIX} and a name of trl.rewards, "
            f"{PREFIX}accuracy_reward for one"
        )
    about = about or f"TRL's {name}"
    if options:
        text = _MADE.format(
            name=name,
            short=name.removeprefix("get_"),
            about=about,
            parameters=", ".join(f"{key}={value!r}" for key, value in options.items()),
            arguments=", ".join(f"{key}={key}" for key in options),
        )
    else:
        text = _PLAIN.format(name=name, about=about)
    return Builtin(PREFIX + name, "outcome", None, about, low, high, f"trl.rewards.{name}, {_LINK}", True, text)


TRL_FUNCTIONS: tuple[Builtin, ...] = (
    trl_function("accuracy_reward", "TRL: 1 if math-verify finds the LaTeX answer equal to `solution`, else 0", 0, 1),
    trl_function(
        "reasoning_accuracy_reward",
        "TRL: the same for the text after </think>; 0 for reasoning that does not end",
        0,
        1,
    ),
    trl_function("think_format_reward", "TRL: 1 for reasoning in <think> tags from the start, else 0", 0, 1),
    trl_function(
        "get_cosine_scaled_reward",
        "TRL: right or wrong, scaled along a cosine of the length in tokens",
        -1,
        1,
        {
            "max_len": 128,
            "min_value_wrong": -1.0,
            "max_value_wrong": -0.5,
            "min_value_correct": 0.5,
            "max_value_correct": 1.0,
        },
    ),
    trl_function(
        "get_repetition_penalty_reward",
        "TRL: minus the share of repeated token n-grams",
        -1,
        0,
        {"ngram_size": 3, "max_penalty": -1.0},
    ),
    trl_function(
        "get_soft_overlong_punishment",
        "TRL: DAPO's overlong penalty in tokens",
        -1,
        0,
        {"max_completion_len": 128, "soft_punish_cache": 32},
    ),
)
