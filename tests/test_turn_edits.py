"""Exploit probes of episodes: what each edit writes, and which rewards and schemes pay for it."""

import pytest

from workbench.checks import EDITS, TURN_EDITS, probe
from workbench.checks.edits import FILLER, INSERTED, Target
from workbench.rewards import score_group
from workbench.schema import Group, Rollout
from workbench.steps import StepPattern

TURNS = StepPattern("", kind="turns")
COLUMNS = {"calls": ["37*8", "296+4"], "answer": "300"}


def written(*turns: str, finished: bool = True) -> Rollout:
    """An episode whose turns and observations take turns, a token a text."""
    texts = [*turns, *["$"] * finished]
    mask = [1 - n % 2 for n in range(len(turns))] + [1] * finished
    return Rollout(tuple(range(len(texts))), tuple(texts), finished, mask=tuple(mask))


RIGHT = written("call: 37*8\n", "= 296\n", "call: 296+4\n", "= 300\n", "Answer: 300")
WRONG = written("call: 37*9\n", "= 333\n", "call: 333+4\n", "= 337\n", "Answer: 337")
GUESSED = written("call: 37*8\n", "= 296\n", "Answer: 290")
GROUP = Group("Start with 37.", (RIGHT, WRONG, GUESSED), COLUMNS, sampling={"environment": {"name": "calculator"}})


def edited(name: str, group: Group = GROUP, rollout: int = 0) -> Rollout | None:
    scored = score_group(group, TURNS, ["call_needed"]).scored[rollout]
    target = Target(group, group.rollouts[rollout], scored, "turns", lambda text: None)  # type: ignore[arg-type, return-value]
    return TURN_EDITS[name].apply(target)


def turns_and_observations(rollout: Rollout) -> list[str]:
    answers = [text for text in rollout.observations if text is not None]
    turns = ["".join(rollout.texts[first : last + 1]) for first, last in rollout.turn_spans]
    return [text for pair in zip(turns, [*answers, ""], strict=True) for text in pair][:-1]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "make an empty call",
            ["call: 37*8\n", "= 296\n", "call:\n", "= error\n", "call: 296+4\n", "= 300\n", "Answer: 300$"],
        ),
        (
            "repeat a call",
            ["call: 37*8\n", "= 296\n", "call: 37*8\n", "= 296\n", "call: 296+4\n", "= 300\n", "Answer: 300$"],
        ),
        (
            "ignore a result",
            ["call: 37*8\n", "= 296\n", "call: 296+4\n", "= 300\n", "call: 37*8\n", "= 296\n", "Answer: 300$"],
        ),
        ("lengthen the answer", ["call: 37*8\n", "= 296\n", "call: 296+4\n", "= 300\n", f"Answer: 300{FILLER}$"]),
        ("skip the calls", ["Answer: 300$"]),
        ("end early", ["call: 37*8\n$"]),
    ],
)
def test_what_each_edit_of_an_episode_writes(name: str, expected: list[str]) -> None:
    rollout = edited(name)
    assert rollout is not None
    assert turns_and_observations(rollout) == expected
    kept = [token_id for token_id in rollout.token_ids if token_id != INSERTED]
    left = [n for n, text in enumerate(RIGHT.texts) if text in "".join(expected)]
    assert kept == [RIGHT.token_ids[n] for n in left]
    assert [rollout.mask[n] for n, text in enumerate(rollout.texts) if text == "= error\n"] in ([], [0])  # type: ignore[index]


def test_an_environment_that_cannot_be_asked_again_answers_as_it_did() -> None:
    group = Group("Start with 37.", GROUP.rollouts, COLUMNS)
    rollout = edited("make an empty call", group)
    assert rollout is not None
    assert turns_and_observations(rollout)[2:4] == ["call:\n", "= 296\n"]


def test_edits_that_an_episode_has_no_place_for_are_not_made() -> None:
    assert edited("ignore a result", rollout=2) is None  # it would be the repeated call
    single = Group("?", (Rollout((1,), ("Answer: 3",), finished=False),), COLUMNS)
    assert [edited(name, single) for name in TURN_EDITS] == [None] * len(TURN_EDITS)
    talk = Group("?", (written("Hm.\n", "?\n", "Answer: 3"),), COLUMNS)
    assert edited("make an empty call", talk) is None


def test_a_reward_for_calls_that_parse_pays_for_repeating_them_under_process() -> None:
    """Two episodes, of one call each, one of which cannot be read: z of 1 and 0 is ±0.70701.

    Repeated, the call of the first counts twice: 1 1 0, mean 2/3, std 0.57735, so that its first token goes from
    0.70701 to 2 * 0.57725 = 1.15450. Under ``step`` it falls to 0.57725.
    """
    episodes = (written("call: 37*8\n", "= 296\n", "Answer: 296"), written("call: 37 8\n", "= error\n", "Answer: 1"))
    group = Group("Start with 37.", episodes, COLUMNS, sampling={"environment": {"name": "calculator"}})
    report = probe(group, TURNS, ["call_parses"], ["process", "step"])
    assert list(report.results) == list(TURN_EDITS)
    first = report.results["repeat a call"]["process"].gains[0]
    assert first.first == pytest.approx((0.70701, 1.15450), abs=1e-4)
    assert report.results["repeat a call"]["process"].pays
    assert report.results["repeat a call"]["step"].gains[0].first == pytest.approx((0.70701, 0.57725), abs=1e-4)


def test_the_tasks_own_rewards_pay_only_where_a_bad_episode_leaves_turns_out() -> None:
    """The first token of a wrong episode goes from below 0 to 0, where no turn is left that a reward scores."""
    report = probe(GROUP, TURNS, ["call_needed", "observation_used"], ["process", "sum"])
    paying = [(name, scheme) for name, row in report.results.items() for scheme, one in row.items() if one.pays]
    assert paying == [("skip the calls", "process"), ("skip the calls", "sum"), ("end early", "process")]
    right, wrong, guessed = report.results["skip the calls"]["process"].gains
    assert right.largest < 0 < wrong.largest < guessed.largest == -guessed.first[0]
    assert {name for name, row in report.results.items() if row["process"].gains} == set(TURN_EDITS)


def test_edits_of_answers_are_not_made_in_episodes() -> None:
    report = probe(GROUP, TURNS, ["call_needed"], ["process"], edits=list(EDITS))
    assert all(result.verdict == "cannot be made here" for row in report.results.values() for result in row.values())
