"""The API as a script uses it: ``gradio_client`` with the token, and an MCP client without the tools that act."""

import ast
import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError
from starlette.testclient import TestClient

from tests.browsing import App
from tests.credits import WORKED_ENDS, WORKED_REWARDS, worked_credit
from workbench.errors import ConfigError
from workbench.policies.client import ModelWorker
from workbench.rundir import RunDir
from workbench.training.methods import RunConfig
from workbench.ui import api, blocks
from workbench.ui import app as page
from workbench.ui.door import workspace_token
from workbench.ui.handlers import session
from workbench.ui.handlers.help import guide
from workbench.ui.handlers.session import Services

FUNCTIONS = {"/sample", "/score", "/assign_credit", "/list_runs", "/read_metrics"}


@pytest.fixture(scope="module")
def client(app: App, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    client = Client(app.url, headers=app.headers, verbose=False, download_files=tmp_path_factory.mktemp("downloads"))
    yield client
    client.close()


def test_five_functions_are_public_and_each_tells_its_types(client: Client) -> None:
    endpoints = client.view_api(return_format="dict", print_info=False)["named_endpoints"]
    assert endpoints.keys() == FUNCTIONS
    assert all(endpoint["description"] for endpoint in endpoints.values())
    parameters = {one["parameter_name"]: one for one in endpoints["/sample"]["parameters"]}
    assert parameters["num_generations"]["parameter_default"] == 8


def test_the_script_of_the_help_page_runs_as_it_is_printed(app: App, capsys: pytest.CaptureFixture[str]) -> None:
    snippet = guide(str(app.workspace / ".token"), "{origin}")["snippet"].replace("{origin}", app.url)
    names: dict[str, Any] = {}
    exec(snippet, names)
    assert str(names["scored"]["rollouts"][0]["advantages"]) in capsys.readouterr().out
    assert len(names["scored"]["rollouts"]) == 4


def test_ones_own_answers_are_scored_without_tokens(client: Client) -> None:
    answers = [{"completion": "Step 1: 7 + 5 = 12\nAnswer: 12"}, {"completion": "Step 1: 7 + 5 = 13\nAnswer: 13"}]
    group = {"prompt": "7 + 5?", "rollouts": answers, "columns": {"answer": "12"}}
    scored = client.predict(group=group, rewards=["answer_correctness"], scheme="outcome", api_name="/score")
    assert [rollout["outcome"] for rollout in scored["rollouts"]] == [1.0, 0.0]
    assert [rollout["advantages"][0] for rollout in scored["rollouts"]] == pytest.approx([0.70701, -0.70701], abs=1e-4)


def test_runs_and_their_metrics_are_read(client: Client, workspace: Path) -> None:
    run = RunDir.create(workspace, RunConfig(name="mine"))
    run.append_metrics({"step": 1, "reward": 0.25})
    run.set_status("finished", step=1)
    answer = client.predict(api_name="/list_runs")
    (listed,) = answer["runs"]
    assert answer["more"] == 0
    assert (listed["run"], listed["state"], listed["scheme"]) == ("mine", "finished", "process")
    first = client.predict(run="mine", api_name="/read_metrics")
    assert first["rows"] == [{"step": 1, "reward": 0.25}]
    run.append_metrics({"step": 2, "reward": 0.5})
    second = client.predict(run="mine", cursor=first["cursor"], api_name="/read_metrics")
    assert second["rows"] == [{"step": 2, "reward": 0.5}]


@pytest.mark.parametrize(
    ("function", "asked", "message"),
    [
        (
            "/sample",
            {"prompt": "a", "num_generations": 1},
            "sampling.num_generations: must be at least 2",
        ),
        ("/sample", {"prompt": "a", "policy": "/no/such"}, "there is no folder '/no/such'"),
        ("/score", {"group": {}, "rewards": ["tag_format"]}, "not a group as sample gives it"),
        ("/score", {"group": {"prompt": "p", "rollouts": [{"text": "a"}]}, "rewards": ["tag_format"]}, "'completion'"),
        ("/score", {"group": {}, "rewards": ["os.system"]}, "there is no built-in reward 'os.system'"),
        ("/assign_credit", {"step_rewards": [[1.0]], "step_ends": [], "lengths": []}, ""),
        ("/read_metrics", {"run": "../../etc"}, "cannot be a run's name"),
        ("/read_metrics", {"run": "never"}, "there is no run 'never'"),
    ],
)
def test_what_is_wrong_comes_back_in_words(client: Client, function: str, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(AppError) as error:
        client.predict(**asked, api_name=function)
    assert message in str(error.value)
    assert "show_error" not in str(error.value)


# ── MCP ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def ask(client: TestClient, method: str, **params: Any) -> Any:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer = client.post("/gradio_api/mcp/", json=body, headers={"Accept": "application/json, text/event-stream"})
    assert answer.status_code == 200, answer.text
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith(("data: ", "{"))]
    return json.loads(lines[-1])["result"]


def test_mcp_offers_what_only_reads_and_to_the_owner_alone(tmp_path: Path) -> None:
    token = workspace_token(tmp_path)

    async def make() -> Any:
        return page.create_app(tmp_path, mcp=True)

    app = asyncio.run(make())
    with TestClient(app, base_url="http://127.0.0.1:7860") as client:
        assert client.post("/gradio_api/mcp/", json={}).status_code == 401
        client.headers["Authorization"] = f"Bearer {token}"
        client.headers["Origin"] = "https://evil.example"
        assert client.post("/gradio_api/mcp/", json={}).status_code == 403
        del client.headers["Origin"]
        tools = {tool["name"]: tool for tool in ask(client, "tools/list")["tools"]}
        assert tools.keys() == {"assign_credit", "list_runs", "read_metrics"}
        assert tools["read_metrics"]["inputSchema"]["properties"]["run"]["type"] == "string"

        def call(name: str, **arguments: Any) -> Any:
            result = ask(client, "tools/call", name=name, arguments=arguments)
            text = result["content"][0]["text"]
            return text if result.get("isError") else ast.literal_eval(text)  # Gradio writes Python

        rewards = {"step_rewards": WORKED_REWARDS, "step_ends": WORKED_ENDS, "lengths": [10, 9, 9]}
        credit = worked_credit()
        assert call("assign_credit", **rewards) == [credit.of(i).tolist() for i in range(3)]
        RunDir.create(tmp_path, RunConfig(name="mine")).append_metrics({"step": 1, "reward": 0.25})
        assert call("read_metrics", run="mine")["rows"] == [{"step": 1, "reward": 0.25}]
        assert [run["run"] for run in call("list_runs")["runs"]] == ["mine"]
        assert "never" in call("read_metrics", run="never")


def test_a_group_to_sample_is_given_up_when_nobody_listens(services: Services) -> None:
    """Gradio closes what a function yields from once its caller has gone."""
    given_up = threading.Event()

    def sample(*args: Any, on_event: Callable[[Any], None], cancelled: Callable[[], bool], **options: Any) -> None:
        on_event({"waiting": "samples 64 answers of up to 4,096 tokens"})
        while not cancelled():
            threading.Event().wait(0.01)
        given_up.set()

    services.models.sample = sample  # type: ignore[assignment]
    answers = api.Api(services).sample("1 + 1")
    assert next(answers)["status"] == "asking the policy"
    assert "64 answers" in next(answers)["status"]
    answers.close()  # type: ignore[attr-defined]
    assert given_up.wait(60)


@pytest.mark.filterwarnings("ignore")  # Gradio's own, of pandas, after each event
def test_a_call_whose_stream_is_never_opened_is_given_up_and_the_queue_has_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "REPEAT_SECONDS", 0.05)
    monkeypatch.setattr(blocks, "UNHEARD_SECONDS", 1.0)
    monkeypatch.setattr(page, "LONGEST_QUEUE", 3)
    sampling, given_up = threading.Semaphore(0), threading.Semaphore(0)

    def sample(self: Any, *args: Any, cancelled: Callable[[], bool], **options: Any) -> None:
        sampling.release()
        while not cancelled():
            threading.Event().wait(0.01)
        given_up.release()

    monkeypatch.setattr(ModelWorker, "sample", sample)

    async def make() -> Any:
        return page.create_app(tmp_path)

    with TestClient(asyncio.run(make()), base_url="http://127.0.0.1:7860") as client:
        client.headers["Authorization"] = f"Bearer {workspace_token(tmp_path)}"

        def post() -> int:
            data = ["1 + 1", "tiny", 2, 8, 1.0, 0, {}]
            return client.post("/gradio_api/call/sample", json={"data": data}).status_code

        for _ in range(4):  # as many as sample at once
            assert post() == 200
            assert sampling.acquire(timeout=60)
        assert [post() for _ in range(4)] == [200, 200, 200, 503]
        assert all(given_up.acquire(timeout=60) for _ in range(4))


@pytest.mark.parametrize("lengths", [[10**9], [1] * 9 + [10**6], [2**31, 5], [0, 10**12]])
def test_a_group_too_large_to_be_credited_is_refused_before_a_table_is_made(
    lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.credit.assign_credit", lambda *args, **options: pytest.fail("made one"))
    empty: list[Any] = [[] for _ in lengths]
    with pytest.raises(ConfigError) as refused:
        api.Api.assign_credit(empty, empty, lengths, "process", None, {})
    assert f"{max(lengths) * len(lengths):,}" in str(refused.value)
    assert f"{api.MOST_TOKENS:,}" in str(refused.value)
