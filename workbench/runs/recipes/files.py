"""A recipe's file: a pipeline's YAML with where its values come from, and what is laid over it to try it anywhere.

::

    name: short-stories
    about: what it trains, on what, for what
    source: https://…
    stages:                      # as of any pipeline; of a single run there is one
      - name: trained
        run: {policy: HuggingFaceTB/SmolLM-135M-Instruct, …}
    reduced:                     # by stage: settings laid over its own, the rest stays as it is
      trained:
        policy: {path: tiny}

In texts ``{here}`` is the file's folder, ``{assets}`` that of the files which come along, and ``{models}/NAME`` a tiny
model that is made when the reduced recipe is read (``recipes.models``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from workbench.assets import ASSETS
from workbench.config import migrate
from workbench.config.reading import read_text, read_yaml
from workbench.errors import ConfigError, did_you_mean, shown
from workbench.runs.pipelines.plan import Plan, load_plan, read_plan
from workbench.runs.recipes.models import made_model

_FOLDERS = {"compare": "comparison", "train": "recipes"}
_MADE = re.compile(r"\{models\}/(\w+)")
_KEYS = ("name", "about", "source", "stages", "reduced")

LayOver = Callable[[str, dict[str, Any]], dict[str, Any]]
"""Of a stage's name and the settings of its run: the settings that it is to have."""


def recipes(use: Literal["compare", "train"] = "compare") -> dict[str, Path]:
    """The recipes that come along, by name: those written for one budget, to compare, or whole ones to train."""
    paths = sorted((ASSETS / _FOLDERS[use]).glob("*.yaml"), key=lambda path: path.stem)
    return {path.stem: path for path in paths}


def load_recipe_file(source: str | Path) -> Plan:
    """A recipe that is compared, by name or of a file, as it is written. Raises ConfigError."""
    plan = load_plan(source, known=recipes())
    if "." in plan.name:
        raise ConfigError(f"{plan.name}: a recipe's name is part of its runs' names; give one without a dot")
    return plan


@dataclass(frozen=True)
class Recipe:
    """A recipe as it is written, not checked: ``stages`` and ``reduced`` as in the file."""

    name: str
    about: str
    source: str
    stages: tuple[Mapping[str, Any], ...]
    reduced: Mapping[str, Mapping[str, Any]]
    file: Path

    @property
    def is_run(self) -> bool:
        """Whether it is a single run."""
        return len(self.stages) == 1 and "run" in self.stages[0]

    def settings(self, reduced: bool, workspace: Path) -> dict[str, dict[str, Any]]:
        """The settings of each stage that is a run, by its name. Raises ConfigError.

        A reduced recipe's tiny models are made in the workspace.
        """
        if reduced and not self.reduced:
            raise ConfigError(
                f"recipe {self.name}: it has no reduced form; leave --reduced out, or give its file a 'reduced'"
            )
        runs: dict[str, dict[str, Any]] = {}
        for stage in self.stages:
            if "run" in stage:
                name = str(stage.get("name"))
                settings = _migrated(name, stage["run"])
                if reduced:
                    settings = _laid(settings, _migrated(name, self.reduced.get(name, {}), partial=True))
                runs[name] = self._filled(settings, workspace)
        return runs

    def plan(self, reduced: bool, workspace: Path, lay_over: LayOver = lambda stage, settings: settings) -> Plan:
        """The recipe as a pipeline, with what ``lay_over`` makes of its runs' settings. Raises ConfigError."""
        runs = self.settings(reduced, workspace)
        stages = [
            {**stage, "run": lay_over(str(stage["name"]), runs[str(stage["name"])])} if "run" in stage else dict(stage)
            for stage in self.stages
        ]
        return read_plan({"name": self.name, "about": self.about, "stages": stages}, self.name)

    def _filled(self, value: Any, workspace: Path) -> Any:
        if isinstance(value, str):
            for name in _MADE.findall(value):
                value = value.replace(f"{{models}}/{name}", str(made_model(name, workspace)))
            return value.replace("{here}", str(self.file.parent)).replace("{assets}", str(ASSETS))
        if isinstance(value, Mapping):
            return {key: self._filled(inner, workspace) for key, inner in value.items()}
        return [self._filled(inner, workspace) for inner in value] if isinstance(value, list) else value


def find_recipe(source: str | Path) -> Recipe:
    """A recipe to train, by name or of a file. Raises ConfigError."""
    known = recipes("train") | recipes("compare")
    path = known.get(str(source), Path(source))
    if not path.is_file():
        raise ConfigError(
            f"there is no recipe {shown(str(source))}{did_you_mean(str(source), known)}; give one that comes along, "
            f"{', '.join(recipes('train'))}, or a YAML file"
        )
    data = read_yaml(read_text(path, str(path)), str(path))
    if not isinstance(data, Mapping):
        raise ConfigError(f"{path}: a recipe is a mapping with 'stages'; write name, about and stages")
    for key in data:
        if key not in _KEYS:
            raise ConfigError(f"{path}: {shown(key)} is nothing of a recipe{did_you_mean(str(key), _KEYS)}; remove it")
    stages, reduced = data.get("stages"), data.get("reduced") or {}
    if not isinstance(stages, list) or not all(isinstance(stage, Mapping) for stage in stages):
        raise ConfigError(f"{path}: stages: give a list of stages, each a mapping with its name")
    names = [str(stage.get("name")) for stage in stages]
    if not isinstance(reduced, Mapping) or not all(isinstance(part, Mapping) for part in reduced.values()):
        raise ConfigError(f"{path}: reduced: settings of a run are wanted for each stage, by its name")
    for name in reduced:
        if name not in names:
            raise ConfigError(
                f"{path}: reduced: there is no stage {shown(name)}{did_you_mean(str(name), names)}; its stages are "
                f"{', '.join(names)}"
            )
    text = {key: str(data.get(key) or "") for key in ("name", "about", "source")}
    return Recipe(text["name"] or path.stem, text["about"], text["source"], tuple(stages), reduced, path.absolute())


def _migrated(stage: str, settings: Any, *, partial: bool = False) -> dict[str, Any]:
    if not isinstance(settings, Mapping):
        raise ConfigError(f"stage {stage}: run: settings by name are wanted, and this is {shown(settings)}")
    try:
        moved = migrate(settings)
    except ValueError as error:
        raise ConfigError(f"stage {stage}: {error}") from error
    method = moved.get("method")
    if partial and isinstance(method, Mapping) and "name" not in (settings.get("method") or {}):
        moved["method"] = {key: value for key, value in method.items() if key != "name"}
    return moved


def _laid(base: Any, over: Any) -> Any:
    """``over`` in the place of ``base``; of mappings, key by key."""
    if not (isinstance(base, Mapping) and isinstance(over, Mapping)):
        return over
    return {**base, **{key: _laid(base.get(key), value) for key, value in over.items()}}
