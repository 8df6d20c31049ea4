"""Layouts of data sets → the columns of ``tasks.kinds``.

========== ========================================================== ==========================================
layout     a row                                                      becomes
========== ========================================================== ==========================================
verl       ``prompt`` (messages), ``reward_model.ground_truth``       ``answer``
alpaca     ``instruction``, ``input``, ``output``                     ``prompt``, ``completion``
sharegpt   ``conversations`` of ``from`` and ``value``, ``system``    ``messages``
messages   ``messages``, the last not the assistant's                 ``prompt``
input      ``input``, ``output``, ``label`` or ``gts``                ``prompt``, ``completion``, ``answer``
========== ========================================================== ==========================================

Sources: verl's ``examples/data_preprocess``, Stanford Alpaca's and ShareGPT's files as LLaMA-Factory and Axolotl read
them, OpenRLHF's ``--input_key`` and ``--label_key``, verl's ``_dump_generations``. Everything a row has stays beside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from workbench.rollouts.columns import value_at
from workbench.rollouts.records import is_conversation, sharegpt_messages
from workbench.tasks.kinds import PROMPTS


def recognised(values: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The layout's name ("" for the columns of ``tasks.kinds``), and the row with that layout's columns."""
    for name, read in _LAYOUTS.items():
        if (made := read(values)) is not None:
            return name, {**values, **made}
    return "", dict(values)


def _verl(values: Mapping[str, Any]) -> dict[str, Any] | None:
    truth = value_at(values, "reward_model.ground_truth")
    if truth is None or "prompt" not in values or "answer" in values:
        return None
    return {"answer": truth}


def _alpaca(values: Mapping[str, Any]) -> dict[str, Any] | None:
    instruction, added = values.get("instruction"), values.get("input")
    if not isinstance(instruction, str) or any(name in values for name in PROMPTS):
        return None
    prompt = f"{instruction}\n\n{added}" if isinstance(added, str) and added.strip() else instruction
    return {"prompt": prompt} | _completion(values)


def _sharegpt(values: Mapping[str, Any]) -> dict[str, Any] | None:
    messages = sharegpt_messages(values)
    if messages is None:
        return None
    return {"messages": messages} if messages[-1]["role"] == "assistant" else {"prompt": messages}


def _messages(values: Mapping[str, Any]) -> dict[str, Any] | None:
    messages = values.get("messages")
    if "prompt" in values or not is_conversation(messages) or values["messages"][-1]["role"] == "assistant":
        return None
    return {"prompt": messages}  # the column ``messages`` is not that of a demonstration then


def _input(values: Mapping[str, Any]) -> dict[str, Any] | None:
    text = values.get("input")
    if not (isinstance(text, str) or is_conversation(text)) or any(name in values for name in PROMPTS):
        return None
    truth = next((values[name] for name in ("label", "gts") if values.get(name) is not None), None)
    answer = {} if truth is None or "answer" in values else {"answer": truth}
    return {"prompt": text} | answer | _completion(values)


def _completion(values: Mapping[str, Any]) -> dict[str, Any]:
    output = values.get("output")
    return {"completion": output} if isinstance(output, str) and "completion" not in values else {}


_LAYOUTS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any] | None]] = {
    "verl": _verl,
    "alpaca": _alpaca,
    "sharegpt": _sharegpt,
    "messages": _messages,
    "input": _input,
}
"""Name → reader, which gives the columns to add or None for a row of another layout, in the order they are tried."""
