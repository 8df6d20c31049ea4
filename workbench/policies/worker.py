"""The model worker, a child process that holds a policy and reward models: ``python -m workbench.policies.worker``.

It exists so that the page's process never imports torch. ``client.ModelWorker`` speaks to it. One policy is kept
loaded; asking for another replaces it. While a model loads or scores the worker says so every second, and while it
samples it sends the texts as they grow. It knows nothing of training or pages.
"""

import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from workbench.config import BeliefConfig, ModelConfig
from workbench.errors import PolicyError, RewardError, WorkbenchError
from workbench.models.weights import give_memory_back, is_out_of_memory
from workbench.policies.belief import belief_function, with_importances
from workbench.policies.decoding import decoding_of
from workbench.policies.load import Policy, load_policy
from workbench.policies.monte_carlo import step_values
from workbench.policies.sampler import sample_group, with_reference
from workbench.rewards import RewardConfig
from workbench.rewards.models.model import LocalModels, changed
from workbench.sandbox.child import Emitter, heartbeat, serve
from workbench.sandbox.client import shared_sandbox
from workbench.schema import Example, Group
from workbench.steps import StepPattern

EVENT_SECONDS = 0.1
"""Least time between two looks at the growing texts. Decoding takes at most a fifth of the time on top of that."""


class PolicyCache:
    """The one loaded policy; ``get`` loads another in its place when another is asked for, or held in another way."""

    _policy: Policy | None = None
    _key: Any = None

    def get(self, name: str, adapter: str | None, emit: Emitter, loading: Mapping[str, Any] | None = None) -> Policy:
        how = dict(loading or {})
        key = (name, adapter, how, max(changed(path) for path in (name, adapter or name, *how.get("merge", ()))))
        if self._policy is None or self._key != key:
            self._policy, self._key = None, None  # the old one's memory is free before the new one needs it
            with heartbeat(emit, lambda seconds: {"loading": name}):
                self._policy = load_policy(name, adapter, **how)
            self._key = key
        return self._policy


class GrowingTexts:
    """Collects sampled ids row by row and sends the decoded texts now and then."""

    def __init__(self, policy: Policy, sampling: Mapping[str, Any], emit: Emitter) -> None:
        rows = sampling["num_generations"]
        self._stop = tuple(sampling.get("stop", ()))
        self._policy, self._emit = policy, emit
        self._ends = frozenset(policy.eos_token_ids)
        self._ids: list[list[int]] = [[] for _ in range(rows)]
        self._texts = [""] * rows
        self._changed: set[int] = set()
        self._finished = [False] * rows
        self._tokens = 0
        self._started = time.monotonic()
        self._due = 0.0

    def add(self, sampled: list[tuple[int, int]]) -> None:
        for row, token in sampled:
            if token in self._ends:
                self._finished[row] = True
            else:
                self._ids[row].append(token)
            self._changed.add(row)
        self._tokens += len(sampled)
        now = time.monotonic()
        if now >= self._due:
            self._send()
            self._due = time.monotonic() + max(EVENT_SECONDS, 5 * (time.monotonic() - now))

    def _send(self) -> None:
        for row in self._changed:
            # A character whose last bytes are still to come decodes to the replacement character.
            self._texts[row] = str(self._policy.tokenizer.decode(self._ids[row])).rstrip("\ufffd")
            self._finished[row] |= any(stop in self._texts[row] for stop in self._stop)
        self._changed.clear()
        seconds = time.monotonic() - self._started
        self._emit({"texts": self._texts, "finished": self._finished, "tokens": self._tokens, "seconds": seconds})


def handle(request: dict[str, Any], emit: Emitter, cache: PolicyCache, models: LocalModels) -> dict[str, Any]:
    """Answer a request of one thing, of ``_WORKS`` or a reward ``model``'s scores, with what it needs."""
    ((what, asked),) = request.items()
    if what == "model":
        return _score(asked, emit, models)
    try:
        policy = cache.get(asked["policy"], asked.get("adapter"), emit, asked.get("loading"))
        return {
            **_WORKS[what](policy, asked, emit),
            "device": str(policy.device) if policy.server is None else policy.server.where,
            "parameters": policy.model.num_parameters(),
            "vocabulary": policy.model.get_input_embeddings().weight.shape[0],
            "decoding": decoding_of(policy.model) if policy.server is None else "server",
        }
    except Exception as error:  # a model's own code: its user needs a sentence, its traceback goes to the log
        full = is_out_of_memory(error)
        if full:
            give_memory_back(error)
        if isinstance(error, WorkbenchError):
            raise
        if full:
            first = (str(error).splitlines() or ["no more is said"])[0]
            raise PolicyError(f"out of memory ({first}); use fewer generations or a shorter completion") from None
        traceback.print_exc()
        reason = (str(error).strip().splitlines() or ["no reason given"])[0]
        raise PolicyError(f"the policy failed with {type(error).__name__}: {reason}") from error


def _sample(policy: Policy, asked: Mapping[str, Any], emit: Emitter) -> dict[str, Any]:
    shared_sandbox().set_isolated(asked.get("isolate", False))
    group = sample_group(
        policy,
        Example(asked["prompt"], asked["columns"], asked.get("system", "")),
        **asked["sampling"],
        **asked.get("prompting", {}),
        environment=asked.get("environment"),
        seed=asked["seed"],
        on_tokens=GrowingTexts(policy, asked["sampling"], emit).add,
        cancelled=emit.cancelled,
    )
    return {"group": group.to_json()}


def _compare(policy: Policy, asked: Mapping[str, Any], emit: Emitter) -> dict[str, Any]:
    return {"group": with_reference(policy, Group.from_json(asked["group"]), cancelled=emit.cancelled).to_json()}


def _value_steps(policy: Policy, asked: Mapping[str, Any], emit: Emitter) -> dict[str, Any]:
    values = step_values(
        policy,
        Group.from_json(asked["group"]),
        StepPattern(**asked["pattern"]),
        RewardConfig.model_validate(asked["outcome"]),
        asked["k"],
        asked["seed"],
        on_progress=_now_and_then(emit),
        cancelled=emit.cancelled,
    )
    return {"values": None if values is None else values.to_json()}


def _believe(policy: Policy, asked: Mapping[str, Any], emit: Emitter) -> dict[str, Any]:
    how, pattern = BeliefConfig.model_validate(asked["config"]), StepPattern(**asked["pattern"])
    return {"scores": belief_function(policy, how, asked["template_kwargs"], pattern)(**asked["batch"])}


_WORKS: Mapping[str, Callable[[Policy, Mapping[str, Any], Emitter], dict[str, Any]]] = {
    "load": lambda policy, asked, emit: {},
    "sample": _sample,
    "reference": _compare,
    "importances": lambda policy, asked, emit: {
        "group": with_importances(policy, Group.from_json(asked["group"])).to_json()
    },
    "values": _value_steps,
    "belief": _believe,
}
"""What is asked of a policy: a reply, beside what is said of the policy itself."""


def _score(asked: dict[str, Any], emit: Emitter, models: LocalModels) -> dict[str, Any]:
    """Scores of ``prompts`` with ``answers``; without them the reward model is loaded."""
    config = ModelConfig.model_validate(asked["config"])
    try:
        with heartbeat(emit, lambda seconds: {"busy": config.path, "seconds": seconds}):
            if "answers" in asked:
                return {"scores": models.score(config, asked["prompts"], asked["answers"])}
            models.prepare(config)
            return {}
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        give_memory_back(error)
        raise RewardError(f"out of memory with {config.path!r}; use a smaller batch_size than it has") from None


def _now_and_then(emit: Emitter) -> Callable[[dict[str, Any]], None]:
    """Passes events on, the last one always and the others not more often than every ``EVENT_SECONDS``."""
    due = 0.0

    def pass_on(event: dict[str, Any]) -> None:
        nonlocal due
        if time.monotonic() >= due or event["done"] == event["total"]:
            emit(event)
            due = time.monotonic() + EVENT_SECONDS

    return pass_on


def main() -> None:
    cache, models = PolicyCache(), LocalModels()
    serve(lambda request, emit: handle(request, emit, cache, models))


if __name__ == "__main__":
    main()
