"""The page as Gradio serves it, with less work at every visit and event.

Gradio asks for the signatures of its components' ``__init__`` each time that one is built or described, some hundred at
a visit, and builds each output of an event anew, also those that the event leaves as they are. Knows nothing of what is
on the page.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator
from typing import Any

import gradio as gr
from gradio.blocks import Block, BlockFunction
from gradio.state_holder import SessionState


class Page(gr.Blocks):  # type: ignore[misc]  # Gradio says nothing of its types
    """The blocks of a page."""

    async def postprocess_data(
        self, block_fn: BlockFunction, predictions: list[Any] | dict[Any, Any], state: SessionState | None
    ) -> list[Any]:
        """What the page is told of each output of an event: by Gradio of those that change, nothing of the others."""
        outputs = list(block_fn.outputs)
        values = _by_output(outputs, predictions)
        changed = [i for i, value in enumerate(values) if not _is_skip(value)]
        if len(outputs) < 2 or len(values) != len(outputs) or len(changed) == len(outputs):
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


def _by_output(outputs: list[Block], predictions: list[Any] | dict[Any, Any]) -> list[Any]:
    """What an event returned, output by output; none where that is not plain to see, which Gradio then looks at."""
    if _is_skip(predictions):
        return [predictions] * len(outputs)
    if not isinstance(predictions, dict):
        return list(predictions) if isinstance(predictions, (list, tuple)) else []
    return [predictions.get(output, gr.skip()) for output in outputs] if predictions.keys() <= set(outputs) else []


def _is_skip(value: Any) -> bool:
    return isinstance(value, dict) and value == gr.skip()


def keep_signatures() -> None:
    """Have the signatures of all components' ``__init__`` read once; ``inspect`` takes what it finds there."""
    for kind in {Block, *_subclasses(Block)}:
        if "__init__" in vars(kind):
            function: Any = inspect.unwrap(vars(kind)["__init__"])
            function.__signature__ = inspect.signature(function)


def _subclasses(kind: Any) -> Iterator[Any]:
    for below in kind.__subclasses__():
        yield below
        yield from _subclasses(below)
