"""A watched row made by hand, for whoever draws or stores one."""

from dataclasses import replace

from tests.credits import make_rollout
from workbench.schema import Step, StepScores, TokenMeasure, WatchedRow, WatchedText

REWARD = TokenMeasure("reward", "implicit reward", "Σ reward", "blue: likelier", signed=True, additive=True)


def text(name: str, values: list[float], labels: tuple[float | None, float | None] = (None, None)) -> WatchedText:
    """Two steps of two tokens each, "s0 s1 " and "s2 s3 "; the whole text's reward is the sum of its tokens'."""
    scored = StepScores(
        steps=(Step(0, 6), Step(6, 12)),
        spans=((0, 1), (2, 3)),
        scores={},
        rewards=labels,
        outcome_scores={},
        outcome=None,
    )
    rollout = make_rollout([f"s{i} " for i in range(4)], finished=False)
    return WatchedText(name, rollout, scored, {"reward": tuple(values)}, {"implicit reward": sum(values)})


def pair(step: int, chosen: list[float], rejected: list[float]) -> WatchedRow:
    texts = text("chosen", chosen), text("rejected", rejected, (1.0, 0.0))
    return WatchedRow("2 + 2 = ?", texts, (REWARD,), {"margin": sum(chosen) - sum(rejected)}, step)


def before_and_now() -> WatchedRow:
    """Chosen: 0 in all tokens at step 0, and 0.5, 0.25, −0.125, 0 at step 30. Rejected: all 0, and −1 in its first."""
    now = pair(30, [0.5, 0.25, -0.125, 0.0], [-1.0, 0.0, 0.0, 0.0])
    return replace(now, before=pair(0, [0.0] * 4, [0.0] * 4))
