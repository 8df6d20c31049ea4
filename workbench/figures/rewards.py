"""Watched rewards as a figure for a notebook, and as the plain JSON that the page's own script draws.

Plotly is imported only when a figure is asked for. What the records mean is said in ``rewards.watch``.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from workbench.rewards.watch import RewardWatch, Watched

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

SHOWN_POSITIONS = 24
"""Step positions drawn at most; few completions have more steps, and their means say little."""


def watch_payload(watched: RewardWatch) -> dict[str, Any]:
    """As ``rewards.js`` takes it; ``slow`` is a sentence for each function slower than the sampler."""
    functions = [
        asdict(replace(one, positions=())) | {"positions": [{"mean": d.mean} for d in one.positions[:SHOWN_POSITIONS]]}
        for one in watched.functions
    ]
    return {
        "functions": functions,
        "correlations": [asdict(one) for one in watched.correlations],
        "slow": [_slow(one, watched.sampler_seconds) for one in watched.functions if one.name in watched.slower],
    }


def _slow(one: Watched, sampler_seconds: float | None) -> str:
    return f"{one.name} takes {one.p50:.2g} s a call, sampling the group {sampler_seconds:.2g} s: it sets the pace"


def rewards_figure(watched: RewardWatch, *, dark: bool = False) -> Figure:
    """Three panels a page wide: each function's scores, its mean at each step position, and correlations.

    Raises ValueError where nothing was scored.
    """
    from plotly.graph_objects import Bar, Heatmap, Scatter
    from plotly.subplots import make_subplots

    functions = [one for one in watched.functions if one.scores.count]
    if not functions:
        raise ValueError("there is nothing to draw: no function has given a score yet")
    colours = ["#9a9ff2", "#e3a05c", "#66c2a0"] if dark else ["#4a4fc4", "#b0580a", "#22795b"]
    figure = make_subplots(rows=1, cols=3, subplot_titles=["Scores", "Mean by step position", "Correlation"])
    for place, one in enumerate(functions):
        colour = colours[place % len(colours)]
        edges, total = one.scores.edges, one.scores.count
        centres = [(low + high) / 2 for low, high in pairwise(edges)]
        shares = [count / total for count in one.scores.counts]
        look = {"name": one.name, "legendgroup": one.name, "marker_color": colour}
        figure.add_trace(Bar(x=centres, y=shares, opacity=0.7, **look), row=1, col=1)
        means = [(k + 1, d.mean) for k, d in enumerate(one.positions[:SHOWN_POSITIONS]) if d.mean is not None]
        if means:
            steps, values = zip(*means, strict=True)
            line = Scatter(x=steps, y=values, mode="lines+markers", showlegend=False, **look)
            figure.add_trace(line, row=1, col=2)
    names = [one.name for one in functions]
    known = {(c.first, c.second): c.r for c in watched.correlations}
    grid = [[1.0 if a == b else known.get((a, b), known.get((b, a))) for b in names] for a in names]
    figure.add_trace(
        Heatmap(
            x=names,
            y=names,
            z=grid,
            zmin=-1,
            zmax=1,
            colorscale=[[0, "#b0580a"], [0.5, "#14171c" if dark else "#ffffff"], [1, "#2f66c4"]],
            texttemplate="%{z:.2f}",
            showscale=False,
        ),
        row=1,
        col=3,
    )
    figure.update_yaxes(autorange="reversed", col=3)
    figure.update_layout(
        template="plotly_dark" if dark else "plotly_white",
        barmode="overlay",
        height=280,
        margin={"t": 32, "r": 16, "b": 40, "l": 48},
        legend={"orientation": "h", "y": -0.2},
    )
    return figure
