"""Conversations with tools as a file has them: checked, and parted into what was asked and the episode that answered.

A message is as OpenAI's chat format has it: ``role``, ``content`` (text or parts), an assistant's ``tool_calls`` and a
tool's ``tool_call_id``. Calls come as objects with a ``function``, flat, or as JSON text; all become
``{"type": "function", "function": {"name", "arguments"}}``, which chat templates read. Thoughts come under the names of
``THOUGHTS`` or as parts, and become ``reasoning_content``; Anthropic's parts ``tool_use`` and ``tool_result`` become
calls and a tool's messages. What has no place (an image) is named in ``left_out``. Tokens are not known here.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from os.path import commonprefix
from typing import Any, TypeGuard

from workbench.errors import TaskError
from workbench.schema import ASSISTANT, CLOSE, ENVIRONMENT, OPEN, TOOL

Message = dict[str, Any]
THOUGHTS = ("reasoning_content", "reasoning", "thinking")
"""Names that providers give to an assistant's thoughts; the first is the one that chat templates read."""
_PLACED = {"role", "content", "tool_calls", "function_call", "tool_call_id", "name", "refusal", *THOUGHTS}


@dataclass(frozen=True)
class Conversation:
    """Checked messages: the first ``opening`` were asked, the others are the episode, which a turn of the policy's
    begins. ``tools`` are the definitions that the chat template is given."""

    messages: tuple[Message, ...]
    opening: int
    tools: tuple[Mapping[str, Any], ...] = ()

    @property
    def prompt(self) -> list[dict[str, str]]:
        """Return what was asked, each message as text."""
        return texts_only(self.messages[: self.opening])

    @property
    def turns(self) -> list[int]:
        """Return where the policy's turns stand among the messages."""
        return [i for i, message in enumerate(self.messages) if i >= self.opening and message["role"] == ASSISTANT]

    @property
    def is_malformed(self) -> bool:
        """Return whether the arguments of some call are no object, as where the length cut them off."""
        calls = (call for message in self.messages for call in message.get("tool_calls", ()))
        return any(isinstance(call["function"]["arguments"], str) for call in calls)


def is_messages(value: Any) -> TypeGuard[list[Message]]:
    """Return whether this is a list of objects with a role."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(message, dict) and isinstance(message.get("role"), str) for message in value)
    )


def uses_tools(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether anyone calls a tool, or a tool answers."""
    return any(message.get("tool_calls") or message["role"] in (TOOL, "function") for message in messages)


def is_conversation(value: Any) -> TypeGuard[list[Message]]:
    """Return whether this is a list of messages that are all text."""
    return is_messages(value) and all(isinstance(message.get("content"), str) for message in value)


_ROLES = {
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "assistant", "chatgpt", "bard", "bing", "model"), "assistant"),
    **dict.fromkeys(("tool", "observation", "function_response"), "tool"),
    "system": "system",
}
_CALL = "function_call"


def conversation_turns(values: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return a row's ``messages``, or ShareGPT's ``conversations`` of ``from`` and ``value`` as messages, behind what
    it says under ``system``; None where there are none, or a speaker is not known."""
    messages, turns = values.get("messages"), values.get("conversations")
    if is_conversation(turns) and not is_messages(messages):  # some files have messages under this name
        messages = [{"role": turn["role"], "content": turn["content"]} for turn in turns]
    if not is_messages(messages):
        listed = turns if isinstance(turns, list) else ()
        pairs = [(turn.get("from"), turn.get("value")) if isinstance(turn, dict) else ("", "") for turn in listed]
        if not pairs or not all(isinstance(said, str) and speaker in (*_ROLES, _CALL) for speaker, said in pairs):
            return None
        messages = [
            {"role": ASSISTANT, "content": "", "tool_calls": [said]}
            if speaker == _CALL
            else {"role": _ROLES[str(speaker)], "content": said}
            for speaker, said in pairs
        ]
    system = values.get("system")
    if isinstance(system, str) and system and messages[0]["role"] != "system":
        return [{"role": "system", "content": system}, *messages]
    return messages


def read_messages(where: str, name: str, value: Iterable[Any]) -> list[Message]:
    """Return the messages of a column. Raises TaskError for one without content."""
    read = (_messages(f"{where}: message {i} of {name!r}", message) for i, message in enumerate(value, start=1))
    return [message for messages in read for message in messages]


def messages_of_items(items: Iterable[Mapping[str, Any]]) -> list[Message]:
    """Return the items of OpenAI's Responses as messages; thoughts, texts and calls of one turn are parts of one."""
    messages: list[Message] = []
    for item in items:
        role = TOOL if "output" in item else item.get("role", ASSISTANT)
        part = {**item, "reasoning": item.get("content") or item.get("summary")}
        said = item.get("output", item["content"] if "role" in item else part)
        if role != ASSISTANT or not messages or messages[-1]["role"] != ASSISTANT:
            messages.append({"role": role, "content": [], "tool_call_id": item["call_id"] if role == TOOL else None})
        messages[-1]["content"] += said if isinstance(said, list) else [said]
    return messages


def notes_of(messages: Sequence[Message], *, in_text: bool = False) -> tuple[str, ...]:
    """Return what an import has to say of messages: what was left out, and that thoughts are ``in_text`` now."""
    left_out = dict.fromkeys(name for message in messages for name in message.get("left_out", ()))
    notes = [f"whose messages' {name} is left out" for name in left_out]
    if in_text and messages[-1].get("reasoning_content"):
        notes.append("whose thoughts were beside its text and are before it now, between <think> marks")
    return tuple(notes)


def conversation_of(
    where: str, name: str, prompt: Sequence[Message], completion: Sequence[Message], tools: Any = None
) -> Conversation:
    """Join prompt and completion; messages before the assistant's first belong to the prompt.

    Raises TaskError for a completion without a turn of the assistant's, and two such turns with nothing between them.
    """
    first = next((i for i, message in enumerate(completion) if message["role"] == ASSISTANT), None)
    if first is None:
        raise TaskError(f"{where}: {name!r} has no message of the assistant; leave the row out")
    opening, whole = len(prompt) + first, (*prompt, *completion)
    if not opening:
        raise TaskError(f"{where}: {name!r} begins with the assistant's message; put what was asked before it")
    roles = [message["role"] for message in whole]
    for i in range(opening, len(whole) - 1):
        if roles[i] == roles[i + 1] == ASSISTANT:
            raise TaskError(
                f"{where}: messages {i + 1} and {i + 2} are both the assistant's, with no answer between them; make "
                "them one, or leave the row out"
            )
    listed = tools if isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools) else ()
    return Conversation(whole, opening, tuple(listed))


def text_of(message: Mapping[str, Any]) -> str:
    """Return a message without a chat template: thoughts, text, and each call as JSON between ``<tool_call>`` marks."""
    thought = message.get("reasoning_content")
    calls = [
        f"<tool_call>\n{json.dumps(call['function'], ensure_ascii=False)}\n</tool_call>"
        for call in message.get("tool_calls", ())
    ]
    parts = [f"<think>\n{thought}\n</think>\n" if thought else "", message["content"], *calls]
    return "\n".join(filter(None, parts))


def texts_only(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Return the messages as a prompt has them, each as one text."""
    return [{"role": message["role"], "content": text_of(message)} for message in messages]


def plain_pieces(conversation: Conversation) -> list[tuple[str, str]]:
    """(role, text) of each turn and of what was said between two of them, as it stands without a chat template."""
    pieces: list[tuple[str, str]] = []
    at = conversation.turns
    for turn, following in zip(at, [*at[1:], len(conversation.messages)], strict=True):
        pieces.append((ASSISTANT, text_of(conversation.messages[turn])))
        if between := conversation.messages[turn + 1 : following]:
            pieces.append((role_of(between), "\n" + "".join(f"{text_of(message)}\n" for message in between)))
    return pieces


def role_of(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return who wrote an observation: a tool, or whoever else answers."""
    return TOOL if any(message["role"] == TOOL for message in messages) else ENVIRONMENT


def _messages(where: str, values: Mapping[str, Any]) -> list[Message]:
    """Return a message, after the tools' messages that its parts hold, if any."""
    content, calls = values.get("content"), values.get("tool_calls") or []
    parts = _parts(where, content if isinstance(content, list) else [content or values.get("refusal") or ""])
    thoughts = [values[name] for name in THOUGHTS if values.get(name) and isinstance(values[name], str)]
    calls = [*calls, *([values["function_call"]] if values.get("function_call") else []), *parts.calls]
    role = TOOL if values["role"] == "function" else values["role"]
    message: Message = {"role": role, "content": "".join(parts.texts)}
    if calls:
        message["tool_calls"] = [_call(call) for call in calls]
    if thoughts := list(dict.fromkeys([*thoughts, *parts.thoughts])):
        message["reasoning_content"] = "\n".join(thoughts)
    for name in ("tool_call_id", "name"):
        if isinstance(values.get(name), str):
            message[name] = values[name]
    unplaced = [
        name
        for name, value in values.items()
        if value and (name not in _PLACED or (name in THOUGHTS and not isinstance(value, str)))
    ]
    if left_out := [*unplaced, *parts.left_out]:
        message["left_out"] = left_out
    said = message["content"] or calls or thoughts or parts.left_out
    if content is None and not said and ("content" not in values or role not in (ASSISTANT, TOOL)):
        raise TaskError(f"{where} has no 'content'; give it the text that was said")
    return [*parts.answers, *([message] if said or not parts.answers else [])]


@dataclass(frozen=True)
class _Parts:
    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[Any] = field(default_factory=list)
    answers: list[Message] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def _parts(where: str, content: Sequence[Any]) -> _Parts:
    """Sort the parts of a content by what they are."""
    parts = _Parts()
    for part in content:
        values = {"type": "text", "text": part} if isinstance(part, str) else part
        if not isinstance(values, dict):
            raise TaskError(f"{where} has a part of type {type(part).__name__}; parts are text, or objects with a type")
        kind = values.get("type")
        said = next((values[name] for name in (*THOUGHTS, "text", "refusal") if values.get(name)), "")
        if kind in ("tool_use", "function_call"):
            named = {"id": values.get("call_id", values.get("id"))}
            parts.calls.append({"arguments": values.get("input"), **values, **named})
        elif kind == "tool_result":
            answer = {"role": TOOL, "content": values.get("content"), "tool_call_id": values.get("tool_use_id")}
            parts.answers.extend(_messages(where, answer))
        elif kind in THOUGHTS and said:
            parts.thoughts.extend([said] if isinstance(said, str) else _parts(where, said).texts)
        elif isinstance(said, str) and (said or kind in (None, "text")):
            parts.texts.append(said)
        else:
            parts.left_out.append(f"{kind} part")
    return parts


def _call(call: Any) -> dict[str, Any]:
    """Return a call as chat templates read it: its arguments are an object, or as text what a malformed one has."""
    call = _object(call)
    function = call.get("function", call) if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        text = call if isinstance(call, str) else json.dumps(call, ensure_ascii=False)
        return {"type": "function", "function": {"name": "", "arguments": text}}
    given = function.get("arguments")
    arguments = {} if given in (None, "", "null") else _object(given)
    if isinstance(given, dict):  # a table has null for what another call takes
        arguments = {name: value for name, value in given.items() if value is not None}
    elif not isinstance(arguments, str | dict):
        arguments = json.dumps(arguments, ensure_ascii=False)
    read = {"type": "function", "function": {"name": function["name"], "arguments": arguments}}
    return {"id": call["id"], **read} if isinstance(call.get("id"), str) else read


def _object(value: Any) -> Any:
    """Return the object that a text is as JSON; any other value as it is."""
    with suppress(ValueError, RecursionError, TypeError):
        return read if isinstance(read := json.loads(value), dict) else value
    return value


_EMPTY_THOUGHT = re.compile(rf"\s*(?:{OPEN})?\s*{CLOSE}\s*")


def templated_pieces(
    render: Callable[..., str], conversation: Conversation, ends: Sequence[str]
) -> tuple[list[tuple[str, str]], bool, bool]:
    """Return (role, text) of each turn and observation; whether the template writes earlier turns anew; and whether it
    leaves out what was said (calls, thoughts), so that the pieces are not the episode.

    ``render`` is a tokenizer's chat template (``Subwords.render``), ``ends`` are the texts of tokens that end a turn.
    Raises TaskError for a conversation that the template refuses.

    The turn at message k is what the rendering of the messages up to it has beyond the rendering of those before it
    with the prompt of a generation; it ends with its end-of-sequence token. What stands between its end and the next
    turn is the observation, and so is an empty thought that the template writes for a turn without one. A template may
    write earlier turns anew (leave their thoughts out, say): the rendering of the first k messages is then no beginning
    of the rendering of more. Each turn is taken as it stood when it was the last, which is how it was sampled.
    """
    messages, tools = conversation.messages, conversation.tools
    pieces: list[tuple[str, str]] = []
    rewrites = leaves_out = False
    at = conversation.turns
    for turn, following in zip(at, [*at[1:], len(messages)], strict=True):
        before = render(messages[:turn], tools, to_answer=True)
        written = render(messages[: turn + 1], tools, to_answer=False)
        begin = len(commonprefix([before, written]))  # noqa: RUF071 (these are no paths)
        places = (written.rfind(end, begin) + len(end) for end in ends if written.rfind(end, begin) >= 0)
        end = max(places, default=len(written))
        thinks = messages[turn].get("reasoning_content") or CLOSE in messages[turn]["content"]
        if not thinks and (added := _EMPTY_THOUGHT.match(written, begin, end)):
            role, observed = pieces.pop() if pieces else (ENVIRONMENT, "")
            pieces.append((role, observed + added[0]))
            begin = added.end()
        pieces.append((ASSISTANT, written[begin:end]))
        leaves_out |= not _holds(written[begin:end], messages[turn])
        if following == turn + 1:
            continue  # the conversation ends with this turn
        after = render(messages[:following], tools, to_answer=following < len(messages))
        if after.startswith(written):
            observation = after[end:]
        else:
            rewrites = True
            observation = written[end:] + after[_end_in(after, written, begin) :]
        pieces.append((role_of(messages[turn + 1 : following]), observation))
        leaves_out |= not all(_holds(observation, message) for message in messages[turn + 1 : following])
    return pieces, rewrites, leaves_out


def _holds(written: str, message: Message) -> bool:
    """Return whether a rendering holds a message's text, thoughts and calls, white space apart."""
    bare = "".join(written.split())
    calls = (call["function"]["name"] for call in message.get("tool_calls", ()))
    said = (message["content"], message.get("reasoning_content", ""), *calls)
    return all(
        any("".join(form.split()) in bare for form in (part, json.dumps(part, ensure_ascii=False)[1:-1]))
        for part in said
    )


def _end_in(after: str, written: str, begin: int) -> int:
    """Find where the turn that ``written`` has from ``begin`` ends in a rendering without its beginning.

    That is behind the longest end of the turn that stands there, too.
    """
    earliest = len(commonprefix([after, written[:begin]]))  # noqa: RUF071 (these are no paths)
    least, most = 0, len(written) - begin
    while least < most:
        length = (least + most + 1) // 2
        if after.find(written[len(written) - length :], earliest) >= 0:
            least = length
        else:
            most = length - 1
    return after.find(written[len(written) - least :], earliest) + least
