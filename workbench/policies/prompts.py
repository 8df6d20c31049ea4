"""Prompts as token ids, chat templates as text, stop strings, and episodes while they are sampled. Loads no torch.

Plain text is tokenised as it is, messages go through the tokenizer's chat template.
"""

import json
import re
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from workbench.config import EnvironmentSection, PromptSection
from workbench.errors import ConfigError, EpisodeError, PolicyError, WorkbenchError, did_you_mean
from workbench.models.find import base_of, is_adapter, policy_path
from workbench.places import local_path
from workbench.rewards.environments import Environment, Episode, Reply
from workbench.schema import ASSISTANT, ENVIRONMENT, Example, Prompt, Turn, ends_in_thinking, say_count
from workbench.steps import token_texts

_LONGEST_TAIL = 64  # characters, of a template that writes messages otherwise where an answer follows


def encode_prompt(tokenizer: Any, prompt: Prompt, template_kwargs: Mapping[str, Any] | None = None) -> list[int]:
    """Return ids of a prompt as TRL makes them: plain text as it is, messages through the chat template.

    Raises PolicyError for a conversation where there is no chat template, and for arguments that it does not use.
    """
    from jinja2 import TemplateError

    kwargs = dict(template_kwargs or {})
    if isinstance(prompt, str):
        ids = tokenizer(prompt)["input_ids"]
    elif tokenizer.chat_template is None:
        raise PolicyError(
            "the prompt is a conversation and this tokenizer has no chat template; give the prompt as text, or set "
            "prompt.apply_template to never, which joins its messages"
        )
    else:
        check_template_kwargs(tokenizer.chat_template, kwargs)
        try:
            encoded = tokenizer.apply_chat_template(
                prompt, add_generation_prompt=True, tokenize=True, return_dict=True, **kwargs
            )
        except TemplateError as error:  # a template raises for roles that it has no place for
            roles = ", ".join(dict.fromkeys(message["role"] for message in prompt))
            raise PolicyError(
                f"the policy's chat template refuses a prompt of the messages {roles} ({error}); leave prompt.system "
                "out, or change the messages"
            ) from error
        ids = encoded["input_ids"]
    if not ids:
        raise PolicyError("the prompt is empty; write something for the policy to answer")
    return list(ids)


def prompt_record(
    tokenizer: Any,
    prompt: Prompt,
    template_kwargs: Mapping[str, Any] | None,
    ends: Collection[int],
    stop: Sequence[str],
) -> dict[str, Any]:
    """Return what a group's ``sampling`` says of its prompt.

    Of a plain one, whether there is a chat template that was not used. Of a conversation, the template's arguments, how
    the prompt ends once the template is through with it, as templates may open a tag there, and ``turn_end``, what it
    ends a turn with where neither the token ids ``ends`` nor the texts ``stop`` end a completion there.
    """
    if isinstance(prompt, str):
        return {"chat_template": "unused"} if tokenizer.chat_template else {}
    kwargs = {"template_kwargs": dict(template_kwargs)} if template_kwargs else {}
    record = kwargs | {"prompt_tail": prompt_tail(tokenizer, prompt, kwargs.get("template_kwargs"))}
    end = turn_end(tokenizer, template_kwargs, ends)
    return record | ({"turn_end": end} if end and not any(text in end for text in stop) else {})


def turn_end(tokenizer: Any, template_kwargs: Mapping[str, Any] | None, ends: Collection[int]) -> str | None:
    """Return the text of the token with which the chat template ends an assistant's turn.

    None where a token of ``ends`` is there, which ends a completion, or the template writes no special token there.
    """
    from jinja2 import TemplateError

    said = "an answer"
    turn = [{"role": "user", "content": "a question"}, {"role": "assistant", "content": said}]
    with suppress(TemplateError):
        written = tokenizer.apply_chat_template(turn, tokenize=False, **(template_kwargs or {}))
        after = tokenizer(written.rpartition(said)[2], add_special_tokens=False)["input_ids"]
        special = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
        if not set(after) & set(ends):
            return next((str(tokenizer.convert_ids_to_tokens(token)) for token in after if token in special), None)
    return None


def turn_end_note(record: Mapping[str, Any]) -> str:
    """Say what to do if completions run on after a turn, by a group's ``sampling``; "" if they end."""
    if "turn_end" not in record:
        return ""
    end = record["turn_end"]
    return (
        f"the policy's chat template ends a turn with {end} and no completion ends there: they run on to the limit. "
        f"Add {end} to sampling.stop, or to eos_token_id in the policy's generation_config.json"
    )


def thinking_open(tokenizer: Any, prompt: Prompt, template_kwargs: Mapping[str, Any] | None = None) -> bool:
    """Return whether a prompt, as the policy reads it, ends inside a ``<think>`` block."""
    return ends_in_thinking(prompt if isinstance(prompt, str) else prompt_tail(tokenizer, prompt, template_kwargs))


def prompt_tail(tokenizer: Any, prompt: Prompt, template_kwargs: Mapping[str, Any] | None = None) -> str:
    """Return what the chat template writes after the last message; "" for plain text."""
    if isinstance(prompt, str):
        return ""

    def write(for_generation: bool) -> str:
        kwargs = dict(template_kwargs or {})
        text = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=for_generation, **kwargs)
        return str(text)

    whole, messages = write(True), write(False)
    return whole.removeprefix(messages) if whole.startswith(messages) else whole[-_LONGEST_TAIL:]


# --- chat templates as text: what is in a policy's files, and which arguments it takes ----------------------------

_FILLED_IN = frozenset(["messages", "tools", "documents", "add_generation_prompt", "raise_exception", "strftime_now"])
"""Names that ``apply_chat_template`` fills in; those of special tokens end in ``_token``."""
_MARKS = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")
"""transformers' own statement around what an assistant says, which plain Jinja does not know."""


def find_chat_template(name: str) -> str | None:
    """Return the chat template of a policy's files on this machine; None where it has none or they are not here."""
    from huggingface_hub import try_to_load_from_cache

    try:
        where = policy_path(name)
        if is_adapter(folder := Path(where)) and not (folder / "tokenizer_config.json").is_file():
            return find_chat_template(base_of(folder))
    except WorkbenchError:
        return None  # whoever loads it says what is wrong
    try:
        if local_path(where) is None:  # the folder of a GGUF file that has not been read yet is no name of the Hub's
            cached = try_to_load_from_cache(where, "tokenizer_config.json")
            folder = Path(cached).parent if isinstance(cached, str) else folder
        if (file := folder / "chat_template.jinja").is_file():
            return file.read_text(encoding="utf-8")
        template = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8")).get("chat_template")
    except (OSError, ValueError, AttributeError, RecursionError):
        return None  # a tokenizer of another form
    return template if isinstance(template, str) else None


def check_template_kwargs(template: Any, kwargs: Mapping[str, Any]) -> None:
    """Raise PolicyError for an argument that the template never reads: it would be ignored."""
    read = arguments_of(template) if kwargs and isinstance(template, str) else None
    ignored = [] if read is None else [name for name in kwargs if name not in read]
    if read is None or not ignored:
        return
    settable = sorted(name for name in read - _FILLED_IN if not name.endswith("_token"))
    raise PolicyError(
        f"prompt.template_kwargs: the policy's chat template reads no {ignored[0]!r} and would ignore it"
        f"{did_you_mean(ignored[0], settable)}. It reads {', '.join(settable) or 'no arguments'}; leave this one out"
    )


@lru_cache(maxsize=32)
def arguments_of(template: str) -> frozenset[str] | None:
    """Return the names that a template reads and does not set itself; None where it cannot be parsed here."""
    from jinja2 import Environment as Jinja
    from jinja2 import TemplateError, meta

    environment = Jinja(extensions=["jinja2.ext.loopcontrols"])  # parsed, never rendered
    try:
        return frozenset(meta.find_undeclared_variables(environment.parse(_MARKS.sub("", template))))
    except TemplateError:
        return None


def plain_prompt_note(template: Any, section: PromptSection, example: Example) -> str:
    """Warn of a text to continue to a policy with a chat template; "" if that is meant."""
    prompt = section.of(example.prompt, has_template=bool(template), system=example.system)
    if not template or section.apply_template != "auto" or not isinstance(prompt, str):
        return ""
    return (
        "the prompt is a text to continue, so it goes to the policy without its chat template. Set "
        "prompt.apply_template to always to put it as a user's message, or to never where plain text is meant"
    )


# --- stop strings: texts that end a completion --------------------------------------------------------------------

# A completion ends with the token that completes a stop string. That token and those before it are the completion's
# own, as they are transformers' (``stop_strings``) and in vLLM's token ids, so that text, steps and advantages are
# those of the sampled ids. What the prompt ends with is no part of a match.

_MARGIN = 8
"""Tokens decoded beyond a stop string's length: the first of them may begin inside a character."""


class StopStrings:
    """Tells whether the newest token of a completion completed a stop string."""

    def __init__(self, tokenizer: Any, stop: Sequence[str]) -> None:
        self._tokenizer, self._stop = tokenizer, tuple(stop)
        self._window = max((len(text.encode()) for text in stop), default=0) + _MARGIN

    def __bool__(self) -> bool:
        return bool(self._stop)

    def ends(self, token_ids: Sequence[int]) -> str | None:
        """Return the stop string that the last of these tokens completes, None for none.

        A token stands for a byte at least, so that as many tokens as a stop string has bytes are looked at.
        """
        if not self._stop or not token_ids:
            return None
        text = str(self._tokenizer.decode(list(token_ids[-self._window :])))
        return next((stop for stop in self._stop if stop in text), None)


# --- episodes: where a turn ends, what it is answered, and the observation's tokens to come ---------------------------
#
# An environment is asked as soon as a turn ends. An observation is tokenised once and put into its row token by token,
# a position at a time, so that all rows stay side by side. Nothing that was sampled is ever rendered or tokenised
# again. Which tokens are drawn is the sampler's to know.

_MOST_PRINTED = 200


@dataclass
class _Playing:
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
        self._rows = [_Playing(episode, began=now, state=episode.state) for episode in begun]
        self.failure: EpisodeError | None = None

    def next_tokens(self, rows: Sequence[int]) -> dict[int, int]:
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

    def _end_turn(self, row: _Playing, sampled: Any, finished: bool) -> str:
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
                f"its answer of {say_count(len(ids), 'token')} does not fit in sampling.max_completion_length, {limit}",
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
        if _THOUGHT not in self._write(f"<think>\n{_THOUGHT}\n</think>\n\n{_TURN}", "more"):
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
        _, _, between = self._write(_TURN, cut).partition(_TURN)
        eos = str(self._tokenizer.eos_token or "")
        rest = between.removeprefix(eos) if after_eos and eos else between
        return list(self._tokenizer(rest, add_special_tokens=False)["input_ids"]) if rest else [], note

    def _write(self, turn: str, text: str) -> str:
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
