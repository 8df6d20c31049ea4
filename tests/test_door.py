"""Whose requests the page answers: the real application, asked as a browser, a script or an attacker would."""

import asyncio
import os
import re
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from workbench.errors import WorkbenchError
from workbench.ui import app as page
from workbench.ui import door
from workbench.ui.door import LOOPBACK_NAMES, TOKEN_FILE, Door, read_login, workspace_token
from workbench.views.page_link import free_port, page_link

HOST = "127.0.0.1:7860"
HERE = f"http://{HOST}"
HTML = {"Accept": "text/html"}
LOGIN = "ada:correct horse"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workspace")


@pytest.fixture(scope="module")
def token(workspace: Path) -> str:
    return workspace_token(workspace)


def application(folder: Path, **options: Any) -> Any:
    async def make() -> Any:  # Gradio makes locks while it is built, and leaves a loop open where none is running
        return page.create_app(folder, **options)

    return asyncio.run(make())


@pytest.fixture(scope="module")
def served(workspace: Path) -> Iterator[Any]:
    app = application(workspace)
    yield app
    app.state.services.close()


@pytest.fixture
def stranger(served: Any) -> TestClient:
    """Somebody without a token."""
    return TestClient(served, base_url=HERE, follow_redirects=False)


@pytest.fixture
def owner(stranger: TestClient, token: str) -> TestClient:
    """The owner's browser: it has the cookie."""
    stranger.cookies.set(Door(the_page, token).cookie, token)
    return stranger


@pytest.fixture(scope="module")
def script(served: Any, token: str) -> Iterator[TestClient]:
    """The owner's script: it sends the token, to an application that is running."""
    with TestClient(served, base_url=HERE, headers={"Authorization": f"Bearer {token}"}) as client:
        yield client


# ── forged requests ──────────────────────────────────────────────────────────────────────────────────────────────

# What a page of another site can make the owner's browser send, cookie included.
WITH_THE_OWNERS_COOKIE = [
    ("GET", "/", {"Host": "evil.example"}),
    ("GET", "/", {"Host": "evil.example:7860"}),
    ("GET", "/", {"Host": "127.0.0.1.evil.example:7860"}),
    ("GET", "/", {"Host": "evil.example@127.0.0.1:7860"}),
    ("GET", "/", {"Host": "localhost.:7860"}),
    ("GET", "/", {"Host": "10.0.0.1:7860"}),
    ("GET", "/", {"Host": "evil.example", "X-Forwarded-Host": HOST}),
    ("GET", "/config", {"Host": "2130706433:7860"}),
    ("GET", "/", {"Host": f"{HOST}, evil.example"}),
    ("GET", "/", {"Host": ""}),
    ("GET", "/gradio_api/file=/etc/passwd", {"Host": "evil.example"}),
    ("POST", "/gradio_api/queue/join", {"Origin": "https://evil.example"}),
    ("POST", "/gradio_api/queue/join", {"Origin": "null"}),
    ("POST", "/gradio_api/queue/join", {"Origin": "http://127.0.0.1:9999"}),
    ("POST", "/gradio_api/queue/join", {"Origin": "http://127.0.0.1"}),
    ("POST", "/gradio_api/queue/join", {"Origin": "http://localhost:7860"}),
    ("POST", "/gradio_api/queue/join", {"Origin": f"{HERE}.evil.example"}),
    ("POST", "/gradio_api/queue/join", {"Origin": f"http://evil.example/{HOST}"}),
    ("POST", "/gradio_api/queue/join", {"Origin": f"http://{HOST}@evil.example"}),
    ("POST", "/gradio_api/queue/join", {"Origin": "file://"}),
    ("POST", "/gradio_api/queue/join", {"Origin": ""}),
    ("POST", "/gradio_api/upload", {"Origin": "https://evil.example"}),
    ("POST", "/gradio_api/component_server", {"Origin": "null"}),
    ("POST", "/gradio_api/run/predict", {"Origin": "http://127.0.0.1:9999"}),
    ("OPTIONS", "/gradio_api/queue/join", {"Origin": "http://localhost:3000", "Access-Control-Request-Method": "POST"}),
    ("GET", "/gradio_api/queue/data?session_hash=a", {"Origin": "https://evil.example"}),
    ("GET", "/gradio_api/mcp/sse", {"Origin": "https://evil.example"}),
]


@pytest.mark.parametrize(("method", "path", "headers"), WITH_THE_OWNERS_COOKIE)
def test_another_sites_requests_are_refused(owner: TestClient, method: str, path: str, headers: dict[str, str]) -> None:
    answer = owner.request(method, path, headers=headers)
    assert answer.status_code == (403 if "Origin" in headers else 400)
    assert "access-control-allow-origin" not in answer.headers


WITHOUT_A_TOKEN = [
    ("GET", "/", {}),
    ("HEAD", "/", {}),
    ("GET", "/?token=", {}),
    ("GET", "/?token=wrong", {}),
    ("GET", "/?run=a&token=TOKEN0", {}),  # the right one with something after it
    ("HEAD", "/?token=TOKEN", {}),
    ("POST", "/gradio_api/queue/join?token=TOKEN", {}),
    ("PUT", "/?token=TOKEN", {}),
    ("GET", "/TOKEN", {}),
    ("GET", "/", {"Authorization": "Bearer"}),
    ("GET", "/", {"Authorization": "Bearer wrong"}),
    ("GET", "/", {"Authorization": "Basic TOKEN"}),
    ("GET", "/", {"Authorization": "TOKEN"}),
    ("GET", "/", {"X-Token": "TOKEN"}),
    ("GET", "/", {"Cookie": "token=TOKEN"}),
    ("GET", "/", {"Cookie": "NAME="}),
    ("GET", "/", {"Cookie": "access-token=TOKEN; session=a"}),
    ("GET", "/", {"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": HOST, "X-Real-IP": "127.0.0.1"}),
    ("GET", "/", {"X-Original-URL": "/assets/a", "X-HTTP-Method-Override": "HEAD"}),
    ("GET", "/assets/index.js", {}),
    ("GET", "/workbench-assets/workbench.js", {}),
    ("GET", "/assets/../gradio_api/info", {}),
    ("GET", "//gradio_api/info", {}),
    ("GET", "/%2e%2e/%2e%2e/etc/passwd", {}),
    ("GET", "/config", {}),
    ("GET", "/theme.css", {}),
    ("GET", "/gradio_api/info", {}),
    ("GET", "/gradio_api/heartbeat/a", {}),
    ("GET", "/gradio_api/queue/data?session_hash=a", {}),
    ("GET", "/gradio_api/file=/etc/passwd", {}),
    ("GET", "/gradio_api/startup-events", {}),
    ("GET", "/gradio_api/mcp/sse", {}),
    ("POST", "/gradio_api/queue/join", {}),
    ("POST", "/gradio_api/upload", {}),
    ("DELETE", "/", {}),
    ("TRACE", "/", {}),
    ("PROPFIND", "/", {}),
]


@pytest.mark.parametrize(("method", "path", "headers"), WITHOUT_A_TOKEN)
def test_without_the_token_in_its_place_nothing_answers(
    stranger: TestClient, token: str, method: str, path: str, headers: dict[str, str]
) -> None:
    for word, value in {"TOKEN": token, "NAME": Door(the_page, token).cookie}.items():
        path = path.replace(word, value)
        headers = {name: text.replace(word, value) for name, text in headers.items()}
    answer = stranger.request(method, path, headers=headers)
    assert answer.status_code == 401
    assert token not in answer.text
    assert "set-cookie" not in answer.headers
    assert method == "HEAD" or "link that the terminal printed" in answer.text


@pytest.mark.parametrize(
    "headers", [{}, {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"}]
)
def test_websockets_are_guarded_too(stranger: TestClient, owner: TestClient, headers: dict[str, str]) -> None:
    client = owner if headers else TestClient(stranger.app, base_url=HERE)
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/gradio_api/ws", headers=headers):
        pytest.fail("a forged WebSocket was accepted")


# ── the owner ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_link_gives_a_cookie_and_leaves_no_token_behind(stranger: TestClient, token: str) -> None:
    answer = stranger.get(f"/?run=a&token={token}&step=3", headers=HTML)
    assert (answer.status_code, answer.headers["location"]) == (303, "/?run=a&step=3")
    assert {"HttpOnly", "SameSite=lax", "Path=/"} < set(answer.headers["set-cookie"].split("; "))
    assert answer.headers["referrer-policy"] == "same-origin"
    assert stranger.get("/?run=a&step=3", headers=HTML).status_code == 200  # with the cookie it was given
    # An old link opened again leads on, and changes nothing.
    again = stranger.get("/?token=of-last-week", headers=HTML)
    assert (again.status_code, again.headers["location"]) == (303, "/")
    assert "set-cookie" not in again.headers


@pytest.mark.parametrize("path", ["//evil.example/", "/\\evil.example/", "/%5Cevil.example/", "///evil.example/%2e%2e"])
def test_the_link_leads_nowhere_else(stranger: TestClient, token: str, path: str) -> None:
    answer = stranger.get(f"{HERE}{path}?token={token}")
    assert answer.status_code == 303
    assert re.match(r"/[^/\\]", answer.headers["location"])


def test_every_answer_denies_framing_sniffing_and_foreign_scripts(script: TestClient, served: Any) -> None:
    nobody = TestClient(served, base_url=HERE)
    for answer in (script.get("/", headers=HTML), script.get("/config"), nobody.get("/", headers=HTML)):
        assert answer.headers["x-content-type-options"] == "nosniff"
        policy = dict(part.strip().partition(" ")[::2] for part in answer.headers["content-security-policy"].split(";"))
        assert (policy["default-src"], policy["frame-ancestors"]) == ("'self'", "'none'")
        assert "http" not in answer.headers["content-security-policy"]


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "path",
    [
        "/gradio_api/file=/etc/passwd",
        "/gradio_api/file=..%2F..%2F..%2F..%2Fetc%2Fpasswd",
        "/gradio_api/file=%2Fetc%2Fpasswd",
        "/gradio_api/file=file:///etc/passwd",
        "/gradio_api/file=WORKSPACE/.token",
        "/gradio_api/file=WORKSPACE/uploads/../.token",
        "/gradio_api/file=workbench/ui/app.py",
        "/gradio_api/file=http://127.0.0.1:1/",
        "/workbench-assets/app.py",
        "/workbench-assets/..%2Fapp.py",
        "/workbench-assets/%2Fetc%2Fpasswd",
        "/workbench-assets/.token",
    ],
)
def test_no_other_file_is_served(script: TestClient, workspace: Path, path: str) -> None:
    answer = script.get(path.replace("WORKSPACE", str(workspace)))
    assert answer.status_code == (404 if "assets" in path else 403)


def test_an_upload_lands_in_the_workspace_under_its_basename(script: TestClient, workspace: Path) -> None:
    (path,) = script.post("/gradio_api/upload", files={"files": ("../../../x<b>.txt", b"hello")}).json()
    assert Path(path).parent.parent == workspace / "uploads"
    assert re.fullmatch(r"x[^/]*\.txt", Path(path).name)
    assert script.get(f"/gradio_api/file={path}").content == b"hello"
    assert not (workspace.parent / "x.txt").exists()


def test_uploads_go_when_the_page_ends(tmp_path: Path) -> None:
    with TestClient(application(tmp_path, token=""), base_url=HERE) as client:
        (path,) = client.post("/gradio_api/upload", files={"files": ("x.txt", b"hello")}).json()
        assert Path(path).exists()
    assert not Path(path).exists()


# ── the token's file ─────────────────────────────────────────────────────────────────────────────────────────────


def test_the_token_is_random_kept_and_the_owners_alone(tmp_path: Path) -> None:
    token = workspace_token(tmp_path / "a")
    path = tmp_path / "a" / TOKEN_FILE
    assert re.fullmatch(r"[\w-]{43}", token)  # 32 bytes in base64
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [workspace_token(tmp_path / name) == token for name in "ab"] == [True, False]
    assert os.listdir(tmp_path / "a") == [TOKEN_FILE]


@pytest.mark.parametrize("spoil", ["readable by others", "a link"])
def test_a_token_others_may_know_is_replaced(tmp_path: Path, spoil: str) -> None:
    old = workspace_token(tmp_path)
    path = tmp_path / TOKEN_FILE
    if spoil == "readable by others":
        path.chmod(0o644)
    else:
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    assert workspace_token(tmp_path) != old
    assert (path.is_symlink(), stat.S_IMODE(path.stat().st_mode)) == (False, 0o600)


# ── Gradio's own requests ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("queue/join", {"fn_index": 99_999}),
        ("queue/join", {"fn_index": -1}),
        ("run/predict", {"fn_index": 10**30}),
        ("call/nothing", {}),
        ("component_server", {"component_id": 99_999, "fn_name": "x"}),
    ],
)
def test_a_function_that_the_page_does_not_have_is_not_found(
    script: TestClient, path: str, body: dict[str, Any]
) -> None:
    answer = script.post(f"/gradio_api/{path}", json={"data": [], "session_hash": "a", **body})
    assert (answer.status_code, "reload it" in answer.json()["detail"]) == (404, True)


# ── elsewhere than on loopback ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.1.2", "workbench.example"])
@pytest.mark.parametrize("how", [{}, {"login": LOGIN, "token": False}])
def test_other_addresses_are_refused_without_a_login(tmp_path: Path, host: str, how: dict[str, Any]) -> None:
    with pytest.raises(WorkbenchError, match="--auth"):
        page.launch(host=host, workspace=tmp_path, **how)
    assert not (tmp_path / TOKEN_FILE).exists()


def launched(
    monkeypatch: pytest.MonkeyPatch, tell: Callable[[str], None] = lambda link: None, **how: Any
) -> SimpleNamespace:
    """What ``launch`` would serve, and the links it gives; ``tell`` hears of each."""
    got = SimpleNamespace(links=[], opened=[])

    def server(config: Any, announce: Any) -> SimpleNamespace:
        got.config = config
        return SimpleNamespace(run=announce)

    def thread(target: Any, args: list[str], daemon: bool) -> SimpleNamespace:
        return SimpleNamespace(start=lambda: got.opened.extend(args))

    monkeypatch.setattr(page, "_Server", server)
    monkeypatch.setattr(page, "create_app", lambda workspace, **what: vars(got).update(what=what))
    monkeypatch.setattr(page.page_link, "free_port", lambda host, port: port)
    monkeypatch.setattr(page, "threading", SimpleNamespace(Thread=thread))

    def announce(link: str) -> None:
        got.links.append(link)
        tell(link)

    page.launch(announce=announce, **how)
    return got


def test_with_a_login_it_listens_everywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    got = launched(monkeypatch, host="0.0.0.0", workspace=tmp_path, login=LOGIN, allow_hosts=["wb.example"])
    assert (got.config.host, got.what["login"], got.what["proxies"]) == ("0.0.0.0", LOGIN, ["wb.example"])
    assert set(got.what["names"]) == {*LOOPBACK_NAMES, "*"}


def test_neither_log_nor_another_process_sees_the_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    got = launched(monkeypatch, workspace=tmp_path, open_browser=True)
    token = workspace_token(tmp_path)
    assert got.links == [f"http://127.0.0.1:7860/?token={token}"]
    assert not got.config.access_log
    file = Path(got.opened[0].removeprefix("file://"))
    assert (token in str(file), token in file.read_text()) == (False, True)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_page_that_is_asked_to_end_takes_its_link_along(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """uvicorn raises the signal again that ended it."""
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a page that does not mind it shall not end the tests
    seen: list[str | None] = []

    def announce(link: str) -> None:
        seen.append(page_link(tmp_path))
        signal.raise_signal(signal.SIGTERM)

    try:
        with pytest.raises(SystemExit) as ended:
            launched(monkeypatch, workspace=tmp_path, tell=announce)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended.value.code == 128 + signal.SIGTERM
    assert seen == [f"http://127.0.0.1:7860/?token={workspace_token(tmp_path)}"]
    assert page_link(tmp_path) is None


def test_without_a_token_the_other_checks_stay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    got = launched(monkeypatch, workspace=tmp_path, token=False)
    assert (got.links, got.what["token"]) == (["http://127.0.0.1:7860/"], "")
    client = behind(None)
    assert client.get("/").text == "the page"
    assert client.get("/", headers={"Origin": "null"}).status_code == 403


def behind(token: str | None, login: str | None = None, **how: Any) -> TestClient:
    return TestClient(Door(the_page, token, login, **how), base_url=HERE, follow_redirects=False)


async def the_page(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"the page"})


def test_a_login_is_http_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "PENALTY", 0)
    client = behind("t" * 43, LOGIN)
    assert client.get("/").headers["www-authenticate"].startswith("Basic ")
    assert "www-authenticate" not in behind("t" * 43).get("/").headers
    name, _, password = LOGIN.partition(":")
    assert client.get("/", auth=(name, password)).text == "the page"
    for wrong in ((name, "wrong"), ("eve", password), ("", "")):
        assert client.get("/", auth=wrong).status_code == 401
    assert client.get("/", auth=(name, password), headers={"Origin": "https://evil.example"}).status_code == 403
    assert behind("t" * 43).get("/", auth=(name, password)).status_code == 401


def test_a_right_password_waits_for_no_wrong_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 10 s a wrong one, and a minute in all."""
    clock, waits = SimpleNamespace(now=100.0), list[float]()

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(door, "PENALTY", 10.0)
    monkeypatch.setattr(door, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(door, "asyncio", SimpleNamespace(sleep=sleep))
    client, (name, _, password) = behind("t" * 43, LOGIN), LOGIN.partition(":")
    assert [client.get("/", auth=(name, "wrong")).status_code for _ in range(3)] == [401] * 3
    assert client.get("/", auth=(name, password)).text == "the page"
    assert waits == [10, 20, 30]
    # Over a minute of them: nothing more is looked at until some are answered.
    for _ in range(9):
        client.get("/", auth=(name, "wrong"))
    assert waits == [10, 20, 30, 40, 50, 60, 70]
    assert client.get("/", auth=(name, password)).status_code == 401
    clock.now += 10
    assert client.get("/", auth=(name, password)).text == "the page"


@pytest.mark.parametrize("text", ["ada", ":12345678", "ada:short"])
def test_a_login_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(WorkbenchError, match="--auth") as refused:
        read_login(text)
    assert "short" not in str(refused.value).replace("shorter", "")
    assert read_login("ada:a:b:c:d:e") == "ada:a:b:c:d:e"


def test_a_proxys_origin_is_taken_where_it_is_named() -> None:
    client = behind(None, proxies=["WB.example"])
    for fine in ("https://wb.example", "https://wb.example:8443", HERE):
        assert client.get("/", headers={"Origin": fine}).status_code == 200
    assert client.get("/", headers={"Origin": "https://other.example"}).status_code == 403


@pytest.mark.parametrize("port", [-1, 99_999, 2**40])
def test_a_port_that_is_none_is_refused(port: int) -> None:
    with pytest.raises(WorkbenchError, match=rf"port {port} "):
        free_port("127.0.0.1", port)
