"""The forms of rewards that are no code: what each has, and what is added; rows of the list and progress out.

A reward model is loaded once before it becomes a row, so that what is wrong with it is said beside the form; pressing
Add is what agrees to send answers to a judge's endpoint. Monte-Carlo values are of one group and one pattern, and their
row says so when either has changed; a run estimates its own. Models and values are asked of the model worker on a
thread, so that the page can show how far they are.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import validate_call

from workbench.config import BeliefConfig, JudgeConfig, LabelFormat, Leaf, ModelConfig, MonteCarloConfig, leaves
from workbench.errors import ConfigError, WorkbenchError
from workbench.places import RUN
from workbench.policies.step_values import NAMES, Estimation, StepValues, label_rows
from workbench.rewards import BUILTINS, RewardConfig, judges, source, split_group
from workbench.rewards.models.formats import FORMATS, guess_format
from workbench.rundir import checkpoint_or
from workbench.runs import find_checkpoint, open_run
from workbench.schema import say_count
from workbench.steps import step_texts
from workbench.ui.handlers import scoring, session
from workbench.ui.handlers.fields import help_of, label_of
from workbench.ui.handlers.page_state import Estimated, PageState, RewardRow, row_of, set_fields
from workbench.ui.payloads import FieldPayload, FormPayload

MODEL, JUDGE, BELIEF, VALUES, FILE = "model", "judge", "belief", "monte_carlo", "file"
SECTIONS: Mapping[str, type[Any]] = {
    MODEL: ModelConfig, JUDGE: JudgeConfig, BELIEF: BeliefConfig, VALUES: MonteCarloConfig,
}  # fmt: skip
"""The parts of a reward's configuration that have a form; a file has one, too."""
PARTS = (*SECTIONS, FILE)


ABOUT: Mapping[str, tuple[str, str, str, str]] = {
    MODEL: (
        "A reward model",
        "A trained reward model scores each step, or the whole answer. It is loaded into this machine's memory and "
        "reads a group in one or two forward passes; no text leaves this machine.",
        "Load and add",
        "Load and change",
    ),
    JUDGE: (
        "A judge",
        "A language model at an endpoint scores each step, or whole answers, by your rubric. That is one request an "
        "answer, 8 for a group of 8, and sends prompt and answer to the address below; the same answer is asked once.",
        "Add",
        "Change",
    ),
    BELIEF: (
        "Belief in the right answer",
        "The policy itself says how probable the right answer is after each step, and a step scores what it adds. That "
        "is one forward pass a step, on this machine; the prompt's data needs the answer or a reference solution.",
        "Add",
        "Change",
    ),
    VALUES: (
        "Step values by sampling",
        "The policy goes on from the end of each step, and the step's value is the mean outcome of these "
        "continuations. 8 answers of 6 steps with k = 8 are 384 answers to sample, on this machine.",
        "Estimate and add",
        "Estimate again",
    ),
    FILE: (
        "A function from a file",
        "A function that you saved, or one in a Python file, joins the list and can be edited here. It runs in this "
        "page's sandbox, and the file itself stays as it is.",
        "Add",
        "Add",
    ),
}
"""What each form says: its title; what it does, costs and sends, in two sentences; its main button, also to change."""
LAYOUT: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "model": (("path",), ("format", "reduce"), ("trust_remote_code",)),
    "judge": (("base_url",), ("model",), ("rubric",), ("key_variable",), ("kind",)),
    "belief": (("of", "form"), ("introduction", "policy"), ("per_token", "log")),
    "monte_carlo": (("continuations", "outcome"), ("progress",), ("in_run",)),
    "file": (("path",),),
}
"""The fields of a form that stand in sight, row by row."""
FOLDED: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "judge": (
        ("lowest", "highest", "temperature", "max_tokens"),
        ("max_calls", "concurrency", "timeout", "retries"),
        ("cache",),
    )
}
"""Those that are folded away; what else a section has is set in a file."""
SPECIAL: Mapping[str, Mapping[str, Any]] = {
    "model.path": {
        "label": "Reward model: folder, Hub id or run:NAME",
        "placeholder": "Qwen/Qwen2.5-Math-PRM-7B",
    },
    "model.format": {
        "label": "Format",
        "choices": (
            ("by its architecture", ""),
            ("classifier: one score a completion", "classifier"),
            ("stepwise: token classification (TRL)", "stepwise"),
            ("ки: P(+) of {+, −} (Math-Shepherd)", "ki"),
            ("<extra_0> after each step (Qwen2.5-Math-PRM)", "extra-0"),
            ("chat turns answered + or − (RLHFlow)", "turns"),
            ("implicit: how the likelihood of the answer moved", "implicit"),
        ),
    },
    "model.reduce": {
        "label": "Used as",
        "choices": (
            ("a score for each step", ""),
            ("outcome: the last step's", "last"),
            ("outcome: the least", "min"),
            ("outcome: the product", "product"),
        ),
    },
    "model.trust_remote_code": {"label": "Trust and run code from its repository"},
    "judge.kind": {"label": "Scores", "choices": (("each step", "step"), ("whole answers", "outcome"))},
    "judge.rubric": {"kind": "long"},
    "belief.of": {
        "label": "Belief in",
        "choices": (("the answer", "answer"), ("the rest of a reference solution", "reference")),
    },
    "belief.form": {
        "label": "A step scores",
        "choices": (
            ("what it adds to the belief", "difference"),
            ("what it adds to the best so far", "watermark"),
            ("the belief after it", "value"),
        ),
    },
    "monte_carlo.continuations": {"label": "Continuations, k"},
    "monte_carlo.outcome": {"label": "Outcome reward", "kind": "outcome"},
    "monte_carlo.progress": {"label": "Score a step by progress: its value less the one before", "kind": "switch"},
    "monte_carlo.in_run": {"label": "Use in the run, estimated anew at each step"},
    "file.path": {"label": "Saved function, or a file's path: FILE.py or FILE.py::NAME", "kind": "saved"},
}
"""What a field has beside what its section says."""
NEW: Mapping[str, Mapping[str, Any]] = {"model": {"reduce": ""}, "judge": {"base_url": "http://127.0.0.1:8000/v1"}}
"""What a form that adds a reward holds, where that is no default."""
_MORE = (Leaf("kind", str, False, "", "step"), Leaf("in_run", bool, False, "", False), Leaf("path", str, False, "", ""))
"""Fields of forms that no section has."""


def form_leaves(part: str) -> dict[str, Leaf]:
    """The fields of a part's form by name."""
    known = {leaf.name: leaf for leaf in (*_MORE, *(leaves(SECTIONS[part]) if part in SECTIONS else ()))}
    return {name: known[name] for names in (*LAYOUT[part], *FOLDED.get(part, ())) for name in names}


def form_payload(part: str) -> FormPayload:
    """Return a part's form as the page's script draws it: what it says, and its fields, row by row."""
    known, new = form_leaves(part), form_values(part, None)

    def field(name: str) -> FieldPayload:
        leaf, special = known[name], SPECIAL.get(f"{part}.{name}", {})
        choices = special.get("choices", ())
        plain = {bool: "switch", int: "number", float: "number"}.get(leaf.kind, "text")
        return {
            "name": name,
            "label": special.get("label") or label_of(leaf),
            "help": help_of(leaf),
            "kind": "choice" if choices else special.get("kind", plain),
            "value": new[name],
            "choices": choices,
            "placeholder": special.get("placeholder", ""),
        }

    rows, folded = (
        [[field(name) for name in names] for names in layout] for layout in (LAYOUT[part], FOLDED.get(part, ()))
    )
    title, text, add, change = ABOUT[part]
    return FormPayload(
        title=title,
        text=text,
        add=add,
        change=change,
        rows=rows,
        folded=folded,
        outcomes=[name for name, rule in BUILTINS.items() if rule.kind == "outcome"],
    )


def part_of(row: RewardRow) -> str:
    """Return the part that a row's form is about; "" if it is code."""
    return next((part for part in SECTIONS if row.fields.get(part) is not None), "")


def form_values(part: str, row: RewardRow | None) -> dict[str, Any]:
    """Return what a part's form shows of a row, or of the reward that it would add."""
    if row is None:
        return {**{name: leaf.default for name, leaf in form_leaves(part).items()}, **NEW.get(part, {})}
    values = getattr(row.unweighted(), part).model_dump() | {"kind": row.kind, "in_run": row.in_run}
    if part == "model" and (row.kind == "step" or values["format"] not in FORMATS):
        values["reduce"] = ""
    return {name: values[name] for name in form_leaves(part)}


def row_from(
    part: str,
    values: Mapping[str, Any],
    rows: Sequence[RewardRow],
    key: str = "",
    path_of: Callable[[str], str] = checkpoint_or,
) -> RewardRow:
    """Return the row that the values of a part's form come to, in the place of the one with that key; "" adds one.

    Settings that have no field are those of the row before. Raises ConfigError for a value that does not fit,
    RewardError where a model's format must be said, or for a key that the environment lacks.
    """
    before = next((row for row in rows if row.key == key and row.fields.get(part) is not None), None)
    known, kind, name = form_leaves(part), values.get("kind", "step"), part
    given = {name: value.strip() if isinstance(value, str) else value for name, value in values.items()}
    if part == "model":
        if not given["path"]:
            raise ConfigError("give a reward model's folder or Hub id, or run:NAME")
        given["format"] = given.get("format") or guess_format(path_of(given["path"]))
        kind = "outcome" if given["format"] not in FORMATS or given.get("reduce") else "step"
        name = re.sub(r"\W+", "_", Path(given["path"].removeprefix(RUN)).name).strip("_") or "model"
    if part == "judge" and not (given.get("base_url") and given.get("model")):
        raise ConfigError("give the endpoint's base url and the model's name there")
    held = {} if before is None else {name: value for name, value in before.fields[part].items() if name not in known}
    held |= {name: value for name, value in given.items() if name != "kind" and value not in (None, "")}
    held |= {name: None for name, value in given.items() if known[name].optional and value in (None, "")}
    if before is not None and before.fields[part].get("path") == held.get("path"):
        name = before.name
    row = row_of(RewardConfig.parse({"name": free_name(name, rows, key), "kind": kind, part: held}))
    if row.judge is not None:
        judges.key_of(row.judge)
    if before is None:
        return row
    kept = {field: before.fields[field] for field in ("weight", "schedule") if field in before.fields}
    return RewardRow({**row.fields, **kept}, on=before.on)


def add(
    part: str, values: Mapping[str, Any], key: str, draft: PageState, services: session.Services, tab: str
) -> Iterator[scoring.View]:
    """Make the row of a part's form: load its model, reach its judge, estimate its values, read its file.

    What is ``made`` is a row to add, and the key of the one whose place it takes; "" adds it at the end.

    The list on the page may have changed by then, so the page itself puts the row into it.
    """
    try:
        if part not in services.reward_forms:
            raise ConfigError("this page takes no such reward")
        if part == FILE:  # a function saved in the workspace, or FILE.py, or FILE.py::NAME of several
            path = str(values["path"]).strip()
            saved = services.workspace / "rewards" / f"{path}.py"
            fields = source.reward_in_file(str(saved) if path in source.saved_rewards(services.workspace) else path)
            yield scoring.View(made=in_place(RewardRow(fields), draft.rows))
        elif part == VALUES:
            yield from _estimate(draft, values, services, tab)
        else:
            row = row_from(part, values, draft.rows, key, services.path_of)
            if row.model is not None:
                yield from _load(row.model, services, tab)
            if row.judge is not None:
                services.judges.reach(row.judge)
            yield scoring.View(made=(row, key))
    except WorkbenchError as error:
        yield scoring.View.of_error(error)


def in_place(row: RewardRow, rows: Sequence[RewardRow]) -> tuple[RewardRow, str]:
    """Return a row with the switch and the weight of its namesake, whose place it takes, if there is one."""
    before = next((other for other in rows if other.name == row.name), None)
    kept = RewardRow({**row.fields, "weight": before.weight}, on=before.on) if before is not None else row
    return kept, "" if before is None else before.key


def _load(model: ModelConfig, services: session.Services, tab: str) -> Iterator[scoring.View]:
    """Load a reward model in the model worker, telling how far it is."""
    loading = f"loading reward model {model.path}"

    def load(report: Callable[[str], None], cancelled: Callable[[], bool]) -> None:
        def tell(event: Mapping[str, Any]) -> None:
            doing = f"{event['seconds']:.0f} s" if "busy" in event else f"the worker {event['waiting']}"
            report(f"{loading}, {doing}")

        services.models.load(model, tell, cancelled)

    with services.estimating.run(tab, load, loading, "Cancelled; nothing was added.") as work:
        for line in work:
            yield scoring.View(scoring.Note(line, level="info"), True)
        work.result()


def run_as_reward(rows: Sequence[RewardRow], name: str, workspace: Path) -> RewardRow:
    """The row of a finished run's reward model. Raises WorkbenchError where there is none to add."""
    path = f"{RUN}{name}"
    form = open_run(name, workspace).config().method.reward_format
    find_checkpoint(path, workspace)
    if form is None:
        raise ConfigError(f"{path} is a policy; a run that trains a reward model ends with one to use as a reward")
    if any(row.model is not None and row.model.path == path for row in rows):
        raise ConfigError(f"{path} is in the list already")
    return row_from("model", {"path": path, "format": form}, rows)


def free_name(name: str, rows: Sequence[RewardRow], key: str = "") -> str:
    """A name that no other row than that with the key has: ``name``, or that with a number."""
    taken = {row.name for row in rows if row.key != key}
    return next(free for free in (name, *(f"{name}_{n}" for n in range(2, len(taken) + 3))) if free not in taken)


def _estimate(
    draft: PageState, values: Mapping[str, Any], services: session.Services, tab: str
) -> Iterator[scoring.View]:
    """Estimate the values of the group on screen, telling how far it is. Nothing on screen changes meanwhile."""
    group, pattern = draft.group, draft.pattern()
    if group is None:
        raise ConfigError("there is no group whose steps have a value; sample one first")
    how = MonteCarloConfig.parse({name: values.get(name) for name in ("continuations", "outcome", "progress")})
    row = next((row for row in draft.rows if (row.name, row.kind) == (how.outcome, "outcome")), None)
    if row is None and how.outcome not in BUILTINS:
        raise ConfigError(f"there is no outcome reward {how.outcome!r} any more; choose another")
    reward = RewardConfig(name=how.outcome, kind="outcome") if row is None else row.config()
    scoring.split(group, pattern, services.reward_worker(tab))  # where a bad pattern harms nobody

    def ask(report: Callable[[dict[str, Any]], None], cancelled: Callable[[], bool]) -> StepValues | None:
        return services.models.step_values(
            draft.policy, group, pattern, reward,
            k=how.continuations, seed=0, on_event=report, cancelled=cancelled, **draft.policy_options,
        )  # fmt: skip

    with services.estimating.run(tab, ask, session.NO_EVENT, "Cancelled; nothing was estimated.") as work:
        for event in work:
            yield scoring.View(scoring.Note(_status(event), level="info"), True)
        found = work.result()
    assert found is not None
    config = RewardConfig(name=NAMES["progress" if how.progress else "value"], kind="step", monte_carlo=how)
    estimated = Estimated(group, found, reward)
    before = next((row for row in draft.rows if row.monte_carlo is not None), None)  # whose place they take
    made = RewardRow(
        set_fields(config) | ({} if before is None else {"weight": before.weight}),
        in_run=bool(values.get("in_run")),
        estimated=estimated,
    )
    services.estimates[made.key] = estimated
    said = scoring.Note(f"{say_count(found.tokens, 'token')} in {found.seconds:.1f} s", level="info")
    yield scoring.View(said, made=(made, "" if before is None else before.key))


def _status(event: dict[str, Any]) -> str:
    done = "{done} of {total} continuations, {tokens} tokens, {seconds:.0f} s"
    return done.format(**event) if "done" in event else session.progress_text(event)


# ── the row ──────────────────────────────────────────────────────────────────────────────────────────────────────


def values_facts(row: RewardRow) -> list[tuple[str, str]]:
    """Return what a row of Monte-Carlo values shows, as (label, value)."""
    how, estimated = row.monte_carlo, "not yet"
    assert how is not None
    if row.estimated is not None:
        values = row.estimated.values
        known = [error for errors in values.errors for error in errors if error is not None]
        spread = f", standard error {sum(known) / len(known):.2f} on average" if known else ""
        estimated = f"{say_count(values.tokens, 'token')} in {values.seconds:.1f} s{spread}"
    return [
        ("value of a step", f"mean {how.outcome} of {how.continuations} continuations from its end"),
        ("a step scores", "what it adds to the value before it" if how.progress else "its value"),
        ("estimated", estimated),
        ("in a run", "estimated anew at each step of training" if row.for_run else "left out"),
    ]


# ── labels ───────────────────────────────────────────────────────────────────────────────────────────────────────


@validate_call(config=session.CHECKED)
def step_labels(
    services: session.Services, tab: str, key: str, form: LabelFormat, estimation: Estimation
) -> dict[str, str]:
    """Return the steps of the group that a row's values are of as labels: a file's ``name`` and ``text``, and what to
    say."""
    estimated = services.estimates.get(key)
    if estimated is None:
        return {"said": "Estimate step values first; the labels are made of them."}
    group, values = estimated.group, estimated.values
    try:
        splits = split_group(group, values.pattern, worker=services.reward_worker(tab))
    except WorkbenchError as error:
        return {"said": str(error)}
    steps = [step_texts(row.text, cut.steps) for row, cut in zip(group.rollouts, splits, strict=True)]
    labels: list[dict[str, Any]] = label_rows(group, values, form, estimation=estimation, step_texts=steps)
    if not labels:
        return {"said": "Every completion has a step without a value; there is nothing to write."}
    return {
        "name": f"labels-{form}.jsonl",
        "text": "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in labels),
        "said": f"{len(labels)} of {len(group)} completions written",
    }
