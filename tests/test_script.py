"""Scripts that train as a run did, and how they are launched."""

import json
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from accelerate.commands.config.config_args import load_config_from_file

from tests.in_this_process import trained
from tests.ranks import on_ranks
from workbench.errors import ConfigError
from workbench.training.methods import RunConfig
from workbench.training.script import accelerate_config, write_script

pytestmark = pytest.mark.training
SMALL = {"prompts_per_step": 2, "sampling": {"num_generations": 2, "max_completion_length": 24}}
RUN = {"steps": 2, "eval_steps": 0, "save_steps": 0, "watch_prompts": 0, "device": "cpu"}


def config_of(**method: Any) -> RunConfig:
    return RunConfig.parse({"name": "first", "run": RUN, "method": {**SMALL, **method}})


def test_invariant_a_script_on_two_ranks_gives_the_advantages_and_metrics_of_the_run_on_one(tmp_path: Path) -> None:
    """One prompt of G = 4: two completions a rank, so that the group that is normalised lies on both."""
    sampling = {"num_generations": 4, "max_completion_length": 32}
    config = config_of(prompts_per_step=1, sampling=sampling)
    config.run.steps = 1
    run = trained(config, tmp_path)
    assert run.status().state == "finished", run.status().reason
    script = write_script(run.config(), tmp_path / "script")
    on_ranks(2, "tests.script_on_ranks", str(script.folder / "train.py"), str(tmp_path), log=tmp_path / "log.txt")
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert [(rank["ranks"], len(rank["rows"])) for rank in ranks] == [(2, 2)] * 2
    (credit,) = run.dir.rollouts.read(1)
    rollouts = credit.scored.group.rollouts
    alone = [(list(rollout.token_ids), credit.of(i).tobytes().hex()) for i, rollout in enumerate(rollouts)]
    assert sorted((ids, advantages) for rank in ranks for ids, advantages, _ in rank["rows"]) == sorted(alone)
    assert credit.advantages.any()
    assert {counted for rank in ranks for _, _, counted in rank["rows"]} == {sum(map(len, rollouts))}
    row = next(row for row in run.dir.read_metrics()[0] if "loss" in row)
    for name in ("step_reward", "steps_per_answer", "completions/mean_length", "advantage_abs_mean"):
        assert ranks[0]["logged"][name] == pytest.approx(row[name], rel=1e-6), name
    for name in ("loss", "grad_norm"):  # sums over ranks are in another order
        assert ranks[0]["logged"][name] == pytest.approx(row[name], rel=1e-3, abs=1e-5), name
    assert (script.folder / "output" / "final" / "model.safetensors").is_file()


def test_what_a_run_needs_is_written_out(tmp_path: Path) -> None:
    data = {
        "name": "first",
        "run": {**RUN, "report_to": ["wandb"]},
        "method": SMALL,
        "optimiser": {"optim": "adamw_bnb_8bit"},
    }
    script = write_script(RunConfig.parse(data), tmp_path / "script")
    first, *needed = (script.folder / "requirements.txt").read_text(encoding="utf-8").splitlines()
    names = ["accelerate", "bitsandbytes", "torch", "transformers", "trl", "wandb"]
    assert [line.partition("==")[0] for line in needed] == names
    assert f"trl=={metadata.version('trl')}" in needed
    assert "workbench" in first
    assert RunConfig.load(script.folder / "run.yaml").run.report_to == ["wandb"]
    with pytest.raises(ConfigError, match="script"):
        write_script(RunConfig.parse(data), tmp_path / "script")


@pytest.mark.parametrize(
    ("sharding", "device", "kind"),
    [
        ("none", "auto", "MULTI_GPU"),
        ("none", "cpu", "MULTI_CPU"),
        ("fsdp", "auto", "FSDP"),
        ("zero3", "auto", "DEEPSPEED"),
    ],
)
def test_accelerate_reads_its_configuration(sharding: Any, device: str, kind: str, tmp_path: Path) -> None:
    from workbench.config.reading import write_yaml

    config = RunConfig.parse({"run": {"ranks": 2, "device": device}})
    file = tmp_path / "accelerate.yaml"
    file.write_text(write_yaml(accelerate_config(config, sharding)), encoding="utf-8")
    read = load_config_from_file(str(file))
    assert (str(read.distributed_type).removeprefix("DistributedType."), read.num_processes) == (kind, 2)
    if sharding == "zero3":
        assert read.deepspeed_config["zero_stage"] == 3
    with pytest.raises(ConfigError, match="shards over GPUs"):
        accelerate_config(RunConfig.parse({"run": {"device": "cpu"}}), "fsdp")


def test_what_needs_whole_weights_is_left_out_or_refused_where_ranks_share_them(tmp_path: Path) -> None:
    config = config_of(sampling={"num_generations": 2})
    config.run.eval_steps, config.run.watch_prompts, config.run.device = 42, 2, "auto"
    script = write_script(config, tmp_path / "fsdp", "fsdp")
    written = RunConfig.load(script.folder / "run.yaml").run
    assert (written.eval_steps, written.watch_prompts, config.run.eval_steps) == (0, 0, 42)
    assert "no accuracy, no watched prompts" in script.notes[0]
    written = RunConfig.load(write_script(config, tmp_path / "zero2", "zero2").folder / "run.yaml").run
    assert written.eval_steps == 42
    for sharding, method, said in (
        ("zero3", {"credit": {"oar": True}}, "credit.oar.* under ZeRO 3"),
        ("zero3", {"rewards": [{"name": "b", "kind": "step", "belief": {}}]}, "'b' asks the policy, and under ZeRO 3"),
        ("fsdp", {"sampling": {"stop": ["\n\n"]}}, "sampling.stop.* under FSDP"),
    ):
        config = config_of(**method)
        config.run.device = "auto"
        with pytest.raises(ConfigError, match=said):
            write_script(config, tmp_path / "refused", sharding)
