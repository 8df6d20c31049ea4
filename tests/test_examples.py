"""The programs of ``examples/`` in their smallest form, and the comparison of methods: what is counted and resumed."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import workbench as wb
from tests.stored_runs import store
from workbench import runs
from workbench.assets import load_example
from workbench.cli import main
from workbench.data import load_task
from workbench.data.made import mixed_of, provenance_of, write_made
from workbench.data.rows import Pair
from workbench.errors import ConfigError
from workbench.policies.step_values import StepValues, labelled_rows
from workbench.runs import MethodStages, compare, open_run
from workbench.runs.compare import ComparedMethod
from workbench.schema import Group, Rollout
from workbench.steps import StepPattern
from workbench.training.methods import RunConfig

pytestmark = pytest.mark.usefixtures("runs_here")


def stages_of(argv: list[str], capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    assert main([*argv, "--small", "--device", "cpu", "--json"]) == 0
    return list(json.loads(capsys.readouterr().out)["stages"])


@pytest.mark.training
def test_policy_and_reward_model_are_trained_in_turns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["iterative", "--workspace", str(tmp_path)]
    stages = stages_of(argv, capsys)
    names = ["policy-0", "learnt-0", "judge-0", "policy-1", "fresh-1", "learnt-1", "judge-1"]
    assert [stage["stage"] for stage in stages] == names
    measures = {"policy-0": "accuracy", "judge-0": "pair_accuracy", "policy-1": "accuracy", "judge-1": "pair_accuracy"}
    assert {s["stage"]: s["measure"] for s in stages if "measure" in s} == measures
    judged = open_run("iterative.policy-1", tmp_path)
    assert judged.config().grpo.beta == 0.04
    assert [origin.reference for origin in judged.config().origins] == [
        "run:iterative.policy-0",
        "run:iterative.judge-0",
    ]
    assert any(row.get("loss") for row in judged.metrics_rows()[0])  # the reward model's scores differ
    before = {run.name: run.status().updated for run in runs.list_runs(tmp_path)}
    assert stages_of(argv, capsys) == stages  # finished stages are passed by
    assert {run.name: run.status().updated for run in runs.list_runs(tmp_path)} == before


@pytest.mark.training
def test_steps_are_labelled_learnt_and_reinforced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels, judge, reinforced = stages_of(["prm", "--workspace", str(tmp_path)], capsys)
    written = [json.loads(line) for line in (tmp_path / "made" / "prm.labels.jsonl").read_text().splitlines()]
    assert labels["rows"] == len(written)
    assert all(0 <= label <= 1 for row in written for label in row["labels"])
    assert (judge["measure"], reinforced["measure"]) == ("step_accuracy", "accuracy")


@pytest.mark.training
def test_demonstrations_pairs_and_ppo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stages = stages_of(["rlhf", "--workspace", str(tmp_path)], capsys)
    assert [stage["stage"] for stage in stages] == ["taught", "compared", "judge", "reinforced"]


@pytest.mark.training
def test_groups_without_a_right_answer_train_unless_they_are_gated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stages = stages_of(["phantom", "--workspace", str(tmp_path), "--arms", "none,outcome"], capsys)
    assert [stage["stage"] for stage in stages] == ["none-0", "outcome-0"]
    open_, gated = (open_run(f"phantom.{stage['stage']}", tmp_path) for stage in stages)
    assert (open_.config().grpo.credit.gate, gated.config().grpo.credit.gate) == ("none", "outcome")
    assert any(row.get("phantom_share") for row in open_.metrics_rows()[0])
    assert any(row.get("gated_share") for row in gated.metrics_rows()[0])
    assert not any(row.get("phantom_share") for row in gated.metrics_rows()[0])


# -- methods on one budget ---------------------------------------------------------------------------------------------


@pytest.mark.training
def test_methods_are_compared_on_one_budget(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = [
        *("compare", "--methods", "dpo,grpo", "--seeds", "1", "--completions", "24", "--name", "it", "--json"),
        *("--workspace", str(tmp_path), "--run.eval_prompts", "2", "--run.device", "cpu"),
        *("--method.prompts_per_step", "2", "--method.sampling.num_generations", "4"),
    ]
    assert main(argv) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["method"], row["seed"], row["completions"], row["models"]) for row in rows] == [
        ("dpo", 0, 24, 2),
        ("grpo", 0, 24, 1),
    ]
    assert rows[0]["base_accuracy"] == rows[1]["base_accuracy"]  # the same prompts and draws
    trained = open_run("it.grpo.0.trained", tmp_path).config()
    assert (trained.run.steps, trained.grpo.credit.scheme, trained.optimiser.learning_rate) == (3, "outcome", 2e-4)


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The comparison of methods; its runs train nothing, and rows are made of nothing by functions of the same form."""
    program = load_example("compare_methods")

    def train_to_end(config: RunConfig, workspace: Path, report: Any) -> runs.Run:
        return store(workspace, **config.model_dump(exclude_unset=True), rows=[{"step": 1, "rollouts": 4}])

    def made_by(make: Callable[..., Any], config: RunConfig, file: Path, **options: Any) -> Any:
        signature(make).bind(config, file, **options)
        provenance_of(file).parent.mkdir(exist_ok=True)
        provenance_of(file).write_text(json.dumps({"completions_sampled": 8}))
        return SimpleNamespace(file=file)

    fakes = {name: partial(made_by, getattr(wb, name)) for name in ("make_pairs", "make_demonstrations", "label_steps")}
    fakes |= {"mix_rows": lambda fresh, replay, out, **_: SimpleNamespace(file=out), "train_to_end": train_to_end}
    for name, fake in fakes.items():
        monkeypatch.setattr(wb, name, fake)
    return program


def test_every_method_is_a_row_and_one_that_raises_has_its_reason(
    program: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    def broken(budget: Any) -> None:
        budget.nothing()

    monkeypatch.setitem(program.METHODS, "broken", broken)
    config = RunConfig(name="it", method={"prompts_per_step": 1, "sampling": {"num_generations": 4}})
    names = list(program.METHODS)
    rows = list(program.compare(config, names, 1, tmp_path, 240, tell=lambda line: None))
    assert [row.method for _, row in rows] == names
    problems = {stages.method: stages.problem for stages, _ in rows if stages.problem}
    assert problems == {"broken": "it.broken.0: AttributeError: 'Budget' object has no attribute 'nothing'"}
    stages = {stages.method: [stage.name for stage in stages.stages] for stages, _ in rows}
    assert stages["grpo-prm"] == ["it.grpo-prm.0.labels.jsonl", "it.grpo-prm.0.judge", "it.grpo-prm.0.trained"]
    assert stages["iterative"][-1] == "it.iterative.0.policy-2"
    [(few, row)] = program.compare(config, ["grpo"], 1, tmp_path, 2, tell=lambda line: None)
    assert (few.stages, row.final_accuracy) == ((), None)
    assert "too few" in few.problem


def stored(workspace: Path, seed: int, labels: int) -> MethodStages:
    """Labels, a reward model of them, and two runs, with what they would have written."""
    judge = {"name": "judge", "model": {"path": str(workspace), "format": "stepwise"}}
    rows = workspace / f"labels-{seed}.jsonl"
    made = {"completions_sampled": labels, "seconds": 8.0, "peak_memory_mb": 300.0}
    provenance_of(rows).write_text(json.dumps(made))
    name = f"it.prm.{seed}"
    learnt = {"step": 20, "auc": 0.9, "seconds": 5.0, "peak_memory_mb": 700.0}
    store(workspace, f"{name}.judge", [{"step": 0, "auc": 0.5}, learnt])
    first = [(0, 0.3), (2, 0.7), (4, 0.6)]
    store(
        workspace,
        f"{name}.first",
        [{"step": n, "rollouts": 48 * n, "accuracy": a, "seconds": 2.0 * n} for n, a in first],
        method={"rewards": [judge], "beta": 0.1},
    )
    second = [(0, 0.6), (1, 0.62)]
    measured = [{"step": n, "rollouts": 48 * n, "accuracy": a, "peak_memory_mb": 400.0 + n} for n, a in second]
    store(workspace, f"{name}.second", [*measured, {"step": 2, "rollouts": 96, "seconds": 3.5}])
    trained = tuple(open_run(f"{name}.{stage}", workspace) for stage in ("judge", "first", "second"))
    return MethodStages("prm", seed, (rows, *trained))


def test_completions_of_all_stages_are_counted_and_the_base_took_none(tmp_path: Path) -> None:
    """107 of the labels; then 4 and 2 steps of 48: 107 + 192 + 96 = 395. 0.7 was there after 107 + 96 = 203."""
    stages = stored(tmp_path, 4, 107)
    went = stages.course()
    assert went.measures == ((0, 0.3), (203, 0.7), (299, 0.6), (299, 0.6), (347, 0.62))
    assert went.curve() == ([0, 203, 299, 347], [0.3, 0.7, 0.6, 0.62])
    assert stages.course("auc").measures == ((0, 0.5), (107, 0.9))
    assert stages.summary() == ComparedMethod(
        method="prm",
        seed=4,
        base_accuracy=0.3,
        final_accuracy=0.62,
        completions=395,
        completions_to_65=203,
        peak_memory_mb=700.0,
        seconds=24.5,  # 8 + 5 + 8 + 3.5
        models=3,  # policy, reference and reward model of the first run
    )


def test_schemes_go_on_under_their_name_too(tmp_path: Path) -> None:
    """In its first life the fake run dies by SIGKILL after its fifth step."""
    config = RunConfig(name="it", task="save")
    start = partial(compare, seeds=1, workspace=tmp_path, module="tests.fake_run")
    assert [run.status().state for run, _ in start(config, ["process"])] == ["crashed"]
    assert [run.status().state for run, _ in start(config, ["process"])] == ["finished"]
    assert [run.status().state for run, _ in start(config, ["process"])] == ["finished"]
    with pytest.raises(ConfigError, match="it-process-0"):
        list(start(RunConfig(name="it", task="save", run={"steps": 5}), ["process"]))


# ── validation prompts, and what is sampled for labels ───────────────────────────────────────────────────────────────


def test_rows_of_a_file_are_measured_whichever_prompts_are(tmp_path: Path) -> None:
    """Of 30 pairs the last three are held out; prompts kept apart are the task's."""
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(f'{{"prompt": "{i}?", "chosen": "1", "rejected": "2"}}\n' for i in range(30)))
    own = RunConfig(method="dpo", task={"data": str(file)}, run={"eval_skip": 200, "eval_prompts": 2})
    assert [pair.prompt for pair in own.method.eval_rows(own)] == ["27?", "28?"]  # type: ignore[attr-defined]
    task = RunConfig(method="dpo", run={"eval_skip": 200, "eval_prompts": 2})
    rows = load_task("chain-arithmetic").rows("pairs", held_out=True)
    assert task.method.eval_rows(task) == [rows[200], rows[201]]  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="eval_skip"):
        task.run.measured(200)


def test_labels_end_once_enough_was_sampled() -> None:
    """A group of two completions with five continuations is seven: after two of them 14 were sampled."""
    rollout = Rollout(token_ids=(1,), texts=("yes",), finished=True)
    group, begun = Group("1?", (rollout, rollout)), list[int]()
    ones = ((1.0,), (1.0,))
    lines = StepPattern(r"\n", "ends")
    values = StepValues(ones, ones, ((2,), (2,)), ((1,), (2,)), None, 2, 0, 0.5, "f", lines, continuations=5)

    def valued() -> Iterator[tuple[Group, StepValues]]:
        for number in range(9):
            begun.append(number)
            yield group, values

    made = labelled_rows(valued(), estimation="soft", most=8)
    assert (begun, [row["labels"] for row in made.rows]) == ([0, 1], [[0.5], [1.0]] * 2)
    assert (made.counts["completions"], made.counts["continuations"]) == (4, 10)


def test_a_mix_replays_a_share_and_measures_on_fresh_rows(tmp_path: Path) -> None:
    """20 fresh rows and 10 % of the 27 training rows of 30 old ones: round(2.7) = 3 replayed; 23 rows, 2 held out."""

    def rows(name: str, count: int) -> Path:
        file = tmp_path / name
        row = '{{"prompt": "{0}?", "chosen": "{1} {0}", "rejected": "no"}}\n'
        file.write_text("".join(row.format(i, name) for i in range(count)))
        return file

    fresh, old = rows("fresh", 20), rows("old", 30)
    made = mixed_of(fresh, [old], 0.1, seed=1)
    assert dict(made.counts) == {"fresh rows": 20, "replayed rows": 3, "held-out rows": 2}
    assert made.rows == mixed_of(fresh, [old], 0.1, seed=1).rows
    assert made.rows != mixed_of(fresh, [old], 0.1, seed=2).rows
    write_made(made, tmp_path / "mix.jsonl", {})
    task = load_task(str(tmp_path / "mix.jsonl"))
    assert list(task.rows("pairs", held_out=True)) == [Pair(f"{i}?", f"fresh {i}", "no") for i in (18, 19)]
    trained = [pair.chosen for pair in task.rows("pairs")]
    assert sorted(trained) != trained
    replayed = {*trained} - {f"fresh {i}" for i in range(18)}
    assert (len(trained), len(replayed)) == (21, 3)
    assert replayed < {f"old {i}" for i in range(27)}, "what was measured on is not trained on"
