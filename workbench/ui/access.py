"""Who may use the page: whoever holds its token, and, where there is a login, whoever knows name and password.

The token is random and stays the same over restarts, in a file of the workspace that only its owner can read, so that
a page left open goes on working. A browser shows it once, in the link the terminal prints, and gets a cookie for it;
a script sends it as ``Authorization: Bearer <token>``. The cookie is made from token and login, so that changing
either ends every session. Secrets are compared in constant time.

Cookies know no ports: every server on the same host name is sent ours, so nobody else's page on this machine should
be opened in the same browser under 127.0.0.1 or localhost. This module knows nothing of HTTP beyond a cookie's value.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import threading
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import WorkbenchError

TOKEN_FILE = ".token"
LEAST_PASSWORD = 8
"""Characters a password must have."""
_TOKEN_BYTES = 32


@dataclass(frozen=True)
class Login:
    name: str
    password: str

    @classmethod
    def parse(cls, text: str) -> Login:
        """``NAME:PASSWORD``. Raises WorkbenchError, without repeating the password."""
        name, colon, password = text.partition(":")
        if not colon or not name:
            raise WorkbenchError("--auth takes NAME:PASSWORD, with a colon between the two")
        if len(password) < LEAST_PASSWORD:
            raise WorkbenchError(
                f"--auth: the password has {len(password)} characters; take at least {LEAST_PASSWORD}, as the page "
                "runs the Python that is typed into it"
            )
        return cls(name, password)


class Access:
    """What lets a request in. ``token`` None lets everybody in who reaches the page. Safe from any thread.

    Raises WorkbenchError for a login without a token, which nobody would be asked for.
    """

    def __init__(self, token: str | None, login: Login | None = None) -> None:
        if login is not None and token is None:
            raise WorkbenchError(
                "--auth (or WORKBENCH_AUTH) asks for a name and a password and --no-token lets everybody in; "
                "leave one of them out"
            )
        self.token = token
        self.login = login
        self._once: set[str] = set()
        self._lock = threading.Lock()

    @property
    def cookie_name(self) -> str:
        """Differs between workspaces, because two pages on two ports share one jar of cookies."""
        return f"workbench-{hashlib.sha256((self.token or '').encode()).hexdigest()[:12]}"

    @property
    def cookie_value(self) -> str:
        login = f"{self.login.name}:{self.login.password}" if self.login else ""
        return hmac.new((self.token or "").encode(), f"cookie\0{login}".encode(), hashlib.sha256).hexdigest()

    def one_time_token(self) -> str:
        """A token that is good for one exchange: for a link that other users of the machine may see, as in the
        arguments of the browser that is started with it."""
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        with self._lock:
            self._once.add(token)
        return token

    def takes_link(self, token: str) -> bool:
        """Whether a link with this token lets in; one that is good once is used up by this."""
        if self.token is None or _same(token, self.token):
            return True
        with self._lock:
            found = next((one for one in self._once if _same(token, one)), None)
            self._once.discard(found or "")
        return found is not None

    def takes_token(self, token: str) -> bool:
        return self.token is None or _same(token, self.token)

    def takes_cookie(self, value: str) -> bool:
        return self.token is None or _same(value, self.cookie_value)

    def takes_login(self, name: str, password: str) -> bool:
        if self.login is None:
            return False
        known = _same(name, self.login.name)
        return _same(password, self.login.password) and known  # both are always compared


def workspace_token(workspace: Path) -> str:
    """The workspace's token, made and kept with mode 0600 when there is none, or when others could read it.

    Raises WorkbenchError if the workspace cannot be written.
    """
    path = workspace / TOKEN_FILE
    try:
        workspace.mkdir(parents=True, exist_ok=True)
        return _read(path) or _make(path)
    except OSError as error:
        raise WorkbenchError(
            f"the page's token cannot be kept in {path}: {error.strerror}; choose another workspace with --workspace"
        ) from error


def _read(path: Path) -> str | None:
    """None for a file that is not there, not ours alone, or not a token."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError:
        if path.is_symlink():  # whoever put it there may read what it leads to
            return None
        raise
    with os.fdopen(descriptor, encoding="ascii", errors="replace") as file:
        state = os.fstat(descriptor)
        text = file.read(200).strip()
    private = state.st_uid == os.getuid() and not state.st_mode & 0o077
    return text if private and len(text) >= _TOKEN_BYTES and text.isascii() else None


def _make(path: Path) -> str:
    """Two that make one at a time end with the same: the link that names a token refuses to replace another."""
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(token + "\n")
        try:
            os.link(draft, path)
        except FileExistsError:
            if (other := _read(path)) is not None:
                return other
            os.replace(draft, path)
            return token
    finally:
        draft.unlink(missing_ok=True)
    return token


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), wanted.encode("utf-8", "surrogatepass"))
