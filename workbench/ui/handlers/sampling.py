"""Sampling a group for one tab: messages for the drawing while the texts grow, and the group at the end.

The worker is asked on a thread of its own, so that what it sends is passed on as fast as the page can take it and no
faster: of several messages waiting, only the newest is shown.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from workbench.config import SamplingConfig
from workbench.errors import ConfigError, WorkbenchError
from workbench.schema import Example, Group, Prompt
from workbench.ui.handlers.inspect import edited_example
from workbench.ui.handlers.scoring import Note, message
from workbench.ui.handlers.session import Services, Session

MOST_SEED = 2**31 - 1
"""The largest seed, of a run as of a group."""


@dataclass(frozen=True)
class SamplingForm:
    """The controls that sampling depends on, as they stand."""

    prompt: str
    policy: str
    num_generations: float | None
    temperature: float | None
    max_completion_length: float | None
    seed: float | None
    reference: str = ""
    """A policy whose log-probabilities are noted beside, for the KL divergence from it; none where empty."""


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


def sampling_config(form: SamplingForm) -> tuple[SamplingConfig, int]:
    """The sampling options and the seed. Raises ConfigError with the field's name."""
    given = {
        "num_generations": form.num_generations,
        "temperature": form.temperature,
        "max_completion_length": form.max_completion_length,
    }
    if missing := [name for name, value in given.items() if value is None]:
        raise ConfigError(f"{missing[0].replace('_', ' ')} is empty; give a number")
    for name in ("num_generations", "max_completion_length"):
        given[name] = int(given[name] or 0)
    try:
        sampling = SamplingConfig.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"{str(first['loc'][0]).replace('_', ' ')}: {first['msg']} (got {first['input']})") from error
    seed = int(form.seed or 0)
    if not 0 <= seed <= MOST_SEED:
        raise ConfigError(f"seed {seed} is out of range; give 0 to {MOST_SEED:,}")
    return sampling, seed


def sample(session: Session, form: SamplingForm, services: Services, tab: str) -> Iterator[SamplingView]:
    """Sample a group, showing it grow. Whatever goes wrong, the group on screen is kept and the note says what."""
    try:
        sampling, seed = sampling_config(form)
    except ConfigError as error:
        yield SamplingView(message(), False, Note(str(error)))
        return
    example, edited = edited_example(session, form.prompt)
    cancel = services.sampling.begin(tab)
    if cancel is None:
        yield SamplingView(message(), None, Note("This page is sampling already; cancel it first."))
        return
    try:
        yield SamplingView(message(busy="asking the policy"), True)
        began = time.monotonic()
        outcome: Group | WorkbenchError | None = None
        problem = ""
        wanted = _Wanted(form.policy.strip() or "tiny", example, sampling, seed, (form.reference or "").strip())
        with closing(_events(services, wanted, cancel)) as events:
            for item in events:
                if isinstance(item, dict) and "reference" in item:
                    problem = item["reference"]
                elif isinstance(item, dict):
                    yield SamplingView(_progress(item, time.monotonic() - began, form.prompt), True)
                else:
                    outcome = item
    finally:
        services.sampling.end(tab)
    if isinstance(outcome, WorkbenchError):
        yield SamplingView(message(back=True), False, Note(str(outcome)))
    elif outcome is None:
        yield SamplingView(message(back=True), False, Note("Cancelled; the group from before is back.", level="info"))
    else:
        note = Note(problem, level="warning") if problem else Note(edited, level="info") if edited else None
        sampled = Sampled(outcome, None if example.prompt == session.prompt else example.prompt)
        yield SamplingView(message(busy="scoring"), False, note, sampled, seed + 1)


def adopt(session: Session, sampled: Sampled | None) -> Session:
    """The session as it is by now, with the new group on screen."""
    return session if sampled is None else replace(session, group=sampled.group, edited=sampled.edited)


@dataclass(frozen=True)
class _Wanted:
    policy: str
    example: Example
    sampling: SamplingConfig
    seed: int
    reference: str


def _events(
    services: Services, wanted: _Wanted, cancel: threading.Event
) -> Generator[dict[str, Any] | Group | WorkbenchError | None]:
    """The worker's events, newest only, and last what came of it: the group, the error, or None when cancelled.

    Before it, ``{"reference": why}`` where the group came without its reference policy's log-probabilities.
    """
    heard: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    result: list[Group | WorkbenchError | None] = []

    def work() -> None:
        took: dict[str, float] = {}  # seconds of sampling alone, without waiting and loading

        def hear(event: dict[str, Any]) -> None:
            took.update({"seconds": event["seconds"]} if "seconds" in event else {})
            heard.put(event)

        try:
            group = services.policy.sample(
                wanted.policy, wanted.example, wanted.sampling,
                seed=wanted.seed, on_event=hear, cancelled=cancel.is_set,
            )  # fmt: skip
            group = group and replace(group, sampling={**group.sampling, **took})
            if group is not None and wanted.reference:
                group = beside(group)
            result.append(group)
        except WorkbenchError as error:
            result.append(error)

    def beside(group: Group) -> Group | None:
        try:
            return services.policy.with_reference(wanted.reference, group, on_event=heard.put, cancelled=cancel.is_set)
        except WorkbenchError as error:
            problems.append(f"sampled, but not compared with the reference policy: {error}")
            return group

    problems: list[str] = []
    thread = threading.Thread(target=work, name="sampling", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            newest = None
            try:
                newest = heard.get(timeout=0.05)
                while True:
                    newest = heard.get_nowait()
            except queue.Empty:
                pass
            if newest is not None:
                yield newest
    finally:
        if thread.is_alive():  # whoever was listening went away
            cancel.set()
    if problems:
        yield {"reference": problems[0]}
    yield result[0] if result else WorkbenchError("sampling ended without a result; try again")


def _progress(event: dict[str, Any], seconds: float, prompt: str) -> str:
    if "texts" in event:
        tokens, took = event["tokens"], event["seconds"]
        rate = f", {tokens / took:.0f} a second" if took > 0.2 else ""
        done = sum(event["finished"])
        status = f"sampling: {tokens} tokens{rate}, {done} of {len(event['texts'])} finished"
        return message(stream={"texts": event["texts"], "finished": event["finished"], "prompt": prompt}, busy=status)
    if "waiting" in event:
        return message(busy=f"waiting for another page's sampling, {seconds:.0f} s")
    return message(busy=f"loading policy {event['loading']}, {seconds:.0f} s")
