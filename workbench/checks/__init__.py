"""Checks before a GPU is spent: pre-flight of a setup, exploit probes of a credit scheme, alarms of a run."""

from workbench.checks.alarms import ALARMS, alarms
from workbench.checks.difficulty import Difficulty
from workbench.checks.edits import EDITS, TURN_EDITS, Edit
from workbench.checks.findings import Finding, Level
from workbench.checks.preflight import Preflight, preflight, preflight_of, splitting_findings
from workbench.checks.probes import ALL_EDITS, ProbeReport, ProbeResult, probe, split_step_demo

__all__ = [
    "ALARMS",
    "ALL_EDITS",
    "EDITS",
    "TURN_EDITS",
    "Difficulty",
    "Edit",
    "Finding",
    "Level",
    "Preflight",
    "ProbeReport",
    "ProbeResult",
    "alarms",
    "preflight",
    "preflight_of",
    "probe",
    "split_step_demo",
    "splitting_findings",
]
