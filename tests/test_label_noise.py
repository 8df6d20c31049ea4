"""Step labels that are wrong for a share of the steps: which, how many, and always the same ones."""

import pytest

from workbench.errors import RewardError
from workbench.rewards.source import with_wrong_labels


def scorer(share: float, seed: int = 0):
    """The function as it runs: nothing but its own source is there."""
    config = with_wrong_labels("step_correctness", share, seed=seed)
    names: dict[str, object] = {}
    assert config.code is not None
    exec(config.code, names)
    return names[config.name]


def judged(share: float, seed: int = 0, prompts: int = 400) -> list[list[float | None]]:
    """Of 400 prompts `n + 1`, each answered by a right step, a right answer, and a line too many."""
    count = range(prompts)
    steps = [[f"Step 1: {n} + 1 = {n + 1}\n", f"Answer: {n + 1}\n", "and so on"] for n in count]
    columns = {"start": list(count), "operations": [[["+", 1]]] * prompts}
    return scorer(share, seed)([f"{n} + 1" for n in count], ["".join(row) for row in steps], steps, **columns)


def test_a_share_of_the_labels_is_turned_and_always_the_same_ones() -> None:
    assert judged(0.0) == [[1.0, 1.0, 0.0]] * 400
    assert judged(1.0) == [[0.0, 0.0, 1.0]] * 400
    noisy = judged(0.3)
    # 1,200 labels turned with probability 0.3: 360, with a standard deviation of sqrt(1200 * 0.3 * 0.7) = 15.9.
    turned = sum(label != right for row in noisy for label, right in zip(row, [1.0, 1.0, 0.0], strict=True))
    assert abs(turned - 360) < 4 * 15.9
    assert noisy == judged(0.3)
    assert noisy[:3] == judged(0.3, prompts=3)  # whatever stands beside it in the batch
    assert noisy != judged(0.3, seed=1)


def test_what_cannot_be_turned_is_refused() -> None:
    with pytest.raises(RewardError, match="'answer_correctness' scores no steps from 0 to 1"):
        with_wrong_labels("answer_correctness", 0.1)
    with pytest.raises(RewardError, match=r"share is 1\.5; give the part"):
        with_wrong_labels("step_correctness", 1.5)
