"""The types of what the scripts are sent, for ``deno check``: written from the Python types that declare it.

``python -m tests.payload_types`` writes them to ``workbench/views/payloads.d.ts``, which is not kept in git.
"""

import json
from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from types import ModuleType, NoneType, UnionType
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from workbench.runs import Run, index
from workbench.ui import payloads as page
from workbench.ui.handlers import run_follow, runs
from workbench.ui.handlers.rewards import LIST_ASKED
from workbench.ui.handlers.scoring import LABELLING
from workbench.ui.handlers.session import Services
from workbench.ui.tabs.runs import RUNS_ASKED, TRAIN_ASKED
from workbench.views import curves, payloads

MODULES = (payloads, curves, page, run_follow, index, runs)
FILE = Path(__file__).resolve().parents[1] / "workbench" / "views" / "payloads.d.ts"
PLAIN = {str: "string", int: "number", float: "number", bool: "boolean", NoneType: "null", Any: "any"}


SENT = {
    kind: name
    for module in MODULES
    for name, kind in getattr(module, "DATACLASSES", {}).items()
    if isinstance(kind, type)
}
"""Dataclasses that are sent field by field, by their type's name."""


def declared_in(module: ModuleType) -> dict[str, Any]:
    """The typed dictionaries of a module, and the dataclasses that it says are sent field by field, several as one."""
    own = {name: value for name, value in vars(module).items() if is_typeddict(value)}
    mine = {name: value for name, value in own.items() if value.__module__ == module.__name__}
    return {**mine, **getattr(module, "DATACLASSES", {})}


def script_type(hint: Any) -> str:
    """A type hint in TypeScript; what is sent is JSON, so that tuples and sequences are arrays."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint in PLAIN:
        return PLAIN[hint]
    if origin is Annotated:
        return script_type(inner[0])
    if origin in (Union, UnionType):
        return " | ".join(map(script_type, inner))
    if origin is Literal:
        return " | ".join(map(json.dumps, inner))
    if origin is tuple and inner[-1] is not Ellipsis:
        return f"[{', '.join(map(script_type, inner))}]"
    if origin in (dict, Mapping):
        return "any" if inner[1] is Any else f"Record<{script_type(inner[0])}, {script_type(inner[1])}>"
    if origin is not None:
        item = script_type(inner[0])
        return f"({item})[]" if " | " in item else f"{item}[]"
    return hint.__name__ if is_typeddict(hint) else SENT.get(hint, "any")


def interface(name: str, members: Mapping[str, Any]) -> str:
    lines = []
    for key, hint in members.items():
        optional = get_origin(hint) is NotRequired
        lines.append(f"  {key}{'?' if optional else ''}: {script_type(get_args(hint)[0] if optional else hint)};\n")
    return f"export interface {name} {{\n{''.join(lines)}}}\n"


def members(declared: Any) -> dict[str, Any]:
    """Fields by name; of several that are sent as one, those of all."""
    if isinstance(declared, tuple):
        return {key: hint for part in declared for key, hint in members(part).items()}
    hints = get_type_hints(declared, include_extras=True)
    return hints if getattr(declared, "__total__", True) else {key: NotRequired[hint] for key, hint in hints.items()}


def server(name: str, *functions: Any) -> str:
    """What a tab's script may ask: each function takes one object, and answers later, or not at all."""
    lines = []
    for function in functions:
        hints, asked = get_type_hints(function, include_extras=True), list[str]()
        for parameter in signature(function).parameters.values():
            kind = hints[parameter.name]
            if isinstance(kind, type) and issubclass(kind, Path | Services):
                continue
            if parameter.kind is parameter.VAR_KEYWORD:
                asked.append("[more: string]: any")
                continue
            optional = "" if parameter.default is parameter.empty else "?"
            asked.append(f"{parameter.name}{optional}: {'string' if kind is Run else script_type(kind)}")
        answer = f"Promise<{script_type(hints['return'])} | undefined>"
        lines.append(f"  {function.__name__}(asked: {{ {'; '.join(asked)} }}): {answer};\n")
    return f"export interface {name} {{\n{''.join(lines)}}}\n"


SERVERS = {
    "TrainServer": (*TRAIN_ASKED, run_follow.rollouts),
    "RunsServer": (*RUNS_ASKED, run_follow.side_by_side),
    "LabelServer": LABELLING,
    "RewardsServer": LIST_ASKED,
}
"""The functions that a script may ask, beside a folder or services."""


def write() -> None:
    found = [pair for module in MODULES for pair in declared_in(module).items()]
    assert len({name for name, _ in found}) == len(found), "two payloads of one name"
    declared = {name: members(value) for name, value in found}
    servers = [server(name, *functions) for name, functions in SERVERS.items()]
    FILE.write_text("\n".join([*(interface(*pair) for pair in declared.items()), *servers]), encoding="utf-8")


if __name__ == "__main__":
    write()
