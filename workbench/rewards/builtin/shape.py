"""Rewards for the shape of a completion, whatever it says: its length, its repetitions, its thinking tags."""

from __future__ import annotations


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
