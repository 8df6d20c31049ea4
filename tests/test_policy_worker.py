"""The model worker as its client sees it: a real child process that loads the embedded policy."""

import json
import subprocess
import sys
import threading

import pytest

from workbench.config import ModelConfig, SamplingConfig
from workbench.data import load_task
from workbench.errors import RewardCodeError, RewardError
from workbench.policies.client import ModelWorker
from workbench.policies.monte_carlo import step_values
from workbench.policies.sampler import sample_group
from workbench.rewards import RewardConfig
from workbench.schema import Example

EXAMPLE = Example("Start with 2, add 3, add 4.\n", {"answer": "9"})
SAMPLING = SamplingConfig(num_generations=3, max_completion_length=40)


@pytest.fixture(scope="module")
def worker():
    worker = ModelWorker()
    yield worker
    worker.close()


def test_the_client_imports_no_torch():
    code = "import sys, workbench.policies.client; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_it_samples_what_the_sampler_samples_and_tells_how_far_it_is(worker, tiny):
    events = []
    group = worker.sample("tiny", EXAMPLE, SAMPLING, seed=3, on_event=events.append)
    direct = sample_group(tiny, EXAMPLE, num_generations=3, max_completion_length=40, seed=3)
    assert [rollout.token_ids for rollout in group.rollouts] == [rollout.token_ids for rollout in direct.rollouts]
    assert group.columns == {"answer": "9"}
    assert group.sampling["seed"] == 3
    assert any(event.get("loading") == "tiny" for event in events)
    growing = [event for event in events if "texts" in event]
    assert growing
    for event in growing:  # what was shown while sampling is how the rollouts begin
        assert len(event["texts"]) == len(event["finished"]) == 3
        shown = zip(group.rollouts, event["texts"], strict=True)
        assert all(rollout.text.startswith(text) for rollout, text in shown)
    status = worker.warm("tiny")
    assert (status.state, status.policy, status.parameters > 100_000, status.device != "") == (
        "ready",
        "tiny",
        True,
        True,
    )
    heard = []
    assert worker.sample("tiny", EXAMPLE, SAMPLING, on_event=heard.append, cancelled=lambda: bool(heard)) is None


def test_who_waits_is_told_for_what(worker):
    at_work, heard, said = threading.Event(), threading.Event(), []

    def cancelled():  # holds the turn until the second caller has heard
        at_work.set()
        return heard.wait(60)

    def listen(event):
        if "waiting" in event:
            said.append(event["waiting"])
            heard.set()

    worker.warm("tiny")
    long = SamplingConfig(num_generations=2, max_completion_length=300)
    first = threading.Thread(target=worker.sample, args=("tiny", EXAMPLE, long), kwargs={"cancelled": cancelled})
    first.start()
    assert at_work.wait(60)
    assert worker.sample("tiny", EXAMPLE, SAMPLING, on_event=listen) is not None
    first.join()
    assert "2 answers of up to 300 tokens" in said[0]


def test_a_reward_model_waits_for_its_turn_and_can_be_given_up():
    busy, heard = ModelWorker(), []
    busy._turn.acquire()
    with pytest.raises(RewardError, match="cancelled"):
        busy.load(ModelConfig(path="me/judge", format="classifier"), heard.append, lambda: bool(heard))
    assert list(heard[0]) == ["waiting"]
    assert busy.busy == ""


def test_it_estimates_what_this_process_does(worker, tiny):
    pattern = load_task("chain-arithmetic").pattern
    group = sample_group(tiny, EXAMPLE, num_generations=2, max_completion_length=112, seed=4)
    outcome = RewardConfig(name="answer_correctness", kind="outcome")
    heard = []
    there = worker.step_values("tiny", group, pattern, outcome, k=2, seed=3, on_event=heard.append)
    here = step_values(tiny, group, pattern, k=2, seed=3)
    assert (there.values, there.errors, there.tokens) == (here.values, here.errors, here.tokens)
    assert heard[-1]["done"] == heard[-1]["total"]
    with pytest.raises(RewardCodeError, match="no built-in reward"):
        worker.step_values("tiny", group, pattern, RewardConfig(name="nothing", kind="outcome"))
    assert worker.status().state == "ready"
    asked = iter([False, False, True])
    assert worker.step_values("tiny", group, pattern, outcome, k=64, cancelled=lambda: next(asked, True)) is None


def test_it_answers_with_messages_not_tracebacks(worker, tiny, tmp_path):
    """A class that only the worker knows arrives as its nearest known one, anything else as a sentence."""
    tiny.model.save_pretrained(tmp_path)
    tiny.tokenizer.save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    saved = json.loads(file.read_text())
    file.write_text(json.dumps(saved | {"intermediate_size": 64}))
    assert "in the file and (128, 64) by config.json" in worker.warm(str(tmp_path)).message
    file.write_text(json.dumps(saved | {"num_attention_heads": 3, "num_key_value_heads": 2}))
    message = worker.warm(str(tmp_path)).message
    assert "Traceback" not in message
    assert "\n" not in message
