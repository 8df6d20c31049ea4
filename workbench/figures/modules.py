"""ES modules put together into one classic script, for pages that hold everything inline.

The sources stay modules that a browser or a test can import. What a bundle understands of them is what they use: named
imports of relative paths at the head of a line, and ``export`` before a declaration or a list of names.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

IMPORT = re.compile(r'^(import|export) \{([^}]*)\} from "(\.[^"]+)";\n', re.MULTILINE)
DECLARATION = re.compile(r"^export (?=(?:async )?(?:function\*?|const|class) (\w+))", re.MULTILINE)
NAMES = re.compile(r"^export \{([^}]*)\};\n", re.MULTILINE)
UNKNOWN = re.compile(r"^(?:import|export)\b.*|</script|<!--", re.MULTILINE | re.IGNORECASE)


@cache
def bundle(entry: Path) -> str:
    """A JavaScript expression whose value is an object of what ``entry`` exports.

    Each module runs once, in a scope of its own, after those it imports. Raises ValueError for modules that import each
    other, and for forms of ``import`` and ``export`` that no module of ours uses.
    """
    modules: dict[Path, str] = {}
    _collect(entry.resolve(), modules, ())
    body = "".join(modules.values())
    return f'(() => {{\n"use strict";\n{body}return module{len(modules) - 1};\n}})()'


def _collect(path: Path, modules: dict[Path, str], importing: tuple[Path, ...]) -> None:
    """Adds a module and what it imports to ``modules``, in the order in which they have to run."""
    if path in importing:
        circle = " → ".join(module.name for module in (*importing[importing.index(path) :], path))
        raise ValueError(f"modules import each other: {circle}; move what both need into a third")
    if path in modules:
        return
    source = path.read_text(encoding="utf-8")
    for match in IMPORT.finditer(source):
        _collect((path.parent / match[3]).resolve(), modules, (*importing, path))
    places = {module: i for i, module in enumerate(modules)}
    imports, exports = [], DECLARATION.findall(source)
    for kind, names, target in IMPORT.findall(source):
        place = f"module{places[(path.parent / target).resolve()]}"
        if kind == "import":
            imports.append(f"const {{ {', '.join(_renamed(names, ': '))} }} = {place};\n")
        else:
            exports += [f"{new}: {place}.{old}" for old, new in map(_parts, _split(names))]
    exports += [f"{new}: {old}" for names in NAMES.findall(source) for old, new in map(_parts, _split(names))]
    code = NAMES.sub("", DECLARATION.sub("", IMPORT.sub("", source)))
    if unknown := UNKNOWN.search(code):
        raise ValueError(f"{path.name}: {unknown[0]!r} cannot be put into a classic script")
    modules[path] = (
        f"const module{len(places)} = (() => {{\n{''.join(imports)}{code}return {{ {', '.join(exports)} }};\n}})();\n"
    )


def _split(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


def _parts(name: str) -> tuple[str, str]:
    """The two names of ``a as b``; a name alone is both."""
    old, _, new = name.partition(" as ")
    return old, new or old


def _renamed(names: str, joint: str) -> list[str]:
    return [old if old == new else f"{old}{joint}{new}" for old, new in map(_parts, _split(names))]
