"""What keeps Inspect over a reload, follows a link, and makes notebook code."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import gradio as gr

from workbench.errors import WorkbenchError
from workbench.redact import redact
from workbench.ui.handlers.inspect import columns_text, is_first_group, preset_of
from workbench.ui.handlers.keeping import Restored, link_of, restore, sampling_kept, scoring_kept
from workbench.ui.handlers.notebook import inspect_code
from workbench.ui.handlers.scoring import Note, ScoringForm
from workbench.ui.handlers.session import Services, Session
from workbench.ui.tabs.common import PRIVATE, note_value
from workbench.ui.tabs.inspect import SCORING, InspectTab, read_sampling, read_scoring
from workbench.ui.tabs.share import ShareWidgets

READ_KEPT = """(...values) => {
  let kept = "";
  try { kept = sessionStorage.getItem("workbench-inspect") ?? ""; } catch { /* no storage: nothing was kept */ }
  return [...values.slice(0, -1), kept];
}"""
"""Puts what the browser tab kept in place of the last input."""


def wire_share(widgets: ShareWidgets, tab: InspectTab, services: Services) -> None:
    def code(session: Session, *values: Any) -> str:
        try:
            form = read_scoring(session, values)
            assert session.group is not None
            return json.dumps({"code": inspect_code(session, form, services.groups.keep(session.group))})
        except WorkbenchError as error:
            return json.dumps({"problem": redact(f"There is no code for this yet: {error}")})

    widgets.notebook.click(code, [tab.session, *tab.scoring_inputs], widgets.code, queue=False, **PRIVATE)

    def sampled(*values: Any) -> str:
        return json.dumps({"sampling": sampling_kept(read_sampling(values))})

    gr.on(
        [widget.change for widget in tab.sampling_inputs],
        sampled,
        tab.sampling_inputs,
        widgets.kept,
        queue=False,
        trigger_mode="always_last",
        **PRIVATE,
    )


def kept_value(services: Services, session: Session, form: ScoringForm, **marks: Any) -> str:
    """The scoring controls for the browser tab to keep, and the link to what is on screen."""
    group = session.group
    try:
        saved = "" if group is None or is_first_group(group) else services.groups.keep_recent(group)
    except WorkbenchError:  # a full disk must not keep anybody from scoring; the link goes without the group
        saved = ""
    return json.dumps({"scoring": scoring_kept(session, form, saved), "link": link_of(session, form, saved), **marks})


def restored_page(
    services: Services, query: Mapping[str, str], kept: str, session: Session, values: Sequence[Any]
) -> Restored | None:
    """What the page opens with where the browser tab kept something or the address is a link."""
    scoring, sampling = read_scoring(session, values[:SCORING]), read_sampling(values[SCORING:])
    return restore(kept, query, scoring, sampling, services.groups)


def restored_outputs(tab: InspectTab, problem: gr.HTML) -> list[Any]:
    """What ``restored_values`` sets."""
    credit = [*tab.credit.outputs, *tab.other.outputs]
    example = [tab.session, tab.task, tab.example, tab.columns]
    return [*example, *tab.sampling_widgets, tab.regex, tab.kind, tab.preset, *credit, *tab.rewards.outputs, problem]


def restored_values(tab: InspectTab, found: Restored | None) -> list[Any]:
    if found is None:
        return [gr.skip()] * len(restored_outputs(tab, tab.columns))
    session, scoring, sampling = found.session, found.scoring, found.sampling
    return [
        session,
        session.task,
        session.index,
        note_value(columns_text(session.columns)),
        sampling.prompt,
        sampling.policy,
        sampling.num_generations,
        sampling.temperature,
        sampling.max_completion_length,
        sampling.seed,
        sampling.reference,
        scoring.regex,
        scoring.kind,
        preset_of(scoring.regex, scoring.kind),
        *tab.credit.shown(scoring.credit),
        *tab.other.shown(scoring.other),
        *tab.rewards.values(scoring.slots),
        note_value(Note("; ".join(found.problems), level="warning")) if found.problems else "",
    ]
