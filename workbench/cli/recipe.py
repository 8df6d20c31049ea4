"""``recipes`` lists the trainings that come along; ``train recipe:NAME`` carries one out, in full or reduced."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from workbench import runs
from workbench.cli.flags import flags_of, given_flags, put_flags, read_config
from workbench.cli.output import print_result
from workbench.cli.pipelines import follow_pipeline, trust_plan
from workbench.cli.trust import require_trust
from workbench.config import migrate
from workbench.config.task_defaults import method_of
from workbench.display.tables import table
from workbench.errors import ConfigError, shown
from workbench.places import RUN, is_of_run
from workbench.runs.pipelines.pipeline import start_plan
from workbench.runs.pipelines.plan import DATA
from workbench.runs.recipes import Recipe, check_recipe, find_recipe, recipes
from workbench.sections.policy import LoraConfig

PREFIX = "recipe:"
Adder = Callable[[str, Callable[[argparse.Namespace], int], str], argparse.ArgumentParser]
FollowRun = Callable[[argparse.Namespace, runs.Run], int]
_REWARD_FLAGS = ("reward", "reward_option", "reward_file", "reward_model", "trusted_file", "judge")
_POLICY = (
    "policy",
    "policy.path",
    "policy.adapter",
    "adapter",
    "policy.merge",
    *(f"policy.lora.{name}" for name in LoraConfig.model_fields),
)
"""Flags of what a stage has from an earlier one whose policy it trains on."""


def add_recipes_command(command: Adder) -> None:
    parser = command("recipes", list_recipes, "List the recipes that come along, or show what one of them says.")
    parser.add_argument("name", nargs="?", metavar="NAME", help=f"{', '.join(recipes('train'))}, or a YAML file")


def add_recipe_flags(parser: argparse.ArgumentParser) -> None:
    names = ", ".join(recipes("train"))
    parser.add_argument("recipe", nargs="?", metavar=f"{PREFIX}NAME", help=f"a recipe to carry out: {names}, or a file")
    parser.add_argument("--reduced", action="store_true", help="the recipe's code on tiny models and a few rows")


def list_recipes(args: argparse.Namespace) -> int:
    known = [find_recipe(name) for name in ([args.name] if args.name else recipes("train"))]
    data = {"recipes": [_data(recipe) for recipe in known]}
    if args.name:
        return print_result(args, data, lambda: known[0].file.read_text(encoding="utf-8").rstrip())
    rows = [(each["name"], " → ".join(each["methods"]), ", ".join(each["policies"])) for each in data["recipes"]]
    return print_result(args, data, lambda: f"{table(('recipe', 'methods', 'policy'), rows)}\n\n{_HOW}")


_HOW = (
    "train recipe:NAME carries one out, with --reduced its code on tiny models; recipes NAME shows it. "
    f"Written for a budget, for compare --methods: {', '.join(recipes())}"
)


def _data(recipe: Recipe) -> dict[str, Any]:
    settings = [migrate(stage["run"]) for stage in recipe.stages if isinstance(stage.get("run"), Mapping)]

    def named(section: str, field: str) -> list[str]:
        values = [str((each.get(section) or {}).get(field, "")) for each in settings]
        values = [value.replace("{here}/", "") for value in values if value and not value.startswith(RUN)]
        return list(dict.fromkeys(values))

    return {
        "name": recipe.name,
        "about": recipe.about,
        "source": recipe.source,
        "stages": [str(stage.get("name")) for stage in recipe.stages],
        "methods": [method_of(each) for each in settings],
        "policies": named("policy", "path"),
        "tasks": named("task", "name"),
        "has_reduced": bool(recipe.reduced),
        "file": str(recipe.file),
    }


def train_recipe(args: argparse.Namespace, follow_run: FollowRun) -> int:
    """Carry a recipe out with the flags laid over it; a single run as a run, several stages as a pipeline."""
    if not args.recipe.startswith(PREFIX):
        if Path(args.recipe).suffix in (".yaml", ".yml") or Path(args.recipe).is_file():
            raise ConfigError(f"{shown(args.recipe)} is a file; give it as --config {args.recipe}")
        near = args.recipe if args.recipe in recipes("train") else "NAME"
        raise ConfigError(f"{shown(args.recipe)} is nothing to train; write {PREFIX}{near}, or give flags alone")
    if args.from_run is not None:
        raise ConfigError("--from and a recipe are both what to start from; give one of them")
    name = args.recipe.removeprefix(PREFIX)
    recipe = find_recipe(name)
    workspace = Path(runs.default_workspace() if args.workspace is None else args.workspace).resolve()
    if recipe.is_run:
        (args.base,) = recipe.settings(args.reduced, workspace).values()
        config = read_config(args)
        check_recipe(name, config, workspace, reduced=args.reduced)
        return follow_run(args, runs.start(require_trust(args, config), args.workspace, now=args.now))
    plan = recipe.plan(args.reduced, workspace, _LayOver(args, recipe))
    check_recipe(name, plan, workspace, reduced=args.reduced)
    trust_plan(args, plan, args.recipe)
    return follow_pipeline(args, start_plan(plan, args.workspace, name=given_flags(args).get("name"), now=args.now))


class _LayOver:
    """Lays flags over the runs of several stages, each over those that have the field.

    What a stage has from an earlier one stays: its policy, its rows. Raises ConfigError for what no stage takes, or
    cannot be said of several at once.
    """

    def __init__(self, args: argparse.Namespace, recipe: Recipe) -> None:
        self.flags = {name: value for name, value in given_flags(args).items() if name != "name"}
        stages = {str(stage["name"]): migrate(stage["run"]) for stage in recipe.stages if "run" in stage}
        tasks = {str((settings.get("task") or {}).get("name")) for settings in stages.values()}
        of_one_run = [
            *(["config"] if args.config is not None else []),
            *(name for name in _REWARD_FLAGS if getattr(args, name, None)),
            *(name for name in self.flags if name == "method" or (name.startswith("task") and len(tasks) > 1)),
        ]
        if of_one_run:
            raise ConfigError(
                f"--{of_one_run[0].replace('_', '-')}: {recipe.name} has {len(recipe.stages)} stages, and this is of "
                f"one; copy {recipe.file}, change it there, and train {PREFIX}FILE"
            )
        methods = {method_of(settings) for settings in stages.values()}
        taken = {name for method in methods for name in flags_of(self.flags, method)}
        if unknown := [name for name in self.flags if name not in taken]:
            raise ConfigError(
                f"--{unknown[0]}: no stage of {recipe.name} is of that method; theirs are {', '.join(sorted(methods))}"
            )

    def __call__(self, stage: str, settings: dict[str, Any]) -> dict[str, Any]:
        policy, task = settings.get("policy") or {}, settings.get("task") or {}
        from_earlier = {
            *(
                _POLICY
                if any(map(is_of_run, (policy.get("path"), policy.get("adapter"), *policy.get("merge", ()))))
                else ()
            ),
            *(("task.data",) if str(task.get("data", "")).startswith(DATA) else ()),
        }
        flags = flags_of(self.flags, method_of(settings))
        put_flags(settings, {name: value for name, value in flags.items() if name not in from_earlier})
        return settings
