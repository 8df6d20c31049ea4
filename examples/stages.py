"""What these programs share: runs and files of rows under one name, trained and made one after the other."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import workbench as wb

HEADLINES = ("accuracy", "pair_accuracy", "step_accuracy")
"""Held-out measures; the first that a run has sums it up."""


class Stages:
    """The runs ``<name>.<stage>`` and files ``<workspace>/made/<name>.<stage>.jsonl`` of one program.

    What is finished is passed by, and what was stopped goes on.
    """

    def __init__(self, name: str, workspace: Path | None, base: Mapping[str, Any], small: bool = False) -> None:
        self.name, self.base, self.small = name, base, small
        self.workspace = (workspace or wb.default_workspace()).resolve()
        self.rows: list[dict[str, Any]] = []

    def train(self, stage: str, **config: Any) -> str:
        """Train a stage to its end and return its policy or reward model, as ``run:NAME``."""
        settings = {**self.base, **config, "run": {**self.base.get("run", {}), **config.get("run", {})}}
        if self.small:
            settings["run"] |= {"steps": 2, "save_steps": 2, "eval_steps": 2, "eval_prompts": 2, "watch_prompts": 0}
            size = "prompts_per_step" if settings["method"]["name"] in ("grpo", "ppo") else "batch_size"
            settings["method"] = {**settings["method"], size: 2}
        run = wb.train_to_end(wb.RunConfig(name=f"{self.name}.{stage}", **settings), self.workspace, report=report)
        self._add(stage, **measured(run))
        return f"run:{run.name}"

    def file(self, stage: str) -> Path:
        return self.workspace / "made" / f"{self.name}.{stage}.jsonl"

    def made(self, stage: str, made: Any) -> Path:
        self._add(stage, rows=made.rows, completions=made.completions_sampled)
        return Path(made.file)

    def pairs(self, stage: str, policy: str, prompts: int, first: int) -> Path:
        """Sample pairs of a policy's answers, a right one over a wrong one, to prompts from ``first`` on."""
        config = wb.RunConfig(**{**self.base, "policy": {"path": policy}})
        prompts = 4 if self.small else prompts
        made = wb.make_pairs(
            config, self.file(stage), prompts=prompts, first=first, per_group=2, workspace=self.workspace, again=True
        )
        return self.made(stage, made)

    def _add(self, stage: str, **columns: Any) -> None:
        row = {"stage": stage, **{name: value for name, value in columns.items() if value is not None}}
        self.rows.append(row)
        print("  ".join(f"{name} {value}" for name, value in row.items()), file=sys.stderr, flush=True)


def report(run: Any, row: Mapping[str, Any]) -> None:
    """Print the step a run has come to on standard error."""
    numbers = [f"{name} {row[name]:.3f}" for name in ("reward", *HEADLINES) if row.get(name) is not None]
    print("  ".join([f"{run.name}  step {row.get('step')}", *numbers]), file=sys.stderr, flush=True)


def measured(run: Any) -> dict[str, Any]:
    """Return a run's held-out measure before its first step and after its last."""
    rows = run.metrics_rows()[0]
    for name in HEADLINES:
        values = [row[name] for row in rows if row.get(name) is not None]
        if values:
            return {"run": run.name, "measure": name, "before": round(values[0], 3), "after": round(values[-1], 3)}
    return {"run": run.name}


def parser(description: str, name: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--name", default=name, help="what its runs are called (default: %(default)s)")
    made.add_argument("--workspace", type=Path, help="folder that holds the runs (default: ./workspace)")
    made.add_argument("--policy", default="tiny", help="the policy to begin with (default: %(default)s)")
    made.add_argument("--task", default="chain-arithmetic", help="the task (default: %(default)s)")
    made.add_argument("--device", default="auto", help="where runs train (default: %(default)s)")
    made.add_argument("--small", action="store_true", help="two steps a run and a handful of prompts")
    made.add_argument("--json", action="store_true", help="print the result as one JSON document")
    return made


def begin(args: argparse.Namespace) -> Stages:
    base = {"policy": {"path": args.policy}, "task": {"name": args.task}, "run": {"device": args.device}}
    return Stages(args.name, args.workspace, base, args.small)


def show(stages: Stages, as_json: bool) -> None:
    """Print what each stage came to: JSON, or a table."""
    if as_json:
        print(json.dumps({"name": stages.name, "stages": stages.rows}))
        return
    import pandas as pd

    columns = ["stage", "measure", "before", "after", "rows", "completions", "run"]
    table = pd.DataFrame(stages.rows).reindex(columns=columns).astype(object)
    print(table.where(table.notna(), "").to_string(index=False))
