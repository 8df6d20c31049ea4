"""Sampling a group for one tab: messages for the drawing while the texts grow, and the group at the end.

The worker is asked on a thread of its own (``progress``): what it sends is passed on as fast as the page can take it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import validate_call

from workbench.config import SamplingConfig
from workbench.errors import ChildDied, ConfigError, TaskError, WorkbenchError
from workbench.places import is_of_run
from workbench.policies.client import PolicyStatus
from workbench.policies.prompts import known_chat_template, plain_prompt_note
from workbench.schema import Example, Group, Prompt
from workbench.ui.handlers.example import edited_example
from workbench.ui.handlers.page_state import PageState
from workbench.ui.handlers.scoring import Note, View, message
from workbench.ui.handlers.session import CHECKED, NO_EVENT, Services, progress_text
from workbench.ui.payloads import PolicyStatusPayload


@dataclass(frozen=True)
class Sampled:
    """A new group, the prompt it was sampled from where that is not the example's own, and the next seed."""

    group: Group
    edited: Prompt | None = None
    seed: int = 0


def sample(draft: PageState, services: Services, tab: str) -> Iterator[View]:
    """Sample a group, showing it grow. Whatever goes wrong, the group on screen is kept and the note says what."""
    try:
        (sampling, seed), prompting, environment = draft.sampling(), draft.prompting(), draft.environment()
        example, edited = edited_example(draft)
    except (ConfigError, TaskError) as error:
        yield View.of_error(error, message())
        return
    plain = plain_prompt_note(known_chat_template(draft.policy), prompting, example.prompt)
    began = time.monotonic()
    options = {**draft.policy_options, "prompting": prompting}
    if environment is not None:
        options |= {"environment": environment, "isolate": draft.isolates}
    request = _Request(draft.policy, options, example, sampling, seed, draft.reference.strip())

    def ask(report: Callable[[dict[str, Any]], None], cancelled: Callable[[], bool]) -> tuple[Group | None, str]:
        return _sample(services, request, cancelled, report)

    try:
        with services.sampling.run(tab, ask, NO_EVENT, "Cancelled; the group from before is back.") as work:
            for event in work:
                status = progress_text(event)
                if "texts" in event:
                    grown = {"texts": event["texts"], "finished": event["finished"], "prompt": draft.text}
                    yield View(running=True, drawing=message(stream=grown, busy=status))
                else:
                    yield View(running=True, drawing=message(busy=f"{status}, {time.monotonic() - began:.0f} s"))
            group, problem = work.result()
    except ChildDied as error:
        yield View(Note(f"{error}; Sample & score starts it again"), drawing=message(back=True))
    except WorkbenchError as error:
        yield View.of_error(error, message(back=True))
    else:
        assert group is not None
        said = " ".join(filter(None, (edited, plain[:1].upper() + plain[1:])))
        note = Note(problem, level="warning") if problem else Note(said, level="info") if said else None
        sampled = Sampled(group, None if group.prompt == draft.prompt else group.prompt, seed + 1)
        yield View(note, drawing=message(busy="scoring"), made=sampled)


def adopt(draft: PageState, sampled: Sampled | None) -> PageState:
    """The draft as it is by now, with the new group on screen."""
    return draft if sampled is None else draft.but(group=sampled.group, edited=sampled.edited)


@dataclass(frozen=True)
class _Request:
    policy: str
    options: Mapping[str, Any]
    example: Example
    sampling: SamplingConfig
    seed: int
    reference: str


def _sample(
    services: Services, request: _Request, cancelled: Callable[[], bool], report: Callable[[dict[str, Any]], None]
) -> tuple[Group | None, str]:
    """The group, None when cancelled, and why it lacks its reference policy's log-probabilities where it does."""
    took: dict[str, float] = {}  # seconds of sampling alone, without waiting and loading

    def on_event(event: dict[str, Any]) -> None:
        took.update({"seconds": event["seconds"]} if "seconds" in event else {})
        report(event)

    group = services.models.sample(
        request.policy, request.example, request.sampling,
        seed=request.seed, on_event=on_event, cancelled=cancelled, **request.options,
    )  # fmt: skip
    if group is not None:
        name = request.policy if is_of_run(request.policy) else group.policy  # not its checkpoint's folder
        group = replace(group, policy=name, sampling={**group.sampling, **took})
    if group is None or not request.reference:
        return group, ""
    try:
        compared = services.models.with_reference(request.reference, group, on_event=report, cancelled=cancelled)
    except WorkbenchError as error:
        return group, f"sampled, but not compared with the reference policy: {error}"
    return compared, ""


@validate_call(config=CHECKED)
def policy_status(services: Services, policy: str) -> PolicyStatusPayload:
    """The state of the policy that a page has chosen, "unloaded" while the worker holds another one.

    A page that names none is told of the worker's.
    """
    status = services.models.status()
    unloaded = bool(policy and status.policy and policy != status.policy)
    shown = PolicyStatus("off") if unloaded else status
    return {
        "state": "unloaded" if unloaded else shown.state,
        "policy": policy if unloaded else shown.policy,
        "seconds": shown.seconds,
        "message": shown.message,
        "device": shown.device,
        "parameters": shown.parameters,
        "decoding": shown.decoding,
    }
