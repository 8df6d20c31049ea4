"""Pipelines as they are written: rounds, short forms, and everything that is refused before anything is started."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.stored_runs import store, store_pipeline
from workbench.cli import main
from workbench.config import RunConfig
from workbench.config.reading import read_yaml
from workbench.errors import ConfigError, RunError
from workbench.runs.pipelines import Pipeline, read_plan, run_pipeline, shipped
from workbench.runs.pipelines.check import carried_out, check_plan
from workbench.runs.pipelines.plan import MixOptions, load_plan
from workbench.runs.pipelines.progress import headline, read_stage, write_stage
from workbench.tasks import load_task
from workbench.tasks.kinds import Pair

JUDGE = {"name": "judge", "kind": "outcome", "model": {"path": "run:judge-0", "format": "classifier"}}


def grpo(policy: str = "run:policy-0", reward: Any = JUDGE, **more: Any) -> dict[str, Any]:
    return {"policy": policy, "method": {"rewards": [reward], "credit": {"scheme": "outcome"}}, **more}


def stages() -> list[dict[str, Any]]:
    """A policy, its pairs, a reward model of them, and a second round by that."""
    return [
        {"name": "policy-0", "run": {"method": "sft", "run": {"steps": 4, "save_every": 2}}},
        {"name": "learnt-0", "pairs": {"policy": "run:policy-0"}},
        {"name": "judge-0", "run": {"method": "reward", "task": {"data": "data:learnt-0"}}},
        {"name": "policy-1", "run": grpo()},
        {
            "name": "fresh-1",
            "pairs": {"policy": "run:policy-1", "rewards": [{"name": "tag_fromat", "kind": "outcome"}]},
        },
        {"name": "learnt-1", "mix": {"fresh": "data:fresh-1", "replay": ["data:learnt-0"]}},
        {"name": "judge-1", "run": {"method": "reward", "policy": "run:judge-0", "task": {"data": "data:learnt-1"}}},
    ]


def plan_with(number: int | None = None, **stage: Any) -> Any:
    """The plan with one stage (of all but one: at its end) in another's place."""
    every = stages()
    every[4]["pairs"].pop("rewards")
    if number is None:
        every.append(stage)
    else:
        every[number] = {"name": every[number]["name"], **stage}
    return read_plan({"stages": every}, "p")


# ── parsing ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_rounds_are_written_out() -> None:
    inner = [{"name": "policy-{round}", "run": {"policy": "run:policy-{before}", "seed": "{round}7"}}]
    plan = read_plan({"stages": [{"name": "policy-0", "run": {}}, {"rounds": 2, "stages": inner}]}, "p")
    seen = [(s.name, s.round, s.config.seed, s.config.policy.path) for s in plan.stages if s.config is not None]
    assert seen == [
        ("policy-0", None, 0, "tiny"),
        ("policy-1", 1, 17, "run:policy-0"),
        ("policy-2", 2, 27, "run:policy-1"),
    ]


def test_what_is_stored_reads_as_what_was_given() -> None:
    given = plan_with(0, run={"task": "gsm8k", "policy": {"path": "tiny", "lora": {"r": 4}}})
    stored = read_plan(read_yaml(given.to_yaml(), "it"), "another")
    assert stored == given
    assert stored.stages[0].config.grpo.sampling.max_completion_length == 256  # the task's own
    assert stored.stages[5].options == MixOptions(fresh="data:fresh-1", replay=["data:learnt-0"])


def test_every_shipped_pipeline_passes_the_check(tmp_path: Path) -> None:
    assert set(shipped()) == {"iterative", "prm", "rlhf"}
    for name in shipped():
        plan = load_plan(name)
        assert check_plan(plan, tmp_path).stages[0].name == plan.stages[0].name
        assert plan.about


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "a pipeline is a mapping with 'stages', and this is a list"),
        ({"stagse": []}, r"stagse: a pipeline has name, about and stages; did you mean 'stages'\?"),
        ({}, "stages: give a list with at least one stage"),
        ({"name": "../x", "stages": [{}]}, r"name: '\.\./x' cannot be a pipeline's"),
        ({"stages": [5]}, "stage 1: a mapping with name and one of run, pairs"),
        ({"stages": [{"name": "a.b", "run": {}}]}, "stage 1: name 'a.b' cannot be a stage's"),
        ({"stages": [{"name": "a"}]}, "stage a: give one of run, .*; this one has nothing"),
        ({"stages": [{"name": "a", "run": {}, "mix": {}}]}, "stage a: give one of .*; this one has run and mix"),
        ({"stages": [{"name": "a", "pair": {}}]}, r"stage a: 'pair' is no kind of stage; did you mean 'pairs'\?"),
        ({"stages": [{"name": "a", "run": 5}]}, "stage a: run: settings by name are wanted, and this is 5"),
        ({"stages": [{"name": "a", "run": {"name": "b"}}]}, "stage a: name: 'b' is not needed"),
        ({"stages": [{"name": "a", "run": {}}] * 2}, "stage a: two stages have this name"),
        (
            {"stages": [{"name": "a", "run": {"run": {"stpes": 3}, "seed": -1}}]},
            r"stage a: seed: out of range.*\nstage a: run.stpes: .*did you mean 'steps'\?",
        ),
        (
            {"stages": [{"name": "a", "run": {"task": "data:b", "method": "sft"}}]},
            "stage a: task.name: 'data:b' is rows to train on; give it as task.data",
        ),
        (
            {"stages": [{"name": "a", "pairs": {"promts": 3}}]},
            r"stage a: pairs.promts: there is no such setting; did you mean 'prompts'\?; there are prompts, first",
        ),
        ({"stages": [{"name": "a", "pairs": {"prompts": 0}}]}, "stage a: prompts: out of range"),
        ({"stages": [{"rounds": 0, "stages": [{}]}]}, "rounds: 0 is no number of rounds; give 1 to 100"),
        ({"stages": [{"rounds": 2, "stages": [], "x": 1}]}, "rounds: beside it stands 'stages'"),
        (
            {"stages": [{"rounds": 100, "stages": [{"name": f"{i}-{{round}}", "run": {}} for i in "ab"]}]},
            "stages: 200 are more than 100",
        ),
        ({"name": "p" * 80, "stages": [{"name": "a", "run": {}}]}, "stage a: its run would be called"),
    ],
)
def test_what_is_no_pipeline_is_named(data: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_plan(data, "p")


def test_a_file_that_is_not_there_names_the_shipped_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no file 'iteratve'; did you mean 'iterative'\?.*: .*iterative"):
        run_pipeline("iteratve", tmp_path)


# ── what stages name ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_plan_that_works_passes(tmp_path: Path) -> None:
    plan = plan_with(3, run=grpo("run:policy-0@4"))
    assert check_plan(plan, tmp_path) == plan


@pytest.mark.parametrize(
    ("number", "stage", "message"),
    [
        (3, {"run": grpo("run:polici-0")}, r"no stage is called so, and there is no run 'polici-0'.*'policy-0'\?"),
        (3, {"run": grpo("run:policy-1")}, "policy.path: a stage cannot name itself"),
        (
            4,
            {"pairs": {"policy": "run:judge-1"}},
            "fresh-1: policy.path: .* a circle: fresh-1 → judge-1 → learnt-1 → fresh",
        ),
        (0, {"run": {"policy": "run:policy-1"}}, r"a circle: policy-0 → policy-1 → policy-0; take one of them out"),
        (3, {"run": grpo("data:learnt-0")}, "policy.path: data:learnt-0 is rows, and this is a model; give run:STAGE"),
        (3, {"run": grpo("run:learnt-0")}, "stage 'learnt-0' makes rows; give data:learnt-0 where that is wanted"),
        (3, {"run": grpo("run:judge-0")}, r"stage 'judge-0' \(reward\) trains a reward model, which writes no text"),
        (
            3,
            {"run": grpo(reward={**JUDGE, "model": {"path": "run:policy-0", "format": "classifier"}})},
            r"rewards.judge.model.path: stage 'policy-0' \(sft\) trains a policy, and this is to be one of the format "
            "'classifier'; name a stage that trains a reward model",
        ),
        (
            3,
            {
                "run": {
                    "method": {"rewards": [{"name": "judge", "model": {"path": "run:judge-0", "format": "stepwise"}}]}
                }
            },
            "trains a reward model, and this is to be one of the format 'stepwise'; its format is 'classifier'",
        ),
        (3, {"run": grpo("run:policy-0@3")}, "will have the checkpoints of steps 2, 4 and its final one"),
        (
            3,
            {"run": grpo(policy={"path": "tiny", "adapter": "run:policy-0"})},  # type: ignore[arg-type]
            "policy.adapter: stage 'policy-0' trains whole weights, no adapter; name it as policy.path",
        ),
        (
            3,
            {"run": {"method": "sft", "task": {"data": "data:learnt-0"}}},
            "task.data: sft trains on demonstrations, and 'learnt-0' makes pairs; name a stage that makes "
            "demonstrations, or take the method dpo or reward",
        ),
        (
            2,
            {"run": {"method": "reward", "task": {"data": "data:learnt"}}},
            r"no stage 'learnt'; did you mean 'learnt-0'",
        ),
        (2, {"run": {"method": "reward", "task": {"data": "run:policy-0"}}}, "is a model, and these are rows"),
        (5, {"mix": {"fresh": "data:fresh-1", "replay": ["/nowhere"]}}, "replay.0: there is no file '/nowhere'"),
        (5, {"mix": {"fresh": "data:judge-0", "replay": ["data:learnt-0"]}}, "stage 'judge-0' makes a model"),
    ],
)
def test_what_a_stage_cannot_name_is_refused(tmp_path: Path, number: int, stage: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_plan(plan_with(number, **stage), tmp_path)
    assert not (tmp_path / "pipelines").exists()


def test_a_reward_model_begins_with_a_policys_adapter_and_is_one_at_its_end(tmp_path: Path) -> None:
    every = stages()[:4]
    lora = {"r": 2, "alpha": 4}
    every[0]["run"]["policy"] = {"lora": lora}
    every[2]["run"] |= {"policy": {"path": "run:policy-0", "lora": lora}, "run": {"steps": 4, "save_every": 2}}
    check_plan(read_plan({"stages": every}, "p"), tmp_path)
    every[3]["run"] = grpo(reward={**JUDGE, "model": {"path": "run:judge-0@2", "format": "classifier"}})
    with pytest.raises(ConfigError, match=r"stage 'judge-0' saves its adapter alone until its end; name run:judge-0$"):
        check_plan(read_plan({"stages": every}, "p"), tmp_path)


def test_a_stage_that_comes_later_is_named(tmp_path: Path) -> None:
    every = [{"name": "b", "run": {"policy": "run:a"}}, {"name": "a", "run": {}}]
    with pytest.raises(ConfigError, match=r"stage b: policy\.path: stage 'a' comes later; move it before 'b'"):
        check_plan(read_plan({"stages": every}, "p"), tmp_path)


def test_rows_of_several_kinds_are_not_mixed(tmp_path: Path) -> None:
    file = tmp_path / "demonstrations.jsonl"
    file.write_text('{"prompt": "1?", "completion": "1"}\n')
    with pytest.raises(ConfigError, match=r"replay\.0: .* holds demonstrations, and the fresh rows are pairs"):
        check_plan(plan_with(5, mix={"fresh": "data:fresh-1", "replay": [str(file)]}), tmp_path)


def test_a_run_of_the_workspace_must_have_ended_well(tmp_path: Path) -> None:
    store(tmp_path, "broken", state="failed")
    with pytest.raises(
        ConfigError, match=r"no stage is called so, and run:broken: run 'broken' \(failed\) has no final"
    ):
        check_plan(plan_with(3, run=grpo("run:broken")), tmp_path)


def test_every_stage_is_checked_as_a_single_run_is(tmp_path: Path) -> None:
    """A wrong policy and two misspelt rewards, said at once and each with its stage."""
    every = stages()
    every[0]["run"] |= {"policy": "./nowhere"}
    every[3]["run"]["method"]["rewards"] = [{"name": "answer_corectness", "kind": "outcome"}]
    with pytest.raises(ConfigError) as refused:
        check_plan(read_plan({"stages": every}, "p"), tmp_path)
    lines = str(refused.value).splitlines()
    assert any(line.startswith("stage policy-0: there is no folder './nowhere'") for line in lines)
    assert any(line.startswith("stage policy-1:") and "answer_correctness" in line for line in lines)
    assert any(line.startswith("stage fresh-1:") and "tag_format" in line for line in lines)


def test_rows_that_are_there_are_looked_at_and_later_ones_are_not(tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text('{"prompt": "1?", "chosen": "1"}\n' * 3)
    with pytest.raises(ConfigError, match=r"stage judge-0: task .* has no pairs"):
        check_plan(plan_with(2, run={"method": "reward", "task": {"data": str(file)}}), tmp_path)


# ── carrying out ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_names_become_runs_and_files(tmp_path: Path) -> None:
    plan = plan_with(3, run=grpo("run:policy-0@2"))
    files = {stage.name: tmp_path / f"{stage.name}.jsonl" for stage in plan.stages}
    run = carried_out(plan.stage("policy-1"), plan, files).config
    assert run is not None
    assert (run.policy.path, run.method.reward_functions[0].model.path) == ("run:p.policy-0@2", "run:p.judge-0")
    mix = carried_out(plan.stage("learnt-1"), plan, files).options
    assert mix == MixOptions(fresh=str(files["fresh-1"]), replay=[str(files["learnt-0"])])
    assert plan.stage("policy-1").config.policy.path == "run:policy-0@2"  # as it was


def test_files_are_stored_with_their_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.jsonl").write_text('{"prompt": "1?", "chosen": "1", "rejected": "2"}\n' * 40)
    mix = {"fresh": "data:fresh-1", "replay": ["a.jsonl"]}
    plan = check_plan(plan_with(5, mix=mix), tmp_path)
    assert plan.stage("learnt-1").options == MixOptions(fresh="data:fresh-1", replay=[str(tmp_path / "a.jsonl")])


def test_a_stage_file_that_is_damaged_says_so(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    assert read_stage(file) == {}
    write_stage(file, "running")
    began = read_stage(file)["started"]
    write_stage(file, "failed", "no room", ended=True)
    stage = read_stage(file)
    assert (stage["state"], stage["reason"], stage["started"]) == ("failed", "no room", began)
    file.write_text(json.dumps({**stage, "started": "x"}))
    assert read_stage(file)["state"] == "unreadable"


def test_what_sums_a_run_up_is_its_first_held_out_measure() -> None:
    rows = [
        {"step": 0, "accuracy": 0.25, "pair_accuracy": 0.5},
        {"step": 1, "loss": 1.0},
        {"step": 2, "accuracy": 0.75},
    ]
    assert headline(rows) == {"metric": "accuracy", "before": 0.25, "after": 0.75}
    assert headline([{"step": 1, "loss": 1.0}]) == {}


def test_a_mix_replays_a_share_and_measures_on_fresh_rows(tmp_path: Path) -> None:
    """20 fresh rows and 10 % of the 27 training rows of 30 old ones: round(2.7) = 3 replayed; 23 rows, 2 held out."""
    from workbench.tasks.made import mixed_of, write_made

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
    assert {f"fresh {i}" for i in range(18)} < set(trained)
    assert len([chosen for chosen in trained if chosen.startswith("old")]) == 3
    assert not {f"old {i}" for i in (27, 28, 29)} & set(trained), "what was measured on is not trained on"


def test_a_data_command_gets_its_file_and_every_setting(tmp_path: Path) -> None:
    """The flags are those that the command line takes."""
    from workbench.cli import make_parser
    from workbench.runs.pipelines.make import arguments_of
    from workbench.runs.pipelines.plan import ROWS

    (tmp_path / "data").mkdir()
    settings: dict[str, Any] = {kind: {"policy": "tiny", "seed": 7} for kind in ROWS if ROWS[kind].takes}
    settings["mix"] = {"fresh": "a", "replay": ["b", "c"], "share": 0.5}
    plan = read_plan({"stages": [{"name": f"s-{kind}", kind: settings[kind]} for kind in ROWS]}, "p")
    for stage in plan.stages:
        args = make_parser().parse_args(arguments_of(stage, Pipeline(tmp_path)))
        out = args.labels if stage.kind == "labels" else args.out
        assert out == tmp_path / "data" / f"{stage.name}.jsonl"
        if stage.config is not None:
            config = RunConfig.load(args.config)
            assert (config.seed, config.policy.path, args.prompts) == (7, "tiny", 100)
    mix = make_parser().parse_args(arguments_of(plan.stages[-1], Pipeline(tmp_path)))
    assert (mix.fresh, mix.replay, mix.share) == (Path("a"), [Path("b"), Path("c")], 0.5)


def test_there_is_no_pipeline_of_that_name(tmp_path: Path) -> None:
    from workbench.runs.pipelines import open_pipeline

    with pytest.raises(RunError, match=r"there is no pipeline 'x' in the workspace .*; it has none yet"):
        open_pipeline("x", tmp_path)
    with pytest.raises(RunError, match="there is no pipeline"):
        open_pipeline("../runs", tmp_path)


# ── the command line and notebooks ───────────────────────────────────────────────────────────────────────────────


def test_the_command_line_shows_lists_and_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store_pipeline(tmp_path)
    there = ["--workspace", str(tmp_path)]

    def said(*argv: str, code: int = 0) -> str:
        assert main(["pipeline", *argv, *there]) == code
        written = capsys.readouterr()
        return written.err if code == 2 else written.out

    shown = json.loads(said("iterative", "--show", "--json"))
    assert (shown["state"], shown["step"], [stage["state"] for stage in shown["stages"]]) == (
        "stopped",
        2,
        ["finished", "finished", "stopped", "waiting"],
    )
    text = said("iterative", "--show")
    assert "iterative: stopped, stage judge-0 stopped: after step 1 of 60" in text
    assert "0.250 → 0.500" in text
    listed = json.loads(said("--json"))
    assert [entry["name"] for entry in listed["pipelines"]] == ["iterative"]
    assert "iterative" in listed["shipped"]
    assert "4 stages" not in said("iterative", "--check")  # the shipped one
    assert "there is no pipeline 'iteratve'" in said("iteratve", "--resume", code=2)
    assert "is already stopped" in said("iterative", "--stop", code=2)
    assert "give the pipeline's FILE or name" in said("--resume", code=2)


def test_code_that_a_file_brings_is_shown_and_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "p.yaml"
    code = "def mine(completions, **k): return [0.0] * len(completions)"
    rewards = [{"name": "mine", "kind": "outcome", "code": code}]
    run = {"method": {"rewards": rewards, "credit": {"scheme": "outcome"}}}
    file.write_text(json.dumps({"stages": [{"name": "a", "run": run}]}))
    assert main(["pipeline", str(file), "--workspace", str(tmp_path)]) == 2
    assert "stage a, brings code that was not run here before ('mine')" in capsys.readouterr().err
    assert not (tmp_path / "pipelines").exists()


def test_notebooks_and_terminals_show_the_stages(tmp_path: Path) -> None:
    from workbench import display

    pipeline = store_pipeline(tmp_path)
    assert "policy-0" in display.html(pipeline)
    lines = display.text(pipeline).splitlines()
    assert lines[0] == "iterative: stopped, 2 of 4 stages done. stage judge-0 stopped: after step 1 of 60"
    assert lines[2].split() == ["policy-0", "sft", "finished", "60", "of", "60", "accuracy", "0.250", "→", "0.500", "–"]
    assert lines[3].split()[:3] == ["learnt-0", "pairs", "finished"]
    assert lines[3].split()[-1] == "3"
