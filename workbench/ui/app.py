"""The page, put together and served: Gradio's widgets, our scripts, and nothing from anywhere else.

The process that serves the page imports neither torch nor trl; policies, users' code and runs live in processes of
their own. ``launch`` serves on this machine only unless told otherwise.
"""

import ctypes
import gc
import json
import logging
import os
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import gradio as gr
import uvicorn
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import FileResponse
from jinja2 import ChoiceLoader, DictLoader
from starlette.middleware.trustedhost import TrustedHostMiddleware

from workbench.errors import WorkbenchError
from workbench.runs import default_workspace, processes
from workbench.ui.api import Api
from workbench.ui.blocks import Page, Sessions
from workbench.ui.door import LOOPBACK_NAMES, TOKEN_FILE, Door, workspace_token
from workbench.ui.downloads import add_downloads
from workbench.ui.handlers import example, help, page_state, session
from workbench.ui.handlers.runs import inherited
from workbench.ui.public import STYLE, PublicServices, Requests, close
from workbench.ui.tabs.form import (
    ASSETS,
    LAST,
    PRIVATE,
    READ_KEPT,
    SCRIPT,
    Form,
    Updates,
    bind,
    element,
    facts_value,
)
from workbench.ui.tabs.inspect import (
    POLICIES,
    build_inspect,
    opening,
    opening_outputs,
    policies_offered,
    wire_inspect,
)
from workbench.ui.tabs.runs import build_runs, build_train, wire_run_actions, wire_train
from workbench.ui.theme import theme
from workbench.views import cards, page_link

TITLE = "Process-GRPO workbench"
LOOP = "sample → split into steps → score each → normalise in the group → token advantages → train"
LINKED_TABS = ("inspect", "train", "runs", "help")
SHOW_PAGE = "() => { document.documentElement.dataset.opened = ''; return 'shown'; }"
"""Until then the style sheet hides all below the header: the answer to the page's opening sets the controls to what the
browser tab kept or a link says, and would overwrite what somebody typed before it."""
SHOW_TRAIN = "() => { const tab = document.getElementById('train-tab-button'); tab.click(); tab.focus(); }"
FIRST_SCRIPT = "frames.js"
"""Runs before Gradio's scripts."""
SHEET = f'<link rel="stylesheet" href="{ASSETS}/{{}}">'
STYLES = ("fonts.css", "heatmap.css", "page.css", "curves.css", "runs.css")
PLOTLY = "plotly-basic.min.js"
"""Fetched by ``curves.js`` once there is a curve to draw."""


def files() -> dict[str, Path]:
    """The style sheets, typefaces and Plotly, which the page may fetch, by name; no other path is served."""
    assets = Path(__file__).parent / "assets"
    sheets = [path for folder in (cards.FOLDER, cards.FOLDER / "drawing", assets) for path in folder.glob("*.css")]
    return {
        path.name: path
        for path in (*sheets, *(cards.FOLDER / "fonts").glob("*.woff2"), cards.FOLDER / "plotly" / PLOTLY)
    }


def build(services: session.Services, *, mcp: bool = False) -> gr.Blocks:
    """The widgets and what they do, and the API."""
    with Page(title=TITLE, analytics_enabled=False, fill_width=True, delete_cache=UPLOADS_LOOKED_AT) as page:
        Api(services).register(mcp=mcp)  # before events of the same names

        element(
            "header",
            "header",
            json.dumps({"title": TITLE, "loop": LOOP}),
            server_functions=bind([example.policy_status], services),
        )
        first = example.first_draft()
        form = Form(draft=gr.State(page_state.Tab(first)), first=first, bound={}, leaves={}, methods={}, schemes={})
        form.estimates = services.estimates
        form.undo_notes, form.sent, form.replaced = [], gr.Textbox("", visible=False), element("replaced", "replaced")
        with gr.Tabs(elem_id="pages") as tabs:
            with gr.Tab("Inspect", id="inspect", elem_id="inspect-tab") as inspect_tab:
                build_inspect(form, services)
            with gr.Tab("Train", id="train", elem_id="train-tab") as train_tab:
                build_train(form, services)
            with gr.Tab("Runs", id="runs", elem_id="runs-tab"):
                runs = build_runs(services)
            with gr.Tab("Help", id="help", elem_id="help-tab"):
                element(
                    "help",
                    "help",
                    json.dumps(help.guide(str(services.workspace / TOKEN_FILE), "{origin}")),
                    server_functions=bind([help.live], services),
                )
        wire_inspect(form, services)
        is_shown = gr.Textbox("", visible=False)  # changed at the end of the page's opening
        wire_train(form, services, (is_shown.change, train_tab.select))
        wire_run_actions(form, tabs, [form.train.live, runs], services)
        # By then there may be other runs, whose policies are offered.
        offered = [form.bound[path] for path in POLICIES]
        inspect_tab.select(
            lambda: [gr.update(**policies_offered(services, path)) for path in POLICIES], None, offered, **LAST
        )

        def on_load(request: gr.Request, kept: str, tab: page_state.Tab) -> Updates:
            # The tab that a link names, or that shows what the link is about.
            parameters = request.query_params or {}
            about = "train" if "run" in parameters else "runs" if "runs" in parameters else None
            wanted = parameters["tab"] if parameters.get("tab") in LINKED_TABS else about
            draft, updates = opening(services, form, request, kept or "", tab)
            updates |= {form.train.inherited: facts_value(inherited(draft))}
            return updates | ({tabs: gr.Tabs(selected=wanted)} if wanted else {})

        opening_event = page.load(
            on_load,
            [form.sent, form.draft],
            [*opening_outputs(form), tabs, form.train.inherited],
            js=READ_KEPT,
            queue=False,
            **PRIVATE,
        )
        for ended in (opening_event.then, opening_event.failure):  # Gradio calls only the latter after an error
            ended(None, None, is_shown, js=SHOW_PAGE, **PRIVATE)
        train_tab.select(processes.prepare, None, None, queue=False, **PRIVATE)
        form.open_train.click(None, None, None, js=SHOW_TRAIN, **PRIVATE)
        form.check.click(None, None, None, js="() => Workbench.checkSetup()", **PRIVATE)
    return page


def create_app(
    workspace: Path | str | None = None,
    *,
    token: str | None = None,
    login: str | None = None,
    names: Collection[str] = LOOPBACK_NAMES,
    proxies: Collection[str] = (),
    mcp: bool = False,
    public: bool = False,
    framed_by: Collection[str] = (),
) -> FastAPI:
    """The whole application, for uvicorn to serve; it answers to ``names`` only, see ``door.Door``.

    A ``public`` page lets everybody in, without a token, to what ``public.allowed`` says; ``framed_by`` are origins of
    sites that may show it in a frame.

    ``token`` is by default the workspace's own, to be sent as a cookie or a header; "" lets everybody in. ``mcp``
    serves the API's functions that only read or compute as tools of the Model Context Protocol, at /gradio_api/mcp.

    Raises WorkbenchError if ``mcp`` is asked for and its package is not installed.
    """
    if mcp and find_spec("mcp") is None:
        raise WorkbenchError("--mcp needs the package mcp, which is not installed; pip install 'mcp<2'")
    services = (PublicServices if public else session.Services)(Path(workspace) if workspace is not None else None)
    if token is None:
        token = "" if public else workspace_token(services.workspace)
    # Read by Gradio while it builds: files that are uploaded, and all it serves at file=, are the workspace's.
    os.environ["GRADIO_TEMP_DIR"] = str(services.workspace / session.UPLOADS)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            services.close()

    _call_allocator("mallopt", *FEW_ARENAS)
    app = FastAPI(lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None)
    app.state.services = services
    sessions = Sessions()
    _insert_first((Path(__file__).parent / "assets" / FIRST_SCRIPT).read_text(encoding="utf-8"))
    if public:
        app.add_middleware(Requests)
    # Added last, they stand before all others.
    app.add_middleware(Door, token=token or None, login=login, proxies=proxies, framed_by=framed_by)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=[*names, *proxies], www_redirect=False)
    _add_assets(app)
    add_downloads(app, services)
    page = build(services, mcp=mcp)
    if public:
        close(page)

    def left(request: gr.Request) -> None:
        tab = request.session_hash or ""
        services.leave(tab)
        sessions.close(tab)
        _call_allocator("malloc_trim", 0)

    with page:
        page.unload(left)
    # Gradio looks for queued events every millisecond, which takes a page that nobody uses 5 % of a core.
    page._queue.sleep_when_free, page._queue.max_size = QUEUE_TICK, LONGEST_QUEUE
    page.api_open = False  # past the queue there is no limit, and nobody hears that a caller has gone
    mounted: FastAPI = gr.mount_gradio_app(
        app,
        page,
        path="/",
        footer_links=[],
        run_history=False,
        show_error=True,
        ssr_mode=False,
        mcp_server=mcp,
        pwa=False,
        enable_monitoring=False,
        theme=theme(),
        head="".join(SHEET.format(name) for name in (*STYLES, *([STYLE] if public else []))),
    )
    sessions.keep_those_of(mounted)
    return mounted


def _call_allocator(name: str, *arguments: int) -> None:
    """Call one of glibc's functions for its heap, where the C library has it."""
    with suppress(AttributeError):
        getattr(ctypes.CDLL(None), name)(*arguments)


def _insert_first(script: str) -> None:
    """Have Gradio's page begin with a script, for which it has no place: its template is read with the script in it."""
    environment, name = gr.routes.templates.env, "frontend/index.html"
    text = environment.loader.get_source(environment, name)[0]
    if script not in text:
        environment.loader = ChoiceLoader(
            [DictLoader({name: text.replace("<head>", f"<head><script>{script}</script>", 1)}), environment.loader]
        )


def _add_assets(app: FastAPI) -> None:
    """The page's own scripts and style sheets."""
    served = files()
    script = f"globalThis.Workbench ??= {cards.bundle(Path(__file__).parent / 'assets' / SCRIPT)};\n"
    version = f'"{sha256(script.encode()).hexdigest()[:16]}"'

    @app.get(f"/{ASSETS}/{SCRIPT}")
    def page_script(request: Request) -> Response:
        unchanged = request.headers.get("If-None-Match") == version
        return Response(
            "" if unchanged else script,
            304 if unchanged else 200,
            {"Cache-Control": "no-cache", "ETag": version},
            "text/javascript",
        )

    @app.get(f"/{ASSETS}/{{name}}")
    def asset(name: str) -> FileResponse:
        if name not in served:
            raise HTTPException(404)
        # Asked for again on every load, answered with 304 while the file is the same.
        return FileResponse(served[name], headers={"Cache-Control": "no-cache"})


FEW_ARENAS = -8, 2
"""glibc's M_ARENA_MAX: by default it keeps eight heaps a core, each as large as the largest group that was opened."""
UPLOADS_LOOKED_AT = 3600, 24 * 3600
"""Every how many seconds uploads are removed that are how many seconds old; all are when the page ends."""
QUEUE_TICK = 0.02
"""Seconds between two looks at Gradio's queue, in which sampling, estimates and the start of a run wait."""
LONGEST_QUEUE = 100
"""Calls that wait in it; one more is refused."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
WILDCARDS = ("", "0.0.0.0", "::")


def launch(
    host: str = "127.0.0.1",
    port: int = page_link.PORT,
    workspace: Path | str | None = None,
    open_browser: bool = False,
    *,
    login: str | None = None,
    token: bool = True,
    allow_hosts: Collection[str] = (),
    mcp: bool = False,
    public: bool = False,
    framed_by: Collection[str] = (),
    announce: Callable[[str], None] = lambda link: print(f"{TITLE}: {link}", flush=True),
) -> None:
    """Serve the page until interrupted. ``announce`` is told the link once it answers.

    Whoever can reach the page can run Python on this machine. On this machine's own loopback the token in the link
    says who may (``token`` False: everybody with an account here may). On any other address a ``login`` is needed,
    because a link gets around and that choice should be made on purpose. A ``public`` page needs neither.

    Raises WorkbenchError when the port is taken, or the host is not loopback and there is no login and the page not
    public.
    """
    if public:
        token, login = False, None
    elif host not in LOOPBACK and (login is None or not token):
        raise WorkbenchError(
            f"--host {host or 'with no name'} would let others on the network run code here; add --auth NAME:PASSWORD "
            "(or set WORKBENCH_AUTH), or keep 127.0.0.1 and reach it through an SSH tunnel "
            "(ssh -L 7860:127.0.0.1:7860)"
        )
    port = page_link.free_port(host, port)
    folder = (Path(workspace) if workspace is not None else default_workspace()).resolve()
    secret = workspace_token(folder) if token else ""
    shown = f"[{host}]" if ":" in host else host
    own = ("*",) if host in WILDCARDS else (host, shown)  # a login or nothing to lose: see above
    app = create_app(
        folder,
        token=secret,
        login=login,
        names=(*LOOPBACK_NAMES, *own),
        proxies=allow_hosts,
        mcp=mcp,
        public=public,
        framed_by=framed_by,
    )
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,  # it would hold the links' tokens
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    address = f"http://{'127.0.0.1' if host in WILDCARDS else shown}:{port}/"
    link = f"{address}?token={secret}" if secret else address

    def on_start() -> None:
        announce(link)
        if open_browser:
            # What a browser is started with can be seen by everybody on this machine: it is given a file that leads on.
            leads = folder / "open.html"
            leads.touch(0o600)
            leads.write_text(f'<meta http-equiv="refresh" content="0;url={link}">', encoding="ascii")
            threading.Thread(target=webbrowser.open, args=[leads.as_uri()], daemon=True).start()

    # uvicorn ends well on SIGTERM and then raises it again, which by default ends the process before the link is gone.
    with suppress(ValueError):  # not the main thread, which alone gets signals
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with page_link.announced(folder, link):
            _Server(config, on_start).run()
    finally:
        gc.freeze()  # or Python looks through all there is for garbage before it ends, which takes seconds


class _Server(uvicorn.Server):
    """Says so once it answers."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Open pages hold a connection each; ending them is no error worth a traceback.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        await super().shutdown(sockets)
