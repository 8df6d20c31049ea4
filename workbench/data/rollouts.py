"""Importing rollouts: the rows of a data file → groups: format, grouping by prompt, joining of steps, tokens.

``load_groups`` is the public door; ``read_groups`` says besides what was decided on the way (which format, which
tokenizer, what could not be kept exactly): ``Facts``. Torch is not loaded.
"""

from __future__ import annotations

import json
import logging
import pickle
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from workbench.data.conversations import plain_pieces, templated_pieces
from workbench.data.formats import FORMATS, ROLLOUTS, Format, recognise
from workbench.data.logs import with_rewards
from workbench.data.read import EVERY, MAX_BYTES, NAN, Lazy, Row, is_of_a_run, resolve, rows_and_faults
from workbench.data.rows import Record, columns_of
from workbench.data.tokens import WORDS, WRITTEN_END, Tokeniser, Words, load_tokeniser
from workbench.errors import PatternError, TaskError, cut
from workbench.schema import ASSISTANT, Group, Prompt, Rollout, Turn, runs_of_policy, say_count
from workbench.steps import PRESETS, split_steps

OWN = frozenset(
    {"reward", "correct", "labels", "labelled_steps", "model", "advantage", "logged_advantage", "logged_reward"}
)
"""Columns that always belong to one completion, also where all of a group agree."""
LOGGED_BY_TRL = frozenset({"trl", "ms-swift"})
"""Formats with a column a reward function, of which ``reward`` is the sum."""
_PRESETS = {"\n": "line", "\n\n": "paragraph"}
REWRITTEN = (
    "whose chat template writes earlier turns anew (its rendering of the first messages is no beginning of that of "
    "all): each turn stands as when it was the last, and later ones followed a text that is not shown"
)
"""What is said of episodes that were rendered by such a template."""
UNKNOWN_END = "treated as complete: the file does not say whether the length cut it off"
AS_WORDS = "no tokenizer was given: tokens are words, digits and marks, not a model's"

_LOGGER = logging.getLogger("workbench.data")


@dataclass(frozen=True)
class Facts:
    """Decisions made in reading a file: ``preset`` is the step pattern that finds its own steps, if it has any.

    ``columns`` are what rows say beside prompts and completions, ``rewards`` those of them that ``reward`` is the sum
    of.
    """

    format: str
    rows: int
    tokenizer: str = ""
    preset: str | None = None
    notes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    rewards: tuple[str, ...] = ()


@dataclass(frozen=True)
class UntokenizedGroup:
    """A group whose completions are not tokenised yet."""

    prompt: Prompt
    rollouts: tuple[Record, ...]
    columns: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Imported:
    """The groups of a file, each made when it is asked for; prompts and columns are in ``drafts`` before."""

    groups: Sequence[Group]
    drafts: Sequence[UntokenizedGroup | Group]
    read: Facts | Builder

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def facts(self) -> Facts:
        """Return how the file was read, as far as its groups are made."""
        return self.read if isinstance(self.read, Facts) else self.read.facts(len(self))


def load_groups(
    path: str | Path,
    *,
    tokenizer: Any = None,
    format: str | None = None,
    limit: int | None = None,
    columns: Mapping[str, str] | None = None,
    skip_bad_rows: bool = False,
) -> list[Group]:
    """Return the groups of a data file or a folder of them, or of the data that comes along as ``"gsm8k"``.

    Completions with the same prompt are a group, in the file's order. ``tokenizer`` is ``"tiny"``, a folder, a Hub name
    or a fast tokenizer object; without one, texts are cut into words. ``token_ids`` in the file are taken as they are.
    ``format`` (see ``data.formats``) is detected from the first row unless given; ``limit`` is a number of groups.
    Where columns have other names, ``columns={"prompt": "meta.question", "completion": "text"}`` says which they are.
    What the file says of one completion (``reward``, ``correct``, ``labels``) is in its ``columns``. With
    ``skip_bad_rows``, rows that cannot be read are left out. What was left out or decided is logged, a note a line
    (logger ``workbench.data``).

    Raises:
        TaskError: for a file or tokenizer that cannot be read, naming the line or row.
    """
    imported = read_groups(
        path, tokenizer=tokenizer, format=format, limit=limit, columns=columns, skip_bad_rows=skip_bad_rows
    )
    groups = list(imported.groups)
    for note in imported.facts.notes:
        if not note.endswith((UNKNOWN_END, AS_WORDS)):  # true of most files
            _LOGGER.warning("%s: %s", path, note)
    return groups


def group_of(prompt: Prompt, completions: Sequence[str], *, tokenizer: Any = None, **columns: Any) -> Group:
    """Your own answers to one prompt as a group, ``columns`` (the right ``answer``, say) being the data row's others.

    ``tokenizer`` is as in ``load_groups``; every completion, at least one, is taken as finished.
    """
    records = tuple(
        Record(f"completion {n}", prompt, text, columns=dict(columns)) for n, text in enumerate(completions, 1)
    )
    return Builder(load_tokeniser(tokenizer), Facts("texts", len(records)), "texts").build(
        UntokenizedGroup(prompt, records)
    )


def read_groups(
    path: str | Path,
    *,
    tokenizer: Any = None,
    format: str | None = None,
    limit: int | None = None,
    columns: Mapping[str, str] | None = None,
    skip_bad_rows: bool = False,
    max_bytes: int = MAX_BYTES,
    on_event: Callable[[dict[str, Any]], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Imported:
    """``load_groups`` with the facts: format, tokenizer, preset, and notes on what could not be kept exactly.

    A group is tokenised when it is first asked for, held compressed, and unpacked whenever it is asked for again; notes
    on tokens are of the groups that were asked for. ``on_event`` hears ``{"phase": …}``; once ``cancelled`` says True,
    what is there by then is returned. Raises TaskError, also when a group with ids of another tokenizer is asked for.
    """
    file = resolve(path)
    report = on_event or (lambda event: None)
    is_cancelled = cancelled or (lambda: False)
    report({"phase": "reading"})
    if format in (None, "run") and not columns and is_of_a_run(file):
        from workbench.rundir.rollouts import read

        groups: Sequence[Group] = [credit.scored.group for credit in read(file)[:limit]]
        return Imported(groups, groups, Facts("run", sum(map(len, groups)), tokenizer="the run's own"))

    def rows() -> Iterator[Row]:
        for number, row in enumerate(rows_and_faults(file, EVERY, max_bytes=max_bytes), start=1):
            if number % 1000 == 0:
                report({"phase": f"reading, {number:,} rows"})
                if is_cancelled():
                    return
            yield row

    drafts, facts = read_drafts(rows(), file.name, format, columns, skip_bad_rows=skip_bad_rows)
    report({"phase": "loading the tokenizer"})
    builder, drafts = Builder(load_tokeniser(tokenizer), facts, file.name), drafts[:limit]
    return Imported(_packed(len(drafts), lambda i: builder.build(drafts[i])), drafts, builder)


def _packed(count: int, make: Callable[[int], Group]) -> Sequence[Group]:
    """Return a sequence of groups that are made once and held compressed: as objects they take 35 times their file."""
    kept: dict[int, bytes] = {}

    def group(i: int) -> Group:
        if i not in kept:
            kept[i] = zlib.compress(pickle.dumps(make(i)), 1)
        made: Group = pickle.loads(zlib.decompress(kept[i]))
        return made

    return Lazy(count, group)


# --- rows → groups without tokens ------------------------------------------------------------------------------------


def read_drafts(
    rows: Iterable[Row],
    file: str,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    *,
    skip_bad_rows: bool = False,
) -> tuple[list[UntokenizedGroup], Facts]:
    """Group the completions of all rows by prompt, in the order in which prompts first come.

    ``columns`` are made of others before a row is read: ``{"prompt": "meta.question"}``. Raises TaskError, naming the
    file and the row, for rows that do not have the format, or counts them in a note where they are to be skipped.
    """
    if format is not None and format not in ROLLOUTS:
        raise TaskError(f"format {format!r} is unknown; choose one of {', '.join(ROLLOUTS)}")
    columns = columns or {}
    if format is None and "prompt" in columns and columns.keys() & {"completion", "token_ids"}:
        format = "plain"  # which is what was said
    layout = None if format is None else FORMATS[format]
    records: list[Record] = []
    silent: list[str] = []
    bad: list[TaskError] = []
    left_out: list[str] = []
    total, changed = 0, Counter[str]()
    for row in rows:
        if row.left_out:
            left_out.append(row.left_out)
            continue
        total += 1
        try:
            if row.fault:
                raise TaskError(row.fault)
            where = f"{file} {row.where}"
            values = {**row.values, **columns_of(where, row.values, columns, "columns")}
            if layout is None:
                layout = recognise(values)
            read = layout.records(where, values)
        except TaskError as error:
            if not skip_bad_rows:
                raise
            bad.append(error)
            continue
        changed.update(row.changed)
        silent += [] if read else [row.where]
        records += read
    if layout is None or not records:
        why = f"; {bad[0]}" if bad else f" ({cut(', '.join(silent), 100)}); give some that were answered"
        raise TaskError(f"{file} has {say_count(total, 'row')} and no completion in any{why}")
    records, preset, notes = _joined(records, layout)
    notes += left_out
    rewards: Sequence[str] = ()
    if layout.name in LOGGED_BY_TRL and "reward" not in columns:
        records, rewards, said = with_rewards(records)
        notes.append(said)
    unread = (name for record in records for name, value in record.columns.items() if _is_unread(name, value))
    of_some = Counter(f"with a list of objects in {name!r}, whose text is not shown" for name in unread)
    of_some.update(note for record in records for note in record.notes)
    if layout.name in LOGGED_BY_TRL:  # which write NaN for what a reward left unscored
        del changed[NAN]
    counts = [
        (len(bad), "bad row", f"left out; the first: {bad[0] if bad else ''}"),
        (len(silent), "row", f"without a completion left out: {cut(', '.join(silent), 100)}"),
        *((times, "completion", note) for note, times in of_some.items()),
        *((times, "row", note) for note, times in changed.items()),
    ]
    notes += [f"{say_count(count, noun)} {note}" for count, noun, note in counts if count]
    grouped: dict[str, list[Record]] = {}
    for record in records:
        asked = json.dumps([record.prompt, record.prompt_ids], sort_keys=True)
        grouped.setdefault(record.series + asked, []).append(record)
    drafts = [UntokenizedGroup(group[0].prompt, tuple(group)) for group in grouped.values()]
    named = tuple(dict.fromkeys(name for record in records for name in record.columns))
    return drafts, Facts(layout.name, total, preset=preset, notes=tuple(notes), columns=named, rewards=tuple(rewards))


_LONG = re.compile(r': "[^"]* ')


def _is_unread(name: str, value: Any) -> bool:
    """Return whether a column that no reader took is a list of objects with text, as turns would be."""
    is_list = name != "tools" and isinstance(value, list) and any(isinstance(one, dict) for one in value)
    return is_list and _LONG.search(json.dumps(value)) is not None


def _joined(records: list[Record], layout: Format) -> tuple[list[Record], str | None, list[str]]:
    """Completions in steps as one text each, with a separator that a preset finds them again by."""
    steps = [record.steps for record in records if record.steps is not None]
    if not steps:
        return records, "line" if layout.name == "gsm8k" else None, []
    free = (
        separator
        for separator in layout.separators
        if not any(separator in step.strip() for row in steps for step in row)
    )
    chosen = next(free, max(layout.separators, key=len))
    preset = _PRESETS[chosen]
    joined = [
        record if record.steps is None else replace(record, completion=chosen.join(record.steps)) for record in records
    ]
    lost = sum(
        not _finds_again(record.completion or "", record.steps, preset) for record in joined if record.steps is not None
    )
    missed = f"in {say_count(lost, 'completion')} the preset {preset!r} does not find exactly the file's steps"
    return joined, preset, [missed] if lost else []


def _finds_again(text: str, steps: Sequence[str], preset: str) -> bool:
    with suppress(PatternError):
        found = [text[step.start : step.end].strip() for step in split_steps(text, PRESETS[preset].pattern)]
        return found == [step.strip() for step in steps if step.strip()]
    return False


# --- tokens ----------------------------------------------------------------------------------------------------------


_SAID = {
    "inexact": ("completion", "that tokenizer {name!r} cannot give back, with the text shown by offsets"),
    "unlike": ("row", "whose token ids decode to another text than the completion; the ids are shown"),
    "idle ids": ("row", "with token ids, but no tokenizer was given: the text is shown in words"),
    "untemplated": ("episode", "whose turns and observations stand as plain text, with no chat template"),
    "rewritten": ("episode", REWRITTEN),
    "malformed": ("episode", "with a malformed tool call: it stands as plain text"),
    "unwritten": ("episode", "whose chat template leaves out calls or thoughts: it stands as plain text"),
    "after end": ("completion", "without what follows the end token, or fills the batch: {tokens}"),
    "written end": ("completion", "whose text ends in an end token, which is taken as that"),
    "unknown end": ("completion", UNKNOWN_END),
}
"""What a builder counts, the noun for what has it, and what is said of those."""


class Builder:
    """Tokenises drafts and counts what has to be said about it."""

    def __init__(self, tokeniser: Tokeniser, facts: Facts, file: str) -> None:
        self._tokeniser, self._facts, self._file = tokeniser, facts, file
        self._counts: Counter[str] = Counter()
        self._kept = False

    def build(self, draft: UntokenizedGroup) -> Group:
        """Tokenise a draft. Raises TaskError for token ids that the tokenizer does not have."""
        rollouts = [self._rollout(record) for record in draft.rollouts]
        self._counts["group"] += 1
        shared = {
            name: value
            for name, value in rollouts[0].columns.items()
            if name not in OWN and all(name in r.columns and r.columns[name] == value for r in rollouts[1:])
        }
        rollouts = [
            replace(rollout, columns={name: value for name, value in rollout.columns.items() if name not in shared})
            for rollout in rollouts
        ]
        first, prompt = draft.rollouts[0], draft.prompt
        if first.prompt_ids is not None:
            prompt = "".join(self._decoded(first, first.prompt_ids) or ())
        read = {"file": self._file, "format": self._facts.format, "tokenizer": self._tokeniser.name}
        sampling = first.sampling | read
        if self._facts.preset is not None:
            sampling["preset"] = self._facts.preset
        return Group(prompt, tuple(rollouts), shared, policy=first.policy, sampling=sampling)

    def facts(self, groups: int = 0) -> Facts:
        """Return what is known of the drafts that are built, of so many ``groups``."""
        name = self._tokeniser.name
        tokens = say_count(self._counts["token"], "token")
        notes = [
            f"{say_count(self._counts[what], noun)} {text.format(name=name, tokens=tokens)}"
            for what, (noun, text) in _SAID.items()
            if self._counts[what]
        ]
        if (built := self._counts["group"]) < groups:
            notes = [f"of the {say_count(built, 'group')} looked at, {note}" for note in notes]
        if self._tokeniser.name == WORDS and not self._kept:
            notes.append(AS_WORDS)
        return replace(
            self._facts,
            tokenizer="the file's own" if self._kept else name,
            notes=(*self._facts.notes, *notes),
        )

    def _decoded(self, record: Record, ids: tuple[int, ...]) -> tuple[str, ...] | None:
        try:
            return self._tokeniser.decoded(ids)
        except ValueError as error:
            raise TaskError(f"{record.where}: {error}; give the one that made them") from error

    def _rollout(self, record: Record) -> Rollout:
        if record.rollout is not None:
            self._kept = True
            return record.rollout
        if record.token_ids:
            decoded = self._decoded(record, record.token_ids)
            if decoded is not None:
                return self._trim_sampled(record, record.token_ids, decoded)
            if record.completion is None and record.conversation is None:
                raise TaskError(
                    f"{record.where}: there are token ids and no completion; give the tokenizer that made them"
                )
            self._counts["idle ids"] += 1
        if record.conversation is not None or record.pieces is not None:
            return self._episode(record)
        return self._tokenised(record)

    def _trim_sampled(self, record: Record, ids: tuple[int, ...], texts: tuple[str, ...]) -> Rollout:
        """Return ids as they were sampled, without padding: whether the last one ends a sequence is a fact."""
        count = self._length(ids, record.mask)
        logged = record.columns.get("logged_advantage")
        columns = record.columns | ({"logged_advantage": logged[:count]} if isinstance(logged, list) else {})
        rollout = Rollout(
            ids[:count],
            texts[:count],
            ids[count - 1] in self._tokeniser.end_ids,
            None if record.logprobs is None else record.logprobs[:count],
            None if record.entropies is None else record.entropies[:count],
            columns=columns,
            mask=None if record.mask is None else record.mask[:count],
            turns=tuple(replace(turn, end=min(turn.end, count)) for turn in record.turns if turn.start < count),
        )
        text, whole = record.completion, "".join(texts)
        self._counts["unlike"] += text is not None and text not in (rollout.text, whole)
        if record.conversation is not None:
            said = (record.conversation.messages[turn]["content"] for turn in record.conversation.turns)
            self._counts["unlike"] += any(part.strip() not in whole for part in said)
        return rollout

    def _episode(self, record: Record) -> Rollout:
        """Return each turn and each observation tokenised on its own; what the policy did not write has mask 0."""
        pieces = self._pieces(record)
        ids: list[int] = []
        texts: list[str] = []
        mask: list[int] = []
        turns: list[Turn] = []
        exact = True
        for role, text in pieces:
            tokens, start = self._tokeniser.tokens(text), len(ids)
            exact = exact and tokens.exact
            ids += tokens.ids
            texts += tokens.texts
            mask += [int(role == ASSISTANT)] * len(tokens.ids)
            turns.append(Turn(role, start, len(ids)))
        finished = pieces[-1][0] == ASSISTANT and record.finished is not False
        self._counts.update({"inexact": not exact, "unknown end": finished and record.finished is None})
        if finished and not (ids and ids[-1] in self._tokeniser.end_ids):
            (token, shown), last = self._tokeniser.end, turns[-1]
            ids, texts, mask = [*ids, token], [*texts, shown], [*mask, 1]
            turns[-1] = replace(last, end=len(ids))
        return Rollout(tuple(ids), tuple(texts), finished, columns=record.columns, mask=tuple(mask), turns=tuple(turns))

    def _pieces(self, record: Record) -> Sequence[tuple[str, str]]:
        """(role, text) of an episode's turns and observations; a last turn that was cut off has no end."""
        if record.pieces is not None:
            return record.pieces
        assert record.conversation is not None
        turns = set(record.conversation.turns)
        messages = (
            {**message, "content": WRITTEN_END.sub("", message["content"])} if i in turns else message
            for i, message in enumerate(record.conversation.messages)
        )
        conversation = replace(record.conversation, messages=tuple(messages))
        self._counts["written end"] += conversation != record.conversation
        tokeniser = self._tokeniser
        if conversation.is_malformed or isinstance(tokeniser, Words) or not tokeniser.has_template:
            self._counts["malformed" if conversation.is_malformed else "untemplated"] += 1
            return plain_pieces(conversation)
        try:
            pieces, rewrites, leaves_out = templated_pieces(tokeniser.render, conversation, tokeniser.ends)
        except TaskError as error:
            raise TaskError(f"{record.where}: {error}") from error
        if leaves_out:
            self._counts["unwritten"] += 1
            return plain_pieces(conversation)
        self._counts["rewritten"] += rewrites
        role, last = pieces[-1]
        ends = tokeniser.ends if role == ASSISTANT and record.finished is False else ()
        end = next((end for end in ends if last.endswith(end)), "")
        return [*pieces[:-1], (role, last.removesuffix(end))]

    def _tokenised(self, record: Record) -> Rollout:
        text = record.completion or ""
        written = WRITTEN_END.search(text)
        tokens = self._tokeniser.tokens(text)
        count = self._length(tokens.ids) if tokens.ids else 0
        has_end = bool(count) and tokens.ids[count - 1] in self._tokeniser.end_ids
        if written and not has_end:  # another tokenizer's
            tokens = self._tokeniser.tokens(text[: written.start()])
            count = len(tokens.ids)
        has_written = has_end or bool(written)
        unknown = record.finished is None and not has_written
        self._counts.update({"written end": has_written, "inexact": not tokens.exact, "unknown end": unknown})
        finished = record.finished is not False or bool(written)
        end = [self._tokeniser.end] if not has_end and (finished or not count) else []
        return Rollout(
            (*tokens.ids[:count], *(token for token, _ in end)),
            (*tokens.texts[:count], *(shown for _, shown in end)),
            has_end or bool(end),
            columns=record.columns,
        )

    def _length(self, ids: Sequence[int], mask: Sequence[int] | None = None) -> int:
        """Return how many of the ids are the completion: without padding, and what follows its last turn's end."""
        first, last = (list(runs_of_policy(mask or (1,) * len(ids))) or [(0, len(ids) - 1)])[-1]
        ends, pad = self._tokeniser.end_ids, self._tokeniser.pad
        count = next((i + 1 for i in range(first, last) if ids[i] in ends), len(ids))
        while count > 1 and (ids[count - 1] == pad or (count > last + 1 and ids[count - 1] in ends)):
            count -= 1
        self._counts.update({"after end": count < len(ids), "token": len(ids) - count})
        return count
