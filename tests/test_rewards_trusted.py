"""Rewards that were trusted to leave the seal: what they may do, what is asked before, and where it is recorded."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from workbench.config import RewardConfig
from workbench.config.run import RunConfig
from workbench.errors import ConfigError, RewardError
from workbench.rewards import RewardWorker, TrustStore, load_reward
from workbench.rewards.protocol import Batch
from workbench.rundir.checkpoints import write_rewards

BATCH = Batch(["p"], ["a"])
ASKS = """
import os
import urllib.request
import own_helper

def f(completions, **columns):
    with urllib.request.urlopen(os.environ["P16_URL"]) as answer:
        return [own_helper.scale * float(answer.read())]
"""


def trusted(code: str) -> RewardConfig:
    return RewardConfig(name="f", kind="outcome", code=code, trusted=True)


@pytest.fixture
def server() -> Iterator[str]:
    class Half(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"0.5")

        def log_message(self, *args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Half) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


def test_trusted_code_has_the_network_the_environment_and_local_modules(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_helper.py").write_text("scale = 4\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("P16_URL", server)
    monkeypatch.setenv("PYTHONSAFEPATH", "1")  # as in a run
    with RewardWorker() as worker:
        reward = load_reward(trusted(ASKS), worker)
        assert reward.score_outcome(BATCH) == ([2.0], "")
        sealed = load_reward(RewardConfig(name="f", kind="outcome", code=ASKS.replace("import own_helper", "")), worker)
        with pytest.raises(RewardError, match="KeyError"):  # the seal has no such variable
            sealed.score_outcome(BATCH)


def test_the_deadline_and_the_checks_of_replies_hold_outside_too() -> None:
    with RewardWorker(deadline=0.5) as worker:
        endless = load_reward(trusted("def f(completions, **c):\n    while True: pass"), worker)
        with pytest.raises(RewardError, match=r"ran over its deadline of 0.5 s at line 2"):
            endless.score_outcome(BATCH)
        no_number = load_reward(trusted("def f(completions, **c): return [float('nan')]"), worker)
        with pytest.raises(RewardError, match="gave nan"):
            no_number.score_outcome(BATCH)


def test_a_failure_outside_is_not_put_down_to_the_seal() -> None:
    code = "import socket\ndef f(completions, **c):\n    raise socket.gaierror('no such host')"
    with RewardWorker() as worker:
        lost = load_reward(trusted(code), worker)
        with pytest.raises(RewardError, match="no such host") as caught:
            lost.score_outcome(BATCH)
    assert "is off" not in str(caught.value)


def test_it_runs_only_where_somebody_agreed_to_this_very_code(tmp_path: Path) -> None:
    store = TrustStore(tmp_path)
    reward = trusted("def f(completions, **c): return [1]")
    with RewardWorker(agreed=store.require_agreed) as worker:
        store.trust(reward.code or "")  # in the seal, which says nothing of outside it
        with pytest.raises(RewardError, match=r"asks to run outside the seal, .*; read it, then press trust below it"):
            load_reward(reward, worker)
        store.trust(reward.foreign or "")
        assert load_reward(reward, worker).score_outcome(BATCH)[0] == [1.0]
        edited = reward.model_copy(update={"code": "def f(completions, **c): return [2]"})
        with pytest.raises(RewardError, match="asks to run outside the seal"):
            load_reward(edited, worker)


def test_only_code_can_be_trusted() -> None:
    with pytest.raises(ConfigError, match="reward 'f': trusted is for code of your own, and it has none"):
        RewardConfig.parse({"name": "f", "trusted": True})


def test_a_run_records_it(tmp_path: Path) -> None:
    config = RunConfig(
        method={
            "name": "grpo",
            "rewards": [trusted("def f(completions, **c): return [1]")],
            "credit": {"scheme": "outcome"},
        }
    )
    write_rewards(tmp_path / "rewards", config, {})
    (entry,) = json.loads((tmp_path / "rewards" / "manifest.json").read_text())
    assert (entry["name"], entry["trusted"]) == ("f", True)
    assert "trusted: true" in config.to_yaml()
    assert dict(config.method.facts())["rewards"] == "f (outside the seal)"
