"""Fields of a dataclass in an installed package, read off its source: name, type and default, without importing it.

What TRL and transformers can be told is so known where neither may be loaded. Only what their configurations use is
understood: annotated fields, ``field(default=…)``, bases in the same package or named in ``_ELSEWHERE``.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import NoneType
from typing import Any, Literal, Union

_ELSEWHERE = {"transformers.TrainingArguments": "transformers.training_args.TrainingArguments"}
"""Names that a package's root offers → where they are defined."""
_KINDS: Mapping[str, Any] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": bool,
    "dict": dict,
    "list": list,
    "None": NoneType,
}


@dataclass(frozen=True)
class SourceField:
    """``kind`` is its type, ``Any`` for a class of the package; ``default`` is None where it is no plain value."""

    name: str
    kind: Any
    default: Any


@cache
def fields_of(place: str) -> Mapping[str, SourceField]:
    """The fields of the dataclass at a dotted place, its bases' first, by name. Raises LookupError."""
    module, _, name = place.rpartition(".")
    tree = _parsed(module)
    found = next((node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name), None)
    if found is None:
        raise LookupError(f"{module} has no class {name}; another version of the package is installed")
    fields: dict[str, SourceField] = {}
    for base in found.bases:
        if isinstance(base, ast.Name) and (where := _imported(tree, module, base.id)) is not None:
            fields |= fields_of(where)
    for node in found.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            fields[node.target.id] = SourceField(node.target.id, _kind(node.annotation), _default(node.value))
    return fields


@cache
def _parsed(module: str) -> ast.Module:
    package, *parts = module.split(".")
    spec = find_spec(package)  # the package's root alone is looked for, and not run
    if spec is None or not spec.submodule_search_locations:
        raise LookupError(f"the package {package} is not installed")
    path = Path(next(iter(spec.submodule_search_locations))).joinpath(*parts).with_suffix(".py")
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError) as error:
        raise LookupError(f"{module} cannot be read: {error}") from error


def _imported(tree: ast.Module, module: str, name: str) -> str | None:
    """Where a name that a module uses is defined; None where that is outside of what is understood."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and any((alias.asname or alias.name) == name for alias in node.names):
            root = ".".join([*module.split(".")[: -node.level], node.module or ""]) if node.level else node.module
            return _ELSEWHERE.get(f"{root}.{name}", f"{root}.{name}")
    defined = any(isinstance(node, ast.ClassDef) and node.name == name for node in tree.body)
    return f"{module}.{name}" if defined else None


def _default(node: ast.expr | None) -> Any:
    if isinstance(node, ast.Call):
        node = next((keyword.value for keyword in node.keywords if keyword.arg == "default"), None)
    try:
        return None if node is None else ast.literal_eval(node)
    except ValueError:
        return None


def _kind(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        node = ast.parse(node.value, mode="eval").body
    if isinstance(node, ast.Constant) and node.value is None:
        return NoneType
    if isinstance(node, ast.Name):
        return _KINDS.get(node.id, Any)
    if isinstance(node, ast.BinOp):
        return Union[_kind(node.left), _kind(node.right)]  # noqa: UP007  # of types that are computed
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if node.value.id == "Literal":
            return Literal[tuple(ast.literal_eval(part) for part in parts)]
        if node.value.id in ("list", "dict"):
            return _KINDS[node.value.id][tuple(map(_kind, parts))]
    return Any
