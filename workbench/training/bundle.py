"""A module that stands alone: functions of this package with all of it that they use, cut out of its own source.

What an export computes with on another machine is so the very code that computed here, and no second copy of it.
Annotations are left as they are written, and of our types in them nothing is taken: every module reads them as text.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from graphlib import TopologicalSorter
from types import ModuleType
from typing import Any

from workbench.errors import ConfigError

_OURS = "workbench."


@dataclass
class _Source:
    """A module's statements by the names they bind, and where its imported names come from."""

    statements: list[tuple[str, ast.stmt]] = field(default_factory=list)
    bound: dict[str, list[int]] = field(default_factory=dict)
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Name → (module, name there); ``import a.b`` has no name there."""


@cache
def _read(module: str) -> _Source:
    text, source = inspect.getsource(sys.modules[module]), _Source()
    lines = text.splitlines(keepends=True)
    for node in ast.parse(text).body:
        names: list[str] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)]
        elif isinstance(node, ast.ImportFrom):
            source.imported |= {one.asname or one.name: (str(node.module), one.name) for one in node.names}
        elif isinstance(node, ast.Import):
            source.imported |= {one.asname or one.name: (one.name, "") for one in node.names}
        for name in names:
            source.bound.setdefault(name, []).append(len(source.statements))
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
        source.statements.append(("".join(lines[first - 1 : node.end_lineno]), node))
    return source


def _used(node: ast.AST, is_annotation: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield the names that a statement reads, and whether it is in an annotation, which needs them not to run."""
    if isinstance(node, ast.Name):
        yield node.id, is_annotation
    elif isinstance(node, ast.ImportFrom) and str(node.module).startswith(_OURS):
        raise ConfigError(f"line {node.lineno}: it imports {node.module} where it runs; import it at the top")
    for name, child in ast.iter_fields(node):
        for one in child if isinstance(child, list) else [child]:
            if isinstance(one, ast.AST):
                yield from _used(one, is_annotation or name in ("annotation", "returns"))


def _home(module: str, name: str) -> tuple[str, str]:
    """Return where a name that is imported from one of our modules is defined."""
    source = _read(module)
    while name not in source.bound and name in source.imported:
        module, name = source.imported[name]
        source = _read(module)
    return module, name


def bundle(about: str, *wanted: Any) -> str:
    """Return the source of a module with these functions and classes; ``about`` is its docstring.

    Raises ConfigError where two modules give one name to different things.
    """
    taken: dict[str, set[int]] = {}
    needs: dict[str, set[str]] = {}
    imports: dict[str, set[str]] = {}

    def take(module: str, name: str, is_annotation: bool = False) -> None:
        source = _read(module)
        if name in source.imported:
            origin, there = source.imported[name]
            if not origin.startswith(_OURS):
                imports.setdefault(origin, set()).add(name if name == there else f"{there} as {name}")
            elif is_annotation:
                return
            elif isinstance(sys.modules.get(f"{origin}.{there}"), ModuleType):
                raise ConfigError(f"{module} uses the module {origin}.{there} whole; import names from it")
            else:
                home, there = _home(origin, there)
                needs[module].add(home)
                take(home, there)
            return
        needs.setdefault(module, set())
        for number in [] if is_annotation else source.bound.get(name, []):
            if number not in taken.setdefault(module, set()):
                taken[module].add(number)
                for used, annotates in _used(source.statements[number][1]):
                    take(module, used, annotates)

    for one in wanted:
        take(one.__module__, one.__name__)
    parts, seen, order = [], dict[str, str](), [*TopologicalSorter(needs).static_order()]
    for module in order:
        for number in sorted(taken[module]):
            text, node = _read(module).statements[number]
            for name in [name for name, numbers in _read(module).bound.items() if numbers[0] == number]:
                if seen.setdefault(name, text) != text:
                    raise ConfigError(f"two of the modules {', '.join(order)} have a {name!r} of their own; rename one")
            if text not in parts:
                is_block = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
                parts += ["\n" * (1 + is_block), text.rstrip(), "\n" * (1 + is_block)]
    head = f'"""{about}"""\n\nfrom __future__ import annotations\n\n'
    return head + "".join(_import_lines(imports)) + "".join(parts).replace("\n" * 5, "\n" * 3).rstrip() + "\n"


def _import_lines(imports: dict[str, set[str]]) -> Iterator[str]:
    """Yield an import a module; one whose whole is imported has the name "" there."""
    for module, names in sorted(imports.items()):
        whole = {name for name in names if name.startswith(" as ")}
        yield from (f"import {module}{'' if name == f' as {module}' else name}\n" for name in sorted(whole))
        if names - whole:
            yield f"from {module} import {', '.join(sorted(names - whole))}\n"
