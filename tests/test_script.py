"""Scripts that train as a run did: by TRL alone, or by the workbench's trainer; and how they are launched."""

import json
import runpy
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.commands.config.config_args import load_config_from_file
from safetensors.torch import load_file
from trl import GRPOTrainer

from tests.in_this_process import trained
from tests.ranks import on_ranks
from workbench.errors import ConfigError
from workbench.training.methods import RunConfig
from workbench.training.script import accelerate_config, write_script

pytestmark = pytest.mark.training
OUTCOME = {"credit": {"scheme": "outcome"}, "rewards": [{"name": "answer_correctness", "kind": "outcome"}]}
SMALL = {"prompts_per_step": 2, "sampling": {"num_generations": 2, "max_completion_length": 24}}
RUN = {"steps": 2, "eval_steps": 0, "save_steps": 0, "watch_prompts": 0, "device": "cpu"}
EVERY = ["accelerate", "datasets", "math-verify", "peft", "sympy", "torch", "transformers", "trl", "wandb"]
LENGTH = "def reward(prompts, completions, **columns):\n    return [len(text) / 100 for text in completions]\n"


def config_of(**method: Any) -> RunConfig:
    return RunConfig.parse({"name": "first", "run": RUN, "method": {**SMALL, **method}})


def run_script(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The trainer of a script that ran in this process, where nothing of this package could be imported."""
    monkeypatch.syspath_prepend(folder)
    names = [name for name in sys.modules if name.partition(".")[0] in ("rewards", "workbench")]
    for name in names:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "workbench", None)
    return runpy.run_path(str(folder / "train.py"))["main"]()


def test_invariant_a_script_on_four_ranks_gives_the_advantages_and_metrics_of_the_run_on_one(tmp_path: Path) -> None:
    """One prompt of G = 8: two completions a rank, so that the group that is normalised lies on all four."""
    sampling = {"num_generations": 8, "max_completion_length": 48}
    config = config_of(prompts_per_step=1, sampling=sampling)
    config.run.steps = 1
    run = trained(config, tmp_path)
    assert run.status().state == "finished", run.status().reason
    script = write_script(run.config(), tmp_path / "script")
    assert "TRL does not compute" in script.needs
    on_ranks(4, "tests.script_on_ranks", str(script.folder / "train.py"), str(tmp_path), log=tmp_path / "log.txt")
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(4)]
    assert [(rank["ranks"], len(rank["rows"])) for rank in ranks] == [(4, 2)] * 4
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


def test_a_script_by_trl_alone_gives_the_metrics_of_the_run_where_it_is_given_its_completions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TRL samples by other random numbers; all else of the two steps is compared, on the default policy's answers."""
    rewards = [*OUTCOME["rewards"], {"name": "length", "kind": "outcome", "code": LENGTH, "weight": 0.5}]  # type: ignore[misc]
    sampling = {"num_generations": 8, "max_completion_length": 96}
    run = trained(config_of(**{**OUTCOME, "rewards": rewards, "sampling": sampling}), tmp_path)
    script = write_script(run.config(), tmp_path / "script")
    assert script.needs == ""
    ours = trained_arguments(run.config())
    completions = [
        [list(rollout.token_ids) for credit in run.rollouts(step) for rollout in credit.scored.group.rollouts]
        for step in (1, 2)
    ]
    monkeypatch.setattr(GRPOTrainer, "_generate_single_turn", lambda *arguments: (completions.pop(0), None))
    trainer = run_script(script.folder, monkeypatch)
    rows = run.dir.read_metrics()[0]
    assert [row["step"] for row in rows] == [1, 2]
    for logged, row in zip(trainer.state.log_history, rows, strict=False):
        shared = [name for name in row if name in logged and name != "step_time"]
        assert {"loss", "grad_norm", "reward", "entropy", "num_tokens", "rewards/length/mean"} <= set(shared)
        assert row["grad_norm"] > 0
        for name in shared:
            rounded = 1e-6 if name in ("loss", "grad_norm") else 0  # of advantages in another order of sums
            assert logged[name] == pytest.approx(row[name], rel=0, abs=rounded), name
    assert type(trainer).__module__.startswith("trl")
    names = ("learning_rate", "loss_type", "beta", "epsilon", "scale_rewards", "adam_beta2", "seed", "num_generations")
    assert {name: getattr(trainer.args, name) for name in names} == {name: getattr(ours, name) for name in names}
    saved = load_file(script.folder / "output" / "final" / "model.safetensors")
    given = load_file(script.folder / "policy" / "model.safetensors")
    assert any(not torch.equal(saved[name], given[name]) for name in given)


@pytest.mark.parametrize("micro", [None, 1, 4, 12])
def test_a_script_samples_as_many_completions_on_any_number_of_ranks_or_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, micro: int | None
) -> None:
    config = config_of(**OUTCOME, prompts_per_step=6)
    config.run.micro_batch_size = micro
    folder = write_script(config, tmp_path / "script").folder
    monkeypatch.syspath_prepend(folder)
    share_of = runpy.run_path(str(folder / "train.py"))["share_of"]
    for ranks in (1, 2, 4, 12):
        size, passes = share_of(ranks)
        assert ranks * size * passes == 12
        assert size <= (micro or 12)
    for ranks in (5, 8, 16):
        with pytest.raises(SystemExit, match="1, 2, 3, 4, 6, 12"):
            share_of(ranks)


def trained_arguments(config: RunConfig) -> Any:
    from workbench.training.building import trainer_arguments
    from workbench.training.config import ProcessGRPOConfig

    return ProcessGRPOConfig(**trainer_arguments(config, Path("output")))


def test_prompts_rewards_and_adapters_are_written_out(tmp_path: Path) -> None:
    rewards = [{"name": "answer_correctness", "kind": "outcome"}, {"name": "math_equality", "kind": "outcome"}]
    data = {
        "policy": {"path": "tiny", "lora": {"r": 4, "targets": "q_proj, v_proj"}},
        "prompt": {"system": "Be brief.", "template_kwargs": {"enable_thinking": False}},
        "run": {**RUN, "report_to": ["wandb"], "project": "sums"},
        "method": {**SMALL, "credit": {"scheme": "outcome", "scale": False}, "rewards": rewards},
    }
    script = write_script(RunConfig.parse(data), tmp_path / "script")
    text = (script.folder / "train.py").read_text(encoding="utf-8")
    needed = (script.folder / "requirements.txt").read_text(encoding="utf-8").split()
    assert [line.partition("==")[0] for line in needed] == EVERY
    assert f"trl=={metadata.version('trl')}" in needed
    for part in (
        "LoraConfig(task_type='CAUSAL_LM', r=4, target_modules=['q_proj', 'v_proj'], lora_alpha=32)",
        "chat_template_kwargs={'enable_thinking': False}",
        "scale_rewards='none'",
        "report_to=['wandb']",
        "project='sums'",
    ):
        assert part in text
    row = json.loads((script.folder / "data.jsonl").read_text(encoding="utf-8").partition("\n")[0])
    assert [message["role"] for message in row["prompt"]] == ["system", "user"]
    assert row["answer"]
    with pytest.raises(ConfigError, match="it is there already; name a new folder"):
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
