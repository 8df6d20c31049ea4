"""Pairs and demonstrations made of scored groups: by hand, through the command, and as a run's task."""

import json
from pathlib import Path
from typing import Any

import pytest

from workbench.cli import main
from workbench.config import SamplingConfig
from workbench.data import load_task
from workbench.data.kinds import Demonstration, Pair
from workbench.data.made import demonstrations_of, pairs_of, write_made
from workbench.policies.load import Policy
from workbench.policies.sampler import sample_groups
from workbench.schema import Example, Group, Rollout, ScoredGroup, StepScores


def rollout(text: str, finished: bool = True) -> Rollout:
    return Rollout(token_ids=(5, 1), texts=(text, "") if finished else (text, "…"), finished=finished)


def scored(*completions: tuple[str, float | None] | tuple[str, float | None, bool], **columns: Any) -> ScoredGroup:
    group = Group("7 + 5?", tuple(rollout(text, *finished) for text, _, *finished in completions), columns)
    scores = tuple(
        StepScores(steps=(), spans=(), scores={}, rewards=(), outcome_scores={}, outcome=outcome)
        for _, outcome, *_ in completions
    )
    return ScoredGroup(group, scores, ())


FIVE = scored(("a", 0.2), ("b", 1.0), ("c", 0.5), ("d", 0.9), ("e", 0.2), answer="12")


def test_pairs_by_hand() -> None:
    """Best over worst, second best over second worst: b over e and d over a; the middle one is in none."""

    def sides(made: Any) -> list[tuple[str, str]]:
        return [(row["chosen"], row["rejected"]) for row in made.rows]

    assert sides(pairs_of([FIVE], most=5)) == [("b", "e"), ("d", "a")]
    assert sides(pairs_of([FIVE], most=1)) == [("b", "e")]
    assert sides(pairs_of([FIVE], most=5, margin=0.75)) == [("b", "e")]  # 1.0 - 0.2, and 0.9 - 0.2 is less
    assert pairs_of([FIVE], most=1).rows == [
        {
            "prompt": "7 + 5?",
            "chosen": "b",
            "rejected": "e",
            "chosen_outcome": 1.0,
            "rejected_outcome": 0.2,
            "answer": "12",
        }
    ]


def test_ties_repeats_and_unfinished_completions_make_no_pair() -> None:
    tie = scored(("a", 1.0), ("b", 1.0))
    left_out = scored(("a", 1.0), ("b", 0.0, False), ("a ", 0.0), (" ", 0.0), ("c", None))
    made = pairs_of([tie, left_out], most=3)
    assert made.rows == []
    assert dict(made.counts) == {
        "groups": 2,
        "completions": 7,
        "groups without a pair": 2,
        "truncated completions": 1,
        "repeated completions": 1,
        "completions without text or outcome": 2,
        "pairs": 0,
    }


def test_demonstrations_are_the_right_completions() -> None:
    made = demonstrations_of([FIVE, scored(("a", 0.0))], most=2, threshold=0.5)
    assert [(row["completion"], row["outcome"]) for row in made.rows] == [("b", 1.0), ("c", 0.5)]
    assert (made.counts["demonstrations"], made.counts["groups without a demonstration"]) == (2, 1)
    assert [row["completion"] for row in demonstrations_of([FIVE], most=9).rows] == ["b"]


def test_a_task_is_kept_out_of_the_columns_that_say_a_rows_kind(tmp_path: Path) -> None:
    made = pairs_of([scored(("a", 1.0), ("b", 0.0), completion="x", labels=[1], question="y", start=7)], most=1)
    write_made(made, tmp_path / "pairs.jsonl", {})
    task = load_task(str(tmp_path / "pairs.jsonl"))
    assert list(task.rows("pairs")) == [Pair("7 + 5?", "a", "b")]
    assert task[0].columns["start"] == 7


def test_groups_do_not_depend_on_how_many_rows_are_sampled_at_once(random_policy: Policy) -> None:
    examples = [Example(f"Start with {i}, add 5.\n", {"i": i}) for i in range(5)]
    sampling = SamplingConfig(num_generations=2, max_completion_length=6)
    whole = list(sample_groups(random_policy, examples, sampling, seed=3))
    parts = list(sample_groups(random_policy, examples, sampling, seed=3, rows_at_once=4))
    ids = [[rollout.token_ids for rollout in group.rollouts] for group in whole]
    assert ids == [[rollout.token_ids for rollout in group.rollouts] for group in parts]
    assert [group.columns["i"] for group in parts] == [0, 1, 2, 3, 4]
    assert len({tuple(rows) for rows in map(tuple, ids)}) > 1


def test_the_commands_write_rows_that_a_run_can_have_as_its_task(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group = Group("Start with 7, add 5.\n", tuple(map(rollout, ("Answer: 12", "Answer: 13"))), {"answer": "12"})
    file = tmp_path / "group.json"
    file.write_text(json.dumps(group.to_json()))

    def made(command: str, *argv: str) -> Any:
        out = str(tmp_path / f"{command}.jsonl")
        assert main([command, "--out", out, "--group", str(file), "--json", *argv]) == 0
        return json.loads(capsys.readouterr().out)

    result = made("pairs", "--margin", "0.5")
    assert (result["rows"], result["counts"]["completions"]) == (1, 2)
    assert list(load_task(result["file"]).rows("pairs")) == [Pair(group.prompt, "Answer: 12", "Answer: 13")]
    provenance = json.loads(Path(result["provenance"]).read_text())
    assert provenance["rewards"] == [{"name": "answer_correctness", "kind": "outcome"}]
    assert provenance["policy"]["path"] == "tiny"
    assert provenance["completions_sampled"] == 0  # the group was there
    assert provenance["limits"] == {"per_group": 1, "margin": 0.5}
    assert len(provenance["sha256"]) == 64

    result = made("demonstrations")
    task = load_task(result["file"])
    assert (task.kind, list(task.rows("demonstrations"))) == (
        "demonstrations",
        [Demonstration(group.prompt, "Answer: 12")],
    )
    assert main(["pairs", "--out", result["file"], "--group", str(file)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert main(["pairs", "--out", str(tmp_path / "x"), "--reward", "step_correctness"]) == 2
    assert "'outcome' needs an outcome reward" in capsys.readouterr().err
