"""The training methods: a method is a module here that names its ``METHOD``."""

from importlib import import_module
from pkgutil import iter_modules

from workbench.training.methods.base import Method

_MODULES = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__) if module.name != "base"]
METHODS: dict[str, Method] = {
    method.name: method for method in sorted((module.METHOD for module in _MODULES), key=lambda method: method.order)
}
"""Every method by name, in their order; the first is the default."""

__all__ = ["METHODS", "Method"]
