"""The page, put together and served: Gradio's widgets, our scripts, and nothing from anywhere else.

The process that serves the page imports neither torch nor trl; policies, users' code and runs live in processes of
their own. ``launch`` serves on this machine only unless told otherwise.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import webbrowser
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

# Before gradio is imported: no usage statistics, no look-ups of newer versions.
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"

import gradio as gr
import uvicorn
from fastapi import FastAPI, HTTPException
from fastapi.responses import FileResponse
from starlette.middleware.trustedhost import TrustedHostMiddleware

from workbench import figures
from workbench.errors import WorkbenchError
from workbench.ui.handlers.session import Services
from workbench.ui.tabs.common import ASSETS, PRIVATE, drawn
from workbench.ui.tabs.inspect import build_inspect
from workbench.ui.tabs.inspect_events import first_drawing, wire_inspect
from workbench.ui.tabs.train import build_train, plotly_script
from workbench.ui.theme import theme

TITLE = "Process-GRPO workbench"
LOOP = "sample → split into steps → score each → normalise in the group → token advantages → train"
STYLES = ("heatmap.css", "page.css")


def files() -> dict[str, Path]:
    """The files the page may fetch, by name; no other path is served."""
    folders = (Path(figures.__file__).parent, Path(__file__).parent / "assets")
    found = {path.name: path for folder in folders for path in folder.glob("*.[cj]s*")}
    return {**found, "plotly.min.js": plotly_script()}


def build(services: Services) -> gr.Blocks:
    """The widgets and what they do."""
    with gr.Blocks(title=TITLE, analytics_enabled=False, fill_width=True) as page:

        def policy_status(request: Any) -> dict[str, Any]:
            status = services.policy.status()
            return {
                "state": status.state,
                "policy": status.policy,
                "seconds": status.seconds,
                "message": status.message,
                "device": status.device,
                "parameters": status.parameters,
            }

        header = json.dumps({"title": TITLE, "loop": LOOP})
        drawn("header", "WorkbenchPage.header", header, server_functions=[policy_status])
        with gr.Tabs(elem_id="pages") as tabs:
            with gr.Tab("Inspect", id="inspect", elem_id="inspect-tab"):
                inspect, aside = build_inspect(services)
                wire_inspect(inspect, aside, services)
            with gr.Tab("Train", id="train", elem_id="train-tab") as train_tab:
                train = build_train(services, inspect)

        def opened(request: gr.Request, *values: Any) -> list[Any]:
            wants_run = "run" in (request.query_params or {})
            selected = gr.Tabs(selected="train") if wants_run else gr.skip()
            return [*first_drawing(services, request, *values), selected, train.refresh(*values)]

        sources = train.refresh_inputs
        page.load(opened, sources, [inspect.drawing, aside.strip, tabs, train.inherited], queue=False, **PRIVATE)
        train_tab.select(train.refresh, sources, train.inherited, queue=False, **PRIVATE)
        inspect.train.click(lambda: gr.Tabs(selected="train"), None, tabs, queue=False, **PRIVATE).then(
            train.refresh, sources, train.inherited, queue=False, **PRIVATE
        )

        def left(request: gr.Request) -> None:
            services.leave(request.session_hash or "")

        page.unload(left)
    return page


def create_app(workspace: Path | str | None = None, *, hosts: list[str] | None = None) -> FastAPI:
    """The whole application, for uvicorn to serve. ``hosts`` are the names it answers to."""
    services = Services(Path(workspace) if workspace is not None else None)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            services.close()

    app = FastAPI(lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None)
    app.state.services = services
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts or ["127.0.0.1", "localhost", "testserver"])
    served = files()

    @app.get(f"/{ASSETS}/{{name}}")
    def asset(name: str) -> FileResponse:
        if name not in served:
            raise HTTPException(404)
        # Asked for again on every load, answered with 304 while the file is the same.
        return FileResponse(served[name], headers={"Cache-Control": "no-cache"})

    links = "".join(f'<link rel="stylesheet" href="{ASSETS}/{name}">' for name in STYLES)
    mounted: FastAPI = gr.mount_gradio_app(
        app,
        build(services),
        path="/",
        footer_links=[],
        run_history=False,
        show_error=True,
        ssr_mode=False,
        mcp_server=False,
        pwa=False,
        enable_monitoring=False,
        theme=theme(),
        head=links,
    )
    return mounted


LOOPBACK = ("127.0.0.1", "localhost", "::1")


def launch(
    host: str = "127.0.0.1",
    port: int = 7860,
    workspace: Path | str | None = None,
    open_browser: bool = False,
) -> None:
    """Serve the page until interrupted.

    Raises WorkbenchError when the port is taken, or the host is another than this machine's own loopback: the page runs
    the Python that is typed into it and asks for no password.
    """
    if host not in LOOPBACK:
        raise WorkbenchError(
            f"--host {host} would let others on the network run code here, and the page has no login; use 127.0.0.1, "
            "and an SSH tunnel (ssh -L 7860:127.0.0.1:7860) to reach it from another machine"
        )
    _check_free(host, port)
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{port}/"
    app = create_app(workspace, hosts=["127.0.0.1", "localhost", shown])
    config = uvicorn.Config(app, host=host, port=port, log_level="warning", timeout_graceful_shutdown=1)

    def announce() -> None:
        print(f"{TITLE}: {url}", flush=True)
        if open_browser:
            threading.Thread(target=webbrowser.open, args=[url], daemon=True).start()

    _Server(config, announce).run()


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


def _check_free(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise WorkbenchError(
                f"port {port} of {host} cannot be used ({error.strerror}); choose another with --port"
            ) from error
