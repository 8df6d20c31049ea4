"""Outcome rewards by rule: GSM8K's own notation, the GSM8K and Qwen3 recipes, Countdown, mathematical equality, shape.

Each function stands alone, so that its source runs when pasted into the page's editor.

- ``gsm8k_answer``: the authors' own check (Cobbe et al. 2021, https://github.com/openai/grade-school-math) reads the
  number behind ``####`` and compares texts without commas; their models' published answers end in ``A:`` instead.
- ``gsm8k_*``, the five rewards of the recipe that most GRPO tutorials train with, with its values and without its
  slips. A completion is to be ``<reasoning>…</reasoning><answer>…</answer>``; the data's answer is what follows
  ``####``. Where these differ from the recipe, its regular expressions are wrong: ``.`` stops at a line's end there, so
  that reasoning of two lines scores nothing; a repeated tag scores in full; a text that ends at ``</answer>`` without a
  newline is charged for its whole length.
- ``qwen3_*``, the rewards of the Qwen3-4B-Base recipe. A completion is
  ``<start_working_out>…<end_working_out><SOLUTION>…</SOLUTION>``, where the chat template has usually written the first
  tag already. The recipe's own expression takes the text of two solutions for one, and anything on the lines after the
  last tag for nothing; its answer check punishes a wrong number as unreadable where the right one is 0.
- ``countdown_equation``, TinyZero's reward for Countdown, a target to be reached with given numbers
  (https://github.com/Jiayi-Pan/TinyZero, ``verl/utils/reward_score/countdown.py``). That one reads ``<answer>`` tags in
  the last line alone, and takes ``1.5`` for the numbers 1 and 5; this one reads every mark and no decimals.
- ``math_equality``, judged by ``math-verify``. Comparing can take for ever (a tower of powers is enough). The library
  limits it by the clock on the wall, so that a busy machine gives other scores than a quiet one; here the limit is
  processor time. Only the main thread can have the signal that tells it, so the function runs in the sandbox, on
  its main thread and under its deadline.
"""


def gsm8k_answer(
    prompts: list[object],
    completions: list[str | list[dict[str, str]]],
    answer: list[object],
    **columns: object,
) -> list[float | None]:
    """1 if the number behind the last `####` or `A:` is that of the column `answer`, else 0.

    The column may be the bare number or a whole worked answer. How the number is written and a unit behind it do not
    matter. A row without an answer that is a number has no score.
    """
    from workbench.rewards.answers import final_answer, golds_of, is_right, log_extracted, read_number, spoken_texts

    claims = [final_answer(text, "gsm8k") for text in spoken_texts(completions, columns)]
    log_extracted(columns, claims)
    golds = [[gold for gold in golds_of(right) if read_number(gold) is not None] for right in answer]
    judged = [is_right(claim, right) for claim, right in zip(claims, golds, strict=True)]
    return [None if right is None else float(right) for right in judged]


def gsm8k_correctness(
    prompts: list[object],
    completions: list[str | list[dict[str, str]]],
    answer: list[object],
    **columns: object,
) -> list[float | None]:
    """2 if the text of the one `<answer>` tag equals the column `answer`, or what follows #### in it, else 0.

    Numbers are compared as numbers: 1,200 and $1200.0 are equal. A row without an answer has no score.
    """
    from workbench.rewards.answers import cleaned, is_right, log_extracted, spoken_texts, text_of_tag

    claims = [cleaned(text_of_tag(text, "answer")) or None for text in spoken_texts(completions, columns)]
    log_extracted(columns, claims)
    judged = [is_right(claim, right) for claim, right in zip(claims, answer, strict=True)]
    return [None if right is None else 2.0 * right for right in judged]


def gsm8k_integer(
    prompts: list[object], completions: list[str | list[dict[str, str]]], **columns: object
) -> list[float | None]:
    """0.5 if the text of the one `<answer>` tag is an integer (a sign and commas are allowed), else 0."""
    import re

    from workbench.rewards.answers import text_of_tag, texts_of

    integer = re.compile(r"\s*[+-]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)\s*")
    return [0.5 if integer.fullmatch(text_of_tag(text, "answer")) else 0.0 for text in texts_of(completions)]


def gsm8k_strict_format(
    prompts: list[object], completions: list[str | list[dict[str, str]]], **columns: object
) -> list[float | None]:
    """0.5 for the four tags, each once and on a line of its own, with text between them and none around, else 0."""
    from workbench.rewards.answers import is_filled, texts_of

    tags = ("<reasoning>", "</reasoning>", "<answer>", "</answer>")
    form = r"<reasoning>\n(.*)\n</reasoning>\n<answer>\n(.*)\n</answer>\n?"
    return [0.5 * is_filled(text, form, tags) for text in texts_of(completions)]


def gsm8k_soft_format(
    prompts: list[object], completions: list[str | list[dict[str, str]]], **columns: object
) -> list[float | None]:
    """0.5 for a text that begins with reasoning and then an answer in their tags, each tag once, else 0.

    Line breaks do not matter and text may follow, which `gsm8k_xml_count` charges for.
    """
    from workbench.rewards.answers import is_filled, texts_of

    tags = ("<reasoning>", "</reasoning>", "<answer>", "</answer>")
    form = r"\s*<reasoning>(.*)</reasoning>\s*<answer>(.*)</answer>.*"
    return [0.5 * is_filled(text, form, tags) for text in texts_of(completions)]


def gsm8k_xml_count(
    prompts: list[object], completions: list[str | list[dict[str, str]]], **columns: object
) -> list[float | None]:
    """0.125 for each of the four tags that is there once on its line, less 0.002 a character that follows; 0 to 0.5.

    The charge is 0.001 for each of the two answer tags that scored, as in the recipe; one closing newline is free.
    """
    from workbench.rewards.answers import texts_of

    scores: list[float | None] = []
    for text in texts_of(completions):
        score = 0.125 * (text.count("<reasoning>\n") == 1) + 0.125 * (text.count("\n</reasoning>\n") == 1)
        closed = text.count("\n</answer>") == 1
        after = len(text.split("\n</answer>")[1].removeprefix("\n")) if closed else 0
        score += (0.125 - 0.001 * after) * (text.count("\n<answer>\n") == 1)
        score += (0.125 - 0.001 * after) * closed
        scores.append(max(0.0, score))
    return scores


def qwen3_format_exact(
    prompts: list[object], completions: list[str | list[dict[str, str]]], **columns: object
) -> list[float | None]:
    """3 for working out and then a solution in their tags, each once and no text after, else 0.

    Space around is free. The tag that opens the working out may be left out: it is often part of the prompt.
    """
    from workbench.rewards.answers import is_filled, texts_of

    start, tags = "<start_working_out>", ("<end_working_out>", "<SOLUTION>", "</SOLUTION>")
    form = rf"\s*(?:{start})?((?:(?!{start}).)*)<end_working_out>\s*<SOLUTION>(.*)</SOLUTION>\s*"
    return [3.0 * (text.count(start) <= 1 and is_filled(text, form, tags)) for text in texts_of(completions)]


def qwen3_format_approximate(
    prompts: list[object], completions: list[str | list[dict[str, str]]], **columns: object
) -> list[float | None]:
    """0.5 for each of the last three tags that is there exactly once, −1 for each that is not: −3 to 1.5."""
    from workbench.rewards.answers import texts_of

    tags = ("<end_working_out>", "<SOLUTION>", "</SOLUTION>")
    return [sum(0.5 if text.count(tag) == 1 else -1.0 for tag in tags) for text in texts_of(completions)]


def qwen3_answer(
    prompts: list[object],
    completions: list[str | list[dict[str, str]]],
    answer: list[object],
    **columns: object,
) -> list[float | None]:
    """5 for the right solution, 3.5 if it is only written otherwise, 2 within 10 %, 1.5 within 20 %, else −2.5.

    −4.5 for a solution that should be a number and is none, −2 where there is not exactly one solution in its tags. A
    row without an answer has no score.
    """
    from workbench.rewards.answers import is_same, log_extracted, read_number, spoken_texts

    def score(answer: str, right: str) -> float:
        if answer == right:
            return 5.0
        if is_same(answer, right):
            return 3.5
        claimed, true = read_number(answer), read_number(right)
        if claimed is None or true is None:
            return -4.5
        if true.value == 0:
            return -2.5
        tenths = 10 * claimed.value / true.value
        return 2.0 if 9 <= tenths <= 11 else 1.5 if 8 <= tenths <= 12 else -2.5

    claims: list[str | None] = []
    for text in spoken_texts(completions, columns):
        _, _, behind = text.partition("<SOLUTION>")
        claim, closed, rest = behind.partition("</SOLUTION>")
        is_single = closed and "</SOLUTION>" not in rest.partition("<SOLUTION>")[2]
        claims.append(claim if is_single else None)
    log_extracted(columns, claims)
    return [
        None
        if right is None
        else -2.0
        if claim is None
        else max(score(claim, str(one)) for one in (right if isinstance(right, list) else [right]))
        for claim, right in zip(claims, answer, strict=True)
    ]


def countdown_equation(
    prompts: list[object],
    completions: list[str | list[dict[str, str]]],
    answer: list[object],
    *,
    format_score: float = 0.1,
    **columns: object,
) -> list[float | None]:
    """1 if the final answer is a sum that uses each of the row's numbers once and reaches its target.

    The column `answer` is `{"target": 98, "numbers": [44, 19, 35]}`, for which `(44 + 19) + 35` scores 1. Any other
    final answer scores `format_score`, and a completion without one 0. A row without target and numbers has no score.
    """
    import re

    from workbench.rewards.answers import final_answer, log_extracted, spoken_texts, work_out

    def reaches(claim: str, target: float, numbers: list[int]) -> bool:
        used = [int(number) for number in re.findall("[0-9]+", claim)]
        if sorted(used) != sorted(numbers) or not re.fullmatch(r"[0-9+\-*/()\s]+", claim):
            return False
        try:
            return work_out(claim) == target
        except (ValueError, ZeroDivisionError):
            return False

    claims = [final_answer(text) for text in spoken_texts(completions, columns)]
    log_extracted(columns, claims)
    scores: list[float | None] = []
    for claim, row in zip(claims, answer, strict=True):
        if not isinstance(row, dict) or not {"target", "numbers"} <= row.keys():
            scores.append(None)
        elif claim is None:
            scores.append(0.0)
        else:
            scores.append(1.0 if reaches(claim, row["target"], row["numbers"]) else format_score)
    return scores


def math_equality(
    prompts: list[object],
    completions: list[str | list[dict[str, str]]],
    answer: list[object],
    *,
    seconds: float = 1,
    **columns: object,
) -> list[float | None]:
    """1 if the completion's final answer is mathematically equal to the column `answer`, else 0, by math-verify.

    The final answer is read as `workbench.rewards.answers` has it; without any it is the last number or formula.
    Numbers with their units, options and words are compared as there. Of a list of right answers any counts. One that
    math-verify cannot read gives no score except to the same text, and one whose LaTeX breaks off gives none. An answer
    whose reading or comparing takes more than `seconds` of processor time is not equal.
    """
    from functools import partial

    from math_verify.errors import TimeoutException

    from workbench.rewards.answers import (
        breaks_off,
        call_limited,
        compare,
        find_formula,
        formulas_agree,
        golds_of,
        load_math_verify,
        log_extracted,
        read_formula,
        reasoning_and_answer,
        spoken_texts,
    )

    load_math_verify()  # else the first answer pays for it out of its own time
    limited = partial(call_limited, seconds, TimeoutException)

    def judge(claim: str, found: list[object], gold: str) -> bool | None:
        if breaks_off(gold):
            return None
        same = compare(claim, gold, rounded="." in claim + gold)
        equal = limited(formulas_agree, False, claim, found, gold) if same is None else same
        return False if equal is None and not {"\\", "$"} & set(gold) else equal

    scores: list[float | None] = []
    claims: list[str | None] = []
    for text, right in zip(spoken_texts(completions, columns), answer, strict=True):
        before, claim = reasoning_and_answer(text)
        found = [] if claim is None else limited(read_formula, [], claim)
        if claim is None and before == text:
            found = limited(find_formula, [], text)
            claim = str(found[-1]) if found else None
        claims.append(claim)
        judged = {judge(claim or "", found, gold) for gold in golds_of(right)}
        scores.append(1.0 if True in judged else 0.0 if False in judged else None)
    log_extracted(columns, claims)
    return scores


# --- the shape of a completion, whatever it says: its length, its repetitions, its thinking tags -------------------


def length_target(
    prompts: list[object],
    completions: list[str | list[dict[str, str]]],
    *,
    target_length: int = 50,
    **columns: object,
) -> list[float | None]:
    """Minus the distance of the completion's length in characters from the target: −|target − length|."""
    from workbench.rewards.answers import texts_of

    return [-abs(float(target_length) - len(text)) for text in texts_of(completions)]


def overlong(
    prompts: list[object],
    completions: list[str | list[dict[str, str]]],
    completion_ids: list[list[int]],
    *,
    max_completion_len: int = 128,
    soft_punish_cache: int = 32,
    **columns: object,
) -> list[float | None]:
    """0 up to a length in tokens, then falling to −1 over the last `soft_punish_cache` of `max_completion_len`."""
    over = [len(ids) - (max_completion_len - soft_punish_cache) for ids in completion_ids]
    return [0.0 if n <= 0 else -1.0 if n > soft_punish_cache else -n / soft_punish_cache for n in over]


def repetition(
    prompts: list[object],
    completions: list[str | list[dict[str, str]]],
    *,
    ngram_size: int = 3,
    max_penalty: float = -1.0,
    **columns: object,
) -> list[float | None]:
    """`max_penalty` times the share of the completion's word n-grams that are repeats of an earlier one."""
    from workbench.rewards.answers import texts_of

    scores: list[float | None] = []
    for text in texts_of(completions):
        words = text.lower().split()
        ngrams = [tuple(words[i : i + ngram_size]) for i in range(len(words) - ngram_size + 1)]
        scores.append(max_penalty * (1 - len(set(ngrams)) / len(ngrams)) if ngrams else 0.0)
    return scores


def think_format(
    prompts: list[object], completions: list[str | list[dict[str, str]]], **columns: object
) -> list[float | None]:
    """1 for thinking that ends with one `</think>` and an answer after it, else 0.

    `<think>` may stand at the start or be left out, because chat templates put it into the prompt.
    """
    from workbench.rewards.answers import is_filled, texts_of

    form = r"\s*(?:<think>)?((?:(?!<think>).)*)</think>((?:(?!<think>).)*)"
    return [1.0 * is_filled(text, form, ["</think>"]) for text in texts_of(completions)]
