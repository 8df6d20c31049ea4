"""Trackers (trackio, wandb, tensorboard) get a run's name, project, configuration, metrics, alarms and heatmaps.

One ``Tracking`` feeds them, while a run goes (``process.recorder``) or from a finished run's directory. What a tracker
does with what it gets, and where it keeps it, is the tracker's own affair; a run's directory stays the truth about it.
"""

from workbench.trackers.backends import BACKENDS, Tracker
from workbench.trackers.tracking import Tracking, track_run

__all__ = ["BACKENDS", "Tracker", "Tracking", "track_run"]
