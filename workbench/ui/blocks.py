"""The page as Gradio serves it, with less work at every visit and event, and fewer sessions.

Gradio builds each output of an event anew, also those that the event leaves as they are. A session is a copy of all
components, near a megabyte: Gradio keeps 10,000 of them, makes one for each call of the API, and keeps those of closed
tabs. Knows nothing of what is on the page.
"""

import copy
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import gradio as gr
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from gradio.blocks import Block, BlockFunction
from gradio.route_utils import FnIndexInferError
from gradio.state_holder import SessionState, StateHolder
from starlette.routing import Mount

from workbench.errors import WorkbenchError, redact

MOST_SESSIONS = 100
"""That are kept, of open tabs too; then the one that was used longest ago goes."""
KEPT_CLOSED = 2
"""Tabs that are closed as far as the server knows: one whose network was away for a moment goes on where it was."""
UNHEARD_SECONDS, UNREAD = 10.0, 3
"""After so long an event that has more unread messages than that is given up: whoever posted it does not listen."""
CALLS = "calls"
"""The session of all calls that name none; it remembers nothing from one to the next."""


class Page(gr.Blocks):  # type: ignore[misc]  # Gradio says nothing of its types
    """The blocks of a page. A WorkbenchError that a function of it raises reaches the caller as the message it is."""

    async def call_function(
        self,
        block_fn: BlockFunction,
        processed_input: list[Any],
        iterator: AsyncIterator[Any] | None = None,
        requests: Any = None,
        event_id: str | None = None,
        *args: Any,
    ) -> dict[str, Any]:
        posted, messages = self._queue.event_ids_to_events.get(event_id), self._queue.pending_messages_per_session
        is_late = posted is not None and time.monotonic() - posted.enqueue_time > UNHEARD_SECONDS
        if is_late and messages[posted.session_hash].qsize() > UNREAD:
            raise gr.Error("given up, as nobody reads its progress", print_exception=False)
        args = (processed_input, iterator, requests, event_id, *args)
        try:
            return await super().call_function(block_fn, *args)  # type: ignore[no-any-return]
        except WorkbenchError as error:
            raise gr.Error(redact(str(error)), print_exception=False) from error

    async def postprocess_data(
        self, block_fn: BlockFunction, predictions: list[Any] | dict[Any, Any], state: SessionState | None
    ) -> list[Any]:
        """Have Gradio tell the page of the outputs of an event that change, and nothing of the others."""
        outputs = list(block_fn.outputs)
        values = _by_output(outputs, predictions)
        pairs = list(zip(outputs, values, strict=True))
        changed = [i for i, pair in enumerate(pairs) if not _is_skip(pair[1]) and not self._is_shown(*pair, state)]
        if len(outputs) < 2 or len(changed) == len(outputs):
            told: list[Any] = await super().postprocess_data(block_fn, predictions, state)
            return told
        answer: list[Any] = [None if output.stateful else gr.skip() for output in outputs]
        if changed:
            function, given = copy.copy(block_fn), [values[i] for i in changed]
            function.outputs = [outputs[i] for i in changed]
            told = await super().postprocess_data(function, given if len(given) > 1 else given[0], state)
            for i, value in zip(changed, told, strict=True):
                answer[i] = value
        return answer

    @cached_property
    def _changeable(self) -> set[int]:
        """The elements whose values the page sets, too."""
        return {target for function in self.fns.values() for target, event in function.targets if event == "input"}

    def _is_shown(self, output: Block, value: Any, state: SessionState | None) -> bool:
        """Return whether an element was told the same before, and note it."""
        if not isinstance(state, _Session) or not isinstance(output, gr.HTML) or output._id in self._changeable:
            return False
        before, state.told[output._id] = state.told.get(output._id), hash(value) if isinstance(value, str) else None
        return before is not None and before == state.told[output._id]


def _by_output(outputs: list[Block], predictions: list[Any] | dict[Any, Any]) -> list[Any]:
    """Return an event's values output by output, or a None for each where only Gradio can tell them apart."""
    if _is_skip(predictions):
        return [predictions] * len(outputs)
    if isinstance(predictions, dict) and predictions.keys() <= set(outputs):
        return [predictions.get(output, gr.skip()) for output in outputs]
    are_several = isinstance(predictions, (list, tuple)) and len(predictions) == len(outputs) > 1
    return list(predictions) if are_several else [None] * len(outputs)


def _is_skip(value: Any) -> bool:
    return isinstance(value, dict) and value == gr.skip()


class _Session(SessionState):  # type: ignore[misc]  # Gradio says nothing of its types
    """A tab's session without a second copy of all that the tab shows, which Gradio keeps for deep links of its own.

    A large drawing, 12 MB of JSON, would be held until the tab is forgotten.
    """

    def __init__(self, blocks: gr.Blocks) -> None:
        super().__init__(SimpleNamespace(default_config=blocks.default_config, blocks=()))
        self.told: dict[int, int | None] = {}
        """Of each element the hash of the text that it was told last."""

    def _update_config(self, key: int) -> None:
        pass

    def _update_value_in_config(self, key: int, value: Any) -> None:
        pass


class Sessions(StateHolder):  # type: ignore[misc]
    """Gradio's sessions, few of closed tabs, and one for all calls that name none."""

    def __init__(self) -> None:
        super().__init__()
        self._closed: OrderedDict[str, None] = OrderedDict()  # the one used longest ago first

    def keep_those_of(self, app: FastAPI) -> None:
        """Keep the sessions of the page mounted in ``app``, and answer 404, not 500, to a request for a function or
        component that it does not have."""
        for route in app.routes:
            if isinstance(route, Mount) and isinstance(route.app, gr.routes.App):
                route.app.state_holder = self
                self.set_blocks(route.app.get_blocks())
                self.capacity = MOST_SESSIONS
                for error in (KeyError, FnIndexInferError):
                    route.app.add_exception_handler(error, _unknown)

    def __getitem__(self, session_id: str) -> SessionState:
        if session_id in self.blocks._queue.event_ids_to_events:  # a call that names no session is given its event's id
            calls = super().__getitem__(CALLS)
            calls.state_data.clear()
            return calls
        with self.lock:
            if session_id in self._closed:
                self._closed.move_to_end(session_id)
            if session_id not in self.session_data:
                self.session_data[session_id] = _Session(self.blocks)
        return super().__getitem__(session_id)

    def close(self, session_id: str) -> None:
        """A tab was closed: forget the one that was closed and used longest ago, beyond the few that are kept."""
        with self.lock:
            self._closed[session_id] = None
            while len(self._closed) > KEPT_CLOSED:
                gone, _ = self._closed.popitem(last=False)
                self.session_data.pop(gone, None)
                self.time_last_used.pop(gone, None)


async def _unknown(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": "this page has no such function or component; reload it"}, 404)
