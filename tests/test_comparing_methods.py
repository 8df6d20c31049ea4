"""Methods compared on one budget: recipes and what is laid over them, what is counted, and resuming a comparison.

Pipelines are carried out with ``fake_stage``'s runs and rows; the notebook of the comparison trains for real.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.fake_stage import DEATHS
from tests.stored_runs import store
from workbench import display, runs
from workbench.cli import main
from workbench.config import RunConfig
from workbench.display.comparing import RunComparison
from workbench.errors import ConfigError, RunError
from workbench.policies.step_values import StepValues, labelled_rows
from workbench.rundir import RunDir
from workbench.rundir.environment import peak_memory_mb
from workbench.runs.check import checked
from workbench.runs.compare import ComparedMethod, compare, compare_methods, course, summarise_method
from workbench.runs.pipelines import Pipeline, Plan, read_plan
from workbench.runs.pipelines.check import check_plan
from workbench.runs.recipes import COMPLETIONS, amount, laid_over, load_recipe, recipes
from workbench.schema import Group, Rollout
from workbench.tasks import load_task
from workbench.tasks.made import provenance_of

pytestmark = pytest.mark.usefixtures("warm_fake_runs")

FAKE = "tests.fake_stage"
OUTCOME = {"name": "answer_correctness", "kind": "outcome"}


def written(folder: Path, *stages: dict[str, Any], name: str = "mine") -> Path:
    """A recipe in a file of its own."""
    file = folder / f"{name}.yaml"
    file.write_text(json.dumps({"name": name, "stages": stages}))
    return file


def sampled(plan: Plan) -> list[int]:
    return [found.completions for stage in plan.stages if (found := amount(stage)) is not None]


# ── recipes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_shipped_recipe_samples_the_same_number_and_passes_the_check(tmp_path: Path) -> None:
    assert list(recipes()) == ["dpo", "grpo", "grpo-prm", "grpo-process", "iterative", "ppo", "ppo-steps", "sft"]
    for name in recipes():
        plan = load_recipe(name, RunConfig())
        assert (plan.name, sum(sampled(plan))) == (name, COMPLETIONS)
        assert plan.about
        check_plan(plan, tmp_path)


@pytest.mark.parametrize(
    ("recipe", "completions", "each", "steps"),
    [
        # 100 = 2 * 48 + 4: the last batch would be one over.
        ("grpo", 100, [96], [2]),
        # Half of 60 prompts, 20 steps, 60 prompts; 1440 - 240 - 480 - 240 = 480 are 10 batches. Runs on rows: half.
        ("iterative", 1440, [240, 480, 240, 480], [20, 10, 10, 10]),
        # A third: 480 for labels, and what is left, 480, is 10 batches.
        ("grpo-prm", 960, [480, 480], [20, 10]),
        ("sft", 5760, [5760], [120]),
    ],
)
def test_a_budget_makes_every_stage_longer_or_shorter(
    recipe: str, completions: int, each: list[int], steps: list[int]
) -> None:
    plan = load_recipe(recipe, RunConfig(), completions)
    assert sampled(plan) == each
    assert [stage.config.run.steps for stage in plan.stages if stage.is_run and stage.config is not None] == steps


def test_the_base_configuration_is_laid_over_every_stage() -> None:
    base = RunConfig.parse(
        {
            "seed": 3,
            "policy": {"path": "other", "lora": {"r": 4}},
            "task": "chain-arithmetic-tags",
            "method": {"name": "ppo", "sampling": {"temperature": 0.7, "max_completion_length": 99}, "kl_coef": 0.5},
            "optimiser": {"learning_rate": 0.001},
            "run": {"eval_skip": 200, "device": "cpu"},
        }
    )
    stages = {stage.name: stage for stage in load_recipe("iterative", base).stages}
    configs = {name: stage.config for name, stage in stages.items() if stage.config is not None}
    assert {name: config.seed for name, config in configs.items()} == {
        **dict.fromkeys(("learnt-0", "judge-0", "policy-1", "judge-1"), 3),
        **dict.fromkeys(("fresh-1", "policy-2"), 1003),  # whose own seed is 1
    }
    assert stages["learnt-1"].options.seed == 3  # type: ignore[union-attr]
    assert {name: config.policy.path for name, config in configs.items()} == {
        **dict.fromkeys(("learnt-0", "judge-0", "policy-1"), "other"),
        **dict.fromkeys(("fresh-1", "policy-2"), "run:policy-1"),
        "judge-1": "run:judge-0",
    }
    assert {config.task.name for config in configs.values()} == {"chain-arithmetic-tags"}
    first, judge = configs["policy-1"], configs["judge-0"]
    sampling = first.sampled.sampling
    assert (sampling.temperature, sampling.max_completion_length, sampling.num_generations) == (0.7, 99, 8)
    assert (first.policy.lora.r, configs["policy-2"].policy.lora) == (4, None)  # type: ignore[union-attr]
    assert (first.optimiser.learning_rate, judge.optimiser.learning_rate) == (0.001, 0.0005)
    assert (first.run.eval_skip, judge.run.eval_skip, first.run.device, judge.run.device) == (200, 0, "cpu", "cpu")
    assert judge.task.data == "data:learnt-0"
    ppo = load_recipe("ppo", base).stages[0].config
    assert ppo is not None
    assert (ppo.method.kl_coef, ppo.sampled.rewards[0].name) == (0.5, "answer_correctness")  # type: ignore[attr-defined]


RUN = {"name": "a", "run": {"method": {"rewards": [OUTCOME], "credit": {"scheme": "outcome"}}}}
LABELS = {"name": "l", "labels": {"prompts": 9}}


@pytest.mark.parametrize(
    ("stages", "completions", "message"),
    [
        ([RUN], 47, r"mine: 47 completions are too few: stage 'a' would sample none; give at least 48 \("),
        ([{"name": "a", "run": {"method": "sft"}}], 960, "mine: no stage samples completions, so there is no budget"),
        ([LABELS, RUN], 960, r"mine: stage 'l': labels\.completions: how many continuations are sampled depends on"),
        (
            [{"name": "a", "run": {"method": {"rewards": [{"name": "m", "monte_carlo": {}}]}}}],
            960,
            "mine: stage 'a': what a monte_carlo reward samples is not counted",
        ),
        (
            [{"name": "a", "run": {"method": {"resample_flat": 2}}}],
            960,
            r"mine: stage 'a': method\.resample_flat: groups that are replaced are not counted; set it to 0",
        ),
        ([{"name": "a", "run": {"run": {"eval_every": 0}}}], 960, r"mine: stage 'a': run\.eval_every: 0 measures no"),
        ([{"name": "a", "pairs": {}}], 960, "mine: no stage trains a policy"),
        (
            [{"name": "a", "pairs": {}}, {"name": "b", "run": {"method": "dpo", "task": {"data": "data:a"}}}],
            8,  # one prompt with one pair
            "mine: stage 'b': 1 row at most is made to train on, and held out; give more completions",
        ),
        (
            [{"name": "b", "demonstrations": {"first": 99_990, "prompts": 120}}, RUN],
            3840,
            "mine: stage 'b' samples prompts 99,990 to 100,109 and task 'chain-arithmetic' has 100,000",
        ),
    ],
)
def test_a_recipe_that_could_not_be_compared_is_refused(
    tmp_path: Path, stages: list[dict[str, Any]], completions: int, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load_recipe(written(tmp_path, *stages), RunConfig(), completions)


def test_everything_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    start = partial(compare_methods, seeds=1, workspace=tmp_path, module=FAKE, maker=FAKE)
    with pytest.raises(ConfigError, match=r"there is no file 'gprpo'; did you mean 'grpo'\?"):
        list(start(RunConfig(), ["grpo", "gprpo"]))
    with pytest.raises(ConfigError, match=r"run\.steps: 5 steps are no budget .* \(--completions\)"):
        list(start(RunConfig(run={"steps": 5}), ["grpo"]))
    with pytest.raises(ConfigError, match="grpo: two recipes have this name"):
        list(start(RunConfig(), ["grpo", written(tmp_path, RUN, name="grpo")]))
    with pytest.raises(ConfigError, match="without a dot"):
        list(start(RunConfig(), [written(tmp_path, RUN, name="gr.po")]))
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "1?"}\n' * 20)
    with pytest.raises(ConfigError, match=r"grpo: task .* has no answers, so that no accuracy can be compared"):
        list(start(RunConfig(task=str(rows)), ["grpo"]))
    with pytest.raises(ConfigError, match="no task or file called 'chain-arithmetik'; did you mean"):
        list(start(RunConfig(task="chain-arithmetik"), ["grpo"]))
    with pytest.raises(ConfigError, match=r"grpo-process: stage trained: reward 'step_correctness' needs the column"):
        list(compare_methods(RunConfig(task="gsm8k"), ["grpo-process"], 1, tmp_path))
    assert {path.name for path in tmp_path.iterdir()} <= {"grpo.yaml", "gr.po.yaml", "rows.jsonl"}


# ── what a pipeline came to ──────────────────────────────────────────────────────────────────────────────────────────


def stored(workspace: Path, name: str = "it.prm.4", labels: int = 107) -> Pipeline:
    """Labels, a reward model of them, and two runs, with what they would have written; the last was never begun."""
    judge = {"name": "judge", "model": {"path": "run:judge", "format": "stepwise"}}
    stages = [
        {"name": "labels", "labels": {"completions": 100}},
        {"name": "judge", "run": {"method": "prm", "task": {"data": "data:labels"}}},
        {"name": "first", "run": {"method": {"rewards": [judge], "beta": 0.1}}},
        {"name": "second", "run": {"policy": "run:first", "method": {"rewards": [judge]}}},
        {"name": "third", "run": {"policy": "run:second"}},
    ]
    plan = read_plan({"stages": stages}, "prm")

    def fill(draft: Path) -> None:
        (draft / "pipeline.yaml").write_text(plan.to_yaml())
        (draft / "stages").mkdir()
        (draft / "data").mkdir()

    pipeline = Pipeline(RunDir.make(workspace / "pipelines", name, fill, len(stages)).path)
    made = {"completions_sampled": labels, "seconds": 8.0, "peak_memory_mb": 300.0}
    provenance_of(pipeline.file_of("labels")).write_text(json.dumps(made))
    took = {"seconds": 5.0, "peak_memory_mb": 700.0}
    store(workspace, f"{name}.judge", [{"step": 0, "auc": 0.5}, {"step": 20, "auc": 0.9, **took}])
    first = [(0, 0.3), (2, 0.7), (4, 0.6)]
    rows = [{"step": n, "rollouts": 48 * n, "accuracy": a, "seconds": 2.0 * n} for n, a in first]
    store(workspace, f"{name}.first", rows)
    second = [(0, 0.6), (1, 0.62)]
    rows = [{"step": n, "rollouts": 48 * n, "accuracy": a, "peak_memory_mb": 400.0 + n} for n, a in second]
    store(workspace, f"{name}.second", [*rows, {"step": 2, "rollouts": 96, "seconds": 3.5}])
    return pipeline


def test_completions_of_all_stages_are_counted_and_the_base_took_none(tmp_path: Path) -> None:
    """107 of the labels; then 4 and 2 steps of 48: 107 + 192 + 96 = 395. 0.7 was there after 107 + 96 = 203."""
    pipeline = stored(tmp_path)
    went = course(pipeline)
    assert went.measures == ((0, 0.3), (203, 0.7), (299, 0.6), (299, 0.6), (347, 0.62))
    assert went.curve() == ([0, 203, 299, 347], [0.3, 0.7, 0.6, 0.62])
    assert course(pipeline, "auc").measures == ((0, 0.5), (107, 0.9))
    assert summarise_method(pipeline) == ComparedMethod(
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
    with pytest.raises(RunError, match=r"'it' is of no comparison, whose pipelines are called NAME\.METHOD\.SEED"):
        summarise_method(Pipeline(tmp_path / "pipelines" / "it"))


def test_curves_are_by_completions_and_a_seeds_last_value_holds_until_its_next(tmp_path: Path) -> None:
    """The second seed labelled with 10 completions more: where one has a value the other's last one stands."""
    compared = RunComparison.of([stored(tmp_path), stored(tmp_path, "it.prm.5", labels=117)])
    (line,) = compared.lines()
    assert (line.label, line.x) == ("prm", [0, 203, 213, 299, 309, 347, 357])
    assert line.low == [0.3, 0.3, 0.7, 0.6, 0.6, 0.6, 0.62]
    assert line.high == [0.3, 0.7, 0.7, 0.7, 0.6, 0.62, 0.62]
    assert compared.charts().charts[0].x_label == "completions sampled"
    assert compared.frame()[["method", "seed", "completions_to_65"]].values.tolist() == [
        ["prm", 4, 203],
        ["prm", 5, 213],
    ]
    assert compared.by_method("completions").loc["prm"].tolist() == [2, 400, 395, 405]
    with pytest.raises(ValueError, match="no method has 'kl' at any step"):
        compared.lines("kl")
    assert "completions_to_65" in display.text(compared).splitlines()[0]


# ── carried out ──────────────────────────────────────────────────────────────────────────────────────────────────────


def own_recipe(folder: Path) -> Path:
    pairs = {"name": "own", "pairs": {"prompts": 60, "per_group": 4, "rewards": [OUTCOME]}}
    dpo = {"method": {"name": "dpo", "batch_size": 4}, "task": {"data": "data:own"}}
    return written(folder, pairs, {"name": "trained", "run": {**dpo, "run": {"steps": 4, "save_every": 2}}})


def test_a_comparison_that_was_stopped_goes_on_under_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run of the first recipe is killed after its save at step 2; given again, the command resumes that alone."""
    monkeypatch.setattr(runs, "compare_methods", partial(compare_methods, module=FAKE, maker=FAKE))
    (tmp_path / DEATHS).write_text(json.dumps({"who": "trained", "step": 3}))
    argv = ["compare", "--methods", f"{own_recipe(tmp_path)}, grpo", "--seeds", "1", "--completions", "480"]
    argv += ["--name", "it", "--workspace", str(tmp_path)]
    assert main([*argv, "--json"]) == 1
    printed = capsys.readouterr()
    rows = json.loads(printed.out)["rows"]
    columns = ["method", "seed", "base_accuracy", "final_accuracy", "completions", "completions_to_65"]
    assert all(list(row)[:8] == [*columns, "peak_memory_mb", "seconds"] for row in rows)
    assert [list(row.values())[:5] for row in rows] == [["mine", 0, 0.25, 0.25, 0], ["grpo", 0, 0.25, 0.5, 0]]
    said = [line for line in printed.err.splitlines() if "  step " not in line]
    assert [line.partition(" 20 rows")[0] for line in said] == [
        "it.mine.0: own finished:",
        "it.mine.0: trained crashed: accuracy 0.250 → 0.250: killed by signal 9 (SIGKILL), as the system does when "
        "memory runs out, at step 2 of 4",
        "it.mine.0: failed, stage trained crashed: killed by signal 9 (SIGKILL), as the system does when memory runs "
        "out, at step 2 of 4",
        "it.grpo.0: trained finished: accuracy 0.250 → 0.500",
        "it.grpo.0: finished, 1 stage",
    ]
    assert main(argv) == 0
    printed = capsys.readouterr()
    said = [line for line in printed.err.splitlines() if "  step " not in line]
    assert said == [
        "it.mine.0: failed before, and goes on",
        "it.grpo.0: finished before",
        "it.mine.0: trained finished: accuracy 0.250 → 0.500",
        "it.mine.0: finished, 2 stages",
        "it.grpo.0: finished, 1 stage",
    ]
    lines = printed.out.splitlines()
    assert [line.split()[:4] for line in lines[1:4]] == [
        ["mine", "0", "0.250", "0.500"],
        ["grpo", "0", "0.250", "0.500"],
        ["mine", "mean", "(0", "of"],
    ]
    assert runs.open_run("it.mine.0.trained", tmp_path).status().resumed_from == 2
    assert main([*argv, "--policy.lora.r", "4"]) == 2
    assert "comparison 'it' was made with other settings: pipeline 'it.mine.0' is there" in capsys.readouterr().err
    assert main([*argv, "--reward", "answer_correctness"]) == 2
    assert "the rewards of --methods are their recipes' own" in capsys.readouterr().err
    assert main(["compare", "--completions", "480"]) == 2
    assert "--completions is the budget of --methods" in capsys.readouterr().err


def test_schemes_go_on_under_their_name_too(tmp_path: Path) -> None:
    told: list[str] = []
    config = RunConfig(name="it", run={"save_every": 2, "steps": 4})
    start = partial(compare, seeds=1, workspace=tmp_path, tell=told.append, module=FAKE)
    (tmp_path / DEATHS).write_text(json.dumps({"who": "it-process-0", "step": 3}))
    ended = [run.status().state for run, _ in start(config, ["outcome", "process"])]
    assert (ended, told) == (["finished", "crashed"], [])
    rows = [(row.scheme, row.final_accuracy) for _, row in start(config, ["outcome", "process"])]
    assert told == ["it-outcome-0: finished before", "it-process-0: crashed before, and goes on"]
    assert rows == [("outcome", 0.5), ("process", 0.5)]
    with pytest.raises(ConfigError, match="run 'it-outcome-0' is there and differs; give this one another name"):
        list(start(RunConfig(name="it", run={"save_every": 2, "steps": 5}), ["outcome"]))


def test_a_recipe_with_code_of_its_own_is_shown_and_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = "def mine(completions, **k): return [0.0] * len(completions)"
    method = {"rewards": [{"name": "mine", "kind": "outcome", "code": code}], "credit": {"scheme": "outcome"}}
    file = written(tmp_path, {"name": "a", "run": {"method": method}})
    assert main(["compare", "--methods", str(file), "--workspace", str(tmp_path)]) == 2
    assert "mine, stage a, brings code that was not run here before ('mine')" in capsys.readouterr().err
    assert not (tmp_path / "pipelines").exists()


def test_laying_over_keeps_what_is_a_recipes_own() -> None:
    (stage,) = laid_over(
        read_plan({"stages": [RUN]}, "p"), RunConfig(method={"credit": {"scheme": "step"}, "beta": 0.5})
    ).stages
    assert stage.config is not None
    assert (stage.config.grpo.credit.scheme, stage.config.grpo.beta) == ("outcome", 0.5)


# ── validation prompts, and what is sampled for labels ───────────────────────────────────────────────────────────────


def test_rows_of_a_file_are_measured_whichever_prompts_are(tmp_path: Path) -> None:
    """Of 30 pairs the last three are held out; prompts kept apart are the task's."""
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(f'{{"prompt": "{i}?", "chosen": "1", "rejected": "2"}}\n' for i in range(30)))
    own = RunConfig(method="dpo", task={"data": str(file)}, run={"eval_skip": 200, "eval_prompts": 2})
    assert [pair.prompt for pair in own.method.held_out_rows(own)] == ["27?", "28?"]  # type: ignore[attr-defined]
    task = RunConfig(method="dpo", run={"eval_skip": 200, "eval_prompts": 2})
    rows = load_task("chain-arithmetic").rows("pairs", held_out=True)
    assert task.method.held_out_rows(task) == [rows[200], rows[201]]  # type: ignore[attr-defined]


def test_a_run_that_would_measure_nothing_is_not_queued() -> None:
    with pytest.raises(ConfigError, match=r"run\.eval_skip: 300 leaves none of the task's 300 held-out prompts"):
        checked(
            RunConfig(
                task="gsm8k", method={"rewards": [OUTCOME], "credit": {"scheme": "outcome"}}, run={"eval_skip": 300}
            )
        )


def test_labels_end_once_enough_was_sampled() -> None:
    """A group of two completions with five continuations is seven: after two of them 14 were sampled."""
    rollout = Rollout(token_ids=(1,), texts=("yes",), finished=True)
    group, begun = Group("1?", (rollout, rollout)), list[int]()
    ones = ((1.0,), (1.0,))
    values = StepValues(ones, ones, ((2,), (2,)), ((1,), (2,)), None, 2, 0, 0.5, "f", (r"\n", "ends"), continuations=5)

    def valued() -> Iterator[tuple[Group, StepValues]]:
        for number in range(9):
            begun.append(number)
            yield group, values

    made = labelled_rows(valued(), estimation="soft", most=8)
    assert (begun, [row["labels"] for row in made.rows]) == ([0, 1], [[0.5], [1.0]] * 2)
    assert (made.counts["completions"], made.counts["continuations"]) == (4, 10)


def test_peak_memory_is_what_a_process_held_at_most() -> None:
    held = b"1" * 300_000_000
    resident = psutil.Process().memory_info().rss / 1e6
    assert len(held) < resident * 1e6
    del held
    assert psutil.Process().memory_info().rss / 1e6 < resident - 250
    assert peak_memory_mb() > resident - 5  # the system counts in portions
