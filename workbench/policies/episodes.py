"""Episodes while they are sampled: where a turn ends, what it is answered, and the observation's tokens to come.

An environment is asked as soon as a turn ends. An observation is tokenised once and put into its row token by token, a
position at a time, so that all rows stay side by side. Nothing that was sampled is ever rendered or tokenised again.
Which tokens are drawn is the sampler's to know.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from workbench.config import EnvironmentSection
from workbench.environments import Environment, Episode, Reply
from workbench.errors import ConfigError, EpisodeError, PolicyError
from workbench.policies.prompts import StopStrings
from workbench.schema import ASSISTANT, ENVIRONMENT, Example, Prompt, Turn, counted
from workbench.steps import token_texts

_MOST_PRINTED = 200


@dataclass
class _Row:
    """One row's episode: where its turn began, and the observation still to be put in.

    ``finished`` and ``stop`` say how its last turn ended.
    """

    episode: Episode
    start: int = 0
    began: float = 0.0
    turns: int = 0
    state: str | None = None
    finished: bool = False
    stop: str | None = None
    pending: deque[int] = field(default_factory=deque)


class Episodes:
    """The episodes of a batch's rows, one for each of ``examples``; ``close`` them when all is sampled.

    ``failure`` is the first error of an environment where such an error is to end the run: sampling stops then.
    """

    def __init__(
        self,
        environment: Environment,
        tokenizer: Any,
        examples: Sequence[Example],
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self.environment, self._settings, self._tokenizer = environment, environment.settings, tokenizer
        self._stops = StopStrings(tokenizer, environment.stop)
        self._observations = Observations(tokenizer, self._settings, template_kwargs)
        self._examples = examples
        for prompt in {isinstance(row.prompt, str): row.prompt for row in examples}.values():
            self._observations.check(prompt)
        begun = [environment.begin(row.prompt, row.columns) for row in examples]
        now = time.perf_counter()
        self._rows = [_Row(episode, began=now, state=episode.state) for episode in begun]
        self.failure: EpisodeError | None = None

    def put(self, rows: Sequence[int]) -> dict[int, int]:
        """Return the tokens that observations have for this position, by their rows' places among ``rows``."""
        return {place: self._rows[row].pending.popleft() for place, row in enumerate(rows) if self._rows[row].pending}

    def ended(self, number: int, sampled: Any, eos: Collection[int], stops: StopStrings | None, limit: int) -> bool:
        """Return whether a row's last token ended its episode, and mark how; the end of a turn asks for the answer.

        ``sampled`` is the row as far as it is sampled (``sampler.Sampled``), ``stops`` are texts that end the whole
        completion, ``limit`` its most tokens.
        """
        row, ids = self._rows[number], sampled.token_ids
        if row.pending:
            return False
        if not sampled.mask[-1]:
            row.start, row.began = len(ids), time.perf_counter()
            return False
        turn = ids[row.start :]
        finished = ids[-1] in eos
        over = None if finished or stops is None else stops.ends(turn)
        stop = over if finished or over else self._stops.ends(turn)
        if not finished and stop is None:
            return len(ids) >= limit
        if over is not None:
            sampled.stop = over
            self._end_turn(row, sampled, finished)
            return True
        row.finished, row.stop = finished, stop
        text = self._end_turn(row, sampled, finished)
        return self._answered(number, sampled, row.episode.reply(text), limit)

    def _end_turn(self, row: _Row, sampled: Any, finished: bool) -> str:
        """Write the turn down that has ended; its text."""
        end = len(sampled.token_ids)
        texts = token_texts(self._tokenizer, sampled.token_ids)[row.start : end - finished]
        sampled.turns.append(Turn(ASSISTANT, row.start, end, time.perf_counter() - row.began, state=row.state))
        row.turns, row.start = row.turns + 1, end
        return "".join(texts)

    def _answered(self, number: int, sampled: Any, reply: Reply, limit: int) -> bool:
        """Put in the environment's answer to the last turn. Returns whether the episode is over."""
        row = self._rows[number]
        printed = reply.printed.strip()[:_MOST_PRINTED]
        sampled.turns[-1] = replace(sampled.turns[-1], error=reply.error, note=printed and f"printed {printed!r}")
        if reply.error is not None and self._settings.on_environment_error == "run" and self.failure is None:
            self.failure = EpisodeError(f"row {number + 1}, turn {row.turns}: {reply.error}")
        if reply.text is None or row.turns == self._settings.max_turns:  # it ended as its last turn did
            if reply.text is not None:
                _left_out(sampled, f"environment.max_turns, {row.turns}, is reached")
            sampled.finished, sampled.stop = row.finished, row.stop
            return True
        end = len(sampled.token_ids)
        ids, note = self._observations.ids(self._examples[number].prompt, reply.text, after_eos=row.finished)
        if end + len(ids) >= limit:
            _left_out(
                sampled,
                f"its answer of {counted(len(ids), 'token')} does not fit in sampling.max_completion_length, {limit}",
            )
            sampled.finished = row.finished
            return True
        sampled.turns.append(Turn(ENVIRONMENT, end, end + len(ids), reply.seconds, note=note))
        row.state, row.pending = reply.state, deque(ids)
        if not ids:
            row.start, row.began = end, time.perf_counter()
        return False

    def close(self, sampled: Sequence[Any]) -> None:
        """End all episodes; the turns of rows that were cut off end where their tokens do."""
        for row, state in zip(sampled, self._rows, strict=True):
            length = len(row.token_ids)
            row.turns[:] = [replace(turn, end=min(turn.end, length)) for turn in row.turns]
            covered = row.turns[-1].end if row.turns else 0
            if covered < length:
                seconds = time.perf_counter() - state.began
                row.turns.append(Turn(ASSISTANT, covered, length, seconds, state=state.state))
            state.episode.end()


def _left_out(sampled: Any, why: str) -> None:
    """Say on the last turn that the environment's answer is not there, and why."""
    turn = sampled.turns[-1]
    sampled.turns[-1] = replace(turn, note="; ".join(filter(None, [turn.note, why])))


_TURN, _THOUGHT = "a turn of the policy's", "a thought of the policy's"
# --- observations as token ids ------------------------------------------------------------------------------------

# Where the prompt is a conversation, the chat template writes what stands between two turns of the policy's: the end of
# the one, the message, and the beginning of the next. It is asked for that alone; what the policy wrote stays as it is.

_CHARACTERS = 64
"""Characters of a token, at most, that an observation is tokenised for: beyond the limit it is cut as text."""


class Observations:
    """Token ids of what an environment answers; ``settings`` are its limits."""

    def __init__(
        self, tokenizer: Any, settings: EnvironmentSection, template_kwargs: Mapping[str, Any] | None = None
    ) -> None:
        self._tokenizer, self._settings, self._kwargs = tokenizer, settings, dict(template_kwargs or {})

    def check(self, prompt: Prompt) -> None:
        """Raise ConfigError if the template rewrites earlier turns and no setting says which ids count."""
        if isinstance(prompt, str) or self._settings.rewritten_turns == "keep":
            return
        if _THOUGHT not in self._written(f"<think>\n{_THOUGHT}\n</think>\n\n{_TURN}", "more"):
            raise ConfigError(
                "environment.rewritten_turns: the policy's chat template leaves the thinking out of earlier turns, and "
                "the sampled ids have it; set it to keep, so that the sampled ids count as they are, or turn thinking "
                "off and set it to keep"
            )

    def ids(self, prompt: Prompt, text: str, *, after_eos: bool) -> tuple[list[int], str]:
        """Return the ids, and a note where the observation was cut. ``after_eos``: the turn ended with that token."""
        most, note = self._settings.max_observation_length, ""
        cut = text[: most * _CHARACTERS]
        ids = self._tokenizer(cut, add_special_tokens=False)["input_ids"] if cut else []
        if len(ids) > most or len(cut) < len(text):
            cut = str(self._tokenizer.decode(ids[:most])).rstrip("\ufffd")
            note = f"cut to {most} tokens, {len(cut):,} of {len(text):,} characters"
            ids = ids[:most]
        if isinstance(prompt, str):
            return ids, note
        _, _, between = self._written(_TURN, cut).partition(_TURN)
        eos = str(self._tokenizer.eos_token or "")
        rest = between.removeprefix(eos) if after_eos and eos else between
        return list(self._tokenizer(rest, add_special_tokens=False)["input_ids"]) if rest else [], note

    def _written(self, turn: str, text: str) -> str:
        messages = [
            {"role": "user", "content": "first"},
            {"role": "assistant", "content": turn},
            {"role": "user", "content": text},
        ]
        written = str(
            self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **self._kwargs)
        )
        if _TURN not in written:
            raise PolicyError("the policy's chat template does not write the assistant's messages as they are")
        return written
