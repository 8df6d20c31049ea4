"""What stands before the page: every request, of HTTP and of WebSockets alike, is either its owner's or refused.

In this order, the first that fails answers:

1. **Host** must be a name the page goes by (403), or a site could point its own name at this machine and read along.
2. **Origin**, where a browser sends one, must be the page's own (403), and ``Sec-Fetch-Site`` must not say that another
   site's document asks for a part of ours; so no other page can send requests with its visitor's cookie.
3. **A link with a token** gives the cookie and leads on to the same address without the token, which is thus in no
   history, bookmark or Referer.
4. **Cookie or token** must be there (401, with a page that says where to find the link).

Forwarding headers are taken off: they would let a request choose the address the page believes it has. Answers get
headers that deny framing, sniffing and, by a Content-Security-Policy, every script that is not the page's own.

Written against the ASGI interface alone (https://asgi.readthedocs.io), because ready-made middleware either buffers
streams or does not see WebSockets. What a token is worth is ``access``'s business.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import math
import re
from collections.abc import Collection
from html import escape
from html.parser import HTMLParser
from urllib.parse import parse_qs, parse_qsl, quote, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request, cookie_parser
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from workbench.ui.access import Access

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
"""Host names that always mean this machine; any port, as an SSH tunnel's end may have another."""
ANY_ADDRESS = "*"
"""Among the names: any numeric address, which no foreign site can have as its name."""
COOKIE_SECONDS = 30 * 24 * 3600
LOGIN_BYTES = 4096
LOGINS_WAITING = 8

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9.-]{1,253})(?::\d{1,5})?")
_ADDRESS = re.compile(r"\[.*\]|\d{1,3}(?:\.\d{1,3}){3}")
_SAFE_METHODS = frozenset({"GET", "HEAD"})
_FORWARDING = (b"forwarded", b"x-real-ip")

# Gradio compiles the scripts of its HTML elements with `new Function`, hence 'unsafe-eval'; it sets styles from script
# and draws check marks from data: images; what is inline in its page is let through by its hash. Plotly's pictures are
# blob: images. Nothing may come from or go to another machine.
_CSP = (
    "default-src 'self'; script-src 'self' 'unsafe-eval'{hashes}; script-src-attr 'none'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; object-src 'none'; frame-src 'none'; "
    "base-uri 'self'; form-action 'self'; frame-ancestors {framed_by}"
)
_OWN_CSP = (
    "default-src 'none'; style-src 'unsafe-inline'; font-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
TYPEFACE = "/workbench-assets/inter-latin.woff2"
"""What the guard's own pages are set in: the one file that is given to whoever asks."""
_HEADERS = {
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    # Not no-referrer: that makes a page's own beacons carry the Origin "null".
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), display-capture=()",
}


class Guard:
    """ASGI middleware. ``names`` are the hosts it answers to: LOOPBACK_NAMES, others as written in a URL, ANY_ADDRESS.

    ``proxies`` are names under which somebody's proxy shows the page, so that the browser's Origin is theirs.
    ``penalty`` is how many seconds a wrong password takes to be answered. Logins are tried one after the other, right
    or wrong, in one line of at most ``LOGINS_WAITING``; further ones are turned away untried. ``first_script`` is put
    into the page before its own scripts, where the framework that renders it has no place for one. ``framed_by`` are
    origins of sites that may show a page in a frame that nobody logs in to.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        *,
        names: Collection[str] = LOOPBACK_NAMES,
        proxies: Collection[str] = (),
        penalty: float = 0.5,
        first_script: str = "",
        framed_by: Collection[str] = (),
    ) -> None:
        self.app = app
        self.framed_by = tuple(framed_by)
        self.first_script = first_script
        self.access = access
        self.proxies = frozenset(name.lower() for name in proxies)
        self.names = frozenset(name.lower() for name in names) | self.proxies
        self._penalty = penalty
        self._line = asyncio.Lock()
        self._waiting = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        answer = await self._answer(scope, receive)
        if answer is None:
            await self.app(_cleaned(scope), receive, _Finishing(scope, send, self.first_script, self.framed_by))
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": "refused"})
        else:
            await answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response | None:
        """What to answer instead of the page, if anything."""
        headers = Headers(scope=scope)
        problem = self._foreign(scope, headers)
        if problem is not None:
            return _own(PlainTextResponse(f"Refused: {problem}\n", 403))
        if scope["type"] == "http":
            if scope["method"] == "GET" and (token := _query(scope).get("token")) is not None:
                return self._exchange(scope, headers, token)
            if scope["method"] == "POST" and scope["path"] == "/login" and self.access.login is not None:
                return await self._login(scope, receive, headers)
            if scope["method"] == "GET" and scope["path"] == TYPEFACE:
                return None
        return None if self._admits(headers) else self._locked(scope, headers)

    # -- whose request it is --------------------------------------------------------------------------------------

    def _foreign(self, scope: Scope, headers: Headers) -> str | None:
        """What shows that the request was made by or through another site."""
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        match = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
        if match is None or not self._answers_to(match["name"].lower()):
            return "this is not a name that the workbench goes by. Open 127.0.0.1, or start it with --allow-host NAME."
        if origins and not (len(origins) == 1 and self._own_origin(scope, origins[0], hosts[0])):
            return "the request comes from another site's page."
        site = headers.get("sec-fetch-site", "none")
        if site in ("cross-site", "same-site") and not self._is_navigation(scope, headers):
            return "another site's page asks for a part of this one."
        return None

    def _answers_to(self, name: str) -> bool:
        return name in self.names or (ANY_ADDRESS in self.names and _ADDRESS.fullmatch(name) is not None)

    def _own_origin(self, scope: Scope, origin: str, host: str) -> bool:
        scheme, _, netloc = origin.partition("://")
        secure = scope["scheme"] in ("https", "wss")
        if netloc.lower() == host.lower() and scheme == ("https" if secure else "http"):
            return True
        match = _HOST.fullmatch(netloc)
        return scheme in ("http", "https") and match is not None and match["name"].lower() in self.proxies

    def _admits(self, headers: Headers) -> bool:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.access.takes_token(token.strip()):
            return True
        cookie = cookie_parser(headers.get("cookie", "")).get(self.access.cookie_name, "")
        return self.access.takes_cookie(cookie)

    # -- ways in --------------------------------------------------------------------------------------------------

    def _exchange(self, scope: Scope, headers: Headers, token: str) -> Response:
        """A link's token for a cookie. An old link of somebody who is in already leads on as well."""
        known = self.access.takes_link(token)
        if not known and not self._admits(headers):
            return self._locked(scope, headers, "The link's token is not this workbench's.")
        where = _clean_address(scope)
        if headers.get("sec-fetch-site") == "cross-site":
            # The browser keeps a strict cookie back while it follows another site's link; from a page of ours it
            # sends it.
            response: Response = HTMLResponse(
                _page("Opening …", f'<a href="{escape(where)}">Open it</a>', onward=where)
            )
        else:
            response = RedirectResponse(where, 303)
        if known:
            self._give_cookie(scope, response)
        return _own(response)

    async def _login(self, scope: Scope, receive: Receive, headers: Headers) -> Response:
        form = await _form(Request(scope, receive))
        if self._waiting >= LOGINS_WAITING:
            answer = PlainTextResponse("Too many logins at once. Try again in a few seconds.\n", 429)
            answer.headers["Retry-After"] = str(math.ceil(LOGINS_WAITING * self._penalty))
            return _own(answer)
        if not await self._tried(form.get("username", ""), form.get("password", "")):
            return self._locked(scope, headers, "Name or password is wrong.")
        html = "text/html" in headers.get("accept", "")
        response: Response = RedirectResponse("/", 303) if html else PlainTextResponse("You are in.\n")
        self._give_cookie(scope, response)
        return _own(response)

    async def _tried(self, name: str, password: str) -> bool:
        """Whether name and password are right, once those that came before have been tried."""
        self._waiting += 1
        try:
            async with self._line:
                right = self.access.takes_login(name, password)
                if not right:
                    await asyncio.sleep(self._penalty)
        finally:
            self._waiting -= 1
        return right

    def _give_cookie(self, scope: Scope, response: Response) -> None:
        response.set_cookie(
            self.access.cookie_name,
            self.access.cookie_value,
            max_age=COOKIE_SECONDS,
            httponly=True,
            samesite="strict",
            secure=scope["scheme"] == "https",
        )

    def _is_navigation(self, scope: Scope, headers: Headers) -> bool:
        """Somebody followed a link to the page, which is what links are for, or opened a site that may frame it."""
        shown_as = ("document", "iframe") if self.framed_by else ("document",)
        document = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") in shown_as
        return scope["type"] == "http" and scope["method"] in _SAFE_METHODS and document

    def _locked(self, scope: Scope, headers: Headers, problem: str = "") -> Response:
        """401, with the way in."""
        if "text/html" not in headers.get("accept", ""):
            text = f"{problem or 'The workbench asks for its token.'} {_HOW_TO}".strip()
            return _own(PlainTextResponse(text + "\n", 401))
        form = _LOGIN_FORM if self.access.login is not None else ""
        again = '<p class="again"><a href="/">Try again</a></p>'
        words = f"<p>{escape(problem)}</p><p>Open the link that the terminal printed.</p>{form}{again}"
        return _own(HTMLResponse(_page("This workbench is locked", words), 401))


class _Finishing:
    """``send`` that adds the headers; the page's own HTML is held back until its scripts' hashes are known."""

    def __init__(self, scope: Scope, send: Send, first_script: str, framed_by: Collection[str]) -> None:
        self._send = send
        self._framed_by = " ".join(framed_by)
        self._head = f"<head><script>{first_script}</script>".encode()
        self._scope = scope
        self._start: Message | None = None
        self._body: list[bytes] = []

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
            if self._framed_by:
                del headers["X-Frame-Options"]
            if headers.get("content-type", "").startswith("text/html") and "content-encoding" not in headers:
                self._start = message
                return
            headers["Content-Security-Policy"] = self._csp()
        elif message["type"] == "http.response.body" and self._start is not None:
            self._body.append(message.get("body", b""))
            if message.get("more_body"):
                return
            body = b"".join(self._body).replace(b"<head>", self._head, 1)
            headers = MutableHeaders(scope=self._start)
            headers["Content-Length"] = str(len(body))
            headers["Content-Security-Policy"] = self._csp(script_hashes(body.decode("utf-8", "replace")))
            headers.setdefault("Cache-Control", "no-store")
            await self._send(self._start)
            self._start = None
            message = {"type": "http.response.body", "body": body}
        await self._send(message)

    def _csp(self, hashes: str = "") -> str:
        return _CSP.format(hashes=hashes, framed_by=self._framed_by or "'none'")


class _InlineScripts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag == "script" and "src" not in dict(attrs)
        if self._inside:
            self.found.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.found[-1] += data


def script_hashes(html: str) -> str:
    """The sources ``'sha256-…'`` of a page's inline scripts, each after a space, as a policy lists them."""
    parser = _InlineScripts()
    parser.feed(html.replace("\r\n", "\n").replace("\r", "\n"))  # as a browser reads it
    parser.close()
    digests = (hashlib.sha256(text.encode()).digest() for text in parser.found if text)
    return "".join(f" 'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


def _cleaned(scope: Scope) -> Scope:
    """Without what a proxy would add, and without compression where the answer is read here."""
    html = scope["type"] == "http" and b"text/html" in dict(scope["headers"]).get(b"accept", b"")
    headers = [
        (name, value)
        for name, value in scope["headers"]
        if not name.startswith(b"x-forwarded-")
        and name not in _FORWARDING
        and not (html and name == b"accept-encoding")
    ]
    return {**scope, "headers": headers}


def _query(scope: Scope) -> dict[str, str]:
    return dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))


def _clean_address(scope: Scope) -> str:
    """Path and query without the token; always on this very host, whatever the path begins with."""
    path = "/" + quote(scope["path"].lstrip("/\\"), safe="/")
    query = urlencode([(name, value) for name, value in _query(scope).items() if name != "token"])
    address = f"{path}?{query}" if query else path
    assert not urlsplit(address).netloc
    return address


async def _form(request: Request) -> dict[str, str]:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > LOGIN_BYTES:
            return {}
    return {name: values[-1] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}


def _own(response: Response) -> Response:
    """An answer of the guard itself: never kept, and with no script at all."""
    for name, value in _HEADERS.items():
        response.headers[name] = value
    response.headers["Content-Security-Policy"] = _OWN_CSP
    response.headers["Cache-Control"] = "no-store"
    return response


_HOW_TO = "Open the link that the terminal printed, or send its token as 'Authorization: Bearer <token>'."
_LOGIN_FORM = (
    '<form method="post" action="/login"><label>Name <input name="username" autocomplete="username" required></label>'
    '<label>Password <input name="password" type="password" autocomplete="current-password" required></label>'
    "<button>Log in</button></form>"
)
_STYLE = (
    f"@font-face{{font-family:Inter;font-weight:100 900;font-display:swap;src:url({TYPEFACE})}}"
    ":root{color-scheme:light dark;--line:light-dark(#dfe3e8,#2b3038);--accent:light-dark(#4549c4,#9da0f5)}"
    "body{font:14px/1.5 Inter,system-ui,sans-serif;max-width:24em;margin:16vh auto;padding:0 16px;"
    "color:light-dark(#1b1f24,#e6e8eb);background:light-dark(#fff,#0e1013)}"
    "main{border:1px solid var(--line);border-radius:8px;padding:20px 24px}p{margin:0 0 10px}"
    "h1{font-size:18px;font-weight:600;letter-spacing:-.01em;margin:0 0 10px}a{color:var(--accent)}"
    "form{display:grid;gap:10px;margin:16px 0}label{display:grid;gap:2px;font-size:12px}"
    "input,button{font:14px/1.4 Inter,system-ui,sans-serif;padding:6px 10px;border:1px solid var(--line);"
    "border-radius:4px;background:none;color:inherit}"
    "button{background:light-dark(#1b1f24,#e6e8eb);color:light-dark(#fff,#0e1013);cursor:pointer;font-weight:500}"
    ":is(input,button,a):focus-visible{outline:2px solid var(--accent);outline-offset:1px}"
)


def _page(title: str, words: str, *, onward: str | None = None) -> str:
    refresh = f'<meta http-equiv="refresh" content="0;url={escape(onward)}">' if onward else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"{refresh}<title>{escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body><main><h1>{escape(title)}</h1>{words}</main></body></html>\n"
    )
