"""Visitors of a public Space: every door is asked as a forged request would ask it, and refuses with a reason."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.drafts import draft_of
from tests.stored_runs import store
from workbench.cli.page import Place, place_of
from workbench.config import SamplingConfig
from workbench.config.run import RunConfig
from workbench.errors import ConfigError, WorkbenchError
from workbench.schema import Example
from workbench.ui import app as page
from workbench.ui.handlers import api, models, run_follow, run_setup
from workbench.ui.handlers.draft import Draft
from workbench.ui.handlers.example import first_draft, first_group
from workbench.ui.handlers.judges import add_judge
from workbench.ui.handlers.run_setup import rows_found
from workbench.ui.handlers.sampling import sample
from workbench.ui.handlers.session import Services
from workbench.ui.handlers.task_rows import preview, read_as
from workbench.ui.handlers.tree import with_path
from workbench.ui.handlers.visitors import FOLDER, REMEDY, Limits, Visitors, tokens_of
from workbench.ui.visits import COOKIE, MOST_BYTES

ROOT = Path(__file__).parents[1]
ADA, BOB = "a" * 32, "b" * 32
LIMITS = Limits()
CODE = "def mine(prompt, step, **columns):\n    return 1.0\n"
EXTERNAL = {"base_url": "http://127.0.0.1:9/v1", "model": "m"}


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    services = Services(tmp_path, lambda: ADA)
    yield services
    services.close()


def visiting(draft: Draft) -> Draft:
    return replace(draft, limits=LIMITS)


def changed(path: str, value: Any) -> Draft:
    """The page as it opens, with a setting as no widget would set it."""
    draft = visiting(draft_of())
    return replace(draft, tree=with_path(draft.tree, path, value))


# ── runs ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_page_as_it_opens_is_a_visitors_run_with_every_method() -> None:
    for name in ("grpo", "ppo", "sft", "dpo", "reward", "prm"):
        LIMITS.check_run(RunConfig.parse({"method": name}))
    LIMITS.check_run(visiting(first_draft()).config())
    LIMITS.check_run(RunConfig.parse({"policy": "run:mine@20", "task": "gsm8k", "optimiser": {"learning_rate": 1e-3}}))


REFUSED_RUNS: list[tuple[str, dict[str, Any]]] = [
    ("policy.path", {"policy": "Qwen/Qwen2.5-0.5B-Instruct"}),
    ("policy.path", {"policy": "/etc"}),
    ("policy.adapter", {"policy": {"path": "tiny", "adapter": "/etc"}}),
    ("policy.trust_remote_code", {"policy": {"path": "tiny", "trust_remote_code": True}}),
    ("policy.lora", {"policy": {"path": "tiny", "lora": {"r": 8}}}),
    ("task.name", {"task": "hub:openai/gsm8k"}),
    ("task.name", {"task": "/etc/passwd"}),
    ("task.data", {"method": "sft", "task": {"data": "/etc/passwd"}}),
    ("task.filter", {"task": {"filter": "answer != ''"}}),
    ("run.steps", {"run": {"steps": 91}}),
    ("run.epochs", {"run": {"epochs": 2}}),
    ("run.ranks", {"run": {"ranks": 2}}),
    ("run.report_to", {"run": {"report_to": ["wandb"]}}),
    ("run.eval_prompts", {"run": {"eval_prompts": 201}}),
    ("rows of a step", {"method": {"prompts_per_step": 9}}),
    ("method.trl", {"method": {"trl": {"push_to_hub": True}}}),
    ("method.resample_flat", {"method": {"resample_flat": 4}}),
    ("num_generations", {"method": {"sampling": {"num_generations": 17}}}),
    ("max_completion_length", {"method": {"sampling": {"max_completion_length": 257}}}),
    ("environment.max_turns", {"task": "calculator", "environment": {"name": "calculator", "max_turns": 9}}),
    ("environment.code", {"environment": {"name": "mine", "code": "class mine:\n    pass\n"}}),
    ("mine", {"method": {"rewards": [{"name": "mine", "code": CODE}]}}),
    ("judge", {"method": {"rewards": [{"name": "judge", "judge": EXTERNAL}]}}),
    (
        "prm",
        {"method": {"rewards": [{"name": "prm", "model": {"path": "Qwen/Qwen2.5-Math-PRM-7B", "format": "extra-0"}}]}},
    ),
    ("values", {"method": {"rewards": [{"name": "values", "monte_carlo": {"continuations": 4}}]}}),
]


@pytest.mark.parametrize(
    ("named", "data"), REFUSED_RUNS, ids=[f"{name} {i}" for i, (name, _) in enumerate(REFUSED_RUNS)]
)
def test_a_run_beyond_the_limits_is_refused_with_its_field_and_a_remedy(named: str, data: dict[str, Any]) -> None:
    with pytest.raises(WorkbenchError, match="visitor") as refused:
        LIMITS.check_run(RunConfig.parse(data))
    assert named in str(refused.value)
    assert REMEDY in str(refused.value)


def test_tokens_of_a_run_are_counted_at_their_full_length() -> None:
    config = RunConfig.parse(
        {
            "method": {"prompts_per_step": 2, "sampling": {"num_generations": 4, "max_completion_length": 10}},
            "run": {"steps": 8, "eval_steps": 4, "eval_prompts": 5, "watch_every": 4, "watch_prompts": 1},
        }
    )
    # 8 steps of 8 completions, 2 + 2 measures of 5, 2 + 2 looks at 4, of 10 tokens each
    assert tokens_of(config) == (64 + 20 + 16) * 10


# ── the page's doors ─────────────────────────────────────────────────────────────────────────────────────────────


def notes(views: Any) -> str:
    return " ".join(view.note.text for view in views if view.note is not None)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("policy.path", "Qwen/Qwen2.5-0.5B-Instruct"),
        ("policy.adapter", "/etc"),
        ("policy.quantisation", "8bit"),
        ("method.sampling.num_generations", 64),
        ("method.sampling.max_completion_length", 4096),
    ],
)
def test_sampling_and_training_refuse_what_a_forged_form_holds(path: str, value: Any, services: Services) -> None:
    draft = changed(path, value)
    assert REMEDY in notes(sample(draft, services, "tab"))
    started, note = run_setup.start_run(draft, services)
    assert started is None
    assert note is not None
    assert REMEDY in note.text
    assert services.models.status().state == "off"


def test_a_reference_of_the_hub_is_refused(services: Services) -> None:
    assert REMEDY in notes(sample(replace(visiting(draft_of()), reference="org/model"), services, "tab"))


@pytest.mark.parametrize("name", ["hub:openai/gsm8k", "/etc/passwd", "../../x"])
def test_tasks_are_the_shipped_ones_from_every_door(name: str) -> None:
    draft = visiting(draft_of())
    with pytest.raises(ConfigError, match="read no files"):
        draft.task_section(name)
    with pytest.raises(ConfigError, match="read no files"):
        read_as(draft, name, draft)
    assert "read no files" in preview(changed("task.name", name))
    data = replace(changed("task.data", name), tree={**changed("task.data", name).tree, "method": {"name": "sft"}})
    note = rows_found(data)
    assert note is not None
    assert "read no files" in note.text


def test_judges_and_models_are_refused(services: Services) -> None:
    assert REMEDY in add_judge(EXTERNAL, "step", (None,), -1, services).text  # type: ignore[union-attr]
    form = models.ModelForm("org/reward-model", "classifier", "", 1.0, True)
    assert REMEDY in notes(models.load_model(form, (None,), services, "tab"))
    with pytest.raises(WorkbenchError, match="load no models"):
        services.path_of("org/model")


# ── limits of a visitor ──────────────────────────────────────────────────────────────────────────────────────────


def test_tokens_of_an_hour_come_back_after_it(tmp_path: Path) -> None:
    visitors = Visitors(tmp_path, lambda: ADA, Limits(sampled_an_hour=100))
    visitors.spend(60, now=0.0)
    with pytest.raises(ConfigError, match=r"at most 100 tokens an hour; this would be 41 beside the 60 so far.*60 min"):
        visitors.spend(41, now=1.0)
    visitors.spend(40, now=1.0)
    visitors.spend(60, now=3601.5)


def test_visitors_do_not_share_their_tokens(tmp_path: Path) -> None:
    asks = [ADA]
    visitors = Visitors(tmp_path, lambda: asks[0], Limits(sampled_an_hour=100))
    visitors.spend(100)
    asks[0] = BOB
    visitors.spend(100)


def test_one_run_at_a_time_and_a_few_of_all(tmp_path: Path) -> None:
    asks = [ADA]
    visitors = Visitors(tmp_path, lambda: asks[0], Limits(all_runs=2))
    visitors.admit()
    store(visitors.workspace(), "first", state="queued", made=2e9)
    with pytest.raises(ConfigError, match="1 run at a time"):
        visitors.admit()
    asks[0] = BOB
    visitors.admit(RunConfig())
    store(visitors.workspace(), "second", state="queued", made=2e9)
    asks[0] = "c" * 32
    with pytest.raises(ConfigError, match="2 runs of visitors train or wait"):
        visitors.admit()


def test_each_visitor_has_a_workspace_and_an_old_one_goes(tmp_path: Path) -> None:
    asks = [ADA]
    services = Services(tmp_path, lambda: asks[0])
    store(services.workspace, "mine")
    assert [row["run"] for row in api.list_runs(services)["runs"]] == ["mine"]
    asks[0] = BOB
    assert api.list_runs(services) == {"runs": [], "more": 0}
    assert run_follow.resume(services, "mine")["level"] == "error"
    services.groups.keep(first_group())
    assert services.visitors is not None
    services.visitors.sweep(now=1e12)
    assert list((tmp_path / FOLDER).iterdir()) == []
    asks[0] = "../../etc"
    with pytest.raises(WorkbenchError, match="no visitor"):
        _ = services.workspace
    services.close()


def test_the_owner_has_everything(tmp_path: Path) -> None:
    services = Services(tmp_path)
    assert services.visitors is None
    assert services.limits is None
    assert services.workspace == tmp_path.resolve()
    assert services.path_of("org/model") == "org/model"
    assert services.refusal("open no files") == ""
    services.close()


# ── where the page is ────────────────────────────────────────────────────────────────────────────────────────────

SPACE = {"SPACE_ID": "ada/workbench", "SPACE_HOST": "ada-workbench.hf.space,example.org"}


def test_a_space_is_for_visitors_unless_its_owner_says_otherwise() -> None:
    names = ("ada-workbench.hf.space", "example.org")
    assert place_of(SPACE) == Place(True, "0.0.0.0", names, ("https://huggingface.co",))
    assert place_of({**SPACE, "WORKBENCH_VISITORS": "off"}) == Place(False, "0.0.0.0", names)
    assert place_of(SPACE, "off").visitors is False
    assert place_of({}) == Place(False)
    assert place_of({}, "on") == Place(True)
    with pytest.raises(ConfigError, match="set it to on or off"):
        place_of({"WORKBENCH_VISITORS": "perhaps"})


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """The real application as a Space serves it: HTTPS ends at the proxy, and huggingface.co frames the page."""
    host = "ada-workbench.hf.space"

    async def make() -> Any:  # Gradio makes locks while it is built, and leaves a loop open where none is running
        return page.create_app(
            tmp_path_factory.mktemp("space"), proxies=[host], visitors=True, framed_by=["https://huggingface.co"]
        )

    app = asyncio.run(make())
    with TestClient(app, base_url=f"http://{host}", follow_redirects=False) as client:
        yield client


def test_a_visitor_is_let_in_framed_and_gets_a_cookie(served: TestClient) -> None:
    framed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
    answer = served.get("/", headers={"Accept": "text/html", **framed})
    assert answer.status_code == 200
    assert "x-frame-options" not in answer.headers
    assert "frame-ancestors https://huggingface.co" in answer.headers["content-security-policy"]
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE}=")
    assert "SameSite=None; Secure; Partitioned" in cookie
    assert served.get("/", headers={"Cookie": f"{COOKIE}={ADA}"}).headers.get("set-cookie") is None
    foreign = {"Origin": "https://huggingface.co", "Cookie": f"{COOKIE}={ADA}"}
    assert served.post("/gradio_api/queue/join", json={}, headers=foreign).status_code == 403


def test_files_and_long_requests_stop_at_the_door(served: TestClient) -> None:
    for path in ("/gradio_api/upload", "/upload", "/gradio_api/file=/etc/passwd", "/gradio_api/deep_link"):
        answer = served.post(path, content=b"x") if "file" not in path else served.get(path)
        assert (answer.status_code, REMEDY in answer.text) == (403, True), path
    long = served.post("/gradio_api/queue/join", content=b"x" * (MOST_BYTES + 1))
    assert long.status_code == 403
    assert "at most 2,000,000" in long.text


@pytest.mark.filterwarnings("ignore:'future.no_silent_downcasting':DeprecationWarning")  # Gradio's queue sets it
def test_two_visitors_see_their_own_runs(served: TestClient) -> None:
    """Over HTTP as the page does: a queued event and a download, each with the visitor's own cookie."""
    root = served.app.state.services.root  # type: ignore[attr-defined]
    store(root / FOLDER / ADA, "mine")

    def runs_of(visitor: str) -> str:
        headers = {"Cookie": f"{COOKIE}={visitor}", "x-workbench-visitor": ADA}  # forged: replaced at the door
        event = served.post("/gradio_api/call/list_runs", json={"data": []}, headers=headers).json()["event_id"]
        return served.get(f"/gradio_api/call/list_runs/{event}", headers=headers).text

    assert '"mine"' in runs_of(ADA)
    assert '"mine"' not in runs_of(BOB)
    statuses = [
        served.get("/workbench-runs/mine.json", headers={"Cookie": f"{COOKIE}={visitor}"}).status_code
        for visitor in (ADA, BOB)
    ]
    assert statuses == [200, 404]
    refused = served.get("/workbench-runs/mine/script.zip", headers={"Cookie": f"{COOKIE}={ADA}"})
    assert (refused.status_code, REMEDY in refused.text) == (404, True)


def test_sampling_limits_are_charged_on_the_server(services: Services) -> None:
    assert services.visitors is not None
    services.visitors.spend(LIMITS.sampled_an_hour)
    with pytest.raises(ConfigError, match="tokens an hour"):
        services.models.sample("tiny", Example("1 + 1"), SamplingConfig())
