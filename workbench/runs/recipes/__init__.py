"""Recipes: known trainings as the YAML of a pipeline, shipped or a person's own.

``files`` reads them, ``budget`` scales those that are compared to one number of sampled completions, ``models`` makes
the tiny models that reduced ones train, ``check`` says what this machine lacks for one.
"""

from workbench.runs.recipes.budget import COMPLETIONS, Amount, amount, laid_over, load_recipe, scaled
from workbench.runs.recipes.check import check_recipe
from workbench.runs.recipes.files import Recipe, find_recipe, load_recipe_file, recipes

__all__ = [
    "COMPLETIONS",
    "Amount",
    "Recipe",
    "amount",
    "check_recipe",
    "find_recipe",
    "laid_over",
    "load_recipe",
    "load_recipe_file",
    "recipes",
    "scaled",
]
