"""The page's side of the model worker. Imports no torch: policy and reward models live in a child process.

``ModelWorker`` starts the child when it is first needed, tells how far loading has got, asks it one thing at a time and
survives its death: the next call starts a new one.
"""

import dataclasses
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from workbench.config import BeliefConfig, EnvironmentSection, ModelConfig, PromptSection, SamplingConfig
from workbench.errors import ChildError, PatternError, RewardError, WorkbenchError
from workbench.models.find import check_there
from workbench.policies.step_values import StepValues
from workbench.rewards import RewardConfig
from workbench.rewards.protocol import Score
from workbench.rundir import checkpoint_or
from workbench.sandbox.child import Child
from workbench.schema import Example, Group, Prompt
from workbench.steps import StepPattern

SILENCE_SECONDS = 300.0
"""Most seconds the worker may stay silent. It speaks every second while it loads or scores, and as tokens grow."""

OnEvent = Callable[[dict[str, Any]], None]
IsCancelled = Callable[[], bool]


@dataclass(frozen=True)
class PolicyStatus:
    """The worker's state: ``seconds`` since it began to, ``message`` the error where it failed.

    Of the policy loaded: its device, how many parameters and tokens it has, and how its tokens are decoded.
    """

    state: Literal["off", "loading", "ready", "sampling", "failed"]
    policy: str = ""
    seconds: float = 0.0
    message: str = ""
    device: str = ""
    parameters: int = 0
    vocabulary: int = 0
    decoding: str = ""


_WORK = {
    "load": "loads a policy",
    "sample": "samples",
    "values": "estimates the values of steps",
    "reference": "compares with a reference policy",
    "importances": "finds the tokens that matter for the answer",
    "belief": "asks a policy for its belief in the answer",
}
_OF_LOADED = ("device", "parameters", "vocabulary", "decoding")
"""Fields of a status that the worker tells of the policy that it has."""


class ModelWorker:
    """Client of ``python -m workbench.policies.worker``; safe to use from any thread.

    ``path_of`` gives the path that a model's name stands for. ``busy`` says what reward models are at, "" while none is
    asked.
    """

    def __init__(self, path_of: Callable[[str], str] = checkpoint_or) -> None:
        self._path_of = path_of
        self._child: Child | None = None
        self._turn = threading.Lock()
        self._status = PolicyStatus("off")
        self._work, self._tokens = "", 0
        self._since = time.monotonic()
        self.busy = ""

    def warm(self, policy: str = "tiny", adapter: str | None = None) -> PolicyStatus:
        """Load a policy now, so that the first sampling need not wait for it. A failure is in the status returned."""
        try:
            self._in_turn("load", {"policy": policy, "adapter": adapter}, None, None)
        except WorkbenchError as error:
            self._set(PolicyStatus("failed", policy, message=str(error)))
        return self.status()

    def sample(
        self,
        policy: str,
        example: Example,
        sampling: SamplingConfig,
        *,
        seed: int = 0,
        adapter: str | None = None,
        loading: Mapping[str, str] | None = None,
        prompting: PromptSection | None = None,
        environment: EnvironmentSection | None = None,
        isolate: bool = False,
        on_event: OnEvent | None = None,
        cancelled: IsCancelled | None = None,
    ) -> Group | None:
        """Sample one group; None when cancelled. ``loading`` says how the weights are held (``PolicySection.loading``),
        ``prompting`` how the prompt is put to the policy, ``environment`` who answers its turns,
        ``isolate`` whether its code is isolated.

        ``on_event`` gets ``{"waiting": what for}`` while another call has its turn, ``{"loading": name}`` while the
        policy loads, and ``{"texts", "finished", "tokens", "seconds"}`` as the rollouts grow.

        Raises:
            PolicyError: if the policy cannot be loaded or the prompt cannot be sampled from.
            ChildError: if the worker died or fell silent.
        """
        request = {
            "policy": policy,
            "adapter": adapter,
            "loading": dict(loading or {}),
            "prompt": example.prompt,
            "columns": dict(example.columns),
            "system": example.system,
            "sampling": sampling.model_dump(),
            "seed": seed,
            "prompting": (prompting or PromptSection()).model_dump(),
            "environment": None if environment is None else environment.model_dump(),
            "isolate": isolate,
        }
        reply = self._in_turn("sample", request, on_event, cancelled)
        return None if reply is None else Group.from_json(reply["group"])

    def with_reference(
        self,
        policy: str,
        group: Group,
        *,
        adapter: str | None = None,
        on_event: OnEvent | None = None,
        cancelled: IsCancelled | None = None,
    ) -> Group | None:
        """The group with its tokens' log-probabilities under ``policy`` (``reference.with_reference``); None when
        cancelled. Events and errors are those of ``sample``."""
        request = {"policy": policy, "adapter": adapter, "group": group.to_json()}
        reply = self._in_turn("reference", request, on_event, cancelled)
        return None if reply is None else Group.from_json(reply["group"])

    def with_importances(
        self, policy: str, group: Group, *, adapter: str | None = None, loading: Mapping[str, str] | None = None
    ) -> Group:
        """The group with its tokens' importances (``belief.with_importances``). Raises as ``score_beliefs``."""
        request = {"policy": policy, "adapter": adapter, "loading": dict(loading or {}), "group": group.to_json()}
        reply = self._in_turn("importances", request, None, None)
        assert reply is not None  # nothing cancels it
        return Group.from_json(reply["group"])

    def step_values(
        self,
        policy: str,
        group: Group,
        pattern: StepPattern,
        outcome: RewardConfig,
        *,
        k: int = 8,
        seed: int = 0,
        adapter: str | None = None,
        loading: Mapping[str, str] | None = None,
        on_event: OnEvent | None = None,
        cancelled: IsCancelled | None = None,
    ) -> StepValues | None:
        """Monte-Carlo values of a group's steps (``monte_carlo.step_values``); None when cancelled.

        ``on_event`` gets ``{"waiting": what for}``, ``{"loading": name}``, and then ``{"done", "total", "tokens",
        "seconds"}`` as continuations end. Raises as ``sample`` does, and RewardError and PatternError of scoring and
        cutting, which leave the policy ready.
        """
        request = {
            "policy": policy,
            "adapter": adapter,
            "loading": dict(loading or {}),
            "group": group.to_json(),
            "pattern": dataclasses.asdict(pattern),
            "outcome": outcome.model_dump(),
            "k": k,
            "seed": seed,
        }
        reply = self._in_turn("values", request, on_event, cancelled)
        return None if reply is None else StepValues.from_json(reply["values"])

    def score_beliefs(
        self,
        policy: str,
        config: BeliefConfig,
        batch: Mapping[str, Any],
        *,
        pattern: StepPattern,
        template_kwargs: Mapping[str, Any] | None = None,
        adapter: str | None = None,
        loading: Mapping[str, str] | None = None,
    ) -> list[list[Score]]:
        """Score steps by the belief of ``policy``, or of the configuration's own (``belief.belief_function``).

        ``batch`` are the arguments that a reward function gets. Raises as ``sample``, and RewardError for completions
        that another tokenizer has made.
        """
        request: dict[str, Any] = {
            "policy": policy,
            "adapter": adapter,
            "loading": dict(loading or {}),
            "config": config.model_dump(),
            "batch": dict(batch),
            "pattern": dataclasses.asdict(pattern),
            "template_kwargs": dict(template_kwargs or {}),
        }
        if config.policy is not None:
            request |= {"policy": config.policy, "adapter": None, "loading": {}}
        reply = self._in_turn("belief", request, None, None)
        assert reply is not None  # nothing cancels it
        return list(reply["scores"])

    def _in_turn(
        self,
        what: str,
        request: Mapping[str, Any],
        on_event: OnEvent | None,
        cancelled: IsCancelled | None,
    ) -> dict[str, Any] | None:
        loading = request.get("loading") or {}
        named = (request["policy"], *loading.get("merge", ()), *filter(None, [request["adapter"]]))
        check_there(*map(self._path_of, named))
        work = _WORK[what]
        if what == "sample":
            sampling = request["sampling"]
            work += f" {sampling['num_generations']} answers of up to {sampling['max_completion_length']:,} tokens"
        if not self._await_turn(work, on_event, cancelled):
            return None
        try:
            return self._ask(what, request, on_event, cancelled)
        finally:
            self._turn.release()

    def _await_turn(self, work: str, on_event: OnEvent | None, cancelled: IsCancelled | None) -> bool:
        """Take the turn, telling every 0.2 s what is waited for; False if ``cancelled`` comes first."""
        while not self._turn.acquire(timeout=0.2):
            if cancelled is not None and cancelled():
                return False
            so_far = f", {self._tokens:,} tokens so far" if self._tokens else ""
            doing = "loads a policy" if self._status.state == "loading" else f"{self._work} for another request{so_far}"
            if on_event is not None:
                on_event({"waiting": doing})
        self._work, self._tokens = work, 0
        return True

    def _ask(
        self,
        what: str,
        request: Mapping[str, Any],
        on_event: OnEvent | None,
        cancelled: IsCancelled | None,
    ) -> dict[str, Any] | None:
        policy = request["policy"]
        before = self._status
        self._set(PolicyStatus("loading" if before.policy != policy or before.state != "ready" else "sampling", policy))

        def pass_on(event: dict[str, Any]) -> None:
            self._tokens = event.get("tokens", 0)
            if "tokens" in event and self._status.state != "sampling":
                self._set(PolicyStatus("sampling", policy))
            if on_event is not None:
                on_event(event)

        try:
            reply = self._call({what: dict(request)}, pass_on, cancelled)
        except (RewardError, PatternError):  # the policy itself is well
            known = before if before.policy == policy else PolicyStatus("ready")
            self._set(replace(known, state="ready", policy=policy, message=""))
            raise
        except WorkbenchError as error:
            self._set(PolicyStatus("failed", policy, message=str(error)))
            raise
        self._set(PolicyStatus("ready", policy, **{name: reply[name] for name in _OF_LOADED}))
        if cancelled is not None and cancelled():
            return None
        return reply

    # -- reward models --------------------------------------------------------------------------------------------

    def prepare(self, config: ModelConfig) -> None:
        """Nothing: the model loads with its first scores, which say what is wrong with it."""

    def load(self, config: ModelConfig, on_event: OnEvent | None = None, cancelled: IsCancelled | None = None) -> None:
        """Load a reward model now. Raises as ``score`` does, also once ``cancelled``.

        ``on_event`` gets ``{"waiting": what for}`` while another call has its turn, then ``{"busy": path, "seconds":
        s}`` every second. The worker ends with a load that is cancelled, as a download cannot be asked to.
        """
        self._ask_model(config, {}, on_event, cancelled)

    def score(self, config: ModelConfig, prompts: Sequence[Prompt], answers: Sequence[Any]) -> list[Any]:
        """Score as ``LocalModels.score``. Raises RewardError, also if the worker died or hung."""
        scores: list[Any] = self._ask_model(config, {"prompts": list(prompts), "answers": list(answers)})
        return scores

    def _ask_model(
        self,
        config: ModelConfig,
        request: Mapping[str, Any],
        on_event: OnEvent | None = None,
        cancelled: IsCancelled | None = None,
    ) -> Any:
        asked = {"config": config.model_dump() | {"path": self._path_of(config.path)}, **request}

        def pass_on(event: dict[str, Any]) -> None:
            if cancelled is not None and cancelled():
                raise RewardError(f"loading {config.path!r} was cancelled")
            doing = f"at work, {event['seconds']:.0f} s" if "busy" in event else f"waits: the worker {event['waiting']}"
            self.busy = f"reward model {asked['config']['path']} {doing}"
            if on_event is not None:
                on_event(event)

        if not self._await_turn(f"scores with reward model {config.path}", pass_on, cancelled):
            self.busy = ""
            raise RewardError(f"loading {config.path!r} was cancelled")
        try:
            return self._call({"model": asked}, pass_on).get("scores")
        except ChildError as error:
            raise RewardError(str(error)) from error
        finally:
            self.busy = ""
            if self._child is not None and not self._child.alive:  # and with it the policy
                self._set(PolicyStatus("off"))
            self._turn.release()

    # -- both -----------------------------------------------------------------------------------------------------

    def status(self) -> PolicyStatus:
        return replace(self._status, seconds=time.monotonic() - self._since)

    def close(self) -> None:
        """End the worker. A later call starts another."""
        if self._child is not None:
            self._child.close()
        self._set(PolicyStatus("off"))

    def _set(self, status: PolicyStatus) -> None:
        self._status, self._since = status, time.monotonic()

    def _call(
        self,
        request: Mapping[str, Any],
        on_event: OnEvent | None = None,
        cancelled: IsCancelled | None = None,
    ) -> dict[str, Any]:
        """Send a request, with paths in place of names."""
        ((what, asked),) = request.items()
        named = (name for name in ("policy", "adapter") if asked.get(name) is not None)
        paths: dict[str, Any] = {name: self._path_of(asked[name]) for name in named}
        if (loading := asked.get("loading")) and "merge" in loading:
            merge = {self._path_of(name): weight for name, weight in loading["merge"].items()}
            paths["loading"] = {**loading, "merge": merge}
        if self._child is None:
            self._child = Child("workbench.policies.worker", name="model worker")
        sent = {what: {**asked, **paths}}
        return self._child.call(sent, deadline=SILENCE_SECONDS, on_event=on_event, cancelled=cancelled)
