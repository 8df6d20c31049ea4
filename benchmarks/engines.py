"""A run on SkyRL's own server, stopped and resumed in the middle, checked in verl and by a file that verifiers wrote.

``make engines`` installs all three in environments of their own. A row a part: what was run and what came out; a part
whose numbers are not what this package says is an error.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import numpy as np

import workbench as wb
from workbench.checks.alarms import LOSS_GAP
from workbench.credit import LossType
from workbench.engines import exchange
from workbench.engines.export import export_run
from workbench.errors import EngineError, RunError
from workbench.models.find import policy_path
from workbench.places import WORKSPACE
from workbench.policies.load import load_policy
from workbench.runs import Run

ROOT = Path(__file__).parents[1]
ENVIRONMENT = ROOT / ".venv-engines"
PORT = 8123
KILLED_STEPS = 4
"""Of the run whose server is killed."""
LOSSES: tuple[LossType, ...] = ("dapo", "grpo", "dr_grpo")
"""Losses that verl divides in a way of its own each."""
BACKEND = {
    "max_lora_adapters": 8,
    "max_lora_rank": 64,
    # Of one size each, or every other number of rows is compiled anew.
    "train_micro_batch_size": 16,
    "sample_max_num_sequences": 16,
}
PROJECT = '[project]\nname = "server"\nversion = "0"\n[project.optional-dependencies]\ntinker = []\njax = []\n'
"""SkyRL starts its engine by ``uv run --extra tinker --extra jax``, which wants a project that has these."""


@dataclass(frozen=True)
class Part:
    part: str
    seconds: float
    found: str


def measure(repeat: int) -> list[Part]:
    """Run every part once; ``repeat`` is the number of training steps. Raises WorkbenchError for one that fails."""
    if not (ENVIRONMENT / "bin" / "python").exists():
        raise EngineError(f"{ENVIRONMENT} is not there; make engines installs SkyRL and verl into it")
    with tempfile.TemporaryDirectory() as folder:
        os.environ[WORKSPACE] = folder
        with server(Path(folder)) as url:
            run, parts = trained(url, repeat)
        parts += [gradient(run), rows(run, Path(folder) / "rows.jsonl")]
        return [*parts, verl(run, Path(folder)), verifiers(run, Path(folder)), killed(Path(folder))]


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """SkyRL's server on the shipped policy, on this machine alone; its log is ``skyrl.log`` in the folder."""
    (folder / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    path = f"{ENVIRONMENT / 'bin'}{os.pathsep}{os.environ['PATH']}"
    offline = {"JAX_PLATFORMS": "cpu", "HF_HUB_OFFLINE": "1", "UV_OFFLINE": "1"}
    environment = {**os.environ, **offline, "VIRTUAL_ENV": str(ENVIRONMENT), "PATH": path}
    environment.pop("PYTHONPATH", None)
    command = ["uv", "run", "--active", "--no-sync", "-m", "skyrl.tinker.api", "--base-model", policy_path("tiny")]
    command += ["--host", "127.0.0.1", "--port", str(PORT), "--checkpoints-base", str(folder / "skyrl")]
    command += ["--database-url", f"sqlite:///{folder / 'skyrl.db'}", "--backend", "jax"]
    command += ["--backend-config", json.dumps(BACKEND)]
    with (folder / "skyrl.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    url = f"http://127.0.0.1:{PORT}"
    try:
        for _ in range(300):
            with suppress(URLError, OSError), urlopen(f"{url}/api/v1/healthz", timeout=5):
                break
            if process.poll() is not None:
                raise EngineError(f"SkyRL's server ended: {(folder / 'skyrl.log').read_text()[-2000:]}")
            time.sleep(1)
        yield url
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # asked nicely, its API waits for the engine, which waits for it
        process.wait()


def started(name: str, url: str, steps: int, *flags: str) -> Run:
    """Start a run on the server by the page's own command."""
    command = [sys.executable, "-m", "workbench", "train", "--name", name, "--engine", "tinker", "--engine.url", url]
    command += ["--run.steps", str(steps), "--run.watch_prompts", "0", "--optimiser.learning_rate", "4e-3", *flags]
    process = subprocess.Popen(command)
    while not (runs := [run for run in wb.list_runs() if run.name == name]):
        time.sleep(1)
        if process.poll() is not None:
            raise RunError(f"workbench train ended with {process.returncode} before there was a run")
    return runs[0]


def trained(url: str, steps: int) -> tuple[Run, list[Part]]:
    """Train to the middle, stop, resume, and train to the end."""
    half, began = steps // 2, time.monotonic()
    flags = ["--engine.patience", "1800", "--run.save_steps", str(max(half // 2, 1))]
    run = started("skyrl", url, steps, *flags, "--run.eval_steps", str(steps), "--run.eval_prompts", "96")
    for row in run.follow():
        if row.get("step", 0) >= half and run.status().state == "running":
            run.stop(timeout=600)
    stopped = run.wait()
    run.resume().wait()
    if (status := run.status()).state != "finished":
        raise RunError("\n".join([f"run {run.name!r} is {status.state}: {status.reason}", *run.log_tail(20)]))
    table = run.metrics()
    gap = float(table["engine/loss_gap"].max())
    if not gap < LOSS_GAP:
        raise EngineError(f"the largest |loss + A| is {gap:.2g}; {LOSS_GAP:g} is rounding")
    accuracy = table["accuracy"].dropna()
    times = [
        f"{statistics.median(table[name].dropna()):.1f} s of {what}"
        for name, what in (("sampling_time", "sampling"), ("training_time", "training"), ("weights_time", "weights"))
    ]
    found = (
        f"held-out accuracy {accuracy.iloc[0]:.0%} to {accuracy.iloc[-1]:.0%} in {steps} steps, stopped after step "
        f"{stopped.step} and resumed; largest |loss + A| {gap:.1e}; a step: {', '.join(times)}"
    )
    return run, [Part("training on SkyRL's server", round(time.monotonic() - began, 1), found)]


def killed(folder: Path) -> Part:
    """Kill the server in the middle of a run, start it on the same database, and resume the run."""
    began, flags = time.monotonic(), ("--engine.patience", "120", "--run.save_steps", "1", "--run.eval_steps", "0")
    with server(folder) as url:
        run = started("killed", url, KILLED_STEPS, *flags)
        next(row for row in run.follow() if row.get("step", 0) >= KILLED_STEPS // 2)
    gone = run.wait()
    if gone.state != "failed" or "engine.patience" not in gone.reason:
        raise RunError(f"the server of {run.name!r} was killed, and the run is {gone.state}: {gone.reason}")
    with server(folder):
        end = run.resume().wait()
    if end.state != "finished":
        raise RunError("\n".join([f"run {run.name!r} is {end.state}: {end.reason}", *run.log_tail(20)]))
    found = f"SIGKILL after step {gone.step} of {KILLED_STEPS}: {gone.reason!r}; resumed from step {end.resumed_from}"
    return Part("the server killed, the run resumed", round(time.monotonic() - began, 1), found)


def gradient(run: Run) -> Part:
    """Compute the gradient of a step anew, with transformers and PEFT, from a checkpoint and the stored rollouts."""
    import torch

    began = time.monotonic()
    step = min(int(path.name.rpartition("-")[2]) for path in run.dir.checkpoints.glob("checkpoint-*"))
    table = run.metrics().set_index("step")
    if step + 1 not in table.index:
        step = max(s for s in run.rollout_steps() if s in table.index) - 1
    policy = load_policy(str(run.dir.checkpoints / f"checkpoint-{step}"), device="cpu", trainable=True)
    credits, config = run.rollouts(step + 1), run.config().grpo
    lines = list(exchange.rows_of(step + 1, credits, config.loss_type, config.sampling.max_completion_length))
    for line in lines:
        prompt = policy.tokenizer(line.prompt)["input_ids"]
        ids = torch.tensor([[*prompt, *line.ids]])
        logits: Any = policy.model(input_ids=ids).logits
        logps = logits[0, len(prompt) - 1 : -1].log_softmax(-1).gather(-1, ids[0, len(prompt) :, None])[:, 0]
        (-(logps * torch.tensor(line.advantages)).sum() * line.divisor).backward()
    norms = [float(weight.grad.norm()) for weight in policy.model.parameters() if weight.grad is not None]
    here, there = float(np.linalg.norm(norms)), float(table["grad_norm"][step + 1])
    if not abs(here - there) < 1e-3 * here:
        raise EngineError(f"step {step + 1}: SkyRL's gradient has the norm {there:.6g}, and the loss's is {here:.6g}")
    found = f"step {step + 1}: the norm of SkyRL's gradient is {there:.6g}; computed here from the rollouts, {here:.6g}"
    return Part("gradient of a step", round(time.monotonic() - began, 1), found)


def rows(run: Run, file: Path) -> Part:
    """Write the run's rollouts as rows and compute their advantages anew."""
    began, config = time.monotonic(), run.config().grpo
    limits = config.loss_type, config.sampling.max_completion_length
    stored = ((step, run.rollouts(step)) for step in run.rollout_steps())
    count = exchange.write_rows(
        file, (row for step, credits in stored for row in exchange.rows_of(step, credits, *limits))
    )
    read = exchange.read_rows(file)
    worst = max(one.size for one in exchange.compare(read, exchange.recompute(read)))
    found = f"{count:,} rows written; advantages computed anew from them differ by {worst:g}"
    return Part("rows of step credit", round(time.monotonic() - began, 1), found)


def verifiers(run: Run, folder: Path) -> Part:
    """Have verifiers write a generation of the run into its own file, and hold that against the run's credit."""
    began, step = time.monotonic(), run.rollout_steps()[-1]
    tokenizer = load_policy("tiny", device="cpu").tokenizer
    given = [
        {
            "group": number,
            "prompt": (group := credit.scored.group).prompt,
            "prompt_ids": tokenizer(group.prompt)["input_ids"],
            "columns": dict(group.columns),
            "text": rollout.text,
            "ids": list(rollout.token_ids),
            "logprobs": rollout.logprobs,
            "advantages": credit.of(i).tolist(),
        }
        for number, credit in enumerate(run.rollouts(step))
        for i, rollout in enumerate(credit.scored.group.rollouts)
    ]
    python, script = str(ENVIRONMENT / "verifiers" / "bin" / "python"), str(Path(__file__).with_name("traces.py"))
    writer, file = [python, script, str(folder)], str(folder / "traces.jsonl")
    reader = [sys.executable, "-m", "workbench", "check-parity", file, "--tokenizer", "tiny"]
    for command, text in ((writer, "\n".join(map(json.dumps, given))), (reader, "")):
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            raise EngineError(f"verifiers: {done.stdout}{done.stderr[-2000:]}")
    return Part("a file that verifiers wrote", round(time.monotonic() - began, 1), done.stdout.strip())


def verl(run: Run, folder: Path) -> Part:
    """Export the run to verl and check it there, through verl's own functions, for each way to divide its loss."""
    began, config, credits = time.monotonic(), run.config(), run.rollouts(run.rollout_steps()[-1])
    largest: dict[str, float] = {}
    for config.grpo.loss_type in LOSSES:
        target = folder / config.grpo.loss_type
        export_run(config, credits, target, "verl")
        command = [str(ENVIRONMENT / "bin" / "python"), "check.py"]
        done = subprocess.run(command, cwd=target, capture_output=True, text=True, check=False)
        if done.returncode:
            raise EngineError(f"verl, {config.grpo.loss_type}: {done.stdout}{done.stderr[-2000:]}")
        for line in (line for line in done.stdout.splitlines() if " of verl " in line):
            what, difference = line.partition(")  ")[2], float(line.split()[1])
            largest[what] = max(difference, largest.get(what, 0.0))
    said = ", ".join(f"{difference:.2g} for {what}" for what, difference in largest.items())
    found = f"{len(credits)} groups under {', '.join(LOSSES)}: the largest difference is {said}"
    return Part("the exported run in verl", round(time.monotonic() - began, 1), found)
