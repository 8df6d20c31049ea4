"""``app``: the page; on a Space of Hugging Face a public one, unless its owner says otherwise.

Spaces set SPACE_ID (OWNER/NAME) and SPACE_HOST, the names their proxy answers to
(https://huggingface.co/docs/hub/spaces-overview#helper-environment-variables), and expect the page at port 7860 of any
address.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from workbench.cli.arguments import Result, Workspace
from workbench.errors import ConfigError, quote
from workbench.files import encode
from workbench.places import WORKSPACE
from workbench.views.page_link import PORT

VARIABLE = "WORKBENCH_PUBLIC"
FRAMED_BY = ("https://huggingface.co",)


def app(
    host: Annotated[str | None, "address to listen on; none for 127.0.0.1, on a Space 0.0.0.0"] = None,
    port: Annotated[int, "port to listen on"] = PORT,
    browser: Annotated[bool, "open a browser"] = True,
    auth: Annotated[
        str | None,
        "NAME:PASSWORD to ask for; needed on any other address (or set WORKBENCH_AUTH)",
    ] = None,
    token: Annotated[
        bool,
        "only who has the link; without it every account of this machine, on its loopback alone",
    ] = True,
    allow_host: Annotated[list[str], "answer to this name too, a proxy's say; repeatable"] = [],  # noqa: B006
    public: Annotated[
        bool | None,
        "let strangers in, without their code, files and models; none for $WORKBENCH_PUBLIC, else on a Space",
    ] = None,
    mcp: Annotated[bool, "serve the tools that only read, for MCP clients (needs the package mcp)"] = False,
    workspace: Workspace = None,
    as_json: bool = False,
) -> Result:
    """Open the workbench's page."""
    from workbench.ui.app import TITLE, launch
    from workbench.ui.door import read_login

    if workspace is not None:
        os.environ[WORKSPACE] = str(workspace)  # for the processes that load policies
    auth = auth or os.environ.get("WORKBENCH_AUTH")
    place = place_of(os.environ, public)
    launch(
        host=host or place.host or "127.0.0.1",
        port=port,
        workspace=workspace,
        open_browser=browser,
        login=read_login(auth) if auth else None,
        token=token,
        allow_hosts=(*allow_host, *place.names),
        mcp=mcp,
        public=place.public,
        framed_by=place.framed_by,
        announce=lambda link: print(encode({"url": link}).decode() if as_json else f"{TITLE}: {link}", flush=True),
    )
    return Result(None, lambda: "")


@dataclass(frozen=True)
class Place:
    """The way the page is served: to everybody or its owner, at which address, under which names, in whose frames."""

    public: bool
    host: str | None = None
    names: tuple[str, ...] = ()
    framed_by: tuple[str, ...] = ()


def place_of(environment: Mapping[str, str], public: bool | None = None) -> Place:
    """Return the place; ``public`` is what the command line says. Raises ConfigError for a word but on and off."""
    space = bool(environment.get("SPACE_ID"))
    word = environment.get(VARIABLE) or ("on" if space else "off")
    if word not in ("on", "off"):
        raise ConfigError(f"{VARIABLE} is {quote(word)}; set it to on or off")
    public = word == "on" if public is None else public
    if not space:
        return Place(public)
    names = tuple(name.strip() for name in environment.get("SPACE_HOST", "").split(",") if name.strip())
    return Place(public, "0.0.0.0", names, FRAMED_BY if public else ())
