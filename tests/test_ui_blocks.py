"""What the page answers to an event: as Gradio does, without building anew what the event leaves as it is."""

from __future__ import annotations

import asyncio
import copy
import inspect
from typing import Any

import gradio as gr
import pytest
from gradio.state_holder import SessionState

from workbench.ui.blocks import Page, keep_signatures


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


def test_an_event_of_one_output_and_a_wrong_answer_are_gradio_s_to_judge() -> None:
    assert answered(Page, 3, event=1)[0] == [3]
    assert answered(Page, gr.skip(), event=1)[0] == [gr.skip()]
    with pytest.raises(ValueError, match="didn't return enough output values"):
        answered(Page, [gr.skip(), 2])
    with pytest.raises(ValueError, match="not specified as output"):
        answered(Page, {0: "b", -1: "c"})


def test_a_signature_is_read_once_and_is_what_it_was() -> None:
    before = inspect.signature(gr.Textbox.__init__)
    keep_signatures()
    kept = inspect.signature(gr.Textbox.__init__)
    assert str(kept) == str(before)
    assert "max_lines" in kept.parameters
    assert inspect.signature(gr.Textbox.__init__) is kept
    assert str(inspect.signature(gr.Number.__init__)) != str(kept)
