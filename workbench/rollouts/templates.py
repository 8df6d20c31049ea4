"""A tokenizer's chat template, and a conversation's episode as it writes it: turn by turn, each as it was written.

The turn at message k is what the rendering of the messages up to it has beyond the rendering of those before it with
the prompt of a generation; it ends with its end-of-sequence token. What stands between its end and the next turn is the
observation. A template may write earlier turns anew (leave their thoughts out, say): the rendering of the first k
messages is then no beginning of the rendering of more. Each turn is taken as it stood when it was the last, which is
how it was sampled, and that this happened is said.

transformers' own sandbox renders; it is loaded when a template is first used, without torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.errors import TaskError
from workbench.rollouts.conversations import Conversation, Message, role_of
from workbench.schema import ASSISTANT


@dataclass(frozen=True)
class ChatTemplate:
    """A template's text, and the special tokens that it may write (``eos_token``)."""

    text: str
    tokens: Mapping[str, str] = field(default_factory=dict)

    def render(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], *, to_answer: bool) -> str:
        """The messages as the policy reads them, with the prompt of a generation behind them or not."""
        from jinja2 import TemplateError
        from transformers.utils.chat_template_utils import render_jinja_template

        try:
            rendered, _ = render_jinja_template(
                [list(messages)],
                tools=list(tools) or None,
                chat_template=self.text,
                add_generation_prompt=to_answer,
                **self.tokens,
            )
        except (TemplateError, TypeError, ValueError, KeyError, AttributeError) as error:
            raise TaskError(
                f"the chat template does not take this conversation ({str(error)[:200] or type(error).__name__}); give "
                "the tokenizer of the policy that it is of, or 'words'"
            ) from error
        return str(rendered[0])


def template_of(config: Mapping[str, Any], file: Path | None = None) -> ChatTemplate | None:
    """The template of a tokenizer's ``tokenizer_config.json``, or of the file that newer ones have it in."""
    text = config.get("chat_template")
    if isinstance(text, list):  # of several: the one for tools, else the usual one
        named = {entry.get("name"): entry.get("template") for entry in text if isinstance(entry, dict)}
        text = named.get("tool_use", named.get("default"))
    if file is not None:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise TaskError(f"{file} cannot be read ({error})") from error
    if not isinstance(text, str) or not text:
        return None
    named_tokens = ((name, config.get(name)) for name in config if name.endswith("_token"))
    tokens = {name: value.get("content") if isinstance(value, dict) else value for name, value in named_tokens}
    return ChatTemplate(text, {name: value for name, value in tokens.items() if isinstance(value, str)})


def template_of_tokenizer(tokenizer: Any) -> ChatTemplate | None:
    """The template of a transformers tokenizer; None for one without."""
    text = getattr(tokenizer, "chat_template", None)
    config = {"chat_template": [{"name": name, "template": part} for name, part in text.items()]} if isinstance(
        text, dict
    ) else {"chat_template": text}  # fmt: skip
    return template_of({**getattr(tokenizer, "special_tokens_map", {}), **config})


def templated_pieces(
    template: ChatTemplate, conversation: Conversation, ends: Sequence[str]
) -> tuple[list[tuple[str, str]], bool, bool]:
    """Return (role, text) of each turn and observation; whether the template writes earlier turns anew; and whether it
    leaves out what was said (calls, thoughts), so that the pieces are not the episode.

    ``ends`` are the texts of tokens that end a turn. Raises TaskError for a conversation that the template refuses.
    """
    messages, tools = conversation.messages, conversation.tools
    pieces: list[tuple[str, str]] = []
    rewrites = leaves_out = False
    at = conversation.turns
    for turn, following in zip(at, [*at[1:], len(messages)], strict=True):
        before = template.render(messages[:turn], tools, to_answer=True)
        written = template.render(messages[: turn + 1], tools, to_answer=False)
        begin = _shared(before, written)
        end = _end_of_turn(written, begin, ends)
        pieces.append((ASSISTANT, written[begin:end]))
        leaves_out |= not _holds(written[begin:end], messages[turn])
        if following == turn + 1:
            continue  # the conversation ends with this turn
        after = template.render(messages[:following], tools, to_answer=following < len(messages))
        if after.startswith(written):
            observation = after[end:]
        else:
            rewrites = True
            observation = written[end:] + after[_end_in(after, written, begin) :]
        pieces.append((role_of(messages[turn + 1 : following]), observation))
        leaves_out |= not all(_holds(observation, message) for message in messages[turn + 1 : following])
    return pieces, rewrites, leaves_out


def _holds(written: str, message: Message) -> bool:
    """Whether a rendering holds a message's text, thoughts and calls, whatever became of their white space."""
    calls = (call["function"]["name"] for call in message.get("tool_calls", ()))
    said = (message["content"], message.get("reasoning_content", ""), *calls)
    return all(
        _bare(part) in _bare(written) or _bare(json.dumps(part, ensure_ascii=False)[1:-1]) in _bare(written)
        for part in said
    )


def _bare(text: str) -> str:
    return "".join(text.split())


def _shared(text: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    pairs = enumerate(zip(text, other, strict=False))
    return next((place for place, (left, right) in pairs if left != right), min(len(text), len(other)))


def _end_of_turn(written: str, begin: int, ends: Sequence[str]) -> int:
    places = [written.rfind(end, begin) + len(end) for end in ends if written.rfind(end, begin) >= 0]
    return max(places, default=len(written))


def _end_in(after: str, written: str, begin: int) -> int:
    """Where the turn ends that ``written`` has from ``begin``, in a rendering that has left its beginning out.

    That is behind the longest end of the turn that stands there, too.
    """
    earliest = _shared(after, written[:begin])
    least, most = 0, len(written) - begin
    while least < most:
        length = (least + most + 1) // 2
        if after.find(written[len(written) - length :], earliest) >= 0:
            least = length
        else:
            most = length - 1
    return after.find(written[len(written) - least :], earliest) + least


def read_json(file: Path | None) -> dict[str, Any]:
    """The object of a JSON file; an empty one where there is no file. Raises TaskError."""
    if file is None:
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise TaskError(f"{file} cannot be read ({error})") from error
    return content if isinstance(content, dict) else {}
