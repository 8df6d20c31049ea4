"""The sources as a whole: no import goes round in a circle or is hidden in a string, and no function is long."""

import ast
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LOADERS = {"import_module", "__import__", "import_string"}
"""Functions that import a module by its name."""
LONGEST = 80
"""Lines of a function at most; ``tests/js/lint.js`` holds the scripts to the same."""


@pytest.fixture(scope="module")
def parsed() -> dict[Path, ast.Module]:
    paths = [path for folder in ("workbench", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    return {path: ast.parse(path.read_text()) for path in paths}


@pytest.fixture(scope="module")
def sources(parsed: dict[Path, ast.Module]) -> dict[str, ast.Module]:
    """The package's modules by their names."""
    names = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in parsed}
    return {
        name.removesuffix(".__init__"): parsed[path] for path, name in names.items() if name.startswith("workbench")
    }


def imports(tree: ast.AST, modules: set[str]) -> set[str]:
    """The modules of ours that a source imports, at its top, in a function or for type checking alike."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {name if name in modules else node.module for name in inner}
    return names & modules


def circle(graph: dict[str, set[str]]) -> list[str]:
    """The modules of one circle, its first at both ends; empty where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_import_goes_round_in_a_circle(sources: dict[str, ast.Module]) -> None:
    graph = {name: imports(tree, set(sources)) - {name} for name, tree in sources.items()}
    assert circle(graph) == []


def test_only_the_packages_root_and_methods_import_ours_by_string(sources: dict[str, ast.Module]) -> None:
    loading = {
        f"{name}:{node.lineno}"
        for name, tree in sources.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and (node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")) in LOADERS
        and name not in ("workbench", "workbench.training.methods")  # methods are found by their place
    }
    assert not loading, f"import these modules by an import statement: {', '.join(sorted(loading))}"


def test_no_function_is_longer_than_80_lines(parsed: dict[Path, ast.Module]) -> None:
    lengths = {
        f"{path.relative_to(ROOT)}:{node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path, tree in parsed.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST} == {}


def test_the_types_of_every_script_are_checked() -> None:
    """No script opts out, and none lies where the Makefile's ``deno check`` does not look."""
    scripts = {path for path in (ROOT / "workbench").rglob("*.js") if path.parent.name != "plotly"}
    unchecked = {path.name for path in scripts if re.search(r"@ts-(nocheck|ignore|expect-error)", path.read_text())}
    assert not unchecked, f"give these types: {', '.join(sorted(unchecked))}"
    (patterns,) = re.findall(r"^SCRIPTS := \$\(wildcard (.*)\)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {path for pattern in patterns.split() for path in ROOT.glob(pattern)} == scripts
