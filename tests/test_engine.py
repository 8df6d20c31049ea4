"""A run on a server that speaks the Tinker protocol, on ``tests/protocol``: what is sent, and what comes of it."""

import importlib
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import TrainerCallback

from tests.configs import short_run
from workbench.checks import alarms
from workbench.engines.tinker import Engine, EngineSampler, TinkerTrainer
from workbench.errors import ConfigError, EngineError
from workbench.policies.load import load_policy
from workbench.policies.served import Answer, key_of
from workbench.process.train import main
from workbench.rundir import RunDir
from workbench.training.methods.base import Listeners

pytestmark = pytest.mark.training
PROTOCOL = Path(__file__).parent / "protocol"
LENGTH = 24
"""Tokens of an answer at most: a step or two."""


@pytest.fixture
def server(tmp_path, monkeypatch):
    """The folder of a server; the package that a run imports is the one in ``tests/protocol``."""
    monkeypatch.syspath_prepend(str(PROTOCOL))
    monkeypatch.setitem(sys.modules, "tinker", importlib.import_module("tests.protocol.tinker"))
    folder = tmp_path / "server"
    folder.mkdir()
    return folder


def on(server, **changes):
    """A short run on it."""
    engine = {"kind": "tinker", "url": f"file://{server}", "rank": 4} | changes.pop("engine", {})
    changes["optimiser"] = {"learning_rate": 4e-3} | changes.get("optimiser", {})
    method = changes.setdefault("method", {})
    method["sampling"] = {"max_completion_length": LENGTH} | method.get("sampling", {})
    return short_run(engine=engine, **changes)


class Seen(TrainerCallback):
    def __init__(self):
        self.rows, self.credits, self.passes = {}, {}, {}

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.rows[state.global_step] = {name: value for name, value in logs.items() if not name.endswith("time")}

    @property
    def listeners(self):
        return Listeners(
            on_rollouts=lambda step, credits: self.credits.update({step: credits}),
            on_pass=lambda seen: self.passes.update({seen.step: seen}),
            callbacks=[self],
        )


def trained(config, folder, resume=None):
    """The trainer after its run, what was seen of it, and the server's own part."""
    seen = Seen()
    trainer = TinkerTrainer(config, folder / "run" / "checkpoints", seen.listeners)
    trainer.train(resume)
    return trainer, seen, trainer.engine._training


def rows_of(credits):
    return [(credit, i) for credit in credits for i in range(len(credit.scored.group))]


@pytest.mark.parametrize(("loss_type", "steps"), [("dapo", 2), ("bnpo", 1), ("grpo", 1), ("dr_grpo", 1)])
def test_invariant_an_engine_gets_the_tensor_on_screen(tmp_path, server, loss_type, steps):
    """What is sent is the stored credit times the loss's divisor, over the answer alone; the loss is its negative."""
    _, seen, there = trained(on(server, method={"loss_type": loss_type}, run={"steps": steps}), tmp_path)
    assert max(row["engine/loss_gap"] for row in seen.rows.values()) < 1e-5
    for step, data in enumerate(there.sent[-steps:], start=1):
        rows = rows_of(seen.credits[step])
        lengths = [len(credit.scored.group.rollouts[i]) for credit, i in rows]
        divisors = {
            "dapo": [sum(lengths)] * 8,
            "bnpo": [sum(lengths)] * 8,
            "grpo": [8 * length for length in lengths],
            "dr_grpo": [8 * LENGTH] * 8,
        }[loss_type]
        for (credit, i), divisor, datum in zip(rows, divisors, data, strict=True):
            rollout, values = credit.scored.group.rollouts[i], datum.loss_fn_inputs
            prompt = len(datum.model_input.ids) - len(rollout) + 1
            assert values["target_tokens"].data[prompt - 1 :] == list(rollout.token_ids)
            assert values["advantages"].data[: prompt - 1] == [0.0] * (prompt - 1)
            np.testing.assert_allclose(values["advantages"].data[prompt - 1 :], credit.of(i) / divisor, rtol=1e-6)
        assert seen.rows[step]["loss"] == pytest.approx(seen.passes[step].loss)
    assert any(credit.of(i).any() for credit, i in rows_of(seen.credits[1]))


def test_a_server_that_averages_is_found_out_and_trains_to_the_same_weights(tmp_path, server):
    weights = []
    for means in (False, True):
        if means:
            (server / "mean").touch()
        trainer, seen, there = trained(on(server, run={"steps": 1}), tmp_path / str(means))
        assert trainer._averaged is means
        assert seen.rows[1]["engine/loss_gap"] < 1e-5
        weights.append({n: p.detach().clone() for n, p in there.model.named_parameters() if p.requires_grad})
    moved = max(float(w.abs().max()) for n, w in weights[0].items() if "lora_B" in n)  # 0 at first
    apart = max(float((w - weights[1][n]).abs().max()) for n, w in weights[0].items())
    assert apart < 1e-3 * moved


def test_a_kl_is_sent_as_its_gradient(tmp_path, server):
    """(A − β(1 − π_ref/π)) is minus the derivative of −A ρ + β k3 by the log-probability, by autograd."""
    beta = 0.5
    _, seen, there = trained(on(server, method={"beta": beta, "loss_type": "dr_grpo"}, run={"steps": 2}), tmp_path)
    data = there.sent[-1]  # of the second step, when the policy is no longer its reference
    assert seen.rows[2]["kl/k3"] > 0
    assert not seen.passes
    for (credit, i), datum in zip(rows_of(seen.credits[2]), data, strict=True):
        rollout = credit.scored.group.rollouts[i]
        old, reference = torch.tensor(rollout.logprobs), torch.tensor(rollout.ref_logprobs)
        new = old.clone().requires_grad_()
        difference = reference - new
        k3 = difference.exp() - difference - 1
        loss = (-(new - old).exp() * torch.tensor(credit.of(i)) + beta * k3).sum() / (8 * LENGTH)
        loss.backward()
        sent = torch.tensor(datum.loss_fn_inputs["advantages"].data[-len(rollout) :])
        torch.testing.assert_close(sent, -new.grad, rtol=1e-4, atol=1e-7)


def test_several_updates_a_generation_are_clipped_as_the_run_says(tmp_path, server):
    """The second pass is PPO's: its loss is that of its own ratios, and a checkpoint falls between generations."""
    _, seen, _ = trained(on(server, method={"num_iterations": 2}, run={"steps": 4}), tmp_path)
    assert list(seen.credits) == [1, 3]
    assert [seen.passes[step].number for step in (1, 2, 3, 4)] == [1, 2, 1, 2]
    assert seen.rows[2]["engine/ratio_gap"] > 1e-3 > seen.rows[1]["engine/ratio_gap"]
    assert max(row["engine/loss_gap"] for row in seen.rows.values()) < 1e-5


def test_a_resumed_run_goes_on_as_if_it_had_not_stopped(tmp_path, server):
    config, folder = on(server, run={"steps": 2, "save_steps": 1}), tmp_path / "run" / "checkpoints"
    _, whole, _ = trained(config, tmp_path)
    assert {path.name for path in folder.iterdir()} == {"checkpoint-1", "checkpoint-2"}
    trainer, second, _ = trained(config, tmp_path, resume=str(folder / "checkpoint-1"))
    assert list(second.rows) == [2]
    for step, row in second.rows.items():
        assert row == pytest.approx(whole.rows[step], abs=1e-6, nan_ok=True)
    trainer.save_final(folder / "final")
    policy = load_policy(str(folder / "final"), device="cpu")
    ids = torch.tensor([[5, 6, 7]])
    theirs = trainer.engine._training.model(ids).logits
    torch.testing.assert_close(policy.model(ids).logits, theirs, rtol=1e-4, atol=1e-4)


def noting(ends_it, name, before, call):
    """Note whether SIGTERM does what it did before, whenever ``call`` is asked."""

    def noted(*given, **how):
        ends_it[name] = signal.getsignal(signal.SIGTERM) == before
        return call(*given, **how)

    return noted


def test_a_run_writes_the_directory_of_every_run_and_says_when_its_server_is_gone(tmp_path, server, monkeypatch):
    """SIGTERM ends the process until the first step, as it may wait for its server; from then on it asks it to stop."""
    config = on(
        server,
        run={"steps": 2, "save_steps": 1, "eval_steps": 2, "eval_prompts": 2, "watch_prompts": 0},
        engine={"patience": 60},
    )
    run, before = RunDir.create(tmp_path, config), signal.getsignal(signal.SIGTERM)
    ends_it = {}
    try:
        assert main([str(run.path)]) == 0
        assert run.status().state == "finished"
        rows, _ = run.read_metrics()
        assert [row["step"] for row in rows] == [0, 1, 2]
        assert [("accuracy" in row) for row in rows] == [True, False, True]
        assert run.rollouts.steps() == [1, 2]
        assert len(run.rollouts.read(2)) == 2
        assert [len(run.passes.of_generation(step)) for step in (1, 2)] == [1, 1]
        signal.signal(signal.SIGTERM, before)
        for name in ("load", "step"):
            monkeypatch.setattr(Engine, name, noting(ends_it, name, before, getattr(Engine, name)))
        assert main([str(run.path), "--resume", "checkpoint-1"]) == 0
        assert ends_it == {"load": True, "step": False}
        (server / "down").touch()
        late = RunDir.create(tmp_path, on(server, engine={"patience": 0.2}))
        assert main([str(late.path)]) == 1
    finally:
        signal.signal(signal.SIGTERM, before)
    assert late.status().state == "failed"
    assert "engine.patience, 0.2 s" in late.status().reason


def test_what_a_server_samples_on_after_the_end_is_left_out(tiny):
    """Told to stop at a text, a server may sample on after an end-of-sequence token."""
    eos = tiny.tokenizer.eos_token_id
    run = SimpleNamespace(
        method=SimpleNamespace(sampling=short_run().grpo.sampling.model_copy(update={"stop": ["9"]})),
        config=short_run(),
        accelerator=SimpleNamespace(device=torch.device("cpu"), unwrap_model=lambda model: model),
        model=tiny.model,
        processing_class=tiny.tokenizer,
    )
    asked = []

    def sample(requests, sampling, ends):
        asked.append((requests, sampling.max_completion_length, sampling.stop))
        return [[Answer([5, eos, 6], [-0.1, -0.2, -0.3])] * count for _, count, _ in requests]

    rows = EngineSampler(run, SimpleNamespace(sample=sample))([[1, 2], [1, 2], [3]], 7)
    assert [(row.token_ids, row.logprobs, row.finished) for row in rows] == [([5, eos], [-0.1, -0.2], True)] * 3
    [(requests, length, stop)] = asked
    assert [(ids, count) for ids, count, _ in requests] == [([1, 2], 2), ([3], 1)]
    assert len({seed for _, _, seed in requests}) == 2
    assert (length, stop) == (112, ["9"])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"method": {"loss_type": "cispo", "epsilon_high": 5}}, "method.loss_type: .*cispo"),
        ({"method": {"sampling": {"top_p": 0.9}}}, "method.sampling.top_p: 0.9"),
        ({"policy": {"lora": {}}}, "policy.lora.* engine.rank"),
        ({"run": {"ranks": 2}}, "run.ranks: 2"),
        ({"method": {"credit": {"oar": True}}}, "method.credit.oar: True"),
        ({"method": {"rewards": [{"name": "b", "kind": "step", "belief": {}}]}}, "method.rewards: 'b'"),
    ],
)
def test_what_would_have_no_effect_on_a_server_is_refused(changes, said):
    with pytest.raises(ConfigError, match=said):
        short_run(engine="tinker", **changes)


def test_the_key_is_read_from_the_environment(monkeypatch):
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    own, hosted = (short_run(engine={"kind": "tinker", "url": url}).engine for url in ("http://here", None))
    assert key_of(own) == "tml-none"
    with pytest.raises(EngineError, match="TINKER_API_KEY"):
        key_of(hosted)
    monkeypatch.setenv("TINKER_API_KEY", "tml-secret")
    assert key_of(hosted) == "tml-secret"


def test_a_loss_that_is_not_what_was_sent_raises_an_alarm():
    said = {"engine/loss_gap": 2e-3, "engine/ratio_gap": 1e-6, "step": 1}
    assert "engine differs" in {alarm.name for alarm in alarms([said])}
    assert not alarms([said | {"engine/loss_gap": 1e-5}])
