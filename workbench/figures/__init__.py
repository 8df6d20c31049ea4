"""Figures: plain records in, drawings out. The token heatmap and the curves of a run's metrics."""

from workbench.figures.curves import PANELS, Panel, Series
from workbench.figures.heatmap import Heatmap, heatmap

__all__ = ["PANELS", "Heatmap", "Panel", "Series", "heatmap"]
