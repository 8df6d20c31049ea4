"""The page as Python: what is on Inspect, or what Start would start, as code that runs as it is and gives the same.

Pure: forms in, source text out. Where a group cannot be sampled again from what it remembers (it was read from a file,
edited, or its policy is unknown), the code reads the copy that the page keeps of it. Monte-Carlo values stand in the
code as the numbers they are, with that copy, since they are of those very rollouts; a row whose values are not of the
group on screen scores nothing there, and in the code a comment says so.
"""

from __future__ import annotations

import ast
import builtins
import pprint
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from workbench.config import BeliefConfig, RewardConfig, SamplingConfig
from workbench.config.run import RunConfig
from workbench.errors import ConfigError, WorkbenchError
from workbench.policies.step_values import NAMES, StepValues
from workbench.rewards.source import kind_in
from workbench.schema import Group
from workbench.steps import StepPattern
from workbench.ui.handlers.example import find_task
from workbench.ui.handlers.fields import Section, changed, credit_config
from workbench.ui.handlers.page_state import PageState
from workbench.ui.handlers.reward_rows import set_fields
from workbench.ui.handlers.scoring import rewards_on_screen, stale

OWN_NAMES = frozenset(
    (
        *("wb", "json", "Path", "RewardConfig", "task", "policy", "group", "pattern"),
        *("rewards", "scored", "credit", "other"),
    )
)
"""Names the code uses itself; a reward function of yours that defines one of them is kept as text."""
WIDTH = 100


def inspect_code(draft: PageState, saved: Path) -> str:
    """The group on screen, scored and credited as the controls say. ``saved`` is where the page keeps the group.

    Raises PatternError, RewardError or ConfigError where the page could not score it either.
    """
    group = draft.group
    assert group is not None
    pattern = draft.pattern()
    configs, held = _on_screen(draft, group)
    sampled = can_sample_again(group) and not held
    imports = [] if sampled else ["import json", "from pathlib import Path", ""]
    definitions, specs = _rewards(configs)
    imports += ["import workbench as wb"]
    if any(spec.startswith("RewardConfig(") for spec in specs):
        imports += ["from workbench.config import RewardConfig"]
    reasons = {row.name: stale(row, draft) for row in draft.rows if row.on}
    left_out = [f"# {name} is left out: {why}" for name, why in reasons.items() if why]
    read = f'group = wb.Group.from_json(json.loads(Path({str(saved)!r}).read_text(encoding="utf-8")))'
    credited = [f"credit = {_credit(draft.credit)}", "wb.heatmap(credit)"]
    if draft.compare is not None:
        credited[1:] = [f"other = {_credit(draft.compare)}", "wb.heatmap(credit, other=other)"]
    source = [_sampled(draft, group) if sampled else read]
    weighs = any(section is not None and section.get("oar") for section in (draft.credit, draft.compare))
    if weighs or any(config.belief is not None for config in configs):
        if not sampled or group.policy != draft.policy:
            adapter, loading = draft.policy_options["adapter"], draft.policy_options["loading"]
            how = ({} if adapter is None else {"adapter": adapter}) | loading
            source.append(f"policy = wb.load_policy({', '.join([repr(draft.policy), *_keywords(how)])})")
        source += ["group = wb.with_importances(policy, group)"] * weighs
    blocks = [
        "\n".join(imports),
        "\n".join(source),
        *definitions,
        "\n".join([*left_out, _scored(pattern, specs)]),
        "\n".join(credited),
    ]
    return "\n\n".join(blocks) + "\n"


def train_code(config: RunConfig, workspace: Path | None = None) -> str:
    """The run that Start would start. ``workspace`` is named where it is not the one a notebook would use."""
    settings = config.model_dump(mode="json", exclude_defaults=True)
    settings["method"] = {"name": config.method.name, **settings.get("method", {})}
    codes = []
    if rewards := config.method.reward_functions:
        settings["method"]["rewards"] = [set_fields(reward) for reward in rewards]
    for number, reward in enumerate(settings["method"].get("rewards", ()), start=1):
        if "code" in reward:
            name = f"CODE_{number}"
            codes.append(f"{name} = {text_literal(reward['code'])}")
            reward["code"] = _Name(name)
    literals = {
        name: text_literal(value)
        if isinstance(value, str)
        else pprint.pformat(value, width=WIDTH, sort_dicts=False).replace("\n", "\n    ")
        for name, value in settings.items()
    }
    fields = ",\n".join(f"    {name}={literal}" for name, literal in literals.items())
    where = "" if workspace is None else f", {str(workspace)!r}"
    blocks = [
        "import workbench as wb",
        *codes,
        f"config = wb.RunConfig(\n{fields},\n)" if fields else "config = wb.RunConfig()",
        f"run = wb.train(config{where})\nrun.wait()\nrun.metrics()",
    ]
    return "\n\n".join(blocks) + "\n"


def can_sample_again(group: Group) -> bool:
    """Whether the group remembers its policy and everything it was sampled with."""
    known = group.sampling
    return (
        bool(group.policy)
        and "seed" in known
        and "file" not in known
        and set(SamplingConfig.model_fields) - {"stop"} <= set(known)  # where there is none, it is not recorded
    )


def text_literal(text: str) -> str:
    """A string literal of ``text``, over several lines and without escapes where that gives back the very text."""
    if "\n" in text or "\\" in text:
        raw = "r" if "\\" in text else ""
        opening = "\\\n" if "\n" in text and not raw else ""
        for quotes in ("'''", '"""') if "\n" in text else ('"', "'"):
            candidate = f"{raw}{quotes}{opening}{text}{quotes}"
            with suppress(SyntaxError, ValueError):  # it holds the quotes itself
                if ast.literal_eval(candidate) == text:
                    return candidate
    return repr(text)


class _Name(str):
    """A variable's name among values: printed without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _sampled(draft: PageState, group: Group) -> str:
    defaults = SamplingConfig().model_dump()
    options = {name: group.sampling.get(name, default) for name, default in defaults.items()}
    template = {"template_kwargs": kwargs} if (kwargs := group.sampling.get("template_kwargs")) else {}
    always = ("num_generations", "max_completion_length", "temperature")
    shown = {name: value for name, value in options.items() if name in always or value != defaults[name]}
    arguments = ", ".join(
        f"{name}={value!r}" for name, value in {**shown, **template, "seed": group.sampling["seed"]}.items()
    )
    adapters = "".join(f", {name}={value!r}" for name in ("adapter", "merge") if (value := group.sampling.get(name)))
    lines = [f"policy = wb.load_policy({group.policy!r}{adapters})"]
    section = draft.task_section()
    try:
        shown_example = find_task(section)[draft.index]
        is_shown = (shown_example.prompt, dict(shown_example.columns)) == (group.prompt, dict(group.columns))
    except (WorkbenchError, IndexError):
        is_shown = False
    if is_shown:
        read_as = [repr(draft.task), *(f"{name}={getattr(section, name)!r}" for name in section.reads())]
        lines.insert(0, f"task = wb.load_task({', '.join(read_as)})")
        example = f"task[{draft.index}]"
    else:
        example = f"wb.Example({group.prompt!r}, {dict(group.columns)!r})"
    lines.append(f"group = wb.sample_group(policy, {example}, {arguments})")
    if (reference := group.sampling.get("reference")) is not None:
        lines.append(f"group = wb.with_reference(wb.load_policy({reference!r}), group)")
    return "\n".join(lines)


def _on_screen(draft: PageState, group: Group) -> tuple[list[RewardConfig], bool]:
    """The rewards that score the group, and whether Monte-Carlo values are among them, as code that holds them."""
    estimated = {row.name: row.estimated for row in draft.rows if row.estimated is not None}
    configs: list[RewardConfig] = []
    held = False
    for reward in rewards_on_screen(draft, group):
        if isinstance(reward, RewardConfig):
            configs.append(reward)
        else:
            code = _values_code(reward.name, estimated[reward.name].values)
            configs.append(RewardConfig(name=reward.name, kind="step", weight=reward.weight, code=code))
            held = True
    if not configs:
        raise ConfigError("no reward function is on, or none that can score this group; switch one on or add one")
    return configs, held


_VALUES = "STEP_VALUES = "
"""Marks the code that holds Monte-Carlo values."""


def _values_code(name: str, values: StepValues) -> str:
    """A function that gives these values, to the last bit, as the scores of their own group's steps."""
    progress = name == NAMES["progress"]
    rows = values.progress() if progress else [list(row) for row in values.values]
    what = "what each adds to the value before it" if progress else "the value of each"
    return (
        f"# Of the steps of each answer, as the page estimated them: {what}, a value being the mean\n"
        f"# {values.outcome} of {values.k} continuations. wb.step_values(policy, group, pattern) estimates them anew.\n"
        f"{_VALUES}{pprint.pformat(rows, width=WIDTH, compact=True)}\n\n\n"
        f"def {name}(prompts, completions, steps, **columns):\n    return STEP_VALUES\n"
    )


def _rewards(configs: Iterable[RewardConfig]) -> tuple[list[str], list[str]]:
    """Definitions of one's own functions, and what goes into the list of rewards."""
    definitions: list[str] = []
    specs: list[str] = []
    taken = set(OWN_NAMES)
    for config in configs:
        if config.belief is not None:
            specs.append(_belief(config.belief, config.weight_at(0)))
            continue
        names = _top_level(config.code) if config.code is not None else None
        is_free = names is not None and config.name in names and not names & taken
        if names and is_free and kind_in(config.code or "", config.name) == config.kind:
            taken |= names
            definitions.append((config.code or "").strip())
            weight = f"weight={config.weight_at(0)!r}" + (f", schedule={config.points!r}" if config.schedule else "")
            whole = f"wb.Reward({config.name!r}, {config.kind!r}, {config.name}, {weight}"
            judges_all = _VALUES in (config.code or "")
            whole += ", judges_all=True)" if judges_all else ")"
            specs.append(whole if config.weight_text or judges_all else config.name)
            continue
        if config.is_builtin and not config.options and not config.weight_text:
            specs.append(repr(config.name))
            continue
        held = set_fields(config).items()
        arguments = ", ".join(f"{k}={text_literal(v) if isinstance(v, str) else repr(v)}" for k, v in held)
        specs.append(f"RewardConfig({arguments})")
    return definitions, specs


def _belief(belief: BeliefConfig, weight: float) -> str:
    """A belief of the group's steps as a reward."""
    policy = "policy" if belief.policy is None else f"wb.load_policy({belief.policy!r})"
    usual = BeliefConfig().model_dump(exclude={"form", "policy"})
    given = {name: value for name in usual if (value := getattr(belief, name)) != usual[name]}
    what = "progress" if belief.form == "difference" else belief.form
    as_reward = ", ".join([repr(what), *_keywords({} if weight == 1 else {"weight": weight})])
    return f"wb.beliefs({', '.join([policy, 'group', 'pattern', *_keywords(given)])}).as_reward({as_reward})"


def _keywords(values: Mapping[str, Any]) -> list[str]:
    return [f"{name}={value!r}" for name, value in values.items()]


_PLAIN = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.Import,
    ast.ImportFrom,
    ast.Assign,
    ast.AnnAssign,
    ast.AugAssign,
    ast.Expr,
)


def _top_level(code: str) -> set[str] | None:
    """Names that the code defines at its top level; None where it cannot stand in the middle of other code."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module == "__future__" or node.names[0].name == "*"):
            return None
        if not isinstance(node, _PLAIN):  # an if or a try may define anything
            return None
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        else:
            names |= {
                name_node.id
                for name_node in ast.walk(node)
                if isinstance(name_node, ast.Name) and isinstance(name_node.ctx, ast.Store)
            }
    asks = any(isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(tree))
    return None if asks or names & set(dir(builtins)) else names


def _scored(pattern: StepPattern, specs: list[str]) -> str:
    more = {part.name: getattr(pattern, part.name) for part in fields(pattern)[1:]}
    usual = asdict(StepPattern()) | {"kind": None}  # which is always said
    given = "".join(f", {name}={value!r}" for name, value in more.items() if value != usual[name])
    listed = ", ".join(specs)
    if len(listed) > WIDTH:
        listed = "\n" + "".join(f"    {spec},\n" for spec in specs)
    return (
        f"pattern = wb.StepPattern({text_literal(pattern.regex)}{given})\n"
        f"rewards = [{listed}]\n"
        "scored = wb.score_group(group, pattern, rewards=rewards)"
    )


def _credit(section: Section) -> str:
    options = credit_config(section).keywords(but=("scheme",))
    shown = {name: value for name, value in options.items() if name in changed(section)}
    scheme = repr(section["scheme"])
    return ", ".join(["wb.credit_group(scored", scheme, *(f"{k}={v!r}" for k, v in shown.items())]) + ")"
