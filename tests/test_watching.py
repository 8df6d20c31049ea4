"""Watched prompts: the same ones at every look, kept apart, and no trace of them in a run's numbers."""

import pytest

from tests.stored_runs import config_of
from workbench.data import load_task
from workbench.rundir import RunDir
from workbench.runs import Run
from workbench.training.methods import RunConfig

pytestmark = pytest.mark.training

NOT_COMPARED = ("time", "sampling_time", "step_time", "seconds", "peak_memory_mb")


def trained(workspace, name: str, **changes) -> RunDir:
    """Three steps of 2 prompts, G = 4, with everything of a run but its process."""
    from workbench.process.train import Recorder
    from workbench.training.methods.base import Listeners
    from workbench.training.methods.grpo import build as build_trainer

    settings = {"steps": 3, "eval_steps": 0, "save_steps": 0, "device": "cpu", "watch_every": 2, **changes}
    method = {"prompts_per_step": 2, "sampling": {"num_generations": 4, "max_completion_length": 112}}
    run = RunDir.create(workspace, RunConfig.parse({"name": name, "run": settings, "method": method}))
    recorder = Recorder(run, config_of(run), writes=True)
    trainer = build_trainer(
        config_of(run),
        run.checkpoints,
        Listeners(recorder.on_rollouts, recorder.on_watched, callbacks=[recorder]),
    )
    trainer.train()
    run.close()
    return run


def rows(run: RunDir) -> list[dict]:
    """What was measured but for how long it took."""
    return [
        {name: value for name, value in row.items() if name not in NOT_COMPARED and not name.endswith("/time")}
        for row in run.read_metrics()[0]
    ]


def test_watched_prompts_are_stored_apart_and_leave_the_run_as_it_is(tmp_path):
    watched = trained(tmp_path, "watched")
    alone = trained(tmp_path, "alone", watch_prompts=0)
    assert alone.rollouts.steps(watched=True) == []
    # Before the first step, every second one, and at the end.
    assert watched.rollouts.steps(watched=True) == [0, 2, 3]
    assert watched.rollouts.steps() == alone.rollouts.steps() == [1, 2, 3]
    assert rows(watched) == rows(alone)
    assert all(_same(watched, alone, step) for step in (1, 2, 3))

    looks = [Run(watched.path).rollouts(step, watched=True) for step in (0, 2, 3)]
    held_out = load_task("chain-arithmetic").held_out
    for look in looks:
        assert [credit.scored.group.prompt for credit in look] == [held_out[0].prompt, held_out[1].prompt]
        assert [len(credit.scored.group) for credit in look] == [4, 4]
    first, *_, last = looks
    ids = [[rollout.token_ids for credit in look for rollout in credit.scored.group.rollouts] for look in (first, last)]
    assert ids[0] != ids[1], "three steps at this rate change what is sampled"


def _same(one: RunDir, other: RunDir, step: int) -> bool:
    """Credits hold arrays, which do not compare as a whole."""
    pairs = zip(one.rollouts.read(step), other.rollouts.read(step), strict=True)
    return all(a.scored == b.scored and a.advantages.tobytes() == b.advantages.tobytes() for a, b in pairs)


def test_an_error_of_a_reward_on_watched_prompts_does_not_end_the_run(tmp_path, capsys):
    from workbench.training.methods.base import Listeners
    from workbench.training.methods.grpo import build as build_trainer

    config = RunConfig.parse(
        {
            "run": {"steps": 1, "eval_steps": 0, "save_steps": 0, "device": "cpu"},
            "method": {"prompts_per_step": 2, "sampling": {"num_generations": 2, "max_completion_length": 16}},
        }
    )

    def broken(step, credits):
        from workbench.errors import RewardError

        raise RewardError("no")

    trainer = build_trainer(config, tmp_path, Listeners(on_watched=broken))
    trainer.train()
    assert "the watched prompts of step 0 are not stored: no" in capsys.readouterr().out


def test_a_resume_drops_later_looks(tmp_path):
    from tests.credits import worked_credit

    run = RunDir.create(tmp_path, RunConfig(name="a"))
    for step in (0, 10, 20):
        run.rollouts.write(step, [worked_credit()], watched=True)
    run.rollouts.write(11, [worked_credit()])
    run.drop_rollouts(after=10)
    assert run.rollouts.steps(watched=True) == [0, 10]
    assert run.rollouts.steps() == []
    assert run.rollouts.written(10, watched=True) > 0
    assert run.rollouts.written(10) == 0
