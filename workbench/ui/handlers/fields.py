"""The fields of the page's forms, read off the configuration's sections: one that a section gets is one here.

A field goes by its path in the configuration, a method's own setting by the method's name (``grpo.beta``), since the
page holds those of every method. What a section cannot say of a field stands in ``SPECIAL``.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache
from typing import Any, Literal, get_args, get_origin

from pydantic import TypeAdapter, ValidationError

from workbench.assets import EMBEDDED
from workbench.config import (
    CreditConfig,
    Leaf,
    LoraConfig,
    MethodSection,
    PromptSection,
    SamplingConfig,
    SharedConfig,
    leaves,
)
from workbench.config.section import as_text
from workbench.config.task import READING
from workbench.credit import MODIFIERS, SCHEMES, Option
from workbench.steps import StepPattern
from workbench.training.methods import METHODS, RunConfig

INSPECTED = ("pattern", "rewards", "credit", "sampling", "isolate_rewards")
"""The parts of a method's section that Inspect edits, the same for all methods."""
COLUMNS = ("columns", "data_columns")
"""Fields of a task that are a table, and one text on the page."""
AS_INSPECT = "as on Inspect"
"""The choice of a run's credit scheme that takes Inspect's."""
FIRST = next(iter(METHODS))
"""The method that the page opens with."""
LORA_RANK = "policy.lora.r"
"""On the page, the rank says whether an adapter is trained at all: without one, all weights are."""
CREDIT, COMPARE, ISOLATE, METHOD = "method.credit", "page.compare", "method.isolate_rewards", "method.name"
REGEX, KIND = "method.pattern.regex", "method.pattern.kind"
TEXT, SEED, REFERENCE, RUN_SCHEME = "page.text", "page.seed", "page.reference", "page.run_scheme"

SPECIAL: Mapping[str, Mapping[str, Any]] = {
    "policy.path": {
        "label": "Policy: name, Hub id, folder or run:NAME", "elem_id": "policy", "choices": list(EMBEDDED),
        "allow_custom_value": True,
    },
    REFERENCE: {"elem_id": "reference", "choices": [("none", ""), *EMBEDDED], "allow_custom_value": True},
    SEED: {"elem_id": "seed"},
    TEXT: {"elem_id": "prompt"},
    "method.sampling.num_generations": {"elem_id": "generations"},
    "method.sampling.temperature": {"elem_id": "temperature", "step": 0.1},
    "method.sampling.max_completion_length": {"elem_id": "max-tokens"},
    "method.sampling.stop": {"elem_id": "stop-strings", "placeholder": "</answer>", "lines": 2, "max_lines": 8},
    "prompt.system": {"elem_id": "system", "lines": 2, "max_lines": 8},
    "prompt.apply_template": {
        "elem_id": "apply-template",
        "choices": [("for conversations", "auto"), ("always", "always"), ("never", "never")],
    },
    "prompt.template_kwargs": {"elem_id": "template-kwargs", "placeholder": "enable_thinking=false"},
    "method.pattern.leave_out_thinking": {"elem_id": "leave-out-thinking"},
    ISOLATE: {"elem_id": "isolate"},
    METHOD: {"elem_id": "method", "choices": list(METHODS)},
    RUN_SCHEME: {"elem_id": "train-scheme"},
    "task.name": {"elem_id": "task"},
    "task.data": {"elem_id": "data", "placeholder": "the task’s own rows"},
    "task.data_columns": {"placeholder": "prompt=question,completion=text"},
    "task.columns": {"placeholder": "prompt=question,answer=meta.truth"},
    "task.prompt_template": {"placeholder": "{question}\\nAnswer:"},
    "task.filter": {"placeholder": "level >= 3"},
    "task.split": {"placeholder": "train"},
    "task.held_out_split": {"placeholder": "test"},
    "run.steps": {"elem_id": "steps"},
    "optimiser.learning_rate": {"elem_id": "learning-rate"},
    "seed": {"elem_id": "train-seed"},
    "name": {"elem_id": "run-name", "placeholder": "from the date"},
    "policy.merge": {"placeholder": "run:taught=1, owner/style=0.5"},
    LORA_RANK: {"info": "Rank of the adapter to train; empty trains all weights."},
}  # fmt: skip
"""What a field's widget has beside what the section says."""
TABLES = ("prompt.template_kwargs", "policy.merge", *(f"{name}.trl" for name in METHODS))
"""Paths of values by name that one field holds."""
_NOT_DRAWN = ("policy.path", "policy.trust_remote_code", "run.steps", "optimiser.learning_rate", LORA_RANK)
_PAGE = (
    Leaf(SEED, int, False, "Seed of the answers; another one samples others.", 1, "Seed"),
    Leaf(REFERENCE, str, False, "", "", "Reference policy, for the KL divergence from it"),
)
Part = tuple[str, list[Leaf]]
"""The title of a part of a form that is folded away, "" for one that is not, and its fields."""


# ── forms ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def pattern_form() -> list[Part]:
    """Return what a step pattern has beside its regex and its kind, which stand first."""
    return [("", [leaf for leaf in _of("method.pattern", StepPattern) if leaf.name not in (REGEX, KIND)])]


def sampling_form() -> list[Part]:
    sampling = {leaf.name: leaf for leaf in _of("method.sampling", SamplingConfig)}
    first = [sampling.pop(f"method.sampling.{name}") for name in _SAMPLED]
    policy = next(leaf for leaf in _shared() if leaf.name == "policy.path")
    seed, reference = _PAGE
    return [
        ("", [policy]),
        ("", [*first, seed]),
        ("", [reference]),
        ("System message, template, stops …", [*_of("prompt", PromptSection), *sampling.values()]),
    ]


_SAMPLED = ("num_generations", "temperature", "max_completion_length")


def isolation_form() -> list[Part]:
    return [("", [leaf for leaf in _of("method", MethodSection) if leaf.name == ISOLATE])]


def task_form() -> list[Part]:
    """Return what says how the task's rows are read."""
    return [("", [leaf for leaf in _shared() if leaf.name.removeprefix("task.") in READING])]


def method_field(method: str) -> Leaf:
    """The field that a method is chosen in, which says what the one chosen does."""
    known = METHODS[method]
    return Leaf(METHOD, str, False, f"{known.summary} {known.when}".strip(), None, "Method")


def method_form(method: str) -> list[Part]:
    """Return what only a method has: the settings that matter most, then all others; of GRPO, the engine, too."""
    own = {leaf.name: leaf for leaf in own_leaves(method)}
    first = [own.pop(f"{method}.{name}") for name in METHODS[method].settings] or [own.pop(name) for name in list(own)]
    engine = [leaf for leaf in _shared() if leaf.name.startswith("engine.") and method == FIRST]
    return [("", first), (f"More of {method}", list(own.values())), ("Engine", engine)]


def run_form() -> tuple[list[Part], list[Part]]:
    """Return what runs by all methods have: the fields before the method's own, and those after them."""
    shared = {leaf.name: leaf for leaf in _shared()}
    choices = Literal.__getitem__((AS_INSPECT, *SCHEMES))
    about = "How step rewards become token advantages in this run."
    main = [shared[path] for path in ("run.steps", "optimiser.learning_rate", "seed")]
    folded = {
        "Optimiser": _beginning(shared, "optimiser."),
        "Measures, checkpoints, ranks": _beginning(shared, "run."),
        "Policy and adapter": [shared[LORA_RANK], *_beginning(shared, "policy.")],
    }
    before = [[shared[path] for path in DATA], [*main, Leaf(RUN_SCHEME, choices, False, about, None, "Credit scheme")]]
    return [("", part) for part in before], [*folded.items(), ("", [shared["name"]])]


DATA = ("task.data", "task.data_columns")
"""Fields of a method that trains on rows."""


def is_used(path: str, method: str) -> bool:
    """Return whether a field of ``run_form`` means something to a method."""
    needs_credit = path == RUN_SCHEME and not takes(method, "credit")
    return METHODS[method].section.kind is not None if path in DATA else not needs_credit


def _beginning(shared: Mapping[str, Leaf], start: str) -> list[Leaf]:
    return [leaf for path, leaf in shared.items() if path.startswith(start) and path not in _NOT_DRAWN]


def scheme_field(prefix: str) -> Leaf:
    """The field that a scheme is chosen in; there may be none to compare with."""
    names = list(SCHEMES) if prefix == CREDIT else [NONE, *SCHEMES]
    return Leaf(
        f"{prefix}.scheme",
        Literal.__getitem__(tuple(names)),
        False,
        "",
        None,
        "Scheme" if prefix == CREDIT else "Compare with",
    )


def credit_form(prefix: str) -> list[Part]:
    """The options of all credit schemes by name; those that few change are folded away.

    Of the page's own scheme, the weight of the final answer stands in the list of rewards.
    """
    options = {name: option for scheme in SCHEMES for name, option in options_of(scheme).items()}
    shown = [option for option in options.values() if prefix == COMPARE or option is not _OUTCOME]
    first = [option_leaf(prefix, option) for option in shown if option.name not in _SECONDARY]
    return [("", first), ("Advanced credit", [option_leaf(prefix, one) for one in shown if one.name in _SECONDARY])]


def option_leaf(prefix: str, option: Option) -> Leaf:
    """An option of a credit scheme as a field."""
    kinds: dict[str, Any] = {"number": float, "switch": bool}
    kind = kinds.get(option.kind) or Literal.__getitem__(tuple(option.choices))
    return Leaf(
        f"{prefix}.{option.name}", kind, False, option.help, option.default, OPTION_LABELS.get(option.name, option.name)
    )


_SECONDARY = {"merge_equal", *CreditConfig.model_fields} - {"outcome_weight"}
OPTION_LABELS = {
    "normalise": "Normalise",
    "scale": "Divide by std",
    "gamma": "Discount γ",
    "temperature": "Softmax temperature",
    "threshold": "Wrong if reward <",
    "right_from": "Right if reward ≥",
    "process_weight": "Process weight",
    "token_weight": "Token weight",
    "prior_mean": "Prior mean",
    "prior_std": "Prior std",
    "outcome_weight": "Outcome weight",
    "clip": "Largest advantage",
    "drop_duplicates": "Drop exact copies",
    "each_reward": "Normalise each reward",
    "merge_equal": "Merge equal steps",
    "oar": "Weigh by importance (OAR)",
    "oar_threshold": "Share that is weakened",
    "oar_boost": "Boost",
    "gate": "Gate",
}


def paths_of(form: Iterable[Part]) -> list[str]:
    return [leaf.name for _, part in form for leaf in part]


# ── a field ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def elem_id(path: str) -> str:
    """The elem_id of a field's widget."""
    for prefix, before in ((CREDIT, ""), (COMPARE, "b-")):
        if path.startswith(f"{prefix}."):
            name = path.removeprefix(f"{prefix}.")
            return f"{before}scheme" if name == "scheme" else f"{before}credit-{name.replace('_', '-')}"
    section, _, name = path.partition(".")
    path = f"method.{name}" if section in METHODS else path
    return str(SPECIAL.get(path, {}).get("elem_id") or re.sub(r"[._]", "-", path.removeprefix("method.pattern.")))


def label_of(leaf: Leaf) -> str:
    return leaf.title or leaf.name.rpartition(".")[2].replace("_", " ").capitalize()


def help_of(leaf: Leaf) -> str:
    """Return what a field means, its range and its default."""
    plain = leaf.default in (None, {}, "") or isinstance(leaf.default, list)
    said = filter(None, (leaf.limits, "" if plain else f"default {in_words(leaf.default)}"))
    more = "; ".join(said)
    return f"{leaf.help} {more[:1].upper()}{more[1:]}.".replace("`", "") if more else leaf.help.replace("`", "")


def choices_of(leaf: Leaf) -> list[Any]:
    """Return what there is to choose from; nothing where anything can be typed."""
    if isinstance(listed := SPECIAL.get(leaf.name, {}).get("choices"), list):
        return listed
    kind = get_args(leaf.kind)[0] if get_origin(leaf.kind) is list else leaf.kind
    names = list(get_args(kind)) if get_origin(kind) is Literal else []
    return [("none", ""), *names] if names and leaf.optional else names


def show_value(leaf: Leaf, value: Any) -> Any:
    """Return what a field's widget holds of a configuration's value: lists a line an entry, tables as name=value."""
    if isinstance(value, Mapping):
        return as_text(value)
    if isinstance(value, list | tuple) and not choices_of(leaf):
        return "\n".join(str(entry).replace("\n", "\\n") for entry in value)
    if may_be_empty(leaf):
        return "" if value is None else str(value)
    return "" if value is None and leaf.kind not in (int, float) else value


def may_be_empty(leaf: Leaf) -> bool:
    """Return whether a number's field may hold none: it is a text, as Gradio shows 0 in an empty field of a number."""
    return leaf.kind in (int, float) and (leaf.optional or leaf.name == LORA_RANK)


def number_in(text: str) -> Any:
    """Return the number that a text says, None for an empty one; another text as it is, which its section refuses."""
    try:
        number = float(text)
    except ValueError:
        return text.strip() or None
    return text if not math.isfinite(number) else int(number) if number.is_integer() else number


def in_words(value: Any) -> str:
    """A value as a form says it."""
    switched = {True: "on", False: "off"}.get(value) if isinstance(value, bool) else None
    return switched or (f"{value:g}" if isinstance(value, float) else str(value))


@cache
def every_leaf() -> Mapping[str, Leaf]:
    """All fields that the page holds, by path, but for credit and rewards."""
    inspected = [*_of("method.pattern", StepPattern), *_of("method.sampling", SamplingConfig)]
    own = (leaf for method in METHODS for leaf in own_leaves(method))
    said = [leaf for _, part in isolation_form() for leaf in part]
    page = [*_PAGE, Leaf(TEXT, str, False, "", ""), Leaf(RUN_SCHEME, str, False, "", AS_INSPECT)]
    method = Leaf(METHOD, Literal.__getitem__(tuple(METHODS)), False, "", FIRST)
    return {leaf.name: leaf for leaf in (*_shared(), *own, *inspected, *said, *page, method)}


def fits(path: str, value: Any) -> bool:
    """Return whether a value that was kept is of a kind that the field can hold, in range or not."""
    leaf = every_leaf().get(path)
    if leaf is None:
        return False
    kind: Any = float if leaf.kind is int else leaf.kind | str if get_origin(leaf.kind) in (dict, list) else leaf.kind
    with suppress(ValidationError):
        TypeAdapter(kind | None).validate_python(value, strict=True)
        return True
    return False


# ── sections ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _of(prefix: str, section: type[Any]) -> list[Leaf]:
    return [replace(leaf, name=f"{prefix}.{leaf.name}") for leaf in leaves(section)]


@cache
def _shared() -> tuple[Leaf, ...]:
    """The fields that runs by every method have, but for the method's own."""
    return tuple(leaf for leaf in leaves(SharedConfig) if not leaf.name.startswith("method."))


def own_leaves(method: str) -> Iterator[Leaf]:
    """Yield what a method's section has beside its name and the parts that Inspect edits."""
    own = (leaf for leaf in leaves(METHODS[method].section) if leaf.name.partition(".")[0] not in ("name", *INSPECTED))
    return (replace(leaf, name=f"{method}.{leaf.name}") for leaf in sorted(own, key=lambda leaf: leaf.name == "trl"))


def own_settings(section: MethodSection) -> dict[str, Any]:
    """A section's settings but for its name and the parts that Inspect edits."""
    return section.model_dump(exclude={"name", *INSPECTED})


def shared_settings(config: SharedConfig) -> dict[str, Any]:
    """Return what a configuration has beside its method; settings of an adapter stand there without one, too.

    A task's tables of columns are texts, as in their fields.
    """
    shared = config.model_dump(exclude={"method"})
    shared["task"] |= {name: as_text(shared["task"][name]) for name in COLUMNS}
    if shared["policy"]["lora"] is None:
        shared["policy"]["lora"] = {leaf.name: leaf.default for leaf in leaves(LoraConfig)} | {"r": None}
    return shared


def takes(method: str, part: str) -> bool:
    """Return whether a method's section has a part that Inspect edits."""
    return part in METHODS[method].section.model_fields


Section = Mapping[str, Any]

NONE = "none"
"""The choice that compares with no second scheme."""
_OUTCOME, *_COMMON = MODIFIERS.values()


def options_of(scheme: str) -> dict[str, Option]:
    """The options of a scheme by name, with its own defaults, in the order of its form."""
    return {
        option.name: option
        for option in (_OUTCOME, *SCHEMES[scheme].options, *_COMMON)
        if not (option is _OUTCOME and SCHEMES[scheme].counts_outcome)
    }


def credit_section(scheme: str, **options: Any) -> Section:
    """The section of a scheme with options by name; None and a clip of 0 stand for nothing set."""
    held = {name: value for name, value in options.items() if value is not None and (value or name != "clip")}
    return {"scheme": scheme, **held}


def section_of(config: CreditConfig) -> Section:
    return {"scheme": config.scheme, **config.model_dump(exclude_defaults=True, exclude={"options"}), **config.options}


def settings_of(section: Section) -> dict[str, Any]:
    """A section as a configuration has it, where the options that only its scheme has stand apart."""
    options = {name: value for name, value in section.items() if name not in CreditConfig.model_fields}
    shared = {name: value for name, value in section.items() if name not in options}
    return shared | ({"options": options} if options else {})


def credit_config(section: Section, path: str = "method.credit") -> CreditConfig:
    """Raises ConfigError naming the field that does not fit."""
    return CreditConfig.parse(settings_of(section), path)


def read_section(stored: Mapping[str, Any]) -> Section | None:
    """Return what was kept of a section, as far as there are such a scheme and such options; None without a scheme."""
    scheme = stored.get("scheme")
    if not isinstance(scheme, str) or scheme not in SCHEMES:
        return None
    known = options_of(scheme)
    fitting = {name: value for name, value in stored.items() if name in known and _fits(known[name], value)}
    return credit_section(scheme, **fitting)


def _fits(option: Option, value: Any) -> bool:
    if option.kind == "choice":
        return value in option.choices
    return isinstance(value, bool if option.kind == "switch" else int | float) and abs(value) < 1e9


def option_values(section: Section | None) -> dict[str, Any]:
    """Return what each option's field shows, by name: what is set, or the scheme's default."""
    options = {} if section is None else options_of(section["scheme"])
    return {name: (section or {}).get(name, option.default) for name, option in options.items()}


def changed(section: Section) -> dict[str, Any]:
    """Return what differs from the scheme's defaults, by name."""
    options = options_of(section["scheme"])
    return {name: value for name, value in option_values(section).items() if value != options[name].default}


def summary(section: Section) -> str:
    """The scheme and whatever is not its default, in a few words."""
    parts = (
        f"{OPTION_LABELS.get(name, name)} {in_words(value).replace('_', ' ')}"
        for name, value in changed(section).items()
    )
    return ", ".join([section["scheme"], *parts])


def for_scheme(section: Section, scheme: str) -> Section:
    """Another scheme, with what somebody set that it has too."""
    if scheme == section["scheme"]:
        return section
    options = options_of(scheme)
    kept = {name: value for name, value in changed(section).items() if name in options}
    return credit_section(scheme, **{name: v for name, v in kept.items() if v != options[name].default})


def with_settings(section: Section, settings: Mapping[str, Any]) -> Section:
    """The section with some settings changed, the scheme among them; what the new scheme has too stays.

    An option that is set to its default is not set any more.
    """
    section = for_scheme(section, settings.get("scheme", section["scheme"]))
    options, shown = options_of(section["scheme"]), option_values(section)
    news = {
        name: None if name in options and value == options[name].default else value
        for name, value in settings.items()
        if name != "scheme" and value != shown.get(name)
    }
    return credit_section(**{**section, **news})


# ── trees ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def get(tree: Mapping[str, Any], path: str) -> Any:
    """Return the value of a tree at a dotted path; None where there is none."""
    value: Any = tree
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def with_path(tree: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of a tree with one value set."""
    name, _, inner = path.partition(".")
    return {**tree, name: with_path(tree.get(name) or {}, inner, value) if inner else value}


def configuration(tree: Mapping[str, Any], name: str | None = None) -> dict[str, Any]:
    """A draft's tree as that of a ``RunConfig`` of the method chosen, or of ``name``; without credit and rewards."""
    inspected = tree["method"]
    name = name or inspected["name"]
    method = {**tree[name], **{part: value for part, value in inspected.items() if takes(name, part)}, "name": name}
    task = tree["task"]
    if METHODS[name].section.kind is None:  # which takes no rows
        task = {**task, "data": None, "data_columns": ""}
    policy = tree["policy"] if get(tree, LORA_RANK) is not None else {**tree["policy"], "lora": None}
    return {part: value for part, value in tree.items() if part not in METHODS} | {
        "policy": policy,
        "method": method,
        "task": task,
    }


@cache
def default_tree() -> Mapping[str, Any]:
    """Every setting as it is by default, of every method."""
    inspected: dict[str, Any] = {
        "name": FIRST,
        "pattern": asdict(StepPattern()),
        "sampling": SamplingConfig().model_dump(),
        "isolate_rewards": False,
    }
    own = {name: own_settings(known.section()) for name, known in METHODS.items()}  # type: ignore[call-arg]  # has a name
    return {**shared_settings(RunConfig()), "method": inspected, **own}


def tree_leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a tree with its dotted path; what one field holds is one value."""
    for name, value in tree.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping) and path not in TABLES:
            yield from tree_leaves(value, f"{path}.")
        else:
            yield path, value
