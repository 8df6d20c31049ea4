"""``export RUN --script``: a script that trains as a run did, with an accelerate configuration and its launch commands.

The script builds the run's trainer from its configuration, which needs this package but neither its page nor a
workspace.
"""

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from workbench.config import Sharding, SharedConfig, write_yaml
from workbench.errors import ConfigError
from workbench.training.methods.base import SampledSection

TRAIN = '''"""Trains as the run {name!r} of the workbench did: {method} of {policy} on {task}.

Start it on this machine with: {command}
"""

import os
from pathlib import Path

from workbench.training.methods import METHODS, RunConfig

HERE = Path(__file__).resolve().parent


def main():
    data = RunConfig.load(HERE / "run.yaml").model_dump()
    data["run"]["ranks"] = int(os.environ.get("WORLD_SIZE", "1"))
    config = RunConfig.parse(data)
    trainer = METHODS[config.method.name].build(config, HERE / "output")
    trainer.train()
    trainer.save_final(HERE / "output" / "final")
    return trainer


if __name__ == "__main__":
    main()
'''
_SHARING = {"fsdp": "FSDP", "zero3": "ZeRO 3"}
"""How ranks share every weight, as ``ProcessGRPOTrainer.sharing`` says it."""


@dataclass(frozen=True)
class Script:
    """A script that was written, and (what, command) for each way to start it."""

    folder: Path
    commands: tuple[tuple[str, str], ...]
    notes: tuple[str, ...] = ()


def write_script(config: SharedConfig, folder: Path, sharding: Sharding = "none") -> Script:
    """Write ``train.py`` and what it reads into a new folder. Raises ConfigError for a folder that is there."""
    if folder.exists():
        raise ConfigError(f"--script {folder}: it is there already; name a new folder")
    commands, notes, is_sampled = launch_commands(config), list[str](), isinstance(config.method, SampledSection)
    if sharding in _SHARING and is_sampled:
        from workbench.training.building import check_sharing

        config = config.model_copy(deep=True)
        if sharding == "fsdp" and (config.run.eval_steps or config.run.watch_prompts):
            config.run.eval_steps = config.run.watch_prompts = 0
            notes.append("--sharding fsdp: no accuracy, no watched prompts, as no rank has the whole weights")
        check_sharing(_SHARING[sharding], config)
    files = {
        "accelerate.yaml": write_yaml(accelerate_config(config, sharding)),
        "run.yaml": config.to_yaml(),
        "requirements.txt": requirements(config, sharding),
        "train.py": TRAIN.format(
            name=config.name or "",
            method=config.method.name,
            policy=config.policy.path,
            task=config.task.name,
            command=commands[0][1],
        ),
    }
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    if sharding != "none" and config.run.ranks == 1:
        notes.append("--sharding: run.ranks is 1; set num_processes in accelerate.yaml to the number of GPUs")
    if sharding != "none" and is_sampled:
        notes.append(
            "--sharding: completions are sampled with gathered weights, which is slow; vLLM samples faster (TRL's "
            "use_vllm, with vllm_mode colocate or server)"
        )
    return Script(folder, commands, tuple(notes))


_BY_BITSANDBYTES = ("4bit", "8bit", "adamw_bnb_8bit", "paged_adamw_8bit", "paged_adamw_32bit", "lion_8bit")
PACKAGES = {
    **dict.fromkeys(_BY_BITSANDBYTES, "bitsandbytes"),
    "flash_attention_2": "flash-attn",
    "flash_attention_3": "flash-attn-3",
    "use_vllm": "vllm",
    "use_liger_kernel": "liger-kernel",
    **dict.fromkeys(("zero2", "zero3"), "deepspeed"),
    **{name: name for name in ("trackio", "wandb", "tensorboard")},
}
"""What a setting is called → the package that it needs beside the workbench's own."""


def requirements(config: SharedConfig, sharding: Sharding = "none") -> str:
    """Return a line for each package that a run needs, in the versions of this interpreter."""
    policy = config.policy
    asked: list[str] = [config.optimiser.optim, policy.attention, policy.quantisation, sharding, *config.run.report_to]
    asked += [name for name, value in config.method.trl.items() if value]
    names = {"accelerate", "torch", "transformers", "trl", *(PACKAGES[name] for name in asked if name in PACKAGES)}
    first = f"# First workbench{_pinned('workbench')}, from its own repository: pip install .\n"
    return first + "".join(f"{name}{_pinned(name)}\n" for name in sorted(names))


def _pinned(name: str) -> str:
    """``==`` the version here, without its build (``2.13.0+cpu``); nothing for what is not installed."""
    try:
        return f"=={version(name).partition('+')[0]}"
    except PackageNotFoundError:
        return ""


def accelerate_config(config: SharedConfig, sharding: Sharding = "none") -> dict[str, Any]:
    """Return accelerate's configuration of one machine, as ``accelerate config`` writes it."""
    ranks, cpu = config.run.ranks, config.run.device == "cpu"
    if cpu and sharding != "none":
        raise ConfigError(f"--sharding {sharding}: it shards over GPUs, and run.device is cpu; leave one of them out")
    several = "MULTI_CPU" if cpu else "MULTI_GPU"
    kind = {"none": several if ranks > 1 else "NO", "fsdp": "FSDP"}.get(sharding, "DEEPSPEED")
    settings: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": kind,
        "main_training_function": "main",
        "machine_rank": 0,
        "num_machines": 1,
        "num_processes": ranks,
        "rdzv_backend": "static",
        "same_network": True,
        "use_cpu": cpu,
    }
    if sharding == "fsdp":
        settings["fsdp_config"] = {
            "fsdp_version": 2,
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_reshard_after_forward": True,
            "fsdp_cpu_ram_efficient_loading": True,
            "fsdp_offload_params": False,
            "fsdp_state_dict_type": "FULL_STATE_DICT",
        }
    elif kind == "DEEPSPEED":
        settings["deepspeed_config"] = {
            "zero_stage": int(sharding[-1]),
            "gradient_accumulation_steps": "auto",
            "zero3_init_flag": sharding == "zero3",
            "zero3_save_16bit_model": sharding == "zero3",
            "offload_optimizer_device": "none",
            "offload_param_device": "none",
        }
    return settings


def launch_commands(config: SharedConfig) -> tuple[tuple[str, str], ...]:
    """Return (what, command) for one machine, several machines, and Slurm."""
    ranks = config.run.ranks
    accelerate = "accelerate launch --config_file accelerate.yaml"
    machines = f"--num_machines 2 --num_processes {2 * ranks} --machine_rank 0_OR_1 --main_process_ip FIRST_MACHINE"
    head = "export HEAD=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)"
    slurm = f'srun torchrun --nnodes 2 --nproc_per_node {ranks} --rdzv_backend c10d --rdzv_endpoint "$HEAD":29500'
    return (
        ("one machine, by accelerate", f"{accelerate} train.py"),
        ("one machine, by torchrun", f"torchrun --standalone --nproc_per_node {ranks} train.py"),
        ("two machines", f"{accelerate} {machines} --main_process_port 29500 train.py"),
        ("Slurm", f"sbatch --nodes 2 --ntasks-per-node 1 --gpus-per-node {ranks} --wrap '{head}; {slurm} train.py'"),
    )
