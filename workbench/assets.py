"""Paths of the files that come with the workbench: the embedded policy, real data, recipes and examples."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).resolve().parent


def _folder(in_wheel: str, in_checkout: str) -> Path:
    inside = _PACKAGE / in_wheel
    return inside if inside.is_dir() else _PACKAGE.parent / in_checkout


ASSETS = _folder("shipped", "assets")
"""``assets`` beside the package in a checkout, the package's own ``shipped`` where it was installed as a wheel."""
EMBEDDED = {"tiny": ASSETS / "tiny", "tiny-tools": ASSETS / "tiny_tools"}
"""The embedded policies' folders."""
FIRST_GROUP = ASSETS / "first-group.json"
"""A group that was sampled from ``tiny`` when it was built, shown before any policy is loaded."""
BLAME = ASSETS / "blame.json"
"""How much of the blame each credit scheme puts on a planted culprit, as ``python -m benchmarks blame`` writes it."""
EXAMPLES = _folder("programs", "examples")
GSM8K = ASSETS / "gsm8k"
"""GSM8K rows and four models' answers to 300 of its questions; its README.md says where they come from."""


def load_example(name: str) -> Any:
    """Return a program of ``examples/`` as a module. They import each other by their own names."""
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))
    spec = spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def recipes() -> dict[str, Path]:
    """The run configurations of known trainings that come along, by name."""
    return {path.stem: path for path in sorted((ASSETS / "recipes").glob("*.yaml"))}
