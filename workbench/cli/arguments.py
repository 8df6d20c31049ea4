"""A command is a typed function: its parameters are its options, and ``Settings`` stands for a run's, flag by flag.

pydantic-settings makes both: of a parameter's type and help, and of ``RunConfig``, whose flags have their names in the
YAML (``--run.steps 30``, ``--method.beta 0.04``). Values stay text here; the sections parse and refuse them.
"""

import argparse
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, Union, get_args, get_origin

from pydantic import Field, create_model
from pydantic_settings import BaseSettings, CliSettingsSource, CliSuppress, SettingsError

from workbench import runs
from workbench.cli.rewards import read_rewards, set_reward_options
from workbench.config import ModelFormat, Reduction, Section
from workbench.config.reading import read_text, read_yaml
from workbench.config.section import path_of
from workbench.errors import ConfigError, cut, did_you_mean
from workbench.training.methods import METHODS, SHORTHAND, RunConfig, fill_from_task

Workspace = Annotated[Path | None, "folder that holds the runs; none for $WORKBENCH_WORKSPACE, else ./workspace"]
AtLeastOne = Annotated[int, Field(ge=1)]
_SHORT = {**{f"--{name}": f"--{name}.{field}" for name, field in SHORTHAND.items()}, "--prompt": "--text"}
"""Flags that people type most, as what they stand for."""
_NONE = "null"
"""What a flag is given for no value, as in YAML."""


@dataclass(frozen=True)
class Result:
    """The outcome of a command: ``data`` is printed as JSON if that is asked for, else ``text()`` is.

    ``write`` is called when it is printed: a file that cannot be written loses nothing that was computed.
    """

    data: Any
    text: Callable[[], str]
    code: int = 0
    write: Callable[[], object] = lambda: None


def say(line: str) -> None:
    """Print progress or a note, on standard error."""
    print(line, file=sys.stderr, flush=True)


def _any_name(section: type[Section]) -> Any:
    """Return a method's section whose name may be any method's."""
    name: Any = (Literal[tuple(METHODS)], Field("grpo", description="The training method."))
    return create_model(section.__name__, __base__=section, name=name)


_METHOD: Any = Union[tuple(_any_name(method.section) for method in METHODS.values())]  # noqa: UP007


class RunFlags(RunConfig, BaseSettings):  # type: ignore[misc]
    """The flags of every command that takes a run's settings."""

    method: _METHOD = None
    origins: CliSuppress[list[Any]] = []
    config: Path | None = None
    """YAML file to start from; flags change it."""
    reward: list[str] = []
    """A built-in reward, NAME[:KIND[:WEIGHT]]; repeatable. Rewards given replace the task's own and the file's."""
    reward_option: list[str] = Field([], validation_alias="reward-option")
    """An option of a built-in reward, NAME.OPTION=VALUE; repeatable."""
    reward_schedule: list[str] = Field([], validation_alias="reward-schedule")
    """Weights of a reward by the step of training, NAME=STEP:WEIGHT,…; repeatable."""
    reward_file: list[str] = Field([], validation_alias="reward-file")
    """A file that defines a reward function, FILE.py[::FUNCTION][:KIND[:WEIGHT]]; repeatable."""
    reward_model: list[str] = Field([], validation_alias="reward-model")
    """A reward model's folder or Hub id, PATH[,WEIGHT]; repeatable."""
    judge: list[str] = []
    """A file with a judge's settings (base_url, model, rubric, …), FILE.yaml[:KIND[:WEIGHT]]; repeatable."""
    format: ModelFormat | None = None
    """What the reward models read; none for what their architecture says, where that is enough."""
    reduce: Reduction | None = None
    """Use process reward models as outcome rewards: the step scores' last, min or product."""


_OF_RUN = set(RunConfig.model_fields)


@dataclass(frozen=True)
class Settings:
    """A run's settings as flags gave them: ``given`` by section, ``options`` that are no fields (``--reward``)."""

    given: Mapping[str, Any]
    options: Mapping[str, Any]
    workspace: Path | None = None

    def read(self, base: Mapping[str, Any] | None = None, file: Path | None = None) -> RunConfig:
        """Return what ``base``, the file, the task's own defaults and the flags come to, the last the strongest.

        Raises:
            ConfigError: for a value that does not fit.
            TaskError: for a task that is not there.
            RunError: for a run:NAME that is not.
        """
        file = file or self.options.get("config")
        data = _over(dict(base or {}), {} if file is None else read_file(file))
        data = _over(data, self.given, deep=True)
        if rewards := read_rewards(self.options, self.workspace):
            data = _over(data, {"method": {"rewards": rewards}})
        fill_from_task(data)
        data = _over(data, set_reward_options(data, self.options))
        return runs.resolve(RunConfig.parse(data), self.workspace)


def read_file(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file. Raises ConfigError."""
    what = f"--config {cut(str(path), 300)}"
    data = read_yaml(read_text(path, what), what)
    if data is not None and not isinstance(data, dict):
        raise ConfigError(f"{what}: a mapping of fields is wanted, and this is a {type(data).__name__}")
    return data or {}


def _over(base: Mapping[str, Any], changes: Mapping[str, Any], *, deep: bool = False) -> dict[str, Any]:
    """Return ``base`` with the fields of each section of ``changes``; ``deep``: those of the sections in them, too."""
    base, changes = (
        {k: {SHORTHAND[k]: v} if isinstance(v, str) and k in SHORTHAND else v for k, v in data.items()}
        for data in (base, changes)
    )
    name = changes.get("method", {}).get("name")
    if name is not None and name != base.get("method", {}).get("name", "grpo"):
        base.pop("method", None)  # what another method was set to says nothing of this one
    return _merge(base, changes, 9 if deep else 1)


def _merge(base: Mapping[str, Any], changes: Mapping[str, Any], levels: int) -> dict[str, Any]:
    both = {k for k in base.keys() & changes if isinstance(base[k], Mapping) and isinstance(changes[k], Mapping)}
    inner = {k: _merge(base[k], changes[k], levels - 1) for k in both} if levels else {}
    return {**base, **changes, **inner}


# -- parsing ----------------------------------------------------------------------------------------------------------


def read_arguments(name: str, command: Callable[..., Result], words: Sequence[str]) -> dict[str, Any]:
    """Return a command's arguments, and ``as_json``. Raises ConfigError; ends the process after ``--help``."""
    parameters = inspect.signature(command, eval_str=True).parameters
    takes_settings = "settings" in parameters
    own: dict[str, Any] = {
        name: (parameter.annotation, _field(name, parameter.annotation, parameter.default))
        for name, parameter in parameters.items()
        if name not in ("settings", "as_json")
    }
    own["as_json"] = (bool, _field("json", Annotated[bool, "print the result as one JSON document"], False))
    flags: Any = create_model("Flags", __base__=RunFlags if takes_settings else BaseSettings, **own)
    given = _parse(name, inspect.getdoc(command) or "", flags, words)
    fields_of_own = create_model("Options", __base__=Section, **own)
    aliases = {str(field.validation_alias) for field in fields_of_own.model_fields.values()}
    options = fields_of_own.parse({name: given.pop(name) for name in aliases & given.keys()})
    arguments = {name: getattr(options, name) for name in own}
    if takes_settings:
        extras = {name.replace("-", "_"): given.pop(name) for name in given.keys() - _OF_RUN}
        if "config" in extras:
            extras["config"] = Path(extras["config"])
        arguments["settings"] = Settings(given, extras, arguments.get("workspace"))
    return arguments


def _field(name: str, annotation: Any, default: Any) -> Any:
    """Return the field of an option: a parameter's name with dashes, its default, and its help among its metadata."""
    help = next((part for part in get_args(annotation) if isinstance(part, str)), None)
    alias = name.strip("_").replace("_", "-")
    return Field(... if default is inspect.Parameter.empty else default, description=help, validation_alias=alias)


def _parse(name: str, help: str, flags: type[BaseSettings], words: Sequence[str]) -> dict[str, Any]:
    parser = _Parser(prog=f"python -m workbench {name}", description=help, allow_abbrev=False)
    parser.usage = f"{parser.prog} [--FLAG VALUE ...]"  # the full list is what the help is for
    parser.method = next(iter(re.findall(r"--method(?:\.name)?[ =](\w+)", " ".join(words))), parser.method)
    lists = {
        field.validation_alias or field_name
        for field_name, field in flags.model_fields.items()
        if get_origin(field.annotation) is list
    }
    try:
        source: CliSettingsSource[Any] = CliSettingsSource(
            flags,
            root_parser=parser,
            parse_args_method=argparse.ArgumentParser.parse_intermixed_args,  # export RUN --to verl FOLDER
            cli_parse_args=list(_spelt_out(words, lists)),
            cli_avoid_json=True,
            cli_hide_none_type=True,
            cli_implicit_flags=True,
            cli_parse_none_str=_NONE,
        )
        return source()
    except SettingsError as error:
        raise ConfigError(f"{error}; values of several parts are a,b, name=value,… or JSON") from error


def _spelt_out(words: Sequence[str], lists: Iterable[Any]) -> Iterable[str]:
    """The words with ``--policy`` as ``--policy.path``, and values of list options as JSON, as they may hold commas."""
    is_value = False
    for word in words:
        flag, equals, value = word.partition("=")
        flag = _SHORT.get(flag, flag)
        is_listed = flag.startswith("--") and flag[2:] in lists
        if is_value:
            yield json.dumps([word])
        else:
            yield f"{flag}{equals}{json.dumps([value]) if is_listed and equals else value}"
        is_value = is_listed and not equals and not is_value


class _Parser(argparse.ArgumentParser):
    """Refuses arguments by a ConfigError that names the nearest flag of ``method``."""

    method = "grpo"

    def error(self, message: str) -> NoReturn:
        wrong = message.removeprefix("unrecognized arguments: ").split()[0]
        known = METHODS[self.method].section.model_fields if self.method in METHODS else ()
        flags = [
            flag
            for flag in self._option_string_actions
            if not flag.startswith("--method.") or flag.split(".")[1] in known
        ]
        raise ConfigError(message + (near_flag(wrong, flags) if wrong.startswith("-") else ""))


def near_flag(wrong: str, options: Iterable[str]) -> str:
    """Return "; did you mean …?" with the nearest option: one with this last name or these initials, ``--lr``."""
    name = wrong.lstrip("-").partition("=")[0].replace("-", "_").rpartition(".")[2]
    path = path_of(name, [option.removeprefix("--") for option in options])
    for option in options:
        last = option.lstrip("-").rpartition(".")[2]
        initials = "".join(word[:1] for word in last.split("_"))
        if option == f"--{path}" or (not path and len(name) > 1 and name in (last, initials)):
            return f"; did you mean {option}?"
    return did_you_mean(wrong.partition("=")[0], options)
