"""A public page: every door is asked as a forged request would ask it, and refuses."""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from starlette.testclient import TestClient

from tests.drafts import draft_of
from tests.stored_runs import store
from tests.test_door import application
from workbench.cli.page import Place, place_of
from workbench.config import JudgeConfig, SamplingConfig
from workbench.errors import ConfigError, PolicyError, RewardError, RunError, TaskError
from workbench.places import SHIPPED_ONLY
from workbench.rewards import RewardConfig
from workbench.schema import Example
from workbench.training.methods import METHODS, RunConfig
from workbench.ui.handlers.example import find_task, first_draft, first_group, sample
from workbench.ui.handlers.fields import tree_leaves
from workbench.ui.handlers.opening import Ask, open_file
from workbench.ui.handlers.runs import start_run
from workbench.ui.public import (
    ABOUT,
    FREE,
    MOST,
    MOST_BYTES,
    WAITING,
    PublicServices,
    allowed,
    close,
)

CODE = "def mine(prompt, step, **columns):\n    return 1.0\n"
EXTERNAL = {"base_url": "http://127.0.0.1:9/v1", "model": "m"}
PRM = {"path": "Qwen/Qwen2.5-Math-PRM-7B", "format": "extra-0"}
MANY = SamplingConfig(num_generations=17)
HOST = "ada-workbench.hf.space"


@pytest.fixture(scope="module", autouse=True)
def environment() -> Iterator[None]:
    """What a public page sets of its process is undone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SHIPPED_ONLY, "")
        yield


@pytest.fixture
def services(tmp_path: Path) -> Iterator[PublicServices]:
    services = PublicServices(tmp_path)
    yield services
    services.close()


# ── the rule ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_page_as_it_opens_is_allowed_with_every_method() -> None:
    for name in METHODS:
        allowed(RunConfig.parse({"method": name}))
    allowed(first_draft().config())
    allowed(RunConfig.parse({"policy": "run:mine@20", "task": "gsm8k", "run": {"steps": 100}, "method": {"beta": 0.1}}))


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("policy.path", {"policy": "Qwen/Qwen2.5-0.5B-Instruct"}),
    ("policy.path", {"policy": "/etc"}),
    ("policy.adapter", {"policy": {"path": "tiny", "adapter": "/etc"}}),
    ("policy.trust_remote_code", {"policy": {"path": "tiny", "trust_remote_code": True}}),
    ("policy.lora", {"policy": {"path": "tiny", "lora": {"r": 8}}}),
    ("task.name", {"task": "hub:openai/gsm8k"}),
    ("task.name", {"task": "/etc/passwd"}),
    ("task.data", {"method": "sft", "task": {"data": "/etc/passwd"}}),
    ("task.filter", {"task": {"filter": "answer != ''"}}),
    ("run.steps", {"run": {"steps": 101}}),
    ("run.epochs", {"run": {"epochs": 2}}),
    ("run.ranks", {"run": {"ranks": 2}}),
    ("run.report_to", {"run": {"report_to": ["wandb"]}}),
    ("run.eval_prompts", {"run": {"eval_prompts": 201}}),
    ("rows of a step", {"method": {"prompts_per_step": 9}}),
    ("method.trl", {"method": {"trl": {"push_to_hub": True}}}),
    ("method.resample_flat", {"method": {"resample_flat": 4}}),
    ("num_generations", {"method": {"sampling": {"num_generations": 17}}}),
    ("max_completion_length", {"method": {"sampling": {"max_completion_length": 257}}}),
    ("run.eval_steps", {"run": {"eval_steps": 1}}),
    ("environment.max_turns", {"task": "calculator", "environment": {"name": "calculator", "max_turns": 9}}),
    ("environment.code", {"environment": {"name": "mine", "code": "class mine:\n    pass\n"}}),
    ("mine", {"method": {"rewards": [{"name": "mine", "code": CODE}]}}),
    ("judge", {"method": {"rewards": [{"name": "judge", "judge": EXTERNAL}]}}),
    ("prm", {"method": {"rewards": [{"name": "prm", "model": PRM}]}}),
    ("values", {"method": {"rewards": [{"name": "values", "monte_carlo": {"continuations": 4}}]}}),
]


@pytest.mark.parametrize(("named", "data"), REFUSED, ids=[f"{name} {i}" for i, (name, _) in enumerate(REFUSED)])
def test_what_is_not_allowed_is_refused_with_its_field(named: str, data: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=named):
        allowed(RunConfig.parse(data))


def test_each_field_of_the_rule_is_one() -> None:
    known = {path for name in METHODS for path, _ in tree_leaves(RunConfig.parse({"method": name}).model_dump())}
    assert [part for part in (*FREE, *MOST) if not any(path.startswith(part) for path in known)] == []


# ── the services ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("policy.path", "Qwen/Qwen2.5-0.5B-Instruct"),
        ("policy.adapter", "/etc"),
        ("method.sampling.num_generations", 64),
        ("method.sampling.max_completion_length", 4096),
    ],
)
def test_sampling_and_training_refuse_what_a_forged_form_holds(path: str, value: Any, services: PublicServices) -> None:
    draft = draft_of().with_value(path, value)
    assert list(sample(draft, services, "tab"))[-1].note.level == "error"  # type: ignore[union-attr]
    started, note = start_run(draft, services)
    assert (started, note is None) == (None, False)
    assert services.models.status().state == "off"


def values_of(services: PublicServices, outcome: RewardConfig, k: int) -> Any:
    return services.models.step_values("tiny", first_group(), draft_of().pattern(), outcome, k=k)


@pytest.mark.parametrize(
    ("error", "use"),
    [
        (PolicyError, lambda services: services.path_of("org/model")),
        (ConfigError, lambda services: services.models.sample("tiny", Example("1"), MANY)),
        (PolicyError, lambda services: services.models.with_reference("org/model", first_group())),
        (ConfigError, lambda services: values_of(services, RewardConfig(name="mine", kind="outcome", code=CODE), 8)),
        (ConfigError, lambda services: values_of(services, RewardConfig(name="x"), 9)),
        (RewardError, lambda services: services.reward_worker("tab").function(CODE, "mine")),
        (RewardError, lambda services: services.judges.judged("judge", JudgeConfig(**EXTERNAL), [])),
        (RewardError, lambda services: services.judges.reach(JudgeConfig(**EXTERNAL))),
        (TaskError, lambda services: find_task("hub:openai/gsm8k")),
        (TaskError, lambda services: find_task("/etc/passwd")),
        (TaskError, lambda services: find_task(__file__)),
    ],
)
def test_models_code_judges_and_foreign_tasks_are_refused_where_they_would_be_used(
    services: PublicServices, error: type[Exception], use: Callable[[PublicServices], object]
) -> None:
    with pytest.raises(error):
        use(services)


def test_no_file_is_opened(services: PublicServices) -> None:
    (opening,) = open_file(Ask(__file__), services, "tab")
    assert (opening.note.level, opening.imported) == ("error", None)


def test_runs_wait_in_one_queue_and_go_after_a_day(services: PublicServices, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.ui.handlers.session.start", lambda config, workspace: store(workspace, "new"))
    for i in range(WAITING - 1):
        store(services.workspace, f"waits-{i}", state="queued", made=2e9)
    services.start(RunConfig())
    store(services.workspace, "last", state="queued", made=2e9)
    with pytest.raises(RunError):
        services.start(RunConfig())
    services.groups.keep(first_group())
    services.groups.keep_recent(replace(first_group(), policy="other"))
    services.sweep(now=time.time() + 25 * 3600)
    assert not list(services.groups.folder.rglob("*.json"))
    assert [(services.workspace / "runs" / name).exists() for name in ("new", "last")] == [False, True]


# ── where the page is ────────────────────────────────────────────────────────────────────────────────────────────────

SPACE = {"SPACE_ID": "ada/workbench", "SPACE_HOST": f"{HOST},example.org"}


def test_a_space_is_public_unless_its_owner_says_otherwise() -> None:
    names = (HOST, "example.org")
    assert place_of(SPACE) == Place(True, "0.0.0.0", names, ("https://huggingface.co",))
    assert place_of({**SPACE, "WORKBENCH_PUBLIC": "off"}) == Place(False, "0.0.0.0", names)
    assert (place_of(SPACE, False).public, place_of({}), place_of({}, True)) == (False, Place(False), Place(True))
    with pytest.raises(ConfigError, match="WORKBENCH_PUBLIC"):
        place_of({"WORKBENCH_PUBLIC": "perhaps"})


# ── requests sent by hand ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """The real application as a Space serves it: HTTPS ends at the proxy, and huggingface.co frames the page."""
    folder, framed_by = tmp_path_factory.mktemp("space"), ["https://huggingface.co"]
    app = application(folder, public=True, framed_by=framed_by, proxies=[HOST])
    with TestClient(app, base_url=f"http://{HOST}", follow_redirects=False) as client:
        yield client


@pytest.fixture(scope="module")
def config(served: TestClient) -> dict[str, Any]:
    return served.get("/config").json()  # type: ignore[no-any-return]


def test_an_event_names_few_components(config: dict[str, Any]) -> None:
    """Gradio looks through the whole page for each that one names, then and at all later events of the page."""
    sizes = [len(one["inputs"]) for one in config["dependencies"] if one["backend_fn"] and one["targets"]]
    assert len(sizes) > 20
    assert max(sizes) <= 10


def element(config: dict[str, Any], name: str) -> dict[str, Any]:
    return next(part for part in config["components"] if part["props"].get("elem_id") == name)


def send(client: TestClient, config: dict[str, Any], name: str, event: str, value: Any, tab: str) -> str:
    """What the server tells of an event of an element that holds ``value``."""
    target = element(config, name)["id"]
    parts = {part["id"]: part for part in config["components"]}
    functions = [one for one in config["dependencies"] if one["backend_fn"] and [target, event] in one["targets"]]
    function = max(functions, key=lambda one: (len(one["inputs"]), len(one["outputs"])))
    data = [value if number == target else parts[number]["props"].get("value") for number in function["inputs"]]
    body = {"fn_index": function["id"], "data": data, "session_hash": tab, "trigger_id": target}
    assert client.post("/gradio_api/queue/join", json=body).status_code == 200
    return client.get("/gradio_api/queue/data", params={"session_hash": tab}).text


@pytest.mark.filterwarnings("ignore:'future.no_silent_downcasting':DeprecationWarning")
@pytest.mark.parametrize("name", ["hub:openai/gsm8k", "/etc/passwd"])
def test_a_forged_task_is_not_read(served: TestClient, config: dict[str, Any], name: str) -> None:
    told = send(served, config, "task", "input", name, "of a task")
    assert ("root:" in told, '"success":false' in told) == (False, True)


@pytest.mark.filterwarnings("ignore:'future.no_silent_downcasting':DeprecationWarning")
@pytest.mark.parametrize(
    ("function", "data"),
    [
        ("sample", ["1 + 1", "Qwen/Qwen2.5-0.5B-Instruct"]),
        ("sample", ["1 + 1", "/etc"]),
        ("sample", ["1 + 1", "tiny", 64]),
        ("sample", ["1 + 1", "tiny", 8, 4096]),
        ("score", [{}, ["mine"]]),
    ],
)
def test_the_api_refuses_them_too(served: TestClient, function: str, data: list[Any]) -> None:
    event = served.post(f"/gradio_api/call/{function}", json={"data": data}).json()["event_id"]
    answer = served.get(f"/gradio_api/call/{function}/{event}").text
    assert ("event: error" in answer, "complete" in answer) == (True, False)


def test_what_takes_files_code_and_models_is_not_there(config: dict[str, Any]) -> None:
    called = {number for one in config["dependencies"] for number, _ in one["targets"]}
    for name in ("door-file", "door-path", "engine-ask"):
        assert element(config, name)["id"] not in called, name
    for name in ("door", "door-file"):
        assert element(config, name)["props"]["visible"] is False
    can_add = element(config, "reward-list")["props"]["js_on_load"]
    choices = ("step_correctness", "monte_carlo", "own:step", "model", "judge", "file")
    assert [choice for choice in choices if f'"{choice}"' in can_add] == ["step_correctness", "monte_carlo"]

    async def build() -> gr.Blocks:  # Gradio makes locks, and leaves a loop open where none is running
        with gr.Blocks() as drawn_later:
            gr.Code(elem_id="reward-code", interactive=True)
            gr.Button(elem_id="isolate")
        close(drawn_later)
        return drawn_later

    named = {block.elem_id: block for block in asyncio.run(build()).blocks.values()}
    assert (named["reward-code"].interactive, named["isolate"].visible) == (False, False)


def test_functions_that_change_what_others_see_are_not_there(served: TestClient, config: dict[str, Any]) -> None:
    for name, function in (
        ("runs", "remove"),
        ("runs", "say_of"),
        ("live", "stop"),
        ("drawing", "mark_step"),
        ("reward-list", "save_code"),
    ):
        body = {"component_id": element(config, name)["id"], "fn_name": function, "session_hash": "x", "data": {}}
        assert served.post("/gradio_api/component_server", json=body).status_code == 404, function
    body = {"component_id": element(config, "runs")["id"], "fn_name": "table", "session_hash": "x", "data": {}}
    assert served.post("/gradio_api/component_server", json=body).status_code == 200


def test_it_lets_everybody_in_framed_and_says_what_it_is(served: TestClient, config: dict[str, Any]) -> None:
    framed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
    answer = served.get("/", headers={"Accept": "text/html", **framed})
    assert answer.status_code == 200
    assert "frame-ancestors https://huggingface.co" in answer.headers["content-security-policy"]
    assert ABOUT in element(config, "public")["props"]["value"]
    assert served.post("/gradio_api/queue/join", json={}, headers={"Origin": "https://evil.example"}).status_code == 403


def test_files_and_long_requests_stop_at_the_door(served: TestClient) -> None:
    for path in ("/gradio_api/upload", "/upload", "/gradio_api/deep_link"):
        assert served.post(path, content=b"x").status_code == 403, path
    for path in ("/gradio_api/file=/etc/passwd", "/workbench-runs/mine/model.zip"):
        assert served.get(path).status_code == 403, path
    assert served.post("/gradio_api/queue/join", content=b"x" * (MOST_BYTES + 1)).status_code == 403
