"""The parts that only a notebook has: a run watched while it goes, comparisons, progress, a link into the page.

A watched run is read from its directory in a thread, so the kernel stays free for other cells; what a cell shows is
replaced through IPython's display handles and stays in the notebook when the run is over. The stop button is an
ipywidgets one, as only a widget can call back into the kernel. In JupyterLab 4.4 and later, with ipykernel 7, it is
heard at once, also while a cell runs (``run.wait()``, say); in a front end that knows no subshells it is heard when the
running cell has ended, so interrupt that cell, or have ``run.stop()`` called from anywhere: another notebook, the page,
``python -m workbench``.
"""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import wraps
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec
from urllib.parse import urlencode

from workbench import runs as all_runs
from workbench.assets import load_example
from workbench.data import load_task
from workbench.errors import PatternError, WorkbenchError
from workbench.rewards import split_group
from workbench.runs import default_workspace
from workbench.runs.compare import ComparedMethod, ComparedRun, MethodStages, summarise
from workbench.runs.processes import TRAINING
from workbench.runs.run import MetricsReader
from workbench.schema import Credit, Group, ScoredGroup
from workbench.steps import PRESETS, StepPattern
from workbench.training.methods import RunConfig
from workbench.views.cards import card, visible
from workbench.views.curves import Chart, Line, band, columns_of, figure, run_charts
from workbench.views.page_link import GROUPS, group_name, page_link, write_group
from workbench.views.run import run_sentences
from workbench.views.wording import Sentence

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure


Given = ParamSpec("Given")
WATCHED = ("accuracy", "reward", "loss", "kl", "length", "entropy")
"""Panels that are shown unless others are asked for."""


class Watch:
    """Follows one run. Shown in a cell it draws itself; elsewhere ``follow`` may be called with what to do on news."""

    def __init__(self, run: all_runs.Run, panels: tuple[str, ...] = WATCHED, every: float = 0.5) -> None:
        self.run = run
        self.panels = panels
        self.every = every
        self._rows: list[dict[str, Any]] = []
        self._reader = MetricsReader(run.dir)
        self._thread: threading.Thread | None = None

    def html(self) -> str:
        """State and progress as they are now."""
        status = self.run.status()
        why = f"<p>{escape(visible(status.reason))}</p>" if status.reason else ""
        bar = f"<progress value='{status.step}' max='{max(status.total_steps, 1)}'></progress>"
        state = f'<span class="state">{status.state}</span> {bar} step {status.step} of {status.total_steps}'
        return card(f"<h4>{escape(self.run.name)} {state}</h4>{why}")

    def charts(self) -> list[Chart]:
        """Return the curves of the rows that were read."""
        return run_charts(columns_of(self._rows), self.panels, metrics=self.run.method.metrics)

    def curves(self) -> dict[str, Any]:
        """Return the curves as what IPython displays, by media type; nothing before there is a value."""
        charts = self.charts()
        if not charts:
            return {"text/plain": ""}
        drawn = figure(charts)
        drawn.update_layout(uirevision=self.run.name)  # a zoom outlives what is replaced
        return {"text/plain": "\n".join(map(str, charts)), **drawn._repr_mimebundle_()}

    def follow(self, draw: Any) -> None:
        """Call ``draw(html)`` whenever there is something new, until the run is over."""
        shown: Any = None
        for news in self._reader.follow(self.run.status, lambda: time.sleep(self.every)):
            state = (news.status.state, news.status.reason, news.status.step)
            self._rows = news.rows if news.restarted else self._rows + news.rows
            if news.rows or state != shown:
                draw(self.html())
                shown = state

    def join(self, timeout: float | None = None) -> None:
        """Wait until the last drawing is done. A cell that calls this shows nothing more afterwards."""
        if self._thread is not None:
            self._thread.join(timeout)

    def _ipython_display_(self) -> None:
        from IPython.display import HTML, display

        self._rows, _ = self._reader.read()
        drawing = display(HTML(self.html()), display_id=True)
        curves = display(self.curves(), raw=True, display_id=True)
        button = self._button()
        controls = display(button, display_id=True)

        def draw(html: str) -> None:
            drawing.update(HTML(html))
            curves.update(self.curves(), raw=True)

        def watch() -> None:
            self.follow(draw)
            button.close()
            controls.update(HTML(""))

        self._thread = threading.Thread(target=watch, name=f"watch {self.run.name}", daemon=True)
        self._thread.start()

    def _button(self) -> Any:
        from ipywidgets import Button

        button = Button(description="Stop", tooltip=f"Stop {self.run.name}; what it has learnt is kept")

        def stop(_: Any) -> None:  # in a thread of its own: ending a run takes seconds, and the kernel has other work
            button.disabled = True
            button.description = "Stopping…"
            threading.Thread(target=self._stop, args=[button], name=f"stop {self.run.name}", daemon=True).start()

        button.on_click(stop)
        _heard_at_once(button)
        return button

    def _stop(self, button: Any) -> None:
        try:
            self.run.stop()
        except WorkbenchError as error:  # it was over before the click
            button.description = "Over"
            button.tooltip = str(error)


def watch(run: all_runs.Run, *panels: str, every: float = 0.5) -> Watch:
    """Return what a notebook cell shows of a run while it goes: curves, state, a stop button.

    ``panels`` are keys of ``views.panels.PANELS``, those of ``WATCHED`` by default.
    """
    return Watch(run, panels or WATCHED, every)


class Run(all_runs.Run):
    """A run as a notebook has it: with its curves and the sentences about it."""

    def watch(self, *panels: str, every: float = 0.5) -> Watch:
        """Return ``wb.watch(run)``."""
        return watch(self, *panels, every=every)

    def figure(self, *panels: str) -> Figure:
        """Return the run's curves as a Plotly figure, to restyle and export.

        ``panels`` are keys of ``views.panels.PANELS``; all by default. Raises ValueError if none has a value.
        """
        return figure(run_charts(columns_of(self.metrics_rows()[0]), panels, metrics=self.method.metrics))

    def sentences(self) -> list[Sentence]:
        """Return ``run_sentences``: what it gained, when, and what else moved."""
        return run_sentences(self)


def _with_curves(find: Callable[Given, all_runs.Run]) -> Callable[Given, Run]:
    """Have a function of ``runs`` return a run with its curves."""

    @wraps(find)
    def find_run(*args: Given.args, **kwargs: Given.kwargs) -> Run:
        return Run(find(*args, **kwargs).path)

    return find_run


open_run = _with_curves(all_runs.open_run)
train = _with_curves(all_runs.start)
train_to_end = _with_curves(all_runs.train_to_end)


def list_runs(workspace: Path | str | None = None) -> list[Run]:
    """Return the runs of a workspace, the newest first; none if there is no such folder."""
    return [Run(run.path) for run in all_runs.list_runs(workspace)]


def _heard_at_once(button: Any) -> None:
    """Let the front end say where a click is handled.

    JupyterLab asks for a subshell (a kernel's second thread of messages, JEP 91) for what its widgets say, and sets
    it up itself. ipykernel 7.4 puts that aside in favour of the shell in which the widget was made, where a click
    waits for the running cell to end: that is for cells that wait for a widget's answer, which none does here.
    """
    if hasattr(button.comm, "_reply_subshell_for"):
        button.comm._reply_subshell_for = lambda data, asked: asked


Report = Callable[[all_runs.Run, Mapping[str, Any]], None]


@dataclass(frozen=True)
class RunComparison:
    """Runs that differ in scheme and seed, or methods' stages, and what each came to, in one order."""

    runs: tuple[all_runs.Run | MethodStages, ...]
    rows: tuple[ComparedRun | ComparedMethod, ...]

    @classmethod
    def of(cls, compared: Iterable[all_runs.Run | MethodStages]) -> RunComparison:
        """Return the comparison of runs, or of methods' stages, that are there already, finished or not."""
        there, rows = tuple(compared), list[ComparedRun | ComparedMethod]()
        for one in there:
            if isinstance(one, MethodStages):
                rows.append(one.summary())
            else:
                config = one.config()
                rows.append(summarise(config.method.label, config.seed, one.metrics_rows()[0]))
        return cls(there, tuple(rows))

    def frame(self) -> pd.DataFrame:
        """Return one row a run, or a method and seed."""
        import pandas as pd

        table = pd.DataFrame([dataclasses.asdict(row) for row in self.rows])
        return table.astype({row.to_65: "Int64" for row in self.rows[:1]})  # a count, or <NA> if it never got there

    def by_scheme(self, column: str = "final_accuracy") -> pd.DataFrame:
        """Number of seeds, mean, lowest and highest of ``column`` for each scheme (or method)."""
        return self.frame().groupby(self.rows[0].grouped_by, sort=False)[column].agg(["count", "mean", "min", "max"])

    by_method = by_scheme

    @property
    def _are_methods(self) -> bool:
        return any(isinstance(row, ComparedMethod) for row in self.rows)

    def lines(self, metric: str = "accuracy") -> list[Line]:
        """Return for each scheme the mean over its seeds and their band (``views.curves.band``), by training step.

        For methods by completions sampled, those for data among them: the last value measured after so many, as seeds
        of one method sample slightly different numbers. Raises ValueError where nothing has the metric.
        """
        series: dict[str, list[Any]] = {}
        for compared, row in zip(self.runs, self.rows, strict=True):
            if isinstance(compared, MethodStages):
                curve: Any = compared.course(metric).curve()
            else:
                curve = columns_of(compared.metrics_rows()[0]).get(metric, ((), ()))
            series.setdefault(getattr(row, row.grouped_by), []).append(curve)
        lines = []
        for style, (label, seeds) in enumerate(series.items()):
            if measured := [seed for seed in seeds if seed[0]]:
                drawn = band(measured, carry_on=self._are_methods)
                lines.append(Line.of_band(label, drawn, style=style))
        if not lines:
            what = self.rows[0].grouped_by if self.rows else "run"
            raise ValueError(f"no {what} has {metric!r} at any step; see run.metrics() for what was logged")
        return lines

    def figure(self, *metrics: str) -> Figure:
        """Return a chart for each metric (held-out accuracy by default): a line and a band a scheme or method."""
        about = "Mean over the seeds that got so far, which may jump where one ends; the band is lowest to highest."
        x_label = "completions sampled" if self._are_methods else "step"
        charts = []
        for metric in metrics or ("accuracy",):
            share = metric.startswith("accuracy") or metric.endswith("_share")
            charts.append(Chart(metric, tuple(self.lines(metric)), x_label, about, share, named=True))
        return figure(charts)


def compare(
    config: RunConfig,
    schemes: Sequence[str] = ("outcome", "process"),
    seeds: int = 3,
    workspace: Path | str | None = None,
    *,
    methods: Sequence[str] | None = None,
    completions: int | None = None,
    report: Report | None = None,
    module: str = TRAINING,
) -> RunComparison:
    """Train ``config`` under every scheme with ``seeds`` seeds, one run after the other, showing how far it is.

    With ``methods`` instead by each of these training methods, on a budget of ``completions`` sampled by each
    (``examples/compare_methods.py``).

    It blocks until all have ended; interrupting it stops what is at hand, and the others stay in the workspace: with
    the same ``config.name`` it goes on with what is not finished. Raises CreditError for an unknown scheme, and
    ConfigError for an unknown method and where the name does not fit.
    """
    total = seeds * (len(methods) if methods is not None else len(schemes) * config.run.steps)
    found: list[tuple[Any, Any]] = []
    with Progress("steps of all runs" if methods is None else "methods and seeds") as progress:

        def tell(run: all_runs.Run, row: Mapping[str, Any]) -> None:
            if methods is None:
                progress(len(found) * config.run.steps + int(row.get("step", 0)), total)
            if report is not None:
                report(run, row)

        how: dict[str, Any] = {"report": tell, "tell": print}
        compared: Iterable[tuple[Any, Any]]
        if methods is None:
            compared = all_runs.compare(config, schemes, seeds, workspace, module=module, **how)
        else:
            how |= {} if completions is None else {"completions": completions}
            compared = load_example("compare_methods").compare(config, methods, seeds, workspace, **how)
        for pair in compared:
            found.append(pair)
            if methods is not None:
                progress(len(found), total)
    ran = (Run(run.path) if isinstance(run, all_runs.Run) else run for run, _ in found)
    return RunComparison(tuple(ran), tuple(row for _, row in found))


_PAGES_TASK = "chain-arithmetic"  # whose pattern and rewards the page opens with


@dataclass(frozen=True)
class PageLink:
    """A stored group and where to see it; ``url`` is None while no page runs on the workspace.

    ``note`` says what the page does not show as the notebook does. The link holds the page's token, as the one in the
    terminal does: whoever has it can use the page.
    """

    group: str
    url: str | None
    workspace: Path
    note: str = ""

    @property
    def advice(self) -> str:
        return (
            f"group {self.group} is kept, and no page runs on {self.workspace}; start one with "
            f"python app.py --workspace {self.workspace} and call open_in_page again"
        )

    def __str__(self) -> str:
        return "\n".join(filter(None, (self.url or self.advice, self.note)))

    def _repr_html_(self) -> str:
        opened = escape(self.advice)
        if self.url is not None:
            opened = f'<a href="{escape(self.url, quote=True)}" target="_blank" rel="noopener">Open in the page</a>'
        return f"<p>{opened}</p>" + (f"<p>{escape(self.note)}</p>" if self.note else "")


def open_in_page(value: Credit | ScoredGroup | Group, workspace: Path | str | None = None) -> PageLink:
    """Store a group in the workspace (the default one unless told) and return the link that opens it in the app.

    A credit is opened under its scheme and options, and steps that a preset pattern finds are split by that preset. No
    code goes along: the page scores with the rewards that are on there, and the link's note says where those are not
    the ones given. Raises RunError if the workspace cannot be written.
    """
    folder = (default_workspace() if workspace is None else Path(workspace)).resolve()
    scored = value.scored if isinstance(value, Credit) else value
    group = scored.group if isinstance(scored, ScoredGroup) else scored
    query, note = {"saved": group_name(group)}, ""
    write_group(folder / GROUPS, query["saved"], group)
    if isinstance(scored, ScoredGroup):
        settings, note = _settings_on_the_page(scored)
        query |= settings
    if isinstance(value, Credit):
        options = {option: setting for option, setting in value.options.items() if setting is not None}
        query |= {"scheme": value.scheme, "options": json.dumps(options, separators=(",", ":"))}
    link = page_link(folder)
    url = None if link is None else f"{link}{'&' if '?' in link else '?'}{urlencode(query)}"
    return PageLink(query["saved"], url, folder, note)


def _settings_on_the_page(scored: ScoredGroup) -> tuple[dict[str, str], str]:
    """Return what a link says to have the group split as it is, and what has to be set on the page by hand."""
    task, settings, differs = load_task(_PAGES_TASK), dict[str, str](), []
    switches = {name: on for name, on in scored.pattern.items() if name not in ("regex", "kind") and on}
    if switches:
        settings["settings"] = json.dumps({f"method.pattern.{name}": on for name, on in switches.items()})
    if not _splits_so(scored, replace(task.pattern, **switches)):
        fitting = (name for name, one in PRESETS.items() if _splits_so(scored, replace(one.pattern, **switches)))
        if (preset := next(fitting, None)) is None:
            differs.append("the step pattern")
        else:
            settings["preset"] = preset
    given = {reward.name: reward.weight for reward in scored.rewards}
    if given != {reward.name: reward.weight for reward in task.rewards}:
        differs.append(f"the rewards ({', '.join(given)})")
    return settings, f"For the same colours, set {' and '.join(differs)} there as they are here." if differs else ""


def _splits_so(scored: ScoredGroup, pattern: StepPattern) -> bool:
    try:
        found = split_group(scored.group, pattern)
    except PatternError:
        return False
    return all(tuple(split.steps) == one.steps for split, one in zip(found, scored.scored, strict=True))


class Progress(AbstractContextManager["Progress"]):
    """``with Progress("groups") as told: check_reward(..., on_progress=told)``: tqdm's bar, a widget in a notebook.

    It is called with what the workbench's functions report: (done, of), or an event that has both.
    """

    def __init__(self, what: str) -> None:
        from tqdm.auto import tqdm

        self.bar = tqdm(unit=f" {what}", total=0)

    def __call__(self, done: int | Mapping[str, Any], total: int | None = None) -> None:
        event: Mapping[str, Any] = done if isinstance(done, Mapping) else {"done": done, "total": total}
        if "done" in event:
            self.bar.total = int(event.get("total", event.get("of")) or 0)
            self.bar.update(int(event["done"]) - self.bar.n)

    def __exit__(self, *error: object) -> None:
        self.bar.close()
