"""A public page: what a stranger may ask of it. Nothing else knows of it.

``allowed`` is the rule: what comes along and runs nobody's code. ``PublicServices`` takes the place of ``Services`` and
asks it wherever something is sampled, scored, read or started, so that a request sent by hand meets the same rule as
the page. ``close`` takes off the built page what such a page has no use for; ``Requests`` refuses files and long
requests before Gradio reads them.
"""

import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.route_utils import API_PREFIX
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from workbench.assets import EMBEDDED
from workbench.config import EnvironmentSection, JudgeConfig, SamplingConfig
from workbench.data import TASKS
from workbench.errors import ConfigError, PolicyError, RewardError, RunError, quote
from workbench.places import RUN, SHIPPED_ONLY, is_of_run
from workbench.policies.client import ModelWorker
from workbench.policies.step_values import StepValues
from workbench.rewards import BUILTINS, RewardConfig, Sandbox, judges
from workbench.runs import Run, list_runs
from workbench.sandbox.client import SandboxFunction
from workbench.schema import Example, Group, RewardKind
from workbench.steps import StepPattern
from workbench.training.methods import RunConfig
from workbench.ui.downloads import FOLDER
from workbench.ui.handlers import fields, scoring, session
from workbench.ui.handlers.reward_forms import VALUES
from workbench.ui.tabs.form import element, note_value

STYLE = "public.css"
"""Hides buttons that the page's scripts draw, whose functions ``close`` takes away."""
REMEDY = "duplicate this Space, or install the workbench, for everything"
ABOUT = (
    "This page is public: everybody sees its runs, which are kept for a day. It has the shipped policies and tasks, "
    f"built-in rewards and runs of up to 100 steps; {REMEDY}."
)
KEPT_SECONDS = 24 * 3600.0
KEPT_GROUPS = 500
WAITING = 8
"""Runs that are not over; one trains, the others wait."""
CONTINUATIONS = 8
"""From the end of a step, where its value is estimated."""
MOST_BYTES = 500_000
"""Of a request; what the page itself sends has a few ten thousand. An empty list costs Gradio half a kilobyte."""

# ── the rule ─────────────────────────────────────────────────────────────────────────────────────────────────────────

MOST = {
    "run.steps": 100,
    "run.eval_prompts": 200,
    "method.prompts_per_step": 64,
    "method.batch_size": 64,
    "method.sampling.num_generations": 16,
    "method.sampling.max_completion_length": 256,
    "environment.max_turns": 8,
    "environment.max_observation_length": 256,
}
FREE = (
    "name", "seed", "policy.path", "task.name", "prompt.system", "prompt.apply_template", "environment.name",
    "run.eval_skip", "run.save_steps", "run.device", "run.micro_batch_size",
    "method.pattern.", "method.credit.", "method.rewards", "method.sampling.", "origins",
)  # fmt: skip
"""Fields, and beginnings of fields, that hold anything they can hold, or what is looked at apart. Of a method and its
optimiser those are all switches, choices and fractions as well; any other field stays as it is by default, so that one
that nobody thought of is refused."""
_OF_REWARD = {"name", "kind", "weight", "schedule", "options"}


def allowed(config: RunConfig) -> None:
    """Raise ConfigError for a configuration that a public page does not run, or a part of it that it does not use."""
    if config.policy.path not in EMBEDDED and not is_of_run(config.policy.path):
        _refuse("policy.path", config.policy.path, f"it has {', '.join(EMBEDDED)} and {RUN}NAME of its own runs")
    if config.task.name not in TASKS:
        _refuse(
            "task.name", config.task.name, f"it reads no files and nothing of the Hub; take one of {', '.join(TASKS)}"
        )
    for reward in config.method.reward_functions:
        if others := reward.model_dump(exclude_defaults=True).keys() - _OF_REWARD:
            _refuse(
                "method.rewards", reward.name, f"built-in functions alone, nothing with {', '.join(sorted(others))}"
            )
    usual = dict(fields.tree_leaves(RunConfig.parse({"method": config.method.name}).model_dump()))
    for path, value in fields.tree_leaves(config.model_dump()):
        if path in MOST and isinstance(value, int) and value > MOST[path]:
            _refuse(path, value, f"at most {MOST[path]}")
        is_direct = path.count(".") == 1 and path.startswith(("method.", "optimiser."))
        by_kind = is_direct and isinstance(value, bool | float | str | None)
        if not by_kind and path not in MOST and not path.startswith(FREE) and value != usual.get(path):
            _refuse(path, value, f"it stays {quote(usual.get(path))}")
    if (rows := config.method.rows_per_step) > 64:
        _refuse("the rows of a step", rows, "at most 64")


def _refuse(field: str, value: Any, instead: str) -> None:
    raise ConfigError(f"{field}: a public page does not take {quote(value)} ({instead}); {REMEDY}")


# ── where something is sampled, scored, read or started ──────────────────────────────────────────────────────────────


class PublicServices(session.Services):
    """The services of a public page: one workspace, seen by everybody, whose runs and groups are kept for a day."""

    reward_forms = (VALUES,)

    def __init__(self, workspace: Path | None = None) -> None:
        super().__init__(workspace, models=_Models, judges=_Judges, sandbox=_Sandbox)
        self.opening = _NoFiles()
        os.environ[SHIPPED_ONLY] = "1"  # of this process and of its runs

    def path_of(self, name: str) -> str:
        """Return a path as ``Services`` does. Raises PolicyError for a model that neither came along nor is a run's."""
        if name not in EMBEDDED and not is_of_run(name):
            raise PolicyError(f"a public page loads no model but its own and its runs', not {quote(name)}; {REMEDY}")
        return super().path_of(name)

    def start(self, config: RunConfig) -> Run:
        """Start a run as ``Services`` does. Raises ConfigError if it is not ``allowed``, RunError for one too many."""
        allowed(config)
        self.sweep()
        if sum(not run.summary().final for run in list_runs(self.workspace)) >= WAITING:
            raise RunError(f"{WAITING} runs train or wait already; try again in some minutes, or {REMEDY}")
        return super().start(config)

    def warm(self) -> None:
        self.sweep()
        super().warm()

    def sweep(self, now: float | None = None) -> None:
        """Remove runs that ended a day ago, groups as old, and more groups than are kept."""
        oldest = (time.time() if now is None else now) - KEPT_SECONDS
        for run in list_runs(self.workspace):
            summary = run.summary()
            if (summary.final or not summary.readable) and (summary.updated or 0) < oldest:
                shutil.rmtree(run.path, ignore_errors=True)
        with suppress(OSError):  # somebody else removes them, too
            groups = sorted((path.stat().st_mtime, path) for path in self.groups.folder.rglob("*.json"))
            for i, (written, path) in enumerate(reversed(groups)):
                if written < oldest or i >= KEPT_GROUPS:
                    path.unlink()


class _Models(ModelWorker):
    """Samples what a run that is ``allowed`` would sample; whose models these are is ``path_of``'s to say."""

    def sample(
        self,
        policy: str,
        example: Example,
        sampling: SamplingConfig,
        *,
        environment: EnvironmentSection | None = None,
        **options: Any,
    ) -> Group | None:
        who_answers = (environment or EnvironmentSection()).model_dump()
        allowed(
            RunConfig.parse(
                {"method": {"prompts_per_step": 1, "sampling": sampling.model_dump()}, "environment": who_answers}
            )
        )
        return super().sample(policy, example, sampling, environment=environment, **options)

    def step_values(
        self, policy: str, group: Group, pattern: StepPattern, outcome: RewardConfig, *, k: int = 8, **options: Any
    ) -> StepValues | None:
        if k > CONTINUATIONS:
            _refuse("continuations", k, f"at most {CONTINUATIONS}")
        allowed(RunConfig.parse({"method": {"rewards": [outcome.model_dump()]}}))
        return super().step_values(policy, group, pattern, outcome, k=k, **options)


class _Sandbox(Sandbox):
    """Runs patterns, and the built-in functions that have a process of their own."""

    def function(
        self, code: str, name: str, folder: str | None = None, kind: RewardKind | None = None
    ) -> SandboxFunction:
        if name not in BUILTINS or code != BUILTINS[name].source or folder is not None:
            raise RewardError(f"{name}: a public page runs built-in functions alone; {REMEDY}", reward=name)
        return super().function(code, name, folder, kind)


class _NoFiles(session.Works):
    """Opens none."""

    def run(self, *work: Any) -> Any:
        raise ConfigError(f"a public page opens no files; {REMEDY}")


class _Judges(judges.Judges):
    """Asks nobody."""

    def judged(self, name: str, config: JudgeConfig, questions: Any) -> Any:
        raise RewardError(f"{name}: a public page asks no judges; {REMEDY}", reward=name)

    def reach(self, config: JudgeConfig) -> None:
        raise RewardError(f"a public page asks no judges; {REMEDY}")


# ── the page and its requests ────────────────────────────────────────────────────────────────────────────────────────

NOT_BUILT = re.compile(r"door|door-.*|task-reading|trust-model|engine-asked|isolate|isolation-note")
"""Elements with what is in them, and their functions: files, code, models and judges of a stranger. All that
takes a file goes, whatever it is called."""
NOT_CALLED = {
    "mark_step", "labels_file", "save_code", "saved_names", "say_of", "remove", "undelete", "stop", "resume",
    "start_now",
}  # fmt: skip
"""What the page's scripts ask: to write what others would see, or to end and hurry runs of others."""


def close(page: gr.Blocks) -> None:
    """Take off a built page what a public one does not have, and say at its top what it is."""
    with page:
        about = element("public", "note", note_value(scoring.Note(ABOUT, level="info")), classes=["note"])
    page.children.remove(about)
    page.children.insert(1, about)
    config = page.default_config
    gone: set[int] = set()  # hidden elements, which Gradio leaves out, and what is in them
    for block in list(config.blocks.values()):
        name = str(getattr(block, "elem_id", None) or "")
        if NOT_BUILT.fullmatch(name) or isinstance(block, gr.File | gr.UploadButton):
            block.visible = False
            gone |= {inner._id for inner in _within(block)}
        if isinstance(block, gr.Code):
            block.interactive = False  # a built-in reward's, to be read
        if name == "task":
            block.label = "Task"  # neither a file nor hub:dataset
        if isinstance(block, gr.Dropdown):
            block.allow_custom_value = False
        for function in [f for f in getattr(block, "server_fns", ()) if f.__name__ in NOT_CALLED]:
            block.server_fns.remove(function)
            delattr(block, function.__name__)
    for number, function in list(config.fns.items()):
        if any(target in gone for target, _ in function.targets):
            del config.fns[number]


def _within(block: Any) -> Iterator[Any]:
    yield block
    for child in getattr(block, "children", ()):
        yield from _within(child)


_NO_FILES = re.compile(rf"(?:{API_PREFIX})?/(?:upload|file|proxy|deep_link|stream|vibe).*|/{FOLDER}/[^/]+/.*")
"""Paths by which Gradio takes and gives files, and by which a run's model is put together."""


class Requests:
    """ASGI middleware that refuses requests that no visitor of a public page needs."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (problem := self._problem(scope)):
            await PlainTextResponse(f"Refused: {problem}\n", 403)(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _problem(self, scope: Scope) -> str:
        if _NO_FILES.fullmatch(scope["path"]):
            return f"a public page takes and gives no files; {REMEDY}."
        if scope["method"] in ("GET", "HEAD", "OPTIONS"):
            return ""
        length = Headers(scope=scope).get("content-length", "")
        if length.isdecimal() and int(length) <= MOST_BYTES:
            return ""
        return f"the request must say how long it is, and have at most {MOST_BYTES:,} bytes."
