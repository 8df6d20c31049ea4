"""What the page answers to an event, as Gradio does, and which sessions are kept."""

import asyncio
import copy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from fastapi import FastAPI
from gradio.state_holder import SessionState
from starlette.testclient import TestClient

from workbench.errors import ConfigError
from workbench.ui.blocks import KEPT_CLOSED, MOST_SESSIONS, Page, Sessions


def answered(kind: type[gr.Blocks], returned: Any, event: int = 0) -> tuple[Any, SessionState, list[Any]]:
    """What the page is told where an event returns that, the visit's state, and the outputs.

    A dictionary's keys are the places of outputs, and an output that is none of the event's stands at -1.
    """

    async def run() -> tuple[Any, SessionState, list[Any]]:
        with kind() as page:
            text, number, held, stray = gr.Textbox("a", label="Text"), gr.Number(1), gr.State("held"), gr.Textbox()
            with gr.Accordion("more", open=False) as part:
                choice = gr.Dropdown(["x", "y"], value="x")
            outputs = [text, number, held, part, choice]
            page.load(lambda: None, None, outputs)
            page.load(lambda: None, None, number)
        values, state = copy.deepcopy(returned), SessionState(page)
        if isinstance(values, dict) and "__type__" not in values:
            values = {[*outputs, stray][place]: value for place, value in values.items()}
        return await page.postprocess_data(page.fns[event], values, state), state, outputs

    return asyncio.run(run())


RETURNED = {
    "all": ["b", 2, "now", gr.update(open=True), gr.update(value="y", choices=["y"])],
    "some": [gr.skip(), 2, gr.skip(), gr.update(open=True), gr.skip()],
    "one": [gr.skip(), gr.skip(), gr.skip(), gr.skip(), gr.update(label="Choice")],
    "one that is held": [gr.skip(), gr.skip(), "now", gr.skip(), gr.skip()],
    "none": [gr.skip()] * 5,
    "nothing at all": gr.skip(),
    "by widget": {0: gr.update(value="b", lines=2), 3: gr.update(open=True)},
    "one by widget": {4: "y"},
    "held by widget": {2: "now"},
    "None": [None, None, None, gr.skip(), None],
}


@pytest.mark.parametrize("name", RETURNED)
def test_the_answer_is_gradio_s(name: str) -> None:
    seen = []
    for kind in (gr.Blocks, Page):
        told, state, outputs = answered(kind, RETURNED[name])
        seen.append((told, state[outputs[2]._id], state[outputs[0]._id].lines, state[outputs[3]._id].open))
    assert seen[0] == seen[1]


def test_what_an_event_leaves_is_not_built_anew() -> None:
    _, state, outputs = answered(Page, {1: gr.update(label="Number")})
    assert [state[output._id] is output for output in outputs if not output.stateful] == [True, False, True, True]


def test_an_element_is_told_what_it_does_not_show() -> None:
    async def run() -> list[list[bool]]:
        with Page() as page:
            shown, edited, text = gr.HTML(), gr.HTML(), gr.Textbox()
            page.load(lambda: None, None, [shown, edited, text])
            edited.input(lambda: None)
        sessions = Sessions()
        sessions.set_blocks(page)
        tab, other = sessions["tab"], sessions["other"]
        told = []
        for state, value in [(tab, "a"), (tab, "a"), (other, "a"), (tab, gr.update(value="b")), (tab, "a")]:
            answer = await page.postprocess_data(page.fns[0], [copy.copy(value) for _ in range(3)], state)
            told.append([one != gr.skip() for one in answer])
        return told

    # What somebody may have changed is told every time.
    assert asyncio.run(run()) == [[True] * 3, [False, True, True], [True] * 3, [True] * 3, [True] * 3]


# ── sessions ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def sessions() -> Sessions:
    return Sessions()


@pytest.fixture
def client(sessions: Sessions) -> Iterator[TestClient]:
    def double(number: int) -> int:
        return 2 * number

    async def make() -> FastAPI:  # Gradio makes locks while it is built
        with gr.Blocks() as page:
            gr.api(double)
        app = gr.mount_gradio_app(FastAPI(), page, path="/", ssr_mode=False, mcp_server=False)
        sessions.keep_those_of(app)
        return app  # type: ignore[no-any-return]

    with TestClient(asyncio.run(make())) as client:
        yield client


def ask(client: TestClient, number: int, **session: str) -> str:
    event = client.post("/gradio_api/call/double", json={"data": [number], **session}).json()["event_id"]
    return client.get(f"/gradio_api/call/double/{event}").text


def test_calls_that_name_no_session_share_one(client: TestClient, sessions: Sessions) -> None:
    assert "[2]" in ask(client, 1)
    kept = set(sessions.session_data)
    assert len(kept) == 1
    assert "[14]" in [ask(client, n) for n in range(8)][-1]
    assert set(sessions.session_data) == kept


def test_of_closed_tabs_those_used_last_are_kept(client: TestClient, sessions: Sessions) -> None:
    tabs = [f"tab{i}" for i in range(KEPT_CLOSED + 1)]
    for tab in tabs:
        assert "[6]" in ask(client, 3, session_hash=tab)
    for tab in tabs[:KEPT_CLOSED]:
        sessions.close(tab)
    assert set(sessions.session_data) == set(tabs)
    ask(client, 3, session_hash=tabs[0])  # its network was away for a moment
    sessions.close(tabs[-1])
    assert set(sessions.session_data) == {tabs[0], *tabs[2:]}


def test_open_tabs_have_a_bound(client: TestClient, sessions: Sessions) -> None:
    for n in range(MOST_SESSIONS + 3):
        sessions[f"tab{n}"]
    assert len(sessions.session_data) == MOST_SESSIONS
    assert "tab0" not in sessions


def test_an_error_of_ours_is_the_callers_message() -> None:
    def refuse() -> None:
        raise ConfigError("seed: too large")

    async def run() -> None:
        with Page() as page:
            page.load(refuse)
        await page.call_function(page.fns[0], [])

    with pytest.raises(gr.Error, match="seed: too large"):
        asyncio.run(run())


FILLED_AND_LEFT = """
import asyncio, psutil, sys, threading
from types import SimpleNamespace
from workbench.ui import app as page

async def make():
    return page.create_app(sys.argv[1], token="")

build, built = page.build, []
page.build = lambda *arguments, **options: built.append(build(*arguments, **options)) or built[0]
asyncio.run(make())
kept = []

def fill():
    filled = [bytes(1000) for _ in range(20_000)]
    kept.append(bytes(1000))  # at the end of this thread's heap

before = psutil.Process().memory_info().rss
started = [threading.Thread(target=fill) for _ in range(8)]
for thread in started: thread.start()
for thread in started: thread.join()
(leave,) = [one for one in built[0].fns.values() if any(event == "unload" for _, event in one.targets)]
leave.fn(SimpleNamespace(session_hash="tab"))
print((psutil.Process().memory_info().rss - before) // 10**6)
"""


def test_what_a_tab_took_goes_back_to_the_system_when_it_leaves(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FILLED_AND_LEFT, str(tmp_path)]
    grown = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert grown < 30  # megabytes, of 160 in the threads' heaps
