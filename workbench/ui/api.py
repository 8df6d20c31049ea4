"""The workbench's API: five functions for scripts, through ``gradio_client`` or any HTTP client; no other is public.

    from gradio_client import Client
    client = Client("http://127.0.0.1:7860/", headers={"Authorization": "Bearer <token>"})
    group = client.predict(prompt="Start with 7, add 5.\n", num_generations=4, api_name="/sample")
    scored = client.predict(group, rewards=["step_correctness"], api_name="/score")

The token is the one in the link that the terminal printed, and in the workspace's ``.token``. What is wrong with a
request comes back as the error's own message. Types and descriptions below are what ``client.view_api()`` and an MCP
client are shown; what the functions do is in ``handlers.api``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import gradio as gr

from workbench.errors import WorkbenchError, redact
from workbench.ui.handlers import api
from workbench.ui.handlers.session import Services

DEFAULT_REGEX = r"(?m)^(?:Step \d+|Answer):"

Function = TypeVar("Function", bound=Callable[..., Any])


def add_api(services: Services, *, mcp: bool = False) -> None:
    """Make the endpoints, inside a ``gr.Blocks``. With ``mcp``, those that sample or run a reward stay callable by
    scripts but are no tool of the MCP server, which then can read and compute only."""
    acting = "undocumented" if mcp else "public"
    gr.api(_told(_sampling(services)), api_visibility=acting, concurrency_limit=4, concurrency_id="sampling")
    gr.api(_told(_scoring(services)), api_visibility=acting, concurrency_limit=2)
    for function in (assign_credit, *_reading_runs(services)):
        gr.api(_told(function), concurrency_limit=4)


def _sampling(services: Services) -> Callable[..., Any]:
    def sample(  # type: ignore[misc]  # it yields such; Gradio takes the hint for each
        prompt: str,
        policy: str = "tiny",
        num_generations: int = 8,
        max_completion_length: int = 128,
        temperature: float = 1.0,
        seed: int = 0,
        columns: dict | None = None,  # type: ignore[type-arg]
    ) -> dict:  # type: ignore[type-arg]
        """Sample a group of answers to one prompt.

        Until the group is there, {"status": "…"} comes each second: what is waited for, or how far it is.

        Args:
            prompt: Plain text, or a JSON list of chat messages.
            policy: The embedded policy's name, a Hub id or a local folder.
            num_generations: G, the rollouts of the group.
            max_completion_length: Tokens after which a completion is truncated.
            temperature: Divides the logits before sampling.
            seed: The same seed gives the same samples.
            columns: Further columns of the row for the reward functions, such as {"answer": "12"}.

        Returns:
            The group: prompt, columns, policy, sampling and rollouts with token ids, texts and log-probs.
        """
        options = {
            "num_generations": num_generations,
            "max_completion_length": max_completion_length,
            "temperature": temperature,
        }
        yield from api.sample(services, prompt, policy, columns or {}, seed, options)

    return sample


def _scoring(services: Services) -> Callable[..., Any]:
    def score(
        group: dict,  # type: ignore[type-arg]
        rewards: list[str],
        regex: str = DEFAULT_REGEX,
        kind: str = "starts",
        scheme: str = "process",
        options: dict | None = None,  # type: ignore[type-arg]
    ) -> dict:  # type: ignore[type-arg]
        """Split a group's answers into steps, score each with built-in rewards and credit every token.

        Args:
            group: A group as sample gives it.
            rewards: Names of built-in reward functions.
            regex: The step pattern, in the syntax of Python's regex package.
            kind: What a match is: it "starts" a step, "ends" one, or "is" one; by "turns" every turn is a step;
                "surprise", "entropy" and "tokens" cut by tokens, and regex is their numbers.
            scheme: The credit scheme's name.
            options: Options of the scheme, such as {"scale": false, "outcome_weight": 0.5}.

        Returns:
            For each rollout its steps with scores, its outcome reward and one advantage a token.
        """
        return api.score(services, group, regex, kind, rewards, scheme, options or {})

    return score


def assign_credit(
    step_rewards: list[list[float | None]],
    step_ends: list[list[int]],
    lengths: list[int],
    scheme: str = "process",
    outcome_rewards: list[float | None] | None = None,
    options: dict | None = None,  # type: ignore[type-arg]
) -> list[list[float]]:
    """Turn the step rewards of one group into token advantages.

    Args:
        step_rewards: One list a completion; null is unscored.
        step_ends: The 0-based index of each step's last token.
        lengths: Tokens of each completion.
        scheme: The credit scheme's name.
        outcome_rewards: One a completion, where the scheme needs them.
        options: Options of the scheme, such as {"scale": false, "outcome_weight": 0.5}.

    Returns:
        One list of advantages a completion, one number a token.
    """
    return api.assign_credit(step_rewards, step_ends, lengths, scheme, outcome_rewards, options or {})


def _reading_runs(services: Services) -> tuple[Callable[..., Any], ...]:
    def list_runs() -> dict:  # type: ignore[type-arg]
        """List the workspace's training runs, the newest first.

        Returns:
            "runs", for each its name, state, reason, step, total_steps, task, policy and credit scheme; "more", how
            many older ones are left out.
        """
        return api.list_runs(services)

    def read_metrics(run: str, cursor: int = 0) -> dict:  # type: ignore[type-arg]
        """Read the metrics of a training run, all of them or what is new since the last call.

        Args:
            run: The run's name.
            cursor: 0, or the cursor that the last call returned.

        Returns:
            The run's state, the rows, and the cursor to ask from next time.
        """
        return api.read_metrics(services, run, cursor)

    return list_runs, read_metrics


def _told(function: Function) -> Function:
    """The same function, whose WorkbenchError reaches the caller as the message it is."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with _messages():
            return function(*args, **kwargs)

    @functools.wraps(function)
    def each(*args: Any, **kwargs: Any) -> Any:
        with _messages():
            yield from function(*args, **kwargs)

    return each if inspect.isgeneratorfunction(function) else call  # type: ignore[return-value]


@contextmanager
def _messages() -> Iterator[None]:
    try:
        yield
    except WorkbenchError as error:
        raise gr.Error(redact(str(error)), print_exception=False) from error
