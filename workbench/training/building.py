"""Build a method's trainer: policy, adapter, transformers' arguments, rows, rewards and what is measured.

``stored_trainer`` builds the trainers of methods on stored rows, ``sampling_trainer`` those that sample completions.
How a row becomes tokens and what is shown of it is the methods' own.
"""

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import torch
from accelerate.utils import gather_object
from datasets import Dataset, disable_progress_bars
from pydantic import TypeAdapter, ValidationError

from workbench.assets import EMBEDDED
from workbench.config import OTHER_NAMES, MethodSection, PolicySection, SamplingConfig, SharedConfig
from workbench.data import Task, load_task, prompted
from workbench.errors import ConfigError, did_you_mean, quote
from workbench.models.find import check_language_model
from workbench.models.weights import check_memory, pick_device
from workbench.policies.belief import policy_reward
from workbench.policies.load import Policy, load_policy, local_adapter, prepared, read_lora
from workbench.policies.prompts import Observations, check_template_kwargs, plain_prompt_note, turn_end_note
from workbench.rewards import ErrorBudget, Reward, Sandbox, columns_left_out, load_reward
from workbench.rewards.environments import Environment, load_environment
from workbench.rewards.models.model import LocalModels
from workbench.schema import Prompt, TokenMeasure
from workbench.training.config import ProcessGRPOConfig
from workbench.training.generation import PolicySampler, within_context
from workbench.training.methods.base import Listeners, SampledSection, StoredSection, Trainer, section_of
from workbench.training.trainer import ProcessGRPOTrainer
from workbench.training.watching import (
    HeldOutAccuracy,
    Look,
    Measure,
    TokenRows,
    evaluating,
    measure_while_training,
    watch_prompts,
    watch_rows,
    watched_rows,
    watched_sets,
)

AnyTrainer = TypeVar("AnyTrainer", bound=ProcessGRPOTrainer)
Numbers = Callable[[Any, Mapping[str, torch.Tensor]], Sequence[Any]]
"""Of a trainer and a batch from its collator: what is measured of each of its rows."""
MEASURED = "measured"
"""The name of the data set that a trainer is measured on, among those it is given beside its training rows."""


# -- weights and adapters ----------------------------------------------------------------------------------------------


def load_trained_policy(config: SharedConfig) -> Policy:
    """The policy on the CPU, from where the trainer places it; its weights are float32 unless the run says otherwise.

    What is quantised, or spread over several GPUs, lies where it is trained.
    """
    section = config.policy
    check_language_model(section.path)
    is_placed = section.quantisation != "none" or section.device_map != "none"
    policy = load_policy(
        section.path,
        section.adapter,
        merge=section.merge,
        device=_device_of_rank(config.run.device) if is_placed else "cpu",
        quantisation=section.quantisation,
        device_map=section.device_map,
        trainable=True,
        **trained_weights(section),
    )
    device = pick_device(config.run.device)
    if not is_placed and device.type == "cuda":
        check_memory(policy.model, None, device)
    if config.lost_updates:
        say(f"warning: {config.lost_updates}")
    if section.lora is not None:
        prepared(policy.model)
    if section.lora is not None and hasattr(policy.model, "peft_config"):
        raise ConfigError(
            f"policy.lora: the policy {section.path!r} is an adapter already, which is trained on; leave "
            "policy.lora out, or name the adapter's base as the policy and it in policy.merge"
        )
    if section.merge and section.adapter is not None:
        read_lora(section.adapter, local_adapter(section.adapter))  # its checkpoints are a sum with the others
    return policy


def trained_weights(policy: PolicySection) -> dict[str, Any]:
    """Return how to load the weights to train: in float32 by default, unless they are quantised."""
    in_full = policy.dtype == "auto" and policy.quantisation == "none"
    return {
        "dtype": "float32" if in_full else policy.dtype,
        "attention": policy.attention,
        "trust_remote_code": policy.trust_remote_code,
    }


def _device_of_rank(device: str) -> str:
    name = pick_device(device).type
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if name == "cuda" else name


def lora_config(policy: PolicySection, task_type: str | None = "CAUSAL_LM", **more: Any) -> Any:
    """peft's configuration of the adapter to train, and a classifier's head (SEQ_CLS); None for all weights."""
    lora = policy.lora
    if lora is None:
        return None
    from peft import LoraConfig

    return LoraConfig(
        r=lora.r,
        lora_alpha=lora.alpha,
        target_modules=lora.names or lora.targets,
        lora_dropout=lora.dropout,
        use_rslora=lora.rslora,
        use_dora=lora.dora,
        bias=lora.bias,
        task_type=task_type,
        **{"modules_to_save": lora.modules_to_save or None} | more,
    )


def with_lora(model: Any, policy: PolicySection) -> Any:
    """The model with the adapter to train, where one is asked for; what is not the body, a head, is trained whole."""
    if policy.lora is None:
        return model
    from peft import get_peft_model

    heads = [  # a classifier's modules beside its body that have weights
        name
        for name, child in model.named_children()
        if model.get_output_embeddings() is None
        and name != model.base_model_prefix
        and any(True for _ in child.parameters())
    ]
    inside = [name for head in heads for name, _ in model.named_modules() if name.split(".")[0] == head]
    whole = [*heads, *policy.lora.modules_to_save]
    return get_peft_model(
        model, lora_config(policy, None, exclude_modules=inside or None, modules_to_save=whole or None)
    )


# -- arguments ---------------------------------------------------------------------------------------------------------


def trainer_arguments(config: SharedConfig, output_dir: Path) -> dict[str, Any]:
    """Return the arguments of the configuration of a run's trainer; those that ``method.trl`` sets come last."""
    method = config.method
    arguments = shared_arguments(config, output_dir, method.rows_per_step // config.run.ranks)
    if isinstance(method, SampledSection):
        arguments |= {
            "activation_checkpointing": config.optimiser.gradient_checkpointing,
            "num_iterations": method.num_iterations,
            "remove_unused_columns": False,
            "trust_remote_code": config.policy.trust_remote_code,  # for the reference, which TRL loads itself
            "mask_truncated_completions": method.mask_truncated_completions,
            **method.sampling.model_dump(),
            "step_pattern": asdict(method.pattern),
            "chat_template_kwargs": dict(config.prompt.template_kwargs) or None,
        }
    else:
        arguments["gradient_checkpointing"] = config.optimiser.gradient_checkpointing
    own = arguments | method.own_arguments(config)
    return own | _trl_fields(method, own)


_LOGGED, _STORED = "every step is logged", "the run's directory is the workbench's to write"
_ONE_BATCH = "a generation is one batch: method.prompts_per_step groups"
_RESUMED = "a run could not be resumed to the same curve; leave it out"
_PUBLISHED = "a model is published with: python -m workbench export RUN --push OWNER/NAME"
_REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("logging_steps", "logging_strategy", "logging_first_step", "logging_nan_inf_filter"), _LOGGED),
    **dict.fromkeys(("output_dir", "disable_tqdm", "remove_unused_columns", "log_completions_hub_repo"), _STORED),
    **dict.fromkeys(("steps_per_generation", "generation_batch_size", "num_generations_eval"), _ONE_BATCH),
    **dict.fromkeys(("save_only_model", "ignore_data_skip", "load_best_model_at_end"), _RESUMED),
    **dict.fromkeys(("push_to_hub", "hub_model_id", "hub_strategy", "hub_token", "hub_private_repo"), _PUBLISHED),
    **dict.fromkeys(("hub_always_push", "hub_revision"), _PUBLISHED),
    **dict.fromkeys(("auto_find_batch_size", "per_device_eval_batch_size"), "here it is run.micro_batch_size"),
    **dict.fromkeys(("eval_strategy", "do_eval", "eval_steps"), "here it is run.eval_steps"),
    **dict.fromkeys(("bf16", "fp16", "model_init_kwargs", "trust_remote_code"), "policy's own fields set this"),
    "resume_from_checkpoint": "a run is resumed with: python -m workbench resume RUN",
    "completion_only_loss": "sft learns from completions alone",
}
"""Names that are settled by how the workbench runs, and why."""
_OVERRIDABLE = {"dataloader_pin_memory"}
"""Arguments of ours that ``method.trl`` may set as well."""


def _trl_fields(method: MethodSection, own: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``method.trl`` sets, of the types that the trainer's configuration has.

    Raises ConfigError for a field that there is not, that another field of a run sets, or that would break a run.
    """
    if not method.trl:
        return {}
    import transformers
    import trl

    of: Any = getattr(trl, method.trl_config, None) or getattr(transformers, method.trl_config)
    kinds = get_type_hints(of)
    read = {}
    for name, value in method.trl.items():
        where = f"method.trl.{name}"
        if name in _REFUSED:
            raise ConfigError(f"{where}: {_REFUSED[name]}")
        if name in OTHER_NAMES or (name in own and name not in _OVERRIDABLE):
            raise ConfigError(f"{where}: a field of the run sets this: {OTHER_NAMES.get(name, name)}")
        if name not in kinds or name.startswith("_"):
            raise ConfigError(f"method.trl: {of.__name__} has no field {quote(name)}{did_you_mean(name, kinds)}")
        try:
            read[name] = TypeAdapter(kinds[name], config={"arbitrary_types_allowed": True}).validate_python(value)
        except ValidationError as error:
            raise ConfigError(f"{where}: {error.errors()[0]['msg']} (got {quote(value)})") from error
    return read


def shared_arguments(config: SharedConfig, output_dir: Path, rank_batch: int) -> dict[str, Any]:
    """Arguments of transformers' ``TrainingArguments`` that any method takes; a step has ``rank_batch`` rows a rank."""
    optimiser, run, dtype = config.optimiser, config.run, config.policy.dtype
    device = pick_device(run.device)
    micro_batch = run.micro_batch_size or rank_batch
    # bfloat16 where a GPU can and nothing else is said, else as the weights are
    half = device.type == "cuda" and torch.cuda.is_bf16_supported() and config.policy.path not in EMBEDDED
    return {
        "output_dir": str(output_dir),
        "seed": config.seed,
        "use_cpu": device.type == "cpu",
        "bf16": dtype == "bfloat16" or (dtype == "auto" and half),
        **({"fp16": True} if dtype == "float16" else {}),
        "max_steps": run.steps,
        "per_device_train_batch_size": micro_batch,
        "gradient_accumulation_steps": rank_batch // micro_batch,
        # The optimiser
        "optim": optimiser.optim,
        "learning_rate": optimiser.learning_rate,
        "lr_scheduler_type": optimiser.lr_scheduler_type,
        "warmup_steps": optimiser.warmup(run.steps),
        "adam_beta1": optimiser.adam_beta1,
        "adam_beta2": optimiser.adam_beta2,
        "adam_epsilon": optimiser.adam_epsilon,
        "weight_decay": optimiser.weight_decay,
        "max_grad_norm": optimiser.max_grad_norm,
        # What is logged and saved
        "logging_steps": 1,
        "logging_first_step": True,
        "logging_nan_inf_filter": False,
        "save_strategy": "steps" if run.save_steps else "no",
        "save_steps": run.save_steps or 1,
        "save_total_limit": run.save_total_limit,
        "report_to": list(run.report_to) or "none",
        "run_name": config.name or output_dir.parent.name,
        "project": run.project,
        "disable_tqdm": True,
        "dataloader_pin_memory": device.type == "cuda",
    }


# -- trainers on stored rows -------------------------------------------------------------------------------------------


def as_conversation(
    tokenizer: Any, template_kwargs: Mapping[str, Any] | None, prompt: Prompt, **answers: Prompt
) -> dict[str, Any]:
    """A row for TRL's chat templates, with texts as messages, and by which its trainers learn the template's arguments.

    Raises PolicyError for an argument that the template does not read.
    """
    texts = {"prompt": ("user", prompt), **{name: ("assistant", text) for name, text in answers.items()}}
    row: dict[str, Any] = {
        name: [{"role": role, "content": text}] if isinstance(text, str) else text
        for name, (role, text) in texts.items()
    }
    if template_kwargs:
        check_template_kwargs(tokenizer.chat_template, template_kwargs)
        row["chat_template_kwargs"] = dict(template_kwargs)
    return row


def stored_trainer(
    trainer_class: Any,
    arguments_class: Any,
    config: SharedConfig,
    output_dir: Path,
    listeners: Listeners,
    *,
    model: Any,
    tokenizer: Any,
    tokens: TokenRows,
    measure: TokenMeasure,
    view: Look,
    policy: Policy | None = None,
    numbers: Numbers | None = None,
    metrics: Callable[[Sequence[Any]], Mapping[str, float]] | None = None,
    cut: Callable[[Any], Any] | None = None,
    **more: Any,
) -> Trainer:
    """Put a run's rows and a model into a trainer of transformers or TRL.

    Args:
        trainer_class: has the mixin ``training.saving.Resumable``; ``arguments_class`` is its configuration's.
        tokens: makes rows for the trainer's collator of rows of the task.
        measure, view: what a token of the run's watched rows shows, and what they are looked at by.
        policy: of a method that trains a policy, whose accuracy is measured by sampling.
        numbers, metrics: what is measured of a batch of held-out rows, and the metrics of all rows' numbers.
        cut: what of a row is trained on; all of it by default.
        **more: other arguments of the class.

    Raises:
        WorkbenchError: for bad rows, and where none fits ``method.max_length``.
    """
    disable_progress_bars()  # nobody who reads a run's log can act on them
    watched, method = watched_rows(config, tokens), config.method
    assert isinstance(method, StoredSection)
    measured = _fitting(method, method.eval_rows(config), tokens) if numbers else []
    trainer = trainer_class(
        model=model,
        args=arguments_class(**trainer_arguments(config, output_dir)),
        train_dataset=_training_set(config, method, tokens, cut),
        eval_dataset=({MEASURED: Dataset.from_list(measured)} if measured else {}) | watched_sets(watched, tokens),
        processing_class=tokenizer,
        callbacks=list(listeners.callbacks),
        **more,
    )
    measures: list[Measure] = []
    if numbers is not None and metrics is not None and MEASURED in (trainer.eval_dataset or {}):
        measures.append(partial(measure_rows, trainer, numbers, metrics))
    if policy is not None:
        trainer.under = policy.under
        measures += _accuracy_measures(trainer, config, policy, listeners)
    measure_while_training(trainer, config.run, measures)
    if listeners.on_rows is not None:
        watch_rows(trainer, config, measure, view, watched, listeners.on_rows)
    return trainer


def _training_set(
    config: SharedConfig, method: StoredSection, tokens: TokenRows, cut: Callable[[Any], Any] | None
) -> Dataset:
    """Return the run's rows as tokens. Raises TaskError for bad rows, ConfigError if none fits ``max_length``."""
    stored = method.training_rows(config)
    doubts = Counter(doubt for row in stored if (doubt := getattr(row, "doubt", "")))
    for doubt, count in doubts.items():
        say(f"warning: {count:,} of {len(stored):,} {method.unit}: {doubt}")
    rows = _fitting(method, stored if cut is None else [*map(cut, stored)], tokens)
    if not rows:
        raise ConfigError(
            f"method.max_length: none of the {method.unit} fits {method.max_length} tokens; set it higher"
        )
    if len(rows) < method.batch_size:
        say(f"note: a step takes {len(rows)} {method.unit}, all there are, and not {method.batch_size}")
    return Dataset.from_list(rows)


def _fitting(method: StoredSection, rows: Sequence[Any], token_rows: TokenRows) -> list[dict[str, Any]]:
    fitting = token_rows(rows)
    if left_out := len(rows) - len(fitting):
        say(f"{left_out:,} of {len(rows):,} {method.unit} are left out: {method.why_left_out}")
    return fitting


def say(line: str) -> None:
    """Write a line of the run's log, once for all ranks."""
    if os.environ.get("RANK", "0") == "0":
        print(line, flush=True)


def measure_rows(
    trainer: Any, numbers: Numbers, metrics: Callable[[Sequence[Any]], Mapping[str, float]]
) -> Mapping[str, float]:
    """Measure the trainer's held-out rows; ranks share them, a batch of training's at a time.

    ``numbers(batch)`` gives what is measured of each row of a batch as the trainer's collator makes it, ``metrics``
    makes metrics of all rows' numbers.
    """
    rows, size = trainer.eval_dataset[MEASURED], trainer.args.per_device_train_batch_size
    ranks, rank = trainer.accelerator.num_processes, trainer.accelerator.process_index
    share, measured = -(-len(rows) // ranks), list[tuple[int, Any]]()
    mine = [rank + i * ranks for i in range(share)]  # past the end on some ranks: all do as many forward passes
    for start in range(0, share, size):
        places = mine[start : start + size]
        batch = trainer.data_collator([rows[place % len(rows)] for place in places])
        batch = {name: tensor.to(trainer.accelerator.device) for name, tensor in batch.items()}
        with evaluating(trainer):
            measured += zip(places, numbers(trainer, batch), strict=True)
    everyone = dict(gather_object(measured))
    return metrics([everyone[place] for place in range(len(rows))])


def _accuracy_measures(trainer: Any, config: SharedConfig, policy: Policy, listeners: Listeners) -> list[Measure]:
    """Return the measures of accuracy and of answers in steps, if the run measures and the task can check answers."""
    sampling: SamplingConfig = config.method.sampling  # type: ignore[attr-defined]  # of methods with a policy
    has_template = policy.tokenizer.chat_template is not None
    task = within_context(prompted(load_task(config.task), config.prompt, has_template), policy, config, sampling, 0)
    if not config.run.eval_steps or not task.can_check or not len(task.held_out):
        return []
    rows_at_once = trainer.args.per_device_train_batch_size
    environment = load_environment(config.environment, lambda: Sandbox(isolate=config.method.isolate_rewards))
    sampler = PolicySampler(trainer, sampling, rows_at_once, config.prompt.template_kwargs, environment)
    return [HeldOutAccuracy(trainer, sampler, task, config.run, task.pattern, on_answers=listeners.on_answers)]


def rename_metrics(trainer: Any, names: Mapping[str, str]) -> None:
    """Call what TRL has just logged of a batch by this project's names; its ``margin`` is not the held-out pairs'."""
    logged = trainer._metrics["train"]
    for name, ours in names.items():
        logged[ours] += logged.pop(name, [])


# -- trainers that sample ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sampling:
    """The parts of a run that samples beside its policy: its prompts, and who scores and answers the completions."""

    task: Task
    worker: Sandbox
    rewards: Sequence[Reward]
    budget: ErrorBudget | None
    """None: the first error of a reward function stops the run."""
    environment: Environment | None


def sampling_of(config: SharedConfig, policy: Policy) -> Sampling:
    """Load task, rewards and environment of a run that samples from ``policy``.

    Raises WorkbenchError for anything in the configuration that cannot be loaded or cannot work together.
    """
    method = section_of(config)
    task = load_task(config.task)
    if note := plain_prompt_note(policy.tokenizer.chat_template, config.prompt, task[0]):
        say(f"note: {note}")
    task = prompted(task, config.prompt, policy.tokenizer.chat_template is not None)
    wanted = method.rows_wanted(config)
    task = replace(task, examples=task.some("prompts", wanted, config.seed))
    task = within_context(task, policy, config, method.sampling, wanted)
    if names := columns_left_out(task[0].columns):
        say(f"task: {', '.join(map(repr, names))} would hide an argument of reward functions and is left out")
    worker = Sandbox(method.reward_deadline, isolate=method.isolate_rewards)
    models = LocalModels(config.run.device, kept=sum(reward.model is not None for reward in method.rewards))
    values: dict[str, Any] = {"template_kwargs": config.prompt.template_kwargs, "pattern": method.pattern}
    rewards = [
        load_reward(reward, worker, models=models, pattern=method.pattern)
        if not reward.asks_policy
        else policy_reward(reward, policy, method.sampling, config.seed, **values)
        for reward in method.rewards
    ]
    budget = None
    if method.on_reward_error == "unscored":
        budget = ErrorBudget(method.max_reward_errors, lambda error: print(f"unscored: {error}", flush=True))
    environment = load_environment(config.environment, lambda: worker)
    if environment is not None:  # before anything is sampled
        Observations(policy.tokenizer, config.environment, config.prompt.template_kwargs).check(task[0].prompt)
    return Sampling(task, worker, rewards, budget, environment)


def check_sharing(sharing: str, config: SharedConfig) -> None:
    """Raise ConfigError for what needs the policy's whole weights in a rank, where ranks have shares of them.

    To sample, TRL gathers them under ZeRO 3 and FSDP; the group sampler, which stops at texts and by which accuracy is
    measured, does so under ZeRO 3 alone. ``sharing`` is that of ``ProcessGRPOTrainer``.
    """
    method, run = section_of(config), config.run
    needing = [f"method.rewards: {reward.name!r} asks the policy" for reward in method.rewards if reward.asks_policy]
    if (credit := getattr(method, "credit", None)) is not None and credit.oar:
        needing.append("method.credit.oar: importances are gradients of the policy")
    if sharing == "FSDP":
        needing += ["method.sampling.stop: TRL samples, which does not stop at texts"] * bool(method.sampling.stop)
        needing += [f"run.eval_steps: {run.eval_steps} measures accuracy (0 does not)"] * bool(run.eval_steps)
        needing += [f"run.watch_prompts: {run.watch_prompts} are answered apart (0 are not)"] * bool(run.watch_prompts)
    if sharing and needing:
        raise ConfigError(f"{needing[0]}, and under {sharing} no rank has its whole weights; leave one of the two out")


def measure_sampled(trainer: Any, config: SharedConfig, sampling: Sampling, listeners: Listeners) -> None:
    """Have a trainer that samples measure its held-out accuracy and look at its watched prompts."""
    method, task = section_of(config), sampling.task
    if note := turn_end_note(trainer.sample.record(task[0].prompt)):
        say(f"note: {note}")
    if not len(task.held_out):
        say("note: the task has one row, which is trained on; nothing is held out, so accuracy is not measured")
    elif config.run.eval_steps and task.can_check:
        measure = HeldOutAccuracy(
            trainer, trainer.sample, task, config.run, read=method.pattern, on_answers=listeners.on_answers
        )
        measure_while_training(trainer, config.run, [measure])
    if config.run.watch_prompts and (on_watched := listeners.on_watched) is not None:
        watch_prompts(trainer, task, config, method.sampling, sampling.rewards, sampling.worker, on_watched)


def sampling_trainer(
    trainer_class: type[AnyTrainer], config: SharedConfig, args: ProcessGRPOConfig, listeners: Listeners, **own: Any
) -> AnyTrainer:
    """Load task, policy and rewards, and put them into a trainer; ``own`` are the class's further arguments.

    Raises:
        WorkbenchError: for anything in the configuration that cannot be loaded or cannot work together.
    """
    method = section_of(config)
    policy = load_trained_policy(config)
    sampling = sampling_of(config, policy)
    task = sampling.task
    trainer = trainer_class(
        model=policy.model,
        reward_funcs=[reward for reward in sampling.rewards if reward.kind == "outcome"],
        args=args,
        step_rewards=[reward for reward in sampling.rewards if reward.kind == "step"],
        policy_name=config.policy.path,
        train_dataset=Dataset(method.rows_of(config, task)),
        processing_class=policy.tokenizer,
        peft_config=lora_config(config.policy),
        is_right=task.answer_is_right if task.can_check else None,
        on_rollouts=if_stored(method, listeners.on_rollouts, lambda step, credits: step),
        on_pass=if_stored(method, listeners.on_pass, lambda seen: seen.generation),
        reward_worker=sampling.worker,
        error_budget=sampling.budget,
        environment=sampling.environment,
        callbacks=list(listeners.callbacks),
        **own,
    )
    check_sharing(trainer.sharing, config)
    trainer.under = policy.under
    if policy.merged and trainer.ref_model is not None:  # which TRL reads from the base's files
        with torch.no_grad():
            for name, weight in trainer.accelerator.unwrap_model(trainer.ref_model).named_parameters():
                weight.copy_(policy.model.get_parameter(name))
    measure_sampled(trainer, config, sampling, listeners)
    return trainer


def if_stored(method: SampledSection, listener: Callable[..., None] | None, first_step: Callable[..., int]) -> Any:
    """``listener``, told of every ``rollouts_every``-th generation, whose first step is read off what it is told."""

    def tell(*arguments: Any) -> None:
        if (first_step(*arguments) - 1) // method.num_iterations % method.rollouts_every == 0:
            assert listener is not None
            listener(*arguments)

    return None if listener is None else tell
