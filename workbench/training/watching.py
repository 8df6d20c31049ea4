"""Watched prompts: a few held-out prompts answered again at intervals as the policy learns.

They are drawn with one seed by the group sampler, which has a stream of its own for them, so a run's numbers are the
same with and without. They are scored and credited as a batch of the run would be, stored beside its rollouts, and
take no part in training; neither their rewards nor their errors are counted.
"""

from __future__ import annotations

from collections.abc import Sequence

from workbench.config import SamplingConfig, SharedConfig
from workbench.data import Task
from workbench.errors import WorkbenchError
from workbench.rewards import Reward, RewardWorker, score_group
from workbench.schema import Credit, Group, OnCredit
from workbench.training.looks import Looks
from workbench.training.trainer import ProcessGRPOTrainer

SEED = 1_000_033
"""Of the draws: the same at every look, so that two looks differ by the policy alone."""


class WatchedPrompts(Looks):
    """Samples G completions of each of the first ``watch_prompts`` held-out rows (training rows where none are held
    out) at every look.

    Costs ``watch_prompts * G`` completions a look, beside ``prompts_per_step * G`` a step. Every rank samples all of
    them, which needs no exchange and takes no longer; the first one scores them.
    """

    def __init__(
        self,
        trainer: ProcessGRPOTrainer,
        task: Task,
        config: SharedConfig,
        sampling: SamplingConfig,
        rewards: Sequence[Reward],
        worker: RewardWorker,
        on_watched: OnCredit,
    ) -> None:
        super().__init__(config)
        self._trainer, self._policy, self._sampling = trainer, config.policy.path, sampling
        self._rewards, self._worker = rewards, worker
        self._on_watched = on_watched
        source = task.held_out if len(task.held_out) else task.examples
        self._rows = [source[i] for i in range(min(config.run.watch_prompts, len(source)))]

    def look(self, step: int) -> None:
        if not self._rows:
            return
        groups = self._sample(step)
        if self._trainer.accelerator.is_main_process:
            try:
                self._on_watched(step, self._credit(groups))
            except WorkbenchError as error:
                print(f"the watched prompts of step {step} are not stored: {error}", flush=True)

    def _sample(self, step: int) -> list[Group]:
        sampler, generations = self._trainer.sample, self._sampling.num_generations
        prompt_ids = [sampler.encode(row.prompt) for row in self._rows for _ in range(generations)]
        examples = [row for row in self._rows for _ in range(generations)]
        sampled = sampler(prompt_ids, SEED, examples=examples, measuring=True, first_row=0, total_rows=len(prompt_ids))
        rollouts = [sampler.rollout(row) for row in sampled]
        return [
            Group(
                prompt=row.prompt,
                rollouts=tuple(rollouts[i * generations : (i + 1) * generations]),
                columns=row.columns,
                policy=self._policy,
                sampling=self._sampling.recorded | {"step": step} | self._trainer.sample.record(row.prompt),
            )
            for i, row in enumerate(self._rows)
        ]

    def _credit(self, groups: Sequence[Group]) -> list[Credit]:
        pattern = self._trainer.step_pattern
        rewards = [reward.at(self._trainer.state.global_step) for reward in self._rewards]
        scored = [score_group(group, pattern, rewards, worker=self._worker) for group in groups]
        return self._trainer.credit_watched(scored)
