"""A RunConfig's fields as command-line flags: ``--run.steps 30``, with each field's own help, type and range.

The flags are read off the sections, so a field added there is a flag here; a method's own are called after it
(``--grpo.beta``). The flags of 0.3.0 (``--training.steps``) still work. Values go through as text and the sections
parse and refuse them, so that the shell, a file and the page's form speak of a wrong value in the same words.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from workbench import runs
from workbench.config import (
    METHODS,
    MOVED,
    SHORTHAND,
    Leaf,
    ModelFormat,
    Reduction,
    RewardConfig,
    RunConfig,
    SharedConfig,
    leaves,
    migrate,
    put,
)
from workbench.config.reading import read_text, read_yaml
from workbench.config.task_defaults import fill_from_task, method_of
from workbench.errors import ConfigError, cut
from workbench.places import is_of_run


@dataclass(frozen=True)
class Flag:
    """One field of the tree: ``path`` is its dotted name there, ``aliases`` are the flag's other names.

    ``method`` is the training method whose section the field is in, None for fields that every run has.
    """

    name: str
    path: str
    leaf: Leaf
    method: str | None = None

    @property
    def aliases(self) -> tuple[str, ...]:
        full_path = (self.path,) if self.method is None and self.path != self.name else ()
        return full_path + tuple(
            old + self.path.removeprefix(new)
            for old, new in MOVED.items()
            if self.path == new or self.path.startswith(f"{new}.")
        )

    @property
    def section(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def metavar(self) -> str:
        kind = get_origin(self.leaf.kind)
        if kind is Literal:
            return "{" + ",".join(str(choice) for choice in get_args(self.leaf.kind)) + "}"
        if kind in (list, dict):
            return "A,B,…" if kind is list else "NAME=X,…"
        return {int: "N", float: "X", bool: "true|false"}.get(self.leaf.kind, "TEXT")

    @property
    def default(self) -> str:
        default = self.leaf.default
        return "none" if default in (None, [], {}) else str(default).lower() if self.leaf.kind is bool else str(default)

    def is_in(self, args: argparse.Namespace) -> bool:
        """Whether it was given, by any of its names."""
        return any(name in vars(args) for name in (self.name, *self.aliases))

    def parse(self, text: str) -> Any:
        """Parse a flag's text where plain text is ambiguous: None, and lists."""
        if self.leaf.optional and text.lower() in ("none", "null"):
            return None
        if self.leaf.name == "trl":  # which reads its text itself
            return text
        if get_origin(self.leaf.kind) is list:
            return [part.strip() for part in text.split(",") if part.strip()]
        if get_origin(self.leaf.kind) is dict:
            pairs = (part.partition("=") for part in text.split(",") if part.strip())
            return {name.strip(): value.strip() for name, _, value in pairs}
        return text


def flags() -> Iterator[Flag]:
    """All fields that one value can set; ``rewards`` has flags of its own (``--reward``, ``--reward-file``)."""
    for leaf in leaves(SharedConfig):
        section, _, name = leaf.name.partition(".")
        if section == "method":
            yield Flag(
                "method", leaf.name, Leaf(leaf.name, Literal[tuple(METHODS)], False, leaf.help, next(iter(METHODS)))
            )
        else:
            yield Flag(section if SHORTHAND.get(section) == name else leaf.name, leaf.name, leaf)
    for method in METHODS.values():
        for leaf in leaves(method.section):
            if leaf.name != "name":
                yield Flag(f"{method.name}.{leaf.name}", f"method.{leaf.name}", leaf, method.name)


@cache
def _by_option() -> dict[str, Flag]:
    """Every name of every flag; a name that several methods share stands for the first one's."""
    named: dict[str, Flag] = {}
    for flag in flags():
        for option in (flag.name, *flag.aliases):
            named.setdefault(option, flag)
    return named


def add_flags(parser: argparse.ArgumentParser, fields: Sequence[str] | None = None) -> None:
    """Give ``parser`` the flags of these sections (of all), and ``--config`` for a file to start from."""
    parser.usage = f"{parser.prog} [--FLAG VALUE ...]"  # the full list is what the help is for
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML file to start from; flags change it")
    groups: dict[str, Any] = {"": parser.add_argument_group("run")}
    added: set[str] = set()
    for flag in flags():
        if fields is not None and not any(flag.name == field or flag.name.startswith(f"{field}.") for field in fields):
            continue
        if flag.section not in groups:
            groups[flag.section] = parser.add_argument_group(flag.section)
        help = f"{flag.leaf.help} (default: {flag.default})".replace("%", "%%")
        for option in (flag.name, *flag.aliases):
            if option not in added:
                added.add(option)
                groups[flag.section].add_argument(
                    f"--{option}",
                    metavar=flag.metavar,
                    default=argparse.SUPPRESS,
                    help=help if option == flag.name else argparse.SUPPRESS,
                    **({"nargs": "?", "const": "true"} if flag.leaf.kind is bool else {}),
                )
    if fields is None or "grpo.rewards" in fields:
        add_model_flags(add_reward_flags(parser))


def add_reward_flags(parser: argparse.ArgumentParser) -> Any:
    """The group the flags are in."""
    rewards = parser.add_argument_group("rewards")
    how = "NAME[:KIND[:WEIGHT]]"
    rewards.add_argument("--reward", action="append", default=[], metavar=how, help="a built-in reward; repeatable")
    rewards.add_argument(
        "--reward-option",
        action="append",
        default=[],
        metavar="NAME.OPTION=VALUE",
        help="an option of a built-in reward that is given or configured; repeatable",
    )
    rewards.add_argument(
        "--reward-file",
        action="append",
        default=[],
        metavar="FILE.py[:KIND[:WEIGHT]]",
        help="a file that defines a reward function, named like the file or `reward`; repeatable. Rewards given "
        "replace the task's own",
    )
    rewards.add_argument(
        "--trusted-file",
        action="append",
        default=[],
        metavar="FILE.py[:KIND[:WEIGHT]]",
        help="the same, run outside the seal: with the network, your files and modules, and your secrets; repeatable",
    )
    rewards.add_argument(
        "--judge",
        action="append",
        default=[],
        metavar="FILE.yaml[:KIND[:WEIGHT]]",
        help="a file with a judge's settings (base_url, model, rubric, …), named like the file; repeatable",
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


def given_flags(args: argparse.Namespace) -> dict[str, Any]:
    """The fields' flags that were given, by the name that was used."""
    return {option: value for option, value in vars(args).items() if option in _by_option()}


def flags_of(options: Mapping[str, Any], method: str) -> dict[str, Any]:
    """Those of the flags that a run by the method has."""
    known = _by_option()
    return {
        option: value
        for option, value in options.items()
        if known[option].method in (None, method) or option != known[option].name
    }


def read_rewards(args: argparse.Namespace) -> list[RewardConfig]:
    """The rewards of ``--reward`` and ``--reward-file``. Raises ConfigError."""
    try:
        return [
            RewardConfig.parse(reward)
            for reward in (
                *map(_built_in, args.reward),
                *map(_from_file, args.reward_file),
                *map(_trusted, args.trusted_file),
                *map(_judge, args.judge),
            )
        ]
    except ConfigError as error:
        raise ConfigError(f"--reward: {error}") from error


def read_config(args: argparse.Namespace) -> RunConfig:
    """The configuration that ``--config``, the task's own defaults and the flags come to, the last the strongest.

    Raises ConfigError for a value that does not fit, TaskError for a task that is not there,
    RunError for a run:NAME that is not.
    """
    options = vars(args)
    data = _migrated(options.get("base", {}))  # of the run that this one is to be like
    if args.config is not None:
        data = _over(data, _migrated(_read_file(args.config)))
    put_flags(data, options)
    rewards = [_built_in(text) for text in options.get("reward", [])]
    rewards += [_from_file(text) for text in options.get("reward_file", [])]
    rewards += [_trusted(text) for text in options.get("trusted_file", [])]
    rewards += [_judge(text) for text in options.get("judge", [])]
    rewards += [
        _from_model(text, options.get("format"), options.get("reduce"), options.get("workspace"))
        for text in options.get("reward_model", [])
    ]
    if rewards:
        put(data, ("method", "rewards"), rewards)
    fill_from_task(data)
    if assignments := options.get("reward_option"):
        _put_reward_options(data, assignments)
    return runs.resolved(RunConfig.parse(data), options.get("workspace"))


def _put_reward_options(data: dict[str, Any], assignments: Sequence[str]) -> None:
    """Set options of the rewards in ``data``. Raises ConfigError for a reward or an option that is not there."""
    from workbench.errors import RewardCodeError
    from workbench.rewards import find_builtin

    rewards = [reward.model_dump() for reward in RunConfig.parse(data).method.reward_functions]
    named = {reward["name"]: reward for reward in rewards}
    for text in assignments:
        place, _, value = text.partition("=")
        name, _, option = place.rpartition(".")
        if name not in named:
            there = ", ".join(named) or "none"
            raise ConfigError(f"--reward-option {text}: no reward {name!r} in this run; its rewards are {there}")
        try:
            named[name]["options"] |= {option: find_builtin(name).option_of_text(option, value)}
        except RewardCodeError as error:
            raise ConfigError(f"--reward-option {text}: {error}") from error
    put(data, ("method", "rewards"), rewards)


def _migrated(data: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return migrate(data)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _over(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Sections of ``changes`` replace those of ``base``; of the same method, only the fields that are there do."""
    before, after = base.get("method"), changes.get("method")
    same = isinstance(before, dict) and isinstance(after, dict) and before.get("name") == after.get("name")
    return base | changes | ({"method": {**before, **after}} if same and before and after else {})


def put_flags(data: dict[str, Any], options: Mapping[str, Any]) -> None:
    """Write the flags that were given into ``data``. Raises ConfigError where two names of a field disagree."""
    if "method" in options and options["method"] != method_of(data):
        data["method"] = {"name": options["method"]}  # what another method was set to says nothing of this one
    method, written = method_of(data), dict[str, tuple[str, Any]]()
    for option, flag in _by_option().items():
        if option not in options or option == "method":
            continue
        if flag.method not in (None, method) and option == flag.name:
            raise ConfigError(f"--{option}: the method is {method!r}; add --method {flag.method}")
        value = flag.parse(options[option])
        before, earlier = written.setdefault(flag.path, (option, value))
        if earlier != value:
            raise ConfigError(f"--{before} {earlier} and --{option} {value} set the same field; give one of them")
        put(data, flag.path.split("."), value)


def _read_file(path: Path) -> dict[str, Any]:
    what = f"--config {cut(str(path), 300)}"
    data = read_yaml(read_text(path, what), what)
    if data is not None and not isinstance(data, dict):
        raise ConfigError(f"{what}: a mapping of fields is wanted, and this is a {type(data).__name__}")
    return data or {}


def gives_rewards(args: argparse.Namespace) -> bool:
    """Whether flags name rewards, which then replace the task's or a file's."""
    return any(getattr(args, name, None) for name in ("reward", "reward_file", "reward_model", "trusted_file", "judge"))


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
    code = read_text(Path(name), f"--reward-file {cut(name, 300)}")
    stem = Path(name).stem
    return {"name": stem, "kind": kind or kind_in(code, stem) or "step", "weight": weight, "code": code}


def _trusted(text: str) -> dict[str, Any]:
    return {**_from_file(text), "trusted": True}


def _judge(text: str) -> dict[str, Any]:
    name, kind, weight = _reward_parts(text)
    what = f"--judge {cut(name, 300)}"
    settings = read_yaml(read_text(Path(name), what), what)
    return {"name": Path(name).stem, "kind": kind or "step", "weight": weight, "judge": settings}


def _from_model(
    text: str, form: ModelFormat | None, reduce: Reduction | None, workspace: Path | None
) -> dict[str, Any]:
    from workbench.rewards.models.formats import guess_format

    path, _, weight = text.partition(",")
    form = form or guess_format(str(runs.find_checkpoint(path, workspace)) if is_of_run(path) else path)
    model: dict[str, Any] = {"path": path, "format": form} | ({"reduce": reduce} if reduce else {})
    kind = "outcome" if form == "classifier" or reduce else "step"
    return {"name": Path(path).name.removeprefix("run:"), "kind": kind, "weight": weight or "1.0", "model": model}


def _reward_parts(text: str) -> tuple[str, str, str]:
    name, _, rest = text.partition(":")
    kind, _, weight = rest.partition(":")
    return name, kind, weight or "1.0"


def at_least_one(text: str) -> int:
    """The type of a flag that counts something."""
    if (count := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{count} is less than 1")
    return count
