"""``export RUN --to verl`` and ``--to tinker``: a run as a folder that trains there, without this package.

What splits, scores and credits there are copies of this package's own modules, in the folder's ``workbench/``;
``exported/`` holds what is written for the engine. ``parity.json`` are stored groups of the run, ``check.py`` computes
them anew, and ``NOT_CARRIED.md`` says of every setting that the engine does not take what becomes of it. verl's
settings are those of ``verl/trainer/config/_generated_ppo_trainer.yaml`` of version 0.9.1, read in its source.
"""

import dataclasses
import json
import math
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from workbench.assets import EMBEDDED
from workbench.config import SharedConfig, write_yaml
from workbench.config.engine import LOSSES
from workbench.credit import SHARED, check_options
from workbench.credit.schemes import find_scheme
from workbench.data import load_task, prompted
from workbench.engines.exchange import rows_of
from workbench.errors import ConfigError
from workbench.models.find import policy_path
from workbench.policies.load import without_weights
from workbench.policies.prompts import find_chat_template
from workbench.rewards import find_builtin
from workbench.rewards.others import answer_column
from workbench.rewards.source import choose_function
from workbench.schema import JUDGES, Credit
from workbench.training.methods.grpo import GRPOSection, section_of

Target = Literal["verl", "tinker"]
VERL = "0.9.1"
_FILES = {"verl": ("core", "check", "plugin", "agent"), "tinker": ("core", "check", "train")}
_AGG = {
    "dapo": "token-mean", "bnpo": "token-mean", "grpo": "seq-mean-token-mean", "dr_grpo": "seq-mean-token-sum-norm"
}  # fmt: skip
"""verl's ``loss_agg_mode`` that divides as ``method.loss_type`` does."""
RUN_SH = """#!/bin/sh
# Trains as the run did, by verl {version}; arguments go on to verl: trainer.nnodes=2, say. First: python check.py
STEP_CREDIT=$(cd "$(dirname "$0")" && pwd)
export STEP_CREDIT PYTHONPATH="$STEP_CREDIT${{PYTHONPATH:+:$PYTHONPATH}}" VERL_USE_EXTERNAL_MODULES=plugin
exec python -m verl.trainer.main_ppo --config-path "$STEP_CREDIT" --config-name verl "$@"
"""


def export_run(config: SharedConfig, credits: Sequence[Credit], folder: Path, target: Target) -> list[str]:
    """Write a run for an engine into a new folder; ``credits`` are the groups of one of its generations.

    Return what is not carried, a line a setting. Raises ConfigError for a run that would train on another credit there.
    """
    if folder.exists():
        raise ConfigError(f"--to {target} {folder}: it is there already; name a new folder")
    method = section_of(config)
    check_exportable(config, method, target)
    policy = without_weights(config.policy)
    task = prompted(load_task(config.task), config.prompt, find_chat_template(config.policy.path) is not None)
    rows = method.rows_of(config, task).to_pylist()
    training = [{"prompt": row.pop("prompt"), "columns": row} for row in rows]
    settings = {"target": target, **_settings(method), "eos_token_ids": policy.eos_token_ids}
    reasons = dict(_reasons(config, target))
    left = {path: why for path, why in reasons.items() if why not in _ELSEWHERE}
    exported = Path(__file__).parent / "exported"
    files = {
        **{f"{name}.py": (exported / f"{name}.py").read_text(encoding="utf-8") for name in _FILES[target]},
        **carried_modules(),
        **reward_modules(config),
        "parity.json": json.dumps({"rows": list(_parity(credits, method))}, ensure_ascii=False) + "\n",
        "NOT_CARRIED.md": _not_carried(config, target, left),
    }
    folder.mkdir(parents=True)
    if target == "tinker":
        settings["training"] = {name: value for _, name, value in _tinker_keys(config, method)}
        files["train.jsonl"] = "".join(json.dumps(row) + "\n" for row in training)
    else:
        files |= {"verl.yaml": write_yaml(_verl_yaml(config, method)), "run.sh": RUN_SH.format(version=VERL)}
        files["agent.yaml"] = "- name: step_credit\n  _target_: agent.StepCreditLoop\n"
        held_out = [task.held_out[i] for i in config.run.measured(len(task.held_out))] if config.run.eval_steps else []
        tests = [{"prompt": row.prompt, "columns": dict(row.columns)} for row in held_out] or training[:1]
        for split, rows in (("train", training), ("test", tests)):
            table = pa.Table.from_pylist([_verl_row(i, row, split, config.task.name) for i, row in enumerate(rows)])
            pq.write_table(table, folder / f"{split}.parquet")
    files["settings.json"] = json.dumps(settings, indent=1, ensure_ascii=False) + "\n"
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8", newline="")
    if config.policy.path in EMBEDDED:
        shutil.copytree(EMBEDDED[config.policy.path], folder / "policy", ignore=shutil.ignore_patterns("*.md"))
    return [f"{name}: {why}" for name, why in left.items()]


def check_exportable(config: SharedConfig, method: GRPOSection, target: Target) -> None:
    """Raise ConfigError for a setting without which the credit there would be another."""
    credit, pattern = method.credit, method.pattern
    needs = set(find_scheme(credit.scheme).needs) & {"token_ids", "states"}
    refused = {
        f"method.credit.scheme: {credit.scheme!r} compares completions by their ids or states, which no engine's "
        "estimator is given": bool(needs),
        "method.credit.drop_duplicates: an answer is scored before its copies are known": credit.drop_duplicates,
        "method.credit.each_reward: an engine's estimator gets one number a token": credit.each_reward,
        "method.credit.oar: importances are gradients of this process": credit.oar,
        "environment.name: what is exported plays one turn": config.environment.name is not None,
        f"method.pattern.kind: {pattern.kind!r} reads the tokens' probabilities": pattern.by_tokens,
        f"method.loss_type: {method.loss_type!r} is none of {', '.join(LOSSES)}": method.loss_type not in LOSSES,
        "method.credit.normalise: batch compares groups that an engine may put into several batches":
            credit.normalise == "batch",
    }  # fmt: skip
    for reward in method.rewards:
        refused[f"method.rewards: {reward.name!r} is no function"] = not reward.is_builtin and reward.code is None
        refused[f"method.rewards: the weight of {reward.name!r} depends on the step"] = bool(reward.schedule)
        beside = {path.stem for path in Path(reward.folder).iterdir()} if reward.folder else set()
        imported = beside & set(_IMPORTED.findall(reward.code or ""))
        refused[f"method.rewards: {reward.name!r} imports {', '.join(imported)} of its folder"] = bool(imported)
    for said, is_so in refused.items():
        if is_so:
            raise ConfigError(f"--to {target}: {said}; train with --engine tinker, or under accelerate (--script)")


_IMPORTED = re.compile(r"^\s*(?:from|import) +(\w+)", re.MULTILINE)
_OURS = re.compile(r"\bfrom workbench\.([\w.]+) import")
_CARRIED = (
    *("errors.py", "schema/*.py", "steps/*.py", "credit/*.py", "credit/schemes/*.py", "sandbox/child.py"),
    *(f"rewards/{name}.py" for name in ("answers", "others", "protocol", "sums")),
)
"""Modules of this package that compute there as they do here; they need numpy, pydantic and regex."""


def carried_modules() -> dict[str, str]:
    """Return the source of ``_CARRIED`` by path; packages of which only some modules are carried are empty."""
    package = Path(__file__).parents[1]
    paths = [path for pattern in _CARRIED for path in sorted(package.glob(pattern))]
    empty = {f"workbench/{folder}__init__.py": "" for folder in ("", "rewards/", "sandbox/")}
    return empty | {str(path.relative_to(package.parent)): path.read_text(encoding="utf-8") for path in paths}


def reward_modules(config: SharedConfig) -> dict[str, str]:
    """Return a module for each reward function, and the package that lists them."""
    files, lines, names, carried = dict[str, str](), list[str](), list[str](), carried_modules()
    for number, reward in enumerate(config.method.reward_functions, start=1):
        code = reward.code if reward.code is not None else find_builtin(reward.name).source_with(reward.options)
        function = choose_function(code, reward.name)
        if function is None:
            raise ConfigError(f"reward {reward.name!r}: its code has no function of that name, nor one called reward")
        for module in _OURS.findall(code):
            if f"workbench/{module.replace('.', '/')}.py" not in carried:
                raise ConfigError(f"reward {reward.name!r}: its code imports workbench.{module}, which is not there")
        names.append(f"reward_{number}")
        files[f"rewards/{names[-1]}.py"] = code
        lines.append(f"from rewards.{names[-1]} import {function.name} as {names[-1]}")
    package = ['"""The run\'s reward functions."""\n', *lines, f"\nREWARDS = [{', '.join(names)}]\n"]
    return {**files, "rewards/__init__.py": "\n".join(package)}


def _settings(method: GRPOSection) -> dict[str, Any]:
    credit, sampling = method.credit, method.sampling
    scheme = find_scheme(credit.scheme)
    given = {**credit.keywords(but=("scheme", *SHARED)), **credit.options}
    options = {option.name: option.default for option in scheme.options} | {
        name: value for name, value in check_options(credit.scheme, given).items() if value is not None
    }
    outcomes = [reward.name for reward in method.rewards if reward.kind == "outcome"]
    judge = next((name for name in outcomes if name in JUDGES), outcomes[0] if outcomes else None)
    further = {"min_p": sampling.min_p, "repetition_penalty": sampling.repetition_penalty}
    return {
        "pattern": dataclasses.asdict(method.pattern),
        "rewards": [{"name": r.name, "kind": r.kind, "weight": r.weight} for r in method.rewards],
        "judge": judge,
        "has_outcome": bool(outcomes),
        "scheme": credit.scheme,
        "options": options,
        "outcome_weight": credit.outcome_weight,
        "clip": credit.clip,
        "gate": credit.gate == "outcome",
        "mask_truncated_completions": method.mask_truncated_completions,
        "sampling": {"max_tokens": sampling.max_completion_length}
        | {name: value for name, value in further.items() if value not in (None, 1.0)},
    }


def _parity(credits: Sequence[Credit], method: GRPOSection) -> Iterator[dict[str, Any]]:
    """Yield the groups of a generation, a row a completion: its tokens' texts and columns, steps, credit, divisor."""
    rows = rows_of(0, credits, method.loss_type, method.sampling.max_completion_length)
    pairs = ((credit, i) for credit in credits for i in range(len(credit.scored.group)))
    for (credit, i), row in zip(pairs, rows, strict=True):
        group = credit.scored.group
        plain = row.model_dump(include={"group", "prompt", "ids", "mask", "finished", "outcome", "judged"})
        yield plain | {
            "texts": list(group.rollouts[i].texts),
            "columns": {**group.columns, **group.rollouts[i].columns},
            "opened": group.thinking_open,
            "steps": [step.model_dump(include={"start", "end", "reward"}) for step in row.steps],
            "advantages": row.advantages,
            "divisor": row.divisor,
        }


# --- verl -------------------------------------------------------------------------------------------------------------


def _verl_row(index: int, row: Mapping[str, Any], split: str, source: str) -> dict[str, Any]:
    """Return a row as verl's data sets have it; columns are JSON, in which types stay what they are."""
    prompt, columns = row["prompt"], row["columns"]
    is_plain, answer = isinstance(prompt, str), answer_column("answer", columns)
    truth = columns.get(answer) if answer else None
    return {
        "data_source": source,
        "prompt": [{"role": "user", "content": prompt}] if is_plain else prompt,
        "ability": "",
        "reward_model": {"style": "rule", "ground_truth": "" if truth is None else str(truth)},
        "extra_info": {
            "index": index,
            "split": split,
            "plain": is_plain,
            "columns": json.dumps(columns, ensure_ascii=False),
        },
    }


def _verl_keys(config: SharedConfig, method: GRPOSection) -> list[tuple[str, str, Any]]:
    """Return (a setting of ours, verl's, its value) for each that verl takes."""
    actor, rollout, model = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.model"
    sampling, optimiser, run, every = method.sampling, config.optimiser, config.run, method.num_iterations
    steps, slots = math.ceil(run.steps / every), 1 + (method.credit.gate == "outcome")
    high = method.epsilon if method.epsilon_high is None else method.epsilon_high
    is_embedded, lora = config.policy.path in EMBEDDED, config.policy.lora

    def generations(count: int) -> int:
        return max(1, count // every) if count else -1

    longest = sampling.max_completion_length if method.loss_type == "dr_grpo" else None
    falls = "constant" if optimiser.lr_scheduler_type.startswith("constant") else "cosine"
    checkpointing = optimiser.gradient_checkpointing
    shaped = {"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": sampling.top_k or -1}
    micro = run.micro_batch_size or method.rollouts_per_step // run.ranks
    of_lora = (
        []
        if lora is None
        else [
            ("policy.lora.r", f"{model}.lora_rank", lora.r),
            ("policy.lora.alpha", f"{model}.lora_alpha", lora.alpha),
            ("policy.lora.targets", f"{model}.target_modules", lora.names or lora.targets),
        ]
    )
    return [
        ("policy.path", f"{model}.path", "${oc.env:STEP_CREDIT}/policy" if is_embedded else config.policy.path),
        ("policy.trust_remote_code", f"{model}.trust_remote_code", config.policy.trust_remote_code),
        ("policy.trust_remote_code", "data.trust_remote_code", config.policy.trust_remote_code),
        ("seed", "data.seed", config.seed),
        ("prompt.template_kwargs", "data.apply_chat_template_kwargs", dict(config.prompt.template_kwargs)),
        ("method.max_prompt_length", "data.max_prompt_length", method.max_prompt_length or 1024),
        ("method.sampling.max_completion_length", "data.max_response_length", sampling.max_completion_length + slots),
        ("method.prompts_per_step", "data.train_batch_size", method.prompts_per_step),
        ("method.prompts_per_step", f"{actor}.ppo_mini_batch_size", method.prompts_per_step),
        ("method.sampling.num_generations", f"{rollout}.n", sampling.num_generations),
        *(
            (f"method.sampling.{name}", f"{rollout}.{of}{name}", value)
            for of in ("", "val_kwargs.")
            for name, value in shaped.items()
        ),
        ("method.num_iterations", f"{actor}.ppo_epochs", every),
        ("method.loss_type", f"{actor}.loss_agg_mode", _AGG[method.loss_type]),
        ("method.loss_type", f"{actor}.loss_scale_factor", longest),
        ("method.epsilon", f"{actor}.clip_ratio", method.epsilon),
        ("method.epsilon", f"{actor}.clip_ratio_low", method.epsilon),
        ("method.epsilon_high", f"{actor}.clip_ratio_high", high),
        ("method.beta", f"{actor}.use_kl_loss", method.beta > 0),
        ("method.beta", f"{actor}.kl_loss_coef", method.beta),
        ("optimiser.learning_rate", f"{actor}.optim.lr", optimiser.learning_rate),
        ("optimiser.warmup_steps", f"{actor}.optim.lr_warmup_steps", math.ceil(optimiser.warmup(run.steps) / every)),
        ("optimiser.warmup_ratio", f"{actor}.optim.lr_warmup_steps", math.ceil(optimiser.warmup(run.steps) / every)),
        ("optimiser.lr_scheduler_type", f"{actor}.optim.lr_scheduler_type", falls),
        ("optimiser.adam_beta1", f"{actor}.optim.betas", [optimiser.adam_beta1, optimiser.adam_beta2]),
        ("optimiser.adam_beta2", f"{actor}.optim.betas", [optimiser.adam_beta1, optimiser.adam_beta2]),
        ("optimiser.adam_epsilon", f"{actor}.optim.override_optimizer_config", {"eps": optimiser.adam_epsilon}),
        ("optimiser.weight_decay", f"{actor}.optim.weight_decay", optimiser.weight_decay),
        ("optimiser.max_grad_norm", f"{actor}.optim.clip_grad", optimiser.max_grad_norm or 1e9),
        ("optimiser.gradient_checkpointing", f"{model}.enable_gradient_checkpointing", checkpointing),
        ("run.steps", "trainer.total_training_steps", steps),
        ("run.micro_batch_size", f"{actor}.ppo_micro_batch_size_per_gpu", micro),
        ("run.micro_batch_size", f"{rollout}.log_prob_micro_batch_size_per_gpu", micro),
        ("run.micro_batch_size", "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu", micro),
        ("run.eval_steps", "trainer.test_freq", generations(run.eval_steps)),
        ("run.eval_steps", "trainer.val_before_train", bool(run.eval_steps)),
        ("run.save_steps", "trainer.save_freq", generations(run.save_steps)),
        ("run.save_total_limit", "trainer.max_actor_ckpt_to_keep", run.save_total_limit),
        ("run.ranks", "trainer.n_gpus_per_node", run.ranks),
        ("run.report_to", "trainer.logger", ["console", *run.report_to]),
        ("run.project", "trainer.project_name", run.project),
        ("name", "trainer.experiment_name", config.name or "run"),
        *of_lora,
    ]


_FIXED = {
    "data.train_files": "${oc.env:STEP_CREDIT}/train.parquet",
    "data.val_files": "${oc.env:STEP_CREDIT}/test.parquet",
    "data.filter_overlong_prompts": False,
    "algorithm.adv_estimator": "step_credit",
    "algorithm.use_kl_in_reward": False,
    "algorithm.filter_groups.enable": False,
    "algorithm.rollout_correction.rollout_is": None,
    "algorithm.rollout_correction.rollout_is_batch_normalize": False,
    "algorithm.rollout_correction.rollout_rs": None,
    "actor_rollout_ref.actor.policy_loss.loss_mode": "vanilla",
    "actor_rollout_ref.actor.clip_ratio_c": 1e9,  # no second clip of negative advantages
    "actor_rollout_ref.actor.kl_loss_type": "low_var_kl",
    "actor_rollout_ref.actor.entropy_coeff": 0,
    "actor_rollout_ref.rollout.name": "vllm",
    "actor_rollout_ref.rollout.tensor_model_parallel_size": 1,
    "actor_rollout_ref.rollout.val_kwargs.do_sample": True,
    "actor_rollout_ref.rollout.agent.default_agent_loop": "step_credit",
    "actor_rollout_ref.rollout.agent.agent_loop_config_path": "${oc.env:STEP_CREDIT}/agent.yaml",
    "trainer.total_epochs": 1_000_000,  # total_training_steps ends it
    "trainer.nnodes": 1,
}
"""Settings of verl that make it train on the exported credit, or do nothing that the run does not."""


def _verl_yaml(config: SharedConfig, method: GRPOSection) -> dict[str, Any]:
    nested: dict[str, Any] = {
        "hydra": {"searchpath": ["pkg://verl.trainer.config"]},
        "defaults": ["ppo_trainer", "_self_"],
    }
    for path, value in [*_FIXED.items(), *((key, value) for _, key, value in _verl_keys(config, method))]:
        *sections, name = path.split(".")
        inner = nested
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[name] = value
    return nested


# --- the Tinker protocol ----------------------------------------------------------------------------------------------


def _tinker_keys(config: SharedConfig, method: GRPOSection) -> list[tuple[str, str, Any]]:
    """Return (a setting of ours, its name in settings.json, its value) for each that ``train.py`` takes."""
    engine, optimiser, lora = config.engine, config.optimiser, config.policy.lora
    tokenizer = "policy" if config.policy.path in EMBEDDED else policy_path(config.policy.path)
    falls = next((name for name in ("constant", "cosine") if optimiser.lr_scheduler_type.startswith(name)), "linear")
    warmup = 0 if optimiser.lr_scheduler_type == "constant" else optimiser.warmup(config.run.steps)
    of_rank, rank = ("policy.lora.r", lora.r) if lora and not engine.is_remote else ("engine.rank", engine.rank)
    high = method.epsilon if method.epsilon_high is None else method.epsilon_high
    return [
        ("policy.path", "tokenizer", tokenizer),
        ("engine.base_model", "base_model", engine.base_model or tokenizer),
        ("engine.url", "url", engine.url),
        ("engine.key_env", "key_env", engine.key_env),
        (of_rank, "rank", rank),
        ("seed", "seed", config.seed),
        ("prompt.template_kwargs", "template_kwargs", dict(config.prompt.template_kwargs)),
        ("run.steps", "steps", config.run.steps),
        ("method.prompts_per_step", "prompts_per_step", method.prompts_per_step),
        ("method.sampling.num_generations", "num_generations", method.sampling.num_generations),
        ("method.num_iterations", "num_iterations", method.num_iterations),
        ("method.loss_type", "loss_type", method.loss_type),
        ("method.epsilon", "epsilon", method.epsilon),
        ("method.epsilon_high", "epsilon_high", high),
        ("optimiser.learning_rate", "learning_rate", optimiser.learning_rate),
        ("optimiser.warmup_steps", "warmup_steps", warmup),
        ("optimiser.warmup_ratio", "warmup_steps", warmup),
        ("optimiser.lr_scheduler_type", "lr_scheduler_type", falls),
        ("optimiser.adam_beta1", "beta1", optimiser.adam_beta1),
        ("optimiser.adam_beta2", "beta2", optimiser.adam_beta2),
        ("optimiser.adam_epsilon", "eps", optimiser.adam_epsilon),
        ("optimiser.weight_decay", "weight_decay", optimiser.weight_decay),
        ("optimiser.max_grad_norm", "grad_clip_norm", optimiser.max_grad_norm),
    ]


_KEYS = {"verl": _verl_keys, "tinker": _tinker_keys}
_SCHEDULES = {"verl": ("constant", "cosine"), "tinker": ("constant", "cosine", "linear")}
"""Courses of the learning rate that there are."""


# --- what is not carried ----------------------------------------------------------------------------------------------

_HERE = "how this package runs, not what it trains"
_ROWS = "the rows are written out as this makes them"
_CODE = "settings.json, rewards/ and workbench/ hold it"
_ELSEWHERE = {_ROWS, _CODE, _HERE}
"""Why a setting is not missed there."""
_NO_KL = "no KL is sent; `train --engine tinker` sends its gradient"
_NOT_MEASURED = "train.py stores and measures nothing"
_IN_PROCESS = "reward code runs in verl's own workers, without a deadline; an error fails the prompt's group"
_VERL_SHAPE = (
    "verl holds weights in float32, computes in bfloat16, and has fields of its own (fsdp_config, override_config)"
)
_FSDP_LORA = "LoRA under FSDP takes rank, alpha and target_modules alone"
_LEFT: dict[Target, dict[str, str]] = {
    "verl": {
        "task": _ROWS,
        "prompt": _ROWS,
        "method.credit": _CODE,
        "method.pattern": _CODE,
        "method.rewards": _CODE,
        "method.sampling.min_p": _CODE,
        "method.sampling.repetition_penalty": _CODE,
        "method.mask_truncated_completions": _CODE,
        "run.eval_prompts": _ROWS,
        "run.eval_skip": _ROWS,
        "run.epochs": _ROWS,
        "method.name": _HERE,
        "method.sampling.stop": "verl starts its servers without a tokenizer (skip_tokenizer_init), and then no text "
        "stops them: answers run on to their end token",
        "optimiser.lr_scheduler_type": "verl has constant and cosine under FSDP: any other is written as cosine, which "
        "ends at 0; one step of it is a generation",
        "optimiser.optim": "torch's AdamW, verl's own default; optim.optimizer and optimizer_impl name another",
        "policy.adapter": "not loaded; export the run's model with --merged and name that as model.path",
        "policy.merge": "not merged; export the model with --merged and name that as model.path",
        "policy.lora.dropout": _FSDP_LORA,
        "policy.lora.rslora": _FSDP_LORA,
        "policy.lora.dora": _FSDP_LORA,
        "policy.lora.bias": _FSDP_LORA,
        "policy.lora.modules_to_save": _FSDP_LORA,
        "policy": _VERL_SHAPE,
        "run.device": "verl trains on GPUs (trainer.device cuda) or NPUs",
        "run.watch_prompts": "no prompts are followed; trainer.log_val_generations logs held-out answers",
        "run.watch_every": "no prompts are followed",
        "method.resample_flat": "verl's filter_groups goes by the sum of an answer's rewards, and not by advantages: "
        "it is off, and groups without spread stay in the batch",
        "method.sync_ref_model": "the reference stays as it was loaded",
        "method.ref_model_mixup_alpha": "the reference stays as it was loaded",
        "method.ref_model_sync_steps": "the reference stays as it was loaded",
        "method.rollouts_every": "trainer.rollout_data_dir stores every generation, with scores that are sums of rows",
        "method.isolate_rewards": _IN_PROCESS,
        "method.reward_deadline": _IN_PROCESS,
        "method.on_reward_error": _IN_PROCESS,
        "method.max_reward_errors": _IN_PROCESS,
        "method.trl": "no trainer of TRL's takes part",
        "engine": _HERE,
        "environment": _HERE,  # one with a name is refused
        "origins": _HERE,
    },
    "tinker": {
        "name": _HERE,
        "policy": "the weights are the server's",
        "task": _ROWS,
        "prompt": _ROWS,
        "environment": _HERE,  # one with a name is refused
        "engine": _HERE,
        "origins": _HERE,
        "method": _HERE,
        **dict.fromkeys(("method.credit", "method.pattern", "method.rewards"), _CODE),
        **dict.fromkeys(("method.mask_truncated_completions", "method.sampling.max_completion_length"), _CODE),
        **dict.fromkeys(("method.beta", "method.sync_ref_model"), _NO_KL),
        **dict.fromkeys(("method.ref_model_mixup_alpha", "method.ref_model_sync_steps"), _NO_KL),
        "method.max_prompt_length": "no prompt is left out for its length",
        "method.trl": "no trainer of TRL's takes part",
        "method.sampling": "the server samples from the plain softmax, so that the ratio is 1",
        "method.sampling.stop": "train.py stops at end tokens alone",
        "method.resample_flat": "no group is sampled again",
        **dict.fromkeys(("method.isolate_rewards", "method.reward_deadline"), "reward code runs in train.py itself"),
        **dict.fromkeys(("method.on_reward_error", "method.max_reward_errors"), "an error ends train.py"),
        "method.rollouts_every": _NOT_MEASURED,
        "run": _HERE,
        "run.epochs": _ROWS,
        **dict.fromkeys(("run.eval_steps", "run.eval_prompts"), _NOT_MEASURED),
        "run.eval_skip": _ROWS,
        **dict.fromkeys(("run.watch_prompts", "run.watch_every"), _NOT_MEASURED),
        **dict.fromkeys(("run.save_steps", "run.save_total_limit"), "the weights are saved once, at the end"),
        "optimiser": "the server's optimiser is AdamW and spreads the work itself",
        "optimiser.lr_scheduler_type": "train.py has constant, cosine and linear: any other is written as linear",
    },
}
"""A setting, or a section, that the engine does not take → what becomes of it."""


def _reasons(config: SharedConfig, target: Target) -> Iterator[tuple[str, str]]:
    """Yield every setting that the engine does not take under a name of its own, with what becomes of it.

    Raises StopIteration for one of which nothing is known.
    """
    taken = {ours for ours, _, _ in _KEYS[target](config, section_of(config))}
    if not config.optimiser.lr_scheduler_type.startswith(_SCHEDULES[target]):
        taken.discard("optimiser.lr_scheduler_type")
    for path in config.flat():
        if not any(path == one or path.startswith(f"{one}.") for one in taken):
            prefixes = [*accumulate(path.split("."), lambda one, other: f"{one}.{other}")]
            yield path, next(_LEFT[target][one] for one in reversed(prefixes) if one in _LEFT[target])


NOTES: dict[Target, tuple[str, ...]] = {
    "verl": (
        "verl hands an estimator one number a token (`rm_scores`). A step's reward stands at its last token; 0 is sent "
        "as 2^-100 and unscored as 2^-101, so that 0 means that no step ends. Behind each answer there is a masked "
        "token with its outcome (under the gate, two), which counts in `response_length` and not in the loss.",
        "`critic/score` and held-out scores are the sum of an answer's step rewards and its outcome; the outcome alone "
        "is in `reward_extra_info`.",
        "Two steps that end in one token cannot be sent: such an answer fails, and verl drops its group.",
        "`loss_agg_mode` divides by the tokens, or the answers, of the mini-batch over all GPUs. With `bnpo` the run "
        "divides by those of each micro-batch.",
        "With `use_kl_in_reward`, importance weights of `rollout_correction` or `filter_groups`, what trains is not "
        "the run's credit any more; check.py says so. Advantages are rounded once, and rewards to float32 before that.",
        "TRL computes the ratio with its own forward pass; verl does as well (`old_log_probs`), from weights whose "
        "sampler is another engine.",
        "verl draws the prompts in an order of its own (`data.shuffle`, by `data.seed`), and goes on from "
        "`checkpoints/` where the folder it is started in has some of the name (`trainer.resume_mode`).",
        "A KL is verl's `low_var_kl`: TRL's k3, bounded at 10 in size for a token.",
    ),
    "tinker": (
        "The protocol's loss is a plain sum, so the divisor is sent with the advantages. SkyRL's server on JAX "
        "averages over a row's targets and over rows all the same: train.py does not undo it, `train --engine tinker` "
        "does.",
        "Arrays are those of the targets, one shorter than the tokens, 0 over the prompt; advantage 0 is the mask.",
        "Two steps that end in one token cannot be sent: such an answer ends train.py.",
        "train.py takes rows in the file's order, and stores, resumes and measures nothing.",
    ),
}


def _not_carried(config: SharedConfig, target: Target, reasons: Mapping[str, str]) -> str:
    flat, name = config.flat(), f"verl {VERL}" if target == "verl" else "train.py"
    lines = [f"# What {name} does not take", "", *(f"- {note}" for note in NOTES[target]), ""]
    lines += ["| setting | in the run | there |", "|---|---|---|"]
    for path, why in reasons.items():
        value = flat[path].replace("\n", " ").replace("|", "\\|")
        lines.append(f"| `{path}` | `{value[:80]}` | {why} |")
    lines += [
        "",
        f"Not missed there: {_ROWS} (`task`, `prompt`); {_CODE} (`method.credit`, `method.pattern`, rewards).",
        *("", "What it takes:", "", "| setting | its name there | value |", "|---|---|---|"),
        *(f"| `{ours}` | `{key}` | `{value}` |" for ours, key, value in _KEYS[target](config, section_of(config))),
    ]
    return "\n".join(lines) + "\n"
