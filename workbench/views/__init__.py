"""Drawings for pages, notebooks and terminals: the token heatmap, curves, and the nouns' own views.

``register`` tells IPython how the nouns show themselves; ``import workbench`` does that where IPython is running.
Classes are named and looked up when one of their objects is shown, so that nothing is loaded before it is needed and no
noun has to know how it looks. ``describe`` says what to show, ``cards`` draws that as HTML and as text; ``heatmap`` and
``curves`` draw for the page, too; ``notebook`` follows runs, compares them and opens a group in the running app.
"""

import sys
from contextlib import suppress
from typing import Any

WITH_CURVES = "workbench.views.notebook"
"""The module of classes whose objects have a ``figure()``, which a notebook shows below."""
VIEWS: dict[tuple[str, str], str] = {
    ("workbench.steps.split", "Steps"): "steps",
    ("workbench.schema.rollouts", "Example"): "example",
    ("workbench.schema.rollouts", "Rollout"): "rollout",
    ("workbench.schema.rollouts", "Group"): "group",
    ("workbench.schema.scores", "ScoredGroup"): "step_scores",
    ("workbench.schema.credit", "Credit"): "credit",
    ("workbench.schema.credit", "Explanation"): "explanation",
    ("workbench.schema.scores", "WatchedRow"): "watched_row",
    ("workbench.credit.explain", "Comparison"): "comparison",
    ("workbench.checks.probes", "ProbeReport"): "probes",
    ("workbench.checks.preflight", "Preflight"): "preflight",
    ("workbench.checks.clinic", "ClinicReport"): "clinic",
    ("workbench.checks.difficulty", "Difficulty"): "difficulty",
    ("workbench.checks.reward_check", "RewardCheck"): "reward_check",
    ("workbench.policies.step_values", "StepValues"): "step_values",
    ("workbench.policies.load", "Policy"): "policy",
    ("workbench.data.tasks", "Task"): "task",
    ("workbench.runs.run", "Run"): "run",
    (WITH_CURVES, "Run"): "run",
    (WITH_CURVES, "RunComparison"): "run_comparison",
}
"""The function of ``describe`` for an object, by the module and name of its class."""


def html(value: Any) -> str:
    """The HTML that a notebook shows for ``value``. Raises TypeError for what has no view here."""
    from workbench.views.cards import draw_html

    return draw_html(_description(value))


def text(value: Any) -> str:
    """The text that a terminal shows for ``value``. Raises TypeError for what has no view here."""
    from workbench.views.cards import draw_text

    return draw_text(_description(value))


def show(value: Any) -> None:
    """Show a value here and now: richly in a notebook, as text in a terminal."""
    ipython = sys.modules.get("IPython")  # not imported for the question
    if ipython is not None and ipython.get_ipython() is not None:
        from IPython.display import display

        display(value)
    else:
        print(text(value) if _key(value) in VIEWS else value)


def register(shell: Any) -> None:
    """Have ``shell``, an IPython shell, show the nouns by their views."""
    formatters = shell.display_formatter.formatters
    for module, name in VIEWS:
        formatters["text/html"].for_type_by_name(module, name, html)
        formatters["text/plain"].for_type_by_name(module, name, _pretty)
        if module == WITH_CURVES:
            shell.display_formatter.ipython_display_formatter.for_type_by_name(module, name, _show_with_curves)


def _show_with_curves(value: Any) -> None:
    from IPython.display import display

    display({"text/html": html(value), "text/plain": text(value)}, raw=True)
    with suppress(ValueError):  # nothing is measured yet
        display(value.figure())


def _pretty(value: Any, printer: Any, cycle: bool) -> None:
    for n, line in enumerate(text(value).split("\n")):
        if n:
            printer.break_()
        printer.text(line)


def _key(value: Any) -> tuple[str, str]:
    return type(value).__module__, type(value).__qualname__


def _description(value: Any) -> Any:
    from workbench.views import describe

    if _key(value) not in VIEWS:
        known = ", ".join(name for _, name in VIEWS)
        raise TypeError(f"{type(value).__name__} has no view of its own; those that have one are {known}")
    return getattr(describe, VIEWS[_key(value)])(value)
