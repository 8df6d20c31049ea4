"""A pipeline's runs and data commands without torch: each comes to a digest of all that it was made of.

``deaths.json`` in the workspace names who dies by SIGKILL where, once: {"who": "policy-1", "step": 3}; with "driver" it
is the pipeline's process that dies then. The stage "endless" waits to be stopped until there is a file "go-on".
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from workbench.config import RunConfig
from workbench.rundir import RunDir, checkpoints
from workbench.rundir.metrics import resumed
from workbench.tasks.made import Made, write_made

DEATHS = "deaths.json"


def digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def weights(path: str | None) -> str:
    file = Path(path or "") / "weights"
    return file.read_text() if file.is_file() else str(path)


def die_here(workspace: Path, who: str, step: int) -> None:
    file = workspace / DEATHS
    death = json.loads(file.read_text()) if file.is_file() else {}
    if (death.get("who"), death.get("step")) != (who, step):
        return
    file.unlink()
    if not death.get("driver"):
        os.kill(os.getpid(), signal.SIGKILL)
    os.kill(RunDir(next((workspace / "pipelines").iterdir())).status().pid or 0, signal.SIGKILL)


def train(run: RunDir, checkpoint: str | None) -> None:
    """The digest of the configuration, of what it starts from, and of each step; one row and perhaps a save a step."""
    config = RunConfig.from_yaml(run.config_text())
    who, workspace = run.name.rpartition(".")[2], run.path.parent.parent
    rewards = [weights(reward.model.path) for reward in config.method.reward_functions if reward.model is not None]
    rows = Path(config.task.data).read_text() if config.task.data else ""
    state, begin = digest(weights(config.policy.path), rewards, rows, config.seed), 0
    if checkpoint is not None:
        begin = int(checkpoint.removeprefix("checkpoint-"))
        state = weights(str(run.checkpoints / checkpoint))
        run.append_metrics(resumed(begin))
    metric = "pair_accuracy" if config.method.name == "reward" else "accuracy"
    if not begin:
        run.append_metrics({"step": 0, metric: 0.25})
    for step in range(begin + 1, config.run.steps + 1):
        die_here(workspace, who, step)
        state = digest(state, step)
        last = {metric: 0.5} if step == config.run.steps else {}
        run.append_metrics({"step": step, "loss": int(state[:4], 16), **last})
        run.note(step=step)
        if config.run.save_every and step % config.run.save_every == 0:
            save(run, f"checkpoint-{step}", state)
    save(run, "final", state)
    run.set_status("finished", step=config.run.steps)


def save(run: RunDir, name: str, state: str) -> None:
    draft = run.checkpoints / checkpoints.SAVING
    draft.mkdir()
    (draft / "weights").write_text(state)
    checkpoints.seal(draft, run.checkpoints / name, {})


def make(arguments: list[str]) -> None:
    """Twenty pairs that tell the policy's digest."""
    flags = [text for text in arguments if text not in ("--trust", "--json")]
    options = dict(zip(flags[0::2], flags[1::2], strict=True))
    out = Path(options["--out"])
    die_here(out.parents[3], out.stem, 0)
    config = RunConfig.from_yaml(Path(options["--config"]).read_text())
    state = weights(config.policy.path)
    rows = [{"prompt": f"{i}?", "chosen": f"{state} {i}", "rejected": "no"} for i in range(20)]
    write_made(Made(rows), out, {})


def obey(run: RunDir) -> None:
    """Go on until asked to stop."""

    def stop(*_: object) -> None:
        run.set_status("stopped", "after step 1 of 4")
        sys.exit(0)

    signal.signal(signal.SIGTERM, stop)
    run.append_metrics({"step": 1})
    while True:
        signal.pause()


def main(arguments: list[str]) -> None:
    if arguments[0] == "mix":
        from workbench.cli import main as cli

        out = Path(arguments[arguments.index("--out") + 1])
        die_here(out.parents[3], out.stem, 0)
        sys.exit(cli(arguments))
    if arguments[0] == "pairs":
        make(arguments[1:])
        return
    run = RunDir(arguments[0])
    run.set_status("running", device="cpu")
    if run.name.rpartition(".")[2] == "endless" and not (run.path.parent.parent / "go-on").exists():
        obey(run)
    train(run, arguments[2] if len(arguments) > 2 else None)


if __name__ == "__main__":
    main(sys.argv[1:])
