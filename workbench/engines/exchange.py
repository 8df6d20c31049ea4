"""The row that engines are checked against: a completion with its steps, its advantages and what the loss divides by.

``StepCredit`` is the row, ``docs/step-credit.schema.json`` its JSON schema. A file of them, a row a line, holds all of
what a credit is made of, so that anybody's advantages can be computed anew: ``recompute`` does, with numpy alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, ValidationError

from workbench.credit import GroupRewards, assign_batch, length_normalisers
from workbench.errors import CreditError, TaskError, cut
from workbench.schema import Credit

TOLERANCE = 1e-6
"""How far a number may be off that was computed in float32 from the same numbers."""


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class ScoredStep(_Row):
    """A step of a completion. A step that scored 0 and a token where no step ends are told apart by ``end``."""

    start: int
    """Index of its first token in ``ids``, from 0."""
    end: int
    """Index of its last token; tokens from ``start`` on that lie in no step have their own credit, mostly 0."""
    rewards: dict[str, float | None]
    """Each step reward function's score; null for unscored, which is not 0."""
    reward: float | None
    """What the scheme was given: their weighted sum, null where none scored it."""
    state: str = ""
    """What stands for the state in which it begins, for schemes that compare steps of equal ones."""


class StepCredit(_Row):
    """A completion with its credit. A batch is what ``normalise: batch`` compares, a group the completions of a prompt.

    The loss that is meant is -Σ divisor Σ_t advantages[t] · ratio_t, over all rows of a batch.
    """

    format: Literal["step-credit/1"] = "step-credit/1"
    batch: int
    group: int
    prompt: str | list[dict[str, str]]
    ids: list[int]
    """Token ids of the completion, as they were sampled."""
    mask: list[int] | None = None
    """1 for each token that the policy sampled, 0 for what a tool or an environment wrote; null for all sampled."""
    text: str
    finished: bool
    """Whether the last token is an end-of-sequence token."""
    steps: list[ScoredStep]
    outcome: float | None = None
    """The whole completion's reward; null where none scored it."""
    outcomes: dict[str, float | None] = {}
    """Each outcome reward function's score."""
    judged: float | None = None
    """What the outcome reward that judges answers gave, by which the option ``gate`` goes."""
    advantages: list[float]
    """A_t, one a token of ``ids``, float32; 0 where the mask is."""
    divisor: float
    """c_i, which the policy term of each of its tokens is multiplied by; 0 where the loss leaves the completion out."""
    scheme: str
    options: dict[str, Any] = {}
    """The scheme's options as they were used."""
    importances: list[float] | None = None
    """Of its tokens, where the option oar weighs by them."""


def rows_of(batch: int, credits: Sequence[Credit], loss_type: str, max_completion_length: int) -> Iterator[StepCredit]:
    """Yield the rows of a generation's groups."""
    rollouts = [rollout for credit in credits for rollout in credit.scored.group.rollouts]
    divisors = iter(
        length_normalisers(
            [rollout.policy_length for rollout in rollouts],
            loss_type,
            max_completion_length=max_completion_length,
            masked=[not is_counted for credit in credits for is_counted in credit.is_counted],
        ).tolist()
    )
    for number, credit in enumerate(credits):
        options = dict(credit.options)
        once = {name: bool(options.pop(name, False)) for name in ("drop_duplicates", "each_reward")}
        given = GroupRewards.of(credit.scored, **once)  # what these two make of the rewards is in the rows
        for i, (rollout, scored) in enumerate(zip(credit.scored.group.rollouts, credit.scored.scored, strict=True)):
            states = ["" if given.states is None else str(state) for state in (given.states or given.steps)[i]]
            steps = [
                ScoredStep(
                    start=given.starts[i][k],
                    end=given.ends[i][k],
                    rewards={name: scores[k] for name, scores in scored.scores.items()},
                    reward=given.steps[i][k],
                    state=states[k],
                )
                for k in range(len(given.ends[i]))
            ]
            importances = None if given.importances is None else given.importances[i]
            yield StepCredit(
                batch=batch,
                group=number,
                prompt=credit.scored.group.prompt,
                ids=list(rollout.token_ids),
                mask=None if rollout.mask is None else list(rollout.mask),
                text=rollout.text,
                finished=rollout.finished,
                steps=steps,
                outcome=None if given.outcomes is None else given.outcomes[i],
                outcomes=dict(scored.outcome_scores),
                judged=None if given.judged is None else given.judged[i],
                advantages=credit.of(i).tolist(),
                divisor=next(divisors),
                scheme=credit.scheme,
                options=options,
                importances=None if importances is None else list(importances),
            )


def write_rows(path: Path, rows: Iterator[StepCredit]) -> int:
    """Write a file of rows, which must not be there; how many there are."""
    count = 0
    with path.open("x", encoding="utf-8") as file:
        for row in rows:
            file.write(row.model_dump_json() + "\n")
            count += 1
    return count


def read_rows(path: Path) -> list[StepCredit]:
    """Read a file of rows. Raises TaskError, naming the line and the field, for what is none."""
    rows = []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                rows.append(StepCredit.model_validate_json(line))
            except ValidationError as error:
                fault = error.errors()[0]
                field = ".".join(map(str, fault["loc"]))
                raise TaskError(
                    f"line {number}: {field or 'the row'}: {cut(fault['msg'], 200)}; docs/step-credit.schema.json says "
                    "what a row is"
                ) from error
    return rows


def recompute(rows: Sequence[StepCredit]) -> list[npt.NDArray[np.float32]]:
    """Return the advantages that each row's own steps, rewards, scheme and options give, (T_i,) each."""
    advantages = []
    for _, batch in groupby(rows, key=lambda row: row.batch):
        members = [list(group) for _, group in groupby(batch, key=lambda row: row.group)]
        groups = [_rewards_of(group) for group in members]
        first = members[0][0]
        for group, assigned in zip(members, assign_batch(groups, first.scheme, **first.options), strict=True):
            advantages += [assigned[i, : len(row.ids)] for i, row in enumerate(group)]
    return advantages


def _rewards_of(rows: Sequence[StepCredit]) -> GroupRewards:
    outcomes = [row.outcome for row in rows]
    return GroupRewards(
        steps=[[step.reward for step in row.steps] for row in rows],
        starts=[[step.start for step in row.steps] for row in rows],
        ends=[[step.end for step in row.steps] for row in rows],
        lengths=[len(row.ids) for row in rows],
        outcomes=None if not any(row.outcomes for row in rows) else outcomes,
        masks=[row.mask for row in rows],
        token_ids=[row.ids for row in rows],
        finished=[row.finished for row in rows],
        states=[[step.state for step in row.steps] for row in rows],
        importances=[row.importances for row in rows],
        judged=[row.judged for row in rows],
    )


@dataclass(frozen=True)
class Difference:
    """The token of a completion whose two advantages are furthest apart; numbers from 0."""

    batch: int
    group: int
    completion: int
    token: int
    ours: float
    theirs: float

    @property
    def size(self) -> float:
        return abs(self.ours - self.theirs)


def compare(rows: Sequence[StepCredit], ours: Sequence[npt.NDArray[np.float32]]) -> list[Difference]:
    """Return the largest difference of each row's advantages from ``ours``, in the rows' order.

    Raises CreditError for a row with another number of advantages than tokens.
    """
    found, places = list[Difference](), dict[tuple[int, int], int]()
    for row, own in zip(rows, ours, strict=True):
        place = places[row.batch, row.group] = places.get((row.batch, row.group), -1) + 1
        if len(row.advantages) != len(own):
            raise CreditError(
                f"batch {row.batch}, group {row.group}, completion {place + 1}: {len(row.advantages)} advantages for "
                f"{len(own)} tokens; give one a token"
            )
        theirs = np.asarray(row.advantages, dtype=np.float32)
        token = int(np.abs(theirs - own).argmax()) if len(own) else 0
        pair = (float(own[token]), float(theirs[token])) if len(own) else (0.0, 0.0)
        found.append(Difference(row.batch, row.group, place, token, *pair))
    return found
