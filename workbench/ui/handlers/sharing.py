"""Write the page and read it back: the state that a browser tab keeps, a link, a configuration, Python code.

A browser tab keeps the page's state itself (``share.js``) as ``page``, and as ``address`` the link that its address is.
A link says as much of the state as fits into an address, and never code, a policy, a file's path nor a Hub id. Both are
read as one: a link is first put as a tab would have kept it. Groups are kept in the workspace under the hash of what
they hold. What comes back, from a browser or an address, is not trusted: what does not fit is left out and said.

A configuration from a file opens with its code isolated, and with what no isolation reaches switched off: judges, which
send text and a key to an address, and the modelling code that a model brings. Its reader switches them on.

The page as Python is what is on Inspect, or what Start would start, as code that runs as it is and gives the same.
Where a group cannot be sampled again from what it remembers (it was read from a file, edited, or its policy is
unknown), the code reads the copy that the page keeps of it. Monte-Carlo values are estimated anew, with the same seed.
"""

import ast
import builtins
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from workbench.config import BeliefConfig, SamplingConfig, reading
from workbench.data import HUB, TASKS
from workbench.errors import ConfigError, WorkbenchError, redact
from workbench.policies.step_values import NAMES
from workbench.rewards import Reward, RewardConfig
from workbench.rewards.source import kind_in
from workbench.schema import Group
from workbench.steps import PRESETS, StepPattern
from workbench.training.methods import METHODS, RunConfig, filled_from_task
from workbench.ui.handlers import scoring, session
from workbench.ui.handlers.example import choose_example, find_task, first_draft, task_example
from workbench.ui.handlers.fields import (
    ISOLATE,
    KIND,
    METHOD,
    REGEX,
    Section,
    changed,
    credit_config,
    fits,
    get,
    paths_of,
    read_section,
    task_form,
    tree_leaves,
    with_path,
)
from workbench.ui.handlers.page_state import PAGE_FIELDS, Estimated, PageState, RewardRow, row_of, set_fields
from workbench.ui.handlers.rewards import keep_written, with_task
from workbench.views.heatmap import to_json

LARGEST_KEPT = 2_000_000
"""Characters of a browser's own copy that are read."""
LONGEST_REGEX = 300
"""Characters of a pattern that go into a link."""
LONGEST_SETTINGS = 1_500
"""Characters of the settings in a link."""
LINK = (
    *("task", "example", "saved", "preset", "regex", "kind"),
    *("scheme", "options", "compare", "compare-options", "settings"),
)
"""The parameters of a link."""
_LINKED = ("method.", "optimiser.", "prompt.", "run.", *(f"{name}." for name in METHODS))
_NOT_LINKED = (REGEX, KIND, "run.report_to", "run.device", *(f"{name}.trl" for name in METHODS))
_BUILTIN_FIELDS = {"name", "kind", "weight", "schedule", "options"}


# ── what is kept, and a link ─────────────────────────────────────────────────────────────────────────────────────


def dump(draft: PageState, saved: str) -> dict[str, Any]:
    """The state as plain values. ``saved`` names the kept group, "" for the page's first."""
    group = draft.group
    imported = group is not None and (draft.prompt, dict(draft.columns)) == (group.prompt, dict(group.columns))
    return draft.model_dump() | {"saved": saved, "imported": imported, "edited": draft.edited is not None}


def link_of(draft: PageState, saved: str) -> dict[str, str]:
    """The parameters of a link to what is on screen, as far as they fit into an address.

    Its settings are what differs from how the task opens, by path, a setting of another method than the one chosen by
    that method's name; of the rewards, those that are built in.
    """
    pattern = {"regex": draft.regex, "kind": draft.kind} if len(draft.regex) <= LONGEST_REGEX else {}
    link: dict[str, Any] = {"task": draft.task, "example": str(draft.index), "saved": saved}
    link |= pattern | {"scheme": draft.credit["scheme"], "options": changed(draft.credit)}
    if draft.compare is not None:
        link |= {"compare": draft.compare["scheme"], "compare-options": changed(draft.compare)}
    usual = _usual(draft.task)
    own = f"{draft.method}."
    settings = {
        path.replace(own, "method.", 1) if path.startswith(own) else path: value
        for path, value in tree_leaves(draft.tree)
        if _is_linked(path) and value != get(usual.tree, path)
    }
    listed, usually = ([row.to_json() for row in page.rows if row.is_builtin] for page in (draft, usual))
    if listed and listed != usually:
        settings["rewards"] = listed
    link["settings"] = settings
    texts = {
        name: value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
        for name, value in link.items()
        if value
    }
    return {name: text for name, text in texts.items() if name != "settings" or len(text) <= LONGEST_SETTINGS}


@lru_cache(maxsize=8)
def _usual(task: str) -> PageState:
    """The page as a task opens it; as it opens first for a task that would have to be read."""
    return with_task(first_draft(), find_task(task)) if task in TASKS else first_draft()


def _is_linked(path: str) -> bool:
    return path.startswith(_LINKED) and not path.startswith(_NOT_LINKED)


# ── what was kept, or a link, read ───────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Restored:
    """The state as it was, or as a link shows it; ``problems`` are what could not be had."""

    draft: PageState
    problems: tuple[str, ...] = ()


def restore(stored: str, query: Mapping[str, str], store: session.GroupStore) -> Restored | None:
    """The page that a browser tab kept, or the one of a link's parameters; None where there is neither.

    A tab keeps its own address, too: any other one is a link, and shows the same page whatever tab it is opened in.
    Functions that somebody wrote in the tab stay, switched off.
    """
    memory = _json(stored)
    link = {name: query[name] for name in LINK if query.get(name)}
    if not memory and not link:
        return None
    page, restoring = _table(memory.get("page")), _Restoring(store)
    if link in ({}, _table(memory.get("address"))):
        restoring.read(page)
    else:
        restoring.read(restoring.page_of(link))
        if isinstance(page.get("rows"), list):
            rows, said = keep_written(restoring.draft.rows, restoring.rows(page["rows"]))
            restoring.draft = restoring.draft.but(rows=rows)
            restoring.problems += filter(None, [said])
    return Restored(restoring.draft, tuple(restoring.problems))


class _Restoring:
    """The state while it is put together, from what was kept or from a link."""

    def __init__(self, store: session.GroupStore) -> None:
        self.store, self.draft = store, first_draft()
        self.problems: list[str] = []

    def page_of(self, link: Mapping[str, str]) -> dict[str, Any]:
        """Return what a link says, as a tab would have kept it: nothing that the page would not offer by itself."""
        settings = _json(link.get("settings", ""))
        rows, known = settings.pop("rewards", None), dict(tree_leaves(self.draft.tree))
        pattern = {REGEX: link.get("regex", "")[:LONGEST_REGEX], KIND: link.get("kind", "")}
        if (preset := PRESETS.get(link.get("preset", ""))) is not None:  # as a notebook says it
            pattern = {REGEX: preset.pattern.regex, KIND: preset.pattern.kind}
        task = link.get("task", "")
        if task and task not in TASKS and task != self.draft.task:
            self.problems.append(f"the link's task {task[:80]!r} is not built in; choose it under Task if you know it")
            task = ""
        tree: dict[str, Any] = {"task": {"name": task}} if task else {}
        own = str(settings.get(METHOD, self.draft.method))  # whose settings the page holds under its name
        held = {path if path in known else path.replace("method", own, 1): value for path, value in settings.items()}
        linked = {path: value for path, value in held.items() if path in known and _is_linked(path)}
        for path, value in (linked | {path: text for path, text in pattern.items() if text}).items():
            tree = with_path(tree, path, value)
        page: dict[str, Any] = {"tree": tree, "index": link.get("example"), "saved": link.get("saved")}
        for name, scheme, options in (("credit", "scheme", "options"), ("compare", "compare", "compare-options")):
            page[name] = {**_json(link.get(options, "")), "scheme": link.get(scheme)}
        if isinstance(rows, list):
            fields = [(row, _table(_table(row).get("fields"))) for row in rows]
            page["rows"] = [row for row, held in fields if held.keys() <= _BUILTIN_FIELDS]
        return page

    def read(self, page: Mapping[str, Any]) -> None:
        """Take over what a page says, where it fits; a task that it names brings what choosing the task would."""
        tree, before = _table(page.get("tree")), self.draft.task
        self._fields(
            {
                path: value
                for path, value in {path: get(tree, path) for path in paths_of(task_form())}.items()
                if value is not None
            }
        )
        self._example(get(tree, "task.name"), page.get("index"))
        if self.draft.task != before:
            self.draft = with_task(self.draft, find_task(self.draft.task_section()))
        # The task is not among the settings. Consent to run a policy's own code is not kept.
        settings = {path: value for path, value in tree_leaves(tree) if path != "task.name"}
        if settings.pop("policy.trust_remote_code", False):
            self.problems.append("consent to run the policy's own code is not kept; open its configuration again")
        self._fields(settings)
        self._group(page)
        credit, compare = (read_section(_table(page.get(name))) for name in ("credit", "compare"))
        self.draft = self.draft.but(credit=credit or self.draft.credit, compare=compare)
        if isinstance(page.get("rows"), list):
            self.draft = self.draft.but(rows=self.rows(page["rows"]))
        self._fields({f"page.{name}": page[name] for name in PAGE_FIELDS if name in page})

    def _fields(self, values: Mapping[str, Any]) -> None:
        values_there = dict(tree_leaves(self.draft.tree))
        for path, value in values.items():
            if path in values_there and value == values_there[path]:
                continue
            if fits(path, value):
                self.draft = self.draft.with_value(path, value)
            else:
                self.problems.append(f"{path[:80]}: {str(value)[:80]!r} does not fit and was left out")

    def _example(self, task: Any, index: Any) -> None:
        try:
            chosen = max(0, min(int(index), 10**9))
        except (TypeError, ValueError, OverflowError):
            if not isinstance(task, str):
                return
            chosen = 0
        try:
            section = self.draft.task_section(task if isinstance(task, str) else self.draft.task)
            self.draft = choose_example(self.draft, chosen, task=find_task(section))
        except WorkbenchError as error:
            self.problems.append(str(error))

    def _group(self, page: Mapping[str, Any]) -> None:
        """The group on screen, and whose prompt it answers."""
        saved = page.get("saved")
        if isinstance(saved, str) and saved:
            found = self.store.find(saved)
            if found is None:
                self.problems.append(f"the group {saved[:20]!r} is not kept in this workspace (any more)")
            else:
                self.draft = self.draft.but(group=found)
        group = self.draft.group
        if group is not None and page.get("imported"):
            self.draft = self.draft.but(prompt=group.prompt, columns=group.columns)
        if group is not None and page.get("edited"):
            self.draft = self.draft.but(edited=group.prompt)

    def rows(self, rows: list[Any]) -> tuple[RewardRow, ...]:
        """The rows that can be read."""
        return tuple(row for row in map(self._row, rows) if row is not None)

    def _row(self, data: Any) -> RewardRow | None:
        """A row of the list of rewards. Consent to run a reward model's own code is not kept."""
        try:
            fields = dict(data["fields"])
            weight, typed = fields.pop("weight", 1.0), {}
            if isinstance(fields.get("schedule"), str):  # half typed
                typed = {"schedule": fields.pop("schedule")}
            if isinstance(weight, bool) or not isinstance(weight, int | float) or abs(weight) >= 1e9:
                weight = None
            row = row_of(RewardConfig.model_validate(fields))
            assert row.code is not None  # of a built-in reward that exists
        except (KeyError, TypeError, ValueError, WorkbenchError):
            self.problems.append(f"a reward function was left out: {str(data)[:80]!r} is none")
            return None
        settled = dict(row.fields) | ({"code": fields["code"]} if isinstance(fields.get("code"), str) else {})
        if row.model is not None:
            settled["model"] = {name: held for name, held in settled["model"].items() if name != "trust_remote_code"}
        settled |= typed | ({} if weight == 1 else {"weight": weight})
        on, in_run = (data.get(name) is not False for name in ("on", "in_run"))
        return RewardRow(settled, on, in_run, unfed=data.get("unfed") is True)


def _json(text: str) -> dict[str, Any]:
    if not text or len(text) > LARGEST_KEPT:
        return {}
    try:
        return _table(json.loads(text))
    except (ValueError, RecursionError):
        return {}


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


# ── a configuration ──────────────────────────────────────────────────────────────────────────────────────────────


def open_config(draft: PageState, name: str, content: bytes) -> tuple[PageState, scoring.Note]:
    """The page with the configuration of a file called ``name``, and what to say of it.

    Raises ConfigError for what is no configuration, or none that the page can hold.
    """
    config = RunConfig.from_yaml(reading.decoded(content, name))
    opened, note = take_over(draft, name, config)
    said = []
    if config.environment.code is not None or any(row.fields.get("code") for row in opened.rows):
        said.append("its code runs isolated until you switch that off")
    reaching_out = [
        row for row in opened.rows if row.judge is not None or (row.model is not None and row.model.trust_remote_code)
    ]
    if reaching_out:
        names = ", ".join(row.name for row in reaching_out)
        said.append(f"off until you switch it on, as it reaches beyond this page: {names}")
    rows = tuple(replace(row, on=row.on and row not in reaching_out) for row in opened.rows)
    opened = opened.but(rows=rows, tree=with_path(opened.tree, ISOLATE, True))
    if config.policy.trust_remote_code:
        said.append("policy.trust_remote_code is left out, as it runs code that the model brings")
        opened = opened.but(tree=with_path(opened.tree, "policy.trust_remote_code", False))
    return opened, replace(note, text="; ".join([note.text, *said]), level="warning" if said else note.level)


def take_over(
    draft: PageState, name: str, config: RunConfig, *, from_hub: bool = False
) -> tuple[PageState, scoring.Note]:
    """The page with the configuration called ``name``, and what to say of it; the group on screen stays.

    ``from_hub`` loads a task of the Hub, too, which can take a while. Raises ConfigError for a configuration that the
    page cannot hold.
    """
    if from_hub or not config.task.name.startswith(HUB):
        config = filled_from_task(config)
    try:
        _ = [row.code for row in PageState.of(config).rows]
    except WorkbenchError as error:  # a built-in reward that there is none of
        raise ConfigError(f"{name}: {error}") from error
    taken = draft.with_config(config)
    rows, kept = keep_written(taken.rows, draft.rows)
    taken = taken.but(rows=rows)
    note = scoring.Note("; ".join(filter(None, (f"Form filled from {name}", kept))), level="info")
    if taken.tree["task"] == draft.tree["task"]:
        return taken, note
    if taken.task.startswith(HUB) and not from_hub:
        return taken, scoring.Note(f"{note.text}; its task is loaded once an example of it is chosen", level="info")
    try:
        return choose_example(taken, 0, task=find_task(taken.task_section())), note
    except WorkbenchError as error:
        return taken, scoring.Note(f"{note.text}, but its task cannot be shown: {error}", level="warning")


# ── Python code ──────────────────────────────────────────────────────────────────────────────────────────────────

OWN_NAMES = frozenset((
    "wb", "json", "Path", "RewardConfig", "task", "policy", "group", "pattern", "rewards", "scored", "credit", "other",
    *dir(builtins),
))  # fmt: skip
"""Names the code uses itself; a reward function of yours that defines one of them is kept as text."""
WIDTH = 100


def inspect_code(draft: PageState, saved: Path) -> str:
    """The group on screen, scored and credited as the controls say. ``saved`` is where the page keeps the group.

    Raises PatternError, RewardError or ConfigError where the page could not score it either.
    """
    group = draft.group
    assert group is not None
    pattern, sampled = draft.pattern(), can_sample_again(group)
    definitions, specs, asks_policy = _rewards(draft, group)
    imports = [] if sampled else ["import json", "from pathlib import Path", ""]
    imports += ["import workbench as wb"]
    if any(spec.startswith("RewardConfig(") for spec in specs):
        imports += ["from workbench.rewards import RewardConfig"]
    read = f'group = wb.Group.from_json(json.loads(Path({str(saved)!r}).read_text(encoding="utf-8")))'
    source = _sampling_code(draft, group) if sampled else [read]
    credited = [f"credit = {_credit(draft.credit)}", "wb.heatmap(credit)"]
    if draft.compare is not None:
        credited[1:] = [f"other = {_credit(draft.compare)}", "wb.heatmap(credit, other=other)"]
    weighs = any(section is not None and section.get("oar") for section in (draft.credit, draft.compare))
    if (weighs or asks_policy) and not (sampled and group.policy == draft.policy):
        how = {"adapter": draft.policy_options["adapter"], **draft.policy_options["loading"]}
        source.append(f"policy = wb.load_policy({_arguments(draft.policy, **how)})")
    source += ["group = wb.with_importances(policy, group)"] * weighs
    blocks = [imports, source, *([text] for text in definitions), [_scoring_code(pattern, specs)], credited]
    return "\n\n".join("\n".join(lines) for lines in blocks) + "\n"


def as_code(write: Callable[[], str]) -> str:
    """Return code as the page's script takes it, or why there is none yet."""
    try:
        return to_json({"code": write()})
    except WorkbenchError as error:
        return to_json({"problem": redact(f"There is no code for this yet: {error}")})


def train_code(config: RunConfig, workspace: Path | None = None) -> str:
    """The run that Start would start. ``workspace`` is named where it is not the one a notebook would use."""
    settings = config.model_dump(mode="json", exclude_defaults=True)
    settings["method"] = {"name": config.method.name, **settings.get("method", {})}
    if rewards := config.method.reward_functions:
        settings["method"]["rewards"] = [set_fields(reward) for reward in rewards]
    where = "" if workspace is None else f", {str(workspace)!r}"
    return (
        f"import workbench as wb\n\nconfig = wb.RunConfig.from_yaml({text_literal(reading.write_yaml(settings))})\n"
        f"run = wb.train(config{where})\nrun.wait()\nrun.metrics()\n"
    )


def can_sample_again(group: Group) -> bool:
    """Return whether the group remembers its policy and everything it was sampled with."""
    needed = {"seed", *SamplingConfig.model_fields} - {"stop"}  # where there is none, it is not recorded
    return bool(group.policy) and "file" not in group.sampling and needed <= set(group.sampling)


def text_literal(text: str) -> str:
    """A string literal of ``text``, over several lines and without escapes where that gives back the very text."""
    quotes, start = ("'''", "\\\n") if "\n" in text else ("'", "")
    literal = f"r{quotes}{text}{quotes}" if "\\" in text else f"{quotes}{start}{text}{quotes}"
    with suppress(SyntaxError, ValueError):  # it holds the quotes itself
        if ast.literal_eval(literal) == text:
            return literal
    return repr(text)


def _sampling_code(draft: PageState, group: Group) -> list[str]:
    known, usual = group.sampling, SamplingConfig().model_dump()
    options = {name: known.get(name, default) for name, default in usual.items()}
    always = ("num_generations", "max_completion_length", "temperature")
    options = {name: value for name, value in options.items() if name in always or value != usual[name]}
    options |= {"template_kwargs": known.get("template_kwargs") or None, "seed": known["seed"]}
    held = {"adapter": known.get("adapter") or None, "merge": known.get("merge") or None}
    lines = [f"policy = wb.load_policy({_arguments(group.policy, **held)})"]
    example, section = task_example(draft), draft.task_section()
    if example is not None and (example.prompt, dict(example.columns)) == (group.prompt, dict(group.columns)):
        read_as = "".join(f", {name}={getattr(section, name)!r}" for name in section.reads())
        lines.insert(0, f"task = wb.load_task({draft.task!r}{read_as})")
        shown = f"task[{draft.index}]"
    else:
        shown = f"wb.Example({group.prompt!r}, {dict(group.columns)!r})"
    sampling = "".join(f", {name}={value!r}" for name, value in options.items() if value is not None)
    lines.append(f"group = wb.sample_group(policy, {shown}{sampling})")
    if (reference := known.get("reference")) is not None:
        lines.append(f"group = wb.with_reference(wb.load_policy({reference!r}), group)")
    return lines


def _rewards(draft: PageState, group: Group) -> tuple[list[str], list[str], bool]:
    """Return definitions of one's own functions, the entries of the list of rewards, and whether any asks a policy."""
    rewards, estimated = scoring.rewards_on_screen(draft, group), {row.name: row.estimated for row in draft.rows}
    if not rewards:
        raise ConfigError("no reward function is on, or none that can score this group; switch one on or add one")
    definitions, specs, taken = list[str](), list[str](), set(OWN_NAMES)
    for reward in rewards:
        if isinstance(reward, Reward):
            specs.append(_values(reward, estimated[reward.name]))
        elif reward.belief is not None:
            specs.append(_belief(reward.belief, reward.weight_at(0)))
        elif (names := _defined(reward)) and not names & taken:
            taken |= names
            definitions.append((reward.code or "").strip())
            how = {"schedule": reward.points or None, "weight": reward.weight_at(0)}
            whole = f"wb.Reward({_arguments(reward.name, reward.kind)}, {reward.name}, {_arguments(**how)})"
            specs.append(whole if reward.weight_text else reward.name)
        else:
            specs.append(_spec(reward))
    return definitions, specs, any(isinstance(reward, Reward) or reward.belief is not None for reward in rewards)


def _spec(reward: RewardConfig) -> str:
    """Return an entry of the list of rewards: a built-in's name, or all that is set of it."""
    if reward.is_builtin and not reward.options and not reward.weight_text:
        return repr(reward.name)
    held = set_fields(reward).items()
    arguments = ", ".join(f"{name}={text_literal(v) if isinstance(v, str) else repr(v)}" for name, v in held)
    return f"RewardConfig({arguments})"


def _values(reward: Reward, estimated: Estimated | None) -> str:
    """Monte-Carlo values as a reward, estimated anew: the same policy and seed give the same."""
    assert estimated is not None
    how = _arguments(k=estimated.values.k, seed=estimated.values.seed)
    what = "progress" if reward.name == NAMES["progress"] else "value"
    values = f"wb.step_values(policy, group, pattern, {_spec(estimated.outcome)}, {how})"
    return f"{values}.as_reward({_arguments(what, weight=None if reward.weight == 1 else reward.weight)})"


def _belief(belief: BeliefConfig, weight: float) -> str:
    """A belief of the group's steps as a reward."""
    policy = "policy" if belief.policy is None else f"wb.load_policy({belief.policy!r})"
    given = belief.model_dump(exclude={"form", "policy"}, exclude_defaults=True)
    values = f"wb.beliefs({', '.join(filter(None, (policy, 'group', 'pattern', _arguments(**given))))})"
    what = "progress" if belief.form == "difference" else belief.form
    return f"{values}.as_reward({_arguments(what, weight=None if weight == 1 else weight)})"


def _arguments(*values: Any, **named: Any) -> str:
    """Return the arguments of a call; None stands for one that is not given."""
    return ", ".join([*map(repr, values), *(f"{name}={value!r}" for name, value in named.items() if value is not None)])


def _defined(reward: RewardConfig) -> set[str]:
    """Return the names that a reward's code defines; none if it cannot stand in the middle of other code as it is."""
    names = set[str]()
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        for node in ast.parse(reward.code or "").body:
            match node:
                case ast.FunctionDef(name=name) | ast.Assign(targets=[ast.Name(id=name)]):
                    names.add(name)
                case ast.ImportFrom(module="__future__"):
                    return set()
                case ast.Import(names=given) | ast.ImportFrom(names=given):
                    names |= {(alias.asname or alias.name).split(".")[0] for alias in given}
                case _:  # an if or a try may define anything
                    return set()
    fits = reward.name in names and "*" not in names and kind_in(reward.code or "", reward.name) == reward.kind
    return names if fits else set()


def _scoring_code(pattern: StepPattern, specs: list[str]) -> str:
    usual = asdict(StepPattern()) | {"kind": None}  # which is always said
    given = {name: value for name, value in asdict(pattern).items() if name != "regex" and value != usual[name]}
    listed = ", ".join(specs)
    if len(listed) > WIDTH:
        listed = "\n" + "".join(f"    {spec},\n" for spec in specs)
    return (
        f"pattern = wb.StepPattern({text_literal(pattern.regex)}, {_arguments(**given)})\n"
        f"rewards = [{listed}]\n"
        "scored = wb.score_group(group, pattern, rewards=rewards)"
    )


def _credit(section: Section) -> str:
    shown = {
        name: value
        for name, value in credit_config(section).keywords(but=("scheme",)).items()
        if name in changed(section)
    }
    return f"wb.credit_group(scored, {_arguments(section['scheme'], **shown)})"
