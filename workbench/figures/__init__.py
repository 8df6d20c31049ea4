"""Figures: plain records in, drawings out. The token heatmap and the curves of a run's metrics."""

from workbench.figures.curves import PANELS, Panel, Series
from workbench.figures.heatmap import Heatmap
from workbench.figures.rows import RowHeatmap, heatmap

__all__ = ["PANELS", "Heatmap", "Panel", "RowHeatmap", "Series", "heatmap"]
