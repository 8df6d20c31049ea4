"""A RunConfig's fields as command-line flags: ``--training.steps 30``, with each field's own help, type and range.

The flags are read off the model, so a field added there is a flag here. Values go through as text and the model parses
and refuses them, so that the shell, a file and the page's form speak of a wrong value in the same words.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from workbench.config import ModelFormat, Reduction, RewardConfig, RunConfig
from workbench.errors import ConfigError

EVERYTHING: tuple[str, ...] = tuple(RunConfig.model_fields)


@dataclass(frozen=True)
class Flag:
    """One field of the tree, by its dotted name."""

    name: str
    kind: Any
    optional: bool
    help: str
    default: Any

    @property
    def section(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def metavar(self) -> str:
        if get_origin(self.kind) is Literal:
            return "{" + ",".join(str(choice) for choice in get_args(self.kind)) + "}"
        if get_origin(self.kind) is list:
            return "A,B,…"
        if get_origin(self.kind) is dict:
            return "NAME=X,…"
        return {int: "N", float: "X", bool: "true|false"}.get(self.kind, "TEXT")

    def parse(self, text: str) -> Any:
        """Only what text cannot say of itself: None, and where one item of a list ends."""
        if self.optional and text.lower() in ("none", "null"):
            return None
        if get_origin(self.kind) is list:
            return [part.strip() for part in text.split(",") if part.strip()]
        if get_origin(self.kind) is dict:
            pairs = (part.partition("=") for part in text.split(",") if part.strip())
            return {name.strip(): value.strip() for name, _, value in pairs}
        return text


def flags(model: type[BaseModel] = RunConfig, prefix: str = "") -> Iterator[Flag]:
    """All fields that one value can set; ``rewards`` has flags of its own (``--reward``, ``--reward-file``)."""
    for name, field in model.model_fields.items():
        kind, optional = _kind(field)
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from flags(kind, f"{prefix}{name}.")
        elif f"{prefix}{name}" != "rewards":
            default = None if field.default is PydanticUndefined else field.default
            yield Flag(f"{prefix}{name}", kind, optional, field.description or "", default)


def add_flags(parser: argparse.ArgumentParser, fields: Sequence[str] = EVERYTHING) -> None:
    """Give ``parser`` the flags of these top-level fields, and ``--config`` for a file to start from."""
    parser.usage = f"{parser.prog} [--FLAG VALUE ...]"  # the full list is what the help is for
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML file to start from; flags change it")
    groups: dict[str, Any] = {"": parser.add_argument_group("run")}
    for flag in flags():
        if flag.name.partition(".")[0] not in fields:
            continue
        if flag.section not in groups:
            groups[flag.section] = parser.add_argument_group(flag.section)
        default = "none" if flag.default is None else str(flag.default).lower() if flag.kind is bool else flag.default
        groups[flag.section].add_argument(
            f"--{flag.name}",
            metavar=flag.metavar,
            default=argparse.SUPPRESS,
            help=f"{flag.help} (default: {default})".replace("%", "%%"),
            **({"nargs": "?", "const": "true"} if flag.kind is bool else {}),
        )
    if "rewards" in fields:
        add_model_flags(add_reward_flags(parser))


def add_reward_flags(parser: argparse.ArgumentParser) -> Any:
    """The group the flags are in."""
    rewards = parser.add_argument_group("rewards")
    how = "NAME[:KIND[:WEIGHT]]"
    rewards.add_argument("--reward", action="append", default=[], metavar=how, help="a built-in reward; repeatable")
    rewards.add_argument(
        "--reward-file",
        action="append",
        default=[],
        metavar="FILE.py[:KIND[:WEIGHT]]",
        help="a file that defines a reward function, named like the file or `reward`; repeatable. Rewards given "
        "replace the task's own",
    )
    return rewards


def add_model_flags(to: Any) -> None:
    to.add_argument(
        "--reward-model",
        action="append",
        default=[],
        metavar="PATH[,WEIGHT]",
        help="a reward model's folder or Hub id; repeatable",
    )
    to.add_argument(
        "--format",
        choices=get_args(ModelFormat),
        help="what the reward models read (default: by their architecture, where that is enough)",
    )
    to.add_argument(
        "--reduce",
        choices=get_args(Reduction),
        help="use process reward models as outcome rewards: the step scores' last, min or product",
    )


def read_rewards(args: argparse.Namespace) -> list[RewardConfig]:
    """The rewards of ``--reward`` and ``--reward-file``. Raises ConfigError."""
    given = [*map(_built_in, args.reward), *map(_from_file, args.reward_file)]
    try:
        return [RewardConfig.model_validate(one) for one in given]
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"--reward: {first['loc'][0]}: {first['msg']} (got {first['input']!r})") from error


def read_config(args: argparse.Namespace) -> RunConfig:
    """The configuration that ``--config``, the task's own defaults and the flags come to, the last the strongest.

    Raises ConfigError for a value that does not fit, TaskError for a task that is not there.
    """
    given = vars(args)
    data = dict(given.get("base", {}))  # of the run that this one is to be like
    if args.config is not None:
        data.update(_read_file(args.config))
    for flag in flags():
        if flag.name in given:
            _put(data, flag.name.split("."), flag.parse(given[flag.name]))
    rewards = [_built_in(text) for text in given.get("reward", [])]
    rewards += [_from_file(text) for text in given.get("reward_file", [])]
    rewards += [_from_model(text, given.get("format"), given.get("reduce")) for text in given.get("reward_model", [])]
    if rewards:
        data["rewards"] = rewards
    _fill_from_task(data)
    return RunConfig.parse(data)


def _kind(field: FieldInfo) -> tuple[Any, bool]:
    """The field's type without ``| None``, and whether it had that."""
    kind = field.annotation
    if get_origin(kind) not in (Union, UnionType):
        return kind, False
    rest = [part for part in get_args(kind) if part is not NoneType]
    return (rest[0] if len(rest) == 1 else str), True


def _read_file(path: Path) -> dict[str, Any]:
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config {path}: {error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"--config {path} is not YAML: {error}") from error
    if data is not None and not isinstance(data, dict):
        raise ConfigError(f"--config {path}: a mapping of fields is wanted, and this is a {type(data).__name__}")
    return data or {}


def _put(data: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for part in path[:-1]:
        inner = data.get(part)
        data[part] = inner = dict(inner) if isinstance(inner, Mapping) else {}
        data = inner
    data[path[-1]] = value


def _fill_from_task(data: dict[str, Any]) -> None:
    """A task other than the default one brings its own pattern, rewards and length where none are given."""
    name = data.get("task")
    if not isinstance(name, str) or name == RunConfig.model_fields["task"].default:
        return
    from workbench.tasks import load_task

    task = load_task(name)
    pattern = data.setdefault("pattern", {})
    if isinstance(pattern, dict) and "regex" not in pattern:  # a regex of one's own comes with its own kind
        data["pattern"] = task.pattern.model_dump() | pattern
    if task.rewards and "rewards" not in data:
        data["rewards"] = [reward.model_dump() for reward in task.rewards]
        credit = data.setdefault("credit", {})
        if isinstance(credit, dict):
            credit.setdefault("scheme", task.scheme)
    sampling = data.setdefault("sampling", {})
    if isinstance(sampling, dict):
        sampling.setdefault("max_completion_length", task.max_completion_length)


def _built_in(text: str) -> dict[str, Any]:
    from workbench.errors import RewardCodeError
    from workbench.rewards import find_builtin

    prefix = "trl:" if text.startswith("trl:") else ""  # its colon is part of the name
    name, kind, weight = _reward_parts(text.removeprefix(prefix))
    try:
        builtin = find_builtin(prefix + name)
    except RewardCodeError as error:
        raise ConfigError(f"--reward {text}: {error}") from error
    return {"name": builtin.name, "kind": kind or builtin.kind, "weight": weight}


def _from_file(text: str) -> dict[str, Any]:
    from workbench.rewards.source import kind_in

    name, kind, weight = _reward_parts(text)
    try:
        code = Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--reward-file {name}: {error}") from error
    stem = Path(name).stem
    return {"name": stem, "kind": kind or kind_in(code, stem) or "step", "weight": weight, "code": code}


def _from_model(text: str, form: ModelFormat | None, reduce: Reduction | None) -> dict[str, Any]:
    from workbench.rewards.models import guess_format

    path, _, weight = text.partition(",")
    form = form or guess_format(path)
    model: dict[str, Any] = {"path": path, "format": form} | ({"reduce": reduce} if reduce else {})
    kind = "outcome" if form == "classifier" or reduce else "step"
    return {"name": Path(path).name, "kind": kind, "weight": weight or "1.0", "model": model}


def _reward_parts(text: str) -> tuple[str, str, str]:
    name, _, rest = text.partition(":")
    kind, _, weight = rest.partition(":")
    return name, kind, weight or "1.0"


def at_least_one(text: str) -> int:
    """The type of a flag that counts something."""
    if (count := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{count} is less than 1")
    return count
