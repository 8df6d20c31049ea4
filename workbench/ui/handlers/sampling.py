"""Sampling a group for one tab: messages for the drawing while the texts grow, and the group at the end.

The worker is asked on a thread of its own (``progress``): what it sends is passed on as fast as the page can take it.
"""

from __future__ import annotations

import threading
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
from workbench.schema import Example, Group, Prompt, counted
from workbench.ui.handlers.example import edited_example
from workbench.ui.handlers.page_state import PageState
from workbench.ui.handlers.scoring import Note, message
from workbench.ui.handlers.session import CHECKED, BackgroundWork, Services
from workbench.ui.payloads import PolicyStatusPayload


@dataclass(frozen=True)
class Sampled:
    """A new group, and the prompt it was sampled from where that is not the example's own."""

    group: Group
    edited: Prompt | None = None


@dataclass(frozen=True)
class SamplingView:
    """One thing to show while sampling: a message for the drawing, a note under the button, and at the end the group.

    ``running`` says whether there is anything to cancel, None that this is as it was. ``seed`` is the next one, once a
    group was sampled.
    """

    drawing: str
    running: bool | None
    note: Note | None = None
    sampled: Sampled | None = None
    seed: int | None = None


def sample(draft: PageState, services: Services, tab: str) -> Iterator[SamplingView]:
    """Sample a group, showing it grow. Whatever goes wrong, the group on screen is kept and the note says what."""
    try:
        (sampling, seed), prompting, environment = draft.sampling(), draft.prompting(), draft.environment()
        example, edited = edited_example(draft)
    except (ConfigError, TaskError) as error:
        yield SamplingView(message(), False, Note(str(error)))
        return
    cancel = services.sampling.begin(tab)
    if cancel is None:
        yield SamplingView(message(), None, Note("This page is sampling already; cancel it first."))
        return
    try:
        plain = plain_prompt_note(known_chat_template(draft.policy), prompting, example.prompt)
        yield SamplingView(message(busy="asking the policy"), True, Note(plain, level="info") if plain else None)
        began = time.monotonic()
        options = {**draft.policy_options, "prompting": prompting}
        if environment is not None:
            options |= {"environment": environment, "isolate": draft.isolates}
        request = _Request(draft.policy, options, example, sampling, seed, draft.reference.strip())

        def ask(report: Callable[[dict[str, Any]], None]) -> tuple[Group | None, str]:
            return _sample(services, request, cancel, report)

        silent: dict[str, Any] = {}
        with BackgroundWork(ask, cancel, first=silent) as work:
            for event in work:
                status = progress_text(event)
                if "texts" in event:
                    grown = {"texts": event["texts"], "finished": event["finished"], "prompt": draft.text}
                    yield SamplingView(message(stream=grown, busy=status), True)
                else:
                    yield SamplingView(message(busy=f"{status}, {time.monotonic() - began:.0f} s"), True)
            try:
                group, problem, failure = *work.result(), None
            except WorkbenchError as error:
                group, problem, failure = None, "", error
    finally:
        services.sampling.end(tab)
    if failure is not None:
        again = "; Sample & score starts it again" if isinstance(failure, ChildDied) else ""
        yield SamplingView(message(back=True), False, Note(f"{failure}{again}"))
    elif group is None:
        yield SamplingView(message(back=True), False, Note("Cancelled; the group from before is back.", level="info"))
    else:
        said = " ".join(filter(None, (edited, plain[:1].upper() + plain[1:])))
        note = Note(problem, level="warning") if problem else Note(said, level="info") if said else None
        sampled = Sampled(group, None if group.prompt == draft.prompt else group.prompt)
        yield SamplingView(message(busy="scoring"), False, note, sampled, seed + 1)


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
    services: Services, request: _Request, cancel: threading.Event, report: Callable[[dict[str, Any]], None]
) -> tuple[Group | None, str]:
    """The group, None when cancelled, and why it lacks its reference policy's log-probabilities where it does."""
    took: dict[str, float] = {}  # seconds of sampling alone, without waiting and loading

    def on_event(event: dict[str, Any]) -> None:
        took.update({"seconds": event["seconds"]} if "seconds" in event else {})
        report(event)

    group = services.models.sample(
        request.policy, request.example, request.sampling,
        seed=request.seed, on_event=on_event, cancelled=cancel.is_set, **request.options,
    )  # fmt: skip
    if group is not None:
        name = request.policy if is_of_run(request.policy) else group.policy  # not its checkpoint's folder
        group = replace(group, policy=name, sampling={**group.sampling, **took})
    if group is None or not request.reference:
        return group, ""
    try:
        compared = services.models.with_reference(request.reference, group, on_event=report, cancelled=cancel.is_set)
    except WorkbenchError as error:
        return group, f"sampled, but not compared with the reference policy: {error}"
    return compared, ""


def progress_text(event: dict[str, Any]) -> str:
    """What an event of the model worker says."""
    if "texts" in event:
        tokens, took = event["tokens"], event["seconds"]
        rate = f", {tokens / took:.0f} a second" if took > 0.2 else ""
        done = sum(event["finished"])
        return f"sampling: {counted(tokens, 'token')}{rate}, {done} of {len(event['texts'])} finished"
    if "waiting" in event:
        return f"waiting while the model worker {event['waiting']}"
    if "loading" in event:
        return f"loading policy {event['loading']}"
    return "asking the policy"


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
