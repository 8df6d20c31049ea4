"""What one visitor's page holds, and what all of them share.

A ``Session`` is frozen and belongs to one browser tab: two tabs never touch each other's. ``Services`` is the one
object with state: the workspace, the policy worker that everybody samples from in turn, the worker that holds reward
models, and a reward worker for each tab, because a worker runs the code of the tab's own editor.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.config import RewardConfig
from workbench.policies.client import PolicyWorker
from workbench.policies.step_values import StepValues
from workbench.rewards import RewardWorker, TrustStore, WorkerPool
from workbench.rewards.models import ModelWorker
from workbench.rewards.watch import CallTimes
from workbench.runs import default_workspace
from workbench.schema import Credit, Group, Prompt, RewardKind
from workbench.ui.handlers.groups import GroupStore
from workbench.ui.handlers.works import Works

SLOTS = 12
"""Reward functions that fit on the page."""
KEPT_CREDITS = 64
"""Tabs whose drawn credit is remembered."""
_RUNS = "patterns of runs"  # no tab is called this


@dataclass(frozen=True)
class Estimated:
    """Monte-Carlo values, the group they are of, and the outcome reward they are values of."""

    group: Group
    values: StepValues
    outcome: RewardConfig

    def fits(self, group: Group | None, regex: str, kind: str) -> bool:
        """Whether they are still those of the group on screen, cut by this pattern."""
        same = group is not None and (group.prompt, group.rollouts) == (self.group.prompt, self.group.rollouts)
        return same and self.values.pattern == (regex, kind)


@dataclass(frozen=True)
class RewardSlot:
    """One row of the list of reward functions; its switch, weight and code are the widgets' own values.

    ``builtin`` is the built-in reward whose source the editor was filled with, if it was. A row that is no code has
    ``given``, a reward model's configuration or that of Monte-Carlo values; the latter score where they were
    ``estimated``, and are part of a run's configuration if they are ``in_run``.
    """

    name: str
    kind: RewardKind
    builtin: str | None = None
    given: RewardConfig | None = None
    estimated: Estimated | None = None
    in_run: bool = True


@dataclass(frozen=True)
class Session:
    """One tab: the example chosen, the group on screen, and which reward functions are listed where.

    ``edited`` is the prompt the group was sampled from where that is not the example's own.
    """

    task: str = "chain-arithmetic"
    index: int = 0
    prompt: Prompt = ""
    columns: Mapping[str, Any] = field(default_factory=dict)
    edited: Prompt | None = None
    group: Group | None = None
    slots: tuple[RewardSlot | None, ...] = (None,) * SLOTS


class Services:
    """Workers and workspace of this process. Safe to use from any thread."""

    def __init__(self, workspace: Path | None = None) -> None:
        self.workspace = (workspace if workspace is not None else default_workspace()).resolve()
        self.policy = PolicyWorker()
        self.models = ModelWorker()
        self.trust = TrustStore(self.workspace)
        self.groups = GroupStore(self.workspace)
        self._lock = threading.Lock()
        self._warming: threading.Thread | None = None
        self._rewards = WorkerPool()
        self.sampling, self.preflight = Works(), Works()
        self.estimating = Works()
        """Estimating step values, or loading a reward model."""
        self._credits: OrderedDict[str, tuple[Credit, Credit | None]] = OrderedDict()
        self._call_times: OrderedDict[str, CallTimes] = OrderedDict()

    def reward_worker(self, tab: str) -> RewardWorker:
        """The reward worker of a tab."""
        return self._rewards.of(tab)

    @property
    def pattern_worker(self) -> RewardWorker:
        """Where the patterns of stored runs match: no tab's own, and no reward runs in it."""
        return self._rewards.of(_RUNS)

    def warm(self) -> None:
        """Load the embedded policy in the background, once."""
        with self._lock:
            if self._warming is None:
                self._warming = threading.Thread(target=self.policy.warm, name="warm policy", daemon=True)
                self._warming.start()

    def keep_credit(self, tab: str, credit: Credit | None, other: Credit | None = None) -> None:
        """Remember what a tab has drawn, to explain its tokens when asked; None leaves the last one."""
        if credit is None:
            return
        with self._lock:
            self._credits[tab] = (credit, other)
            self._credits.move_to_end(tab)
            while len(self._credits) > KEPT_CREDITS:
                self._credits.popitem(last=False)

    def credit(self, tab: str, *, second: bool = False) -> Credit | None:
        """What a tab has drawn last, or the second scheme's credit of it."""
        with self._lock:
            return self._credits.get(tab, (None, None))[1 if second else 0]

    def call_times(self, tab: str) -> CallTimes:
        """How long the calls of a tab's reward functions took."""
        with self._lock:
            times = self._call_times.setdefault(tab, CallTimes())
            self._call_times.move_to_end(tab)
            while len(self._call_times) > KEPT_CREDITS:
                self._call_times.popitem(last=False)
            return times

    def leave(self, tab: str) -> None:
        """A tab was closed: what it was at is cancelled and its worker ends."""
        for works in (self.sampling, self.preflight, self.estimating):
            works.cancel(tab)
        with self._lock:
            self._credits.pop(tab, None)
            self._call_times.pop(tab, None)
        self._rewards.end(tab)

    def close(self) -> None:
        self._rewards.close()
        self.policy.close()
        self.models.close()
