"""A run on a server that speaks the Tinker protocol: SkyRL's own, or hosted Tinker.

The server samples, computes gradients and keeps the weights, a LoRA of its base model. This process splits, scores and
credits as any other run's does, and what it sends as ``advantages`` is **the tensor that is on screen** times one
number a completion. The protocol's loss is the plain sum over tokens of -ratio · advantage, so the divisor of
``method.loss_type`` is sent with the advantages: A_t · c_i, c_i as ``credit.length_normalisers`` has it. A server that
averages instead (SkyRL's on JAX: over the targets of a row, then over rows) is found out before the first step, and its
means are undone in what is sent. Arrays are those of the *targets*, one shorter than the tokens, with 0 over the
prompt; advantage 0 is the mask.

With ``beta`` the gradient of TRL's k3 at the policy that sampled is sent, too: (A_t - beta (1 - pi_ref / pi)) · c_i.
``engine/loss_gap`` says at each step how far the loss that the server returns for a token is from what was sent.

The run's directory, its curves, measures, checkpoints, stop and resume are those of every run: the loop drives
transformers' callbacks as transformers' trainer would.

The protocol: https://tinker-docs.thinkingmachines.ai; losses: ``TrainingClient.forward_backward`` there.
"""

from __future__ import annotations

import re
import tarfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import urlopen

import numpy as np
import numpy.typing as npt
import torch
from accelerate import Accelerator
from safetensors.torch import load_file
from transformers import TrainerControl, TrainerState, get_scheduler
from transformers.integrations import get_reporting_integration_callbacks
from transformers.trainer_callback import CallbackHandler, DefaultFlowCallback

from workbench.checks.metrics import group_metrics
from workbench.config import EngineSection, SharedConfig
from workbench.credit import credit_groups, length_normalisers
from workbench.errors import EngineError
from workbench.files import encode, read_json
from workbench.models.find import policy_path
from workbench.places import ADAPTER
from workbench.policies.load import SETTINGS, without_weights
from workbench.policies.sampler import Sampled, sample_served
from workbench.policies.served import Answer, Tinker
from workbench.rundir import checkpoints
from workbench.schema import Credit, Example, LossPass, LossSettings, Rollout, RolloutPass, ScoredGroup
from workbench.training.building import if_stored, measure_sampled, sampling_of, say, trainer_arguments
from workbench.training.config import ProcessGRPOConfig
from workbench.training.generation import PolicySampler, groups_of_shares, score_share
from workbench.training.loss import kl_estimators
from workbench.training.methods.base import NOBODY, Listeners
from workbench.training.methods.grpo import section_of
from workbench.training.saving import EpochSampler, sealed

Floats = npt.NDArray[np.float32]
STATE = "engine.json"
"""Of a checkpoint: what the server calls the weights and the optimiser's state, and where the server is."""


# -- the server --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trained:
    """The server's losses and log-probabilities of a completion's tokens, (T_i,), and its prompt's largest loss."""

    losses: Floats
    logprobs: Floats
    of_prompt: float


class Engine(Tinker):
    """The server, as far as a run needs it: nothing here knows of steps, rewards or credit."""

    def __init__(self, section: EngineSection, base_model: str, seed: int) -> None:
        super().__init__(section)
        self.base_model = base_model
        self._training = self.ask(
            f"make a LoRA of {base_model}",
            lambda: self.client.create_lora_training_client(base_model=base_model, rank=section.rank, seed=seed),
        )
        self._reference: Any = None
        self.weights_seconds = 0.0  # of the last time that the sampler got new weights

    def sample(self, *asked: Any, **how: Any) -> list[list[Answer]]:
        """Sample as ``Tinker`` does, from the current weights; ``sampler`` is None once they have changed."""
        if self.sampler is None:
            began = time.perf_counter()
            self.sampler = self.ask(
                "give its weights to the sampler", self._training.save_weights_and_get_sampling_client
            )
            self.weights_seconds = time.perf_counter() - began
        return super().sample(*asked, **how)

    def reference(self, rows: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[list[float]]:
        """The base model's log-probabilities of each completion's tokens, for (prompt's ids, completion's ids)."""
        if self._reference is None:
            client = self.client.create_sampling_client
            self._reference = self.ask("sample its base model", lambda: client(base_model=self.base_model))

        def call() -> list[list[float]]:
            inputs = [self.types.ModelInput.from_ints([*prompt, *ids]) for prompt, ids in rows]
            futures = [self._reference.compute_logprobs(one) for one in inputs]
            return [future.result()[len(prompt) :] for future, (prompt, _) in zip(futures, rows, strict=True)]

        return self.ask("give the base model's log-probabilities", call)

    def backward(
        self, rows: Sequence[tuple[Sequence[int], Rollout, Floats]], loss: str, limits: Mapping[str, float] | None
    ) -> list[Trained]:
        """Add the gradient of (prompt's ids, completion, advantages as they are sent) of each row."""
        data = [self._datum(*row) for row in rows]
        done = self.ask("train", lambda: self._training.forward_backward(data, loss, limits).result())
        trained = []
        for (prompt, _, _), output in zip(rows, done.loss_fn_outputs, strict=True):
            first = len(prompt) - 1
            logprobs = np.asarray(output["logprobs"].data, dtype=np.float32)
            if "elementwise_loss" not in output:  # a server that returns the sum alone
                raise EngineError(
                    f"the engine ({self.where}) returns no loss of a token, so that nothing tells whether it trains on "
                    "what was sent; take a server that does (SkyRL's)"
                )
            losses = np.asarray(output["elementwise_loss"].data, dtype=np.float32)
            of_prompt = float(np.abs(losses[:first]).max(initial=0.0))
            trained.append(Trained(losses[first:], logprobs[first:], of_prompt))
        return trained

    def _datum(self, prompt: Sequence[int], rollout: Rollout, advantages: Floats) -> Any:
        ids, nothing = [*prompt, *rollout.token_ids], np.zeros(len(prompt) - 1, dtype=np.float32)
        assert rollout.logprobs is not None
        arrays = {
            "target_tokens": np.asarray(ids[1:], dtype=np.int64),
            "logprobs": np.concatenate([nothing, np.asarray(rollout.logprobs, dtype=np.float32)]),
            "advantages": np.concatenate([nothing, advantages]),
        }
        inputs = {name: self.types.TensorData.from_numpy(array) for name, array in arrays.items()}
        return self.types.Datum(model_input=self.types.ModelInput.from_ints(ids[:-1]), loss_fn_inputs=inputs)

    def step(self, **adam: float) -> dict[str, float]:
        """Take one optimiser step over the gradients added since the last; what the server says of it."""
        params = self.types.AdamParams(**adam)
        done = self.ask("take an optimiser step", lambda: self._training.optim_step(params).result())
        self.sampler = None
        said = dict(getattr(done, "metrics", None) or {})
        return {name.rpartition("/")[2]: float(value) for name, value in said.items()}  # skyrl.ai/grad_norm

    def averages(self, ids: Sequence[int]) -> bool | None:
        """Tell whether its gradient is the mean over rows of the mean over a row's targets, and not the protocol's sum.

        The norm of one token's gradient is compared with that of the same row twice, and with as many targets again
        after it, which it does not depend on; no weight is changed. None where the server tells no norm. Raises
        EngineError for a gradient that is neither.
        """
        path, norms, ids = self.save("before-the-first-step"), list[float](), ids[:8]
        one, more = np.ones(1, dtype=np.float32), len(ids)
        row = (ids, Rollout((ids[0],), ("",), True, (0.0,)), one)
        longer = (ids, Rollout((ids[0], *ids), ("",), True, (0.0,) * (1 + more)), np.pad(one, (0, more)))
        for rows in ([row], [row, row], [longer]):
            for each in rows:
                self.backward([each], "importance_sampling", None)
            said = self.step(learning_rate=0.0)
            if "grad_norm" not in said:
                break
            norms.append(said["grad_norm"])
        self.load(path)
        if len(norms) < 3:
            return None
        twice, after = (norm / norms[0] for norm in norms[1:])
        for averaged, expected in ((False, (2.0, 1.0)), (True, (1.0, 0.5))):
            if np.allclose((twice, after), expected, rtol=0.02):
                return averaged
        raise EngineError(
            f"the engine ({self.where}) divides gradients in a way that is not known: a row twice has {twice:.3g} "
            f"times its gradient, and with as many targets again {after:.3g} times; take a server that sums them"
        )

    def save(self, name: str) -> str:
        """Keep weights and optimiser on the server; its own name of them."""
        return str(self.ask("save its state", lambda: self._training.save_state(name).result()).path)

    def load(self, path: str) -> None:
        """Go on from weights and optimiser that ``save`` kept."""
        self.ask(f"load {path}", lambda: self._training.load_state_with_optimizer(path).result())
        self.sampler = None

    def download(self, name: str, folder: Path, base: str) -> None:
        """Write the weights as they are to ``folder``: a PEFT adapter of the policy ``base``."""

        def call() -> bytes:
            path = self._training.save_weights_for_sampler(name).result().path
            rest = self.client.create_rest_client()
            run, *kept = path.removeprefix("tinker://").split("/")
            if len(kept) == 1:  # as SkyRL names them, where its client expects tinker://RUN/sampler_weights/NAME
                archive = rest.get_checkpoint_archive_url(run, kept[0]).result()
            else:
                archive = rest.get_checkpoint_archive_url_from_tinker_path(path).result()
            with urlopen(archive.url) as stream:
                return bytes(stream.read())

        packed = self.ask("send its weights", call)
        with TemporaryDirectory() as aside, tarfile.open(fileobj=BytesIO(packed)) as files:
            files.extractall(aside, filter="data")
            weights = next(Path(aside).rglob(ADAPTER))
            (folder / ADAPTER).write_bytes(weights.read_bytes())
            lora = read_json(weights.with_name(SETTINGS))
        names = {key.split(".lora_")[0].rpartition(".")[2] for key in load_file(folder / ADAPTER)}
        kept_of = {name: lora[name] for name in ("r", "lora_alpha")}
        settings = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": base, **kept_of}
        (folder / SETTINGS).write_bytes(encode(settings | {"target_modules": sorted(names)}))


# -- sampling ----------------------------------------------------------------------------------------------------------


class EngineSampler(PolicySampler):
    """``PolicySampler`` on a server: the same calls by held-out accuracy, watched prompts and the loop."""

    def __init__(self, run: TinkerTrainer, engine: Engine) -> None:
        super().__init__(run, run.method.sampling, None, run.config.prompt.template_kwargs)
        self._engine = engine

    def __call__(
        self, prompt_ids: Sequence[Sequence[int]], seed: int, *, examples: Sequence[Example] = (), **_: Any
    ) -> list[Sampled]:
        """Sample a completion a row, by the weights as they are."""
        sampler, ends = self.sampling, self._eos_token_ids
        return sample_served(self._engine, prompt_ids, sampler, ends, self.stops, seed)


# -- the loop ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Generation:
    """One generation: its groups' credit and, a row a completion over all groups, what is sent of it."""

    step: int
    credits: Sequence[Credit]
    prompts: Sequence[Sequence[int]]
    divisors: npt.NDArray[np.float64]
    """c_i, (B,); 0 for a completion that the loss leaves out."""
    advantages: Sequence[Floats]
    """What the loss weighs each token by, (T_i,): the credit, less the KL's share where there is any."""
    averaged: bool = False
    """Whether the server takes means, which what is sent undoes."""

    @cached_property
    def rollouts(self) -> list[Rollout]:
        return [rollout for credit in self.credits for rollout in credit.scored.group.rollouts]

    def factor(self, row: int) -> float:
        """Return what a row is multiplied by, to undo the server's means: rows · targets of this one."""
        targets = len(self.prompts[row]) + len(self.rollouts[row]) - 1
        return float(len(self.prompts) * targets) if self.averaged else 1.0

    def sent(self, row: int) -> Floats:
        """Return a row's ``advantages`` as they are sent, (T_i,) float32."""
        return (self.advantages[row] * (self.divisors[row] * self.factor(row))).astype(np.float32)

    @property
    def tokens(self) -> float:
        """Tokens that the loss counts."""
        return float(sum(r.policy_length for r, divisor in zip(self.rollouts, self.divisors, strict=True) if divisor))


class TinkerTrainer:
    """Trains on an ``Engine``; what a run's process, held-out accuracy and watched prompts know a trainer by.

    ``engine`` is given by tests; a run connects to that of its configuration.
    """

    def __init__(
        self, config: SharedConfig, output_dir: Path, listeners: Listeners = NOBODY, engine: Engine | None = None
    ) -> None:
        self.config, self.method = config, section_of(config)
        self.args = ProcessGRPOConfig(**trainer_arguments(config, output_dir))
        policy = without_weights(config.policy)
        self.model, self.processing_class = policy.model, policy.tokenizer
        self.accelerator = Accelerator(cpu=True)
        base_model = config.engine.base_model or policy_path(config.policy.path)
        self.engine = engine or Engine(config.engine, base_model, config.seed)
        self.state = TrainerState(max_steps=config.run.steps)
        self.state.compute_steps(self.args, config.run.steps)
        self.control = TrainerControl()
        kept = [DefaultFlowCallback(), *(kind() for kind in get_reporting_integration_callbacks(config.run.report_to))]
        self.callback_handler = CallbackHandler([*kept, *listeners.callbacks], None, self.processing_class, None, None)
        self._metrics: dict[str, defaultdict[str, list[float]]] = {"train": defaultdict(list)}
        self.sample = EngineSampler(self, self.engine)
        self.sampling = sampling_of(config, policy)
        self.step_pattern = self.method.pattern
        self._reward_errors = 0
        self._on_rollouts = if_stored(self.method, listeners.on_rollouts, lambda step, credits: step)
        self._on_pass = if_stored(self.method, listeners.on_pass, lambda seen: seen.generation)
        optimiser = config.optimiser
        schedule = get_scheduler(
            optimiser.lr_scheduler_type,
            torch.optim.SGD([torch.zeros(1)], lr=1.0),
            num_warmup_steps=optimiser.warmup(config.run.steps),
            num_training_steps=config.run.steps,
        )
        self._rate = schedule.lr_lambdas[0]
        rows = self.method.rows_of(config, self.sampling.task)
        self._rows: list[dict[str, Any]] = rows.to_pylist()
        self._order = EpochSampler(self._rows, 1, self.method.prompts_per_step, seed=config.seed)
        measure_sampled(self, config, self.sampling, listeners)
        averages = self.engine.averages(self.sample.encode(self.sampling.task[0].prompt))
        self._averaged = bool(averages)
        whose = "is a mean of means, which is undone" if averages else "is a plain sum"
        say(
            f"note: the engine ({self.engine.where}) gets the credit times the divisor of method.loss_type "
            f"{self.method.loss_type}; its own gradient {whose}{' (not measured)' * (averages is None)}"
        )

    # -- what transformers' trainer has, and its callers use ----------------------------------------------------------

    def add_callback(self, callback: Any) -> None:
        self.callback_handler.add_callback(callback)

    def remove_callback(self, callback: Any) -> None:
        self.callback_handler.remove_callback(callback)

    def log(self, logs: dict[str, float]) -> None:
        self.control = self.callback_handler.on_log(self.args, self.state, self.control, logs)

    def credit_watched(self, groups: Sequence[ScoredGroup]) -> list[Credit]:
        """Credit groups that were sampled beside training, as if they were a generation of it."""
        return credit_groups(groups, **self.args.credit_by("process").keywords())

    # -- training ------------------------------------------------------------------------------------------------------

    def train(self, resume_from_checkpoint: str | None = None) -> None:
        """Train to the run's last step, from a checkpoint if one is given, or until it is asked to stop."""
        if resume_from_checkpoint is not None:
            self.load_weights(Path(resume_from_checkpoint))
        self.control = self.callback_handler.on_train_begin(self.args, self.state, self.control)
        while self.state.global_step < self.state.max_steps and not self.control.should_training_stop:
            began = time.perf_counter()
            generation = self.generate(self.state.global_step // self.method.num_iterations)
            for number in range(self.method.num_iterations):
                self.control = self.callback_handler.on_step_begin(self.args, self.state, self.control)
                self.optimise(generation, number)
                self._note(step_time=time.perf_counter() - began)
                began = time.perf_counter()
                self.state.global_step += 1
                self.control = self.callback_handler.on_step_end(self.args, self.state, self.control)
                self.log({name: float(np.nanmean(values)) for name, values in self._metrics["train"].items()})
                self._metrics["train"].clear()
                if self.control.should_save:
                    self.save_checkpoint()
                if self.control.should_training_stop:
                    break
        self.control = self.callback_handler.on_train_end(self.args, self.state, self.control)

    def generate(self, number: int) -> Generation:
        """Sample, score and credit the generation ``number``, from 0."""
        size, step = self.method.sampling.num_generations, self.state.global_step + 1
        inputs = [row for row in self._prompts_of(number) for _ in range(size)]
        prompts = [row["prompt"] for row in inputs]
        ids = [self.sample.encode(prompt) for prompt in prompts]
        began, self.engine.weights_seconds = time.perf_counter(), 0.0
        rows = self.sample(ids, self.config.seed * 1_000_000 + self.state.global_step)
        seconds = time.perf_counter() - began
        self._note(sampling_time=seconds - self.engine.weights_seconds, weights_time=self.engine.weights_seconds)
        rollouts = self._with_reference(ids, [self.sample.rollout(row) for row in rows])
        share = score_share(
            prompts,
            rollouts,
            inputs,
            self.step_pattern,
            [reward.at(self.state.global_step) for reward in self.sampling.rewards],
            opened=self.sample.all_thinking_open(prompts),
            worker=self.sampling.worker,
            budget=self.sampling.budget,
            trainer_state=self.state,
        )
        if share.failure is not None:
            raise share.failure
        if self.sampling.budget is not None:
            self._reward_errors += share.reward_errors
            self.sampling.budget.check(self._reward_errors)
            self._note(reward_errors=float(share.reward_errors))
        masks = {"mask_truncated_completions": self.method.mask_truncated_completions}
        recorded = self.method.sampling.recorded | masks | {"step": step, "engine": self.config.engine.kind}
        groups = groups_of_shares(
            [share], size, policy=self.config.policy.path, sampling=recorded, record=self.sample.record
        )
        credits = self.credit_watched(groups)
        self._note(**{f"rewards/{reward.name}/time": reward.seconds for reward in share.rewards})
        self._note_generation(credits)
        if self._on_rollouts is not None:
            self._on_rollouts(step, credits)
        return self._as_sent(credits, ids)

    def _prompts_of(self, number: int) -> Iterator[dict[str, Any]]:
        """The rows of the generation ``number``: those that a run in this process would take for it."""
        size = self.method.prompts_per_step
        self._order.epoch, place = divmod(number, len(self._rows) // size)
        order = list(self._order)
        return (self._rows[i] for i in order[place * size : (place + 1) * size])

    def _with_reference(self, ids: Sequence[Sequence[int]], rollouts: Sequence[Rollout]) -> list[Rollout]:
        if not self.method.beta:
            return list(rollouts)
        pairs = [(prompt, rollout.token_ids) for prompt, rollout in zip(ids, rollouts, strict=True)]
        reference = self.engine.reference(pairs)
        return [replace(r, ref_logprobs=tuple(row)) for r, row in zip(rollouts, reference, strict=True)]

    def _as_sent(self, credits: Sequence[Credit], ids: Sequence[Sequence[int]]) -> Generation:
        rollouts = [rollout for credit in credits for rollout in credit.scored.group.rollouts]
        divisors = length_normalisers(
            [rollout.policy_length for rollout in rollouts],
            self.method.loss_type,
            max_completion_length=self.method.sampling.max_completion_length,
            masked=[not is_counted for credit in credits for is_counted in credit.is_counted],
        )
        advantages = [credit.of(i) for credit in credits for i in range(len(credit.scored.group))]
        if self.method.beta:  # the gradient of beta k3 by the log-probability: beta (1 - pi_ref / pi)
            advantages = [
                (
                    row
                    - self.method.beta * (1 - np.exp(np.asarray(rollout.ref_logprobs) - np.asarray(rollout.logprobs)))
                ).astype(np.float32)
                for row, rollout in zip(advantages, rollouts, strict=True)
            ]
        return Generation(self.state.global_step + 1, credits, ids, divisors, advantages, self._averaged)

    def optimise(self, generation: Generation, number: int) -> None:
        """Take the optimiser step ``number``, from 0, over a generation."""
        method, optimiser = self.method, self.config.optimiser
        low, high = method.epsilon, method.epsilon if method.epsilon_high is None else method.epsilon_high
        loss, limits = "importance_sampling", None
        if method.num_iterations > 1:  # in the first pass every ratio is 1
            loss, limits = "ppo", {"clip_low_threshold": 1 - low, "clip_high_threshold": 1 + high}
        began, rollouts = time.perf_counter(), generation.rollouts
        # All rows, those without an advantage, too: a server compiles its passes anew for another number of rows.
        rows = [(prompt, rollouts[i], generation.sent(i)) for i, prompt in enumerate(generation.prompts)]
        trained = self.engine.backward(rows, loss, limits)
        rate = optimiser.learning_rate * self._rate(self.state.global_step)
        said = self.engine.step(
            learning_rate=rate,
            beta1=optimiser.adam_beta1,
            beta2=optimiser.adam_beta2,
            eps=optimiser.adam_epsilon,
            weight_decay=optimiser.weight_decay,
            grad_clip_norm=optimiser.max_grad_norm,
        )
        total = float(sum(row.losses.sum(dtype=np.float64) / generation.factor(i) for i, row in enumerate(trained)))
        ratios = [np.exp(row.logprobs - np.asarray(rollouts[i].logprobs)) for i, row in enumerate(trained)]
        gaps = [
            _gap(generation, i, row, ratios[i] if number else np.ones_like(ratios[i]), 1 - low, 1 + high)
            for i, row in enumerate(trained)
        ]
        self._note(
            loss=total,
            learning_rate=rate,
            training_time=time.perf_counter() - began,
            **{"engine/loss_gap": max(gaps)},
            **{"engine/ratio_gap": max(float(np.abs(ratio - 1).max(initial=0.0)) for ratio in ratios)},
            **{name: value for name, value in said.items() if name == "grad_norm"},
        )
        if self._on_pass is not None and not method.beta:  # of a KL the server's loss has the gradient alone
            self._on_pass(self._pass(generation, number, trained, total))

    def _pass(self, generation: Generation, number: int, trained: Sequence[Trained], loss: float) -> LossPass:
        """Return what the step computed its loss from, as the heatmap draws it."""
        method, rollouts = self.method, generation.rollouts
        high = method.epsilon if method.epsilon_high is None else method.epsilon_high
        settings = LossSettings(
            method.loss_type,
            epsilon=method.epsilon,
            epsilon_high=high,
            max_completion_length=method.sampling.max_completion_length,
        )
        passes = tuple(
            RolloutPass(0, done.logprobs, np.asarray(rollout.logprobs, dtype=np.float32))
            for done, rollout in zip(trained, rollouts, strict=True)
        )
        step = self.state.global_step + 1
        return LossPass(step, generation.step, number + 1, settings, passes, generation.tokens, loss)

    # -- what is logged ------------------------------------------------------------------------------------------------

    def _note(self, **numbers: float) -> None:
        for name, value in numbers.items():
            self._metrics["train"][name].append(value)

    def _note_generation(self, credits: Sequence[Credit]) -> None:
        """Log what TRL's trainer would of a generation, under the same names."""
        task = self.sampling.task
        metrics = group_metrics(credits, task.answer_is_right if task.can_check else None, self.step_pattern)
        rollouts = [rollout for credit in credits for rollout in credit.scored.group.rollouts]
        lengths = np.array([rollout.policy_length for rollout in rollouts])
        cut_off = np.array([rollout.truncated for rollout in rollouts])
        terminated = lengths[~cut_off] if not cut_off.all() else np.zeros(1)
        for name, of in (("", lengths), ("terminated_", terminated)):
            each = (("mean", of.mean()), ("min", of.min()), ("max", of.max()))
            metrics |= {f"completions/{which}_{name}length": float(value) for which, value in each}
        metrics["completions/clipped_ratio"] = float(cut_off.mean())
        metrics["frac_reward_zero_std"] = metrics["zero_spread_share"]
        outcomes = [row.outcome for credit in credits for row in credit.scored.scored if row.outcome is not None]
        if outcomes:
            metrics |= {"reward": float(np.mean(outcomes)), "reward_std": float(np.std(outcomes, ddof=1))}
        if self.method.beta:
            counted = [r for credit in credits for r in credit.in_loss.group.rollouts]
            rows = [[np.concatenate([getattr(r, name) for r in counted])] for name in ("ref_logprobs", "logprobs")]
            reference, policy = (torch.tensor(np.array(row)) for row in rows)
            kls = kl_estimators(reference, policy, torch.ones_like(policy))
            metrics |= {name: float(total / count) for name, (total, count) in kls.items()}
            metrics["kl"] = metrics["kl/k3"]
        self._note(**metrics)

    # -- saving and resuming -------------------------------------------------------------------------------------------

    def save_checkpoint(self) -> None:
        """Keep the state on the server, and here what it is called there with the weights as an adapter."""
        name = f"checkpoint-{self.state.global_step}"
        folder = Path(self.args.output_dir)
        state = self.engine.save(self._server_name(name))
        self._write(folder / name, {"state": state, "url": self.config.engine.url, "base": self.engine.base_model})
        checkpoints.prune(folder, self.config.run.save_total_limit)

    def save_final(self, target: Path) -> None:
        """Write the weights as they are as an adapter, with the tokenizer, loadable by ``load_policy``."""
        self._write(target, {"url": self.config.engine.url, "base": self.engine.base_model})

    def _write(self, target: Path, about: Mapping[str, Any]) -> None:
        with sealed(self, target) as draft:
            draft.mkdir(parents=True)
            (draft / STATE).write_bytes(encode(about))
            try:
                base = policy_path(self.config.policy.path)
                self.engine.download(self._server_name(f"{target.name}-weights"), draft, base)
                self.processing_class.save_pretrained(draft)
            except EngineError as error:  # the state is safe on the server: the run can go on without them
                say(f"warning: {target.name} has no weights here: {error}")

    def _server_name(self, what: str) -> str:
        """Return the server's name of something of this run."""
        return re.sub(r"[^A-Za-z0-9_-]", "-", f"{Path(self.args.output_dir).parent.name}-{what}")

    def seal(self, draft: Path, target: Path) -> None:
        checkpoints.seal(draft, target, {"step": self.state.global_step, "ranks": 1, "versions": {}, "tokens": None})

    def load_weights(self, checkpoint: Path) -> None:
        """Go on from the state that a checkpoint names. Raises EngineError where the server does not have it."""
        self.engine.load(read_json(checkpoint / STATE)["state"])
        self.state.global_step = read_json(checkpoint / checkpoints.MANIFEST)["step"]


def _gap(generation: Generation, row: int, done: Trained, ratios: Floats, low: float, high: float) -> float:
    """The largest |l_t / c_i + min(rho A_t, clip(rho) A_t)| / max(1, |A_t|) of a completion's tokens.

    c_i has what undoes the server's means; of the prompt's tokens, |l_t / c_i|. In the first pass rho counts as 1: l_t
    is -A_t c_i, whatever the server's sampler computes otherwise than its trainer.
    """
    divisor, advantages = generation.divisors[row] * generation.factor(row), generation.advantages[row]
    if not divisor:
        return float(np.abs(done.losses).max(initial=done.of_prompt))
    expected = np.minimum(ratios * advantages, np.clip(ratios, low, high) * advantages)
    gaps = np.abs(done.losses / divisor + expected) / np.maximum(1.0, np.abs(advantages))
    return float(gaps.max(initial=done.of_prompt / divisor))
