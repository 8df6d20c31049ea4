"""Payloads of the page's scripts, as typed dictionaries; ``assets/payloads.js`` has the same under the same names.

Where a dataclass is sent as it is, its fields are the keys: see PAYLOADS.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from workbench.checks import Finding
from workbench.checks.metrics import Metric
from workbench.policies.client import PolicyStatus
from workbench.rewards.statistics import Correlation, Distribution, FunctionStatistics
from workbench.views.payloads import NoSpreadPayload, Said, WhyPayload

Pairs = Sequence[tuple[str, str]]


class SaidPayload(TypedDict):
    """A ``Note`` as it is: a message, and the line of the code that it is about."""

    text: str
    level: str
    line: int | None
    detail: str


class NotePayload(SaidPayload):
    """A message beside a control; ``editor`` is the elem_id of the code editor that ``line`` is of, ``fields`` those of
    the fields that it is about, ``action`` the label of its button."""

    editor: str | None
    fields: Sequence[str]
    action: str | None


class RowsPayload(TypedDict):
    """Rows that a task's section makes of its data: how many there are, and the first ones by column."""

    text: str
    level: str
    rows: Sequence[Pairs]


class HandLabel(TypedDict):
    """A step's label by its span in characters: 1 right, 0 neutral, -1 wrong."""

    start: int
    end: int
    label: int


class HandLabelsPayload(TypedDict):
    """Labels by hand of some completions, the file that holds all, and why nothing was kept, if so."""

    completions: Sequence[Sequence[HandLabel]]
    table: str
    error: str


class ClinicPayload(TypedDict):
    """Findings of the clinic on each reward and on all together; ``totals`` are the sums of each strategy's scores."""

    level: str
    headline: str
    rewards: Sequence[Mapping[str, Any]]
    together: Sequence[Mapping[str, Any]]
    totals: Mapping[str, float | None]


class PromptPayload(TypedDict):
    """A prompt that pre-flight sampled, ``place`` its example; of each answer the mean advantage of its sampled tokens,
    None if the loss leaves it out, and whether it is right."""

    place: int
    prompt: str
    answers: Sequence[tuple[float | None, bool | None]]


class SidesPayload(TypedDict):
    """The answers of two policies to one prompt, as drawings, and a sentence on both."""

    names: Sequence[str]
    drawings: Sequence[str]
    said: str


class ProbeRow(TypedDict):
    edit: str
    scheme: str
    rollouts: int
    pays_in: int
    mean_gain: float | None
    largest_gain: float | None
    first_token_before: float | None
    first_token_after: float | None
    pays_for_no_content: bool
    verdict: str


class ProbesPayload(TypedDict):
    """``own`` is the page's scheme, ``said`` a sentence on it."""

    own: str
    said: Said
    schemes: Sequence[str]
    edits: Sequence[Mapping[str, str]]
    rows: Sequence[ProbeRow]
    leftOut: Mapping[str, str]
    rewards: Sequence[str]
    threshold: float


class ProbePair(TypedDict):
    """A cell of the probes' table: the answer in which the edit gains most, drawn before and after it, and the
    advantage of its first token and of the one at the edit, before and after."""

    rollout: int
    drawings: Sequence[str]
    first: Sequence[float]
    at_edit: Sequence[float]


class ReturnedPayload(TypedDict):
    """Returns of a reward for one rollout: each step's text, its score, and whether that says wrong.

    ``printed`` is what it printed meanwhile.
    """

    name: str
    verdict: str
    steps: Sequence[tuple[str, float | None, bool]]
    printed: str


class RewardEditorPayload(TypedDict):
    """Panel beside the code of the reward with this key: a sentence and a table, or what is ``wrong``.

    ``printed`` is what it printed for no rollout alone. What is wrong has the rollouts it printed something for.
    ``facts`` are about step values.
    """

    key: str
    said: str
    wrong: SaidPayload | None
    rollouts: Sequence[ReturnedPayload]
    printed: str
    facts: Pairs


class ListedPayload(TypedDict):
    """A row of the list, as its fields say now."""

    name: str
    label: str
    kind: str
    weight: float | None


class RowPayload(ListedPayload):
    """A reward as the page's list holds it: what it was when the page was told of it, and its fields now."""

    key: str
    fields: dict[str, Any]
    on: bool
    in_run: bool
    unfed: bool
    schedule: str
    code: str | None
    is_builtin: bool
    part: str
    form: dict[str, Any]


class FieldPayload(TypedDict):
    """A native field: a text, long, saved, number, switch, choice, or outcome, which names an outcome reward."""

    name: str
    label: str
    help: str
    kind: str
    value: Any
    choices: Sequence[tuple[str, str]]
    placeholder: str


class FormPayload(TypedDict):
    """The form of a reward that is no code; ``add`` and ``change`` are its button's labels."""

    title: str
    text: str
    add: str
    change: str
    rows: Sequence[Sequence[FieldPayload]]
    folded: Sequence[Sequence[FieldPayload]]
    outcomes: Sequence[str]


class CataloguePayload(TypedDict):
    """Rewards that can be added, as (choice, label): a row that is ready, or one by a form."""

    adds: Sequence[tuple[str, str]]
    rows: Mapping[str, RowPayload]
    forms: Mapping[str, FormPayload]


class MadePayload(TypedDict):
    """Progress of a form, or its row and the key of the one whose place it takes."""

    note: SaidPayload | None
    running: bool
    row: RowPayload | None
    instead: str


class RewardsPayload(TypedDict):
    """Returns of each reward, by its row's key, and the one that is edited. ``weighs``: the scheme adds the final
    answer with a weight. ``number`` is that of the list's last change that this answers."""

    rows: Mapping[str, SaidPayload]
    editor: RewardEditorPayload | None
    listed: Mapping[str, ListedPayload]
    weighs: bool
    number: int


class SchemeGuide(TypedDict):
    name: str
    formula: str
    source: str
    summary: str
    options: Sequence[Mapping[str, str]]


class GuidePayload(TypedDict):
    schemes: Sequence[SchemeGuide]
    normalisations: Sequence[Mapping[str, str]]
    metrics: Sequence[Mapping[str, Any]]
    symbols: Sequence[Sequence[str]]
    shortcuts: Sequence[Sequence[str]]
    snippet: str
    trust: Sequence[str]


class LivePayload(TypedDict):
    """One token's advantage; ``rollout`` and ``step`` count from 1, ``token`` from 0."""

    scheme: str
    options: Mapping[str, str]
    pinned: bool
    rollout: int
    token: int
    text: str
    step: int | None
    noSpread: NoSpreadPayload | None
    why: WhyPayload
    advantage: float


DATACLASSES = {
    "FindingPayload": Finding,
    "ScoresPayload": Distribution,
    "FunctionPayload": FunctionStatistics,
    "CorrelationPayload": Correlation,
    "MetricPayload": Metric,
    "PolicyStatusPayload": PolicyStatus,
}
"""Sent field by field."""
