"""The reward functions that come with the workbench: ``BUILTINS`` lists them, ``find_builtin`` knows TRL's too.

``answers`` judges final answers, ``steps`` the work, ``shape`` neither; ``entry`` says what is known of a function.
"""

from __future__ import annotations

from workbench.errors import RewardCodeError, did_you_mean, shown
from workbench.rewards.builtin.answers import (
    countdown_equation,
    gsm8k_answer,
    gsm8k_correctness,
    gsm8k_integer,
    gsm8k_soft_format,
    gsm8k_strict_format,
    gsm8k_xml_count,
    math_equality,
    qwen3_answer,
    qwen3_format_approximate,
    qwen3_format_exact,
)
from workbench.rewards.builtin.entry import PREFIX, TRL_FUNCTIONS, Builtin, OptionValue, trl_function
from workbench.rewards.builtin.shape import length_target, overlong, repetition, think_format
from workbench.rewards.builtin.steps import (
    answer_correctness,
    answer_follows,
    calculator_notes,
    call_needed,
    call_parses,
    given_labels,
    given_reward,
    length_and_mistake,
    observation_used,
    step_correctness,
    tag_format,
    turns_penalty,
)

_NO_BOUND = float("inf")
_OURS = "chain-arithmetic task"
_GSM8K = "GSM8K GRPO recipe, https://gist.github.com/willccbb/4676755236bb08cab5f4e54a0475d6fb"
_COBBE = "GSM8K's own notation, Cobbe et al. 2021, https://github.com/openai/grade-school-math"
_FILE = "the imported file"
_TURNS = "calculator task"
_QWEN3 = "Qwen3-4B-Base GRPO recipe, https://docs.unsloth.ai/get-started/reinforcement-learning-rl-guide"

BUILTINS: dict[str, Builtin] = {
    builtin.name: builtin
    for builtin in (
        Builtin(
            "step_correctness",
            "step",
            step_correctness,
            "Chain arithmetic: 1 for a right step, else 0",
            0,
            1,
            _OURS,
            judged_by="judged by the line before",
        ),
        Builtin(
            "answer_correctness", "outcome", answer_correctness, "1 if the final answer is right, else 0", 0, 1, _OURS
        ),
        Builtin(
            "answer_follows",
            "outcome",
            answer_follows,
            "1 if the final answer is the last result before it, else 0",
            0,
            1,
            "agreement of reasoning and answer",
        ),
        Builtin(
            "tag_format", "outcome", tag_format, "0.5 for one reasoning and one answer in tags, else 0", 0, 0.5, _OURS
        ),
        Builtin(
            "length_and_mistake",
            "step",
            length_and_mistake,
            "0.01 a character, less 0.3 for the word mistake",
            -0.3,
            _NO_BOUND,
            "the articles' demonstration scorer",
        ),
        Builtin("gsm8k_correctness", "outcome", gsm8k_correctness, "2 if the <answer> is right, else 0", 0, 2, _GSM8K),
        Builtin("gsm8k_integer", "outcome", gsm8k_integer, "0.5 if the <answer> is an integer, else 0", 0, 0.5, _GSM8K),
        Builtin("gsm8k_strict_format", "outcome", gsm8k_strict_format, "0.5 for the tags line by line", 0, 0.5, _GSM8K),
        Builtin("gsm8k_soft_format", "outcome", gsm8k_soft_format, "0.5 for the tags in order", 0, 0.5, _GSM8K),
        Builtin("gsm8k_xml_count", "outcome", gsm8k_xml_count, "0.125 for each of four tags", 0, 0.5, _GSM8K),
        Builtin(
            "qwen3_format_exact", "outcome", qwen3_format_exact, "3 for working out and solution in tags", 0, 3, _QWEN3
        ),
        Builtin(
            "qwen3_format_approximate",
            "outcome",
            qwen3_format_approximate,
            "0.5 for each of three tags, −1 for each missing or repeated",
            -3,
            1.5,
            _QWEN3,
        ),
        Builtin(
            "qwen3_answer",
            "outcome",
            qwen3_answer,
            "5 right, 3.5 written otherwise, 2 or 1.5 near, else −2.5",
            -4.5,
            5,
            _QWEN3,
        ),
        Builtin(
            "length_target",
            "outcome",
            length_target,
            "−|target − length| in characters",
            -_NO_BOUND,
            0,
            "short-story recipe with SmolLM-135M, https://huggingface.co/learn/llm-course/chapter12/5",
        ),
        Builtin(
            "overlong",
            "outcome",
            overlong,
            "0, falling to −1 near the longest completion",
            -1,
            0,
            "DAPO, arXiv 2503.14476, equation 13",
        ),
        Builtin(
            "repetition",
            "outcome",
            repetition,
            "minus the share of repeated word n-grams",
            -1,
            0,
            "arXiv 2502.03373, appendix C.2; open-r1",
        ),
        Builtin(
            "think_format",
            "outcome",
            think_format,
            "1 for thinking that ends with </think> before the answer, else 0",
            0,
            1,
            "DeepSeek-R1, arXiv 2501.12948, section 2.2.2",
        ),
        Builtin(
            "math_equality",
            "outcome",
            math_equality,
            "1 if math-verify finds the answer equal, else 0",
            0,
            1,
            "math-verify, https://github.com/huggingface/Math-Verify",
            in_worker=True,
        ),
        Builtin(
            "countdown_equation",
            "outcome",
            countdown_equation,
            "1 for a sum of all numbers that reaches the target, 0.1 for another answer, else 0",
            0,
            1,
            "TinyZero, https://github.com/Jiayi-Pan/TinyZero",
        ),
        Builtin(
            "calculator_notes",
            "step",
            calculator_notes,
            "1 if a step's notes <<16-3=13>> are right, else 0",
            0,
            1,
            _COBBE,
        ),
        Builtin("call_parses", "step", call_parses, "1 if a turn's calls can be read, else 0", 0, 1, _TURNS),
        Builtin(
            "call_needed", "step", call_needed, "1 for a call that the answer needs, made once, else 0", 0, 1, _TURNS
        ),
        Builtin(
            "observation_used", "step", observation_used, "1 if a turn has the number it was told, else 0", 0, 1, _TURNS
        ),
        Builtin("turns_penalty", "step", turns_penalty, "−1 for each turn after the free ones", -1, 0, _TURNS),
        Builtin("gsm8k_answer", "outcome", gsm8k_answer, "1 if the number after #### or A: is right", 0, 1, _COBBE),
        Builtin(
            "given_reward",
            "outcome",
            given_reward,
            "Imported rollouts: the file's own reward",
            -_NO_BOUND,
            _NO_BOUND,
            _FILE,
        ),
        Builtin(
            "given_labels", "step", given_labels, "Imported rollouts: the file's own label of each step", 0, 1, _FILE
        ),
        *TRL_FUNCTIONS,
    )
}
"""Name → built-in reward function."""


def find_builtin(name: str) -> Builtin:
    """A built-in by name; ``trl:NAME`` is any function of ``trl.rewards``. Raises RewardCodeError for another name."""
    if name in BUILTINS:
        return BUILTINS[name]
    if name.startswith(PREFIX):
        return trl_function(name.removeprefix(PREFIX))
    raise RewardCodeError(
        f"no built-in reward is named {shown(name)}{did_you_mean(name, BUILTINS)}; choose one of "
        f"{', '.join(BUILTINS)}, or give its code",
        reward=name,
    )


__all__ = [
    "BUILTINS",
    "Builtin",
    "OptionValue",
    "answer_correctness",
    "find_builtin",
    "length_and_mistake",
    "step_correctness",
    "tag_format",
]
