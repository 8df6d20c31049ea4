"""Policies in other processes: the model worker, and servers, of which what they do not tell is said."""

from __future__ import annotations

import importlib
import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

import workbench as wb
from tests.completions_server import MODEL, serving
from tests.waiting import wait_for
from workbench.config import EngineSection, ModelConfig, PolicySection, SamplingConfig
from workbench.data import load_task
from workbench.errors import EngineError, PolicyError, RewardCodeError, RewardError
from workbench.models.find import Served, check_section, find_server, policy_path
from workbench.policies.client import ModelWorker
from workbench.policies.load import load_policy
from workbench.policies.monte_carlo import step_values
from workbench.policies.sampler import sample_group
from workbench.policies.served import check_connection
from workbench.rewards import RewardConfig
from workbench.schema import Example
from workbench.ui.handlers.example import first_draft, sample
from workbench.ui.handlers.runs import ask_engine
from workbench.ui.handlers.session import Services

PROTOCOL = Path(__file__).parent / "protocol"
TASK = wb.load_task("chain-arithmetic")
EXAMPLE = Example("Start with 2, add 3, add 4.\n", {"answer": "9"})


@pytest.fixture
def protocol(monkeypatch):
    """Put the package ``tinker`` of ``tests/protocol`` in the place of the client."""
    monkeypatch.syspath_prepend(str(PROTOCOL))
    monkeypatch.setitem(sys.modules, "tinker", importlib.import_module("tests.protocol.tinker"))


@pytest.fixture(scope="module")
def worker():
    worker = ModelWorker()
    yield worker
    worker.close()


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("tinker:Qwen/Qwen3-8B", Served(True, None, "Qwen/Qwen3-8B", "Qwen/Qwen3-8B")),
        ("tinker:http://here:8000#mine@tiny", Served(True, "http://here:8000", "mine", "tiny")),
        ("http://here:8000/v1/#Qwen/Qwen3-8B", Served(False, "http://here:8000/v1", "Qwen/Qwen3-8B", "Qwen/Qwen3-8B")),
        ("Qwen/Qwen3-8B", None),
        ("run:mine@12", None),
    ],
)
def test_a_name_says_where_a_model_is(name, there):
    assert find_server(name) == there


def test_a_served_policy_is_named_with_a_tokenizer_that_is_here():
    assert policy_path("http://here/v1#mine@tiny") == policy_path("tiny")
    with pytest.raises(PolicyError, match="#MODEL"):
        policy_path("http://here/v1")
    with pytest.raises(PolicyError, match="@TOKENIZER"):
        policy_path("http://here/v1#/no/such/folder")


@pytest.mark.parametrize("told", ["ids", "marks", "content"])
def test_a_group_has_the_ids_and_log_probabilities_that_its_server_computed(tiny, told):
    heard = []
    with serving(tiny, told) as server:
        policy = load_policy(f"{server.url}#{MODEL}@tiny")
        sample = partial(wb.sample_group, policy, TASK[0], num_generations=4, max_completion_length=48, seed=7)
        group = sample(on_tokens=heard.extend)
        again = sample()
    computed = [server.sampled[body["seed"]] for body in sorted(server.asked[:4], key=lambda body: body["seed"])]
    assert [list(rollout.token_ids) for rollout in group.rollouts] == [ids for ids, _ in computed]
    assert [list(rollout.logprobs) for rollout in group.rollouts] == [logprobs for _, logprobs in computed]
    assert len({rollout.token_ids for rollout in group.rollouts}) > 1
    for row, rollout in enumerate(group.rollouts):
        assert [token for at, token in heard if at == row] == list(rollout.token_ids)
        assert rollout.finished == (rollout.token_ids[-1] in tiny.eos_token_ids)
        assert "".join(rollout.texts).startswith(tiny.tokenizer.decode(rollout.token_ids[:-1]))
    assert again.rollouts == group.rollouts
    assert "server" not in group.sampling
    assert group.policy == f"{server.url}#{MODEL}@tiny"


def test_texts_of_tokens_become_ids_of_the_tokenizer_and_the_group_says_so(tiny):
    with serving(tiny, "texts") as server:
        policy = load_policy(f"{server.url}#{MODEL}@tiny")
        group = wb.sample_group(policy, "2 + 3 = ", num_generations=4, max_completion_length=24)
    computed = {tuple(ids): logprobs for ids, logprobs in server.sampled.values()}
    same = [rollout for rollout in group.rollouts if rollout.logprobs is not None]
    assert same
    assert all(list(rollout.logprobs) == computed[rollout.token_ids] for rollout in same)
    texts = sorted(tiny.tokenizer.decode(ids, skip_special_tokens=True) for ids, _ in server.sampled.values())
    assert sorted("".join(rollout.texts[: len(rollout) - rollout.finished]) for rollout in group.rollouts) == texts
    assert "no ids" in group.sampling["server"]


def test_a_server_that_tells_no_tokens_is_refused(tiny):
    with serving(tiny, "nothing") as server:
        policy = load_policy(f"{server.url}#{MODEL}@tiny")
        with pytest.raises(EngineError, match="token ids"):
            wb.sample_group(policy, "2 + 3 = ", num_generations=2)


def test_settings_go_to_a_server_that_knows_them_and_leave_log_probabilities_out(tiny):
    with serving(tiny) as server:
        policy = load_policy(f"{server.url}#{MODEL}@tiny")
        group = wb.sample_group(
            policy, "2 + 3 = ", num_generations=2, max_completion_length=8,
            temperature=0.7, top_k=5, top_p=0.9, min_p=0.1,
        )  # fmt: skip
        names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
        assert {tuple(body[name] for name in names) for body in server.asked} == {(0.7, 5, 0.9, 0.1, 1.0)}
        assert all(rollout.logprobs is None for rollout in group.rollouts)
        assert "temperature" in group.sampling["server"]
        server.owner = "somebody"
        with pytest.raises(EngineError, match=r"method.sampling.min_p"):
            wb.sample_group(load_policy(policy.name), "2 + 3 = ", num_generations=2, top_k=5, min_p=0.1)


def test_a_group_is_sampled_over_the_tinker_protocol(tmp_path, tiny, protocol):
    policy = load_policy(f"tinker:file://{tmp_path}#{policy_path('tiny')}")
    group = wb.sample_group(policy, "2 + 3 = ", num_generations=3, max_completion_length=24, seed=5)
    sampler, [ids] = policy.server.sampler, [tiny.tokenizer("2 + 3 = ")["input_ids"]]
    for rollout in group.rollouts:
        [logprobs] = sampler.logprobs([[*ids, *rollout.token_ids]])
        assert list(rollout.logprobs) == pytest.approx(logprobs[len(ids) - 1 :].tolist(), abs=1e-4)
    assert len({rollout.token_ids for rollout in group.rollouts}) > 1
    with pytest.raises(EngineError, match=r"method.sampling.min_p"):
        wb.sample_group(policy, "2 + 3 = ", min_p=0.1)


def test_what_a_server_cannot_give_is_said(tiny):
    with serving(tiny) as server:
        name = f"{server.url}#{MODEL}@tiny"
        policy, pattern = load_policy(name), wb.StepPattern(r"(?m)^.+$", kind="is")
        group = wb.sample_group(policy, TASK[0], num_generations=2)
        reward = RewardConfig(name="answer_correctness", kind="outcome")
        row = wb.load_task("calculator")[0]
        for error, said, call in (
            (PolicyError, "name 'tiny' itself", partial(wb.with_reference, policy, group)),
            (PolicyError, "name 'tiny' itself", partial(wb.step_values, policy, group, pattern, reward, k=2)),
            (PolicyError, "plays no episodes", partial(wb.sample_group, policy, row, environment="calculator")),
            (PolicyError, "'float16'", partial(load_policy, name, dtype="float16")),
            (PolicyError, r"policy.path: .* engine.kind tinker", partial(check_section, PolicySection(path=name))),
            (EngineError, "serves no 'other'", partial(load_policy, f"{server.url}#other@tiny")),
        ):
            with pytest.raises(error, match=said):
                call()
        server.key = "secret"
        with pytest.raises(EngineError, match="VLLM_API_KEY"):
            load_policy(name)
    with pytest.raises(EngineError, match="server"):
        load_policy(name)


def test_the_worker_streams_and_cancels_what_a_server_samples(tiny, worker):
    with serving(tiny) as server:
        events, sampling = [], SamplingConfig(num_generations=2, max_completion_length=48)
        name = f"{server.url}#{MODEL}@tiny"
        group = worker.sample(name, Example("2 + 3 = "), sampling, on_event=events.append)
        assert sorted(list(r.token_ids) for r in group.rollouts) == sorted(ids for ids, _ in server.sampled.values())
        assert any("texts" in event for event in events)
        assert worker.status().device == server.url
        server.waits.set()
        cancel = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(worker.sample, name, Example("2"), sampling, cancelled=cancel.is_set)
            wait_for(lambda: len(server.asked) == 4, "both completions are asked for")
            cancel.set()
            assert asked.result(timeout=60) is None
        wait_for(server.left.is_set, "the requests end")


def test_the_page_samples_from_a_server_and_says_what_was_not_told(tiny, tmp_path, worker, monkeypatch):
    services = Services(tmp_path)
    services.models = worker
    monkeypatch.setattr(worker, "close", lambda: None)
    with serving(tiny, "texts") as server:
        draft = first_draft().with_value("policy.path", f"{server.url}#{MODEL}@tiny")
        *_, view = sample(draft, services, "tab")
    services.close()
    assert len(view.made["group"]) == len(server.sampled)
    assert "no ids" in view.note.text


def test_a_connection_is_tested_by_the_server_s_own_answer(tiny, protocol):
    with serving(tiny) as server:
        draft = first_draft().with_value("engine.url", server.url).with_value("engine.base_model", MODEL)
        said = ask_engine(draft)
        assert (said.level, f"{server.url} answers and has {MODEL}" in said.text) == ("info", True)
        assert "engine.base_model" in ask_engine(draft.with_value("engine.base_model", "other")).text
    assert "engine.url: nothing answers" in ask_engine(draft).text
    with pytest.raises(EngineError, match=r"engine\.url"):
        check_connection(EngineSection(kind="tinker", url="http://127.0.0.1:9"), "tiny")


# ── the model worker ─────────────────────────────────────────────────────────────────────────────────────────────────


SAMPLING = SamplingConfig(num_generations=3, max_completion_length=40)


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
    assert (status.state, status.policy, status.parameters > 100_000) == ("ready", "tiny", True)
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
    with ThreadPoolExecutor(1) as pool:
        pool.submit(worker.sample, "tiny", EXAMPLE, long, cancelled=cancelled)
        assert at_work.wait(60)
        assert worker.sample("tiny", EXAMPLE, SAMPLING, on_event=listen) is not None
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
    with pytest.raises(RewardCodeError, match="nothing"):
        worker.step_values("tiny", group, pattern, RewardConfig(name="nothing", kind="outcome"))


def test_it_answers_with_messages_not_tracebacks(worker, tiny, tmp_path):
    tiny.model.save_pretrained(tmp_path)
    tiny.tokenizer.save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"num_attention_heads": 3, "num_key_value_heads": 2}))
    status = worker.warm(str(tmp_path))
    assert (status.state, "Traceback" in status.message, status.message.count("\n")) == ("failed", False, 0)
