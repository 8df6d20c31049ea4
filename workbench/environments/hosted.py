"""Users' environments where they run, in the reward worker: instances by episode.

Every request brings the episode's turns and hashes of what they were answered, so that a process that was replaced
plays it again and goes on: what the environment answered then must be what it answers now.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from workbench.environments.protocol import Reply, check_class, reply, reset
from workbench.errors import EpisodeError
from workbench.schema.rollouts import state_of

MOST = 4096
"""Episodes at a time; the oldest one leaves, and is played again where it still goes on."""


@dataclass
class _Playing:
    environment: Any
    turns: int
    state: str | None


class Instances:
    """The environments of this process: one a running episode."""

    def __init__(self) -> None:
        self._playing: OrderedDict[str, _Playing] = OrderedDict()

    def handle(self, kind: Callable[[], Any], name: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """``describe`` the class, ``begin`` an episode, ``reply`` to its newest turn, or ``end`` it.

        Raises whatever the environment raises, and EpisodeError for what it may not do.
        """
        call, episode = request["call"], str(request.get("episode"))
        if call == "describe":
            return {"stop": list(check_class(kind, name))}
        if call == "end":
            self._playing.pop(episode, None)
            return {}
        turns, replies = list(request["turns"]), list(request["replies"])
        playing = self._playing.get(episode)
        if playing is None or playing.turns != len(replies):
            playing = self._played(kind, name, request["prompt"], request["columns"], turns[: len(replies)], replies)
            self._playing[episode] = playing
            while len(self._playing) > MOST:
                self._playing.popitem(last=False)
        if call == "begin":
            return {"state": playing.state}
        try:
            answer = reply(playing.environment, turns[-1])
        except BaseException:
            self._playing.pop(episode, None)
            raise
        playing.turns += 1
        return {"text": answer.text, "state": answer.state}

    def _played(
        self, kind: Callable[[], Any], name: str, prompt: Any, columns: Mapping[str, Any], turns: Any, replies: Any
    ) -> _Playing:
        environment = kind()
        state = reset(environment, prompt, columns)
        for turn, before in zip(turns, replies, strict=True):
            answer: Reply = reply(environment, turn)
            if state_of(answer.text or "") != before:
                raise EpisodeError(
                    f"environment {name!r}: its process was replaced in the middle of an episode, and when its turns "
                    "were played again it answered otherwise; make it answer alike to the same turns"
                )
            state = answer.state
        return _Playing(environment, len(replies), state)
