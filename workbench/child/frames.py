"""Frames: packing, validation of what a child sends, and its errors as exceptions. Knows no processes."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from itertools import accumulate, pairwise
from typing import Any

from workbench import errors
from workbench.errors import ChildFailed, WorkbenchError

MAX_FRAME = 512 * 2**20
HEADER = struct.Struct(">I")
FDS = "WORKBENCH_CHILD_FDS"
"""The environment variable that tells a child its two pipes."""
READY = b"r"
"""What a zygote says once, when it can fork."""
MAX_TEXT = 20_000
"""Characters of each text of an error that are kept."""
_SCALARS = (str, int, float, bool, type(None))


class BadFrameError(Exception):
    """What came over the pipe is no frame; says how, to follow the child's name."""


def packed(frame: Mapping[str, Any]) -> bytes:
    """Raises ValueError for a frame over the limit or a value that JSON cannot hold."""
    # ASCII escapes carry lone surrogates, which UTF-8 refuses.
    body = json.dumps(frame, separators=(",", ":")).encode("ascii")
    if len(body) > MAX_FRAME:
        raise ValueError(f"a frame of {len(body)} bytes is over the limit of {MAX_FRAME}")
    return HEADER.pack(len(body)) + body


def packed_request(request: Mapping[str, Any], number: int) -> bytes:
    """The frame of a request. Its ``texts``, strings, follow the JSON as UTF-8, as long ones take JSON too long.

    Raises as ``packed`` does.
    """
    texts = "".join(request.get("texts", ()))
    raw = texts.encode("utf-8", "surrogatepass")
    if len(raw) > MAX_FRAME:
        raise ValueError(f"texts of {len(raw)} bytes are over the limit of {MAX_FRAME}")
    lengths = {"texts": [len(text) for text in request["texts"]]} if "texts" in request else {}
    return packed({"request": {**request, **lengths}, "id": number, "bytes": len(raw)}) + raw


def read_request(frame: dict[str, Any], raw: bytes) -> dict[str, Any]:
    """The request that ``packed_request`` packed."""
    request: dict[str, Any] = frame["request"]
    if "texts" in request:
        texts, ends = raw.decode("utf-8", "surrogatepass"), list(accumulate(request["texts"], initial=0))
        request["texts"] = [texts[start:end] for start, end in pairwise(ends)]
    return request


def unpacked(inbox: bytearray, limit: int, *, check: bool = True) -> list[dict[str, Any]]:
    """Remove and decode the complete frames of ``inbox``. Raises BadFrameError for a malformed one.

    ``check`` asks for the shapes of what a child sends.
    """
    frames = []
    while len(inbox) >= HEADER.size:
        (size,) = HEADER.unpack_from(inbox)
        if size > limit:
            raise BadFrameError(f"sent a frame of {size} bytes; the limit is {limit}")
        if len(inbox) < HEADER.size + size:
            break
        body = bytes(inbox[HEADER.size : HEADER.size + size])
        del inbox[: HEADER.size + size]
        try:
            frame = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise BadFrameError(f"sent a frame that is not JSON: {error}") from error
        if check and not _is_sound(frame):
            raise BadFrameError(f"sent a frame of unknown kind: {body[:80]!r}")
        frames.append(frame)
    return frames


def _is_sound(frame: Any) -> bool:
    if frame == {"ready": True}:
        return True
    if not isinstance(frame, dict) or len(frame) != 2 or type(frame.get("id")) is not int:
        return False
    (kind,) = frame.keys() - {"id"}
    content = frame[kind]
    if not isinstance(content, dict):
        return False
    return kind in ("event", "reply") or (kind == "error" and _is_error(content))


def _is_error(content: dict[str, Any]) -> bool:
    attributes = content.get("attributes")
    return (
        content.keys() == {"type", "message", "attributes", "traceback"}
        and all(isinstance(content[name], str) for name in ("type", "message", "traceback"))
        and isinstance(attributes, dict)
        and all(isinstance(value, _SCALARS) for value in attributes.values())
    )


def rebuilt(name: str, error: Mapping[str, Any]) -> WorkbenchError:
    """The exception that an error frame of the child called ``name`` stands for."""
    kind_name, message, traceback = (_shortened(error[key]) for key in ("type", "message", "traceback"))
    kind = getattr(errors, kind_name, None)
    if isinstance(kind, type) and issubclass(kind, WorkbenchError):
        try:
            return kind(message, **{key: _shortened(value) for key, value in error["attributes"].items()})
        except TypeError as unfit:
            return ChildFailed(f"{name} sent a {kind_name} with other attributes than it has: {_shortened(str(unfit))}")
    where = f"\n{traceback}" if traceback else ""
    return ChildFailed(f"{name} failed: {kind_name}: {message}{where}")


def _shortened(value: Any) -> Any:
    """Beginning and end of a text that is too long to show; any other value unchanged."""
    if not isinstance(value, str) or len(value) <= MAX_TEXT:
        return value
    half = MAX_TEXT // 2
    return f"{value[:half]} … {len(value) - 2 * half:,} characters left out … {value[-half:]}"


def is_json(value: Any) -> bool:
    """Whether a value can be sent in a frame."""
    if type(value) in _SCALARS:
        return True
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True
