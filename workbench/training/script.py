"""``export RUN --script``: a script that trains as a run did, with an accelerate configuration and its launch commands.

A run by GRPO whose rewards all score whole completions needs TRL alone: policy, rows, reward functions and arguments
are written out. Every other run's script builds the same trainer from the run's configuration, which needs this package
but neither its page nor a workspace.
"""

from __future__ import annotations

import json
import re
import shutil
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, fields
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import Any

from workbench.assets import EMBEDDED
from workbench.config import CreditConfig, Sharding, SharedConfig, write_yaml
from workbench.data import load_task, prompted
from workbench.errors import ConfigError
from workbench.models.find import is_adapter, policy_path
from workbench.models.weights import RENAMED
from workbench.policies.prompts import find_chat_template
from workbench.rewards import answers, find_builtin, sums
from workbench.rewards.source import choose_function
from workbench.training.bundle import bundle
from workbench.training.methods.base import SampledSection
from workbench.training.methods.grpo import GRPOSection

_HERE = ("output_dir", "use_cpu", "bf16", "fp16", "report_to", "disable_tqdm", "dataloader_pin_memory")
_BATCH = ("per_device_train_batch_size", "gradient_accumulation_steps")
"""Arguments that the script settles where it runs, as it is started there."""

HEAD = '''"""Trains as the run {name!r} of the workbench did: {summary}.

{launch}
"""

'''
ALONE = """import json
import os
from pathlib import Path

import torch
from datasets import Dataset
{imports}from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from rewards import REWARDS

HERE = Path(__file__).resolve().parent
POLICY = {policy}
RANKS = int(os.environ.get("WORLD_SIZE", "1"))
COMPLETIONS = {completions}  # of one generation, over all ranks
MICRO_BATCH = {micro}  # the most completions in one forward and backward pass of a rank; None for all of its share


def share_of(ranks: int) -> tuple[int, int]:
    # Completions in one pass of a rank, and its passes in one update, which has COMPLETIONS over all ranks.
    if COMPLETIONS % ranks:
        fitting = ", ".join(str(n) for n in range(1, COMPLETIONS + 1) if COMPLETIONS % n == 0)
        raise SystemExit(f"{{COMPLETIONS}} completions do not divide over {{ranks}} ranks; start {{fitting}} of them")
    share = COMPLETIONS // ranks
    size = next(n for n in range(min(MICRO_BATCH or share, share), 0, -1) if share % n == 0)
    return size, share // size


def main() -> GRPOTrainer:
    tokenizer = AutoTokenizer.from_pretrained(POLICY, padding_side="left"{trust})
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(POLICY, dtype=torch.float32{trust})
    rows = [json.loads(line) for line in (HERE / "data.jsonl").read_text(encoding="utf-8").split("\\n") if line]
    gpu = torch.cuda.is_available()
    size, passes = share_of(RANKS)
    args = GRPOConfig(
        output_dir=str(HERE / "output"),
        run_name={name!r},
        project={project!r},
        report_to={report_to!r},
        use_cpu=not gpu,
        bf16={bf16},
        per_device_train_batch_size=size,
        gradient_accumulation_steps=passes,
        reward_weights={weights!r},
{arguments}
    )
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=REWARDS,
        args=args,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        peft_config={peft},
    )
    trainer.train()
    trainer.save_model(str(HERE / "output" / "final"))
    return trainer


if __name__ == "__main__":
    main()
"""
BUILT = """import os
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
"""


_SHARING = {"fsdp": "FSDP", "zero3": "ZeRO 3"}
"""How ranks share every weight, as ``ProcessGRPOTrainer.sharing`` says it."""


@dataclass(frozen=True)
class Script:
    """A script that was written: ``needs`` says why the workbench's package is needed, "" where TRL alone will do."""

    folder: Path
    needs: str
    commands: tuple[tuple[str, str], ...]
    notes: tuple[str, ...] = ()


def write_script(config: SharedConfig, folder: Path, sharding: Sharding = "none") -> Script:
    """Write ``train.py`` and what it reads into a new folder. Raises ConfigError for a folder that is there."""
    if folder.exists():
        raise ConfigError(f"--script {folder}: it is there already; name a new folder")
    needs, commands, notes = why_not_alone(config), launch_commands(config), list[str]()
    if needs and sharding in _SHARING and isinstance(config.method, SampledSection):
        from workbench.training.building import check_sharing

        config = config.model_copy(deep=True)
        if sharding == "fsdp" and (config.run.eval_steps or config.run.watch_prompts):
            config.run.eval_steps = config.run.watch_prompts = 0
            notes.append("--sharding fsdp: no accuracy, no watched prompts, as no rank has the whole weights")
        check_sharing(_SHARING[sharding], config)
    launch = "Start it on this machine with: " + commands[0][1]
    by = "the workbench's trainer" if needs else "TRL alone"
    summary = f"{config.method.name} of {config.policy.path} on {config.task.name}, by {by}"
    head = HEAD.format(name=config.name or "", summary=summary, launch=launch)
    files = {"accelerate.yaml": write_yaml(accelerate_config(config, sharding))}
    if needs:
        files |= {"train.py": head + BUILT, "run.yaml": config.to_yaml()}
    else:
        files |= {"train.py": head + _alone(config), "data.jsonl": _rows(config), **reward_modules(config)}
    code = [text for name, text in files.items() if name.endswith(".py")]
    files["requirements.txt"] = requirements(config, code, sharding)
    if needs:
        first = f"# First workbench{_pinned('workbench')}, from its own repository: pip install .\n"
        files["requirements.txt"] = first + files["requirements.txt"]
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    if not needs and config.policy.path in EMBEDDED:
        (folder / "policy").mkdir()
        for file in EMBEDDED[config.policy.path].iterdir():
            if file.suffix in (".json", ".safetensors"):
                shutil.copy(file, folder / "policy")
    if sharding != "none" and config.run.ranks == 1:
        notes.append("--sharding: run.ranks is 1; set num_processes in accelerate.yaml to the number of GPUs")
    if sharding != "none" and isinstance(config.method, SampledSection):
        notes.append(
            "--sharding: completions are sampled with gathered weights, which is slow; vLLM samples faster (TRL's "
            "use_vllm, with vllm_mode colocate or server)"
        )
    return Script(folder, needs, commands, tuple(notes))


_BY_BITSANDBYTES = (
    *("4bit", "8bit", "adamw_bnb_8bit", "paged_adamw_32bit", "paged_adamw_8bit", "lion_32bit", "lion_8bit"),
    *("paged_lion_8bit", "ademamix", "ademamix_8bit", "paged_ademamix_8bit"),
)
PACKAGES = {
    **dict.fromkeys(_BY_BITSANDBYTES, "bitsandbytes"),
    "flash_attention_2": "flash-attn",
    "flash_attention_3": "flash-attn-3",
    "galore_adamw": "galore-torch",
    "apollo_adamw": "apollo-torch",
    "stable_adamw": "torch-optimi",
    "use_vllm": "vllm",
    "use_liger_kernel": "liger-kernel",
    **dict.fromkeys(("deepspeed", "zero2", "zero3"), "deepspeed"),
    **{name: name for name in ("trackio", "wandb", "tensorboard")},
}
"""What a setting is called → the package that it needs."""


IMPORTED = re.compile(r"^\s*(?:from|import) +(\w+)", re.MULTILINE)


def requirements(config: SharedConfig, code: Iterable[str], sharding: Sharding = "none") -> str:
    """A line each for the packages that ``code`` imports and its settings need, in the versions of this interpreter."""
    modules = {"accelerate"} | {module for text in code for module in IMPORTED.findall(text)}
    by_module = packages_distributions()
    names = {by_module[module][0] for module in modules - {"workbench"} if module in by_module}
    policy = config.policy
    asked: list[str] = [config.optimiser.optim, policy.attention, policy.quantisation, sharding, *config.run.report_to]
    asked += [name for name, value in config.method.trl.items() if value]
    names |= {PACKAGES[setting] for setting in asked if setting in PACKAGES}
    return "".join(f"{name}{_pinned(name)}\n" for name in sorted(names, key=str.lower))


def _pinned(name: str) -> str:
    """``==`` the version here, without its build (``2.13.0+cpu``); nothing for what is not installed."""
    try:
        return f"=={version(name).partition('+')[0]}"
    except PackageNotFoundError:
        return ""


def why_not_alone(config: SharedConfig) -> str:
    """Say why a run's script needs the workbench's trainer; "" if TRL's own does the same."""
    method, policy = config.method, config.policy
    if type(method) is not GRPOSection:
        return f"the method {method.name!r} is the workbench's own trainer"
    credit = method.credit
    if credit != CreditConfig(scheme="outcome", scale=credit.scale):
        return f"the credit scheme {credit.scheme!r} with its options gives advantages that TRL does not compute"
    reasons = {
        "step rewards": any(reward.kind == "step" for reward in method.rewards),
        "weights that depend on the step": any(reward.schedule for reward in method.rewards),
        "reward models": any(reward.model is not None for reward in method.rewards),
        "resampling of flat groups": bool(method.resample_flat),
        "skipping of long prompts": config.task.long_prompts == "skip",
        "stop strings": bool(method.sampling.stop),
        "text environments": config.environment.name is not None,
        "leaving thinking out": method.pattern.leave_out_thinking,
        "adapters to put into the weights": bool(policy.merge),
        "an adapter to go on training": policy.adapter is not None or is_adapter(Path(policy_path(policy.path))),
        "weights held in another way": bool(policy.loading),
    }
    wanted = [what for what, is_so in reasons.items() if is_so]
    return f"TRL alone has no {wanted[0]}" if wanted else ""


def _alone(config: SharedConfig) -> str:
    from trl import GRPOConfig

    from workbench.training.building import trainer_arguments
    from workbench.training.config import ProcessGRPOConfig

    method = config.method
    assert isinstance(method, GRPOSection)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", RENAMED, FutureWarning)
        args = ProcessGRPOConfig(**trainer_arguments(config, Path("output")))
        fresh = GRPOConfig(output_dir="output", use_cpu=True, bf16=False, report_to="none")
    derived = ("generation_batch_size", "steps_per_generation", "num_generations_eval", "run_name", "project")
    left_out = {*_HERE, *_BATCH, *derived, "gradient_checkpointing"}  # the last by its old name
    set_here = {
        field.name: getattr(args, field.name)
        for field in fields(GRPOConfig)
        if field.init and field.name not in left_out and getattr(args, field.name) != getattr(fresh, field.name)
    }
    if method.credit.scale is False:
        set_here["scale_rewards"] = "none"
    lines = [f"        {name}={_plain(value)!r}," for name, value in set_here.items()]
    peft = _peft(config)
    path = config.policy.path
    return ALONE.format(
        name=config.name or "run",
        project=config.run.project,
        report_to=list(config.run.report_to) or "none",
        policy='str(HERE / "policy")' if path in EMBEDDED else repr(path),
        bf16="False" if path in EMBEDDED else "gpu and torch.cuda.is_bf16_supported()",
        completions=method.rollouts_per_step,
        micro=config.run.micro_batch_size,
        weights=[reward.weight for reward in method.rewards],
        arguments="\n".join(lines),
        trust=", trust_remote_code=True" if config.policy.trust_remote_code else "",
        imports="from peft import LoraConfig\n" if peft != "None" else "",
        peft=peft,
    )


def _plain(value: Any) -> Any:
    """Return an argument as it is written: an enumeration by its value."""
    return getattr(value, "value", value)


def _peft(config: SharedConfig) -> str:
    from peft import LoraConfig

    from workbench.training.building import lora_config

    lora = lora_config(config.policy)
    if lora is None:
        return "None"
    fresh = LoraConfig().to_dict()
    values = {
        name: sorted(value) if isinstance(value, set) else _plain(value)
        for name, value in lora.to_dict().items()
        if value != fresh.get(name) and name != "peft_type"
    }
    return f"LoraConfig({', '.join(f'{name}={value!r}' for name, value in values.items())})"


def _rows(config: SharedConfig) -> str:
    """Return the prompts and columns that the run trains on, as TRL's data set."""

    method = config.method
    assert isinstance(method, GRPOSection)
    has_template = find_chat_template(config.policy.path) is not None
    task = prompted(load_task(config.task), config.prompt, has_template)
    rows = method.rows_of(config, task).to_pylist()
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def reward_modules(config: SharedConfig) -> dict[str, str]:
    """Return a module for each reward function, and the package that lists them."""
    files, imports, names = {}, [], []
    for number, reward in enumerate(config.method.reward_functions, start=1):
        code = reward.code if reward.code is not None else find_builtin(reward.name).source_with(reward.options)
        function = choose_function(code, reward.name)
        if function is None:
            raise ConfigError(f"reward {reward.name!r}: its code has no function of that name, nor one called reward")
        for module in sorted(set(_OURS.findall(code))):
            if module not in _READERS:
                raise ConfigError(
                    f"reward {reward.name!r}: its code imports workbench.{module}, which is not there; leave it out"
                )
            path, name = f"workbench.{module}", module.removeprefix("rewards.")
            own = (one for one in vars(_READERS[module]).values() if getattr(one, "__module__", "") == path)
            files[f"rewards/{name}.py"] = bundle(f"The workbench's {name}.py, for the rewards that import it.", *own)
        files[f"rewards/reward_{number}.py"] = code.replace("from workbench.rewards.", "from rewards.")
        imports.append(f"from rewards.reward_{number} import {function.name} as reward_{number}")
        names.append((f"reward_{number}", reward.name))
    named = "\n".join(f"{variable}.__name__ = {name!r}" for variable, name in names)
    listed = ", ".join(variable for variable, _ in names)
    package = '"""The run\'s reward functions, by the names that it logs."""\n\n'
    package += "\n".join(imports) + f"\n\n{named}\nREWARDS = [{listed}]\n"
    return {**files, "rewards/__init__.py": package}


_OURS = re.compile(r"\bfrom workbench\.([\w.]+) import")
_READERS = {"rewards.answers": answers, "rewards.sums": sums}
"""Modules that built-in rewards import where they run."""


def accelerate_config(config: SharedConfig, sharding: Sharding = "none") -> dict[str, Any]:
    """accelerate's configuration of one machine, as ``accelerate config`` writes it."""
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
    """(what, command) for one machine, several machines, and Slurm."""
    ranks = config.run.ranks
    rendezvous = "--rdzv_backend c10d --rdzv_endpoint FIRST_MACHINE:29500"
    accelerate = "accelerate launch --config_file accelerate.yaml"
    machines = f"--num_machines 2 --num_processes {2 * ranks} --machine_rank 0_OR_1 --main_process_ip FIRST_MACHINE"
    head = "export HEAD=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)"
    slurm = f'srun torchrun --nnodes 2 --nproc_per_node {ranks} --rdzv_backend c10d --rdzv_endpoint "$HEAD":29500'
    return (
        ("one machine, by accelerate", f"{accelerate} train.py"),
        ("one machine, by torchrun", f"torchrun --standalone --nproc_per_node {ranks} train.py"),
        ("two machines, by accelerate", f"{accelerate} {machines} --main_process_port 29500 train.py"),
        ("two machines, by torchrun", f"torchrun --nnodes 2 --nproc_per_node {ranks} {rendezvous} train.py"),
        (
            "Slurm",
            f"sbatch --nodes 2 --ntasks-per-node 1 --gpus-per-node {ranks} --wrap '{head}; {slurm} train.py'",
        ),
    )
