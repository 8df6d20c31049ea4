"""The process that speaks to judges, ``python -m workbench.rewards.judges.worker``, started by ``client``.

It has the environment's key, and runs nobody's code.
"""

from __future__ import annotations

import dataclasses
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from workbench.errors import RewardError
from workbench.rewards.judges.judge import Question, judged
from workbench.rewards.judges.store import Store
from workbench.sandbox.child import Emitter, heartbeat, serve
from workbench.sections import JudgeConfig

REACHED_SECONDS = 3.0
_stores: dict[Path, Store] = {}


def handle(request: dict[str, Any], emit: Emitter) -> dict[str, Any]:
    """``judge`` questions, or see whether anything listens at the endpoint (``reach``)."""
    config = JudgeConfig.model_validate(request["config"])
    if request["do"] == "reach":
        _reach(config)
        return {}
    folder = Path(request["folder"])
    store = _stores[folder] if folder in _stores else _stores.setdefault(folder, Store(folder))
    questions = [Question(*question) for question in request["questions"]]
    done = [0, len(questions)]

    def on_progress(*counts: int) -> None:
        done[:] = counts

    with heartbeat(emit, lambda seconds: {"done": done[0], "total": done[1], "seconds": seconds}):
        result = judged(request["name"], config, questions, store, request["scope"], on_progress=on_progress)
    verdicts = [[dataclasses.astuple(verdict) for verdict in verdicts] for verdicts in result.verdicts]
    return {"verdicts": verdicts, "calls": result.calls}


def _reach(config: JudgeConfig) -> None:
    parts = urlsplit(config.base_url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), REACHED_SECONDS).close()
    except ConnectionRefusedError as error:
        raise RewardError(f"judge.base_url: nothing listens at {config.base_url}; start the server first") from error
    except OSError:  # a slow network, or one that is reached through a proxy alone: the run will see
        return


def main() -> None:
    serve(handle)


if __name__ == "__main__":
    main()
