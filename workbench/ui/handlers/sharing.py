"""What leaves the page and comes back: the state that a browser tab keeps, a link, a configuration that is opened.

A browser tab keeps the page's state itself (``share.js``) as ``page``, and as ``address`` the link that its address is.
A link says as much of the state as fits into an address, and never code, a policy, a file's path nor a Hub id. Both are
read as one: a link is first put as a tab would have kept it. Groups are kept in the workspace under the hash of what
they hold. What comes back, from a browser or an address, is not trusted: what does not fit is left out and said.

A configuration from a file opens with its code isolated, and with what no isolation reaches switched off: judges, which
send text and a key to an address, and the modelling code that a model brings. Its reader switches them on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from workbench.config import RewardConfig
from workbench.config.reading import decoded
from workbench.config.run import METHODS, RunConfig
from workbench.data import HUB, TASKS
from workbench.errors import ConfigError, WorkbenchError
from workbench.steps import PRESETS
from workbench.ui.handlers.example import CUSTOM, choose_example, find_task, first_draft, preset_of
from workbench.ui.handlers.fields import ISOLATE, KIND, REGEX, changed, fits, paths_of, read_section, task_form
from workbench.ui.handlers.page_state import PAGE_FIELDS, PageState, leaves, value_at, with_path
from workbench.ui.handlers.reward_rows import RewardRow, row_of
from workbench.ui.handlers.rewards import keep_written, with_task
from workbench.ui.handlers.scoring import Note
from workbench.ui.handlers.session import GroupStore

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

    Its settings are what differs from how the task opens, by path; of the rewards, those that are built in.
    """
    preset = preset_of(draft.regex, draft.kind)
    pattern = {"regex": draft.regex, "kind": draft.kind} if len(draft.regex) <= LONGEST_REGEX else {}
    link: dict[str, Any] = {"task": draft.task, "example": str(draft.index), "saved": saved}
    link |= pattern if preset == CUSTOM else {"preset": preset}
    link |= {"scheme": draft.credit["scheme"], "options": changed(draft.credit)}
    if draft.compare is not None:
        link |= {"compare": draft.compare["scheme"], "compare-options": changed(draft.compare)}
    usual = _usual(draft.task)
    settings = {
        path: value for path, value in leaves(draft.tree) if _is_linked(path) and value != value_at(usual.tree, path)
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


def restore(stored: str, query: Mapping[str, str], store: GroupStore) -> Restored | None:
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

    def __init__(self, store: GroupStore) -> None:
        self.store, self.draft = store, first_draft()
        self.problems: list[str] = []

    def page_of(self, link: Mapping[str, str]) -> dict[str, Any]:
        """What a link says, as a tab would have kept it: nothing that the page would not offer by itself."""
        settings = _json(link.get("settings", ""))
        rows, known = settings.pop("rewards", None), dict(leaves(self.draft.tree))
        preset = PRESETS.get(link.get("preset", ""))
        pattern = {REGEX: link.get("regex", "")[:LONGEST_REGEX], KIND: link.get("kind", "")}
        if preset is not None:
            pattern = {REGEX: preset.pattern.regex, KIND: preset.pattern.kind}
        task = link.get("task", "")
        if task and task not in TASKS and task != self.draft.task:
            self.problems.append(f"the link's task {task[:80]!r} is not built in; choose it under Task if you know it")
            task = ""
        tree: dict[str, Any] = {"task": {"name": task}} if task else {}
        linked = {path: value for path, value in settings.items() if path in known and _is_linked(path)}
        for path, value in (linked | {path: text for path, text in pattern.items() if text}).items():
            tree = with_path(tree, path, value)
        page: dict[str, Any] = {"tree": tree, "index": link.get("example"), "saved": link.get("saved")}
        for name, scheme, options in (("credit", "scheme", "options"), ("compare", "compare", "compare-options")):
            page[name] = {"scheme": link.get(scheme), "options": _json(link.get(options, ""))}
        if isinstance(rows, list):
            fields = [(row, _table(_table(row).get("fields"))) for row in rows]
            page["rows"] = [row for row, held in fields if held.keys() <= _BUILTIN_FIELDS]
        return page

    def read(self, page: Mapping[str, Any]) -> None:
        """Take over what a page says, where it fits; a task that it names brings what choosing the task would."""
        tree, before = _table(page.get("tree")), self.draft.task
        read_as = {path: value_at(tree, path) for path in paths_of(task_form())}
        self._fields({path: value for path, value in read_as.items() if value is not None})
        self._example(value_at(tree, "task.name"), page.get("index"))
        if self.draft.task != before:
            self.draft = with_task(self.draft, find_task(self.draft.task_section()))
        # The task is not among the settings. Consent to run a policy's own code is not kept.
        settings = {path: value for path, value in leaves(tree) if path != "task.name"}
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
        values_there = dict(leaves(self.draft.tree))
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
            weight = fields.pop("weight", 1.0)
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
        settled |= {} if weight == 1 else {"weight": weight}
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


def open_config(draft: PageState, name: str, content: bytes) -> tuple[PageState, Note]:
    """The page with the configuration of a file called ``name``, and what to say of it.

    Raises ConfigError for what is no configuration, or none that the page can hold.
    """
    config = RunConfig.from_yaml(decoded(content, name))
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


def take_over(draft: PageState, name: str, config: RunConfig) -> tuple[PageState, Note]:
    """The page with the configuration called ``name``, and what to say of it; the group on screen stays.

    Raises ConfigError for one that the page cannot hold.
    """
    try:
        _ = [row.code for row in PageState.of(config).rows]
    except WorkbenchError as error:  # a built-in reward that there is none of
        raise ConfigError(f"{name}: {error}") from error
    taken = draft.with_config(config)
    rows, kept = keep_written(taken.rows, draft.rows)
    taken = taken.but(rows=rows)
    note = Note("; ".join(filter(None, (f"the settings are those of {name}", kept))), level="info")
    if taken.task == draft.task:
        return taken, note
    if taken.task.startswith(HUB):
        return taken, Note(f"{note.text}; its task is loaded once an example of it is chosen", level="info")
    try:
        return choose_example(taken, 0, task=find_task(taken.task_section())), note
    except WorkbenchError as error:
        return taken, Note(f"{note.text}, but its task cannot be shown: {error}", level="warning")
