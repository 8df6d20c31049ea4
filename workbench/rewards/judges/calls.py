"""Requests to an OpenAI-compatible endpoint: POST /chat/completions, sent again where that may help.

The key is read from the environment for each request, goes into its header and nowhere else: what is said of a failure
is cut, and the key taken out of it. Redirections are not followed, as they would hand the key to another server.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import random
import time
import urllib.request
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from workbench.errors import RewardError
from workbench.redact import REDACTED, redact
from workbench.sections import JudgeConfig

PASSING = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
"""Statuses after which the same request may succeed."""
LONGEST_PAUSE = 60.0
_LARGEST = 8 * 2**20  # bytes of an answer
_SAID = 300  # characters of what a server says
_ADVICE = {
    400: "; is it a setting that this endpoint does not know (judge.extra, temperature)?",
    401: "; is the key in {variable} right?",
    403: "; is the key in {variable} right?",
    404: "; check judge.base_url (it often ends in /v1) and judge.model",
}


class _PassingError(Exception):
    """A failure that may pass; ``pause`` is how long the server asks to wait."""

    def __init__(self, said: str, pause: float | None = None) -> None:
        super().__init__(said)
        self.pause = pause


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def key_of(config: JudgeConfig) -> str | None:
    """The endpoint's key. Raises RewardError for a variable that is not set."""
    if config.key_variable is None:
        return None
    key = os.environ.get(config.key_variable, "").strip()
    if not key:
        raise RewardError(
            f"judge.key_variable: the environment has no {config.key_variable}; set it before the workbench starts, or "
            "leave the field out for an endpoint that wants no key"
        )
    return key


def complete(
    config: JudgeConfig,
    body: Mapping[str, Any],
    *,
    count: Callable[[], None],
    pause: Callable[[float], None] = time.sleep,
) -> str:
    """What the model answers. ``count`` is called before each request, and may refuse it by raising.

    Raises RewardError, naming the endpoint and what it said, for what does not pass.
    """
    key = key_of(config)
    for attempt in range(config.retries + 1):
        count()
        try:
            return _sent(config, body, key)
        except _PassingError as error:
            if attempt == config.retries:
                tries = f"{attempt + 1} times" if attempt else "once"
                raise RewardError(
                    f"judge {config.model!r} at {config.base_url} gave no answer; it was asked {tries}: "
                    f"{_without(key, str(error))}; is it up? judge.retries and judge.timeout say how long to try"
                ) from error
            backoff = 2.0**attempt * random.uniform(0.5, 1.0)
            pause(min(LONGEST_PAUSE, backoff if error.pause is None else max(error.pause, 0.1)))
    raise AssertionError


def _sent(config: JudgeConfig, body: Mapping[str, Any], key: str | None) -> str:
    headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "workbench"}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    url = f"{config.base_url}/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with _opener(url).open(request, timeout=config.timeout) as response:
            return _answer(config, _read(response, config.timeout), key)
    except HTTPError as error:
        with error:
            said = f"status {error.code}: {_said(error)}"
        if error.code in PASSING:
            raise _PassingError(said, _asked_pause(error.headers.get("Retry-After"))) from error
        advice = _ADVICE.get(error.code, "").format(
            variable=config.key_variable or "judge.key_variable, which is unset,"
        )
        if 300 <= error.code < 400:
            advice = f"; it redirects to {error.headers.get('Location', 'nowhere')[:200]}: put that into judge.base_url"
        where = f"judge {config.model!r} at {config.base_url}"
        raise RewardError(f"{where} refused: {_without(key, said)}{advice}") from None
    except TimeoutError as error:
        raise _PassingError(f"no answer in {config.timeout:g} s") from error
    except (URLError, OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            raise _PassingError(f"no answer in {config.timeout:g} s") from error
        raise _PassingError(str(reason) or type(reason).__name__) from error


def _read(response: Any, seconds: float) -> bytes:
    """The whole of an answer, which may not trickle in for longer than one may take to begin."""
    until, data = time.monotonic() + seconds, bytearray()
    while chunk := response.read1(1 << 16):
        data += chunk
        if len(data) > _LARGEST:
            raise _PassingError(f"an answer of over {_LARGEST >> 20} MB")
        if time.monotonic() > until:
            raise TimeoutError
    return bytes(data)


def _answer(config: JudgeConfig, data: bytes, key: str | None) -> str:
    try:
        message = json.loads(data)["choices"][0]["message"]
        content = message["content"] or ""
        return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        said = _without(key, data[:_SAID].decode("utf-8", "replace"))
        raise RewardError(
            f"judge at {config.base_url}: {said!r} is no chat completion; is judge.base_url that of an "
            "OpenAI-compatible endpoint?"
        ) from error


def _opener(url: str) -> urllib.request.OpenerDirector:
    """Through the environment's proxy, but never to this machine itself."""
    proxies = urllib.request.ProxyHandler({}) if _is_local(url) else urllib.request.ProxyHandler()
    return urllib.request.build_opener(proxies, _NoRedirects)


def _is_local(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _said(error: HTTPError) -> str:
    """What the server says in words, of the JSON that most put it in."""
    try:
        text = error.read(1 << 16).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        return error.reason
    try:
        said = json.loads(text)["error"]
        text = said["message"] if isinstance(said, Mapping) else str(said)
    except (ValueError, LookupError, TypeError, RecursionError):
        pass
    return " ".join(str(text).split())[:_SAID] or str(error.reason)


def _asked_pause(header: str | None) -> float | None:
    """Seconds that Retry-After asks for, in either of its forms."""
    if header is None:
        return None
    try:
        return float(header)
    except ValueError:
        pass
    try:
        return parsedate_to_datetime(header).timestamp() - time.time()
    except (TypeError, ValueError):
        return None


def _without(key: str | None, text: str) -> str:
    return redact(text if key is None else text.replace(key, REDACTED))
