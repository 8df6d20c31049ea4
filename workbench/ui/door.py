"""Answer whoever has the page's token or, if there is a login, knows name and password; refuse everybody else.

The token is random and kept in the workspace, so that a page left open goes on working after a restart. A browser
shows it once, in the link that the terminal prints, and gets a cookie for it; a script sends it as ``Authorization:
Bearer <token>``. A login is HTTP's own (Basic), which a browser asks for itself.

Starlette's ``TrustedHostMiddleware`` stands before this and refuses foreign host names, or a site could point its own
name at this machine. A request whose Origin is another site's is refused here, so that no other page can send one with
its visitor's cookie. Cookies know no ports: every server on the same host name is sent ours.
"""

import asyncio
import base64
import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from workbench.errors import WorkbenchError

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]", "::1")
TOKEN_FILE = ".token"
LEAST_PASSWORD = 8
"""Characters a password must have."""
COOKIE_SECONDS = 30 * 24 * 3600
PENALTY = 0.5
"""Seconds that a wrong password takes to be answered, one after the other; a right one waits for none of them."""
LONGEST_LINE = 60.0
"""Seconds that wrong passwords may have to wait in all; until they are answered no other is looked at."""
# Gradio compiles scripts with `new Function` and has some in its page; it sets styles from script and draws check marks
# from data: images; Plotly's pictures are blob: images; a group's picture has data: typefaces. Nothing may come from or
# go to another machine.
_CSP = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; object-src 'none'; base-uri 'self'; form-action 'self'; "
    "frame-ancestors {frames}"
)
_LOCKED = "Open the link that the terminal printed, or send its token as 'Authorization: Bearer <token>'.\n"


def read_login(text: str) -> str:
    """``NAME:PASSWORD`` as it is. Raises WorkbenchError, without repeating the password."""
    name, colon, password = text.partition(":")
    if not colon or not name:
        raise WorkbenchError("--auth takes NAME:PASSWORD, with a colon between the two")
    if len(password) < LEAST_PASSWORD:
        raise WorkbenchError(
            f"--auth: the password has {len(password)} characters; take at least {LEAST_PASSWORD}, as the page runs "
            "the Python that is typed into it"
        )
    return text


def workspace_token(workspace: Path) -> str:
    """The workspace's token, made with mode 0600 where there is none or where others could read it.

    Raises WorkbenchError if the workspace cannot be written.
    """
    path = workspace / TOKEN_FILE
    try:
        workspace.mkdir(parents=True, exist_ok=True)
        if path.is_symlink() or (path.exists() and path.stat().st_mode & 0o077):
            path.unlink()
        with suppress(FileExistsError):
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
                file.write(secrets.token_urlsafe(32))
        return path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise WorkbenchError(
            f"the page's token cannot be kept in {path}: {error.strerror}; choose another workspace with --workspace"
        ) from error


class Door:
    """ASGI middleware. ``token`` None lets everybody in. ``proxies`` are names under which somebody's proxy shows the
    page, so that the browser's Origin is theirs; ``framed_by`` are origins of sites that may show it in a frame."""

    def __init__(
        self,
        app: ASGIApp,
        token: str | None,
        login: str | None = None,
        *,
        proxies: Collection[str] = (),
        framed_by: Collection[str] = (),
    ) -> None:
        self.app, self.token, self.login = app, token, login
        self.proxies = frozenset(name.lower() for name in proxies)
        self._headers = {
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "same-origin",  # not no-referrer: a page's own beacons would have the Origin "null"
            "Cross-Origin-Opener-Policy": "same-origin",
            "Content-Security-Policy": _CSP.format(frames=" ".join(framed_by) or "'none'"),
        }
        self._answered = 0.0
        """When the last wrong password in line will have been, by the monotonic clock."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers[name] = value
                if headers.get("content-type", "").startswith("text/html"):
                    headers.setdefault("Cache-Control", "no-store")
            await send(message)

        answer = await self._answer(HTTPConnection(scope))
        if answer is None:
            await self.app(scope, receive, with_headers)
        else:
            await answer(scope, receive, with_headers)

    async def _answer(self, request: HTTPConnection) -> Response | None:
        """Return what to answer instead of the page, if anything."""
        origin = request.headers.get("origin")
        parts = urlsplit(origin or "")
        is_here = parts.netloc.lower() == request.headers.get("host", "").lower()
        is_own = parts.scheme in ("http", "https") and (is_here or (parts.hostname or "") in self.proxies)
        if origin is not None and not is_own:
            return PlainTextResponse("Refused: the request comes from another site's page.\n", 403)
        if (given := request.query_params.get("token")) is not None and request.scope.get("method") == "GET":
            return self._exchange(request, given)
        if self.token is None or self._has_token(request) or await self._has_login(request):
            return None
        headers = {"Cache-Control": "no-store"}
        if self.login is not None:
            headers["WWW-Authenticate"] = 'Basic realm="workbench", charset="UTF-8"'
        return PlainTextResponse(_LOCKED, 401, headers)

    @property
    def cookie(self) -> str:
        """Its name, which differs between workspaces: pages on two ports share one jar of cookies."""
        return f"workbench-{hashlib.sha256((self.token or '').encode()).hexdigest()[:12]}"

    def _has_token(self, request: HTTPConnection) -> bool:
        scheme, _, sent = request.headers.get("authorization", "").partition(" ")
        tokens = (request.cookies.get(self.cookie, ""), sent.strip() if scheme.lower() == "bearer" else "")
        return any(_same(token, self.token or "") for token in tokens)

    async def _has_login(self, request: HTTPConnection) -> bool:
        scheme, _, sent = request.headers.get("authorization", "").partition(" ")
        if self.login is None or scheme.lower() != "basic":
            return False
        now = time.monotonic()
        if self._answered - now > LONGEST_LINE:
            return False
        right = _same(sent.strip(), base64.b64encode(self.login.encode()).decode())
        if not right:
            self._answered = max(now, self._answered) + PENALTY
            await asyncio.sleep(self._answered - now)
        return right

    def _exchange(self, request: HTTPConnection, given: str) -> Response:
        """A link's token for a cookie, and on to the same address without it: it is in no history or bookmark then."""
        known = self.token is None or _same(given, self.token)
        if not known and not self._has_token(request):
            return PlainTextResponse(f"The link's token is not this workbench's. {_LOCKED}", 401)
        rest = urlencode([pair for pair in request.query_params.multi_items() if pair[0] != "token"])
        where = "/" + quote(request.scope["path"].lstrip("/\\"), safe="/")  # on this host
        response = RedirectResponse(f"{where}?{rest}" if rest else where, 303, {"Cache-Control": "no-store"})
        if known and self.token is not None:
            response.set_cookie(
                self.cookie,
                self.token,
                COOKIE_SECONDS,
                httponly=True,
                samesite="lax",
                secure=request.scope["scheme"] == "https",
            )
        return response


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(errors="surrogatepass"), wanted.encode(errors="surrogatepass"))
