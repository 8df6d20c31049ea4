"""A RunConfig's fields as command-line flags: ``--run.steps 30``, with each field's own help, type and range.

The flags are read off the sections, so a field added there is a flag here; a method's own are called after it
(``--grpo.beta``). Values go through as text and the sections
parse and refuse them, so that the shell, a file and the page's form speak of a wrong value in the same words.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from workbench import runs
from workbench.assets import ASSETS
from workbench.cli.rewards import add_model_flags, add_reward_flags, named_rewards, put_reward_settings
from workbench.config import Leaf, SharedConfig, leaves
from workbench.config.reading import read_text, read_yaml
from workbench.config.run import METHODS, SHORTHAND, RunConfig, fill_from_task, method_of, put
from workbench.config.section import OURS
from workbench.errors import ConfigError, cut, did_you_mean


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
        return (self.path,) if self.method is None and self.path != self.name else ()

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


@cache
def flags() -> tuple[Flag, ...]:
    """All fields that one value can set; ``rewards`` has flags of its own (``--reward``, ``--reward-file``)."""
    return tuple(_flags())


def _flags() -> Iterator[Flag]:
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


def near_flag(text: str, options: Iterable[str]) -> str:
    """Return "; did you mean …?" with the one of ``options`` that a wrong flag is nearest to; nothing where none is.

    A field's last name alone, its initials and what TRL calls it are near, too: ``--lr``.
    """
    name = text.lstrip("-").partition("=")[0].replace("-", "_")
    field = OURS.get(name, name).rpartition(".")[2]
    for option in options:
        last = option.lstrip("-").rpartition(".")[2]
        if field in (last, "".join(word[:1] for word in last.split("_"))):
            return f"; did you mean {option}?"
    return did_you_mean(text.partition("=")[0], options)


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


def read_config(args: argparse.Namespace) -> RunConfig:
    """The configuration that ``--config``, the task's own defaults and the flags come to, the last the strongest.

    Raises ConfigError for a value that does not fit, TaskError for a task that is not there,
    RunError for a run:NAME that is not.
    """
    options = vars(args)
    data = dict(options.get("base", {}))  # of the run that this one is to be like
    if args.config is not None:
        data = _over(data, _read_file(args.config))
    put_flags(data, options)
    if rewards := named_rewards(options):
        put(data, ("method", "rewards"), rewards)
    fill_from_task(data)
    put_reward_settings(data, options)
    return runs.resolved(RunConfig.parse(data), options.get("workspace"))


def config_of_file(path: Path) -> RunConfig:
    """The configuration of a file, with what its task brings; references to runs are left as they are."""
    data = _read_file(path)
    fill_from_task(data)
    return RunConfig.parse(data)


def other_config(file: Path, config: RunConfig) -> RunConfig:
    """``config`` with the sections of a file in place of its own. Raises as ``read_config`` does."""
    return read_config(argparse.Namespace(base=config.model_dump(mode="json"), config=file))


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
    data = read_yaml(read_text(path, what).replace("{assets}", str(ASSETS)), what)
    if data is not None and not isinstance(data, dict):
        raise ConfigError(f"{what}: a mapping of fields is wanted, and this is a {type(data).__name__}")
    return data or {}


def at_least_one(text: str) -> int:
    """The type of a flag that counts something."""
    if (count := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{count} is less than 1")
    return count
