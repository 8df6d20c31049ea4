"""A run in a notebook cell while it goes: curves that grow, its state, and a button that stops it.

The run is read from its directory in a thread, so the kernel stays free for other cells; what a cell shows is replaced
through IPython's display handles and stays in the notebook when the run is over. The button is an ipywidgets one, as
only a widget can call back into the kernel. In JupyterLab 4.4 and later, with ipykernel 7, it is heard at once, also
while a cell runs (``run.wait()``, say); in a front end that knows no subshells when the running cell has ended, so
interrupt that cell, or have ``run.stop()`` called from anywhere: another notebook, the page, ``python -m workbench``.
Nothing here knows how a run is started.
"""

from __future__ import annotations

import secrets
import threading
from html import escape
from typing import Any

from workbench.display.cards import card
from workbench.display.tables import visible
from workbench.errors import WorkbenchError
from workbench.figures import heatmap
from workbench.figures.lines import run_charts
from workbench.runs import Run
from workbench.runs.follow import MetricsReader

WATCHED = ("accuracy", "reward", "loss", "kl", "length", "entropy")
"""Panels that are shown unless others are asked for."""


class Watch:
    """Follows one run. Shown in a cell it draws itself; elsewhere ``follow`` may be called with what to do on news."""

    def __init__(self, run: Run, panels: tuple[str, ...] = WATCHED, every: float = 0.5) -> None:
        self.run = run
        self.panels = panels
        self.every = every
        self._rows: list[dict[str, Any]] = []
        self._reader = MetricsReader(run.dir)
        self._rows_step: int | None = None  # of the watched rows that are shown
        self._thread: threading.Thread | None = None
        self._left = threading.Event()
        self._key = f"{run.name}-{secrets.token_hex(4)}"  # one zoom for all that is drawn

    def html(self) -> str:
        """State, progress and curves as they are now."""
        status = self.run.status()
        why = f"<p>{escape(visible(status.reason))}</p>" if status.reason else ""
        shares = f"<progress value='{status.step}' max='{max(status.total_steps, 1)}'></progress>"
        told = f"{shares} step {status.step} of {status.total_steps}"
        head = f'<h4>{escape(self.run.name)} <span class="state">{status.state}</span> {told}</h4>{why}'
        charts = run_charts(self._rows, self.panels, name=self.run.name, metrics=self.run.method.metrics)
        return card(head) + charts.html(self._key)

    def rows_html(self) -> str | None:
        """The watched rows at the newest look, before and now, of a method that trains on stored rows.

        None where nothing new was stored since the last call.
        """
        steps = self.run.rollout_steps(watched=True)
        if not steps or steps[-1] == self._rows_step or self.run.method.has_rollouts:
            return None
        self._rows_step = steps[-1]
        rows = self.run.watched_rows(steps[-1])
        return "".join(card(f"<pre>{escape(visible(row.prompt))}</pre>") + heatmap(row)._repr_html_() for row in rows)

    def read(self) -> bool:
        """Take in the rows written since; whether there were any."""
        return self._take(*self._reader.read())

    def _take(self, rows: list[dict[str, Any]], restarted: bool) -> bool:
        self._rows = rows if restarted else self._rows + rows
        return bool(rows)

    def follow(self, draw: Any) -> None:
        """Call ``draw(html)`` whenever there is something new, until the run is over or ``leave`` is called."""
        shown: Any = None
        for news in self._reader.follow(self.run.status, lambda: self._left.wait(self.every)):
            state = (news.status.state, news.status.reason, news.status.step)
            if self._take(news.rows, news.restarted) or state != shown:
                draw(self.html())
                shown = state

    def leave(self) -> None:
        """Stop watching; the run goes on."""
        self._left.set()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the last drawing is done. A cell that calls this shows nothing more afterwards."""
        if self._thread is not None:
            self._thread.join(timeout)

    def _ipython_display_(self) -> None:
        from IPython.display import HTML, display

        self.read()
        drawing = display(HTML(self.html()), display_id=True)
        rows = display(HTML(self.rows_html() or ""), display_id=True)
        button = self._button()
        controls = display(button, display_id=True)

        def draw(html: str) -> None:
            drawing.update(HTML(html))
            if (looked := self.rows_html()) is not None:  # seldom: not with every row of metrics
                rows.update(HTML(looked))

        def watch() -> None:
            self.follow(draw)
            if self.run.status().final:
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


def watch(run: Run, *panels: str, every: float = 0.5) -> Watch:
    """What a notebook cell shows of a run while it goes: curves, state, a stop button.

    ``panels`` are keys of ``figures.PANELS``, those of ``WATCHED`` by default.
    """
    return Watch(run, panels or WATCHED, every)


def _heard_at_once(button: Any) -> None:
    """Let the front end say where a click is handled.

    JupyterLab asks for a subshell (a kernel's second thread of messages, JEP 91) for what its widgets say, and sets
    it up itself. ipykernel 7.4 puts that aside in favour of the shell in which the widget was made, where a click
    waits for the running cell to end: that is for cells that wait for a widget's answer, which none does here.
    """
    if hasattr(button.comm, "_reply_subshell_for"):
        button.comm._reply_subshell_for = lambda data, asked: asked
