"""Reward functions that return the rewards and step labels of a data file.

The columns are those that ``rollouts`` gives to imported completions. Like every built-in each function stands alone.
"""

from __future__ import annotations


def given_reward(
    prompts: list[object],
    completions: list[str | list[dict[str, str]]],
    reward: list[float | None] | None = None,
    **columns: object,
) -> list[float | None]:
    """The number in the column `reward` of the data; None where there is none."""
    if reward is None:
        raise ValueError("the column 'reward' is missing; this reward is for imported rollouts that have one")
    return [None if value is None else float(value) for value in reward]


def given_labels(
    prompts: list[object],
    completions: list[str | list[dict[str, str]]],
    steps: list[list[str]],
    labelled_steps: list[list[str] | None] | None = None,
    labels: list[list[float | None] | None] | None = None,
    **columns: object,
) -> list[list[float | None]]:
    """The data's own label of each step: 1 right, 0 wrong, None where it has none.

    A step takes the label of the next of the data's own steps that has the same text, space around it apart; a step
    that the data does not have, because the pattern cuts otherwise, has no label.
    """
    if labelled_steps is None or labels is None:
        raise ValueError("the columns 'labelled_steps' and 'labels' are missing; this reward is for labelled steps")
    scored: list[list[float | None]] = []
    for texts, texts_labelled, values in zip(steps, labelled_steps, labels, strict=True):
        left = list(zip(texts_labelled or [], values or [], strict=True))
        scores: list[float | None] = []
        for text in texts:
            place = next((i for i, (labelled, _) in enumerate(left) if labelled.strip() == text.strip()), None)
            scores.append(None if place is None else left[place][1])
            left = left if place is None else left[place + 1 :]
        scored.append(scores)
    return scored
